"""Files that hold positions of terms, on the command line: ingested, predicted and scored with a vocabulary."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
from numpy.testing import assert_allclose
from scipy.io import mmwrite
from scipy.sparse import csr_array, vstack

from dslda.corpus.store import open_corpus


@pytest.fixture
def counted(made: Path, tmp_path: Path) -> Path:
    """The documents of a corpus as Matrix Market, UCI and LDA-C files, with their vocabulary in another order."""
    corpus = open_corpus(made / "reviews.corpus")
    blocks = [corpus.read(p) for p in range(corpus.n_partitions)]
    matrix = csr_array(
        vstack([csr_array((b.counts, b.terms, b.indptr), (b.n_documents, corpus.n_terms)) for b in blocks])
    )[:, ::-1].tocsr()
    mmwrite(tmp_path / "docs.mtx", matrix)
    entries = matrix.tocoo()
    lines = [f"{d + 1} {v + 1} {n}" for d, v, n in zip(entries.row, entries.col, entries.data, strict=True)]
    header = [str(n) for n in (*matrix.shape, matrix.nnz)]
    (tmp_path / "docword.docs.txt").write_text("\n".join([*header, *lines]) + "\n")
    rows = [matrix[[d]].tocoo() for d in range(matrix.shape[0])]
    ldac = [
        " ".join([str(row.nnz), *(f"{v}:{n}" for v, n in zip(row.col, row.data, strict=True))])
        for row in rows
    ]
    (tmp_path / "docs.ldac").write_text("\n".join(ldac) + "\n")
    (tmp_path / "vocab.txt").write_text("\n".join(corpus.vocabulary.terms[::-1]) + "\n")
    return tmp_path


FILES = [("docs.mtx", "auto"), ("docword.docs.txt", "uci"), ("docs.ldac", "auto")]


@pytest.mark.parametrize(("name", "format"), FILES)
def test_predictions_of_positions_are_those_of_the_words(
    dslda: Callable, made: Path, counted: Path, name: str, format: str
) -> None:
    reading = ("--format", format, "--vocabulary", counted / "vocab.txt")
    done = dslda("predict", made / "stars.model", counted / name, *reading)
    assert done.code == 0, done.err
    rows = list(csv.DictReader(io.StringIO(done.out)))
    words = list(
        csv.DictReader(io.StringIO(dslda("predict", made / "stars.model", made / "reviews.corpus").out))
    )
    assert [row["id"] for row in rows] == [str(d) for d in range(len(words))]
    predicted = [float(row["prediction"]) for row in rows]
    assert_allclose(predicted, [float(row["prediction"]) for row in words], rtol=1e-12)
    out = counted / "scores"
    scored = dslda("score", made / "stars.model", counted / name, "--out", out, *reading)
    assert scored.code == 0, scored.err
    assert_allclose(pandas.read_parquet(out / "part-000000.parquet")["prediction"], predicted, rtol=1e-12)
    # a run resumes only with the same terms
    assert dslda("score", made / "stars.model", counted / name, "--out", out, *reading).code == 0
    (counted / "vocab.txt").write_text("\n".join(sorted((counted / "vocab.txt").read_text().split())) + "\n")
    assert dslda("score", made / "stars.model", counted / name, "--out", out, *reading).code == 2


def test_the_vocabulary_is_asked_for_where_it_is_needed_alone(
    dslda: Callable, made: Path, counted: Path
) -> None:
    for command in (("predict",), ("score", "--out", counted / "o")):
        verb, *options = command
        wrong = dslda(verb, made / "stars.model", counted / "docs.mtx", *options)
        assert "vocabulary must name the terms whose positions the documents hold" in wrong.error
        wrong = dslda(
            verb,
            made / "stars.model",
            made / "reviews.jsonl",
            *options,
            "--vocabulary",
            counted / "vocab.txt",
        )
        assert "vocabulary must be left out: JSON lines hold words" in wrong.error


def test_help_lists_every_format(dslda: Callable) -> None:
    for command in ("ingest", "predict", "score"):
        assert "uci" in dslda(command, "--help").out
