"""Invariances of the E-step and of a fit."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from dslda.families.base import Family
from dslda.families.gaussian import Gaussian
from dslda.variational.estep import DocumentPosterior, e_step, infer
from dslda.variational.parameters import FitSpec, Parameters, Scaling
from dslda.variational.statistics import SufficientStatistics
from tests.helpers.problems import (
    Documents,
    documents_of,
    fit_in_a_loop,
    moments_of,
    random_document,
    random_documents,
    random_parameters,
)

GRANULARITIES = pytest.mark.parametrize("granularity", ["term", "token"])
SUMS = [f.name for f in dataclasses.fields(SufficientStatistics) if f.name != "seconds"]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Documents, Parameters, FitSpec, np.random.Generator]:
    n_topics = draw(st.integers(1, 24))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    parameters = random_parameters(
        rng, 40, n_topics, delta=10.0 ** draw(st.floats(-2, 1)), eta_scale=draw(st.sampled_from([0.3, 2.0]))
    )
    documents = random_documents(rng, 40, draw(st.integers(1, 8)), longest=25)
    # a fixed number of sweeps: rounding must not decide when a document stops
    spec = FitSpec(
        n_topics=n_topics,
        granularity=draw(st.sampled_from(["term", "token"])),
        response_weight=draw(st.sampled_from([1.0, 2.5])),
        max_sweeps=5,
        sweep_tol=0.0,
    )
    return documents, parameters, spec, rng


def training_posterior(documents: Documents, parameters: Parameters, spec: FitSpec) -> DocumentPosterior:
    return infer(*documents.csr, parameters, spec=spec, y=documents.y, family=Gaussian())


def sums(documents: Documents, parameters: Parameters, spec: FitSpec) -> SufficientStatistics:
    return e_step(*documents.arrays, parameters, family=Gaussian(), spec=spec)


def assert_close(one: object, other: object, names: list[str], tolerance: float) -> None:
    for name in names:
        a, b = np.asarray(getattr(one, name), float), np.asarray(getattr(other, name), float)
        assert_allclose(a, b, rtol=tolerance, atol=tolerance * np.abs(b).max(initial=0.0), err_msg=name)


def assert_same_bits(one: object, other: object) -> None:
    for field in dataclasses.fields(one):
        if field.name != "seconds":
            a, b = (np.asarray(getattr(x, field.name)) for x in (one, other))
            assert a.tobytes() == b.tobytes(), field.name


@given(problem=problems())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_permuting_documents_changes_only_their_order(problem: tuple) -> None:
    documents, parameters, spec, rng = problem
    order = rng.permutation(len(documents))
    permuted = documents.take(order)
    here, there = (training_posterior(d, parameters, spec) for d in (documents, permuted))
    for field in dataclasses.fields(here):
        assert getattr(here, field.name)[order].tobytes() == getattr(there, field.name).tobytes()
    assert_close(sums(permuted, parameters, spec), sums(documents, parameters, spec), SUMS, 1e-10)


@given(problem=problems())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_permuting_topics_changes_only_their_order(problem: tuple) -> None:
    documents, parameters, spec, rng = problem
    order = rng.permutation(parameters.n_topics)
    permuted = Parameters(
        parameters.topics[:, order], parameters.alpha[order], parameters.eta[order], parameters.delta
    )
    here, there = (sums(documents, p, spec) for p in (parameters, permuted))
    reordered = dataclasses.replace(
        here,
        topic_counts=here.topic_counts[:, order],
        score=here.score[order],
        log_theta=here.log_theta[order],
        information=here.information[np.ix_(order, order)],
    )
    # a document at its fixed point stops when the ELBO repeats to the last bit, which the order of topics decides
    counted = [name for name in SUMS if name not in ("n_sweeps", "n_unconverged")]
    assert_close(there, reordered, counted, 1e-10)
    posterior, other = (training_posterior(documents, p, spec) for p in (parameters, permuted))
    assert_close(
        other, dataclasses.replace(posterior, gamma=posterior.gamma[:, order]), ["gamma", "elbo"], 1e-10
    )


@given(problem=problems(), cut=st.floats(0, 1))
@settings(max_examples=40, deadline=None, derandomize=True)
def test_statistics_of_two_halves_add_up_to_those_of_the_whole(problem: tuple, cut: float) -> None:
    documents, parameters, spec, _ = problem
    at = round(cut * len(documents))
    parts = [sums(documents.take(part), parameters, spec) for part in (range(at), range(at, len(documents)))]
    kept = parts[1].copy()
    total = parts[0].copy().add(parts[1])
    assert_close(total, sums(documents, parameters, spec), SUMS, 1e-12)
    assert_same_bits(parts[1], kept)


@GRANULARITIES
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("n_topics", [2, 3, 4, 8, 16, 50])
def test_one_document_alone_gets_the_same_bits_as_in_a_block(
    granularity: str, labelled: bool, n_topics: int
) -> None:
    rng = np.random.default_rng(n_topics)
    parameters = random_parameters(rng, 400, n_topics, delta=0.05, eta_scale=2.0)
    documents = random_documents(rng, 400, 30, longest=150, unlabelled=0.0)
    spec = FitSpec(n_topics=n_topics, granularity=granularity)

    def posterior(d: Documents) -> DocumentPosterior:
        if labelled:
            return infer(*d.csr, parameters, spec=spec, y=d.y, family=Gaussian())
        return infer(*d.csr, parameters, spec=spec)

    block = posterior(documents)
    for d in range(len(documents)):
        alone = posterior(documents.take([d]))
        for field in dataclasses.fields(block):
            assert getattr(alone, field.name)[0].tobytes() == getattr(block, field.name)[d].tobytes()


@GRANULARITIES
@pytest.mark.parametrize("n_topics", [2, 3, 4, 8, 16, 50])
def test_bits_do_not_depend_on_where_scratch_memory_lies(granularity: str, n_topics: int) -> None:
    """Vectorised loops compare addresses, and sum in another order where two arrays lie close together.

    A document of unknown terms adds nothing to the sums but moves the scratch arrays.
    """
    rng = np.random.default_rng(n_topics)
    parameters = random_parameters(rng, 400, n_topics, delta=0.05, eta_scale=2.0)
    parameters.topics[300:] = 0.0
    spec = FitSpec(n_topics=n_topics, granularity=granularity)
    for _ in range(12):
        document = random_document(rng, 300, distinct=int(rng.integers(1, 60)))
        alone = sums(documents_of([document]), parameters, spec)
        for size in rng.integers(1, 100, 10):
            unknown = (np.arange(300, 300 + size), np.ones(size), 0.0)
            moved = sums(documents_of([document, unknown]), parameters, spec)
            moved.n_documents, moved.n_empty = 1, 0
            assert_same_bits(moved, alone)


def unaligned(array: NDArray) -> NDArray:
    """The same values one byte off, and read-only, as they arrive over the wire."""
    buffer = bytes(1) + array.tobytes()
    return np.frombuffer(buffer, dtype=array.dtype, offset=1).reshape(array.shape)


@GRANULARITIES
def test_unaligned_and_read_only_arrays_give_the_same_bits(granularity: str, gaussian: Family) -> None:
    rng = np.random.default_rng(1)
    parameters = random_parameters(rng, 40, 6)
    documents = random_documents(rng, 40, 10)
    spec = FitSpec(n_topics=6, granularity=granularity)
    arrays = [unaligned(a) for a in documents.arrays]
    moved = Parameters(
        unaligned(parameters.topics),
        unaligned(parameters.alpha),
        unaligned(parameters.eta),
        unaligned(parameters.delta),
    )
    assert not any(a.flags.aligned or a.flags.writeable for a in [*arrays, moved.topics, moved.eta])
    assert_same_bits(e_step(*arrays, moved, family=gaussian, spec=spec), sums(documents, parameters, spec))
    assert_same_bits(
        infer(*arrays[:3], moved, spec=spec, y=arrays[3], family=gaussian),
        training_posterior(documents, parameters, spec),
    )


@GRANULARITIES
def test_inputs_are_not_changed(granularity: str, gaussian: Family) -> None:
    rng = np.random.default_rng(2)
    parameters = random_parameters(rng, 40, 5, delta=1e-3)
    documents = random_documents(rng, 40, 10)
    given = [*documents.arrays, parameters.topics, parameters.alpha, parameters.eta]
    before = [a.tobytes() for a in given]
    spec = FitSpec(n_topics=5, granularity=granularity)
    first = sums(documents, parameters, spec)
    training_posterior(documents, parameters, spec)
    assert [a.tobytes() for a in given] == before
    assert_same_bits(sums(documents, parameters, spec), first)


def test_rho_counts_only_in_the_response_term() -> None:
    rng = np.random.default_rng(7)
    parameters = random_parameters(rng, 40, 5)
    documents = random_documents(rng, 40, 10, unlabelled=1.0)
    plain, weighted = (
        sums(documents, parameters, FitSpec(n_topics=5, response_weight=rho)) for rho in (1.0, 8.0)
    )
    assert_same_bits(plain, weighted)


def test_granularities_agree_where_no_term_repeats() -> None:
    rng = np.random.default_rng(8)
    parameters = random_parameters(rng, 40, 5, delta=0.01)
    documents = random_documents(rng, 40, 10)
    documents = dataclasses.replace(documents, counts=np.ones_like(documents.counts))
    term, token = (sums(documents, parameters, FitSpec(n_topics=5, granularity=g)) for g in ("term", "token"))
    assert_same_bits(term, token)


@given(scale=st.sampled_from([1000.0, 1e-3, 7.3]), shift=st.sampled_from([0.0, 50.0, -3.1]))
@settings(max_examples=12, deadline=None, derandomize=True)
def test_predictions_scale_and_shift_with_the_response(scale: float, shift: float) -> None:
    rng = np.random.default_rng(3)
    documents = random_documents(rng, 40, 30, longest=15)
    new = random_documents(rng, 40, 10, longest=15)
    spec = FitSpec(n_topics=4, max_iter=4)

    def predictions(y: NDArray[np.float64]) -> NDArray[np.float64]:
        scaling = Scaling(*Gaussian().scaling(moments_of(y)))
        standardised = documents.with_response(scaling.to_model(y))
        parameters, _ = fit_in_a_loop(standardised, 40, family=Gaussian(), spec=spec)
        posterior = infer(*new.csr, parameters, spec=spec)
        return scaling.to_user(Gaussian().mean(posterior.mean, posterior.variance, parameters.delta))

    assert_allclose(
        predictions(scale * documents.y + shift),
        scale * predictions(documents.y) + shift,
        rtol=1e-8,
        atol=1e-8 * abs(scale),
    )


def test_a_long_document_among_short_ones_leaves_them_alone() -> None:
    """Scratch memory is shared by the documents of a block."""
    rng = np.random.default_rng(4)
    parameters = random_parameters(rng, 400, 7, delta=0.01)
    short = random_documents(rng, 400, 5)
    rows = [short.document(d) for d in range(len(short))]
    long = random_document(rng, 400, distinct=350, most=9)
    spec = FitSpec(n_topics=7)
    mixed = training_posterior(documents_of([*rows[:2], long, *rows[2:]]), parameters, spec)
    assert (
        np.delete(mixed.gamma, 2, axis=0).tobytes()
        == training_posterior(short, parameters, spec).gamma.tobytes()
    )
