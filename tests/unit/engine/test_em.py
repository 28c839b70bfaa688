"""EM's decisions, without documents, clocks or clusters."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable

import numpy as np
import pytest

from dslda.engine.driver import checkpoint_is_due
from dslda.engine.em import Decision, EMState, IterationRecord, remaining_iterations
from dslda.variational.parameters import FitSpec


def after(elbos: Iterable[float]) -> EMState:
    state = EMState()
    for elbo in elbos:
        state = state.advance(elbo, FitSpec())
    return state


def record(iteration: int, change: float) -> IterationRecord:
    return IterationRecord(
        iteration=iteration,
        elbo=-1.0,
        relative_change=change,
        sweeps_per_document=1.0,
        unconverged_documents=0,
        delta=1.0,
        publish_seconds=0.0,
        e_step_seconds=1.0,
        reduce_seconds=0.0,
        m_step_seconds=0.0,
        e_step_cpu_seconds=1.0,
        documents_per_second=1.0,
    )


def test_first_iteration_never_converges() -> None:
    state = after([-100.0])
    assert math.isnan(state.relative_change)
    assert state.decide(FitSpec(tol=1.0)) is Decision.CONTINUE


def test_change_is_relative_to_the_iteration_before() -> None:
    assert after([-100.0, -99.0]).relative_change == pytest.approx(0.01)
    # an ELBO that falls is a change as well
    assert after([-100.0, -101.0]).relative_change == pytest.approx(0.01)


def test_converges_when_two_changes_are_small_and_do_not_grow() -> None:
    spec = FitSpec(tol=1e-2, doc_topic_prior="1/K")
    assert after([-3.0, -2.0, -1.9, -1.89]).decide(spec) is Decision.CONTINUE
    assert after([-3.0, -2.0, -1.9, -1.89, -1.885]).decide(spec) is Decision.CONVERGED


def test_changes_that_were_never_large_must_have_fallen_to_a_tenth() -> None:
    spec = FitSpec(tol=1e-2, doc_topic_prior="1/K")
    assert after([-3.0, -2.0, -1.99, -1.985]).decide(spec) is Decision.CONTINUE
    assert after([-3.0, -2.0, -1.99, -1.985, -1.9841]).decide(spec) is Decision.CONVERGED


def test_nothing_to_learn_is_convergence() -> None:
    assert after([-3.0, -2.0, -2.0, -2.0]).decide(FitSpec(doc_topic_prior="1/K")) is Decision.CONVERGED


def test_alpha_is_estimated_once_the_topics_have_parted_and_then_em_must_settle_again() -> None:
    spec = FitSpec()
    elbos = [-3.0, -2.0, -1.95, -1.949, -1.9485]
    assert not after(elbos[:-1]).has_parted
    assert after(elbos).has_parted
    # a plateau after a large change: alpha has moved in one iteration of these only
    still = [*elbos, -1.9485, -1.9485]
    assert after(still[:-1]).decide(spec) is Decision.CONTINUE
    assert after(still).decide(spec) is Decision.CONVERGED
    # whatever comes later
    assert after([*elbos, -1.5, -1.2, -1.0]).has_parted
    # where the ELBO settles at a tolerance that is larger, or has no large change at all
    state = EMState()
    for elbo in (-3.0, -2.0, -1.9, -1.89, -1.885):
        state = state.advance(elbo, FitSpec(tol=1e-2))
    assert state.has_parted
    assert state.decide(FitSpec(tol=1e-2)) is Decision.CONTINUE
    # one topic has no alpha to estimate
    assert after([-3.0, -2.0, -2.0, -2.0]).decide(FitSpec(n_topics=1)) is Decision.CONVERGED


def test_does_not_stop_where_a_change_on_the_plateau_falls_by_chance() -> None:
    """1% of the movie reviews have a response, alpha = 1/K."""
    elbos = [-8214524.3, -7251346.262, -7251335.893, -7251326.324, -7251313.310, -7251297.818, -7251272.579]
    assert all(after(elbos[:n]).decide(FitSpec()) is Decision.CONTINUE for n in range(1, len(elbos) + 1))


def test_does_not_stop_on_the_plateau_that_em_starts_from() -> None:
    spec = FitSpec(tol=1e-2)
    leaving = [-100.0, -50.0, -49.99, -49.97, -49.9]
    assert all(after(leaving[:n]).decide(spec) is Decision.CONTINUE for n in range(1, len(leaving) + 1))


def test_stops_at_the_cap() -> None:
    spec = FitSpec(max_iter=3, tol=1e-9)
    assert after([-3.0, -2.0]).decide(spec) is Decision.CONTINUE
    assert after([-3.0, -2.0, -1.0]).decide(spec) is Decision.ITERATION_CAP


def test_stops_on_request() -> None:
    assert after([-3.0, -2.0]).decide(FitSpec(), stop_requested=True) is Decision.STOPPED


def test_an_elbo_of_zero_divides_nothing() -> None:
    assert after([0.0, 0.0]).relative_change == 0.0
    assert after([0.0, 1.0]).relative_change == math.inf


def test_remaining_iterations_follow_a_geometric_fall() -> None:
    # the first change is another matter
    trace = [record(1, math.nan), record(2, 0.1)] + [record(i, 10.0**-i) for i in range(3, 8)]
    # 1e-7 now, a factor of 10 each: 2e-10 is three iterations away, and two must be below it
    assert remaining_iterations(trace, FitSpec(tol=2e-10)) == 4
    assert remaining_iterations(trace[:6], FitSpec(tol=2e-10)) == 5
    # four changes are the least
    assert remaining_iterations(trace[:5], FitSpec(tol=2e-10)) is None


def test_remaining_iterations_do_not_jump_with_single_changes() -> None:
    """Clothing reviews, iterations 22 to 37: 3 s, 2 min, 26 s, 2 s, 1 min 43 s, 1 s were to go."""
    noise = [1.0, 0.7, 1.6, 0.9, 1.4, 0.6, 1.2, 1.5, 0.5, 1.3, 0.8, 1.7, 0.6, 1.1, 1.4, 0.7]
    changes = [3e-3 * 0.8**i * factor for i, factor in enumerate(noise)]
    trace = [record(1, math.nan), record(2, 0.1), *(record(i + 3, c) for i, c in enumerate(changes))]
    left = [remaining_iterations(trace[:n], FitSpec()) for n in range(10, len(trace) + 1)]
    known = [n for n in left if n is not None]
    assert len(known) == len(left)
    assert all(before - after in range(-3, 6) for before, after in itertools.pairwise(known)), known
    # 3e-3 0.8^15 is 1.06e-4 now
    assert known[-1] in range(1, 5)


@pytest.mark.parametrize("seed", range(4))
def test_remaining_iterations_do_not_swing_while_changes_fall_slowly(seed: int) -> None:
    """A line through ten changes that fall by 3% each, with noise, ends in five iterations one time, at the cap the next."""
    rng = np.random.default_rng(seed)
    changes = 1e-3 * 0.97 ** np.arange(75) * np.exp(0.4 * rng.standard_normal(75))
    trace = [record(1, math.nan), record(2, 0.1), *(record(i + 3, float(c)) for i, c in enumerate(changes))]
    left = [remaining_iterations(trace[:n], FitSpec(max_iter=1000)) for n in range(20, len(trace) + 1)]
    known = [n for n in left if n is not None]
    assert len(known) == len(left)
    assert max(known) > 20  # it follows the trend
    assert all(0.5 < (after + 2) / (before + 2) < 2 for before, after in itertools.pairwise(known)), known


def test_remaining_iterations_never_pass_the_cap() -> None:
    flat = [record(1, math.nan)] + [record(i, 0.1) for i in range(2, 7)]
    slow = [record(1, math.nan)] + [record(i, 0.1 - i / 1000) for i in range(2, 7)]
    assert remaining_iterations(slow, FitSpec(max_iter=20)) == 14
    assert remaining_iterations(slow, FitSpec(max_iter=6)) == 0
    assert remaining_iterations(flat, FitSpec(max_iter=20, tol=0.0)) == 14
    # changes that do not fall tell nothing
    assert remaining_iterations(flat, FitSpec(max_iter=20)) is None
    assert remaining_iterations([record(1, math.nan)], FitSpec(max_iter=20)) is None


def test_a_state_is_found_again_from_its_trace() -> None:
    elbos = [-100.0, -50.0 - 1e-9, -49.99]
    trace = [dataclasses.replace(record(i + 1, math.nan), elbo=elbo) for i, elbo in enumerate(elbos)]
    assert EMState.after(trace, FitSpec()) == after(elbos)
    assert EMState.after([], FitSpec()).iteration == 0


@pytest.mark.parametrize(
    ("every", "iterations", "seconds", "cost", "due"),
    [
        (3, 2, 1e9, 0.0, False),
        (3, 3, 0.0, 1e9, True),
        (3, 4, 0.0, 1e9, True),  # the one before could not be written
        (None, 1, 0.0, 0.0, True),  # the first shows early whether it can be written
        (None, 1, 10.0, 0.4, True),
        (None, 9, 10.0, 0.6, False),
    ],
)
def test_checkpoints_are_due_as_told_or_as_they_cost_little(
    every: int | None, iterations: int, seconds: float, cost: float, due: bool
) -> None:
    assert checkpoint_is_due(every=every, iterations=iterations, seconds=seconds, cost=cost) is due
