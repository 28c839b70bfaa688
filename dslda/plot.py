"""Figures of a model: functions that take and return axes of matplotlib.

``model.plot`` has them as methods. matplotlib is installed apart: ``pip install 'dslda[plot]'``.

>>> axes = dslda.plot.topics(model)  # doctest: +SKIP
>>> axes.figure.savefig("topics.svg")  # doctest: +SKIP
"""

from __future__ import annotations

from dslda.report.document_figures import contributions, convergence
from dslda.report.prediction_figures import calibration, confusion, predictions, residuals
from dslda.report.topic_figures import class_map, topics, words

__all__ = [
    "calibration",
    "class_map",
    "confusion",
    "contributions",
    "convergence",
    "predictions",
    "residuals",
    "topics",
    "words",
]
