"""The labelled corpora that benchmarks run on, as counts over a stated vocabulary."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

__all__ = ["VOCABULARIES", "Problem", "movie_reviews", "read_corpus"]

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
VOCABULARIES = ("full", "2180")


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Documents with a response.

    Attributes
    ----------
    counts : csr_array of int32, shape (n_documents, n_terms)
        Occurrences of each term.
    y : ndarray of float64, shape (n_documents,)
        Response, in the file's unit.
    vocabulary : ndarray of object, shape (n_terms,)
        The terms, in alphabetical order.
    """

    counts: csr_array
    y: NDArray[np.float64]
    vocabulary: NDArray[np.object_]


def movie_reviews(vocabulary: str = "full") -> Problem:
    """Movie reviews and their star ratings (0 to 1), the data of the sLDA paper's first study.

    Parameters
    ----------
    vocabulary : {"full", "2180"}, default "full"
        "full": scikit-learn's default tokens in at least 5 and at most a quarter of the documents (15,235
        terms). "2180": of these, the 2180 with the largest sum over documents of tf-idf, as many as in the
        paper; tf is the count and idf is log(documents / documents with the term), so the sum is ``count *
        idf`` over the whole corpus. The vocabulary is chosen from all documents, before they are split, as
        in the paper; it never sees a rating.
    """
    from sklearn.feature_extraction.text import CountVectorizer

    records = read_corpus("movie_reviews")
    texts, ratings = [r["text"] for r in records], [r["rating"] for r in records]
    vectorizer = CountVectorizer(min_df=5, max_df=0.25)
    counts = csr_array(vectorizer.fit_transform(texts))
    terms = vectorizer.get_feature_names_out()
    if vocabulary != "full":
        frequency = np.bincount(counts.indices, minlength=len(terms))
        score = counts.sum(axis=0) * np.log(len(texts) / frequency)
        # Stable, so that terms of equal score are taken in alphabetical order.
        kept = np.sort(np.argsort(-score, kind="stable")[: int(vocabulary)])
        counts, terms = csr_array(counts[:, kept]), terms[kept]
    counts.sort_indices()
    return Problem(counts.astype(np.int32), np.array(ratings, dtype=np.float64), terms)


def read_corpus(name: str) -> list[dict[str, Any]]:
    """The records of a JSON-lines corpus that lives beside the repository."""
    path = SHARED_DATA / name / f"{name}.jsonl.gz"
    if not path.exists():
        raise SystemExit(
            f"this benchmark needs {name}.jsonl.gz in the folder ../shared/data/{name} beside the checkout; "
            "it is not there, and it may not be put into the repository"
        )
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
