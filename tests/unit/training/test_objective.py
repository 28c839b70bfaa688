"""The objective that a fit chooses by itself: from its documents and their weights."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from dslda.exceptions import ConvergenceWarning, DataWarning
from dslda.model import Model
from dslda.training.train import train
from tests.helpers.errors import refused

N = 300
RNG = np.random.default_rng(5)
RESPONSES = RNG.normal(size=N)
TEXTS = csr_array(RNG.poisson(0.4, size=(N, 30)))


def trained(documents: Any, **settings: Any) -> Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        return train(documents, n_topics=2, max_iter=2, **settings)


def test_weights_of_zero_do_not_count_as_responses(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    classes = np.where(RESPONSES > 0.8, "rare", "usual")
    n_rare, weight = int((classes == "rare").sum()), (np.arange(N) < 100).astype(float)
    cases: list[tuple[int, dict[str, Any]]] = [
        (100, {"response": RESPONSES, "weight": weight}),
        (n_rare, {"response": classes, "family": "categorical", "class_weight": {"usual": 0.0}}),
    ]
    for n, settings in cases:
        caplog.clear()
        assert trained(TEXTS, **settings).spec.objective == "joint"
        assert (
            f"objective: joint ({n} documents with a response of weight above 0, fewer than 250)"
            in caplog.text
        )
    assert trained(TEXTS, response=RESPONSES, weight=weight + 0.5).spec.objective == "conditional"
    with refused("objective"):
        trained(TEXTS, response=RESPONSES, objective="conditional", weight=weight * (np.arange(N) < 49))
