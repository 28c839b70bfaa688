"""The settings of a fit: one table of names, types, ranges, defaults and help.

:class:`~dslda.variational.parameters.FitSpec` checks its values against it; `dslda.train`, the estimators, the options of the
command line and the keys of stored models and checkpoints follow it.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dslda.exceptions import InputError

__all__ = [
    "OTHER_NAMES",
    "SETTINGS",
    "DocTopicPrior",
    "Emphasis",
    "Granularity",
    "Objective",
    "SeedWords",
    "Setting",
    "TermWeights",
    "TopicEstimation",
    "settings_of",
    "stored",
    "unstored",
]

DocTopicPrior: TypeAlias = float | Literal["auto", "asymmetric", "1/K"] | None
Granularity: TypeAlias = Literal["token", "term"]
TopicEstimation: TypeAlias = Literal["map", "variational"]
Emphasis: TypeAlias = Literal["themes", "balance", "prediction"]
Objective: TypeAlias = Literal["auto", "conditional", "joint"]
SeedWords: TypeAlias = Mapping[str, Iterable[str]] | tuple[tuple[str, tuple[str, ...]], ...] | None
TermWeights: TypeAlias = Literal["auto", "sqrt", "raw", "log", "binary"]

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
        Help of the command line.
    whole : bool
        Numbers must be whole.
    flag : bool
        It is True or False, and nothing else.
    seeds : bool
        It has words of topics, which `FitSpec` checks; on the command line the name of a file.
    lowest, highest : float or None
        Bounds, inclusive, within which every number of a fit stays finite; None for a setting that takes no numbers.
    beyond : str
        What happens beyond the bounds.
    choices : tuple of str
        Names that the setting takes.
    none : str or None
        Meaning of None, if None is allowed.
    option : str or None
        Option on the command line without the dashes, if it is not the name; "" for a setting without one.
    key : str or None
        Key in stored models and checkpoints, if it is not the name.
    objective : {"conditional", "joint"} or None
        The only objective that uses the setting; None for both.
    """

    name: str
    default: Any
    help: str
    whole: bool = False
    flag: bool = False
    seeds: bool = False
    lowest: float | None = None
    highest: float | None = None
    beyond: str = ""
    choices: tuple[str, ...] = ()
    none: str | None = None
    option: str | None = None
    key: str | None = None
    objective: Literal["conditional", "joint"] | None = None

    def check(self, value: object) -> None:
        """Refuse a value outside the domain.

        Raises
        ------
        InputError
        """
        if self.seeds:
            return
        if (value is None and self.none is not None) or (isinstance(value, str) and value in self.choices):
            return
        if self.flag:
            if not isinstance(value, bool):
                raise InputError(f"must be True or False, got {value!r}", parameter=self.name)
            return
        names = [*map(repr, self.choices)]
        if self.lowest is None or self.highest is None:
            raise InputError(f"must be {' or '.join(names)}, got {value!r}", parameter=self.name)
        kind: Any = numbers.Integral if self.whole else numbers.Real
        if isinstance(value, kind) and not isinstance(value, bool) and self.lowest <= value <= self.highest:
            return
        if self.whole:
            is_large = isinstance(value, kind) and value > self.highest
            domain = f"at most {self.highest}" if is_large else f"a whole number of at least {self.lowest}"
        else:
            domain = f"a number from {self.lowest:g} to {self.highest:g}"
            domain += f", or {' or '.join(names)}" if names else ""
            domain += f" ({self.none} if left out)" if self.none is not None and self.default is None else ""
        raise InputError(f"must be {domain}, got {value!r}", parameter=self.name, remedy=self.beyond or ())


_TABLE = (
    Setting(
        name="n_topics",
        default=20,
        whole=True,
        lowest=1,
        highest=100_000,
        help="Number of topics.",
        option="topics",
    ),
    Setting(
        name="objective",
        default="auto",
        choices=("auto", "conditional", "joint"),
        help="What training maximises: the likelihood of the response given the words (conditional), for prediction, or of "
        "both together (joint), the paper's model. auto: conditional where enough documents have a response.",
    ),
    Setting(
        name="emphasis",
        default="themes",
        choices=("themes", "balance", "prediction"),
        help="What topics of conditional training are for: themes with words of their own (single words help them predict), "
        "prediction by the topics alone, or a balance of both.",
        objective="conditional",
    ),
    Setting(
        name="term_weights",
        default="auto",
        choices=("auto", "sqrt", "raw", "log", "binary"),
        help="Weight of a term that occurs c times in a document, in conditional training: the square root of c (auto), c, "
        "1 + log c, or 1.",
        objective="conditional",
    ),
    Setting(
        name="remainder",
        default=True,
        flag=True,
        help="Let single words add to what topics predict, where documents kept aside gain by it.",
        objective="conditional",
    ),
    Setting(
        name="doc_topic_prior",
        default="auto",
        lowest=1e-10,
        highest=1e6,
        beyond="beyond that every document has one topic, or all have the same topics",
        choices=("auto", "asymmetric", "1/K"),
        none="1/K",
        help="Dirichlet parameter of the topic proportions: a number, 1/K as in the paper, or estimated, one for all topics "
        "(auto) or one for each (asymmetric).",
        option="alpha",
        key="alpha",
    ),
    Setting(
        name="topic_prior",
        default=0.01,
        lowest=0,
        highest=1e6,
        beyond="a larger one drowns the words, so all topics are the same",
        help="Pseudo-count of every term in every topic.",
        objective="joint",
    ),
    Setting(
        name="topic_estimation",
        default="map",
        choices=("map", "variational"),
        help="Topics as points (posterior mode), or as distributions (full variational Bayes).",
        objective="joint",
    ),
    Setting(
        name="response_weight",
        default=1.0,
        lowest=1e-6,
        highest=1e6,
        beyond="beyond that the words or the response no longer count",
        help="Weight of the response against the words. 2 or 3 predict better than 1 if words say much about the response, "
        "and worse if they say little: compare with --hold-out.",
        option="rho",
        key="rho",
        objective="joint",
    ),
    Setting(
        name="granularity",
        default="term",
        choices=("token", "term"),
        help="Unit of a document with its own distribution over topics.",
        objective="joint",
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
        objective="joint",
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
        objective="joint",
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
        highest=1e15,
        beyond="beyond that all coefficients are the same",
        none="the default of the family",
        help="Precision of the prior of the coefficients; the family has a default.",
    ),
    Setting(
        name="seed_words",
        default=None,
        seeds=True,
        none="none",
        help="Text file of topics to begin with, a name and its words a line: 'fit: small, tight'. Each such topic keeps "
        "its words, and the name.",
    ),
    Setting(
        name="n_starts",
        default=1,
        whole=True,
        lowest=1,
        highest=100,
        beyond="a few do: predictions gain little by more",
        help="Starts from different seeds, beside each other where there are workers: predictions are averaged, and topics "
        "are those of the best one.",
        option="starts",
    ),
    Setting(
        name="bootstrap",
        default=0,
        whole=True,
        lowest=0,
        highest=10_000,
        help="Fits to documents drawn again, which give the coefficients intervals; 100 is usual, 0 is for none. The joint "
        "model then goes on to a tenth of its tolerance, for at most three times its iterations.",
    ),
    Setting(
        name="seed",
        default=0,
        whole=True,
        lowest=0,
        highest=2**63 - 1,
        help="Seed of the start. Another one may find other topics and coefficients: compare a few.",
    ),
)

SETTINGS: Mapping[str, Setting] = {setting.name: setting for setting in _TABLE}

OTHER_NAMES: Mapping[str, str] = {
    other: setting.name for setting in _TABLE for other in (setting.option, setting.key) if other
} | {"K": "n_topics", "random_state": "seed"}
"""Names of the settings in the paper, on the command line, in files and in scikit-learn."""


def settings_of(objective: str) -> list[str]:
    """Names of the settings that a fit of this objective uses."""
    return [setting.name for setting in _TABLE if setting.objective in (None, objective)]


def stored(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their keys in files; other names stay the same."""
    return {(name in SETTINGS and SETTINGS[name].key) or name: value for name, value in values.items()}


def unstored(values: Mapping[str, Any]) -> dict[str, Any]:
    """The reverse of :func:`stored`."""
    names = {setting.key: setting.name for setting in _TABLE if setting.key}
    return {names.get(key, key): value for key, value in values.items()}
