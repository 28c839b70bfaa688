"""JSON lines: one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from dslda.exceptions import InputError
from dslda.inputs.fields import Fields, Record, kind_of
from dslda.inputs.formats.base import LinePiece

__all__ = ["JsonLines"]

logger = logging.getLogger("dslda.ingest")

PROBED_RECORDS = 1000


@dataclass(frozen=True, slots=True)
class JsonLines(LinePiece):
    """JSON objects, one a line; blank lines are passed over."""

    format = "jsonl"
    title = "JSON lines"
    endings = (".jsonl", ".ndjson", ".json")
    magic = (b"{",)
    fields_vary = True
    streamable = True
    rules = frozenset({"encoding"})

    def record(self, line: str, number: int) -> Record:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason, remedy = str(error), ""
            if isinstance(error, json.JSONDecodeError):  # its line is that of the record
                reason = f"{error.msg.removesuffix(' at')} at column {error.colno}"
            if "set_int_max_str_digits" in reason:  # the advice is for authors of Python
                reason = f"a whole number must have at most {sys.get_int_max_str_digits():,} digits"
            elif number == 1 and line.lstrip().startswith("["):
                remedy = "a file must have one JSON object a line, not one array of them"
            elif number == 1 and line.strip() == "{":
                remedy = "write each object on one line"
            raise InputError(f"not JSON: {reason}", remedy=remedy or ()) from None
        if not isinstance(record, dict):
            raise InputError(
                f"must be a JSON object, got {kind_of(record)}", remedy="write one object a line"
            )
        return record

    def field_names(self, wanted: Collection[str] = ()) -> Sequence[str] | None:
        names: dict[str, None] = {}
        n = 0
        for _, record in self.attempts(Fields()):
            if not isinstance(record, InputError):
                names.update(dict.fromkeys(record))
            elif n < PROBED_RECORDS:
                raise record
            n += 1
            if n >= PROBED_RECORDS:
                absent = sorted(set(wanted) - names.keys())
                if not absent:
                    break
                if n == PROBED_RECORDS:
                    logger.info(
                        "none of the first %s records of %s has %s: reading on until one has",
                        f"{n:,}",
                        self.file.name,
                        ", ".join(map(repr, absent)),
                    )
        return list(names) if n else None
