"""Statistics with rows only for the terms of a partition have the same bits as those with all rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslda.datasets.simulate import simulate_corpus
from dslda.engine.data.training_view import TrainingBlock
from dslda.engine.passes import E_STEP
from dslda.engine.reduction import add_children, number_of_levels, sum_subtree
from dslda.families.base import STANDARDISED
from dslda.families.registry import get_family
from dslda.variational.estep import e_step
from dslda.variational.parameter_parts import ParameterParts, as_sent
from dslda.variational.parameters import FitSpec, initial_parameters
from dslda.variational.statistics import SufficientStatistics
from dslda.variational.sums import join_parts

N_TERMS = 40
ARRAYS = ("topic_counts", "score", "information", "log_theta", "profile")


def bits(statistics: SufficientStatistics) -> list[Any]:
    return [getattr(statistics, name).tobytes() for name in ARRAYS] + [
        statistics.elbo,
        statistics.n_tokens,
        statistics.n_documents,
    ]


def pair(seed: int) -> tuple[SufficientStatistics, SufficientStatistics]:
    """The same statistics with all rows and with those of some terms."""
    rng = np.random.default_rng(seed)
    terms = np.flatnonzero(rng.random(N_TERMS) < rng.choice([0.0, 0.1, 0.3, 1.0]))
    sparse = SufficientStatistics.zeros(len(terms), 3)
    for name in ARRAYS:
        array = getattr(sparse, name)
        array += rng.random(array.shape) * 10.0 ** rng.integers(-8, 8)
    sparse.terms, sparse.n_terms, sparse.n_documents = terms, N_TERMS, 1
    dense = sparse.copy().dense()
    return dense, (dense.copy() if rng.random() < 0.2 else sparse)


@settings(deadline=None, max_examples=60)
@given(n=st.integers(1, 20), seed=st.integers(0, 1000))
def test_sums_have_the_bits_of_sums_of_all_rows(n: int, seed: int) -> None:
    def total(kind: int) -> SufficientStatistics:
        return sum_subtree(lambda i: pair(seed + i)[kind], range(n), level=number_of_levels(range(n)))

    assert bits(total(1).dense()) == bits(total(0))
    children = [pair(seed + i)[1] for i in range(min(n, 4))]
    for child in children:
        child.topic_counts.setflags(write=False)
    before = [bits(child) for child in children]
    together = add_children(children)
    assert [bits(child) for child in children] == before
    assert bits(together.dense()) == bits(add_children([pair(seed + i)[0] for i in range(len(children))]))


def test_a_sum_has_a_row_for_every_term_once_half_of_them_have_one() -> None:
    def of_terms(start: int, stop: int) -> SufficientStatistics:
        statistics = SufficientStatistics.zeros(stop - start, 3)
        statistics.terms, statistics.n_terms = np.arange(start, stop), N_TERMS
        statistics.topic_counts += 1.0
        return statistics

    half = of_terms(0, 12).add(of_terms(8, 20))
    assert half.terms is not None
    assert len(half.topic_counts) == 20
    assert half.dense().topic_counts[:, 0].tolist() == [1.0] * 8 + [2.0] * 4 + [1.0] * 8 + [0.0] * 20
    assert half.__sizeof__() < half.dense().__sizeof__()
    assert half.add(of_terms(30, 31)).terms is None
    assert half.topic_counts.shape == (N_TERMS, 3)


@pytest.mark.parametrize("family_name", ["gaussian", "categorical"])
@pytest.mark.parametrize(("n_parts", "vocabulary"), [(1, 5000), (3, 5000), (3, 300), (1, 300)])
def test_an_e_step_by_rows_has_the_bits_of_one_with_all_topics(
    family_name: str, n_parts: int, vocabulary: int
) -> None:
    block = simulate_corpus(40, 3, 300, mean_tokens=30, seed=3).block
    spec = FitSpec(n_topics=3)
    family = get_family(family_name, {"n_classes": 2} if family_name == "categorical" else {})
    y = block.responses["y"] if family_name == "gaussian" else np.arange(40.0) % 2
    parameters = initial_parameters(vocabulary, spec=spec, family=family, moments=STANDARDISED)
    parameters = replace(parameters, topics=parameters.topics / parameters.topics.sum(axis=0))
    terms = block.terms * np.int32(vocabulary // 300)
    arguments = (block.indptr, terms, block.counts, y)
    expected = e_step(*arguments, parameters, family=family, spec=spec)
    parts = ParameterParts(list(as_sent(parameters, n_parts, float32=False)))
    got = E_STEP(TrainingBlock(*arguments), parts, family, spec)
    assert (len(got.topic_counts) < 0.1 * vocabulary) == (vocabulary == 5000)
    assert bits(got.dense()) == bits(expected)


def test_documents_without_terms_teach_what_they_do_with_all_topics() -> None:
    spec = FitSpec(n_topics=2)
    gaussian = get_family("gaussian")
    parameters = initial_parameters(9, spec=spec, family=gaussian, moments=STANDARDISED)
    empty = np.zeros(0, dtype=np.int32)
    arguments = (np.zeros(3, dtype=np.int64), empty, empty, np.array([0.5, -0.5]))
    expected = e_step(*arguments, parameters, family=gaussian, spec=spec)
    got = E_STEP(TrainingBlock(*arguments), ParameterParts([parameters]), gaussian, spec)
    assert bits(got.dense()) == bits(expected)


@pytest.mark.parametrize("seed", range(6))
def test_parts_add_up_to_the_bits_of_the_whole(seed: int) -> None:
    children = [pair(seed + i)[1] for i in range(3)]
    expected = bits(add_children(children).dense())
    ranges = [(0, 11), (11, 39), (39, N_TERMS)]
    sums = [add_children([child.part(*r) for child in children]) for r in ranges]
    assert bits(join_parts(iter(sums), N_TERMS)) == expected
