"""A scoring job, its model, inputs and folder, checked before any work."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dslda.exceptions import InputError
from dslda.inputs.fields import Fields
from dslda.inputs.files import InputFiles, list_files, why_no_file
from dslda.model import Model, load_model
from dslda.prediction.columns import check_columns
from dslda.prediction.file_predictions import fields_of_records, input_terms
from dslda.prediction.record_counting import corpus_alignment
from dslda.scoring.part import Scorer
from dslda.scoring.run_folder import MANIFEST, RunFolder
from dslda.scoring.run_plan import state_now
from dslda.scoring.scoring_units import Input, partition_inputs
from dslda.scoring.tables import ENDINGS, OutputFormat, Topics
from dslda.storage.location import Location, check_not_in_store
from dslda.storage.output import check_writable
from dslda.storage.typed_json import json_sha256

if TYPE_CHECKING:
    from dslda.corpus.store import Corpus

__all__ = ["Job", "checked_topics", "is_skip"]

logger = logging.getLogger("dslda.score")


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Model, inputs and folder of a run.

    `refusal` says why nothing can be written to a folder that holds a complete run; that may need nothing more.
    """

    model: Model
    files: InputFiles | None
    corpora: tuple[Corpus, ...]
    fields: Fields
    location: Location
    scorer: Scorer
    identity: Mapping[str, Any]
    realign: bool
    options: Mapping[str, Any]
    refusal: InputError | None = None

    @classmethod
    def of(
        cls,
        model: Model | str | os.PathLike[str],
        inputs: Sequence[Any],
        out: str | os.PathLike[str],
        *,
        format: str,
        named: Mapping[str, str | None],
        vocabulary: Any,
        topics: Topics,
        output_format: OutputFormat,
        skip: bool,
        realign: bool,
        options: Mapping[str, Any],
    ) -> Job:
        if output_format not in ENDINGS:
            reason = f"must be parquet, csv or jsonl, got {output_format!r:.60}"
            raise InputError(reason, parameter="output_format")
        location = Location.of(out, options)
        check_not_in_store(location)
        refusal = _refusal(RunFolder(location, output_format))
        model = model if isinstance(model, Model) else load_model(model, storage_options=options)
        corpora = _corpora(inputs, options)
        files, fields, terms = None, Fields(), None
        if corpora:
            if any(name is not None for name in (*named.values(), vocabulary)) or format != "auto":
                raise InputError(
                    "must be left out: a corpus has its own", parameter=("format", *named, "vocabulary")
                )
            for corpus in corpora:
                corpus_alignment(corpus, model.record, realign=realign)
                check_columns(corpus, model.record)
        else:
            files = _files(inputs, format, RunFolder(location, output_format), options)
            _check_apart(files, inputs, location, options)
            terms = input_terms(files, vocabulary, options)
            fields = fields_of_records(model.record, files, terms=None, **named)
        record = model.scoring_record
        settings = {
            "input_format": "corpus" if files is None else files.format,
            "fields": {use: getattr(fields, use) for use in ("text", "words", "counts", "id")},
            "topics": topics,
            "output_format": output_format,
            "realign": realign,
        }
        if terms is not None:
            settings["input_terms_sha256"] = json_sha256(terms)
        return cls(
            model=model,
            files=files,
            corpora=corpora,
            fields=fields,
            location=location,
            scorer=Scorer(record, type(model.family), topics, output_format, skip, terms),
            identity={"model": _described(model), "settings": settings},
            realign=realign,
            options=options,
            refusal=refusal,
        )

    @property
    def n_terms(self) -> int:
        """Terms of the vocabulary of files that hold positions of terms; else 0."""
        return len(self.scorer.terms or ())

    def check_writable(self, reason: str) -> None:
        """Refuse to go on where nothing can be written; `reason` says what must be."""
        if self.refusal is not None:
            self.refusal.add_note(reason)
            raise self.refusal

    @property
    def paths(self) -> list[str]:
        """All paths that workers open: inputs, and the folder."""
        files = () if self.files is None else self.files.files
        return [*(c.path for c in self.corpora), *(file.url for file in files), self.location.url]

    def inputs_now(self) -> tuple[list[Input], InputFiles | None]:
        """The inputs in their present state, without repetitions."""
        if self.files is None:
            partitions = {
                one.key: one
                for corpus in self.corpora
                for one in partition_inputs(corpus, check_columns(corpus, self.model.record))
            }
            return list(partitions.values()), None
        distinct = {
            file.url: (file, name) for file, name in zip(self.files.files, self.files.ids, strict=True)
        }
        if len(distinct) < len(self.files.files):
            logger.warning("inputs that were named twice are scored once")
        chosen = tuple(file for file, _ in distinct.values())
        ids = tuple(name for _, name in distinct.values())
        one_document = self.files.piece.one_document
        states = [
            state_now(file, name if one_document else "", skip=self.scorer.skip)
            for file, name in zip(chosen, ids, strict=True)
        ]
        return states, replace(self.files, files=chosen, ids=ids)


def _refusal(folder: RunFolder) -> InputError | None:
    """The error that nothing can be written to the folder of a complete run; raised where the run is not complete."""
    try:
        check_writable(folder.location.child(MANIFEST))
    except InputError as error:
        if folder.complete_manifest() is not None:  # whatever else is wrong there, it cannot be written
            return error
        raise
    return None


def _described(model: Model) -> dict[str, Any]:
    record = model.record
    return {
        "manifest_sha256": model.checksum,
        "family": record.spec.family,
        "response": record.response,
        "n_topics": model.n_topics,
        "n_terms": model.n_terms,
        "vocabulary_sha256": None if record.vocabulary is None else record.vocabulary.sha256,
    }


def _corpora(inputs: Sequence[Any], options: Mapping[str, Any]) -> tuple[Corpus, ...]:
    """The corpora among the inputs; none where these are files."""
    from dslda.corpus.store import Corpus, open_corpus

    corpora = []
    for one in inputs:
        if isinstance(one, Corpus):
            corpora.append(one)
        elif isinstance(one, (str, os.PathLike)) and _holds_corpus(os.fspath(one), options):
            corpora.append(open_corpus(one, storage_options=options))
    if corpora and len(corpora) < len(inputs):
        raise InputError(
            "must be all files or all corpora, got both",
            parameter="inputs",
            remedy="score them into folders of their own",
        )
    return tuple(corpora)


def _holds_corpus(path: str, options: Mapping[str, Any]) -> bool:
    is_glob = any(c in path for c in "*?[")
    try:
        return bool(path) and not is_glob and Location.of(path, options).holds("zarr.json")
    except PermissionError:  # listing it as a folder of files says what may not be read
        return False


def _files(inputs: Sequence[Any], format: str, folder: RunFolder, options: Mapping[str, Any]) -> InputFiles:
    """The files of the inputs; after a complete run, a pattern or folder without a file is no error, but no news."""
    try:
        return list_files(inputs, format, storage_options=options)
    except InputError:
        reasons = [_no_news(one, options) for one in inputs]
        quiet = [reason for reason in reasons if reason is not None]
        before = folder.read_manifest() if quiet else None
        if before is None or before["status"] != "complete":
            raise
        format_before = before["settings"]["input_format"]
        if format_before == "corpus":
            raise
        for reason in quiet:
            logger.info("%s, which is nothing new", reason)
        if left := [one for one, reason in zip(inputs, reasons, strict=True) if reason is None]:
            return list_files(left, format, storage_options=options)
        return InputFiles(format_before if format == "auto" else format, (), ())


def _no_news(one: Any, options: Mapping[str, Any]) -> str | None:
    """Message that an input has no file, if it is a pattern or a folder; else None."""
    if not isinstance(one, (str, os.PathLike)) or not os.fspath(one):
        return None
    try:
        fs, path = Location.of(one, options).file_system()
        if not any(c in path for c in "*?[") and not fs.isdir(path):
            return None
        return why_no_file(one, options)
    except InputError:
        return None


def _check_apart(
    files: InputFiles, inputs: Sequence[Any], location: Location, options: Mapping[str, Any]
) -> None:
    """Refuse a folder whose files would be inputs of the next run."""
    inside = location.inside
    for file in files.files:
        # other URLs are whole names already
        place = os.path.realpath(file.name) if file.url.startswith("file://") else file.url
        if place.startswith(inside):
            raise InputError(
                f"must not lie in the folder of the run, got {file.name} in {location.url}",
                parameter="inputs",
                remedy="choose another folder",
            )
    for one in map(os.fspath, inputs):
        named = Location.of(one, options)
        fs, path = named.file_system()
        if inside.startswith(named.inside) and fs.isdir(path):
            raise InputError(
                f"the folder of the run must not lie in an input, got {location.url} in {one}: the next run would score its "
                "own output",
                remedy="choose another folder",
            )


def checked_topics(topics: Any) -> Topics:
    if topics in ("all", "none") or (
        isinstance(topics, int) and not isinstance(topics, bool) and topics >= 1
    ):
        return topics  # type: ignore[no-any-return]
    reason = f"must be all, none or a whole number of at least 1, got {topics!r:.60}"
    raise InputError(reason, parameter="topics")


def is_skip(on_error: Any) -> bool:
    if on_error not in ("stop", "skip"):
        raise InputError(f"must be stop or skip, got {on_error!r:.60}", parameter="on_error")
    return bool(on_error == "skip")
