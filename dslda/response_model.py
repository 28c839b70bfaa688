"""From what a user says of the response to a family and the columns it uses, checked before any long work."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dslda.base_rate import class_shares
from dslda.corpus.levels import level_name
from dslda.engine.survey import Moments, Survey
from dslda.exceptions import DataWarning, InputError
from dslda.families.answers import check_definition, checked_scaling, is_in_domain
from dslda.families.base import Family, ResponseMoments
from dslda.families.categorical import Categorical
from dslda.families.registry import FAMILIES, get_family, register
from dslda.variational.design import CovariateColumn, Design
from dslda.variational.parameters import Scaling
from dslda.wording import first_few, number_name, number_of

if TYPE_CHECKING:
    from dslda.corpus.summary import ResponseSummary
    from dslda.training_set import TrainingSet

__all__ = ["ClassWeight", "ResponseModel", "Roles", "chosen_family", "response_model"]

ClassWeight = Literal["balanced"] | Mapping[Any, float]

ROUNDING = 1e-13
"""Numbers whose range is a smaller fraction of their size differ in their last digits only."""
MANY_CLASSES = 50
"""Numbers with more distinct values than this are rather measured than names of classes."""
RARE_CLASS = 0.1
"""A class with a smaller part of the documents than this of its equal share, 1 / C, is learned badly: of two, below 5%."""

RULES = {
    "weight": "numbers of at least 0",
    "exposure": "numbers above 0",
    "trials": "whole numbers of at least 1",
    "event": "1 where the duration ended and 0 where it was cut off",
}
"""What the column of a role must hold."""


@dataclass(frozen=True, slots=True)
class Roles:
    """Which columns of a corpus play a part beside the response.

    Attributes
    ----------
    covariates : tuple of str
    weight, exposure, trials, event : str or None
    class_weight : "balanced", mapping of class to weight, or None
    """

    covariates: tuple[str, ...] = ()
    weight: str | None = None
    exposure: str | None = None
    trials: str | None = None
    event: str | None = None
    class_weight: ClassWeight | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """All the columns named, once each."""
        named = (*self.covariates, self.weight, self.exposure, self.trials, self.event)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def of_response(self, response: str) -> Design:
        """The columns alone, before what they hold is known."""
        return Design(
            response,
            exposure=self.exposure,
            auxiliary=self.trials or self.event,
            weight=self.weight,
            covariates=tuple(CovariateColumn(name, None, 0.0, 1.0) for name in self.covariates),
        )


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
    """The family a user names or gives, None for "categorical", whose classes the data tell.

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
            f"family must be an instance, got the class {family.__name__}; write {family.__name__}()"
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
            values = _values_of_classes(what, summary)
            names = tuple(map(number_name, values))
        assert names is not None
        if given is None:
            given = Categorical(n_classes=len(names))
        elif given.n_classes != len(names):
            raise InputError(f"n_classes must be {len(names)}, the classes of {what}, got {given.n_classes}")
        if values == tuple(range(len(values or ()))):
            values = None
    elif levels is not None and not (given.name == "binomial" and len(levels) == 2 and roles.trials is None):
        shown = first_few([repr(level) for level in levels], 3)
        raise InputError(
            f"family {given.name} needs numbers, and {what} has {number_of(len(levels), 'name')} ({shown}); "
            "use family 'categorical'"
        )
    else:
        names = levels or (("0", "1") if given.name == "binomial" and roles.trials is None else None)
    _check_roles(given, training_set, roles)
    survey = _survey(given, training_set, roles, names or (), values)
    _check_values(given, training_set, roles, survey)
    if names is not None:
        _report_rare_classes(training_set, names, values)
    moments = _moments(survey, training_set, roles)
    masses = survey.masses.get(training_set.column)
    if names is not None and masses is None:
        masses = survey.moments[training_set.column].weight * np.array([1.0 - moments.mean, moments.mean])
    scaling = Scaling(*checked_scaling(given, moments))
    design = Design(
        response=training_set.column,
        scaling=scaling,
        exposure=roles.exposure,
        auxiliary=roles.trials or roles.event,
        weight=roles.weight,
        trials=roles.trials is not None,
        classes=values,
        class_weight=_class_weight(roles.class_weight, masses, names),
        covariates=_covariate_columns(roles.covariates, survey, training_set.levels),
    )
    scaled = moments.scaled(scaling.center, scaling.scale)
    rate = np.array([scaled.mean])
    if masses is not None:
        rate = class_shares(masses, summary.n, design.class_weight)
        if not isinstance(given, Categorical):
            rate = rate[1:]
    return ResponseModel(given, design, scaled, names, rate)


def _values_of_classes(what: str, summary: ResponseSummary) -> tuple[float, ...]:
    """The numbers that stand for classes."""
    if summary.distinct is None:
        raise InputError(
            f"family categorical needs classes, and {what} has hundreds of different numbers; choose a family "
            "of numbers"
        )
    if len(summary.distinct) > MANY_CLASSES or not summary.whole:
        warnings.warn(
            f"{what} has {len(summary.distinct)} different numbers, which are taken for classes without order; "
            "a family of numbers needs one coefficient a topic, not one for each class",
            DataWarning,
            stacklevel=5,
        )
    return summary.distinct


def _survey(
    family: Family,
    training_set: TrainingSet,
    roles: Roles,
    names: Sequence[str],
    values: tuple[float, ...] | None,
) -> Survey:
    """Of the documents trained on: by reading their columns, unless the summary of the response tells it all."""
    source, column, summary = training_set.source, training_set.column, training_set.summary
    if not roles.columns and not source.weighted:
        moments = {column: Moments.of_summary(summary)}
        if isinstance(family, Categorical):
            if (counts := _counts(summary, names, values)) is not None:
                return Survey(moments, {column: counts.astype(np.float64)})
        elif summary.distinct is not None:
            if is_in_domain(family, np.array(summary.distinct), None).all():
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


def _check_values(family: Family, training_set: TrainingSet, roles: Roles, survey: Survey) -> None:
    """Refuse values that columns must not have."""
    for role, rule in RULES.items():
        name = getattr(roles, role)
        if (wrong := survey.wrong.get(role)) is not None:
            where = training_set.source.name_of(wrong.row)
            raise InputError(f"{role} {name!r} must hold {rule}, got {wrong.value:g} in {where}")
        if role == "weight" and name is not None and not survey.moments[name].weight > 0.0:
            raise InputError(
                f"weight {name!r} must be above 0 for some document with {training_set.what}, got 0 for all"
            )
        if role == "event" and name is not None and not survey.moments[name].maximum > 0.0:
            raise InputError(f"event {name!r} must be 1 for some document, got 0 for all")
    what, summary, column = training_set.what, training_set.summary, training_set.column
    if not survey.moments[column].weight > 0.0:
        raise InputError(f"weights must be above 0 for some document with {what}, got 0 for all")
    if survey.moments[column].minimum == survey.moments[column].maximum:
        raise InputError(
            f"{what} must have at least two distinct values or classes in documents with a weight above 0, got one; there "
            "is nothing to learn"
        )
    if (wrong := survey.wrong.get("response")) is None:
        return
    y = np.array([wrong.value])
    where = f"in {training_set.source.name_of(wrong.row)}"
    if not family.domain.contains(y).all():
        raise InputError(
            f"{what} must be {family.domain} for family {family.name}, got {wrong.value:g} {where}"
            f"{_other_family(family, summary)}"
        )
    if family.auxiliary == "trials" and roles.trials is not None:
        raise InputError(
            f"{what} must not exceed its trials {roles.trials!r}, got {wrong.value:g} of {wrong.auxiliary:g} {where}"
        )
    if family.auxiliary == "trials":
        raise InputError(
            f"{what} must be 0 or 1 for family {family.name} without trials, got {wrong.value:g} {where}; "
            f"name the column of the trials with trials={_other_family(family, summary)}"
        )
    raise InputError(f"{what} must be one that family {family.name} takes, got {wrong.value:g} {where}")


def _other_family(family: Family, summary: ResponseSummary) -> str:
    if family.name != "binomial" or summary.minimum < 0 or not summary.whole:
        return "; family gaussian takes any number"
    return "; family categorical takes numbers that stand for classes"


def _check_roles(family: Family, training_set: TrainingSet, roles: Roles) -> None:
    if training_set.column in roles.columns:
        raise InputError(
            f"covariates, weight, exposure, trials and event must be other columns than the response, got "
            f"{training_set.column!r}; new documents have no response to go by"
        )
    if roles.exposure is not None and not family.takes_exposure:
        takers = ", ".join(sorted(name for name, kind in FAMILIES.items() if kind.takes_exposure))
        raise InputError(
            f"exposure must be left out for family {family.name}; families with an exposure: {takers}"
        )
    for role, named in (("trials", roles.trials), ("event", roles.event)):
        if named is not None and family.auxiliary != role:
            takers = ", ".join(sorted(name for name, kind in FAMILIES.items() if kind.auxiliary == role))
            raise InputError(f"{role} must be left out for family {family.name}; it belongs to {takers}")
    for role, rule in RULES.items():
        named = getattr(roles, role)
        if named in training_set.levels and role != "event":
            raise InputError(f"{role} {named!r} must hold {rule}, got names; ingest it as a number")


def _report_rare_classes(
    training_set: TrainingSet, names: Sequence[str], values: tuple[float, ...] | None
) -> None:
    what, counts = training_set.what, _counts(training_set.summary, names, values)
    if counts is None:
        return
    single = np.flatnonzero(counts == 1).tolist()
    if single:
        first = float(single[0]) if values is None else values[single[0]]
        row = training_set.source.first_with(first)
        where = "" if row is None else f"; the first in {training_set.source.name_of(row)}"
        warnings.warn(
            f"{what}: {number_of(len(single), 'class', 'classes')} of a single document ("
            f"{_some(names, single)}{where}) cannot be learned; merge or leave them out",
            DataWarning,
            stacklevel=5,
        )
        return
    rare = [code for code in np.argsort(counts, kind="stable").tolist() if counts[code] > 0]
    rare = [code for code in rare if counts[code] < RARE_CLASS / len(names) * counts.sum()]
    if rare:
        each = "" if len(rare) == 1 else " at most, each,"
        warnings.warn(
            f"{what}: only {counts[rare].max() / counts.sum():.1%} of the documents{each} are {_some(names, rare)}; judge by "
            "probabilities, or give rare classes more weight with class_weight ('balanced')",
            DataWarning,
            stacklevel=5,
        )


def _some(names: Sequence[str], codes: Sequence[int]) -> str:
    """The first few of the names with these codes."""
    return first_few([repr(names[code]) for code in codes], 5)


def _counts(
    summary: ResponseSummary, names: Sequence[str], values: tuple[float, ...] | None
) -> NDArray[np.int64] | None:
    """Documents of each class; None where there are too many classes to have been counted."""
    if summary.distinct is None or summary.counts is None:
        return None
    codes = summary.distinct if values is None else range(len(values))
    counts = np.zeros(len(names), dtype=np.int64)
    counts[np.asarray(codes, dtype=np.int64)] = summary.counts
    return counts


def _class_weight(
    given: ClassWeight | None, masses: NDArray[np.float64] | None, names: Sequence[str] | None
) -> tuple[float, ...] | None:
    """Weight of each class; `masses` are the weights of their documents."""
    if given is None:
        return None
    if names is None or masses is None:
        raise InputError("class_weight must be left out: the response has no classes")
    if isinstance(given, str):
        if given != "balanced":
            raise InputError(
                f"class_weight must be 'balanced' or a mapping of class to weight, got {given!r}"
            )
        seen = np.where(masses > 0.0, masses, 1.0)
        return tuple((masses.sum() / (np.count_nonzero(masses) * seen)).tolist())
    weights = {_class_name(name): weight for name, weight in given.items()}
    unknown = set(weights) - set(names)
    if unknown:
        raise InputError(
            f"class_weight must name classes of the response, got {', '.join(map(repr, sorted(unknown)))}; they "
            f"are {', '.join(map(repr, names[:10]))}{', ...' if len(names) > 10 else ''}"
        )
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0.0 <= weight < np.inf:
            raise InputError(f"class_weight of {name!r} must be a number of at least 0, got {weight!r}")
    return tuple(float(weights.get(name, 1.0)) for name in names)


def _class_name(given: Any) -> str:
    """What the class that a user calls so is called."""
    if isinstance(given, (int, float, np.number)) and not isinstance(given, bool) and np.isfinite(given):
        return number_name(float(given))
    return level_name(given, "a class of class_weight") or ""


def _moments(survey: Survey, training_set: TrainingSet, roles: Roles) -> ResponseMoments:
    """Moments of the response per trial, unit of exposure or event, as well as those of the columns tell them."""
    per = 1.0
    # of durations, some of which were cut off: of all the time that went by for each that ended
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
        f"covariate {name!r} must differ between documents with a response by more than rounding, got {value} in all; leave "
        "it out"
    )
