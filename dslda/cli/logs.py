"""What the library logs and warns of, on stderr: lines for people or JSON for programs."""

from __future__ import annotations

import datetime
import json
import logging
import math
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from dslda.cli.option_words import option_words, shown
from dslda.exceptions import DsldaWarning

__all__ = ["information", "json_error", "logging_to_stderr"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _JsonLog(logging.Formatter):
    """One JSON object a record; what the caller put into ``extra`` becomes fields of it."""

    def format(self, record: logging.LogRecord) -> str:
        data: dict[str, Any] = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        data |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        return json.dumps(_finite(data), default=str, ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    """A value with nothing in the place of numbers that JSON has not: NaN and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each) for each in value]
    return value


def json_error(message: str, exit_code: int) -> str:
    """The error that a command ends with, as its log has lines with ``--json``."""
    record = _record(logging.ERROR, message)
    record.exit_code = exit_code
    return _JsonLog().format(record)


def _record(level: int, message: str) -> logging.LogRecord:
    named = {"name": "dslda", "levelno": level, "levelname": logging.getLevelName(level), "msg": message}
    return logging.makeLogRecord(named)


class _Lines(logging.Formatter):
    """The message; anything above information says what it is."""

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        return f"dslda: {level}{record.getMessage()}"


def information(message: str, *, json_logs: bool) -> bytes:
    """A line of the log, for who cannot wait for its locks: the handler of a signal."""
    formatter = _formatter(json_logs=json_logs)
    return f"{formatter.format(_record(logging.INFO, message))}\n".encode()


def _formatter(*, json_logs: bool) -> logging.Formatter:
    return _JsonLog() if json_logs else _Lines()


class _Stderr(logging.StreamHandler[Any]):
    """Writes to whatever ``sys.stderr`` is now: a progress bar puts itself in its place while it is shown."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> Any:
        return sys.stderr


@contextmanager
def logging_to_stderr(*, json_logs: bool) -> Iterator[None]:
    """Show log records and warnings of dslda while the block runs.

    Parameters
    ----------
    json_logs : bool
        As JSON, one object a line; else as lines that start with ``dslda:``.
    """
    handler = _Stderr()
    handler.setFormatter(_formatter(json_logs=json_logs))
    logger = logging.getLogger("dslda")
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False

    # of connections that a signal cuts: what matters is told, and with `json_logs` every line is JSON
    of_loops = logging.getLogger("asyncio")
    level_of_loops = of_loops.level
    of_loops.setLevel(logging.CRITICAL + 1)

    context = click.get_current_context(silent=True)
    words = option_words(None if context is None else context.command)

    def show(message: Warning | str, category: type[Warning], *rest: Any, **_: Any) -> None:
        logger.warning("%s", shown(message, words), extra={"category": category.__name__})

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", DsldaWarning)
            warnings.showwarning = show
            yield
    finally:
        of_loops.setLevel(level_of_loops)
        logger.removeHandler(handler)
        logger.setLevel(before[0])  # not the attribute: loggers below remember what is enabled
        logger.propagate = before[1]
