"""The settings of a fit: one table of names, types, ranges, defaults and help.

:class:`~dslda.variational.parameters.FitSpec` checks its values by it, `dslda.train` and the estimators take their defaults
from it, the command line makes its options of it, and stored models and checkpoints their keys. A new setting is one entry
here, one field of `FitSpec` and one keyword of `train` and of the estimators, since scikit-learn reads their signatures.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dslda.exceptions import InputError

__all__ = ["OTHER_NAMES", "SETTINGS", "Granularity", "Setting", "TopicEstimation", "stored", "unstored"]

Granularity: TypeAlias = Literal["token", "term"]
TopicEstimation: TypeAlias = Literal["map", "variational"]

LARGEST_INT = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting.

    Attributes
    ----------
    name : str
        Keyword of :func:`dslda.train`, parameter of the estimators and field of `FitSpec`.
    default : object
    help : str
        What it is, for the command line and tables.
    whole : bool
        Its numbers are whole.
    lowest, highest : float or None
        Ends of the range, which belong to it; None for a setting that takes names alone. Inside, every number of a fit
        stays finite; far outside, an ELBO is no number.
    beyond : str
        What happens beyond the range.
    choices : tuple of str
        Names that it takes.
    none : str or None
        What None stands for, where None is allowed.
    symbol : str or None
        What the paper calls it.
    option : str or None
        Its option on the command line without the dashes, where that is not the name; "" where there is none.
    key : str or None
        Its key in stored models and checkpoints, where that is not the name.
    """

    name: str
    default: Any
    help: str
    whole: bool = False
    lowest: float | None = None
    highest: float | None = None
    beyond: str = ""
    choices: tuple[str, ...] = ()
    none: str | None = None
    symbol: str | None = None
    option: str | None = None
    key: str | None = None

    def check(self, value: object) -> None:
        """Refuse a value outside the domain.

        Raises
        ------
        InputError
        """
        if value is None and self.none is not None:
            return
        if isinstance(value, str) and value in self.choices:
            return
        if self.lowest is None or self.highest is None:
            raise InputError(
                f"must be {' or '.join(map(repr, self.choices))}, got {value!r}", parameter=self.name
            )
        kind = numbers.Integral if self.whole else numbers.Real
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        if self.whole and not (is_number and value >= self.lowest):  # type: ignore[operator]
            raise InputError(
                f"must be a whole number of at least {self.lowest}, got {value!r}", parameter=self.name
            )
        if self.whole and value > self.highest:  # type: ignore[operator]
            raise InputError(f"must be at most {self.highest}, got {value!r}", parameter=self.name)
        if not (is_number and self.lowest <= value <= self.highest):  # type: ignore[operator]
            others = [*map(repr, self.choices), *([] if self.none is None else [f"None for {self.none}"])]
            or_others = f", or {' or '.join(others)}" if others else ""
            raise InputError(
                f"must be a number from {self.lowest:g} to {self.highest:g}{or_others}, got {value!r}",
                parameter=self.name,
                remedy=self.beyond,
            )


_TABLE = (
    Setting(
        name="n_topics",
        default=20,
        whole=True,
        lowest=1,
        highest=100_000,
        help="Topics.",
        symbol="K",
        option="topics",
    ),
    Setting(
        name="doc_topic_prior",
        default=None,
        lowest=1e-10,
        highest=1e6,
        beyond="beyond that every document is of one topic, or all have the same topics",
        choices=("auto", "asymmetric"),
        none="1/K",
        help="Dirichlet parameter of the topic proportions: a number, or estimated, one for all topics (auto) or one for "
        "each (asymmetric).",
        symbol="alpha",
        option="alpha",
        key="alpha",
    ),
    Setting(
        name="topic_prior",
        default=0.01,
        lowest=0,
        highest=1e6,
        beyond="a larger one drowns the words, and all topics are the same",
        help="Pseudo-count of every term in every topic.",
    ),
    Setting(
        name="topic_estimation",
        default="map",
        choices=("map", "variational"),
        help="Topics as points (posterior mode), or as distributions (full variational Bayes).",
    ),
    Setting(
        name="response_weight",
        default=1.0,
        lowest=1e-6,
        highest=1e6,
        beyond="beyond that the words, or the response, play no part any more",
        help="Weight of the response against the words. Where words say much of it, 2 or 3 predict better than 1; where they "
        "say little, worse, often far: compare with --hold-out.",
        symbol="rho",
        option="rho",
        key="rho",
    ),
    Setting(
        name="granularity",
        default="term",
        choices=("token", "term"),
        help="What of a document has its own distribution over topics.",
    ),
    Setting(
        name="max_iter", default=100, whole=True, lowest=1, highest=LARGEST_INT, help="Cap on EM iterations."
    ),
    Setting(
        name="tol",
        default=1e-4,
        lowest=0,
        highest=1,
        beyond="it is a fraction of the ELBO",
        help="EM stops when the ELBO has changed by less than this fraction twice in a row, and its changes are falling.",
    ),
    Setting(
        name="max_sweeps",
        default=100,
        whole=True,
        lowest=1,
        highest=LARGEST_INT,
        help="Cap on the sweeps of the E-step over one document.",
        option="",
    ),
    Setting(
        name="sweep_tol",
        default=1e-4,
        lowest=0,
        highest=1,
        beyond="it is a fraction of the ELBO of a document",
        help="The E-step leaves a document when its ELBO changes by less than this fraction.",
        option="",
    ),
    Setting(
        name="dispersion_floor",
        default=0.1,
        lowest=1e-12,
        highest=1,
        beyond="it is a fraction of the variance of the response, above rounding",
        help="Lower bound of the dispersion, as a fraction of the variance of the response.",
        option="",
        key="delta_floor",
    ),
    Setting(
        name="ridge",
        default=None,
        lowest=0,
        highest=1e6,
        beyond="beyond that the coefficients are all the same",
        none="the default of the family",
        help="Precision of the prior of the coefficients; by default that of the family.",
    ),
    Setting(
        name="seed",
        default=0,
        whole=True,
        lowest=0,
        highest=2**63 - 1,
        help="Of the start. Another one may find other topics and coefficients: compare a few.",
    ),
)

SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _TABLE}

OTHER_NAMES: Mapping[str, str] = {
    other: setting.name
    for setting in _TABLE
    for other in (setting.symbol, setting.option, setting.key)
    if other
} | {"random_state": "seed"}
"""What the paper, the command line and scikit-learn call the settings."""


def stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by the keys that files have for them; what is no setting keeps its name."""
    return {(name in SETTINGS and SETTINGS[name].key) or name: value for name, value in values.items()}


def unstored(values: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of :func:`stored`."""
    names = {setting.key: setting.name for setting in _TABLE if setting.key}
    return {names.get(key, key): value for key, value in values.items()}
