"""Figures by what they draw: axes that hold the numbers of the model, and words as they are written."""

from __future__ import annotations

import inspect
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

import dslda
from dslda.report.document_figures import contribution_steps
from dslda.report.inline_svg import inline_svg
from tests.helpers.errors import refused
from tests.unit.report.conftest import HOSTILE, Made


def test_figures_draw_on_the_axes_given_or_on_their_own(plain: Made) -> None:
    own = dslda.plot.topics(plain.model)
    assert own.figure.axes == [own]
    ax = Figure().add_subplot()
    assert dslda.plot.topics(plain.model, ax=ax) is ax
    assert dslda.plot.words(plain.model, 0, ax=ax) is ax
    assert dslda.plot.convergence(plain.model, ax=ax) is ax
    assert set(dslda.plot.__all__) <= set(dir(dslda.plot))


def test_a_model_has_each_figure_as_a_method_with_the_same_parameters(plain: Made) -> None:
    assert {name for name in dir(plain.model.plot) if not name.startswith("_")} == {*dslda.plot.__all__}
    for name in dslda.plot.__all__:
        function, method = getattr(dslda.plot, name), getattr(plain.model.plot, name)
        of_function = [
            each for each in inspect.signature(function).parameters.values() if each.name != "model"
        ]
        assert [*inspect.signature(method).parameters.values()] == of_function
        assert method.__doc__ == function.__doc__


def test_methods_draw_their_own_model(plain: Made, hostile: Made) -> None:
    ax = Figure().add_subplot()
    assert plain.model.plot.words(1, top=3, ax=ax) is ax
    labels = [label.get_text() for label in dslda.plot.words(plain.model, 1, top=3).get_yticklabels()]
    assert [label.get_text() for label in ax.get_yticklabels()] == labels
    assert hostile.model.plot.words(1, top=3).get_yticklabels()[0].get_text() not in labels
    assert hostile.model.plot.residuals([1.0, 2.0], [1.0, 2.0]).lines


@pytest.mark.parametrize("narrow", [False, True])
def test_topics_lie_at_their_coefficients_with_their_intervals(plain: Made, narrow: bool) -> None:
    ax = dslda.plot.topics(plain.model, narrow=narrow)
    dots = [line for line in ax.lines if line.get_marker() == "o"]
    rows = plain.model.topics()
    assert [line.get_xdata()[0] for line in dots] == [row.coefficient for row in rows]
    bars = [
        line.get_xdata() for line in ax.lines if len(line.get_xdata()) == 2 and line.get_linestyle() == "-"
    ]
    for (low, high), row in zip(bars, rows, strict=True):
        assert (low, high) == (row.low, row.high)
    labels = [t.get_text() for t in (ax.texts if narrow else ax.get_yticklabels())]
    assert all(row.words[0] in label for row, label in zip(rows, labels, strict=True))
    assert "1 (a story)" in " ".join(labels)


def test_a_fit_without_a_bootstrap_has_no_bars(hostile: Made) -> None:
    ax = dslda.plot.topics(hostile.model)
    assert [line for line in ax.lines if len(line.get_xdata()) == 2 and line.get_linestyle() == "-"] == []
    assert len([line for line in ax.lines if line.get_marker() == "o"]) == 3


def test_contributions_lead_from_the_average_to_the_prediction(plain: Made) -> None:
    table = plain.model.contributions(plain.corpus, documents=[4])
    ax = dslda.plot.contributions(plain.model, table)
    ends = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "D"]
    assert ends == [table["average"][0].as_py(), table["linear_predictor"][0].as_py()]
    at = ends[0]
    for bar in ax.patches:
        assert bar.get_x() == pytest.approx(at) or bar.get_x() + bar.get_width() == pytest.approx(at)
        at += bar.get_width()
    assert at == pytest.approx(ends[1])
    with refused("row"):
        dslda.plot.contributions(plain.model, table, 1)


def test_predictions_of_few_levels_have_a_row_each_and_of_many_a_cloud() -> None:
    rng = np.random.default_rng(0)
    expected = rng.normal(3, 1, 2000)
    stars = np.clip(np.round(expected + rng.normal(0, 0.5, 2000)), 1, 5)
    ax = dslda.plot.predictions(stars, expected, response="stars")
    assert [t.get_text().split()[0] for t in ax.get_yticklabels()] == ["1", "2", "3", "4", "5"]
    medians = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"]
    assert medians == [np.median(expected[stars == level]) for level in range(1, 6)]
    ax = dslda.plot.predictions(expected + rng.normal(0, 0.5, 2000), expected)
    assert 0 < len(ax.patches) < 28**2
    missing = np.where(stars == 1, np.nan, stars)
    assert len(dslda.plot.predictions(missing, expected).get_yticklabels()) == 4
    ax = dslda.plot.residuals(stars, expected)
    order = np.array_split(np.argsort(expected, kind="stable"), 10)
    medians = [line.get_xdata()[0] for line in ax.lines if line.get_marker() == "o"]
    assert medians == pytest.approx([np.median((stars - expected)[own]) for own in order])
    with refused("observed"):
        dslda.plot.predictions(stars[:-1], expected)
    with refused("observed"):
        dslda.plot.residuals(np.full(3, np.nan), np.zeros(3))


def test_calibration_shows_shares_of_tenths() -> None:
    rng = np.random.default_rng(0)
    probability = rng.uniform(size=5000)
    happened = rng.uniform(size=5000) < probability
    ax = dslda.plot.calibration(happened, probability)
    dots = np.array(
        [(line.get_xdata()[0], line.get_ydata()[0]) for line in ax.lines if line.get_marker() == "o"]
    )
    assert np.abs(dots[:, 0] - dots[:, 1]).max() < 0.06
    assert dots[:, 0] == pytest.approx(np.arange(0.05, 1.0, 0.1), abs=0.02)


def test_confusion_has_the_shares_of_each_observed_class() -> None:
    ax = dslda.plot.confusion(["a", "a", "b", None], ["a", "b", "b", "b"], classes=["a", "b"])
    assert len(ax.patches) == 3
    assert sorted(bar.get_alpha() for bar in ax.patches) == pytest.approx([0.54, 0.54, 1.0])
    with refused("observed"):
        dslda.plot.confusion([None], ["a"], classes=["a"])


def test_words_beyond_the_topics_stand_by_themselves_however_little_they_add(plain: Made) -> None:
    table = plain.model.contributions(plain.corpus, documents=[4])
    table = table.append_column("words_beyond_topics", [[1e-9]])
    *_, last = contribution_steps(plain.model, table)[1]
    assert last == ("words beyond the topics", 1e-9)


def test_words_of_a_topic_that_is_not_there_are_refused(plain: Made) -> None:
    with refused("topic"):
        dslda.plot.words(plain.model, 3)


def test_words_in_svg_are_text_and_never_markup_or_mathematics(hostile: Made) -> None:
    ax = dslda.plot.words(hostile.model, 0, top=26)
    drawn = inline_svg(ax, key="k", title='<b>"t"</b>', description="]]>")
    tree = ElementTree.fromstring(drawn)
    texts = {"".join(e.itertext()).strip() for e in tree.iter() if e.tag.endswith("text")}
    assert set(HOSTILE[:7]) <= texts
    assert "a\\u202eb" in texts
    assert "".join(next(iter(tree)).itertext()) == '<b>"t"</b>'
    tags = {e.tag.rpartition("}")[2] for e in tree.iter()}
    assert tags <= {"svg", "title", "desc", "defs", "clipPath", "g", "path", "rect", "text", "use"}
    assert drawn == inline_svg(
        dslda.plot.words(hostile.model, 0, top=26), key="k", title='<b>"t"</b>', description="]]>"
    )


def test_importing_the_figures_waits_for_no_matplotlib() -> None:
    code = (
        "import dslda.plot, dslda.report.model_plots, sys\n"
        "print([m for m in ('matplotlib', 'numba', 'sklearn', 'pandas') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_figure_without_matplotlib_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = sys.modules['matplotlib.figure'] = None\n"
        "import dslda\ntry: dslda.plot.residuals([1.0], [2.0])\nexcept dslda.exceptions.InputError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'dslda[plot]'" in ran.stdout
    assert len(ran.stdout.splitlines()) == 1
