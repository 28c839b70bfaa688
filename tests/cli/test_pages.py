"""Every block of code of README.md and docs/: it runs, on small inputs, in the order of its page."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dslda
from dslda.cli.program import program, run
from dslda.datasets import CLOTHING_FILE
from tests.helpers.command_lines import command_of, lines_of_code, parse

ROOT = Path(__file__).resolve().parents[2]
N = 300


@dataclass(frozen=True)
class Run:
    """How the blocks of a page are run.

    Attributes
    ----------
    given : mapping of str to str
        What the page takes as made, and which of the inputs it is.
    before, after : str
        Python that sets the names that its blocks do not, and that looks at what they have made.
    at_once : bool
        Python goes on in the folder of the commands, and not in one of its own.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    before: str = ""
    after: str = ""
    at_once: bool = False


MADE = {"reviews.corpus": "reviews.corpus", "stars.model": "stars.model"}
OPENED = """
import dslda
corpus, model = dslda.open_corpus("reviews.corpus"), dslda.load_model("stars.model")
"""
RUN = {
    "README.md": Run(
        after='assert "<html" in open("clothes.html").read(); dslda.load_model("clothes.model")'
    ),
    "docs/getting_started.md": Run(),
    "docs/command_line.md": Run(given={"big.corpus": "reviews.corpus"}),
    "docs/python.md": Run(
        before='import pandas; frame = pandas.read_csv("reviews.csv"); '
        'texts, ratings, new_texts = frame["text"], frame["rating"], frame["text"][:3]',
        after='assert len(area.classes) == 6 and popular.predict(["a bill"], covariates={"party": ["D"]}) > 0',
    ),
    "docs/report.md": Run(given=MADE, after='assert open("topics.pdf", "rb").read(4) == b"%PDF"'),
    "docs/choosing_topics.md": Run(
        # 30 fits
        given={"reviews.corpus": "few.corpus"},
        at_once=True,
        after="assert len(found.rows) == 6 and found.choice.n_topics in (5, 10, 20, 50)",
    ),
    "docs/evaluating.md": Run(
        given=MADE | {"held_out.corpus": "reviews.corpus"},
        before=OPENED,
        after="assert (~kept).sum() == model.training.n_documents",
    ),
    "docs/families.md": Run(
        before=OPENED,
        given=MADE,
        after="assert Exponential().name == TestExponential.family.name and Counts().link == 'log'",
    ),
    "docs/formats.md": Run(
        given=MADE | {"fruit.corpus": "fruit.corpus"}, after="assert len(words) == 10 and errors.all()"
    ),
    "docs/model.md": Run(given=MADE, before=OPENED, after="assert difference(model, 2, 1)[1] > 0.0"),
    "docs/scoring.md": Run(
        given=MADE,
        before=OPENED + 'dslda.score(model, "incoming/*.jsonl", out="scores")',
        after="assert len(predictors) == len(rows) > 0",
    ),
}
NOT_RUN = {
    "docs/benchmarks.md": "has placeholders for corpora, and takes hours",
    "docs/cluster.md": "has a cluster of other machines; tests/cluster and the notebook of a cluster run such lines",
    "docs/failure.md": "is about big.corpus, as docs/command_line.md",
}
"""Pages whose commands are not run here, and why. Their options are looked at all the same."""
OUTSIDE = "/var/lib/"
"""Commands that write there are not run."""
OPTIONAL = ("simplemma", "pyLDAvis")
"""Packages that are no part of the tests. Blocks that import them are run where they are installed."""


def _blocks(page: str) -> Iterator[tuple[str, str]]:
    """Language and code of each block, with the fewest resamples that there may be, for the time that they take."""
    text = re.sub(r"(bootstrap[= ])\d+", r"\g<1>10", (ROOT / page).read_text(encoding="utf-8"))
    for indent, language, code in re.findall(r"^( *)```(\w*)\n(.*?)^ *```$", text, re.MULTILINE | re.DOTALL):
        yield language, textwrap.dedent(indent + code)


def _python(page: str) -> list[str]:
    return [code for language, code in _blocks(page) if language == "python"]


def _commands(page: str) -> list[list[str]]:
    return [words for language, code in _blocks(page) if not language for words in lines_of_code(code)]


def _write(path: Path, records: list[dict[str, Any]]) -> None:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as stream:
        stream.writelines(json.dumps(record) + "\n" for record in records)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that pages speak of, of real words and ratings, and what is made of them."""
    folder = tmp_path_factory.mktemp("inputs")
    rows = pd.read_parquet(CLOTHING_FILE).head(N)
    texts = [
        " ".join(word for word, n in zip(row.words, row.counts, strict=True) for _ in range(n))
        for row in rows.itertuples()
    ]
    reviews = rows.assign(text=texts)[["id", "text", "rating"]]
    records: list[dict[str, Any]] = reviews.to_dict("records")
    reviews.to_csv(folder / "reviews.csv", index=False)
    for name in ("reviews", "new", "held_out"):
        _write(folder / f"{name}.jsonl.gz", records)
    (folder / "incoming").mkdir()
    _write(folder / "incoming" / "june.jsonl", records[:40])
    bills = zip(texts, rows["department"], rows["positive_feedback"], rows["age"], strict=True)
    _write(
        folder / "bills.jsonl",
        [
            {"summary": text, "policy_area": area, "cosponsors": n, "party": "DR"[age % 2], "days": age}
            for text, area, n, age in bills
        ],
    )
    settings: dict[str, Any] = {"text": "text", "id": "id", "response": "rating", "stop_words": "english"}
    corpus = dslda.ingest(folder / "reviews.csv", folder / "reviews.corpus", **settings)
    dslda.ingest(folder / "reviews.csv", folder / "fruit.corpus", partition_tokens=1000, **settings)
    dslda.ingest(records[:60], folder / "few.corpus", **settings)
    dslda.train(corpus, response="rating", n_topics=5, hold_out=0.1).save(folder / "stars.model")
    return folder


def _folder(inputs: Path, folder: Path, given: Mapping[str, str]) -> Path:
    """A folder with the files, and with those of the things that are given."""
    shutil.copytree(inputs, folder, ignore=shutil.ignore_patterns("*.corpus", "*.model"))
    for name, made in given.items():
        shutil.copytree(inputs / made, folder / name)
    return folder


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.slow] if how.at_once else []) for page, how in RUN.items()]
)
def test_the_code_of_a_page_runs(
    page: str,
    inputs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    how = RUN[page]
    folder = _folder(inputs, tmp_path / "commands", how.given)
    monkeypatch.chdir(folder)
    for _, *arguments in _commands(page):
        if any(OUTSIDE in word for word in arguments):
            continue
        if arguments[0] == "report":  # one page after the other
            (folder / "report.html").unlink(missing_ok=True)
        assert run(arguments) == 0, (arguments, capsys.readouterr().err)
    if not how.at_once:
        monkeypatch.chdir(_folder(inputs, tmp_path / "python", how.given))
    names: dict[str, Any] = {"__name__": "page"}
    for code in (how.before, *_python(page), how.after):
        imported = re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)
        if any(name in OPTIONAL and find_spec(name) is None for name in imported):
            continue
        with warnings.catch_warnings():  # so few documents deserve some
            warnings.simplefilter("ignore")
            exec(compile(code, page, "exec"), names)


def test_no_page_with_code_is_left_out() -> None:
    pages = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "README.md", *(ROOT / "docs").glob("**/*.md"))
        if (name := str(path.relative_to(ROOT))) and (_python(name) or _commands(name))
    }
    assert pages == {*RUN, *NOT_RUN}
    assert not [page for page in NOT_RUN if _python(page)]


@pytest.mark.parametrize("page", NOT_RUN)
def test_commands_that_are_not_run_are_understood(page: str) -> None:
    for words in _commands(page):
        if page == "docs/benchmarks.md":
            _check_options(words)
        else:
            parse(words)


@pytest.mark.parametrize("page", [*RUN, *NOT_RUN])
def test_options_that_a_page_names_are_there(page: str) -> None:
    text = re.sub(r"^ *```.*?^ *```$", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)
    for code in re.findall(r"`([^`]+)`", text):
        words = code.split()
        if words[0] == "dslda":
            _check_options(words)
        elif words[0].startswith("--") and page != "docs/benchmarks.md":  # which has options of its own
            assert words[0].partition("=")[0] in ALL_OPTIONS, code


def _check_options(words: list[str]) -> None:
    known = _options(words[1]) if len(words) > 1 and not words[1].startswith("-") else ALL_OPTIONS
    named = [word.strip("[]") for word in words if word.strip("[").startswith("--")]
    assert {name.partition("=")[0] for name in named} <= known, words


def _options(name: str) -> set[str]:
    """The options of a command."""
    own = {o for p in command_of(name).params for o in (*p.opts, *p.secondary_opts)}
    return own | {"--help"}


ALL_OPTIONS = set().union(*(_options(name) for name in program.list_commands(None))) | {"--version"}  # type: ignore[arg-type]
