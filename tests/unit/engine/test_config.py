"""Settings come from Dask's configuration."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import dask.config
import pytest
import yaml

import dslda.config
from dslda.config import ClusterSettings, EngineSettings
from tests.helpers.errors import refused


def test_every_setting_has_a_documented_default_and_a_user() -> None:
    path = Path(dslda.config.__file__).with_name("dslda.yaml")
    defaults = yaml.safe_load(path.read_text("utf-8"))["dslda"]
    assert set(defaults) == {"engine", "cluster"}
    for section, settings in (("engine", EngineSettings), ("cluster", ClusterSettings)):
        assert set(defaults[section]) == {f.name.replace("_", "-") for f in fields(settings)}
    lines = path.read_text("utf-8").splitlines()
    for line, before in zip(lines[1:], lines[:-1], strict=True):
        if line.startswith("    ") and not line.lstrip().startswith("#"):
            assert before.lstrip().startswith("#"), line


def test_times_are_seconds() -> None:
    assert EngineSettings.load().stall_timeout == 600.0


def test_dask_config_sets_them() -> None:
    with dask.config.set({"dslda.engine.stall-timeout": "3s", "dslda.engine.iteration-budget": 7}):
        settings = EngineSettings.load()
    assert (settings.stall_timeout, settings.iteration_budget) == (3.0, 7.0)


def test_defaults_outlive_a_setting_around_their_first_use() -> None:
    code = """
import dask.config
from dslda.config import ClusterSettings, EngineSettings
with dask.config.set({"dslda.engine.resident-fraction": 0.1}):
    assert EngineSettings.load().resident_fraction == 0.1
print(EngineSettings.load().stall_timeout, EngineSettings.load().resident_fraction, ClusterSettings.load().start_timeout)
"""
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["600.0", "0.5", "120.0"]


@pytest.mark.parametrize("value", ["soon", 0, "-3s", None, [1]])
def test_nonsense_is_refused_by_name(value: object) -> None:
    with (
        dask.config.set({"dslda.engine.stall-timeout": value}),
        refused("setting dslda.engine.stall-timeout"),
    ):
        EngineSettings.load()
