"""Families of a user's own that are wrong: refused before the work, in one sentence that names family and method."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import dslda
from dslda.cli.program import run
from dslda.exceptions import InputError
from dslda.families.base import Family, Interval, ResponseMoments, mean_of_exp
from dslda.families.gaussian import Gaussian
from dslda.families.own import check_answers, check_definition, compile_response
from dslda.families.registry import FAMILIES
from dslda.families.scalars import bounded_exp

ADVICE = "; the family is your own: mend it there, and try it with dslda.testing.FamilyTests"


@compile_response
def not_a_number(y, omega, delta, aux):
    return y * math.nan


@compile_response
def negative(y, omega, delta, aux):
    return -1.0


@compile_response
def zero(y, omega, delta, aux):
    return 0.0


@compile_response
def divides(y, omega, delta, aux):
    return 1.0 / (y - y)


@compile_response
def beyond_delta(y, omega, delta, aux):
    return delta[1]


@compile_response
def not_everywhere(y, omega, delta, aux):
    return 1.0 / (y - 2.0) ** 2 if y != 2.0 else math.nan


@compile_response
def divides_somewhere(y, omega, delta, aux):
    return 1.0 / (y - 2.0)


class Right(Family):
    """y ~ exponential with mean exp(omega)."""

    name = "wrong"
    link = "log"
    domain = Interval(0.0)
    n_searched = 0

    @staticmethod
    @compile_response
    def log_likelihood(y, omega, delta, aux):
        return -omega - y * bounded_exp(-omega)

    @staticmethod
    @compile_response
    def first_derivative(y, omega, delta, aux):
        return y * bounded_exp(-omega) - 1.0

    @staticmethod
    @compile_response
    def second_derivative(y, omega, delta, aux):
        return -y * bounded_exp(-omega)

    @staticmethod
    @compile_response
    def third_derivative(y, omega, delta, aux):
        return y * bounded_exp(-omega)

    @staticmethod
    @compile_response
    def information_weight(y, omega, delta, aux):
        return y * bounded_exp(-omega)

    def start(self, moments):
        return math.log(moments.mean), 1.0, np.ones(1)

    def mean(self, m, v, delta):
        return mean_of_exp(m, v)


class WithArgument(Right):
    def __init__(self, x):
        self.x = x


def fails(*arguments: Any, **named: Any) -> None:
    raise RuntimeError("boom")


def gives(value: Any) -> Any:
    return lambda *arguments, **named: value


WRONG: list[tuple[dict[str, Any], str]] = [
    # what it says of itself
    ({"name": None}, "the class Wrong must define name"),
    ({"name": "a\nb"}, "name must be a string of one line, got 'a\\nb'"),
    ({"domain": None, "link": None}, "the class Wrong must define link, domain"),
    ({"domain": (0, 1)}, "domain must be an Interval, got (0, 1)"),
    ({"auxiliary": "bogus"}, "auxiliary must be '', 'trials' or 'event', got 'bogus'"),
    ({"delta_transform": "exp"}, "delta_transform must be 'log' or 'identity', got 'exp'"),
    ({"delta_bounds": (1.0, 0.0)}, "delta_bounds must be two numbers, the lower one first"),
    ({"default_ridge": -1.0}, "default_ridge must be a number of at least 0, got -1.0"),
    ({"n_searched": "all"}, "n_searched must be a whole number of at least 0, or None, got 'all'"),
    ({"log_likelihood": None}, "the class Wrong must define log_likelihood"),
    (
        {"log_likelihood": staticmethod(lambda y, o, d, a: -o)},
        "log_likelihood must be compiled for (y, omega,",
    ),
    ({"options": {"a": object()}}, "options must be plain values that a model can store"),
    ({"options": {"a": 1.0}}, "must be made again from its options when a model is loaded, got {'a': 1.0}"),
    ({"options": property(fails)}, "options failed with RuntimeError: boom"),
    # where it starts
    ({"scaling": fails}, "scaling failed with RuntimeError: boom"),
    ({"scaling": gives((0.0, 0.0))}, "scaling must give a tuple of two finite numbers"),
    ({"scaling": gives((math.nan, 1.0))}, "scaling must give a tuple of two finite numbers"),
    ({"start": fails}, "start failed with RuntimeError: boom"),
    ({"start": gives(1.0)}, "start must give a tuple (middle, spread, delta), got 1.0"),
    ({"start": gives((math.nan, 1.0, np.ones(1)))}, "start must give finite numbers middle and spread"),
    (
        {"start": gives((0.0, 1.0, [1.0]))},
        "start must give as delta an array of float64 of shape (1,), got [1.0]",
    ),
    ({"start": gives((0.0, 1.0, np.ones((2, 2))))}, "got an array of float64 of shape (2, 2)"),
    ({"start": gives((0.0, 1.0, np.array([np.nan])))}, "start must give as delta finite numbers, got nan"),
    ({"n_searched": 5}, "start must give as delta at least 5 numbers (see n_searched)"),
    ({"initial_coefficients": gives((np.zeros(4), np.ones(1)))}, "as eta an array of float64 of shape (3,)"),
    # its functions
    *(
        ({name: staticmethod(not_a_number)}, f"{name} must give a finite number, got nan at y=1, omega=")
        for name in ("log_likelihood", "first_derivative", "second_derivative", "third_derivative")
    ),
    ({"first_derivative": staticmethod(divides)}, "first_derivative failed with ZeroDivisionError"),
    ({"log_likelihood": staticmethod(beyond_delta)}, "must use no more of delta than the 1 that start gives"),
    ({"information_weight": staticmethod(negative)}, "must give numbers of at least 0, some of them above 0"),
    ({"information_weight": staticmethod(zero)}, "must give numbers of at least 0, some of them above 0"),
    ({"is_exact_product": True}, "as is_exact_product says, got another"),
    ({"is_quadratic": True}, "third_derivative must give 0, as is_quadratic says"),
    # its methods
    (
        {"n_searched": None, "delta_probes": gives(np.ones((2, 2)))},
        "delta_probes must give an array of float64",
    ),
    ({"update_delta": fails}, "update_delta failed with RuntimeError: boom"),
    ({"update_delta": gives(np.ones(4))}, "update_delta must give an array of float64 of shape (1,)"),
    ({"update_delta": gives(np.array([np.nan]))}, "update_delta must give finite numbers, got nan"),
    ({"mean": fails}, "mean failed with RuntimeError: boom"),
    ({"mean": gives(None)}, "mean must give an array of float64 of shape (3,), got None"),
    ({"mean": gives(np.ones(3))}, "mean must give an array of float64 of shape (1,)"),
    ({"mean": lambda self, m, v, delta: m * np.nan}, "mean must give finite numbers, got nan"),
    ({"variance": fails}, "variance failed with RuntimeError: boom"),
    ({"variance": gives(np.ones(2))}, "variance must give an array of float64 of shape (3,)"),
    (
        {"probabilities": lambda self, m, v, delta: np.ones((len(m), 3))},
        "probabilities must give rows that sum to 1",
    ),
    (
        {"probabilities": lambda self, m, v, delta: m},
        "probabilities must give an array of float64 of shape (3, 2)",
    ),
    (
        {"coefficients_to_user": lambda self, omega, *_: omega * np.nan},
        "coefficients_to_user must give finite",
    ),
]


def check(family: Family, n_topics: int = 3) -> None:
    """As training does."""
    check_definition(family)
    moments = ResponseMoments(3, 2.0, 1.0, 1.0, 3.0)
    center, scale = family.scaling(moments)
    check_answers(family, moments, center=center, scale=scale, responses=(1.0, 2.0, 3.0), n_topics=n_topics)


@pytest.mark.parametrize(("members", "says"), WRONG, ids=[says[:60] for _, says in WRONG])
def test_a_wrong_family_is_named_with_what_is_wrong(members: dict[str, Any], says: str) -> None:
    family = type("Wrong", (Right,), members)()
    with pytest.raises(InputError) as refused:
        check(family)
    message = str(refused.value)
    assert says in message
    called = members.get("name", "wrong")
    assert message.startswith(f"family {called!r}: " if called else "family Wrong: ")
    assert message.endswith((ADVICE, "has an example", "are its options", "of dslda.families.own"))


def test_a_right_one_is_none_of_them() -> None:
    for n_topics in (1, 3):
        check(Right(), n_topics)
    with pytest.raises(InputError, match=r"must be made again from its options .* a frozen dataclass"):
        check_definition(WithArgument(3))


def test_answers_are_checked_in_other_processes_and_in_subclasses_of_built_in_families() -> None:
    travelled = cloudpickle.loads(cloudpickle.dumps(type("Wrong", (Right,), {"mean": gives(None)})()))
    shifted = type("Shifted", (Gaussian,), {"name": "shifted", "mean": lambda self, m, v, delta: m[:-1]})()
    for family in (travelled, shifted):
        with pytest.raises(InputError) as refused:
            family.mean(np.zeros(3), np.zeros(3), np.ones(1))
        assert refused.value.place == f"family {family.name!r}"
        assert refused.value.reason.startswith("mean must give an array of float64 of shape (3,)")


@pytest.fixture
def forgotten() -> Any:
    """Names that a test has registered are free again."""
    yield
    FAMILIES._registered.pop("wrong", None)


X = np.random.default_rng(0).poisson(1.0, (60, 10))
Y = 1.0 + np.arange(60.0) % 3


def train(family: Family) -> dslda.Model:
    return dslda.train(X, response=Y, family=family, n_topics=2, max_iter=300, tol=1e-3)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        # before the work
        ({"start": fails}, "start failed with RuntimeError: boom"),
        ({"check": fails}, "check failed with RuntimeError: boom"),
        ({"check": gives(np.array(True))}, "check must give an array of bool of shape (3,)"),
        ({"scaling": gives((0.0, 0.0))}, "scaling must give"),
        # in it: what the few responses that were asked about did not tell
        (
            {"update_delta": lambda self, d, p, *, weight, gain: d * (1.0 if weight < 20 else np.nan)},
            "update_delta",
        ),
        ({"log_likelihood": staticmethod(not_everywhere)}, "the ELBO must be finite, got nan in iteration 1"),
        ({"first_derivative": staticmethod(divides_somewhere)}, "failed with ZeroDivisionError"),
    ],
)
def test_training_says_whose_fault_it_is(forgotten: Any, members: dict[str, Any], says: str) -> None:
    family = type("Wrong", (Right,), {"__module__": __name__, **members})()
    y = np.where(np.arange(60) == 7, 2.0, np.linspace(1.0, 3.5, 60))
    with pytest.raises(InputError, match=re.escape(says)) as refused:
        dslda.train(
            X, response=Y if "check" in members else y, family=family, n_topics=2, max_iter=300, tol=1e-3
        )
    assert str(refused.value).endswith(ADVICE)
    assert "'wrong'" in str(refused.value)


def test_no_prediction_is_silently_not_a_number(forgotten: Any, tmp_path: Path) -> None:
    """The mean is right where it was asked before the fit, and wrong in prediction."""

    class Wrong(Right):
        def mean(self, m, v, delta):
            return np.where(len(m) > 3, np.nan, mean_of_exp(m, v))

    Wrong.__module__ = __name__
    model = train(Wrong())
    assert np.isfinite(model.predict(X[:3])).all()
    with pytest.raises(InputError, match="family 'wrong': mean must give finite numbers, got nan"):
        model.predict(X)
    model.record.parameters.delta[:] = np.nan
    with pytest.raises(InputError, match="the parameters of a model must be finite, got delta that are not"):
        model.save(tmp_path / "m.model")
    assert not list(tmp_path.iterdir())


MODULE = """
from dslda.families.base import Family
import math

class NoMethods(Family):
    name = "no methods"

class Fails(Family):
    name = "fails"
    def __init__(self):
        raise ValueError("cannot")
    def start(self, moments):
        return 0.0, 1.0, [1.0]
    def mean(self, m, v, delta):
        return m

class Argument(Fails):
    def __init__(self, x):
        pass

class NoFunctions(Fails):
    def __init__(self):
        pass

def function():
    pass

number = 3
"""


@pytest.mark.parametrize(
    ("named", "says"),
    [
        (
            "NoMethods",
            "the class must define link, domain, log_likelihood, first_derivative, second_derivative, ",
        ),
        ("NoMethods", "third_derivative, information_weight, mean, start; docs/families.md has an example"),
        ("Fails", "making one failed with ValueError: cannot"),
        ("Argument", "missing 1 required positional argument: 'x'; name an instance"),
        ("NoFunctions", "family 'fails': the class NoFunctions must define link, domain, log_likelihood"),
        ("Family", "or an instance of one, got another class"),
        ("function", "or an instance of one, got an object of type function"),
        ("math", "or an instance of one, got an object of type module"),
        ("number", "or an instance of one, got an object of type int"),
        ("Nope", "or an instance of one, got nothing of that name"),
    ],
)
def test_the_command_line_says_it_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    named: str,
    says: str,
) -> None:
    (tmp_path / "wrong_families.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    arguments = ["train", "c.corpus", "--response", "y", "--out", "m.model"]
    assert run([*arguments, "--family", f"wrong_families:{named}"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("dslda: error: ")
    assert says in error
    assert len(error.splitlines()) == 1
