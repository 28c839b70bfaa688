"""Arguments of ingest, checked, also against the corpus that documents are appended to."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from dslda.corpus.store import Corpus
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import InputError
from dslda.ingestion.corpus_plan import GivenVocabulary
from dslda.inputs.fields import Fields
from dslda.inputs.in_memory import MatrixRows
from dslda.inputs.streams import InputFile, compression_of, read_text

__all__ = [
    "NamedFields",
    "given_vocabulary",
    "grown_settings",
    "matrix_rows",
    "name_fields",
    "with_fields_of",
]

# names that no mapping of arrays can hold by accident
WEIGHT, ID = "\0weight", "\0id"


@dataclass(frozen=True, slots=True)
class NamedFields:
    """The fields that a caller of ingest names, unchecked; None or empty where it names none."""

    text: Any = None
    words: Any = None
    counts: Any = None
    id: Any = None
    response: Any = ()
    covariates: Any = ()
    weight: Any = None
    categorical: Any = ()

    def refuse(self, reason: str) -> None:
        """Refuse any name."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        named = tuple(name for name, value in values.items() if value is not None and value not in ((), []))
        if named:
            raise InputError(
                f"must be left out: {reason}",
                parameter=named,
                remedy="use JSON lines, CSV or Parquet for documents with more than words",
            )

    def completed(self, corpus: Corpus) -> NamedFields:
        """With the names that were in use when the corpus was made, as far as it remembers, where none is given."""
        recorded = corpus.provenance.get("fields")
        uses = {use: name for name, use in recorded.items()} if isinstance(recorded, Mapping) else {}
        given: dict[str, Any] = {}
        if self.text is None and self.words is None and self.counts is None:
            given = {use: uses.get(use) for use in ("text", "words", "counts")}
        if self.id is None and corpus.has_doc_id:
            given["id"] = uses.get("id")
        if self.weight is None and corpus.has_weight:
            given["weight"] = uses.get("weight")
        given["response"] = self.response or corpus.response_names
        given["covariates"] = self.covariates or corpus.covariate_names
        columns = {*_several(given["response"]), *_several(given["covariates"])}
        given["categorical"] = self.categorical or [name for name in corpus.levels if name in columns]
        return replace(self, **given)


def name_fields(named: NamedFields) -> Fields:
    """Check the names of fields and put them together."""
    return Fields(
        text=named.text,
        words=named.words,
        counts=named.counts,
        id=named.id,
        responses=_names("response", named.response),
        covariates=_names("covariates", named.covariates),
        weight=named.weight,
        categorical=_names("categorical", named.categorical),
    )


def _names(parameter: str, given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)
    if isinstance(given, Mapping) or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"must be the name of a field or several, got {given!r:.60}", parameter=parameter)
    if len(set(names)) != len(names):
        raise InputError(f"must name each field once, got {list(names)}", parameter=parameter)
    return names


def matrix_rows(matrix: Any, named: NamedFields, n_terms: int) -> tuple[Fields, MatrixRows]:
    """The fields and rows of a sparse matrix with the arrays beside it."""
    response, covariates, weight, id = named.response, named.covariates, named.weight, named.id
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


def with_fields_of(corpus: Corpus, fields: Fields, unnamed: str | None) -> Fields:
    """Check the fields of new documents against the columns of the corpus they are appended to.

    Parameters
    ----------
    corpus : Corpus
    fields : Fields
    unnamed : str, optional
        Title of files without fields.

    Raises
    ------
    InputError
        They have other columns than the corpus.
    """
    if unnamed is not None:
        if corpus.has_weight:
            raise InputError(
                f"{unnamed} have no weights, and the documents of {corpus.path} have",
                remedy="append them as JSON lines, CSV or Parquet with a weight",
            )
        # such files have words only: their documents lack the rest
        fields = replace(
            fields,
            responses=corpus.response_names,
            covariates=corpus.covariate_names,
            categorical=tuple(corpus.levels),
        )
    for parameter, found, wanted in (
        ("response", fields.responses, corpus.response_names),
        ("covariates", fields.covariates, corpus.covariate_names),
        ("categorical", fields.categorical, tuple(corpus.levels)),
    ):
        if set(found) != set(wanted):
            raise InputError(
                f"must be those of the corpus that is appended to, {_listed(wanted)}, got {_listed(found)}",
                parameter=parameter,
            )
    for parameter, field, has in (
        ("id", fields.id, corpus.has_doc_id),
        ("weight", fields.weight, corpus.has_weight),
    ):
        if has and field is None:
            raise InputError("must be given: the documents that are there have one", parameter=parameter)
        if not has and field is not None:
            raise InputError("must be left out: the documents that are there have none", parameter=parameter)
    return replace(fields, responses=corpus.response_names, covariates=corpus.covariate_names)


def grown_settings(corpus: Corpus, kind: str, given: Mapping[str, Any]) -> TextSettings:
    """The text settings of a corpus, for documents that are appended to it.

    Parameters
    ----------
    corpus : Corpus
    kind : {"text", "counts"}
        Of the new documents.
    given : mapping
        Settings that the caller has named; None where not.

    Raises
    ------
    InputError
        Another setting, or other documents.
    """
    settings = corpus.text_settings
    if kind != settings.kind:
        expected = "texts" if settings.kind == "text" else "words with counts"
        raise InputError(
            f"must be {expected}, as those of the corpus that is appended to", parameter="documents"
        )
    named = {name: value for name, value in given.items() if value is not None}
    other = replace(settings, **named)
    for name in named:
        found, expected = getattr(other, name), getattr(settings, name)
        if found != expected:
            raise InputError(
                f"must be left out, or be that of the corpus that is appended to, {expected!r:.60}, got {found!r:.60}",
                parameter=name,
            )
    return settings


def given_vocabulary(
    vocabulary: Any, by_position: bool, storage_options: Mapping[str, Any] | None, before: Corpus | None
) -> GivenVocabulary | None:
    """The vocabulary that the caller names, or that of the corpus that documents are appended to."""
    if before is not None:
        if vocabulary is not None:
            chosen = given_vocabulary(vocabulary, by_position, storage_options, None)
            if chosen is not None and chosen.vocabulary != before.vocabulary:
                raise InputError(
                    "must be left out, or be that of the corpus that is appended to, got another",
                    parameter="vocabulary",
                )
        return GivenVocabulary(before.vocabulary, by_position, before.too_frequent)
    if vocabulary is None:
        if by_position:
            raise InputError(
                "must name the terms whose positions the documents hold, got none",
                parameter="vocabulary",
                remedy="give a corpus, or the path of a file with a term a line",
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
                raise InputError(
                    "a vocabulary must have one term a line, got none", place=f"{path}, line {number}"
                )
        vocabulary = lines
    if not isinstance(vocabulary, Vocabulary):
        if not isinstance(vocabulary, Iterable):
            raise InputError(
                "must be a list of terms, a corpus, or the path of a file with a term a line, got "
                f"{vocabulary!r:.60}",
                parameter="vocabulary",
            )
        vocabulary = Vocabulary(str(term) if isinstance(term, np.str_) else term for term in vocabulary)
    if len(vocabulary) == 0:
        raise InputError("must have at least one term, got none", parameter="vocabulary")
    vocabulary.to_bytes()  # refuses what no file can hold
    return GivenVocabulary(vocabulary, by_position, too_frequent)


def _several(names: Any) -> list[Any]:
    """One name or several; nothing where it is neither, which is refused later."""
    if isinstance(names, str):
        return [names]
    return [name for name in names if isinstance(name, str)] if isinstance(names, Iterable) else []


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
