from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dslda.corpus.block import DocumentBlock, document_mask
from dslda.exceptions import InputError


def block(indptr, terms, counts, **columns):
    return DocumentBlock(
        np.array(indptr, dtype=np.int64),
        np.array(terms, dtype=np.int32),
        np.array(counts, dtype=np.int32),
        **columns,
    )


def test_block_knows_its_size():
    b = block([0, 2, 2, 3], [0, 4, 1], [1, 2, 2**31 - 1])
    assert b.n_documents == 3
    assert b.n_tokens == 2**31 + 2
    assert b.validate(5) is b


@pytest.mark.parametrize(
    ("indptr", "terms", "n_terms"),
    [
        ([0], [], 0),
        ([0, 0, 0], [], 0),
        ([0, 0, 1, 1, 2, 2], [3, 0], 4),
        ([0, 0, 2], [0, 1], 2),
        ([0, 2, 2], [0, 1], 2),
    ],
)
def test_empty_documents_are_valid_anywhere(indptr, terms, n_terms):
    block(indptr, terms, np.ones(len(terms))).validate(n_terms)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (block([], [], []), "indptr must run from 0"),
        (block([1, 2], [0, 1], [1, 1]), "indptr must run from 0"),
        (block([0, 1], [0, 1], [1, 1]), "indptr must run from 0"),
        (block([0, 2], [0, 1], [1]), "2 terms, 1 counts"),
        (block([0, 2, 1, 2], [0, 1], [1, 1]), "indptr falls at document 1"),
        (block([0, 1, 2], [0, 5], [1, 1]), "document 1 of the block: has a term outside 0..4"),
        (block([0, 1, 2], [0, -1], [1, 1]), "document 1 of the block: has a term outside"),
        (block([0, 1, 2], [0, 1], [0, 1]), "document 0 of the block: has a count below 1"),
        (block([0, 0, 2], [1, 1], [1, 1]), "document 1 of the block: terms must be strictly ascending"),
        (block([0, 1, 3], [0, 2, 1], [1, 1, 1], doc_id=("a", "b")), "document 'b': terms must be strictly"),
        (block([0, 1], [0], [1], responses={"y": np.zeros(2)}), "'y' has 2 values for 1 documents"),
        (block([0, 1], [0], [1], covariates={"x": np.zeros(0)}), "'x' has 0 values for 1 documents"),
        (block([0, 1], [0], [1], weight=np.ones(2)), "'weight' has 2 values for 1 documents"),
    ],
)
def test_block_that_breaks_a_rule_is_refused_by_document(wrong, message):
    with pytest.raises(InputError, match=message):
        wrong.validate(5)


def test_size_counts_all_arrays_and_identifiers():
    small = block([0, 1], [0], [1])
    large = block(
        [0, 1], [0], [1], responses={"y": np.zeros(1000)}, weight=np.zeros(1000), doc_id=("x" * 5000,)
    )
    assert sys.getsizeof(large) - sys.getsizeof(small) >= 21_000


def test_taken_documents_are_those_of_the_mask():
    whole = block(
        [0, 2, 2, 3, 5],
        [0, 4, 1, 2, 3],
        [1, 2, 3, 4, 5],
        responses={"y": np.array([1.0, 2.0, 3.0, 4.0])},
        covariates={"x": np.array([5.0, 6.0, 7.0, 8.0])},
        weight=np.array([0.5, 1.0, 1.5, 2.0]),
        doc_id=("a", "b", "c", "d"),
    )
    some = whole.take(np.array([False, True, False, True])).validate(5)
    assert (some.indptr.tolist(), some.terms.tolist(), some.counts.tolist()) == ([0, 0, 2], [2, 3], [4, 5])
    assert (some.responses["y"].tolist(), some.covariates["x"].tolist()) == ([2.0, 4.0], [6.0, 8.0])
    assert (some.weight.tolist(), some.doc_id) == ([1.0, 2.0], ("b", "d"))


@pytest.mark.parametrize(
    "documents", [[3, 0], [0, 3], [True, False, False, True, False], np.array([0, 3], np.uint8)]
)
def test_documents_are_chosen_by_a_mask_or_by_row_numbers_in_any_order(documents):
    assert document_mask(documents, 5).tolist() == [True, False, False, True, False]


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([True, False], "one entry for each of 5 documents, got 2"),
        ([0, 5], r"in 0\.\.4, got 5"),
        ([-1], r"in 0\.\.4, got -1"),
        ([1, 1, 2], "name each row once, got 1 rows again"),
        ([False] * 5, "at least one of 5"),
        ([0.5], "mask or row numbers"),
        ([[0]], "one dimension"),
    ],
)
def test_a_wrong_subset_is_refused(documents, message):
    with pytest.raises(InputError, match=message) as caught:
        document_mask(documents, 5)
    assert caught.value.parameter == "documents"


MATRICES = st.integers(1, 4).flatmap(
    lambda n_terms: st.lists(st.lists(st.integers(0, 2), min_size=n_terms, max_size=n_terms), max_size=6).map(
        lambda rows: np.array(rows, dtype=np.int64).reshape(-1, n_terms)
    )
)


def dense(documents: DocumentBlock, n_terms: int) -> np.ndarray:
    matrix = np.zeros((documents.n_documents, n_terms), dtype=np.int64)
    rows = np.repeat(np.arange(documents.n_documents), np.diff(documents.indptr))
    matrix[rows, documents.terms] = documents.counts
    return matrix


@given(matrix=MATRICES, data=st.data())
def test_entries_in_any_order_make_the_same_block(matrix: np.ndarray, data: st.DataObject) -> None:
    rows, terms = np.nonzero(matrix)
    order = np.array(data.draw(st.permutations(range(len(rows)))), dtype=np.int64)
    rows, terms = rows[order], terms[order]
    made = DocumentBlock.from_entries(rows, terms, matrix[rows, terms], len(matrix))
    assert (made.indptr.dtype, made.terms.dtype, made.counts.dtype) == (np.int64, np.int32, np.int32)
    assert np.array_equal(dense(made.validate(matrix.shape[1]), matrix.shape[1]), matrix)


@given(matrix=MATRICES, data=st.data())
def test_taking_documents_takes_their_rows(matrix: np.ndarray, data: st.DataObject) -> None:
    n, n_terms = matrix.shape
    entries = np.nonzero(matrix)
    column = np.arange(n, dtype=np.float64)
    whole = replace(
        DocumentBlock.from_entries(*entries, matrix[entries], n), responses={"y": column}, weight=column
    )
    chosen = np.array(
        data.draw(st.lists(st.integers(0, n - 1), max_size=8) if n else st.just([])), dtype=np.int64
    )
    some = whole.take(chosen).validate(n_terms)
    assert np.array_equal(dense(some, n_terms), matrix[chosen])
    assert some.responses["y"].tolist() == chosen.tolist()
    assert some.weight is not None
    assert some.weight.tolist() == chosen.tolist()
    mask = np.isin(np.arange(n), chosen)
    assert np.array_equal(dense(whole.take(mask), n_terms), matrix[mask])
