"""The table of settings and all that takes its names and defaults from it."""

from __future__ import annotations

from dataclasses import fields
from inspect import signature
from typing import Any

import pytest

from dslda.cli.train_command import command
from dslda.estimators import SLDAClassifier, SLDARegressor
from dslda.exceptions import InputError
from dslda.settings import SETTINGS, Setting
from dslda.training.train import train
from dslda.variational.parameters import FitSpec


def defaults_of(function: Any) -> dict[str, Any]:
    return {name: parameter.default for name, parameter in signature(function).parameters.items()}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)
def test_every_interface_has_the_setting_with_its_default(setting: Setting) -> None:
    assert defaults_of(train)[setting.name] == setting.default
    # scikit-learn's name
    of_estimators = "random_state" if setting.name == "seed" else setting.name
    assert defaults_of(SLDARegressor)[of_estimators] == setting.default
    assert defaults_of(SLDAClassifier).get(of_estimators, setting.default) == setting.default
    assert getattr(FitSpec(), setting.name) == setting.default
    options = {option.name: option for option in command.params}
    assert (setting.name in options) == (setting.option != "")
    if setting.name in options:
        option = options[setting.name]
        context = command.make_context(
            "train", ["c", "--response", "y", "--out", "m"], resilient_parsing=True
        )
        assert option.type_cast_value(context, option.get_default(context)) == setting.default


def test_a_fit_has_no_other_settings_than_those_of_the_table_and_its_family() -> None:
    names = {field.name for field in fields(FitSpec)}
    assert names == set(SETTINGS) | {"family", "family_options"}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)
def test_a_value_out_of_the_domain_is_refused_by_the_name_of_the_setting(setting: Setting) -> None:
    wrong: list[Any] = ["no such name", [1.0]]
    if setting.highest is not None:
        wrong += [2 * setting.highest + 1, float("nan"), True]
    for value in wrong:
        with pytest.raises(InputError) as refused:
            FitSpec(**{setting.name: value})
        assert refused.value.parameter == setting.name
