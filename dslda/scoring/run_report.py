"""The manifest of a complete run, and its log."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from dslda.exceptions import InputError
from dslda.model import Model
from dslda.prediction.predict import FLAG_MEANING
from dslda.scoring.drift import drift_figures, drift_report
from dslda.scoring.run_folder import Part, RunFolder, RunState
from dslda.scoring.run_plan import log_unreadable, part_key
from dslda.scoring.scoring_units import Input
from dslda.scoring.tally import RunTally, find_duplicates
from dslda.wording import first_few, number_of

__all__ = [
    "final_manifest",
    "log_all_unreadable",
    "log_complete",
    "log_lost",
    "log_part",
    "log_run",
    "what_is_left",
]

logger = logging.getLogger("dslda.score")


def final_manifest(model: Model, folder: RunFolder, state: RunState) -> dict[str, Any]:
    """Add up all parts, in their order.

    Raises
    ------
    InputError
        Nothing could be scored, all was skipped.
    """
    tally = RunTally(model.n_topics, model.record.reference)
    for one in state.inputs:
        if one.unreadable:
            tally.lose(one.label, one.unreadable, 0)  # its records were never counted
    parts = []
    for part in state.parts:
        note = folder.read_note(part, part_key(part, state.inputs, state.identity))
        assert note is not None
        tally.add(note)
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
    duplicates = find_duplicates(files, output_format, tally.n_rows)
    of_texts = all(one.partition is None for one in state.inputs)
    drift = drift_report(tally, model.record, of_texts=of_texts)
    return state.to_json() | {
        "parts": parts,
        "rows_in": sum(part.rows for part in state.parts),
        "rows_out": tally.n_rows,
        "skipped": {"count": tally.n_skipped, "first": tally.skipped, "unreadable_inputs": unreadable},
        "flags": {flag: tally.flags.get(flag, 0) for flag in FLAG_MEANING},
        "tokens": tally.tokens,
        "known_tokens": tally.known_tokens,
        "oov_share": tally.oov_share,
        "duplicate_ids": {"count": duplicates.count, "first": list(duplicates.first)},
        "predictions": {
            "count": tally.n_predictions if not tally.classes else sum(tally.classes.values()),
            "mean": tally.mean_prediction,
            "training_mean": None if model.classes is not None else model.response_summary.mean,
            "classes": dict(sorted(tally.classes.items())),
        },
        "drift": drift,
        "new_words": {"words": tally.new_words(), "error": tally.words.error},
    }


def log_all_unreadable(manifest: Mapping[str, Any]) -> None:
    """Warn of inputs that could not be read, or not to their end."""
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
        "1 part of a complete run was" if len(names) == 1 else f"{len(names):,} parts of a complete run were",
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
    """Note on what the same command will do; nobody knows yet how many parts a changed input becomes."""
    if dropped:
        return (
            "no part with rows of a changed input is kept, and the same command reads that again from its start: "
            f"{first_few([one.label for one in dropped], 3)}"
        )
    return (
        f"the same command goes on with the {number_of(n_parts, 'part')} that "
        f"{'is' if n_parts == 1 else 'are'} left"
    )


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
            extra={"event": "skipped_in_all"} | {"count": skipped["count"]},
        )
    log_all_unreadable(manifest)
    repeated = manifest["duplicate_ids"]
    if repeated["count"]:
        named = ", ".join(f"{name!r:.60}" for name in repeated["first"][:3])
        logger.warning(
            "%s of another (the first: %s)",
            "1 document has the identifier"
            if repeated["count"] == 1
            else f"{repeated['count']:,} documents have the identifiers",
            named,
            extra={"event": "duplicate_ids"} | repeated,
        )
    if manifest["drift"]:
        _log_drift(manifest["drift"], manifest["new_words"])


def log_complete(manifest: Mapping[str, Any], n_new_parts: int) -> None:
    """Log the last event of a run, also of one with nothing to do: programs wait for it."""
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


def _log_drift(drift: Mapping[str, Any], new_words: Mapping[str, Any]) -> None:
    limit = drift["new_share_warned_above"]
    if limit is not None and drift["new_share"] > limit:
        named = ", ".join(f"{each['word']!r:.60}" for each in new_words["words"][:5])
        logger.warning(
            "%.1f%% of the tokens are neither in the vocabulary nor left out of it as too frequent; in the corpus trained on "
            "it was %.1f%%; the most frequent: %s",
            100 * drift["new_share"],
            100 * drift["training_new_share"],
            named,
            extra={"event": "drift", "of": "words"}
            | {name: drift[name] for name in ("new_share", "training_new_share")},
        )
    of_training = drift["reference"] == "trained on"
    # against the documents trained on everything new is far off, and nobody heeds an alarm that always rings
    level = logging.INFO if of_training else logging.WARNING
    caution = (
        "; an overfitted model shows this for everything new: train with 250 documents or more held out to know better"
        if of_training
        else ""
    )
    if (drift["prediction_psi"] or 0.0) > drift["prediction_warned_above"]:
        logger.log(
            level,
            "predictions have moved far from those of the documents %s (population stability index %.2f)%s",
            drift["reference"],
            drift["prediction_psi"],
            caution,
            extra={"event": "drift", "of": "predictions", "psi": drift["prediction_psi"]},
        )
    moved = [each for each in drift["topics"] if each["psi"] > drift["topics_warned_above"]]
    moved.sort(key=lambda each: -each["psi"])
    if moved:
        logger.log(
            level,
            "%s moved far from the documents %s: %s%s",
            "1 topic has" if len(moved) == 1 else f"{len(moved)} topics have",
            drift["reference"],
            first_few([f"topic {each['topic']} ({each['psi']:.2f})" for each in moved], 5),
            caution,
            extra={"event": "drift", "of": "topics", "topics": [each["topic"] for each in moved]},
        )
