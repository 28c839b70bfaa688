"""Arguments of the compiled E-step: names, shapes and types of the arrays that go in and come out.

A block has D documents over V terms; a model has K topics, P covariates and, for a response of classes, C classes.
Responses, covariates, coefficients and dispersions are on the scale of the standardised response. Inputs are read-only.
Kernels add to sums, and write posteriors by document. They leave an output without rows as it is, and skip its work.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import float64, int32, int64, types
from numpy.typing import DTypeLike, NDArray

# entries of `BlockSums.scalars`: the fields of `SufficientStatistics` of these names
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
ELBO, LABELLED_WEIGHT, LOG_THETA_WEIGHT, CURVATURE, CURVATURE_BOUND = range(5)
N_LABELLED, N_EMPTY, N_UNCONVERGED, N_SWEEPS, N_TOKENS = range(5, len(SCALARS))
# columns of `BlockPosteriors.per_document`
PER_DOCUMENT = ("mean", "variance", "elbo", "n_sweeps", "n_known_tokens", "converged")
MEAN, VARIANCE, DOCUMENT_ELBO, SWEEPS, KNOWN_TOKENS, CONVERGED = range(len(PER_DOCUMENT))


class BlockDocuments(NamedTuple):
    """Documents as compressed sparse rows, with their responses and extras."""

    indptr: NDArray[np.int64]  # (D + 1,)
    terms: NDArray[np.int32]  # (nnz,)
    counts: NDArray[np.int32]  # (nnz,)
    y: NDArray[np.float64]  # (D,): NaN where missing; the code of a class
    extras: NDArray[np.float64]  # (D, 4 + P): `EXTRAS`, then covariates; or no rows for 0, 1, 1, 1 and P = 0


class BlockParameters(NamedTuple):
    """Parameters of the model, without concentration."""

    topics: NDArray[np.float64]  # (V, K)
    alpha: NDArray[np.float64]  # (K,)
    eta: NDArray[np.float64]  # (K,), of classes (K, C)
    zeta: NDArray[np.float64]  # (P,), of classes (P, C)
    deltas: NDArray[np.float64]  # (probes, parameters of the family): row 0 is delta; classes have none


class BlockOptions(NamedTuple):
    """Settings of the fit, and facts of the family."""

    rho: float  # 0 for posteriors of the words alone, with the sums of all responses
    max_sweeps: int
    sweep_tol: float
    tied: bool  # granularity "term"
    quadratic: bool  # l is quadratic in omega
    bound: bool  # of classes: `Family.uses_bound`


class BlockSums(NamedTuple):
    """Fields of `SufficientStatistics`; of `information` the lower triangle."""

    topic_counts: NDArray[np.float64]  # (V, K); without rows, nothing is summed but scalars
    score: NDArray[np.float64]  # (K + P,), of classes (K + P, C)
    information: NDArray[np.float64]  # (K + P, K + P), of classes (C, K + P, K + P)
    log_theta: NDArray[np.float64]  # (K,)
    profile: NDArray[np.float64]  # (probes,)
    scalars: NDArray[np.float64]  # `SCALARS`


class BlockPosteriors(NamedTuple):
    """Rows by document, see `DocumentPosterior`."""

    gamma: NDArray[np.float64]  # (D, K)
    omega: NDArray[np.float64]  # (D, C): predictors of classes
    per_document: NDArray[np.float64]  # (D, columns of `PER_DOCUMENT`)


READ_ONLY_1D = {t: types.Array(t, 1, "C", readonly=True) for t in (float64, int32, int64)}
READ_ONLY_2D = types.Array(float64, 2, "C", readonly=True)


def block_signature(*functions: Any, classes: bool) -> Any:
    """Type of a kernel of the four tuples of arguments and one of outputs by document.

    numba converts no field of a tuple: callers pass read-only arrays and numbers of the exact type. It takes no function in
    a tuple either, so that the family's `functions` are separate arguments.
    """
    coefficients = READ_ONLY_2D if classes else READ_ONLY_1D[float64]
    return types.void(
        types.NamedTuple(
            (*(READ_ONLY_1D[t] for t in (int64, int32, int32, float64)), READ_ONLY_2D), BlockDocuments
        ),
        types.NamedTuple(
            (READ_ONLY_2D, READ_ONLY_1D[float64], coefficients, coefficients, READ_ONLY_2D), BlockParameters
        ),
        types.NamedTuple((float64, int64, float64, *(types.boolean,) * 3), BlockOptions),
        types.NamedTuple(
            (
                float64[:, ::1],
                float64[:, ::1] if classes else float64[::1],
                float64[:, :, ::1] if classes else float64[:, ::1],
                *(float64[::1],) * 3,
            ),
            BlockSums,
        ),
        types.NamedUniTuple(float64[:, ::1], 3, BlockPosteriors),
        *functions,
    )


def read_only(array: NDArray[np.generic], dtype: DTypeLike = np.float64) -> NDArray[Any]:
    """A read-only view, as kernels take it; a copy of an unaligned array, as distributed delivers them (xgboost#8690)."""
    # np.require takes as long as a short kernel
    if array.dtype == dtype and array.flags.c_contiguous and array.flags.aligned:
        view = array.view(np.ndarray)
    else:
        view = np.require(array, dtype=dtype, requirements=["C", "A"]).view(np.ndarray)
    view.flags.writeable = False
    return view
