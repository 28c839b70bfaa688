"""The response given its linear predictor: log-likelihood, slope and information of every document."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dslda.families.base import Array, Family
from dslda.variational.conditional.posterior import WeightedDocuments
from dslda.variational.design import AUX, EMPHASIS, FIRST_COVARIATE, OFFSET, WEIGHT
from dslda.variational.kernels.layout import read_only
from dslda.variational.parameters import Parameters

__all__ = ["Responses", "beside_words", "predictors"]


@dataclass(frozen=True, slots=True, eq=False)
class Responses:
    """The responses of a block with their companions.

    Attributes
    ----------
    y : ndarray of float64, shape (D,)
        NaN where missing.
    offset, aux : ndarray of float64, shape (D,)
    word_weight : ndarray of float64, shape (D,)
        Weight of the words of each document.
    weight : ndarray of float64, shape (D,)
        Weight of the response of each document.
    covariates : ndarray of float64, shape (D, P)
    """

    y: Array
    offset: Array
    aux: Array
    word_weight: Array
    weight: Array
    covariates: Array

    @classmethod
    def of(cls, y: Array, extras: Array | None) -> Responses:
        """From the columns of :meth:`~dslda.variational.design.Design.extras`."""
        n = len(y)
        if extras is None:
            return cls(y, np.zeros(n), np.ones(n), np.ones(n), np.ones(n), np.zeros((n, 0)))
        return cls(
            y,
            extras[:, OFFSET],
            extras[:, AUX],
            extras[:, WEIGHT],
            extras[:, WEIGHT] * extras[:, EMPHASIS],
            extras[:, FIRST_COVARIATE:],
        )

    @property
    def labelled(self) -> NDArray[np.bool_]:
        return ~np.isnan(self.y)

    def log_likelihood(self, omega: Array, family: Family, delta: Array) -> Array:
        """log p(y | omega) of each document, shape (D,); 0 where the response is missing."""
        values: Array = self.log_likelihoods(omega[np.newaxis], family, delta[np.newaxis])[0]
        return values

    def log_likelihoods(self, omegas: Array, family: Family, deltas: Array) -> Array:
        """The same for R predictors and deltas, shapes (R, D), or (R, D, C), and (R, n_delta); returns shape (R, D)."""
        if omegas.ndim == 3:
            values = np.take_along_axis(omegas, self.codes[np.newaxis, :, np.newaxis], axis=2)[..., 0]
            values = values - logsumexp(omegas, axis=2)
        else:
            values = self._evaluated("log_likelihood", omegas, family, deltas)
        return np.where(self.labelled, values, 0.0)

    def slope_and_information(
        self, omega: Array, family: Family, delta: Array
    ) -> tuple[Array, Array, NDArray[np.int64]]:
        """First derivative of log p(y | omega) by omega, and its information; of classes by each omega_c.

        Shapes are those of `omega`; both are 0 where the response is missing or they are not finite. The documents of the
        second kind come third, ascending.
        """
        if omega.ndim == 2:
            p = np.exp(omega - logsumexp(omega, axis=1, keepdims=True))
            slope = -p
            slope[np.arange(len(p)), self.codes] += 1.0
            information = p * (1.0 - p)
        else:
            one, own = omega[np.newaxis], delta[np.newaxis]
            slope = self._evaluated("first_derivative", one, family, own)[0]
            information = self._evaluated("information_weight", one, family, own)[0]
        missing = ~self.labelled
        slope[missing], information[missing] = 0.0, 0.0
        lost = ~np.isfinite(slope + information)
        left_out = np.flatnonzero(lost if omega.ndim == 1 else lost.any(axis=1))
        slope[left_out], information[left_out] = 0.0, 0.0
        return slope, information, left_out

    @property
    def codes(self) -> NDArray[np.int64]:
        """Codes of classes; 0 where the response is missing."""
        return np.where(self.labelled, self.y, 0.0).astype(np.int64)

    def _evaluated(self, name: str, omegas: Array, family: Family, deltas: Array) -> Array:
        from dslda.variational.kernels.family_values import evaluate

        values = np.zeros(omegas.shape)
        evaluate(
            getattr(family, name),
            read_only(self.y),
            read_only(omegas),
            read_only(deltas),
            read_only(self.aux),
            values,
        )
        return values


def predictors(
    zbar: Array, responses: Responses, parameters: Parameters, documents: WeightedDocuments
) -> Array:
    """Linear predictors zbar'eta + x'zeta + offset and what the remainder adds, shape (D,) or (D, C).

    They are summed document by document, so that no other document changes their bits.
    """
    omega: Array = np.einsum("dk,k...->d...", zbar, parameters.eta)
    if parameters.remainder is not None:
        omega += parameters.remainder.of(documents.normalised(parameters.n_terms), zbar)
    return beside_words(omega, responses, parameters)


def beside_words(omega: Array, responses: Responses, parameters: Parameters) -> Array:
    """Linear predictors with x'zeta and the offset added to what words predict."""
    if responses.covariates.shape[1]:
        omega = omega + np.einsum("dp,p...->d...", responses.covariates, parameters.zeta)
    shifted: Array = omega + (responses.offset if omega.ndim == 1 else responses.offset[:, np.newaxis])
    return shifted
