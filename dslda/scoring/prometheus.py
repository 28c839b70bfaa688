"""Metrics of a run for Prometheus' textfile collector."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dslda.exceptions import InputError
from dslda.scoring.drift import drift_figures
from dslda.storage.location import Location, check_not_in_store
from dslda.storage.output import check_writable, is_among, writing

__all__ = ["MetricsFile"]

PREFIX = "dslda_score"
FIRST_LINE = b"# HELP dslda_"
"""What a file of metrics begins with."""

HELP = {
    "success": "1 if the last run was complete, 0 if it failed.",
    "last_success_timestamp_seconds": "When a run was complete last.",
    "seconds": "Seconds that the last run took.",
    "new_parts": "Parts that the last run has scored.",
    "rows": "Rows of the complete run in the folder.",
    "skipped_rows": "Records that were left out.",
    "unreadable_inputs": "Inputs that could not be scored, or not to their end.",
    "duplicate_ids": "Rows whose identifier another row has.",
    "flagged_rows": "Rows with a flag.",
    "oov_share": "Share of the tokens that the model does not know.",
    "training_oov_share": "Share of the tokens of the corpus trained on that the vocabulary does not have.",
    "new_share": "Share of the tokens that are neither in the vocabulary nor left out of it as too frequent.",
    "training_new_share": "The same share of the corpus trained on.",
    "prediction_mean": "Mean prediction.",
    "prediction_psi": "Population stability index of the predictions against training.",
    "largest_topic_psi": "Largest population stability index of a topic against training.",
}


class MetricsFile:
    """A file that is replaced at the end of a run, whether it failed or not.

    Parameters
    ----------
    path : str or path
        By custom with the ending ``.prom``, in the folder that node_exporter reads.
    run : str
        Folder of the run, the label of all metrics.
    inputs : sequence of path, glob, URL or corpus
        What is scored.

    Raises
    ------
    InputError
        The file cannot be written, is something else, is an input or lies in a folder of them, or in a model or corpus.
    """

    def __init__(self, path: str | os.PathLike[str], run: str, inputs: Sequence[Any]) -> None:
        self._location = Location.of(path)
        folder = os.path.dirname(self._location.url)
        if not self._location.local or os.path.isdir(self._location.url) or not os.path.isdir(folder):
            raise InputError(
                f"metrics must name a local file in a folder that is there, got {os.fspath(path)!r:.80}"
            )
        if f"{folder}/".startswith(f"{run}/"):
            raise InputError(
                f"metrics must name a file outside of the folder of the run, got {os.fspath(path)!r:.80}"
            )
        _check_ours(self._location.url)
        _check_no_input(self._location.url, inputs)
        check_not_in_store(self._location)
        check_writable(self._location)
        self._run = run
        self._began = time.time()

    def write(self, manifest: Mapping[str, Any] | None, n_new_parts: int, *, failed: bool = False) -> None:
        """Replace the file; of a run that has `failed` the time of the last success stays.

        Parameters
        ----------
        manifest : mapping or None
            That of the complete run that the folder holds now; None where it holds none.
        n_new_parts : int
        failed : bool

        Raises
        ------
        OutputError
            It cannot be written.
        """
        now = time.time()
        values: list[tuple[str, str, float]] = [
            ("success", "", 0.0 if failed else 1.0),
            ("seconds", "", now - self._began),
            ("new_parts", "", n_new_parts),
        ]
        last = self._last_success() if failed else now
        if last is not None:
            values.append(("last_success_timestamp_seconds", "", last))
        if manifest is not None:
            values += _of(manifest)
        lines = []
        for name in HELP:
            found = [(label, value) for n, label, value in values if n == name]
            if found:
                lines += [f"# HELP {PREFIX}_{name} {HELP[name]}", f"# TYPE {PREFIX}_{name} gauge"]
                lines += [f"{PREFIX}_{name}{{{self._label(label)}}} {value!r}" for label, value in found]
        with writing(self._location.url):
            self._location.replace_content(("\n".join(lines) + "\n").encode())

    def _label(self, flag: str) -> str:
        escaped = self._run.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        run = escaped.encode(errors="replace").decode()
        return f'run="{run}"' + (f',flag="{flag}"' if flag else "")

    def _last_success(self) -> float | None:
        with contextlib.suppress(OSError, ValueError), open(self._location.url, encoding="utf-8") as stream:
            for line in stream:
                if line.startswith(f"{PREFIX}_last_success_timestamp_seconds{{"):
                    return float(line.rpartition(" ")[2])
        return None


def _check_ours(path: str) -> None:
    """Refuse to replace what no run has written; a file that is empty holds nothing to lose."""
    if not os.path.lexists(path):
        return
    begins = b""
    if os.path.isfile(path):
        with contextlib.suppress(OSError), open(path, "rb") as stream:
            begins = stream.read(len(FIRST_LINE))
            if begins in (b"", FIRST_LINE):
                return
    raise InputError(
        f"metrics must name a file of metrics that dslda has written, or one that is not there, got {path}, which is "
        "something else; choose another path"
    )


def _check_no_input(path: str, inputs: Sequence[Any]) -> None:
    """Refuse a file that this run or the next would score."""
    for one in inputs:
        if not isinstance(one, (str, os.PathLike)) or not (given := os.fspath(one)):
            continue
        given = given.removeprefix("file://")
        if "://" not in given and is_among(path, given):
            raise InputError(
                f"metrics must name a file that is no input and in no folder of inputs, got {path}, which is in {given}; "
                "choose another path"
            )


def _of(manifest: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    yield "rows", "", manifest["rows_out"]
    yield "skipped_rows", "", manifest["skipped"]["count"]
    yield "unreadable_inputs", "", len(manifest["skipped"]["unreadable_inputs"])
    yield "duplicate_ids", "", manifest["duplicate_ids"]["count"]
    for flag, count in manifest["flags"].items():
        yield "flagged_rows", flag, count
    for name, value in drift_figures(manifest).items():
        if value is not None:
            yield name, "", value
