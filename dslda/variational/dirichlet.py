"""Maximum likelihood of the Dirichlet parameter alpha from expected log proportions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

__all__ = ["update_alpha"]

# where every number of the E-step stays finite (see FitSpec)
_LOWEST, _HIGHEST = 1e-10, 1e6
_MOST_STEPS = 100
_TOLERANCE = 1e-10


def update_alpha(
    alpha: NDArray[np.float64], log_theta: NDArray[np.float64], weight: float, *, symmetric: bool
) -> NDArray[np.float64]:
    """Maximise weight (log Gamma(sum alpha) - sum log Gamma(alpha_k)) + sum (alpha_k - 1) log_theta_k.

    Newton with the linear-time inverse of Blei, Ng and Jordan (2003, appendix A.4.2), on log alpha, so that alpha stays
    above 0; a step that does not ascend is halved.

    Parameters
    ----------
    alpha : ndarray of float64, shape (K,)
        Where to start.
    log_theta : ndarray of float64, shape (K,)
        Sum of E[log theta] over documents.
    weight : float
        Sum of the weights of these documents; 0 leaves alpha as it is.
    symmetric : bool
        Keep all entries equal.
    """
    # with one topic there is nothing to estimate: theta is 1
    if not weight > 0.0 or len(alpha) == 1:
        return alpha
    mean_log = log_theta / weight
    if symmetric:
        mean_log = np.full_like(mean_log, mean_log.mean())
        alpha = np.full_like(alpha, alpha.mean())
    logs = np.log(alpha)
    value = _objective(logs, mean_log)
    for _ in range(_MOST_STEPS):
        step = _newton_step(np.exp(logs), mean_log)
        size = 1.0
        while size > 1e-8:
            trial = np.clip(logs + size * np.clip(step, -2.0, 2.0), np.log(_LOWEST), np.log(_HIGHEST))
            new = _objective(trial, mean_log)
            if new >= value:
                break
            size *= 0.5
        else:
            break
        moved = float(np.abs(trial - logs).max())
        logs, value = trial, new
        if moved < _TOLERANCE:
            break
    new_alpha: NDArray[np.float64] = np.exp(logs)
    return new_alpha


def _objective(logs: NDArray[np.float64], mean_log: NDArray[np.float64]) -> float:
    alpha = np.exp(logs)
    return float(
        special.gammaln(alpha.sum()) - special.gammaln(alpha).sum() + ((alpha - 1.0) * mean_log).sum()
    )


def _newton_step(alpha: NDArray[np.float64], mean_log: NDArray[np.float64]) -> NDArray[np.float64]:
    """Uphill step in log alpha. The Hessian is a diagonal plus a constant times alpha alpha'."""
    slope = special.digamma(alpha.sum()) - special.digamma(alpha) + mean_log
    common = special.polygamma(1, alpha.sum())
    gradient = alpha * slope
    # the slope's own share of the curvature is left out where it would bend upwards
    diagonal = -(alpha**2) * special.polygamma(1, alpha) + np.minimum(gradient, 0.0)
    inverse = 1.0 / diagonal
    denominator = 1.0 / common + (alpha**2 * inverse).sum()
    along = (alpha * inverse * gradient).sum() / denominator
    step: NDArray[np.float64] = -(inverse * gradient - inverse * alpha * along)
    # an indefinite curvature may point downhill
    return step if step @ gradient > 0.0 else gradient
