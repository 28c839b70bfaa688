"""The page of a model: complete in itself, honest about what it lacks, and safe whatever words hold."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dslda.evaluation.metrics import held_out, predictive_r2
from dslda.evaluation.rivals import TfidfRegression
from dslda.exceptions import (
    ConvergenceWarning,
    DataWarning,
    InputError,
    OutputExistsError,
    VocabularyMismatchError,
)
from dslda.ingestion.ingest import ingest
from dslda.model import load_model
from dslda.report.sections import SECTIONS
from dslda.training.train import train
from tests.helpers.errors import refused
from tests.helpers.pages import Page, read_page
from tests.unit.report.conftest import HOSTILE, LABEL, PLAIN, Made, N, counts_of_themes


def report(made: Made, folder: Path, **options: object) -> Page:
    out = folder / "report.html"
    made.model.report(out, made.corpus, **options)
    assert out.stat().st_size < 1_000_000
    return read_page(out)


def test_a_page_has_each_section_and_each_topic(plain: Made, tmp_path: Path) -> None:
    page = report(plain, tmp_path)
    sections = [e.attributes["id"] for e in page.all("section")]
    assert sections == [s.name for s in SECTIONS if s.name not in ("map", "beyond")]
    for topic in plain.model.topics():
        card = " ".join(page.by_id(f"topic-{topic.topic}").text.split())
        for word in topic.words[:6]:
            assert word in card
        assert f"{topic.coefficient:.2f}".replace("-", "\N{MINUS SIGN}") in card
        assert topic.low is not None
        assert f"{topic.low:.2f} to {topic.high:.2f}".replace("-", "\N{MINUS SIGN}") in card
    assert "Topic 1 (a story)" in page.text
    facts = page.by_id("facts").text
    assert "tol=" in facts
    assert "term_weights=" not in facts  # conditional training alone uses it
    assert "a sparse matrix" in facts
    measured = plain.model.training.held_out
    assert measured is not None
    assert f"predictive R² {measured.value:.3f}" in page.text
    assert f"{measured.n_documents} documents that were kept from training" in page.text


def test_the_rival_is_judged_on_the_documents_kept_from_training(plain: Made, tmp_path: Path) -> None:
    # 60 documents say too little of a difference
    assert "TF-IDF" not in report(plain, tmp_path).text
    counts, y = counts_of_themes(PLAIN, seed=2)
    corpus = ingest(counts, tmp_path / "c.corpus", vocabulary=PLAIN, response={"y": y})
    model = train(corpus, response="y", n_topics=3, objective="joint", hold_out=0.4)
    model.report(tmp_path / "rival.html", corpus)
    text = read_page(tmp_path / "rival.html").text
    shown = re.search(
        r"predictive R² ([\d.]+), .* On the same documents a ridge .* reaches a predictive R² of ([\d.]+)\. ",
        text,
    )
    assert shown is not None
    kept = held_out(N, 0.4)
    assert float(shown[1]) == pytest.approx(model.score(corpus, documents=kept), abs=5e-4)
    rival = TfidfRegression("real", 0).fit(counts[~kept], y[~kept])
    expected = predictive_r2(y[kept], rival.predict(counts[kept]))
    assert float(shown[2]) == pytest.approx(expected, abs=5e-4)


def test_nothing_that_words_and_names_hold_is_markup(hostile: Made, tmp_path: Path) -> None:
    page = report(hostile, tmp_path)  # which asserts that there is no script, and that elements nest
    assert '"stars"' not in [e.text for e in page.all("b")]
    assert '<b>"stars"</b> $&' in page.all("h1")[0].text
    texts = [e.text.strip() for e in page.all("text")]
    for word in HOSTILE[:6]:
        assert word in page.text
    assert LABEL in page.by_id("topic-0").text
    assert any(LABEL in text for text in texts)
    drawn = {word for topic in hostile.model.topics(top=3) for word in topic.words}
    assert len(drawn & set(HOSTILE[:6])) >= 2
    for word in drawn - {HOSTILE[-1]}:
        assert any(word in text for text in texts), word
    assert "\u202e" not in page.text
    raw = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "<script" not in raw


def test_excerpts_quote_the_texts_and_mark_the_words(plain: Made, tmp_path: Path) -> None:
    page = report(plain, tmp_path, texts=plain.texts, text="body", id="key")
    quoted = [
        e.text.strip() for e in page.all("p") if e.text.count(" ") > 5 and e.text.split()[0] in (*PLAIN, "…")
    ]
    assert len(quoted) >= 9
    best = plain.model.representative_documents(plain.corpus)
    marked = {e.text for e in page.all("mark")}
    assert marked <= set(PLAIN)
    assert {word for words in best["words"] for word in words.split()} == marked


def test_texts_in_files_are_found_by_their_identifiers(plain: Made, tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    shuffled = np.random.default_rng(0).permutation(len(plain.texts))
    path.write_text("".join(json.dumps(plain.texts[i]) + "\n" for i in shuffled))
    page = report(plain, tmp_path, texts=path, text="body", id="key")
    inside = report(plain, tmp_path, texts=plain.texts, text="body", id="key", overwrite=True)
    assert page.text == inside.text
    with refused("id"):
        plain.model.report(tmp_path / "no.html", plain.corpus, texts=path, text="body")
    with pytest.raises(InputError, match="'nowhere'"):
        plain.model.report(tmp_path / "no.html", plain.corpus, texts=path, text="nowhere", id="key")
    assert not (tmp_path / "no.html").exists()


def test_texts_of_other_documents_are_not_quoted(plain: Made, tmp_path: Path) -> None:
    moved = [{"key": a["key"], "body": f"other {i}"} for i, a in enumerate(plain.texts)]
    with pytest.warns(DataWarning, match="lack the words"):
        page = report(plain, tmp_path, texts=moved, text="body", id="key")
    assert "other" not in page.by_id("topics").text.replace("other starts", "")
    with pytest.warns(DataWarning, match="have no text"):
        report(plain, tmp_path, texts=moved[:1], text="body", id="key", overwrite=True)


def test_without_excerpts_no_word_of_a_single_document_is_on_the_page(plain: Made, tmp_path: Path) -> None:
    page = report(plain, tmp_path, excerpts=False)
    assert page.all("mark") == []
    assert len(page.all("cite")) >= 9
    with refused("texts"):
        plain.model.report(tmp_path / "no.html", plain.corpus, texts=plain.texts, excerpts=False)


def test_without_a_corpus_the_page_says_what_it_lacks(plain: Made, tmp_path: Path) -> None:
    plain.model.report(tmp_path / "alone.html")
    page = read_page(tmp_path / "alone.html")
    assert page.all("blockquote") == []
    assert "without a corpus, so topics have no documents" in page.text
    assert "no documents to compare predictions with" in page.text
    assert "example" not in [e.attributes["id"] for e in page.all("section")]
    with refused("texts"):
        plain.model.report(tmp_path / "no.html", texts=plain.texts)


def test_a_corpus_of_another_vocabulary_is_refused_or_realigned(plain: Made, tmp_path: Path) -> None:
    counts, y = counts_of_themes(PLAIN, seed=3)
    other = ingest(counts[:, ::-1], tmp_path / "o.corpus", vocabulary=PLAIN[::-1], response={"stars": y})
    with pytest.raises(VocabularyMismatchError):
        plain.model.report(tmp_path / "r.html", other)
    assert not (tmp_path / "r.html").exists()
    plain.model.report(tmp_path / "r.html", other, realign=True)
    assert "another corpus than the one trained on" in read_page(tmp_path / "r.html").text


def test_a_page_replaces_a_page_alone(plain: Made, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    plain.model.report(out)
    before = out.read_bytes()
    with pytest.raises(OutputExistsError):
        plain.model.report(out)
    plain.model.report(out, overwrite=True)
    assert out.read_bytes() == before  # and the same bytes each time
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError):
        plain.model.report(tmp_path / "notes.txt", overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    with pytest.raises(InputError):
        plain.model.report(tmp_path)
    with pytest.raises(InputError):
        plain.model.report(tmp_path / "missing" / "r.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["notes.txt", "r.html"]


def test_many_topics_have_cards_at_both_ends_and_a_row_each_between(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.4, (200, 90)).astype(np.int32)
    y = rng.normal(size=200)
    with pytest.warns(ConvergenceWarning):
        model = train(
            counts, response=y, terms=[f"w{i}" for i in range(90)], n_topics=70, objective="joint", max_iter=2
        )
    model.report(tmp_path / "many.html")
    page = read_page(tmp_path / "many.html")
    assert len(page.all("article")) == 30
    assert len([e for e in page.all("tr") if e.attributes.get("id", "").startswith("topic-")]) == 40
    assert "The 15 topics at each end are shown; 40 between them are in the table below" in page.text
    wide = [e for e in page.all("text") if " · " in e.text]
    assert "ended at its cap of iterations before it converged" in page.text
    assert len(wide) == 60  # of the wide figure and the narrow one


def test_classes_have_a_map_and_the_topics_of_each(tmp_path: Path) -> None:
    counts, y = counts_of_themes(PLAIN, seed=4)
    names = [HOSTILE[0] if v > 0.2 else HOSTILE[1] if v < -0.2 else "middle" for v in y]
    corpus = ingest(
        counts, tmp_path / "c.corpus", vocabulary=PLAIN, response={"kind": names}, categorical=["kind"]
    )
    model = train(corpus, response="kind", family="categorical", n_topics=3, objective="joint")
    model.report(tmp_path / "classes.html", corpus)
    page = read_page(tmp_path / "classes.html")
    sections = [e.attributes["id"] for e in page.all("section")]
    assert "map" in sections
    assert "axis" not in sections
    assert "example" not in sections
    rows = [e.text.strip() for e in page.all("th") if e.attributes.get("scope") == "row"]
    assert set(model.classes or ()) <= set(rows)
    titles = [e.text for e in page.all("h3")]
    assert "Predicted and observed classes" in titles
    assert "Do the probabilities hold?" in titles


@pytest.mark.parametrize("family", ["ordinal", "poisson", "binomial", "weibull"])
def test_every_kind_of_response_has_a_page(tmp_path: Path, family: str) -> None:
    counts, y = counts_of_themes(PLAIN, seed=6)
    rng = np.random.default_rng(6)
    columns = {
        "level": np.array(["low", "middle", "high"], dtype=object)[np.digitize(y, [-0.3, 0.3])].tolist(),
        "count": rng.poisson(np.exp(1.0 + y)),
        "won": rng.binomial(5, 1.0 / (1.0 + np.exp(-2.0 * y))),
        "days": np.exp(y) * rng.exponential(size=N) + 0.01,
    }
    beside = {"n": np.full(N, 5.0), "ended": (rng.random(N) < 0.8) * 1.0, "age": rng.normal(40, 5, N)}
    corpus = ingest(
        counts,
        tmp_path / "c.corpus",
        vocabulary=PLAIN,
        response=columns,
        covariates=beside,
        categorical=["level"],
    )
    settings = {
        "ordinal": {"response": "level", "levels": ["low", "middle", "high"], "covariates": ["age"]},
        "poisson": {"response": "count", "exposure": "age"},
        "binomial": {"response": "won", "trials": "n"},
        "weibull": {"response": "days", "event": "ended"},
    }[family]
    model = train(corpus, family=family, n_topics=3, objective="joint", tol=1e-3, **settings)
    model.report(tmp_path / "r.html", corpus)
    page = read_page(tmp_path / "r.html")
    sections = [e.attributes["id"] for e in page.all("section")]
    assert {"axis", "example", "predictions"} <= set(sections)
    drawn = {e.attributes["aria-labelledby"].partition("-title")[0] for e in page.all("svg")}
    assert ("confusion" in drawn) == (family == "ordinal")
    assert ("residuals" in drawn) == (family != "ordinal")
    assert "nan" not in page.text.split()


def test_a_report_without_matplotlib_says_what_to_install(plain: Made, tmp_path: Path) -> None:
    plain.model.save(tmp_path / "m.model")
    code = (
        "import sys; sys.modules['matplotlib'] = sys.modules['matplotlib.figure'] = None\n"
        "from dslda.cli.program import run; sys.exit(run(sys.argv[1:]))"
    )
    arguments = ["report", str(tmp_path / "m.model"), "--out", str(tmp_path / "r.html")]
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert "pip install 'dslda[plot]'" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (tmp_path / "r.html").exists()


def test_a_model_of_a_matrix_without_words_has_a_page(tmp_path: Path) -> None:
    counts, y = counts_of_themes(PLAIN, seed=5)
    model = train(counts, response=y, n_topics=3, objective="joint")
    model.save(tmp_path / "m.model")
    load_model(tmp_path / "m.model").report(tmp_path / "r.html")
    assert len(read_page(tmp_path / "r.html").all("article")) == 3


CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed to render the page")
@pytest.mark.parametrize("width", [1400, 500])
def test_a_browser_fetches_nothing_and_nothing_overflows(hostile: Made, tmp_path: Path, width: int) -> None:
    report(hostile, tmp_path)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    # a script of ours, which the page's own policy would refuse, measures the page as it is shown
    probe = (
        "<script>addEventListener('load', () => { const root = document.documentElement;"
        "document.title = JSON.stringify({over: root.scrollWidth - root.clientWidth,"
        "fetched: performance.getEntriesByType('resource').length}); });</script>"
    )
    (tmp_path / "probed.html").write_text(
        re.sub(r"<meta http-equiv[^>]*>", "", page).replace("</head>", f"{probe}</head>"), encoding="utf-8"
    )
    command = [
        *(
            str(CHROMIUM),
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={tmp_path / 'profile'}",
        ),
        *(
            f"--window-size={width},1000",
            "--virtual-time-budget=2000",
            "--dump-dom",
            f"file://{tmp_path / 'probed.html'}",
        ),
    ]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    title = re.search(r"<title>(\{.*?\})</title>", shown)
    assert title is not None, shown[:500]
    assert json.loads(title[1]) == {"over": 0, "fetched": 0}
