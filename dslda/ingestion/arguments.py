"""Checks of the arguments of ingest, also against the corpus to append to."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from dslda.corpus.own_analyzer import check_as_stored, function_of
from dslda.corpus.store import Corpus, open_corpus
from dslda.corpus.text import TextSettings, refuse_beside_analyzer
from dslda.corpus.vocabulary import vocabulary_of
from dslda.exceptions import InputError
from dslda.ingestion.vocabulary_selection import GivenVocabulary
from dslda.inputs.fields import Fields
from dslda.inputs.in_memory import MatrixRows, summable_counts
from dslda.inputs.streams import LINE_ENDS, InputFile, read_text
from dslda.storage.location import holds_store

__all__ = [
    "check_appended_fields",
    "given_vocabulary",
    "matrix_rows",
    "name_fields",
    "refuse_names",
    "text_settings_of",
]

# names that no mapping of arrays can hold by accident
WEIGHT, ID = "\0weight", "\0id"


def refuse_names(named: Mapping[str, Any], reason: str) -> None:
    """Refuse arguments that name fields, by their parameters."""
    parameters = tuple(name for name, value in named.items() if value is not None and value not in ((), []))
    if parameters:
        raise InputError(
            f"must be left out: {reason}",
            parameter=parameters,
            remedy="use JSON lines, CSV or Parquet for documents with more than words",
        )


def name_fields(named: Mapping[str, Any], old_corpus: Corpus | None) -> Fields:
    """Check the arguments that name fields, by their parameters, and put them together.

    The corpus `old_corpus` supplies the names that are left out, as far as it remembers them.
    """
    names = {use: named[use] for use in ("text", "words", "counts", "id", "weight")}
    columns = {use: _names(use, named[use]) for use in ("response", "covariates", "categorical")}
    if old_corpus is not None:
        recorded = old_corpus.provenance.get("fields")
        uses = {use: name for name, use in recorded.items()} if isinstance(recorded, Mapping) else {}
        if all(names[use] is None for use in ("text", "words", "counts")):
            names |= {use: uses.get(use) for use in ("text", "words", "counts")}
        for use, stored in (("id", old_corpus.has_doc_id), ("weight", old_corpus.has_weight)):
            if stored and names[use] is None:
                names[use] = uses.get(use)
        columns["response"] = columns["response"] or old_corpus.response_names
        columns["covariates"] = columns["covariates"] or old_corpus.covariate_names
        present = {*columns["response"], *columns["covariates"]}
        columns["categorical"] = columns["categorical"] or tuple(n for n in old_corpus.levels if n in present)
    return Fields(
        responses=columns["response"],
        covariates=columns["covariates"],
        categorical=columns["categorical"],
        **names,
    )


def _names(parameter: str, value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    names = tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    if isinstance(value, Mapping) or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"must be the name of a field or several, got {value!r:.60}", parameter=parameter)
    if len(set(names)) != len(names):
        raise InputError(f"must name each field once, got {list(names)}", parameter=parameter)
    return names


def matrix_rows(matrix: Any, named: Mapping[str, Any], n_terms: int) -> tuple[Fields, MatrixRows]:
    """The fields and rows of a sparse matrix with the arrays beside it."""
    response, covariates = named["response"], named["covariates"]
    if matrix.ndim != 2:
        raise InputError(f"the matrix must be two-dimensional, documents by terms, got shape {matrix.shape}")
    n, n_columns = matrix.shape
    if n_columns != n_terms:
        raise InputError(
            f"the matrix must have a column for each of the {n_terms} terms of the vocabulary, got {n_columns}"
        )
    for parameter, values in (("response", response), ("covariates", covariates)):
        none = values is None or (isinstance(values, (tuple, list)) and not values)
        if not none and not (
            isinstance(values, Mapping) and all(isinstance(name, str) and name for name in values)
        ):
            raise InputError(
                f"of a matrix must be a mapping from names to arrays, got {values!r:.60}", parameter=parameter
            )
    twice = set(response or ()) & set(covariates or ())
    if twice:
        raise InputError(
            f"of a matrix must have different names, got {min(twice)!r} in both",
            parameter=("response", "covariates"),
            remedy="rename one",
        )
    extra = {name: named[use] for name, use in ((WEIGHT, "weight"), (ID, "id")) if named[use] is not None}
    fields = Fields(
        words="words",
        counts="counts",
        id=ID if ID in extra else None,
        responses=tuple(response or ()),
        covariates=tuple(covariates or ()),
        weight=WEIGHT if WEIGHT in extra else None,
        categorical=_names("categorical", named["categorical"]),
    )
    columns: dict[str, Any] = {**dict(covariates or {}), **dict(response or {}), **extra}
    for name, values in columns.items():
        # objects: an array of ["a", nan] or ["1", True] would hold the names "nan" and "True"
        array = np.asarray(values, dtype=object if name in fields.categorical else None)
        if array.shape != (n,):
            raise InputError(
                f"{name.strip(chr(0))!r} must have a value for each of {n} rows, got "
                f"{len(array) if array.ndim == 1 else values!r:.60}"
            )
        # a masked array lists None where it is masked
        columns[name] = (values if isinstance(values, np.ma.MaskedArray) else array).tolist()
        if hasattr(values, "notna"):  # pandas has several kinds of missing
            pairs = zip(columns[name], values.notna(), strict=True)
            columns[name] = [value if is_known else None for value, is_known in pairs]
    return fields, MatrixRows(summable_counts(matrix).tocsr(), columns)


def check_appended_fields(corpus: Corpus, fields: Fields, unnamed: str | None) -> Fields:
    """Refuse new documents with other columns than the corpus, and put the columns in its order.

    `unnamed` is the title of files without fields: their documents have only words.
    """
    if unnamed is not None:
        if corpus.has_weight:
            raise InputError(
                f"{unnamed} have no weights, and the documents of {corpus.path} have",
                remedy="append them as JSON lines, CSV or Parquet with a weight",
            )
    else:
        for parameter, names, stored in (
            ("response", fields.responses, corpus.response_names),
            ("covariates", fields.covariates, corpus.covariate_names),
            ("categorical", fields.categorical, tuple(corpus.levels)),
        ):
            if set(names) != set(stored):
                raise InputError(
                    f"must be those of the corpus that is appended to, {_listed(stored)}, got {_listed(names)}",
                    parameter=parameter,
                )
    for parameter, name, has in (
        ("id", fields.id, corpus.has_doc_id),
        ("weight", fields.weight, corpus.has_weight),
    ):
        if has and name is None:
            raise InputError("must be given: the stored documents have one", parameter=parameter)
        if not has and name is not None:
            raise InputError("must be left out: the stored documents have none", parameter=parameter)
    return replace(
        fields,
        responses=corpus.response_names,
        covariates=corpus.covariate_names,
        categorical=tuple(corpus.levels),
    )


def text_settings_of(
    kind: Literal["text", "counts"], chosen: Mapping[str, Any], *, filtered: bool, old_corpus: Corpus | None
) -> TextSettings:
    """The settings that the caller chose, with defaults for the others; or those of the corpus `old_corpus`.

    A vocabulary of the caller is not `filtered`, and the corpus must not say that it was.
    """
    if old_corpus is None:
        unfiltered = {} if filtered else {"min_df": 1, "max_df": 1.0, "max_features": None}
        return TextSettings(kind=kind, **{**chosen, **unfiltered})
    settings = old_corpus.text_settings
    if kind != settings.kind:
        expected = "texts" if settings.kind == "text" else "words with counts"
        raise InputError(
            f"must be {expected}, as those of the corpus that is appended to", parameter="documents"
        )
    analyzer = chosen.get("analyzer", settings.analyzer)
    if analyzer is not None:
        check_as_stored(analyzer, settings.analyzer, "the corpus that is appended to")
        refuse_beside_analyzer(chosen)
        function_of(analyzer)  # named by the caller, now or before
    other = replace(settings, **chosen)
    for name in chosen:
        value, stored = getattr(other, name), getattr(settings, name)
        if value != stored:
            raise InputError(
                f"must be left out, or be that of the corpus that is appended to, {stored!r:.60}, got {value!r:.60}",
                parameter=name,
            )
    return settings


def given_vocabulary(
    vocabulary: Any, by_position: bool, storage_options: Mapping[str, Any] | None, old_corpus: Corpus | None
) -> GivenVocabulary | None:
    """The vocabulary of the caller, or that of the corpus to append to."""
    if old_corpus is not None:
        if vocabulary is not None:
            chosen = given_vocabulary(vocabulary, by_position, storage_options, None)
            if chosen is not None and chosen.vocabulary != old_corpus.vocabulary:
                raise InputError(
                    "must be left out, or be that of the corpus that is appended to, got another",
                    parameter="vocabulary",
                )
        return GivenVocabulary(old_corpus.vocabulary, by_position, old_corpus.too_frequent)
    if vocabulary is None:
        if by_position:
            raise InputError(
                "must name the terms whose positions the documents hold, got none",
                parameter="vocabulary",
                remedy="give a corpus or its path, or the path of a file with a term a line",
            )
        return None
    too_frequent: tuple[str, ...] = ()
    if isinstance(vocabulary, (str, os.PathLike)):
        # where nothing can be, reading the file says why
        is_corpus = False
        with contextlib.suppress(InputError):
            is_corpus = holds_store(os.fspath(vocabulary), dict(storage_options or {}))
        if is_corpus:
            vocabulary = open_corpus(vocabulary, storage_options=storage_options)
    if isinstance(vocabulary, Corpus):
        vocabulary, too_frequent = vocabulary.vocabulary, vocabulary.too_frequent
    elif isinstance(vocabulary, (str, os.PathLike)):
        path = os.fspath(vocabulary)
        file = InputFile(path, 0, dict(storage_options or {}))
        # not splitlines(): it splits at characters that a term may hold
        vocabulary = read_text(file).replace("\r\n", "\n").removesuffix("\n").split("\n")
        for number, line in enumerate(vocabulary, start=1):
            if "\r" in line:
                raise InputError(
                    "a vocabulary must have one term a line, got a carriage return",
                    place=f"{path}, line {number}",
                    remedy=LINE_ENDS,
                )
            if not line.strip():
                raise InputError(
                    "a vocabulary must have one term a line, got none", place=f"{path}, line {number}"
                )
    vocabulary = vocabulary_of(vocabulary, "vocabulary")
    if len(vocabulary) == 0:
        raise InputError("must have at least one term, got none", parameter="vocabulary")
    vocabulary.to_bytes()  # refuses what no file can hold
    return GivenVocabulary(vocabulary, by_position, too_frequent)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
