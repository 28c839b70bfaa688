"""The entry to training: its keywords, and the forms that documents come in."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import ArrayLike

from dslda import settings
from dslda.cluster.client import ClientLater, check_client, check_reach
from dslda.cluster.opening import cluster
from dslda.corpus.store import Corpus, open_corpus
from dslda.corpus.vocabulary import Vocabulary
from dslda.evaluation.metrics import check_share
from dslda.exceptions import InputError
from dslda.families.categorical import Categorical
from dslda.ingestion.collections import is_dask_collection
from dslda.inputs.in_memory import is_table
from dslda.model import Model
from dslda.settings import Granularity, TopicEstimation
from dslda.storage.location import is_in_memory
from dslda.training.checkpoint import CheckpointOptions, alone
from dslda.training.fitting import FitRequest, fitted_model
from dslda.training.response import chosen_family
from dslda.training.training_set import (
    TEXT_SETTINGS,
    ClassWeight,
    bag_reading,
    named_roles,
    roles_of_arrays,
    training_set_of_bag,
    training_set_of_corpus,
    training_set_of_matrix,
)
from dslda.variational.compiling import kernel_of
from dslda.variational.parameters import FitSpec
from dslda.wording import check_keywords

if TYPE_CHECKING:
    from distributed import Client

    from dslda.engine.progress import FitProgress
    from dslda.families.base import Family

__all__ = ["train"]

logger = logging.getLogger("dslda.training")

DEFAULTS = FitSpec()
OTHER_NAMES = {**settings.OTHER_NAMES, "scheduler": "client", "workers": "client"}
"""Names that the paper, the command line and scikit-learn have for the keywords."""


def train(
    data: Any,
    *,
    response: str | ArrayLike | None = None,
    family: str | Family = DEFAULTS.family,
    n_topics: int = DEFAULTS.n_topics,
    seed: int = DEFAULTS.seed,
    client: Client | ClientLater | None = None,
    documents: ArrayLike | None = None,
    covariates: str | Sequence[str] | Mapping[str, ArrayLike] = (),
    weight: str | ArrayLike | None = None,
    exposure: str | ArrayLike | None = None,
    trials: str | ArrayLike | None = None,
    event: str | ArrayLike | None = None,
    class_weight: ClassWeight | None = None,
    ridge: float | None = DEFAULTS.ridge,
    doc_topic_prior: float | Literal["auto", "asymmetric"] | None = DEFAULTS.doc_topic_prior,
    topic_prior: float = DEFAULTS.topic_prior,
    topic_estimation: TopicEstimation = DEFAULTS.topic_estimation,
    response_weight: float = DEFAULTS.response_weight,
    granularity: Granularity = DEFAULTS.granularity,
    max_iter: int = DEFAULTS.max_iter,
    tol: float = DEFAULTS.tol,
    max_sweeps: int = DEFAULTS.max_sweeps,
    sweep_tol: float = DEFAULTS.sweep_tol,
    dispersion_floor: float = DEFAULTS.dispersion_floor,
    terms: Iterable[str] | Vocabulary | None = None,
    text: str | None = None,
    words: str | None = None,
    counts: str | None = None,
    categorical: str | Iterable[str] = (),
    partition_tokens: int | None = None,
    progress: FitProgress | None = None,
    hold_out: float | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    overwrite: bool = False,
    earlier: Model | None = None,
    **text_settings: Any,
) -> Model:
    """Learn topics that explain the words of documents and a response.

    The result is a pure function of the documents, the settings and the versions of the libraries: it has the
    same bits whatever the number of workers and threads, and whether the documents come from a store or a
    bag.

    Parameters
    ----------
    data : Corpus, path of a corpus, dask Bag or DataFrame, sparse matrix or array
        The documents. Those of a bag are counted first and kept on the workers, nothing is written. A matrix
        holds counts, documents by terms, and is fitted in this process.
    response : str, or array-like of float or str of shape (n_documents,)
        Name of the response, by default the only one the corpus has; for a matrix the responses themselves.
        NaN where missing: such documents help to learn the topics.
    family : str or Family, default "gaussian"
        Distribution of the response: one of those in docs/families.md, or your own.
    n_topics : int, default 20
    seed : int, default 0
        Of the random perturbation that the topics start from.
    client : distributed.Client, optional
        Where to work. By default a cluster on this machine is started, and closed at the end; a corpus of one
        partition, or in memory (``memory://``, as :func:`dslda.ingest` without `out` gives), is fitted in this process.
    documents : array-like, optional
        Documents to train on: a boolean mask over all of them, or row numbers. All by default.
    covariates : sequence of str, or mapping of str to array-like
        Covariates of the corpus that join the linear predictor; for a matrix the arrays by name, of numbers or of
        str. Numbers are standardised inside; of names, the first in order is the reference. Where a covariate,
        exposure, trials or event is missing (NaN, None) the response of the document is left out, with a warning, and
        its words still count; without a weight they do not count either.
    weight : str or array-like, optional
        Covariate, or array for a matrix, of document weights of at least 0: a document of weight 2 counts as
        two. They multiply the weights that the corpus was ingested with, which always count.
    exposure : str or array-like, optional
        What an expected count is proportional to (families poisson and negative_binomial), above 0.
    trials : str or array-like, optional
        Trials of a binomial response, which then counts successes; 1 by default.
    event : str or array-like, optional
        1 where a duration (family weibull) has ended, 0 where it was only observed so far.
    class_weight : "balanced" or mapping of class to weight, optional
        How many times as frequent each class is to be taken for; "balanced": all are the same. Shifts log-odds, and so
        probabilities and coefficients, by the logarithms of the weights, and leaves the fit as it is; but a class of
        weight 0 is left out of it.
    ridge : float, optional
        Precision of a Gaussian prior on the coefficients of topics, around their mean, and of covariates, around
        0. By default the family's: 0 where coefficients cannot run away, as they do where classes are separable.
    doc_topic_prior : float, None, "auto" or "asymmetric"
        Symmetric Dirichlet parameter of the topic proportions (the paper's alpha), 1e-10 to 1e6; None is 1 /
        n_topics. "auto" estimates one number for all topics, "asymmetric" one for each.
    topic_prior : float
        Pseudo-count of every term in every topic, at most 1e6; 0 is the paper's maximum likelihood. With
        `topic_estimation` "variational" it must be at least 0.005.
    topic_estimation : {"map", "variational"}
        Whether the topics are points, the posterior mode under a Dirichlet(1 + topic_prior), or distributions: full
        variational Bayes under a Dirichlet(topic_prior), which all but empties topics that the documents do not need. The
        topics of the model are then their means.
    response_weight : float, default 1
        Weight rho of the response in the E-step, 1e-6 to 1e6. 1 is the model of the paper; words outnumber the one
        response by hundreds, and a weight of 2 or 3 trades their likelihood for prediction, where words say much of the
        response; where they say little it predicts worse.
    granularity : {"term", "token"}
        Whether the occurrences of a term in a document share one variational distribution.
    max_iter, tol : int, float
        EM stops after so many iterations, or when the corpus ELBO has changed by less than this fraction twice in a row,
        the second time no more than the first, and its changes have come down: one since the third iteration was as large
        as this, or the last is at most a tenth of the largest. (They begin small, while the topics are nearly equal.)
    max_sweeps, sweep_tol : int, float
        The E-step leaves a document after so many sweeps, or when its ELBO changes by less than this fraction.
    dispersion_floor : float
        Lower bound of the dispersion, as a fraction of the variance of the response, 1e-12 to 1.
    terms : iterable of str, optional
        Names of the columns of a matrix, or the terms of a bag to count, with no further filter.
    text, words, counts : str, optional
        Fields of a bag's records, as in :func:`dslda.ingest`.
    categorical : sequence of str
        Of a bag: which of the response and the covariates hold names.
    partition_tokens : int, optional
        Tokens of a partition of a bag, about.
    progress : FitProgress, optional
        Hears of every iteration; by default a bar on a terminal, a line below the cell in a notebook, and log lines
        (``dslda.engine``) elsewhere.
    hold_out : float, optional
        Share of the documents, above 0 and at most 0.5, to keep from training: drawn at random from all, or from those that
        `documents` chooses, and the same whatever the seed. They are checked as all others are, the model is judged by
        them at the end (``model.training.held_out``), and at least 100 of them give prediction intervals. Without it the
        model is judged by the documents that `documents` leaves out.
    checkpoint : str or path, optional
        Directory, local or any fsspec URL, for all that going on after an iteration takes. It is replaced as a whole:
        whenever the process is killed, one complete checkpoint is there. It is written once more when the fit ends, also
        by an error, and stays there.
    checkpoint_every : int, optional
        Iterations between two checkpoints. By default as many as keep them below 5% of the time. No bit of the result
        depends on it.
    resume : bool, default False
        Go on from the checkpoint, with the same bits as a fit that was never interrupted; where there is none yet, begin.
        The documents, settings and versions must be those of the checkpoint, but for `max_iter`, which may be raised:
        a fit that stopped at its cap goes on. One that has ended gives its model again, for one iteration's work.
    overwrite : bool, default False
        Begin anew although there is a checkpoint, and replace it.
    earlier : Model, optional
        With `resume`, the model that an earlier run of this fit has ended with
        (:func:`~dslda.training.checkpoint.model_of_fit` loads it). If it is complete, converged or at `max_iter`, it is
        returned as it is, without any work. A model of another fit is ignored.
    **text_settings
        For a bag: `min_df`, `max_df`, `max_features`, `stop_words`, `token_pattern`, `ngrams`, `lowercase` as
        in :class:`~dslda.corpus.text.TextSettings`.

    Returns
    -------
    Model
        After Ctrl-C, that of the last complete iteration, with ``training.interrupted`` set.

    Raises
    ------
    InputError
        A setting is out of its domain, a family of your own does not give what it must, or the response is not there, not
        finite, has fewer than two distinct values, or a standard deviation beyond 1e-100 to 1e100. Raised before any long
        work. Or all documents with a response are without a word of the vocabulary. Or the checkpoint to be resumed is of
        another fit; the message says in what they differ. Or the corpus is in the memory of this process, and the workers
        of `client` are not.
    OutputExistsError
        There is a checkpoint, and neither `resume` nor `overwrite` is set; or something that is no checkpoint.
    FormatError
        The corpus, or the checkpoint to be resumed, is damaged.
    OutputError
        Another fit is writing the checkpoint now; the message names its process.
    TypeError
        A keyword is none of these; the message has the right name of those of the paper and the command line.
    EngineError
        An iteration could not be completed on the cluster. A note names the checkpoint, if there is one.

    Warns
    -----
    ConvergenceWarning
        EM reached `max_iter`, or more than 1% of the documents reached `max_sweeps`.
    DataWarning
        There are more topics than documents with a response, documents lack a covariate, classes are rare or look
        like measurements, counts scatter far more than their family has it, or covariates cannot be told apart.

    Examples
    --------
    >>> model = train("reviews.corpus", response="rating", n_topics=10)  # doctest: +SKIP
    """
    check_client(client)
    chosen_family(family)  # refuses an unknown one at once
    spec = FitSpec(
        n_topics=n_topics,
        family=family if isinstance(family, str) else family.name,
        doc_topic_prior=doc_topic_prior,
        topic_prior=topic_prior,
        topic_estimation=topic_estimation,
        response_weight=response_weight,
        granularity=granularity,
        max_iter=max_iter,
        tol=tol,
        max_sweeps=max_sweeps,
        sweep_tol=sweep_tol,
        dispersion_floor=dispersion_floor,
        ridge=ridge,
        seed=seed,
    )
    check_keywords(train, text_settings, known=TEXT_SETTINGS, other_names=OTHER_NAMES)
    if hold_out is not None:
        check_share(hold_out)
    options = CheckpointOptions.of(checkpoint, every=checkpoint_every, resume=resume, overwrite=overwrite)
    columns = {"covariates": covariates, "weight": weight, "exposure": exposure}
    columns |= {"trials": trials, "event": event, "class_weight": class_weight}
    reading: dict[str, Any] = {
        "text": text,
        "words": words,
        "counts": counts,
        "categorical": categorical or None,
    }
    reading |= {"partition_tokens": partition_tokens, **text_settings}
    if isinstance(data, (str, os.PathLike)):
        data = open_corpus(data)
    training = next((train_on for is_kind, train_on in KINDS if is_kind(data)), _refuse)
    with alone(options) as held:
        return training(
            _Request(
                data=data,
                response=response,
                documents=documents,
                columns=columns,
                terms=terms,
                reading={name: value for name, value in reading.items() if value is not None},
                client=client,
                fit=FitRequest(
                    family=family,
                    spec=spec,
                    hold_out=hold_out,
                    progress=progress,
                    checkpoint=held,
                    earlier=earlier,
                ),
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """The keywords of :func:`train` that depend on the form of the documents, and those of the fit.

    Attributes
    ----------
    columns : dict
        Arguments of :func:`~dslda.training.training_set.named_roles`.
    reading : dict
        Keywords that say how records are read and counted, those that are given.
    """

    data: Any
    response: Any
    documents: ArrayLike | None
    columns: dict[str, Any]
    terms: Any
    reading: dict[str, Any]
    client: Client | ClientLater | None
    fit: FitRequest

    @property
    def works_here(self) -> bool:
        """The work is done in this process, or by workers that are started from it."""
        return self.client is None or (isinstance(self.client, ClientLater) and self.client.here)

    def check_nothing_is_read(self) -> None:
        """Refuse keywords about reading records, where there are none to be read.

        Raises
        ------
        InputError
        """
        if self.reading:
            raise InputError(
                "must be left out: only the documents of a bag are counted here",
                parameter=tuple(self.reading),
            )


def _train_on_collection(request: _Request) -> Model:
    roles = named_roles(**request.columns)
    reading, partition_tokens = dict(request.reading), request.reading.get("partition_tokens")
    reading.pop("partition_tokens", None)
    records = bag_reading(request.data, request.response, roles, terms=request.terms, **reading)
    if request.works_here:
        kernel_of(chosen_family(request.fit.family) or Categorical())
    with cluster(request.client) as client:
        training_set = training_set_of_bag(
            request.data,
            records,
            client,
            roles,
            documents=request.documents,
            partition_tokens=partition_tokens,
        )
        return fitted_model(training_set, roles, request.fit, nullcontext(client))


def _train_on_corpus(request: _Request) -> Model:
    corpus, client = request.data, request.client
    request.check_nothing_is_read()
    if request.terms is not None:
        raise InputError("must be left out: a corpus has its vocabulary", parameter="terms")
    roles = named_roles(**request.columns)
    training_set = training_set_of_corpus(corpus, request.response, request.documents, roles)
    check_reach([corpus.path], client)
    in_memory, n_partitions = is_in_memory(corpus.path), training_set.source.n_partitions
    if in_memory and client is None and n_partitions > 1:
        logger.info(
            "the corpus is in the memory of this process, which workers do not share: training here, on one core; ingest it "
            "with out= to have all"
        )
    here = client is None and (in_memory or n_partitions == 1)
    context: AbstractContextManager[Client | None] = nullcontext(None) if here else cluster(client)
    return fitted_model(training_set, roles, request.fit, context, prepare=request.works_here)


def _train_on_matrix(request: _Request) -> Model:
    request.check_nothing_is_read()
    if request.client is not None:
        raise InputError(
            "must be left out: a matrix is fitted in this process",
            parameter="client",
            remedy="ingest it for a cluster",
        )
    roles, arrays = roles_of_arrays(**request.columns)
    family = chosen_family(request.fit.family)
    training_set = training_set_of_matrix(
        request.data,
        request.response,
        request.terms,
        request.documents,
        arrays,
        roles,
        classes=family is None or family.has_classes,
    )
    return fitted_model(training_set, roles, request.fit, nullcontext(None), prepare=True)


def _refuse(request: _Request) -> Model:
    fields = "{words=}, {counts=}" if {"words", "counts"} & set(request.reading) else "{text=}"
    raise InputError(
        "must be a corpus, the path of one, a dask bag or DataFrame, or a matrix of counts, got "
        f"{type(request.data).__name__}",
        parameter="data",
        remedy=f"make a corpus of records and DataFrames in memory by dslda.ingest, and name their fields with {fields} and "
        "{response=}",
    )


def _is_matrix(data: Any) -> bool:
    return getattr(data, "ndim", None) == 2 and not is_table(data)


KINDS: tuple[tuple[Callable[[Any], bool], Callable[[_Request], Model]], ...] = (
    (is_dask_collection, _train_on_collection),
    (lambda data: isinstance(data, Corpus), _train_on_corpus),
    (_is_matrix, _train_on_matrix),
)
"""Forms of documents, each with its way to train on them."""
