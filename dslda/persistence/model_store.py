"""Writing and reading a model directory: a zarr v3 group, without pickle (specified in docs/formats.md)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import FormatError, InputError
from dslda.persistence.model_manifest import (
    ENCODING_TYPE,
    check_manifest,
    read_fields,
    to_json,
)
from dslda.persistence.model_record import ModelRecord
from dslda.persistence.training_profile import N_BINS, Reference
from dslda.storage.json_fields import count, items, object_
from dslda.storage.location import Location, check_output, move_into_place
from dslda.storage.output import check_writable, report_leftovers, writing
from dslda.storage.typed_json import MANIFEST_CHECKSUM
from dslda.storage.zarr_arrays import damaged, entries, read_arrays, write_array
from dslda.variational.parameters import Parameters

__all__ = ["check_model_output", "model_checksum", "read_model", "write_model"]


def check_model_output(
    path: str | os.PathLike[str], *, overwrite: bool, storage_options: Mapping[str, Any] | None = None
) -> None:
    """Refuse an output that cannot be written, before the long work.

    Raises
    ------
    OutputExistsError
        Something is there and is no model, or is one and `overwrite` is False.
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
    """Write a model under a temporary name and move it into place.

    Parameters
    ----------
    record : ModelRecord
    path : str or path
        Local directory or fsspec URL; a missing local parent directory is made.
    overwrite : bool, default False
        Replace a model that is there.
    storage_options : mapping, optional
        For the fsspec file system.

    Returns
    -------
    str
        The absolute path or URL.

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
    for name in ("eta", "delta", "zeta"):  # what a family can spoil
        if not np.isfinite(getattr(record.parameters, name)).all():
            raise InputError(
                f"the parameters of a model must be finite, got {name} that are not; train again, or give another family"
            )
    if target.local:
        report_leftovers(target.url)
    arrays = _arrays(record)
    temporary = target.sibling("partial")
    try:
        with writing(target.url):
            store = temporary.store(read_only=False)
            group = zarr.create_group(store, zarr_format=3)
            for name, array in arrays.items():
                write_array(store, name, array)
            group.attrs.put(to_json(record, entries(arrays)))
            move_into_place(temporary, target, encoding_type=ENCODING_TYPE, overwrite=overwrite)
    except BaseException:
        temporary.remove()
        raise
    return target.url


def model_checksum(record: ModelRecord) -> str:
    """Of the manifest that the model was read from, or would have if it were written now."""
    if record.checksum is not None:
        return record.checksum
    return str(to_json(record, entries(_arrays(record)))[MANIFEST_CHECKSUM])


def read_model(
    path: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> ModelRecord:
    """Read a model and check every array against its checksum.

    Raises
    ------
    InputError
        There is nothing at `path`.
    FormatError
        It is not a model, damaged, truncated, or of a version this release cannot read.
    """
    location = Location.of(path, storage_options)
    data = location.read_attributes()
    check_manifest(data, location.url)
    fields = read_fields(data, location.url)
    arrays = read_arrays(location, object_(data, "arrays", location.url), what="model")
    n_topics, n_terms = (count(data, name, location.url) for name in ("n_topics", "n_terms"))
    n_covariates = len(fields["design"].covariates)
    classes = fields["classes"]
    is_classes = "eta" in arrays and arrays["eta"].ndim == 2 and classes is not None
    per_class = (len(classes),) if is_classes else ()
    if classes is not None and not is_classes and len(classes) != 2:
        raise FormatError(
            f"{location.url}: field 'classes' must name the 2 classes, got {len(classes)}; train again"
        )
    parameters = Parameters(
        topics=np.ascontiguousarray(_take(arrays, "topics", (n_topics, n_terms), location.url).T),
        alpha=_take(arrays, "alpha", (n_topics,), location.url),
        eta=_take(arrays, "eta", (n_topics, *per_class), location.url),
        delta=_take(arrays, "delta", arrays["delta"].shape[:1], location.url)
        if "delta" in arrays
        else np.zeros(0),
        zeta=_take(arrays, "zeta", (n_covariates, *per_class), location.url)
        if "zeta" in arrays
        else np.zeros((n_covariates, *per_class)),
        concentration=_take(arrays, "concentration", (n_topics,), location.url)
        if fields["spec"].topic_estimation == "variational"
        else None,
    )
    n = n_topics + n_covariates
    for name, least in (
        ("topics", 0.0),
        ("alpha", np.finfo(np.float64).tiny),
        ("eta", -np.inf),
        ("delta", -np.inf),
        ("zeta", -np.inf),
        ("concentration", np.finfo(np.float64).tiny),
    ):
        values = getattr(parameters, name)
        if values is None:
            continue
        if not np.isfinite(values).all() or values.min(initial=np.inf) < least:
            raise damaged(location.url, name, "has values that no model can have")
    record = ModelRecord(
        parameters=parameters,
        covariance=_take(arrays, "covariance", (*per_class, n, n), location.url)
        if "covariance" in arrays
        else None,
        vocabulary=_vocabulary(arrays, data, location.url),
        prevalence=_take(arrays, "prevalence", (n_topics,), location.url) if "prevalence" in arrays else None,
        base=_take(arrays, "base", per_class or (1,), location.url) if "base" in arrays else None,
        pearson=_take(arrays, "pearson", (2,), location.url) if "pearson" in arrays else None,
        reference=_reference(arrays, n_topics, classes, location.url),
        checksum=data[MANIFEST_CHECKSUM],
        trace=_trace(arrays, items(data, "trace", location.url), location.url),
        **fields,
    )
    for array in (
        parameters.topics,
        parameters.alpha,
        parameters.eta,
        parameters.delta,
        parameters.zeta,
        parameters.concentration,
        record.covariance,
        record.prevalence,
        record.base,
        record.pearson,
        *record.trace.values(),
    ):
        if array is not None:
            array.setflags(write=False)
    return record


def _arrays(record: ModelRecord) -> dict[str, NDArray[Any]]:
    """Every array of the directory, by name."""
    arrays: dict[str, NDArray[Any]] = {
        "topics": np.ascontiguousarray(record.parameters.topics.T, dtype=np.float64),
        "alpha": np.asarray(record.parameters.alpha, dtype=np.float64),
        "eta": np.asarray(record.parameters.eta, dtype=np.float64),
    }
    # zarr has no chunks without a side
    for name in ("delta", "zeta"):
        values = np.asarray(getattr(record.parameters, name), dtype=np.float64)
        if values.size:
            arrays[name] = values
    if record.parameters.concentration is not None:
        arrays["concentration"] = np.asarray(record.parameters.concentration, dtype=np.float64)
    if record.covariance is not None:
        arrays["covariance"] = np.asarray(record.covariance, dtype=np.float64)
    for name in ("prevalence", "base", "pearson"):
        if (kept := getattr(record, name)) is not None:
            arrays[name] = np.asarray(kept, dtype=np.float64)
    if record.reference is not None:
        arrays |= {f"reference_{name}": values for name, values in record.reference.arrays().items()}
    if record.vocabulary is not None:
        arrays["vocabulary"], arrays["vocabulary_offsets"] = record.vocabulary.to_bytes()
        if record.vocabulary.document_frequency is not None:
            arrays["document_frequency"] = record.vocabulary.document_frequency
    if record.trace:
        arrays["trace"] = np.column_stack([np.asarray(v, dtype=np.float64) for v in record.trace.values()])
    return arrays


def _reference(
    arrays: Mapping[str, NDArray[Any]], n_topics: Any, classes: Any, path: str
) -> Reference | None:
    """What documents scored later are compared with; None in models that were written before it was kept."""
    if "reference_topic_counts" not in arrays:
        return None
    of_classes = "reference_prediction_borders" not in arrays
    bins = (len(classes),) if of_classes and classes else (N_BINS,)
    names = {
        "prediction_counts": bins,
        "topic_borders": (n_topics, N_BINS - 1),
        "topic_counts": (n_topics, N_BINS),
        "topic_means": (n_topics,),
        "of_training": (1,),
    }
    found = {name: _take(arrays, f"reference_{name}", shape, path) for name, shape in names.items()}
    for name in ("prediction_counts", "topic_counts"):
        if (found[name] < 0).any() or (found[name] != np.floor(found[name])).any():
            raise damaged(path, f"reference_{name}", "has values that no model can have")
    return Reference(
        prediction_borders=np.zeros(0)
        if of_classes
        else _take(arrays, "reference_prediction_borders", (N_BINS - 1,), path),
        prediction_counts=found["prediction_counts"].astype(np.int64),
        topic_borders=found["topic_borders"],
        topic_counts=found["topic_counts"].astype(np.int64),
        topic_means=found["topic_means"],
        residuals=_take(arrays, "reference_residuals", (2,), path)
        if "reference_residuals" in arrays
        else None,
        classes=tuple(classes or ()) if of_classes else (),
        of_training=bool(found["of_training"][0]),
    )


def _take(
    arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[Any, ...], path: str
) -> NDArray[np.float64]:
    array = arrays.get(name)
    if array is None or array.shape != shape or array.dtype != np.float64:
        raise FormatError(f"{path}: array {name!r} must be float64 of shape {shape}; train again")
    return array


def _trace(arrays: Mapping[str, NDArray[Any]], names: list[str], path: str) -> dict[str, NDArray[np.float64]]:
    if not names:
        return {}
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        raise FormatError(f"{path}: field 'trace' must be a list of distinct names, got {names!r:.60}")
    array = _take(arrays, "trace", (*arrays.get("trace", np.zeros(0)).shape[:1], len(names)), path)
    return {name: np.ascontiguousarray(column) for name, column in zip(names, array.T, strict=True)}


def _vocabulary(arrays: Mapping[str, NDArray[Any]], data: Mapping[str, Any], path: str) -> Vocabulary | None:
    if data.get("vocabulary_sha256") is None:
        return None
    try:
        vocabulary = Vocabulary.from_bytes(
            arrays["vocabulary"], arrays["vocabulary_offsets"], arrays.get("document_frequency")
        )
    except (KeyError, ValueError, InputError) as error:
        raise damaged(path, "vocabulary", "is not valid") from error
    if vocabulary.sha256 != data["vocabulary_sha256"] or len(vocabulary) != data["n_terms"]:
        raise damaged(path, "vocabulary", "does not agree with its hash")
    return vocabulary
