"""Errors asked by their fields, so that no test waits on a wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dslda.exceptions import InputError


@contextmanager
def refused(*parameters: str, place: str | None = None) -> Iterator[pytest.ExceptionInfo[InputError]]:
    """Assert that the block raises an `InputError` about these parameters, at this place if one is named."""
    with pytest.raises(InputError) as error:
        yield error
    named = error.value.parameter
    assert ((named,) if isinstance(named, str) else named) == parameters, str(error.value)
    if place is not None:
        assert error.value.place == place, str(error.value)
