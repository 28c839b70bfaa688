"""The Pearson dispersion: of counts beside a quasi-Poisson regression, in models, on the command line."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from numpy.testing import assert_allclose
from scipy import sparse, special

from dslda.cli.program import run
from dslda.datasets import simulate_corpus
from dslda.exceptions import DataWarning
from dslda.families.base import Family
from dslda.families.binomial import Binomial
from dslda.families.negative_binomial import NegativeBinomial
from dslda.families.poisson import Poisson
from dslda.model import Model, load_model
from dslda.training.train import train
from dslda.variational.estep import e_step, infer, neutral_extras
from dslda.variational.mstep import m_step
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics
from tests.helpers.errors import refused
from tests.helpers.problems import Documents, documents_of

N = 300
SPEC = FitSpec(n_topics=3, ridge=0.0, topic_prior=0.0)


def known(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Counts of three terms of one topic each, so that zbar is known, and a covariate."""
    counts = rng.integers(0, 4, (N, 3))
    counts[:, 0] += 1
    return counts, rng.normal(size=N)


def of_counts(counts: np.ndarray, y: np.ndarray) -> Documents:
    return documents_of(
        [(np.flatnonzero(row), row[row > 0], y_d) for row, y_d in zip(counts, y, strict=True)]
    )


def fitted(
    documents: Documents, extras: np.ndarray, family: Family
) -> tuple[Parameters, SufficientStatistics]:
    parameters = Parameters(np.eye(3), np.full(3, 0.5), np.zeros(3), np.ones(1), np.zeros(1))
    for _ in range(40):
        statistics = e_step(*documents.arrays, parameters, family=family, spec=SPEC, extras=extras)
        parameters = m_step(parameters, statistics, family=family, spec=SPEC)
    return parameters, statistics


@pytest.mark.parametrize("name", ["poisson", "binomial"])
def test_known_topics_give_the_dispersion_of_another_program(name: str) -> None:
    """With weights, an exposure or trials; a document without a word, and one without a response, say nothing of it."""
    rng = np.random.default_rng(3)
    counts, age = known(rng)
    zbar = counts / counts.sum(axis=1, keepdims=True)
    omega = zbar @ [0.2, 1.5, -1.0] + 0.3 * age + rng.normal(scale=0.8, size=N)
    weight = rng.integers(1, 4, N).astype(float)
    extras = neutral_extras(N, 1)
    extras[:, 2], extras[:, 4] = weight, age
    if name == "poisson":
        extras[:, 0] = np.log(rng.uniform(0.5, 3.0, N))
        y = rng.poisson(np.exp(omega + extras[:, 0])).astype(float)
        response, family, kind = y, Poisson(), sm.families.Poisson()
    else:
        extras[:, 1] = rng.integers(2, 9, N)
        y = rng.binomial(extras[:, 1].astype(int), special.expit(omega)).astype(float)
        # as shares: of two columns statsmodels (0.15) leaves the trials out of its X2
        response, family, kind = y / extras[:, 1], Binomial(), sm.families.Binomial()
    documents = of_counts(np.vstack([counts, [[0, 0, 0], [1, 2, 0]]]), np.append(y, [500.0, np.nan]))
    more = np.vstack([extras, neutral_extras(2, 1)])
    parameters, statistics = fitted(documents, more, family)
    design = np.column_stack([zbar, age])
    offset = extras[:, 0] if name == "poisson" else None
    glm = sm.GLM(response, design, family=kind, offset=offset, freq_weights=weight, var_weights=extras[:, 1])
    other = glm.fit(tol=1e-14, scale="X2")
    assert_allclose([*parameters.eta, *parameters.zeta], other.params, rtol=1e-6)
    freedom = statistics.pearson_weight - 4
    assert freedom == other.df_resid == weight.sum() - 4
    dispersion = statistics.pearson / freedom
    assert_allclose(dispersion, other.scale, rtol=1e-6)
    assert dispersion > 1.2
    errors = np.sqrt(dispersion * np.diag(np.linalg.inv(statistics.information)))
    assert_allclose(errors, other.bse, rtol=1e-6)


def test_the_mean_is_that_of_the_last_e_step_and_the_variance_the_family_s() -> None:
    rng = np.random.default_rng(5)
    block = simulate_corpus(60, 3, 30, mean_tokens=8, seed=2).block
    y = rng.negative_binomial(2, 0.4, 60).astype(float)
    y[::7] = np.nan
    topics = rng.dirichlet(np.ones(30), 3).T
    parameters = Parameters(
        np.ascontiguousarray(topics), np.full(3, 0.5), np.array([-1.0, 0.5, 2.0]), np.array([0.7])
    )
    for family in (Poisson(), NegativeBinomial()):
        arrays = block.indptr, block.terms, block.counts
        sums = e_step(*arrays, y, parameters, family=family, spec=SPEC)
        posterior = infer(*arrays, parameters, spec=SPEC, y=y, family=family)
        mu = np.exp(posterior.mean + 0.5 * posterior.variance)[~np.isnan(y)]
        scatter = mu if family.name == "poisson" else mu + 0.7 * mu**2
        assert sums.pearson_weight == len(mu)
        assert_allclose(sums.pearson, np.sum((y[~np.isnan(y)] - mu) ** 2 / scatter), rtol=1e-12)


def test_one_trial_and_real_responses_say_nothing() -> None:
    rng = np.random.default_rng(6)
    counts, _ = known(rng)
    documents = of_counts(counts, (rng.random(N) < 0.3).astype(float))
    parameters = Parameters(np.eye(3), np.full(3, 0.5), np.zeros(3), np.ones(1))
    extras = neutral_extras(N, 0)
    extras[:4, 1] = 5.0
    some = e_step(*documents.arrays, parameters, family=Binomial(), spec=SPEC, extras=extras)
    assert some.pearson_weight == 4.0
    assert e_step(*documents.arrays, parameters, family=Binomial(), spec=SPEC).pearson_weight == 0.0


def test_the_extremes_of_the_predictor_leave_a_number() -> None:
    documents = of_counts(np.eye(3, dtype=int), np.array([1e6, 0.0, 3.0]))
    for eta in ([-700.0, 700.0, 0.0], [-700.0, -700.0, -700.0], [700.0, 700.0, 700.0]):
        parameters = Parameters(np.eye(3), np.full(3, 0.5), np.array(eta), np.ones(1))
        for family in (Poisson(), NegativeBinomial()):
            sums = e_step(*documents.arrays, parameters, family=family, spec=SPEC)
            assert np.isfinite(sums.pearson)
            assert sums.pearson >= 0.0


# ---- models -----------------------------------------------------------------------------------------


def drawn(scatter: float) -> tuple[Any, np.ndarray]:
    """Counts of documents, and responses that scatter as a Poisson's (0) or with variance mu + scatter mu^2."""

    def sample(omega: np.ndarray, g: np.random.Generator) -> np.ndarray:
        mu = np.exp(omega + 1.0)
        return g.poisson(g.gamma(1.0 / scatter, scatter * mu) if scatter else mu).astype(float)

    block = simulate_corpus(
        400, 3, 40, mean_tokens=60, eta=[-0.5, 0.5, 1.5], seed=4, sample_response=sample
    ).block
    return sparse.csr_array((block.counts, block.terms, block.indptr), shape=(400, 40)), block.responses["y"]


def model_of(scatter: float, family: str | Family) -> Model:
    counts, y = drawn(scatter)
    return train(counts, response=y, family=family, n_topics=3, tol=1e-3)


@pytest.fixture(scope="module")
def scattered() -> Model:
    with pytest.warns(
        DataWarning,
        match=r"scatters [\d.]+ times as much as family poisson .*; take Poisson.*, or negative_binomial",
    ):
        return model_of(1.0, "poisson")


def test_counts_that_are_poisson_have_a_dispersion_of_about_one() -> None:
    model = model_of(0.0, "poisson")  # and no warning
    assert model.pearson_dispersion is not None
    assert 0.8 < model.pearson_dispersion < 1.15
    assert model.dispersion is None  # that of a Poisson is none


def test_counts_that_scatter_more_are_warned_of_unless_it_is_allowed_for(scattered: Model) -> None:
    assert scattered.pearson_dispersion is not None
    assert scattered.pearson_dispersion > 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        allowed = model_of(1.0, Poisson(dispersion="pearson"))
        negative_binomial = model_of(1.0, "negative_binomial")
    assert negative_binomial.pearson_dispersion is not None
    assert 0.7 < negative_binomial.pearson_dispersion < 1.3
    # estimates to the last bit, standard errors by the square root
    assert allowed.dispersion == allowed.pearson_dispersion == scattered.pearson_dispersion
    for one, other in zip(allowed.coefficients(), scattered.coefficients(), strict=True):
        assert one.coefficient == other.coefficient
        assert_allclose(
            one.conditional_error, other.conditional_error * np.sqrt(allowed.dispersion), rtol=1e-12
        )


def test_it_is_saved_and_an_earlier_model_says_that_it_lacks_it(
    scattered: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quasi = model_of(1.0, Poisson(dispersion="pearson"))
    loaded = load_model(quasi.save(tmp_path / "quasi.model"))
    assert loaded.family == Poisson(dispersion="pearson")
    assert loaded.dispersion == loaded.pearson_dispersion == quasi.pearson_dispersion
    assert loaded.coefficients() == quasi.coefficients()

    def told(command: str, model: Model, name: str) -> str:
        path = model.save(tmp_path / name, overwrite=True)
        assert run([command, path]) == 0
        return "".join(capsys.readouterr())

    assert f"Pearson dispersion:  {quasi.dispersion:.4g}\n" in told("info", quasi, "quasi.model")
    assert f"has it): {quasi.dispersion:.4g}; conditional errors allow" in told(
        "topics", quasi, "quasi.model"
    )
    assert f"has it): {quasi.dispersion:.4g}.\n" in told("topics", scattered, "plain.model")
    options = dataclasses.replace(scattered.spec, family_options={})
    earlier = Model(dataclasses.replace(scattered.record, pearson=None, spec=options))
    assert load_model(earlier.save(tmp_path / "earlier.model")).pearson_dispersion is None
    assert "Pearson dispersion:  not known, the model was made by an earlier release" in told(
        "info", earlier, "e.model"
    )


@pytest.mark.filterwarnings("ignore:.*have nearly the words")
def test_as_many_coefficients_as_documents_leave_it_unknown() -> None:
    counts, y = drawn(1.0)
    with pytest.warns(DataWarning, match="topics for 3 documents"):
        model = train(counts[:3], response=y[:3], family=Poisson(dispersion="pearson"), n_topics=4, tol=1e-3)
    assert model.dispersion is None
    assert np.isnan([c.conditional_error for c in model.coefficients()]).all()


@pytest.mark.parametrize("wrong", [2, "one", True, None])
def test_a_dispersion_that_there_is_not_is_refused(wrong: Any) -> None:
    with refused("dispersion"):
        Poisson(dispersion=wrong)
