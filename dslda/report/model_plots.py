"""The figures of `dslda.plot` as methods of a model."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

from dslda.report.document_figures import contributions, convergence
from dslda.report.prediction_figures import calibration, confusion, predictions, residuals
from dslda.report.topic_figures import class_map, topics, words

if TYPE_CHECKING:
    from dslda.model import Model

__all__ = ["ModelPlots"]

P = ParamSpec("P")


class ModelPlots:
    """What `Model.plot` returns: each function of `dslda.plot`, without the model where it takes one."""

    def __init__(self, model: Model) -> None:
        self.topics = _bound(topics, model)
        self.words = _bound(words, model)
        self.class_map = _bound(class_map, model)
        self.contributions = _bound(contributions, model)
        self.convergence = _bound(convergence, model)
        self.predictions = predictions
        self.residuals = residuals
        self.calibration = calibration
        self.confusion = confusion


def _bound(figure: Callable[Concatenate[Model, P], Any], model: Model) -> Callable[P, Any]:
    """A function as a method of the model: for editors and notebooks with its other parameters, and its documentation."""
    return MethodType(figure, model)
