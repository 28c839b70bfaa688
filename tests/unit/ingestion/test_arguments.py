"""What ingest is called with: a slip is one clear error, before anything is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import dslda
from dslda.exceptions import InputError

MATRIX = sparse.csr_array(np.eye(3, dtype=np.int32))
TERMS = ["apple", "fig", "pear"]


@pytest.mark.parametrize("inputs", [None, 5, "", [None], [""], b"x", np.eye(2)])
def test_inputs_are_paths_or_collections(inputs: object) -> None:
    with pytest.raises(
        InputError,
        match=r"must be (paths or URLs(, a DataFrame of texts, .*)?|a path or URL that is not empty), got ",
    ):
        dslda.ingest(inputs, text="text")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"response": 5}, "response must be the name of a field or several, got 5"),
        ({"covariates": [5]}, r"covariates must be the name of a field or several, got \[5\]"),
        ({"vocabulary": 5}, "vocabulary must be a list of terms, .*, got 5"),
        ({"stop_words": 5}, "stop_words must be None, 'english' or a list of words, got 5"),
    ],
)
def test_options_of_records_are_checked(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "apple"}\n')
    with pytest.raises(InputError, match=message):
        dslda.ingest(tmp_path / "a.jsonl", text="text", **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"response": 5}, "response of a matrix must be a mapping from names to arrays, got 5"),
        ({"response": np.zeros(3)}, "response of a matrix must be a mapping from names to arrays, got array"),
        (
            {"response": {5: np.zeros(3)}},
            "response of a matrix must be a mapping from names to arrays, got {5",
        ),
        ({"response": {"y": 5}}, "'y' must have a value for each of 3 rows, got 5"),
        ({"response": {"y": np.zeros(2)}}, "'y' must have a value for each of 3 rows, got 2"),
        ({"covariates": {"x": np.zeros((3, 2))}}, "'x' must have a value for each of 3 rows, got array"),
        ({"weight": 5}, "'weight' must have a value for each of 3 rows, got 5"),
        ({"id": 5}, "'id' must have a value for each of 3 rows, got 5"),
    ],
)
def test_options_of_a_matrix_are_checked(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        dslda.ingest(MATRIX, vocabulary=TERMS, **options)


def test_none_means_no_response_and_no_covariates(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "apple"}\n')
    everything = {"min_df": 1, "max_df": 1.0, "response": None, "covariates": None}
    for corpus in (
        dslda.ingest(tmp_path / "a.jsonl", text="text", **everything),
        dslda.ingest(MATRIX, vocabulary=TERMS, response=None, covariates=None),
    ):
        assert (corpus.response_names, corpus.covariate_names) == ((), ())
