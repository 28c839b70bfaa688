"""Where the two kernels find and leave what they hand over in arrays: positions, and types of arguments."""

from __future__ import annotations

from numba import float64, int32, int64, types

__all__ = ["PER_DOCUMENT", "READ_ONLY_1D", "READ_ONLY_2D", "SCALARS"]

# names of the entries of `scalars`, in order
SCALARS = (
    "elbo",
    "labelled_weight",
    "log_theta_weight",
    "curvature",
    "curvature_bound",
    "n_labelled",
    "n_empty",
    "n_unconverged",
    "n_sweeps",
    "n_tokens",
)
(
    ELBO,
    LABELLED_WEIGHT,
    LOG_THETA_WEIGHT,
    CURVATURE,
    CURVATURE_BOUND,
    N_LABELLED,
    N_EMPTY,
    N_UNCONVERGED,
    N_SWEEPS,
    N_TOKENS,
) = range(len(SCALARS))
# names of the columns of `per_document`, in order
PER_DOCUMENT = ("mean", "variance", "elbo", "n_sweeps", "n_known_tokens", "converged")

READ_ONLY_1D = {t: types.Array(t, 1, "C", readonly=True) for t in (float64, int32, int64)}
READ_ONLY_2D = types.Array(float64, 2, "C", readonly=True)
