"""Entry to training: keywords, and the forms of documents."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from numpy.typing import ArrayLike

from dslda import settings
from dslda.cluster.client import ClientLater, check_client, check_reach
from dslda.cluster.opening import active_workers, cluster, default_workers, worker_per_core
from dslda.corpus.levels import has_number_categories
from dslda.corpus.store import Corpus, open_corpus
from dslda.corpus.vocabulary import Vocabulary
from dslda.evaluation.metrics import check_share
from dslda.exceptions import InputError
from dslda.ingestion.document_sources import check_is_of_records
from dslda.inputs.in_memory import is_dask_collection, is_table
from dslda.model import Model
from dslda.settings import (
    DocTopicPrior,
    Emphasis,
    Granularity,
    Objective,
    SeedWords,
    TermWeights,
    TopicEstimation,
)
from dslda.storage.location import is_in_memory
from dslda.training.checkpoint import FitCheckpoint
from dslda.training.fitting import fitted_model
from dslda.training.response import chosen_family
from dslda.training.starts import is_small
from dslda.training.training_set import (
    TEXT_SETTINGS,
    ClassWeight,
    named_roles,
    roles_of_arrays,
    training_set_of_bag,
    training_set_of_corpus,
    training_set_of_matrix,
)
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
"""Keywords by their names in the paper, the command line and scikit-learn."""


def train(
    data: Any,
    *,
    response: str | ArrayLike | None = None,
    family: str | Family = DEFAULTS.family,
    n_topics: int = DEFAULTS.n_topics,
    seed_words: SeedWords = DEFAULTS.seed_words,
    n_starts: int = DEFAULTS.n_starts,
    bootstrap: int = DEFAULTS.bootstrap,
    seed: int = DEFAULTS.seed,
    client: Client | ClientLater | None = None,
    documents: ArrayLike | None = None,
    covariates: str | Sequence[str] | Mapping[str, ArrayLike] = (),
    weight: str | ArrayLike | None = None,
    exposure: str | ArrayLike | None = None,
    trials: str | ArrayLike | None = None,
    event: str | ArrayLike | None = None,
    class_weight: ClassWeight | None = None,
    levels: Iterable[str | float] | None = None,
    objective: Objective = DEFAULTS.objective,
    emphasis: Emphasis = DEFAULTS.emphasis,
    term_weights: TermWeights = DEFAULTS.term_weights,
    remainder: bool = DEFAULTS.remainder,
    ridge: float | None = DEFAULTS.ridge,
    doc_topic_prior: DocTopicPrior = DEFAULTS.doc_topic_prior,
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

    The result is a pure function of the documents, the settings and the versions of the libraries. It has the same bits
    whatever the number of workers and threads, and whether the documents come from a store or a bag.

    Parameters
    ----------
    data : Corpus, path of a corpus, dask Bag or DataFrame, sparse matrix or array
        The documents. Those of a bag are counted first and kept on the workers; nothing is written. A matrix holds counts,
        documents by terms, and is fitted in this process.
    response : str, or array-like of float or str of shape (n_documents,)
        Name of the response, by default the only one of the corpus; for a matrix the responses themselves. NaN where
        missing: such documents still help to learn the topics.
    family : str or Family, default "gaussian"
        Distribution of the response: one of those in docs/families.md, or your own.
    n_topics : int, default 20
    seed_words : mapping of str to iterable of str, optional
        Names of topics, with words that each of them is to hold: ``{"fit": ["small", "tight"]}``. The first topics have them,
        in this order, and the names as labels; the others find themselves as ever. A Dirichlet prior with as many
        pseudo-counts of these words as the documents have holds them there, at the start and throughout (docs/model.md).
        A word may be in several topics. Words that the vocabulary lacks are left out, with a warning.
    n_starts : int, default 1
        Starts of the fit, from `seed` and the numbers after it. Predictions are the mean over all starts; topics,
        coefficients and contributions are those of the best one: that which predicts the inner part best, or has the
        highest ELBO in the joint model. Starts of a small corpus run beside each other, one in each thread of the workers;
        those of a large one, and those with a `checkpoint`, one after another on all workers.
    bootstrap : int, default 0
        Fits to documents drawn again, at least 10, which give the coefficients intervals; 0 is for none, since they take many
        times as long as the fit. 100 is usual (docs/model.md#intervals-of-coefficients). The joint model then goes on to a
        tenth of `tol`, for at most three times `max_iter`, until its coefficients have settled.
    seed : int, default 0
        Seed of the random perturbation that the topics start from.
    client : distributed.Client, optional
        Where to work. By default the active Dask client of this process, if its workers can open the corpus; without one a
        local cluster is started, and closed at the end. A corpus of one partition, or in memory (``memory://``, as
        :func:`dslda.ingest` without `out` makes it), is fitted in this process, and so is any corpus inside a Dask task.
    documents : array-like, optional
        Documents to train on: a boolean mask over all of them, or row numbers. All by default.
    covariates : sequence of str, or mapping of str to array-like
        Covariates of the corpus that join the linear predictor; for a matrix, arrays of numbers or str by name. Numbers are
        standardised inside; the first name in order is the reference level. Where a covariate, exposure, trials or event is
        missing (NaN, None), the document's response is left out, with a warning, and its words still count; without a
        weight they do not count either.
    weight : str or array-like, optional
        Covariate, or array for a matrix, of document weights of at least 0: a document of weight 2 counts as two. They
        multiply the weights that the corpus was ingested with, which always count.
    exposure : str or array-like, optional
        Positive number to which an expected count is proportional (families poisson and negative_binomial).
    trials : str or array-like, optional
        Trials of a binomial response, which then counts successes; 1 by default.
    event : str or array-like, optional
        1 where a duration (family weibull) has ended, 0 where it was only observed so far.
    class_weight : "balanced" or mapping of class to weight, optional
        Factors on the frequencies of the classes; "balanced" makes all equally frequent. The logarithms of the weights shift
        the log-odds, and so probabilities and coefficients, but not the fit; a class of weight 0 is left out of the fit.
    levels : sequence of str or number, optional
        Levels of an ordinal response, from the lowest to the highest. By default those of an ordered pandas Categorical, also
        of a DataFrame or Parquet file that was ingested with one; or the whole numbers from the lowest response to the
        highest. Levels that no document trained on has are left out, with a warning.
    objective : {"auto", "conditional", "joint"}, default "auto"
        "conditional" maximises the likelihood of the responses given the words, so that topics predict as well as they can;
        "joint" is the paper's model, which explains words and responses together. "auto" is conditional where at least 250
        documents have a response (of weight above 0) and no setting of the joint model is given (`topic_prior`,
        `topic_estimation`, `response_weight`, `granularity`, `tol`, `sweep_tol`), unless the documents are so much alike, or
        share so few words, that none can judge what the others have learned. See docs/model.md.
    emphasis : {"themes", "balance", "prediction"}, default "themes"
        What topics of conditional training are for: themes with words of their own, prediction by the topics alone, or a
        balance of both. With words beyond the topics (`remainder`) all three predict nearly alike.
    term_weights : {"auto", "sqrt", "raw", "log", "binary"}, default "auto"
        Weight of a term that occurs c times in a document, in conditional training: the square root of c ("auto"), c,
        1 + log c, or 1.
    remainder : bool, default True
        In conditional training, let single words add to what topics predict: a ridge regression on TF-IDF, whose part that
        topics do not explain is shown as one line of its own. It is left out where an inner part of the documents does not
        gain by it. False for topics alone.
    ridge : float, optional
        Precision of a Gaussian prior on the coefficients: of topics around their mean, of covariates around 0. By default the
        family's: 0 where coefficients cannot run away, as those of separable classes do.
    doc_topic_prior : float, "auto", "asymmetric", "1/K" or None, default "auto"
        Dirichlet parameter of the topic proportions (the paper's alpha): a number from 1e-10 to 1e6, the paper's fixed
        1 / n_topics (also as None), or an estimate, one number for all topics ("auto") or one for each ("asymmetric"). Too
        small a number biases the coefficients and makes their standard errors too small: docs/model.md.
    topic_prior : float
        Pseudo-count of every term in every topic, at most 1e6; 0 is the paper's maximum likelihood. With `topic_estimation`
        "variational" it must be at least 0.005.
    topic_estimation : {"map", "variational"}
        Topics as points, the posterior mode under a Dirichlet(1 + topic_prior), or as distributions: full variational Bayes
        under a Dirichlet(topic_prior), which all but empties topics that the documents do not need. The topics of the model
        are then the means.
    response_weight : float, default 1
        Weight rho of the response in the E-step, 1e-6 to 1e6. 1 is the model of the paper. Words outnumber the one response
        by hundreds: a weight of 2 or 3 trades their likelihood for better predictions where words say much of the response,
        and predicts worse where they say little. With another weight than 1 the coefficients are solved once more after EM,
        for topics inferred from words alone, as in prediction (docs/model.md).
    granularity : {"term", "token"}
        Unit with its own variational distribution: all occurrences of a term in a document, or each token.
    max_iter, tol : int, float
        EM stops after this many iterations, or when the relative changes of the corpus ELBO have come down. The last two must
        be below `tol` and not grow; and one since the third iteration must be at least `tol`, or the last at most a tenth of
        the largest. (Changes begin small, while the topics are nearly equal.)
    max_sweeps, sweep_tol : int, float
        The E-step leaves a document after this many sweeps, or when its ELBO changes by less than this fraction.
    dispersion_floor : float
        Lower bound of the dispersion, as a fraction of the variance of the response, 1e-12 to 1.
    terms : iterable of str, or mapping of str to int, optional
        Names of the columns of a matrix (a mapping holds their positions), or the terms of a bag to count, with no
        further filter.
    text, words, counts : str, optional
        Fields of a bag's records, as in :func:`dslda.ingest`.
    categorical : sequence of str
        Fields of a bag, among the response and the covariates, that hold names.
    partition_tokens : int, optional
        Approximate number of tokens in a partition of a bag.
    progress : FitProgress, optional
        Receives every iteration; by default a bar on a terminal, a line below the cell in a notebook, and log lines
        (``dslda.engine``) elsewhere.
    hold_out : float, optional
        Share of the documents, above 0 and at most 0.5, to keep from training: drawn at random from all, or from those that
        `documents` chooses, and the same whatever the seed. They are checked like all others, they judge the model at the
        end (``model.training.held_out``), and 100 or more give prediction intervals. Without `hold_out`, the documents that
        `documents` leaves out judge the model.
    checkpoint : str or path, optional
        Directory, local or any fsspec URL, for the state of the fit after an iteration; further starts have one each beside
        it, whose names end in ``-start-2`` and so on. It is replaced as a whole: whenever
        the process is killed, one complete checkpoint is there. It is written once more when the fit ends, also by an
        error, and stays there.
    checkpoint_every : int, optional
        Iterations between two checkpoints. By default as many as keep them below 5% of the time. The result does not depend
        on it.
    resume : bool, default False
        Go on from the checkpoint, with the same bits as an uninterrupted fit; where there is none yet, begin. The documents,
        settings and versions must be those of the checkpoint, except `max_iter`, which may be raised: a fit that stopped at
        its cap goes on. A fit that has ended returns its model again, for one iteration's work.
    overwrite : bool, default False
        Begin anew although there is a checkpoint, and replace it.
    earlier : Model, optional
        With `resume`, the final model of an earlier run of this fit (:func:`~dslda.training.checkpoint.model_of_fit` loads
        it). If it is complete, converged or at `max_iter`, it is returned without any work. A model of another fit is
        ignored.
    **text_settings
        For a bag: `min_df`, `max_df`, `max_features`, `stop_words`, `token_pattern`, `ngrams`, `lowercase`, `analyzer` as in
        :func:`dslda.ingest`.

    Returns
    -------
    Model
        After Ctrl-C, that of the last complete iteration, with ``training.interrupted`` set.

    Raises
    ------
    InputError
        Before any long work: a setting is out of its domain; a family of your own lacks a part; the response is missing, not
        finite, has fewer than two distinct values, or a standard deviation outside 1e-100 to 1e100; the checkpoint to resume
        is of another fit (the message lists the differences); or the corpus is in the memory of this process, which the
        workers of `client` do not share. After it: no document with a response has a word of the vocabulary.
    OutputExistsError
        There is a checkpoint, and neither `resume` nor `overwrite` is set; or something that is no checkpoint.
    FormatError
        The corpus, or the checkpoint to resume, is damaged.
    OutputError
        Another fit is writing the checkpoint now; the message names its process.
    TypeError
        There is no such keyword; the message translates names of the paper and the command line.
    EngineError
        An iteration could not be completed on the cluster. A note names the checkpoint, if there is one.

    Warns
    -----
    ConvergenceWarning
        EM reached `max_iter`, or more than 1% of the documents reached `max_sweeps`.
    DataWarning
        There are more topics than documents with a response, documents lack a covariate, classes are rare or look like
        measurements, counts scatter far more than their family allows, or covariates cannot be told apart.

    Examples
    --------
    >>> model = train("reviews.corpus", response="rating", n_topics=10)  # doctest: +SKIP
    """
    check_client(client)
    chosen = chosen_family(family)
    spec = FitSpec(
        n_topics=n_topics,
        family=family if isinstance(family, str) else family.name,
        objective=objective,
        emphasis=emphasis,
        term_weights=term_weights,
        remainder=remainder,
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
        seed_words=seed_words,
        n_starts=n_starts,
        bootstrap=bootstrap,
        seed=seed,
    )
    check_keywords(train, text_settings, known=TEXT_SETTINGS, other_names=OTHER_NAMES)
    if hold_out is not None:
        check_share(hold_out)
    fit_checkpoint = FitCheckpoint.of(checkpoint, every=checkpoint_every, resume=resume, overwrite=overwrite)
    columns: dict[str, Any] = {"covariates": covariates, "weight": weight, "exposure": exposure}
    columns |= {"trials": trials, "event": event, "class_weight": class_weight, "levels": levels}
    reading: dict[str, Any] = {"text": text, "words": words, "counts": counts}
    reading |= {"categorical": categorical or None, "partition_tokens": partition_tokens, **text_settings}
    reading = {name: value for name, value in reading.items() if value is not None}
    if isinstance(data, (str, os.PathLike)):
        data = open_corpus(data)
    with nullcontext() if fit_checkpoint is None else fit_checkpoint.alone():
        fit = partial(
            fitted_model,
            family=family,
            spec=spec,
            hold_out=hold_out,
            progress=progress,
            checkpoint=fit_checkpoint,
            earlier=earlier,
        )
        if is_dask_collection(data):
            check_is_of_records(data)
            return _train_on_collection(fit, data, response, documents, columns, terms, reading, client)
        is_matrix = getattr(data, "ndim", None) == 2 and not is_table(data)
        if not (is_matrix or isinstance(data, Corpus)):
            fields = "{words=}, {counts=}" if {"words", "counts"} & set(reading) else "{text=}"
            raise InputError(
                "must be a corpus, the path of one, a dask bag or DataFrame, or a matrix of counts, got "
                f"{type(data).__name__}",
                parameter="data",
                remedy="make a corpus of records and DataFrames in memory by dslda.ingest, and name their fields with "
                f"{fields} and {{response=}}",
            )
        if reading:
            raise InputError(
                "must be left out: only the documents of a bag are counted here", parameter=tuple(reading)
            )
        if is_matrix:
            return _train_on_matrix(fit, chosen, data, response, documents, columns, terms, client)
        return _train_on_corpus(
            fit, data, response, documents, columns, terms, client, apart=n_starts > 1 or bootstrap > 0
        )


def _train_on_collection(
    fit: Callable[..., Model],
    data: Any,
    response: Any,
    documents: ArrayLike | None,
    columns: dict[str, Any],
    terms: Any,
    reading: dict[str, Any],
    client: Client | ClientLater | None,
) -> Model:
    roles = named_roles(**columns)
    count = training_set_of_bag(data, response, documents, roles, terms=terms, **reading)
    client = client or active_workers()
    with cluster(client) as opened:
        return fit(count(opened), roles, nullcontext(opened), prepare=_works_here(client))


def _train_on_corpus(
    fit: Callable[..., Model],
    corpus: Corpus,
    response: Any,
    documents: ArrayLike | None,
    columns: dict[str, Any],
    terms: Any,
    client: Client | ClientLater | None,
    *,
    apart: bool,
) -> Model:
    if terms is not None:
        raise InputError("must be left out: a corpus has its vocabulary", parameter="terms")
    roles = named_roles(**columns)
    training_set = training_set_of_corpus(corpus, response, documents, roles)
    check_reach([corpus.path], client)
    in_memory, n_partitions = is_in_memory(corpus.path), training_set.source.n_partitions
    if in_memory and client is None and n_partitions > 1:
        logger.info(
            "the corpus is in the memory of this process, which workers do not share: training here, on one core; ingest it "
            "with out= to use all"
        )
    if client is None and not in_memory and (n_partitions > 1 or apart):
        # fits that run beside each other would share one lock of Python in the threads of one process
        apart = apart and is_small(training_set.source)
        client = default_workers(worker_per_core if apart else cluster, [corpus.path])
    context: AbstractContextManager[Client | None] = nullcontext(None) if client is None else cluster(client)
    return fit(training_set, roles, context, prepare=_works_here(client))


def _train_on_matrix(
    fit: Callable[..., Model],
    family: Family | None,
    matrix: Any,
    response: Any,
    documents: ArrayLike | None,
    columns: dict[str, Any],
    terms: Any,
    client: Client | ClientLater | None,
) -> Model:
    if client is not None:
        raise InputError(
            "must be left out: a matrix is fitted in this process",
            parameter="client",
            remedy="ingest it for a cluster",
        )
    roles, arrays = roles_of_arrays(**columns)
    training_set = training_set_of_matrix(
        matrix,
        response,
        terms,
        documents,
        arrays,
        roles,
        classes=family is None
        or family.has_classes
        or (family.has_levels and not has_number_categories(response)),
    )
    return fit(training_set, roles, nullcontext(None), prepare=True)


def _works_here(client: Client | ClientLater | None) -> bool:
    """True if the work is done in this process, or by workers started from it."""
    return client is None or (isinstance(client, ClientLater) and client.here)
