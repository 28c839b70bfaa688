"""Cross-validation: what it measures, what it chooses, and that it goes on where it stopped."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from distributed import Client
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from rich.console import Console
from scipy.sparse import csr_array, vstack

import dslda
from dslda.cli.evaluate_command import shown_evaluation
from dslda.corpus.store import Corpus
from dslda.cross_validation import fold_fit
from dslda.cross_validation.evaluate import evaluate
from dslda.cross_validation.evaluation import Evaluation, chosen_topics, paired_difference, pooled
from dslda.cross_validation.evaluation_folder import EvaluationFolder
from dslda.cross_validation.fold_fit import Cell, FoldFit, Problem
from dslda.cross_validation.splitting import Fold, Splitting, contents_of, split
from dslda.datasets.simulate import simulate_corpus
from dslda.evaluation.metrics import predictive_r2
from dslda.exceptions import DataWarning, FormatError, InputError, OutputExistsError
from dslda.prediction.responses import responses_of_corpus
from dslda.training.train import train
from tests.helpers.errors import refused
from tests.helpers.pages import Page

N, N_TERMS = 420, 120
QUICK: dict[str, Any] = {"objective": "conditional", "max_iter": 13}

pytestmark = pytest.mark.filterwarnings("ignore:training stopped at its cap")


def made_corpus(out: Path | None = None, *, n_topics: int = 4, n: int = N, **more: Any) -> Corpus:
    block = simulate_corpus(n, n_topics, N_TERMS, mean_tokens=40, alpha=0.2, delta=0.1, seed=6).block
    counts = csr_array((block.counts, block.terms, block.indptr), shape=(n, N_TERMS))
    y = block.responses["y"].copy()
    y[:20] = np.nan
    columns = {"author": np.arange(n) % 30, "year": 2000 + np.arange(n) // 40}
    roles = {
        "response": {"y": y, "level": np.where(np.isnan(y), np.nan, np.digitize(y, [-0.5, 0.5]))},
        "covariates": columns,
    }
    return dslda.ingest(counts, out, vocabulary=[f"t{i}" for i in range(N_TERMS)], **(roles | more))


def y_of(corpus: Corpus) -> NDArray[np.float64]:
    return np.array(responses_of_corpus(corpus, "y"), dtype=np.float64)


def mean_of_training(problem: Problem, cell: Cell, fold: Fold, client: Any) -> FoldFit:
    """A fit that takes no time."""
    mean = np.nanmean(problem.y[fold.training])
    return FoldFit(fold.judging, np.full(len(fold.judging), mean), None, {})


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return made_corpus()


@pytest.fixture(scope="module")
def found(corpus: Corpus) -> Evaluation:
    return evaluate(corpus, response="y", n_topics=[4, 2], folds=3, **QUICK)


def test_documents_are_predicted_by_a_fit_that_has_not_seen_them(corpus: Corpus, found: Evaluation) -> None:
    y = found.problem.y
    assert found.n_documents == N - 20 == int(np.isfinite(y).sum())
    fold = split(Splitting(3), np.isfinite(y), contents=contents_of(corpus))[1]
    model = train(corpus, response="y", n_topics=4, documents=fold.training, **QUICK)
    table = found.out_of_fold(4).to_pandas().set_index("row")
    assert_array_equal(table.loc[fold.judging, "prediction"], model.predict(corpus, documents=fold.judging))
    (row,) = (row for row in found.rows if row["method"] == "dslda" and row["n_topics"] == 4)
    assert row["r2"] == pytest.approx(predictive_r2(table["response"], table["prediction"]))
    assert row["loss"] == pytest.approx(1.0 - row["r2"])


def test_rivals_predict_the_same_documents_and_are_compared_by_them(found: Evaluation) -> None:
    assert [(row["method"], row["n_topics"]) for row in found.rows] == [
        ("dslda", 2),
        ("dslda", 4),
        ("TF-IDF + linear model", None),
        ("LDA + linear model", found.choice.n_topics),
    ]
    chosen = next(row for row in found.rows if row["n_topics"] == found.choice.n_topics)
    assert chosen["difference"] == 0.0
    for row in found.rows:
        assert row["difference"] == pytest.approx(row["loss"] - chosen["loss"], abs=1e-12)
        assert row["r2"] > 0.3
    assert len(found.in_words) >= 3
    assert found.in_words[0].endswith((f"choose {found.choice.n_topics}.", "one standard error."))


@pytest.mark.parametrize("kind", ["binary", "ordinal", "real"])
def test_figures_are_complete_on_a_terminal_of_80_columns(found: Evaluation, kind: str) -> None:
    measured = {"real": ("r2", "correlation"), "binary": ("accuracy", "auc", "log_loss", "calibration_error")}
    names = measured.get(kind, ("accuracy", "log_loss", "r2", "calibration_error"))
    shared = ("topics_alone", "difference", "standard_error", "npmi", "exclusivity", "seconds")
    row = {"method": "TF-IDF + linear model", "n_topics": 100} | dict.fromkeys([*names, *shared], 0.125)
    console = Console(width=80, file=io.StringIO(), force_terminal=True)
    with console.capture() as captured:
        console.print(shown_evaluation(replace(found, rows=(row,))))
    shown = captured.get()
    assert shown.count("0.125") == len(names) + len(shared) - 1
    assert "…" not in shown


def test_a_notebook_shows_the_measures_and_the_choice(found: Evaluation) -> None:
    page = Page()
    page.feed(f"<body>{found._repr_html_()}</body>")
    assert not page.open
    heads, cells = [e.text for e in page.all("th")], [e.text for e in page.all("td")]
    assert heads[:4] == ["method", "topics", "R2", "correlation"]
    assert cells[:3] == ["dslda", "2", f"{found.rows[0]['r2']:.3f}"]
    assert len(cells) == len(heads) * len(found.rows)
    assert all(sentence in page.text for sentence in found.in_words)


def test_results_are_kept_and_gone_on_with(
    found: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = made_corpus(tmp_path / "c.corpus")
    done: list[Cell] = []
    fit = fold_fit.METHODS["dslda"]

    def counted(problem: Any, cell: Cell, *rest: Any) -> Any:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(cell)
        return fit(problem, cell, *rest)

    monkeypatch.setattr("dslda.cross_validation.evaluate.default_workers", lambda *_: None)
    monkeypatch.setitem(fold_fit.METHODS, "dslda", counted)
    keywords: dict[str, Any] = {"response": "y", "folds": 3, "out": tmp_path / "out", **QUICK}
    with pytest.raises(KeyboardInterrupt):
        evaluate(corpus, n_topics=[4], rivals=False, **keywords)
    assert len(list((tmp_path / "out" / "fits").iterdir())) == 2
    monkeypatch.setitem(fold_fit.METHODS, "dslda", fit)
    both = evaluate(corpus, n_topics=[4, 2], **keywords)
    assert len(list((tmp_path / "out" / "fits").iterdir())) == 3 * 4
    # in memory and from files the same bits, but for the seconds
    for mine, theirs in zip(found.rows, both.rows, strict=True):
        assert {**mine, "seconds": 0} == {**theirs, "seconds": 0}

    def never(*_: Any) -> Any:
        raise AssertionError("a fit that is complete is done again")

    monkeypatch.setitem(fold_fit.METHODS, "dslda", never)
    again = evaluate(corpus, n_topics=[2, 4], **keywords)
    assert again.rows == both.rows
    report = json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert report["chosen_topics"] == found.choice.n_topics
    assert len((tmp_path / "out" / "table.csv").read_text().splitlines()) == 5
    assert "<svg" in (tmp_path / "out" / "topics.svg").read_text()[:2000]
    with pytest.raises(InputError, match=r"holds another evaluation: folds 3 there, 4 now"):
        evaluate(corpus, n_topics=[2], **(keywords | {"folds": 4}))
    with pytest.raises(InputError, match=r"settings.seed None there, 7 now"):
        evaluate(corpus, n_topics=[2], seed=7, **keywords)
    with pytest.raises(InputError, match=r"another evaluation: of a corpus with other content"):
        evaluate(made_corpus(response={"y": y_of(corpus) + 1.0}), n_topics=[2], **keywords)


def without_last_bytes(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-20])


def without_last_documents(file: Path) -> None:
    table = pq.read_table(file)
    pq.write_table(table.slice(0, table.num_rows - 1), file)


def without_details(file: Path) -> None:
    pq.write_table(pq.read_table(file).replace_schema_metadata({"dslda": "{}"}), file)


def without_predictions(file: Path) -> None:
    pq.write_table(pq.read_table(file, columns=["row"]), file)


@pytest.mark.parametrize(
    "damage", [without_last_bytes, without_last_documents, without_details, without_predictions]
)
def test_a_damaged_fit_is_named(
    corpus: Corpus, tmp_path: Path, damage: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fold_fit.METHODS, "dslda", mean_of_training)
    keywords: dict[str, Any] = {"response": "y", "n_topics": 2, "folds": 2, "rivals": False, "out": tmp_path}
    evaluate(corpus, **keywords)
    damage(tmp_path / "fits" / "dslda-2-topics-fold-2.parquet")
    with pytest.raises(FormatError, match=r"fold-2.parquet: the file of a fit is damaged .* remove it"):
        evaluate(corpus, **keywords)


def test_fits_beside_each_other_have_the_bits_of_fits_in_turn(
    found: Evaluation, tmp_path: Path, in_process: Client
) -> None:
    corpus = made_corpus(tmp_path / "c.corpus", partition_tokens=5000)
    assert corpus.n_partitions > 2
    beside = evaluate(corpus, response="y", n_topics=[2], folds=2, rivals=False, client=in_process, **QUICK)
    in_turn = evaluate(
        made_corpus(partition_tokens=5000), response="y", n_topics=[2], folds=2, rivals=False, **QUICK
    )
    assert beside.out_of_fold().equals(in_turn.out_of_fold())


def test_levels_have_probabilities_and_are_judged_by_them(corpus: Corpus) -> None:
    found = evaluate(corpus, response="level", family="ordinal", n_topics=2, folds=2, **QUICK)
    table = found.out_of_fold().to_pandas()
    probabilities = table[["probability_0", "probability_1", "probability_2"]].to_numpy()
    assert_allclose(probabilities.sum(axis=1), 1.0)
    right = probabilities[np.arange(len(table)), table["response"].astype(int)]
    assert found.rows[0]["log_loss"] == pytest.approx(-np.log(right).mean())
    assert {"r2", "accuracy", "calibration_error"} <= found.rows[0].keys()
    assert found.kind == "ordinal"


@pytest.mark.parametrize("named", [True, False])
def test_two_classes_have_an_auc(corpus: Corpus, named: bool) -> None:
    y = np.nan_to_num(y_of(corpus)) > 0.0
    response = np.where(y, "up", "down") if named else y.astype(float)
    found = evaluate(
        made_corpus(response={"sign": response}, categorical=["sign"] if named else []),
        response="sign",
        family="binomial",
        n_topics=2,
        folds=2,
        rivals=False,
        **QUICK,
    )
    table = found.out_of_fold().to_pandas()
    probability = table["probability_up" if named else "probability_1"].to_numpy()
    above, below = probability[y], probability[~y]
    pairs = np.mean(np.sign(above[:, np.newaxis] - below)) / 2.0 + 0.5
    assert found.kind == "binary"
    assert found.rows[0]["auc"] == pytest.approx(pairs)


def test_levels_without_any_document_are_no_columns(corpus: Corpus) -> None:
    level = np.array(responses_of_corpus(corpus, "level"), dtype=np.float64)
    gap = made_corpus(response={"level": np.where(level == 2.0, 3.0, level)})
    found = evaluate(gap, response="level", family="ordinal", n_topics=2, folds=2, rivals=False, **QUICK)
    table = found.out_of_fold().to_pandas()
    assert table.columns.tolist() == ["row", "response", *(f"probability_{i}" for i in (0, 1, 3))]
    assert table.iloc[:, 2:].to_numpy().sum(axis=1) == pytest.approx(1.0, abs=1e-3)


def test_successes_among_trials_are_numbers(corpus: Corpus) -> None:
    y = y_of(corpus)
    trials = 5.0 + np.arange(N) % 4
    successes = np.where(np.isnan(y), np.nan, np.round(trials / (1.0 + np.exp(-np.nan_to_num(y)))))
    found = evaluate(
        made_corpus(response={"won": successes}, covariates={"trials": trials}),
        response="won",
        family="binomial",
        trials="trials",
        n_topics=2,
        folds=2,
        rivals=False,
        **QUICK,
    )
    table = found.out_of_fold().to_pandas()
    assert found.kind == "real"
    assert found.rows[0]["r2"] == pytest.approx(predictive_r2(table["response"], table["prediction"]))
    assert found.rows[0]["r2"] > 0.3


def test_a_fold_that_cannot_be_fitted_is_named_before_any_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_fit, "METHODS", {})
    rare = made_corpus(response={"rare": (np.arange(N) == 7).astype(float)})
    with refused("folds") as error:
        evaluate(rare, response="rare", family="binomial", n_topics=2, folds=2, rivals=False, **QUICK)
    assert str(error.value.place).startswith("fold ")


@pytest.mark.filterwarnings("ignore:.*class.* rare|.*cannot be learned")
@pytest.mark.parametrize("named", [True, False])
def test_rare_classes_are_in_each_fold_or_judge_nothing(named: bool) -> None:
    codes = np.arange(N) % 2
    codes[[100, 300]] = 2  # one in each fold
    codes[200] = 3
    response = np.array(["a", "b", "c", "d"])[codes] if named else codes.astype(float)
    corpus = made_corpus(response={"class": response}, categorical=["class"] if named else [])
    with pytest.warns(DataWarning, match="1 document judges nothing: no document .* has their class"):
        found = evaluate(corpus, response="class", family="categorical", n_topics=2, folds=2, **QUICK)
    assert found.n_documents == N - 1
    table = found.out_of_fold().to_pandas()
    assert table["response"].value_counts().to_dict() == (
        {"a": 207, "b": 210, "c": 2} if named else {"0": 207, "1": 210, "2": 2}
    )
    assert all(math.isfinite(row["log_loss"]) and row["log_loss"] < 2.0 for row in found.rows)


def test_documents_without_a_group_or_a_time_do_not_end_an_evaluation(
    caplog: pytest.LogCaptureFixture,
) -> None:
    columns = {"author": np.where(np.arange(N) < 40, np.nan, np.arange(N) % 30)}
    columns["year"] = columns["author"]
    corpus = made_corpus(covariates=columns)
    keywords: dict[str, Any] = {"response": "y", "n_topics": 2, "folds": 2, "rivals": False, **QUICK}
    with caplog.at_level("INFO", "dslda"):
        assert evaluate(corpus, groups="author", **keywords).n_documents == N - 20
    assert "20 documents with a response lack 'author': each is a group of its own" in caplog.text
    with pytest.warns(DataWarning, match="20 documents with a response lack 'year'"):
        assert evaluate(corpus, time="year", **keywords).n_documents < N - 40


def test_repeats_of_a_document_are_in_one_fold() -> None:
    block = simulate_corpus(60, 3, N_TERMS, mean_tokens=40, alpha=0.2, delta=0.1, seed=6).block
    counts = csr_array((block.counts, block.terms, block.indptr), shape=(60, N_TERMS))
    twice = csr_array(vstack([counts, counts]))
    terms = [f"t{i}" for i in range(N_TERMS)]
    corpus = dslda.ingest(twice, vocabulary=terms, response={"y": np.tile(block.responses["y"], 2)})
    folds = split(Splitting(4), np.ones(120, dtype=bool), contents=contents_of(corpus))
    for fold in folds:
        assert len(fold.judging) in (28, 30, 32)
        assert not set((fold.judging % 60).tolist()) & set((fold.training % 60).tolist())


def test_groups_and_times_cut_the_documents(corpus: Corpus) -> None:
    by_author = evaluate(corpus, response="y", n_topics=2, folds=2, groups="author", rivals=False, **QUICK)
    assert by_author.splitting == "2 folds, every author in one of them"
    by_year = evaluate(corpus, response="y", n_topics=2, folds=2, time="year", rivals=False, **QUICK)
    assert 0 < by_year.n_documents < by_author.n_documents == N - 20


def test_the_smallest_number_within_one_standard_error_is_chosen() -> None:
    random = np.random.default_rng(0)
    base = random.normal(size=400) ** 2
    noise = {k: random.normal(0, 0.1, size=400) for k in (5, 10, 20, 50)}
    worse = {5: 0.2, 10: 0.0, 20: -0.001, 50: 0.1}
    losses = {k: base + worse[k] + noise[k] - noise[k].mean() for k in noise}
    choice = chosen_topics(losses, None)
    assert (choice.n_topics, choice.best) == (10, 20)
    assert choice.difference == pytest.approx(0.001)
    expected = np.std(losses[10] - losses[20], ddof=1) / math.sqrt(400)
    assert choice.standard_error == pytest.approx(expected)
    del losses[10]
    assert chosen_topics(losses, None).n_topics == 20


def test_folds_without_a_measure_do_not_count_in_its_mean() -> None:
    rows = np.arange(2)
    fits = [
        FoldFit(rows, rows * 1.0, None, {"npmi": npmi, "distinct_share": math.nan})
        for npmi in (0.2, math.nan)
    ]
    assert pooled("dslda", 2, fits).measured == {
        "npmi": 0.2,
        "distinct_share": pytest.approx(math.nan, nan_ok=True),
    }


def test_groups_that_vary_as_wholes_have_larger_standard_errors() -> None:
    random = np.random.default_rng(1)
    groups = np.repeat(np.arange(40), 25)
    differences = random.normal(size=40)[groups]
    mean, error = paired_difference(differences, np.zeros(1000), groups)
    assert mean == pytest.approx(differences.mean())
    assert error == pytest.approx(differences[::25].std(ddof=1) / math.sqrt(40))
    assert error > 4.0 * paired_difference(differences, np.zeros(1000), None)[1]


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"n_topics": [0]}, "n_topics"),
        ({"n_topics": []}, "at least one number"),
        ({"n_topics": "5,10"}, "n_topics must be a whole number"),
        ({"folds": 1}, "folds"),
        ({"groups": "writer"}, "'writer'"),
        ({"groups": "author", "time": "year"}, "exclude"),
        ({"response": "stars"}, "'stars'"),
        ({"family": "poisson"}, "poisson"),
        ({"rho": 3}, "response_weight"),
    ],
)
def test_bad_input_is_refused_before_any_fit(
    corpus: Corpus, keywords: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_fit, "METHODS", {})
    with pytest.raises((InputError, TypeError), match=message):
        evaluate(corpus, **({"response": "y", "n_topics": 2} | keywords))


def test_responses_that_training_refuses_are_refused_before_any_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fold_fit, "METHODS", {})
    y = np.linspace(0.0, 1e-200, N)
    with pytest.raises(InputError, match="standard deviation"):
        evaluate(made_corpus(response={"y": y}), response="y", n_topics=2)


def test_a_folder_of_something_else_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError):
        EvaluationFolder(tmp_path)
    with pytest.raises(OutputExistsError):
        evaluate(corpus, response="y", out=tmp_path, overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_plan_of_something_else_is_never_replaced(corpus: Corpus, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"todo": ["rest"]}')
    with pytest.raises(OutputExistsError, match="is no folder of an evaluation"):
        evaluate(corpus, response="y", out=tmp_path, overwrite=True)
    assert (tmp_path / "plan.json").exists()


@pytest.mark.parametrize("name", ["notes.txt", "fits/notes.txt"])
def test_what_no_evaluation_has_written_is_not_removed_with_it(
    corpus: Corpus, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(fold_fit.METHODS, "dslda", mean_of_training)
    keywords: dict[str, Any] = {"response": "y", "n_topics": 2, "rivals": False, "out": tmp_path}
    evaluate(corpus, folds=2, **keywords)
    (tmp_path / name).write_text("mine")
    with pytest.raises(OutputExistsError, match=f"holds {name}"):
        evaluate(corpus, folds=3, overwrite=True, **keywords)
    assert (tmp_path / name).read_text() == "mine"
    (tmp_path / name).unlink()
    evaluate(corpus, folds=3, overwrite=True, **keywords)
    assert len(list((tmp_path / "fits").iterdir())) == 3


def test_an_evaluation_does_not_lie_inside_a_corpus(tmp_path: Path) -> None:
    stored = made_corpus(tmp_path / "c.corpus")
    with pytest.raises(InputError, match="inside a corpus"):
        evaluate(stored, response="y", out=tmp_path / "c.corpus" / "evaluation")


def test_warnings_of_fits_are_told_once(corpus: Corpus) -> None:
    few: dict[str, Any] = {"objective": "joint", "max_iter": 2, "rivals": False}
    with pytest.warns(DataWarning) as told:
        evaluate(corpus, response="y", n_topics=2, folds=2, **few)
    said = [str(warning.message) for warning in told if "EM stopped at its cap" in str(warning.message)]
    assert len(said) == len(set(said)) <= 2
    assert all(message.endswith(("(in 1 of 2 fits)", "(in 2 of 2 fits)")) for message in said)
