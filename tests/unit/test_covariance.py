"""The covariance of coefficients, as docs/model.md uses it, in models of each kind of response."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from dslda.model import load_model

ROOT = Path(__file__).parents[2]
NAMES = ("gaussian", "binomial", "poisson", "variational", "categorical")


@pytest.fixture(params=NAMES)
def model(request, tmp_path):
    shutil.unpack_archive(ROOT / f"tests/formats/archives/0.1.0/{request.param}.model.zip", tmp_path)
    return load_model(tmp_path / f"{request.param}.model")


def test_the_diagonal_has_the_reported_errors(model):
    covariance = model.coefficient_covariance()
    n_topics = model.n_topics
    if covariance.ndim == 2:
        rows = {row.topic: row.conditional_error for row in model.coefficients()}
        errors = [rows[k] for k in range(n_topics)]
        errors += [row.conditional_error for row in model.covariate_coefficients()]
        assert np.allclose(np.sqrt(np.diagonal(covariance)), errors, rtol=1e-12)
        return
    for c, (name, rows) in enumerate(model.class_topics(top=None).items()):
        errors = {row.topic: row.conditional_error for row in rows}
        errors = [errors[k] for k in range(n_topics)]
        errors += [row.conditional_error for row in model.covariate_coefficients() if row.class_name == name]
        assert np.allclose(np.sqrt(np.diagonal(covariance[c])), errors, rtol=1e-12)


def test_the_page_computes_the_error_of_a_difference(model):
    page = (ROOT / "docs" / "model.md").read_text(encoding="utf-8")
    (code,) = (
        c for c in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE) if "difference" in c
    )
    names: dict = {}
    exec(code, names)
    classes = model.classes if model.coefficient_covariance().ndim == 3 else (None,)
    for c, name in enumerate(classes):
        value, error = names["difference"](model, 0, 2, name)
        contrast = np.zeros(len(model.coefficient_covariance()[-1]))
        contrast[[0, 2]] = 1.0, -1.0
        covariance = model.coefficient_covariance().reshape(-1, len(contrast), len(contrast))[c]
        assert error == pytest.approx(np.sqrt(contrast @ covariance @ contrast))
        assert error > 0.0
        opposite, same = names["difference"](model, 2, 0, name)
        assert (opposite, same) == (pytest.approx(-value), pytest.approx(error))
        if name is None:
            coefficients = {row.topic: row.coefficient for row in model.coefficients()}
            assert value == pytest.approx(coefficients[0] - coefficients[2])
