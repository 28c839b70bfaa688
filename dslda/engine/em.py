"""EM as a state machine that turns events into decisions, without I/O, clock or Dask."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from dslda.variational.parameters import FitSpec, Parameters

__all__ = [
    "Decision",
    "EMState",
    "IterationRecord",
    "Position",
    "remaining_iterations",
    "trace_columns",
]

FITTED_CHANGES, LEAST_CHANGES = 10, 4
"""Relative changes that an estimate of the remaining iterations uses, or half of all if that is more; and the fewest."""

PARTED = 1e-3
"""Relative change of the ELBO below which topics have parted, and the estimate of alpha begins."""

SMOOTHED_ESTIMATES, LARGEST_FACTOR = 100, 1.4
"""Estimates that one smoothed estimate follows, and the factor by which it moves at most in an iteration
(upwards one more, so that it leaves 1)."""


class Decision(enum.Enum):
    """The next step after an iteration."""

    CONTINUE = "continue"
    CONVERGED = "converged"
    ITERATION_CAP = "iteration cap"
    STOPPED = "stopped on request"


@dataclass(frozen=True, slots=True)
class IterationRecord:
    """A complete iteration.

    It begins with the M-step that makes its parameters (none for the first), and ends with the ELBO at these parameters.

    Attributes
    ----------
    iteration : int
        Number, from 1.
    elbo : float
        ELBO of the whole corpus, with the log density of the topic prior.
    relative_change : float
        ``|elbo - previous| / |previous|``, NaN for the first iteration.
    sweeps_per_document : float
        Mean number of coordinate-ascent sweeps over a document.
    unconverged_documents : int
        Documents that stopped at the cap on sweeps.
    delta : float
        First parameter of the family, usually the dispersion, on the scale of the standardised response; NaN for a
        family without parameters.
    publish_seconds, e_step_seconds, reduce_seconds, m_step_seconds : float
        Wall-clock time of sending the parameters to the workers, then until the last partition is done, then until all
        statistics are added up, and of the M-step. On a cluster most sums run during the work on other partitions.
    e_step_cpu_seconds : float
        CPU time of all threads that ran the E-step.
    documents_per_second : float
        Documents divided by the wall-clock time of the whole iteration.
    inner_gain : float
        In conditional training, the log-likelihood that words add to a response of the inner part; NaN elsewhere.
    """

    iteration: int
    elbo: float
    relative_change: float
    sweeps_per_document: float
    unconverged_documents: int
    delta: float
    publish_seconds: float
    e_step_seconds: float
    reduce_seconds: float
    m_step_seconds: float
    e_step_cpu_seconds: float
    documents_per_second: float
    inner_gain: float = math.nan


@dataclass(frozen=True, slots=True)
class EMState:
    """The progress of EM after `iteration` complete iterations."""

    iteration: int = 0
    elbo: float = math.nan
    relative_change: float = math.nan
    previous_change: float = math.nan
    #: largest change since the third iteration; the first change only brings topics to the frequencies of terms
    largest_change: float = 0.0
    #: iterations since the topics parted, 0 before; see :meth:`has_parted`
    since_parted: int = 0

    @classmethod
    def after(cls, trace: Sequence[IterationRecord], spec: FitSpec) -> EMState:
        """The state after the iterations of a trace."""
        state = cls()
        for record in trace:
            state = state.advance(record.elbo, spec)
        return state

    def advance(self, elbo: float, spec: FitSpec) -> EMState:
        """The state after one more iteration that ended with `elbo`."""
        difference = abs(elbo - self.elbo)
        # an ELBO of exactly 0 is no divisor: any change from it is infinite
        change = difference / abs(self.elbo) if self.elbo != 0.0 else (0.0 if difference == 0.0 else math.inf)
        largest = max(self.largest_change, change) if self.iteration >= 2 else 0.0
        state = EMState(self.iteration + 1, elbo, change, self.relative_change, largest)
        parted = self.has_parted or state.has_settled(PARTED) or state.has_settled(spec.tol)
        return replace(state, since_parted=self.since_parted + 1 if parted else 0)

    @property
    def has_parted(self) -> bool:
        """True once the topics have left the plateau on which EM starts, so that alpha can be estimated.

        On the plateau all documents have the same proportions. That is what a large alpha says, which in turn keeps the
        topics from parting: estimated from the first iteration, alpha rises to 90 and all topics become one (movie reviews,
        K = 20).
        """
        return self.since_parted > 0

    def has_settled(self, tol: float) -> bool:
        """True if the last two relative changes are below `tol`, do not grow, and have come down.

        EM starts on a plateau. While the topics are nearly equal the ELBO hardly moves, then it moves faster and faster
        as they part (movie reviews, alpha = 1: 2e-5 in the third iteration, 2e-3 ten later). Where few documents have a
        response, all changes on the plateau are small and may fall by chance (1% of the reviews: 1.4e-6, 1.3e-6, then
        1.8e-6). So one change must have been above `tol`, or the last must be at most a tenth of the largest.
        """
        come_down = self.largest_change >= tol or self.relative_change <= 0.1 * self.largest_change
        return come_down and self.relative_change <= self.previous_change < tol

    def decide(self, spec: FitSpec, *, stop_requested: bool = False) -> Decision:
        """The decision after a complete iteration.

        Convergence comes first: a fit that converges in its last iteration, or as a user stops it, is not cut short.
        """
        # an estimate of alpha moves the ELBO once more
        is_estimated = not spec.estimates_alpha or self.since_parted > 2
        if is_estimated and self.has_settled(spec.tol):
            return Decision.CONVERGED
        if self.iteration >= spec.max_iter:
            return Decision.ITERATION_CAP
        if stop_requested:
            return Decision.STOPPED
        return Decision.CONTINUE


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """The parameters of the next iteration, the trace so far, and the arrays of conditional training: all to continue."""

    parameters: Parameters
    trace: tuple[IterationRecord, ...] = ()
    state: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)


def trace_columns(trace: Sequence[IterationRecord]) -> dict[str, NDArray[np.float64]]:
    """The fields of the records, shape (n_iterations,) each, as models and checkpoints store them."""
    return {
        field.name: np.array([getattr(record, field.name) for record in trace], dtype=np.float64)
        for field in fields(IterationRecord)
    }


def remaining_iterations(trace: Sequence[IterationRecord], spec: FitSpec) -> int | None:
    """Estimate the remaining iterations; None while the changes are too few or do not fall.

    The relative change falls about geometrically, with much noise. So a line is fitted to the logarithms of the last
    changes, and extended to `tol`. The first change does not count (:attr:`EMState.largest_change`). The estimates after
    the last iterations are followed in small steps.
    """
    to_cap = max(spec.max_iter - len(trace), 0)
    if to_cap == 0 or spec.tol <= 0:
        return to_cap
    smooth: float | None = None
    for estimate in _estimates(trace, spec):
        if smooth is None:
            smooth = None if math.isnan(estimate) else estimate
            continue
        smooth = max(smooth - 1, 1.0)  # an iteration has passed
        if not math.isnan(estimate):
            smooth = min(max(estimate, smooth / LARGEST_FACTOR), smooth * LARGEST_FACTOR + 1)
    return None if smooth is None else min(round(smooth), to_cap)


def _estimates(trace: Sequence[IterationRecord], spec: FitSpec) -> list[float]:
    """The estimates after each of the last iterations by itself, NaN where there is none; sums give all lines at once."""
    changes = np.array([record.relative_change for record in trace[2:]])
    fitted = (changes > 0) & (changes < math.inf)
    logs = np.log(changes[fitted])
    before = np.concatenate([[0], np.cumsum(fitted)])
    sums = np.concatenate([[0.0], np.cumsum(logs)])
    moments = np.concatenate([[0.0], np.cumsum(logs * np.arange(len(logs)))])

    length = np.arange(max(len(trace) - SMOOTHED_ESTIMATES, 0) + 1, len(trace) + 1)
    stop = np.maximum(length - 2, 0)
    first, last = before[np.maximum(stop - np.maximum(FITTED_CHANGES, length // 2), 0)], before[stop]
    n = last - first
    with np.errstate(all="ignore"):
        total = sums[last] - sums[first]
        slope = (moments[last] - moments[first] - total * (first + last - 1) / 2) / (n * (n * n - 1.0) / 12)
        latest = total / n + slope * (n - 1) / 2
        # two changes must be below `tol`
        n_more = np.ceil((math.log(spec.tol) - latest) / slope + 1)
    estimates = np.clip(n_more, 1, spec.max_iter - length)
    estimates[(n < LEAST_CHANGES) | ~(slope < 0)] = math.nan
    return [float(estimate) for estimate in estimates]
