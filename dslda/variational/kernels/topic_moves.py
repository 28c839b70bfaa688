"""Moves of all topics down a gradient, in few passes over their table instead of one for each operation."""

from __future__ import annotations

import math

from numba import float64, int64, njit, types

from dslda.variational.kernels.layout import READ_ONLY_2D
from dslda.variational.kernels.scratch import ENTRY_OPTIONS, vector, words
from dslda.variational.special import exp_shifted

__all__ = ["add_moments", "move"]

_TABLE = float64[:, ::1]


@njit(
    types.Tuple((float64, int64))(
        READ_ONLY_2D, READ_ONLY_2D, float64, float64, _TABLE, _TABLE, float64, float64
    ),
    **ENTRY_OPTIONS,
)
def add_moments(topics, gradient, scale, prior, first, second, first_decay, second_decay):
    """Let the running means of gradients and of their squares follow; returns the sum of the roots of the second, and the
    number of terms with a weight.

    The gradient before topics are normalised is `scale` times `gradient`, less `prior` for each of these terms.
    """
    n_topics = topics.shape[1]
    total = vector(n_topics)
    n_known = 0
    for k in range(n_topics):
        total[k] = 0.0
    for v in range(topics.shape[0]):
        n_known += topics[v, 0] > 0.0
        for k in range(n_topics):
            total[k] += gradient[v, k]
    for k in range(n_topics):
        total[k] = scale * total[k] - n_known * prior
    roots = 0.0
    for v in range(topics.shape[0]):
        own = prior if topics[v, 0] > 0.0 else 0.0
        for k in range(n_topics):
            # the second part is that of the normalisation of each topic over its terms
            slope = scale * gradient[v, k] - own - topics[v, k] * total[k]
            first[v, k] = first_decay * first[v, k] + (1.0 - first_decay) * slope
            second[v, k] = second_decay * second[v, k] + (1.0 - second_decay) * slope * slope
            roots += math.sqrt(second[v, k])
    return roots, n_known


@njit(
    types.void(READ_ONLY_2D, READ_ONLY_2D, READ_ONLY_2D, float64, float64, float64, _TABLE), **ENTRY_OPTIONS
)
def move(topics, first, second, size, floor, lowest, out):
    """Write topics exp(-size first / (sqrt(second) + floor)), at least `lowest`, normalised over the terms of each topic.

    Terms without a weight keep none.
    """
    n_topics = topics.shape[1]
    moves, factors, total = vector(n_topics), vector(n_topics), vector(n_topics)
    bits = words(n_topics)
    for k in range(n_topics):
        total[k] = 0.0
    for v in range(topics.shape[0]):
        for k in range(n_topics):
            moves[k] = -size * first[v, k] / (math.sqrt(second[v, k]) + floor)
        exp_shifted(moves, 0.0, factors, bits)
        least = lowest if topics[v, 0] > 0.0 else 0.0
        for k in range(n_topics):
            out[v, k] = max(topics[v, k] * factors[k], least)
            total[k] += out[v, k]
    for k in range(n_topics):
        total[k] = 1.0 / total[k]
    for v in range(topics.shape[0]):
        for k in range(n_topics):
            out[v, k] *= total[k]
