"""Conditional training in one process: its parts of the documents, its predictions, and how it goes on."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array, hstack, vstack

import dslda
from dslda.corpus.store import Corpus
from dslda.datasets.simulate import simulate_corpus
from dslda.engine.conditional import recipe
from dslda.engine.conditional.conditional_fit import SLOPES, ConditionalFit, _highest
from dslda.engine.conditional.selection import ALL, Selection
from dslda.engine.conditional.work import InnerPass, LengthPass
from dslda.engine.data.hashes import document_hashes
from dslda.engine.data.training_view import TrainingBlock
from dslda.engine.em import Position
from dslda.evaluation.metrics import predictive_r2
from dslda.exceptions import ConvergenceWarning, DataWarning, EngineError, FormatError
from dslda.families.base import ResponseMoments
from dslda.families.gaussian import Gaussian
from dslda.families.own import compile_response
from dslda.families.registry import FAMILIES, get_family
from dslda.model import Model, load_model
from dslda.persistence.checkpoint_store import CheckpointStore, read_checkpoint
from dslda.training.train import train
from dslda.variational.estep import infer
from dslda.variational.parameter_parts import ParameterParts
from dslda.variational.parameters import FitSpec
from dslda.variational.term_weights import TermWeighting
from tests.helpers.errors import refused

N_TERMS = 300
SETTINGS: dict[str, Any] = {"n_topics": 4, "objective": "conditional", "seed": 2}
FAULT = 0.125


def simulated(n: int, seed: int = 3, **options: Any) -> Any:
    return simulate_corpus(n, 4, N_TERMS, mean_tokens=60, alpha=0.3, seed=seed, **options)


RESPONSES = simulated(1200).block.responses["y"]


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    """A corpus of several partitions in the memory of this process."""
    block = simulated(1200).block
    records = [
        {
            "words": [f"w{t}" for t in block.terms[a:b].tolist()],
            "counts": block.counts[a:b].tolist(),
            "y": float(y),
        }
        for y, a, b in zip(RESPONSES, block.indptr[:-1], block.indptr[1:], strict=True)
    ]
    return dslda.ingest(
        records, words="words", counts="counts", response="y", min_df=1, max_df=1.0, partition_tokens=10_000
    )


@pytest.fixture(scope="module")
def model(corpus: Corpus) -> Model:
    """Of all documents."""
    return train(corpus, **SETTINGS)


def block_of(n: int) -> TrainingBlock:
    block = simulated(n).block
    return TrainingBlock(block.indptr, block.terms, block.counts, block.responses["y"])


def rows(block: TrainingBlock) -> list[tuple[Any, ...]]:
    return [
        (*block.terms[a:b].tolist(), *block.counts[a:b].tolist(), y)
        for a, b, y in zip(block.indptr[:-1], block.indptr[1:], block.y, strict=True)
    ]


def test_every_document_is_in_one_part_and_in_one_slice() -> None:
    block = block_of(3000)
    inner, outer = Selection(True, 0.1), Selection(False, 0.1)
    everything = sorted(rows(block))
    assert sorted(rows(inner.of(block)) + rows(outer.of(block))) == everything == sorted(rows(ALL.of(block)))
    slices = [Selection(False, 0.1, (j, 7)).of(block) for j in range(7)]
    assert sorted(row for part in slices for row in rows(part)) == sorted(rows(outer.of(block)))
    # binomial, to 5 standard deviations
    assert inner.of(block).n_documents == pytest.approx(300, abs=5 * np.sqrt(3000 * 0.09))
    assert all(part.n_documents == pytest.approx(2700 / 7, abs=5 * 19.0) for part in slices)


def test_a_sample_is_drawn_from_a_part_and_knows_no_slices() -> None:
    block = block_of(3000)
    outer, sample = Selection(False, 0.1), Selection(False, 0.1, sample=0.3)
    assert set(rows(sample.of(block))) < set(rows(outer.of(block)))
    assert sample.of(block).n_documents == pytest.approx(810, abs=5 * 24.0)
    slices = [Selection(False, 0.1, (j, 5), 0.3).of(block).n_documents for j in range(5)]
    assert sum(slices) == sample.of(block).n_documents
    assert slices == pytest.approx([162] * 5, abs=5 * 12.0)


@pytest.mark.parametrize("share", [0.1, 0.137, 0.3])
def test_every_hundred_rows_give_their_share_to_every_part(share: float) -> None:
    block = block_of(800)
    drawn = [
        Selection(True, share),
        *(Selection(slice_of=(j, 20)) for j in range(20)),
        Selection(sample=share),
    ]
    wanted = [share, *[0.05] * 20, share]
    for part, own in zip(drawn, wanted, strict=True):
        counts = part.mask(block).reshape(8, 100).sum(axis=1)
        assert np.all(np.abs(counts - 100.0 * own) < 1.0)
        # and each of them by a lot of its own
        assert len({tuple(rows) for rows in part.mask(block).reshape(8, 100)}) == 8


def test_parts_know_nothing_of_one_another() -> None:
    block = block_of(20_000)
    inner, sample = Selection(True, 0.3).mask(block), Selection(sample=0.3).mask(block)
    numbers = np.array([Selection(slice_of=(j, 10)).mask(block) for j in range(10)]).argmax(axis=0)
    # the share of both, and of slices in a part, to 5 standard deviations of independent draws
    assert (inner & sample).mean() == pytest.approx(0.09, abs=5 * np.sqrt(0.09 * 0.91 / 20_000))
    assert numbers[inner].mean() == pytest.approx(4.5, abs=5 * np.sqrt(8.25 / 6000))


def test_documents_are_drawn_alike_however_they_are_cut() -> None:
    chosen = Selection(True, 0.3, (1, 3), 0.8)
    whole = block_of(1200)
    cut = [
        replace(block_of(1200).take(np.isin(np.arange(1200), own)), first_row=int(own[0]), numbers=None)
        for own in np.array_split(np.arange(1200), 7)
    ]
    drawn = chosen.mask(whole)
    assert np.array_equal(np.concatenate([chosen.mask(part) for part in cut]), drawn)
    kept = np.arange(1200) % 3 != 0
    assert np.array_equal(chosen.mask(whole.take(kept)), drawn[kept])


def test_copies_of_a_document_are_drawn_one_by_one_or_together() -> None:
    n = 3000
    same = TrainingBlock(np.arange(n + 1), np.zeros(n, np.int32), np.ones(n, np.int32), np.zeros(n))
    assert Selection(True, 0.1).of(same).n_documents == pytest.approx(300, abs=5 * np.sqrt(n * 0.09))
    assert Selection(True, 0.1, by_words=True).of(same).n_documents in (0, n)


@pytest.mark.parametrize(("n", "n_again", "share"), [(3000, 0, 0.0), (3000, 300, 0.1), (300, 300, 1.0)])
def test_the_share_of_documents_stored_again_is_known(n: int, n_again: int, share: float) -> None:
    block = block_of(n)
    again = np.flatnonzero(np.diff(block.indptr) > 0)[:n_again]
    parts = [block, block.take(np.isin(np.arange(n), again))]
    # the pass looks at the documents alone
    parameters, family = ParameterParts([]), get_family("gaussian")
    work = LengthPass(TermWeighting("sqrt"), n)
    first, second = (work(part, parameters, family, FitSpec()) for part in parts)
    # some thousand texts fall into the same bucket of 8,192 as another
    assert first.add(second).repeated_share == pytest.approx(share, abs=0.1)


@pytest.mark.parametrize("n_copies", [2, 4])
def test_noise_that_is_stored_again_is_not_learned(n_copies: int, caplog: pytest.LogCaptureFixture) -> None:
    n = 600
    y = np.random.default_rng(0).normal(size=2 * n)
    caplog.set_level(logging.INFO)
    counts = counts_of(2 * n)
    stored = csr_array(vstack([counts[:n]] * n_copies))
    model = train(stored, response=np.tile(y[:n], n_copies), n_topics=4, objective="conditional")
    assert "copies of them in one part" in caplog.text
    assert "words say nothing of" in caplog.text
    assert predictive_r2(y[n:], model.predict(counts[n:])) > -0.05


def test_a_hash_knows_the_words_and_not_their_order_or_place() -> None:
    indptr = np.array([0, 2, 4, 6, 8, 8])
    terms = np.array([5, 9, 9, 5, 5, 9, 5, 9], dtype=np.int32)
    counts = np.array([1, 2, 2, 1, 2, 1, 1, 3], dtype=np.int32)
    first, turned, other, third, empty = document_hashes(indptr, terms, counts).tolist()
    assert first == turned
    assert len({first, other, third, empty}) == 4


def test_it_predicts_better_than_the_joint_model(corpus: Corpus) -> None:
    kept = np.arange(1200) % 4 != 0
    r2 = {}
    for objective in ("joint", "conditional"):
        model = train(corpus, n_topics=4, documents=kept, objective=objective, seed=1)
        r2[objective] = predictive_r2(RESPONSES[~kept], model.predict(corpus)[~kept])
    assert r2["conditional"] > r2["joint"] - 0.02
    assert r2["conditional"] > 0.4


@pytest.mark.parametrize("n", [1, 3])
def test_predictions_know_no_neighbours(corpus: Corpus, model: Model, n: int) -> None:
    chosen = np.arange(0, 1200, 7)
    alone = np.concatenate([model.predict(corpus, documents=part) for part in np.array_split(chosen, n)])
    assert np.array_equal(alone, model.predict(corpus)[chosen])


def test_a_model_comes_back_from_its_directory(corpus: Corpus, model: Model, tmp_path: Path) -> None:
    loaded = load_model(model.save(tmp_path / "m"))
    assert loaded.record.spec == model.record.spec
    assert loaded.record.parameters.weighting == model.record.parameters.weighting
    assert loaded.record.parameters.weighting.name == "sqrt"
    assert np.array_equal(loaded.predict(corpus), model.predict(corpus))


class Stop(Exception):
    """The program ends here."""


class At:
    """Progress that raises an error after some documents."""

    def __init__(self, n_documents: int, error: Callable[[], BaseException]) -> None:
        self.left, self.error = n_documents, error

    def started(self, *_: Any) -> None: ...

    def resumed(self, trace: Any) -> None: ...

    def iteration(self, record: Any) -> None: ...

    def partition(self, n_documents: int) -> None:
        self.left -= n_documents
        if self.left < 0:
            self.left = 10**9
            raise self.error()

    def __enter__(self) -> At:
        return self

    def __exit__(self, *_: object) -> None: ...


def same(one: Model, two: Model) -> None:
    for name in ("topics", "alpha", "eta", "delta"):
        assert (
            getattr(one.record.parameters, name).tobytes() == getattr(two.record.parameters, name).tobytes()
        )
    assert np.array_equal(one.record.trace["elbo"], two.record.trace["elbo"])


@pytest.mark.parametrize("n_documents", [500, 6000, 15_000])
def test_a_fit_goes_on_anywhere_with_the_same_bits(
    corpus: Corpus, model: Model, tmp_path: Path, n_documents: int
) -> None:
    kept: dict[str, Any] = {"checkpoint": tmp_path / "c"}
    with pytest.raises(Stop):
        train(corpus, **SETTINGS, **kept, progress=At(n_documents, Stop))
    same(train(corpus, **SETTINGS, **kept, resume=True), model)
    same(train(corpus, **SETTINGS, **kept, resume=True), model)


OTHER_KINDS: dict[str, dict[str, Any]] = {
    "classes": {"response": np.digitize(RESPONSES, [-1.0, 1.0]).astype(str), "family": "categorical"},
    "counts": {"response": np.round(np.exp(0.3 * RESPONSES)), "family": "negative_binomial"},
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_every_kind_of_fit_goes_on_amid_an_epoch(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SETTINGS | OTHER_KINDS[kind] | {"covariates": {"x": np.arange(1200.0)}, "max_iter": 12}
    settings |= {"seed_words": {"one": ["w1", "w2"]}, "terms": [f"w{t}" for t in range(N_TERMS)]}
    kept: dict[str, Any] = {"checkpoint": tmp_path / "c"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = train(counts_of(1200), **settings)
        with monkeypatch.context() as patched, pytest.raises(Stop):
            train(counts_of(1200), **settings, **kept, progress=WithinEpoch(1200, patched))
        assert read_checkpoint(tmp_path / "c").parameters["state_numbers"][4] > 0.0
        same(train(counts_of(1200), **settings, **kept, resume=True), whole)


class WithinEpoch(At):
    """Progress that ends the program a few steps after the first epoch, each with a checkpoint."""

    def __init__(self, n_documents: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(10**9, Stop)
        self.n_documents, self.monkeypatch = n_documents, monkeypatch

    def iteration(self, record: Any) -> None:
        if not math.isnan(record.inner_gain):
            self.left = self.n_documents // 6
            self.monkeypatch.setattr("dslda.engine.driver.CHECKPOINT_SHARE", math.inf)


def test_a_checkpoint_of_an_earlier_version_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, settings = counts_of(300), SETTINGS | {"response": simulated(300).block.responses["y"]}
    with monkeypatch.context() as patched, pytest.raises(Stop):
        train(counts, **settings, checkpoint=tmp_path / "c", progress=WithinEpoch(300, patched))
    record = read_checkpoint(tmp_path / "c")
    states = [name for name in record.parameters if name.startswith("state_")]
    assert len(states) > 10
    without: list[tuple[str, dict[str, Any]]] = [
        (name, {n: array for n, array in record.parameters.items() if n != name}) for name in states
    ]
    of_other_shapes: list[tuple[str, dict[str, Any]]] = [
        (name, {**record.parameters, name: np.ones((2, *record.parameters[name].shape))}) for name in states
    ]
    of_none = {n: array for n, array in record.parameters.items() if n not in states}
    for i, (name, arrays) in enumerate([*without, *of_other_shapes, ("state_numbers", of_none)]):
        place = tmp_path / f"{i}"
        CheckpointStore(place).write(replace(record, parameters=arrays))
        with pytest.raises(FormatError, match=rf"{place}: .* another version of dslda: array '{name}'.*anew"):
            train(counts, **settings, checkpoint=place, resume=True)


def test_positions_are_copied_once_an_epoch_unless_they_are_written(
    corpus: Corpus, model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    position, taken = ConditionalFit.position, []

    def counted(self: ConditionalFit) -> Position:
        taken.append(len(self.trace))
        return position(self)

    monkeypatch.setattr(ConditionalFit, "position", counted)
    kept: dict[str, Any] = {"checkpoint": tmp_path / "c", "checkpoint_every": 1000}
    # amid the second epoch
    with pytest.raises(Stop):
        train(corpus, **SETTINGS, **kept, progress=At(12_000, Stop))
    assert taken == list(range(1, 11))
    assert read_checkpoint(tmp_path / "c").n_iterations == 10
    same(train(corpus, **SETTINGS, **kept, resume=True), model)
    assert taken == [*range(1, 11), *range(11, model.training.n_iterations + 1)]


class SinceLastIteration(At):
    """Progress that raises the error once so many documents have passed without an iteration's end."""

    def iteration(self, record: Any) -> None:
        self.left = 5000


@pytest.mark.parametrize(
    "progress", [At(16_000, KeyboardInterrupt), SinceLastIteration(5000, KeyboardInterrupt)]
)
def test_an_interrupt_keeps_the_best_epoch(corpus: Corpus, progress: At) -> None:
    model = train(corpus, n_topics=4, objective="conditional", progress=progress)
    assert model.words_beyond() == ()
    assert model.training.interrupted
    assert not model.training.converged
    assert np.isfinite(model.predict(corpus)).all()


def test_the_objective_is_chosen_by_the_documents_and_said(
    corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    few = np.arange(1200) < 200
    cases: list[tuple[dict[str, Any], str, str]] = [
        ({}, "conditional", "objective: conditional, for prediction (1,200 documents with a response)"),
        ({"documents": few}, "joint", "objective: joint (200 documents with a response, fewer than 250)"),
        ({"documents": few, "emphasis": "balance"}, "conditional", "(200 documents with a response)"),
        ({"response_weight": 2.0}, "joint", "objective: joint (response_weight belongs to it)"),
        ({"tol": 1e-3, "granularity": "token"}, "joint", "(granularity and tol belong to it)"),
    ]
    for settings, objective, said in cases:
        caplog.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = train(corpus, n_topics=3, max_iter=3, **settings)
        assert model.spec.objective == objective
        assert said in caplog.text


@pytest.mark.parametrize(
    ("settings", "parameter"),
    [
        ({"objective": "conditional", "response_weight": 2.0}, "response_weight"),
        ({"objective": "conditional", "doc_topic_prior": "asymmetric"}, "doc_topic_prior"),
        ({"objective": "joint", "emphasis": "balance"}, "emphasis"),
        ({"objective": "joint", "term_weights": "raw"}, "term_weights"),
        ({"objective": "joint", "remainder": False}, "remainder"),
        ({"remainder": "yes"}, "remainder"),
        ({"objective": "conditional", "max_iter": 1}, "max_iter"),
        ({"objective": "best"}, "objective"),
        ({"emphasis": "words"}, "emphasis"),
    ],
)
def test_settings_of_the_other_objective_are_refused(
    corpus: Corpus, settings: dict[str, Any], parameter: str
) -> None:
    with refused(parameter):
        train(corpus, **settings)


def test_too_few_documents_are_refused(corpus: Corpus) -> None:
    with refused("objective"):
        train(corpus, n_topics=2, objective="conditional", documents=np.arange(40))


def test_emphasis_moves_the_topics_apart(corpus: Corpus) -> None:
    affinity = {}
    for emphasis in ("themes", "prediction"):
        topics = train(corpus, n_topics=4, emphasis=emphasis, seed=5).record.parameters.topics
        roots = np.sqrt(topics)
        affinity[emphasis] = float((roots.T @ roots)[np.triu_indices(4, 1)].mean())
    assert affinity["themes"] < affinity["prediction"]


def test_scale_and_shift_of_the_response_are_those_of_the_predictions() -> None:
    y = simulated(700).block.responses["y"]
    counts = counts_of(700)
    settings: dict[str, Any] = {"n_topics": 3, "objective": "conditional"}
    one = train(counts, response=y, **settings).predict(counts)
    for scale in (1000.0, 1e-3):
        two = train(counts, response=scale * y + 50.0, **settings).predict(counts)
        assert_allclose(two, scale * one + 50.0, rtol=1e-6)


def counts_of(n: int, seed: int = 3) -> Any:
    block = simulated(n, seed).block
    return csr_array((block.counts, block.terms, block.indptr), shape=(n, N_TERMS))


def test_a_start_from_a_sample_knows_the_terms_of_all_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    rare = csr_array((np.ones(40, dtype=np.int32), (np.arange(40) * 30, np.arange(40))), shape=(1200, 45))
    counts = hstack([counts_of(1200), rare]).tocsr()
    whole = train(counts, response=RESPONSES, **SETTINGS)
    monkeypatch.setattr(recipe, "START_DOCUMENTS", 200)
    model = train(counts, response=RESPONSES, **SETTINGS)
    weights = model.topic_word[:, N_TERMS:]
    assert (weights[:, :40] > 0.0).all()
    assert (weights[:, 40:] == 0.0).all()
    assert_allclose(model.topic_word.sum(axis=1), 1.0)
    # the start of another number of documents has an objective of the same scale
    assert model.trace["elbo"][0] != whole.trace["elbo"][0]
    assert model.trace["elbo"][0] == pytest.approx(whole.trace["elbo"][0], rel=0.1)


def responses_of(family: str, omega: np.ndarray, rng: np.random.Generator) -> Any:
    """Responses of a family that depend on omega, of mean 0 and variance 1."""
    n, mean = len(omega), np.exp(0.5 * omega)
    return {
        "gaussian": lambda: omega + rng.normal(size=n),
        "student_t": lambda: omega + rng.standard_t(4, n),
        "poisson": lambda: rng.poisson(2.0 * mean).astype(float),
        "negative_binomial": lambda: rng.negative_binomial(2, 1.0 / (1.0 + mean)).astype(float),
        "binomial": lambda: (rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * omega))).astype(float),
        "categorical": lambda: np.array(["low", "middle", "high"])[np.digitize(omega, [-0.5, 0.5])],
        "ordinal": lambda: np.digitize(omega + 0.5 * rng.normal(size=n), [-0.7, 0.0, 0.7]).astype(float),
        "gamma": lambda: rng.gamma(3.0, mean / 3.0),
        "inverse_gaussian": lambda: rng.wald(mean, 2.0 * mean),
        "weibull": lambda: mean * rng.weibull(1.5, n),
        "beta": lambda: np.clip(rng.beta(4.0 * mean / (1.0 + mean), 4.0 / (1.0 + mean)), 1e-6, 1.0 - 1e-6),
    }[family]()


def test_training_goes_on_where_the_start_predicts_best(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = ConditionalFit._judge

    def judged(self: ConditionalFit, epoch: int) -> float:
        gain = judge(self, epoch)
        if epoch == 0:
            self._peak += 1.0
        return gain

    monkeypatch.setattr(ConditionalFit, "_judge", judged)
    model = train(counts_of(900), response=simulated(900).block.responses["y"], objective="conditional")
    gains = model.trace["inner_gain"]
    epochs = gains[~np.isnan(gains)]
    assert len(epochs) > recipe.PATIENCE
    assert len(epochs) == 1 + np.argmax(epochs) + recipe.PATIENCE or len(epochs) == recipe.EPOCHS


@pytest.mark.parametrize("family", ["poisson", "binomial", "ordinal", "weibull", "categorical"])
def test_epochs_are_compared_by_what_the_inner_part_has(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    judge, gains, values = ConditionalFit._judge, [], []

    def judged(self: ConditionalFit, epoch: int) -> float:
        gain = judge(self, epoch)
        if self._recipe.inner_share:
            own = self._run(self.parameters, InnerPass(self._recipe.inner, self._center, SLOPES))
            gains.append(gain)
            values.append(_highest(SLOPES, own.log_likelihood / own.weight)[1])
        return gain

    monkeypatch.setattr(ConditionalFit, "_judge", judged)
    y = responses_of(family, simulated(900).block.responses["y"], np.random.default_rng(3))
    train(counts_of(900), response=y, family=family, n_topics=4, objective="conditional", max_iter=16)
    assert len(gains) > 3
    # as many epochs have other means of the linear predictors, which predict the mean response less well
    assert_allclose(np.diff(gains), np.diff(values), atol=1e-9)
    assert min(gains) > 0.0


@pytest.mark.parametrize("n_epochs", [0, 2])
def test_a_start_that_is_kept_is_told_in_words(
    n_epochs: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    best_has_epoch(n_epochs, monkeypatch)
    train(counts_of(400), response=simulated(400).block.responses["y"], n_topics=3, seed=1)
    again = [line for line in caplog.messages if "on all documents" in line or "from all documents" in line]
    expected = "the start predicts best: it is made once more, from all documents"
    assert again == [f"training once more on all documents, for {n_epochs} epochs" if n_epochs else expected]


@pytest.mark.parametrize(
    ("n_documents", "kept"), [(10_800, "the start"), (12_000, "the start, which predicts best")]
)
def test_an_interrupted_fit_says_that_it_keeps_the_start(
    corpus: Corpus,
    n_documents: int,
    kept: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    best_has_epoch(0, monkeypatch)
    train(corpus, **SETTINGS, progress=At(n_documents, KeyboardInterrupt))
    assert f"interrupted: keeping {kept}" in caplog.messages


def best_has_epoch(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the inner part find the n-th epoch best; the start is the one before the first."""
    judge = ConditionalFit._judge

    def judged(self: ConditionalFit, epoch: int) -> float:
        gain = judge(self, epoch)
        if epoch == n:
            self._peak += 10.0
        return gain

    monkeypatch.setattr(ConditionalFit, "_judge", judged)


@pytest.mark.parametrize(("n_topics", "said"), [(2, True), (3, False)])
def test_fewer_topics_than_classes_are_said(
    n_topics: int, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    y = responses_of("categorical", simulated(900).block.responses["y"], np.random.default_rng(4))
    options: dict[str, Any] = {"family": "categorical", "objective": "conditional"}
    train(counts_of(900), response=y, n_topics=n_topics, **options)
    assert (f"{n_topics} topics for 3 classes" in caplog.text) == said


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_learns_from_words_alone(family: str) -> None:
    rng = np.random.default_rng(4)
    n = 900
    counts, omega = counts_of(n), simulated(n).block.responses["y"]
    omega = (omega - omega.mean()) / omega.std()
    y = responses_of(family, omega, rng)
    kept = np.arange(n) % 3 != 0
    model = train(
        counts, response=y, family=family, n_topics=4, documents=kept, objective="conditional", seed=3
    )
    assert model.record.trace["inner_gain"][-1] > 0.0
    if family == "categorical":
        right = np.mean(model.predict(counts)[~kept] == y[~kept])
        assert right > np.unique(y[~kept], return_counts=True)[1].max() / np.count_nonzero(~kept)
        assert all(row.conditional_error is not None for row in model.coefficients())
        return
    predicted = model.predict(counts)[~kept]
    assert np.isfinite(predicted).all()
    assert np.corrcoef(predicted, omega[~kept])[0, 1] > 0.5
    assert all(row.conditional_error is not None for row in model.coefficients())
    table = model.contributions(counts, relative=False).to_pandas()
    added = [name for name in table.columns if name.startswith(("topic_", "words_beyond_"))]
    assert_allclose(table[added].sum(axis=1), table["linear_predictor"], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    ("family", "truth", "draw"),
    [
        ("negative_binomial", 1.0, lambda mean, rng: rng.negative_binomial(1.0, 1.0 / (1.0 + 20.0 * mean))),
        ("gamma", 1.0 / 3.0, lambda mean, rng: rng.gamma(3.0, mean / 3.0)),
        ("inverse_gaussian", 0.7, lambda mean, rng: rng.wald(mean, 1.0 / 0.7)),
        ("weibull", 1.5, lambda mean, rng: mean * rng.weibull(1.5, len(mean))),
        (
            "beta",
            4.0,
            lambda mean, rng: rng.beta(4.0 * mean / (1.0 + mean), 4.0 / (1.0 + mean)).clip(1e-6, 1 - 1e-6),
        ),
    ],
)
def test_the_scatter_of_a_family_is_that_around_what_words_predict(
    family: str, truth: float, draw: Any
) -> None:
    n = 2500
    counts, omega = counts_of(n), simulated(n).block.responses["y"]
    mean = np.exp(0.5 * (omega - omega.mean()) / omega.std())
    y = draw(mean, np.random.default_rng(4)).astype(float)
    model = train(counts, response=y, family=family, n_topics=4, objective="conditional")
    assert model.dispersion == pytest.approx(truth, rel=0.25)


def test_covariates_exposure_weights_and_missing_responses_take_part() -> None:
    rng = np.random.default_rng(5)
    n = 900
    counts, omega = counts_of(n), simulated(n).block.responses["y"]
    omega = 0.5 * (omega - omega.mean()) / omega.std()
    size, days = rng.normal(size=n), rng.uniform(1.0, 5.0, n)
    y = rng.poisson(days * np.exp(omega + 0.7 * size)).astype(float)
    y[::10] = np.nan
    weight = np.where(np.arange(n) % 7 == 0, 0.0, 1.0)
    model = train(
        counts,
        response=y,
        family="poisson",
        n_topics=4,
        covariates={"size": size},
        exposure=days,
        weight=weight,
        objective="conditional",
    )
    (row,) = model.covariate_coefficients()
    assert row.coefficient == pytest.approx(0.7, abs=0.15)
    assert model.training.n_labelled == np.count_nonzero(~np.isnan(y))


@pytest.mark.filterwarnings("ignore:the response scatters")
@pytest.mark.parametrize(
    ("family", "draw", "seed"),
    [
        ("gaussian", lambda rng, n: rng.normal(size=n), 6),
        # ratios of likelihoods are some six times as large by chance
        ("poisson", lambda rng, n: rng.negative_binomial(1.0, 1.0 / 6.0, size=n).astype(float), 9),
    ],
)
def test_noise_is_not_learned_and_is_said(
    family: str, draw: Any, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    n = 2000
    y = draw(np.random.default_rng(seed), n)
    kept = np.arange(n) % 2 == 0
    model = train(
        counts_of(n), response=y, family=family, n_topics=4, documents=kept, objective="conditional"
    )
    assert predictive_r2(y[~kept], model.predict(counts_of(n))[~kept]) > -0.1
    assert "words say nothing of" in caplog.text


@pytest.mark.filterwarnings("ignore:the response")
@pytest.mark.parametrize(("strength", "said"), [(0.5, False), (0.0, True)])
@pytest.mark.parametrize("seed", [0, 6])
def test_one_response_beyond_all_others_hides_neither_words_nor_noise(
    strength: float, said: bool, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    rng, n = np.random.default_rng(seed), 600
    omega = simulated(n, seed).block.responses["y"]
    omega = (omega - omega.mean()) / omega.std()
    y = rng.poisson(5.0 * np.exp(strength * omega)).astype(float)
    y[rng.integers(n)] = 2000.0
    train(counts_of(n, seed), response=y, family="poisson", n_topics=4, objective="conditional")
    assert ("words say nothing of" in caplog.text) == said


def test_a_gradient_that_is_not_finite_is_left_out_and_said(caplog: pytest.LogCaptureFixture) -> None:
    block = block_of(40)
    from dslda.families.registry import get_family
    from dslda.variational.conditional.gradient import conditional_statistics
    from dslda.variational.conditional.posterior import WeightedDocuments
    from tests.helpers.problems import random_parameters

    parameters = random_parameters(np.random.default_rng(1), N_TERMS, 3, alpha=1.0)
    y = block.y.copy()
    y[5] = np.inf
    documents = WeightedDocuments.of(block.indptr, block.terms, block.counts, parameters)
    statistics = conditional_statistics(
        documents, y, parameters, family=get_family("gaussian"), max_sweeps=50
    )
    assert (statistics.n_without_gradient, statistics.first_without_gradient) == (1, 5)
    for name in ("gradient", "score", "information", "profile", "squared_slopes"):
        assert np.isfinite(getattr(statistics, name)).all()


def test_a_gradient_beside_which_words_are_lost_is_refused() -> None:
    y, weight = simulated(400).block.responses["y"], np.ones(400)
    # the other responses are then as many standard deviations from the mean as a double can tell
    weight[5] = 1e150
    with pytest.raises(EngineError, match="the gradient must be finite and leave the words their weight"):
        train(counts_of(400), response=y, weight=weight, **SETTINGS)


class Faulty(Gaussian):
    """A family whose derivative is not finite at one response."""

    name = "faulty"

    @staticmethod
    @compile_response
    def first_derivative(y, omega, delta, aux):  # type: ignore[no-untyped-def]
        return math.nan if y == FAULT else (y - omega) / delta[0]

    def scaling(self, moments: ResponseMoments) -> tuple[float, float]:
        return 0.0, 1.0


def test_the_first_document_without_a_gradient_is_named_and_the_fit_goes_on(corpus: Corpus) -> None:
    y = (RESPONSES - RESPONSES.mean()) / RESPONSES.std()
    kept = np.arange(1200) % 7 != 0
    block = simulated(1200).block
    # the first one trains; some of the others judge
    part = Selection(True, 0.3)
    trains = kept & ~part.mask(block_of(1200))
    first = 700 + int(trains[700:720].argmax())
    y[first:720] = FAULT
    records = [
        {
            "words": [f"w{t}" for t in block.terms[a:b].tolist()],
            "counts": block.counts[a:b].tolist(),
            "y": float(value),
            "name": f"letter {row}",
        }
        for row, (value, a, b) in enumerate(zip(y, block.indptr[:-1], block.indptr[1:], strict=True))
    ]
    columns: dict[str, Any] = {
        "words": "words",
        "counts": "counts",
        "response": "y",
        "min_df": 1,
        "max_df": 1.0,
    }
    named = dslda.ingest(records, **columns, id="name", partition_tokens=10_000)
    assert named.n_partitions > 3
    for documents, name in ((named, f"document 'letter {first}'"), (counts_of(1200), f"document {first} (")):
        own = {} if documents is named else {"response": y}
        with pytest.warns(DataWarning, match="derivatives are not finite") as warned:
            model = train(
                documents, **own, family=Faulty(), n_topics=3, documents=kept, objective="conditional", seed=1
            )
        assert [str(warning.message) for warning in warned if name not in str(warning.message)] == []
        assert np.isfinite(model.predict(documents)).all()


def test_conditional_errors_are_those_of_the_ridge_regression_on_the_mean_assignments() -> None:
    n = 800
    counts, y = counts_of(n), simulated(n).block.responses["y"]
    model = train(counts, response=y, n_topics=4, remainder=False, ridge=0.5, seed=1)
    record = model.record
    block = simulated(n).block
    zbar = infer(block.indptr, block.terms, block.counts, record.parameters, spec=record.spec)
    z = (zbar.gamma - record.parameters.alpha) / zbar.length[:, np.newaxis]
    scaled = (y - y.mean()) / y.std()
    delta = float(np.mean((scaled - z @ record.parameters.eta) ** 2))
    assert float(record.parameters.delta[0]) == pytest.approx(max(delta, 0.1), rel=1e-6)
    precision = 0.5 * (np.eye(4) - 0.25)
    expected = np.linalg.inv(z.T @ z / max(delta, 0.1) + precision)
    errors = np.array(
        [row.conditional_error for row in sorted(model.coefficients(), key=lambda row: row.topic)]
    )
    assert_allclose(errors, y.std() * np.sqrt(np.diag(expected)), rtol=1e-6)


@pytest.mark.parametrize("n", [400, 2400])
def test_training_on_all_documents_keeps_the_mean_of_the_response(n: int) -> None:
    # of one term no topic says anything, so the stretch of the inner part is arbitrary
    rng = np.random.default_rng(0)
    counts = csr_array(1 + rng.poisson(2.0, (n, 1)).astype(np.int32))
    y = rng.normal(2.0, 1.0, n)
    model = train(counts, response=y, n_topics=5, objective="conditional")
    assert_allclose(model.predict(counts), y.mean(), atol=0.01)


def test_only_the_last_epochs_learn_of_the_inner_part(monkeypatch: pytest.MonkeyPatch) -> None:
    block = block_of(2400)
    counts = csr_array((block.counts, block.terms, block.indptr), shape=(2400, N_TERMS))
    inner = np.flatnonzero(Selection(True, recipe.LEAST_INNER).mask(block))
    order = inner[np.argsort(block.y[inner])]
    swapped = block.y.copy()
    # two that differ little, so that the same epoch is the best
    swapped[order[[100, 120]]] = block.y[order[[120, 100]]]

    def moved() -> float:
        """How far the swap moves the topics."""
        topics = [
            train(counts, response=y, n_topics=4, objective="conditional", remainder=False).topic_word
            for y in (block.y, swapped)
        ]
        return float(np.abs(topics[1] - topics[0]).max())

    of = recipe.Recipe.of

    def without_the_last(*args: Any, **keywords: Any) -> recipe.Recipe:
        return replace(of(*args, **keywords), last_epochs=0)

    assert moved() > 1e-8
    monkeypatch.setattr(recipe.Recipe, "of", without_the_last)
    # the sums that scale the response round anew
    assert moved() < 1e-12
