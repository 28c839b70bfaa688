"""The response of classes as a whole: against the binomial one, on corpora drawn from it, and at its limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import special
from scipy.optimize import linear_sum_assignment

from dslda.exceptions import InputError
from dslda.families.base import STANDARDISED, Family
from dslda.families.binomial import Binomial
from dslda.families.categorical import Categorical
from dslda.variational.estep import e_step, infer
from dslda.variational.mstep import m_step
from dslda.variational.parameters import FitSpec, Parameters, initial_parameters
from tests.helpers.class_problems import centred, simulated_classes
from tests.helpers.errors import refused
from tests.helpers.problems import Documents, fit_in_a_loop

FORMS = pytest.mark.parametrize("form", ["bound", "delta"])


def probabilities(documents: Documents, parameters: Parameters, family: Family, spec: FitSpec) -> np.ndarray:
    """Of the classes, the response left out."""
    posterior = infer(*documents.csr, parameters, spec=spec, family=family)
    return family.probabilities(posterior.mean, posterior.variance, parameters.delta)


@FORMS
def test_two_classes_are_a_binomial_response(form: str) -> None:
    """Coefficients of the second class are half the binomial's, around their mean; so the same prior is twice as strong."""
    _, documents = simulated_classes(
        np.array([[2.0, -2.0], [-2.0, 2.0], [0.0, 0.5]]), 250, 60, seed=1, mean_tokens=300
    )
    train, test = documents.take(range(200)), documents.take(range(200, 250))
    found = {}
    for family, ridge in ((Categorical(2, form), 0.2), (Binomial(), 0.1)):
        spec = FitSpec(n_topics=3, ridge=ridge, sweep_tol=1e-6)
        parameters = initial_parameters(60, spec=spec, family=family, moments=STANDARDISED)
        eta = np.array([1.0, -1.0, 0.2])
        eta = np.column_stack([-eta, eta]) / 2 if parameters.n_classes else eta
        parameters = replace(parameters, eta=eta)
        for _ in range(40):
            statistics = e_step(*train.arrays, parameters, family=family, spec=spec)
            parameters = m_step(parameters, statistics, family=family, spec=spec)
        found[family.name] = parameters, probabilities(test, parameters, family, spec)
    (classes, p), (binomial, q) = found["categorical"], found["binomial"]
    assert_allclose(np.diff(classes.eta)[:, 0], binomial.eta, atol=0.1)
    assert_allclose(classes.topics, binomial.topics, atol=0.005)
    assert_allclose(p, q, atol=0.02)


@FORMS
def test_coefficients_of_a_simulated_corpus_are_recovered(form: str) -> None:
    truth = centred(np.array([[3.0, 0.0, -1.0], [-2.0, 2.0, 0.0], [0.0, -3.0, 3.0]]))
    drawn, documents = simulated_classes(truth, 1500, 100, seed=2, mean_tokens=80)
    family, spec = Categorical(3, form), FitSpec(n_topics=3, max_iter=60)
    train, test = documents.take(range(1200)), documents.take(range(1200, 1500))
    parameters, _ = fit_in_a_loop(train, 100, family=family, spec=spec)
    distance = 0.5 * np.abs(drawn.topics[:, np.newaxis] - parameters.topics.T).sum(axis=2)
    _, found = linear_sum_assignment(distance)
    assert np.abs(centred(parameters.eta)[found] - truth).max() < 0.4
    p = probabilities(test, parameters, family, spec)
    best = special.softmax(drawn.topic_shares[1200:] @ truth, axis=1)
    assert np.abs(p - best).mean() < 0.05
    y = test.y.astype(int)
    assert (p.argmax(axis=1) == y).mean() > (best.argmax(axis=1) == y).mean() - 0.03


@FORMS
def test_separable_classes_stay_finite_with_the_default_ridge(form: str) -> None:
    _, documents = simulated_classes(200.0 * np.eye(3), 120, 60, seed=3)
    family = Categorical(3, form)
    spec = FitSpec(n_topics=3, max_iter=150, tol=0.0)
    with np.errstate(all="raise", under="ignore"):
        parameters, trace = fit_in_a_loop(documents, 60, family=family, spec=spec)
        p = probabilities(documents, parameters, family, spec)
    assert np.abs(parameters.eta).max() < 50.0
    assert np.all(np.isfinite(trace))
    assert (p.argmax(axis=1) == documents.y).mean() > 0.95


@FORMS
def test_a_class_without_documents_gets_next_to_no_probability(form: str) -> None:
    _, documents = simulated_classes(np.array([[2.0, -2.0], [-2.0, 2.0]]), 120, 60, seed=4)
    family, spec = Categorical(4, form), FitSpec(n_topics=2, max_iter=60, tol=0.0)
    with np.errstate(all="raise", under="ignore"):
        parameters, _ = fit_in_a_loop(documents, 60, family=family, spec=spec)
    p = probabilities(documents, parameters, family, spec)
    assert p[:, 2:].max() < 1e-3
    assert np.isfinite(parameters.eta).all()


def test_probabilities_are_the_softmax_whatever_the_size_of_predictors() -> None:
    m = np.array([[0.0, 0.0], [800.0, -800.0], [1e4, 1e4 + 1.0], [-1e4, -1e4]])
    p = Categorical(2).mean(m, np.zeros(4), np.zeros(0))
    assert_allclose(p, special.softmax(m, axis=1))
    assert_allclose(p.sum(axis=1), 1.0)


@pytest.mark.parametrize(("n_topics", "n_classes"), [(1, 2), (2, 5), (5, 2), (4, 4), (60, 20)])
def test_every_class_starts_with_a_topic_and_every_topic_with_a_class(n_topics: int, n_classes: int) -> None:
    eta, delta = Categorical(n_classes).initial_coefficients(n_topics, STANDARDISED)
    assert eta.shape == (n_topics, n_classes)
    assert delta.shape == (0,)
    assert_allclose(eta.sum(axis=1), 0.0, atol=1e-12)
    if n_topics > 1:
        assert np.all(eta.max(axis=0) > 0)


@pytest.mark.parametrize("n_classes", [1, 0, -2, 2.0, "3", True, None])
def test_classes_are_counted(n_classes: object) -> None:
    with refused("n_classes"):
        Categorical(n_classes)


@pytest.mark.parametrize("form", ["jensen", "", None])
def test_the_form_is_one_of_two(form: object) -> None:
    with refused("form"):
        Categorical(3, form)


def test_codes_are_the_domain_and_options_come_back() -> None:
    family = Categorical(3, "delta")
    assert family.check(np.array([0.0, 1.0, 2.0, np.nan]), None).all()
    assert not family.check(np.array([-1.0, 3.0, 0.5, np.inf]), None).any()
    assert Categorical.from_options(family.options) == family
    with pytest.raises(InputError, match="no options"):
        Categorical.from_options({"link": "probit"})
