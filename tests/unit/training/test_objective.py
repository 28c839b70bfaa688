"""The objective that a fit chooses by itself: from its documents, their weights and their words."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import dslda
from dslda.engine.data.fit_source import FitSource
from dslda.exceptions import ConvergenceWarning, DataWarning, InputError
from dslda.model import Model
from dslda.training.objective import with_objective
from dslda.training.train import train
from tests.helpers.errors import refused

N = 300
RNG = np.random.default_rng(5)
RESPONSES = RNG.normal(size=N)
TEXTS = csr_array(RNG.poisson(0.4, size=(N, 30)))
ONE_WORD_EACH = csr_array(np.eye(N, dtype=np.int64))
ONE_TEXT, THREE_TEXTS = (csr_array(TEXTS.toarray()[np.arange(N) % n]) for n in (1, 3))


def trained(documents: Any, **settings: Any) -> Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", DataWarning)
        return train(documents, n_topics=2, max_iter=2, **settings)


def test_weights_of_zero_do_not_count_as_responses(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    classes = np.where(RESPONSES > 0.8, "rare", "usual")
    n_rare, weight = int((classes == "rare").sum()), (np.arange(N) < 100).astype(float)
    cases: list[tuple[int, dict[str, Any]]] = [
        (100, {"response": RESPONSES, "weight": weight}),
        (n_rare, {"response": classes, "family": "categorical", "class_weight": {"usual": 0.0}}),
    ]
    for n, settings in cases:
        caplog.clear()
        assert trained(TEXTS, **settings).spec.objective == "joint"
        assert (
            f"objective: joint ({n} documents with a response of weight above 0, fewer than 250)"
            in caplog.text
        )
    assert trained(TEXTS, response=RESPONSES, weight=weight + 0.5).spec.objective == "conditional"
    with refused("objective"):
        trained(TEXTS, response=RESPONSES, objective="conditional", weight=weight * (np.arange(N) < 49))


@pytest.mark.parametrize(
    "documents", [ONE_WORD_EACH, ONE_TEXT, THREE_TEXTS], ids=["one word each", "one text", "three texts"]
)
def test_documents_that_no_inner_part_can_judge_take_the_joint_model(
    documents: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    model = trained(documents, response=RESPONSES)
    assert model.spec.objective == "joint"
    (told,) = [message for message in caplog.messages if message.startswith("objective:")]
    assert "inner part" in told
    assert np.isfinite(model.predict(documents)).all()
    # settings of the other objective have nothing to fall back to, and the error says why
    with refused("emphasis") as caught:
        trained(documents, response=RESPONSES, emphasis="balance")
    assert "inner part" in str(caught.value)


@pytest.mark.parametrize("documents", [ONE_WORD_EACH, ONE_TEXT], ids=["one word each", "one text"])
def test_conditional_training_by_name_has_nothing_to_fall_back_to(documents: Any) -> None:
    with pytest.raises(InputError, match="inner part"):
        trained(documents, response=RESPONSES, objective="conditional")


@pytest.mark.parametrize("partition_tokens", [None, 100])
def test_words_of_other_partitions_are_known_to_the_inner_part(partition_tokens: int | None) -> None:
    """Every word is in two documents, far apart, which differ by its count; then in copies of one."""
    for counts, objective in (([1, 2], "conditional"), ([1, 1], "joint")):
        records = [
            {"words": [f"w{i % 150}"], "counts": [counts[i // 150]], "y": y} for i, y in enumerate(RESPONSES)
        ]
        corpus = dslda.ingest(
            records,
            words="words",
            counts="counts",
            response="y",
            min_df=1,
            max_df=1.0,
            partition_tokens=partition_tokens,
        )
        assert (corpus.n_partitions > 1) == (partition_tokens is not None)
        assert trained(corpus, response="y").spec.objective == objective


@pytest.mark.parametrize(("words_differ", "n_reads"), [(True, 1), (False, 3 * 6)])
def test_documents_are_read_once_for_both_ways_to_draw_the_inner_part(
    words_differ: bool, n_reads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = TEXTS.toarray() if words_differ else np.ones_like(TEXTS.toarray())
    records = [
        {"words": [f"w{t}" for t in np.flatnonzero(row)], "counts": row[row > 0].tolist(), "y": y}
        for row, y in zip(texts, RESPONSES, strict=True)
    ]
    columns: dict[str, Any] = {"words": "words", "counts": "counts", "response": "y"}
    corpus = dslda.ingest(
        records, **columns, min_df=1, max_df=1.0, partition_tokens=int(texts.sum()) // 6 + 30
    )
    assert corpus.n_partitions == 6
    reads, each = [], FitSource.each

    def counted(self: FitSource, function: Any) -> Any:
        def noted(block: Any, view: Any) -> Any:
            reads.append(view)
            return function(block, view)

        of_objective = getattr(function, "func", function).__module__ == with_objective.__module__
        return each(self, noted if of_objective else function)

    monkeypatch.setattr(FitSource, "each", counted)
    trained(corpus, response="y")
    assert len(reads) == n_reads
