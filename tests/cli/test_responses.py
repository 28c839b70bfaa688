"""Responses, covariates and classes from files: the stumbling blocks of newcomers."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dslda as dslda_package
from dslda.evaluation.topic_stability import TopicStability
from tests.helpers.errors import refused
from tests.helpers.files import write_records

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
    source = write_records(made / request.param, bills())
    arguments = ("ingest", source, "--out", made / "bills.corpus", *INGEST, *COLUMNS)
    assert run([str(argument) for argument in arguments]) == 0
    return made


def test_what_is_missing_is_counted_reported_and_flagged(folder: Path, dslda: Dslda, tmp_path: Path) -> None:
    """Regression: a single missing covariate made ingest and predict refuse the whole file."""
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
    told = dslda("info", tmp_path / "stars.model").out
    assert "stars: 80 values, 10 missing or left out, in documents without 'party', " in told
    new = bills(20)
    new[3]["party"] = "Green"
    for name in ("new.jsonl", "new.csv"):
        done = dslda("predict", tmp_path / "stars.model", write_records(tmp_path / name, new))
        assert done.code == 0
        rows = table(done.out)
        assert [row["id"] for row in rows] == [f"b{i}" for i in range(20)]
        gaps = {"b3": "unknown_level", "b8": "no_covariate", "b17": "no_covariate"}
        out = tmp_path / f"scores of {name}"
        score = (
            "score",
            tmp_path / "stars.model",
            tmp_path / name,
            "--topics",
            "none",
            "--output-format",
            "csv",
        )
        assert dslda(*score, "--out", out).code == 0
        scored = table((out / "part-000000.csv").read_text())
        assert [{key: row[key] for key in rows[0]} for row in scored] == rows
        assert {row["id"]: row["flag"] for row in rows if not row["prediction"]} == gaps
        assert "warning: 2 of 20 documents lack a covariate of the model: they have no prediction" in done.err
        assert "warning: 1 of 20 documents have a level of a covariate that training did not see" in done.err


ROLES = {
    "covariates": (
        ["--response", "stars", "--covariates", "height"],
        "must name covariates of .*, got 'height'",
    ),
    "weight": (["--response", "stars", "--weight", "heft"], "must name covariates of .*, got 'heft'"),
    "exposure": (["--response", "stars", "--exposure", "time"], "must name covariates of .*, got 'time'"),
    "response": (["--response", "rating"], "--response must name one of those in .*'stars'.*, got 'rating'"),
    "role of another family": (
        ["--response", "stars", "--exposure", "days"],
        "exposure must be left out for family gaussian; families with an exposure: negative_binomial, poisson",
    ),
    "domain": (
        ["--response", "stars", "--family", "binomial"],
        "'stars' must be 0 or 1 .*, got 2 in document 'b1'",
    ),
}


@pytest.mark.parametrize("case", ROLES)
def test_what_cannot_be_trained_is_refused_before_workers_start(
    folder: Path, dslda: Dslda, tmp_path: Path, case: str
) -> None:
    arguments, message = ROLES[case]
    done = dslda("train", folder / "bills.corpus", "--out", tmp_path / "x.model", "--workers", 2, *arguments)
    assert done.code == 2
    assert re.search(message, done.error), done.error
    assert "worker" not in done.err


def test_what_cannot_be_ingested_is_refused_before_workers_start(
    folder: Path, dslda: Dslda, tmp_path: Path
) -> None:
    source = next(path for path in folder.iterdir() if path.suffix in (".jsonl", ".csv"))
    for column in ("--response", "--covariates", "--weight"):
        done = dslda(
            "ingest", source, "--out", tmp_path / "x.corpus", *INGEST, column, "nope", "--workers", 2
        )
        assert done.code == 2
        assert "has no field 'nope' for the" in done.error
        assert "worker" not in done.err


def test_lines_of_text_are_not_enough_for_a_model_with_covariates(
    folder: Path, dslda: Dslda, tmp_path: Path
) -> None:
    train = (
        "train",
        folder / "bills.corpus",
        "--response",
        "stars",
        "--covariates",
        "days,party",
        "--topics",
        2,
    )
    assert dslda(*train, "--out", tmp_path / "x.model", "--max-iter", 2).code == 0
    done = dslda("predict", tmp_path / "x.model", "-")
    assert done.code == 2
    assert done.error.startswith(
        "- reads only lines of text, but the model also needs 'days', 'party' of each document"
    )


def test_a_family_of_ones_own_is_named_by_its_module_and_class(
    documented_family: str, tmp_path: Path, dslda: Dslda, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In processes: the module lies in the current directory, where installed programs do not look by themselves."""
    (tmp_path / "waits.py").write_text(documented_family)
    (tmp_path / "broken.py").write_text("import nothing_of_that_name")
    waits = [
        {"text": "short brief quick" if i % 2 else "long slow late", "wait": (1 + i % 2) * (1 + i % 5)}
        for i in range(60)
    ]
    write_records(tmp_path / "waits.jsonl", waits)

    def program(*arguments: str) -> tuple[int, str]:
        code = "from dslda.cli import main; main()"
        path = {"PYTHONPATH": str(Path(dslda_package.__file__).parents[1]), "PYTHONSAFEPATH": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=tmp_path,
            env=os.environ | path,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout if done.returncode == 0 else done.stderr.splitlines()[-1]

    ingest = (
        "ingest",
        "waits.jsonl",
        "--out",
        "w.corpus",
        "--text",
        "text",
        "--response",
        "wait",
        "--min-df",
        "1",
    )
    assert program(*ingest, "--max-df", "1.0", "--partition-tokens", "60")[0] == 0
    train = ("train", "w.corpus", "--response", "wait", "--topics", "2", "--max-iter", "3")
    own = ("--family", "waits:Exponential")
    assert program(*train, *own, "--workers", "1", "--out", "w.model")[0] == 0
    monkeypatch.chdir(tmp_path)
    for command in (["predict", "w.model", "waits.jsonl"], ["topics", "w.model"], ["info", "w.model"]):
        refused = dslda(*command)
        assert refused.code == 2
        assert "the family of w.model must be one of dslda's" in refused.err
        assert "got 'exponential'; if it is your own, name it with --family MODULE:CLASS" in refused.err
        code, told = program(*command, *own)
        assert code == 0, told
        if command[0] == "predict":
            assert len(table(told)) == 60
    code, told = program("score", "w.model", "waits.jsonl", "--out", "scores", *own, "--workers", "1")
    assert (code, "60 rows in 1 part" in told) == (0, True), told
    for family, message in {
        "wait:Exponential": "there must be a module 'wait' in the current directory or installed, got none; write",
        "broken:Exponential": "importing broken failed with ModuleNotFoundError: No module named 'nothing_of_that",
        "waits:Gamma": "must be a subclass of dslda.families.base.Family or an instance of one, got nothing of",
        "waits:math": "got an object of type module",
        ":Exponential": "--family must name a module and a class in it, got ':Exponential'",
    }.items():
        refused = dslda(*train, "--family", family, "--out", "x.model")
        assert (refused.code, message in refused.err) == (2, True), refused.err
    refused = dslda("predict", "w.model", "waits.jsonl", "--family", "gaussian")
    assert "--family must be that of the model, 'exponential', got 'gaussian'" in refused.err


def test_each_class_tells_which_topics_raise_it(folder: Path, dslda: Dslda, tmp_path: Path) -> None:
    """Regression: only the class that a topic speaks for most was shown, so some classes never appeared."""
    model = tmp_path / "area.model"
    train = ("train", folder / "bills.corpus", "--response", "area", "--family", "categorical")
    assert dslda(*train, "--topics", 2, "--out", model).code == 0
    lines = [line for line in dslda("info", model).out.splitlines() if line.startswith("class:")]
    assert [line.split()[1] for line in lines] == ["Defense:", "Health:", "Tax:"]
    assert sum(bool(re.search(r"raised by topic [01] \+\d+\.\d\d", line)) for line in lines) >= 2
    rows = table(dslda("topics", model, "--by-class").out)
    assert [(row["class"]) for row in rows] == ["Defense"] * 2 + ["Health"] * 2 + ["Tax"] * 2
    for topic in "01":  # over the classes they sum to 0
        assert sum(float(row["coefficient"]) for row in rows if row["topic"] == topic) == pytest.approx(0.0)
    by_class = dslda_package.load_model(model).class_topics(top=1)
    assert list(by_class) == ["Defense", "Health", "Tax"]
    assert all(one.coefficient > 0.0 for found in by_class.values() for one in found)
    with refused("top"):
        dslda_package.load_model(model).class_topics(top=0)
    from rich.console import Console

    from dslda.cli.topics_command import shown_classes

    def shown(table: Any) -> str:
        console = Console(width=100, record=True, file=io.StringIO())
        console.print(table)
        return console.export_text()

    of_one_start = dslda_package.load_model(model)
    assert "Health" in shown(shown_classes(of_one_start))
    assert "*" not in shown(shown_classes(of_one_start))
    # as if other starts had found the second topic, but not the first
    stability = TopicStability(np.array([0.2, 0.9]), np.array([0.1, 0.8]))
    several = dslda_package.Model(replace(of_one_start.record, stability=stability))
    for text in (shown(shown_classes(several)), dslda("info", several.save(tmp_path / "s.model")).out):
        assert set(re.findall(r"topic (\d\*?) \+", text)) == {"0*", "1"}
    rows = table(dslda("topics", tmp_path / "s.model", "--by-class").out)
    assert {(row["topic"], round(float(row["stability"]), 9)) for row in rows} == {("0", 0.15), ("1", 0.85)}


Y = Callable[[int], Any]
BAD: dict[str, tuple[Y, tuple[str, ...], int, str]] = {
    "negative count": (
        lambda i: -2 if i == 7 else i % 3,
        ("--family", "poisson"),
        2,
        r"error: response 'y' must be whole numbers in .* for family poisson, got -2 in document 'b7'; use --fam",
    ),
    "0 for gamma": (
        lambda i: 0 if i == 7 else 1 + i % 3,
        ("--family", "gamma"),
        2,
        r"error: response 'y' must be numbers in \(0, inf\) for family gamma, got 0 in document 'b7'; use --fam",
    ),
    "1.5 for binomial": (
        lambda i: 1.5 if i == 7 else i % 2,
        ("--family", "binomial"),
        2,
        r"error: response 'y' must be whole numbers in .* for family binomial, got 1.5 in document 'b7'; use --fam",
    ),
    "names for a family of numbers": (
        lambda i: list(AREAS)[i % 3],
        ("--family", "gaussian"),
        2,
        r"error: family gaussian needs numbers, and response 'y' has 3 names .*; use --family categorical",
    ),
    "measurements for classes": (
        lambda i: i // 2 + 0.5,
        ("--family", "categorical"),
        0,
        "warning: response 'y' has 45 different numbers, which are taken for classes without order",
    ),
    "a class of one document": (
        lambda i: "once" if i == 7 else list(AREAS)[i % 3],
        ("--family", "categorical"),
        0,
        r"warning: response 'y': 1 class of a single document \('once'; the first in document 'b7'\) cannot be learned",
    ),
    "a rare class of two": (
        lambda i: int(i in (7, 8)),
        ("--family", "binomial"),
        0,
        r"warning: response 'y': only 2.2% of the documents are '1'; .* more weight with --class-weight \('balanced'\)",
    ),
    "a rare class of three": (
        lambda i: "rare" if i in (7, 8) else ("no", "yes")[i % 2],
        ("--family", "categorical"),
        0,
        "warning: response 'y': only 2.2% of the documents are 'rare'; ",
    ),
    "a constant covariate": (
        lambda i: i % 4,
        ("--covariates", "constant"),
        2,
        "error: covariate 'constant' must differ between documents with a response by more than rounding, got 3 in all",
    ),
    "collinear covariates": (
        lambda i: i % 4,
        ("--covariates", "days,twice"),
        0,
        "warning: covariates 'days', 'twice' cannot be told apart from each other or from the topics",
    ),
    "no weight above 0": (
        lambda i: i % 4,
        ("--weight", "nothing"),
        2,
        "error: --weight 'nothing' must be above 0 for some document with response 'y', got 0 for all",
    ),
}


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
@pytest.mark.parametrize("case", BAD)
def test_bad_responses_are_one_clear_error_or_a_warning(
    dslda: Dslda, tmp_path: Path, case: str, ending: str
) -> None:
    response, arguments, code, message = BAD[case]
    records = [
        bill | {"y": response(i), "constant": 3, "twice": 2 * bill["days"] + 1, "nothing": 0}
        for i, bill in enumerate(bills())
    ]
    source = write_records(tmp_path / f"bills.{ending}", records)
    names = ["--categorical", "y"] if isinstance(records[0]["y"], str) else []
    columns = ("--response", "y", "--covariates", "days,constant,twice,nothing", *names)
    assert dslda("ingest", source, "--out", tmp_path / "b.corpus", *INGEST, *columns).code == 0
    train = ("train", tmp_path / "b.corpus", "--response", "y", "--topics", 2, "--tol", 0.01)
    done = dslda(*train, "--out", tmp_path / "m.model", *arguments)
    assert done.code == code, done.err
    assert re.search(f"^dslda: {message}", done.err, re.MULTILINE), done.err
    assert "Traceback" not in done.err


def test_levels_have_their_names_in_every_output(dslda: Dslda, folder: Path, tmp_path: Path) -> None:
    train = ("train", folder / "bills.corpus", "--response", "area", "--family", "ordinal", "--topics", 3)
    done = dslda(*train, "--out", tmp_path / "none.model")
    assert done.code == 2
    assert "list them from the lowest to the highest with --levels, or use --family categorical" in done.err
    done = dslda(*train, "--out", tmp_path / "few.model", "--levels", "Tax,Health")
    assert done.code == 2
    assert (
        "document 'b1': response 'area' must be one of the levels given ('Tax', 'Health'), got 'Defense'"
        in (done.err)
    )
    model = tmp_path / "area.model"
    assert dslda(*train, "--out", model, "--levels", "Tax, Health, Defense", "--hold-out", "0.2").code == 0
    shown = dslda("info", model).out
    assert re.search(r"levels: +Tax \([\d.]+%\) < Health \([\d.]+%\) < Defense \([\d.]+%\)\n", shown)
    assert re.search(r"thresholds: +Tax\|Health 0, Health\|Defense [\d.]+\n", shown)
    assert "of the classes are right" in shown
    topics = dslda("topics", model)
    assert {row["level"] for row in table(topics.out)} <= set(AREAS)
    assert "Thresholds between levels: Tax|Health 0, Health|Defense" in topics.err
    predicted = table(dslda("predict", model, folder / "bills.corpus").out)
    assert {row["prediction"] for row in predicted} <= set(AREAS)
    names = [name for name in predicted[0] if name.startswith("probability_")]
    assert names == ["probability_Tax", "probability_Health", "probability_Defense"]
    assert dslda("score", model, folder / "bills.corpus", "--out", tmp_path / "scores").code == 0
    manifest = json.loads((tmp_path / "scores" / "manifest.json").read_text())
    assert set(manifest["predictions"]["classes"]) <= set(AREAS)
    assert sum(manifest["predictions"]["classes"].values()) == 90
    done = dslda(*train[:4], "--levels", "Tax,Health,Defense", "--out", tmp_path / "gaussian.model")
    assert done.code == 2
