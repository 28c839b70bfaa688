"""One pass over topics that are Dirichlet distributions: exp(E[log beta]) for the E-step, sums for the divergence."""

from __future__ import annotations

from numba import float64, int64, njit, types

from dslda.variational.kernels.layout import READ_ONLY_1D, READ_ONLY_2D
from dslda.variational.kernels.scratch import ENTRY_OPTIONS, matrix, vector, words
from dslda.variational.special import exp_shifted, log_gamma_sum_and_digamma

__all__ = ["expected_logs"]

_SIGNATURE = types.Tuple((int64, float64))(
    READ_ONLY_2D,  # topics
    READ_ONLY_1D[float64],  # concentration
    READ_ONLY_1D[float64],  # digamma of it
    float64,  # topic_prior
    float64[:, ::1],  # weights
)


@njit(_SIGNATURE, **ENTRY_OPTIONS)
def expected_logs(
    topics, concentration, digammas_of_sums, topic_prior, weights
):  # pragma: no cover - compiled
    """Return the number of known terms and, over them, sum (lambda - topic_prior) E[log beta] - log Gamma(lambda).

    lambda is concentration * topics. Writes exp(E[log beta]) to `weights` if it has rows, but not to those of unknown terms.
    It stays above 1e-100 (`LOWEST_EXPONENT`), so that the E-step takes the same terms for known.
    """
    n_topics = topics.shape[1]
    parameters, digammas, bits = vector(n_topics), vector(n_topics), words(n_topics)
    work = matrix(2, n_topics)
    write = weights.shape[0] > 0
    n_known = int64(0)
    total = 0.0
    for v in range(topics.shape[0]):
        known = False
        for k in range(n_topics):
            parameters[k] = concentration[k] * topics[v, k]
            known = known or topics[v, k] > 0.0
        if not known:
            continue
        n_known += 1
        log_gammas = log_gamma_sum_and_digamma(parameters, digammas, work, bits)
        part = 0.0
        for k in range(n_topics):
            digammas[k] -= digammas_of_sums[k]
            part += (parameters[k] - topic_prior) * digammas[k]
        total += part - log_gammas
        if write:
            exp_shifted(digammas, 0.0, weights[v], bits)
    return n_known, total
