"""Writing and reading a model directory: a zarr v3 group, without pickle (specified in docs/formats.md)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dslda.corpus.vocabulary import Vocabulary
from dslda.evaluation.intervals import FEWEST, Intervals
from dslda.evaluation.topic_quality import TopicQuality
from dslda.evaluation.topic_stability import TopicStability
from dslda.exceptions import FormatError, InputError
from dslda.persistence.model_manifest import (
    ENCODING_TYPE,
    LABELS,
    ModelManifest,
    identity,
    read_manifest,
    to_json,
)
from dslda.persistence.model_record import N_BINS, ModelRecord, OtherStart, Reference
from dslda.storage.location import Location
from dslda.storage.output import (
    check_output,
    check_writable,
    move_into_place,
    replace_attributes,
    report_leftovers,
    writing,
)
from dslda.storage.typed_json import with_checksum
from dslda.storage.zarr_arrays import damaged, entries, read_arrays, write_array
from dslda.topic_labels import with_label
from dslda.variational.parameters import Parameters
from dslda.variational.remainder import Remainder

__all__ = ["check_model_output", "label_stored_topic", "model_checksum", "read_model", "write_model"]

REMEDY = ("copy it again", "train again")

TINY = float(np.finfo(np.float64).tiny)


def check_model_output(
    path: str | os.PathLike[str], *, overwrite: bool, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Refuse an output that cannot be written, before the long work.

    Raises
    ------
    OutputExistsError
        A model is there and `overwrite` is False, or something else is there.
    InputError
        Nothing can be written there.
    """
    location = Location.of(path, storage_options)
    check_output(location, encoding_type=ENCODING_TYPE, overwrite=overwrite)
    check_writable(location)


def write_model(
    record: ModelRecord,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> str:
    """Write a model under a temporary name and move it into place; returns the absolute path or URL.

    Parameters are those of :meth:`dslda.model.Model.save`; a missing local parent directory is made.

    Raises
    ------
    OutputExistsError
        As :func:`check_model_output`.
    InputError
        A coefficient or a parameter of the family is not finite.
    OutputError
        It cannot be written; nothing is left there.
    """
    import zarr

    target = Location.of(path, storage_options)
    check_output(target, encoding_type=ENCODING_TYPE, overwrite=overwrite)
    for name in ("eta", "delta", "zeta"):  # those that a family can spoil
        if not np.isfinite(getattr(record.parameters, name)).all():
            raise InputError(
                f"the parameters of a model must be finite, got {name} that are not",
                remedy=("train again", "give another {family}"),
            )
    if target.local:
        report_leftovers(target.url)
    arrays = _arrays(record)
    temporary = target.sibling("partial")
    try:
        with writing(target.url):
            group = zarr.create_group(temporary.store(read_only=False), zarr_format=3)
            for name, array in arrays.items():
                write_array(group, name, array)
            group.attrs.put(to_json(record, entries(arrays)))
            move_into_place(temporary, target, encoding_type=ENCODING_TYPE, overwrite=overwrite)
    except BaseException:
        temporary.remove()
        raise
    return target.url


def model_checksum(record: ModelRecord) -> str:
    """:func:`~dslda.persistence.model_manifest.identity` of the manifest that the model was or would be stored with."""
    if record.checksum is not None:
        return record.checksum
    return identity(to_json(record, entries(_arrays(record))))


def label_stored_topic(
    path: str | os.PathLike[str],
    topic: int,
    label: str | None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> str | None:
    """Change the label of a topic in a stored model; returns it as stored.

    The manifest is replaced as a whole and all else stays as it is, also what other releases have written. Parameters and
    errors are those of :meth:`dslda.model.Model.label` and :func:`read_model`.

    Raises
    ------
    OutputError
        The manifest cannot be written; the model is as it was.
    """
    location = Location.of(path, storage_options)
    attributes = location.read_attributes()
    manifest = read_manifest(attributes, location.url)
    labels = with_label(manifest.labels, manifest.n_topics, topic, label)
    rest = {name: value for name, value in attributes.items() if name != LABELS}
    changed = with_checksum(rest | ({LABELS: list(labels)} if labels else {}))
    replace_attributes(location, changed, location.url)
    return labels[topic] if labels else None


def read_model(
    path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> ModelRecord:
    """Read a model and check every array against its checksum.

    Raises
    ------
    InputError
        There is nothing at `path`.
    FormatError
        It is no model, or is damaged, truncated, or of a version that this release cannot read.
    """
    location = Location.of(path, storage_options)
    attributes = location.read_attributes()
    manifest = read_manifest(attributes, location.url)
    arrays = read_arrays(location, manifest.arrays, remedy=REMEDY)
    stored = _ModelArrays(location.url, arrays)
    fields = manifest.record_fields(location.url)
    n_topics, classes = manifest.n_topics, manifest.classes
    n_covariates = len(fields["design"].covariates)
    n = n_topics + n_covariates
    n_delta = len(arrays["delta"]) if "delta" in arrays else 0
    per_class: tuple[int, ...] = ()
    if classes is not None:
        if "eta" in arrays and arrays["eta"].ndim == 2:
            per_class = (len(classes),)
        # between C levels there are C - 1 cutpoints, the first of them 0
        elif len(classes) not in (2, n_delta + 2):
            raise FormatError(
                f"field 'classes' must name the 2 classes, or {n_delta + 2} levels, got {len(classes)}",
                place=location.url,
                remedy="train again",
            )

    def corrections(start: _ModelArrays) -> NDArray[np.float64] | None:
        # numbers have no names: two of them, or as many levels as there are cutpoints and one more
        by_family = {"binomial": (1, 3), "ordinal": (n_delta + 1, 3)}.get(fields["spec"].family)
        named = by_family if classes is None else (len(classes) - 1, 3)
        # an own family may have either
        shapes = ((1, 3), (n_delta + 1, 3)) if named is None else (named,)
        return start.optional("level_corrections", *shapes, least=-np.inf)

    def parameters(start: _ModelArrays) -> Parameters:
        topics = np.ascontiguousarray(start.take("topics", (n_topics, manifest.n_terms), least=0.0).T)
        topics.setflags(write=False)
        return Parameters(
            topics=topics,
            alpha=start.take("alpha", (n_topics,), least=TINY),
            eta=start.take("eta", (n_topics, *per_class), least=-np.inf),
            delta=start.take("delta", (n_delta,), least=-np.inf) if n_delta else np.zeros(0),
            zeta=start.take("zeta", (n_covariates, *per_class), least=-np.inf)
            if n_covariates
            else np.zeros((0, *per_class)),
            concentration=start.take("concentration", (n_topics,), least=TINY)
            if fields["spec"].topic_estimation == "variational"
            else None,
            weighting=manifest.weighting,
            remainder=_remainder(start, (manifest.n_terms, *per_class), (n_topics, *per_class)),
            level_corrections=corrections(start),
        )

    def base(start: _ModelArrays) -> NDArray[np.float64] | None:
        return start.optional("base", per_class or (1,), (1 + n_delta,))

    others = [_ModelArrays(location.url, arrays, _start(i)) for i in range(manifest.n_other_starts)]
    return ModelRecord(
        parameters=parameters(stored),
        covariance=stored.optional("covariance", (*per_class, n, n)),
        vocabulary=_vocabulary(arrays, manifest, location.url),
        prevalence=stored.optional("prevalence", (n_topics,)),
        base=base(stored),
        other_starts=tuple(OtherStart(parameters(start), base(start)) for start in others),
        pearson=stored.optional("pearson", (2,)),
        quality=_quality(stored, n_topics),
        stability=_stability(stored, n_topics),
        replicates=_replicates(stored, (n, *per_class)),
        reference=_reference(stored, n_topics, classes),
        trace=_trace(stored, manifest.trace),
        checksum=identity(attributes),
        **fields,
    )


def _arrays(record: ModelRecord) -> dict[str, NDArray[Any]]:
    """Every array of the directory, by name."""
    reference, vocabulary, quality = record.reference, record.vocabulary, record.quality
    floats: dict[str, ArrayLike | None] = {
        **_start_arrays(record),
        "covariance": record.covariance,
        "prevalence": record.prevalence,
        "pearson": record.pearson,
        "replicates": record.replicates,
    }
    for i, start in enumerate(record.other_starts):
        floats |= {_start(i) + name: values for name, values in _start_arrays(start).items()}
    if quality is not None:
        floats |= {
            "quality_npmi": quality.npmi,
            "quality_exclusivity": quality.exclusivity,
            "quality_distinct_share": [quality.distinct_share],
        }
    if (stability := record.stability) is not None:
        floats |= {"stability_words": stability.words, "stability_shares": stability.shares}
    if reference is not None:
        floats |= {
            "reference_prediction_counts": reference.prediction_counts,
            "reference_topic_borders": reference.topic_borders,
            "reference_topic_counts": reference.topic_counts,
            "reference_topic_means": reference.topic_means,
            "reference_of_training": [reference.of_training],
            "reference_prediction_borders": reference.prediction_borders
            if reference.prediction_borders.size
            else None,
            "reference_residuals": None if reference.intervals is None else reference.intervals.bounds,
            "reference_residual_borders": None
            if reference.intervals is None or not reference.intervals.borders.size
            else reference.intervals.borders,
        }
        if reference.intervals is not None:
            floats |= {
                "reference_residual_values": reference.intervals.residuals,
                "reference_residual_predictions": reference.intervals.predictions,
            }
    arrays: dict[str, NDArray[Any]] = {
        name: np.ascontiguousarray(values, dtype=np.float64)
        for name, values in floats.items()
        if values is not None
    }
    if vocabulary is not None:
        arrays["vocabulary"], arrays["vocabulary_offsets"] = vocabulary.to_bytes()
        if vocabulary.document_frequency is not None:
            arrays["document_frequency"] = vocabulary.document_frequency
    if record.trace:
        arrays["trace"] = np.column_stack([np.asarray(v, dtype=np.float64) for v in record.trace.values()])
    return arrays


def _start(i: int) -> str:
    """Prefix of the arrays of another start; the one shown is the first, and has none."""
    return f"start_{i + 2}_"


def _start_arrays(start: ModelRecord | OtherStart) -> dict[str, ArrayLike | None]:
    """The arrays of one start, by name."""
    parameters = start.parameters
    floats: dict[str, ArrayLike | None] = {
        "topics": parameters.topics.T,
        "alpha": parameters.alpha,
        "eta": parameters.eta,
        # zarr has no chunks of length 0
        "delta": parameters.delta if parameters.delta.size else None,
        "zeta": parameters.zeta if parameters.zeta.size else None,
        "concentration": parameters.concentration,
        "level_corrections": parameters.level_corrections,
        "base": start.base,
    }
    if (remainder := parameters.remainder) is not None:
        floats |= {
            "remainder_words": remainder.words,
            "remainder_expected": remainder.expected,
            "remainder_share": [remainder.share],
        }
    return floats


@dataclass(frozen=True, slots=True)
class _ModelArrays:
    """The arrays of the model at a URL, or those of them whose names begin with a prefix."""

    url: str
    arrays: Mapping[str, NDArray[Any]]
    prefix: str = ""

    def __contains__(self, name: str) -> bool:
        return self.prefix + name in self.arrays

    def take(self, name: str, shape: tuple[int, ...], *, least: float | None = None) -> NDArray[np.float64]:
        """A read-only array of this shape; with `least`, all values must be finite and at least that."""
        name = self.prefix + name
        array = self.arrays.get(name)
        if array is None or array.shape != shape or array.dtype != np.float64:
            raise FormatError(
                f"array {name!r} must be float64 of shape {shape}", place=self.url, remedy="train again"
            )
        if least is not None and not (np.isfinite(array).all() and array.min(initial=np.inf) >= least):
            raise damaged(self.url, name, "has values that no model can have", REMEDY)
        array.setflags(write=False)
        return array

    def counts(self, name: str, shape: tuple[int, ...]) -> NDArray[np.int64]:
        """An array of whole numbers of at least 0."""
        array = self.take(name, shape, least=0.0)
        if (array != np.floor(array)).any():
            raise damaged(self.url, name, "has values that no model can have", REMEDY)
        return array.astype(np.int64)

    def optional(
        self,
        name: str,
        shape: tuple[int, ...],
        other: tuple[int, ...] | None = None,
        *,
        least: float | None = None,
    ) -> NDArray[np.float64] | None:
        """An array as from :meth:`take`, which may have the `other` shape; None if the model lacks it."""
        if name not in self:
            return None
        is_other = other is not None and self.arrays[self.prefix + name].shape == other
        return self.take(name, other if is_other and other is not None else shape, least=least)


def _remainder(stored: _ModelArrays, words: tuple[int, ...], expected: tuple[int, ...]) -> Remainder | None:
    """What single words add; None in models of topics alone."""
    if "remainder_words" not in stored:
        return None
    return Remainder(
        stored.take("remainder_words", words, least=-np.inf),
        stored.take("remainder_expected", expected, least=-np.inf),
        float(stored.take("remainder_share", (1,))[0]),
    )


def _quality(stored: _ModelArrays, n_topics: int) -> TopicQuality | None:
    """The measures of the topics; None in models of releases that took none."""
    if "quality_npmi" not in stored:
        return None
    return TopicQuality(
        npmi=stored.take("quality_npmi", (n_topics,)),
        exclusivity=stored.take("quality_exclusivity", (n_topics,)),
        distinct_share=float(stored.take("quality_distinct_share", (1,))[0]),
    )


def _stability(stored: _ModelArrays, n_topics: int) -> TopicStability | None:
    """How much other starts find of the topics; None where there are no others."""
    if "stability_words" not in stored:
        return None
    return TopicStability(
        words=stored.take("stability_words", (n_topics,), least=0.0),
        shares=stored.take("stability_shares", (n_topics,), least=0.0),
    )


def _replicates(stored: _ModelArrays, coefficients: tuple[int, ...]) -> NDArray[np.float64] | None:
    """Coefficients of fits to documents drawn again; None in models without."""
    if "replicates" not in stored:
        return None
    return stored.take("replicates", (len(stored.arrays["replicates"]), *coefficients), least=-np.inf)


def _reference(stored: _ModelArrays, n_topics: int, classes: tuple[str, ...] | None) -> Reference | None:
    """The profile of the training documents; None in models of releases that kept none."""
    if "reference_topic_counts" not in stored:
        return None
    borders = stored.optional("reference_prediction_borders", (N_BINS - 1,))
    names = (classes or ()) if borders is None else ()
    return Reference(
        prediction_borders=np.zeros(0) if borders is None else borders,
        prediction_counts=stored.counts("reference_prediction_counts", (len(names) or N_BINS,)),
        topic_borders=stored.take("reference_topic_borders", (n_topics, N_BINS - 1)),
        topic_counts=stored.counts("reference_topic_counts", (n_topics, N_BINS)),
        topic_means=stored.take("reference_topic_means", (n_topics,)),
        intervals=_intervals(stored),
        classes=names,
        of_training=bool(stored.take("reference_of_training", (1,))[0]),
    )


def _intervals(stored: _ModelArrays) -> Intervals | None:
    """Intervals around predictions; None in models without."""
    n_borders = len(stored.arrays.get("reference_residual_borders", ()))
    # earlier models had one group, and its bounds alone
    bounds = stored.optional("reference_residuals", (n_borders + 1, 2), (2,))
    if bounds is None:
        return None
    borders = stored.optional("reference_residual_borders", (n_borders,))
    borders = np.zeros(0) if borders is None else borders
    bounds = bounds.reshape(-1, 2)
    # NaN is in no order
    if not ((bounds[:, 0] <= bounds[:, 1]).all() and (np.diff(borders) >= 0.0).all()):
        raise damaged(stored.url, "reference_residuals", "has values that no model can have", REMEDY)
    # early models have no residuals, or those of each group in ascending order
    if "reference_residual_predictions" not in stored:
        return Intervals(borders, bounds)
    n_documents = len(stored.arrays["reference_residual_predictions"])
    predictions, residuals = (
        stored.take(f"reference_residual_{name}", (n_documents,), least=-np.inf)
        for name in ("predictions", "values")
    )
    if n_documents < FEWEST or (np.diff(predictions) < 0.0).any():
        raise damaged(
            stored.url, "reference_residual_predictions", "has values that no model can have", REMEDY
        )
    return Intervals(borders, bounds, predictions, residuals)


def _trace(stored: _ModelArrays, names: Sequence[str]) -> dict[str, NDArray[np.float64]]:
    if not names:
        return {}
    n_iterations = len(stored.arrays.get("trace", ()))
    columns = np.ascontiguousarray(stored.take("trace", (n_iterations, len(names))).T)
    columns.setflags(write=False)
    return dict(zip(names, columns, strict=True))


def _vocabulary(arrays: Mapping[str, NDArray[Any]], manifest: ModelManifest, path: str) -> Vocabulary | None:
    if manifest.vocabulary_sha256 is None:
        return None
    try:
        vocabulary = Vocabulary.from_bytes(
            arrays["vocabulary"], arrays["vocabulary_offsets"], arrays.get("document_frequency")
        )
    except (KeyError, ValueError) as error:
        raise damaged(path, "vocabulary", "is not valid", REMEDY) from error
    if vocabulary.sha256 != manifest.vocabulary_sha256 or len(vocabulary) != manifest.n_terms:
        raise damaged(path, "vocabulary", "does not agree with its hash", REMEDY)
    return vocabulary
