"""Counts of parts, and of a run: the same however documents are cut into parts, and in whatever order these are added."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dslda.persistence.model_record import Reference
from dslda.prediction.predict import Predictions
from dslda.scoring.tally import FrequentWords, Tally, drift_figures

K = 2
FLAGS = ("", "empty", "no_known_word", "not_converged", "no_covariate")


def reference(classes: tuple[str, ...] = ()) -> Reference:
    borders = np.linspace(-2.0, 2.0, 9)
    return Reference(
        prediction_borders=np.zeros(0) if classes else borders,
        prediction_counts=np.full(len(classes) or 10, 7),
        topic_borders=np.tile(np.linspace(0.1, 0.9, 9), (K, 1)),
        topic_counts=np.full((K, 10), 7),
        topic_means=np.full(K, 0.5),
        classes=classes,
    )


def scored(rows: Sequence[tuple[float, int, int, float, str]], classes: tuple[str, ...] = ()) -> Predictions:
    prediction, known, unknown, share, flag = (
        (list(column) for column in zip(*rows, strict=True)) if rows else [[]] * 5
    )
    tokens = np.array(known, dtype=np.int64) + np.array(unknown, dtype=np.int64)
    values = np.array(prediction, dtype=np.float64)
    lacking = np.array([name == "no_covariate" for name in flag], dtype=bool)
    predicted: np.ndarray = np.where(lacking, np.nan, values)
    if classes:
        names = [classes[int(abs(value) * 10) % len(classes)] for value in values]
        predicted = np.array(
            [None if no else name for no, name in zip(lacking, names, strict=True)], dtype=object
        )
    first = np.array(share, dtype=np.float64)
    return Predictions(
        doc_id=tuple(map(str, range(len(rows)))),
        prediction=predicted,
        tokens=tokens,
        known_tokens=np.array(known, dtype=np.int64),
        oov_share=np.zeros(len(rows)),
        flag=tuple(flag),
        topic_proportions=np.column_stack([first, 1.0 - first]),
    )


documents = st.lists(
    st.tuples(
        st.floats(-1e6, 1e6),
        st.integers(0, 50),
        st.integers(0, 50),
        st.floats(0.0, 1.0),
        st.sampled_from(FLAGS),
    ),
    max_size=30,
)


def part_of(
    rows: Sequence[tuple[float, int, int, float, str]], classes: tuple[str, ...]
) -> dict[str, object]:
    tally = Tally(K, reference(classes))
    tally.add(scored(rows, classes))
    for i, (_, _, unknown, _, _) in enumerate(rows):
        if unknown:
            tally.words.add(f"w{i % 5}", unknown)
    if rows:
        tally.skip("a.jsonl, line 1", "not JSON")
        tally.lose("b.jsonl", "cut short", len(rows))
    told: dict[str, object] = json.loads(json.dumps(tally.to_json()))
    return told


@given(
    rows=documents, cuts=st.lists(st.integers(0, 30), max_size=4), data=st.data(), of_classes=st.booleans()
)
def test_a_run_is_counted_alike_however_it_is_cut_and_added(
    rows: list[tuple[float, int, int, float, str]], cuts: list[int], data: st.DataObject, of_classes: bool
) -> None:
    classes = ("a", "b", "c") if of_classes else ()
    borders = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [part_of(rows[a:b], classes) for a, b in pairwise(borders)]
    one, other = Tally(K, reference(classes)), Tally(K, reference(classes))
    for part in parts:
        one.add_note(part)
    for i in data.draw(st.permutations(range(len(parts)))):
        other.add_note(parts[i])
    whole = scored(rows, classes)
    for tally in (one, other):
        assert tally.n_rows == len(rows)
        assert tally.tokens == whole.tokens.sum()
        assert tally.known_tokens == whole.known_tokens.sum()
        assert sum(tally.flags.values()) == len(rows)
        assert tally.n_words == np.count_nonzero(whole.known_tokens)
        assert tally.bins is not None
        # of a document without a known word the prediction is the model's, and is counted in no bin
        assert (tally.bins.topics.sum(axis=1) == tally.n_words).all()
        assert tally.n_skipped == len([part for part in parts if part["rows"]]) + len(rows)
        if tally.n_words:
            assert tally.mean_topics == pytest.approx(
                whole.topic_proportions[whole.known_tokens > 0].mean(axis=0)
            )
    assert one.mean_prediction == other.mean_prediction
    if not of_classes and (known := whole.prediction[~np.isnan(whole.prediction)]).size:
        assert one.mean_prediction == pytest.approx(known.mean(), abs=1e-6)
    assert one.classes == other.classes
    assert one.flags == other.flags
    assert one.new_words() == other.new_words()
    assert one.bins is not None
    assert other.bins is not None
    assert one.bins.to_json() == other.bins.to_json()


def test_the_first_skipped_records_are_remembered_and_all_are_counted() -> None:
    run = Tally(K, None)
    for n in range(15):
        tally = Tally(K, None)
        for i in range(20):
            tally.skip(f"part {n}, line {i}\ud800", "not \ud800JSON")
        run.add_note(json.loads(json.dumps(tally.to_json())))
    assert run.n_skipped == 300
    assert len(run.skipped) == 100
    assert run.skipped[10]["place"].startswith("part 1, line 0")
    json.dumps(run.skipped).encode()


def test_a_file_in_several_parts_is_lost_once_with_its_first_reason() -> None:
    run = Tally(K, None)
    for reason, n in (("cut short", 3), ("not gzip", 4)):
        tally = Tally(K, None)
        tally.lose("a.jsonl.gz", reason, n)
        run.add_note(tally.to_json())
    assert run.unreadable == [{"path": "a.jsonl.gz", "reason": "cut short", "records": 7}]
    assert run.n_skipped == 7


def test_notes_of_earlier_releases_can_be_added() -> None:
    tally = Tally(K, None)
    tally.lose("a.jsonl", "cut short", 3)
    note = tally.to_json()
    del note["too_frequent_tokens"], note["unreadable"][0]["records"]
    run = Tally(K, None)
    run.add_note(note)
    assert (run.n_too_frequent, run.unreadable[0]["records"]) == (0, 0)


def test_no_rows_have_no_means() -> None:
    run = Tally(K, reference())
    assert (run.mean_prediction, run.mean_topics, run.oov_share) == (None, None, None)


@given(st.lists(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 9)), max_size=40), max_size=5))
def test_no_word_is_counted_too_often_and_none_too_low_by_more_than_the_error(
    parts: list[list[tuple[str, int]]],
) -> None:
    exact: dict[str, int] = {}
    merged = FrequentWords(capacity=2)
    for words in parts:
        part = FrequentWords(capacity=2)
        for word, n in words:
            part.add(word, n)
            exact[word] = exact.get(word, 0) + n
        merged.merge(part.top(3), part.error + part.rest(3))
    counts = dict(merged.top(100))
    for word, n in exact.items():
        assert n - merged.error <= counts.get(word, 0) <= n


def test_figures_of_a_run_without_a_reference_are_not_known() -> None:
    figures = drift_figures({"drift": None, "oov_share": 0.5, "predictions": {"mean": 2.0}})
    assert figures.pop("oov_share") == 0.5
    assert figures.pop("prediction_mean") == 2.0
    assert set(figures.values()) == {None}
