"""The responses that benchmarks predict, and their documents as counts over vocabularies that know no response.

The vocabulary of a corpus is fixed before documents are split, and never sees a response. It has the terms in at least 5
documents, and at most a quarter of them where they are reviews, else half. There is no list of stop words: that bound leaves
the most frequent words out. `poliblog` and `congress109` come as a thousand chosen terms, and keep all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from benchmarks.problems import read_corpus
from dslda.evaluation.metrics import folds
from dslda.evaluation.response_measures import Kind

__all__ = ["CORPORA", "FOLD_SEED", "RESPONSES", "Documents", "Response", "counted_documents", "splits"]

FOLD_SEED = 0
SAMPLE_SEED = 0
FEWEST_DOCUMENTS = 5
SMALLEST_CLASS = 20


@dataclass(frozen=True, slots=True)
class LabelledCorpus:
    """A corpus, and how its documents are counted.

    Attributes
    ----------
    fields : tuple of str
        Fields with the text, joined; empty where the documents are word counts already.
    max_df : float or None
        Largest share of documents that a term may be in; None keeps all terms.
    split : bool
        The corpus has a split into training and test documents; else folds are drawn.
    """

    fields: tuple[str, ...] = ("text",)
    max_df: float | None = 0.5
    split: bool = False


@dataclass(frozen=True, slots=True)
class Response:
    """A response to predict.

    Attributes
    ----------
    corpus : str
        Key of `CORPORA`.
    field : str
    kind : {"real", "count", "ordinal", "binary", "classes"}
        Decides the measures, the rivals and our families.
    one : str or float, optional
        The value that counts as yes, all others as no; without it the values themselves are the response.
    """

    corpus: str
    field: str
    kind: Kind
    one: str | float | None = None

    @property
    def title(self) -> str:
        """Its name in tables."""
        return f"{self.corpus}, {self.field}" + ("" if self.one is None else f" {self.one}")


@dataclass(frozen=True, slots=True, eq=False)
class Documents:
    """Counted documents with a response.

    Attributes
    ----------
    counts : csr_array of int32, shape (n_documents, n_terms)
    y : ndarray of float64, shape (n_documents,)
        The response; for levels and classes their number, counted from 0.
    levels : ndarray
        The levels or classes in their order; empty for a real response and a count.
    vocabulary : ndarray of object, shape (n_terms,)
    train : ndarray of bool, shape (n_documents,), or None
        The given training documents.
    """

    counts: csr_array
    y: NDArray[np.float64]
    levels: NDArray[Any]
    vocabulary: NDArray[np.object_]
    train: NDArray[np.bool_] | None = None


CORPORA = {
    "movie_reviews": LabelledCorpus(max_df=0.25),
    "womens_clothing": LabelledCorpus(max_df=0.25),
    "congress109": LabelledCorpus(fields=(), max_df=None),
    "senate_amendments": LabelledCorpus(fields=("text", "bill_title")),
    "poliblog": LabelledCorpus(fields=(), max_df=None),
    "newsgroups20": LabelledCorpus(fields=(), split=True),
    "house_bills": LabelledCorpus(),
    "imdb50k": LabelledCorpus(max_df=0.25, split=True),
}
RESPONSES = {
    "movie_rating": Response("movie_reviews", "rating", "real"),
    "reviewer": Response("movie_reviews", "reviewer", "classes"),
    "rating": Response("womens_clothing", "rating", "real"),
    "rating_levels": Response("womens_clothing", "rating", "ordinal"),
    "recommended": Response("womens_clothing", "recommended", "binary"),
    "feedback": Response("womens_clothing", "positive_feedback", "count"),
    "ideology": Response("congress109", "ideology", "real"),
    "amendments": Response("senate_amendments", "discrimination", "real"),
    "poliblog": Response("poliblog", "conservative", "binary"),
    "newsgroups": Response("newsgroups20", "newsgroup", "classes"),
    "policy_area": Response("house_bills", "policy_area", "classes"),
    "cosponsors": Response("house_bills", "cosponsors", "count"),
    "one_star": Response("womens_clothing", "rating", "binary", one=1),
    "transportation": Response("house_bills", "policy_area", "binary", one="Transportation and public works"),
    "imdb_rating": Response("imdb50k", "rating", "real"),
    "imdb_positive": Response("imdb50k", "positive", "binary"),
}


def counted_documents(response: Response, *, longest: int = 1, sample: int | None = None) -> Documents:
    """The documents that have the response, counted.

    Parameters
    ----------
    response : Response
        Classes of fewer than 20 documents are left out, so that each is in every training part.
    longest : int, default 1
        Largest n of the n-grams, which have bounds of their own; word counts have only n = 1.
    sample : int, optional
        Number of documents to draw; all by default.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    corpus = CORPORA[response.corpus]
    records = [r for r in read_corpus(response.corpus) if r[response.field] is not None]
    if sample is not None:
        chosen = np.random.default_rng(SAMPLE_SEED).permutation(len(records))[:sample]
        records = [records[i] for i in np.sort(chosen)]
    if response.kind == "classes":
        sizes = Counter(r[response.field] for r in records)
        records = [r for r in records if sizes[r[response.field]] >= SMALLEST_CLASS]
    bounds = {} if corpus.max_df is None else {"min_df": FEWEST_DOCUMENTS, "max_df": corpus.max_df}
    if corpus.fields:
        texts = [" ".join(r[field] or "" for field in corpus.fields) for r in records]
        vectorizer = CountVectorizer(ngram_range=(1, longest), **bounds)
        counts = vectorizer.fit_transform(texts)
    else:
        vectorizer = CountVectorizer(analyzer=_repeated_words, **bounds)
        counts = vectorizer.fit_transform(records)
    counts = csr_array(counts).astype(np.int32)
    counts.sort_indices()
    y: NDArray[Any] = np.array([r[response.field] for r in records])
    if response.one is not None:
        y = (y == response.one).astype(np.int64)
    levels: NDArray[Any] = np.zeros(0)
    if response.kind in ("ordinal", "binary", "classes"):
        levels, y = np.unique(y, return_inverse=True)
    train = np.array([r["split"] == "train" for r in records]) if corpus.split else None
    return Documents(counts, y.astype(np.float64), levels, vectorizer.get_feature_names_out(), train)


def splits(documents: Documents, n_folds: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Training and held-out documents: the given split, or the same folds for every method."""
    if documents.train is None:
        yield from folds(len(documents.y), n_folds, seed=FOLD_SEED)
    else:
        yield np.flatnonzero(documents.train), np.flatnonzero(~documents.train)


def _repeated_words(record: dict[str, Any]) -> list[str]:
    return [word for word, n in zip(record["words"], record["counts"], strict=True) for _ in range(n)]
