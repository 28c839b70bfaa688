"""A corpus drawn from eight topics chooses eight, or the smallest number that cannot be told from them."""

from __future__ import annotations

from scipy.sparse import csr_array

import dslda
from dslda.cross_validation.evaluate import evaluate
from dslda.datasets.simulate import simulate_corpus


def test_the_number_of_topics_of_a_simulated_corpus_is_chosen() -> None:
    n, n_terms = 800, 300
    block = simulate_corpus(n, 8, n_terms, mean_tokens=60, alpha=0.2, seed=4).block
    corpus = dslda.ingest(
        csr_array((block.counts, block.terms, block.indptr), shape=(n, n_terms)),
        vocabulary=[f"t{i}" for i in range(n_terms)],
        response={"y": block.responses["y"]},
    )
    found = evaluate(corpus, n_topics=[4, 8, 16], rivals=False)
    assert found.choice.n_topics == 8
    assert found.in_words[0].startswith("8 topics predict best by topics alone")
