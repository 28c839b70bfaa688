"""Documents without response teach the topics, and so the response."""

from __future__ import annotations

import numpy as np
import pytest

from dslda.datasets.simulate import simulate_corpus
from dslda.families.base import Family
from dslda.families.categorical import Categorical
from dslda.variational.estep import infer
from dslda.variational.parameters import FitSpec, Parameters
from tests.helpers.class_problems import simulated_classes
from tests.helpers.problems import Documents, fit_in_a_loop

N_TERMS, N_TOPICS, N_TEST, N_LABELLED = 1000, 4, 300, 40
# topics of hundreds of terms each, of which forty documents show a part
CORPUS = {"mean_tokens": 40.0, "topic_concentration": 0.5}
SEEDS = (0, 1, 2)


def split(documents: Documents) -> tuple[Documents, Documents, Documents]:
    """The labelled documents alone; with those whose response is hidden; and the test set."""
    test = documents.take(range(len(documents) - N_TEST, len(documents)))
    rest = documents.take(range(len(documents) - N_TEST))
    y = rest.y.copy()
    y[N_LABELLED:] = np.nan
    return rest.take(range(N_LABELLED)), rest.with_response(y), test


def fitted(documents: Documents, family: Family) -> tuple[Parameters, FitSpec]:
    spec = FitSpec(n_topics=N_TOPICS, max_iter=50)
    return fit_in_a_loop(documents, N_TERMS, family=family, spec=spec)[0], spec


def test_unlabelled_documents_lower_the_error_of_a_number(gaussian: Family) -> None:
    errors = []
    for seed in SEEDS:
        corpus = simulate_corpus(1000, N_TOPICS, N_TERMS, seed=seed, **CORPUS)
        block = corpus.block
        y = (corpus.y - corpus.y.mean()) / corpus.y.std()
        labelled, everything, test = split(Documents(block.indptr, block.terms, block.counts, y))
        for documents in (labelled, everything):
            parameters, spec = fitted(documents, gaussian)
            predicted = infer(*test.csr, parameters, spec=spec).mean
            errors.append(np.mean((predicted - test.y) ** 2))
    alone, helped = np.mean(errors[::2]), np.mean(errors[1::2])
    assert helped < 0.6 * alone


@pytest.mark.parametrize("form", ["bound", "delta"])
def test_unlabelled_documents_lower_the_error_of_a_class(form: str) -> None:
    family = Categorical(N_TOPICS, form)
    errors = []
    for seed in SEEDS:
        _, documents = simulated_classes(6.0 * np.eye(N_TOPICS), 1000, N_TERMS, seed=seed, **CORPUS)
        labelled, everything, test = split(documents)
        for documents in (labelled, everything):
            parameters, spec = fitted(documents, family)
            predicted = infer(*test.csr, parameters, spec=spec, family=family).mean.argmax(axis=1)
            errors.append(np.mean(predicted != test.y))
    alone, helped = np.mean(errors[::2]), np.mean(errors[1::2])
    assert helped < 0.7 * alone


def test_few_labels_do_not_end_a_fit_before_its_topics_have_parted(gaussian: Family) -> None:
    """All changes are small at first, and some fall by chance."""
    for seed in (0, 1, 3):
        corpus = simulate_corpus(600, 10, 500, seed=seed, mean_tokens=40.0)
        y = (corpus.y - corpus.y.mean()) / corpus.y.std()
        y[4:] = np.nan
        block = corpus.block
        spec = FitSpec(n_topics=10, doc_topic_prior=1.0, max_iter=12)
        documents = Documents(block.indptr, block.terms, block.counts, y)
        _, trace = fit_in_a_loop(documents, 500, family=gaussian, spec=spec)
        assert len(trace) == spec.max_iter
