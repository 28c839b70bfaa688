"""Checks of the documents and columns of a fit, before any long work."""

from __future__ import annotations

import math

import numpy as np

from dslda.engine.data.response_survey import Survey
from dslda.exceptions import DataWarning, InputError, warn
from dslda.families.base import Family
from dslda.families.registry import FAMILIES
from dslda.training.training_set import ROLES, Roles, TrainingSet
from dslda.wording import first_few, number_of

__all__ = ["ROUNDING", "check_response", "check_roles", "check_values", "report_left_out", "report_outlier"]

ROUNDING = 1e-13
"""Numbers whose range is a smaller fraction of their size differ only in their last digits."""

OUTLIER, FEWEST_OTHERS = 0.9, 20
"""Share of the sum of squares that one response of more than a few may have before it says more than all others together."""

SHOWN = 3
"""Documents that a message names."""

# The dispersion is in squared units of the response: a double must hold it, and sums of many documents.
LOWEST_DEVIATION, HIGHEST_DEVIATION = 1e-100, 1e100

RULES = {
    "weight": "numbers of at least 0",
    "exposure": "numbers above 0",
    "trials": "whole numbers of at least 1",
    "event": "1 where the duration ended and 0 where it was cut off",
}
"""The values that the column of a role must hold."""


def check_response(training_set: TrainingSet) -> None:
    """Refuse a response that is missing everywhere, constant but for rounding, or so large or small that squares overflow."""
    response, summary = training_set.in_words, training_set.summary
    names = training_set.levels.get(training_set.column)
    if summary.n == 0:
        columns = ", ".join(map(repr, training_set.source.design.columns))
        raise InputError(
            f"{response} is missing in all documents to train on{f' that have {columns}' if columns else ''}",
            remedy="it must be known in at least two",
        )
    low, high = summary.minimum, summary.maximum
    if low == high:
        raise InputError(
            f"{response} must have at least two distinct values in the documents to train on, got "
            f"{f'{low:g}' if names is None else repr(names[int(low)])} in all {summary.n:,} that have it; there is nothing "
            "to learn"
        )
    deviation = math.sqrt(summary.variance)
    if not LOWEST_DEVIATION <= deviation <= HIGHEST_DEVIATION:
        raise InputError(
            f"{response} must have a standard deviation from {LOWEST_DEVIATION:g} to "
            f"{HIGHEST_DEVIATION:g}, got {deviation:.3g} for values from {low:g} to {high:g}",
            remedy="give it in other units",
        )
    if high - low <= ROUNDING * max(abs(low), abs(high)):
        raise InputError(
            f"{response} must differ between documents by more than rounding, got values from {low!r} to "
            f"{high!r}",
            remedy="subtract a constant where it is computed",
        )


def report_left_out(training_set: TrainingSet) -> None:
    """Warn of documents whose response is left out because they lack a covariate."""
    source = training_set.source
    lacking = {name: training_set.covariates[name].missing for name in source.design.columns}
    rows = source.left_out() if any(lacking.values()) else []
    if not rows:
        return
    shown = first_few([source.name_of(row) for row in rows[: SHOWN + 1]], SHOWN)
    missing = ", ".join(f"{name!r} in {n:,}" for name, n in lacking.items() if n)
    warn(
        DataWarning(
            f"{len(rows):,} of {number_of(len(rows) + training_set.summary.n, 'document')} with {training_set.in_words} lack "
            f"a covariate (missing: {missing}): their response is left out, their words still count; the first: {shown}",
            remedy="fill it in to use them",
        )
    )


def report_outlier(family: Family, training_set: TrainingSet, roles: Roles) -> None:
    """Warn of one response so far from the others that the fit is about it alone."""
    summary, per_unit = training_set.summary, roles.exposure or roles.trials
    if family.has_classes or family.has_levels or per_unit or summary.n <= FEWEST_OTHERS:
        return
    value = max(summary.minimum, summary.maximum, key=lambda end: abs(end - summary.mean))
    share = ((value - summary.mean) / math.sqrt(summary.variance)) ** 2 / summary.n
    if share < OUTLIER:
        return
    row = training_set.source.first_with(value)
    where = "" if row is None else f" in {training_set.source.name_of(row)}"
    remedy = ["mend it, or leave it out with {documents=}"]
    if summary.minimum > 0.0:
        remedy.append("train on the logarithm of the response")
    warn(
        DataWarning(
            f"{value:.4g}{where} has {share:.1%} of the sum of squares around the mean, {summary.mean:.4g}: the fit is about "
            "this response alone",
            place=training_set.in_words,
            remedy=remedy,
        )
    )


def check_roles(family: Family, training_set: TrainingSet, roles: Roles) -> None:
    """Refuse roles that the family cannot use, and columns of names for them."""
    if training_set.column in roles.columns:
        raise InputError(
            f"must be other columns than the response, got {training_set.column!r}",
            parameter=ROLES,
            remedy="new documents have no response to go by",
        )
    if roles.exposure is not None and not family.takes_exposure:
        takers = ", ".join(sorted(name for name, kind in FAMILIES.items() if kind.takes_exposure))
        raise InputError(
            f"must be left out for family {family.name}; families with an exposure: {takers}",
            parameter="exposure",
        )
    for role in ("trials", "event"):
        if getattr(roles, role) is not None and family.auxiliary != role:
            takers = ", ".join(sorted(name for name, kind in FAMILIES.items() if kind.auxiliary == role))
            raise InputError(
                f"must be left out for family {family.name}; it belongs to {takers}", parameter=role
            )
    for role, rule in RULES.items():
        name = getattr(roles, role)
        if name in training_set.levels and role != "event":
            raise InputError(
                f"{name!r} must hold {rule}, got names", parameter=role, remedy="ingest it as a number"
            )


def check_values(family: Family, training_set: TrainingSet, roles: Roles, survey: Survey) -> None:
    """Refuse values that columns must not have, and name the first document with one."""
    for role, rule in RULES.items():
        name = getattr(roles, role)
        if (fault := survey.wrong.get(role)) is not None:
            place = training_set.source.name_of(fault.row)
            raise InputError(f"{name!r} must hold {rule}, got {fault.value:g} in {place}", parameter=role)
        if role == "weight" and name is not None and not survey.moments[name].weight > 0.0:
            raise InputError(
                f"{name!r} must be above 0 for some document with {training_set.in_words}, got 0 for all",
                parameter=role,
            )
        if role == "event" and name is not None and not survey.moments[name].maximum > 0.0:
            raise InputError(f"event {name!r} must be 1 for some document, got 0 for all")
    response, column = training_set.in_words, training_set.column
    if not survey.moments[column].weight > 0.0:
        raise InputError(f"weights must be above 0 for some document with {response}, got 0 for all")
    if survey.moments[column].minimum == survey.moments[column].maximum:
        raise InputError(
            f"{response} must have at least two distinct values or classes in documents with a weight "
            "above 0, got one; there is nothing to learn"
        )
    if (fault := survey.wrong.get("response")) is None:
        return
    y = np.array([fault.value])
    place = f"in {training_set.source.name_of(fault.row)}"
    if not family.domain.contains(y).all():
        raise InputError(
            f"{response} must be {family.domain} for family {family.name}, got {fault.value:g} {place}",
            remedy=family.domain_remedy,
        )
    if family.auxiliary == "trials" and roles.trials is not None:
        raise InputError(
            f"{response} must not exceed its trials {roles.trials!r}, got {fault.value:g} of {fault.auxiliary:g} {place}"
        )
    if family.auxiliary == "trials":
        raise InputError(
            f"{response} must be 0 or 1 for family {family.name} without trials, got {fault.value:g} {place}",
            remedy=("name the column of the trials with {trials=}", *family.domain_remedy),
        )
    raise InputError(f"{response} must be one that family {family.name} takes, got {fault.value:g} {place}")
