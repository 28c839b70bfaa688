"""What a caller of ingest names, checked and put into the form that the rest works with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dslda.corpus.store import Corpus
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import InputError
from dslda.ingestion.append_rules import NamedFields
from dslda.ingestion.corpus_plan import GivenVocabulary
from dslda.inputs.fields import Fields
from dslda.inputs.files import InputFiles
from dslda.inputs.in_memory import MatrixRows
from dslda.inputs.streams import InputFile, compression_of, read_text

__all__ = ["given_vocabulary", "matrix_rows", "name_fields"]

# names that no mapping of arrays can hold by accident
WEIGHT, ID = "\0weight", "\0id"


def name_fields(files: InputFiles | None, given: NamedFields) -> Fields:
    """Check the names of fields and put them together."""
    fields = {
        "text": given.text,
        "words": given.words,
        "counts": given.counts,
        "id": given.id,
        "responses": _names("response", given.response),
        "covariates": _names("covariates", given.covariates),
        "weight": given.weight,
        "categorical": _names("categorical", given.categorical),
    }
    own = None if files is None else files.piece.own_fields
    if files is not None and own is not None:
        named = tuple(
            {"responses": "response"}.get(name, name)
            for name, value in fields.items()
            if value not in (None, ())
        )
        if named:
            raise InputError(
                f"must be left out: {files.piece.title} have no fields",
                parameter=named,
                remedy="use JSON lines, CSV or Parquet for documents with more than words",
            )
        return own
    chosen = Fields(**fields)
    if files is None and not chosen.is_named:
        chosen = replace(chosen, text="text")  # a bag of texts or pairs has no names
    return chosen


def _names(parameter: str, given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    if isinstance(given, Mapping) or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"must be the name of a field or several, got {given!r:.60}", parameter=parameter)
    if len(set(names)) != len(names):
        raise InputError(f"must name each field once, got {list(names)}", parameter=parameter)
    return names


def matrix_rows(matrix: Any, named: NamedFields, given: GivenVocabulary | None) -> tuple[Fields, MatrixRows]:
    """A sparse matrix and the arrays beside it, as fields and the source of records."""
    assert given is not None
    response, covariates, weight, id = named.response, named.covariates, named.weight, named.id
    n, n_terms = matrix.shape
    if n_terms != len(given.vocabulary):
        raise InputError(
            f"the matrix must have a column for each of the {len(given.vocabulary)} terms of the vocabulary, "
            f"got {n_terms}"
        )
    for parameter, values in (("response", response), ("covariates", covariates)):
        none = values is None or (isinstance(values, (tuple, list)) and not values)
        if not none and not (
            isinstance(values, Mapping) and all(isinstance(name, str) and name for name in values)
        ):
            raise InputError(
                f"{parameter} of a matrix must be a mapping from names to arrays, got {values!r:.60}"
            )
    twice = set(response or ()) & set(covariates or ())
    if twice:
        raise InputError(
            f"response and covariates of a matrix must have different names, got {min(twice)!r} in both; "
            "rename one"
        )
    fields = Fields(
        words="words",
        counts="counts",
        id=None if id is None else ID,
        responses=tuple(response or ()),
        covariates=tuple(covariates or ()),
        weight=None if weight is None else WEIGHT,
        categorical=_names("categorical", named.categorical),
    )
    columns: dict[str, Any] = {**dict(covariates or {}), **dict(response or {})}
    if weight is not None:
        columns[WEIGHT] = weight
    if id is not None:
        columns[ID] = id
    for name, values in columns.items():
        # as objects: an array of ["a", nan] or ["1", True] would hold the names "nan" and "True"
        array = np.asarray(values, dtype=object if name in fields.categorical else None)
        if array.shape != (n,):
            raise InputError(
                f"{name.strip(chr(0))!r} must have a value for each of {n} rows, got "
                f"{len(array) if array.ndim == 1 else values!r:.60}"
            )
        columns[name] = array.tolist()
        if hasattr(values, "notna"):  # pandas has several kinds of missing
            pairs = zip(columns[name], values.notna(), strict=True)
            columns[name] = [value if there else None for value, there in pairs]
    return fields, MatrixRows(matrix.tocsr(), columns)


def given_vocabulary(
    vocabulary: Any, by_position: bool, storage_options: Mapping[str, Any] | None, before: Corpus | None
) -> GivenVocabulary | None:
    """The vocabulary that the caller has named, or that of the corpus which is appended to."""
    if before is not None:
        if vocabulary is not None:
            chosen = given_vocabulary(vocabulary, by_position, storage_options, None)
            if chosen is not None and chosen.vocabulary != before.vocabulary:
                raise InputError(
                    "vocabulary must be left out, or be that of the corpus that is appended to, got another"
                )
        return GivenVocabulary(before.vocabulary, by_position, before.too_frequent)
    if vocabulary is None:
        if by_position:
            raise InputError(
                "must name the terms whose positions the documents hold, got none",
                parameter="vocabulary",
                remedy="give a list, or the path of a file with a term a line",
            )
        return None
    too_frequent: tuple[str, ...] = ()
    if isinstance(vocabulary, Corpus):
        vocabulary, too_frequent = vocabulary.vocabulary, vocabulary.too_frequent
    elif isinstance(vocabulary, (str, os.PathLike)):
        path = os.fspath(vocabulary)
        file = InputFile(path, 0, compression_of(path), dict(storage_options or {}))
        # not splitlines(), which takes characters for line ends that a term may hold
        lines = read_text(file).replace("\r\n", "\n").removesuffix("\n").split("\n")
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                raise InputError(f"{path}, line {number}: a vocabulary must have one term a line, got none")
        vocabulary = lines
    if not isinstance(vocabulary, Vocabulary):
        if not isinstance(vocabulary, Iterable):
            raise InputError(
                "vocabulary must be a list of terms, a corpus, or the path of a file with a term a line, got "
                f"{vocabulary!r:.60}"
            )
        vocabulary = Vocabulary(str(term) if isinstance(term, np.str_) else term for term in vocabulary)
    if len(vocabulary) == 0:
        raise InputError("vocabulary must have at least one term, got none")
    vocabulary.to_bytes()  # refuses what no file can hold
    return GivenVocabulary(vocabulary, by_position, too_frequent)
