"""The folder of a cross-validation: its plan, a file for every fit, and the results."""

from __future__ import annotations

import io
import json
import logging
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dslda.cross_validation.evaluation import Evaluation
from dslda.cross_validation.fold_fit import Cell, FoldFit, judging
from dslda.cross_validation.splitting import Fold
from dslda.exceptions import FormatError, InputError, OutputExistsError
from dslda.storage.location import Location, check_not_in_store
from dslda.storage.output import PASSING, check_writable, replace_file, writing
from dslda.storage.typed_json import canonical_json, leaves, parse_json

__all__ = ["EvaluationFolder"]

logger = logging.getLogger("dslda.training")

PLAN, FITS = "plan.json", "fits"
TABLE, REPORT, PICTURE = "table.csv", "evaluation.json", "topics.svg"
PLANNED = frozenset({"corpus", "response", "folds", "settings", "versions"})
"""Names that every plan has."""
FIT = re.compile(r"[a-z]+(-\d+-topics)?-fold-\d+\.parquet")
DETAILS = b"dslda"
"""Key of what a file of a fit holds beside its columns."""


class EvaluationFolder:
    """A local folder, or one behind any fsspec URL.

    A fit that is complete is not done again. Every file is replaced as a whole.

    Raises
    ------
    InputError
        It would lie inside a corpus, model or checkpoint, or cannot be written.
    OutputExistsError
        Something else is there.
    FormatError
        Its plan is damaged.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._location = Location.of(path)
        check_not_in_store(self._location)
        self._there: Mapping[str, Any] | None = None
        if self._location.holds():
            plan = _read(self._location, PLAN) if PLAN in self._location.entries() else None
            if not (isinstance(plan, dict) and plan.keys() >= PLANNED):
                raise OutputExistsError(
                    f"{self._location.url} is no folder of an evaluation", remedy="choose another {out=}"
                )
            self._there = plan
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
        OutputExistsError
            The folder to replace holds something else too.
        """
        text = canonical_json(plan)
        if self._there is not None and not overwrite:
            if canonical_json(self._there) != text:
                raise InputError(
                    f"{self.url} holds another evaluation: {_differences(self._there, plan)}",
                    parameter="out",
                    remedy=("choose another folder", "replace it with {overwrite=True}"),
                )
            return
        if self._there is not None:
            if (other := self._other_content()) is not None:
                raise OutputExistsError(
                    f"{self.url} holds {other}, which is no part of the evaluation, so it is not replaced",
                    remedy=("move that out of it", "choose another {out=}"),
                )
            self._location.remove()
        self._write(PLAN, text)

    def _other_content(self) -> str | None:
        """The first file or folder here that no evaluation has written."""
        own = {PLAN, FITS, TABLE, REPORT, PICTURE}
        others = [name for name in self._location.entries() if name not in own]
        fits = self._location.child(FITS).entries()
        others += [f"{FITS}/{name}" for name in fits if not FIT.fullmatch(name)]
        return next((name for name in others if not PASSING.fullmatch(name.rpartition("/")[2])), None)

    def read(self, cell: Cell, fold: Fold, names: Sequence[str] | None) -> FoldFit | None:
        """The result of a fit to a fold, with a column for each of the names; None where it is still to be done.

        Raises
        ------
        FormatError
            Its file is damaged, or holds other documents.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        name = f"{FITS}/{cell.name}.parquet"
        if not self._location.holds(name):
            return None
        fs, root = self._location.file_system()
        with fs.open(f"{root}/{name}", "rb") as file:
            raw = file.read()
        width = 1 if names is None else len(names)
        try:
            table = pq.read_table(pa.BufferReader(raw))
            details = json.loads(table.schema.metadata[DETAILS])
            columns = {name: table.column(name).to_numpy() for name in table.column_names}
            rows = columns["row"]
            if not np.array_equal(rows, judging(fold)):
                raise ValueError("it holds other documents")

            def array(kind: str) -> NDArray[np.float64] | None:
                if f"{kind}_0" not in columns:
                    return None
                own = [columns[f"{kind}_{i}"] for i in range(width)]
                return own[0] if names is None else np.column_stack(own)

            predicted = array("predicted")
            if predicted is None:
                raise ValueError("it has no predictions")
            measured = {n: np.nan if v is None else float(v) for n, v in details["measured"].items()}
            return FoldFit(rows, predicted, array("alone"), measured, tuple(details["warnings"]))
        except (pa.ArrowException, AttributeError, KeyError, ValueError, TypeError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise FormatError(
                f"the file of a fit is damaged ({reason})",
                place=f"{self.url}/{name}",
                remedy="remove it: that fit is then done again",
            ) from error

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
            "measured": {n: v if np.isfinite(v) else None for n, v in fit.measured.items()},
            "warnings": list(fit.warnings),
        }
        table = pa.table(columns).replace_schema_metadata({DETAILS: json.dumps(details)})
        sink = io.BytesIO()
        pq.write_table(table, sink)
        self._write(f"{FITS}/{cell.name}.parquet", sink.getvalue())

    def finish(self, evaluation: Evaluation) -> None:
        """Write the table, the report and, if matplotlib is there, the picture."""
        self._write(TABLE, evaluation.to_csv().encode())
        report = json.dumps(evaluation.to_json(), indent=2, ensure_ascii=False)
        self._write(REPORT, f"{report}\n".encode())
        try:
            figure = evaluation.plot().figure
        except InputError:
            logger.info(
                "no picture: pip install 'dslda[plot]', and the same call draws it without fitting again"
            )
            return
        picture = io.BytesIO()
        figure.savefig(picture, format="svg")
        self._write(PICTURE, picture.getvalue())

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
    then, now = dict(leaves(there)), dict(leaves(json.loads(canonical_json(here))))
    differing = [name for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
    return "; ".join(
        "of a corpus with other content"
        if name == "corpus"
        else f"{name} {then.get(name)!r:.60} there, {now.get(name)!r:.60} now"
        for name in differing
    )
