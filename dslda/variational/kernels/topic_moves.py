"""Moves of all topics down a gradient, in two passes over their table instead of one for each operation."""

from __future__ import annotations

import math

import numpy as np
from numba import float64, njit, types

from dslda.variational.kernels.layout import READ_ONLY_1D, READ_ONLY_2D
from dslda.variational.kernels.scratch import ENTRY_OPTIONS, vector
from dslda.variational.special import exp_shifted

__all__ = ["add_moments", "move"]

_TABLE = float64[:, ::1]


@njit(
    float64(READ_ONLY_2D, READ_ONLY_2D, READ_ONLY_1D[float64], _TABLE, _TABLE, float64, float64),
    **ENTRY_OPTIONS,
)
def add_moments(topics, gradient, total, first, second, first_decay, second_decay):
    """Let the running means of gradients and of their squares follow; returns the sum of the roots of the second.

    `gradient` is that before topics are normalised, and `total` its sum over the terms of each topic.
    """
    roots = 0.0
    for v in range(topics.shape[0]):
        for k in range(topics.shape[1]):
            slope = gradient[v, k] - topics[v, k] * total[k]
            first[v, k] = first_decay * first[v, k] + (1.0 - first_decay) * slope
            second[v, k] = second_decay * second[v, k] + (1.0 - second_decay) * slope * slope
            roots += math.sqrt(second[v, k])
    return roots


@njit(
    types.void(READ_ONLY_2D, READ_ONLY_2D, READ_ONLY_2D, float64, float64, float64, _TABLE), **ENTRY_OPTIONS
)
def move(topics, first, second, size, floor, lowest, out):
    """Write topics exp(-size first / (sqrt(second) + floor)), at least `lowest`, before they are normalised.

    Terms without a weight keep none.
    """
    n_topics = topics.shape[1]
    moves, factors = vector(n_topics), vector(n_topics)
    bits = np.empty(n_topics, dtype=np.uint64)
    for v in range(topics.shape[0]):
        for k in range(n_topics):
            moves[k] = -size * first[v, k] / (math.sqrt(second[v, k]) + floor)
        exp_shifted(moves, 0.0, factors, bits)
        least = lowest if topics[v, 0] > 0.0 else 0.0
        for k in range(n_topics):
            out[v, k] = max(topics[v, k] * factors[k], least)
