"""Every family on many small corpora, drawn without regard to the model: no NaN, no infinity, no warning."""

from __future__ import annotations

import os

import numpy as np
import pytest

from dslda.families.base import Family
from dslda.families.registry import FAMILIES, get_family
from dslda.variational.estep import e_step, infer, neutral_extras
from dslda.variational.mstep import m_step, objective
from dslda.variational.parameters import FitSpec, Scaling, initial_parameters
from tests.helpers.problems import documents_of, moments_of, random_document, wild_responses

N_TERMS, ITERATIONS = 12, 4


def run(family: Family, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 16))
    rows = [random_document(rng, N_TERMS, distinct=int(rng.integers(1, 9)), most=8) for _ in range(n)]
    y, aux = wild_responses(family, rng, n)
    moments = moments_of(y / aux if family.auxiliary == "trials" else y)
    scaling = Scaling(*family.scaling(moments))
    documents = documents_of(rows).with_response(scaling.to_model(y))
    extras = neutral_extras(n, 1)
    extras[:, 1] = aux
    extras[:, 2] = rng.choice([0.5, 1.0, 3.0], n)
    extras[:, 4] = rng.normal(size=n)
    spec = FitSpec(
        n_topics=int(rng.integers(1, 5)),
        response_weight=float(rng.choice([0.3, 1.0, 5.0])),
        doc_topic_prior=rng.choice([None, 0.01, 2.0, "auto"]),
        granularity=str(rng.choice(["term", "token"])),
        topic_estimation="variational" if seed % 2 else "map",
    )
    parameters = initial_parameters(
        N_TERMS,
        spec=spec,
        family=family,
        moments=moments.scaled(scaling.center, scaling.scale),
        n_covariates=1,
    )
    for _ in range(ITERATIONS):
        statistics = e_step(*documents.arrays, parameters, family=family, spec=spec, extras=extras)
        assert np.isfinite(objective(statistics, parameters, family=family, spec=spec))
        parameters = m_step(parameters, statistics, family=family, spec=spec)
        for values in (
            parameters.topics,
            parameters.alpha,
            parameters.eta,
            parameters.delta,
            parameters.zeta,
        ):
            assert np.isfinite(values).all()
    posterior = infer(*documents.csr, parameters, spec=spec, family=family, extras=extras)
    mean = family.mean(posterior.mean, posterior.variance, parameters.delta)
    assert np.isfinite(mean).all()
    probabilities = family.probabilities(posterior.mean, posterior.variance, parameters.delta)
    if probabilities is not None:
        assert np.all((probabilities >= 0.0) & (probabilities <= 1.0))
        assert np.allclose(probabilities.sum(axis=1), 1.0)


def family_of(name: str, seed: int) -> Family:
    options = (
        {"n_classes": 2 + seed % 5, "form": ("bound", "delta")[seed % 2]} if name == "categorical" else {}
    )
    return get_family(name, options)


@pytest.mark.parametrize("name", list(FAMILIES))
def test_fifty_corpora_of_every_family(name: str) -> None:
    for seed in range(50):
        run(family_of(name, seed), seed)


@pytest.mark.soak
@pytest.mark.parametrize("name", list(FAMILIES))
def test_many_corpora_of_every_family(name: str) -> None:
    """DSLDA_TEST_CORPORA=1000 tries a thousand for each family, in some five minutes."""
    for seed in range(50, int(os.environ.get("DSLDA_TEST_CORPORA", "300"))):
        run(family_of(name, seed), seed)
