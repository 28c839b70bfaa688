"""The program as a whole: its commands, and how every error becomes one line and an exit code."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module

import click

from dslda._version import __version__
from dslda.cli.interrupts import Interrupts
from dslda.cli.logs import json_error
from dslda.cli.option_words import option_words, shown
from dslda.cli.standard_streams import drop, flush_error, nobody_reads, open_standard_streams
from dslda.exceptions import (
    DsldaError,
    FormatError,
    InputChangedError,
    InputError,
    OutputExistsError,
    VocabularyMismatchError,
    Words,
)
from dslda.storage.output import FULL

__all__ = ["EXIT_FAILURE", "EXIT_OK", "EXIT_USAGE", "Interrupted", "Session", "program", "run"]

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2

BAD_INPUT = (InputError, FormatError, OutputExistsError, VocabularyMismatchError, FileNotFoundError)

COMMANDS = ("demo", "ingest", "train", "predict", "score", "topics", "info")

EPILOG = """\b
Exit codes:
  0    done
  1    failed while running (a cluster that broke, a disk that is full)
  2    usage or input that cannot be used; nothing was written (score: nothing final)
  130  interrupted by Ctrl-C; train has saved the last complete iteration, and its checkpoint
  143  the same by SIGTERM
"""


class Interrupted(Exception):
    """Ctrl-C or SIGTERM was handled, what could be saved is saved."""


@dataclass(frozen=True, slots=True)
class Session:
    """What commands may ask of the process they run in, as the object of their context.

    Attributes
    ----------
    interrupts : Interrupts
    closed : frozenset of str
        Of "stdin", "stdout" and "stderr", those that the caller had closed.
    """

    interrupts: Interrupts
    closed: frozenset[str]


class _Commands(click.Group):
    """Imports a command when it is asked for, so that ``dslda topics`` does not pay for Dask."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"dslda.cli.{cmd_name}_command").command
        return command


@click.group(
    cls=_Commands,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="dslda")
def program() -> None:
    """Supervised topic models for labelled texts.

    Learns topics that explain both the words of documents and a response (a rating, a price, a score), shows
    them, and predicts the response of new documents.

    \b
    Start here:
      dslda demo                     a complete run on 22,641 reviews, in about a minute
      dslda ingest reviews.jsonl --out reviews.corpus --text text --response rating
      dslda train reviews.corpus --response rating --out stars.model
      dslda topics stars.model
      dslda predict stars.model new.jsonl
      dslda score stars.model 'new/*.parquet' --out scores
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; errors are one line on stderr."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    closed = open_standard_streams()
    # also where the command line itself is wrong
    fail = partial(_fail, as_json="--json" in given)
    with Interrupts() as interrupts:
        code = _run(given, Session(interrupts, closed), fail)
    # what is left in the buffer of a closed pipe or of a full disk must fail here, not when Python exits
    error = flush_error("stdout")
    if error is not None:
        drop("stdout")
        if code == EXIT_OK and not isinstance(error, BrokenPipeError):
            code = fail(_text(error, words=option_words(None)), EXIT_FAILURE)
    if flush_error("stderr") is not None:
        drop("stderr")
    return code


def _run(given: Sequence[str], session: Session, fail: Callable[[str, int], int]) -> int:
    text = partial(_text, words=option_words(None))
    try:
        # not program.main(): it ends a closed pipe with 1
        with program.make_context("dslda", list(given), obj=session) as context:
            try:
                program.invoke(context)
            finally:
                command = program.get_command(context, context.invoked_subcommand or "")
                text = partial(_text, words=option_words(command))
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "", err=True)
        return EXIT_USAGE
    except click.ClickException as error:
        context_of_error = getattr(error, "ctx", None)
        see = "" if context_of_error is None else f" (see {context_of_error.command_path} --help)"
        return fail(error.format_message().rstrip(".") + see, EXIT_USAGE)
    except click.Abort:
        return fail("interrupted", session.interrupts.exit_code)
    except KeyboardInterrupt as interrupt:
        return fail(text(interrupt), session.interrupts.exit_code)
    except Interrupted as interrupted:
        return fail(f"interrupted: {interrupted}", session.interrupts.exit_code)
    except InputChangedError as error:  # nothing is wrong with the input, and nothing has to be mended
        return fail(text(error), EXIT_FAILURE)
    except BAD_INPUT as error:
        return fail(text(error), EXIT_USAGE)
    except BrokenPipeError as error:
        # the reader of stdout, such as head, has all it wanted; no other pipe may break in silence
        return EXIT_OK if nobody_reads("stdout") else fail(text(error), EXIT_FAILURE)
    except (DsldaError, OSError) as error:
        return fail(text(error), EXIT_FAILURE)
    except MemoryError as error:
        return fail(
            f"out of memory ({error}); take fewer topics or a smaller vocabulary, or more memory",
            EXIT_FAILURE,
        )
    return EXIT_OK


def _fail(message: str, code: int, *, as_json: bool) -> int:
    message = " ".join(message.split())
    with contextlib.suppress(OSError):  # nobody reads: the code must do
        click.echo(json_error(message, code) if as_json else f"dslda: error: {message}", err=True)
    return code


def _text(error: BaseException, *, words: Words) -> str:
    """The message of an error with its notes, such as the document it happened at."""
    if isinstance(error, KeyboardInterrupt):
        message = "interrupted"
    elif isinstance(error, OSError) and error.strerror:
        # writing to a stream gives no name, and of those only stdout is written to without a name of ours
        name = error.filename or ("standard output" if error.errno in FULL else None)
        message = f"{name}: {error.strerror}" if name else error.strerror
    else:
        message = shown(error, words)
    return "; ".join([message, *(shown(note, words) for note in getattr(error, "__notes__", ()))])
