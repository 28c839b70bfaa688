"""A fitted supervised topic model: read its topics and coefficients, predict, save and load."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.cluster.stage_progress import stage_progress
from dslda.coefficients import (
    Coefficient,
    CovariateCoefficient,
    Topic,
    WordsBeyond,
    class_coefficients,
    class_topics,
    coefficient_covariance,
    covariate_coefficients,
    topic_coefficients,
    topics_with_words,
    words_beyond,
)
from dslda.corpus.block import document_mask
from dslda.corpus.own_analyzer import AnalyzerFunction, analyzer_name, check_as_stored
from dslda.corpus.store import Corpus
from dslda.evaluation.metrics import predictive_r2, root_mean_squared_error
from dslda.evaluation.word_rankings import WordRanking
from dslda.exceptions import DataWarning, InputError, warn
from dslda.ingestion.counting import identifier_value
from dslda.inputs.in_memory import computed, is_dask_collection
from dslda.model_tables import class_table, coefficient_table, pyldavis_arguments, topic_table
from dslda.persistence.model_record import ModelRecord
from dslda.persistence.model_store import model_checksum, read_model, write_model
from dslda.prediction.predict import (
    WITHOUT_PREDICTION,
    Predictions,
    at_level,
    check_is_a_sum,
    contributions,
    predict_block,
    predict_nothing,
    training_proportions,
)
from dslda.prediction.record_counting import CountedBlock, PredictOptions, counted_documents, no_documents
from dslda.prediction.responses import (
    observed_and_predicted,
    observed_responses,
    responses_as_numbers,
    responses_of_corpus,
    responses_of_records,
    share_right,
)
from dslda.topic_labels import with_label
from dslda.wording import check_keywords, number_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from dslda.families.base import Family
    from dslda.report.model_plots import ModelPlots

__all__ = ["Coefficient", "CovariateCoefficient", "Model", "Topic", "check_analyzer", "load_model"]


class Model:
    """A fitted supervised topic model; made by :func:`dslda.train` and :func:`dslda.load_model`.

    Parameters
    ----------
    record : ModelRecord
        Content of the model.

    Attributes
    ----------
    n_topics, n_terms : int
    response : str or None
        Name of the response.
    response_summary : ResponseSummary
        Of the responses trained on.
    spec : FitSpec
        Settings of the fit.
    vocabulary : Vocabulary or None
    text_settings : TextSettings or None
    training : TrainingSummary
        Documents, tokens and iterations, and convergence of EM and of the documents.
    trace : dict of str to ndarray of float64, shape (n_iterations,)
        Measurements of each EM iteration; the last value of "elbo", the objective, is that of this model.
    topic_word : ndarray of float64, shape (K, V)
        Topics; each row sums to 1. The paper's beta; with `topic_estimation` "variational" its posterior mean.
    doc_topic_prior : ndarray of float64, shape (K,)
        The paper's alpha.
    family : Family
        Distribution of the response.
    classes : tuple of str or None
        Names of the classes of the response, or of its levels from the lowest to the highest, where it has any.
    thresholds : dict of str to float, or None
        For levels: the cutpoint between each two neighbours, by their names, ``"low|medium"``. A document whose linear
        predictor is omega lies above the cutpoint c with log odds omega - c, before what conditional training may correct
        (docs/model.md). None for other responses.
    dispersion : float or None
        First parameter of the family (the paper's delta): for a Gaussian the variance of the response around its
        expectation, in the squared units of the response; see docs/families.md. For a quasi-Poisson response, its Pearson
        dispersion. None for a family without one.
    pearson_dispersion : float or None
        For counts, and successes of several trials: weighted sum of (y - mu)^2 / Var(y | mu) over the training documents,
        divided by the sum of weights minus the number of coefficients. About 1 where responses scatter as the family
        predicts; it errs on the low side, since the means mu have seen the responses. None for other families, where there
        are no more documents than coefficients, and for models saved by a release that did not keep it.
    dispersion_at_floor : bool
        The dispersion was kept from falling below its floor, so that standard errors follow the floor and not the data.
    topic_prevalence : ndarray of float64, shape (K,), or None
        Share of the training tokens in each topic; None for models saved by a release that did not keep it.
    quality : TopicQuality or None
        Coherence (`npmi`) and exclusivity of each topic, and the share of their most probable words that are distinct
        (docs/model.md). None for models saved by a release that did not measure them, and where the documents could not be
        read once more after the fit.
    stability : TopicStability or None
        For a fit of several starts: how much of each topic the other starts find too, by its words and by its shares in
        documents (docs/model.md). None for one start or one topic, for models saved by a release that did not measure it,
        and where the documents could not be read once more after the fit.
    """

    def __init__(self, record: ModelRecord) -> None:
        self.record = record
        self.n_topics = record.parameters.n_topics
        self.n_terms = record.parameters.n_terms
        self.response = record.response
        self.response_summary = record.response_summary
        self.spec = record.spec
        self.vocabulary = record.vocabulary
        self.text_settings = record.text_settings
        self.training = record.training
        self.doc_topic_prior = record.parameters.alpha
        self.topic_prevalence = record.prevalence
        self.quality = record.quality
        self.stability = record.stability

    @cached_property
    def scoring_record(self) -> ModelRecord:
        """The record to score documents with; topics that are distributions are exp(E[log beta]), as in the E-step."""
        from dslda.variational.topics import in_e_step

        parameters = in_e_step(self.record.parameters)
        if parameters is self.record.parameters:
            return self.record
        others = tuple(replace(s, parameters=in_e_step(s.parameters)) for s in self.record.other_starts)
        return replace(self.record, parameters=parameters, other_starts=others)

    @cached_property
    def classes(self) -> tuple[str, ...] | None:
        return self.record.class_names

    @property
    def thresholds(self) -> dict[str, float] | None:
        if not self.family.has_levels:
            return None
        cutpoints = self.family.cutpoints(self.record.parameters.delta).tolist()
        names = [f"{low}|{high}" for low, high in pairwise(self.classes or ())]
        return dict(zip(names, cutpoints, strict=True))

    @property
    def trace(self) -> dict[str, NDArray[np.float64]]:
        return dict(self.record.trace)

    @property
    def topic_word(self) -> NDArray[np.float64]:
        return self.record.parameters.topics.T

    @property
    def family(self) -> Family:
        return self.record.family

    @property
    def dispersion(self) -> float | None:
        delta = self.record.parameters.delta
        if self.family.is_quasi:
            return self.pearson_dispersion
        if not len(delta) or self.family.delta_transform == "identity":
            return None  # cutpoints are not a dispersion
        if self.family.n_searched == 0 and not self.family.has_dispersion_floor:
            return None  # a constant
        return float(delta[0]) * (self.record.scaling.scale**2 if self.family.has_dispersion_floor else 1.0)

    @property
    def pearson_dispersion(self) -> float | None:
        if self.record.pearson is None:
            return None
        chi_square, freedom = self.record.pearson.tolist()
        return chi_square / freedom if freedom > 0.0 else None

    @property
    def dispersion_at_floor(self) -> bool:
        return (
            self.family.has_dispersion_floor and self.record.parameters.delta[0] <= self.spec.dispersion_floor
        )

    @property
    def labels(self) -> dict[int, str]:
        """Labels of topics by their numbers, for those that have one."""
        return {topic: label for topic, label in enumerate(self.record.labels) if label is not None}

    def label(self, topic: int, label: str | None) -> None:
        """Give a topic a name, which tables and messages then show beside its number.

        The name is kept in this object, and :meth:`save` writes it. It changes no prediction, and columns such as
        ``topic_3`` keep their names. Another start or number of topics makes other topics, so a new model has no labels.

        Parameters
        ----------
        topic : int
            0 to K - 1.
        label : str or None
            One line of up to 80 characters. Two topics may have the same. None takes the name away.

        Raises
        ------
        InputError
            There is no such topic, or the label is blank, too long, or has control characters.

        Examples
        --------
        >>> model.label(3, "it does not fit")  # doctest: +SKIP
        >>> model.labels  # doctest: +SKIP
        {3: 'it does not fit'}
        """
        self.record = replace(self.record, labels=with_label(self.record.labels, self.n_topics, topic, label))

    @property
    def checksum(self) -> str:
        """What tells this model from others: the checksum of its manifest, but for the labels of topics."""
        return model_checksum(self.record)

    def coefficients(self) -> tuple[Coefficient, ...]:
        """Coefficients of the K topics in the units of the response, from low to high."""
        return topic_coefficients(self.record)

    def class_coefficients(self) -> NDArray[np.float64]:
        """Coefficients of every topic for every class, on the scale of log-odds; they sum to 0 over the classes.

        Returns
        -------
        ndarray of float64, shape (K, C)

        Raises
        ------
        InputError
            The response has one coefficient a topic: see :meth:`coefficients`.
        """
        return class_coefficients(self.record)

    def class_topics(self, top: int | None = 3) -> dict[str, tuple[Coefficient, ...]]:
        """Topics that raise each class most: those with the largest coefficients above 0.

        Parameters
        ----------
        top : int or None, default 3
            Most topics of a class; a class that no topic raises has none. None lists all topics, also those that lower the
            class.

        Returns
        -------
        dict of str to tuple of Coefficient
            In the order of :attr:`classes`; coefficients as in :meth:`class_coefficients`, from high to low.

        Raises
        ------
        InputError
            The response has one coefficient a topic, or `top` is below 1.
        """
        return class_topics(self.record, top)

    def covariate_coefficients(self) -> tuple[CovariateCoefficient, ...]:
        """Coefficients of the covariates, per unit of each covariate, in their order."""
        return covariate_coefficients(self.record)

    def coefficient_covariance(self) -> NDArray[np.float64]:
        """Covariance of the coefficients of topics, then of covariates, in the order of their numbers.

        Of a fit with a bootstrap it is that over its replicates. Else it takes the topics as known: the square roots of the
        diagonal are the conditional errors of :meth:`coefficients` and :meth:`covariate_coefficients`, with the same caveats.
        The coefficients of two topics are correlated, so the standard error of their difference needs the covariance.

        Returns
        -------
        ndarray of float64, shape (K + P, K + P), or (C, K + P, K + P) for a response of classes
            In the units of the coefficients. P counts each level of a categorical covariate but the first. NaN where the
            model has neither.

        Examples
        --------
        The standard error of the difference between topics 3 and 5, and for a response of classes between their log odds
        of the class ``model.classes[c]``:

        >>> covariance = model.coefficient_covariance()  # doctest: +SKIP
        >>> (covariance[3, 3] + covariance[5, 5] - 2 * covariance[3, 5]) ** 0.5  # doctest: +SKIP
        >>> (covariance[c, 3, 3] + covariance[c, 5, 5] - 2 * covariance[c, 3, 5]) ** 0.5  # doctest: +SKIP
        """
        return coefficient_covariance(self.record)

    def topics(self, top: int = 10, words: WordRanking = "probability") -> tuple[Topic, ...]:
        """Topics with their words, ordered by coefficient from low to high.

        Parameters
        ----------
        top : int, default 10
            Words of each topic, at least 1.
        words : {"probability", "frex", "lift"}, default "probability"
            Order of the words: by their probability in the topic, which common words lead; by FREX, the harmonic mean of the
            ranks of frequency and exclusivity, for words that are typical of the topic; or by lift, the probability as a
            multiple of that in the corpus, for rare words that hardly any other topic has.
            :func:`~dslda.evaluation.word_rankings.word_scorer` has the formulas and sources.

        Returns
        -------
        tuple of Topic, length K

        Raises
        ------
        InputError
            `top` is below 1, there is no such order, or a model of an early release has no prevalences, which lift needs.
        """
        return topics_with_words(self.record, top, words)

    @property
    def plot(self) -> ModelPlots:
        """Figures of this model: the functions of :mod:`dslda.plot` as methods, with the same parameters but `model`.

        Examples
        --------
        >>> fig, (left, right) = plt.subplots(1, 2)  # doctest: +SKIP
        >>> model.plot.topics(narrow=True, ax=left)  # doctest: +SKIP
        >>> model.plot.words(3, ax=right)  # doctest: +SKIP
        """
        from dslda.report.model_plots import ModelPlots

        return ModelPlots(self)

    def topic_table(self, top: int = 10, words: WordRanking = "probability") -> pd.DataFrame:
        """The topics of :meth:`topics` as a data frame, as ``dslda topics`` prints them.

        Parameters
        ----------
        top, words
            See :meth:`topics`.

        Returns
        -------
        pandas.DataFrame
            One row a topic, from the lowest coefficient to the highest: the columns `topic`, `label` (where a topic has one),
            `class` or `level` (for responses that have any: see :class:`Coefficient`), then the numbers of :class:`Topic` by
            their names, `stability` only of several starts, and `words` in one cell, with commas between them.
        """
        return topic_table(self.record, top, words)

    def class_table(self, top: int = 10, words: WordRanking = "probability") -> pd.DataFrame:
        """The coefficient of every topic for every class of the response.

        Parameters
        ----------
        top, words
            See :meth:`topics`.

        Returns
        -------
        pandas.DataFrame
            One row for each class and topic, in the order of :attr:`classes`, and from the topic that raises a class most to
            the one that lowers it most: `class`, `topic`, `label` (where a topic has one), `coefficient`, `low` and `high`
            (of a bootstrap), `conditional_error`, `stability` (of several starts) and `words`.

        Raises
        ------
        InputError
            The response has one coefficient a topic; and the errors of :meth:`topics`.
        """
        return class_table(self.record, top, words)

    def coefficient_table(self) -> pd.DataFrame:
        """All coefficients, those of topics and those of covariates.

        Returns
        -------
        pandas.DataFrame
            One row a coefficient, first of topics, then of covariates: `topic` (missing in rows of covariates) with its
            `label`, `covariate` with its `level` and the level that it stands `against`, `class`, `coefficient`, `low` and
            `high` (of a bootstrap), and `conditional_error`. Columns of names in which no row has one are left out. For a
            response of classes there is a row for each class and topic, or covariate, whose coefficients sum to 0 over the
            classes; see :meth:`coefficients`, :meth:`class_coefficients` and :meth:`covariate_coefficients` for the units.
        """
        return coefficient_table(self.record)

    def to_pyldavis(self) -> dict[str, Any]:
        """The arguments of ``pyLDAvis.prepare``, with which its topics have the numbers that they have here.

        pyLDAvis draws topics as circles, larger the more frequent they are and closer the more they share words. Of documents
        it uses nothing but how many of their words each topic has, all added up, and of the frequencies of terms nothing: it
        works them out from the topics. The model knows the former, :attr:`topic_prevalence`. So no corpus is read, and all
        documents trained on count as one, however many they are. Words beyond the topics (:meth:`words_beyond`) have no
        place in the picture.

        Returns
        -------
        dict of str to object
            `topic_term_dists`, ndarray of float64, shape (K, V): :attr:`topic_word`; `doc_topic_dists`, ndarray of float64,
            shape (1, K): :attr:`topic_prevalence`; `doc_lengths`, ndarray of int64, shape (1,): the training tokens; `vocab`,
            list of str, length V; `term_frequency`, ndarray of float64, shape (V,): what the model expects; and
            `sort_topics` False with `start_index` 0, without which pyLDAvis gives other numbers.

        Raises
        ------
        InputError
            The model, saved by an early release, does not know how frequent its topics are.

        Examples
        --------
        >>> import pyLDAvis  # doctest: +SKIP
        >>> pyLDAvis.save_html(pyLDAvis.prepare(**model.to_pyldavis()), "topics.html")  # doctest: +SKIP
        """
        return pyldavis_arguments(self.record)

    def words_beyond(self, top: int = 10) -> tuple[WordsBeyond, ...]:
        """What single words add to the topics: their share of what is explained, and the `top` strongest words.

        Returns
        -------
        tuple of WordsBeyond
            One, or one for each class. Empty for a model of topics alone: of the joint model, of `remainder=False`, and where
            words add nothing.

        Raises
        ------
        InputError
            `top` is no whole number of at least 1.
        """
        return words_beyond(self.record, top)

    def representative_documents(
        self,
        corpus: Corpus,
        topic: int | None = None,
        n: int = 3,
        *,
        documents: ArrayLike | None = None,
        realign: bool = False,
    ) -> pd.DataFrame:
        """The documents that each topic describes best.

        Documents are ordered by the lower end of Wilson's 95% interval of the topic's share in their known words, as if
        these were draws, so that three words do not win. Of documents with the same words the first counts; those with less
        than 5% of the topic do not. The corpus is read one partition at a time. Of a large one, 20,000 documents are
        compared, fewer for very many topics: a sample that is the same each time.

        Parameters
        ----------
        corpus : Corpus
        topic : int, optional
            0 to K - 1; all topics by default.
        n : int, default 3
            Documents of each topic.
        documents, realign
            As in :meth:`predict`.

        Returns
        -------
        pandas.DataFrame
            A row for each topic and document, the best first: `topic`, `id`, `row` (position in the corpus), `share` of the
            topic in the document's known words, `known_tokens`, `observed` and `predicted` response (missing without one),
            and `words`, those that carry the topic in the document.

        Raises
        ------
        InputError
            `topic` or `n` is out of range; and the errors of :meth:`predict`.
        """
        from dslda.report.representative_documents import representatives_table

        return representatives_table(
            self.scoring_record, corpus, topic=topic, n=n, documents=documents, realign=realign
        )

    def report(
        self,
        out: str | os.PathLike[str],
        corpus: Corpus | str | os.PathLike[str] | None = None,
        *,
        texts: Any = None,
        text: str | None = None,
        id: str | None = None,
        format: str = "auto",
        encoding: str | None = None,
        separator: str | None = None,
        escape: str | None = None,
        na_values: str | Sequence[str] | None = None,
        excerpts: bool = True,
        realign: bool = False,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> str:
        """Write one HTML page about the model: how well it predicts, its topics with documents, and how far to trust them.

        The page needs neither a network nor JavaScript. docs/report.md describes it.

        Parameters
        ----------
        out : str or path
            The page, such as ``report.html``, or any fsspec URL. It appears when it is complete.
        corpus : Corpus or path, optional
            Documents, usually those trained on. Without it the page has no documents and no observed responses.
        texts : path, glob or URL, or several; DataFrame, or list of mappings; optional
            The texts of the documents, of which the page quotes a few; a corpus holds counts alone. They are read once.
        text, id : str, optional
            Fields of the text and of the identifier; by default those of the documents trained on. Documents of a
            corpus without identifiers are counted in the order of the texts.
        format, encoding, separator, escape, na_values : str, optional
            How files of texts are read, as in :func:`dslda.ingest`.
        excerpts : bool, default True
            False shows neither texts nor words of single documents, for data that may not leave.
        realign : bool, default False
            As in :meth:`predict`.
        overwrite : bool, default False
            Replace a page at `out`, never anything else.
        storage_options : mapping, optional
            For the fsspec file system of `out`, and of `corpus` if it is a path.

        Returns
        -------
        str
            The absolute path or URL of the page.

        Raises
        ------
        InputError
            matplotlib is not installed, `texts` cannot be read, or `corpus` lacks a covariate of the model.
        VocabularyMismatchError
            The corpus is counted over another vocabulary, and `realign` is False.
        OutputExistsError
            Something is at `out` already.
        """
        from dslda.report.page import write_report

        return write_report(
            self,
            out,
            corpus,
            texts=texts,
            text=text,
            id=id,
            format=format,
            encoding=encoding,
            separator=separator,
            escape=escape,
            na_values=na_values,
            excerpts=excerpts,
            realign=realign,
            overwrite=overwrite,
            storage_options=storage_options,
        )

    @overload
    def predict(
        self, data: Any, *, interval: None = None, **options: Unpack[PredictOptions]
    ) -> NDArray[Any]: ...

    @overload
    def predict(
        self, data: Any, *, interval: float, **options: Unpack[PredictOptions]
    ) -> tuple[NDArray[Any], NDArray[np.float64]]: ...

    def predict(
        self,
        data: Any,
        *,
        interval: float | None = None,
        text: str | None = None,
        words: str | None = None,
        counts: str | None = None,
        terms: Iterable[str] | None = None,
        realign: bool = False,
        covariates: Mapping[str, ArrayLike] | None = None,
        documents: ArrayLike | None = None,
    ) -> NDArray[Any] | tuple[NDArray[Any], NDArray[np.float64]]:
        """Expected responses of documents, in the units of the response.

        Parameters
        ----------
        data : iterable of str, of (words, counts) or of mappings; DataFrame; Corpus; sparse matrix or array
            The documents. Texts are tokenised as in training. A DataFrame (pandas, polars) or pyarrow table is read as
            mappings, a corpus partition by partition. A matrix holds counts, documents by terms.
        interval : float, optional
            Share of the responses that intervals around the predictions hold, such as 0.9: return these too.
        text, words, counts : str, optional
            Fields of the mappings that hold the text, or the words and their counts. By default those of the training
            documents, else "text", "words" and "counts".
        terms : iterable of str, or mapping of str to int, optional
            Terms of the columns of a matrix, or their positions, to match by name; those of a DataFrame are its columns. By
            default the columns must be the model's.
        realign : bool, default False
            Match the terms of a corpus by name where its vocabulary is not the model's.
        covariates : mapping of str to array-like, optional
            Covariates of the model by name, and its exposure or trials (1 if left out); NaN or None where missing. A corpus,
            and documents that are mappings, hold their own.
        documents : array-like, optional
            Documents of a corpus to predict: a boolean mask of all of them, or their row numbers, as in :func:`dslda.train`.
            Results come in the order of the corpus, whatever the order of the row numbers. Partitions without any of these
            documents are not read.

        Returns
        -------
        ndarray of float64, or of str for classes and levels with names, shape (n_documents,)
            The expected response of each document, or its most probable class or level. For a binomial response it is the
            probability of the second class, or the expected successes where there are trials. A document without a known word
            gets the base rate, the mean response of training adjusted for covariates and exposure (for classes and levels,
            their shares); :meth:`score_table` flags it. The
            value is NaN or None where a covariate is missing, or has a level that training did not see.
        ndarray of float64, shape (n_documents, 2)
            With `interval` only, beside the first: lower and upper ends of the intervals (docs/scoring.md), NaN where the
            prediction rests on no word.

        Warns
        -----
        DataWarning
            Documents have no prediction.

        Raises
        ------
        InputError
            An item is not a document; the message names it. Or the model has no intervals, or none of this level.
        VocabularyMismatchError
            The corpus or matrix has other terms than the model.
        """
        model = self._at_level(interval)
        parts = model._reported(
            data,
            text=text,
            words=words,
            counts=counts,
            terms=terms,
            realign=realign,
            covariates=covariates,
            documents=documents,
        )
        parts = [predict_nothing(model.scoring_record), *parts]
        predicted = np.concatenate([part.prediction for part in parts])
        if interval is None:
            return predicted
        ends = [(part.low, part.high) for part in parts if part.low is not None and part.high is not None]
        return predicted, np.concatenate([np.column_stack(each) for each in ends])

    def predict_proba(self, data: Any, **options: Unpack[PredictOptions]) -> NDArray[np.float64]:
        """Probabilities of the classes or levels; data and options as in :meth:`predict`.

        Returns
        -------
        ndarray of float64, shape (n_documents, n_classes)
            In the order of :attr:`classes`: levels from the lowest to the highest.

        Raises
        ------
        InputError
            The response has no classes.
        """
        parts = [predict_nothing(self.scoring_record), *self._reported(data, **options)]
        probabilities = [part.probabilities for part in parts if part.probabilities is not None]
        if not probabilities:
            raise InputError(
                f"this response of family {self.spec.family} has no classes or levels",
                remedy="use {predict()}",
            )
        return np.concatenate(probabilities)

    def transform(self, data: Any, **options: Unpack[PredictOptions]) -> NDArray[np.float64]:
        """Topic proportions of documents without their response; data and options as in :meth:`predict`.

        Returns
        -------
        ndarray of float64, shape (n_documents, n_topics)
            Posterior means of theta; rows sum to 1. Predictions rest on the shares of the known words by topic, which
            :meth:`contributions` multiplies with the coefficients. With N known words and `doc_topic_prior` alpha these
            shares are ``(proportions * (N + alpha.sum()) - alpha) / N``.
        """
        parts = self._predictions(data, **options)
        return np.concatenate([np.zeros((0, self.n_topics)), *(p.topic_proportions for p in parts)])

    def score_table(
        self,
        data: Any,
        *,
        ids: Iterable[object] | None = None,
        interval: float | None = None,
        **options: Unpack[PredictOptions],
    ) -> pa.Table:
        """Predictions of documents with flags and topic proportions; data and options as in :meth:`predict`.

        Parameters
        ----------
        data
        interval : float, optional
            Share of the responses between `prediction_low` and `prediction_high`; 0.9 by default, where the model has any.
        ids : iterable of str, optional
            Identifiers of all documents of `data`, even if `documents` chooses some. By default those of the corpus, or
            those in the field that held them in training; else positions.

        Returns
        -------
        pyarrow.Table
            One row a document: `id`, `prediction`, `prediction_low` and `prediction_high` (where the model has intervals),
            `known_tokens`, `oov_share` (share of tokens that the model does not know;
            :class:`~dslda.prediction.predict.Predictions` defines a token), `flag` ("empty", "no_known_word", "not_converged"
            or ""), `probability_<class>` for each class or level of the response, and `topic_0`, `topic_1`, ... as in
            :meth:`transform` (docs/scoring.md computes predictions from them).
        """
        import pyarrow as pa

        model = self._at_level(interval)
        tables = list(model.score_tables(data, **options))
        table = pa.concat_tables(tables) if tables else predict_nothing(model.scoring_record).table()
        if ids is None:
            return table
        if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
            raise InputError(f"must be a list of identifiers, got {ids!r:.60}", parameter="ids")
        names = np.array([identifier_value(i, "ids") for i in ids], dtype=object)
        chosen = _chosen(data, options, table.num_rows)
        if len(names) != len(chosen):
            reason = f"must name each of the {len(chosen)} documents, got {len(names)}"
            raise InputError(reason, parameter="ids")
        return table.set_column(0, "id", pa.array(names[chosen], pa.string()))

    def score_tables(
        self, data: Any, *, interval: float | None = None, **options: Unpack[PredictOptions]
    ) -> Iterator[pa.Table]:
        """The table of :meth:`score_table` in batches or partitions, for more documents than memory holds."""
        model = self._at_level(interval)
        return (part.table() for part in model._predictions(data, **options))

    def contributions(
        self, data: Any, *, relative: bool = True, **options: Unpack[PredictOptions]
    ) -> pa.Table:
        """Contributions of topics and covariates to the linear predictor; data and options as in :meth:`predict`.

        Parameters
        ----------
        data
        relative : bool, default True
            Compare topics with the average document: a positive contribution raises the prediction above it. With False,
            the contributions of topics are absolute and include that average.

        Returns
        -------
        pyarrow.Table
            One row a document: `id`, `linear_predictor` in the units of the coefficients, and its summands:
            `average`, the linear predictor of a document that has the topics in the shares of all training documents
            (:attr:`topic_prevalence`) and average covariates, left out if not `relative`;
            `topic_0`, `topic_1`, ..., the coefficient of a topic, less the average if `relative`, times its share in the
            document's known words;
            `covariate_<name>`, the coefficient of a covariate times its distance from the average, summed over all levels of
            a categorical one; `log_exposure`; and `words_beyond_topics`, what single words add that the document's topics do
            not lead one to expect. With the identity link the sum is the prediction, that of the start
            shown where there are several; with other links the prediction also averages over the uncertainty of the words'
            topics (docs/families.md). A document without a known
            word has null topics and the `linear_predictor` of the base rate; one without a prediction has only topics.

        Raises
        ------
        InputError
            The response has a linear predictor for each class; and the errors of :meth:`predict`.
        """
        import pyarrow as pa

        check_is_a_sum(self.record)
        parts = self._counted(data, **options)
        return pa.concat_tables(
            contributions(self.scoring_record, counted, doc_id, relative=relative)
            for counted, doc_id in ((no_documents(), ()), *parts)
        )

    def score(self, data: Any, y: ArrayLike | None = None, **options: Unpack[PredictOptions]) -> float:
        """Quality of the predictions of documents with known responses; data and options as in :meth:`predict`.

        Parameters
        ----------
        data
        y : array-like of float, str or bool, shape (n_documents,), optional
            Responses of all documents of `data`, even if `documents` chooses some; NaN or None where missing. Classes go by
            their names, whatever the type: 5, 5.0 and "5" are one class. Only where no name is a number do numbers 0, 1, ...
            stand for the classes in their order. By default those of the model's response in the corpus, or in the fields
            of documents that are mappings.

        Returns
        -------
        float
            Over documents with a response and a prediction: predictive R2, 1 - sum (y - prediction)^2 / sum (y - mean y)^2,
            or the accuracy where :meth:`predict` gives names. NaN, with a warning that has the root mean squared error, where
            all have the same response. Durations that were cut off count as complete: leave them
            out, as NaN in `y`.

        Raises
        ------
        InputError
            A response is no number or class of the model; or `y` is left out and the documents have none.
        """
        if y is None:
            if isinstance(data, Corpus) and self.response is not None:
                y = responses_of_corpus(data, self.response, options.get("documents"))
            else:
                # read once for the responses and the predictions
                data = list(data) if isinstance(data, Iterator) else computed(data)
                y = responses_of_records(data, self.response, names=self.record.classes is not None)
        predicted = self.predict(data, **options)
        chosen = _chosen(data, options, len(predicted))
        observed = observed_responses(y, self.record, len(chosen))[chosen]
        mask = observed_and_predicted(observed, predicted)
        if not mask.any():
            raise InputError("must be known for some document, it is missing in all", parameter="y")
        if self.record.predicts_names:
            return share_right(self.record, observed[mask], predicted[mask])
        observed, predicted = responses_as_numbers(self.record, observed)[mask], predicted[mask]
        if (observed == observed[0]).all():
            error = root_mean_squared_error(observed, predicted)
            warn(
                DataWarning(
                    f"predictive R2 is not defined, since the response of {number_of(len(observed), 'document')} is "
                    f"{observed[0]:g} in all; the root mean squared error of the predictions is {error:.4g}",
                    remedy="score more documents together",
                )
            )
            return math.nan
        return predictive_r2(observed, predicted)

    def training_topic_proportions(
        self, data: Any, y: ArrayLike, **options: Unpack[PredictOptions]
    ) -> NDArray[np.float64]:
        """Topic proportions given words AND response, as in the E-step of training.

        These have seen the response, so they cannot judge predictions; those of :meth:`transform` have not.

        Parameters
        ----------
        data
            Documents as in :meth:`predict`, with its options. The event of a duration is among the covariates, 1 by default.
        y : array-like of float or str, shape (n_documents,)
            Responses as in :meth:`score`.

        Returns
        -------
        ndarray of float64, shape (n_documents, n_topics)
        """
        counted = [block for block, _ in self._counted(data, **options)]
        chosen = _chosen(data, options, sum(documents.block.n_documents for documents in counted))
        observed = observed_responses(y, self.record, len(chosen))[chosen]
        return training_proportions(self.scoring_record, counted, observed)

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> str:
        """Write the model directory; a failure leaves nothing behind.

        Parameters
        ----------
        path : str or path
            Local directory, usually ``name.model``, or any fsspec URL.
        overwrite : bool, default False
            Replace a model at `path`, never anything else.
        storage_options : mapping, optional
            For the fsspec file system.

        Returns
        -------
        str
            The absolute path or URL.

        Raises
        ------
        OutputExistsError
            Something is at `path` already.
        """
        return write_model(self.record, path, overwrite=overwrite, storage_options=storage_options)

    def __repr__(self) -> str:
        response = "" if self.response is None else f" of {self.response!r}"
        return (
            f"Model({self.spec.family}{response}: {number_of(self.n_topics, 'topic')}, "
            f"{number_of(self.n_terms, 'term')}, trained on {number_of(self.training.n_documents, 'document')} in "
            f"{number_of(self.training.n_iterations, 'iteration')})"
        )

    def _repr_html_(self) -> str:
        from dslda.report.model_card import model_card

        return model_card(self)

    def _at_level(self, interval: float | None) -> Model:
        """The model with intervals of another level."""
        return self if interval is None else Model(at_level(self.record, interval))

    def _reported(self, data: Any, **options: Unpack[PredictOptions]) -> list[Predictions]:
        """Predictions, with a warning about documents that have none."""
        parts: list[Predictions] = []
        n_done, n_documents = 0, _number_of_documents(data)
        with stage_progress() as progress:
            for part in self._predictions(data, **options):
                parts.append(part)
                n_done += len(part.doc_id)
                progress("predict", n_done, max(n_documents, n_done))
        flags = [pair for part in parts for pair in zip(part.doc_id, part.flag, strict=True)]
        without = [i for i, flag in flags if flag in WITHOUT_PREDICTION]
        if without:
            warn(
                DataWarning(
                    f"{len(without):,} of {number_of(len(flags), 'document')} have no prediction (the first: "
                    f"{', '.join(map(repr, without[:3]))}): a covariate is missing, or has a level that training did not see",
                    remedy="look at the flags of {score_table()}",
                )
            )
        return parts

    def _counted(
        self, data: Any, **options: Unpack[PredictOptions]
    ) -> Iterator[tuple[CountedBlock, tuple[str, ...]]]:
        check_keywords(Model.predict, options, known=PredictOptions.__annotations__, other_names={})
        return counted_documents(data, self.record, **options)

    def _predictions(self, data: Any, **options: Unpack[PredictOptions]) -> Iterator[Predictions]:
        for counted, doc_id in self._counted(data, **options):
            yield predict_block(self.scoring_record, counted, doc_id)


def _number_of_documents(data: Any) -> int:
    """Number of documents to predict, of which a choice may take fewer; 0 if they have to be read to be known."""
    if isinstance(data, Corpus):
        return data.n_documents
    if is_dask_collection(data):
        return 0  # its length may take as long as its documents
    shape = getattr(data, "shape", None)
    if shape is not None:
        return int(shape[0]) if shape else 0  # an array without an axis is refused where documents are read
    return len(data) if isinstance(data, Sized) else 0


def _chosen(data: Any, options: PredictOptions, n_predicted: int) -> NDArray[np.bool_]:
    """Mask of the predicted documents, over all documents of `data`."""
    documents = options.get("documents")
    if documents is None:
        return np.ones(n_predicted, dtype=np.bool_)
    return document_mask(documents, data.n_documents)


def load_model(
    path: str | os.PathLike[str],
    *,
    analyzer: str | AnalyzerFunction | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Model:
    """Load a model directory and check it against its checksums.

    Parameters
    ----------
    path : str or path
        Local directory or fsspec URL.
    analyzer : str or callable, optional
        Function that cuts the texts of the model into words, or its name, "module:function", if it is your own. The model
        holds the name only, and nothing is imported that you do not name, so that a model someone sends you runs no code.
        Without it the model has its topics and predicts counts, but no texts.
    storage_options : mapping, optional
        For the fsspec file system.

    Returns
    -------
    Model

    Raises
    ------
    InputError
        There is nothing at `path`; or `analyzer` cannot be used, or is not that of the model.
    FormatError
        It is no model, or is damaged or of a version that this release cannot read.
    """
    record = read_model(path, storage_options=storage_options)
    check_analyzer(analyzer, record)
    return Model(record)


def check_analyzer(analyzer: str | AnalyzerFunction | None, record: ModelRecord) -> None:
    """Make the analyzer that the user names known to this process; it must be that of the model."""
    if analyzer is not None:
        settings = record.text_settings
        stored = None if settings is None else settings.analyzer
        check_as_stored(analyzer_name(analyzer), stored, "the model")
