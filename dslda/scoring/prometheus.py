"""Metrics of a run for Prometheus' textfile collector."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dslda.exceptions import InputError
from dslda.scoring.drift import drift_figures
from dslda.storage.location import Location, check_not_in_store
from dslda.storage.output import check_writable, is_among, writing

__all__ = ["MetricsFile"]

PREFIX = "dslda_score"
FIRST_LINE = b"# HELP dslda_"
"""Beginning of every file of metrics."""

LAST_SUCCESS = "last_success_timestamp_seconds"

HELP = {
    "success": "1 if the last run was complete, 0 if it failed.",
    LAST_SUCCESS: "When a run was complete last.",
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
        Inputs of the run.

    Raises
    ------
    InputError
        prometheus_client is not installed. Or the file cannot be written, is something else, is an input or lies in a folder
        of them, or in a model or corpus.
    """

    def __init__(self, path: str | os.PathLike[str], run: str, inputs: Sequence[Any]) -> None:
        try:
            import prometheus_client  # noqa: F401 - an extra that is missing is told before work
        except ImportError:
            raise InputError(
                "needs prometheus_client, which is not installed",
                parameter="metrics",
                remedy="install it with pip install 'dslda[metrics]'",
            ) from None
        self._location = Location.of(path)
        folder = os.path.dirname(self._location.url)
        if not self._location.local or os.path.isdir(self._location.url) or not os.path.isdir(folder):
            reason = f"must name a local file in a folder that is there, got {os.fspath(path)!r:.80}"
            raise InputError(reason, parameter="metrics")
        if f"{folder}/".startswith(f"{run}/"):
            reason = f"must name a file outside of the folder of the run, got {os.fspath(path)!r:.80}"
            raise InputError(reason, parameter="metrics")
        _check_ours(self._location.url)
        _check_no_input(self._location.url, inputs)
        check_not_in_store(self._location)
        check_writable(self._location)
        self._run = run.encode(errors="replace").decode()
        self._began = time.time()

    def write(self, manifest: Mapping[str, Any] | None, n_new_parts: int, *, failed: bool = False) -> None:
        """Replace the file; the time of the last success survives a run that has `failed`.

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
        from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

        now = time.time()
        values: dict[str, float | None] = {
            "success": not failed,
            "seconds": now - self._began,
            "new_parts": n_new_parts,
            LAST_SUCCESS: self._last_success() if failed else now,
        }
        flags: Mapping[str, int] = {}
        if manifest is not None:
            values |= {
                "rows": manifest["rows_out"],
                "skipped_rows": manifest["skipped"]["count"],
                "unreadable_inputs": len(manifest["skipped"]["unreadable_inputs"]),
                "duplicate_ids": manifest["duplicate_ids"]["count"],
                **drift_figures(manifest),
            }
            flags = manifest["flags"]
        registry = CollectorRegistry()
        for name, text in HELP.items():
            if name == "flagged_rows" and flags:
                gauge = Gauge(f"{PREFIX}_{name}", text, ["run", "flag"], registry=registry)
                for flag, count in flags.items():
                    gauge.labels(self._run, flag).set(count)
            elif (value := values.get(name)) is not None:
                Gauge(f"{PREFIX}_{name}", text, ["run"], registry=registry).labels(self._run).set(value)
        with writing(self._location.url):
            write_to_textfile(self._location.url, registry)

    def _last_success(self) -> float | None:
        from prometheus_client.parser import text_fd_to_metric_families

        with contextlib.suppress(OSError, ValueError), open(self._location.url, encoding="utf-8") as stream:
            for metric in text_fd_to_metric_families(stream):
                if metric.name == f"{PREFIX}_{LAST_SUCCESS}":
                    return metric.samples[0].value
        return None


def _check_ours(path: str) -> None:
    """Refuse to replace a file of another program; an empty file holds nothing to lose."""
    if not os.path.lexists(path):
        return
    if os.path.isfile(path):
        with contextlib.suppress(OSError), open(path, "rb") as stream:
            if stream.read(len(FIRST_LINE)) in (b"", FIRST_LINE):
                return
    raise InputError(
        f"must name a file of metrics that dslda has written, or one that is not there, got {path}, which is something else",
        parameter="metrics",
        remedy="choose another path",
    )


def _check_no_input(path: str, inputs: Sequence[Any]) -> None:
    """Refuse a file that this run or the next would score."""
    for one in inputs:
        if not isinstance(one, (str, os.PathLike)) or not (place := os.fspath(one)):
            continue
        place = place.removeprefix("file://")
        if "://" not in place and is_among(path, place):
            raise InputError(
                f"must name a file that is no input and in no folder of inputs, got {path}, which is in {place}",
                parameter="metrics",
                remedy="choose another path",
            )
