"""What a run says of the rows that its latest pass has added, beside those of the whole folder."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dslda
from dslda.model import Model
from dslda.scoring.tally import exceeded
from tests.helpers.files import topic_records, write_records

SHIFTED = (3.0, 1.0, 1.0)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """A model that has documents kept from training to compare with, and one that has only those trained on."""
    folder = tmp_path_factory.mktemp("latest")
    path = write_records(folder / "train.jsonl", topic_records(900, seed=0))
    corpus = dslda.ingest(path, folder / "c.corpus", text="text", response="y", max_df=1.0)
    return {
        name: dslda.train(corpus, response="y", n_topics=3, doc_topic_prior=1.0, documents=documents)
        for name, documents in (("held out", np.arange(900) < 600), ("trained on", None))
    }


def warned(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """The rows and the figures that warnings name."""
    found = [
        (record.__dict__["rows"], record.__dict__["of"])
        for record in caplog.records
        if record.__dict__.get("event") == "drift" and record.levelno == logging.WARNING
    ]
    caplog.clear()
    return found


@pytest.mark.parametrize("name", ["held out", "trained on"])
def test_a_bad_week_is_seen_among_many_good_ones(
    models: dict[str, Model], name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, out = models[name], tmp_path / "out"
    before = write_records(tmp_path / "1.jsonl", topic_records(3000, seed=1))
    first = dslda.score(model, before, out)
    assert first.manifest["latest"]["drift"] == first.manifest["drift"]
    assert warned(caplog) == []

    good = write_records(tmp_path / "2.jsonl", topic_records(100, seed=2))
    run = dslda.score(model, [before, good], out)
    assert run.manifest["latest"]["rows_out"] == 100
    assert run.manifest["latest"]["drift"]["warned_of"] == []
    assert warned(caplog) == []

    bad = write_records(tmp_path / "3.jsonl", topic_records(100, seed=3, weights=SHIFTED))
    run = dslda.score(model, [before, good, bad], out)
    latest, alone = run.manifest["latest"], dslda.score(model, bad, tmp_path / "alone").manifest
    assert run.manifest["drift"]["prediction_psi"] < 0.1
    assert run.manifest["drift"]["warned_of"] == []
    assert latest["drift"]["warned_of"] == ["predictions", "topics"]
    assert latest["drift"]["reference"] == ("kept from training" if name == "held out" else "scored before")
    assert latest["drift"]["reference_documents"] == (300 if name == "held out" else 3100)
    for field in ("rows_out", "flags", "tokens", "oov_share", "predictions", "new_words"):
        assert latest[field] == alone[field], field
    assert (latest["drift"] == alone["drift"]) == (name == "held out")
    assert [of for rows, of in warned(caplog) if rows == "latest"] == ["predictions", "topics"]

    head, tail = str(run).splitlines()
    assert head.startswith(f"{out}: 3,200 rows in 3 parts, 1 of them scored now, mean prediction ")
    assert tail.startswith("latest 100 rows: mean prediction ")
    assert len(repr(run)) < 500
    # nothing new is no new week
    again = dslda.score(model, [before, good, bad], out)
    assert run.manifest.items() <= again.manifest.items()
    assert "nothing was new" in str(again)
    assert "latest" not in str(again)


def test_rows_that_were_lost_are_no_new_ones(models: dict[str, Model], tmp_path: Path) -> None:
    model, out = models["held out"], tmp_path / "out"
    for week in range(3):
        write_records(tmp_path / f"{week}.jsonl", topic_records(20 + week, seed=week))
        run = dslda.score(model, [tmp_path / f"{i}.jsonl" for i in range(week + 1)], out)
    assert [part["part"] for part in run.manifest["parts"]] == [0, 1, 2]
    assert (run.manifest["latest_part"], run.manifest["latest"]["rows_out"]) == (2, 22)
    (out / "part-000001.parquet").unlink()
    mended = dslda.score(model, f"{tmp_path}/*.jsonl", out)
    assert mended.n_new_parts == 1
    assert run.manifest["latest"] == mended.manifest["latest"]
    # an input that is scored again is new
    write_records(tmp_path / "0.jsonl", topic_records(7, seed=9))
    changed = dslda.score(model, f"{tmp_path}/*.jsonl", out, rescore_changed=True)
    assert changed.manifest["latest"]["rows_out"] == 7


def test_a_folder_of_an_earlier_release_goes_on(models: dict[str, Model], tmp_path: Path) -> None:
    from dslda.scoring.run_folder import RunFolder
    from dslda.storage.location import Location
    from dslda.storage.typed_json import MANIFEST_CHECKSUM

    model, out = models["held out"], tmp_path / "out"
    write_records(tmp_path / "0.jsonl", topic_records(20, seed=0))
    dslda.score(model, f"{tmp_path}/*.jsonl", out)
    folder = RunFolder(Location.of(out), "parquet")
    older: dict[str, Any] = folder.read_manifest() or {}
    older = {k: v for k, v in older.items() if k not in ("latest", "latest_part", MANIFEST_CHECKSUM)}
    del older["drift"]["warned_of"]
    folder.write_manifest(older)
    assert "nothing was new" in str(
        dslda.score(model, f"{tmp_path}/*.jsonl", out, metrics=tmp_path / "m.prom")
    )
    assert "latest" not in (tmp_path / "m.prom").read_text()
    (out / "part-000000.parquet").unlink()
    assert dslda.score(model, f"{tmp_path}/*.jsonl", out).manifest["latest"] is None
    write_records(tmp_path / "1.jsonl", topic_records(10, seed=1))
    assert dslda.score(model, f"{tmp_path}/*.jsonl", out).manifest["latest"]["rows_out"] == 10


def test_few_documents_of_the_same_kind_warn_rarely(models: dict[str, Model]) -> None:
    """Draws of real predictions, each compared with a reference as a run compares it."""
    from dslda.scoring.tally import Tally, drift_report

    model = models["held out"]
    record, reference = model.record, model.record.reference
    assert reference is not None
    pool = list(topic_records(6000, seed=5))
    prediction, proportions = model.predict(pool, text="text"), model.transform(pool, text="text")
    rng = np.random.default_rng(0)

    def share_of_alarms(n: int, rows: np.ndarray) -> float:
        alarms = 0
        for _ in range(200):
            drawn = rng.choice(rows, n, replace=False)
            note = json.loads(json.dumps(Tally(3, reference).to_json()))
            bins = reference.no_counts()
            bins.add(reference, prediction[drawn], proportions[drawn])
            note["bins"] = bins.to_json()
            note["topics"] = {"documents": n, "sums": proportions[drawn].sum(axis=0).tolist()}
            tally = Tally(3, reference)
            tally.add_note(note)
            drift = drift_report(tally, record, of_texts=False)
            assert drift is not None
            alarms += bool(exceeded(drift))
        return alarms / 200

    everything = np.arange(len(pool))
    for n in (20, 50, 100, 250):
        assert share_of_alarms(n, everything) <= 0.05, n
    # those with high predictions are a third of their own
    assert share_of_alarms(100, everything[prediction > np.quantile(prediction, 0.66)]) == 1.0
