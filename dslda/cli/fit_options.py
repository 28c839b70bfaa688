"""Options of a fit, which commands that train share."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import click

from dslda.cli.options import Command, names_in
from dslda.families.registry import FAMILIES
from dslda.settings import SETTINGS, Setting
from dslda.variational.parameters import FitSpec

__all__ = ["named_levels", "response_options", "settings_options"]


class _Number(click.ParamType):
    """A number, or one of the names that a setting takes: ``X|auto|asymmetric|1/K``."""

    def __init__(self, setting: Setting) -> None:
        self.name = "|".join(["X", *setting.choices])
        self._setting = setting

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        if value in self._setting.choices:
            return str(value)
        try:
            return float(value)
        except ValueError:
            self.fail(f"must be one of {self.name}, where X is a number, got {value!r}", param, ctx)


class _SeedWords(click.ParamType):
    """A file of names and words of topics, as a mapping."""

    name = "FILE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> dict[str, list[str]]:
        from dslda.training.seed_words import read_seed_words

        return read_seed_words(value)


def settings_options(*, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Add the options of the settings of a fit, but for some; the argument of each is its name in Python."""

    def add(command: Command) -> Command:
        for setting in reversed(list(SETTINGS.values())):
            if setting.option != "" and setting.name not in without:
                command = _setting_option(setting)(command)
        return command

    return add


def _setting_option(setting: Setting) -> Callable[[Command], Command]:
    if setting.flag:
        name = setting.name.replace("_", "-")
        return click.option(
            f"--{name}/--no-{name}", default=setting.default, show_default=True, help=setting.help
        )
    kind: Any = int if setting.whole else float
    metavar: str | None = "N" if setting.whole else "X"
    if setting.seeds:
        kind, metavar = _SeedWords(), "FILE"
    elif setting.choices and setting.lowest is None:
        kind, metavar = click.Choice(setting.choices), None
    elif setting.choices:
        kind = _Number(setting)
        metavar = kind.name
    return click.option(
        f"--{setting.option or setting.name.replace('_', '-')}",
        setting.name,
        type=kind,
        metavar=metavar,
        default=setting.default,
        show_default=setting.default is not None or bool(setting.choices),
        help=setting.help,
    )


_RESPONSE_OPTIONS = (
    click.option(
        "--family",
        default=FitSpec().family,
        show_default=True,
        metavar="NAME|MODULE:CLASS",
        help=f"Family of the response: {', '.join(FAMILIES)}; or a class of your own, which workers must be able to import.",
    ),
    click.option(
        "--covariates",
        multiple=True,
        metavar="COL,...",
        help="Covariates of the corpus that join the topics in explaining the response.",
    ),
    click.option("--weight", metavar="COL", help="Covariate that weighs documents."),
    click.option(
        "--exposure",
        metavar="COL",
        help="Covariate that counts are proportional to (poisson, negative_binomial).",
    ),
    click.option("--trials", metavar="COL", help="Covariate with the trials of a binomial response."),
    click.option(
        "--event",
        metavar="COL",
        help="Covariate that is 1 for a duration that has ended, else 0 (weibull).",
    ),
    click.option(
        "--class-weight",
        type=click.Choice(["balanced"]),
        help="Predict as if all classes were equally frequent.",
    ),
    click.option(
        "--levels",
        metavar="LOW,...,HIGH",
        help="Levels of an ordinal response, from the lowest to the highest.  [default: the order that it was ingested "
        "with, or whole numbers]",
    ),
)


def response_options(command: Command) -> Command:
    """Add the options that say what the response is, and which columns go with it."""
    for option in reversed(_RESPONSE_OPTIONS):
        command = option(command)
    return command


def named_levels(levels: str | None) -> list[str] | None:
    """The value of ``--levels``."""
    return None if levels is None else names_in([levels])
