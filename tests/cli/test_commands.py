"""The commands in the order in which a newcomer would use them."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dslda.cli.program import COMMANDS, run
from dslda.cli.topics_command import shown_covariates, shown_topics
from dslda.corpus.store import open_corpus
from dslda.evaluation.topic_stability import TopicStability
from dslda.exceptions import ConvergenceWarning
from dslda.ingestion.ingest import ingest as dslda_ingest
from dslda.model import Model, load_model
from dslda.training.train import train
from tests.helpers.processes import without_tracker

Dslda = Callable[..., Any]

ROOT = Path(__file__).parents[2]
PROGRAM = [sys.executable, "-c", "from dslda.cli import main; main()"]


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_ingest_writes_a_corpus_and_says_what_is_in_it(made: Path, dslda: Dslda) -> None:
    corpus = open_corpus(made / "reviews.corpus")
    assert corpus.response_names == ("stars", "age")
    assert corpus.n_documents == 80
    told = dslda("info", made / "reviews.corpus")
    assert told.code == 0
    assert "documents:           80 (0 empty)" in told.out
    assert "stars: 79 values, 1 missing, real numbers, mean " in told.out
    assert "age: 80 values, whole numbers, mean 39.5" in told.out
    assert f"out of vocabulary:   {corpus.oov_share:.1%} of {corpus.n_all_tokens:,} tokens (" in told.out
    assert "fields:              text (text), key (id), stars (response), age (response)" in told.out
    assert corpus.content_hash in told.out


def test_ingest_appends_and_info_says_when_and_what(made: Path, dslda: Dslda, tmp_path: Path) -> None:
    corpus = tmp_path / "grown.corpus"
    shutil.copytree(made / "reviews.corpus", corpus)
    months = [tmp_path / f"{month}-reviews.jsonl" for month in ("april", "may", "june")]
    for month in months:
        lines = [json.loads(line) for line in (made / "reviews.jsonl").read_text().splitlines()]
        month.write_text(
            "".join(json.dumps(row | {"key": f"{month.name}{row['key']}"}) + "\n" for row in lines)
        )
    for month in months[:2]:
        done = dslda("ingest", month, "--out", corpus, "--append", "--response", "stars,age")
        assert done.code == 2
        assert "response must be those of the corpus" in done.error
        assert dslda("ingest", month, "--out", corpus, "--append").code == 0
    june = ("ingest", months[2], "--out", corpus, "--append", "--max-df", "1.0", "--ngrams", "1")
    done = dslda(*june)
    assert done.code == 0
    assert re.search(
        r"80 documents, counted over the vocabulary's (\d+) terms \(they have \1 different ones\), ",
        done.err,
    )
    assert done.out.startswith(f"{corpus}: 80 documents appended by this run, now 320 documents (0 empty), ")
    again = dslda(*june)
    assert again.code == 0
    assert again.out.startswith(f"{corpus}: 0 documents appended by this run, now 320 documents (0 empty), ")
    assert again.err.count("nothing was appended") == 1
    refused = dslda("ingest", made / "reviews.jsonl", "--out", corpus, "--append", "--no-lowercase")
    assert refused.error.startswith(
        "--lowercase must be left out, or be that of the corpus that is appended to, True"
    )
    both = dslda("ingest", made / "reviews.jsonl", "--out", corpus, "--append", "--overwrite")
    assert both.error == "--append and --overwrite exclude each other; give one of them"
    said = dslda("info", corpus).out
    assert re.search(
        r"^appended: +3 times\n( +20\S+: 80 documents of .*reviews.jsonl\n){3}", said, re.MULTILINE
    )
    trained = dslda(
        "train", corpus, "--response", "stars", "--topics", "2", "--max-iter", "2", "--out", tmp_path / "m"
    )
    assert trained.code == 0
    assert "320 documents" in dslda("info", tmp_path / "m").out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_a_default_as_it_is_written(dslda: Dslda, command: str) -> None:
    assert "[default: (" not in dslda(command, "--help").out


def test_ingest_takes_names_as_classes(dslda: Dslda, tmp_path: Path) -> None:
    bills = tmp_path / "bills.csv"
    bills.write_text("text,area,party,age\ntax law,Taxation,R,1\nsea law,Health,D,2\ntax,,R,3\n")
    ingest = ("ingest", bills, "--out", tmp_path / "b.corpus", "--text", "text", "--min-df", 1)
    columns = ("--max-df", 1.0, "--response", "area", "--covariates", "party", "--covariates", "age")
    refused = dslda(*ingest, *columns)
    assert refused.code == 2
    assert "bills.csv, line 2: response 'area' must be a number, got 'Taxation'" in refused.error
    assert refused.error.endswith("if 'area' holds names of classes, name it with --categorical")
    assert dslda(*ingest, *columns, "--categorical", "area, party").code == 0
    corpus = open_corpus(tmp_path / "b.corpus")
    assert corpus.levels == {"area": ("Health", "Taxation"), "party": ("D", "R")}
    assert corpus.response_summaries["area"].missing == 1
    assert corpus.covariate_summaries["age"].mean == 2
    unknown = dslda(*ingest, *columns, "--categorical", "sponsor", "--overwrite")
    assert unknown.code == 2
    assert "got 'sponsor'; these are: 'area', 'party', 'age'" in unknown.error


@pytest.fixture(scope="session")
def bills(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bills.csv and bills.corpus: two responses of numbers, one of names, covariates of both kinds."""
    folder = tmp_path_factory.mktemp("bills")
    generator = np.random.default_rng(0)
    words = {"Health": "nurse clinic drug", "Taxation": "tax income levy", "Law": "court judge crime"}
    with (folder / "bills.csv").open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(["key", "text", "area", "cosponsors", "days", "passed", "age", "party"])
        for i in range(90):
            area = list(words)[i % 3]
            text = " ".join(generator.choice(words[area].split(), 5))
            days, age = int(generator.integers(1, 9)), int(generator.integers(30, 70))
            cosponsors = generator.poisson(days * (1 + i % 3))
            passed = "yes" if area == "Health" or i % 7 == 0 else "no"
            table.writerow([f"b{i}", text, area, cosponsors, days, passed, age, "DR"[i % 2]])
    ingest = (
        "ingest",
        folder / "bills.csv",
        "--out",
        folder / "bills.corpus",
        "--text",
        "text",
        "--id",
        "key",
    )
    columns = ("--response", "area", "--response", "cosponsors", "--response", "passed")
    more = (
        "--covariates",
        "days,age,party",
        "--categorical",
        "area,passed,party",
        "--min-df",
        1,
        "--max-df",
        1.0,
    )
    assert run([str(a) for a in (*ingest, *columns, *more)]) == 0
    return folder


def test_counts_with_exposure_and_covariates_from_ingest_to_predictions(
    bills: Path, dslda: Dslda, tmp_path: Path
) -> None:
    out = tmp_path / "counts.model"
    train = ("train", bills / "bills.corpus", "--response", "cosponsors", "--out", out, "--topics", 3)
    options = ("--family", "poisson", "--exposure", "days", "--covariates", "age, party")
    more = ("--alpha", "auto", "--ridge", 0.1, "--topic-estimation", "variational")
    done = dslda(*train, *options, *more, "--checkpoint", tmp_path / "c")
    assert done.code == 0, done.err
    told = dslda("info", out).out
    assert "family:              poisson (dispersion=1), link log" in told
    assert "Pearson dispersion:  " in told
    assert "\ndispersion: " not in told  # a Poisson has none
    assert re.search(r"covariate: +age: -?[\d.e-]+ \(conditional error [\d.e-]+\)", told)
    assert re.search(r"covariate: +party=R: ", told)
    assert "--alpha auto" in told
    checkpoint = dslda("info", tmp_path / "c").out
    assert "delta:               1 number\n" in checkpoint
    assert "None" not in checkpoint
    assert "--alpha auto" in checkpoint
    assert "--ridge 0.1" in told
    assert "--topic-estimation variational" in told
    model = load_model(out)
    topics = dslda("topics", out)
    assert len(rows(topics.out)) == 3
    assert "average covariates" in topics.err
    assert re.search(r"\nCovariate age: -?[\d.e-]+ \(conditional error [\d.e-]+\)\n", topics.err)
    assert re.search(
        r"\nCovariate party=R \(against D\): -?[\d.e-]+ \(conditional error [\d.e-]+\)\n", topics.err
    )
    alone = dslda("topics", out, "--covariates")
    assert rows(alone.out) == [
        {
            "covariate": each.covariate,
            "level": each.level or "",
            "against": "D" if each.level else "",
            "coefficient": repr(each.coefficient),
            "conditional_error": repr(each.conditional_error),
        }
        for each in model.covariate_coefficients()
    ]
    assert "Covariate " not in alone.err
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(shown_covariates(model))
    assert f"{model.covariate_coefficients()[0].coefficient:.4g}" in console.export_text()
    found = rows(dslda("predict", out, bills / "bills.csv").out)
    assert [float(r["prediction"]) for r in found] == model.predict(
        open_corpus(bills / "bills.corpus")
    ).tolist()
    assert list(found[0]) == ["id", "prediction", "known_tokens", "oov_share", "flag"]
    bare = tmp_path / "bare.csv"
    bare.write_text("text,days,age\ntax levy,3,50\n")
    refused = dslda("predict", out, bare)
    assert refused.code == 2
    assert "'party'" in refused.error


def test_counts_that_scatter_are_warned_of_and_a_family_with_an_option_is_one_of_a_module(
    bills: Path, dslda: Dslda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus, out = bills / "bills.corpus", tmp_path / "counts.model"
    train = ("train", corpus, "--response", "cosponsors", "--out", out, "--topics", 1)
    plain = dslda(*train, "--family", "poisson")
    assert plain.code == 0, plain.err
    assert "take Poisson(dispersion='pearson') for --family" in plain.err
    error = load_model(out).coefficients()[0].conditional_error
    module = "from dslda.families.poisson import Poisson\ncounts = Poisson(dispersion='pearson')\n"
    (tmp_path / "quasi_poisson.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    quasi = dslda(*train, "--family", "quasi_poisson:counts", "--overwrite")
    assert quasi.code == 0, quasi.err
    assert "scatter" not in quasi.err
    model = load_model(out)
    assert model.coefficients()[0].conditional_error == pytest.approx(error * model.dispersion**0.5, rel=1e-9)
    told = dslda("info", out).out
    assert "family:              poisson (dispersion=pearson), link log" in told
    assert f"dispersion:          {model.dispersion:.4g}\n" in told


def test_classes_keep_their_names_and_have_a_probability_each(
    bills: Path, dslda: Dslda, tmp_path: Path
) -> None:
    out = tmp_path / "area.model"
    train = ("train", bills / "bills.corpus", "--response", "area", "--out", out, "--topics", 3)
    done = dslda(*train, "--family", "categorical", "--class-weight", "balanced")
    assert done.code == 0, done.err
    assert re.search(r"classes: +Health \(\d+\.\d%\), Law \(\d+\.\d%\), Taxation", dslda("info", out).out)
    topics = rows(dslda("topics", out).out)
    measures = ["prevalence", "coherence", "exclusivity"]
    assert list(topics[0]) == ["topic", "class", "coefficient", "conditional_error", *measures, "words"]
    assert [t["class"] for t in topics] == ["Health", "Law", "Taxation"]
    assert "nurse" in topics[0]["words"]
    assert "--by-class has all" in dslda("topics", out).err
    by_class = dslda("topics", out, "--by-class").err
    assert "against the mean of all classes" in by_class
    assert "--by-class" not in by_class
    found = rows(dslda("predict", out, bills / "bills.corpus").out)
    names = ["probability_Health", "probability_Law", "probability_Taxation"]
    assert list(found[0]) == ["id", "prediction", "known_tokens", "oov_share", "flag", *names]
    assert [r["prediction"] for r in found[:3]] == ["Health", "Taxation", "Law"]
    assert sum(float(found[0][name]) for name in names) == pytest.approx(1)
    unknown = tmp_path / "unknown.jsonl"
    unknown.write_text('{"text": "xyzzy"}\n')
    (one,) = rows(dslda("predict", out, unknown, "--topics").out)
    # balanced weights make all classes equally frequent
    assert [float(one[name]) for name in names] == pytest.approx([1 / 3] * 3)
    assert "topic_2" in one


def test_of_two_classes_the_share_of_each_is_told_and_no_dispersion(dslda: Dslda, tmp_path: Path) -> None:
    counts = np.random.default_rng(0).poisson(1.0, size=(40, 6)) + np.eye(40, 6, dtype=int)
    y = [1.0, 0.0, 0.0, np.nan] * 10
    train(counts, response=y, family="binomial", n_topics=2, tol=1.0).save(tmp_path / "m.model")
    told = dslda("info", tmp_path / "m.model").out
    assert "response:            not named: 30 values, 10 missing\n" in told
    assert "classes:             0 (66.7%), 1 (33.3%)\n" in told
    assert "dispersion:" not in told


def test_words_and_classes_that_a_spreadsheet_could_take_for_formulas_are_none(
    dslda: Dslda, tmp_path: Path
) -> None:
    records = tmp_path / "r.jsonl"
    with records.open("w") as stream:
        for i in range(40):
            record = {"w": [("=1+1", "@x")[i % 2], "+y"], "n": [3, 1], "c": ("=good", "-bad;=1")[i % 2]}
            stream.write(json.dumps(record) + "\n")
    fields = ("--words", "w", "--counts", "n", "--response", "c", "--categorical", "c", "--max-df", "1.0")
    assert dslda("ingest", records, "--out", tmp_path / "r.corpus", *fields).code == 0
    out = tmp_path / "m.model"
    train = ("train", tmp_path / "r.corpus", "--response", "c", "--family", "categorical", "--topics", 2)
    assert dslda(*train, "--out", out).code == 0
    topics = rows(dslda("topics", out).out)
    assert {t["class"] for t in topics} == {"'=good", "'-bad;'=1"}
    assert all(t["words"][:2] in ("'=", "'@", "'+") for t in topics)
    by_class = rows(dslda("topics", out, "--by-class").out)
    assert {t["class"] for t in by_class} == {"'=good", "'-bad;'=1"}
    assert all(t["words"][:2] in ("'=", "'@", "'+") for t in by_class)
    predicted = rows(dslda("predict", out, records).out)
    assert [name for name in predicted[0] if name.startswith("probability_-")] == ["probability_-bad;'=1"]
    assert dslda("score", out, records, "--out", tmp_path / "s", "--output-format", "csv").code == 0
    assert ',"probability_-bad;\'=1",' in (tmp_path / "s" / "part-000000.csv").read_text()
    assert {r["prediction"] for r in predicted} == {"'=good", "'-bad;'=1"}


def test_two_names_are_a_binomial_response(bills: Path, dslda: Dslda, tmp_path: Path) -> None:
    out = tmp_path / "passed.model"
    train = ("train", bills / "bills.corpus", "--response", "passed", "--out", out, "--topics", 3)
    assert dslda(*train, "--family", "binomial").code == 0
    found = rows(dslda("predict", out, bills / "bills.csv").out)
    assert [r["probability_yes"] for r in found] == [r["prediction"] for r in found]
    assert float(found[0]["prediction"]) > 0.5 > float(found[1]["prediction"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ("--response", "area"),
            "family gaussian needs numbers, and response 'area' has 3 names .*--family categorical",
        ),
        (("--response", "area", "--family", "binomial"), "has 3 names .*use --family categorical"),
        (
            ("--response", "area", "--family", "softmax"),
            "family must be one of beta, binomial, categorical, .*'softmax'",
        ),
        (
            ("--response", "cosponsors", "--family", "gamma"),
            r"numbers in \(0, inf\) for family gamma, got 0 in document",
        ),
        (
            ("--response", "cosponsors", "--covariates", "height"),
            "must name covariates of .*'days', 'age', 'party'.*'height'",
        ),
        (("--response", "cosponsors", "--exposure", "days"), "exposure must be left out for family gaussian"),
        (("--response", "cosponsors", "--weight", "party"), "weight 'party' must hold numbers .*got names"),
        (
            ("--response", "cosponsors", "--class-weight", "balanced"),
            "--class-weight must be left out: the response has no classes",
        ),
        (("--response", "cosponsors", "--ridge", "-1"), "ridge must be a number from 0"),
        (
            ("--response", "cosponsors", "--family", "binomial", "--trials", "days"),
            "'cosponsors' must not exceed its trials 'days', got .* in document",
        ),
    ],
)
def test_responses_and_roles_that_do_not_fit_are_refused(
    bills: Path, dslda: Dslda, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    done = dslda("train", bills / "bills.corpus", "--out", tmp_path / "m.model", "--topics", 2, *options)
    assert done.code == 2
    assert re.search(message, done.error), done.error
    assert list(tmp_path.iterdir()) == []


def test_train_writes_a_model_that_info_describes(made: Path, dslda: Dslda) -> None:
    model = load_model(made / "stars.model")
    assert model.response == "stars"
    assert (model.n_topics, model.spec.response_weight) == (2, 2.0)
    assert model.training.n_labelled == 79
    told = dslda("info", made / "stars.model")
    assert told.code == 0
    assert "80 documents (79 labelled, 0 empty)" in told.out
    # the options that train and ingest were given, by their names on the command line
    assert "settings:            --topics 2, --objective " in told.out
    assert "--rho 2.0, --granularity term, " in told.out
    # a joint fit: what only conditional training uses is not there
    assert "--emphasis" not in told.out
    assert "--term-weights" not in told.out
    assert "--lowercase, --token-pattern " in told.out
    assert ", --ngrams 1-1, --min-df 2, --max-df 1.0, normalize\n" in told.out
    assert f"out of vocabulary:   {model.training.oov_share:.1%} of the tokens of its corpus" in told.out
    assert "None" not in told.out
    assert "{}" not in told.out
    # settings without a value are left out
    assert "None" not in dslda("info", made / "reviews.corpus").out
    assert open_corpus(made / "reviews.corpus").content_hash in told.out


def test_info_of_many_files_is_short_and_one_is_one(dslda: Dslda, tmp_path: Path) -> None:
    for i in range(40):
        (tmp_path / f"part-{i:02d}.jsonl").write_text(f'{{"text": "apple fig", "stars": {i % 2 + 1}}}\n')
    words = [f"w{i:03d}" for i in range(200)]
    corpus = dslda_ingest(
        str(tmp_path / "part-*.jsonl"),
        tmp_path / "many.corpus",
        text="text",
        response="stars",
        stop_words=words,
        max_df=1.0,
    )
    told = dslda("info", corpus.path).out
    assert re.search(r"inputs: .*part-00\.jsonl, .*part-01\.jsonl, .*part-02\.jsonl … and 37 more\n", told)
    assert "files:               40\n" in told
    assert "--stop-words w000, w001, w002 … and 197 more, --min-df 5, --max-df 1.0" in told
    assert "stars: 40 values, whole numbers, mean 1.5" in told
    assert max(map(len, told.splitlines())) < 300 + 3 * len(str(tmp_path))
    model = train(corpus, n_topics=1, documents=[0, 1])
    told = dslda("info", model.save(tmp_path / "m.model")).out
    assert "gaussian, link identity" in told
    assert "stars: 2 values, whole numbers" in told
    assert "trained on:          2 documents (2 labelled, 0 empty), 4 tokens" in told


def test_one_is_singular(dslda: Dslda, made: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dslda")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = train(open_corpus(made / "reviews.corpus"), response="age", n_topics=1, max_iter=1)
    assert "80 documents in 1 partition: 1 topic, at most 1 iteration" in caplog.text
    assert repr(model).startswith(
        "Model(gaussian of 'age': 1 topic, 16 terms, trained on 80 documents in 1 iteration)"
    )
    told = dslda("info", model.save(tmp_path / "m.model")).out
    assert "(80 labelled, 0 empty)" in told
    coherence = f"coherence (NPMI) {model.quality.npmi[0]:.2f}"
    assert f"topic quality:       {coherence}, exclusivity 1.00, 100% of the top words distinct\n" in told


def test_topics_are_csv_when_they_go_to_a_program(made: Path, dslda: Dslda) -> None:
    found = rows(dslda("topics", made / "stars.model", "--top", 3).out)
    model = load_model(made / "stars.model")
    measures = ["prevalence", "coherence", "exclusivity"]
    assert list(found[0]) == ["topic", "coefficient", "conditional_error", *measures, "words"]
    for name in measures[1:]:
        assert [float(r[name]) for r in found] == [getattr(t, name) for t in model.topics()]
    assert [float(r["prevalence"]) for r in found] == [
        model.topic_prevalence[c.topic] for c in model.coefficients()
    ]
    assert [float(r["coefficient"]) for r in found] == [c.coefficient for c in model.coefficients()]
    assert [float(r["conditional_error"]) for r in found] == [
        c.conditional_error for c in model.coefficients()
    ]
    assert [r["words"].split(", ") for r in found] == [list(t.words) for t in model.topics(top=3)]
    frex = rows(dslda("topics", made / "stars.model", "--top", 3, "--words", "frex").out)
    assert [r["words"].split(", ") for r in frex] == [list(t.words) for t in model.topics(3, "frex")]
    assert "has none; leave it out" in dslda("topics", made / "stars.model", "--covariates").error


def test_topics_that_other_starts_do_not_find_are_marked(made: Path, dslda: Dslda, tmp_path: Path) -> None:
    def shown(model: Model) -> str:
        console = Console(width=120, record=True, file=io.StringIO())
        console.print(shown_topics(model, top=3))
        return console.export_text()

    of_one_start = load_model(made / "stars.model")
    assert "stabi-" not in shown(of_one_start)
    assert "Unstable" not in dslda("topics", made / "stars.model").err
    k = of_one_start.n_topics
    stability = TopicStability(np.r_[0.2, np.ones(k - 1)], np.r_[0.1, np.full(k - 1, 0.5)])
    several = Model(replace(of_one_start.record, stability=stability))
    text = shown(several)
    assert "stabi-" in text
    assert "0.15 │    0* │" in text
    assert "0.75 │     1 │" in text
    told = dslda("topics", several.save(tmp_path / "s.model"))
    assert "Unstable topics (*): 0. Other starts have other words" in told.err
    assert {row["topic"]: float(row["stability"]) for row in rows(told.out)} == {
        str(topic.topic): topic.stability for topic in several.topics()
    }
    words, shares = 1.0 - 0.8 / k, 0.5 - 0.4 / k
    expected = (
        f"{(words + shares) / 2:.2f} (words {words:.2f}, documents {shares:.2f}), 1 of {k} topics unstable"
    )
    assert f"topic stability:     {expected}\n" in dslda("info", tmp_path / "s.model").out


def test_topics_are_a_table_with_its_caption_on_a_terminal(made: Path) -> None:
    """On a real pseudo-terminal, since the command asks for one."""
    terminal, end = os.openpty()
    try:
        environment = os.environ | {"COLUMNS": "100", "TERM": "xterm", "NO_COLOR": "1"}
        command = [*PROGRAM, "topics", str(made / "stars.model")]
        # short enough for the buffer of the terminal
        subprocess.run(command, stdout=end, check=True, cwd=ROOT, env=environment)
        shown = os.read(terminal, 100_000).decode()
    finally:
        os.close(end)
        os.close(terminal)
    model = load_model(made / "stars.model")
    for word in ("preva-", "coher-", "exclu-"):
        assert word in shown
    for topic in model.topics(top=2):
        assert f"{topic.coherence:.2f} │ " in shown
        assert f"{topic.exclusivity:.2f} │ " in shown
        assert f"{topic.coefficient:.3f}" in shown
        assert f"{model.topic_prevalence[topic.topic]:.1%}" in shown
        assert ", ".join(topic.words) in shown
    assert f"The mean of stars in training is {model.response_summary.mean:.4g}." in shown
    assert "Coefficients have no intervals: train with --bootstrap 100." in shown


@pytest.mark.filterwarnings("ignore:.*have nearly the words")
@pytest.mark.parametrize(("floor", "at_floor"), [(1.0, True), (1e-12, False)])
def test_a_dispersion_at_its_floor_is_said(made: Path, dslda: Dslda, floor: float, at_floor: bool) -> None:
    model = train(open_corpus(made / "reviews.corpus"), response="age", n_topics=2, dispersion_floor=floor)
    assert model.dispersion_at_floor == at_floor
    path = model.save(made / f"{floor}.model")
    told = dslda("topics", path)
    assert ("came closer than its dispersion may be, 1 of the variance" in told.err) == at_floor
    assert "The mean of age in training is 39.5." in told.err


def test_predict_prints_what_the_model_predicts(made: Path, dslda: Dslda) -> None:
    model = load_model(made / "stars.model")
    from_file = dslda("predict", made / "stars.model", made / "reviews.jsonl")
    assert from_file.code == 0
    found = rows(from_file.out)
    assert [r["id"] for r in found] == [f"k{i}" for i in range(80)]
    texts = [json.loads(line)["text"] for line in (made / "reviews.jsonl").read_text().splitlines()]
    assert [float(r["prediction"]) for r in found] == model.predict(texts).tolist()
    assert list(found[0]) == ["id", "prediction", "known_tokens", "oov_share", "flag"]
    from_corpus = rows(dslda("predict", made / "stars.model", made / "reviews.corpus", "--topics").out)
    assert [r["prediction"] for r in from_corpus] == [r["prediction"] for r in found]
    proportions = [[float(r["topic_0"]), float(r["topic_1"])] for r in from_corpus]
    np.testing.assert_array_equal(proportions, model.transform(texts))


def test_predict_writes_a_file_whole_or_not_at_all(made: Path, dslda: Dslda, tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    assert dslda("predict", made / "stars.model", made / "reviews.jsonl", "--out", out).code == 0
    before = out.read_text()
    assert len(rows(before)) == 80
    assert (
        "is there already"
        in dslda("predict", made / "stars.model", made / "reviews.jsonl", "--out", out).error
    )
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"text": "good", "key": "a"}\n{"text": 3, "key": "b"}\n')
    failed = dslda("predict", made / "stars.model", broken, "--out", out, "--overwrite")
    assert failed.code == 2
    assert "broken.jsonl, line 2" in failed.error
    assert out.read_text() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["broken.jsonl", "p.csv"]


def test_predict_reads_lines_from_stdin_one_row_each(made: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "predict", str(made / "stars.model"), "-"],
        input=b"good lovely coat\n\nxyzzy\nawful coat",
        capture_output=True,
        cwd=ROOT,
        check=True,
    )
    found = rows(done.stdout.decode())
    assert [r["flag"] for r in found] == ["", "empty", "no_known_word", ""]
    assert float(found[0]["prediction"]) > 4 > 2 > float(found[3]["prediction"])
    assert "1 of 4 documents have no word that the model knows" in done.stderr.decode()


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_predict_reads_records_from_stdin_as_from_a_file(
    made: Path, dslda: Dslda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    model, path = made / "stars.model", made / "reviews.jsonl"
    if kind == "csv":
        records = [json.loads(line) for line in path.read_text().splitlines()]
        path = tmp_path / "r.csv"
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, list(records[0]))
            writer.writeheader()
            writer.writerows(records)
    from_file = dslda("predict", model, path).out
    assert rows(from_file)[3]["id"] == "k3"

    def piped(text: bytes, *options: str) -> Any:
        # raw, so that it arrives in pieces of any size, like a pipe's
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
        return dslda("predict", model, "-", *options)

    done = piped(path.read_bytes(), "--format", kind)
    assert (done.code, done.out) == (0, from_file)
    wrong = piped(path.read_bytes(), "--format", kind, "--text", "body")
    assert re.match(r"stdin.* has no field 'body' for the text; fields there are: 'key', 'text'", wrong.error)
    assert "give --format jsonl or csv" in piped(b"good coat", "--text", "body").error
    if kind == "jsonl":
        broken = piped(path.read_bytes() + b'{"text": 3}\n', "--format", kind)
        assert broken.error.startswith("stdin, line 81")
        # a text may be JSON if the user says so
        refused = piped(b"\n" + path.read_bytes())
        assert refused.code == 2
        assert "got a JSON object in line 2; give --format jsonl" in refused.error
        assert len(rows(piped(path.read_bytes(), "--format", "text").out)) == 80


def test_a_closed_pipe_is_no_error(made: Path) -> None:
    many = "good coat\n" * 20000
    program = " ".join(f"'{part}'" for part in PROGRAM)
    done = subprocess.run(
        ["bash", "-c", f"{program} predict {made / 'stars.model'} - | head -1; echo ${{PIPESTATUS[0]}}"],
        input=many.encode(),
        capture_output=True,
        cwd=ROOT,
        check=True,
    )
    assert done.stdout.decode().split() == ["id,prediction,known_tokens,oov_share,flag", "0"]
    assert done.stderr.decode() == ""


def test_json_logs_are_one_object_a_line(made: Path, dslda: Dslda, tmp_path: Path) -> None:
    trained = dslda(
        *("train", made / "reviews.corpus", "--response", "stars", "--out", tmp_path / "m.model"),
        *("--topics", 2, "--max-iter", 3, "--tol", 0, "--json"),
    )
    assert trained.code == 0
    # the change of the first iteration is NaN, which JSON lacks
    logged = [json.loads(line, parse_constant=pytest.fail) for line in trained.err.splitlines()]
    assert all({"time", "level", "logger", "message"} <= set(line) for line in logged)
    iterations = [line for line in logged if line.get("event") == "iteration"]
    elbo = load_model(tmp_path / "m.model").trace["elbo"].tolist()
    assert [line["elbo"] for line in iterations] == elbo
    (warned,) = [line for line in logged if line["level"] == "warning"]
    assert warned["category"] == "ConvergenceWarning"
    predicted = dslda("predict", made / "stars.model", made / "reviews.jsonl", "--json")
    assert [json.loads(line) for line in predicted.err.splitlines()] == []


@pytest.mark.slow
def test_workers_change_nothing_in_corpus_or_model(
    made: Path, dslda: Dslda, tmp_path: Path, write_reviews: Callable[..., Path]
) -> None:
    reviews = write_reviews(tmp_path / "r.jsonl", 300)
    arguments = ("--text", "text", "--response", "stars", "--max-df", "1.0", "--partition-tokens", 200)
    assert dslda("ingest", reviews, "--out", tmp_path / "a.corpus", *arguments).code == 0
    assert (
        dslda(
            "ingest", reviews, "--out", tmp_path / "b.corpus", *arguments, "--workers", 2, "--threads", 1
        ).code
        == 0
    )
    a, b = open_corpus(tmp_path / "a.corpus"), open_corpus(tmp_path / "b.corpus")
    assert a.n_partitions > 2
    assert a.content_hash == b.content_hash
    settings = ("--response", "stars", "--topics", 3, "--max-iter", 4, "--tol", 0)
    for name, workers in (("one", 1), ("two", 2)):
        trained = dslda(
            "train",
            a.path,
            "--out",
            tmp_path / f"{name}.model",
            *settings,
            "--workers",
            workers,
            "--threads",
            1,
        )
        assert trained.code == 0, trained.err
    one, two = (load_model(tmp_path / f"{name}.model") for name in ("one", "two"))
    assert one.topic_word.tobytes() == two.topic_word.tobytes()
    assert one.coefficients() == two.coefficients()


def test_several_starts_are_told_and_predict_together(made: Path, dslda: Dslda, tmp_path: Path) -> None:
    settings = ("--response", "stars", "--topics", 2, "--objective", "joint", "--max-iter", 4, "--tol", 0)
    trained = dslda("train", made / "reviews.corpus", "--out", tmp_path / "a.model", *settings, "--starts", 2)
    assert trained.code == 0, trained.err
    assert "2 starts run beside each other" in trained.err
    told = dslda("info", tmp_path / "a.model").out
    assert "starts:              2: predictions are their mean, topics those of the best one" in told
    model = load_model(tmp_path / "a.model")
    assert f"topic stability:     {model.stability.in_words}\n" in told
    assert "Predictions are the mean of 2 starts" in dslda("topics", tmp_path / "a.model").err
    starts = model.record.starts
    assert starts[0].parameters.topics.tobytes() != starts[1].parameters.topics.tobytes()


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_there_with_examples(dslda: Dslda, command: str) -> None:
    told = dslda(*command.split(), "--help")
    assert told.code == 0
    assert "Usage: dslda" in told.out
    assert f"dslda {command or 'ingest'} " in told.out.replace("\n", " ")
    assert ("Exit codes" if not command else "Examples:") in told.out


def test_the_rule_that_ends_em_is_told_as_it_is(dslda: Dslda) -> None:
    """Not one small change: EM begins with small ones."""
    assert "changed by less than this fraction twice in a row" in " ".join(
        dslda("train", "--help").out.split()
    )


def test_the_version_is_told(dslda: Dslda) -> None:
    from dslda import __version__

    assert __version__ in dslda("--version").out


@pytest.mark.slow
def test_ctrl_c_saves_the_last_complete_iteration(tmp_path: Path, write_reviews: Callable[..., Path]) -> None:
    import signal
    import time

    reviews = write_reviews(tmp_path / "r.jsonl", 2000)
    from dslda.cli.program import run

    assert (
        run(
            [
                "ingest",
                str(reviews),
                "--out",
                str(tmp_path / "r.corpus"),
                "--text",
                "text",
                "--response",
                "stars",
            ]
        )
        == 0
    )
    train = [
        "train",
        str(tmp_path / "r.corpus"),
        "--response",
        "stars",
        "--out",
        str(tmp_path / "m.model"),
        "--json",
    ]
    process = subprocess.Popen(
        [*PROGRAM, *train, "--max-iter", "100000", "--tol", "0", "--topics", "5"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 120
        for line in process.stderr:
            if '"iteration": 3' in line or time.monotonic() > deadline:
                break
        process.send_signal(signal.SIGINT)
        rest = without_tracker(process.communicate(timeout=60)[1])
    finally:
        process.kill()
    assert process.returncode == 130
    assert json.loads(rest.splitlines()[-1])["message"].startswith("interrupted: iteration ")
    model = load_model(tmp_path / "m.model")
    assert model.training.interrupted
    assert model.training.n_iterations >= 3
    assert f"iteration {model.training.n_iterations}, the last complete one, is saved" in rest


def test_options_that_count_say_what_they_take(made: Path, dslda: Dslda) -> None:
    train = (
        "train",
        made / "reviews.corpus",
        "--response",
        "stars",
        "--topics",
        "2",
        "--out",
        made / "no.model",
    )
    for command in ((*train, "--workers"), (*train, "--threads"), ("topics", made / "stars.model", "--top")):
        for value in ("two", "0", "1.5"):
            done = dslda(*command, value)
            assert done.code == 2
            assert f"{command[-1]}': must be a whole number of at least 1, got '{value}'" in done.error


def test_the_demo_takes_no_url_for_a_folder(
    dslda: Dslda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = dslda("demo", "--out", "s3://bucket/demo")
    assert (done.code, done.error) == (2, "--out must be a local folder, got s3://bucket/demo")
    assert not list(tmp_path.iterdir())


def test_evaluate_prints_a_table_and_says_what_to_choose(made: Path, dslda: Dslda, tmp_path: Path) -> None:
    arguments = (
        "--response",
        "stars",
        "--topics",
        "2,3",
        "--folds",
        2,
        "--objective",
        "joint",
        "--max-iter",
        3,
    )
    done = dslda("evaluate", made / "reviews.corpus", *arguments, "--out", tmp_path / "evaluation")
    assert done.code == 0, done.err
    table = rows(done.out)
    assert [(row["method"], row["n_topics"]) for row in table][:3] == [
        ("dslda", "2"),
        ("dslda", "3"),
        ("TF-IDF + linear model", ""),
    ]
    assert all(float(row["r2"]) <= 1.0 for row in table)
    assert ": choose " in done.err
    again = dslda("evaluate", made / "reviews.corpus", *arguments, "--out", tmp_path / "evaluation")
    assert again.out == done.out
    assert "4 of 4 fits are there from an earlier run" in again.err
    assert dslda("evaluate", made / "reviews.corpus", *arguments, "--topics", "2,x").code == 2
    refused = dslda("evaluate", made / "reviews.corpus", *arguments, "--groups", "author")
    assert refused.code == 2
    assert "--groups must name a covariate of" in refused.err
