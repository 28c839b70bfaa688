"""Batch scoring: documents in, files of scores and a manifest out, in a run that can be resumed at any moment."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from dslda.cluster.client import ClientLater, check_client, check_reach
from dslda.cluster.opening import cluster, default_workers, worker_per_core
from dslda.cluster.runner import DaskRunner, Runner, SerialRunner
from dslda.cluster.stage_progress import Progress, stage_progress
from dslda.corpus.own_analyzer import AnalyzerFunction
from dslda.exceptions import DsldaError, EngineError, InputChangedError, InputError, Note
from dslda.inputs.files import check_first_records, listed
from dslda.inputs.reading import ReadingRules
from dslda.model import Model
from dslda.scoring.job import Job
from dslda.scoring.part import CorpusPart, FilePart, score_part
from dslda.scoring.resumption import (
    compare,
    drop_changed,
    forget_damaged,
    known_state,
    taken_up,
    verified,
)
from dslda.scoring.run_folder import MANIFEST, Part, RunFolder, RunState
from dslda.scoring.run_plan import part_key, plan_files, plan_partitions
from dslda.scoring.run_report import (
    MetricsFile,
    final_manifest,
    log_all_unreadable,
    log_complete,
    log_lost,
    log_part,
    log_run,
    run_in_words,
    what_is_left,
)
from dslda.scoring.scoring_units import source_of
from dslda.scoring.tables import OutputFormat, Topics
from dslda.storage.location import Location, is_in_memory
from dslda.storage.lock import UNLOCKED, Lock, only_writer
from dslda.versions import library_versions
from dslda.wording import number_of

if TYPE_CHECKING:
    from distributed import Client

    from dslda.corpus.store import Corpus
    from dslda.corpus.vocabulary import Vocabulary

__all__ = ["ScoringRun", "score"]

logger = logging.getLogger("dslda.score")

IN_PROCESS_BYTES = 64 << 20
"""Largest amount of text scored in this process, since starting workers takes some seconds."""


@dataclass(frozen=True, slots=True, repr=False)
class ScoringRun:
    """A complete run; printed, it is what ``dslda score`` prints.

    Attributes
    ----------
    path : str
        Folder of the run.
    n_new_parts : int
        Parts that were scored now; 0 where there was nothing to do.
    manifest : mapping
        Manifest, as docs/scoring.md describes it; its field ``latest`` describes the rows that were new.
    """

    path: str
    n_new_parts: int
    manifest: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"<ScoringRun {self}>"

    def __str__(self) -> str:
        return run_in_words(self.path, self.n_new_parts, self.manifest)


def score(
    model: Model | str | os.PathLike[str],
    inputs: Any,
    out: str | os.PathLike[str],
    *,
    format: str = "auto",
    encoding: str | None = None,
    separator: str | None = None,
    escape: str | None = None,
    na_values: str | Sequence[str] | None = None,
    text: str | None = None,
    words: str | None = None,
    counts: str | None = None,
    id: str | None = None,
    analyzer: str | AnalyzerFunction | None = None,
    vocabulary: str | os.PathLike[str] | Iterable[str] | Vocabulary | Corpus | None = None,
    topics: Topics = "all",
    output_format: OutputFormat = "parquet",
    on_error: Literal["stop", "skip"] = "stop",
    rescore_changed: bool = False,
    verify: bool = False,
    realign: bool = False,
    interval: float | None = None,
    metrics: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | ClientLater | None = None,
    progress: Progress | None = None,
    tell: Callable[[ScoringRun], None] | None = None,
) -> ScoringRun:
    """Score documents, and write a row for each into a folder, in their order.

    The work is cut into parts of one file each; the manifest names the parts of the run. After a run that was killed at any
    moment, the same call continues where that run stopped, and ends with the bytes of an undisturbed run. Called again after
    a complete run, it scores only new inputs. docs/scoring.md describes all of it.

    Parameters
    ----------
    model : Model or path
    inputs : path, glob or URL, or several; or one or several corpora or their paths
        Files and folders as :func:`dslda.ingest` reads them; or stored corpora counted over the model's
        vocabulary. Workers must be able to open the same paths.
    out : path or URL
        Folder of the run; workers must be able to write there.
    format : str
        Format of the input; "auto" goes by the files' names.
    encoding, separator, escape, na_values : str, optional
        See :class:`~dslda.inputs.reading.ReadingRules`; `na_values` may be several. They are settings of the run.
    text, words, counts, id : str, optional
        Fields, as in :func:`~dslda.prediction.file_predictions.predict_files`.
    analyzer : str or callable, optional
        Analyzer of the model, if it is your own; see :func:`dslda.load_model`.
    vocabulary : path of a corpus or of a file with a term a line, sequence or mapping of str, Vocabulary or Corpus, optional
        Terms of files that hold positions of terms instead of words; a mapping holds the positions of its terms.
    topics : int, "all" or "none"
        Topic proportions of each document: all, or the largest few with the numbers of their topics.
    output_format : {"parquet", "csv", "jsonl"}
    on_error : {"stop", "skip"}
        Stop at a record that cannot be scored, with an error that names it and nothing final; or leave it out, and count it
        in the manifest.
    rescore_changed : bool
        Score inputs again that have changed since they were scored. Their rows follow all others.
    verify : bool
        Read all finished parts again, even if nothing is new, and score damaged parts again.
    realign : bool
        Match the terms of a corpus by name where its vocabulary is not the model's.
    interval : float, optional
        Share of the responses between `prediction_low` and `prediction_high`; 0.9 by default, where the model has any.
    metrics : path, optional
        File for Prometheus' textfile collector, replaced at the end; any other existing file is refused. Needs the extra
        `metrics`.
    storage_options : mapping, optional
        For fsspec, for every URL among `inputs` and `out`.
    client : distributed.Client, optional
        Cluster to work on. By default the work runs in this process up to 64 MB of text, where inputs or `out` are in its
        memory (``memory://``), or inside a Dask task. Otherwise it runs on the active Dask client of this process, if its
        workers can open the inputs, or else on one worker process per core, started and closed here.
    progress : callable, optional
        Called with the stage ("verify", "scan", "score", "check"), the tasks done, and all tasks.
        By default work of more than two seconds shows a bar on a terminal and a line in a notebook; elsewhere the log
        ``dslda.engine`` gets a line for every tenth of a stage.
    tell : callable, optional
        Called with the run when everything is written, before logs and metrics say that it is complete; if the call raises,
        they do not.

    Returns
    -------
    ScoringRun

    Raises
    ------
    InputError
        An input cannot be used (the error names file and line), or was changed since it was scored; an input or `out` is in
        the memory of this process, where workers cannot reach it; the folder is a run of another model or other settings;
        or something must be scored and nothing can be written. Finished parts stay; a complete run in the folder counts
        until the next run is complete, otherwise the manifest says that nothing counts.
    InputChangedError
        An input was changed while it was scored; repeat the call when nothing writes to it any more.
    VocabularyMismatchError
        A corpus is counted over another vocabulary.
    OutputExistsError
        `out` exists and is no run.
    OutputError
        `out` cannot be written, or another run is writing it.
    """
    check_client(client)
    if hasattr(inputs, "__array__") or isinstance(inputs, Mapping):
        raise InputError(
            f"must be paths, or corpora, got a {type(inputs).__name__}",
            parameter="inputs",
            remedy=("write it to a file", "use Model.predict for documents in memory"),
        )
    inputs = listed(inputs)
    location = Location.of(out, storage_options)
    metrics_file = None if metrics is None else MetricsFile(metrics, location.url, inputs)
    try:
        job = Job.of(
            model,
            inputs,
            location,
            analyzer=analyzer,
            format=format,
            rules=ReadingRules(encoding, separator, escape, na_values),  # type: ignore[arg-type]  # which checks them
            fields={"text": text, "words": words, "counts": counts, "id": id},
            vocabulary=vocabulary,
            topics=topics,
            output_format=output_format,
            on_error=on_error,
            realign=realign,
            interval=interval,
            options=dict(storage_options or {}),
        )
        check_reach(job.paths, client)
        client = client or _workers(job)
        # a folder that cannot be written to may need nothing
        locked = only_writer(location, inside=True) if job.refusal is None else nullcontext(UNLOCKED)
        with locked as lock:
            run = _run(job, lock, client, progress, rescore_changed=rescore_changed, verify=verify)
        if tell is not None:
            tell(run)
    except BaseException:
        if metrics_file is not None:
            with suppress(DsldaError):  # the first failure matters more
                complete = RunFolder(location, "parquet").complete_manifest()  # the same in any format
                metrics_file.write(complete, 0, failed=True)
        raise
    if metrics_file is not None:
        metrics_file.write(run.manifest, run.n_new_parts)
    log_complete(run.manifest, run.n_new_parts)
    return run


def _run(
    job: Job,
    lock: Lock,
    client: Client | ClientLater | None,
    progress: Progress | None,
    *,
    rescore_changed: bool,
    verify: bool,
) -> ScoringRun:
    folder = RunFolder(job.location, job.scorer.output_format, lock)
    manifest = folder.read_manifest()
    if manifest is not None:
        folder.check_kinds()
    versions = library_versions("numpy", "numba", "scipy", "pyarrow")
    try:
        unfinished = None if manifest is None else folder.read_unfinished(manifest)
        state = RunState(job.identity, versions)
        if manifest is not None:
            state = known_state(unfinished or manifest, job.identity, versions, job.location.url)
        inputs, files = job.inputs_now()
        order = state.inputs
        if manifest is not None and unfinished is not None:
            state = taken_up(state, RunState.from_json(manifest, f"{job.location.url}/{MANIFEST}"), inputs)
        state, new = compare(state, inputs, rescore_changed=rescore_changed, options=job.options, order=order)
        with ExitStack() as stack:
            # workers start at its first use, so never if nothing is new
            runner = cache(lambda: stack.enter_context(_runner(job, client, progress)))
            if verify and manifest is not None:
                forget_damaged(runner(), folder, state, manifest, inputs, job)
            if manifest and state.complete and not new and folder.has_all_files(manifest["parts"]):
                return _nothing_new(job, folder, manifest, state)
            n_open = len(new) + sum(not entry.verified for entry in state.inputs)
            job.check_writable(
                f"{number_of(n_open, 'input')} must be scored"
                if n_open
                else "parts of the run must be scored again"
            )
            if new and files is None:
                state = plan_partitions(state, [inputs[i] for i in new])
            elif new and files is not None:
                files = replace(
                    files, files=tuple(files.files[i] for i in new), ids=tuple(files.ids[i] for i in new)
                )
                check_first_records(files, job.fields, tolerant=True, any_file=job.scorer.skip)
                state = plan_files(
                    runner(), state, files, job.fields, skip=job.scorer.skip, n_terms=job.n_terms
                )
            state = replace(state, complete=False, versions=versions)
            # `forget_damaged` has logged damaged parts
            state, n_new = _scored(runner(), job, folder, manifest, state, log_missing=not verify)
        new_manifest = final_manifest(job.model, folder, state)
        folder.write_manifest(new_manifest)
        folder.tidy([part.number for part in state.parts])
        log_run(new_manifest)
    except BaseException:
        if client is None or (isinstance(client, ClientLater) and client.here):
            folder.clear_unfinished()  # our workers have ended by now; those of others finish what they write
        folder.remove_if_empty()
        raise
    return ScoringRun(job.location.url, n_new, new_manifest)


def _nothing_new(job: Job, folder: RunFolder, old_manifest: Mapping[str, Any], state: RunState) -> ScoringRun:
    """The complete run, whose folder is tidied where it can be written to."""
    inputs = state.to_json()["inputs"]
    touched = inputs != old_manifest["inputs"]
    manifest = {**old_manifest, "inputs": inputs} if touched else old_manifest
    if job.refusal is None:
        if touched:
            folder.write_manifest(manifest)
        folder.tidy([part.number for part in state.parts])
    log_all_unreadable(manifest)
    return ScoringRun(job.location.url, 0, manifest)


def _scored(
    runner: Runner,
    job: Job,
    folder: RunFolder,
    old_manifest: Mapping[str, Any] | None,
    state: RunState,
    *,
    log_missing: bool,
) -> tuple[RunState, int]:
    """Score the open parts; return the state with all inputs verified, and the number of parts scored."""
    keys = {part.number: part_key(part, state.inputs, job.identity) for part in state.parts}
    todo = [part for part in state.parts if folder.read_note(part, keys[part.number]) is None]
    numbers = [part.number for part in state.parts]
    counting = (
        None  # the manifest of a complete run with all its rows, which count until the next run is complete
    )
    if old_manifest is not None and old_manifest["status"] == "complete":
        open_numbers = {part.number for part in todo}
        lost = [entry["file"] for entry in old_manifest["parts"] if entry["part"] in open_numbers]
        if lost and log_missing:
            log_lost(lost)
        replaced = [entry for entry in old_manifest["parts"] if entry["part"] not in numbers]
        if not lost and folder.has_all_files(replaced):
            counting = old_manifest
    of_run = numbers + ([] if counting is None else [entry["part"] for entry in counting["parts"]])
    # write this first: it says which files of the folder belong to the run
    folder.write_unfinished(state, counting)
    folder.prepare()
    folder.clear(of_run)
    if todo:
        status = "is not complete" if counting is None else "stays as it was complete before"
        _score_parts(runner, job, folder, state, todo, keys, status)
    folder.clear(of_run)  # workers that died have left files
    return verified(runner, folder, state, job.options, counting), len(todo)


def _score_parts(
    runner: Runner,
    job: Job,
    folder: RunFolder,
    state: RunState,
    todo: Sequence[Part],
    keys: Mapping[int, str],
    status: str,
) -> None:
    """Score the open parts; an error says what becomes of the run, whose folder has this status."""
    if len(todo) < len(state.parts):
        n_all = number_of(len(state.parts), "part")
        logger.info("%s of %s are done already", f"{len(state.parts) - len(todo):,}", n_all)
    scorer = runner.share(job.scorer)
    rows = (
        (scorer, _task(job, state, part), folder.part_file(part.number), folder.ids_file(part.number))
        for part in todo
    )
    n_done = 0
    try:
        for i, note in runner.stream(score_part, rows, n=len(todo), stage="score"):
            part = todo[i]
            file = folder.part_file(part.number)
            if folder.size(file) != note["bytes"]:
                raise EngineError(
                    f"all workers must write to the place that this process sees, got no {file.url} here that a worker "
                    "has written",
                    remedy="give a folder that all machines share, or a URL",
                )
            folder.write_note(part, {"key": keys[part.number]} | note)
            n_done += 1
            log_part(part, note)
    except KeyboardInterrupt as interrupt:
        interrupt.add_note(
            f"{n_done:,} of {number_of(len(todo), 'part')} were scored; the same command goes on"
        )
        raise
    except DsldaError as error:
        dropped = drop_changed(folder, state, job.options)
        if isinstance(error, InputError) and not isinstance(error, InputChangedError) and not dropped:
            # the same command would stop at the same record
            error.add_note(f"{job.location.url} {status}")
            error.add_note(
                Note(
                    "mend the input and run again, or leave out what cannot be scored with {on_error='skip'}"
                )
            )
        else:
            error.add_note(f"{job.location.url} {status}; {what_is_left(len(todo) - n_done, dropped)}")
        raise


def _task(job: Job, state: RunState, part: Part) -> FilePart | CorpusPart:
    """The work of a part, as workers get it."""
    if job.files is not None:
        sources = tuple(
            source_of(
                state.inputs[piece.input],
                piece,
                format=job.files.format,
                n_terms=job.n_terms,
                options=job.options,
                rules=job.rules,
            )
            for piece in part.pieces
        )
        return FilePart(
            sources=sources,
            rows=tuple(piece.rows for piece in part.pieces),
            inputs=tuple(state.inputs[i] for i in dict.fromkeys(piece.input for piece in part.pieces)),
            fields=job.fields,
            first_row=part.first_row,
            options=job.options,
        )
    (piece,) = part.pieces
    scored = state.inputs[piece.input]
    corpus = next((corpus for corpus in job.corpora if corpus.path == scored.path), None)
    if corpus is None or scored.partition is None:
        raise InputError(
            f"{scored.label} must be among the inputs until it is scored, it is not", remedy="name it again"
        )
    return CorpusPart(corpus, scored.partition, job.columns[corpus.path], job.alignments[corpus.path])


def _workers(job: Job) -> ClientLater | None:
    """The workers for a job without a client; None for this process."""
    n_bytes = (
        sum(8 * corpus.n_tokens for corpus in job.corpora) if job.files is None else job.files.text_bytes
    )
    if n_bytes <= IN_PROCESS_BYTES or any(map(is_in_memory, job.paths)):
        return None
    return default_workers(worker_per_core, job.paths)


@contextmanager
def _runner(job: Job, client: Client | ClientLater | None, progress: Progress | None) -> Iterator[Runner]:
    """Choose a runner, and cancel its work when anything fails."""
    with ExitStack() as stack:
        if isinstance(client, ClientLater) and client.here:
            from dslda.variational.compiling import prepare_kernels

            # compile once, into numba's cache, instead of in each worker
            prepare_kernels(job.model.family, job.model.spec.objective, labelled=False)
        shown = stack.enter_context(stage_progress(progress))
        runner: Runner = SerialRunner(shown)
        if client is not None:
            from dslda.engine.dask.plugin import register

            connected = stack.enter_context(cluster(client))
            register(connected, job.model.family, objective=job.model.spec.objective, labelled=False)
            runner = DaskRunner(connected, shown)
        try:
            yield runner
        except BaseException:
            runner.cancel()
            raise
