"""A family of the user's own on the command line: ``--family MODULE:CLASS``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from dslda.cli.options import Command
from dslda.exceptions import InputError
from dslda.user_modules import import_named

if TYPE_CHECKING:
    from dslda.families.base import Family
    from dslda.model import Model

__all__ = ["load_own_model", "named_family", "own_family_option"]


def own_family_option(command: Command) -> Command:
    """Add ``--family`` to a command that reads a model."""
    return click.option(
        "--family",
        metavar="MODULE:CLASS",
        help="Class of the model's family, if it is your own.",
    )(command)


def named_family(name: str) -> str | Family:
    """The family that the user names: the name itself for one of dslda's, an instance for MODULE:CLASS.

    Raises
    ------
    InputError
        The module or class does not exist, importing it fails, or it is no family.
    """
    module_name, colon, _ = name.partition(":")
    if not colon:
        return name
    from dslda.families.base import Family
    from dslda.families.own import check_definition, missing_members
    from dslda.families.registry import register

    example = "write MODULE:CLASS, such as waits:Exponential for the class Exponential in waits.py"
    family = import_named(name, parameter="family", kind="class", example=example)
    if isinstance(family, type) and issubclass(family, Family) and family is not Family:
        if missing := missing_members(family):
            raise InputError(
                f"{name}: the class must define {', '.join(missing)}",
                parameter="family",
                remedy="docs/families.md has an example",
            )
        try:
            family = family()
        except Exception as error:
            raise InputError(
                f"{name}: making one failed with {type(error).__name__}: {error}",
                parameter="family",
                remedy=f"name an instance, such as one that you make in {module_name}",
            ) from error
    if not isinstance(family, Family):
        kind = "another class" if isinstance(family, type) else f"an object of type {type(family).__name__}"
        raise InputError(
            f"{name}: must be a subclass of dslda.families.base.Family or an instance of one, got "
            f"{'nothing of that name' if family is None else kind}",
            parameter="family",
        )
    check_definition(family)
    register(type(family))
    return family


def load_own_model(path: str, family: str | None, analyzer: str | None = None) -> Model:
    """Load a model, whose family and analyzer may be those that the user names.

    Raises
    ------
    InputError
        The model has another family or analyzer, or an unknown family.
    """
    from dslda.families.registry import FAMILIES
    from dslda.model import load_model

    own = None if family is None else named_family(family)
    model = load_model(path, analyzer=analyzer)
    if own is not None:
        name = own if isinstance(own, str) else own.name
        if name != model.spec.family:
            raise InputError(
                f"must be that of the model, {model.spec.family!r}, got {name!r}",
                parameter="family",
                remedy="leave it out for the families of dslda",
            )
    if model.spec.family not in FAMILIES:  # here, before any document is read
        raise InputError(
            f"the family of {path} must be one of dslda's, got {model.spec.family!r}",
            remedy="if it is your own, name it with --family MODULE:CLASS",
        )
    _ = model.family  # with its options
    return model
