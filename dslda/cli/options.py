"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from dslda.cluster.client import ClientLater
from dslda.storage.location import is_in_memory

if TYPE_CHECKING:
    from dslda.cluster.opening import ClusterOptions
    from dslda.corpus.store import Corpus
    from dslda.corpus.vocabulary import Vocabulary

__all__ = [
    "FREQUENCY",
    "NGRAMS",
    "OUTPUT",
    "chosen_client",
    "cluster_options",
    "json_option",
    "names_in",
    "new_documents_options",
    "reading_options",
    "vocabulary_from",
]

Command = TypeVar("Command", bound=Callable[..., Any])


class _Frequency(click.ParamType):
    """A number of documents (5) or a share of them (0.01): the point decides."""

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
    """``2`` for pairs of words only, ``1-2`` for single words and pairs."""

    name = "N|N-M"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", value)
        if found is None:
            self.fail(f"must be a length such as 2 or a range such as 1-2, got {value!r}", param, ctx)
        return int(found[1]), int(found[2] or found[1])


class _Output(click.ParamType):
    """A path or URL that is there for others when the command has ended."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if is_in_memory(value):
            self.fail(
                f"must be a path or URL that outlives this command, got {value} in the memory of its process; give a folder",
                param,
                ctx,
            )
        return str(value)


FREQUENCY = _Frequency()
NGRAMS = _Ngrams()
OUTPUT = _Output()


def chosen_client(options: ClusterOptions) -> ClientLater | None:
    """A client as the options say, opened when there is work for it; None where they say nothing."""
    from dslda.cluster.opening import ClusterOptions, cluster

    if options == ClusterOptions():
        return None
    return ClientLater(partial(cluster, options=options), here=options.scheduler is None)


def cluster_options(command: Command) -> Command:
    """Add the options that say where to work; the command gets them as ``cluster``."""
    options = [
        click.option(
            "--scheduler",
            metavar="ADDRESS",
            help="Work on the Dask cluster of this scheduler, such as tcp://host:8786.",
        ),
        click.option(
            "--tls-ca-file",
            type=click.Path(exists=True, dir_okay=False),
            help="With tls://: who signs certificates.  [default: as Dask's configuration says, as of the next two]",
        ),
        click.option(
            "--tls-cert", type=click.Path(exists=True, dir_okay=False), help="With tls://: own certificate."
        ),
        click.option("--tls-key", type=click.Path(exists=True, dir_okay=False), help="With tls://: own key."),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            metavar="N",
            help="Start N worker processes on this machine.",
        ),
        click.option(
            "--threads",
            type=click.IntRange(min=1),
            metavar="N",
            help="Threads of each process.",
        ),
        click.option("--memory-limit", metavar="X", help="Memory of each process, such as 4GB."),
    ]

    @wraps(command)
    def wrapped(**arguments: Any) -> Any:
        from dslda.cluster.opening import ClusterOptions

        cluster = {f.name: arguments.pop(f.name) for f in fields(ClusterOptions)}
        return command(cluster=ClusterOptions(**cluster), **arguments)

    decorated: Any = wrapped
    for option in reversed(options):
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]


def json_option(command: Command) -> Command:
    """Add ``--json``."""
    return click.option(
        "--json",
        "json_logs",
        is_flag=True,
        help="Log to stderr as JSON, one object a line, instead of progress.",
    )(command)


def names_in(given: Sequence[str]) -> list[str]:
    """The names in lists with commas, about which there may be white space."""
    return [name.strip() for listed in given for name in listed.split(",")]


def reading_options(*, without_id: str, vocabulary: str) -> Callable[[Command], Command]:
    """Add the options that tell the format of the input and the use of its fields.

    Parameters
    ----------
    without_id : str
        What identifies documents where ``--id`` is not given.
    vocabulary : str
        Help of ``--vocabulary``.
    """
    from dslda.inputs.formats import FORMATS

    about = "".join(f" {name}: {piece.about}." for name, piece in FORMATS.items() if piece.about)
    options = [
        click.option(
            "--format",
            type=click.Choice(["auto", *FORMATS]),
            default="auto",
            show_default=True,
            help=f"Of the input; auto goes by the files' names.{about}",
        ),
        click.option("--text", metavar="COL", help="Field of the text."),
        click.option(
            "--words", metavar="COL", help="Field of the list of words, for documents counted already."
        ),
        click.option("--counts", metavar="COL", help="Field of the list of their counts."),
        click.option("--id", "id_", metavar="COL", help=f"Field of the identifier.  [default: {without_id}]"),
        click.option("--vocabulary", metavar="FROM", help=vocabulary),
    ]

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def new_documents_options(command: Command) -> Command:
    """Add the options that tell what the documents are that a model predicts."""
    return reading_options(
        without_id="as in training, else numbers",
        vocabulary="Corpus, model or file (a term a line) with the terms of an input that holds their positions.",
    )(command)


def vocabulary_from(given: str | None) -> str | Vocabulary | Corpus | None:
    """The vocabulary of a corpus or model, or the path of a file, as ``--vocabulary`` names it."""
    if given is None:
        return None
    from dslda.corpus.store import open_corpus
    from dslda.exceptions import InputError
    from dslda.model import load_model
    from dslda.storage.location import Location

    location = Location.of(given)
    if not location.holds("zarr.json"):
        return given
    if location.read_attributes().get("encoding-type") != "dslda-model":
        return open_corpus(given)
    vocabulary = load_model(given).vocabulary
    if vocabulary is None:
        raise InputError(f"{given} was trained on a matrix without terms: it has no vocabulary")
    return vocabulary
