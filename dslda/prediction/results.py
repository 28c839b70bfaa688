"""Predictions of documents, and flags of those without a full one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FLAG_MEANING", "WITHOUT_PREDICTION", "Predictions"]

WITHOUT_PREDICTION = ("no_covariate", "unknown_level")
"""Flags of documents that have no prediction."""

FLAG_MEANING = {
    "no_covariate": "lack a covariate of the model: they have no prediction",
    "unknown_level": "have a level of a covariate that training did not see: they have no prediction",
    "empty": "are empty: their prediction is the base rate",
    "no_known_word": "have no word that the model knows: their prediction is the base rate",
    "not_converged": "stopped at the sweep cap of the model: their prediction is not final",
}
"""Predicates of documents with each flag, for messages."""


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """Predictions of documents, in their order.

    Attributes
    ----------
    doc_id : tuple of str, length D
    prediction : ndarray of float64 or str, shape (D,)
        Expected response in the user's units, or the name of the most probable class. Without a prediction it is NaN or
        None, and so are the `probabilities`.
    tokens, known_tokens : ndarray of int64, shape (D,)
        Tokens of each document, and those of terms that the model knows, on which the prediction rests.
    oov_share : ndarray of float64, shape (D,)
        Share of a document's tokens that the model does not know; NaN without tokens. The tokens of a text are all that
        the tokeniser makes, n-grams included, but for stop words; so words that `min_df`, `max_df` and `max_features` keep
        out of the vocabulary are unknown, common ones too. The tokens of pairs (words, counts) are all words but stop
        words. A corpus or matrix has only the tokens that are counted in it: the words that its own ingestion dropped are
        gone, so the share is 0 for the corpus trained on.
    flag : tuple of str, length D
        "empty" (no token, in the same sense) or "no_known_word": the prediction is the base rate, which is the mean
        response of training but for covariates and exposure, and the topics are those of the prior;
        "not_converged": inference stopped at its sweep cap; "" otherwise. Before all these come "no_covariate" (a
        covariate of the model is missing, or an exposure or trials that others have) and "unknown_level" (training did
        not see this level of a covariate): there is no prediction.
    topic_proportions : ndarray of float64, shape (D, K)
        Posterior means of theta: the shares of the known words by topic, drawn towards the prior.
    probabilities : ndarray of float64, shape (D, C), or None
        Of the classes or levels, where the response has any.
    classes : tuple of str
        Their names.
    """

    doc_id: tuple[str, ...]
    prediction: NDArray[Any]
    tokens: NDArray[np.int64]
    known_tokens: NDArray[np.int64]
    oov_share: NDArray[np.float64]
    flag: tuple[str, ...]
    topic_proportions: NDArray[np.float64]
    probabilities: NDArray[np.float64] | None = None
    classes: tuple[str, ...] = ()

    def table(self) -> pa.Table:
        """One row a document, with a column ``probability_<class>`` for each class, and ``topic_0``, ``topic_1``, ..."""
        import pyarrow as pa

        columns: dict[str, Any] = {
            "id": pa.array(self.doc_id, pa.string()),
            "prediction": pa.array(
                self.prediction, pa.string() if self.prediction.dtype == object else None, from_pandas=True
            ),
            "known_tokens": self.known_tokens,
            "oov_share": pa.array(self.oov_share, from_pandas=True),
            "flag": pa.array(self.flag, pa.string()),
        }
        if self.probabilities is not None:
            columns |= {
                f"probability_{name}": pa.array(np.ascontiguousarray(column), from_pandas=True)
                for name, column in zip(self.classes, self.probabilities.T, strict=True)
            }
        columns |= {
            f"topic_{k}": np.ascontiguousarray(column) for k, column in enumerate(self.topic_proportions.T)
        }
        return pa.table(columns)
