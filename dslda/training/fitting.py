"""One fit, from a training set to a model: checked, prepared, run, judged and recorded."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dslda._version import library_versions
from dslda.engine.dask.worker_memory import check_here
from dslda.engine.data.fit_source import FitSource
from dslda.engine.driver import FitResult, fit
from dslda.engine.em import Position, trace_columns
from dslda.engine.executor import Executor, SerialExecutor
from dslda.exceptions import DataWarning, InputError, Note, warn
from dslda.families.own import check_answers
from dslda.model import Model
from dslda.persistence.model_record import ModelRecord, TrainingSummary
from dslda.training.base_rate import base_predictor
from dslda.training.checkpoint import CheckpointOptions, FitCheckpoint, is_complete
from dslda.training.checks import check_response, report_left_out
from dslda.training.diagnostics import (
    check_learned,
    covariance_of,
    pearson_of,
    report_convergence,
    report_entangled,
    report_scatter,
    report_separation,
)
from dslda.training.identity import fit_identity
from dslda.training.profile import training_reference
from dslda.training.response import ResponseModel, response_model
from dslda.training.training_set import Roles, TrainingSet
from dslda.variational.compiling import kernel_of
from dslda.variational.initial import initial_parameters
from dslda.variational.mstep import prior_precision
from dslda.variational.parameters import FitSpec, Parameters
from dslda.wording import number_of

if TYPE_CHECKING:
    from distributed import Client

    from dslda.corpus.summary import ResponseSummary
    from dslda.engine.progress import FitProgress
    from dslda.families.base import Family

__all__ = ["FitRequest", "fitted_model"]

logger = logging.getLogger("dslda.training")

LIBRARIES = ("numpy", "numba", "scipy", "zarr")


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRequest:
    """A user's wishes about a fit, whatever form the documents have.

    Attributes
    ----------
    family : str or Family
        As the user names or gives it.
    spec : FitSpec
        The family's options are filled in later.
    hold_out : float or None
        Share of the documents to keep from training.
    progress : FitProgress or None
    checkpoint : CheckpointOptions or None
    earlier : Model or None
        The model that an earlier run of the fit has ended with.
    """

    family: str | Family
    spec: FitSpec
    hold_out: float | None
    progress: FitProgress | None
    checkpoint: CheckpointOptions | None
    earlier: Model | None


def fitted_model(
    training_set: TrainingSet,
    roles: Roles,
    request: FitRequest,
    client_context: AbstractContextManager[Client | None],
    *,
    prepare: bool = False,
) -> Model:
    """Check everything, and only then enter the context of a client, to work there.

    Parameters
    ----------
    training_set : TrainingSet
    roles : Roles
    request : FitRequest
    client_context : context manager of a Client or None
        None to work in this process.
    prepare : bool, default False
        Compile the kernel here before: in this process, or for workers that find it in numba's cache, where each of them
        would compile the same.

    Raises, and warns, as :func:`dslda.train`.
    """
    training_set, model = _checked(training_set, roles, request)
    summary, spec = training_set.summary, request.spec
    family, design = model.family, model.design
    check_answers(
        family,
        model.moments,
        center=design.scaling.center,
        scale=design.scaling.scale,
        responses=_some_responses(summary),
        n_topics=spec.n_topics,
    )
    spec = replace(spec, family=family.name, family_options=family.options)
    source = training_set.source.with_design(design)
    check_here(spec, source.n_terms)

    def initial() -> Parameters:
        return initial_parameters(
            source.n_terms,
            spec=spec,
            family=family,
            moments=model.moments,
            n_covariates=len(design.covariates),
        )

    start, checkpoints = None, None
    if request.checkpoint is not None:
        identity = fit_identity(
            training_set, source, spec, classes=model.classes, versions=library_versions(*LIBRARIES)
        )
        checkpoint = FitCheckpoint(request.checkpoint, identity)
        earlier = request.earlier
        if (
            earlier is not None
            and checkpoint.is_of(earlier.record)
            and is_complete(earlier.record, spec.max_iter)
        ):
            return earlier
        start = checkpoint.start(initial())
        checkpoints = checkpoint.schedule(start)
    if prepare:
        kernel_of(family)
    with client_context as client, _executor(source, family, spec, client) as executor:
        # in here: of many topics and terms they take seconds, in which workers read, and have said what they will do
        start = Position(initial()) if start is None else start
        result = fit(
            executor,
            start.parameters,
            family=family,
            spec=spec,
            done=start.trace,
            checkpoints=checkpoints,
            progress=request.progress,
        )
        statistics = result.statistics
        check_learned(statistics, training_set.what)
        report_convergence(result, spec)
        report_separation(
            statistics, family, training_set.what, rate=model.rate, class_weight=design.class_weight
        )
        pearson = pearson_of(statistics, family, design, spec.n_topics)
        report_scatter(pearson, family, mean=summary.mean, what=training_set.what)
        report_entangled(statistics.information, design)
        record = _record(training_set, model, spec, roles, result, pearson)
        # in here too: documents of a bag live on the workers
        reference, held_out = training_reference(record, source)
        training = replace(record.training, held_out=held_out)
        return Model(replace(record, training=training, reference=reference))


def _checked(
    training_set: TrainingSet, roles: Roles, request: FitRequest
) -> tuple[TrainingSet, ResponseModel]:
    """The documents to train on, and their response, both checked; so are documents that are held out."""
    if request.hold_out is None:
        return training_set, _checked_response(training_set, roles, request)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # training warns of its own documents
        check_response(training_set)
        response_model(request.family, training_set, roles)
    rest = training_set.holding_out(request.hold_out)
    n, n_rest = (int(documents.source.n_documents.sum()) for documents in (training_set, rest))
    logger.info("%s of %s kept from training", f"{n - n_rest:,}", number_of(n, "document"))
    try:
        return rest, _checked_response(rest, roles, request)
    except InputError as error:
        error.add_note(Note("all documents together would do: keep fewer of them with {hold_out=}"))
        raise


def _checked_response(training_set: TrainingSet, roles: Roles, request: FitRequest) -> ResponseModel:
    n_topics, n_labelled = request.spec.n_topics, training_set.summary.n
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
    return response_model(request.family, training_set, roles)


def _record(
    training_set: TrainingSet,
    model: ResponseModel,
    spec: FitSpec,
    roles: Roles,
    result: FitResult,
    pearson: NDArray[np.float64] | None,
) -> ModelRecord:
    """All that the model consists of but what it remembers of its documents."""
    family, design, statistics = model.family, model.design, result.statistics
    covariance = covariance_of(statistics.information + prior_precision(result.parameters, family, spec))
    if covariance is not None and family.is_quasi:
        # unknown where no document is left over to tell
        scatter = None if pearson is None or not pearson[1] > 0.0 else pearson[0] / pearson[1]
        covariance = None if scatter is None else covariance * scatter
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
        base=base_predictor(family, model.rate, result.parameters.delta),
        pearson=pearson,
    )


def _some_responses(summary: ResponseSummary) -> list[float]:
    """The lowest and the highest response, and some between them where they are few enough to be known."""
    known = summary.distinct or ()
    return sorted({summary.minimum, *known[:: max(len(known) // 3, 1)], summary.maximum})


@contextmanager
def _executor(source: FitSource, family: Family, spec: FitSpec, client: Client | None) -> Iterator[Executor]:
    if client is None:
        with SerialExecutor(source, family, spec) as serial:
            yield serial
        return
    from dslda.engine.dask.dask_executor import DaskExecutor

    with DaskExecutor(client, source, family, spec) as executor:
        yield executor
