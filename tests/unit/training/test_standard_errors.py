"""Standard errors of coefficients, beside those of a regression on the documents' topic shares."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose
from scipy import sparse
from scipy.special import softmax

from dslda.array_inputs import matrix_block
from dslda.datasets import simulate_corpus
from dslda.engine.data.training_view import TrainingBlock
from dslda.engine.passes import EStepPass
from dslda.families.categorical import Categorical
from dslda.model import Model
from dslda.training import fitting
from dslda.training.train import train
from dslda.variational.estep import e_step, infer
from dslda.variational.parameter_parts import ParameterParts
from tests.unit.training.test_response import SAMPLERS

K, V, D = 3, 40, 500


def drawn(sampler: Any = None) -> tuple[sparse.csr_array, np.ndarray]:
    """Documents so long that the topics of their words are almost certain, and their responses."""
    keyword = {} if sampler is None else {"sample_response": sampler}
    block = simulate_corpus(D, K, V, mean_tokens=250, seed=3, **keyword).block
    return sparse.csr_array((block.counts, block.terms, block.indptr), shape=(D, V)), block.responses["y"]


def topic_shares(model: Model, counts: sparse.csr_array, y: np.ndarray, **extras: Any) -> np.ndarray:
    """phibar of the training documents, shape (D, K)."""
    block, parameters = matrix_block(counts), model.record.parameters
    found = infer(
        block.indptr,
        block.terms,
        block.counts,
        parameters,
        spec=model.spec,
        y=y,
        family=model.family,
        **extras,
    )
    return (found.gamma - parameters.alpha) / found.n_known_tokens[:, np.newaxis]


@pytest.mark.parametrize("family", [name for name in SAMPLERS if name != "categorical"])
def test_errors_are_those_of_the_observed_information_of_the_topic_shares(family: str) -> None:
    counts, y = drawn(SAMPLERS[family])
    model = train(counts, response=y, family=family, n_topics=K, ridge=0.0, tol=1e-5, max_iter=200)
    record = model.record
    scaled, parameters = record.scaling.to_model(y), record.parameters
    shares = topic_shares(model, counts, scaled)
    second = model.family.second_derivative
    curvature = [
        -second(r, o, parameters.delta, 1.0) for r, o in zip(scaled, shares @ parameters.eta, strict=True)
    ]
    inverse = np.linalg.inv(shares.T @ (np.array(curvature)[:, np.newaxis] * shares))
    assert_allclose(np.diagonal(record.covariance), np.diagonal(inverse), rtol=0.1)


@pytest.mark.parametrize("form", ["bound", "delta"])
def test_errors_of_classes_are_those_of_a_multinomial_logit_on_the_topic_shares(form: str) -> None:
    """With a covariate and weights; statsmodels knows neither weights nor coefficients that sum to 0."""
    counts, _ = drawn()
    generator = np.random.default_rng(0)
    plain = train(counts, response=generator.normal(size=D), n_topics=K, tol=1e-3)
    age, weight = generator.normal(40.0, 9.0, D), generator.integers(1, 3, D)
    # far apart, so that most documents are almost certainly of one class
    omega = plain.transform(counts) @ np.column_stack([6.0 * np.eye(K), np.full(K, 2.0)])
    omega[:, 1] += 0.1 * (age - 40.0)
    y = np.array([generator.choice(4, p=p) for p in softmax(omega, axis=1)], dtype=np.float64)
    family = Categorical(4, form=form)
    model = train(
        counts,
        response=y,
        covariates={"age": age},
        weight=weight,
        family=family,
        n_topics=K,
        ridge=0.0,
        tol=1e-8,
        max_iter=1000,
    )
    (column,) = model.record.design.covariates
    x = column.of(age)
    extras = np.column_stack([np.zeros(D), np.ones(D), weight, np.ones(D), x])
    X = np.column_stack([topic_shares(model, counts, y, extras=extras), x])
    rows = np.repeat(np.arange(D), weight)
    other = sm.MNLogit(y[rows], X[rows]).fit(disp=False, maxiter=200)
    covariance = np.asarray(other.cov_params()).reshape(3, K + 1, 3, K + 1)
    # statsmodels' coefficients of class 0 are 0
    centring = np.vstack([np.zeros(3), np.eye(3)]) - 0.25
    expected = np.sqrt(np.einsum("ca,aibi,cb->ic", centring, covariance, centring))
    found = np.sqrt(np.diagonal(model.record.covariance, axis1=1, axis2=2).T)
    assert_allclose(found, expected, rtol=0.1)
    assert abs(np.median(found / expected) - 1.0) < 0.05
    for c, name in enumerate(model.classes):
        for row in model.class_topics(top=None)[name]:
            assert row.conditional_error == found[row.topic, c]


def test_two_classes_have_half_the_errors_of_a_binomial() -> None:
    counts, y = drawn(SAMPLERS["binomial"])
    settings = {"n_topics": 1, "ridge": 0.0, "tol": 1e-12, "max_iter": 200}
    (one,) = train(counts, response=y, family="binomial", **settings).coefficients()
    model = train(counts, response=y, family="categorical", **settings)
    (other,) = model.coefficients()
    assert other.conditional_error == pytest.approx(one.conditional_error / 2.0, rel=1e-4)


def test_the_information_of_all_classes_adds_up_over_partitions() -> None:
    counts, _ = drawn()
    block, y = matrix_block(counts), np.where(np.arange(D) % 7 == 0, np.nan, np.arange(D) % 3)
    model = train(counts, response=y, family="categorical", n_topics=K, tol=1e-3)
    parameters, settings = model.record.parameters, {"family": model.family, "spec": model.spec}
    whole = e_step(block.indptr, block.terms, block.counts, y, parameters, joint=True, **settings)
    half = D // 2
    parts = [
        EStepPass(joint=True)(
            TrainingBlock(rows.indptr, rows.terms, rows.counts, of_rows),
            ParameterParts([parameters]),
            **settings,
        )
        for rows, of_rows in ((block.rows(0, half), y[:half]), (block.rows(half, D), y[half:]))
    ]
    assert_allclose(parts[0].add(parts[1]).joint_information, whole.joint_information, rtol=1e-9, atol=1e-9)
    # a part common to all classes changes no probability
    joint = whole.joint_information.reshape(3, K, 3, K)
    assert_allclose(joint.sum(axis=2), 0.0, atol=1e-9)
    assert (
        e_step(block.indptr, block.terms, block.counts, y, parameters, **settings).joint_information.size == 0
    )


def test_too_many_coefficients_of_classes_have_no_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    counts, y = drawn(SAMPLERS["categorical"])
    monkeypatch.setattr(fitting, "MOST_JOINT", 3 * K - 1)
    model = train(counts, response=y, family="categorical", n_topics=K, tol=1e-2)
    assert model.record.covariance is None
    assert all(np.isnan(row.conditional_error) for row in model.coefficients())
