"""The response of a fit: its family, classes and columns, checked before any long work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.levels import UNKNOWN, LevelIndex
from dslda.corpus.summary import ResponseSummary
from dslda.engine.data.response_survey import Moments, Survey
from dslda.exceptions import DataWarning, InputError, warn
from dslda.families.base import Family, ResponseMoments
from dslda.families.categorical import Categorical
from dslda.families.own import check_definition
from dslda.families.registry import FAMILIES, get_family, register
from dslda.training.checks import ROUNDING, check_roles, check_values, report_outlier
from dslda.training.ordered_levels import OrderedLevels, ordered_levels, rank_moments
from dslda.training.training_set import ClassWeight, Roles, TrainingSet
from dslda.variational.design import CovariateColumn, Design
from dslda.variational.parameters import Scaling
from dslda.wording import first_few, number_name, number_of

__all__ = ["ResponseModel", "chosen_family", "response_model"]

MANY_CLASSES = 50
"""Numbers with more distinct values than this look like measurements, not like names of classes."""

RARE_CLASS = 0.1
"""Fraction of its equal share, 1 / C, below which a class is learned badly: of two classes, below 5% of the documents."""


@dataclass(frozen=True, slots=True)
class ResponseModel:
    """A family with its data.

    Attributes
    ----------
    family : Family
    design : Design
    moments : ResponseMoments
        Moments of the scaled response, from which EM starts.
    classes : tuple of str or None
        Names of the classes, by code, or of levels that have names.
    rate : ndarray of float64, shape (1,) or (C,)
        Mean of the scaled response, or shares of the classes or levels, by the weights of documents and classes.
    """

    family: Family
    design: Design
    moments: ResponseMoments
    classes: tuple[str, ...] | None
    rate: NDArray[np.float64]


def chosen_family(family: str | Family) -> Family | None:
    """The family of a user's name or instance, None for "categorical", whose classes come from the data.

    Raises
    ------
    InputError
        There is no such family, or the user's own lacks a part.
    """
    if isinstance(family, Family):
        check_definition(family)
        register(type(family))
        return family
    if isinstance(family, str) and family == Categorical.name:
        return None
    if isinstance(family, type) and issubclass(family, Family):
        raise InputError(
            f"must be an instance, got the class {family.__name__}",
            parameter="family",
            remedy=f"write {family.__name__}()",
        )
    return get_family(family)


def response_model(family: str | Family, training_set: TrainingSet, roles: Roles) -> ResponseModel:
    """Fit the family to the columns.

    Raises
    ------
    InputError
        A response is outside the domain of the family, or a column does not fit its role.

    Warns
    -----
    DataWarning
        Numbers with many values are taken for classes, or a class is rare.
    """
    summary, response, column = training_set.summary, training_set.in_words, training_set.column
    levels = training_set.levels.get(column)
    model = chosen_family(family)
    # the number that stands for each class, where that is not its code
    values: tuple[float, ...] | None = None
    names = levels
    ordered: OrderedLevels | None = None
    if model is not None and model.has_levels:
        ordered = ordered_levels(model, training_set, roles)
        names = None
    elif roles.levels is not None:
        takers = ", ".join(sorted(name for name, kind in FAMILIES.items() if kind.max_levels))
        raise InputError(
            f"must be left out for family {'categorical' if model is None else model.name}, whose responses have no "
            f"order; families with levels: {takers}",
            parameter="levels",
        )
    elif model is None or isinstance(model, Categorical):
        if names is None:
            values = _values_of_classes(response, summary)
            names = tuple(map(number_name, values))
            if values == tuple(range(len(values))):
                values = None
        if model is None:
            model = Categorical(n_classes=len(names))
        elif model.n_classes != len(names):
            raise InputError(
                f"n_classes must be {len(names)}, the classes of {response}, got {model.n_classes}"
            )
    elif levels is not None and not (model.max_classes == len(levels) and roles.trials is None):
        shown = first_few([repr(level) for level in levels], 3)
        raise InputError(
            f"family {model.name} needs numbers, and {response} has {number_of(len(levels), 'name')} ({shown})",
            remedy="use {family='binomial'}"
            if len(levels) == 2 and not model.has_classes
            else "use {family='categorical'}",
        )
    elif names is None and model.has_classes and roles.trials is None:
        names = ("0", "1")
    check_roles(model, training_set, roles)
    if ordered is None:
        survey = _survey(model, training_set, roles, len(names or ()), values)
    else:
        survey = _survey(model, training_set, roles, len(ordered.values), ordered.values)
    check_values(model, training_set, roles, survey)
    report_outlier(model, training_set, roles)
    if names is not None:
        _report_rare_classes(training_set, names, values)
    moments = _moments(survey, training_set, roles)
    masses = survey.masses.get(column)
    if ordered is not None and masses is not None:
        ordered, masses = ordered.with_documents(masses)
        ordered.report_absent(response)
        if ordered.names is not None:
            values, moments = ordered.values, rank_moments(training_set.summary.n, masses)
    if names is not None and masses is None:
        masses = survey.moments[column].weight * np.array([1.0 - moments.mean, moments.mean])
    scaling = Scaling(*map(float, model.scaling(moments)))
    design = Design(
        response=column,
        scaling=scaling,
        exposure=roles.exposure,
        auxiliary=roles.trials or roles.event,
        weight=roles.weight,
        trials=roles.trials is not None,
        classes=values,
        class_weight=_class_weights(roles.class_weight, masses, names),
        covariates=_covariate_columns(roles.covariates, survey, training_set.levels),
    )
    scaled = moments.scaled(scaling.center, scaling.scale)
    rate = np.array([scaled.mean])
    if masses is not None and ordered is not None:
        rate = _level_shares(masses)
        names = ordered.names
    elif masses is not None:
        rate = _class_shares(masses, summary.n, design.class_weight)
        if not isinstance(model, Categorical):
            rate = rate[1:]
    return ResponseModel(model, design, scaled, names, rate)


def _level_shares(masses: NDArray[np.float64]) -> NDArray[np.float64]:
    """Share of each level from the lowest that has documents to the highest, shape (C,); none is 0."""
    present = np.flatnonzero(masses > 0.0)
    # between them whole numbers may be levels without documents, as narrow as a level can be
    within = np.maximum(masses[present[0] : present[-1] + 1], 1e-12 * masses.sum())
    shares: NDArray[np.float64] = within / within.sum()
    return shares


def _values_of_classes(response: str, summary: ResponseSummary) -> tuple[float, ...]:
    """The numbers that stand for classes."""
    if summary.distinct is None:
        raise InputError(
            f"family categorical needs classes, and {response} has hundreds of different numbers",
            remedy="choose a family of numbers",
        )
    if len(summary.distinct) > MANY_CLASSES or not summary.whole:
        warn(
            DataWarning(
                f"{response} has {len(summary.distinct)} different numbers, which are taken for classes without "
                "order",
                remedy="a family of numbers needs one coefficient a topic, not one for each class",
            )
        )
    return summary.distinct


def _class_counts(
    summary: ResponseSummary, n_classes: int, values: tuple[float, ...] | None
) -> NDArray[np.int64] | None:
    """Number of documents of each class, shape (C,); None if the classes were too many to count."""
    if summary.distinct is None or summary.counts is None:
        return None
    counts = np.zeros(n_classes, dtype=np.int64)
    for value, count in zip(summary.distinct, summary.counts, strict=True):
        counts[int(value) if values is None else values.index(value)] = count
    return counts


def _report_rare_classes(
    training_set: TrainingSet, names: Sequence[str], values: tuple[float, ...] | None
) -> None:
    response, counts = training_set.in_words, _class_counts(training_set.summary, len(names), values)
    if counts is None:
        return

    def some(codes: Sequence[int]) -> str:
        return first_few([repr(names[code]) for code in codes], 5)

    def report(reason: str, *remedy: str) -> None:
        warn(DataWarning(reason, place=response, remedy=remedy))

    if absent := np.flatnonzero(counts == 0).tolist():
        report(
            f"{number_of(len(absent), 'class', 'classes')} of no document trained on ({some(absent)}) cannot be learned, "
            "and their share of each prediction comes from nowhere",
            "train with documents of them, or leave them out of the corpus",
        )
    if single := np.flatnonzero(counts == 1).tolist():
        row = training_set.source.first_with(float(single[0]) if values is None else values[single[0]])
        where = "" if row is None else f"; the first in {training_set.source.name_of(row)}"
        report(
            f"{number_of(len(single), 'class', 'classes')} of a single document ({some(single)}{where}) cannot be learned",
            "merge or leave them out",
        )
        return
    most = RARE_CLASS / len(names) * counts.sum()
    if rare := [code for code in np.argsort(counts, kind="stable").tolist() if 0 < counts[code] < most]:
        at_most = "" if len(rare) == 1 else " at most, each,"
        report(
            f"only {counts[rare].max() / counts.sum():.1%} of the documents{at_most} are {some(rare)}",
            "judge by probabilities",
            "give rare classes more weight with {class_weight} ('balanced')",
        )


def _class_weights(
    weights: ClassWeight | None, masses: NDArray[np.float64] | None, names: Sequence[str] | None
) -> tuple[float, ...] | None:
    """One weight for each class, from a user's `class_weight`; `masses` are the documents of each class by their weights."""
    if weights is None:
        return None
    if names is None or masses is None:
        raise InputError("must be left out: the response has no classes", parameter="class_weight")
    if isinstance(weights, str):
        if weights != "balanced":
            raise InputError(
                f"must be 'balanced' or a mapping of class to weight, got {weights!r}",
                parameter="class_weight",
            )
        equal = masses.sum() / np.count_nonzero(masses)
        # a class of no document cannot be made as frequent as the others
        return tuple(np.divide(equal, masses, out=np.ones_like(masses), where=masses > 0.0).tolist())
    if not isinstance(weights, Mapping) and not hasattr(weights, "items"):
        raise InputError(
            f"must be 'balanced' or a mapping of class to weight, got {type(weights).__name__}",
            parameter="class_weight",
        )
    weights = dict(weights.items())  # a Series has items, and iterates over its values
    index = LevelIndex(names)
    codes = {label: index.code(label, "a class of class_weight") for label in weights}
    unknown = [label for label, code in codes.items() if not code > UNKNOWN]
    if unknown:
        raise InputError(
            f"must name classes of the response, got {', '.join(sorted(map(repr, unknown)))}; they "
            f"are {first_few([*map(repr, names)], 10)}",
            parameter="class_weight",
        )
    weight_of: dict[str, Any] = {}
    for label, weight in weights.items():
        name = names[int(codes[label])]
        is_number = isinstance(weight, (Real, Decimal)) and not isinstance(weight, bool)
        if name in weight_of:
            raise InputError(f"must name each class once, got {name!r} twice", parameter="class_weight")
        weight_of[name] = weight
        if not is_number or not 0.0 <= float(weight) < np.inf:
            raise InputError(
                f"of {name!r} must be a number of at least 0, got {weight!r}", parameter="class_weight"
            )
    return tuple(float(weight_of.get(name, 1.0)) for name in names)


def _class_shares(
    masses: NDArray[np.float64], n: int, class_weight: Sequence[float] | None
) -> NDArray[np.float64]:
    """Share of each class in the `n` training responses by the weights of the fit, shape (C,); none is 0."""
    # half a document for a class without any keeps its logarithm finite
    weighed = np.maximum(masses, 0.5 * masses.sum() / n) * (
        1.0 if class_weight is None else np.asarray(class_weight)
    )
    weighed = np.maximum(weighed, 1e-12 * weighed.sum())
    shares: NDArray[np.float64] = weighed / weighed.sum()
    return shares


def _survey(
    family: Family,
    training_set: TrainingSet,
    roles: Roles,
    n_classes: int,
    values: tuple[float, ...] | None,
) -> Survey:
    """Survey the documents trained on; their columns are read only if the summary of the response does not suffice."""
    source, column, summary = training_set.source, training_set.column, training_set.summary
    if not roles.columns and not source.weighted:
        moments = {column: Moments.of_summary(summary)}
        if isinstance(family, Categorical) or values is not None:
            if (counts := _class_counts(summary, n_classes, values)) is not None:
                return Survey(moments, {column: counts.astype(np.float64)})
        elif summary.distinct is not None:
            if family.check(np.array(summary.distinct), None).all():
                return Survey(moments)
        elif type(family).check is Family.check and (
            family.domain.contains(np.array([summary.minimum, summary.maximum])).all()
            and (summary.whole or not family.domain.integer)
        ):
            return Survey(moments)
    n_levels = {name: len(training_set.levels[name]) for name in roles.columns if name in training_set.levels}
    if isinstance(family, Categorical) or values is not None:
        n_levels[column] = n_classes
    return source.with_design(replace(source.design, classes=values)).survey(family, n_levels)


def _moments(survey: Survey, training_set: TrainingSet, roles: Roles) -> ResponseMoments:
    """Moments of the response per trial, unit of exposure or event, approximated by those of the columns."""
    per = 1.0
    # of censored durations: the time for each event
    for name in (roles.trials, roles.exposure, roles.event):
        if name is not None:
            per *= survey.moments[name].mean
    y = survey.moments[training_set.column]
    n = training_set.summary.n
    return ResponseMoments(n, y.mean / per, y.variance / per**2, y.minimum / per, y.maximum / per)


def _covariate_columns(
    names: Sequence[str], survey: Survey, levels: Mapping[str, tuple[str, ...]]
) -> tuple[CovariateColumn, ...]:
    """Columns centred over the documents with a response: numbers standardised; one for each level of names but the first."""
    columns: list[CovariateColumn] = []
    for name in names:
        if name in levels:
            shares = survey.masses[name] / survey.masses[name].sum()
            if np.count_nonzero(shares) == 1:
                raise _constant(name, repr(levels[name][int(shares.argmax())]))
            columns += [
                CovariateColumn(name, code, float(shares[code]), 1.0) for code in range(1, len(shares))
            ]
            continue
        moments = survey.moments[name]
        low, high = moments.minimum, moments.maximum
        if moments.variance == 0.0 or high - low <= ROUNDING * max(abs(low), abs(high)):
            raise _constant(name, f"{low:g}")
        columns.append(CovariateColumn(name, None, moments.mean, math.sqrt(moments.variance)))
    return tuple(columns)


def _constant(name: str, value: str) -> InputError:
    return InputError(
        f"covariate {name!r} must differ between documents with a response by more than rounding, "
        f"got {value} in all",
        remedy="leave it out",
    )
