"""What Python prints of the objects that users get: a few lines, no arrays."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import dslda
from dslda.corpus.summary import ResponseSummary
from dslda.corpus.text import TextSettings
from dslda.datasets import load_clothing, simulate_corpus

ARCHIVES = Path(__file__).parents[1] / "formats" / "archives" / "0.1.0"
MAX_CHARACTERS = 1000


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    folder = tmp_path_factory.mktemp("archives")
    for name in ("plain.corpus", "categorical.model"):
        shutil.unpack_archive(ARCHIVES / f"{name}.zip", folder)
    model, corpus = dslda.load_model(folder / "categorical.model"), dslda.open_corpus(folder / "plain.corpus")
    simulated = simulate_corpus(n_documents=500, n_terms=300, n_topics=20, seed=0)
    return {
        "model": model,
        "record": model.record,
        "parameters": model.record.parameters,
        "profile": model.record.reference,
        "spec": model.spec,
        "training": model.training,
        "family": model.family,
        "topic": model.topics(10)[0],
        "coefficient": model.coefficients()[0],
        "corpus": corpus,
        "manifest": corpus.manifest,
        "vocabulary": corpus.vocabulary,
        "partition": corpus.read(0, doc_id=True),
        "reader": corpus.reader(0),
        "settings": TextSettings(stop_words=tuple(f"word{i}" for i in range(500))),
        "summary": ResponseSummary.of(np.arange(200) % 100),
        "clothing": load_clothing(),
        "simulated": simulated,
        "documents": simulated.block,
        "regressor": dslda.SLDARegressor(n_topics=5),
    }


def test_every_object_is_printed_on_a_few_lines(objects):
    long = {name: repr(value) for name, value in objects.items() if len(repr(value)) > MAX_CHARACTERS}
    assert not long
    assert not [name for name, value in objects.items() if "array(" in repr(value)]


def test_the_type_the_shape_and_the_first_of_many_items_are_shown(objects):
    text = repr(objects["clothing"])
    assert "ids=('review-00000', 'review-00001', 'review-00002', ... 22,641 in all)" in text
    assert "counts=<int32 [22641, 6638]>" in text
    assert "'rating': <float64 [22641]>" in text
