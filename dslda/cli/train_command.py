"""``dslda train``: from a corpus to a model."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any

import click

from dslda.cli.fit_options import named_levels, response_options, settings_options
from dslda.cli.logs import logging_to_stderr
from dslda.cli.options import OUTPUT, chosen_client, cluster_options, json_option, names_in
from dslda.cli.own_family import named_family
from dslda.cli.process import HoldWhenDone, Interrupted, Session
from dslda.cli.terminal import echo
from dslda.exceptions import DsldaError, InputError
from dslda.wording import number_of

if TYPE_CHECKING:
    from dslda.cluster.opening import ClusterOptions
    from dslda.model import Model

__all__ = ["command"]


@click.command(
    "train",
    short_help="Learn topics that explain words and response.",
    epilog="""\b
Examples:
  dslda train reviews.corpus --response rating --out stars.model
  dslda train reviews.corpus --response rating --out stars.model --topics 50 --rho 3
  dslda train reviews.corpus --response rating --out stars.model --hold-out 0.1
  dslda train bills.corpus --response cosponsors --family negative_binomial --covariates party --out bills.model
  dslda train answers.corpus --response agreement --family ordinal --levels never,sometimes,always --out a.model
  dslda train waits.corpus --response wait --family waits:Exponential --out waits.model
  dslda train s3://bucket/all.corpus --response price --out price.model --scheduler tcp://10.0.0.1:8786
  dslda train big.corpus --response price --out price.model --checkpoint price.checkpoint --resume

\b
Ctrl-C or SIGTERM ends training after saving the last complete iteration; the exit code is then 130 or 143.
With --checkpoint only the iteration under way is lost, however the process ends: the same command with
--resume goes on, and ends with the same bits as if it had never stopped.""",
)
@click.argument("corpus_path", metavar="C.corpus")
@click.option("--response", required=True, metavar="COL", help="Response to explain.")
@click.option(
    "--out",
    type=OUTPUT,
    required=True,
    metavar="M.model",
    help="Model to write: a local path or any fsspec URL.",
)
@response_options
@settings_options()
@click.option(
    "--hold-out",
    type=float,
    metavar="SHARE",
    help="Keep this share of the documents, at most 0.5, from training, chosen at random independently of --seed. The model "
    "is judged on them, and prediction intervals come from them (of 100 documents or more).  [default: none]",
)
@click.option(
    "--checkpoint",
    type=OUTPUT,
    metavar="DIR",
    help="Folder of the checkpoint that training resumes from after a kill: a local path or any fsspec URL.",
)
@click.option(
    "--checkpoint-every",
    type=int,
    metavar="N",
    help="Iterations between two checkpoints.  [default: such that they take less than 5% of the time]",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on from the checkpoint, or begin if there is none yet. Replaces the model of this fit if it was interrupted or "
    "stopped at a lower --max-iter, and leaves a complete one unchanged.",
)
@click.option(
    "--overwrite", is_flag=True, help="Replace a model at --out and, without --resume, a checkpoint."
)
@cluster_options
@json_option
@click.pass_obj
def command(
    session: Session,
    /,
    corpus_path: str,
    *,
    out: str,
    family: str,
    covariates: tuple[str, ...],
    levels: str | None,
    checkpoint: str | None,
    resume: bool,
    overwrite: bool,
    cluster: ClusterOptions,
    json_logs: bool,
    **settings: Any,
) -> None:
    """Learn topics that explain the words and the response of the documents in C.corpus.

    Works on all cores of this machine unless --scheduler names a cluster. The model has the same bits
    whatever the number of workers. Documents without the response help to learn the topics.
    """
    with logging_to_stderr(json_logs=json_logs):
        from dslda.corpus.store import open_corpus
        from dslda.engine.progress import LogProgress, default_progress
        from dslda.persistence.model_store import check_model_output
        from dslda.storage.location import Location
        from dslda.training.checkpoint import is_unfinished, model_of_fit
        from dslda.training.train import train

        family_of_response = named_family(family)
        _check_apart(out, checkpoint)
        corpus = open_corpus(corpus_path)
        earlier = model_of_fit(out, checkpoint) if resume and checkpoint and not overwrite else None
        replace = overwrite or earlier is not None or (resume and is_unfinished(out, corpus))
        check_model_output(out, overwrite=replace)
        progress: Any = HoldWhenDone(LogProgress() if json_logs else default_progress(), session)
        model = train(
            corpus,
            family=family_of_response,
            covariates=names_in(covariates),
            levels=named_levels(levels),
            client=chosen_client(cluster),
            progress=progress,
            checkpoint=checkpoint,
            resume=resume,
            # with --resume this option is about the model
            overwrite=overwrite and not resume and checkpoint is not None,
            earlier=earlier,
            **settings,
        )
        if model is earlier:
            held_out = model.training.held_out
            quality = "" if held_out is None else f"; {held_out.in_words}"
            echo(f"{Location.of(out).url}: complete already: {_outcome(model)}{quality}")
            return
        path = _save(model, out, overwrite=replace)
    training = model.training
    if training.interrupted:
        remedy = "" if checkpoint is None else "; the same command with --resume goes on"
        raise Interrupted(
            f"iteration {training.n_iterations}, the last complete one, is saved in {path}{remedy}"
        )
    if session.signals:
        raise Interrupted(f"after the end of training; the complete model is saved in {path}")
    echo(f"{path}: {_outcome(model)}")


def _outcome(model: Model) -> str:
    training = model.training
    how = "converged" if training.converged else "not converged"
    return f"{number_of(model.n_topics, 'topic')}, {number_of(training.n_iterations, 'iteration')} ({how})"


def _check_apart(out: str, checkpoint: str | None) -> None:
    """Refuse a model and a checkpoint in one folder, or one inside the other."""
    from dslda.storage.location import Location

    if checkpoint is None:
        return
    model, other = (f"{Location.of(path).url}/" for path in (out, checkpoint))
    if model.startswith(other) or other.startswith(model):
        raise InputError(
            f"must be another folder than the model's, and neither inside the other, got {checkpoint} and {out}",
            parameter="checkpoint",
        )


def _save(model: Model, out: str, *, overwrite: bool) -> str:
    """Save a model, or save it elsewhere if that fails, since training may have taken days."""
    try:
        return model.save(out, overwrite=overwrite)
    except (DsldaError, OSError) as error:
        folder = tempfile.mkdtemp(prefix="dslda-saved-")
        try:
            saved = model.save(os.path.join(folder, os.path.basename(out.rstrip("/"))))
        except (DsldaError, OSError) as again:
            os.rmdir(folder)
            error.add_note(f"training is complete, but neither could it be saved in {folder}: {again}")
            raise error from None
        error.add_note(f"training is complete, the model is saved in {saved} instead: move it from there")
        raise
