"""Conformance tests of response families, for users to inherit. Running them needs pytest.

::

    class TestExponential(FamilyTests):
        family = Exponential()
        responses = [0.01, 0.5, 3.0, 200.0]
        refused = [0.0, -1.0, math.nan]

        def sample(self, omega, delta, aux, generator):
            return generator.exponential(np.exp(omega))

Every test of :class:`FamilyTests` then runs for that family, as it does for the families of dslda.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy import optimize

from dslda.datasets.simulate import simulate_corpus
from dslda.families.base import FUNCTIONS, Array, Family, ResponseMoments
from dslda.variational.design import AUX, OFFSET
from dslda.variational.estep import e_step, infer, neutral_extras
from dslda.variational.mstep import m_step, objective
from dslda.variational.oracle import one_predictor
from dslda.variational.oracle.one_predictor import DocumentState, ScalarResponse
from dslda.variational.parameters import FitSpec, Parameters, initial_parameters
from dslda.variational.statistics import SufficientStatistics

__all__ = ["FamilyTests", "moments_of"]

_N_TERMS = 12


def moments_of(y: Sequence[float] | Array) -> ResponseMoments:
    """Moments of the responses that are not missing (NaN)."""
    values = np.asarray(y, dtype=np.float64)
    values = values[~np.isnan(values)]
    return ResponseMoments(
        len(values), float(values.mean()), float(values.var()), float(values.min()), float(values.max())
    )


class FamilyTests:
    """Conformance suite of a response family: subclass it as ``class TestMine(FamilyTests)``.

    Attributes
    ----------
    family : Family
        An instance.
    responses : sequence of float
        At least two different values inside the domain, in the user's units, with the smallest and largest that occur.
    refused : sequence of float
        Values outside the domain.
    auxiliary : sequence of float
        Values of aux to test; with trials, none below the largest response. Default 1.
    deltas : sequence of sequence of float
        Values of delta to test; by default the family's start. The first is that of the simulated corpus.
    coefficients : sequence of float
        True coefficients of the simulated corpus: at most four, well apart.
    tolerance : float
        Largest error of a coefficient estimated from the 800 documents of the simulated corpus.
    """

    family: ClassVar[Family]
    responses: ClassVar[Sequence[float]]
    refused: ClassVar[Sequence[float]] = ()
    auxiliary: ClassVar[Sequence[float]] = (1.0,)
    deltas: ClassVar[Sequence[Sequence[float]]] = ()
    coefficients: ClassVar[Sequence[float]] = (-1.5, 0.0, 1.5)
    tolerance: ClassVar[float] = 0.3

    def sample(self, omega: Array, delta: Array, aux: float, generator: np.random.Generator) -> Array:
        """Draw a response for each omega, by other means than the family's own functions."""
        raise NotImplementedError(
            "a subclass of FamilyTests must define sample(omega, delta, aux, generator)"
        )

    # ---- the scalar functions -------------------------------------------------------------------

    def test_each_derivative_is_the_slope_of_the_one_before(self) -> None:
        functions = self._functions()[:4]
        h = 1e-3
        for y, delta, aux in self._cases():
            for omega in (-2.0, -0.3, 0.1, 1.7):
                for function, derivative in pairwise(functions):
                    a, b, c, d = (function(y, omega + step * h, delta, aux) for step in (-2, -1, 1, 2))
                    slope = (a - 8 * b + 8 * c - d) / (12 * h)
                    rounding = 1e-15 * max(abs(a), abs(d), 1.0) / h
                    assert_allclose(
                        derivative(y, omega, delta, aux),
                        slope,
                        rtol=1e-6,
                        atol=1e-8 + 10 * rounding,
                        err_msg=f"{y=} {omega=}",
                    )

    def test_functions_stay_finite_at_the_extremes_of_omega(self) -> None:
        for y, delta, aux in self._cases():
            for omega in (-700.0, -300.0, -40.0, 40.0, 300.0, 700.0):
                values = [function(y, omega, delta, aux) for function in self._functions()]
                assert np.all(np.isfinite(values)), (y, omega, delta, values)

    def test_information_weight_is_never_negative(self) -> None:
        for y, delta, aux in self._cases():
            for omega in (-700.0, -3.0, 0.0, 3.0, 700.0):
                assert self.family.information_weight(y, omega, delta, aux) >= 0.0

    def test_information_weight_bounds_the_expected_curvature(self) -> None:
        for y, (omega, delta, aux) in self._draws(20_000):
            surplus = [
                self.family.information_weight(value, omega, delta, aux)
                + self.family.second_derivative(value, omega, delta, aux)
                for value in y
            ]
            assert np.mean(surplus) >= -6.0 * _standard_error(surplus) - 1e-12

    def test_likelihood_is_that_of_the_samples(self) -> None:
        """Bartlett's identities E[l1] = 0 and E[l1^2] = -E[l2] hold for the true density and no other."""
        for y, (omega, delta, aux) in self._draws(20_000):
            first = np.array([self.family.first_derivative(value, omega, delta, aux) for value in y])
            second = np.array([self.family.second_derivative(value, omega, delta, aux) for value in y])
            assert abs(first.mean()) <= 6.0 * _standard_error(first) + 1e-12
            both = first**2 + second
            assert abs(both.mean()) <= 6.0 * _standard_error(both) + 1e-12

    # ---- domain, units, options -----------------------------------------------------------------

    def test_domain_accepts_the_responses_and_refuses_the_others(self) -> None:
        inside, outside = (np.array(values, dtype=np.float64) for values in (self.responses, self.refused))
        aux = np.full(len(inside), max(self.auxiliary))
        assert self.family.check(inside, aux).all()
        outside = outside[~np.isnan(outside)]
        assert not self.family.check(outside, np.full(len(outside), max(self.auxiliary))).any()
        assert self.family.check(np.array([math.nan]), np.ones(1)).all()
        assert not self.family.domain.contains(np.array([math.nan, math.inf, -math.inf])).any()

    def test_scaling_follows_the_units_of_the_response(self) -> None:
        y = np.array(self.responses, dtype=np.float64)
        center, scale = self.family.scaling(moments_of(y))
        assert math.isfinite(center)
        assert 0.0 < scale < math.inf
        if scale != 1.0:
            assert_allclose(self.family.scaling(moments_of(1000.0 * y)), [1000.0 * center, 1000.0 * scale])

    def test_start_is_finite(self) -> None:
        for y in (self.responses, [self.responses[0]] * 3, self.responses[-1:]):
            middle, spread, delta = self.family.start(self._scaled_moments(y))
            assert math.isfinite(middle)
            assert 0.0 < spread < math.inf
            assert np.all(np.isfinite(delta))

    def test_options_come_back(self) -> None:
        restored = type(self.family).from_options(self.family.options)
        assert restored.options == self.family.options
        assert type(restored) is type(self.family)

    def test_pickled_family_gives_the_same_values(self) -> None:
        import cloudpickle

        restored = cloudpickle.loads(cloudpickle.dumps(self.family))
        for y, delta, aux in self._cases():
            old, new = (f.log_likelihood(y, 0.3, delta, aux) for f in (self.family, restored))
            assert old == new

    # ---- the mean -------------------------------------------------------------------------------

    def test_mean_is_that_of_the_samples(self) -> None:
        for y, (omega, delta, aux) in self._draws(20_000):
            trials = aux if self.family.auxiliary == "trials" else 1.0
            expected = trials * self.family.mean(np.array([omega]), np.zeros(1), delta)[0]
            assert abs(y.mean() - expected) <= 6.0 * _standard_error(y) + 1e-12

    def test_mean_stays_finite_and_in_range(self) -> None:
        m, v = (a.ravel() for a in np.meshgrid([-700.0, -20.0, -1.0, 0.0, 2.0, 700.0], [0.0, 0.1, 25.0]))
        low, high = self.family.domain.low, self.family.domain.high
        if self.family.auxiliary == "trials":
            high = 1.0
        for delta in self._deltas():
            with np.errstate(all="raise", under="ignore"):
                mean = self.family.mean(m, v, delta)
            assert mean.shape == m.shape
            assert np.all(np.isfinite(mean))
            assert np.all((mean >= low) & (mean <= high + 1e-12))

    def test_mean_accounts_for_the_variance_of_omega(self) -> None:
        """Compare with all assignments of topics to the tokens of a short document."""
        generator = np.random.default_rng(3)
        n, eta = 6, np.array([-1.5, 0.4, 1.2])
        phi = generator.dirichlet(np.ones(3), n)
        z = np.stack(np.meshgrid(*[np.arange(3)] * n, indexing="ij"), axis=-1).reshape(-1, n)
        probability = phi[np.arange(n), z].prod(axis=1)
        omega = eta[z].mean(axis=1)
        m = probability @ omega
        v = probability @ (omega - m) ** 2
        for delta in self._deltas():
            exact = probability @ self.family.mean(omega, np.zeros(len(omega)), delta)
            approximate, plain = (self.family.mean(np.array([m]), np.array([x]), delta)[0] for x in (v, 0.0))
            error = abs(approximate - exact)
            assert error <= max(0.2 * abs(plain - exact), 1e-3 * abs(exact))

    # ---- inside the model -----------------------------------------------------------------------

    def test_score_is_the_derivative_of_the_elbo(self) -> None:
        documents, parameters = self._documents(seed=1)
        h = 1e-5
        for state, response in documents:
            score, _ = one_predictor.document_statistics(state, parameters, response)
            for k, move in enumerate(h * np.eye(parameters.n_topics)):
                up, down = (
                    one_predictor.document_elbo(
                        state, replace(parameters, eta=parameters.eta + sign * move), response
                    )
                    for sign in (1.0, -1.0)
                )
                assert_allclose(
                    score[k], (up - down) / (2 * h), rtol=1e-5, atol=1e-5 * max(1.0, abs(score).max())
                )

    def test_compiled_e_step_equals_the_readable_one(self) -> None:
        for granularity in ("term", "token"):
            documents, parameters = self._documents(seed=2, granularity=granularity)
            n_sweeps = 2
            indptr, terms, counts = self._csr(2)
            extras = neutral_extras(len(documents), 0)
            extras[:, OFFSET] = [response.offset for _, response in documents]
            extras[:, AUX] = [response.aux for _, response in documents]
            posterior = infer(
                indptr,
                terms,
                counts,
                parameters,
                spec=FitSpec(n_topics=3, granularity=granularity, max_sweeps=n_sweeps, sweep_tol=0.0),
                y=np.array([response.y for _, response in documents]),
                family=self.family,
                extras=extras,
            )
            states = self._cold_starts(2, len(documents), parameters, granularity)
            for d, (state, (_, response)) in enumerate(zip(states, documents, strict=True)):
                for _ in range(n_sweeps):
                    state = one_predictor.sweep(state, parameters, response)
                assert_allclose(posterior.gamma[d], state.gamma, rtol=1e-6, atol=1e-6)
                elbo = one_predictor.document_elbo(state, parameters, response)
                assert_allclose(posterior.elbo[d], elbo, rtol=1e-6, atol=1e-6)

    def test_no_m_step_lowers_the_objective(self) -> None:
        """Keep phi fixed; coefficients and delta move together."""
        for seed in range(4):
            documents, parameters = self._documents(seed=10 + seed, n_documents=40, offset=0.0)
            spec = FitSpec(n_topics=3)
            trace = []
            for _ in range(25):
                statistics = self._statistics(documents, parameters)
                trace.append(objective(statistics, parameters, family=self.family, spec=spec))
                with np.errstate(all="raise", under="ignore"):
                    moved = m_step(parameters, statistics, family=self.family, spec=spec)
                parameters = replace(moved, topics=parameters.topics)
                assert np.all(np.isfinite(parameters.eta))
                assert np.all(np.isfinite(parameters.delta))
            assert np.all(np.diff(trace) >= -1e-8 * np.abs(trace[1:])), (seed, np.diff(trace))

    def test_coefficients_of_a_simulated_corpus_are_recovered(self) -> None:
        eta = np.array(self.coefficients, dtype=np.float64)
        delta, aux = self._deltas()[0], max(self.auxiliary)
        drawn = simulate_corpus(
            800,
            len(eta),
            100,
            mean_tokens=80,
            eta=eta,
            seed=4,
            sample_response=lambda omega, generator: self.sample(omega, delta, aux, generator),
        )
        moments = moments_of(drawn.y / self._trials())
        center, scale = self.family.scaling(moments)
        y = (drawn.y - center) / scale
        extras = neutral_extras(len(y), 0)
        extras[:, AUX] = aux
        spec = FitSpec(n_topics=len(eta))
        parameters = initial_parameters(
            100, spec=spec, family=self.family, moments=moments.scaled(center, scale)
        )
        block = drawn.block
        for _ in range(40):
            statistics = e_step(
                block.indptr,
                block.terms,
                block.counts,
                y,
                parameters,
                family=self.family,
                spec=spec,
                extras=extras,
            )
            parameters = m_step(parameters, statistics, family=self.family, spec=spec)
        distance = np.abs(drawn.topics[:, np.newaxis] - parameters.topics.T).sum(axis=2)
        _, order = optimize.linear_sum_assignment(distance)
        estimate = self.family.coefficients_to_user(parameters.eta[order], center, scale)
        assert np.abs(estimate - eta).max() < self.tolerance, (estimate, parameters.delta)

    # ---- helpers --------------------------------------------------------------------------------

    def _functions(self) -> list[Callable[..., float]]:
        return [getattr(self.family, name) for name in FUNCTIONS]

    def _trials(self) -> float:
        return max(self.auxiliary) if self.family.auxiliary == "trials" else 1.0

    def _scaling(self) -> tuple[float, float]:
        return self.family.scaling(moments_of(np.asarray(self.responses) / self._trials()))

    def _scaled_moments(self, y: Sequence[float]) -> ResponseMoments:
        # y may be one value: units and delta's length are those of all responses
        return moments_of(np.asarray(y) / self._trials()).scaled(*self._scaling())

    def _deltas(self) -> list[Array]:
        if self.deltas:
            return [np.array(delta, dtype=np.float64) for delta in self.deltas]
        return [self.family.start(self._scaled_moments(self.responses))[2]]

    def _scaled_responses(self) -> Array:
        center, scale = self._scaling()
        return (np.array(self.responses, dtype=np.float64) - center) / scale

    def _cases(self) -> list[tuple[float, Array, float]]:
        return [
            (y, d, aux) for y in self._scaled_responses() for d in self._deltas() for aux in self.auxiliary
        ]

    def _draws(self, n: int) -> list[tuple[Array, tuple[float, Array, float]]]:
        generator = np.random.default_rng(0)
        # a duration that was cut off is not a draw from the density
        auxiliary = self.auxiliary if self.family.auxiliary != "event" else (1.0,)
        cases = [(omega, d, aux) for omega in (-1.0, 0.6) for d in self._deltas() for aux in auxiliary]
        return [
            (np.asarray(self.sample(np.full(n, omega), d, aux, generator), dtype=np.float64), (omega, d, aux))
            for omega, d, aux in cases
        ]

    def _csr(self, seed: int, n: int = 8) -> tuple[NDArray[np.int64], NDArray[Any], NDArray[Any]]:
        generator = np.random.default_rng(seed)
        sizes = generator.integers(1, 6, n)
        terms = [np.sort(generator.choice(_N_TERMS, size, replace=False)) for size in sizes]
        return (
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate(terms).astype(np.int32),
            generator.integers(1, 4, int(sizes.sum())).astype(np.int32),
        )

    def _cold_starts(
        self, seed: int, n: int, parameters: Parameters, granularity: str
    ) -> list[DocumentState]:
        indptr, terms, counts = self._csr(seed, n)
        terms, counts = terms.astype(np.int64), counts.astype(np.int64)
        return [
            one_predictor.cold_start(terms[i:j], counts[i:j], parameters, granularity=granularity)
            for i, j in pairwise(indptr)
        ]

    def _documents(
        self, *, seed: int, n_documents: int = 8, granularity: str = "token", offset: float = 0.2
    ) -> tuple[list[tuple[DocumentState, ScalarResponse]], Parameters]:
        """Documents with random phi, responses drawn at moderate omega, and parameters other than the true ones."""
        generator = np.random.default_rng(seed)
        topics = generator.gamma(0.5, 1.0, (_N_TERMS, 3)) + 1e-3
        aux = generator.choice(np.array(self.auxiliary, dtype=np.float64), n_documents)
        delta = self._deltas()[-1]
        parameters = Parameters(
            topics / topics.sum(axis=0), np.full(3, 0.5), np.array([-0.4, 0.1, 0.5]), delta
        )
        states = self._cold_starts(seed, n_documents, parameters, granularity)
        for state in states:
            state.phi = generator.dirichlet(np.full(3, 0.5), len(state.phi))
        truth = np.array(self.coefficients, dtype=np.float64)[[0, -1, 0]]
        documents = []
        for state, aux_d in zip(states, aux.tolist(), strict=True):
            omega = np.array([state.copies @ (state.phi @ truth) / state.length])
            y = float(self.sample(omega, delta, aux_d, generator)[0])
            documents.append((state, ScalarResponse(self.family, y, offset=offset, aux=aux_d)))
        return documents, parameters

    def _statistics(
        self, documents: Sequence[tuple[DocumentState, ScalarResponse]], parameters: Parameters
    ) -> SufficientStatistics:
        deltas = self.family.delta_probes(parameters.delta)
        sums = SufficientStatistics.zeros(_N_TERMS, parameters.n_topics, n_probes=len(deltas))
        for state, response in documents:
            score, information = one_predictor.document_statistics(state, parameters, response)
            sums.score += score
            sums.information += information
            curvature, bound = one_predictor.curvatures(state, parameters, response)
            sums.curvature += curvature
            sums.curvature_bound += bound
            sums.elbo += one_predictor.document_elbo(state, parameters, response)
            sums.profile += [
                one_predictor.expected_log_likelihood(state, parameters.eta, delta, response)
                for delta in deltas
            ]
            sums.labelled_weight += 1.0
            sums.topic_counts += 1.0
        return sums


def _standard_error(values: Sequence[float] | Array) -> float:
    return float(np.std(values)) / math.sqrt(len(values))
