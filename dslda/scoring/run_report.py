"""Reports of a run: the manifest when it is complete, its log, and metrics for Prometheus' textfile collector."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from dslda.exceptions import InputError
from dslda.model import Model
from dslda.prediction.predict import FLAG_MEANING
from dslda.scoring.run_folder import Part, RunFolder, RunState
from dslda.scoring.run_plan import log_unreadable, part_key
from dslda.scoring.scoring_units import Input
from dslda.scoring.tally import Tally, drift_figures, drift_report, exceeded, find_duplicates
from dslda.storage.location import Location, check_not_in_store
from dslda.storage.output import check_writable, is_among, writing
from dslda.wording import first_few, labelled, number_of

__all__ = [
    "MetricsFile",
    "drift_in_words",
    "final_manifest",
    "latest_in_words",
    "log_all_unreadable",
    "log_complete",
    "log_lost",
    "log_part",
    "log_run",
    "run_in_words",
    "what_is_left",
]

logger = logging.getLogger("dslda.score")

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
    "drift_warnings": "Number of predictions, topics and words that have moved far enough for a warning: 0 to 3.",
    "latest_rows": "Rows of the last run that added any.",
    "latest_oov_share": "Share of their tokens that the model does not know.",
    "latest_new_share": "Share of their tokens that are neither in the vocabulary nor left out of it as too frequent.",
    "latest_prediction_mean": "Mean prediction of these rows.",
    "latest_prediction_psi": "Population stability index of their predictions against training, or against the rows before.",
    "latest_largest_topic_psi": "Largest population stability index of a topic among them.",
    "latest_drift_warnings": "As drift_warnings, of these rows.",
}


def final_manifest(model: Model, folder: RunFolder, state: RunState) -> dict[str, Any]:
    """Add up all parts, in their order; a run that skipped all records is refused."""
    tally, earlier, latest = (Tally(model.n_topics, model.record.reference) for _ in range(3))
    for entry in state.inputs:
        if entry.unreadable:
            tally.lose(entry.label, entry.unreadable, 0)  # its records were never counted
    parts = []
    for part in state.parts:
        note = folder.read_note(part, part_key(part, state.inputs, state.identity))
        assert note is not None
        tally.add_note(note)
        if state.latest_part is not None:
            (latest if part.number >= state.latest_part else earlier).add_note(note)
        file = folder.part_name(part.number)
        done = {"file": file, "rows": note["rows"], "bytes": note["bytes"], "sha256": note["sha256"]}
        parts.append(part.to_json() | done)
    unreadable = tally.unreadable
    if not tally.n_rows and (tally.n_skipped or unreadable):
        first = (tally.skipped or unreadable)[0]
        raise InputError(
            "some record must be one that can be scored, all were skipped; the first: "
            f"{first.get('place', first.get('path'))}: {first['reason']}"
        )
    files = [(folder.part_file(part.number), folder.ids_file(part.number)) for part in state.parts]
    output_format = state.identity["settings"]["output_format"]
    of_texts = all(entry.partition is None for entry in state.inputs)
    return state.to_json() | {
        "parts": parts,
        "rows_in": sum(part.rows for part in state.parts),
        "skipped": {"count": tally.n_skipped, "first": tally.skipped, "unreadable_inputs": unreadable},
        "duplicate_ids": find_duplicates(files, output_format, tally.n_rows),
        **_counts(tally, model),
        "drift": drift_report(tally, model.record, of_texts=of_texts),
        "latest": _counts(latest, model)
        | {"drift": drift_report(latest, model.record, of_texts=of_texts, earlier=earlier)}
        if state.latest_part is not None
        else None,
    }


def _counts(tally: Tally, model: Model) -> dict[str, Any]:
    """The counts of all rows, or of the latest, as a manifest reports them."""
    return {
        "rows_out": tally.n_rows,
        "flags": {flag: tally.flags.get(flag, 0) for flag in FLAG_MEANING},
        "tokens": tally.tokens,
        "known_tokens": tally.known_tokens,
        "oov_share": tally.oov_share,
        "predictions": {
            "count": tally.n_predictions if not tally.classes else sum(tally.classes.values()),
            "mean": tally.mean_prediction,
            "training_mean": None if model.record.classes is not None else model.response_summary.mean,
            "classes": dict(sorted(tally.classes.items())),
        },
        "new_words": {"words": tally.new_words(), "error": tally.words.error},
    }


def run_in_words(path: str, n_new_parts: int, manifest: Mapping[str, Any]) -> str:
    """What the folder of a run holds; and in a second line the figures of the latest rows, where it holds others too."""
    parts = [
        f"{number_of(manifest['rows_out'], 'row')} in {number_of(len(manifest['parts']), 'part')}",
        f"{n_new_parts:,} of them scored now" if n_new_parts else "nothing was new",
    ]
    if skipped := manifest["skipped"]["count"]:
        parts.append(f"{number_of(skipped, 'record')} skipped")
    if unreadable := manifest["skipped"]["unreadable_inputs"]:
        parts.append(f"{number_of(len(unreadable), 'input')} unreadable")
    if (mean := manifest["predictions"]["mean"]) is not None:
        parts.append(f"mean prediction {mean:.4g}")
    lines = [f"{path}: {', '.join(parts)}"]
    if n_new_parts and (latest := latest_in_words(manifest)):
        lines.append(": ".join(latest))
    return "\n".join(lines)


def latest_in_words(manifest: Mapping[str, Any]) -> tuple[str, str] | None:
    """The latest rows, and their figures; None where there are no others, or the release of the folder did not tell."""
    latest = manifest.get("latest")
    if latest is None or latest["rows_out"] == manifest["rows_out"]:
        return None
    mean, drift = latest["predictions"]["mean"], latest["drift"]
    parts = [] if mean is None else [f"mean prediction {mean:.4g}"]
    if drift is not None:
        parts.append(f"drift of {drift_in_words(drift)}")
        if drift["new_share"] is not None:
            parts.append(
                f"{drift['new_share']:.1%} of the tokens new words, {drift['training_new_share']:.1%} in training"
            )
    return f"latest {number_of(latest['rows_out'], 'row')}", "; ".join(parts) or "no prediction"


def drift_in_words(drift: Mapping[str, Any]) -> str:
    """The indices of a report of drift with their limits."""
    return (
        f"predictions {drift['prediction_psi'] or 0.0:.3f} (much: above {drift['prediction_warned_above']:.2f}), "
        f"topics at most {drift['largest_topic_psi']:.3f} (much: above {drift['topics_warned_above']:.2f}), "
        f"against {number_of(drift['reference_documents'], 'document')} {drift['reference']}"
    )


def log_all_unreadable(manifest: Mapping[str, Any]) -> None:
    """Warn of inputs that could not be read to their end."""
    unreadable = manifest["skipped"]["unreadable_inputs"]
    if unreadable:
        logger.warning(
            "%s could not be scored, or not to the end, and the rows are missing: %s",
            number_of(len(unreadable), "input"),
            first_few([file["path"] for file in unreadable], 3),
            extra={"event": "unreadable_inputs", "count": len(unreadable)},
        )


def log_lost(names: Sequence[str]) -> None:
    """Warn of parts of a complete run whose files are gone or damaged."""
    logger.warning(
        "%s lost or cut, and %s scored again: %s",
        number_of(len(names), "part of a complete run was", "parts of a complete run were"),
        "is" if len(names) == 1 else "are",
        first_few(names, 3),
        extra={"event": "lost_parts", "count": len(names), "first": names[:3]},
    )


def log_part(part: Part, note: Mapping[str, Any]) -> None:
    """Warn of the records and files that a finished part leaves out."""
    for record in note["skipped"]["first"]:
        logger.warning(
            "skipped: %s: %s", record["place"], record["reason"], extra={"event": "skipped", **record}
        )
    for file in note["unreadable"]:
        log_unreadable(file["path"], file["reason"])
    logger.debug("part %d is done: %d rows", part.number, note["rows"])


def what_is_left(n_parts: int, dropped: Sequence[Input]) -> str:
    """Note on what the same command will do; the number of parts of a changed input is not known yet."""
    if dropped:
        return (
            "no part with rows of a changed input is kept, and the same command reads that again from its start: "
            f"{first_few([entry.label for entry in dropped], 3)}"
        )
    return f"the same command goes on with the {number_of(n_parts, 'part that is', 'parts that are')} left"


def log_run(manifest: Mapping[str, Any]) -> None:
    """Warn of everything in a complete run that needs attention."""
    n = manifest["rows_out"]
    for flag, count in manifest["flags"].items():
        if count:
            logger.warning(
                "%d of %d documents %s", count, n, FLAG_MEANING[flag], extra={"flag": flag, "count": count}
            )
    skipped = manifest["skipped"]
    if skipped["count"]:
        logger.warning(
            "%s skipped",
            number_of(skipped["count"], "record"),
            extra={"event": "skipped_in_all", "count": skipped["count"]},
        )
    log_all_unreadable(manifest)
    repeated = manifest["duplicate_ids"]
    if repeated["count"]:
        logger.warning(
            "%s of another (the first: %s)",
            number_of(repeated["count"], "document has the identifier", "documents have the identifiers"),
            ", ".join(f"{name!r:.60}" for name in repeated["first"][:3]),
            extra={"event": "duplicate_ids"} | repeated,
        )
    _log_drift(manifest, "all")
    latest = manifest["latest"]
    if latest is not None and latest["rows_out"] < n:
        _log_drift(latest, "latest")


def log_complete(manifest: Mapping[str, Any], n_new_parts: int) -> None:
    """Log the last event of a run, also where there was nothing to do: programs wait for it."""
    logger.info(
        "complete: %s of %s%s",
        number_of(manifest["rows_out"], "row"),
        number_of(manifest["rows_in"], "record"),
        "" if n_new_parts else ", nothing was new",
        extra={
            "event": "complete",
            "new_parts": n_new_parts,
            "rows": manifest["rows_out"],
            "skipped": manifest["skipped"]["count"],
            "unreadable_inputs": len(manifest["skipped"]["unreadable_inputs"]),
            **drift_figures(manifest),
        },
    )


def _log_drift(counts: Mapping[str, Any], rows: str) -> None:
    """Warn of what has moved far, in "all" rows or in the "latest"."""
    drift = counts["drift"]
    if drift is None:
        return
    beyond = exceeded(drift)
    of_rows = f"latest {number_of(counts['rows_out'], 'row')}: " if rows == "latest" else ""
    event = {"event": "drift", "rows": rows}
    if "words" in beyond:
        logger.warning(
            "%s%.1f%% of the tokens are neither in the vocabulary nor left out of it as too frequent; in the corpus trained "
            "on it was %.1f%%; the most frequent: %s",
            of_rows,
            100 * drift["new_share"],
            100 * drift["training_new_share"],
            ", ".join(f"{entry['word']!r:.60}" for entry in counts["new_words"]["words"][:5]),
            extra=event
            | {"of": "words"}
            | {name: drift[name] for name in ("new_share", "training_new_share")},
        )
    caution = (
        "; this is no warning, since with an overfitted model everything new has: train with 250 documents or more held out "
        "to know better"
    )

    def tell(of: str, message: str, **figures: Any) -> None:
        warned = of in drift["warned_of"]
        logger.log(
            logging.WARNING if warned else logging.INFO,
            "%s%s%s",
            of_rows,
            message,
            "" if warned else caution,
            extra=event | {"of": of} | figures,
        )

    if "predictions" in beyond:
        tell(
            "predictions",
            f"predictions have moved far from those of the documents {drift['reference']} (population stability index "
            f"{drift['prediction_psi']:.2f})",
            psi=drift["prediction_psi"],
        )
    if "topics" in beyond:
        moved = [entry for entry in drift["topics"] if entry["psi"] > drift["topics_warned_above"]]
        moved.sort(key=lambda entry: -entry["psi"])
        names = first_few(
            [f"topic {labelled(entry['topic'], entry.get('label'))} ({entry['psi']:.2f})" for entry in moved],
            5,
        )
        tell(
            "topics",
            f"{number_of(len(moved), 'topic has', 'topics have')} moved far from the documents {drift['reference']}: {names}",
            topics=[entry["topic"] for entry in moved],
        )


class MetricsFile:
    """Metrics file that is replaced at the end of a run, whether the run failed or not.

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
        prometheus_client is not installed; or the file cannot be written, is of another program, is an input, or lies in a
        folder of inputs, a model or a corpus.
    """

    def __init__(self, path: str | os.PathLike[str], run: str, inputs: Sequence[Any]) -> None:
        try:
            import prometheus_client  # noqa: F401 - refuse a missing extra before the work
        except ImportError:
            raise InputError(
                "needs prometheus_client, which is not installed",
                parameter="metrics",
                remedy="install it with pip install 'dslda[metrics]'",
            ) from None
        self._location = Location.of(path)
        folder = os.path.dirname(self._location.url)
        wanted = None
        if not self._location.local or os.path.isdir(self._location.url) or not os.path.isdir(folder):
            wanted = "a local file in a folder that is there"
        elif f"{folder}/".startswith(f"{run}/"):
            wanted = "a file outside of the folder of the run"
        if wanted is not None:
            raise InputError(f"must name {wanted}, got {os.fspath(path)!r:.80}", parameter="metrics")
        _check_ours(self._location.url)
        _check_no_input(self._location.url, inputs)
        check_not_in_store(self._location)
        check_writable(self._location)
        self._run = run.encode(errors="replace").decode()
        self._began = time.time()

    def write(self, manifest: Mapping[str, Any] | None, n_new_parts: int, *, failed: bool = False) -> None:
        """Replace the file; the time of the last success survives a run that has `failed`.

        `manifest` is that of the complete run in the folder now, or None.
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
    places = [
        os.fspath(entry).removeprefix("file://") for entry in inputs if isinstance(entry, (str, os.PathLike))
    ]
    for place in filter(None, places):
        if "://" not in place and is_among(path, place):
            raise InputError(
                f"must name a file that is no input and in no folder of inputs, got {path}, which is in {place}",
                parameter="metrics",
                remedy="choose another path",
            )
