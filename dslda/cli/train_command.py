"""``dslda train``: from a corpus to a model."""

from __future__ import annotations

import dataclasses
import logging
import os
import tempfile
import warnings
from typing import TYPE_CHECKING, Any, get_args

import click

from dslda.cli.logs import logging_to_stderr
from dslda.cli.options import OUTPUT, chosen_client, cluster_options, json_option, names_in
from dslda.cli.own_family import named_family
from dslda.cli.program import Interrupted, Session
from dslda.exceptions import DataWarning, DsldaError, InputError
from dslda.variational.parameters import FitSpec, Granularity, TopicEstimation
from dslda.wording import number_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from dslda.cluster.opening import ClusterOptions
    from dslda.corpus.store import Corpus
    from dslda.families.base import Family
    from dslda.model import Model
    from dslda.persistence.model_record import ModelRecord, TrainingSummary
    from dslda.training.roles import Roles

__all__ = ["command"]

logger = logging.getLogger("dslda.train")

DEFAULTS = FitSpec()


class _Alpha(click.ParamType):
    """A number, ``1/K``, ``auto`` or ``asymmetric``."""

    name = "1/K|X|auto|asymmetric"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | str | None:
        if value is None or value == "1/K":
            return None
        if value in ("auto", "asymmetric"):
            return str(value)
        try:
            return float(value)
        except ValueError:
            self.fail(f"must be 1/K, auto, asymmetric or a number above 0, got {value!r}", param, ctx)


@click.command(
    "train",
    short_help="Learn topics that explain words and response.",
    epilog="""\b
Examples:
  dslda train reviews.corpus --response rating --out stars.model
  dslda train reviews.corpus --response rating --out stars.model --topics 50 --rho 3
  dslda train reviews.corpus --response rating --out stars.model --hold-out 0.1
  dslda train bills.corpus --response cosponsors --family negative_binomial --covariates party --out bills.model
  dslda train waits.corpus --response wait --family waits:Exponential --out waits.model
  dslda train s3://bucket/all.corpus --response price --out price.model --scheduler tcp://10.0.0.1:8786
  dslda train big.corpus --response price --out price.model --checkpoint price.checkpoint --resume

\b
Ctrl-C or SIGTERM ends training after saving the last complete iteration; the exit code is then 130 or 143.
With --checkpoint nothing is lost but the iteration under way, however the process ends: the same command with
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
@click.option(
    "--family",
    default=DEFAULTS.family,
    show_default=True,
    metavar="NAME|MODULE:CLASS",
    help="Of the response: gaussian, student_t, poisson, negative_binomial, binomial, categorical, ordinal, gamma, "
    "inverse_gaussian or weibull; or a class of your own, which workers must be able to import.",
)
@click.option(
    "--covariates",
    multiple=True,
    metavar="COL,...",
    help="Covariates of the corpus that join the topics in explaining the response.",
)
@click.option("--weight", metavar="COL", help="Covariate that weighs documents.")
@click.option(
    "--exposure",
    metavar="COL",
    help="Covariate that counts are proportional to (poisson, negative_binomial).",
)
@click.option("--trials", metavar="COL", help="Covariate with the trials of a binomial response.")
@click.option(
    "--event", metavar="COL", help="Covariate that is 1 where a duration has ended, else 0 (weibull)."
)
@click.option(
    "--class-weight", type=click.Choice(["balanced"]), help="Predict as if all classes were equally frequent."
)
@click.option(
    "--ridge",
    type=float,
    metavar="X",
    help="Precision of the prior of the coefficients; by default that of the family.",
)
@click.option(
    "--topics",
    "n_topics",
    type=int,
    default=DEFAULTS.n_topics,
    show_default=True,
    metavar="K",
    help="Topics.",
)
@click.option(
    "--rho",
    type=float,
    default=DEFAULTS.response_weight,
    show_default=True,
    help="Weight of the response against the words. Where words say much of it, 2 or 3 predict better than 1; where they "
    "say little, worse, often far: compare with --hold-out.",
)
@click.option(
    "--alpha",
    type=_Alpha(),
    default="1/K",
    show_default=True,
    help="Dirichlet parameter of the topic proportions.",
)
@click.option(
    "--topic-prior",
    type=float,
    default=DEFAULTS.topic_prior,
    show_default=True,
    metavar="X",
    help="Pseudo-count of every term in every topic.",
)
@click.option(
    "--topic-estimation",
    type=click.Choice(get_args(TopicEstimation)),
    default=DEFAULTS.topic_estimation,
    show_default=True,
    help="Topics as points (posterior mode), or as distributions (full variational Bayes).",
)
@click.option(
    "--granularity",
    type=click.Choice(get_args(Granularity)),
    default=DEFAULTS.granularity,
    show_default=True,
    help="What of a document has its own distribution over topics.",
)
@click.option(
    "--max-iter", type=int, default=DEFAULTS.max_iter, show_default=True, help="Cap on EM iterations."
)
@click.option(
    "--tol",
    type=float,
    default=DEFAULTS.tol,
    show_default=True,
    help="EM stops when the ELBO has changed by less than this fraction twice in a row, and its changes are falling.",
)
@click.option(
    "--hold-out",
    type=float,
    metavar="SHARE",
    help="Keep this share of the documents from training, at most 0.5, chosen at random, the same whatever --seed: the model "
    "is judged on them, and scores with prediction intervals (family gaussian or student_t, 100 documents).  [default: none]",
)
@click.option(
    "--seed",
    type=int,
    default=DEFAULTS.seed,
    show_default=True,
    help="Of the start. Another one may find other topics and coefficients: compare a few.",
)
@click.option(
    "--checkpoint",
    type=OUTPUT,
    metavar="DIR",
    help="Keep here what it takes to go on when training is killed: a local path or any fsspec URL.",
)
@click.option(
    "--checkpoint-every",
    type=int,
    metavar="N",
    help="Iterations between two checkpoints.  [default: as many as keep them below 5% of the time]",
)
@click.option(
    "--resume",
    is_flag=True,
    help="Go on from the checkpoint; begin where there is none yet. The model of this fit is replaced if it was "
    "interrupted or stopped at a lower --max-iter, and left as it is if it is complete.",
)
@click.option(
    "--overwrite", is_flag=True, help="Replace a model at --out and, without --resume, a checkpoint."
)
@cluster_options
@json_option
@click.pass_obj
def command(
    session: Session,
    corpus_path: str,
    *,
    response: str,
    out: str,
    family: str,
    covariates: tuple[str, ...],
    weight: str | None,
    exposure: str | None,
    trials: str | None,
    event: str | None,
    class_weight: Any,
    ridge: float | None,
    n_topics: int,
    rho: float,
    alpha: Any,
    topic_prior: float,
    topic_estimation: TopicEstimation,
    granularity: Granularity,
    max_iter: int,
    tol: float,
    hold_out: float | None,
    seed: int,
    checkpoint: str | None,
    checkpoint_every: int | None,
    resume: bool,
    overwrite: bool,
    cluster: ClusterOptions,
    json_logs: bool,
) -> None:
    """Learn topics that explain the words and the response of the documents in C.corpus.

    Works on all cores of this machine unless --scheduler names a cluster. The model has the same bits
    whatever the number of workers. Documents without the response help to learn the topics.
    """
    with logging_to_stderr(json_logs=json_logs):
        from dslda.cli.interrupts import HoldWhenDone
        from dslda.cli.json_progress import JsonProgress
        from dslda.corpus.store import open_corpus
        from dslda.engine.progress import default_progress
        from dslda.persistence.model_store import check_model_output
        from dslda.storage.location import Location
        from dslda.training.checkpoint import CheckpointOptions
        from dslda.training.roles import named_roles
        from dslda.training.train import train

        chosen = named_family(family)
        _check_apart(out, checkpoint)
        corpus = open_corpus(corpus_path)
        documents = None if hold_out is None else _kept(corpus, hold_out)
        here = _model_of_fit(out, checkpoint) if resume and checkpoint is not None and not overwrite else None
        replace = overwrite or here is not None or (resume and _is_interrupted(out, corpus))
        check_model_output(out, overwrite=replace)
        # now, and not when a cluster has started
        anew = overwrite and not resume and checkpoint is not None
        options = CheckpointOptions.of(checkpoint, every=checkpoint_every, resume=resume, overwrite=anew)
        if options is not None and here is not None and _is_complete(here, max_iter):
            options = dataclasses.replace(options, before_going_on=_end)
        if documents is not None:
            roles = named_roles(names_in(covariates), weight, exposure, trials, event, class_weight)
            _check_kept_and_held_out(corpus, response, chosen, roles, documents)
        progress = JsonProgress() if json_logs else default_progress()
        try:
            model = train(
                corpus,
                response=response,
                family=chosen,
                covariates=names_in(covariates),
                weight=weight,
                exposure=exposure,
                trials=trials,
                event=event,
                class_weight=class_weight,
                ridge=ridge,
                n_topics=n_topics,
                seed=seed,
                client=chosen_client(cluster),
                documents=documents,
                doc_topic_prior=alpha,
                topic_prior=topic_prior,
                topic_estimation=topic_estimation,
                response_weight=rho,
                granularity=granularity,
                max_iter=max_iter,
                tol=tol,
                progress=HoldWhenDone(progress, session.interrupts, json_logs=json_logs),
                checkpoint=options,
            )
        except _CompleteAlready:
            assert here is not None
            told = _outcome(here.parameters.n_topics, here.training)
            # what training has said at its end
            measured = here.training.held_out
            known = "" if measured is None else f"; {measured.in_words}"
            click.echo(f"{Location.of(out).url}: complete already: {told}{known}")
            return
        path = _save(model, out, overwrite=replace)
    training = model.training
    if training.interrupted:
        how = "" if checkpoint is None else "; the same command with --resume goes on"
        raise Interrupted(
            f"iteration {training.n_iterations}, the last complete one, is saved in {path}{how}"
        )
    if session.interrupts.seen is not None:
        raise Interrupted(f"after training had ended; the complete model is saved in {path}")
    click.echo(f"{path}: {_outcome(model.n_topics, training)}")


def _kept(corpus: Corpus, share: float) -> NDArray[np.bool_]:
    """The documents to train on, where a share of them is kept from it: whatever the start, the same."""
    from dslda.evaluation.metrics import held_out

    chosen = held_out(corpus.n_documents, share)
    logger.info("%s of %s kept from training", f"{chosen.sum():,}", number_of(len(chosen), "document"))
    return ~chosen


def _check_kept_and_held_out(
    corpus: Corpus, response: str, family: str | Family, roles: Roles, kept: NDArray[np.bool_]
) -> None:
    """Refuse in all documents what training refuses in its own: those that are kept from it are measured."""
    from dslda.training.checks import check_response
    from dslda.training.response import response_model
    from dslda.training.training_set import training_set_of_corpus

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # training warns of its own documents
        for documents in (None, kept):
            chosen = training_set_of_corpus(corpus, response, documents, roles)
            try:
                check_response(chosen)
                response_model(family, chosen, roles)
            except InputError as error:
                if documents is not None:
                    error.add_note("all documents together would do: keep fewer of them with --hold-out")
                raise


class _CompleteAlready(Exception):
    """The checkpoint is of this fit, and its model is there: there is nothing to do."""


def _end() -> None:
    raise _CompleteAlready


def _outcome(n_topics: int, training: TrainingSummary) -> str:
    how = "converged" if training.converged else "not converged"
    return f"{number_of(n_topics, 'topic')}, {number_of(training.n_iterations, 'iteration')} ({how})"


def _is_complete(model: ModelRecord, max_iter: int) -> bool:
    """Whether a fit with this cap ends with such a model, and could measure it when it had ended."""
    training = model.training
    at_its_end = training.converged or (not training.interrupted and training.n_iterations >= max_iter)
    return at_its_end and model.reference is not None


def _model_of_fit(out: str, checkpoint: str) -> ModelRecord | None:
    """The model that is there already, if it is of the fit that the checkpoint is of: it is in nobody's way."""
    from dslda.persistence.checkpoint_store import read_checkpoint
    from dslda.persistence.model_store import read_model
    from dslda.training.identity import is_of_fit

    try:
        model, kept = read_model(out), read_checkpoint(checkpoint)
    except (DsldaError, OSError):
        return None  # whatever is there is judged by who writes
    return model if is_of_fit(model, kept) else None


def _is_interrupted(out: str, corpus: Corpus) -> bool:
    """Whether there is a model of a fit of this corpus that was interrupted: it is in nobody's way when that goes on."""
    from dslda.persistence.model_manifest import ENCODING_TYPE
    from dslda.storage.location import Location

    try:
        found = Location.of(out).read_attributes()
    except (DsldaError, OSError):
        return False
    training = found.get("training")
    return (
        found.get("encoding-type") == ENCODING_TYPE
        and isinstance(training, dict)
        and training.get("interrupted") is True
        and found.get("corpus_sha256") == corpus.content_hash
    )


def _check_apart(out: str, checkpoint: str | None) -> None:
    """Refuse a model and a checkpoint of which one would lie in the other."""
    from dslda.storage.location import Location

    if checkpoint is None:
        return
    model, kept = (f"{Location.of(path).url}/" for path in (out, checkpoint))
    if model.startswith(kept) or kept.startswith(model):
        raise InputError(
            f"checkpoint must be another folder than the model's, and neither inside the other, got {checkpoint} and {out}"
        )


def _save(model: Model, out: str, *, overwrite: bool) -> str:
    """Save a model; somewhere else where that fails, since training may have taken days."""
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
