"""Logs, warnings and progress on stderr, as lines for people or JSON for programs, in the words of the command line."""

from __future__ import annotations

import datetime
import json
import logging
import math
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from dslda.exceptions import DsldaError, DsldaWarning, Note, Words
from dslda.wording import printable

__all__ = ["log_line", "logging_to_stderr", "option_words", "shown"]

COUNTERPARTS = {
    "open_corpus()": "dslda info",
    "load_model()": "dslda info",
    "class_topics()": "dslda topics --by-class",
    "n_starts": "--starts 3",
    "bootstrap": "--bootstrap 100",
    "dslda.families.registry.register()": "--family MODULE:CLASS",
}
"""Commands and options that replace functions of Python."""

SILENT = ("asyncio", "distributed.gc")
"""Loggers that tell users nothing, and not as JSON: of connections that a signal cuts, and of garbage collection."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def option_words(command: click.Command | None) -> Words:
    """The options of a command, for messages that refer to parameters."""
    options: dict[str, click.Option] = {}
    for option in () if command is None else command.params:
        if isinstance(option, click.Option):
            options[option.opts[0].removeprefix("--").replace("-", "_")] = option
            options[str(option.name).rstrip("_")] = option

    def words(reference: str) -> str | None:
        name, _, value = reference.partition("=")
        if name not in options:
            return COUNTERPARTS.get(name)
        option, text = options[name], value.strip("'\"")
        return option.opts[0] if option.is_flag or not text else f"{option.opts[0]} {shlex.quote(text)}"

    return words


def shown(message: object, words: Words) -> str:
    """A message, warning or note as the command line shows it."""
    return message.in_words(words) if isinstance(message, (DsldaError, DsldaWarning, Note)) else str(message)


class _JsonLog(logging.Formatter):
    """One JSON object for each record, with the caller's ``extra`` as fields."""

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
    """The value with null for NaN and infinity, which JSON lacks."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value


class _Lines(logging.Formatter):
    """The message, after its level if that is above information."""

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno <= logging.INFO else f"{record.levelname.lower()}: "
        return f"dslda: {level}{printable(record.getMessage())}"


def _formatter(*, json_logs: bool) -> logging.Formatter:
    return _JsonLog() if json_logs else _Lines()


def log_line(level: int, message: str, *, json_logs: bool, **fields: Any) -> str:
    """A line of the log, for callers that cannot go through the logger."""
    record = {"name": "dslda", "levelno": level, "levelname": logging.getLevelName(level), "msg": message}
    return _formatter(json_logs=json_logs).format(logging.makeLogRecord(record | fields))


class _Stderr(logging.StreamHandler[Any]):
    """Writes to the current ``sys.stderr``, which a progress bar replaces while it is shown."""

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
        Show JSON, one object a line, instead of lines that start with ``dslda:``.
    """
    handler = _Stderr()
    handler.setFormatter(_formatter(json_logs=json_logs))
    logger = logging.getLogger("dslda")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False

    levels = {other: other.level for other in map(logging.getLogger, SILENT)}
    for other in levels:
        other.setLevel(logging.CRITICAL + 1)

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
        for other, its_level in levels.items():
            other.setLevel(its_level)
        logger.removeHandler(handler)
        logger.setLevel(level)  # not the attribute: loggers below cache whether they are enabled
        logger.propagate = propagate
