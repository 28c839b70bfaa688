"""Names of topics: kept in the model, and no part of what tells models apart."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dslda.exceptions import FormatError, OutputError
from dslda.model import Model, load_model
from dslda.persistence.model_store import label_stored_topic, write_model
from dslda.storage.typed_json import json_sha256
from tests.helpers.errors import refused
from tests.unit.persistence.test_model_directory import a_record, a_record_of_starts, edit_attributes

MEMORY = "memory://labels/"


def stored(model: Path) -> dict[str, bytes]:
    return {str(p.relative_to(model)): p.read_bytes() for p in model.rglob("*") if p.is_file()}


def test_a_name_stays_with_its_topic_until_it_is_taken_away(tmp_path: Path) -> None:
    model = Model(a_record())
    assert model.labels == {}
    model.label(2, " it does not fit ")
    model.label(0, "Größe 😀")
    again = load_model(model.save(tmp_path / "a.model"))
    assert again.labels == model.labels == {0: "Größe 😀", 2: "it does not fit"}
    assert {row.topic: row.label for row in again.topics()} == {0: "Größe 😀", 1: None, 2: "it does not fit"}
    assert {row.topic: row.label for row in again.coefficients()} == {
        k: again.labels.get(k) for k in range(3)
    }
    model.label(0, "it does not fit")
    assert model.labels == dict.fromkeys((0, 2), "it does not fit")
    for topic in (0, 2):
        model.label(topic, None)
    model.save(tmp_path / "a.model", overwrite=True)
    assert "labels" not in json.loads((tmp_path / "a.model" / "zarr.json").read_text())["attributes"]


@pytest.mark.parametrize("topic", [-1, 3, 1.0, True, "1", None])
def test_a_topic_that_is_not_there_gets_no_name(topic: Any) -> None:
    with refused("topic"):
        Model(a_record()).label(topic, "fit")


@pytest.mark.parametrize(
    "label", ["", " \t", "x" * 81, "a\nb", "a\x1b[2J", "a\u202eb", "a\udcff", 3, ("fit",)]
)
def test_what_is_no_name_is_refused_and_changes_nothing(tmp_path: Path, label: Any) -> None:
    model = Model(a_record())
    model.label(1, "x" * 80)
    path = model.save(tmp_path / "a.model")
    with refused("label"):
        model.label(1, label)
    with refused("label"):
        label_stored_topic(path, 1, label)
    assert model.labels == load_model(path).labels == {1: "x" * 80}


def test_a_name_is_no_part_of_what_tells_models_apart(tmp_path: Path) -> None:
    model = Model(a_record())
    checksum = model.checksum
    model.label(1, "fit")
    path = model.save(tmp_path / "a.model")
    again = load_model(path)
    assert model.checksum == again.checksum == checksum
    again.label(1, "quality")
    assert load_model(again.save(tmp_path / "b.model")).checksum == checksum
    record = replace(a_record(), response="price")
    assert Model(record).checksum != checksum


def test_a_stored_model_is_named_without_another_byte_changing(tmp_path: Path) -> None:
    """Also one with attributes of a later release, which this one would not write."""
    path = tmp_path / "a.model"
    write_model(a_record_of_starts(), path)
    edit_attributes(path, mood="good")
    before, checksum = stored(path), load_model(path).checksum
    assert label_stored_topic(path, 1, " fit ") == "fit"
    named = load_model(path)
    assert (named.labels, named.checksum) == ({1: "fit"}, checksum)
    assert {name: raw for name, raw in stored(path).items() if name != "zarr.json"} == {
        name: raw for name, raw in before.items() if name != "zarr.json"
    }
    label_stored_topic(path, 1, None)
    assert json.loads(stored(path)["zarr.json"]) == json.loads(before["zarr.json"])


def test_a_model_in_an_object_store_is_named_too() -> None:
    write_model(a_record(), MEMORY + "a.model", overwrite=True)
    label_stored_topic(MEMORY + "a.model", 0, "fit")
    assert load_model(MEMORY + "a.model").labels == {0: "fit"}


def test_a_name_that_cannot_be_written_leaves_the_model_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.model"
    write_model(a_record(), path)
    before = stored(path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", full)
        with pytest.raises(OutputError):
            label_stored_topic(path, 0, "fit")
    assert stored(path) == before


@pytest.mark.parametrize("labels", [["fit"], [None, None, ""], ["x" * 81, None, None], [1, 2, 3], "fit"])
def test_labels_that_no_model_has_are_refused(tmp_path: Path, labels: Any) -> None:
    path = tmp_path / "a.model"
    write_model(a_record(), path)
    edit_attributes(path, labels=labels)
    with pytest.raises(FormatError, match="labels"):
        load_model(path)
    before = stored(path)
    with pytest.raises(FormatError, match="labels"):
        label_stored_topic(path, 0, "fit")
    assert stored(path) == before


def test_the_checksum_of_the_manifest_covers_names(tmp_path: Path) -> None:
    path = tmp_path / "a.model"
    write_model(replace(a_record(), labels=("fit", None, None)), path)
    attributes = json.loads((path / "zarr.json").read_text())["attributes"]
    assert attributes.pop("manifest_sha256") == json_sha256(attributes)
    (path / "zarr.json").write_text((path / "zarr.json").read_text().replace('"fit"', '"fat"'))
    with pytest.raises(FormatError, match="checksum"):
        load_model(path)
