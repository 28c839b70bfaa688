"""The E-step over a block of documents: what Python calls."""

from __future__ import annotations

import math

import numpy as np
from numba import float64, int32, int64, njit, types
from numpy.typing import NDArray

from dslda.families.base import SCALAR_SIGNATURE
from dslda.variational.kernels.documents import lay_out, load_entries
from dslda.variational.kernels.scratch import (
    OPTIONS,
    Vector,
    make_model,
    make_scratch,
)
from dslda.variational.kernels.sweeps import Ascent, Response, ascend
from dslda.variational.kernels.write_out import add_response_statistics, write_out
from dslda.variational.special import FASTMATH

__all__ = ["PER_DOCUMENT", "SCALARS", "e_step_block"]

# names of the entries of `scalars`, in order
SCALARS = ("dispersion", "elbo", "n_labelled", "n_empty", "n_unconverged", "n_sweeps", "n_tokens")
_DISPERSION, _ELBO, _N_LABELLED, _N_EMPTY, _N_UNCONVERGED, _N_SWEEPS, _N_TOKENS = range(len(SCALARS))
# names of the columns of `per_document`, in order
PER_DOCUMENT = ("mean", "variance", "elbo", "n_sweeps", "n_known_tokens", "converged")

_READ_ONLY_1D = {t: types.Array(t, 1, "C", readonly=True) for t in (float64, int32, int64)}
_SIGNATURE = types.void(
    _READ_ONLY_1D[int64],  # indptr
    _READ_ONLY_1D[int32],  # terms
    _READ_ONLY_1D[int32],  # counts
    _READ_ONLY_1D[float64],  # y
    types.Array(float64, 2, "C", readonly=True),  # topics
    _READ_ONLY_1D[float64],  # alpha
    _READ_ONLY_1D[float64],  # eta
    float64,  # delta
    float64,  # rho
    types.boolean,  # tied
    int64,  # max_sweeps
    float64,  # sweep_tol
    *(types.FunctionType(SCALAR_SIGNATURE),) * 5,  # l, l1, l2, l3, dispersion statistic
    float64[:, ::1],  # topic_word
    float64[::1],  # score
    float64[:, ::1],  # information
    float64[::1],  # scalars
    float64[:, ::1],  # gamma
    float64[:, ::1],  # per_document
)


@njit(**OPTIONS)
def longest_document(indptr: NDArray[np.int64], counts: NDArray[np.int32], y: Vector, tied: bool) -> int:
    """Largest number of entries that a document may have."""
    longest = int64(0)
    for d in range(y.shape[0]):
        size = indptr[d + 1] - indptr[d]
        if not tied and not math.isnan(y[d]):
            size = int64(0)
            for i in range(indptr[d], indptr[d + 1]):
                size += counts[i]
        longest = max(longest, size)
    return longest


@njit(_SIGNATURE, cache=True, nogil=True, fastmath=FASTMATH, error_model="numpy")
def e_step_block(
    indptr,
    terms,
    counts,
    y,
    topics,
    alpha,
    eta,
    delta,
    rho,
    tied,
    max_sweeps,
    sweep_tol,
    l,
    l1,
    l2,
    l3,
    dispersion_statistic,
    topic_word,
    score,
    information,
    scalars,
    gamma,
    per_document,
):
    """E-step of every document of a block, added to the output arrays in document order."""
    n_topics = topics.shape[1]
    model = make_model(topics, alpha, eta)
    response = Response(l, l1, l2, l3, delta, rho)
    s = make_scratch(longest_document(indptr, counts, y, tied), n_topics)
    learn = topic_word.shape[0] > 0

    for d in range(y.shape[0]):
        labelled = not math.isnan(y[d])
        n, n_tokens = load_entries(
            terms[indptr[d] : indptr[d + 1]],
            counts[indptr[d] : indptr[d + 1]],
            topics,
            tied or not labelled,
            s,
        )
        length = float(n_tokens)
        if n == 0:
            # q(theta) is the prior; the response of a document without words teaches nothing about topics
            ascent = Ascent(0.0, 0, True, 0.0)
            omega = 0.0
            for k in range(n_topics):
                omega += alpha[k] / model.alpha_sum * eta[k]
                s.assigned[k] = 0.0
            v = 0.0
            scalars[_N_EMPTY] += 1
        else:
            document = lay_out(model, s, y[d], n, length)
            ascent = ascend(model, response, s, document, max_sweeps, sweep_tol)
            m_sum, spread = write_out(model, s, document, ascent.a_base, topic_word)
            omega = model.middle + m_sum / length
            v = spread / (length * length)
            if labelled and learn:
                first = l1(y[d], omega, delta) + 0.5 * l3(y[d], omega, delta) * v
                add_response_statistics(
                    s, model.eta, length, first, l2(y[d], omega, delta), score, information
                )
                scalars[_DISPERSION] += dispersion_statistic(y[d], omega, v)
                scalars[_N_LABELLED] += 1
        scalars[_ELBO] += ascent.elbo
        scalars[_N_UNCONVERGED] += 0.0 if ascent.converged else 1.0
        scalars[_N_SWEEPS] += ascent.n_sweeps
        scalars[_N_TOKENS] += n_tokens
        if gamma.shape[0] > 0:
            for k in range(n_topics):
                gamma[d, k] = alpha[k] + s.assigned[k]
        if per_document.shape[0] > 0:
            per_document[d, 0] = omega
            per_document[d, 1] = v
            per_document[d, 2] = ascent.elbo
            per_document[d, 3] = ascent.n_sweeps
            per_document[d, 4] = length
            per_document[d, 5] = 1.0 if ascent.converged else 0.0
