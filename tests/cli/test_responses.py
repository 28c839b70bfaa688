"""What newcomers stumble over with responses, covariates and classes, as they run into it: from files."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dslda = Callable[..., Any]

AREAS = {"Health": "doctor nurse clinic", "Defense": "army navy fleet", "Tax": "income levy relief"}


def bills(n: int = 90) -> list[dict[str, Any]]:
    """Bills of three areas; every ninth has no party, every tenth no area."""
    found = []
    for i in range(n):
        area = list(AREAS)[i % 3]
        words = AREAS[area].split()
        found.append(
            {
                "key": f"b{i}",
                "text": f"{words[i % 3]} {words[(i + 1) % 3]} act number{i % 4}",
                "area": None if i % 10 == 9 else area,
                "party": None if i % 9 == 8 else "DR"[i // 3 % 2],
                "stars": 1 + (i % 3) + i // 3 % 3,
                "days": 1 + i % 5,
            }
        )
    return found


def write(path: Path, records: list[dict[str, Any]]) -> Path:
    """As CSV or JSON lines, by the ending."""
    with path.open("w", newline="") as stream:
        if path.suffix == ".csv":
            rows = csv.DictWriter(stream, list(records[0]))
            rows.writeheader()
            rows.writerows(records)
        else:
            stream.writelines(json.dumps(record) + "\n" for record in records)
    return path


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


INGEST = ("--text", "text", "--id", "key", "--min-df", 1, "--max-df", 1.0)
COLUMNS = (
    "--response",
    "area",
    "--response",
    "stars",
    "--covariates",
    "party,days",
    "--categorical",
    "area,party",
)


@pytest.fixture(scope="module", params=["bills.jsonl", "bills.csv"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bills.corpus, made of JSON lines or of CSV."""
    from dslda.cli.program import run

    made = tmp_path_factory.mktemp("bills")
    source = write(made / request.param, bills())
    arguments = ("ingest", source, "--out", made / "bills.corpus", *INGEST, *COLUMNS)
    assert run([str(argument) for argument in arguments]) == 0
    return made


def test_what_is_missing_is_counted_reported_and_flagged(folder: Path, dslda: Dslda, tmp_path: Path) -> None:
    """A single missing covariate refused the whole file, in ingest and in predict."""
    source = next(path for path in folder.iterdir() if path.suffix in (".jsonl", ".csv"))
    said = dslda("ingest", source, "--out", tmp_path / "b.corpus", *INGEST, *COLUMNS)
    assert "9 of 90 documents have no response 'area': they help to learn the topics" in said.err
    assert "10 of 90 documents have no covariate 'party': a model with this covariate leaves" in said.err
    assert "'stars' (whole numbers)" in said.err  # stars are no counts
    assert "party: D, R (10 missing)" in dslda("info", folder / "bills.corpus").out
    train = ("train", folder / "bills.corpus", "--response", "stars", "--covariates", "party", "--topics", 3)
    trained = dslda(*train, "--out", tmp_path / "stars.model")
    assert trained.code == 0
    assert (
        "warning: 10 of 90 documents with response 'stars' lack a covariate (missing: 'party' in 10): their response is "
        "left out, their words still count; the first: document 'b8', document 'b17', document 'b26', ...; fill it in"
    ) in trained.err
    new = bills(20)
    new[3]["party"] = "Green"
    for name in ("new.jsonl", "new.csv"):
        done = dslda("predict", tmp_path / "stars.model", write(tmp_path / name, new))
        assert done.code == 0
        rows = table(done.out)
        assert [row["id"] for row in rows] == [f"b{i}" for i in range(20)]
        gaps = {"b3": "unknown_level", "b8": "no_covariate", "b17": "no_covariate"}
        assert {row["id"]: row["flag"] for row in rows if not row["prediction"]} == gaps
        assert "warning: 2 of 20 documents lack a covariate of the model: they have no prediction" in done.err
        assert "warning: 1 of 20 documents have a level of a covariate that training did not see" in done.err
