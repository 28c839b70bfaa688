"""E[exp(omega)] of one document as a product over its tokens, readable: the exact form for Poisson responses.

These are the parts of :mod:`dslda.variational.oracle.one_predictor` that differ; docs/model.md has the formulas.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

__all__ = ["expected_exp", "log_kappa", "product_statistics", "update_rows"]

_LARGEST_EXPONENT = 300.0


def log_kappa(phi: NDArray[np.float64], eta: NDArray[np.float64], length: float) -> NDArray[np.float64]:
    """log sum_k phi_nk exp(eta_k / N) of every row of `phi`."""
    logs: NDArray[np.float64] = special.logsumexp(eta / length, b=phi, axis=1)
    return logs


def expected_exp(log_a: float) -> float:
    """exp with the bound of the kernel."""
    return float(np.exp(min(log_a, _LARGEST_EXPONENT)))


def update_rows(
    phi: NDArray[np.float64],
    copies: NDArray[np.float64],
    exponents: NDArray[np.float64],
    eta: NDArray[np.float64],
    *,
    y: float,
    offset: float,
    rho: float,
) -> NDArray[np.float64]:
    """The exact coordinate update of every row of `phi` in turn.

    Row n is proportional to exp(exponents + rho y eta / N - rho A_{-n} kappa_n^(c - 1) exp(eta / N)), where A_{-n} leaves
    out the row's own c tokens.

    Parameters
    ----------
    phi, exponents : ndarray of float64, shape (n, K)
        `exponents`: log beta + E[log theta].
    copies : ndarray of float64, shape (n,)
    eta : ndarray of float64, shape (K,)
    y, offset, rho : float
        `rho` over the dispersion.
    """
    phi = phi.copy()
    n = float(copies.sum())
    logs = log_kappa(phi, eta, n)
    low, high = float(eta.min()) / n, float(eta.max()) / n
    for i, c in enumerate(copies):
        others = offset + float(copies @ logs) - c * logs[i]

        def assign(
            x: float, i: int = i, c: float = c, others: float = others
        ) -> tuple[NDArray[np.float64], float]:
            # a constant in the exponents is free; with expm1 they stay small where eta / N is small
            pull = -rho * expected_exp(others + high + (c - 1.0) * x) * np.expm1(eta / n - high)
            row = special.softmax(exponents[i] + rho * y * eta / n + pull)
            return row, float(log_kappa(row[np.newaxis], eta, n)[0]) - x

        # x = log kappa: that of the row falls in x, so there is one root, explicit for a single token
        x = low
        if high > low and c > 1.0:
            x = optimize.brentq(lambda x, f=assign: f(x)[1], low - 1e-9, high + 1e-9, xtol=1e-15, rtol=1e-15)
        phi[i] = assign(x)[0]
        logs[i] = log_kappa(phi[i : i + 1], eta, n)[0]
    return phi


def product_statistics(
    phi: NDArray[np.float64],
    copies: NDArray[np.float64],
    eta: NDArray[np.float64],
    *,
    y: float,
    offset: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Score y E[zbar] - E[A zbar] and information E[A zbar zbar'] of eta, for dispersion 1."""
    n = float(copies.sum())
    logs = log_kappa(phi, eta, n)
    a = expected_exp(offset + float(copies @ logs))
    psi = phi * np.exp(eta / n - logs[:, np.newaxis])
    total = copies @ psi
    gram = (psi * copies[:, np.newaxis]).T @ psi
    score = (y * (copies @ phi) - a * total) / n
    return score, a * (np.outer(total, total) - gram + np.diag(total)) / n**2
