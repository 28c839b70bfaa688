"""The folder of a cross-validation: its plan, a file for every fit, and the results."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from dslda.cross_validation.evaluation import Evaluation
from dslda.cross_validation.fold_fit import Cell, FoldFit
from dslda.exceptions import FormatError, InputError, OutputExistsError
from dslda.storage.location import Location
from dslda.storage.output import check_writable, replace_file, writing
from dslda.storage.typed_json import canonical_json, parse_json

__all__ = ["EvaluationFolder"]

PLAN, FITS = "plan.json", "fits"
DETAILS = b"dslda"
"""Key of what a file of a fit holds beside its columns."""


class EvaluationFolder:
    """A local folder, or one behind any fsspec URL.

    A fit that is complete is not done again. Every file is replaced as a whole.

    Raises
    ------
    OutputExistsError
        Something else is there.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._location = Location.of(path)
        entries = self._location.entries() if self._location.holds() else []
        if entries and PLAN not in entries:
            raise OutputExistsError(
                f"{self._location.url} is no folder of an evaluation", remedy="choose another {out=}"
            )
        check_writable(self._location)

    @property
    def url(self) -> str:
        return self._location.url

    def begin(self, plan: Mapping[str, Any], *, overwrite: bool) -> None:
        """Go on with the evaluation of this plan, or begin it.

        Raises
        ------
        InputError
            Another plan is there.
        """
        text = canonical_json(plan)
        if self._location.holds(PLAN) and not overwrite:
            there = _read(self._location, PLAN)
            if canonical_json(there) != text:
                raise InputError(
                    f"{self.url} holds another evaluation: {_differences(there, plan)}",
                    parameter="out",
                    remedy=("choose another folder", "replace it with {overwrite=True}"),
                )
            return
        if overwrite and self._location.holds():
            self._location.remove()
        self._write(PLAN, text)

    def read(self, cell: Cell) -> FoldFit | None:
        """The result of a fit; None where it is still to be done."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        name = f"{FITS}/{cell.name}.parquet"
        if not self._location.holds(name):
            return None
        fs, root = self._location.file_system()
        with fs.open(f"{root}/{name}", "rb") as file:
            raw = file.read()
        try:
            table = pq.read_table(pa.BufferReader(raw))
            details = json.loads(table.schema.metadata[DETAILS])
            columns = {name: table.column(name).to_numpy() for name in table.column_names}
        except (pa.ArrowException, KeyError, ValueError, TypeError) as error:
            raise FormatError(
                f"the file of a fit is damaged ({error})",
                place=f"{self.url}/{name}",
                remedy="remove it: that fit is then done again",
            ) from error

        def array(kind: str) -> Any:
            own = [name for name in columns if name.startswith(kind)]
            if not own:
                return None
            return columns[own[0]] if details["flat"] else np.column_stack([columns[name] for name in own])

        return FoldFit(
            columns["row"],
            array("predicted_"),
            array("alone_"),
            {name: np.nan if value is None else value for name, value in details["measured"].items()},
            tuple(details["warnings"]),
        )

    def write(self, cell: Cell, fit: FoldFit) -> None:
        """Keep the result of a fit."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns: dict[str, Any] = {"row": fit.rows}
        for kind, values in (("predicted", fit.predicted), ("alone", fit.topics_alone)):
            if values is not None:
                for i, column in enumerate(values.reshape(len(fit.rows), -1).T):
                    columns[f"{kind}_{i}"] = np.ascontiguousarray(column)
        details = {
            "flat": fit.predicted.ndim == 1,
            "measured": {n: v if np.isfinite(v) else None for n, v in fit.measured.items()},
            "warnings": list(fit.warnings),
        }
        table = pa.table(columns).replace_schema_metadata({DETAILS: json.dumps(details)})
        sink = io.BytesIO()
        pq.write_table(table, sink)
        self._write(f"{FITS}/{cell.name}.parquet", sink.getvalue())

    def finish(self, evaluation: Evaluation) -> None:
        """Write the table, the report and, if matplotlib is there, the picture."""
        rows = evaluation.rows
        text = io.StringIO()
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        self._write("table.csv", text.getvalue().encode())
        report = json.dumps(evaluation.to_json(), indent=2, ensure_ascii=False)
        self._write("evaluation.json", f"{report}\n".encode())
        try:
            figure = evaluation.plot().figure
        except InputError:
            return
        picture = io.BytesIO()
        figure.savefig(picture, format="svg")
        self._write("topics.svg", picture.getvalue())

    def _write(self, name: str, raw: bytes) -> None:
        file = self._location.child(name)
        if file.local:
            with writing(self.url):
                os.makedirs(os.path.dirname(file.url), exist_ok=True)
        replace_file(file, raw, self.url)


def _read(location: Location, name: str) -> Any:
    fs, root = location.file_system()
    try:
        with fs.open(f"{root}/{name}", "rb") as file:
            return parse_json(file.read())
    except ValueError as error:
        raise FormatError(
            f"the plan is damaged ({error})", place=f"{location.url}/{name}", remedy="choose another {out=}"
        ) from error


def _differences(there: Any, here: Mapping[str, Any]) -> str:
    then, now = dict(_flat(there)), dict(_flat(json.loads(canonical_json(here))))
    differing = [name for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
    return "; ".join(f"{name} {then.get(name)!r:.60} there, {now.get(name)!r:.60} now" for name in differing)


def _flat(data: Any, name: str = "") -> Any:
    if isinstance(data, dict) and data:
        for key, value in data.items():
            yield from _flat(value, f"{name}.{key}" if name else key)
    else:
        yield name, data
