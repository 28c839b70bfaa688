"""Objects in modules of the user's own, named as MODULE:NAME.

Only what the user names is imported, never what a file says.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import Any

from dslda.exceptions import InputError
from dslda.wording import error_in_words

__all__ = ["import_named"]


def import_named(name: str, *, parameter: str, kind: str, example: str) -> Any:
    """The object that the user names, or None where its module has nothing of that name.

    The module is imported as ``python -c`` would: from the current directory, or installed.

    Parameters
    ----------
    name : str
    parameter : str
        Parameter that has the name.
    kind : str
        What the name stands for, such as "class".
    example : str
        Remedy for a name that cannot be right.

    Raises
    ------
    InputError
        The module does not exist, or importing it fails.
    """
    module_name, _, object_name = name.partition(":")
    if not (module_name and object_name) or module_name.startswith("."):
        raise InputError(
            f"must name a module and a {kind} in it, got {name!r}", parameter=parameter, remedy=example
        )
    if os.getcwd() not in sys.path:
        # first, and for the workers that this process starts too
        sys.path.insert(0, os.getcwd())
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and error.name == module_name.partition(".")[0]:
            raise InputError(
                f"{name}: there must be a module {error.name!r} in the current directory or installed, got none",
                parameter=parameter,
                remedy=example,
            ) from None
        raise InputError(
            f"{name}: importing {module_name} failed with {error_in_words(error)}", parameter=parameter
        ) from error
    return getattr(module, object_name, None)
