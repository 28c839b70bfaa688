"""Matrix Market files and UCI bags of words: what scipy writes is read back, and cuts change nothing."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import io, sparse

import dslda
from dslda.exceptions import InputError
from dslda.inputs.fields import Fields
from dslda.inputs.files import cut_file
from dslda.inputs.formats.matrix_market import EntryLines, MatrixMarket, UciBags
from dslda.inputs.streams import InputFile

N_TERMS = 5
TERMS = [f"term{i}" for i in range(N_TERMS)]
MATRICES = st.lists(st.lists(st.integers(0, 3), min_size=N_TERMS, max_size=N_TERMS), max_size=9).map(
    lambda rows: np.array(rows, dtype=np.int32).reshape(-1, N_TERMS)
)


def uci_lines(matrix: np.ndarray) -> str:
    entries = sparse.coo_array(matrix)
    order = np.lexsort((entries.col, entries.row))
    lines = [f"{entries.row[i] + 1} {entries.col[i] + 1} {entries.data[i]}" for i in order]
    return "\n".join([*map(str, (*matrix.shape, len(lines))), *lines, ""])


def write(path: Path, matrix: np.ndarray) -> EntryLines:
    """A matrix in the format that the name of the file says."""
    if ".mtx" in path.name:
        plain = path.with_name(path.name.removesuffix(".gz"))
        io.mmwrite(
            plain, sparse.csr_array(matrix), field="real" if "real" in path.name else None, symmetry="general"
        )
        content = plain.read_bytes()
    else:
        content = uci_lines(matrix).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    file = InputFile(str(path), path.stat().st_size)
    return (MatrixMarket if ".mtx" in path.name else UciBags)(file, n_terms=N_TERMS)


def documents(piece: Any) -> list[tuple[int, dict[str, int]]]:
    return [
        (number, dict(zip(record["words"], record["counts"], strict=True)))
        for number, record in piece.records(Fields(words="words", counts="counts"))
    ]


@pytest.mark.parametrize("name", ["a.mtx", "a.mtx.gz", "real.mtx", "docword.a.txt", "docword.a.txt.gz"])
@settings(max_examples=40, deadline=None)
@given(matrix=MATRICES, target=st.integers(1, 60))
def test_every_document_is_read_once_wherever_a_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, name: str, matrix: np.ndarray, target: int
) -> None:
    whole = write(tmp_path_factory.mktemp("matrix") / name, matrix)
    expected = [(d, {str(v): int(n) for v, n in enumerate(row) if n}) for d, row in enumerate(matrix)]
    assert documents(whole) == expected
    pieces = [piece for piece, _ in cut_file(whole, Fields(), target)]
    assert [document for piece in pieces for document in documents(piece)] == expected
    assert [len(list(piece.raw_records())) for piece in pieces] == [len(documents(piece)) for piece in pieces]
    assert all(type(whole)(whole.file, n_terms=N_TERMS, **piece.range()) == piece for piece in pieces)


def test_small_targets_make_pieces(tmp_path: Path) -> None:
    piece = write(tmp_path / "a.mtx", np.ones((40, N_TERMS), dtype=np.int32))
    assert len(cut_file(piece, Fields(), 50)) > 10


HEADER = "%%MatrixMarket matrix coordinate integer general\n% a remark\n\n"


@pytest.mark.parametrize(
    ("content", "place", "message"),
    [
        ("3 5 1\n1 1 2\n", "line 1", "not a Matrix Market file"),
        ("%%MatrixMarket matrix array real general\n3 5\n", "line 1", "must be 'coordinate integer general'"),
        ("%%MatrixMarket matrix coordinate integer symmetric\n", "line 1", "must be 'coordinate integer"),
        (HEADER, "line 3", "must have a line 'rows columns entries'"),
        (HEADER + "3 5\n", "line 4", "must be 'rows columns entries', got '3 5'"),
        (HEADER + f"{'9' * 5000} 5 1\n", "line 4", "must be 'rows columns entries'"),
        (HEADER + "3 5 2\n1 1 2\n1 0 2\n", "line 6", "must be an entry"),
        (HEADER + "3 5 2\n1 1 2\n\n1 2\n", "line 7", "must be an entry 'document term count' .*, got '1 2'"),
        (HEADER + "3 5 1\n1 1 1.5\n", "line 5", "must be an entry"),
        (HEADER + "3 5 1\n1 1 -1\n", "line 5", "must be an entry"),
        (HEADER + "3 5 1\n1 6 1\n", "line 5", "term 6 is not in the vocabulary of 5 terms"),
        (HEADER + "3 5 1\n4 1 1\n", "line 5", "rows be among those of the header, got row 4"),
        (HEADER + "3 5 3\n1 1 1\n3 1 1\n2 1 1\n", "line 7", "entries must be sorted by row, .* got row 2"),
        (HEADER + "3 5 3\n1 1 1\n2 1 1\n", "", "must have 3 entries as the header says, got 2"),
    ],
)
@pytest.mark.parametrize("target", [None, 1])
def test_a_file_that_breaks_a_rule_is_named_by_line(
    tmp_path: Path, content: str, place: str, message: str, target: int | None
) -> None:
    path = tmp_path / "a.mtx"
    path.write_text(content)
    whole = MatrixMarket(InputFile(str(path), len(content)), n_terms=N_TERMS)

    def read() -> None:
        for piece in [whole] if target is None else [piece for piece, _ in cut_file(whole, Fields(), target)]:
            documents(piece)

    with pytest.raises(InputError, match=message) as caught:
        read()
    assert caught.value.place == (f"{path}, {place}" if place else str(path))


def test_the_vocabulary_must_name_every_column(tmp_path: Path) -> None:
    write(tmp_path / "a.mtx", np.eye(5, dtype=np.int32))
    for vocabulary in (None, TERMS[:4]):
        with pytest.raises(InputError) as caught:
            dslda.ingest(tmp_path / "a.mtx", vocabulary=vocabulary)
        assert caught.value.parameter == "vocabulary"


@pytest.mark.filterwarnings("ignore::dslda.exceptions.DataWarning")
@pytest.mark.parametrize(
    ("name", "format"), [("a.mtx.gz", "auto"), ("docword.a.txt", "uci"), ("docword.a.txt", "auto")]
)
def test_a_corpus_of_a_file_is_that_of_the_matrix(tmp_path: Path, name: str, format: str) -> None:
    matrix = np.random.default_rng(0).poisson(0.6, (30, N_TERMS)).astype(np.int32)
    write(tmp_path / name, matrix)
    (tmp_path / "vocab.a.txt").write_text("\n".join(TERMS) + "\n")
    corpus = dslda.ingest(tmp_path / name, vocabulary=tmp_path / "vocab.a.txt", format=format)
    expected = dslda.ingest(sparse.csr_array(matrix), vocabulary=TERMS)
    assert corpus.content_hash == expected.content_hash


@pytest.mark.filterwarnings("ignore::dslda.exceptions.DataWarning")
@pytest.mark.parametrize("dtype", [bool, np.uint8, np.uint64, np.float32])
def test_values_may_be_of_any_type_that_scipy_writes(tmp_path: Path, dtype: type) -> None:
    matrix = np.tri(4, N_TERMS, dtype=dtype)
    io.mmwrite(tmp_path / "a.mtx", sparse.coo_array(matrix), symmetry="general")
    corpus = dslda.ingest(tmp_path / "a.mtx", vocabulary={term: i for i, term in enumerate(TERMS)})
    assert corpus.read(0).counts.tolist() == [1] * 10
    assert corpus.content_hash == dslda.ingest(sparse.csr_array(matrix), vocabulary=TERMS).content_hash
