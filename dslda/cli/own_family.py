"""A family of the user's own on the command line: ``--family MODULE:CLASS``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from inspect import ismodule, isroutine, signature
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dslda.exceptions import InputError

if TYPE_CHECKING:
    from dslda.families.base import Family
    from dslda.model import Model

__all__ = ["load_own_model", "named_family", "own_family_option"]

Command = TypeVar("Command", bound=Callable[..., Any])


def own_family_option(command: Command) -> Command:
    """Add ``--family`` to a command that reads a model."""
    return click.option(
        "--family",
        metavar="MODULE:CLASS",
        help="Class of the model's family, where that is one of your own.",
    )(command)


def named_family(given: str) -> str | Family:
    """A family as the user names it: one of dslda by its name, one of their own as MODULE:CLASS.

    The module is imported as ``python -c`` would: from the current directory, or installed. Only what the user names is
    imported, never what a file says.

    Raises
    ------
    InputError
        There is no such module or class, importing it fails, or it is no family.
    """
    module_name, colon, name = given.partition(":")
    if not colon:
        return given
    from dslda.families.base import Family
    from dslda.families.own import check_definition, missing_members
    from dslda.families.registry import register

    example = "write MODULE:CLASS, such as waits:Exponential for the class Exponential in waits.py"
    if not (module_name and name) or module_name.startswith("."):
        raise InputError(f"--family must name a module and a class in it, got {given!r}; {example}")
    if os.getcwd() not in sys.path:
        # first, and for the workers that this process starts too
        sys.path.insert(0, os.getcwd())
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]:
            raise InputError(
                f"--family {given}: there must be a module {error.name!r} in the current directory or installed, got "
                f"none; {example}"
            ) from None
        raise InputError(
            f"--family {given}: importing {module_name} failed with {type(error).__name__}: {error}"
        ) from error
    found = getattr(module, name, None)
    if isinstance(found, type) and issubclass(found, Family) and found is not Family:
        if missing := missing_members(found):
            raise InputError(
                f"--family {given}: the class must define {', '.join(missing)}",
                remedy="docs/families.md has an example",
            )
        found = _made(found, given, module_name)
    if not isinstance(found, Family):
        raise InputError(
            f"--family {given}: must be a subclass of dslda.families.base.Family or an instance of one, got {_shown(found)}"
        )
    check_definition(found)
    register(type(found))
    return found


def _made(kind: type[Family], given: str, module_name: str) -> Family:
    """An instance of a class without arguments."""
    try:
        signature(kind).bind()
    except TypeError as error:
        raise InputError(
            f"--family {given}: the class needs arguments ({error})",
            remedy=f"name an instance, such as one that you make in {module_name}",
        ) from None
    try:
        return kind()
    except Exception as error:
        raise InputError(
            f"--family {given}: making one failed with {type(error).__name__}: {error}"
        ) from error


def _shown(found: Any) -> str:
    """What there is in the place of a family."""
    if found is None:
        return "nothing of that name"
    if isinstance(found, type):
        return f"the class {found.__module__}.{found.__qualname__}"
    if isroutine(found):
        return f"the function {getattr(found, '__name__', '')}; name what it makes"
    return f"the module {found.__name__}" if ismodule(found) else f"{found!r:.60}, which is none"


def load_own_model(path: str, family: str | None) -> Model:
    """Load a model, whose family may be the one that the user names.

    Raises
    ------
    InputError
        The model is of another family, or of one that is not known.
    """
    from dslda.families.registry import FAMILIES
    from dslda.model import load_model

    named = None if family is None else named_family(family)
    model = load_model(path)
    if named is not None:
        name = named if isinstance(named, str) else named.name
        if name != model.spec.family:
            raise InputError(
                f"--family must be that of the model, {model.spec.family!r}, got {name!r}",
                remedy="the families of dslda need not be named",
            )
    if model.spec.family not in FAMILIES:  # here, before any document is read
        raise InputError(
            f"the family of {path} must be one of dslda's, got {model.spec.family!r}",
            remedy="if it is your own, name it with --family MODULE:CLASS",
        )
    _ = model.family  # with its options
    return model
