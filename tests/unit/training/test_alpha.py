"""The estimate of alpha, what it does to coefficients, and topics that are nearly the same."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linear_sum_assignment

import dslda
from dslda.cli.program import run
from dslda.datasets import SimulatedCorpus, simulate_corpus
from dslda.exceptions import DataWarning

D, V = 1500, 500


def drawn(n_topics: int, *, seed: int, **keywords: Any) -> tuple[sparse.csr_array, SimulatedCorpus]:
    corpus = simulate_corpus(D, n_topics, V, seed=seed, **keywords)
    block = corpus.block
    return sparse.csr_array((block.counts, block.terms, block.indptr), shape=(D, V)), corpus


def covered(model: dslda.Model, corpus: SimulatedCorpus) -> np.ndarray:
    """Whether the 95% interval of each coefficient holds the true one."""
    rows = {row.topic: row for row in model.coefficients()}
    distances = np.abs(corpus.topics[:, np.newaxis, : model.n_terms] - model.topic_word).sum(axis=2)
    fitted = [rows[k] for k in linear_sum_assignment(distances)[1]]
    off = np.array([row.coefficient for row in fitted]) - corpus.coefficients
    return np.abs(off) <= 1.96 * np.array([row.conditional_error for row in fitted])


def test_intervals_cover_where_documents_mix_topics_and_where_they_do_not() -> None:
    """The paper's 1/K covers a fifth where documents mix topics; estimated from the first iteration, it went to 80."""
    shares: dict[tuple[float, Any], list[float]] = {}
    for seed in range(2):
        for true in (1.0, 0.2):
            counts, corpus = drawn(5, seed=seed, mean_tokens=60, alpha=true)
            for alpha in ("auto", "1/K") if true == 1.0 else ("auto",):
                model = dslda.train(
                    counts, response=corpus.y, n_topics=5, objective="joint", doc_topic_prior=alpha
                )
                shares.setdefault((true, alpha), []).append(covered(model, corpus).mean())
                if alpha == "auto":
                    assert np.allclose(model.doc_topic_prior, true, rtol=0.25)
    assert np.mean(shares[1.0, "1/K"]) < 0.5
    assert np.mean(shares[1.0, "auto"]) > 0.8
    assert np.mean(shares[0.2, "auto"]) > 0.85


def test_the_default_is_an_estimate_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    counts, corpus = drawn(5, seed=7, mean_tokens=60, alpha=1.0)
    with caplog.at_level(logging.INFO, "dslda"):
        model = dslda.train(counts, response=corpus.y, n_topics=5, objective="joint")
    alpha = model.doc_topic_prior
    assert len(set(alpha.tolist())) == 1
    assert f"alpha was estimated: {alpha[0]:.3g} for each topic" in caplog.text


def alike_documents(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Documents of one distribution, and responses that have nothing to do with them."""
    rng = np.random.default_rng(0)
    return rng.multinomial(60, rng.dirichlet(np.full(200, 0.3)), size=n), rng.normal(size=n)


@pytest.mark.parametrize("alpha", ["auto", "asymmetric", "1/K", 1.0])
def test_topics_that_never_part_are_told(alpha: Any) -> None:
    counts, y = alike_documents(1000)
    with pytest.warns(DataWarning, match="all topics have nearly the words of another one"):
        model = dslda.train(counts, response=y, n_topics=3, objective="joint", doc_topic_prior=alpha)
    # what documents without topics ask for, a large alpha, would keep the topics equal for ever
    assert model.doc_topic_prior.max() <= 1.0


def test_the_sum_of_alpha_is_at_most_the_words_of_a_document() -> None:
    counts, y = alike_documents(400)
    model = dslda.train(counts, response=y, n_topics=3, objective="joint")
    assert model.doc_topic_prior.sum() == pytest.approx(60.0)


def test_info_shows_alpha_and_near_equal_topics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counts, y = alike_documents(1000)
    with pytest.warns(DataWarning, match="nearly the words"):
        dslda.train(counts, response=y, n_topics=3, objective="joint").save(tmp_path / "alike.model")
    assert run(["info", str(tmp_path / "alike.model")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "topics: 3 (3 of them nearly the same as another one)" in shown
    assert "alpha: 1 for each topic, not yet estimated" in shown
