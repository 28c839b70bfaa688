"""Coefficients that suit words alone, after EM with another response weight than 1.

There the assignments of training documents follow the responses further than those of any new document can, and the M-step
fits the coefficients to these. Topics stay as EM has found them; the coefficients and the family's own parameters are solved
once more, around what words alone infer, as predictions do.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from dslda.engine.driver import FitResult
from dslda.engine.executor import Executor, single_threaded_blas
from dslda.engine.passes import EStepPass
from dslda.families.answers import asked
from dslda.families.base import Array, Family
from dslda.variational.mstep import response_step
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.statistics import SufficientStatistics
from dslda.variational.topics import in_e_step
from dslda.wording import number_of

__all__ = ["suited_to_words"]

logger = logging.getLogger("dslda.engine")

MOST_STEPS, STANDSTILL = 40, 0.01
"""Most scoring steps, and the longest one at which they have settled; a quadratic likelihood needs one step. Coefficients of
EM may lie far off, and damped steps are short."""

FOLLOWED = 3.0
"""Dispersion around what words alone predict, over that of EM, from which on topics have followed the responses. It was 1.8
and 2.2 on movie reviews, where a heavy response helps, and 5 to 8 on bills, where it fits noise."""


def suited_to_words(executor: Executor, result: FitResult, *, family: Family, spec: FitSpec) -> FitResult:
    """The result of EM with coefficients, parameters of the family, and statistics of inference from words alone.

    It is a pure function of the documents, the parameters of `result` and `spec`, whatever the executor. After Ctrl-C the
    coefficients are those of EM, and the result is flagged `interrupted`.

    Raises
    ------
    EngineError
        A pass could not be completed.
    InputError
        The coefficients are not finite, as a user's own family may make them.
    """
    logger.info("coefficients are solved once more, for what words alone say of the response")
    try:
        with single_threaded_blas():
            parameters = result.parameters
            statistics = _statistics(executor, parameters, family)
            n_steps, settled = 0, False
            while not settled and n_steps < MOST_STEPS:
                previous = parameters
                parameters = response_step(previous, statistics, family=family, spec=spec)
                _check(parameters, family)
                statistics = _statistics(executor, parameters, family)
                n_steps += 1
                settled = family.is_quadratic or _longest_step(previous, parameters, family) <= STANDSTILL
    except KeyboardInterrupt:
        logger.warning("interrupted: keeping the coefficients of EM, which predict new documents worse")
        return replace(result, converged=False, interrupted=True)
    logger.info(
        "coefficients %s after %s", "settled" if settled else "still move", number_of(n_steps, "step")
    )
    if family.has_dispersion_floor:
        ratio = float(parameters.delta[0] / result.parameters.delta[0])
        if ratio > FOLLOWED:
            logger.warning(
                "responses scatter %.1f times as much around what words alone predict as around the topics of training, "
                "which have followed them: compare with a lower rho",
                ratio,
            )
    return replace(result, parameters=parameters, statistics=statistics)


def _statistics(executor: Executor, parameters: Parameters, family: Family) -> SufficientStatistics:
    with asked(family, "a compiled function", ArithmeticError):
        statistics, _ = executor.run(in_e_step(parameters), EStepPass(words_alone=True))
    return statistics


def _check(parameters: Parameters, family: Family) -> None:
    for name, values in (("eta", parameters.eta), ("zeta", parameters.zeta), ("delta", parameters.delta)):
        if not np.isfinite(values).all():
            raise family.fault(f"{name} must be finite, got others around what words alone predict")


def _longest_step(previous: Parameters, parameters: Parameters, family: Family) -> float:
    def moved(old: Array, new: Array) -> float:
        return float(np.abs(new - old).max(initial=0.0))

    unit = np.abs(previous.delta) if family.delta_transform == "log" else 1.0
    return max(
        moved(previous.eta, parameters.eta),
        moved(previous.zeta, parameters.zeta),
        moved(previous.delta / unit, parameters.delta / unit),
    )
