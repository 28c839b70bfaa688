"""The ordered levels of a response: their names, and the numbers that stand for them in its column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dslda.corpus.levels import LevelIndex
from dslda.exceptions import DataWarning, InputError, warn
from dslda.families.base import Family, ResponseMoments
from dslda.training.training_set import Roles, TrainingSet
from dslda.wording import first_few, number_name, number_of

__all__ = ["OrderedLevels", "ordered_levels", "rank_moments"]

SHOWN = 10
"""Levels that a message lists."""


@dataclass(frozen=True, slots=True)
class OrderedLevels:
    """Levels from the lowest to the highest.

    Attributes
    ----------
    values : tuple of float
        The number of each level in the column of the response.
    names : tuple of str or None
        None for the whole numbers from the lowest response to the highest.
    absent : tuple of str
        Names of levels that no document has, which the others do without.
    """

    values: tuple[float, ...]
    names: tuple[str, ...] | None = None
    absent: tuple[str, ...] = ()

    def with_documents(self, masses: NDArray[np.float64]) -> tuple[OrderedLevels, NDArray[np.float64]]:
        """The named levels whose documents weigh something, and their masses; the others become absent."""
        if self.names is None:
            return self, masses
        kept, lost = np.flatnonzero(masses > 0.0).tolist(), np.flatnonzero(masses == 0.0).tolist()
        levels = OrderedLevels(
            tuple(self.values[i] for i in kept),
            tuple(self.names[i] for i in kept),
            (*self.absent, *(self.names[i] for i in lost)),
        )
        return levels, masses[kept]

    def report_absent(self, response: str) -> None:
        """Warn of levels that no document has: nothing tells where they begin and end."""
        if self.absent:
            warn(
                DataWarning(
                    f"{number_of(len(self.absent), 'level')} of no document trained on ({_listed(self.absent)}) "
                    f"{'is' if len(self.absent) == 1 else 'are'} left out: no prediction gives "
                    f"{'it' if len(self.absent) == 1 else 'them'} a probability",
                    place=response,
                    remedy="train with documents of every level",
                )
            )


def ordered_levels(family: Family, training_set: TrainingSet, roles: Roles) -> OrderedLevels | None:
    """The levels of a response, in the user's order, that of the documents, or that of whole numbers.

    None for numbers that are not whole, or too many, which the family will refuse.

    Raises
    ------
    InputError
        The response holds names without an order, or a value that is none of the levels.
    """
    summary, response, stored = (
        training_set.summary,
        training_set.in_words,
        training_set.levels.get(training_set.column),
    )
    order = roles.levels or training_set.order
    if order is None:
        if stored is not None:
            shown = first_few([repr(level) for level in stored], 3)
            raise InputError(
                f"family {family.name} needs the order of the levels, and {response} has "
                f"{number_of(len(stored), 'name')} ({shown})",
                remedy=(
                    "list them from the lowest to the highest with {levels=}",
                    "use {family='categorical'}",
                ),
            )
        if not summary.whole or summary.maximum - summary.minimum >= family.max_levels:
            return None
        return OrderedLevels(tuple(np.arange(summary.minimum, summary.maximum + 1.0).tolist()))
    index = LevelIndex(order)
    whose = "given" if roles.levels else "of its column"
    found: dict[int, float] = {}
    for value in _occurring(training_set):
        name = number_name(value) if stored is None else stored[int(value)]
        code = index.code(value if stored is None else name, response)
        if code >= 0 and int(code) not in found:
            found[int(code)] = value
            continue
        row = training_set.source.first_with(value)
        if row is None:
            continue
        where = training_set.source.name_of(row)
        if code >= 0:
            raise InputError(f"{response} must spell each level in one way, got {name!r} too", place=where)
        raise InputError(
            f"{response} must be one of the levels {whose} ({_listed(order)}), got {name!r}",
            place=where,
            remedy="list all levels, from the lowest to the highest, with {levels=}",
        )
    if summary.distinct is None and stored is None:
        raise InputError(
            f"{response} must be one of the levels {whose} ({_listed(order)}), got hundreds of different numbers"
        )
    present = sorted(found)
    if len(present) > family.max_levels:
        raise InputError(
            f"a response of family {family.name} must have at most {family.max_levels} levels, got {len(present)}"
        )
    return OrderedLevels(
        tuple(found[code] for code in present),
        tuple(order[code] for code in present),
        tuple(name for code, name in enumerate(order) if code not in found),
    )


def rank_moments(n: int, masses: NDArray[np.float64]) -> ResponseMoments:
    """Moments of `n` responses that are numbered by level, from the mass of each level."""
    ranks, shares = np.arange(len(masses), dtype=np.float64), masses / masses.sum()
    mean = float(shares @ ranks)
    return ResponseMoments(n, mean, float(shares @ (ranks - mean) ** 2), 0.0, float(len(masses) - 1))


def _occurring(training_set: TrainingSet) -> Sequence[float]:
    """The numbers in the column of the response; where they are too many to count, the names there are, or the extremes."""
    summary, stored = training_set.summary, training_set.levels.get(training_set.column)
    if summary.distinct is not None:
        return summary.distinct
    return [summary.minimum, summary.maximum] if stored is None else [float(i) for i in range(len(stored))]


def _listed(names: Sequence[str]) -> str:
    return first_few([repr(name) for name in names], SHOWN)
