"""Supervised topic models (sLDA) for labelled corpora of any size, on Dask.

Learns topics that explain both the words of documents and a response, and predicts the response of new ones.
``__all__`` lists the public interface, which is loaded on first use, so that the import is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from dslda.versions import __version__

if TYPE_CHECKING:
    from dslda import plot
    from dslda.corpus.store import Corpus, open_corpus
    from dslda.cross_validation.evaluate import evaluate
    from dslda.estimators import SLDAClassifier, SLDARegressor
    from dslda.families.base import Family
    from dslda.ingestion.ingest import ingest
    from dslda.model import Model, load_model
    from dslda.scoring.score import score
    from dslda.training.train import train

__all__ = [
    "Corpus",
    "Family",
    "Model",
    "SLDAClassifier",
    "SLDARegressor",
    "__version__",
    "evaluate",
    "ingest",
    "load_model",
    "open_corpus",
    "plot",
    "score",
    "train",
]

_HOME = {
    "Corpus": "dslda.corpus.store",
    "Family": "dslda.families.base",
    "Model": "dslda.model",
    "SLDAClassifier": "dslda.estimators",
    "SLDARegressor": "dslda.estimators",
    "evaluate": "dslda.cross_validation.evaluate",
    "ingest": "dslda.ingestion.ingest",
    "load_model": "dslda.model",
    "open_corpus": "dslda.corpus.store",
    "score": "dslda.scoring.score",
    "train": "dslda.training.train",
}


def __getattr__(name: str) -> Any:
    if name == "plot":
        return import_module("dslda.plot")
    if name not in _HOME:
        raise AttributeError(f"module 'dslda' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
