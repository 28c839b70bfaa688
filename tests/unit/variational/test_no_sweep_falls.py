"""No kept sweep lowers a document's ELBO: short documents, heavy responses, every family."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dslda.families.base import Family
from dslda.families.registry import FAMILIES, get_family
from dslda.variational.estep import infer, neutral_extras
from dslda.variational.oracle import class_predictors, one_predictor
from dslda.variational.oracle.class_predictors import ClassResponse
from dslda.variational.oracle.one_predictor import ScalarResponse
from dslda.variational.parameters import FitSpec, Parameters, Scaling
from tests.helpers.class_problems import class_parameters
from tests.helpers.problems import (
    Documents,
    documents_of,
    moments_of,
    random_document,
    random_parameters,
    wild_responses,
)

N_TERMS, N_DOCUMENTS, MOST_SWEEPS = 10, 20, 14
ONE_PREDICTOR = [name for name in FAMILIES if name != "categorical"]


def short_documents(
    family: Family, seed: int
) -> tuple[Documents, np.ndarray, Parameters, np.random.Generator]:
    """Documents of one to five tokens, with coefficients that reach far beyond the scatter of their responses."""
    rng = np.random.default_rng(seed)
    y, aux = wild_responses(family, rng, N_DOCUMENTS)
    moments = moments_of(y / aux if family.auxiliary == "trials" else y)
    scaling = Scaling(*family.scaling(moments))
    rows = [
        random_document(rng, N_TERMS, distinct=int(rng.integers(1, 4)), most=int(rng.integers(1, 3)))
        for _ in range(N_DOCUMENTS)
    ]
    extras = neutral_extras(N_DOCUMENTS, 0)
    extras[:, 1] = aux
    middle, spread, delta = family.start(moments.scaled(scaling.center, scaling.scale))
    plain = random_parameters(rng, N_TERMS, 4)
    eta = middle + spread * rng.choice([1.0, 3.0]) * rng.normal(size=4)
    documents = documents_of(rows).with_response(scaling.to_model(y))
    return documents, extras, replace(plain, eta=eta, delta=delta), rng


def elbo_by_sweeps(
    documents: Documents,
    extras: np.ndarray,
    parameters: Parameters,
    family: Family,
    *,
    rho: float,
    granularity: str,
    tolerance: float,
) -> np.ndarray:
    """The last ELBO of documents that may sweep once, twice, ..., shape (sweeps, documents)."""
    return np.array(
        [
            infer(
                *documents.csr,
                parameters,
                spec=FitSpec(
                    n_topics=parameters.n_topics,
                    response_weight=rho,
                    granularity=granularity,
                    max_sweeps=n,
                    sweep_tol=tolerance,
                ),
                y=documents.y,
                family=family,
                extras=extras,
            ).elbo
            for n in range(1, MOST_SWEEPS)
        ]
    )


def assert_rises(elbo: np.ndarray) -> None:
    assert np.all(np.diff(elbo, axis=0) >= -1e-9 * np.abs(elbo[:-1]))


@pytest.mark.parametrize("name", ONE_PREDICTOR)
def test_the_compiled_sweeps(name: str) -> None:
    family = get_family(name)
    for seed in range(12):
        documents, extras, parameters, rng = short_documents(family, seed)
        elbo = elbo_by_sweeps(
            documents,
            extras,
            parameters,
            family,
            rho=float(rng.choice([1.0, 3.0, 10.0])),
            granularity=str(rng.choice(["term", "token"])),
            tolerance=float(rng.choice([0.0, 1e-4])),
        )
        assert_rises(elbo)


@pytest.mark.parametrize("name", ONE_PREDICTOR)
def test_the_readable_sweeps(name: str) -> None:
    family = get_family(name)
    documents, extras, parameters, rng = short_documents(family, 1)
    for d in range(8):
        terms, counts, y = documents.document(d)
        _, trace = one_predictor.update_until_converged(
            one_predictor.cold_start(terms, counts, parameters, granularity="term"),
            parameters,
            ScalarResponse(family, y, rho=float(rng.choice([1.0, 10.0])), aux=float(extras[d, 1])),
            tol=0.0,
            max_sweeps=MOST_SWEEPS,
        )
        assert_rises(np.array(trace))


@pytest.mark.parametrize("tolerance", [0.0, 1e-4])
@pytest.mark.parametrize("form", ["bound", "delta"])
def test_the_sweeps_of_classes(form: str, tolerance: float) -> None:
    family = get_family("categorical", {"n_classes": 3, "form": form})
    for seed in range(8):
        documents, extras, _, rng = short_documents(family, seed)
        parameters = class_parameters(rng, N_TERMS, 4, 3, scale=float(rng.choice([1.0, 4.0, 10.0])))
        rho = float(rng.choice([1.0, 3.0, 10.0]))
        elbo = elbo_by_sweeps(
            documents, extras, parameters, family, rho=rho, granularity="term", tolerance=tolerance
        )
        assert_rises(elbo)
        for d in range(4):
            terms, counts, y = documents.document(d)
            _, trace, _ = class_predictors.ascend(
                terms, counts, parameters, ClassResponse(y, form, rho), tol=tolerance, max_sweeps=MOST_SWEEPS
            )
            assert_rises(np.array(trace))
