"""Predictions of some documents of a corpus."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from numpy.typing import ArrayLike

from dslda.corpus.store import Corpus, open_corpus
from dslda.exceptions import FormatError, InputError
from dslda.ingestion.ingest import ingest
from dslda.model import Model
from dslda.training.train import train

N = 60


def ingested(path: Path | None = None) -> Corpus:
    rng = np.random.default_rng(0)
    rows = [
        {
            "text": " ".join(
                rng.choice(["apple", "pear", "plum", "fig"] if i % 2 else ["nut", "fig", "oat"], 8)
            ),
            "y": float("nan") if i % 7 == 3 else i % 2 + rng.normal() / 5,
            "kind": "ab"[(i % 2) ^ (i % 9 == 4)],
            "size": float(i % 5),
            "area": "north" if i % 3 else "south",
        }
        for i in range(N)
    ]
    return ingest(
        rows,
        path,
        response=["y", "kind"],
        covariates=["size", "area"],
        categorical=["kind", "area"],
        min_df=1,
        max_df=1.0,
        partition_tokens=40,
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return ingested(tmp_path_factory.mktemp("chosen") / "fruit.corpus")


@pytest.fixture(scope="module", params=["y", "kind"])
def model(request: pytest.FixtureRequest) -> Model:
    """Of the same documents in memory, for which no workers start."""
    family = "gaussian" if request.param == "y" else "binomial"
    settings = {"family": family, "n_topics": 2, "covariates": ["size", "area"], "tol": 1e-2}
    return train(ingested(), response=request.param, **settings)


MASK = np.isin(np.arange(N), [3, 4, 18, 40, 41, 59])


@pytest.mark.parametrize("documents", [MASK, np.flatnonzero(MASK), [59, 4, 3, 41, 40, 18]])
def test_documents_are_predicted_as_among_all_in_the_order_of_the_corpus(
    model: Model, corpus: Corpus, documents: ArrayLike
) -> None:
    assert corpus.n_partitions > 5
    assert_array_equal(model.predict(corpus, documents=documents), model.predict(corpus)[MASK])
    assert_array_equal(model.transform(corpus, documents=documents), model.transform(corpus)[MASK])
    table = model.score_table(corpus)
    assert model.score_table(corpus, documents=documents).equals(table.take(np.flatnonzero(MASK)))
    some = model.contributions(corpus, documents=documents)
    assert some.equals(model.contributions(corpus).take(np.flatnonzero(MASK)))
    if model.classes is not None:
        assert_array_equal(
            model.predict_proba(corpus, documents=documents), model.predict_proba(corpus)[MASK]
        )


def test_a_score_is_that_of_the_chosen_responses(model: Model, corpus: Corpus) -> None:
    blocks = [corpus.read(i).responses[model.response or ""] for i in range(corpus.n_partitions)]
    responses = np.concatenate(blocks)
    expected = model.score(corpus, np.where(MASK, responses, np.nan))
    assert model.score(corpus, documents=MASK) == expected
    assert model.score(corpus, responses, documents=np.flatnonzero(MASK)[::-1]) == expected
    with pytest.raises(InputError) as caught:
        model.score(corpus, responses[MASK], documents=MASK)
    assert "60" in caught.value.reason
    proportions = model.training_topic_proportions(corpus, responses, documents=MASK)
    assert_array_equal(proportions, model.training_topic_proportions(corpus, responses)[MASK])


def test_identifiers_are_those_of_all_documents(model: Model, corpus: Corpus) -> None:
    table = model.score_table(corpus, ids=(f"d{i}" for i in range(N)), documents=MASK)
    assert table["id"].to_pylist() == ["d3", "d4", "d18", "d40", "d41", "d59"]
    with pytest.raises(InputError) as caught:
        model.score_table(corpus, ids=["a"] * 6, documents=MASK)
    assert caught.value.parameter == "ids"


def test_partitions_without_a_chosen_document_are_not_read(
    model: Model, corpus: Corpus, tmp_path: Path
) -> None:
    shutil.copytree(corpus.path, tmp_path / "damaged.corpus")
    damaged = open_corpus(tmp_path / "damaged.corpus")
    first = corpus.partitions[0].n_documents
    shutil.rmtree(tmp_path / "damaged.corpus" / "counts" / "c" / "0")
    rows = np.arange(first, N)
    with pytest.raises(FormatError):
        model.predict(damaged)
    assert_array_equal(model.predict(damaged, documents=rows), model.predict(corpus)[first:])
    assert np.isfinite(model.score(damaged, documents=rows))


def test_a_wrong_choice_is_refused(model: Model, corpus: Corpus) -> None:
    for documents in ([N], [0, 0], [True], []):
        for method in (model.predict, model.score, model.transform, model.score_table, model.contributions):
            with pytest.raises(InputError) as caught:
                method(corpus, documents=documents)
            assert caught.value.parameter == "documents"
    for data in (["nut"], [{"text": "nut", "size": 1, "area": "north"}], np.ones((2, corpus.n_terms))):
        with pytest.raises(InputError) as caught:
            model.predict(data, documents=[0])
        assert caught.value.parameter == "documents"
