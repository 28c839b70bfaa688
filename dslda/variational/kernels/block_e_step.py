"""The E-step over a block of documents: what Python calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
from numba import int64, njit, types
from numpy.typing import NDArray

from dslda.families.scalars import SCALAR_SIGNATURE
from dslda.variational.design import AUX, EMPHASIS, FIRST_COVARIATE, OFFSET, WEIGHT
from dslda.variational.kernels.ascent import Ascent, ascend, make_trail
from dslda.variational.kernels.document_entries import Observed, lay_out, load_entries
from dslda.variational.kernels.exponential import add_product_statistics, ascend_product, constant, size, tilt
from dslda.variational.kernels.layout import (
    CURVATURE,
    CURVATURE_BOUND,
    LABELLED_WEIGHT,
    N_EMPTY,
    N_LABELLED,
    block_signature,
)
from dslda.variational.kernels.scratch import (
    ENTRY_OPTIONS,
    OPTIONS,
    Vector,
    make_scratch,
    prepare_parameters,
    vector,
)
from dslda.variational.kernels.sweeps import Response, expected_log_likelihood, largest_curvature, slopes_at
from dslda.variational.kernels.write_out import (
    add_covariate_statistics,
    add_log_theta,
    add_response_statistics,
    write_document,
    write_out,
)

__all__ = ["block_kernel"]

# l, l1, l2, l3, information weight
_SIGNATURE = block_signature(*(types.FunctionType(SCALAR_SIGNATURE),) * 5, classes=False)


@njit(**OPTIONS)
def longest_document(indptr: NDArray[np.int64], counts: NDArray[np.int32], y: Vector, tied: bool) -> int:
    """Largest number of entries of a document."""
    longest = int64(0)
    for d in range(y.shape[0]):
        size = indptr[d + 1] - indptr[d]
        if not tied and not math.isnan(y[d]):
            size = int64(0)
            for i in range(indptr[d], indptr[d + 1]):
                size += counts[i]
        longest = max(longest, size)
    return longest


@cache
def block_kernel(product: bool) -> Callable[..., None]:
    """The kernel, compiled, or loaded from the cache, by its first call.

    With `product`, E[exp(omega)] is taken exactly (:mod:`dslda.variational.kernels.exponential`). Either kernel is compiled
    without the other's code, which takes half as long and spills fewer registers.
    """

    @njit(_SIGNATURE, **ENTRY_OPTIONS)
    def e_step_block(documents, parameters, options, sums, posteriors, l, l1, l2, l3, information_weight):
        """E-step of every document of a block, in order; the arguments are described in `layout`."""
        indptr, terms, counts, y, extras = documents
        topics, alpha, eta, zeta, deltas = parameters
        rho, max_sweeps, sweep_tol, tied, quadratic, _ = options
        topic_counts, score, information, log_theta, profile, scalars = sums
        n_topics = topics.shape[1]
        model = prepare_parameters(topics, alpha, eta, sweep_tol)
        response = Response(l, l1, l2, l3, deltas[0], quadratic)
        longest = longest_document(indptr, counts, y, tied)
        s = make_scratch(longest, n_topics)
        trail = make_trail(longest, n_topics)
        learn = topic_counts.shape[0] > 0
        u = vector(n_topics)
        nothing = vector(0)

        for d in range(y.shape[0]):
            labelled = not math.isnan(y[d])
            offset, aux, weight, emphasis = 0.0, 1.0, 1.0, 1.0
            if extras.shape[0] > 0:
                offset, aux = extras[d, OFFSET], extras[d, AUX]
                weight, emphasis = extras[d, WEIGHT], extras[d, EMPHASIS]
                for p in range(zeta.shape[0]):
                    offset += zeta[p] * extras[d, FIRST_COVARIATE + p]
            n, n_tokens = load_entries(
                terms[indptr[d] : indptr[d + 1]],
                counts[indptr[d] : indptr[d + 1]],
                topics,
                tied or not labelled,
                s,
            )
            length = float(n_tokens)
            # without a weight a response pulls at no word, and the posterior is that of a prediction
            pulls = labelled and rho > 0.0
            if n == 0:
                # q(theta) is the prior; the response of a document without words teaches nothing about topics
                ascent = Ascent(0.0, 0, True, 0.0)
                omega = offset
                for k in range(n_topics):
                    omega += alpha[k] / model.alpha_sum * eta[k]
                    s.assigned[k] = 0.0
                v = 0.0
                scalars[N_EMPTY] += 1
            else:
                document = lay_out(model, s, Observed(y[d], pulls, offset, aux, rho * emphasis), n, length)
                tilted = tilt(model, u, length) if product else model
                if product and pulls:
                    ascent = ascend_product(
                        model, tilted, response, s, trail, document, max_sweeps, sweep_tol
                    )
                else:
                    ascent = ascend(model, response, s, trail, document, max_sweeps, sweep_tol)
                total_m, spread = write_out(
                    tilted, s, document, ascent.a_base, weight, topic_counts, labelled, product
                )
                if product:
                    omega = offset + model.middle
                    for k in range(n_topics):
                        omega += model.eta[k] * s.assigned[k] / length
                    # exp(omega + v / 2) is E[exp(omega)]
                    v = 2.0 * max(offset + tilted.middle + total_m - omega, 0.0)
                else:
                    omega = offset + model.middle + total_m / length
                    v = spread / (length * length)
                if learn:
                    add_log_theta(model, s, length, weight, log_theta, scalars)
                if labelled and learn:
                    share = weight * emphasis
                    x = extras[d, FIRST_COVARIATE:] if zeta.shape[0] > 0 else nothing
                    if product:
                        rate = size(omega + 0.5 * v)
                        own = share / deltas[0, 0]
                        add_product_statistics(s, u, length, own * y[d], own * rate, score, information)
                        add_covariate_statistics(
                            s.assigned_m, length, own * (y[d] - rate), own * rate, x, score, information
                        )
                        for i in range(deltas.shape[0]):
                            profile[i] += share * (
                                (y[d] * omega - rate) / deltas[i, 0] + constant(l, y[d], deltas[i], aux)
                            )
                    else:
                        slopes = slopes_at(response, y[d], omega, aux)
                        first = share * (slopes.first + 0.5 * slopes.third * v)
                        information_share = share * information_weight(y[d], omega, deltas[0], aux)
                        add_response_statistics(
                            s,
                            model.eta,
                            length,
                            first,
                            share * slopes.second,
                            information_share,
                            score,
                            information,
                        )
                        add_covariate_statistics(
                            s.assigned, length, first, information_share, x, score, information
                        )
                        if not quadratic:
                            scalars[CURVATURE] += information_share
                            scalars[CURVATURE_BOUND] += share * largest_curvature(
                                l2, information_weight, y[d], omega, v, deltas[0], aux
                            )
                        for i in range(deltas.shape[0]):
                            profile[i] += share * expected_log_likelihood(
                                l, l2, y[d], omega, v, deltas[i], aux
                            )
                    scalars[LABELLED_WEIGHT] += share
                    scalars[N_LABELLED] += 1
            write_document(model, s, ascent, d, weight, n_tokens, omega, v, scalars, posteriors)

    return e_step_block
