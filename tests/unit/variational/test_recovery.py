"""A fit to documents drawn from the model recovers its parameters."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from dslda.datasets.simulate import SimulatedCorpus, simulate_corpus
from dslda.families.base import Family
from dslda.variational.estep import infer
from dslda.variational.parameters import FitSpec, Scaling
from tests.helpers.problems import Documents, fit_in_a_loop, moments_of


def documents_and_scaling(drawn: SimulatedCorpus, family: Family) -> tuple[Documents, Scaling]:
    scaling = Scaling(*family.scaling(moments_of(drawn.y)))
    block = drawn.block
    return Documents(block.indptr, block.terms, block.counts, scaling.to_model(block.responses["y"])), scaling


@pytest.mark.parametrize(
    ("granularity", "topic_estimation"), [("term", "map"), ("token", "map"), ("term", "variational")]
)
@pytest.mark.parametrize("n_topics", [3, 5])
def test_topics_coefficients_and_predictions_are_recovered(
    n_topics: int, granularity: str, topic_estimation: str, gaussian: Family
) -> None:
    drawn = simulate_corpus(900, n_topics, 200, mean_tokens=80, seed=1)
    documents, scaling = documents_and_scaling(drawn, gaussian)
    train, test = documents.take(range(600)), documents.take(range(600, 900))
    spec = FitSpec(n_topics=n_topics, granularity=granularity, topic_estimation=topic_estimation, max_iter=40)
    parameters, _ = fit_in_a_loop(train, 200, family=gaussian, spec=spec)

    # distance between topics: half the sum of absolute differences, 0 for equal and 1 for disjoint ones
    distance = 0.5 * np.abs(drawn.topics[:, np.newaxis] - parameters.topics.T).sum(axis=2)
    truth, found = linear_sum_assignment(distance)
    assert distance[truth, found].max() < 0.05
    coefficients = scaling.to_user(parameters.eta)
    assert np.abs(coefficients[found] - drawn.coefficients[truth]).max() < 0.2

    # the best possible prediction knows each token's topic
    y = drawn.y[600:]
    predicted = scaling.to_user(infer(*test.csr, parameters, spec=spec).mean)
    best = drawn.topic_shares[600:] @ drawn.coefficients
    r2, best_r2 = (1 - np.sum((y - p) ** 2) / np.sum((y - y.mean()) ** 2) for p in (predicted, best))
    assert best_r2 > 0.7
    assert r2 > best_r2 - 0.02
    noise = parameters.delta[0] * scaling.scale**2
    assert 0.2 < noise < 0.3  # drawn with 0.25
