"""Choose the vocabulary, exactly and over the whole corpus, and count over it.

Every chunk gives a table of its terms. Tables are merged in a tree, so the filters see the sums over all
documents, and cuts of the input cannot change the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dslda.corpus.block import DocumentBlock
from dslda.corpus.levels import recode
from dslda.corpus.summary import new_share, oov_share
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import InputError
from dslda.ingestion.counting import CountedChunk
from dslda.wording import number_of

__all__ = [
    "GivenVocabulary",
    "SelectedTerms",
    "merge_term_tables",
    "restrict",
    "select_given",
    "select_terms",
    "term_keys",
    "term_table",
]


MOST_TOO_FREQUENT = 10_000
"""Terms above `max_df` that are remembered: with the defaults texts have some hundred, and a manifest holds them."""


@dataclass(frozen=True, slots=True)
class GivenVocabulary:
    """A vocabulary to count over.

    Attributes
    ----------
    vocabulary : Vocabulary
    by_position : bool
        Documents hold positions in it, as digits, and not its terms.
    too_frequent : tuple of str
        Terms that its corpus left out as too frequent.
    """

    vocabulary: Vocabulary
    by_position: bool = False
    too_frequent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectedTerms:
    """The vocabulary of a corpus.

    Attributes
    ----------
    vocabulary : Vocabulary
        With document frequencies.
    n_tokens : int
        Occurrences of its terms in the whole corpus.
    n_terms_before : int
        Distinct terms before the filters.
    n_all_tokens : int or None
        Occurrences of all terms, before the filters; None where documents hold positions in the vocabulary, since
        nobody knows what was left out when they were counted.
    too_frequent : tuple of str
        Terms that `max_df` left out, sorted; if there are more than 10,000, those in most documents.
    n_too_frequent_tokens : int or None
        Occurrences of these; None where `n_all_tokens` is.
    """

    vocabulary: Vocabulary
    n_tokens: int
    n_terms_before: int
    n_all_tokens: int | None
    too_frequent: tuple[str, ...]
    n_too_frequent_tokens: int | None

    @property
    def oov_share(self) -> float | None:
        """Share of unknown tokens, as in a corpus store."""
        return oov_share(self.n_tokens, self.n_all_tokens)

    @property
    def new_share(self) -> float | None:
        """Share of unknown tokens without the terms left out as too frequent, as in a corpus store."""
        return new_share(self.n_tokens, self.n_all_tokens, self.n_too_frequent_tokens)


def term_keys(vocabulary: Vocabulary, *, by_position: bool = False) -> pa.LargeStringArray:
    """The terms as documents write them."""
    keys = map(str, range(len(vocabulary))) if by_position else vocabulary.terms
    return pa.array(keys, type=pa.large_string())


def term_table(chunk: CountedChunk) -> pa.Table:
    """Columns ``term``, ``documents`` (that hold it) and ``tokens`` (occurrences), one row for each term."""
    n = len(chunk.words)
    documents = np.bincount(chunk.terms, minlength=n)
    # sums in float64 are exact far beyond any chunk: 2^53 tokens
    tokens = np.bincount(chunk.terms, weights=chunk.counts, minlength=n)
    return pa.table(
        {"term": chunk.words, "documents": documents.astype(np.int64), "tokens": tokens.astype(np.int64)}
    )


def merge_term_tables(*tables: pa.Table) -> pa.Table:
    """Add up the tables of different documents."""
    together = pa.concat_tables(tables)
    # not Table.group_by: it warns on stderr of unaligned arrays, such as those from the network
    encoded = together["term"].combine_chunks().dictionary_encode()
    positions = encoded.indices.to_numpy()
    sums = {
        name: np.bincount(positions, weights=together[name].to_numpy()).astype(np.int64)
        for name in ("documents", "tokens")
    }
    return pa.table({"term": encoded.dictionary, **sums})


def select_terms(table: pa.Table, settings: TextSettings, n_documents: int) -> SelectedTerms:
    """Filter the terms of a whole corpus as scikit-learn's CountVectorizer does, and sort the rest alphabetically.

    `min_df` and `max_df` come first, as shares of all documents, empty ones too. Then the `max_features` terms with
    most occurrences stay; ties, whose order scikit-learn leaves open, go to the alphabetically first.
    """
    documents = table["documents"].to_numpy()
    tokens = table["tokens"].to_numpy()
    fewest, most = (
        bound if isinstance(bound, int) else bound * n_documents
        for bound in (settings.min_df, settings.max_df)
    )
    rare, frequent = documents < fewest, documents > most
    rows = np.flatnonzero(~(rare | frequent))
    if len(rows) == 0:
        if len(table) == 0:
            causes = (
                "{token_pattern} and {stop_words}" if settings.kind == "text" else "{words} and {stop_words}"
            )
            raise InputError(
                f"the vocabulary must have at least one term, but none of {number_of(n_documents, 'document')} has any",
                remedy=f"look at {causes if settings.analyzer is None else '{analyzer}'}",
            )
        raise InputError(
            f"leave none of the {number_of(len(table), 'term')} in {number_of(n_documents, 'document')}: "
            f"{rare.sum():,} are in fewer than {fewest:g} of them, {frequent.sum():,} in more than {most:g}",
            parameter=("min_df", "max_df"),
            remedy=("lower {min_df}", "raise {max_df}"),
        )
    terms = table["term"].combine_chunks().take(pa.array(rows))
    # Arrow compares UTF-8, whose order is that of code points, as that of Python's strings
    order = pc.sort_indices(terms).to_numpy()
    rows = rows[order]
    if settings.max_features is not None and len(rows) > settings.max_features:
        # a stable sort keeps the first of equal terms
        best = np.argsort(-tokens[rows], kind="stable")[: settings.max_features]
        rows, order = rows[np.sort(best)], order[np.sort(best)]
    too_frequent = _most_frequent(table, np.flatnonzero(frequent))
    return SelectedTerms(
        Vocabulary(terms.take(pa.array(order)).to_pylist(), documents[rows]),
        int(tokens[rows].sum()),
        len(table),
        int(tokens.sum()),
        too_frequent,
        _tokens_of(table, too_frequent),
    )


def select_given(
    table: pa.Table, vocabulary: Vocabulary, by_position: bool, too_frequent: tuple[str, ...]
) -> SelectedTerms:
    """Take a :class:`GivenVocabulary` unchanged, and find the document frequencies of its terms."""
    keys = term_keys(vocabulary, by_position=by_position)
    rows = pc.index_in(keys, value_set=table["term"].combine_chunks())
    rows = rows.fill_null(-1).to_numpy(zero_copy_only=False)
    occurs = rows >= 0
    frequency = np.zeros(len(vocabulary), dtype=np.int64)
    frequency[occurs] = table["documents"].to_numpy()[rows[occurs]]
    tokens = table["tokens"].to_numpy()
    return SelectedTerms(
        Vocabulary(vocabulary.terms, frequency),
        int(tokens[rows[occurs]].sum()),
        len(table),
        None if by_position else int(tokens.sum()),
        too_frequent,
        None if by_position else _tokens_of(table, too_frequent),
    )


def restrict(
    chunk: CountedChunk,
    keys: pa.LargeStringArray,
    first_document: int,
    levels: Mapping[str, pa.LargeStringArray],
) -> DocumentBlock:
    """Count a chunk over the terms with these :func:`term_keys` and the `levels` of the corpus.

    Positions name documents without an identifier; `first_document` is the first position of the chunk.
    """
    n = chunk.n_documents
    ids = pc.index_in(chunk.words, value_set=keys).fill_null(-1).to_numpy(zero_copy_only=False)
    terms = ids.astype(np.int32, copy=False)[chunk.terms]
    mask = terms >= 0
    rows = np.repeat(np.arange(n, dtype=np.int64), np.diff(chunk.indptr))
    block = DocumentBlock.from_entries(rows[mask], terms[mask], chunk.counts[mask], n)
    doc_id: tuple[str, ...] | None = None
    if chunk.doc_id is not None:
        doc_id = tuple(
            str(first_document + i) if name is None else name for i, name in enumerate(chunk.doc_id)
        )

    def over_levels(columns: Mapping[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
        return {
            name: recode(values, chunk.levels[name], levels[name]) if name in levels else values
            for name, values in columns.items()
        }

    return replace(
        block,
        responses=over_levels(chunk.responses),
        covariates=over_levels(chunk.covariates),
        weight=chunk.weight,
        doc_id=doc_id,
    )


def _most_frequent(table: pa.Table, rows: NDArray[np.int64]) -> tuple[str, ...]:
    """Terms of some rows, sorted; if too many, those in the most documents, and among equals the alphabetically first."""
    documents = table["documents"].to_numpy()[rows].tolist()
    terms = table["term"].combine_chunks().take(pa.array(rows)).to_pylist()
    ranked = sorted(zip(terms, documents, strict=True), key=lambda pair: (-pair[1], pair[0]))
    return tuple(sorted(term for term, _ in ranked[:MOST_TOO_FREQUENT]))


def _tokens_of(table: pa.Table, terms: tuple[str, ...]) -> int:
    """Occurrences of some terms."""
    chosen = pc.is_in(table["term"].combine_chunks(), value_set=pa.array(terms, type=pa.large_string()))
    return int(table["tokens"].to_numpy()[chosen.to_numpy(zero_copy_only=False)].sum())
