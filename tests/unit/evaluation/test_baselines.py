"""The rivals from scikit-learn do their work on documents with known structure."""

from __future__ import annotations

import numpy as np
import pytest

from dslda.datasets import simulate_corpus
from dslda.evaluation.baselines import fit_predict, lasso_pipeline, lda_ridge_pipeline, tfidf_ridge_pipeline
from dslda.evaluation.metrics import folds, predictive_r2


@pytest.fixture(scope="module")
def corpus():
    from scipy.sparse import csr_array

    simulated = simulate_corpus(600, 3, 60, mean_tokens=60, delta=0.05, topic_concentration=0.1, seed=3)
    block = simulated.block
    return csr_array((block.counts, block.terms, block.indptr), shape=(600, 60)), simulated.y


@pytest.mark.parametrize("pipeline", [lda_ridge_pipeline, lasso_pipeline, tfidf_ridge_pipeline])
def test_baseline_predicts_simulated_responses(pipeline, corpus):
    counts, y = corpus
    train, held_out = folds(600, 5)[0]
    options = {"n_topics": 3, "max_iter": 10} if pipeline is lda_ridge_pipeline else {}
    predicted = fit_predict(pipeline(**options), counts[train], y[train], counts[held_out])
    assert predicted.shape == held_out.shape
    assert predictive_r2(y[held_out], predicted) > 0.7
    assert np.array_equal(
        predicted, fit_predict(pipeline(**options), counts[train], y[train], counts[held_out])
    )


def test_lasso_does_not_depend_on_the_length_of_documents(corpus):
    counts, y = corpus
    train, held_out = folds(600, 5)[0]
    plain = fit_predict(lasso_pipeline(), counts[train], y[train], counts[held_out])
    longer = fit_predict(lasso_pipeline(), counts[train], y[train], 7 * counts[held_out])
    assert np.allclose(plain, longer)


def test_inner_folds_are_shuffled():
    """In a file sorted by author, each with words of their own, unshuffled folds find every word useless."""
    from scipy.sparse import csr_array

    generator = np.random.default_rng(0)
    author = np.repeat(np.arange(5), 40)
    counts = np.column_stack([6 * (author[:, None] == np.arange(5)), generator.poisson(1.0, size=(200, 20))])
    y = np.array([0.0, 5.0, 1.0, 4.0, 2.0])[author] + generator.normal(0, 0.1, size=200)
    predicted = fit_predict(lasso_pipeline(), csr_array(counts), y, csr_array(counts))
    assert predictive_r2(y, predicted) > 0.9
