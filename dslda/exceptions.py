"""Errors and warnings of dslda.

Every error a user can cause derives from :class:`DsldaError` and, where one fits, from the builtin the user would catch
anyway. Messages say what is wrong, what must be, what was found, and what to do.
"""

import sys
import warnings


class DsldaError(Exception):
    """Root of all errors raised on purpose by dslda."""


class InputError(DsldaError, ValueError):
    """Data or a parameter given by the user is not usable as it is."""


class InputChangedError(InputError):
    """An input was changed while it was read; when nothing writes to it any more, the same call goes on."""


class FormatError(DsldaError):
    """A corpus or model on disk is damaged, truncated, or of a version this release cannot read."""


class OutputExistsError(DsldaError, FileExistsError):
    """The output is there already and overwriting was not asked for."""


class OutputError(DsldaError, OSError):
    """The output could not be written: the disk is full, or went away, since it was tried before the work."""


class VocabularyMismatchError(DsldaError, ValueError):
    """Documents are counted over another vocabulary than the model's."""


class EngineError(DsldaError, RuntimeError):
    """An iteration could not be completed on the cluster."""


class DsldaWarning(UserWarning):
    """Root of all warnings issued by dslda."""


class DataWarning(DsldaWarning):
    """Something about the data was handled and should be looked at: empty documents, skipped rows."""


class ConvergenceWarning(DsldaWarning):
    """EM stopped at its iteration cap, or many documents stopped at their sweep cap."""


BETWEEN = frozenset({"dslda", "sklearn", "joblib"})
"""Packages whose lines a warning passes over: pipelines and searches of scikit-learn call the estimators."""


def warn(message: str, category: type[DsldaWarning]) -> None:
    """Warn at the line that called dslda, however deep in it this is found out."""
    level, frame = 1, sys._getframe()
    while str(frame.f_globals.get("__name__")).partition(".")[0] in BETWEEN and frame.f_back is not None:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
