"""What a corpus asks of the documents that are appended to it: its settings, its columns, its levels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from dslda.corpus.store import Corpus
from dslda.corpus.text import TextSettings
from dslda.exceptions import InputError
from dslda.inputs.fields import Fields
from dslda.inputs.files import InputFiles

__all__ = ["NamedFields", "grown_settings", "with_fields_of"]


@dataclass(frozen=True, slots=True)
class NamedFields:
    """The fields that a caller of ingest has named, as they were given; None or empty where they were not."""

    text: Any = None
    words: Any = None
    counts: Any = None
    id: Any = None
    response: Any = ()
    covariates: Any = ()
    weight: Any = None
    categorical: Any = ()

    def completed(self, corpus: Corpus) -> NamedFields:
        """Those that were not given, as they were when the corpus was made, as far as it remembers."""
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


def with_fields_of(corpus: Corpus, fields: Fields, files: InputFiles | None) -> Fields:
    """Check the fields of new documents against the columns of the corpus they are appended to.

    Parameters
    ----------
    corpus : Corpus
    fields : Fields
    files : InputFiles, optional

    Raises
    ------
    InputError
        They have other columns than the corpus.
    """
    if files is not None and files.piece.own_fields is not None:
        if corpus.has_weight:
            raise InputError(
                f"{files.piece.title} have no weights, and the documents of {corpus.path} have",
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
                f"{parameter} must be those of the corpus that is appended to, {_listed(wanted)}, got {_listed(found)}"
            )
    for parameter, field, has in (
        ("id", fields.id, corpus.has_doc_id),
        ("weight", fields.weight, corpus.has_weight),
    ):
        if has and field is None:
            raise InputError(f"{parameter} must be given: the documents that are there have one")
        if not has and field is not None:
            raise InputError(f"{parameter} must be left out: the documents that are there have none")
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
        raise InputError(f"documents must be {expected}, as those of the corpus that is appended to")
    named = {name: value for name, value in given.items() if value is not None}
    other = replace(settings, **named)
    for name in named:
        found, expected = getattr(other, name), getattr(settings, name)
        if found != expected:
            raise InputError(
                f"{name} must be left out, or be that of the corpus that is appended to, {expected!r:.60}, "
                f"got {found!r:.60}"
            )
    return settings


def _several(names: Any) -> list[Any]:
    """One name or several; nothing where it is neither, which is refused later."""
    if isinstance(names, str):
        return [names]
    return [name for name in names if isinstance(name, str)] if isinstance(names, Iterable) else []


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
