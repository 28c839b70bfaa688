"""What a notebook shows of corpora and models: true figures, and nothing that their words could make of a page."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import dslda
from dslda.model import Model
from tests.helpers.pages import LOADING, Page
from tests.unit.report.conftest import HOSTILE, LABEL, Made

ARCHIVES = Path(__file__).parents[2] / "formats" / "archives" / "0.1.0"
TAGS = frozenset({"body", "div", "p", "strong", "span", "table", "thead", "tbody", "tr", "th", "td"})


def _page(html: str) -> Page:
    """The card inside a page; asserts that it is well formed, loads nothing, and leaves colours to the notebook."""
    page = Page()
    page.feed(f"<body>{html}</body>")
    page.close()
    assert not page.open
    assert not [e.tag for e in page.elements if e.tag in LOADING or e.tag == "style"]
    styles = [style for e in page.elements for style in e.attributes.get("style", "").split(";")]
    assert {style for style in styles if re.match(r"\s*(?:background|color)", style)} == {"color:inherit"}
    assert not [name for e in page.elements for name in e.attributes if name.startswith("on")]
    return page


def _table(page: Page) -> list[dict[str, str]]:
    heads = [e.text for e in page.all("th")]
    cells = [e.text for e in page.all("td")]
    return [
        dict(zip(heads, cells[i : i + len(heads)], strict=True)) for i in range(0, len(cells), len(heads))
    ]


def _number(shown: str) -> float:
    return float(shown.replace("\N{MINUS SIGN}", "-"))


def test_a_model_shows_its_topics_with_intervals_labels_and_words(plain: Made) -> None:
    model = plain.model
    page = _page(model._repr_html_())
    rows = _table(page)
    topics = model.topics(top=3)
    assert [row["topic"] for row in rows] == [
        f"{t.topic} (a story)" if t.topic == 1 else str(t.topic) for t in topics
    ]
    for row, topic in zip(rows, topics, strict=True):
        assert abs(_number(row["coefficient"]) - topic.coefficient) < 0.1
        low, high = (_number(end) for end in row["95% interval"].split(" to "))
        assert topic.low is not None
        assert topic.high is not None
        assert abs(low - topic.low) < 0.1
        assert abs(high - topic.high) < 0.1
        assert row["words"].startswith(", ".join(topic.words))
    assert "Supervised topic model of stars: 3 topics" in page.text
    assert model.training.held_out is not None
    assert model.training.held_out.in_words in page.text


def test_a_model_without_a_bootstrap_shows_no_interval_and_no_error(hostile: Made) -> None:
    assert set(_table(_page(hostile.model._repr_html_()))[0]) == {"topic", "coefficient", "words"}


def test_names_that_look_like_markup_are_text(hostile: Made) -> None:
    page = _page(hostile.model._repr_html_())
    assert {e.tag for e in page.elements} <= TAGS
    shown = page.text
    assert LABEL in " ".join(shown.split())
    words = {word for topic in hostile.model.topics(6) for word in topic.words} & set(HOSTILE)
    assert len(words) > 3
    for word in words:
        assert word.replace("\u202e", "\\u202e") in shown
    page = _page(hostile.corpus._repr_html_())
    assert _table(page)[0]["column"] == '<b>"stars"</b> $&'


def test_a_model_of_classes_shows_the_class_that_a_topic_favours(tmp_path: Path) -> None:
    model = _archived(tmp_path)
    rows = _table(_page(model._repr_html_()))
    assert [row["class"] for row in rows] == [topic.class_name for topic in model.topics()]
    assert all(row["coefficient"].startswith("+") for row in rows)


def _archived(folder: Path) -> Model:
    shutil.unpack_archive(ARCHIVES / "categorical.model.zip", folder)
    return dslda.load_model(folder / "categorical.model")


def test_a_corpus_shows_its_columns_and_no_folder(plain: Made) -> None:
    page = _page(plain.corpus._repr_html_())
    assert "Corpus c.corpus: 300 documents" in page.text
    assert str(Path(plain.corpus.path).parent) not in page.text
    (row,) = _table(page)
    summary = plain.corpus.response_summaries["stars"]
    assert row == {
        "column": "stars",
        "role": "response",
        "values": "real numbers",
        "documents": "300",
        "missing": "0",
        "mean": f"{summary.mean:.4g}",
        "lowest": f"{summary.minimum:.4g}",
        "highest": f"{summary.maximum:.4g}",
    }
    records = [{"text": f"word{i % 2} and", "area": f"a{i % 6}", "party": "D"} for i in range(12)]
    corpus = dslda.ingest(
        records,
        text="text",
        response="area",
        covariates="party",
        categorical=["area", "party"],
        min_df=1,
        max_df=1.0,
    )
    page = _page(corpus._repr_html_())
    assert page.text.startswith("Corpus in memory: 12 documents")
    area, party = _table(page)
    assert area["values"] == "6 levels: a0, a1, a2, a3, ..."
    assert area["mean"] == ""
    assert party["role"] == "covariate"
