"""One fit, from a training set to a model: checked, prepared, run, judged and recorded."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

from dslda.engine.conditional.work import ConditionalPass
from dslda.engine.dask.worker_memory import check_here
from dslda.engine.data.fit_source import FitSource
from dslda.engine.driver import FitResult
from dslda.engine.em import trace_columns
from dslda.engine.executor import Executor, SerialExecutor
from dslda.engine.passes import CoOccurrencePass, EStepPass, Pass
from dslda.evaluation.topic_quality import TopicQuality, top_terms, topic_quality
from dslda.exceptions import DataWarning, DsldaError, InputError, Note, warn
from dslda.families.own import check_answers
from dslda.interrupts import heeded_interrupts
from dslda.model import Model
from dslda.persistence.model_record import ModelRecord, OtherStart, TrainingSummary
from dslda.training.bootstrap import bootstrap_coefficients, settled
from dslda.training.checkpoint import FitCheckpoint
from dslda.training.checks import check_response, report_left_out
from dslda.training.diagnostics import (
    base_predictor,
    check_learned,
    covariance_of,
    covariance_of_classes,
    pearson_of,
    report_alpha,
    report_convergence,
    report_entangled,
    report_limit,
    report_near_equal,
    report_scatter,
    report_separation,
)
from dslda.training.identity import fit_identity
from dslda.training.objective import with_objective
from dslda.training.profile import training_reference
from dslda.training.response import ResponseModel, response_model
from dslda.training.seed_words import topic_seeds
from dslda.training.stability import stability_of_starts
from dslda.training.starts import Start, best_start, one_after_another, runs_side_by_side, side_by_side
from dslda.training.training_set import Roles, TrainingSet
from dslda.variational.compiling import prepare_kernels
from dslda.variational.mstep import prior_precision
from dslda.variational.parameters import FitSpec, Parameters, initial_parameters
from dslda.variational.statistics import SufficientStatistics
from dslda.variational.sums import Sums
from dslda.variational.topics import in_e_step
from dslda.versions import library_versions
from dslda.wording import number_of

if TYPE_CHECKING:
    from distributed import Client

    from dslda.corpus.summary import ResponseSummary
    from dslda.engine.progress import FitProgress
    from dslda.families.base import Family

__all__ = ["fitted_model"]

logger = logging.getLogger("dslda.training")

S = TypeVar("S", bound=Sums)

LIBRARIES = ("numpy", "numba", "scipy", "zarr")

MOST_JOINT = 2048
"""Largest number of coefficients of all classes whose information is summed, a matrix of 32 MB for each partial sum."""


def fitted_model(
    training_set: TrainingSet,
    roles: Roles,
    client_context: AbstractContextManager[Client | None],
    *,
    family: str | Family,
    spec: FitSpec,
    hold_out: float | None,
    progress: FitProgress | None,
    checkpoint: FitCheckpoint | None,
    earlier: Model | None,
    prepare: bool = False,
) -> Model:
    """Check everything, and only then enter the context of a client, to work there.

    Parameters
    ----------
    training_set : TrainingSet
    roles : Roles
    client_context : context manager of a Client or None
        None to work in this process.
    spec : FitSpec
        Settings, still without the options of the family.
    family, hold_out, progress, earlier
        As :func:`dslda.train` takes them.
    checkpoint : FitCheckpoint or None
    prepare : bool, default False
        Compile the kernel here first: for this process, or for workers that find it in numba's cache instead of each
        compiling it.

    Raises and warns as :func:`dslda.train`.
    """
    # another choice of documents is not remembered
    kept = None if training_set.source.n_others.any() else hold_out
    training_set, model = _checked(training_set, roles, family, spec.n_topics, hold_out)
    fitted_family, design, response = model.family, model.design, training_set.in_words
    check_answers(
        fitted_family,
        model.moments,
        center=design.scaling.center,
        scale=design.scaling.scale,
        responses=_some_responses(training_set.summary),
        n_topics=spec.n_topics,
    )
    spec = replace(spec, family=fitted_family.name, family_options=fitted_family.options)
    source = training_set.source.with_design(design)
    spec, told = with_objective(spec, source, training_set.summary.n)
    spec = settled(spec)
    check_here(spec, source.n_terms)
    fresh = partial(
        initial_parameters,
        source.n_terms,
        family=fitted_family,
        moments=model.moments,
        n_covariates=len(design.covariates),
    )
    seeds = topic_seeds(spec.seeded_topics, training_set.vocabulary)
    first = Start(source, fitted_family, spec, fresh, seeds)
    identity = partial(
        fit_identity, training_set, source, classes=model.classes, versions=library_versions(*LIBRARIES)
    )
    position, checkpoints = None, None
    if checkpoint is not None:
        checkpoint.read(identity(spec))
        if earlier is not None and checkpoint.is_completed_by(earlier.record):
            return earlier
        position = checkpoint.start(first.initial())
        checkpoints = checkpoint.schedule(position)
    if told:
        logger.info("%s", told)
    if prepare:
        prepare_kernels(fitted_family, spec.objective)
    with ExitStack() as stack:
        stack.enter_context(heeded_interrupts())
        client = stack.enter_context(client_context)
        results = None
        if client is not None and checkpoint is None and runs_side_by_side(first):
            results = side_by_side(client, first)
        executor = stack.enter_context(_executor(source, fitted_family, spec, client))
        if results is None:
            results = one_after_another(
                executor,
                first,
                position=position,
                checkpoint=checkpoint,
                checkpoints=checkpoints,
                progress=progress,
                identity=identity,
            )
        best = best_start(results, spec)
        result = results[best]
        statistics = result.statistics
        check_learned(statistics, response)
        report_convergence(result, spec)
        report_alpha(result.parameters, spec)
        if spec.objective == "joint":
            # elsewhere documents kept aside have chosen the size of the coefficients
            report_separation(
                statistics, fitted_family, response, rate=model.rate, class_weight=design.class_weight
            )
        pearson = pearson_of(statistics, fitted_family, design, spec.n_topics)
        report_scatter(pearson, fitted_family, response, mean=training_set.summary.mean)
        report_limit(result.parameters, fitted_family, response)
        report_entangled(statistics.information, design)
        covariance = _covariance(executor, result, fitted_family, spec, pearson)
        quality = _quality(executor, result.parameters)
        record = _record(training_set, model, spec, roles, result, pearson, covariance, quality)
        ordered = [result, *(other for i, other in enumerate(results) if i != best)]
        record = _of_starts(record, model, [each.parameters for each in ordered])
        report_near_equal(record)
        unseen = None
        if result.unseen is not None:
            before = [each.unseen.parameters for each in ordered if each.unseen is not None]
            unseen = _of_starts(record, model, before), result.unseen.documents
        # both here, since documents of a bag live on the workers
        reference, held_out = training_reference(record, source, unseen)
        if held_out is not None:
            held_out = replace(held_out, share=kept)
        stability = stability_of_starts(record, source)
        replicates = None
        if spec.bootstrap and not result.interrupted:
            with nullcontext() if progress is None else progress.interruptible():
                replicates = bootstrap_coefficients(
                    client,
                    first,
                    result,
                    lambda start: _executor(start.source, fitted_family, start.spec, client),
                )
        return Model(
            replace(
                record,
                training=replace(record.training, held_out=held_out),
                reference=reference,
                stability=stability,
                replicates=replicates,
            )
        )


def _checked(
    training_set: TrainingSet, roles: Roles, family: str | Family, n_topics: int, hold_out: float | None
) -> tuple[TrainingSet, ResponseModel]:
    """Check all documents, held-out ones too; return those to train on, and their response."""
    if hold_out is None:
        return training_set, _checked_response(training_set, roles, family, n_topics)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # training warns of its own documents
        check_response(training_set)
        response_model(family, training_set, roles)
    rest = training_set.holding_out(hold_out)
    n, n_rest = (int(documents.source.n_documents.sum()) for documents in (training_set, rest))
    logger.info("%s of %s kept from training", f"{n - n_rest:,}", number_of(n, "document"))
    try:
        return rest, _checked_response(rest, roles, family, n_topics)
    except InputError as error:
        error.add_note(Note("all documents together would do: keep fewer of them with {hold_out=}"))
        raise


def _checked_response(
    training_set: TrainingSet, roles: Roles, family: str | Family, n_topics: int
) -> ResponseModel:
    n_labelled = training_set.summary.n
    check_response(training_set)
    report_left_out(training_set)
    if n_topics > n_labelled:
        warn(
            DataWarning(
                f"{n_topics} topics for {number_of(n_labelled, 'document')} with a response: coefficients cannot be told "
                "apart",
                remedy="choose fewer topics",
            )
        )
    model = response_model(family, training_set, roles)
    if model.family.constant_scatter and training_set.summary.kind == "binary":
        logger.info(
            "%s has only 0 and 1, which family %s takes for numbers: family binomial predicts the probability of 1",
            *(training_set.in_words, model.family.name),
        )
    return model


def _covariance(
    executor: Executor,
    result: FitResult,
    family: Family,
    spec: FitSpec,
    pearson: NDArray[np.float64] | None,
) -> NDArray[np.float64] | None:
    """Covariance of the coefficients, as the model stores it; for classes after one more pass over the documents."""
    parameters = result.parameters
    ridged = spec if result.ridge is None else replace(spec, ridge=result.ridge)
    prior = prior_precision(parameters, family, ridged)
    if parameters.n_classes is not None:
        size = parameters.n_classes * len(prior)
        if size > MOST_JOINT:
            logger.warning("no standard errors: %d coefficients are more than %d", size, MOST_JOINT)
            return None
        work: Pass[SufficientStatistics] = EStepPass(words_alone=spec.suits_words, joint=True)
        if spec.objective == "conditional":
            work = ConditionalPass(differentiated=False, joint=True)
        statistics = _one_more_pass(executor, in_e_step(parameters), work, "standard errors")
        return None if statistics is None else covariance_of_classes(statistics.joint_information, prior)
    ratio = family.information_ratio(parameters.delta)
    covariance = covariance_of(ratio * result.statistics.information + prior)
    if covariance is not None and family.is_quasi:
        # unknown where the coefficients use up all documents
        scatter = None if pearson is None or not pearson[1] > 0.0 else pearson[0] / pearson[1]
        covariance = None if scatter is None else covariance * scatter
    return covariance


def _quality(executor: Executor, parameters: Parameters) -> TopicQuality | None:
    """Measures of the topics, after one more pass over the documents."""
    top = top_terms(parameters.topics)
    together = _one_more_pass(executor, parameters, CoOccurrencePass(top), "measures of the topics")
    return None if together is None else topic_quality(parameters.topics, top, together)


def _one_more_pass(executor: Executor, parameters: Parameters, work: Pass[S], gained: str) -> S | None:
    """The sums of a pass over all documents after the fit; None, with a warning in the log, where it fails."""
    logger.info("%s take one more pass over the documents", gained)
    try:
        sums, _ = executor.run(parameters, work)
    # the fit may have taken days, and is complete without them
    except (DsldaError, OSError, CancelledError) as error:
        logger.warning("no %s: the documents could not be read once more (%s)", gained, error)
        return None
    return sums


def _record(
    training_set: TrainingSet,
    model: ResponseModel,
    spec: FitSpec,
    roles: Roles,
    result: FitResult,
    pearson: NDArray[np.float64] | None,
    covariance: NDArray[np.float64] | None,
    quality: TopicQuality | None,
) -> ModelRecord:
    """The model without the profile of its documents."""
    design, statistics = model.design, result.statistics
    return ModelRecord(
        parameters=design.weighed(result.parameters),
        covariance=covariance,
        design=design,
        classes=model.classes,
        levels={name: training_set.levels[name] for name in roles.covariates if name in training_set.levels},
        spec=spec,
        response=training_set.response,
        response_summary=training_set.summary,
        training=TrainingSummary(
            n_documents=statistics.n_documents,
            n_labelled=statistics.n_labelled,
            n_empty=statistics.n_empty,
            n_tokens=statistics.n_tokens,
            n_unconverged=statistics.n_unconverged,
            n_iterations=len(result.trace),
            converged=result.converged,
            interrupted=result.interrupted,
            oov_share=training_set.oov_share,
            new_share=training_set.new_share,
        ),
        trace=trace_columns(result.trace),
        vocabulary=training_set.vocabulary,
        text_settings=training_set.text_settings,
        too_frequent=training_set.too_frequent,
        fields=training_set.fields or {},
        corpus_hash=training_set.corpus_hash,
        versions=library_versions(*LIBRARIES),
        prevalence=statistics.topic_counts.sum(axis=0) / statistics.topic_counts.sum(),
        base=base_predictor(model.family, model.rate, result.parameters.delta),
        pearson=pearson,
        quality=quality,
        labels=_labels(spec),
    )


def _labels(spec: FitSpec) -> tuple[str | None, ...]:
    """The names of the topics with seed words, which are the first."""
    names = [name for name, _ in spec.seeded_topics]
    return (*names, *[None] * (spec.n_topics - len(names))) if names else ()


def _of_starts(record: ModelRecord, model: ResponseModel, starts: Sequence[Parameters]) -> ModelRecord:
    """The record with the parameters of these starts, the first of them shown."""
    each = [
        OtherStart(model.design.weighed(own), base_predictor(model.family, model.rate, own.delta))
        for own in starts
    ]
    return replace(record, parameters=each[0].parameters, base=each[0].base, other_starts=tuple(each[1:]))


def _some_responses(summary: ResponseSummary) -> list[float]:
    """The lowest and the highest response, and some between them where the summary lists them."""
    distinct = summary.distinct or ()
    return sorted({summary.minimum, *distinct[:: max(len(distinct) // 3, 1)], summary.maximum})


def _executor(source: FitSource, family: Family, spec: FitSpec, client: Client | None) -> Executor:
    if client is None:
        return SerialExecutor(source, family, spec)
    from dslda.engine.dask.dask_executor import DaskExecutor

    return DaskExecutor(client, source, family, spec)
