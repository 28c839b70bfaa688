"""Errors and warnings of dslda.

Every error that a user can cause derives from :class:`DsldaError` and, where one fits, from the builtin that the user would
catch anyway. A message says what is wrong, what is required, what was found and what to do. Its parts are fields, so
programs need not parse the text.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Self

__all__ = [
    "ConvergenceWarning",
    "DataWarning",
    "DsldaError",
    "DsldaWarning",
    "EngineError",
    "FormatError",
    "InputChangedError",
    "InputError",
    "Note",
    "OutputError",
    "OutputExistsError",
    "VocabularyMismatchError",
    "Words",
    "warn",
]

Words = Callable[[str], str | None]
"""Translates a reference, ``max_iter``, ``trials=``, ``overwrite=True`` or ``open_corpus()``, into the words of an interface.
Returns None if the interface has no such thing."""

_REFERENCE = re.compile(r"\{([a-z_.]+(?:=[^{}]*|\(\))?)\}")


def _as_python(reference: str) -> str:
    return reference.removesuffix("()")


def _referring(template: str, words: Words) -> str:
    return _REFERENCE.sub(lambda reference: words(reference[1]) or _as_python(reference[1]), template)


class Note(str):
    """A note on an error; its template refers to parameters in braces, as remedies do."""

    template: str

    def __new__(cls, template: str) -> Self:
        note = super().__new__(cls, _referring(template, _as_python))
        note.template = template
        return note

    def in_words(self, words: Words) -> str:
        """The note in the words of an interface."""
        return _referring(self.template, words)


class _Message(Exception):
    """The fields of an error or warning.

    Attributes
    ----------
    reason : str
        What is wrong: "must be at most 100000, got 200000".
    parameter : str, tuple of str or None
        Python names of the parameters that the reason is about.
    place : str or None
        Where the error is: a file and line, a document, a field.
    remedy : tuple of str
        What to do, one or several alternatives. References to parameters and functions stand in braces, in the form of
        Python: "name the column with {trials=}", "raise {max_iter}", "open it with {open_corpus()}".
    """

    def __init__(
        self,
        reason: object = "",
        *,
        parameter: str | Sequence[str] | None = None,
        place: str | None = None,
        remedy: str | Sequence[str] = (),
    ) -> None:
        super().__init__(reason)
        self.reason = str(reason)
        self.parameter = parameter if parameter is None or isinstance(parameter, str) else tuple(parameter)
        self.place = place
        self.remedy = (remedy,) if isinstance(remedy, str) else tuple(remedy)

    def in_words(self, words: Words) -> str:
        """The whole message in the words of an interface: ``place: parameter reason; remedy, or remedy``.

        Remedies that name something the interface lacks are left out.
        """
        names = (self.parameter,) if isinstance(self.parameter, str) else self.parameter or ()
        *others, last = [words(name) or name for name in names] or [""]
        subject = f"{', '.join(others)} and {last}" if others else last
        message = f"{self.place}: " if self.place is not None else ""
        message += f"{subject} {self.reason}" if subject else self.reason
        remedies = [
            _referring(remedy, words)
            for remedy in self.remedy
            if None not in map(words, _REFERENCE.findall(remedy))
        ]
        return f"{message}; {', or '.join(remedies)}" if remedies else message

    def __str__(self) -> str:
        return self.in_words(_as_python)

    def at(self, place: str) -> Self:
        """The same message with a place, unless it has one."""
        if self.place is not None:
            return self
        return type(self)(self.reason, parameter=self.parameter, place=place, remedy=self.remedy)


class DsldaError(_Message):
    """Root of all errors raised on purpose by dslda."""


class InputError(DsldaError, ValueError):
    """Data or a parameter from the user cannot be used."""


class InputChangedError(InputError):
    """An input changed while it was read; repeat the call when nothing writes to the input any more."""


class FormatError(DsldaError):
    """A corpus or model on disk is damaged, truncated, or of a version this release cannot read."""


class OutputExistsError(DsldaError, FileExistsError):
    """The output exists already, and the caller did not ask to overwrite it."""


class OutputError(DsldaError, OSError):
    """The output could not be written: the disk is full or went away after the check before the work."""


class VocabularyMismatchError(DsldaError, ValueError):
    """Documents are counted over a vocabulary other than the model's."""


class EngineError(DsldaError, RuntimeError):
    """An iteration could not be completed on the cluster."""


class DsldaWarning(_Message, UserWarning):
    """Root of all warnings issued by dslda."""


class DataWarning(DsldaWarning):
    """dslda handled something in the data that the user should look at: empty documents, skipped rows."""


class ConvergenceWarning(DsldaWarning):
    """EM stopped at its iteration cap, or many documents at their sweep cap."""


_SKIPPED = frozenset({"dslda", "sklearn", "joblib"})
"""Packages whose lines a warning skips: pipelines and searches of scikit-learn call the estimators."""


_collected: ContextVar[list[DsldaWarning | FutureWarning] | None] = ContextVar("collected", default=None)


@contextmanager
def collecting_warnings() -> Iterator[list[DsldaWarning | FutureWarning]]:
    """Collect the warnings of this thread, for the process that waits for them, in place of showing them here."""
    # not warnings.catch_warnings: it is one for all threads of a worker
    collected: list[DsldaWarning | FutureWarning] = []
    token = _collected.set(collected)
    try:
        yield collected
    finally:
        _collected.reset(token)


def warn(warning: DsldaWarning | FutureWarning) -> None:
    """Warn at the line that called dslda, however deep inside dslda the cause is."""
    if (collected := _collected.get()) is not None:
        collected.append(warning)
        return
    level, frame = 1, sys._getframe()
    while str(frame.f_globals.get("__name__")).partition(".")[0] in _SKIPPED and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(warning, stacklevel=level)
