"""Responses of classes: the numbers that stand for them, their frequencies and their weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.levels import level_name
from dslda.corpus.summary import ResponseSummary
from dslda.exceptions import DataWarning, InputError, warn
from dslda.training.training_set import ClassWeight, TrainingSet
from dslda.wording import first_few, number_name, number_of

__all__ = ["class_counts", "class_weights", "report_rare_classes", "values_of_classes"]

MANY_CLASSES = 50
"""Numbers with more distinct values than this look like measurements, not like names of classes."""

RARE_CLASS = 0.1
"""Fraction of its equal share, 1 / C, below which a class is learned badly: below 5% of the documents, of two classes."""


def values_of_classes(what: str, summary: ResponseSummary) -> tuple[float, ...]:
    """The numbers that stand for classes.

    Raises
    ------
    InputError
        There are more than are counted.

    Warns
    -----
    DataWarning
        There are many, or some are not whole: they look like measurements.
    """
    if summary.distinct is None:
        raise InputError(
            f"family categorical needs classes, and {what} has hundreds of different numbers",
            remedy="choose a family of numbers",
        )
    if len(summary.distinct) > MANY_CLASSES or not summary.whole:
        warn(
            DataWarning(
                f"{what} has {len(summary.distinct)} different numbers, which are taken for classes without "
                "order",
                remedy="a family of numbers needs one coefficient a topic, not one for each class",
            )
        )
    return summary.distinct


def class_counts(
    summary: ResponseSummary, names: Sequence[str], values: tuple[float, ...] | None
) -> NDArray[np.int64] | None:
    """Documents of each class; None where there are too many classes to have been counted.

    Parameters
    ----------
    summary : ResponseSummary
    names : sequence of str, length C
    values : tuple of float, length C, or None
        The number that stands for each class; None where that is its code.

    Returns
    -------
    ndarray of int64, shape (C,), or None
    """
    if summary.distinct is None or summary.counts is None:
        return None
    codes = summary.distinct if values is None else range(len(values))
    counts = np.zeros(len(names), dtype=np.int64)
    counts[np.asarray(codes, dtype=np.int64)] = summary.counts
    return counts


def report_rare_classes(
    training_set: TrainingSet, names: Sequence[str], values: tuple[float, ...] | None
) -> None:
    """Report classes with few documents; `names` and `values` as in :func:`class_counts`.

    Warns
    -----
    DataWarning
    """
    what, counts = training_set.what, class_counts(training_set.summary, names, values)
    if counts is None:
        return
    none = np.flatnonzero(counts == 0).tolist()
    if none:
        warn(
            DataWarning(
                f"{number_of(len(none), 'class', 'classes')} of no document trained on "
                f"({_some(names, none)}) cannot be learned, and their share of each prediction comes from "
                "nowhere",
                place=what,
                remedy="train with documents of them, or leave them out of the corpus",
            )
        )
    single = np.flatnonzero(counts == 1).tolist()
    if single:
        first = float(single[0]) if values is None else values[single[0]]
        row = training_set.source.first_with(first)
        where = "" if row is None else f"; the first in {training_set.source.name_of(row)}"
        warn(
            DataWarning(
                f"{number_of(len(single), 'class', 'classes')} of a single document "
                f"({_some(names, single)}{where}) cannot be learned",
                place=what,
                remedy="merge or leave them out",
            )
        )
        return
    rare = [code for code in np.argsort(counts, kind="stable").tolist() if counts[code] > 0]
    rare = [code for code in rare if counts[code] < RARE_CLASS / len(names) * counts.sum()]
    if rare:
        each = "" if len(rare) == 1 else " at most, each,"
        warn(
            DataWarning(
                f"only {counts[rare].max() / counts.sum():.1%} of the documents{each} are "
                f"{_some(names, rare)}",
                place=what,
                remedy=(
                    "judge by probabilities",
                    "give rare classes more weight with {class_weight} ('balanced')",
                ),
            )
        )


def class_weights(
    given: ClassWeight | None, masses: NDArray[np.float64] | None, names: Sequence[str] | None
) -> tuple[float, ...] | None:
    """One weight for each class, from a user's `class_weight`.

    Parameters
    ----------
    given : "balanced", mapping of class to weight, or None
    masses : ndarray of float64, shape (C,), or None
        Documents of each class, by their weights; None where the response has no classes.
    names : sequence of str, length C, or None

    Returns
    -------
    tuple of float, length C, or None
        None without a `class_weight`.

    Raises
    ------
    InputError
        The response has no classes, a name is none of theirs, or a weight is not a number of at least 0.
    """
    if given is None:
        return None
    if names is None or masses is None:
        raise InputError("must be left out: the response has no classes", parameter="class_weight")
    if isinstance(given, str):
        if given != "balanced":
            raise InputError(
                f"must be 'balanced' or a mapping of class to weight, got {given!r}", parameter="class_weight"
            )
        of_each = masses.sum() / np.count_nonzero(masses)
        # a class of no document cannot be made as frequent as the others
        return tuple(np.divide(of_each, masses, out=np.ones_like(masses), where=masses > 0.0).tolist())
    weights = {_class_name(name): weight for name, weight in given.items()}
    unknown = set(weights) - set(names)
    if unknown:
        raise InputError(
            f"must name classes of the response, got {', '.join(map(repr, sorted(unknown)))}; they "
            f"are {', '.join(map(repr, names[:10]))}{', ...' if len(names) > 10 else ''}",
            parameter="class_weight",
        )
    for name, weight in weights.items():
        if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0.0 <= weight < np.inf:
            raise InputError(
                f"of {name!r} must be a number of at least 0, got {weight!r}", parameter="class_weight"
            )
    return tuple(float(weights.get(name, 1.0)) for name in names)


def _some(names: Sequence[str], codes: Sequence[int]) -> str:
    """The first few of the names with these codes."""
    return first_few([repr(names[code]) for code in codes], 5)


def _class_name(given: Any) -> str:
    """The name of a class, from a user's name or number for it."""
    if isinstance(given, (int, float, np.number)) and not isinstance(given, bool) and np.isfinite(given):
        return number_name(float(given))
    return level_name(given, "a class of class_weight") or ""
