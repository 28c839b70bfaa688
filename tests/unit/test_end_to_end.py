"""Records to predictions through every public step: what the quick tests have of a fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose

import dslda
from tests.helpers.files import topic_records, write_records


@pytest.mark.quick
def test_new_documents_are_predicted_alike_from_memory_and_from_files(tmp_path: Path) -> None:
    corpus = dslda.ingest(
        write_records(tmp_path / "old.jsonl", topic_records(300, seed=0)),
        tmp_path / "old.corpus",
        text="text",
        response="y",
        max_df=1.0,
    )
    dslda.train(corpus, response="y", n_topics=3, tol=1e-3).save(tmp_path / "y.model")
    model = dslda.load_model(tmp_path / "y.model")
    new = list(topic_records(200, seed=1))
    predictions = model.predict([record["text"] for record in new])
    assert model.score(new) > 0.7
    dslda.score(model, write_records(tmp_path / "new.jsonl", new), tmp_path / "scores")
    rows = pq.read_table(tmp_path / "scores" / "part-000000.parquet")
    assert_allclose(rows["prediction"].to_numpy(), predictions, rtol=1e-6)
    assert np.ptp(predictions) > 1
