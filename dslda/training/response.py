"""The response of a fit: its family and the columns it uses, checked before any long work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dslda.engine.data.response_survey import Moments, Survey
from dslda.exceptions import InputError
from dslda.families.base import Family, ResponseMoments
from dslda.families.categorical import Categorical
from dslda.families.own import check_definition
from dslda.families.registry import get_family, register
from dslda.training.base_rate import class_shares
from dslda.training.checks import ROUNDING, check_roles, check_values
from dslda.training.classes import class_counts, class_weights, report_rare_classes, values_of_classes
from dslda.training.training_set import Roles, TrainingSet
from dslda.variational.design import CovariateColumn, Design
from dslda.variational.parameters import Scaling
from dslda.wording import first_few, number_name, number_of

__all__ = ["ResponseModel", "chosen_family", "response_model"]


@dataclass(frozen=True, slots=True)
class ResponseModel:
    """A family with its data.

    Attributes
    ----------
    family : Family
    design : Design
    moments : ResponseMoments
        Of the scaled response: where EM starts.
    classes : tuple of str or None
        Names of the classes, by code.
    rate : ndarray of float64, shape (1,) or (C,)
        Mean of the scaled response, or shares of the classes, as documents and classes are weighed.
    """

    family: Family
    design: Design
    moments: ResponseMoments
    classes: tuple[str, ...] | None
    rate: NDArray[np.float64]


def chosen_family(family: str | Family) -> Family | None:
    """The family from a user's name or instance, None for "categorical", whose classes come from the data.

    Raises
    ------
    InputError
        There is no such family, or it is the user's own and lacks what it must define.
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
        A response is outside the domain of the family, or a column is not what its role asks for.

    Warns
    -----
    DataWarning
        Numbers with many values are taken for classes, or a class is rare.
    """
    summary, what = training_set.summary, training_set.what
    levels = training_set.levels.get(training_set.column)
    given = chosen_family(family)
    values: tuple[float, ...] | None = None
    names = levels
    if given is None or isinstance(given, Categorical):
        if levels is None:
            values = values_of_classes(what, summary)
            names = tuple(map(number_name, values))
        assert names is not None
        if given is None:
            given = Categorical(n_classes=len(names))
        elif given.n_classes != len(names):
            raise InputError(f"n_classes must be {len(names)}, the classes of {what}, got {given.n_classes}")
        if values == tuple(range(len(values or ()))):
            values = None
    elif levels is not None and not (given.max_classes == len(levels) and roles.trials is None):
        shown = first_few([repr(level) for level in levels], 3)
        raise InputError(
            f"family {given.name} needs numbers, and {what} has {number_of(len(levels), 'name')} ({shown})",
            remedy="use {family='categorical'}",
        )
    else:
        names = levels or (("0", "1") if given.has_classes and roles.trials is None else None)
    check_roles(given, training_set, roles)
    survey = _survey(given, training_set, roles, names or (), values)
    check_values(given, training_set, roles, survey)
    if names is not None:
        report_rare_classes(training_set, names, values)
    moments = _moments(survey, training_set, roles)
    masses = survey.masses.get(training_set.column)
    if names is not None and masses is None:
        masses = survey.moments[training_set.column].weight * np.array([1.0 - moments.mean, moments.mean])
    scaling = Scaling(*map(float, given.scaling(moments)))
    design = Design(
        response=training_set.column,
        scaling=scaling,
        exposure=roles.exposure,
        auxiliary=roles.trials or roles.event,
        weight=roles.weight,
        trials=roles.trials is not None,
        classes=values,
        class_weight=class_weights(roles.class_weight, masses, names),
        covariates=_covariate_columns(roles.covariates, survey, training_set.levels),
    )
    scaled = moments.scaled(scaling.center, scaling.scale)
    rate = np.array([scaled.mean])
    if masses is not None:
        rate = class_shares(masses, summary.n, design.class_weight)
        if not isinstance(given, Categorical):
            rate = rate[1:]
    return ResponseModel(given, design, scaled, names, rate)


def _survey(
    family: Family,
    training_set: TrainingSet,
    roles: Roles,
    names: Sequence[str],
    values: tuple[float, ...] | None,
) -> Survey:
    """Survey the documents trained on; their columns are read only if the summary of the response does not suffice."""
    source, column, summary = training_set.source, training_set.column, training_set.summary
    if not roles.columns and not source.weighted:
        moments = {column: Moments.of_summary(summary)}
        if isinstance(family, Categorical):
            if (counts := class_counts(summary, names, values)) is not None:
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
    if isinstance(family, Categorical):
        n_levels[column] = len(names)
    return source.with_design(replace(source.design, classes=values)).survey(family, n_levels)


def _moments(survey: Survey, training_set: TrainingSet, roles: Roles) -> ResponseMoments:
    """Moments of the response per trial, unit of exposure or event, approximated by those of the columns."""
    per = 1.0
    # censored durations: the time that went by for each event
    for name in (roles.trials, roles.exposure, roles.event):
        if name is not None:
            per *= survey.moments[name].mean
    y = survey.moments[training_set.column]
    n = training_set.summary.n
    return ResponseMoments(n, y.mean / per, y.variance / per**2, y.minimum / per, y.maximum / per)


def _covariate_columns(
    names: Sequence[str], survey: Survey, levels: Mapping[str, tuple[str, ...]]
) -> tuple[CovariateColumn, ...]:
    """Columns centred over the documents with a response: numbers standardised; of names one for each level but the first."""
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
