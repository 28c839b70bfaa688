"""docs/scoring.md names all that a run writes and logs: fields of the manifest, events, metrics."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from numpy.testing import assert_allclose

import dslda
from dslda.cli.program import run as program
from dslda.inputs.formats.csv import CsvLines
from dslda.inputs.formats.parquet import ParquetRows
from dslda.inputs.streams import InputFile
from dslda.scoring.run_report import HELP, PREFIX
from tests.helpers.files import write_records

ROOT = Path(__file__).parents[2]
FREE = {"classes", "versions", "flags"}
"""Fields whose own fields are names of something else."""


def section(title: str) -> str:
    """The text under a heading."""
    page = (ROOT / "docs" / "scoring.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {title}.*?\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return str(found)


def fields(value: Any) -> Iterator[str]:
    """Names of all fields at any depth."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield name
            if name not in FREE:
                yield from fields(inner)
    elif isinstance(value, list):
        for each in value:
            yield from fields(each)


def events() -> dict[str, set[str]]:
    """The fields of each event, as far as the code names them literally where it logs."""
    found: dict[str, set[str]] = {}
    for file in sorted((ROOT / "dslda" / "scoring").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Dict):
                keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
                if "event" in keys:
                    name = ast.literal_eval(node.values[keys.index("event")])
                    found.setdefault(name, set()).update(str(key) for key in keys if key is not None)
    return found


def test_the_page_names_every_field_of_a_manifest(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    text = "good bad " * 160_000
    records = [{"key": "a", "text": "good"}, {"key": "a", "text": "unheard of"}, {"key": "b", "text": 1}]
    lines = [json.dumps(each) + "\n" for each in (*records, *({"key": i, "text": text} for i in range(3)))]
    (inputs / "a.jsonl").write_text("".join(lines))
    (inputs / "b.jsonl.gz").write_bytes(b"no gzip")
    run = dslda.score(made / "stars.model", inputs, tmp_path / "out", on_error="skip")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert manifest["skipped"]["first"]
    assert manifest["skipped"]["unreadable_inputs"]
    assert manifest["duplicate_ids"]["first"]
    assert program(["info", str(tmp_path / "out")]) == 0
    limits = [manifest["drift"][f"{which}_warned_above"] for which in ("prediction", "topics")]
    told = re.findall(r"\(much: above (\S+)\)", capsys.readouterr().out)
    assert told == [f"{limit:.2f}" for limit in limits]
    assert manifest["inputs"][0]["path"].startswith("file:///")
    assert any("range" in piece for part in run.manifest["parts"] for piece in part["pieces"])
    file = InputFile("file:///x", 9)
    of_others = [CsvLines(file, columns=("a",)).range(), ParquetRows(file, row_groups=(0,)).range()]
    page = section("Manifest")
    assert not [name for name in dict.fromkeys(fields([manifest, of_others])) if f"`{name}`" not in page]


def test_predictions_are_made_of_topics_as_the_page_says(
    made: Path, write_reviews: Callable[..., Path], tmp_path: Path
) -> None:
    page = (ROOT / "docs" / "scoring.md").read_text(encoding="utf-8")
    (formula,) = re.findall(r"^### From topics to predictions.*?^```python\n(.*?)^```", page, re.M | re.S)

    def predictors(model: dslda.Model, rows: pandas.DataFrame) -> Any:
        names: dict[str, Any] = {"model": model, "rows": rows}
        exec(formula, names)
        naive = rows.filter(like="topic_").to_numpy() @ names["coefficients"]
        assert np.abs(naive - rows["prediction"]).max() > 0.01
        return names["predictors"]

    plain = dslda.load_model(made / "stars.model")
    dslda.score(plain, made / "reviews.jsonl", tmp_path / "scores")
    rows = pandas.read_parquet(tmp_path / "scores" / "part-000000.parquet")
    assert_allclose(predictors(plain, rows), rows["prediction"], rtol=1e-12)

    documents = [
        json.loads(line) | {"shop": "abc"[i % 3]}
        for i, line in enumerate(write_reviews(tmp_path / "reviews.jsonl").read_text().splitlines())
    ]
    write_records(tmp_path / "reviews.jsonl", documents)
    corpus = dslda.ingest(
        tmp_path / "reviews.jsonl",
        text="text",
        response="stars",
        covariates=["age", "shop"],
        categorical="shop",
        min_df=1,
        max_df=1.0,
    )
    model = dslda.train(corpus, response="stars", n_topics=2, covariates=["age", "shop"])
    frame = pandas.DataFrame(documents)
    known = frame["stars"].notna()
    expected = predictors(model, model.score_table(corpus).to_pandas())
    for each in model.covariate_coefficients():
        values = frame[each.covariate] if each.level is None else frame[each.covariate] == each.level
        expected += each.coefficient * (values - values[known].mean())
    assert_allclose(model.predict(documents), expected, rtol=1e-9)


def test_the_page_names_every_event(dslda: Callable[..., Any], made: Path, tmp_path: Path) -> None:
    page = section("Logs and metrics")
    rows = {
        name: row for name, row in re.findall(r"^\| `(\w+)` \|(.*)\|$", page, re.MULTILINE) if name != "event"
    }
    code = events()
    assert rows.keys() == code.keys()
    for name, beside in code.items():
        assert not [each for each in beside - {"event"} if f"`{each}`" not in rows[name]], name
    assert not [name for name in HELP if f"`{PREFIX}_{name}" not in page]

    # one event to wait for, with or without work to do
    (tmp_path / "a.jsonl").write_text('{"key": "a", "text": "good"}\n')
    for n_new in (1, 0):
        done = dslda("score", made / "stars.model", tmp_path / "a.jsonl", "--out", tmp_path / "out", "--json")
        last = json.loads(done.err.splitlines()[-1])
        assert (last["event"], last["new_parts"], last["rows"]) == ("complete", n_new, 1)
        assert not [name for name in last if f"`{name}`" not in page]
