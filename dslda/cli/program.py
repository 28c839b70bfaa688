"""The program: its commands, its exit codes, and its errors of one line."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from dslda.cli.logs import log_line, option_words, shown
from dslda.cli.process import Interrupted, Session, drop, flush_error, nobody_reads_stdout
from dslda.exceptions import (
    DsldaError,
    FormatError,
    InputChangedError,
    InputError,
    OutputExistsError,
    VocabularyMismatchError,
)
from dslda.storage.output import FULL
from dslda.versions import __version__

__all__ = ["EXIT_FAILURE", "EXIT_OK", "EXIT_USAGE", "program", "run"]

EXIT_OK = 0
EXIT_FAILURE = 1
EXIT_USAGE = 2

BAD_INPUT = (InputError, FormatError, OutputExistsError, VocabularyMismatchError, FileNotFoundError)

COMMANDS = ("demo", "ingest", "train", "evaluate", "predict", "score", "topics", "label", "report", "info")

EPILOG = """\b
Exit codes:
  0    done
  1    failed while running (a cluster that broke, a disk that is full)
  2    wrong usage or unusable input; nothing was written (score: nothing final)
  130  interrupted by Ctrl-C; train has saved the last complete iteration, and its checkpoint
  143  the same by SIGTERM
"""


class _Commands(click.Group):
    """Imports commands on demand, so that ``dslda topics`` does not pay for Dask."""

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
      dslda demo                     a complete run on 6,000 real reviews, in about a minute
      dslda ingest reviews.jsonl --out reviews.corpus --text text --response rating
      dslda train reviews.corpus --response rating --out stars.model
      dslda evaluate reviews.corpus --response rating --topics 5,10,20,50
      dslda topics stars.model
      dslda label stars.model 3 "it does not fit"
      dslda report stars.model --corpus reviews.corpus --out report.html
      dslda predict stars.model new.jsonl
      dslda score stars.model 'new/*.parquet' --out scores
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; errors are one line on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    # also for errors of the command line itself
    session = Session(json_logs="--json" in arguments)
    with session.handling_interrupts():
        code = _run(arguments, session)
    # the rest of the buffer must fail here if stdout is a closed pipe or a full disk, not when Python exits
    if (error := flush_error("stdout")) is not None:
        drop("stdout")
        if code == EXIT_OK and not isinstance(error, BrokenPipeError):
            code = _fail(session, _message(error), EXIT_FAILURE)
    if flush_error("stderr") is not None:
        drop("stderr")
    return code


def _run(arguments: Sequence[str], session: Session) -> int:
    if not arguments:
        click.echo(program.make_context("dslda", [], resilient_parsing=True).get_help(), err=True)
        return EXIT_USAGE
    command: click.Command | None = None
    try:
        # not program.main(), which exits with 1 when a pipe is closed
        with program.make_context("dslda", list(arguments), obj=session) as context:
            try:
                program.invoke(context)
            finally:
                command = program.get_command(context, context.invoked_subcommand or "")
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.ClickException as error:
        failing: click.Context | None = getattr(error, "ctx", None)
        see = "" if failing is None else f" (see {failing.command_path} --help)"
        return _fail(session, error.format_message().rstrip(".") + see, EXIT_USAGE)
    except KeyboardInterrupt as error:
        return _fail(session, _message(error, command, "interrupted"), session.exit_code)
    except Interrupted as interrupted:
        return _fail(session, f"interrupted: {interrupted}", session.exit_code)
    except (DsldaError, OSError) as error:
        # the reader of stdout, such as head, has enough; no other pipe may break in silence
        if isinstance(error, BrokenPipeError) and nobody_reads_stdout():
            return EXIT_OK
        # an input that changed needs no mending
        is_usage = isinstance(error, BAD_INPUT) and not isinstance(error, InputChangedError)
        return _fail(session, _message(error, command), EXIT_USAGE if is_usage else EXIT_FAILURE)
    except MemoryError as error:
        message = f"out of memory ({error}); take fewer topics, a smaller vocabulary or more memory"
        return _fail(session, message, EXIT_FAILURE)
    return EXIT_OK


def _fail(session: Session, message: str, code: int) -> int:
    line = log_line(logging.ERROR, " ".join(message.split()), json_logs=session.json_logs, exit_code=code)
    with contextlib.suppress(OSError):  # without a reader the code must do
        click.echo(line, err=True)
    return code


def _message(error: BaseException, command: click.Command | None = None, message: str = "") -> str:
    """The message of an error with its notes, such as the document where it happened, in the words of the command."""
    words = option_words(command)
    if not message and isinstance(error, OSError) and error.strerror:
        # errors of streams have no name, and stdout is the only unnamed stream that commands write to
        name = error.filename or ("standard output" if error.errno in FULL else None)
        message = f"{name}: {error.strerror}" if name else error.strerror
    notes = getattr(error, "__notes__", ())
    return "; ".join([message or shown(error, words), *(shown(note, words) for note in notes)])
