"""docs/read_model.py reads models without dslda, and predicts what dslda predicts."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import dslda
from tests.formats.make_archives import COVARIATES, DOCUMENTS, MODELS, corpus_of

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


@pytest.mark.parametrize("name", [name for name in MODELS if name != "categorical"])
def test_a_program_without_dslda_predicts_the_same(name: str, fresh: Path, tmp_path: Path) -> None:
    # these models have a tolerance with which dslda's sweeps, too, go on to where they come to rest, but for what moves the
    # ELBO, flat there, by less than rounding
    with zipfile.ZipFile(fresh / f"{name}.model.zip") as archive:
        archive.extractall(tmp_path)
    expected = json.loads((fresh / "expected.json").read_text(encoding="utf-8"))["models"][name]
    printed = alone(tmp_path / f"{name}.model", DOCUMENTS, COVARIATES)
    assert [one["prediction"] for one in printed] == pytest.approx(expected["predictions"], rel=1e-6)
    for one, shares in zip(printed, expected["topics"], strict=True):
        assert one["topics"] == pytest.approx(shares, abs=1e-5)


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


def test_terms_without_names_have_numbers(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    counts = csr_array(rng.poisson(0.5, (300, 12)))
    model = dslda.train(
        counts, response=rng.normal(size=300), n_topics=2, covariates={"x": rng.normal(size=300)}
    )
    path = model.save(tmp_path / "a.model")
    expected = model.predict(csr_array(([3, 1], ([0, 0], [4, 11])), shape=(1, 12)), covariates={"x": [0.5]})
    (printed,) = alone(Path(path), [{"4": 3, "11": 1, "12": 5}], {"x": 0.5})
    assert printed["prediction"] == pytest.approx(float(expected[0]), rel=1e-3)
    done = subprocess.run([sys.executable, READER, path, "{}"], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == f"{path}: the model needs the covariate 'x'"
