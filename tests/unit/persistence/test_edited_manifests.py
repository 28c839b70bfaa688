"""Every value of a manifest replaced by what it must not be: refused, or harmless; never a traceback or memory."""

from __future__ import annotations

import copy
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from dslda.cli.info_command import _describe
from dslda.corpus.store import open_corpus
from dslda.exceptions import DsldaError, FormatError
from dslda.ingestion.ingest import ingest
from dslda.model import load_model
from dslda.persistence.checkpoint_store import read_checkpoint
from dslda.training.train import train

REMOVE = object()
WRONG = (None, -1, 10**15, 1e150, float("nan"), "", [[]], REMOVE)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a.corpus, of two partitions, a.model and its a.checkpoint, and classes.model, which has covariates."""
    folder = tmp_path_factory.mktemp("stores")
    lines = [
        {
            "text": ("good fine coat", "bad poor coat")[i % 2],
            "y": i % 2 + i % 3 / 10,
            "x": float(i),
            "k": str(i),
            "class": "abc"[i % 3],
            "party": "DIR"[i * i % 3],
        }
        for i in range(20)
    ]
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    settings = {"text": "text", "response": "y", "covariates": "x", "id": "k", "min_df": 1, "max_df": 1.0}
    ingest(folder / "a.jsonl", folder / "a.corpus", partition_tokens=30, **settings)
    ingest(folder / "a.jsonl", folder / "b.corpus", **settings)
    model = train(folder / "b.corpus", n_topics=2, tol=1e-3, checkpoint=folder / "a.checkpoint")
    model.label(1, "quality")
    model.save(folder / "a.model")
    named = {"response": "class", "covariates": ["x", "party"], "categorical": ["class", "party"]}
    ingest(folder / "a.jsonl", folder / "c.corpus", **settings | named)
    covariates = {"covariates": ["x", "party"], "class_weight": "balanced", "doc_topic_prior": "auto"}
    model = train(folder / "c.corpus", family="categorical", n_topics=2, tol=1e-2, **covariates)
    model.save(folder / "classes.model")
    return folder


def places(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = data.items() if isinstance(data, dict) else enumerate(data[:2]) if isinstance(data, list) else ()
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


def replaced(data: Any, path: tuple[Any, ...], value: Any) -> Any:
    data = copy.deepcopy(data)
    holder = data
    for key in path[:-1]:
        holder = holder[key]
    if value is REMOVE:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    return data


def write(store: Path, metadata: dict[str, Any], attributes: dict[str, Any]) -> None:
    """As somebody would who makes the checksum right again."""
    rest = {name: value for name, value in attributes.items() if name != "manifest_sha256"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    digest = hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()
    (store / "zarr.json").write_text(
        json.dumps(metadata | {"attributes": rest | {"manifest_sha256": digest}})
    )


def use_corpus(path: Path) -> None:
    corpus = open_corpus(path)
    repr(corpus), corpus.vocabulary, corpus.content_hash
    for partition in range(corpus.n_partitions):
        corpus.read(partition, covariates=corpus.covariate_names, weight=True, doc_id=True)


def use_model(path: Path) -> None:
    model = load_model(path)
    repr(model), model.topics(), model.coefficients(), model.dispersion, model.covariate_coefficients()
    document = [{"text": "good", "words": ["good"], "counts": [1], "x": 3.0, "party": "D"}]
    for many in (document, [document[0] | {"text": "xyzzy"}], []):
        model.score_table(many)


def use_checkpoint(path: Path) -> None:
    read_checkpoint(path)
    list(_describe(str(path), None))
    again = {"n_topics": 2, "tol": 1e-3, "resume": True}
    with TemporaryDirectory() as folder:  # the fit writes into what it resumes
        train(path.with_name("b.corpus"), **again, checkpoint=shutil.copytree(path, Path(folder) / "c"))


@pytest.mark.parametrize(
    ("name", "use", "fields"),
    [
        ("a.corpus", use_corpus, None),
        ("a.model", use_model, None),
        # the others are as in a.model
        ("classes.model", use_model, ("design", "classes", "levels")),
        # any other value of what it says of its fit is another fit
        ("a.checkpoint", use_checkpoint, ("encoding-type", "iterations", "state", "trace", "arrays")),
    ],
)
def test_no_value_of_a_manifest_can_do_harm(
    stores: Path, name: str, use: Callable[[Path], None], fields: tuple[str, ...] | None
) -> None:
    store = stores / name
    raw = (store / "zarr.json").read_bytes()
    metadata = json.loads(raw)
    n_tried = n_refused = 0
    try:
        for i, path in enumerate(places(metadata["attributes"])):
            if fields is not None and path[0] not in fields:
                continue
            # of the many places of a whole manifest each gets a third of the values, its neighbours the rest
            for value in WRONG if fields is not None else WRONG[i % 3 :: 3]:
                write(store, metadata, replaced(metadata["attributes"], path, value))
                n_tried += 1
                try:
                    use(store)
                except DsldaError:
                    n_refused += 1
                except Exception as error:
                    raise AssertionError(f"{path} = {value!r}") from error
    finally:
        (store / "zarr.json").write_bytes(raw)
    assert n_refused > 0.5 * n_tried > 100
    use(store)


@pytest.mark.parametrize("inside", ["[" * 400 + "]" * 400, "[" * 10**6 + "]" * 10**6, "1e999", "NaN"])
@pytest.mark.parametrize("name", ["a.corpus", "a.model"])
def test_json_that_cannot_be_worked_with_is_a_damaged_manifest(stores: Path, name: str, inside: str) -> None:
    raw = (stores / name / "zarr.json").read_text()
    try:
        (stores / name / "zarr.json").write_text(
            raw.replace('"attributes": {', f'"attributes": {{"new": {inside},', 1)
        )
        with pytest.raises(FormatError, match=r"zarr\.json is damaged or cut short"):
            (open_corpus if name == "a.corpus" else load_model)(stores / name)
    finally:
        (stores / name / "zarr.json").write_text(raw)


def test_a_corpus_of_nothing_is_refused(stores: Path) -> None:
    raw = (stores / "a.corpus" / "zarr.json").read_bytes()
    metadata = json.loads(raw)
    nothing = {"partitions": [], "n_documents": 0, "nnz": 0, "n_tokens": 0}
    try:
        write(stores / "a.corpus", metadata, metadata["attributes"] | nothing)
        with pytest.raises(FormatError, match=r"length >= 1 - at `\$\.partitions`"):
            open_corpus(stores / "a.corpus")
    finally:
        (stores / "a.corpus" / "zarr.json").write_bytes(raw)


@pytest.mark.parametrize(
    ("array", "use"),
    [("a.corpus/terms", use_corpus), ("a.corpus/vocabulary", use_corpus), ("a.model/topics", use_model)],
)
def test_sizes_that_no_memory_holds_are_refused(
    stores: Path, array: str, use: Callable[[Path], None]
) -> None:
    store, name = stores / array.split("/")[0], array.split("/")[1]
    paths = (store / "zarr.json", store / name / "zarr.json")
    raw = [path.read_bytes() for path in paths]
    try:
        described = json.loads(raw[1])
        described["shape"][-1] = described["chunk_grid"]["configuration"]["chunk_shape"][-1] = 10**13
        paths[1].write_text(json.dumps(described))
        if store.suffix == ".model":  # and everywhere else it is said
            metadata = json.loads(raw[0])
            attributes = replaced(metadata["attributes"], ("arrays", name, "shape"), described["shape"])
            write(store, metadata, attributes | {"n_terms": 10**13})
        with pytest.raises(FormatError, match=r"does not fit into memory|must be .* with room for"):
            use(store)
    finally:
        for path, content in zip(paths, raw, strict=True):
            path.write_bytes(content)


def test_a_damaged_chunk_is_told_without_raw_bytes(stores: Path) -> None:
    chunk = stores / "a.corpus" / "counts" / "c" / "0" / "0"
    raw = bytearray(chunk.read_bytes())
    chunk.write_bytes(bytes([*raw[:-1], raw[-1] ^ 0xFF]))
    try:
        with pytest.raises(FormatError, match=r"Stored: 0x[0-9a-f]{8}. Computed: 0x[0-9a-f]{8}") as raised:
            use_corpus(stores / "a.corpus")
        assert "b'" not in str(raised.value)
    finally:
        chunk.write_bytes(raw)


def test_parameters_that_no_model_has_are_refused(stores: Path) -> None:
    import zarr

    from dslda.storage.zarr_arrays import checksum

    metadata = json.loads((stores / "a.model" / "zarr.json").read_text())
    raw = (stores / "a.model" / "zarr.json").read_bytes()
    array = zarr.open_array(stores / "a.model", path="alpha", mode="r+")
    before = np.asarray(array[...])
    try:
        array[...] = -before
        attributes = replaced(metadata["attributes"], ("arrays", "alpha", "checksum"), checksum(-before))
        write(stores / "a.model", metadata, attributes)
        with pytest.raises(FormatError, match="'alpha' has values that no model can have"):
            load_model(stores / "a.model")
    finally:
        array[...] = before
        (stores / "a.model" / "zarr.json").write_bytes(raw)
