"""``dslda predict``: the response of new documents, as CSV."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from itertools import chain
from typing import IO, TYPE_CHECKING, Any

import click

from dslda.cli.logs import logging_to_stderr
from dslda.cli.options import interval_option, json_option, new_documents_options, vocabulary_from
from dslda.cli.own_family import load_own_model, own_family_option
from dslda.cli.process import Session
from dslda.cli.terminal import printable_cells
from dslda.exceptions import InputError, OutputExistsError
from dslda.storage.location import Location, check_not_in_store, holds_store
from dslda.storage.output import check_writable, is_among, replacing, report_leftovers, writing

if TYPE_CHECKING:
    import pyarrow as pa

    from dslda.corpus.store import Corpus
    from dslda.inputs.reading import ReadingRules
    from dslda.model import Model

__all__ = ["command"]

logger = logging.getLogger("dslda.predict")


@click.command(
    "predict",
    short_help="Predict the response of new documents, as CSV.",
    epilog="""\b
Examples:
  dslda predict stars.model new.jsonl                          CSV on the terminal
  dslda predict stars.model new.csv --text body --id key --out predictions.csv
  dslda predict stars.model reviews.corpus --topics            with the topic proportions
  dslda predict stars.model new.jsonl --interval 0.8           with intervals that hold 80% of the responses
  echo "lovely dress, too small" | dslda predict stars.model -
  curl -s https://example.org/new.jsonl.gz | dslda predict stars.model - --format jsonl --id key

\b
Columns: id, prediction, prediction_low and prediction_high (where the model has intervals: docs/scoring.md),
known_tokens (the basis of the prediction), oov_share (share of words that the model does
not know: in a text also those that the filters of ingest dropped, but no stop words; a corpus has lost them
before), flag (empty, no_known_word: the prediction is the base rate of training; not_converged; no_covariate,
unknown_level: there is no prediction), probability_NAME for classes and levels, and with --topics topic_0, ...
(posterior means: docs/scoring.md says how predictions follow from them).
Covariates, exposure and trials come from the fields of the same names. Strings that a spreadsheet could take for
a formula begin with an apostrophe, as in dslda score --output-format csv (docs/scoring.md says where).""",
)
@click.argument("model_path", metavar="MODEL")
@click.argument("input_path", metavar="INPUT")
@new_documents_options
@click.option("--out", metavar="FILE", help="Write to a file instead of the terminal.")
@click.option("--overwrite", is_flag=True, help="Replace FILE.")
@click.option("--topics", "with_topics", is_flag=True, help="Add the topic proportions.")
@click.option(
    "--realign", is_flag=True, help="Match the terms of a corpus by name if its vocabulary differs."
)
@interval_option
@own_family_option
@json_option
@click.pass_obj
def command(
    session: Session,
    /,
    model_path: str,
    input_path: str,
    *,
    format: str,
    vocabulary: str | None,
    out: str | None,
    overwrite: bool,
    with_topics: bool,
    realign: bool,
    interval: float | None,
    analyzer: str | None,
    family: str | None,
    json_logs: bool,
    **reading: Any,
) -> None:
    """Predict the response of the documents in INPUT with MODEL, one line for each, in their order.

    INPUT is a file, folder, glob, URL or pipe as dslda ingest reads them, a corpus, or - for stdin: lines of text, or
    another format with --format. The texts are taken from the field "text" unless --text, or --words and
    --counts, name others.
    """
    with logging_to_stderr(json_logs=json_logs):
        from dslda.cli.standard_input import STDIN
        from dslda.model import Model
        from dslda.prediction.predict import at_level, predict_nothing

        if out is not None:
            _check_output(out, input_path, overwrite=overwrite)
        elif "stdout" in session.closed:
            raise InputError("predictions need an output, got a closed stdout; give --out FILE")
        model = load_own_model(model_path, family, analyzer)
        if interval is not None:
            model = Model(at_level(model.record, interval))
        tables: Iterable[pa.Table]
        if input_path == "-" and _is_streamed(session, format):
            tables = _of_stdin(model, format, reading)
        elif (corpus := _corpus(input_path)) is not None:
            _rules(reading).refuse_for("a corpus")
            tables = model.score_tables(corpus, realign=realign)
        else:
            from dslda.prediction.file_predictions import predict_files

            tables = predict_files(
                model.scoring_record,
                STDIN if input_path == "-" else input_path,
                format=format,
                vocabulary=vocabulary_from(vocabulary),
                **reading,
            )
        with _output(out) as stream:
            name = "standard output" if out is None else out
            nothing = predict_nothing(model.scoring_record).table()
            without = () if with_topics else {f"topic_{k}" for k in range(model.n_topics)}
            _write(tables, stream, name, nothing=nothing, without=without)


def _is_streamed(session: Session, format: str) -> bool:
    """True if documents of the format can be read from standard input as they come; else it is copied first."""
    from dslda.cli.standard_input import check_open
    from dslda.inputs.formats import FORMATS

    check_open(session)
    return format in ("auto", "text") or FORMATS[format].streamable


def _of_stdin(model: Model, format: str, reading: Mapping[str, Any]) -> Iterator[pa.Table]:
    """Score tables of the documents on standard input, as they come."""
    from dslda.cli.standard_input import lines_of_text, records_on_stdin
    from dslda.inputs.formats.text_files import TextFile
    from dslda.prediction.columns import wanted_columns
    from dslda.prediction.file_predictions import predict_files
    from dslda.prediction.record_counting import check_analyzer_is_ready

    if format not in ("auto", "text"):
        return predict_files(model.scoring_record, records_on_stdin(format), **reading)
    rules = _rules(reading)
    rules.refuse_for("lines of text", taken=TextFile.rules)
    if any(reading[name] is not None for name in ("text", "words", "counts", "id")):
        raise InputError(
            "- reads lines of text, but --text, --words, --counts and --id name fields",
            remedy="give --format jsonl or csv with them",
        )
    needed, _ = wanted_columns(model.record)
    if needed:
        raise InputError(
            f"- reads only lines of text, but the model also needs {', '.join(map(repr, needed))} of each document",
            remedy="give --format jsonl or csv, or a file (JSON lines, CSV or Parquet), with these fields",
        )
    check_analyzer_is_ready(model.record)
    return model.score_tables(lines_of_text(rules, check=format != "text"))


def _rules(reading: Mapping[str, Any]) -> ReadingRules:
    """The rules for the files among the options."""
    from dslda.inputs.reading import ReadingRules

    return ReadingRules(**{rule.name: reading[rule.name] for rule in fields(ReadingRules)})


def _corpus(path: str) -> Corpus | None:
    """The corpus at a path, None for anything else."""
    from dslda.corpus.store import open_corpus

    return open_corpus(path) if holds_store(path, {}) else None


def _check_output(out: str, input_path: str, *, overwrite: bool) -> None:
    """Refuse, before any work, an output that would be lost or destroy something."""
    if not out:
        raise InputError("--out must name a file, got an empty name; omit --out to print to the terminal")
    place = Location(os.path.realpath(out), local=True)
    folder = os.path.dirname(place.url)
    if not os.path.isdir(folder) and "://" in out:
        raise InputError(f"--out must be a local file, got {out}; dslda score writes to URLs")
    if not os.path.isdir(folder):
        raise InputError(f"--out {out} must be in an existing folder, {folder} is none; make it first")
    check_not_in_store(place)
    check_writable(place)
    if not os.path.lexists(place.url):
        return
    if not os.path.isfile(out):  # a link that leads in a circle too
        raise InputError(f"--out must be a file, {out} is none; omit --out to print to the terminal")
    if is_among(out, input_path):
        raise InputError(f"--out {out} is the input itself; choose another file")
    if not overwrite:
        raise OutputExistsError(f"{out} is there already; choose another file, or give --overwrite")


@contextmanager
def _output(path: str | None) -> Iterator[IO[str]]:
    """The terminal, or a file that takes its name when it is complete."""
    if path is None:
        yield sys.stdout
        return
    location = Location(os.path.realpath(path), True)  # a link stays, what it points to is replaced
    report_leftovers(location.url)
    with replacing(location, path) as raw:
        stream = io.TextIOWrapper(raw, encoding="utf-8", newline="")
        yield stream
        with writing(path):
            stream.flush()
        stream.detach()


def _write(
    tables: Iterable[pa.Table], stream: IO[str], name: str, *, nothing: pa.Table, without: Collection[str]
) -> None:
    """Write tables as one CSV file with the header of the empty table `nothing`; report what was flagged."""
    from dslda.prediction.predict import FLAG_MEANING
    from dslda.scoring.tables import csv_lines, safe_cell, safe_rows

    flags: Counter[str] = Counter()
    columns = [column for column in nothing.column_names if column not in without]
    on_terminal = stream.isatty()

    def lines(rows: Iterable[Iterable[Any]]) -> str:
        return csv_lines(printable_cells(rows) if on_terminal else rows)

    header = lines([map(safe_cell, columns)])
    for table in chain(tables, [nothing]):
        with writing(name):
            stream.write(header + lines(safe_rows(table.select(columns))))
            stream.flush()
        header = ""
        flags.update(table["flag"].to_pylist())
    for flag, meaning in FLAG_MEANING.items():
        if n := flags[flag]:
            extra = {"flag": flag, "count": n}
            logger.warning("%d of %d documents %s", n, flags.total(), meaning, extra=extra)
