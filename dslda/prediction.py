"""From documents in any form to predictions: the steps behind :class:`dslda.model.Model`.

Every document is inferred by itself, so that what is predicted for it does not depend on what it comes
together with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.arrays import matrix_block, vocabulary_of
from dslda.corpus.block import DocumentBlock
from dslda.corpus.text import Analyzer, Document, TextSettings, count_documents
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import InputError, VocabularyMismatchError
from dslda.persistence.record import ModelRecord
from dslda.prediction_columns import columns_of_arrays, columns_of_records, extras_of, undetermined
from dslda.variational.design import AUX, FIRST_COVARIATE, OFFSET
from dslda.wording import number_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from dslda.corpus.store import Corpus
    from dslda.variational.estep import DocumentPosterior

__all__ = [
    "FLAG_MEANING",
    "WITHOUT_PREDICTION",
    "CountedBlock",
    "Predictions",
    "aligned_block",
    "blocks_of_documents",
    "blocks_of_matrix",
    "corpus_alignment",
    "count_batch",
    "fields_of_documents",
    "observed_and_predicted",
    "predict_block",
    "predict_nothing",
    "settings_of_texts",
    "share_right",
    "topic_proportions",
]

BATCH_DOCUMENTS = 1024

WITHOUT_PREDICTION = ("no_covariate", "unknown_level")
"""Flags of documents that have no prediction."""


FLAG_MEANING = {
    "no_covariate": "lack a covariate of the model: they have no prediction",
    "unknown_level": "have a level of a covariate that training did not see: they have no prediction",
    "empty": "are empty: their prediction is the base rate",
    "no_known_word": "have no word that the model knows: their prediction is the base rate",
    "not_converged": "stopped at the sweep cap of the model: their prediction is not final",
}
"""What there is to say of documents with each flag."""


@dataclass(frozen=True, slots=True, eq=False)
class CountedBlock:
    """Documents over the model's vocabulary, and what of them is not in it.

    Attributes
    ----------
    block : DocumentBlock
    n_unknown : ndarray of int64, shape (D,)
        Tokens of each document that are not in the vocabulary.
    columns : mapping of str to ndarray of float64, shape (D,)
        Covariates of the documents, in the codes of the model.
    """

    block: DocumentBlock
    n_unknown: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """What a model says of documents, in their order.

    Attributes
    ----------
    doc_id : tuple of str, length D
    prediction : ndarray of float64 or str, shape (D,)
        Expected response, in the user's units; of classes, the name of the most probable. NaN or None where there is
        none, as are `probabilities`.
    tokens, known_tokens : ndarray of int64, shape (D,)
        Tokens of each document, and those of terms that the model knows: what the prediction rests on.
    oov_share : ndarray of float64, shape (D,)
        Share of a document's tokens that the model does not know; NaN where there are none. What counts as a
        token depends on where documents come from. Of a text: all that the tokeniser finds, n-grams included,
        stop words not; so words that `min_df`, `max_df` and `max_features` kept out of the vocabulary are
        unknown, common ones too. Of pairs (words, counts): all words given, stop words not. Of a corpus or
        matrix: only what is counted in it; words that the filters of its own ingestion dropped are gone, so
        the share is 0 for the corpus trained on.
    flag : tuple of str, length D
        "empty" (no token, in the same sense) or "no_known_word": the prediction is the base rate, which is the mean
        response of training but for covariates and exposure, and the topics are those of the prior;
        "not_converged": inference stopped at its sweep cap; "" otherwise. Before all these come "no_covariate" (a
        covariate of the model is missing, or an exposure or trials that others have) and "unknown_level" (training did
        not see this level of a covariate): there is no prediction.
    topic_proportions : ndarray of float64, shape (D, K)
    probabilities : ndarray of float64, shape (D, C), or None
        Of the classes or levels, where the response has any.
    classes : tuple of str
        Their names.
    """

    doc_id: tuple[str, ...]
    prediction: NDArray[Any]
    tokens: NDArray[np.int64]
    known_tokens: NDArray[np.int64]
    oov_share: NDArray[np.float64]
    flag: tuple[str, ...]
    topic_proportions: NDArray[np.float64]
    probabilities: NDArray[np.float64] | None = None
    classes: tuple[str, ...] = ()

    def table(self) -> pa.Table:
        """One row a document, with a column ``probability_<class>`` for each class, and ``topic_0``, ``topic_1``, ..."""
        import pyarrow as pa

        columns: dict[str, Any] = {
            "id": pa.array(self.doc_id, pa.string()),
            "prediction": pa.array(
                self.prediction, pa.string() if self.prediction.dtype == object else None, from_pandas=True
            ),
            "known_tokens": self.known_tokens,
            "oov_share": pa.array(self.oov_share, from_pandas=True),
            "flag": pa.array(self.flag, pa.string()),
        }
        if self.probabilities is not None:
            columns |= {
                f"probability_{name}": pa.array(np.ascontiguousarray(column), from_pandas=True)
                for name, column in zip(self.classes, self.probabilities.T, strict=True)
            }
        columns |= {
            f"topic_{k}": np.ascontiguousarray(column) for k, column in enumerate(self.topic_proportions.T)
        }
        return pa.table(columns)


def predict_block(record: ModelRecord, counted: CountedBlock, doc_id: Sequence[str]) -> Predictions:
    """Predictions for a block of documents, their responses left out."""
    # here, so that reading a model does not wait for compiled code
    from dslda.families.answers import checked_mean, checked_probabilities
    from dslda.families.registry import get_family
    from dslda.variational.estep import infer

    block, parameters = counted.block, record.parameters
    family = get_family(record.spec.family, record.spec.family_options)
    extras = extras_of(record, counted.columns, block.n_documents)
    posterior = infer(
        block.indptr, block.terms, block.counts, parameters, spec=record.spec, family=family, extras=extras
    )
    omega, variance = _predictor(record, posterior, extras)
    mean = checked_mean(family, omega, variance, parameters.delta)
    probabilities = checked_probabilities(family, omega, variance, parameters.delta)
    classes = record.classes
    if parameters.n_classes is not None and classes is not None:
        # the first of equals, as numpy has it
        prediction: NDArray[Any] = np.array(classes, dtype=object)[mean.argmax(axis=1)]
    else:
        prediction = record.scaling.to_user(mean)
        if record.design.trials and extras is not None:
            prediction = prediction * extras[:, AUX]
            probabilities = None
    if probabilities is not None and classes is None:
        levels = record.scaling.to_user(np.arange(probabilities.shape[1]))
        classes = tuple(map(number_name, levels.tolist()))
    running = np.concatenate([[0], np.cumsum(block.counts, dtype=np.int64)])
    tokens = running[block.indptr[1:]] - running[block.indptr[:-1]] + counted.n_unknown
    known = posterior.n_known_tokens
    share = np.full(len(tokens), np.nan)
    np.divide(tokens - known, tokens, out=share, where=tokens > 0)
    flag = np.where(
        tokens == 0,
        "empty",
        np.where(known == 0, "no_known_word", np.where(posterior.converged, "", "not_converged")),
    )
    reasons = undetermined(record, counted.columns, block.n_documents)
    without = reasons != ""
    if without.any():
        flag = np.where(without, reasons, flag)
        prediction[without] = None if prediction.dtype == object else np.nan
        if probabilities is not None:
            probabilities = probabilities.copy()
            probabilities[without] = np.nan
    return Predictions(
        doc_id=tuple(doc_id),
        prediction=prediction,
        tokens=tokens,
        known_tokens=known,
        oov_share=share,
        flag=tuple(flag.tolist()),
        topic_proportions=topic_proportions(posterior),
        probabilities=probabilities,
        classes=classes or (),
    )


def predict_nothing(record: ModelRecord) -> Predictions:
    """The predictions of no document: its columns are those of any."""
    nothing = DocumentBlock(np.zeros(1, dtype=np.int64), *(np.zeros(0, dtype=np.int32) for _ in range(2)))
    return predict_block(record, CountedBlock(nothing, np.zeros(0, dtype=np.int64)), ())


def _predictor(
    record: ModelRecord, posterior: DocumentPosterior, extras: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and variance of the linear predictor; the base rate's where no word is known."""
    unknown = posterior.n_known_tokens == 0
    if record.base is None or not unknown.any():
        return posterior.mean, posterior.variance
    omega, variance = posterior.mean.copy(), posterior.variance.copy()
    base = record.base if record.parameters.n_classes is not None else record.base[0]
    omega[unknown], variance[unknown] = base, 0.0
    if extras is not None:
        # summed document by document, so that what comes together has no effect on the bits
        zeta = record.parameters.zeta
        for column, coefficient in zip(extras[unknown, FIRST_COVARIATE:].T, zeta, strict=True):
            omega[unknown] += np.multiply.outer(column, coefficient)
        if omega.ndim == 1:
            omega[unknown] += extras[unknown, OFFSET]
    return omega, variance


def topic_proportions(posterior: DocumentPosterior) -> NDArray[np.float64]:
    """Posterior mean of theta, shape (D, K)."""
    proportions: NDArray[np.float64] = posterior.gamma / posterior.gamma.sum(axis=1, keepdims=True)
    return proportions


def blocks_of_documents(
    documents: Iterable[Any],
    record: ModelRecord,
    *,
    text: str | None = None,
    words: str | None = None,
    counts: str | None = None,
    covariates: Mapping[str, ArrayLike] | None = None,
    place: Callable[[int], str] = "document {}".format,
) -> Iterator[CountedBlock]:
    """Count texts, (words, counts) pairs or mappings that hold them, a batch at a time; `place` names one.

    Covariates of the model are looked for in the mappings, unless they are given as arrays.
    """
    settings = settings_of_texts(record)
    for use, given in (("text", text), ("words", words), ("counts", counts)):
        if given is not None and not isinstance(given, str):
            raise InputError(f"{use} must be the name of a field, got {given!r:.60}")
    if not isinstance(documents, Iterable) or getattr(documents, "ndim", 1) == 0:
        raise InputError(
            "documents must be a list of texts or of (words, counts), a corpus or a count matrix, got "
            f"{type(documents).__name__}"
        )
    fields = fields_of_documents(record, text=text, words=words, counts=counts)
    # one analyzer for all batches: its regular expression is compiled once
    analyze = Analyzer(settings)
    arrays = None
    if covariates is not None:
        documents = list(documents)
        arrays = columns_of_arrays(covariates, record, len(documents))
    numbered = enumerate(documents)
    while batch := list(islice(numbered, BATCH_DOCUMENTS)):
        counted = count_batch(batch, record, analyze, fields, place)
        if arrays is None:
            columns = columns_of_records(batch, record, place)
        else:
            first = batch[0][0]
            columns = {name: values[first : first + len(batch)] for name, values in arrays.items()}
        yield replace(counted, columns=columns)


def settings_of_texts(record: ModelRecord) -> TextSettings:
    """How a model counts texts.

    Raises
    ------
    InputError
        It cannot: it was trained on a matrix without terms.
    """
    if record.vocabulary is None or record.text_settings is None:
        raise InputError(
            "this model was trained on a matrix without terms, it cannot count texts or words; give a count "
            f"matrix with {record.parameters.n_terms} columns, or train with terms="
        )
    return record.text_settings


def fields_of_documents(
    record: ModelRecord, *, text: str | None, words: str | None, counts: str | None
) -> dict[str, str]:
    """Names of the fields "text", "words" and "counts": those given, else those of the training records."""
    return {
        use: given or record.fields.get(use, use)
        for use, given in (("text", text), ("words", words), ("counts", counts))
    }


def count_batch(
    batch: Sequence[tuple[int, Any]],
    record: ModelRecord,
    analyze: Analyzer,
    fields: Mapping[str, str],
    place: Callable[[int], str],
    *,
    new_words: Callable[[str, int], None] | None = None,
) -> CountedBlock:
    """Count documents over the vocabulary of a model, without their columns.

    Parameters
    ----------
    batch : sequence of (int, document)
        Numbered documents.
    record : ModelRecord
        Of a model with a vocabulary.
    analyze : Analyzer
        Of its text settings.
    fields : mapping
        Names of the fields "text", "words" and "counts" of documents that are mappings.
    place : callable
        Names a document by its number.
    new_words : callable, optional
        As in :func:`~dslda.corpus.text.count_documents`.

    Raises
    ------
    InputError
        One is no document, naming its place.
    """
    assert record.vocabulary is not None
    try:
        counted = count_documents(
            (_document(d, **fields) for _, d in batch), record.vocabulary, analyze, new_words=new_words
        )
    except InputError:
        _refuse(batch, record.vocabulary, analyze, fields, place)
        raise
    return CountedBlock(DocumentBlock(counted.indptr, counted.terms, counted.counts), counted.n_unknown)


def _refuse(
    batch: Sequence[tuple[int, Any]],
    vocabulary: Vocabulary,
    analyze: Analyzer,
    fields: Mapping[str, str],
    place: Callable[[int], str],
) -> None:
    """Find the document of a batch that cannot be counted, and say where it is."""
    for position, document in batch:
        try:
            taken = _document(document, **fields)
            if isinstance(taken, str) and analyze.settings.kind == "counts":
                raise InputError(
                    "the model was trained on words with counts and does not know how a text is cut into words, "
                    "got a text; count the words and give (words, counts), such as (['small', 'dress'], [2, 1]), "
                    "or train on a corpus that was ingested from texts"
                )
            count_documents([taken], vocabulary, analyze)
        except InputError as error:
            raise InputError(f"{place(position)}: {str(error).removeprefix('document 0: ')}") from None


def blocks_of_matrix(
    matrix: Any,
    record: ModelRecord,
    *,
    terms: Iterable[str] | None,
    covariates: Mapping[str, ArrayLike] | None = None,
) -> Iterator[CountedBlock]:
    """Rows of a count matrix, its columns in the model's order or named by `terms`."""
    shape = np.shape(matrix)
    alignment = None
    if terms is None:
        if len(shape) == 2 and shape[1] != record.parameters.n_terms:
            raise VocabularyMismatchError(
                f"the matrix has {shape[1]} columns, the model has {record.parameters.n_terms} terms; "
                "name its columns with terms=, then they are matched"
            )
    else:
        theirs = vocabulary_of(terms)
        if record.vocabulary is None:
            raise InputError("this model was trained on a matrix without terms, so terms cannot be matched")
        if len(shape) == 2 and shape[1] != len(theirs):
            raise InputError(f"terms must name the {shape[1]} columns of the matrix, got {len(theirs)} terms")
        alignment = record.vocabulary.alignment(theirs)
    # whole, not in slices: it is in memory anyway, and slicing would convert it again and again
    block = matrix_block(matrix)
    columns = columns_of_arrays(covariates, record, block.n_documents)
    yield replace(aligned_block(block, alignment), columns=columns)


def corpus_alignment(corpus: Corpus, record: ModelRecord, *, realign: bool) -> NDArray[np.int32] | None:
    """The model's ids of a corpus's terms, None where they are the same.

    Raises
    ------
    VocabularyMismatchError
        The vocabularies differ and `realign` is False, or the model has none.
    """
    ours = record.vocabulary
    if ours is None:
        raise VocabularyMismatchError(
            "this model was trained on a matrix without terms, so it cannot be matched with a corpus; train "
            "with terms="
        )
    if ours.sha256 == corpus.vocabulary_sha256:
        return None
    if not realign:
        raise VocabularyMismatchError(
            f"{corpus.path} is counted over another vocabulary than the model's ({corpus.n_terms} terms, "
            f"hash {corpus.vocabulary_sha256[:12]}; the model has {len(ours)}, hash {ours.sha256[:12]}); "
            "ingest it with the model's vocabulary, or match the terms by name with realign=True"
        )
    return ours.alignment(corpus.vocabulary)


def aligned_block(block: DocumentBlock, alignment: NDArray[np.int32] | None) -> CountedBlock:
    """Rename the terms of a block; what has no new name is counted as unknown."""
    if alignment is None:
        return CountedBlock(block, np.zeros(block.n_documents, dtype=np.int64))
    rows = np.repeat(np.arange(block.n_documents), np.diff(block.indptr))
    terms = alignment[block.terms]
    known = terms >= 0
    unknown = np.bincount(rows[~known], weights=block.counts[~known], minlength=block.n_documents)
    rows, terms, counts = rows[known], terms[known], block.counts[known]
    order = np.lexsort((terms, rows))
    indptr = np.zeros(block.n_documents + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=block.n_documents), out=indptr[1:])
    return CountedBlock(
        DocumentBlock(indptr, terms[order], counts[order], responses=block.responses, doc_id=block.doc_id),
        unknown.astype(np.int64),
    )


def _document(document: Any, *, text: str, words: str, counts: str) -> Document:
    """A text or a (words, counts) pair, taken out of a mapping where it is one; a missing one is empty."""
    if not isinstance(document, Mapping):
        return document
    if text in document:
        found = document[text]
        return "" if _is_missing(found) else found
    if words in document and counts in document:
        listed, numbers = document[words], document[counts]
        return ((), ()) if _is_missing(listed) and _is_missing(numbers) else (listed, numbers)
    raise InputError(
        f"must have the field {text!r}, or {words!r} and {counts!r}, got "
        f"{', '.join(map(repr, document)) or 'none'}; name its fields with text=, or words= and counts="
    )


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and value != value)


def observed_and_predicted(observed: NDArray[np.float64], predicted: NDArray[Any]) -> NDArray[np.bool_]:
    """Which documents have a response and a prediction: no NaN, and no None among classes."""
    there = [value is not None and value == value for value in predicted]
    return ~np.isnan(observed) & np.array(there, dtype=np.bool_)


def share_right(record: ModelRecord, observed: NDArray[np.float64], predicted: NDArray[Any]) -> float:
    """Share of the predicted classes, by their names, that are those observed, by the numbers trained on."""
    codes = record.design.to_model(observed).astype(np.int64)
    return float(np.mean(np.array(record.classes, dtype=object)[codes] == predicted))
