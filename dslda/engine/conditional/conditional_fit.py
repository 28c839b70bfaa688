"""The loop of conditional training, and what a checkpoint keeps of it.

A fit has a start by EM, in which the responses pull at the assignments, and epochs of steps down the exact gradient. A step
takes a slice of the documents; after every twenty the inner part says how well others are predicted. All of it is one
sequence of passes of an executor, each a pure function of the parameters and the documents, so that a fit has the same bits
anywhere.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from dslda.engine.conditional.level_fit import LevelPass, level_corrections, level_shift
from dslda.engine.conditional.recipe import LAST_STEP_SIZE, N_STEPS, Recipe
from dslda.engine.conditional.remainder_fit import MOST_BY_CHANCE, calibration
from dslda.engine.conditional.work import ClassPass, ConditionalPass, InnerPass, LengthPass, PulledPass
from dslda.engine.driver import Checkpoints, FitResult, Unseen
from dslda.engine.em import IterationRecord, Position
from dslda.engine.executor import Executor, PartitionListener, single_threaded_blas
from dslda.engine.passes import Pass
from dslda.engine.progress import FitProgress, default_progress
from dslda.exceptions import DataWarning, FormatError, InputError, warn
from dslda.families.answers import asked
from dslda.families.base import Array, Family
from dslda.settings import SETTINGS
from dslda.variational.conditional.descent import CoefficientSums, TopicDescent
from dslda.variational.conditional.gradient import ConditionalStatistics
from dslda.variational.level_corrections import takes_corrections
from dslda.variational.mstep import m_step
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.sums import Sums
from dslda.variational.term_weights import TermWeighting
from dslda.variational.topic_seeds import TopicSeeds
from dslda.wording import number_of

__all__ = ["ConditionalFit", "fit_conditionally"]

logger = logging.getLogger("dslda.engine")

S = TypeVar("S", bound=Sums)

SLOPES: Array = np.arange(26, dtype=np.float64) * 0.2
"""Factors tried on the predictions of the inner part; 0 predicts the same for all."""

CLASS_SHARE = 0.9
"""Share of the words of its class in a topic of the start; the rest is random, so that two topics of a class differ."""

SETTLING_STEPS = 3
"""Scoring steps of the coefficients, and of the family's own parameters, between the start and the first epoch; a quadratic
likelihood needs one."""

MOST_OWN_STEPS, STANDSTILL = 5, 0.01
"""Most steps of the family's own parameters after the last epoch, and how little they have moved when they have settled."""


@dataclass(slots=True, eq=False)
class _Totals:
    """Sums over the slices of an epoch so far."""

    profile: Array
    features: Array
    numbers: Array
    first_without_gradient: int | None = None

    NAMES: ClassVar[tuple[str, ...]] = (
        "elbo",
        "log_likelihood",
        "squared_slopes",
        "curvature",
        "labelled_weight",
        "n_unconverged",
        "n_sweeps",
        "n_documents",
        "seconds",
        "n_without_gradient",
    )

    @classmethod
    def empty(cls, parameters: Parameters, family: Family) -> _Totals:
        n_probes = len(family.delta_probes(parameters.delta))
        n_features = parameters.n_topics + len(parameters.zeta)
        return cls(np.zeros(n_probes), np.zeros(n_features), np.zeros(len(cls.NAMES)))

    def add(self, statistics: ConditionalStatistics) -> None:
        self.profile += statistics.profile
        self.features += statistics.features
        self.numbers += [getattr(statistics, name) for name in self.NAMES]
        rows = self.first_without_gradient, statistics.first_without_gradient
        self.first_without_gradient = min((row for row in rows if row is not None), default=None)

    def of(self, name: str) -> float:
        return float(self.numbers[self.NAMES.index(name)])

    @property
    def dispersion(self) -> float:
        """Pearson's dispersion of the responses, at least 1: the loss of counts that scatter more is divided by it."""
        curvature = self.of("curvature")
        return max(1.0, self.of("squared_slopes") / curvature) if curvature > 0.0 else 1.0

    def center(self, parameters: Parameters) -> Array:
        """Mean linear predictor of the documents without offsets, shape (1,) or (C,)."""
        means = self.features / max(self.of("labelled_weight"), 1e-300)
        center: Array = means @ np.concatenate([parameters.eta, parameters.zeta])
        return np.atleast_1d(center)


@dataclass(slots=True, eq=False)
class _Best:
    """The epoch to keep: one after which the inner part was predicted best, or as well; and the slope that does it.

    `sums` are those of the coefficients then, for epochs that follow.
    """

    parameters: Parameters
    sums: CoefficientSums
    center: Array
    slope: float
    epoch: int

    def recalibrated(self) -> Parameters:
        """Its parameters, with linear predictors moved away from their mean by the slope."""
        eta, zeta = self.parameters.eta, self.parameters.zeta
        return replace(
            self.parameters, eta=self.center + self.slope * (eta - self.center), zeta=self.slope * zeta
        )


class ConditionalFit:
    """A conditional fit, pass by pass. Between two passes, :meth:`position` has all that it needs to go on.

    Parameters
    ----------
    executor : Executor
    parameters : Parameters
        Starting values.
    family : Family
    spec : FitSpec
    recipe : Recipe
    fresh : callable
        Returns the starting values of a fit that begins.
    on_partition : callable, optional
    seeds : TopicSeeds, optional
        Words that topics are held at.
    """

    def __init__(
        self,
        executor: Executor,
        parameters: Parameters,
        *,
        family: Family,
        spec: FitSpec,
        recipe: Recipe,
        fresh: Callable[[], Parameters],
        on_partition: PartitionListener | None = None,
        seeds: TopicSeeds | None = None,
    ) -> None:
        self._executor, self._family, self._recipe, self._fresh = executor, family, recipe, fresh
        self._on_partition, self._seeds = on_partition, seeds
        self._seed_counts = np.zeros(0 if seeds is None else len(seeds.terms))
        self._spec = replace(spec, doc_topic_prior=recipe.alpha, topic_prior=recipe.topic_prior)
        self.parameters = parameters
        self.trace: tuple[IterationRecord, ...] = ()
        self._descent = TopicDescent.start(parameters)
        self._sums: CoefficientSums | None = None
        self._totals = _Totals.empty(parameters, family)
        self._dispersion, self._mass, self._curvature, self._words_per_response = 1.0, 1.0, 0.0, 1.0
        self._step = 0
        self._center: Array = np.zeros(parameters.n_classes or 1)
        self._best: _Best | None = None
        self._peak, self._inner_weight, self._null = -math.inf, 0.0, math.nan
        self.is_by_chance = False
        self._null_delta = parameters.delta
        self._null_center = np.atleast_1d(parameters.eta.mean(axis=0))
        self._began = time.perf_counter()
        self._publish = self._e_step = self._reduce = 0.0

    @property
    def _gains(self) -> list[float]:
        """What words were worth to the inner part after each complete epoch."""
        return [record.inner_gain for record in self.trace if not math.isnan(record.inner_gain)]

    @property
    def n_epochs(self) -> int:
        """Complete epochs; only these know the inner part."""
        return len(self._gains)

    @property
    def has_settled_start(self) -> bool:
        """True once the start is over, and epochs follow."""
        return self._sums is not None

    @property
    def is_done(self) -> bool:
        if self._sums is None or self._step:
            return False
        return self.has_converged or len(self.trace) >= self._spec.max_iter

    @property
    def has_converged(self) -> bool:
        """True if the last epochs have not helped, or there were as many as ever help."""
        return self.has_settled or self.n_epochs >= self._recipe.epochs

    @property
    def can_finish(self) -> bool:
        return self._best is not None

    @property
    def best_in_words(self) -> str:
        """What an interrupted fit keeps, for the log."""
        assert self._best is not None
        if self._best.epoch:
            return f"the best epoch of {self.n_epochs}"
        return "the start, which predicts best" if self.n_epochs else "the start"

    @property
    def has_settled(self) -> bool:
        """True if the last epochs have not helped.

        The start is none: with a topic for each class it may predict better than the first epochs, but worse than later ones.
        """
        gains = self._gains
        return bool(gains) and len(gains) - 1 - gains.index(max(gains)) >= self._recipe.patience

    def advance(self) -> bool:
        """Run the next pass, or the few that belong together; return True if an iteration is complete."""
        if self._sums is not None:
            return self._descend()
        if self.parameters.n_classes is not None and not self.trace:
            self._part_by_class()
            return True
        if len(self.trace) >= self._recipe.start_iterations or self.parameters.n_classes is not None:
            self._settle(1 if self._family.is_quadratic else SETTLING_STEPS)
            return False
        self._pull()
        return True

    def finish(self, *, at_once: bool = False) -> tuple[Parameters, ConditionalStatistics, float, Unseen]:
        """The parameters of the best epoch, their sums over all documents, the ridge on the scale of these, and how it
        predicts documents that it had not seen.

        `at_once` is for a fit that was interrupted: without the words beyond the topics, and without training once more.
        """
        best = self._best
        assert best is not None
        self.is_by_chance = self._peak * self._inner_weight <= MOST_BY_CHANCE * self._dispersion
        parameters = unseen = best.recalibrated()
        if not at_once:
            calibrated = calibration(
                # most of these passes touch each entry once, where inference does it for every topic
                partial(self._run, share=1.0 / self._spec.n_topics),
                parameters,
                family=self._family,
                center=best.center,
                inner=self._recipe.inner,
                with_words=self._spec.remainder,
            )
            self.is_by_chance = calibrated.is_by_chance
            unseen = calibrated.before_the_others.of(parameters, best.center)
            # other documents and topics have another mean, which the factors must leave where it is
            best = self._refitted(best)
            parameters = best.recalibrated()
            parameters = calibrated.of(parameters, best.center)
        statistics, delta = self._measured(parameters)
        for _ in range(MOST_OWN_STEPS):
            if self._family.has_dispersion_floor or self._stands_still(delta, parameters.delta):
                break
            parameters = replace(parameters, delta=delta)
            statistics, delta = self._measured(parameters)
        if self._family.has_dispersion_floor:
            # the information is that of the dispersion without topics
            statistics.information *= parameters.delta[0] / delta[0]
            statistics.curvature *= float(parameters.delta[0] / delta[0])
        ridge = self._ridged(statistics.curvature).ridge
        assert ridge is not None
        parameters = replace(parameters, delta=delta)
        if not at_once and takes_corrections(self._family, delta):
            unseen = replace(unseen, delta=delta)
            parameters, unseen = self._corrected(parameters, unseen, calibrated.dispersion)
        return parameters, statistics, ridge, Unseen(unseen, self._recipe.inner)

    def _corrected(
        self, parameters: Parameters, unseen: Parameters, dispersion: float
    ) -> tuple[Parameters, Parameters]:
        """Both with the corrections to the probabilities of levels that `unseen` needs for the inner part."""
        family, delta, inner = self._family, unseen.delta, self._recipe.inner
        sums = self._run(unseen, LevelPass(inner), share=self._recipe.inner_share)
        corrections = level_corrections(sums.counts, family, delta, dispersion=dispersion)
        parameters, unseen = (replace(p, level_corrections=corrections) for p in (parameters, unseen))
        if not self._recipe.refits:
            # few documents are predicted too well by topics that have seen them to say what the level of others is
            sums = self._run(parameters, LevelPass())
            shift = level_shift(sums.counts, family, delta, corrections)
            parameters = replace(parameters, eta=parameters.eta + shift)
        return parameters, unseen

    def _measured(self, parameters: Parameters) -> tuple[ConditionalStatistics, Array]:
        """Sums over all documents, and one step of the family's own parameters."""
        statistics = self._run(parameters, ConditionalPass(differentiated=False))
        delta = self._updated_delta(parameters, statistics.profile, statistics.labelled_weight)
        return statistics, delta

    def _stands_still(self, delta: Array, previous: Array) -> bool:
        """True if a step has hardly moved the family's own parameters."""
        unit = np.abs(previous) if self._family.delta_transform == "log" else 1.0
        return bool(np.all(np.abs(delta - previous) <= STANDSTILL * unit))

    def _refitted(self, best: _Best) -> _Best:
        """The same after epochs over all documents, the inner part included: a few more, or where that is large all again."""
        recipe = replace(self._recipe, inner_share=0.0)
        if self._recipe.refits:
            n_epochs = best.epoch
            if n_epochs:
                logger.info("training once more on all documents, for %s", number_of(n_epochs, "epoch"))
            else:
                logger.info("the start predicts best: it is made once more, from all documents")
            again = self._another(self._fresh(), recipe)
        elif recipe.last_epochs:
            n_epochs = recipe.last_epochs
            logger.info("training goes on with all documents, for %s", number_of(n_epochs, "epoch"))
            again = self._another(best.parameters, replace(recipe, step_size=LAST_STEP_SIZE))
            again._sums, again._seed_counts = best.sums, self._seed_counts
            again._dispersion, again._mass = self._dispersion, self._mass
            again._curvature, again._words_per_response = self._curvature, self._words_per_response
        else:
            return best
        while not again.has_settled_start or again.n_epochs < n_epochs:
            again.advance()
        return replace(best, parameters=again.parameters, center=again._center)

    def _another(self, parameters: Parameters, recipe: Recipe) -> ConditionalFit:
        """A fit to the same documents that begins with these parameters."""
        return ConditionalFit(
            self._executor,
            parameters,
            family=self._family,
            spec=self._spec,
            recipe=recipe,
            fresh=self._fresh,
            seeds=self._seeds,
        )

    def _run(
        self,
        parameters: Parameters,
        work: Pass[S],
        partitions: Sequence[int] | None = None,
        share: float = 1.0,
    ) -> S:
        with asked(self._family, "a compiled function", ArithmeticError):
            sums, times = self._executor.run(
                parameters, work, partitions=partitions, share=share, on_partition=self._on_partition
            )
        self._publish += times.publish
        self._e_step += times.e_step
        self._reduce += times.reduce
        return sums

    @property
    def _learns_scatter(self) -> bool:
        """True if the family's own parameters are the scatter of responses, and follow the fit; cutpoints are none."""
        return not (self._family.has_dispersion_floor or self._family.has_levels)

    def _pull(self) -> None:
        chosen = self._recipe.start_of(len(self.trace))
        if not self.trace and not self._family.has_dispersion_floor:
            # before any response pulls: counts may scatter many times as much as their family has it
            totals = _Totals.empty(self.parameters, self._family)
            measured = ConditionalPass(chosen, differentiated=False)
            totals.add(self._run(self.parameters, measured, share=chosen.sample))
            self._dispersion = totals.dispersion
        pulled = PulledPass(chosen, self._recipe.pull / self._dispersion)
        statistics = self._run(self.parameters, pulled, share=chosen.sample)
        self._totals = _Totals.empty(self.parameters, self._family)
        self._totals.add(statistics)
        self._dispersion = self._totals.dispersion
        self._measure_words(statistics)
        # alpha stays: it is the recipe's
        new = m_step(
            self.parameters,
            statistics,
            family=self._family,
            spec=self._ridged(statistics.curvature),
            known=None if chosen.sample == 1.0 else self.parameters.topics[:, 0] > 0.0,
            seeds=self._seeds,
        )
        self._record(math.nan, share=chosen.sample)
        if self._learns_scatter:
            # assignments that have seen the responses leave them too little scatter, with which they would pull the more
            new = replace(new, delta=self.parameters.delta)
        self.parameters = replace(new, weighting=self.parameters.weighting)

    def _measure_words(self, statistics: ConditionalStatistics) -> None:
        """Remember the mass of all words, and that of the seeds."""
        self._mass = float(statistics.topic_counts.sum())
        if self._seeds is not None:
            self._seed_counts = self._seeds.pseudo_counts(statistics.topic_counts)

    def _part_by_class(self) -> None:
        """Start from the words of each class. Under EM, topics of many classes stay alike for long."""
        statistics = self._run(self.parameters, ClassPass(self._recipe.outer))
        self._measure_words(statistics)
        counts = statistics.topic_counts
        known = counts.sum(axis=1) > 0.0
        own = counts + self._spec.topic_prior * known[:, np.newaxis]
        if self._seeds is not None:
            # topics of no class begin with the words of all
            n_seeded = len(self._spec.seeded_topics)
            own[:, :n_seeded] = counts.sum(axis=1, keepdims=True) / self.parameters.n_topics
            self._seeds.add_to(own, self._seed_counts)
        start = self.parameters.topics * known[:, np.newaxis]
        topics = CLASS_SHARE * own / own.sum(axis=0) + (1.0 - CLASS_SHARE) * start / start.sum(axis=0)
        self._totals.add(statistics)
        self._record(math.nan)
        self.parameters = replace(self.parameters, topics=topics)

    def _settle(self, n_steps: int) -> None:
        """Find the coefficients, and the family's own parameters, of the words alone, and judge the start."""
        if self._family.has_dispersion_floor:
            # That of no topics. As topics explain more, a response must not outweigh the words: its noise would be learned.
            delta = self.parameters.delta
            self.parameters = replace(
                self.parameters, delta=np.concatenate([self._null_delta[:1], delta[1:]])
            )
        for _ in range(n_steps):
            statistics = self._run(self.parameters, ConditionalPass(self._recipe.outer, differentiated=False))
            self._sums = CoefficientSums.of_all(statistics, self.parameters, self._recipe.n_slices)
            self._curvature = statistics.curvature
            mass = float(statistics.topic_counts.sum())
            self._words_per_response = mass / max(statistics.labelled_weight, 1.0)
            new = self._solved(self.parameters)
            if self._learns_scatter:
                delta = self._updated_delta(self.parameters, statistics.profile, statistics.labelled_weight)
                new = replace(new, delta=delta)
            self.parameters = new
        self._totals = _Totals.empty(self.parameters, self._family)
        self._totals.add(statistics)
        self._center = self._totals.center(self.parameters)
        self._judge(0)
        self._totals = _Totals.empty(self.parameters, self._family)

    def _descend(self) -> bool:
        """One step down the gradient of one slice; return True at the end of an epoch."""
        assert self._sums is not None
        recipe, parameters = self._recipe, self.parameters
        # the slices in another order each time that all of them have been visited
        visits, place = divmod(N_STEPS * self.n_epochs + self._step, recipe.n_slices)
        number = int(_order(self._spec.seed, visits, recipe.n_slices)[place])
        selection, partitions, share = recipe.outer, None, 1.0
        if recipe.by_partition:
            partitions = range(number, self._executor.n_partitions, recipe.n_slices)
        else:
            selection = replace(selection, slice_of=(number, recipe.n_slices))
            share = 1.0 / recipe.n_slices
        # responses count by their mean, and so do words: here on the scale of the words
        work = ConditionalPass(selection, self._words_per_response / self._dispersion)
        statistics = self._run(parameters, work, partitions, share)
        self._totals.add(statistics)
        mass = -float(statistics.gradient.sum())
        # the words of a slice weigh 0 where there are none; less is what rounding leaves beside a loss beyond all bounds
        if not mass >= 0.0:
            raise self._family.fault(
                f"the gradient must be finite and leave the words their weight, got {mass} for it in iteration "
                f"{len(self.trace) + 1}"
            )
        if mass > 0.0:
            if self._seeds is not None:
                self._seeds.add_to(statistics.gradient, -self._seed_counts * mass / self._mass)
            self._sums.visit(number, statistics, parameters)
            new = self._solved(parameters)
            topics = self._descent.step(
                parameters.topics,
                statistics.gradient,
                recipe.step_size,
                scale=1.0 / mass,
                prior=self._spec.topic_prior / self._mass,
            )
            self._check(topics, new)
            self.parameters = replace(new, topics=topics)
        self._step += 1
        if self._step < N_STEPS:
            return False
        self._step = 0
        if not self._family.has_dispersion_floor:
            weight = self._totals.of("labelled_weight")
            delta = self._updated_delta(parameters, self._totals.profile, weight)
            self.parameters = replace(self.parameters, delta=delta)
        self._dispersion = self._totals.dispersion
        self._center = self._totals.center(self.parameters)
        self._record(self._judge(self.n_epochs + 1), share=N_STEPS / recipe.n_slices)
        self._totals = _Totals.empty(self.parameters, self._family)
        return True

    def _judge(self, epoch: int) -> float:
        """Predict the inner part, and keep the parameters if they do it best; return the gain over no words."""
        if not self._recipe.inner_share:
            return 0.0
        judge = InnerPass(self._recipe.inner, self._center, SLOPES)
        sums = self._run(self.parameters, judge, share=self._recipe.inner_share)
        if not sums.weight > 0.0:
            raise InputError(
                "the inner part of the documents must have one with a response and a known word, got none",
                remedy="train with {objective='joint'}, which needs none",
            )
        values: Array = sums.log_likelihood / sums.weight
        if epoch == 0:
            self._null = max(float(values[0]), self._without_words())
        # One level for all epochs: the mean of the linear predictors, which a slope of 0 predicts, is further from the mean
        # response the more they spread.
        slope, gain = _highest(SLOPES, values - self._null)
        if not math.isfinite(gain):
            raise self._family.fault(f"the log-likelihood of the inner part must be finite, got {gain}")
        self._inner_weight = sums.weight
        self._peak = max(gain, self._peak)
        # the inner part is a sample, which says less where responses scatter more: of epochs that it cannot tell apart,
        # the last has the most distinct topics
        tolerance = self._recipe.tolerance * math.sqrt(self._dispersion / sums.weight)
        if gain >= self._peak - tolerance * abs(self._peak):
            assert self._sums is not None
            self._best = _Best(self.parameters, self._sums.copy(), self._center, slope, epoch)
        return gain

    def _without_words(self) -> float:
        """Log-likelihood of a response of the inner part at the values that the fit started from, for all documents."""
        start = replace(self.parameters, delta=self._null_delta)
        judge = InnerPass(self._recipe.inner, self._null_center, np.zeros(1))
        sums = self._run(start, judge, share=self._recipe.inner_share)
        return float(sums.log_likelihood[0]) / sums.weight

    def _solved(self, parameters: Parameters) -> Parameters:
        assert self._sums is not None
        return self._sums.solve(parameters, family=self._family, spec=self._ridged(self._curvature))

    def _ridged(self, curvature: float) -> FitSpec:
        """The settings with the ridge of the recipe, unless the user chose one."""
        if self._spec.ridge is not None:
            return self._spec
        share = self._recipe.ridge * curvature / (self.parameters.n_classes or 1)
        # responses that one outlier makes all but equal have information beyond any setting
        most = SETTINGS["ridge"].highest
        assert most is not None
        return replace(self._spec, ridge=min(max(self._family.default_ridge, share), most))

    def _updated_delta(self, parameters: Parameters, profile: Array, weight: float) -> Array:
        if not weight > 0.0:
            return parameters.delta
        delta = self._family.update_delta(parameters.delta, profile, weight=weight, gain=0.0)
        if self._family.has_dispersion_floor:
            delta = np.concatenate([[max(delta[0], self._spec.dispersion_floor)], delta[1:]])
        return delta

    def _check(self, topics: Array, parameters: Parameters) -> None:
        """Refuse numbers that no later step could mend."""
        for name, values in (("topics", topics), ("eta", parameters.eta), ("zeta", parameters.zeta)):
            if not np.isfinite(values).all():
                raise self._family.fault(
                    f"{name} must be finite, got others in iteration {len(self.trace) + 1}"
                )

    def _record(self, gain: float, *, share: float = 1.0) -> None:
        """Complete an iteration from the sums so far, of a share of the documents."""
        totals, now = self._totals, time.perf_counter()
        objective = (totals.of("elbo") + totals.of("log_likelihood")) / share
        if not math.isfinite(objective):
            raise self._family.fault(
                f"the objective must be finite, got {objective} in iteration {len(self.trace) + 1}"
            )
        last = self.trace[-1].elbo if self.trace else math.nan
        n_documents = max(totals.of("n_documents"), 1.0)
        seconds = max(now - self._began, 1e-9)
        delta = self.parameters.delta
        self.trace += (
            IterationRecord(
                iteration=len(self.trace) + 1,
                elbo=objective,
                relative_change=abs(objective - last) / abs(last) if last != 0.0 else math.nan,
                sweeps_per_document=totals.of("n_sweeps") / n_documents,
                unconverged_documents=int(totals.of("n_unconverged")),
                delta=float(delta[0]) if len(delta) else math.nan,
                publish_seconds=self._publish,
                e_step_seconds=self._e_step,
                reduce_seconds=self._reduce,
                m_step_seconds=max(seconds - self._publish - self._e_step - self._reduce, 0.0),
                e_step_cpu_seconds=totals.of("seconds"),
                documents_per_second=n_documents / seconds,
                inner_gain=gain,
            ),
        )
        if (row := totals.first_without_gradient) is not None:
            n_left_out = int(totals.of("n_without_gradient"))
            warn(
                DataWarning(
                    f"the response of {number_of(n_left_out, 'document')} was left out of iteration {len(self.trace)}: "
                    f"its derivatives are not finite; the first is {self._executor.name_of(row)}",
                    remedy="mend its response or columns, or leave it out with {documents=}",
                )
            )
        self._began, self._publish, self._e_step, self._reduce = now, 0.0, 0.0, 0.0

    def position(self) -> Position:
        """All that the fit needs to go on from here."""
        numbers = [
            self._dispersion,
            self._mass,
            self._curvature,
            self._words_per_response,
            float(self._step),
            float(self._descent.n_steps),
        ]
        state: dict[str, Array] = {
            "numbers": np.array(numbers),
            "null_delta": self._null_delta,
            "null_center": self._null_center,
            "seed_counts": self._seed_counts,
            # copies, since the fit adds to them
            "first_moments": self._descent.first.copy(),
            "second_moments": self._descent.second.copy(),
            "totals_profile": self._totals.profile.copy(),
            "totals_features": self._totals.features.copy(),
            "totals_numbers": self._totals.numbers.copy(),
        }
        if (row := self._totals.first_without_gradient) is not None:
            state["totals_first"] = np.array([float(row)])
        if self._sums is not None:
            state["slices_information"] = self._sums.information.copy()
            state["slices_target"] = self._sums.target.copy()
        if (best := self._best) is not None:
            parameters = best.parameters
            state |= {
                "best_topics": parameters.topics,
                "best_eta": parameters.eta,
                "best_delta": parameters.delta,
                "best_zeta": parameters.zeta,
                "best_information": best.sums.information,
                "best_target": best.sums.target,
                "best_center": best.center,
                "best_numbers": np.array(
                    [best.slope, float(best.epoch), self._peak, self._inner_weight, self._null]
                ),
            }
        return Position(
            self.parameters, self.trace, {name: array for name, array in state.items() if array.size}
        )

    def restore(self, position: Position, place: str | None) -> None:
        """Go on from the position of an earlier run, in the checkpoint at a place.

        Raises
        ------
        FormatError
            The checkpoint lacks what this version needs, or has it in another shape.
        """
        self.parameters, self.trace, state = position.parameters, position.trace, position.state
        if not self.trace:
            return

        def stored(name: str, shape: tuple[int, ...]) -> Array:
            array = np.zeros(shape) if 0 in shape else state.get(name)
            if array is None or array.shape != shape:
                raise FormatError(
                    f"the checkpoint is of another version of dslda: array 'state_{name}' must be there in the shape "
                    f"{shape}, got {'none' if array is None else array.shape}",
                    place=place,
                    remedy="begin anew with {overwrite=True} instead of {resume=True}",
                )
            return array.copy()

        parameters, totals = position.parameters, self._totals
        numbers = stored("numbers", (6,))
        self._dispersion, self._mass, self._curvature, self._words_per_response, step, n_steps = (
            numbers.tolist()
        )
        self._step = int(step)
        self._null_delta = stored("null_delta", self._null_delta.shape)
        self._null_center = stored("null_center", self._null_center.shape)
        self._seed_counts = stored("seed_counts", self._seed_counts.shape)
        self._descent = TopicDescent(
            stored("first_moments", parameters.topics.shape),
            stored("second_moments", parameters.topics.shape),
            int(n_steps),
        )
        self._totals = _Totals(
            stored("totals_profile", totals.profile.shape),
            stored("totals_features", totals.features.shape),
            stored("totals_numbers", totals.numbers.shape),
            int(stored("totals_first", (1,))[0]) if "totals_first" in state else None,
        )
        # both come when the start has settled
        if not (self._step or self._gains or "slices_target" in state or "best_numbers" in state):
            return
        n_slices, n_features = self._recipe.n_slices, len(totals.features)
        classes = parameters.eta.shape[1:]

        def stored_sums(name: str) -> CoefficientSums:
            return CoefficientSums(
                stored(f"{name}_information", (n_slices, *classes, n_features, n_features)),
                stored(f"{name}_target", (n_slices, n_features, *classes)),
            )

        self._sums = stored_sums("slices")
        best = replace(
            parameters,
            topics=stored("best_topics", parameters.topics.shape),
            eta=stored("best_eta", parameters.eta.shape),
            delta=stored("best_delta", parameters.delta.shape),
            zeta=stored("best_zeta", parameters.zeta.shape),
        )
        center = stored("best_center", self._center.shape)
        slope, epoch, self._peak, self._inner_weight, self._null = stored("best_numbers", (5,)).tolist()
        self._best = _Best(best, stored_sums("best"), center, slope, int(epoch))


def _recipe_of(executor: Executor, parameters: Parameters, family: Family, spec: FitSpec) -> Recipe:
    """The recipe for the documents of an executor, after a pass that measures them."""
    name = "sqrt" if spec.term_weights == "auto" else spec.term_weights
    lengths, _ = executor.run(parameters, LengthPass(TermWeighting(name), executor.n_documents))
    scale = lengths.tokens / lengths.mass if lengths.mass > 0.0 else 1.0
    return Recipe.of(
        spec,
        weighting=TermWeighting(name, scale),
        has_classes=parameters.n_classes is not None,
        has_levels=family.has_levels,
        n_labelled=int(lengths.labelled),
        n_documents=executor.n_documents,
        n_tokens=lengths.tokens,
        n_partitions=executor.n_partitions,
        repeated_share=lengths.repeated_share,
    )


def fit_conditionally(
    executor: Executor,
    start: Position,
    fresh: Callable[[], Parameters],
    *,
    family: Family,
    spec: FitSpec,
    checkpoints: Checkpoints | None = None,
    progress: FitProgress | None = None,
    seeds: TopicSeeds | None = None,
) -> FitResult:
    """Train topics that predict the response from words alone.

    Parameters
    ----------
    start : Position
        Starting values, or the position of an earlier run from its checkpoint.
    fresh : callable
        Returns the starting values of a fit that begins.
    executor, family, spec, checkpoints, progress, seeds
        As :func:`~dslda.engine.driver.fit` takes them.

    Returns
    -------
    FitResult
        The parameters of the best epoch, and their sums over all documents. After Ctrl-C, those of the best epoch so far.

    Raises as :func:`~dslda.engine.driver.fit`; also InputError if the inner part has no document with a response, and
    FormatError if the position is that of another version of dslda.
    """
    progress = default_progress() if progress is None else progress
    interrupted = False
    with progress, single_threaded_blas():
        recipe = _recipe_of(executor, start.parameters, family, spec)
        logger.info("conditional training: %s", recipe.in_words)
        n_classes = start.parameters.n_classes or 0
        if n_classes > spec.n_topics:
            logger.info(
                "%d topics for %d classes: with a topic for each class, topics alone predict better",
                spec.n_topics,
                n_classes,
            )

        def with_choices(parameters: Parameters) -> Parameters:
            alpha = np.full(spec.n_topics, recipe.alpha)
            return replace(parameters, alpha=alpha, weighting=recipe.weighting)

        start = replace(start, parameters=with_choices(start.parameters))
        run = ConditionalFit(
            executor,
            start.parameters,
            family=family,
            spec=spec,
            recipe=recipe,
            fresh=lambda: with_choices(fresh()),
            on_partition=progress.partition,
            seeds=seeds,
        )
        run.restore(start, None if checkpoints is None else checkpoints.url)
        progress.started(executor.n_documents, executor.n_partitions, spec)
        if start.trace:
            progress.resumed(start.trace)
        try:
            while not run.is_done:
                is_complete = run.advance()
                if is_complete:
                    progress.iteration(run.trace[-1])
                # a position copies as much as the topics hold: within an epoch, only one that will be written
                if checkpoints is not None and (is_complete or checkpoints.is_due(n_complete=len(run.trace))):
                    checkpoints.after_m_step(run.position())
        except BaseException as error:
            if checkpoints is not None:
                checkpoints.at_end(n_complete=len(run.trace))
                checkpoints.note(error)
            if not run.can_finish or not isinstance(error, KeyboardInterrupt):
                raise
            logger.warning("interrupted: keeping %s", run.best_in_words)
            interrupted = True
        else:
            if checkpoints is not None:
                checkpoints.at_end(n_complete=len(run.trace))
        try:
            parameters, statistics, ridge, unseen = run.finish(at_once=interrupted)
        except KeyboardInterrupt:
            if interrupted:
                raise
            logger.warning("interrupted: keeping %s, without what follows", run.best_in_words)
            interrupted = True
            parameters, statistics, ridge, unseen = run.finish(at_once=True)
    if run.is_by_chance:
        logger.warning(
            "words say nothing of the response that may not be chance: the inner part is predicted hardly better than by the "
            "mean of all documents"
        )
    if not interrupted:
        logger.info(
            "training ended after epoch %d: %s",
            run.n_epochs,
            "the inner part was predicted no better" if run.has_settled else "it was the last",
        )
    return FitResult(
        parameters,
        statistics,
        run.trace,
        converged=run.has_converged and not interrupted,
        interrupted=interrupted,
        ridge=ridge,
        unseen=unseen,
    )


@lru_cache(maxsize=1)
def _order(seed: int, visits: int, n_slices: int) -> NDArray[np.int64]:
    """The order in which slices are visited that have all been visited so often; to draw it takes as long as to use it."""
    return np.random.default_rng([seed, visits]).permutation(n_slices)


def _highest(slopes: Array, gains: Array) -> tuple[float, float]:
    """Slope and gain at the top of the parabola through the best slope and its neighbours, beside no slope at all."""
    i = int(np.nanargmax(gains[1:])) + 1
    if i in (1, len(slopes) - 1):
        return float(slopes[i]), float(gains[i])
    below, here, above = gains[i - 1 : i + 2].tolist()
    bend = below - 2.0 * here + above
    shift = 0.5 * (below - above) / bend if bend < 0.0 else 0.0
    width = float(slopes[i + 1] - slopes[i])
    return float(slopes[i]) + shift * width, here - 0.25 * (below - above) * shift
