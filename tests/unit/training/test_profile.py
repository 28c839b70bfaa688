"""What a model remembers of its training documents, and what a run makes of it."""

from __future__ import annotations

import dataclasses
import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import dslda
from dslda.corpus.store import Corpus
from dslda.exceptions import FormatError, InputError
from dslda.model import Model
from dslda.training.sampling import sampled_rows
from tests.helpers.errors import refused
from tests.helpers.files import topic_records, write_records


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("reference")
    path = write_records(folder / "train.jsonl", topic_records(600, seed=0))
    return dslda.ingest(
        path,
        folder / "c.corpus",
        text="text",
        response=["y", "c"],
        categorical="c",
        max_df=1.0,
    )


@pytest.fixture(scope="module")
def model(corpus: Corpus) -> Model:
    return dslda.train(corpus, response="y", n_topics=3, doc_topic_prior=1.0)


def test_the_reference_is_of_the_training_documents_without_their_responses(
    corpus: Corpus, model: Model
) -> None:
    reference = model.record.reference
    assert reference is not None
    predicted, topics = model.predict(corpus), model.transform(corpus)
    assert reference.prediction_counts.tolist() == [
        int(np.sum((predicted >= low) & (predicted < high)))
        for low, high in zip(
            [-np.inf, *reference.prediction_borders], [*reference.prediction_borders, np.inf], strict=True
        )
    ]
    assert abs(reference.topic_counts - 60).max() <= 1
    np.testing.assert_allclose(reference.topic_means, topics.mean(axis=0))
    assert reference.of_training  # topics were trained once more on all of so few documents


def test_a_sample_is_spread_evenly_and_bounded(model: Model) -> None:
    sizes = np.array([5000, 0, 20_000, 1, 25_000])
    taken = sampled_rows(sizes, model.record, most=10_000)
    assert sum(map(len, taken)) == 10_000
    assert [len(rows) for rows in taken] == [1000, 0, 4000, 0, 5000]
    for rows, size in zip(taken, sizes.tolist(), strict=True):
        assert len(set(rows.tolist())) == len(rows)
        assert ((rows >= 0) & (rows < size)).all()
    few, none = (sampled_rows(np.array(sizes), model.record, most=9) for sizes in ([2, 3], [0, 0]))
    assert [rows.tolist() for rows in few] == [[0, 1], [0, 1, 2]]
    assert [len(rows) for rows in none] == [0, 0]


def test_where_enough_documents_were_kept_from_training_they_are_the_reference(corpus: Corpus) -> None:
    for n, of_training in ((350, False), (351, True)):
        model = dslda.train(corpus, response="y", n_topics=2, documents=np.arange(600) < n)
        reference = model.record.reference
        assert reference is not None
        assert reference.of_training == of_training
        assert reference.topic_counts[0].sum() == (n if of_training else 250)


def test_it_is_kept_with_the_model_and_older_models_are_without(model: Model, tmp_path: Path) -> None:
    path = model.save(tmp_path / "m.model")
    again = dslda.load_model(path)
    ours, theirs = model.record.reference, again.record.reference
    assert ours is not None
    assert theirs is not None
    for field in dataclasses.fields(ours):
        mine, read = getattr(ours, field.name), getattr(theirs, field.name)
        if field.name == "intervals":
            assert np.array_equal(mine.bounds, read.bounds)
            for own, other in zip(mine.residuals, read.residuals, strict=True):
                assert np.array_equal(own, other)
            continue
        assert np.array_equal(mine, read), field.name
    assert again.checksum == model.checksum
    older = Model(dataclasses.replace(model.record, reference=None))
    read = dslda.load_model(older.save(tmp_path / "older.model"))
    assert read.record.reference is None
    run = dslda.score(read, write_records(tmp_path / "x.jsonl", topic_records(30, seed=1)), tmp_path / "out")
    assert run.manifest["drift"] is None
    bad = dataclasses.replace(ours, topic_counts=ours.topic_counts - 100)
    with pytest.raises(FormatError, match="reference_topic_counts"):
        dslda.load_model(Model(dataclasses.replace(model.record, reference=bad)).save(tmp_path / "bad.model"))


def test_drift_is_seen_and_its_absence_too(
    model: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alike = dslda.score(
        model, write_records(tmp_path / "a.jsonl", topic_records(600, seed=2)), tmp_path / "alike"
    ).manifest["drift"]
    assert alike["documents"] == alike["reference_documents"] == 600
    assert alike["prediction_psi"] < 0.1
    assert alike["largest_topic_psi"] < 0.1
    assert not caplog.records
    new = write_records(tmp_path / "m.jsonl", topic_records(600, seed=3, weights=(6.0, 1.0, 1.0)))
    with caplog.at_level(logging.INFO, "dslda"):
        moved = dslda.score(model, new, tmp_path / "moved")
    drift = moved.manifest["drift"]
    assert drift["prediction_psi"] > 0.25
    assert drift["largest_topic_psi"] > 0.25
    assert max(drift["topics"], key=lambda t: t["mean"] - t["reference_mean"])["psi"] > 0.25
    told = [record for record in caplog.records if "moved far from" in record.message]
    assert "train with 250 documents or more held out" in told[0].message
    # of a model that overfits it may be so for all that is new
    assert {record.levelno for record in told} == {logging.INFO}
    k = max(drift["topics"], key=lambda t: t["psi"])["topic"]
    named = Model(model.record)
    named.label(k, "what it is about")
    with caplog.at_level(logging.INFO, "dslda"):
        again = dslda.score(named, new, tmp_path / "named").manifest["drift"]
    assert f": topic {k} (what it is about) ({drift['topics'][k]['psi']:.2f})" in caplog.text
    assert {t["topic"]: t.get("label") for t in again["topics"]}[k] == "what it is about"
    assert again["warned_of"] == drift["warned_of"]


def with_words(path: Path, words: str) -> Path:
    """The documents of a file with more words each, in which {i} is their number."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for i, record in enumerate(records):
        record["text"] = f"{record['text']} {words.format(i=i)}"
    write_records(path, records)
    return path


def test_unknown_words_are_compared_with_those_of_the_corpus(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    common = "the the the the the it it it it rare{i} aside "
    path = with_words(write_records(tmp_path / "a.jsonl", topic_records(400, seed=0)), common)
    corpus = dslda.ingest(path, tmp_path / "a.corpus", text="text", response="y", max_df=0.95)
    assert corpus.too_frequent == ("aside", "it", "the")
    model = dslda.train(corpus, response="y", n_topics=2, documents=np.arange(400) < 100, tol=0.05)
    tokens = [word for line in path.read_text().splitlines() for word in json.loads(line)["text"].split()]
    unknown = [word for word in tokens if word not in set(corpus.vocabulary.terms)]
    # of all documents, those too that were kept from training
    assert model.training.oov_share == pytest.approx(len(unknown) / len(tokens), rel=1e-12)
    new = [word for word in unknown if word not in corpus.too_frequent]
    n_others = len(tokens) - len(unknown) + len(new)
    assert model.training.new_share == pytest.approx(len(new) / n_others, rel=1e-12)
    model = dslda.load_model(model.save(tmp_path / "a.model"))

    def scored(model: Model, inputs: Path, out: str) -> dict[str, Any]:
        caplog.clear()
        return dslda.score(model, inputs, tmp_path / out).manifest

    alike = with_words(write_records(tmp_path / "b.jsonl", topic_records(100, seed=1)), common)
    found = scored(model, alike, "alike")
    drift = found["drift"]
    assert drift["oov_share"] == found["oov_share"] == pytest.approx(11 / 51)
    assert drift["training_oov_share"] == model.training.oov_share == pytest.approx(11 / 51)
    assert drift["new_share"] == drift["training_new_share"] == pytest.approx(1 / 41)
    assert drift["new_share_warned_above"] == pytest.approx(1 / 41 + 0.1 + 0.3 / 10 + 1 / 10)
    assert not [record for record in caplog.records if "vocabulary" in record.message]
    assert found["new_words"]["words"][0]["word"].startswith("rare")

    other = with_words(
        write_records(tmp_path / "c.jsonl", topic_records(100, seed=2)), common + "le la les " * 9
    )
    found = scored(model, other, "other")
    assert found["oov_share"] == pytest.approx(38 / 78)
    assert found["drift"]["new_share"] == pytest.approx(28 / 68)
    assert [each["word"] for each in found["new_words"]["words"][:3]] == ["la", "le", "les"]
    (told,) = [record for record in caplog.records if "vocabulary" in record.message]
    assert told.levelno == logging.WARNING
    assert told.message.startswith(
        "41.2% of the tokens are neither in the vocabulary nor left out of it as too frequent; "
    )
    assert told.message.endswith(
        "in the corpus trained on it was 2.4%; the most frequent: 'la', 'le', 'les', 'rare0', 'rare1'"
    )

    # documents of a corpus have lost their unknown words
    folder = tmp_path / "c.corpus"
    counted = dslda.ingest(other, folder, text="text", response="y", vocabulary=corpus)
    assert counted.oov_share == pytest.approx(38 / 78)
    found = scored(model, folder, "corpus")
    assert (found["oov_share"], found["drift"]["training_oov_share"]) == (0.0, None)
    names = ("new_share", "training_new_share", "new_share_warned_above")
    assert [found["drift"][name] for name in names] == [None] * 3

    record = model.record
    training = dataclasses.replace(record.training, oov_share=None, new_share=None)
    older = Model(dataclasses.replace(record, training=training, too_frequent=()))
    found = scored(older, other, "older")
    assert found["drift"]["training_oov_share"] is None
    assert [found["drift"][name] for name in names] == [None] * 3
    assert not [record for record in caplog.records if "vocabulary" in record.message]
    assert [each["word"] for each in found["new_words"]["words"][:2]] == ["la", "le"]
    assert {"the", "it"} <= {each["word"] for each in found["new_words"]["words"]}


@pytest.mark.filterwarnings("ignore:.*have nearly the words")
def test_intervals_come_from_documents_kept_from_training_and_cover_what_they_say(
    corpus: Corpus, model: Model, tmp_path: Path
) -> None:
    path = write_records(tmp_path / "new.jsonl", topic_records(1000, seed=4))
    path.write_text(path.read_text() + '{"text": "nothing known"}\n')
    trained_on = np.arange(600) % 3 > 0
    calibrated = dslda.train(corpus, response="y", n_topics=6, response_weight=4.0, documents=trained_on)
    dslda.score(calibrated, path, tmp_path / "out", topics="none")
    *rows, unknown = pq.read_table(tmp_path / "out" / "part-000000.parquet").to_pylist()
    assert unknown["prediction"] is not None
    assert unknown["prediction_low"] is unknown["prediction_high"] is None
    y = [json.loads(line)["y"] for line in path.read_text().splitlines()[:-1]]
    inside = [
        row["prediction_low"] <= true <= row["prediction_high"] for row, true in zip(rows, y, strict=True)
    ]
    # 200 documents were kept from training: by chance the share is off by some 2 percent
    assert 0.83 <= np.mean(inside) <= 0.97
    intervals = calibrated.record.reference.intervals
    y = np.concatenate([corpus.read(i).responses["y"] for i in range(corpus.n_partitions)])
    predicted = calibrated.predict(corpus)
    assert np.sort(intervals.predictions) == pytest.approx(np.sort(predicted[~trained_on]))
    assert np.sort(intervals.residuals) == pytest.approx(np.sort((y - predicted)[~trained_on]))

    # a joint model has seen all of its documents; conditional training has predicted some of them before
    joint = dslda.train(corpus, response="y", n_topics=2, objective="joint")
    dslda.score(joint, path, tmp_path / "without")
    assert "prediction_low" not in pq.read_schema(tmp_path / "without" / "part-000000.parquet").names
    dslda.score(model, path, tmp_path / "conditional", topics="none")
    *rows, unknown = pq.read_table(tmp_path / "conditional" / "part-000000.parquet").to_pylist()
    assert unknown["prediction_low"] is None
    y = [json.loads(line)["y"] for line in path.read_text().splitlines()[:-1]]
    inside = [
        row["prediction_low"] <= true <= row["prediction_high"] for row, true in zip(rows, y, strict=True)
    ]
    # 180 of 600 documents are its inner part
    assert 0.83 <= np.mean(inside) <= 0.97
    # they also tell how well it predicts, and the new documents agree
    told = model.training.held_out
    assert told is not None
    assert told.set_aside
    assert told.value == pytest.approx(model.score(pd.read_json(path, lines=True)[:-1]), abs=0.1)
    assert joint.training.held_out is None
    assert calibrated.training.held_out is not None
    assert not calibrated.training.held_out.set_aside
    table = model.score_table([json.loads(line) for line in path.read_text().splitlines()]).to_pylist()
    assert [row["prediction_low"] for row in table[:-1]] == [row["prediction_low"] for row in rows]


def test_intervals_hold_the_share_asked_for_wherever_it_is_asked(
    corpus: Corpus, model: Model, tmp_path: Path
) -> None:
    path = write_records(tmp_path / "new.jsonl", topic_records(1000, seed=4))
    documents = [json.loads(line) for line in path.read_text().splitlines()]
    y = np.array([document["y"] for document in documents])
    again = dslda.load_model(model.save(tmp_path / "m.model"))
    for level in (0.5, 0.8):
        predicted, ends = again.predict(documents, interval=level)
        assert predicted.tobytes() == model.predict(documents).tobytes()
        assert ends.shape == (1000, 2)
        # 180 documents give the bounds: by chance the share is off by some 4 percent
        assert np.mean((ends[:, 0] <= y) & (y <= ends[:, 1])) == pytest.approx(level, abs=0.1)
        table = again.score_table(documents, interval=level).to_pandas()
        assert table[["prediction_low", "prediction_high"]].to_numpy().tobytes() == ends.tobytes()
        folder = tmp_path / f"scores-{level}"
        run = dslda.score(again, path, folder, topics="none", interval=level)
        assert run.manifest["settings"]["interval"] == level
        rows = pq.read_table(folder / "part-000000.parquet").to_pandas()
        assert rows[["prediction_low", "prediction_high"]].to_numpy().tobytes() == ends.tobytes()
    assert again.predict([], interval=0.8)[1].shape == (0, 2)
    _, nine_tenths = model.predict(documents, interval=0.9)
    assert nine_tenths[:, 0].tolist() == model.score_table(documents)["prediction_low"].to_pylist()


def test_a_run_keeps_to_the_level_of_its_intervals(model: Model, tmp_path: Path) -> None:
    path = write_records(tmp_path / "new.jsonl", topic_records(30, seed=4))
    dslda.score(model, path, tmp_path / "out")
    assert dslda.score(model, path, tmp_path / "out", interval=0.9).n_new_parts == 0  # as without
    with pytest.raises(InputError, match="interval"):
        dslda.score(model, path, tmp_path / "out", interval=0.8)


def test_models_without_intervals_of_the_level_say_so(model: Model, corpus: Corpus) -> None:
    joint = dslda.train(corpus, response="y", n_topics=2, objective="joint", tol=0.01)
    classes = dslda.train(corpus, response="c", family="categorical", n_topics=2)
    reference = model.record.reference
    assert reference is not None
    bounds_alone = dataclasses.replace(reference.intervals, residuals=None)
    early = Model(
        dataclasses.replace(model.record, reference=dataclasses.replace(reference, intervals=bounds_alone))
    )
    assert (
        early.predict(corpus, interval=0.9)[1].tobytes() == model.predict(corpus, interval=0.9)[1].tobytes()
    )
    for fitted, level in (
        (joint, 0.9),
        (classes, 0.9),
        (early, 0.8),
        (model, 0.999),
        (model, 90),
        (model, 1.0),
    ):
        for ask in (fitted.predict, fitted.score_table):
            with refused("interval"):
                ask(corpus, interval=level)


def test_successes_of_trials_have_intervals_within_them_and_durations_cut_off_have_none() -> None:
    random = np.random.default_rng(8)
    first = random.integers(0, 2, 3260)
    counts = np.array([random.multinomial(30, [0.4, 0.4, 0.1, 0.1][:: 1 - 2 * z]) for z in first])
    trials = random.integers(1, 9, 3260).astype(np.float64)
    successes = random.binomial(trials.astype(int), np.where(first, 0.8, 0.3)).astype(np.float64)
    trained, new = slice(0, 3200), slice(3200, 3260)
    model = dslda.train(
        counts[trained], response=successes[trained], family="binomial", trials=trials[trained], n_topics=2
    )
    given = {"trials": trials[new]}
    predicted, ends = model.predict(counts[new], covariates=given, interval=0.9)
    assert (ends[:, 0] >= 0.0).all()
    assert (ends[:, 1] <= trials[new]).all()
    assert ((ends[:, 0] <= predicted) & (predicted <= ends[:, 1])).all()
    assert np.mean((ends[:, 0] <= successes[new]) & (successes[new] <= ends[:, 1])) >= 0.8

    durations = random.weibull(2.0, 3200) * np.where(first[trained], 3.0, 1.0)
    for ended in (np.ones(3200), (durations < np.quantile(durations, 0.95)).astype(np.float64)):
        model = dslda.train(counts[trained], response=durations, family="weibull", event=ended, n_topics=2)
        reference = model.record.reference
        assert reference is not None
        assert (reference.intervals is None) == (ended.min() == 0.0)


def test_a_few_documents_left_out_do_not_cost_the_intervals(
    corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    """They are too few to give any, so that the inner part gives them as if all had been trained on."""
    some = np.arange(600) >= 3
    with caplog.at_level(logging.INFO, "dslda"):
        model = dslda.train(corpus, response="y", n_topics=3, documents=some)
    assert "without intervals" not in caplog.text
    y = np.concatenate([corpus.read(i).responses["y"] for i in range(corpus.n_partitions)])
    low, high = model.record.reference.intervals.around(model.predict(corpus))
    # the model has learned from these documents since
    assert 0.87 <= np.mean((low <= y) & (y <= high)) <= 0.98


def test_of_classes_the_shares_are_compared(corpus: Corpus, tmp_path: Path) -> None:
    model = dslda.train(corpus, response="c", family="categorical", n_topics=3, doc_topic_prior=1.0)
    reference = model.record.reference
    assert reference is not None
    assert reference.classes == ("x", "y", "z")
    assert reference.prediction_counts.sum() == 600
    again = dslda.load_model(model.save(tmp_path / "m.model"))
    path = write_records(tmp_path / "a.jsonl", topic_records(300, seed=2))
    run = dslda.score(again, path, tmp_path / "out", topics="none")
    assert run.manifest["predictions"]["mean"] is None
    assert sum(run.manifest["predictions"]["classes"].values()) == 300
    assert run.manifest["drift"]["prediction_psi"] < 0.1
    names = pq.read_schema(tmp_path / "out" / "part-000000.parquet").names
    assert names == [
        *("id", "prediction", "tokens", "known_tokens", "oov_share", "flag"),
        *("probability_x", "probability_y", "probability_z"),
    ]


def test_one_document_alone_has_the_bits_it_has_among_others(model: Model, tmp_path: Path) -> None:
    path = write_records(tmp_path / "all.jsonl", topic_records(1100, seed=5))  # more than a batch
    dslda.score(dslda.load_model(model.save(tmp_path / "m.model")), path, tmp_path / "all")
    together = pq.read_table(tmp_path / "all" / "part-000000.parquet").drop_columns(["id"]).to_pylist()
    for i in (0, 1023, 1024, 1099):
        (tmp_path / "one.jsonl").write_text(path.read_text().splitlines()[i] + "\n")
        dslda.score(model, tmp_path / "one.jsonl", tmp_path / f"one{i}")
        (alone,) = (
            pq.read_table(tmp_path / f"one{i}" / "part-000000.parquet").drop_columns(["id"]).to_pylist()
        )
        assert alone == together[i]
