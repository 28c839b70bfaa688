"""docs/read_model.py reads models without dslda, and predicts what dslda predicts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dslda

READER = Path(__file__).resolve().parents[2] / "docs" / "read_model.py"

ALONE = """
import importlib.abc, json, runpy, sys

class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("dslda", "dask", "distributed", "scipy", "numba", "sklearn", "pandas"):
            raise ImportError(name + " is not for this program")

sys.meta_path.insert(0, Refused())
predict = runpy.run_path(sys.argv[1])["predict"]
print(json.dumps([predict(sys.argv[2], *given) for given in json.loads(sys.argv[3])]))
"""
"""Predicts a list of documents as the reader does, in a process that has nothing of ours."""

WORDS = ("good", "fine", "lovely", "bad", "poor", "awful", "dress", "shirt", "coat")
DOCUMENTS: tuple[dict[str, int], ...] = (
    {"good": 1, "dress": 2},
    {"awful": 3, "poor": 1, "coat": 5, "shirt": 1},
    {"good": 1, "bad": 1, "xyzzy": 4},
    {"lovely": 40, "awful": 1},
    {"xyzzy": 1},
)


def records(kind: str) -> list[dict[str, Any]]:
    """Documents whose words tell the response, with a covariate of names and one of numbers."""
    random = np.random.default_rng(11)
    made = []
    for i in range(120):
        good = random.random()
        shares = np.concatenate([np.full(3, good), np.full(3, 1.0 - good), np.full(3, 0.4)])
        drawn = random.multinomial(random.integers(3, 30), shares / shares.sum())
        days, party = float(random.integers(5, 40)), "DR"[i % 2]
        predictor = 2.0 * good - 1.0 + (0.5 if party == "R" else 0.0)
        y = {
            "gaussian": 3.0 + predictor + random.normal(0.0, 0.3),
            "poisson": random.poisson(days / 10 * np.exp(predictor)),
            "binomial": random.binomial(int(days), 1.0 / (1.0 + np.exp(-2.0 * predictor))),
        }[kind]
        present = np.flatnonzero(drawn)
        made.append(
            {
                "words": [WORDS[t] for t in present],
                "counts": drawn[present].tolist(),
                "y": float(y),
                "days": days,
                "party": party,
            }
        )
    return made


def corpus_of(kind: str, folder: Path, **columns: Any) -> Any:
    """A corpus of such documents."""
    source = folder / "made.jsonl"
    source.write_text("".join(json.dumps(record) + "\n" for record in records(kind)), encoding="utf-8")
    return dslda.ingest(
        source,
        folder / "made.corpus",
        words="words",
        counts="counts",
        response="y",
        min_df=1,
        max_df=1.0,
        **columns,
    )


def alone(
    model: Path, documents: Sequence[dict[str, int]], covariates: dict[str, Any]
) -> list[dict[str, Any]]:
    """What the reader makes of documents, in a process that cannot import dslda."""
    given = json.dumps([[document, covariates] for document in documents])
    done = subprocess.run(
        [sys.executable, "-c", ALONE, READER, model, given], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed: list[dict[str, Any]] = json.loads(done.stdout)
    return printed


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "gaussian": ("gaussian", {}),
    "gaussian of distributed topics, with covariates": (
        "gaussian",
        {"covariates": ["party", "days"], "topic_estimation": "variational"},
    ),
    "poisson with exposure": ("poisson", {"covariates": ["party"], "exposure": "days"}),
    "binomial with trials": ("binomial", {"trials": "days", "covariates": ["party"]}),
}


@pytest.mark.parametrize(("kind", "options"), CASES.values(), ids=CASES)
def test_a_program_without_dslda_predicts_the_same(
    tmp_path: Path, kind: str, options: dict[str, Any]
) -> None:
    corpus = corpus_of(kind, tmp_path, covariates=["days", "party"], categorical=["party"])
    # sweeps of dslda end sooner than the reader's: with this tolerance both are where they come to rest
    model = dslda.train(
        corpus, response="y", family=kind, n_topics=3, sweep_tol=1e-14, max_sweeps=50_000, **options
    )
    path = tmp_path / "made.model"
    model.save(path)
    covariates = {"days": 12.0, "party": "R"}
    given = [
        {"words": list(document), "counts": list(document.values()), **covariates} for document in DOCUMENTS
    ]
    predictions = model.predict(given)
    topics = model.transform(given)
    for printed, prediction, shares in zip(
        alone(path, DOCUMENTS, covariates), predictions, topics, strict=True
    ):
        assert printed["prediction"] == pytest.approx(prediction, rel=1e-6)
        assert printed["topics"] == pytest.approx(shares, abs=1e-6)


def test_the_reader_is_a_program_that_refuses_an_edited_model(tmp_path: Path) -> None:
    path = tmp_path / "made.model"
    model = dslda.train(corpus_of("gaussian", tmp_path), response="y", n_topics=2)
    model.save(path)

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, READER, path, '{"good": 2}'], capture_output=True, text=True, check=False
        )

    # with the tolerance that models have by default
    (expected,) = model.predict([(["good"], [2])])
    assert json.loads(run().stdout)["prediction"] == pytest.approx(expected, rel=1e-3)
    manifest = path / "zarr.json"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace('"center": ', '"center": 1'), encoding="utf-8")
    assert "the manifest was changed" in run().stderr
