"""A scoring job: model, inputs and folder, checked before any work."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.own_analyzer import AnalyzerFunction
from dslda.evaluation.intervals import LEVEL
from dslda.exceptions import InputError
from dslda.inputs.fields import Fields
from dslda.inputs.files import InputFiles, list_files, why_no_file
from dslda.inputs.pipes import is_pipe
from dslda.inputs.reading import ReadingRules
from dslda.model import Model, check_analyzer, load_model
from dslda.prediction.columns import check_columns
from dslda.prediction.file_predictions import fields_of_records, input_terms
from dslda.prediction.predict import at_level
from dslda.prediction.record_counting import check_analyzer_is_ready, corpus_alignment
from dslda.scoring.part import Scorer
from dslda.scoring.run_folder import MANIFEST, RunFolder
from dslda.scoring.scoring_units import Input, partition_inputs, state_of
from dslda.scoring.tables import OUTPUT_FORMATS, OutputFormat
from dslda.storage.location import Location, check_not_in_store, holds_store
from dslda.storage.output import check_writable
from dslda.storage.typed_json import json_sha256

if TYPE_CHECKING:
    from dslda.corpus.store import Corpus

__all__ = ["Job"]

logger = logging.getLogger("dslda.score")


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """Model, inputs and folder of a run."""

    model: Model
    files: InputFiles | None
    corpora: tuple[Corpus, ...]
    columns: Mapping[str, tuple[str, ...]]
    """Columns to read, by the path of a corpus."""
    alignments: Mapping[str, NDArray[np.int32] | None]
    """The model's ids of the terms, by the path of a corpus."""
    fields: Fields
    rules: ReadingRules
    location: Location
    scorer: Scorer
    identity: Mapping[str, Any]
    """Model and settings, as the manifest has them."""
    options: Mapping[str, Any]
    refusal: InputError | None
    """Reason why nothing can be written to a folder with a complete run, which may need nothing more."""

    @classmethod
    def of(
        cls,
        model: Model | str | os.PathLike[str],
        inputs: Sequence[Any],
        location: Location,
        *,
        analyzer: str | AnalyzerFunction | None,
        format: str,
        rules: ReadingRules,
        fields: Mapping[str, str | None],
        vocabulary: Any,
        topics: Any,
        output_format: OutputFormat,
        on_error: str,
        realign: bool,
        interval: float | None,
        options: Mapping[str, Any],
    ) -> Job:
        """Check the arguments of :func:`dslda.score`, load the model and list the inputs."""
        is_number = isinstance(topics, int) and not isinstance(topics, bool) and topics >= 1
        if topics not in ("all", "none") and not is_number:
            reason = f"must be all, none or a whole number of at least 1, got {topics!r:.60}"
            raise InputError(reason, parameter="topics")
        if on_error not in ("stop", "skip"):
            raise InputError(f"must be stop or skip, got {on_error!r:.60}", parameter="on_error")
        if output_format not in OUTPUT_FORMATS:
            *others, last = OUTPUT_FORMATS
            reason = f"must be {', '.join(others)} or {last}, got {output_format!r:.60}"
            raise InputError(reason, parameter="output_format")
        check_not_in_store(location)
        refusal = _refusal(RunFolder(location, output_format))
        model = model if isinstance(model, Model) else load_model(model, storage_options=options)
        record = model.record
        check_analyzer(analyzer, record)
        scored_by = model if interval is None else Model(at_level(record, interval))
        corpora = _corpora(inputs, options)
        alignments: dict[str, NDArray[np.int32] | None] = {}
        columns: dict[str, tuple[str, ...]] = {}
        files, record_fields, terms = None, Fields(), None
        if corpora:
            if any(name is not None for name in (*fields.values(), vocabulary)) or format != "auto":
                raise InputError(
                    "must be left out: a corpus has its own", parameter=("format", *fields, "vocabulary")
                )
            rules.refuse_for("a corpus")
            for corpus in corpora:
                alignments[corpus.path] = corpus_alignment(corpus, record, realign=realign)
                columns[corpus.path] = check_columns(corpus, record)
        else:
            files = _files(inputs, format, RunFolder(location, output_format), options).read_by(rules)
            _check_apart(files, inputs, location, options)
            terms = input_terms(files, vocabulary, options)
            record_fields = fields_of_records(record, files, terms=None, **fields)
            if record_fields.text is not None:
                check_analyzer_is_ready(record)
        settings = {
            "input_format": "corpus" if files is None else files.format,
            "fields": {use: getattr(record_fields, use) for use in ("text", "words", "counts", "id")},
            "topics": topics,
            "output_format": output_format,
            "realign": realign,
        }
        if rules.given:
            settings["rules"] = rules.to_json()
        if interval not in (None, LEVEL):  # runs of earlier releases had no other level
            settings["interval"] = float(interval)
        if terms is not None:
            settings["input_terms_sha256"] = json_sha256(terms)
        described = {
            "manifest_sha256": model.checksum,
            "family": record.spec.family,
            "response": record.response,
            "n_topics": model.n_topics,
            "n_terms": model.n_terms,
            "vocabulary_sha256": None if record.vocabulary is None else record.vocabulary.sha256,
        }
        return cls(
            model=model,
            files=files,
            corpora=corpora,
            columns=columns,
            alignments=alignments,
            fields=record_fields,
            rules=rules,
            location=location,
            scorer=Scorer(
                scored_by.scoring_record,
                type(model.family),
                topics,
                output_format,
                on_error == "skip",
                terms,
            ),
            identity={"model": described, "settings": settings},
            options=options,
            refusal=refusal,
        )

    @property
    def n_terms(self) -> int:
        """Number of terms of the vocabulary of files that hold positions of terms; else 0."""
        return len(self.scorer.terms or ())

    def check_writable(self, reason: str) -> None:
        """Refuse to continue if nothing can be written; `reason` says what must be scored."""
        if self.refusal is not None:
            self.refusal.add_note(reason)
            raise self.refusal

    @property
    def paths(self) -> list[str]:
        """All paths that workers open: inputs, and the folder."""
        files = () if self.files is None else self.files.files
        return [*(corpus.path for corpus in self.corpora), *(file.url for file in files), self.location.url]

    def inputs_now(self) -> tuple[list[Input], InputFiles | None]:
        """The inputs in their present state, without repetitions, and their files."""
        if self.files is None:
            partitions = {
                item.key: item
                for corpus in self.corpora
                for item in partition_inputs(corpus, self.columns[corpus.path])
            }
            return list(partitions.values()), None
        distinct = {
            file.url: (file, name) for file, name in zip(self.files.files, self.files.ids, strict=True)
        }
        if len(distinct) < len(self.files.files):
            logger.warning("inputs that were named twice are scored once")
        states = []
        for file, name in distinct.values():
            size, modified = None, ""
            try:
                size, modified = state_of(file)
            except InputError:
                if not self.scorer.skip:
                    raise
            identifier = name if self.files.piece.one_document else ""
            states.append(Input(file.url, identifier, None, size, modified))
        files = tuple(file for file, _ in distinct.values())
        ids = tuple(name for _, name in distinct.values())
        return states, replace(self.files, files=files, ids=ids)


def _refusal(folder: RunFolder) -> InputError | None:
    """The error that nothing can be written to the folder of a complete run; raised if the run is not complete."""
    try:
        check_writable(folder.location.child(MANIFEST))
    except InputError as error:
        if folder.complete_manifest() is not None:
            return error
        raise
    return None


def _corpora(inputs: Sequence[Any], options: Mapping[str, Any]) -> tuple[Corpus, ...]:
    """The corpora among the inputs; none where the inputs are files."""
    from dslda.corpus.store import Corpus, open_corpus

    corpora = []
    for entry in inputs:
        if isinstance(entry, Corpus):
            corpora.append(entry)
        elif isinstance(entry, (str, os.PathLike)) and entry and holds_store(os.fspath(entry), options):
            corpora.append(open_corpus(entry, storage_options=options))
    if corpora and len(corpora) < len(inputs):
        raise InputError(
            "must be all files or all corpora, got both",
            parameter="inputs",
            remedy="score them into folders of their own",
        )
    return tuple(corpora)


def _files(inputs: Sequence[Any], format: str, folder: RunFolder, options: Mapping[str, Any]) -> InputFiles:
    """The files of the inputs; after a complete run, a pattern or folder without a file is no error."""
    if pipes := [os.fspath(entry) for entry in inputs if entry == "-" or is_pipe(entry)]:
        raise InputError(
            f"must be files that can be read again, got the pipe {pipes[0]}: a run compares its inputs with those it has "
            "scored",
            parameter="inputs",
            remedy=("write it to a file", "predict it with dslda predict or Model.predict"),
        )
    try:
        return list_files(inputs, format, storage_options=options)
    except InputError:
        reasons = [_why_empty(entry, options) for entry in inputs]
        if not any(reasons):
            raise
        manifest = folder.read_manifest()
        if manifest is None or manifest["status"] != "complete":
            raise
        format_before = manifest["settings"]["input_format"]
        if format_before == "corpus":
            raise
        for reason in filter(None, reasons):
            logger.info("%s, which is nothing new", reason)
        if left := [entry for entry, reason in zip(inputs, reasons, strict=True) if reason is None]:
            return list_files(left, format, storage_options=options)
        return InputFiles(format_before if format == "auto" else format, (), ())


def _why_empty(path: Any, options: Mapping[str, Any]) -> str | None:
    """Message that a pattern or a folder has no file; None for all other inputs."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        return None
    try:
        fs, root = Location.of(path, options).file_system()
        return why_no_file(path, options) if glob.has_magic(root) or fs.isdir(root) else None
    except InputError:
        return None


def _check_apart(
    files: InputFiles, inputs: Sequence[Any], location: Location, options: Mapping[str, Any]
) -> None:
    """Refuse a folder whose files would be inputs of the next run."""
    inside = location.inside
    for file in files.files:
        # other URLs are full names already
        place = os.path.realpath(file.name) if file.url.startswith("file://") else file.url
        if place.startswith(inside):
            raise InputError(
                f"must not lie in the folder of the run, got {file.name} in {location.url}",
                parameter="inputs",
                remedy="choose another folder",
            )
    for path in map(os.fspath, inputs):
        folder = Location.of(path, options)
        fs, root = folder.file_system()
        if inside.startswith(folder.inside) and fs.isdir(root):
            raise InputError(
                f"the folder of the run must not lie in an input, got {location.url} in {path}: the next run would score its "
                "own output",
                remedy="choose another folder",
            )
