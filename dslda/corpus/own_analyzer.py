"""An analyzer of the user's own: a function that takes a text and returns its terms, known by its name MODULE:FUNCTION.

Corpora and models hold the name. A process calls only functions that were named to it, or to the process that sent its work:
a file that someone else made runs nothing.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from dslda.corpus.levels import encodable
from dslda.exceptions import InputError
from dslda.user_modules import import_named
from dslda.wording import error_in_words

__all__ = [
    "AnalyzerFunction",
    "allow",
    "analyzer_name",
    "check_as_stored",
    "check_name",
    "function_of",
    "is_known",
    "terms_of",
]

AnalyzerFunction: TypeAlias = Callable[[str], Iterable[str]]

EXAMPLE = "write MODULE:FUNCTION, such as words:lemmas for the function lemmas in words.py"
NAME = re.compile(r"\w+(\.\w+)*:\w+")
MAIN = ("__main__", "__mp_main__")

_functions: dict[str, AnalyzerFunction] = {}
_allowed: set[str] = set()
"""Names that another process sent, which has checked them."""


def analyzer_name(analyzer: object) -> str:
    """Make an analyzer known to this process, after a trial on an empty text, and return its name.

    Parameters
    ----------
    analyzer : str or callable
        MODULE:FUNCTION, or the function itself.

    Raises
    ------
    InputError
        Other processes could not import it by a name, or the trial fails.
    """
    if isinstance(analyzer, str):
        check_name(analyzer)
        name = analyzer
        function = import_named(name, parameter="analyzer", kind="function", example=EXAMPLE)
    elif callable(analyzer):
        name, function = _name_of(analyzer), analyzer
    else:
        raise InputError(
            f"must be a function or its name, got {analyzer!r:.60}", parameter="analyzer", remedy=EXAMPLE
        )
    if not callable(function):
        found = "nothing of that name" if function is None else f"an object of type {type(function).__name__}"
        raise InputError(f"{name}: must be a function, got {found}", parameter="analyzer")
    try:
        terms_of(name, function, "")
    except InputError as error:
        raise error.at("an empty text") from error.__cause__
    _functions[name] = function
    return name


def check_name(name: object) -> None:
    """Refuse what is not MODULE:FUNCTION, or what only the main script has."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(
            f"must name a module and a function in it, got {name!r:.60}", parameter="analyzer", remedy=EXAMPLE
        )
    if name.partition(":")[0] in MAIN:
        raise _unnameable("a function of the main script or notebook")


def check_as_stored(name: str, stored: str | None, owner: str) -> None:
    """Refuse an analyzer that the user names for other documents of a corpus or model, unless it is theirs."""
    if name != stored:
        rule = f"be left out: {owner} has none" if stored is None else f"be that of {owner}, {stored!r}"
        raise InputError(f"must {rule}, got {name!r}", parameter="analyzer")


def allow(name: str) -> None:
    """Let this process import an analyzer that a user has named in the process that sends its work."""
    _allowed.add(name)


def is_known(name: str) -> bool:
    """True if the analyzer was named to this process, or to the one that sent its work."""
    return name in _functions or name in _allowed


def function_of(name: str) -> AnalyzerFunction:
    """The function of an analyzer that is known.

    Raises
    ------
    InputError
        It is not known, or this process, a worker, cannot import it.
    """
    if name in _functions:
        return _functions[name]
    if name not in _allowed:
        raise InputError(
            f"must be named again: {name!r} cuts these texts into words, and dslda imports only what you name",
            parameter="analyzer",
            remedy=(f"give {{analyzer={name!r}}}", "give it to {dslda.load_model()}"),
        )
    module_name, _, function_name = name.partition(":")
    try:
        function: AnalyzerFunction = getattr(import_module(module_name), function_name)
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{name}: workers must be able to import it too, got {error_in_words(error)}",
            parameter="analyzer",
            remedy=f"install the module {module_name} on the workers",
        ) from error
    _functions[name] = function
    return function


def terms_of(name: str, function: AnalyzerFunction, text: str) -> list[str]:
    """The terms of a text.

    Raises
    ------
    InputError
        The function fails, or returns no strings.
    """
    try:
        found: Any = function(text)
        # a mapping's counts would be lost
        is_list = isinstance(found, Iterable) and not isinstance(found, (str, bytes, Mapping))
        terms = list(found) if is_list else []
    except Exception as error:
        raise InputError(f"{name} failed with {error_in_words(error)}", parameter="analyzer") from error
    if not is_list:
        raise InputError(
            f"{name} must return a list of strings, got {_kind(found)}",
            parameter="analyzer",
        )
    for term in terms:
        if not isinstance(term, str):
            raise InputError(
                f"{name} must return strings, got {_kind(term)} among them", parameter="analyzer"
            )
    return [encodable(str(term)) for term in terms]


def _kind(value: object) -> str:
    return "None" if value is None else f"{value!r:.40} of type {type(value).__name__}"


def _name_of(function: Any) -> str:
    """The name by which other processes import a function."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if isinstance(function, partial) or not isinstance(module, str) or not isinstance(name, str):
        raise _unnameable(f"an object of type {type(function).__name__}, which has no name")
    if "<lambda>" in name:
        raise _unnameable("a lambda, which has no name")
    if "<locals>" in name:
        raise _unnameable(f"{name.rpartition('.')[2]!r}, a function inside another")
    if module in MAIN:
        raise _unnameable(f"{name!r} of the main script or notebook")
    if getattr(sys.modules.get(module), name, None) is not function:
        raise _unnameable(f"{name!r}, which the module {module} does not have under this name")
    return f"{module}:{name}"


def _unnameable(got: str) -> InputError:
    return InputError(
        f"must be a function at the top of a module, since workers and later processes import it by its name, got {got}",
        parameter="analyzer",
        remedy="define it in a file of its own, and name it, such as {analyzer='words:lemmas'} for lemmas in words.py",
    )
