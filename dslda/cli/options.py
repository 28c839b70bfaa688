"""Options that several commands share."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from dslda.cluster.client import ClientLater
from dslda.storage.location import is_in_memory

if TYPE_CHECKING:
    from dslda.cluster.opening import ClusterOptions
    from dslda.corpus.vocabulary import Vocabulary

__all__ = [
    "ANALYZER",
    "COUNT",
    "FREQUENCY",
    "NGRAMS",
    "OUTPUT",
    "chosen_client",
    "cluster_options",
    "interval_option",
    "json_option",
    "names_in",
    "new_documents_options",
    "reading_options",
    "vocabulary_from",
]

Command = TypeVar("Command", bound=Callable[..., Any])


class _Frequency(click.ParamType):
    """A number of documents (5) or a share of them (0.01), told apart by the decimal point."""

    name = "N|SHARE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | float:
        if isinstance(value, (int, float)):
            return value
        try:
            return int(value) if re.fullmatch(r"\s*\d+\s*", value) else float(value)
        except ValueError:
            self.fail(
                f"must be a number of documents such as 5, or a share such as 0.01, got {value!r}", param, ctx
            )


class _Ngrams(click.ParamType):
    """``2`` for pairs of words, ``1-2`` for single words and pairs."""

    name = "N|N-M"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", value)
        shortest, longest = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= shortest <= longest:
            self.fail(f"must be a length such as 2 or a range such as 1-2, got {value!r}", param, ctx)
        return shortest, longest


class _Count(click.ParamType):
    """A number of things."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except ValueError:
            number = 0
        if number < 1:
            self.fail(f"must be a whole number of at least 1, got {value!r}", param, ctx)
        return number


class _Output(click.ParamType):
    """A path or URL that outlives the command."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if is_in_memory(value):
            self.fail(f"must be a path or URL that outlives this command, got {value}", param, ctx)
        return str(value)


ANALYZER = "MODULE:FUNCTION"
COUNT = _Count()
FREQUENCY = _Frequency()
NGRAMS = _Ngrams()
OUTPUT = _Output()


def chosen_client(options: ClusterOptions) -> ClientLater | None:
    """The client that the options ask for, which opens when there is work for it; None without any option."""
    from dslda.cluster.opening import ClusterOptions, cluster

    if options == ClusterOptions():
        return None
    return ClientLater(partial(cluster, options=options), here=options.scheduler is None)


def cluster_options(command: Command) -> Command:
    """Add the options of the cluster, which the command receives as ``cluster``."""
    file = click.Path(exists=True, dir_okay=False)

    @click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Work on the Dask cluster of this scheduler, such as tcp://host:8786.",
    )
    @click.option(
        "--tls-ca-file",
        type=file,
        help="With tls://: certificate authority.  [default, also of the next two: from Dask's configuration]",
    )
    @click.option("--tls-cert", type=file, help="With tls://: own certificate.")
    @click.option("--tls-key", type=file, help="With tls://: own key.")
    @click.option("--workers", type=COUNT, metavar="N", help="Start N worker processes on this machine.")
    @click.option("--threads", type=COUNT, metavar="N", help="Threads of each process.")
    @click.option("--memory-limit", metavar="X", help="Memory of each process, such as 4GB.")
    @wraps(command)
    def with_cluster(**arguments: Any) -> Any:
        from dslda.cluster.opening import ClusterOptions

        cluster = {f.name: arguments.pop(f.name) for f in fields(ClusterOptions)}
        return command(cluster=ClusterOptions(**cluster), **arguments)

    return cast(Command, with_cluster)


def json_option(command: Command) -> Command:
    """Add ``--json``."""
    return click.option(
        "--json",
        "json_logs",
        is_flag=True,
        help="Log to stderr as JSON, one object a line, instead of progress.",
    )(command)


def names_in(lists: Sequence[str]) -> list[str]:
    """The names in lists with commas and white space; a name in quotes may hold these."""
    rows = [next(csv.reader([names], skipinitialspace=True)) or [""] for names in lists]
    return [
        name if '"' in names else name.strip() for names, row in zip(lists, rows, strict=True) for name in row
    ]


def reading_options(*, without_id: str, vocabulary: str | None) -> Callable[[Command], Command]:
    """Add the options of the input's format and fields.

    Parameters
    ----------
    without_id : str
        Identifiers of documents without ``--id``.
    vocabulary : str or None
        Help of ``--vocabulary``; None for an input of texts, which takes neither that nor words with counts.
    """
    from dslda.inputs.formats import FORMATS

    about = "".join(f" {name}: {piece.about}." for name, piece in FORMATS.items() if piece.about)
    options = [
        click.option(
            "--format",
            type=click.Choice(["auto", *FORMATS]),
            default="auto",
            show_default=True,
            help=f"Format of the input; auto goes by file names.{about}",
        ),
        click.option(
            "--encoding", metavar="NAME", help="Encoding of CSV, JSON lines and text.  [default: utf-8]"
        ),
        click.option(
            "--separator",
            metavar="CHAR",
            help=r"Separator of the cells of CSV, such as ';' or '\t'.  [default: a comma, in .tsv a tab]",
        ),
        click.option(
            "--escape", metavar="CHAR", help="Escape character of CSV.  [default: quotes are doubled]"
        ),
        click.option(
            "--na-values",
            multiple=True,
            metavar="CELL,...",
            callback=lambda context, option, value: names_in(value) or None,
            help="Cells of CSV that stand for a missing value, beside empty ones.",
        ),
        click.option("--text", metavar="COL", help="Field of the text."),
        click.option("--words", metavar="COL", help="Field of the list of words, for counted documents."),
        click.option("--counts", metavar="COL", help="Field of the list of their counts."),
        click.option("--id", metavar="COL", help=f"Field of the identifier.  [default: {without_id}]"),
        click.option("--vocabulary", metavar="FROM", help=vocabulary),
    ]
    if vocabulary is None:
        *others, text, _, _, identifier, _ = options
        options = [*others, text, identifier]

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def new_documents_options(command: Command) -> Command:
    """Add the options of the documents that a model predicts."""
    command = click.option(
        "--analyzer", metavar=ANALYZER, help="Analyzer of the model's texts, if it is your own."
    )(command)
    return reading_options(
        without_id="as in training, else numbers",
        vocabulary="Corpus, model or file (a term a line) with the terms of an input that holds their positions.",
    )(command)


def interval_option(command: Command) -> Command:
    """Add the level of prediction intervals."""
    return click.option(
        "--interval",
        type=float,
        metavar="SHARE",
        help="Share of the responses that prediction_low and prediction_high hold between them.  [default: 0.9]",
    )(command)


def vocabulary_from(path: str | None) -> str | Vocabulary | None:
    """The vocabulary of the model at the path of ``--vocabulary``, or the path if it is a corpus or a file."""
    if path is None:
        return None
    from dslda.exceptions import InputError
    from dslda.model import load_model
    from dslda.storage.location import Location, holds_store

    if not holds_store(path, {}) or Location.of(path).read_attributes().get("encoding-type") != "dslda-model":
        return path
    vocabulary = load_model(path).vocabulary
    if vocabulary is None:
        raise InputError(f"{path} was trained on a matrix without terms: it has no vocabulary")
    return vocabulary
