"""Several starts of a fit: their mean predicts, and the best of them is shown."""

from __future__ import annotations

import dataclasses
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

import dslda
from dslda.datasets.simulate import simulate_corpus
from dslda.engine.data.fit_source import CorpusSource
from dslda.evaluation.metrics import held_out
from dslda.evaluation.topic_stability import topic_stability
from dslda.exceptions import (
    ConvergenceWarning,
    DataWarning,
    FormatError,
    InputError,
    collecting_warnings,
    warn,
)
from dslda.model import Model, load_model
from dslda.prediction.predict import topic_shares
from dslda.prediction.record_counting import CountedBlock
from dslda.storage.location import Location
from dslda.training.stability import stability_of_starts
from dslda.training.train import train

N, N_TERMS, N_STARTS, SEED = 320, 100, 3, 8
BLOCK = simulate_corpus(N, 4, N_TERMS, mean_tokens=30, alpha=0.3, seed=2).block
COUNTS = csr_array((BLOCK.counts, BLOCK.terms, BLOCK.indptr), shape=(N, N_TERMS))
RESPONSE = BLOCK.responses["y"]
NAMES = np.array(["low", "middle", "high"])[np.digitize(RESPONSE, np.quantile(RESPONSE, [0.4, 0.7]))]


def fitted(**keywords: Any) -> Model:
    response = NAMES if keywords.get("family") == "categorical" else RESPONSE
    keywords = {"n_topics": 4, **keywords}
    with warnings.catch_warnings():
        # few iterations, since these tests need none that help
        warnings.simplefilter("ignore", ConvergenceWarning)
        return train(COUNTS, response=response, max_iter=12, hold_out=0.2, **keywords)


@pytest.fixture(scope="module")
def several() -> Model:
    return fitted(n_starts=N_STARTS, seed=SEED)


@pytest.fixture(scope="module")
def alone() -> list[Model]:
    return [fitted(seed=SEED + i) for i in range(N_STARTS)]


def shown_among(several: Model, alone: list[Model]) -> int:
    """Position of the start that a model shows."""
    same = [np.array_equal(several.topic_word, model.topic_word) for model in alone]
    assert sum(same) == 1
    return same.index(True)


def test_predictions_are_the_mean_of_fits_with_these_seeds(several: Model, alone: list[Model]) -> None:
    means = np.mean([model.predict(COUNTS) for model in alone], axis=0)
    assert_allclose(several.predict(COUNTS), means, rtol=1e-12)
    assert np.ptp([model.predict(COUNTS) for model in alone], axis=0).max() > 0.01


def test_the_start_shown_predicts_the_inner_part_best(several: Model, alone: list[Model]) -> None:
    gains = [np.nanmax(model.trace["inner_gain"]) for model in alone]
    best = shown_among(several, alone)
    assert best == int(np.argmax(gains))
    assert_array_equal(several.transform(COUNTS), alone[best].transform(COUNTS))
    assert several.coefficients() == alone[best].coefficients()
    assert several.trace.keys() == alone[best].trace.keys()
    assert_array_equal(several.trace["elbo"], alone[best].trace["elbo"])


def test_documents_kept_from_training_judge_the_mean(several: Model, alone: list[Model]) -> None:
    judged = several.training.held_out
    assert judged is not None
    values = [model.training.held_out.value for model in alone if model.training.held_out is not None]
    # the squared error of a mean is at most the mean of the squared errors
    assert judged.value > np.mean(values)


def test_the_stability_is_that_of_these_fits_on_the_documents_trained_on(
    several: Model, alone: list[Model]
) -> None:
    trained = np.flatnonzero(~held_out(N, 0.2))
    counted = CountedBlock(BLOCK.take(trained), np.zeros(len(trained), dtype=np.int64))
    starts = [(model.topic_word.T, topic_shares(model.scoring_record, counted)) for model in alone]
    shown = starts.pop(shown_among(several, alone))
    expected = topic_stability(*shown, starts)
    assert several.stability is not None
    assert_array_equal(several.stability.words, expected.words)
    assert_allclose(several.stability.shares, expected.shares, rtol=1e-12)
    assert [topic.stability for topic in several.topics()] == [
        several.stability.of_topics[topic.topic] for topic in several.topics()
    ]


def test_topics_that_the_documents_have_are_stable_and_far_too_many_are_not(
    several: Model, caplog: pytest.LogCaptureFixture
) -> None:
    assert several.stability is not None
    assert several.stability.of_topics.min() > 0.8
    caplog.set_level("INFO", "dslda")
    crowded = fitted(n_topics=20, n_starts=N_STARTS).stability
    assert crowded is not None
    assert crowded.unstable
    assert crowded.mean < several.stability.mean
    assert f"stability of the topics over 3 starts: {crowded.in_words}" in caplog.text


def test_one_start_or_one_topic_has_no_stability(alone: list[Model]) -> None:
    assert alone[0].stability is None
    assert {topic.stability for topic in alone[0].topics()} == {None}
    assert fitted(n_topics=1, n_starts=2).stability is None


def test_without_its_documents_a_fit_is_complete_but_for_its_stability(
    several: Model, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    terms = [f"w{i:03d}" for i in range(N_TERMS)]
    corpus = dslda.ingest(COUNTS, tmp_path / "c.corpus", vocabulary=terms, response={"y": RESPONSE})
    design = dataclasses.replace(several.record.design, response="y")
    source = CorpusSource(corpus, design=design, documents=~held_out(N, 0.2))
    found = stability_of_starts(several.record, source)
    assert found is not None
    assert several.stability is not None
    assert_array_equal(found.of_topics, several.stability.of_topics)
    shutil.rmtree(tmp_path / "c.corpus")
    assert stability_of_starts(several.record, source) is None
    assert "no stability of the topics: documents could not be read once more" in caplog.text


def test_the_joint_model_shows_the_start_of_the_highest_elbo() -> None:
    several = fitted(objective="joint", n_starts=2)
    alone = [fitted(objective="joint", seed=seed) for seed in range(2)]
    assert shown_among(several, alone) == int(np.argmax([model.trace["elbo"][-1] for model in alone]))
    means = np.mean([model.predict(COUNTS) for model in alone], axis=0)
    assert_allclose(several.predict(COUNTS), means, rtol=1e-12)


def test_topics_as_distributions_predict_by_their_weights_in_every_start() -> None:
    settings: dict[str, Any] = {"objective": "joint", "topic_estimation": "variational"}
    several = fitted(n_starts=2, **settings)
    alone = [fitted(seed=seed, **settings) for seed in range(2)]
    means = np.mean([model.predict(COUNTS) for model in alone], axis=0)
    assert_allclose(several.predict(COUNTS), means, rtol=1e-12)


@pytest.mark.parametrize("family", ["gaussian", "categorical"])
def test_a_saved_model_predicts_with_all_its_starts(
    family: str, several: Model, tmp_path: Path, assert_same: Callable[[Model, Model], None]
) -> None:
    model = several if family == "gaussian" else fitted(family=family, n_starts=2)
    model.save(tmp_path / "a.model")
    loaded = load_model(tmp_path / "a.model")
    assert_same(model, loaded)
    assert loaded.topics() == model.topics()
    assert_array_equal(loaded.predict(COUNTS), model.predict(COUNTS))
    if family == "categorical":
        alone = [fitted(family=family, seed=seed).predict_proba(COUNTS) for seed in range(2)]
        assert_allclose(loaded.predict_proba(COUNTS), np.mean(alone, axis=0), rtol=1e-12)


def test_earlier_releases_refuse_a_model_of_several_starts(several: Model, tmp_path: Path) -> None:
    several.save(tmp_path / "a.model")
    attributes = Location.of(tmp_path / "a.model").read_attributes()
    assert attributes["encoding-version"] == "3"
    fitted(seed=5).save(tmp_path / "b.model")
    assert Location.of(tmp_path / "b.model").read_attributes()["encoding-version"] == "2"


def test_a_damaged_start_is_told_by_its_array(several: Model, tmp_path: Path) -> None:
    several.save(tmp_path / "a.model")
    (chunk,) = (tmp_path / "a.model" / "start_2_eta" / "c").iterdir()
    chunk.write_bytes(bytes(byte ^ 1 for byte in chunk.read_bytes()))
    with pytest.raises(FormatError, match="start_2_eta"):
        load_model(tmp_path / "a.model")


def test_starts_go_on_from_their_checkpoints(
    several: Model, tmp_path: Path, assert_same: Callable[[Model, Model], None]
) -> None:
    class Stop(Exception):
        pass

    class StopsInTheSecondStart:
        """The progress of fits, the second of which fails in its third iteration."""

        n_starts = 0

        def started(self, *_: Any) -> None:
            self.n_starts += 1

        def iteration(self, record: Any) -> None:
            if self.n_starts == 2 and record.iteration == 3:
                raise Stop

        def resumed(self, trace: Any) -> None: ...
        def partition(self, n_documents: int) -> None: ...
        def __enter__(self) -> StopsInTheSecondStart:
            return self

        def __exit__(self, *_: Any) -> None: ...

    path = tmp_path / "fit"
    keywords: dict[str, Any] = {"n_starts": N_STARTS, "seed": SEED, "checkpoint": path}
    with pytest.raises(Stop):
        fitted(progress=StopsInTheSecondStart(), **keywords)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fit", "fit-start-2"]
    resumed = fitted(resume=True, **keywords)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fit", "fit-start-2", "fit-start-3"]
    assert_same(several, resumed)


def test_ctrl_c_keeps_the_starts_that_are_complete(
    alone: list[Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    from dslda.training import starts

    n = 0
    run = starts.Start.run

    def interrupted(self: Any, *arguments: Any, **keywords: Any) -> Any:
        nonlocal n
        n += 1
        if n == 3:
            raise KeyboardInterrupt
        return run(self, *arguments, **keywords)

    monkeypatch.setattr(starts.Start, "run", interrupted)
    model = fitted(n_starts=N_STARTS, seed=SEED)
    assert model.training.interrupted
    means = np.mean([each.predict(COUNTS) for each in alone[:2]], axis=0)
    assert_allclose(model.predict(COUNTS), means, rtol=1e-12)


@pytest.mark.parametrize("n_starts", [0, 101, 1.5, True])
def test_a_number_of_starts_out_of_range_is_refused(n_starts: Any) -> None:
    with pytest.raises(InputError, match="n_starts"):
        fitted(n_starts=n_starts)


def test_warnings_of_a_task_are_collected_and_not_shown() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with collecting_warnings() as collected:
            warn(DataWarning("three documents are empty"))
        assert [str(w) for w in collected] == ["three documents are empty"]
        with pytest.raises(DataWarning):
            warn(DataWarning("three documents are empty"))
