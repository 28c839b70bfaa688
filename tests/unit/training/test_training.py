"""Training: one function of documents and settings, whatever the documents come from."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import warnings
from dataclasses import replace
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from dslda.array_inputs import matrix_block
from dslda.corpus.store import Corpus
from dslda.datasets import simulate_corpus
from dslda.engine.em import IterationRecord
from dslda.engine.executor import SerialExecutor
from dslda.engine.passes import CoOccurrencePass
from dslda.exceptions import ConvergenceWarning, DataWarning, InputError
from dslda.families.registry import get_family
from dslda.ingestion.ingest import ingest
from dslda.model import Model, load_model
from dslda.prediction.predict import topic_proportions
from dslda.training.train import train
from dslda.variational.estep import e_step, infer
from dslda.variational.mstep import objective
from dslda.variational.topics import in_e_step
from tests.helpers.progress import AtPartition, interrupt

K, V, D = 3, 60, 120
TERMS = [f"w{t:02d}" for t in range(V)]


@pytest.fixture(scope="module")
def simulated() -> tuple[sparse.csr_array, np.ndarray]:
    drawn = simulate_corpus(D, K, V, mean_tokens=40, seed=3, missing=0.1)
    block = drawn.block
    return sparse.csr_array((block.counts, block.terms, block.indptr), shape=(D, V)), block.responses["y"]


@pytest.fixture(scope="module")
def corpus(
    simulated: tuple[sparse.csr_array, np.ndarray], tmp_path_factory: pytest.TempPathFactory
) -> Corpus:
    """In one partition, which is fitted in this process."""
    counts, y = simulated
    path = tmp_path_factory.mktemp("training") / "one.corpus"
    response = {"y": y, "other": np.arange(D, dtype=float), "flat": np.where(y > 0, 1.0, np.nan)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        return ingest(
            counts, path, vocabulary=TERMS, response={k: v for k, v in response.items() if k != "flat"}
        )


def assert_same_bits(one: Model, other: Model) -> None:
    for name in ("topics", "alpha", "eta"):
        assert (
            getattr(one.record.parameters, name).tobytes() == getattr(other.record.parameters, name).tobytes()
        )
    assert one.record.parameters.delta.tobytes() == other.record.parameters.delta.tobytes()
    assert one.trace["elbo"].tobytes() == other.trace["elbo"].tobytes()
    assert one.record.covariance.tobytes() == other.record.covariance.tobytes()
    assert one.record.scaling == other.record.scaling


def test_store_path_and_matrix_give_the_same_bits(
    simulated: tuple[sparse.csr_array, np.ndarray], corpus: Corpus
) -> None:
    counts, y = simulated
    model = train(corpus, response="y", n_topics=K)
    assert_same_bits(train(corpus.path, response="y", n_topics=K), model)
    assert_same_bits(train(counts, response=y, terms=TERMS, n_topics=K), model)
    assert model.record.corpus_hash == corpus.content_hash
    assert model.vocabulary == corpus.vocabulary
    assert model.training.n_labelled == int((~np.isnan(y)).sum()) < model.training.n_documents == D


def test_a_model_of_topics_that_are_distributions(
    simulated: tuple[sparse.csr_array, np.ndarray], tmp_path: Path
) -> None:
    """Users see means; documents are scored as in training, by the expected logarithms, loaded from a file or not."""
    counts, y = simulated
    model = train(counts, response=y, n_topics=K, topic_estimation="variational")
    parameters, block = model.record.parameters, matrix_block(counts)
    assert parameters.concentration is not None
    assert_allclose(model.topic_word.sum(axis=1), 1.0, rtol=1e-12)
    n_seen = len(np.unique(counts.indices))
    assert n_seen < V
    assert_allclose(parameters.concentration.sum(), counts.sum() + 0.01 * K * n_seen, rtol=1e-12)
    found = infer(block.indptr, block.terms, block.counts, in_e_step(parameters), spec=model.spec)
    predicted = model.record.scaling.to_user(found.mean)
    assert_allclose(model.predict(counts), predicted, rtol=1e-12)
    by_means = infer(
        block.indptr, block.terms, block.counts, replace(parameters, concentration=None), spec=model.spec
    )
    assert np.abs(by_means.mean - found.mean).max() > 1e-3
    assert_allclose(model.transform(counts), topic_proportions(found), rtol=1e-12)
    seen = model.training_topic_proportions(counts, y)
    loaded = load_model(model.save(tmp_path / "m.model"))
    assert loaded.record.parameters.concentration.tobytes() == parameters.concentration.tobytes()
    assert loaded.predict(counts).tobytes() == model.predict(counts).tobytes()
    assert loaded.training_topic_proportions(counts, y).tobytes() == seen.tobytes()
    # the last value of the trace is that of the loaded model
    labels = loaded.record.design.to_model(y)
    family = get_family("gaussian")
    statistics = e_step(
        block.indptr,
        block.terms,
        block.counts,
        labels,
        loaded.record.parameters,
        family=family,
        spec=loaded.spec,
    )
    elbo = objective(statistics, loaded.record.parameters, family=family, spec=loaded.spec)
    assert elbo == pytest.approx(model.trace["elbo"][-1], rel=1e-12)


@pytest.mark.filterwarnings("ignore::dslda.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("weight", [0.3, 8.0])
def test_another_response_weight_has_coefficients_errors_and_prevalences_of_words_alone(
    simulated: tuple[sparse.csr_array, np.ndarray], weight: float
) -> None:
    counts, y = simulated
    model = train(counts, response=y, n_topics=K, response_weight=weight, max_iter=12)
    parameters, block = model.record.parameters, matrix_block(counts)
    statistics = e_step(
        block.indptr,
        block.terms,
        block.counts,
        model.record.design.to_model(y),
        parameters,
        family=get_family("gaussian"),
        spec=model.spec,
        words_alone=True,
    )
    assert_allclose(statistics.score, 0.0, atol=1e-8 * np.abs(statistics.information @ parameters.eta).max())
    assert_allclose(model.record.covariance, np.linalg.inv(statistics.information), rtol=1e-6)
    shares = statistics.topic_counts.sum(axis=0)
    assert_allclose(model.record.prevalence, shares / shares.sum(), rtol=1e-12)


@pytest.mark.slow
def test_store_and_bag_on_a_cluster_give_the_same_bits_and_leave_the_client_open(
    simulated: tuple[sparse.csr_array, np.ndarray], tmp_path: Path
) -> None:
    import dask.bag
    from distributed import wait

    from dslda.cluster.opening import ClusterOptions, cluster

    counts, y = simulated
    records = [
        {
            "words": [TERMS[t] for t in counts[[d]].indices],
            "counts": counts[[d]].data.tolist(),
            "y": None if np.isnan(y[d]) else float(y[d]),
        }
        for d in range(D)
    ]
    bag = dask.bag.from_sequence(records, npartitions=4)
    reading = {"words": "words", "counts": "counts", "partition_tokens": 500}
    stored = ingest(bag, tmp_path / "bag.corpus", response="y", min_df=2, max_df=0.9, **reading)
    assert stored.n_partitions > 2
    settings = {"response": "y", "n_topics": K, "max_iter": 5, "tol": 0.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        with cluster(options=ClusterOptions(workers=2, threads=1)) as client:
            from_store = train(stored, client=client, **settings)
            reading |= {"min_df": 2, "max_df": 0.9}
            from_bag = train(bag, client=client, **reading, **settings)
            kept = settings | {"checkpoint": tmp_path / "c", "client": client}
            train(bag, **reading, **kept | {"max_iter": 3})
            resumed = train(bag, **reading, **kept, resume=True)
            shorter = dask.bag.from_sequence(records[:-1], npartitions=4)
            with pytest.raises(
                InputError,
                match="documents, response or columns\\) have changed: 120 documents then, 119 now",
            ):
                train(shorter, **reading, **kept, resume=True)
            wait(client.submit(sum, [1, 2]))  # still ours
            with pytest.raises(InputError, match="is missing in all"):
                train(bag, client=client, **reading, **(settings | {"response": "stars"}))
        own = train(stored, **settings)
    assert_same_bits(from_store, own)
    assert_same_bits(from_bag, own)
    assert_same_bits(resumed, own)
    assert resumed.trace["elbo"].tobytes() == own.trace["elbo"].tobytes()
    assert from_bag.vocabulary == stored.vocabulary
    assert from_bag.text_settings == stored.text_settings
    for model in (from_store, from_bag, resumed):
        assert model.training.oov_share == stored.oov_share is not None
        assert model.training.new_share == stored.new_share is not None
        assert model.record.too_frequent == stored.too_frequent


def test_documents_left_out_are_left_out(
    simulated: tuple[sparse.csr_array, np.ndarray], corpus: Corpus
) -> None:
    counts, y = simulated
    rows = np.flatnonzero(np.arange(D) % 5)
    by_rows = train(corpus, response="y", n_topics=K, documents=rows)
    by_mask = train(corpus, response="y", n_topics=K, documents=np.arange(D) % 5 > 0)
    alone = train(counts[rows], response=y[rows], n_topics=K)
    assert by_rows.training.oov_share == corpus.oov_share  # of all documents
    assert alone.training.oov_share is None
    assert_same_bits(by_rows, by_mask)
    assert by_rows.training.n_documents == len(rows)
    assert by_rows.response_summary == alone.response_summary
    assert_allclose(by_rows.predict(counts), alone.predict(counts), rtol=1e-9)


@pytest.mark.parametrize("estimation", ["map", "variational"])
def test_the_topics_are_measured_on_the_documents_of_the_fit(
    simulated: tuple[sparse.csr_array, np.ndarray], tmp_path: Path, estimation: str
) -> None:
    """With and without a response; those kept out are not among them, and others count by their weights."""
    counts, y = simulated
    weight = np.arange(D) % 3
    kept = np.arange(D) % 5 > 0
    settings = {"n_topics": K, "topic_estimation": estimation, "weight": weight, "documents": kept}
    model = train(counts, response=y, **settings)
    rows = np.repeat(np.flatnonzero(kept), weight[kept])
    holds = counts[rows].toarray() > 0
    for topic in model.topics():
        words = [int(word) for word in topic.words]
        values = []
        for i, j in combinations(words, 2):
            p, q, both = (np.mean(held) for held in (holds[:, i], holds[:, j], holds[:, i] & holds[:, j]))
            values.append(np.log(both / p / q) / -np.log(both) if both else -1.0)
        assert topic.coherence == pytest.approx(np.mean(values), rel=1e-9)
        shares = [model.topic_word[topic.topic, word] / model.topic_word[:, word].sum() for word in words]
        assert topic.exclusivity == pytest.approx(np.mean(shares[:8]), rel=1e-9)
    distinct = {word for topic in model.topics(top=8) for word in topic.words}
    assert model.quality.distinct_share == len(distinct) / (8 * K)
    loaded = load_model(model.save(tmp_path / "a.model"))
    assert loaded.topics() == model.topics()
    assert loaded.quality.distinct_share == model.quality.distinct_share


def test_a_fit_whose_documents_cannot_be_read_once_more_is_a_model_without_measures_of_its_topics(
    simulated: tuple[sparse.csr_array, np.ndarray],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    counts, y = simulated
    whole = train(counts, response=y, n_topics=K)
    run = SerialExecutor.run

    def failing(self: SerialExecutor, parameters: Any, work: Any, **keywords: Any) -> Any:
        if isinstance(work, CoOccurrencePass):
            raise OSError("the disk is gone")
        return run(self, parameters, work, **keywords)

    monkeypatch.setattr(SerialExecutor, "run", failing)
    model = train(counts, response=y, n_topics=K)
    assert model.quality is None
    assert "could not be read once more (the disk is gone)" in caplog.text
    assert {(topic.coherence, topic.exclusivity) for topic in model.topics()} == {(None, None)}
    assert_same_bits(model, whole)


def test_the_last_elbo_is_that_of_the_model(simulated: tuple[sparse.csr_array, np.ndarray]) -> None:
    counts, y = simulated
    model = train(counts, response=y, n_topics=K)
    block, record = matrix_block(counts), model.record
    statistics = e_step(
        block.indptr,
        block.terms,
        block.counts,
        record.scaling.to_model(y),
        record.parameters,
        family=get_family("gaussian"),
        spec=record.spec,
    )
    assert model.trace["elbo"][-1] == pytest.approx(
        objective(statistics, record.parameters, family=get_family(record.spec.family), spec=record.spec),
        rel=1e-12,
    )
    assert_allclose(
        model.topic_prevalence, statistics.topic_counts.sum(axis=0) / statistics.n_tokens, rtol=1e-12
    )
    assert model.topic_prevalence.sum() == pytest.approx(1)
    assert set(model.trace) == {f.name for f in dataclasses.fields(IterationRecord)}
    assert model.training.converged
    assert not model.training.interrupted


def test_a_cap_that_is_reached_is_said(simulated: tuple[sparse.csr_array, np.ndarray]) -> None:
    counts, y = simulated
    with pytest.warns(ConvergenceWarning, match="EM stopped at its cap of 2 iterations.*raise max_iter"):
        model = train(counts, response=y, n_topics=K, max_iter=2)
    assert not model.training.converged
    assert len(model.trace["elbo"]) == 2
    with pytest.warns(ConvergenceWarning, match="documents reached the cap of 2 sweeps.*raise max_sweeps"):
        model = train(counts, response=y, n_topics=K, max_sweeps=2, tol=1e-2)
    assert model.training.n_unconverged > D / 2


@pytest.mark.filterwarnings("ignore:.*have nearly the words")
def test_more_topics_than_labelled_documents_are_warned_of(
    simulated: tuple[sparse.csr_array, np.ndarray],
) -> None:
    counts, y = simulated
    with pytest.warns(DataWarning, match="30 topics for .* documents with a response"):
        train(counts[:20], response=y[:20], n_topics=30, tol=1e-2)


def test_ctrl_c_keeps_the_last_complete_iteration(simulated: tuple[sparse.csr_array, np.ndarray]) -> None:
    counts, y = simulated
    model = train(counts, response=y, n_topics=K, progress=AtPartition(interrupt, at=4))
    assert model.training.interrupted
    assert not model.training.converged
    with pytest.warns(ConvergenceWarning):
        assert_same_bits(model, train(counts, response=y, n_topics=K, max_iter=3))
    with pytest.raises(KeyboardInterrupt):
        train(counts, response=y, n_topics=K, progress=AtPartition(interrupt, at=1))


def test_the_only_response_need_not_be_named(simulated: tuple[sparse.csr_array, np.ndarray]) -> None:
    counts, y = simulated
    single = ingest(counts, vocabulary=TERMS, response={"stars": y})
    assert train(single, n_topics=K, tol=1e-2).response == "stars"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"response": "stars"}, r"'y', 'other'\), got 'stars'"),
        ({}, r"response must name one of .*'y', 'other'\), got none"),
        ({"response": "y", "n_topics": 0}, "n_topics must be a whole number of at least 1, got 0"),
        ({"response": "y", "family": "probit"}, "family must be one of .*gaussian.*, got 'probit'"),
        (
            {"response": "y", "response_weight": 0.0},
            "response_weight must be a number from 1e-06 to",
        ),
        (
            {"response": "y", "doc_topic_prior": -1.0},
            "doc_topic_prior must be a number from 1e-10",
        ),
        ({"response": "y", "documents": [0, D]}, f"row numbers in 0..{D - 1}, got {D}"),
        (
            {"response": "y", "documents": [5]},
            "response 'y' must have at least two distinct values.*nothing to learn",
        ),
        ({"response": np.zeros(D)}, r"'y', 'other'\), got array"),
        ({"response": "y", "terms": TERMS}, "terms must be left out"),
        ({"response": "y", "text": "body", "min_df": 3}, "text and min_df must be left out"),
    ],
)
def test_bad_settings_are_refused_before_any_work(corpus: Corpus, arguments: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        train(corpus, **arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x, y: (x, np.where(np.arange(D) == 7, np.inf, y)), "must be finite.*inf in row 7"),
        (lambda x, y: (x, np.full(D, np.nan)), "missing in all documents"),
        (lambda x, y: (x, np.full(D, 2.5)), r"two distinct values.*got 2\.5 in all 120"),
        (lambda x, y: (x, y[:5]), r"one number for each of 120 rows, got shape \(5,\)"),
        (lambda x, y: (x, y[:, np.newaxis]), r"one number for each of 120 rows, got shape \(120, 1\)"),
        (lambda x, y: (x, [[1.0], [1.0, 2.0]]), "one number for each of 120 rows, got lists"),
        (lambda x, y: (x, {"y": y}), "an array with a number for each of 120 rows, got dict"),
        (lambda x, y: (x, (value for value in y)), "an array with a number.*got generator"),
        (lambda x, y: (x, ["good"] * D), "must hold numbers.*got 'good' in row 0.*family categorical"),
        (lambda x, y: (x, [str(value) for value in y]), "must hold numbers.*in row 0"),
        (lambda x, y: (x, y + 1j), r"must hold numbers.*\+1j\) in row 2"),
        (lambda x, y: (x, np.arange(D).astype("datetime64[D]")), "must hold numbers.*1970, 1, 1"),
        (lambda x, y: (x, [None, *y[1:-1], "five"]), "must hold numbers.*got 'five' in row 119"),
        (lambda x, y: (x, [*y[:-1], 10**400]), "must be finite.*inf in row 119"),
        (lambda x, y: (x, y * 1e-300), "standard deviation from 1e-100 to 1e[+]100, got 0 for values from"),
        (lambda x, y: (x, y * 1e300), "square must be finite.*rescale"),
        (lambda x, y: (x, y * 1e150), "standard deviation from 1e-100 to 1e[+]100, got .*e[+]150 for"),
        (lambda x, y: (x, 1 + (y > 0) * 2.0**-52), "by more than rounding, got values from 1.0 to 1.0000000"),
        (
            lambda x, y: (x * 0, y),
            "document that has a word of the vocabulary, got 120 documents, 120 of them",
        ),
        (
            lambda x, y: (x * (np.arange(D) < 60)[:, np.newaxis], np.where(np.arange(D) < 60, np.nan, y)),
            "document that has a word of the vocabulary, got 120 documents, 60 of them",
        ),
        (lambda x, y: (x, None), "an array with a number for each row"),
        (lambda x, y: (x.toarray() / 2, y), r"must hold counts.*0\.5 in row"),
        (lambda x, y: (x[:, :0], y), "at least one column"),
        (
            lambda x, y: ([{"text": "a"}], "y"),
            r"data must be a corpus, .*got list; make a corpus of .* by dslda\.ingest, .* text= and",
        ),
    ],
)
def test_bad_matrices_and_responses_are_refused(
    simulated: tuple[sparse.csr_array, np.ndarray], change: object, message: str
) -> None:
    data, response = change(*simulated)
    with pytest.raises(InputError, match=message):
        train(data, response=response)


@pytest.mark.parametrize("scale", [1e-90, 1e90])
def test_units_of_the_response_change_the_units_of_what_is_found(
    simulated: tuple[sparse.csr_array, np.ndarray], scale: float
) -> None:
    counts, y = simulated
    model, other = (train(counts, response=response, n_topics=K, tol=1e-2) for response in (y, scale * y))
    assert_allclose(other.predict(counts), scale * model.predict(counts), rtol=1e-9)
    assert other.dispersion == pytest.approx(scale**2 * model.dispersion, rel=1e-9)


def test_responses_may_be_numbers_of_any_kind_and_missing_in_several_ways(
    simulated: tuple[sparse.csr_array, np.ndarray],
) -> None:
    import pandas as pd

    counts, y = simulated
    whole = np.round(10 * np.nan_to_num(y)).astype(int)
    missing = np.arange(D) == 4
    expected = train(counts, response=np.where(missing, np.nan, whole), n_topics=K, tol=1e-2)
    for response in (
        [None if gone else Decimal(int(value)) for value, gone in zip(whole, missing, strict=True)],
        pd.array(whole, dtype="Int64").to_numpy(dtype=object, na_value=None) * np.where(missing, np.nan, 1),
        pd.Series(whole, dtype="Int64").mask(missing),
        np.ma.masked_array(whole, missing),
    ):
        assert_same_bits(train(counts, response=response, n_topics=K, tol=1e-2), expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rho": 2}, r"train\(\) has no keyword 'rho' \(write response_weight=\)"),
        ({"alpha": 0.1, "K": 3}, r"'K' \(write n_topics=\), 'alpha' \(write doc_topic_prior=\)"),
        ({"topics": 3}, "n_topics="),
        ({"n_topic": 3}, "n_topics="),
        ({"workers": 2}, "client="),
        ({"kind": "text"}, "no keyword 'kind'$"),
    ],
)
@pytest.mark.parametrize("data", ["corpus", "matrix", "bag"])
def test_keywords_by_another_name_are_told_the_right_one(
    simulated: tuple[sparse.csr_array, np.ndarray], corpus: Corpus, data: str, given: dict, message: str
) -> None:
    import dask.bag

    documents = {"corpus": corpus, "matrix": simulated[0], "bag": dask.bag.from_sequence(["a b"])}[data]
    with pytest.raises(TypeError, match=message):
        train(documents, response="y", **given)


@pytest.mark.parametrize("terms", [5, "apple", {"a": 1}, {"a", "b"}, [1] * V])
def test_terms_are_a_list_of_strings_or_their_positions(
    simulated: tuple[sparse.csr_array, np.ndarray], terms: object
) -> None:
    counts, y = simulated
    with pytest.raises(InputError) as error:
        train(counts, response=y, terms=terms)
    assert (error.value.parameter, error.value.place) in {("terms", None), (None, "vocabulary")}


def test_importing_dslda_is_quick_because_nothing_heavy_comes_along() -> None:
    heavy = ["numpy", "numba", "dask", "distributed", "zarr", "sklearn", "pyarrow", "pandas", "scipy", "rich"]
    code = f"import dslda, sys; print([m for m in {heavy} if m in sys.modules]); print(sorted(dslda.__all__))"
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    loaded, public = found.stdout.splitlines()
    assert loaded == "[]"
    import dslda

    for name in dslda.__all__:
        assert getattr(dslda, name) is not None
    assert public == str(sorted(dslda.__all__))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dslda.nothing
