"""Batch scoring: documents in, files of scores and a manifest out, in a run that can be resumed at any moment."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from dslda._version import library_versions
from dslda.cluster.client import ClientLater, check_client, check_reach
from dslda.cluster.opening import cluster, worker_per_core
from dslda.cluster.runner import DaskRunner, Progress, Runner, SerialRunner
from dslda.exceptions import DsldaError, EngineError, InputError
from dslda.inputs.files import InputFiles, check_first_records, listed
from dslda.model import Model
from dslda.prediction.columns import check_columns
from dslda.prediction.record_counting import corpus_alignment
from dslda.scoring.job import Job, checked_topics, is_skip
from dslda.scoring.part import CorpusPart, FilePart, score_part
from dslda.scoring.prometheus import MetricsFile
from dslda.scoring.resumption import (
    Comparison,
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
    final_manifest,
    log_all_unreadable,
    log_complete,
    log_lost,
    log_part,
    log_run,
    what_is_left,
)
from dslda.scoring.scoring_units import Input, source_of
from dslda.scoring.tables import OutputFormat, Topics
from dslda.storage.location import Location, is_in_memory
from dslda.storage.lock import UNLOCKED, Lock, only_writer
from dslda.wording import number_of

if TYPE_CHECKING:
    from distributed import Client

    from dslda.corpus.store import Corpus
    from dslda.corpus.vocabulary import Vocabulary

__all__ = ["ScoringRun", "score"]

logger = logging.getLogger("dslda.score")

IN_PROCESS_BYTES = 64 << 20
"""Up to this much text is scored in this process, since starting workers takes some seconds."""


@dataclass(frozen=True, slots=True)
class ScoringRun:
    """A complete run.

    Attributes
    ----------
    path : str
        The folder.
    n_new_parts : int
        Parts that were scored now; 0 where there was nothing to do.
    manifest : mapping
        As docs/scoring.md describes it.
    """

    path: str
    n_new_parts: int
    manifest: Mapping[str, Any]


def score(
    model: Model | str | os.PathLike[str],
    inputs: Any,
    out: str | os.PathLike[str],
    *,
    format: str = "auto",
    text: str | None = None,
    words: str | None = None,
    counts: str | None = None,
    id: str | None = None,
    vocabulary: str | os.PathLike[str] | Sequence[str] | Vocabulary | Corpus | None = None,
    topics: Topics = "all",
    output_format: OutputFormat = "parquet",
    on_error: Literal["stop", "skip"] = "stop",
    rescore_changed: bool = False,
    verify: bool = False,
    realign: bool = False,
    metrics: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    client: Client | ClientLater | None = None,
    progress: Progress | None = None,
    tell: Callable[[ScoringRun], None] | None = None,
) -> ScoringRun:
    """Score documents and write one row for each, in their order, into a folder.

    The work is cut into parts, which become one file each; the manifest says which belong to the run. After a run that was
    killed at any moment, the same call goes on where that stopped, and ends with the bytes of an undisturbed run. Called
    again, it scores the new inputs and nothing twice. docs/scoring.md describes all of it.

    Parameters
    ----------
    model : Model or path
    inputs : path, glob or URL, or several; or one or several corpora or their paths
        Files and folders as :func:`dslda.ingest` reads them; or stored corpora counted over the model's
        vocabulary. Workers must be able to open the same paths.
    out : path or URL
        Folder of the run; workers must be able to write there.
    format : str
        Of the input; "auto" goes by the files' names.
    text, words, counts, id : str, optional
        Fields, as in :func:`~dslda.prediction.file_predictions.predict_files`.
    vocabulary : path of a file with a term a line, sequence of str, Vocabulary or Corpus, optional
        Terms of files that hold positions of terms, and not words.
    topics : int, "all" or "none"
        Topic proportions of each document: all, or the largest few with the numbers of their topics.
    output_format : {"parquet", "csv", "jsonl"}
    on_error : {"stop", "skip"}
        Stop at a record that cannot be scored, naming it, with nothing final; or leave it out, and count it in the manifest.
    rescore_changed : bool
        Score inputs again that have changed since they were scored. Their rows follow all others.
    verify : bool
        Read all finished parts again, also where nothing is new, and score damaged ones again.
    realign : bool
        Match the terms of a corpus by name where its vocabulary is not the model's.
    metrics : path, optional
        File for Prometheus' textfile collector, replaced at the end; refused where it is anything but such a file. Needs the
        extra `metrics`.
    storage_options : mapping, optional
        For fsspec, for every URL among `inputs` and `out`.
    client : distributed.Client, optional
        Cluster to work on. By default the work runs in this process up to 64 MB of text, or where inputs or `out` are in its
        memory (``memory://``); beyond that on one worker process per core, started and closed here.
    progress : callable, optional
        Called with a stage ("verify", "scan", "score", "check"), tasks done and tasks in all.
    tell : callable, optional
        Called with the run when all is written, before logs and metrics say that it is complete; if it raises, they do not.

    Returns
    -------
    ScoringRun

    Raises
    ------
    InputError
        An input cannot be used, naming file and line; is, as `out` may be, in the memory of this process, and workers are
        not; was changed since it was scored; or the folder is a run of another model or of other settings,
        or nothing can be written there and something must be. Finished parts stay; where the folder had a complete run, that
        counts until the next one is complete, else the manifest says that nothing does.
    InputChangedError
        An input was changed while it was scored; the same call goes on when nothing writes to it any more.
    VocabularyMismatchError
        A corpus is counted over another vocabulary.
    OutputExistsError
        `out` is there and is no run.
    OutputError
        It cannot be written, or another run is writing it.
    """
    check_client(client)
    if hasattr(inputs, "__array__") or isinstance(inputs, Mapping):
        raise InputError(
            f"must be paths, or corpora, got a {type(inputs).__name__}",
            parameter="inputs",
            remedy=("write it to a file", "use Model.predict for documents in memory"),
        )
    inputs = listed(inputs)
    reported = (
        None if metrics is None else MetricsFile(metrics, Location.of(out, storage_options).url, inputs)
    )
    try:
        job = Job.of(
            model,
            inputs,
            out,
            format=format,
            named={"text": text, "words": words, "counts": counts, "id": id},
            vocabulary=vocabulary,
            topics=checked_topics(topics),
            output_format=output_format,
            skip=is_skip(on_error),
            realign=realign,
            options=dict(storage_options or {}),
        )
        check_reach(job.paths, client)
        # a folder that cannot be written to may need nothing
        locked = (
            only_writer(job.location, inside=True)
            if job.refusal is None
            else contextlib.nullcontext(UNLOCKED)
        )
        with locked as lock:
            done = _run(job, lock, client, progress, rescore_changed=rescore_changed, verify=verify)
        if tell is not None:
            tell(done)
    except BaseException:
        if reported is not None:
            with contextlib.suppress(DsldaError):  # the first failure matters more
                folder = RunFolder(
                    Location.of(out, storage_options), "parquet"
                )  # any format: only the manifest is read
                reported.write(folder.complete_manifest(), 0, failed=True)
        raise
    if reported is not None:
        reported.write(done.manifest, done.n_new_parts)
    log_complete(done.manifest, done.n_new_parts)
    return done


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
    before = folder.read_manifest()
    if before is not None:
        folder.check_kinds()
    versions = library_versions("numpy", "numba", "scipy", "pyarrow")
    try:
        compared, now, files = _compared(job, folder, before, versions, rescore_changed=rescore_changed)
        with contextlib.ExitStack() as stack:
            # started at its first use: where nothing is new, not at all
            runner = cache(lambda: stack.enter_context(_runner(job, client, progress)))
            if verify and before is not None:
                forget_damaged(runner(), folder, compared.state, before, now, job)
            if before is not None and _is_complete(folder, before, compared):
                return _nothing_new(job, folder, before, compared.state)
            _check_writable(job, compared)
            state = compared.state
            if compared.new:
                state = _planned(runner(), job, state, now, files, compared.new)
            state = replace(state, complete=False, versions=versions)
            # `forget_damaged` has logged damaged parts
            state, n_new = _scored(runner(), job, folder, before, state, log_missing=not verify)
        manifest = final_manifest(job.model, folder, state)
        folder.write_manifest(manifest)
        folder.tidy([part.number for part in state.parts])
        log_run(manifest)
    except BaseException:
        if client is None or (isinstance(client, ClientLater) and client.here):
            folder.clear_unfinished()  # our workers have ended by now; those of others finish what they write
        folder.remove_if_empty()
        raise
    return ScoringRun(job.location.url, n_new, manifest)


def _compared(
    job: Job,
    folder: RunFolder,
    before: Mapping[str, Any] | None,
    versions: Mapping[str, str],
    *,
    rescore_changed: bool,
) -> tuple[Comparison, list[Input], InputFiles | None]:
    """The comparison of the inputs with earlier runs, their present state, and their files where they are files."""
    going_on = None if before is None else folder.read_unfinished(before)
    state = RunState(job.identity, versions)
    if before is not None:
        state = known_state(going_on or before, job.identity, versions, job.location.url)
    now, files = job.inputs_now()
    order = state.inputs
    if before is not None and going_on is not None:
        state = taken_up(state, RunState.from_json(before, f"{job.location.url}/{MANIFEST}"), now)
    compared = compare(state, now, rescore_changed=rescore_changed, options=job.options, order=order)
    return compared, now, files


def _is_complete(folder: RunFolder, before: Mapping[str, Any], compared: Comparison) -> bool:
    """Tell whether all inputs are scored and all parts are there."""
    return compared.state.complete and not compared.new and _all_there(folder, before["parts"])


def _check_writable(job: Job, compared: Comparison) -> None:
    n_open = len(compared.new) + sum(not known.verified for known in compared.state.inputs)
    job.check_writable(
        f"{number_of(n_open, 'input')} must be scored" if n_open else "parts of the run must be scored again"
    )


def _nothing_new(job: Job, folder: RunFolder, before: Mapping[str, Any], state: RunState) -> ScoringRun:
    """The complete run, whose folder is tidied where it can be written to."""
    inputs = state.to_json()["inputs"]
    touched = inputs != before["inputs"]
    manifest = {**before, "inputs": inputs} if touched else before
    if job.refusal is None:
        if touched:
            folder.write_manifest(manifest)
        folder.tidy([part.number for part in state.parts])
    log_all_unreadable(manifest)
    return ScoringRun(job.location.url, 0, manifest)


def _planned(
    runner: Runner,
    job: Job,
    state: RunState,
    now: Sequence[Input],
    files: InputFiles | None,
    new: Sequence[int],
) -> RunState:
    """The state with parts for new inputs."""
    if files is None:
        return plan_partitions(state, [now[i] for i in new])
    chosen = replace(files, files=tuple(files.files[i] for i in new), ids=tuple(files.ids[i] for i in new))
    check_first_records(chosen, job.fields, tolerant=True, any_file=job.scorer.skip)
    return plan_files(runner, state, chosen, job.fields, skip=job.scorer.skip, n_terms=job.n_terms)


def _scored(
    runner: Runner,
    job: Job,
    folder: RunFolder,
    before: Mapping[str, Any] | None,
    state: RunState,
    *,
    log_missing: bool,
) -> tuple[RunState, int]:
    """Score the open parts; the state with all inputs verified, and the number of parts scored."""
    keys = {part.number: part_key(part, state.inputs, job.identity) for part in state.parts}
    todo = [part for part in state.parts if folder.read_note(part, keys[part.number]) is None]
    counting = _counting(folder, before, state, todo, log_missing=log_missing)
    numbers = [part.number for part in state.parts]
    if counting is not None:
        numbers += [entry["part"] for entry in counting["parts"]]
    # first of all, since it says which files of the folder belong to the run
    folder.write_unfinished(state, counting)
    folder.prepare()
    folder.clear(numbers)
    n_new = _score_parts(runner, job, folder, state, todo, keys, counting)
    folder.clear(numbers)  # workers that died have left files
    return verified(runner, folder, state, job.options, counting), n_new


def _counting(
    folder: RunFolder,
    before: Mapping[str, Any] | None,
    state: RunState,
    todo: Sequence[Part],
    *,
    log_missing: bool,
) -> Mapping[str, Any] | None:
    """The manifest of a complete run with all its rows, which count until the next run is complete; else None."""
    if before is None or before["status"] != "complete":
        return None
    staying, missing = ({part.number for part in parts} for parts in (state.parts, todo))
    lost = [entry["file"] for entry in before["parts"] if entry["part"] in missing]
    if lost and log_missing:
        log_lost(lost)
    replaced = [entry for entry in before["parts"] if entry["part"] not in staying]
    return None if lost or not _all_there(folder, replaced) else before


def _score_parts(
    runner: Runner,
    job: Job,
    folder: RunFolder,
    state: RunState,
    todo: Sequence[Part],
    keys: Mapping[int, str],
    counting: Mapping[str, Any] | None,
) -> int:
    """Score the open parts; their number."""
    if not todo:
        return 0
    if len(todo) < len(state.parts):
        logger.info(
            "%s of %s are done already",
            f"{len(state.parts) - len(todo):,}",
            number_of(len(state.parts), "part"),
        )
    scorer = runner.share(job.scorer)
    tasks = _tasks(job, folder, state, todo)
    rows = (
        (scorer, task, folder.part_file(part.number), folder.ids_file(part.number))
        for part, task in zip(todo, tasks, strict=True)
    )
    n_done = 0
    try:
        for i, note in runner.stream(score_part, rows, n=len(todo), stage="score"):
            part = todo[i]
            _check_seen(folder, part, note)
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
        n_left = len(todo) - n_done
        how = "is not complete" if counting is None else "stays as it was complete before"
        error.add_note(f"{job.location.url} {how}; {what_is_left(n_left, dropped)}")
        raise
    return n_done


def _tasks(
    job: Job, folder: RunFolder, state: RunState, parts: Sequence[Part]
) -> Iterator[FilePart | CorpusPart]:
    """The work of each part, as workers get it."""
    if job.files is not None:
        for part in parts:
            inputs = {piece.input: state.inputs[piece.input] for piece in part.pieces}
            yield FilePart(
                sources=tuple(
                    source_of(
                        inputs[p.input], p, format=job.files.format, n_terms=job.n_terms, options=job.options
                    )
                    for p in part.pieces
                ),
                rows=tuple(piece.rows for piece in part.pieces),
                inputs=tuple(inputs.values()),
                fields=job.fields,
                first_row=part.first_row,
                options=job.options,
            )
        return
    corpora = {corpus.path: corpus for corpus in job.corpora}
    alignments = {
        path: corpus_alignment(corpus, job.model.record, realign=job.realign)
        for path, corpus in corpora.items()
    }
    for part in parts:
        (piece,) = part.pieces
        found = state.inputs[piece.input]
        if found.path not in corpora or found.partition is None:
            raise InputError(
                f"{found.label} must be among the inputs until it is scored, it is not",
                remedy="name it again",
            )
        corpus = corpora[found.path]
        columns = check_columns(corpus, job.model.record)
        yield CorpusPart(corpus, found.partition, columns, alignments[found.path])


def _check_seen(folder: RunFolder, part: Part, note: Mapping[str, Any]) -> None:
    target = folder.part_file(part.number)
    if folder.size(target) != note["bytes"]:
        raise EngineError(
            f"all workers must write to the place that this process sees, got no {target.url} here that a worker has written",
            remedy="give a folder that all machines share, or a URL",
        )


def _all_there(folder: RunFolder, parts: Sequence[Mapping[str, Any]]) -> bool:
    """Tell by their sizes whether the files of parts of a manifest are there."""
    return all(folder.has_files(entry["part"], entry) for entry in parts)


def _is_small(job: Job) -> bool:
    """Tell whether scoring takes less time than starting workers."""
    if job.files is not None:
        return job.files.text_bytes <= IN_PROCESS_BYTES
    return sum(8 * corpus.n_tokens for corpus in job.corpora) <= IN_PROCESS_BYTES


@contextlib.contextmanager
def _runner(job: Job, client: Client | ClientLater | None, progress: Progress | None) -> Iterator[Runner]:
    """Choose a runner, and cancel its work when anything fails."""
    with contextlib.ExitStack() as stack:
        if client is None and not _is_small(job) and not any(map(is_in_memory, job.paths)):
            client = ClientLater(worker_per_core, here=True)
        if isinstance(client, ClientLater) and client.here:
            from dslda.variational.compiling import kernel_of

            # compiled once into numba's cache, and not by each worker
            kernel_of(job.model.family, labelled=False)
        runner: Runner = SerialRunner(progress)
        if client is not None:
            from dslda.engine.dask.plugin import register

            ours = stack.enter_context(cluster(client))
            register(ours, job.model.family, labelled=False)
            runner = DaskRunner(ours, progress)
        try:
            yield runner
        except BaseException:
            runner.cancel()
            raise
