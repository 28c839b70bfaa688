"""Families that a user brings: compiled from plain functions, held to the same suite, and sent to other processes."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from dslda.exceptions import InputError
from dslda.families.base import Interval
from dslda.families.own import canonical, compile_response
from dslda.families.registry import FAMILIES, get_family, register
from dslda.testing import FamilyTests
from tests.helpers.own_families import CanonicalGaussian, CanonicalPoisson, LogNormal


class TestLogNormal(FamilyTests):
    family = LogNormal()
    responses = (1e-6, 0.2, 0.7, 1e6)
    refused = (0.0, -1.0, math.inf)
    deltas = ((0.3,), (0.02,), (2.0,))

    def sample(self, omega, delta, aux, generator):
        return generator.lognormal(omega, math.sqrt(delta[0]))


class TestCanonicalPoisson(FamilyTests):
    family = CanonicalPoisson()
    responses = (0.0, 1.0, 7.0, 1e6)
    refused = (-1.0, 0.5)

    def sample(self, omega, delta, aux, generator):
        return generator.poisson(np.exp(omega))


class TestCanonicalGaussian(FamilyTests):
    family = CanonicalGaussian()
    responses = (-3.0, 0.5, 7.0)
    refused = (math.inf,)
    deltas = ((0.3,), (2.0,))

    def sample(self, omega, delta, aux, generator):
        return generator.normal(omega, math.sqrt(delta[0]))


def test_log_normal_is_scipys() -> None:
    for y in (0.01, 0.3, 9.0):
        for omega in (-2.0, 0.0, 1.3):
            expected = stats.lognorm.logpdf(y, math.sqrt(0.7), scale=math.exp(omega))
            assert_allclose(LogNormal.log_likelihood(y, omega, np.array([0.7]), 1.0), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("own", "built_in", "delta"), [(CanonicalPoisson, "poisson", 1.0), (CanonicalGaussian, "gaussian", 0.7)]
)
def test_a_canonical_family_equals_the_one_that_is_written_out(
    own: type, built_in: str, delta: float
) -> None:
    for name in (
        "log_likelihood",
        "first_derivative",
        "second_derivative",
        "third_derivative",
        "information_weight",
    ):
        for omega in (-1.0, 0.4, 3.0):
            values = [
                getattr(f, name)(3.0, omega, np.array([delta]), 1.0) for f in (own, get_family(built_in))
            ]
            assert_allclose(*values, rtol=1e-12)


SEND = """
import sys
import cloudpickle
sys.stdout.buffer.write(cloudpickle.dumps(Exponential()))
"""
LOAD = """
import pickle, sys
import numpy as np
family = pickle.loads(sys.stdin.buffer.read())
print(family.log_likelihood(3.0, 0.4, np.ones(1), 1.0), family.mean(np.zeros(1), np.zeros(1), np.ones(1))[0])
"""


def run(*arguments: str, given: bytes = b"") -> bytes:
    return subprocess.run(
        [sys.executable, *arguments], input=given, capture_output=True, check=True, timeout=120
    ).stdout


def test_a_family_of_the_main_script_works_in_a_process_that_never_saw_it(
    documented_family: str, tmp_path: Path
) -> None:
    script = tmp_path / "script.py"
    script.write_text(documented_family + SEND)
    value, mean = map(float, run("-c", LOAD, given=run(str(script))).split())
    assert value == pytest.approx(-0.4 - 3.0 * math.exp(-0.4), rel=1e-14)
    assert mean == 1.0


CANONICAL = """
import math, sys
import cloudpickle
from dslda.families.base import Interval
from dslda.families.own import canonical

def exponential(omega):
    return math.exp(omega)

def log_h(y, delta):
    return -math.lgamma(y + 1.0)

domain = Interval(0.0, low_closed=True, integer=True)
family = canonical("counts", exponential, exponential, exponential, exponential, log_h, domain=domain, link="log")
sys.stdout.buffer.write(cloudpickle.dumps(family()))
"""


def test_a_canonical_family_works_in_a_process_that_never_saw_it(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CANONICAL)
    value, mean = map(float, run("-c", LOAD, given=run(str(script))).split())
    expected = get_family("poisson").log_likelihood(3.0, 0.4, np.ones(1), 1.0)
    assert value == pytest.approx(expected, rel=1e-14)
    assert mean == pytest.approx(1.0, rel=1e-14)


def test_what_numba_cannot_compile_is_said_with_its_name() -> None:
    def of_strings(y, omega, delta, aux):
        return "text"

    def of_two(y, omega):
        return y

    for function in (of_strings, of_two):
        with pytest.raises(
            InputError, match=rf"'{function.__name__}' must be a function \(y, omega, delta, aux\)"
        ):
            compile_response(function)
    with pytest.raises(InputError, match=r"a function \(y, omega, delta, aux\) must be given, got 3"):
        compile_response(3)
    with pytest.raises(InputError, match=r"must be a function \(omega\)"):
        canonical("x", of_strings, of_strings, of_strings, of_strings, of_strings, domain=Interval())


def test_own_families_are_found_by_name_once_registered() -> None:
    assert "log_normal" not in FAMILIES
    try:
        assert register(LogNormal) is LogNormal
        assert isinstance(get_family("log_normal"), LogNormal)
        register(LogNormal)  # a cell that is run again

        class Other(LogNormal):
            pass

        with pytest.raises(
            InputError, match=r"family name 'log_normal' is taken by .*LogNormal; choose another"
        ):
            register(Other)
    finally:
        FAMILIES._registered.pop("log_normal", None)

    class Gaussian(LogNormal):
        name = "gaussian"

    with pytest.raises(InputError, match=r"taken by dslda\.families\.gaussian\.Gaussian"):
        register(Gaussian)
    with pytest.raises(InputError, match="family poisson: has no options"):
        get_family("poisson", {"df": 4})


def test_the_examples_of_the_page_on_families_run_and_conform() -> None:
    page = (Path(__file__).parents[3] / "docs" / "families.md").read_text(encoding="utf-8")
    names: dict = {"__name__": "__main__"}
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "families.md", "exec"), names)
        if "canonical(" in block:  # is all that is needed for it
            exec(compile(block, "families.md", "exec"), {"__name__": "__main__"})
    suite = names["TestExponential"]()
    for name in ("each_derivative_is_the_slope_of_the_one_before", "likelihood_is_that_of_the_samples"):
        getattr(suite, f"test_{name}")()
    value = names["Counts"]().log_likelihood(2.0, 0.1, np.ones(1), 1.0)
    assert value == pytest.approx(stats.poisson.logpmf(2, math.exp(0.1)), rel=1e-12)
