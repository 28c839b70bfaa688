"""Rivals: penalties chosen among the documents that they are fitted to."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from dslda.evaluation.response_measures import Kind
from dslda.evaluation.rivals import PenalisedRegression


@pytest.mark.parametrize("kind", ["real", "count"])
def test_an_inner_part_of_equal_responses_does_not_choose_the_penalty(kind: Kind) -> None:
    """Of 20 documents an inner part has four: those of some are all 0 here, and have neither variance nor deviance."""
    features = np.linspace(-4.0, 1.0, 20)[:, np.newaxis]
    y = np.round(np.exp(4.0 * features[:, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        rival = PenalisedRegression(kind, 0).fit(features, y)
    strongest = PenalisedRegression(kind, 0)._penalties()[0]
    assert rival.penalty < strongest


@pytest.mark.parametrize(("kind", "n_classes"), [("count", 0), ("binary", 2), ("classes", 2), ("ordinal", 2)])
def test_one_document_of_its_kind_leaves_an_inner_part_with_one_response(kind: Kind, n_classes: int) -> None:
    features = np.linspace(-1.0, 1.0, 10)[:, np.newaxis]
    y = (np.arange(10) == 9).astype(float)
    predicted = PenalisedRegression(kind, n_classes).fit(features, y).predict(features)
    assert np.all(np.isfinite(predicted))
    if n_classes:
        assert predicted.shape == (10, 2)
        np.testing.assert_allclose(predicted.sum(axis=1), 1.0)


def test_fewer_documents_than_inner_parts_have_fewer_parts() -> None:
    features, y = np.arange(3.0)[:, np.newaxis], np.array([1.0, 2.0, 4.0])
    assert np.all(np.isfinite(PenalisedRegression("real", 0).fit(features, y).predict(features)))
