"""The last stage of conditional training: predictions are calibrated, and single words may add to the topics.

The regression never sees the topics, whose fit to their own training documents is too close to leave a residual worth
learning. When it stops, and how far predictions follow the topics and the words, is chosen by the inner part.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dslda.engine.conditional.remainder_passes import (
    CombinationPass,
    TermPass,
    WordRegressionPass,
)
from dslda.engine.conditional.selection import Selection
from dslda.engine.passes import Pass
from dslda.families.base import Array, Family
from dslda.variational.conditional.word_regression import CombinationSums, WordRegressionSums
from dslda.variational.parameters import Parameters
from dslda.variational.remainder import Remainder

__all__ = ["MOST_BY_CHANCE", "Calibration", "calibration"]

logger = logging.getLogger("dslda.engine")

Run = Callable[[Parameters, Pass[Any]], Any]
"""Runs a pass over all partitions."""

PENALTY = 2.5e-6
"""Precision of the prior of the coefficients, for terms of mean weight, as a share of the information of all responses over
their dispersion. It is light: what keeps coefficients small is that the search for them stops early, which predicts as well
as the best penalty and takes a fifth of the passes."""

MOST_STEPS, PATIENCE, PATIENCE_IN_EXPONENTS = 80, 8, 24
"""Most steps of the search, and steps without a better inner part after which it ends. In exponents a step may go too
far, and some more pass until predictions are as good as before, and then better."""

MOST_SCORING_STEPS, STANDSTILL = 10, 0.01
"""Most steps of the intercepts alone, each of at most 1, and a step after which they have settled."""

FARTHER, FARTHER_IN_EXPONENTS = 1.5, 1.0
"""Length of the coefficients of all documents, over that judged, beyond which the search has run away. In exponents no more
than what was judged: a few documents of large counts would be predicted, as all like them, far beyond all counts seen."""

LEAST_GAIN = 1.0
"""Log-likelihood, over the dispersion, that the inner part must gain by a number that is fitted to it."""

TOLERANCE = 2.0
"""Log-likelihood of the inner part, over the dispersion, that the last step of the search may lack to the best one: two
standard errors. The inner part does not tell such steps apart, and stops too early as often as too late, where the penalty
keeps later ones in bounds."""

MOST_BY_CHANCE = 4.0
"""Log-likelihood, over the dispersion, that predictions of the inner part may gain by chance. Responses that scatter more
than their family allows have that much larger ratios."""

OUTLIER_SHARE = 0.5
"""Share of all squared slopes beyond which one document is left out, where the others may show that words explain."""

HIGHEST_FACTOR, HIGHEST_SHIFT = 2.0, 3.0

MOST_COEFFICIENTS = 5_000_000
"""With the memory of the search, 700 MB."""


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """A step of the search: the coefficients of the terms, and what they give.

    Attributes
    ----------
    number : int
    coefficients : ndarray of float64
    intercept : ndarray of float64, shape (1,) or (C,)
    fitted : float
        Log-likelihood that a document searched over has gained on average, over the dispersion before the search.
    judged : float
        Log-likelihood of the inner part.
    """

    number: int
    coefficients: Array
    intercept: Array
    fitted: float
    judged: float

    @property
    def length(self) -> float:
        return float(np.linalg.norm(self.coefficients))

    def scaled(self, length: float) -> _Step:
        """The same direction, with coefficients of this length."""
        return replace(self, coefficients=length / self.length * self.coefficients)

    def towards(self, other: _Step, fitted: float) -> _Step:
        """The point on the way to another step that has gained about `fitted`; that step where it is not between the two."""
        if not self.fitted < fitted < other.fitted:
            return other
        share = (fitted - self.fitted) / (other.fitted - self.fitted)
        return replace(
            other,
            coefficients=self.coefficients + share * (other.coefficients - self.coefficients),
            intercept=self.intercept + share * (other.intercept - self.intercept),
        )


class _WordRegression:
    """The regression on words, pass by pass."""

    def __init__(self, run: Run, parameters: Parameters, center: Array, family: Family) -> None:
        self._run, self._family = run, family
        classes = parameters.eta.shape[1:]
        self._shape = (parameters.n_terms, *classes)
        self._bare = replace(
            parameters,
            topics=np.zeros((parameters.n_terms, 0)),
            alpha=np.zeros(0),
            eta=np.zeros((0, *classes)),
        )
        moments = run(self._bare, TermPass())
        frequency, squares = moments.moments.T
        # the weights of TF-IDF, for documents of length 1 on average
        weights = np.log((1.0 + moments.n_documents) / (1.0 + frequency)) + 1.0
        length = float(squares @ np.square(weights)) / max(moments.n_documents, 1)
        weights /= math.sqrt(length) if length > 0.0 else 1.0
        self._weights = weights[:, np.newaxis]
        self._intercept = center

    def words(self, coefficients: Array) -> Array:
        """Coefficients of the normalised terms."""
        table = coefficients.reshape(len(self._weights), -1)
        words: Array = (table * self._weights).reshape(self._shape)
        return words

    def level(self, inner: Selection | None) -> Array:
        """The linear predictors of a document of unknown words, which predict the mean of all."""
        self._intercept = self._settled(np.zeros(math.prod(self._shape)), self._intercept, inner)
        return self._intercept

    def _sums(
        self, coefficients: Array, intercept: Array, inner: Selection | None, *, differentiated: bool = True
    ) -> WordRegressionSums:
        words = Remainder(self.words(coefficients), self._bare.eta, 0.0)
        sums: WordRegressionSums = self._run(
            replace(self._bare, remainder=words), WordRegressionPass(intercept, inner, differentiated)
        )
        return sums

    def _settled(self, coefficients: Array, intercept: Array, inner: Selection | None) -> Array:
        """The intercepts that suit the coefficients best: in exponents, the mean of the linear predictors is too low."""
        n_classes = len(intercept)
        # each class has its own information alone, of which all others have the same
        share = (n_classes - 1) / n_classes if n_classes > 1 else 1.0
        for _ in range(MOST_SCORING_STEPS):
            sums = self._sums(coefficients, intercept, inner, differentiated=False)
            step = share * sums.intercept_gradient / np.maximum(sums.intercept_information, 1e-300)
            step = np.clip(step, -1.0, 1.0)
            intercept = intercept + step
            if np.abs(step).max() <= STANDSTILL:
                break
        return intercept

    def solve(
        self, inner: Selection | None, *, tolerance: float = 0.0, like: _Step | None = None
    ) -> _Step | None:
        """The last step that predicts the inner part as well as the best one, but for the tolerance.

        Without an inner part, the point of a search over all documents that fits them as closely as `like` has fitted the
        others.

        None if there is no step to take.
        """
        from scipy.optimize import minimize

        n = math.prod(self._shape)
        information, penalty = 0.0, 0.0
        last: WordRegressionSums | None = None
        best: _Step | None = None
        top, top_number = -math.inf, 0
        dispersion, nothing = 1.0, 0.0
        patience = PATIENCE if self._family.is_quadratic else PATIENCE_IN_EXPONENTS
        intercept = self.level(inner)
        previous = _Step(0, np.zeros(n), intercept, 0.0, -math.inf)

        def objective(coefficients: Array) -> tuple[float, Array]:
            nonlocal last, information, penalty, dispersion, nothing
            own = coefficients[:n]
            sums = self._sums(own, coefficients[n:], inner)
            if last is None:  # the start, whose information and dispersion hold throughout
                information = sums.curvature or 1.0
                dispersion = max(sums.squared_slopes / information, 1.0)
                penalty = PENALTY * dispersion
                nothing = sums.log_likelihood / max(sums.weight, 1e-300)
            last = sums
            value = 0.5 * penalty * float(own @ own) - sums.log_likelihood / information
            pulls = np.concatenate([(sums.gradient * self._weights).ravel(), sums.intercept_gradient])
            slopes = -pulls / information
            slopes[:n] += penalty * own
            if not (math.isfinite(value) and np.isfinite(slopes).all()):
                # the search takes a shorter step
                return math.inf, np.zeros_like(slopes)
            return value, slopes

        def after_step(xk: Array) -> None:
            nonlocal best, previous, top, top_number
            assert last is not None
            judged = math.inf if inner is None else last.judged_log_likelihood
            fitted = (last.log_likelihood / max(last.weight, 1e-300) - nothing) / dispersion
            here = _Step(previous.number + 1, xk[:n].copy(), xk[n:].copy(), fitted, judged)
            if judged >= top:
                top, top_number = judged, here.number
            if judged >= top - tolerance:
                best = here
            if like is not None and here.fitted >= like.fitted:
                best = previous.towards(here, like.fitted)
                raise StopIteration
            if here.number - top_number >= patience:
                raise StopIteration
            previous = here

        minimize(
            objective,
            np.concatenate([np.zeros(n), intercept]),
            jac=True,
            method="L-BFGS-B",
            callback=after_step,
            options={"maxcor": 8, "maxiter": MOST_STEPS, "ftol": 0.0, "gtol": 1e-8},
        )
        if best is None:
            return None
        # at the end only: the first steps may go many times as far as the search does in the end
        farther = FARTHER if self._family.is_quadratic else FARTHER_IN_EXPONENTS
        if like is not None and best.length > farther * like.length:
            best = best.scaled(like.length)
        # the search moves all at once, and the intercepts lag behind
        return replace(best, intercept=self._settled(best.coefficients, best.intercept, inner))


@dataclass(frozen=True, slots=True, eq=False)
class _Factors:
    """How predictions of the inner part follow topics and words, by what they differ from the level without them.

    Attributes
    ----------
    topics, words : float
    shift : ndarray of float64, shape (1,) or (C,)
        Added to the linear predictors.
    log_likelihood, dispersion : float
        Of the inner part.
    """

    topics: float
    words: float
    shift: Array
    log_likelihood: float
    dispersion: float


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Predictions that follow topics alone, and topics and words together, as far as the inner part does.

    Attributes
    ----------
    alone : _Factors
    both : _Factors or None
        None where words add nothing.
    words : ndarray of float64, shape (V,) or (V, C)
        Coefficients of the normalised terms.
    intercept : ndarray of float64, shape (1,) or (C,)
        What the regression adds to t'words.
    level : ndarray of float64, shape (1,) or (C,), or None
        Linear predictors without topics and words; None where the mean of zbar'eta is that.
    share : float
        See `Remainder`.
    is_by_chance : bool
        The inner part is predicted no better than chance may do, by topics and words together.
    judged : tuple of ndarray (words, intercept), or None
        Those that the inner part has judged, before the search over all documents; None where there was none.
    """

    alone: _Factors
    both: _Factors | None
    words: Array
    intercept: Array
    level: Array | None
    share: float
    is_by_chance: bool
    judged: tuple[Array, Array] | None = None

    @property
    def dispersion(self) -> float:
        """That of the inner part."""
        return (self.both or self.alone).dispersion

    @property
    def before_the_others(self) -> Calibration:
        """The same with words that the inner part has not taught."""
        return (
            self
            if self.judged is None
            else replace(self, words=self.judged[0], intercept=self.judged[1], judged=None)
        )

    def of(self, parameters: Parameters, center: Array) -> Parameters:
        """Calibrated parameters; `center` is the mean of zbar'eta.

        Topics predict what they would alone, so what is left to the words is unrelated to it, by the choice of the factors.
        """
        alone, both = self.alone, self.both
        level = center if self.level is None else self.level
        deviation = parameters.eta - level
        calibrated = replace(parameters, eta=level + alone.shift + alone.topics * deviation)
        if both is None:
            return calibrated
        expected = (alone.topics - both.topics) * deviation + alone.shift - both.shift
        expected = expected + both.words * (level - self.intercept)
        remainder = Remainder(both.words * self.words, expected, self.share)
        return replace(calibrated, remainder=remainder)


def calibration(
    run: Run, parameters: Parameters, *, family: Family, center: Array, inner: Selection, with_words: bool
) -> Calibration:
    """The predictions that suit the inner part best: from topics, and from single words beside them if it gains by these.

    Parameters
    ----------
    run : callable
    parameters : Parameters
        Of topics that were not trained on the inner part.
    family : Family
    center : ndarray of float64, shape (1,) or (C,)
        Mean of zbar'eta over the training documents.
    inner : Selection
        The inner part.
    with_words : bool
        Let single words add to the topics.
    """
    words, intercept = np.zeros((parameters.n_terms, *parameters.eta.shape[1:])), center
    regression, level = None, None
    if words.size > MOST_COEFFICIENTS:
        if with_words:
            logger.info(
                "words beyond the topics: none, %d coefficients are more than %d",
                words.size,
                MOST_COEFFICIENTS,
            )
    elif with_words or not family.is_quadratic:
        regression = _WordRegression(run, parameters, center, family)
        # in exponents the mean of the linear predictors is below what predicts the mean of the responses
        level = None if family.is_quadratic else regression.level(inner)
    base = center if level is None else level

    def factors(start: Sequence[float], *, free_words: bool, free_shift: bool) -> _Factors:
        centers, free = (base, base - intercept), (free_words, free_shift)
        return _best_factors(run, parameters, words, centers, inner, np.array(start), free, family)

    def with_shift(found: _Factors, *, free_words: bool) -> _Factors:
        """The same with a shift, if the inner part gains by it: its own level is no better than that of the others."""
        # where the mean of the predictions is that of the responses whatever the factors, nothing needs a shift
        if family.is_quadratic:
            return found
        start = [found.topics, found.words, *found.shift]
        shifted = factors(start, free_words=free_words, free_shift=True)
        gain = shifted.log_likelihood - found.log_likelihood
        return shifted if gain >= LEAST_GAIN * len(center) * found.dispersion else found

    alone = factors([1.0, 0.0, *np.zeros_like(center)], free_words=False, free_shift=False)
    alone = with_shift(alone, free_words=False)

    def predicted(found: _Factors | None, farthest: float = math.inf) -> CombinationSums:
        """Sums over the inner part with some factors, or with none but the shift of topics alone."""
        own = replace(parameters, remainder=Remainder(words, np.zeros_like(parameters.eta), 0.0))
        numbers = [0.0, 0.0, *alone.shift] if found is None else [found.topics, found.words, *found.shift]
        sums: CombinationSums = run(
            own,
            CombinationPass(
                inner, np.array(numbers), base, base if found is None else base - intercept, farthest
            ),
        )
        return sums

    def by_chance(found: _Factors, nothing: CombinationSums) -> bool:
        if found.log_likelihood - nothing.log_likelihood > MOST_BY_CHANCE * max(found.dispersion, 1.0):
            return False
        # one response beyond all others can have nearly all of the dispersion
        farthest = OUTLIER_SHARE * nothing.squared_slopes
        sums, others = predicted(found, farthest), predicted(None, farthest)
        return sums.log_likelihood - others.log_likelihood <= MOST_BY_CHANCE * max(sums.dispersion, 1.0)

    def topics_alone() -> Calibration:
        return Calibration(alone, None, words, intercept, level, 0.0, by_chance(alone, predicted(None)))

    if regression is None or not with_words:
        return topics_alone()
    step = regression.solve(inner, tolerance=TOLERANCE * alone.dispersion)
    if step is None:
        return topics_alone()
    words, intercept = regression.words(step.coefficients), step.intercept
    # no shift first: what words say can take the place of one
    both = factors([alone.topics, 0.0, *np.zeros_like(center)], free_words=True, free_shift=False)
    both = with_shift(both, free_words=True)
    gain = both.log_likelihood - alone.log_likelihood
    if not gain >= LEAST_GAIN * alone.dispersion:
        logger.info("words beyond the topics: none, the inner part gains nothing by them")
        return topics_alone()
    nothing = predicted(None)
    share = min(gain / max(both.log_likelihood - nothing.log_likelihood, gain), 1.0)
    logger.info("words beyond the topics have %.0f%% of what is explained of the inner part", 100.0 * share)
    is_by_chance = by_chance(both, nothing)
    # once more from all documents, as far as the step that was best without the inner part
    step = regression.solve(None, like=step) or step
    judged = words, intercept
    words = regression.words(step.coefficients)
    return Calibration(alone, both, words, step.intercept, level, share, is_by_chance, judged)


def _best_factors(
    run: Run,
    parameters: Parameters,
    words: Array,
    centers: tuple[Array, Array],
    inner: Selection,
    start: Array,
    free: tuple[bool, bool],
    family: Family,
) -> _Factors:
    """The factors of topics and words, and the shifts, that predict the inner part best."""
    from scipy.optimize import minimize

    own = replace(parameters, remainder=Remainder(words, np.zeros_like(parameters.eta), 0.0))
    best: _Factors | None = None

    def objective(factors: Array) -> tuple[float, Array]:
        nonlocal best
        sums = run(own, CombinationPass(inner, factors.copy(), *centers))
        value, gradient = -sums.log_likelihood, -sums.gradient
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            return math.inf, np.zeros_like(factors)
        if best is None or -value > best.log_likelihood:
            best = _Factors(float(factors[0]), float(factors[1]), factors[2:].copy(), -value, sums.dispersion)
        return value, gradient

    free_words, free_shift = free
    reach = HIGHEST_SHIFT if free_shift else 0.0
    bounds = [
        (0.0, HIGHEST_FACTOR),
        # in exponents a factor above 1 takes the place of a shift, and multiplies the largest predictions
        (0.0, (HIGHEST_FACTOR if family.is_quadratic else 1.0) if free_words else 0.0),
        *[(-reach, reach)] * (len(start) - 2),
    ]
    minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-7})
    if best is None:
        raise family.fault("the log-likelihood of the inner part must be finite, got others")
    return best
