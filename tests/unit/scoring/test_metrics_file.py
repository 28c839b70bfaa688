"""Metrics of a run, as Prometheus reads them."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dslda.exceptions import InputError
from dslda.scoring.run_report import HELP, MetricsFile

MANIFEST: dict[str, Any] = {
    "rows_out": 3,
    "skipped": {"count": 1, "unreadable_inputs": [{}, {}]},
    "duplicate_ids": {"count": 4},
    "flags": {"empty": 5, "no_known_word": 6},
    "oov_share": 0.25,
    "predictions": {"mean": 1 / 3},
    "drift": {
        "training_oov_share": 0.125,
        "new_share": 0.5,
        "training_new_share": 0.75,
        "prediction_psi": 0.1,
        "largest_topic_psi": 0.2,
        "warned_of": ["topics"],
    },
    "latest": {
        "rows_out": 2,
        "oov_share": 0.375,
        "predictions": {"mean": 2 / 3},
        "drift": {
            "new_share": 0.625,
            "prediction_psi": 0.3,
            "largest_topic_psi": 0.4,
            "warned_of": ["predictions", "topics"],
        },
    },
}


def samples(path: Path) -> dict[tuple[str, ...], float]:
    """Values by the name, the run and the flag."""
    found = {}
    for metric in text_string_to_metric_families(path.read_text(encoding="utf-8")):
        assert metric.type == "gauge"
        assert metric.documentation == HELP[metric.name.removeprefix("dslda_score_")]
        for sample in metric.samples:
            name = sample.name.removeprefix("dslda_score_")
            found[(name, *(sample.labels[label] for label in ("run", "flag") if label in sample.labels))] = (
                sample.value
            )
    return found


def test_every_figure_has_its_name_and_the_folder_as_label(tmp_path: Path) -> None:
    path, run = tmp_path / "m.prom", '/data/a "quoted"\\folder\nof two lines'
    MetricsFile(path, run, []).write(MANIFEST, 2)
    found = samples(path)
    assert {name for name, *_ in found} == set(HELP)
    assert {labels[0] for _, *labels in found} == {run}
    assert found[("flagged_rows", run, "empty")] == 5
    assert found[("flagged_rows", run, "no_known_word")] == 6
    expected = {
        "success": 1,
        "new_parts": 2,
        "rows": 3,
        "skipped_rows": 1,
        "unreadable_inputs": 2,
        "duplicate_ids": 4,
        "oov_share": 0.25,
        "training_oov_share": 0.125,
        "new_share": 0.5,
        "training_new_share": 0.75,
        "prediction_mean": 1 / 3,
        "prediction_psi": 0.1,
        "largest_topic_psi": 0.2,
        "drift_warnings": 1,
        "latest_rows": 2,
        "latest_oov_share": 0.375,
        "latest_new_share": 0.625,
        "latest_prediction_mean": 2 / 3,
        "latest_prediction_psi": 0.3,
        "latest_largest_topic_psi": 0.4,
        "latest_drift_warnings": 2,
    }
    assert {name: found[(name, run)] for name in expected} == expected
    assert abs(found[("last_success_timestamp_seconds", run)] - time.time()) < 60
    assert list(tmp_path.iterdir()) == [path]


def test_a_failure_keeps_the_time_of_the_last_success(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    MetricsFile(path, "/run", []).write(None, 0, failed=True)
    assert {name for name, *_ in samples(path)} == {"success", "seconds", "new_parts"}
    MetricsFile(path, "/run", []).write(MANIFEST, 1)
    last = samples(path)[("last_success_timestamp_seconds", "/run")]
    for _ in range(2):
        MetricsFile(path, "/run", []).write(MANIFEST, 0, failed=True)
        found = samples(path)
        assert found[("success", "/run")] == 0
        assert found[("last_success_timestamp_seconds", "/run")] == last


def test_figures_that_are_not_known_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    MetricsFile(path, "/run", []).write(MANIFEST | {"drift": None, "flags": {}}, 1)
    assert {name for name, *_ in samples(path)}.isdisjoint({"flagged_rows", "prediction_psi", "new_share"})


def test_a_folder_whose_name_is_no_text_can_be_told(tmp_path: Path) -> None:
    MetricsFile(tmp_path / "m.prom", os.fsdecode(b"/run/\xff"), []).write(MANIFEST, 1)
    assert samples(tmp_path / "m.prom")[("rows", "/run/?")] == 3


def test_nothing_but_metrics_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    (tmp_path / "in").mkdir()
    (tmp_path / "stars.model").mkdir()
    (tmp_path / "stars.model" / "zarr.json").write_text('{"attributes": {"encoding-type": "dslda-model"}}')
    (tmp_path / "empty").touch()
    run = str(tmp_path / "run")
    MetricsFile(tmp_path / "empty", run, [])
    for path, inputs in (
        (tmp_path / "notes", []),
        (tmp_path, []),
        (Path(os.devnull), []),
        (tmp_path / "nowhere" / "m.prom", []),
        (tmp_path / "run" / "m.prom", []),
        (tmp_path / "in" / "m.prom", [tmp_path / "in"]),
        (tmp_path / "in" / "m.prom", [f"file://{tmp_path}/in"]),
        (tmp_path / "empty", [f"{tmp_path}/*"]),
        (tmp_path / "stars.model" / "m.prom", []),
    ):
        with pytest.raises(InputError) as caught:
            MetricsFile(path, run, inputs)
        assert caught.value.parameter == "metrics" or path.parent.name == "stars.model"
    assert (tmp_path / "notes").read_text() == "mine"


def test_the_extra_that_is_missing_is_named_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(InputError) as caught:
        MetricsFile(tmp_path / "m.prom", "/run", [])
    assert caught.value.parameter == "metrics"
    assert "dslda[metrics]" in caught.value.remedy[0]
    assert not list(tmp_path.iterdir())
