"""``dslda train``: from a corpus to a model."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING, Any, get_args

import click

from dslda.cli.logs import logging_to_stderr
from dslda.cli.options import chosen_client, cluster_options, json_option
from dslda.cli.own_family import named_family
from dslda.cli.program import Interrupted, Session
from dslda.exceptions import DsldaError
from dslda.variational.parameters import FitSpec, Granularity
from dslda.wording import number_of

if TYPE_CHECKING:
    from dslda.engine.cluster import ClusterOptions
    from dslda.model import Model

__all__ = ["command"]

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
  dslda train reviews.corpus --response rating --out stars.model --topics 50 --rho 4
  dslda train bills.corpus --response cosponsors --family negative_binomial --covariates party --out bills.model
  dslda train waits.corpus --response wait --family waits:Exponential --out waits.model
  dslda train s3://bucket/all.corpus --response price --out price.model --scheduler tcp://10.0.0.1:8786

\b
Ctrl-C or SIGTERM ends training after saving the last complete iteration; the exit code is then 130 or 143.""",
)
@click.argument("corpus_path", metavar="C.corpus")
@click.option("--response", required=True, metavar="COL", help="Response to explain.")
@click.option(
    "--out", required=True, metavar="M.model", help="Model to write: a local path or any fsspec URL."
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
    "--class-weight", type=click.Choice(["balanced"]), help="Weigh classes so that each counts the same."
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
    default=DEFAULTS.rho,
    show_default=True,
    help="Weight of the response against the words; 2 to 8 often predict better than the plain model's 1.",
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
    help="Relative change of the ELBO at which EM stops.",
)
@click.option("--seed", type=int, default=DEFAULTS.seed, show_default=True, help="Of the start.")
@click.option("--overwrite", is_flag=True, help="Replace a model at --out.")
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
    granularity: Granularity,
    max_iter: int,
    tol: float,
    seed: int,
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
        from dslda.cli.progress import JsonProgress
        from dslda.corpus.store import open_corpus
        from dslda.engine.progress import default_progress
        from dslda.persistence.store import check_model_output
        from dslda.training import train

        check_model_output(out, overwrite=overwrite)
        chosen = named_family(family)
        corpus = open_corpus(corpus_path)
        progress = JsonProgress() if json_logs else default_progress()
        model = train(
            corpus,
            response=response,
            family=chosen,
            covariates=[name for listed in covariates for name in listed.split(",") if name],
            weight=weight,
            exposure=exposure,
            trials=trials,
            event=event,
            class_weight=class_weight,
            ridge=ridge,
            n_topics=n_topics,
            seed=seed,
            client=chosen_client(cluster),
            doc_topic_prior=alpha,
            topic_prior=topic_prior,
            response_weight=rho,
            granularity=granularity,
            max_iter=max_iter,
            tol=tol,
            progress=HoldWhenDone(progress, session.interrupts),
        )
        path = _save(model, out, overwrite=overwrite)
    training = model.training
    if training.interrupted:
        raise Interrupted(f"iteration {training.n_iterations}, the last complete one, is saved in {path}")
    if session.interrupts.seen is not None:
        raise Interrupted(f"after training had ended; the complete model is saved in {path}")
    how = "converged" if training.converged else "not converged"
    click.echo(
        f"{path}: {number_of(model.n_topics, 'topic')}, {number_of(training.n_iterations, 'iteration')} ({how})"
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
