"""``dslda train --hold-out``: documents kept from training give intervals, and tell how good the model is."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import dslda as library
from dslda.evaluation.metrics import held_out, predictive_r2_standard_error, share_standard_error
from dslda.exceptions import ConvergenceWarning
from dslda.persistence.model_store import write_model
from tests.helpers.files import TOPIC_WORDS, topic_records, write_records
from tests.helpers.progress import SilentProgress

Dslda = Callable[..., Any]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hold-out")
    records = write_records(folder / "train.jsonl", topic_records(800, seed=0))
    library.ingest(
        records, folder / "c.corpus", text="text", response=["y", "c"], categorical="c", max_df=1.0
    )
    return folder / "c.corpus"


@pytest.mark.parametrize(
    ("records", "told"),
    [
        (
            [{"text": "zzz"}],
            r"root mean squared error [\d.]+, on 3 documents kept from training; their predictive R2 is not defined",
        ),
        (
            [{"text": "a1 a2 b3", "y": None}],
            "how well it predicts: none has a response and a prediction, on 3 documents kept",
        ),
    ],
)
def test_what_documents_held_out_cannot_tell_is_said(
    dslda: Dslda, tmp_path: Path, records: list[dict[str, Any]], told: str
) -> None:
    kept = held_out(30, 0.1, seed=0)
    rng = np.random.default_rng(0)
    with (tmp_path / "r.jsonl").open("w") as stream:
        for i in range(30):
            record = {"text": " ".join(TOPIC_WORDS[i % 3][:5]), "y": float(rng.integers(9))}
            if kept[i]:
                record |= {"y": 1.0} | records[0]
            stream.write(json.dumps(record) + "\n")
    settings = {"text": "text", "response": "y", "min_df": 1, "max_df": 1.0}
    library.ingest(tmp_path / "r.jsonl", tmp_path / "r.corpus", **settings)
    train = ("train", tmp_path / "r.corpus", "--response", "y", "--topics", "2", "--hold-out", "0.1")
    done = dslda(*train, "--out", tmp_path / "m.model")
    assert done.code == 0, done.err
    assert re.search(told, done.err)
    assert "at least 250 with a known word must be kept from training, got" in done.err
    shown = dslda("info", tmp_path / "m.model").out
    assert re.search(r"drift reference: +27 documents trained on", shown)
    assert re.search(r"intervals: +none", shown)


def test_a_response_of_which_too_little_is_kept_names_the_option(dslda: Dslda, tmp_path: Path) -> None:
    kept = held_out(30, 0.1, seed=0)
    with (tmp_path / "r.jsonl").open("w") as stream:
        for i in range(30):
            stream.write(json.dumps({"text": " ".join(TOPIC_WORDS[i % 3][:5]), "y": float(kept[i])}) + "\n")
    corpus = library.ingest(
        tmp_path / "r.jsonl", tmp_path / "r.corpus", text="text", response="y", min_df=1, max_df=1.0
    )
    done = dslda("train", corpus.path, "--response", "y", "--hold-out", "0.1", "--out", tmp_path / "m.model")
    assert done.code == 2
    assert "at least two distinct values" in done.error
    assert "all documents together would do: keep fewer of them with --hold-out" in done.error
    assert not (tmp_path / "m.model").exists()


def test_documents_held_out_give_intervals_that_cover_what_they_say(
    corpus: Path, dslda: Dslda, tmp_path: Path
) -> None:
    settings = ("--response", "y", "--topics", "4", "--rho", "3", "--hold-out", "0.25", "--seed", "3")
    done = dslda("train", corpus, *settings, "--out", tmp_path / "m.model")
    assert done.code == 0, done.err
    assert "dslda: 200 of 800 documents kept from training" in done.err
    told = re.search(r"predictive R2 (\S+) \(s\.e\. (\S+)\), on 200 documents kept from training", done.err)
    assert told is not None, done.err
    assert "without intervals" not in done.err
    model, read = library.load_model(tmp_path / "m.model"), library.open_corpus(corpus)
    assert model.training.n_documents == 600
    y = np.concatenate([read.read(i).responses["y"] for i in range(read.n_partitions)])
    kept = held_out(800, 0.25)  # whatever the start
    assert float(told[1]) == pytest.approx(model.score(read, np.where(kept, y, np.nan)), abs=5e-4)
    error = predictive_r2_standard_error(y[kept], model.predict(read)[kept])
    assert float(told[2]) == pytest.approx(error, abs=5e-4)
    # the model keeps it, not only the log
    measured = model.training.held_out
    assert (measured.n_documents, measured.measure) == (200, "predictive_r2")
    assert measured.standard_error == pytest.approx(error, rel=1e-9)
    shown = dslda("info", tmp_path / "m.model").out
    assert f"held out:            {told[0]}\n" in shown
    assert re.search(r"intervals: +90%, -\d\S+ to \+\d\S+ around a prediction of -?\d\S+; -\d", shown)

    new = write_records(tmp_path / "new.jsonl", topic_records(1000, seed=4))
    assert dslda("score", tmp_path / "m.model", new, "--out", tmp_path / "scores").code == 0
    rows = pq.read_table(tmp_path / "scores" / "part-000000.parquet").to_pylist()
    true = [json.loads(line)["y"] for line in new.read_text().splitlines()]
    inside = [r["prediction_low"] <= y <= r["prediction_high"] for r, y in zip(rows, true, strict=True)]
    # nominally 90%; with 200 documents held out the share varies by some 2% by chance
    assert 0.83 <= np.mean(inside) <= 0.97
    narrower = dslda("predict", tmp_path / "m.model", new, "--interval", "0.5")
    shown = list(csv.DictReader(narrower.out.splitlines()))
    inside = [
        float(r["prediction_low"]) <= y <= float(r["prediction_high"])
        for r, y in zip(shown, true, strict=True)
    ]
    assert 0.4 <= np.mean(inside) <= 0.6
    settings = ("--out", tmp_path / "halves", "--interval", "0.5")
    assert dslda("score", tmp_path / "m.model", new, *settings).code == 0
    rows = pq.read_table(tmp_path / "halves" / "part-000000.parquet").to_pylist()
    assert [r["prediction_low"] for r in rows] == [float(r["prediction_low"]) for r in shown]
    too_high = dslda("predict", tmp_path / "m.model", new, "--interval", "0.999")
    assert too_high.code == 2
    assert "--interval must be at most 0.985, got 0.999" in too_high.error


def test_of_classes_the_share_that_is_right_is_told_and_of_few_documents_that_there_are_no_intervals(
    corpus: Path, dslda: Dslda, tmp_path: Path
) -> None:
    settings = ("--topics", "3", "--hold-out", "0.1", "--max-iter", "5")
    classes = ("--response", "c", "--family", "categorical", "--json", "--out", tmp_path / "c.model")
    done = dslda("train", corpus, *settings, *classes)
    assert done.code == 0, done.err
    (event,) = [e for e in map(json.loads, done.err.splitlines()) if e.get("event") == "held_out"]
    assert event["documents"] == 80
    model, read = library.load_model(tmp_path / "c.model"), library.open_corpus(corpus)
    names = np.array(read.levels["c"], dtype=object)
    codes = np.concatenate([read.read(i).responses["c"] for i in range(read.n_partitions)]).astype(int)
    kept = held_out(800, 0.1)
    y = [name if chosen else None for name, chosen in zip(names[codes], kept, strict=True)]
    assert event["accuracy"] == model.score(read, y)
    assert event["accuracy_standard_error"] == share_standard_error(event["accuracy"], 80)
    assert model.training.held_out.value == event["accuracy"]
    most = np.bincount(codes[kept]).max() / 80
    assert model.training.held_out.most_frequent == most
    shown = dslda("info", tmp_path / "c.model").out
    assert (
        f", against {most:.1%} by the most frequent class alone, on 80 documents kept from training\n"
        in shown
    )

    to_y = ("--response", "y", "--objective", "joint", "--out", tmp_path / "y.model")
    done = dslda("train", corpus, *settings, *to_y)
    assert (
        "predictions will be without intervals: at least 100 documents with a response and a known word must be kept "
        "from training, got 80" in done.err
    )


def test_a_share_that_cannot_be_held_out_is_refused(
    corpus: Path, dslda: Dslda, tmp_path: Path, write_reviews: Callable[..., Path]
) -> None:
    out = tmp_path / "m.model"
    for share in ("0", "1", "nan", "0.6"):
        refused = dslda("train", corpus, "--response", "y", "--hold-out", share, "--out", out)
        assert refused.code == 2
        assert refused.error.startswith(
            f"--hold-out must be a share above 0 and at most 0.5, got {float(share):g}"
        )
    refused = dslda("train", corpus, "--response", "y", "--hold-out", "0.0001", "--out", out)
    assert refused.error.startswith("--hold-out must keep at least 1 document from training and leave 2, got")
    refused = dslda("train", corpus, "--response", "y", "--hold-out", "0.1", "--seed", "-1", "--out", out)
    assert refused.error == "--seed must be a whole number of at least 0, got -1"
    few = tmp_path / "few.corpus"
    library.ingest(
        write_reviews(tmp_path / "r.jsonl", 3), few, text="text", response="stars", min_df=1, max_df=1.0
    )
    refused = dslda("train", few, "--response", "stars", "--hold-out", "0.5", "--out", out)
    assert refused.error.startswith(
        "--hold-out must keep at least 1 document from training and leave 2, got 0.5 of 3: "
    )
    assert not out.exists()


def test_a_fit_goes_on_with_the_documents_it_held_out_and_no_others(
    corpus: Path, dslda: Dslda, tmp_path: Path
) -> None:
    out, kept = tmp_path / "m.model", ("--checkpoint", tmp_path / "c", "--resume")
    train = ("train", corpus, "--response", "y", "--topics", "2", "--tol", "0", "--out", out, *kept)
    assert dslda(*train, "--max-iter", "2", "--hold-out", "0.25").code == 0
    for other, n in ((("--hold-out", "0.2"), 640), ((), 800)):
        refused = dslda(*train, "--max-iter", "4", *other)
        assert refused.code == 2
        assert f"chosen to train on: 600 documents then, {n} now" in refused.error
    done = dslda(*train, "--max-iter", "4", "--hold-out", "0.25")
    assert done.code == 0, done.err
    assert "going on after 1 iteration" in done.err
    assert library.load_model(out).training.n_iterations == 4
    (told,) = re.findall(r"predictive R2 \S+ \(s\.e\. \S+\), on 200 documents kept from training", done.err)
    again = dslda(*train, "--max-iter", "4", "--hold-out", "0.25")
    assert again.out == f"{out}: complete already: 2 topics, 4 iterations (not converged); {told}\n"
    # the same command measures a model whose documents could not be read at the end of its fit
    whole = library.load_model(out)
    bare = replace(whole.record.training, held_out=None)
    write_model(replace(whole.record, training=bare, reference=None), out, overwrite=True)
    done = dslda(*train, "--max-iter", "4", "--hold-out", "0.25")
    assert told in done.err
    again = library.load_model(out)
    assert again.training.held_out == whole.training.held_out
    assert again.record.reference.topic_means.tobytes() == whole.record.reference.topic_means.tobytes()


def test_what_is_lost_with_documents_that_cannot_be_read_at_the_end_is_told(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place, kept = shutil.copytree(corpus, tmp_path / "c.corpus"), ~held_out(800, 0.25)

    class Moving(SilentProgress):
        def __exit__(self, *_: object) -> None:
            place.rename(tmp_path / "away")

    settings = {"response": "y", "n_topics": 2, "max_iter": 2, "tol": 0.0, "documents": kept}
    with pytest.warns(ConvergenceWarning):
        model = library.train(place, **settings, progress=Moving())
    assert model.record.reference is None
    assert "nor how well it predicts those kept from training, and gives no intervals" in caplog.text


def test_predictions_that_are_worse_than_the_mean_are_called_so(dslda: Dslda, tmp_path: Path) -> None:
    rng, kept = np.random.default_rng(0), held_out(60, 0.4)
    with (tmp_path / "r.jsonl").open("w") as stream:
        for i in range(60):  # words say nothing of the number, and of classes held out the contrary
            record = {
                "text": " ".join(rng.choice(TOPIC_WORDS[i % 2], 20)),
                "c": ("yes", "no")[(i + kept[i]) % 2],
            }
            stream.write(json.dumps(record | {"y": float(rng.normal())}) + "\n")
    responses = {"response": ["y", "c"], "categorical": "c"}
    library.ingest(tmp_path / "r.jsonl", tmp_path / "r.corpus", text="text", max_df=1.0, **responses)
    train = ("train", tmp_path / "r.corpus", "--response", "y", "--topics", "5", "--rho", "8")
    done = dslda(*train, "--hold-out", "0.4", "--max-iter", "30", "--tol", "0", "--out", tmp_path / "m.model")
    assert "predictive R2 -" in done.err
    assert (
        "warning: these documents are predicted worse than by their mean: compare with a lower rho"
        in done.err
    )
    assert re.search(
        r"held out: .* kept from training: worse than their mean\n", dslda("info", tmp_path / "m.model").out
    )
    train = ("train", tmp_path / "r.corpus", "--response", "c", "--topics", "2", "--hold-out", "0.4")
    done = dslda(*train, "--family", "categorical", "--max-iter", "30", "--out", tmp_path / "c.model")
    right, most = re.findall(r"(\d+\.\d)% of (?:the classes are right|these documents, which)", done.err)
    assert float(right) < float(most)


def test_what_training_refuses_is_refused_in_documents_held_out_too(
    dslda: Dslda, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept = held_out(60, 0.1, seed=0)
    (odd, *others) = np.flatnonzero(kept).tolist()
    path = tmp_path / "r.jsonl"
    with path.open("w") as stream:
        for i in range(60):
            record = {
                "text": " ".join(TOPIC_WORDS[i % 3][i % 5 : i % 5 + 6]),
                "trials": 4,
                "class": 1 + i % 3,
            }
            record |= {"few": i % 3, "count": i % 4} | (
                {"count": -2, "few": 9, "class": 7} if i == odd else {}
            )
            stream.write(json.dumps(record | {"key": f"d{i}"}) + "\n")
    responses = ("--response", "count", "--response", "few", "--response", "class", "--covariates", "trials")
    corpus, out = tmp_path / "r.corpus", tmp_path / "m.model"
    ingest = ("ingest", path, "--out", corpus, "--text", "text", "--id", "key", *responses)
    assert dslda(*ingest, "--min-df", 1, "--max-df", 1.0).code == 0
    train = ("train", corpus, "--out", out, "--topics", 2, "--hold-out", 0.1, "--tol", 1, "--json")
    for response, family, says in (
        ("count", ("poisson",), f"for family poisson, got -2 in document 'd{odd}'; use --family gaussian"),
        ("few", ("binomial", "--trials", "trials"), f"its trials 'trials', got 9 of 4 in document 'd{odd}'"),
    ):
        refused = dslda(*train, "--response", response, "--family", *family)
        assert refused.code == 2
        assert says in json.loads(refused.err.splitlines()[-1])["message"]
        assert "EM over" not in refused.err
        assert not out.exists()
        # documents= leaves out whatever its user wants, so refused documents are not measured
        trials = {"trials": "trials"} if family[0] == "binomial" else {}
        caplog.clear()
        with caplog.at_level("INFO", "dslda"):
            library.train(
                corpus, response=response, family=family[0], **trials, documents=~kept, n_topics=2, tol=1.0
            )
        (event,) = [record for record in caplog.records if getattr(record, "event", None) == "held_out"]
        assert event.documents == len(others)
    # a class that occurs only in documents held out is never predicted
    done = dslda(*train, "--response", "class", "--family", "categorical")
    assert done.code == 0, done.err
    (event,) = [e for e in map(json.loads, done.err.splitlines()) if e.get("event") == "held_out"]
    assert event["documents"] == len(others) + 1
    assert event["accuracy"] <= len(others) / (len(others) + 1)
