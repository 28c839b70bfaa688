from __future__ import annotations

import csv
import gzip
import io
import json
import os
import re
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslda.exceptions import InputError
from dslda.inputs import streams
from dslda.inputs.fields import Fields
from dslda.inputs.files import cut_file, group_sources, list_files, target_bytes, whole_files
from dslda.inputs.formats import parquet
from dslda.inputs.formats.csv import CsvLines
from dslda.inputs.formats.jsonl import JsonLines
from dslda.inputs.formats.ldac import LdacLines
from dslda.inputs.formats.matrix_market import MatrixMarket
from dslda.inputs.formats.parquet import ParquetRows
from dslda.inputs.formats.text_files import TextFile
from dslda.inputs.streams import InputFile, Lines, read_blocks, read_text
from tests.helpers.errors import refused
from tests.helpers.files import COMPRESS
from tests.helpers.measured import measured

ENDINGS = tuple(COMPRESS)
FIELDS = Fields(text="text")


def compress(data: bytes, ending: str) -> bytes:
    return COMPRESS[ending](data)


def write(path: Path, data: bytes) -> InputFile:
    path.write_bytes(data)
    return InputFile(str(path), len(data))


def texts(source, fields: Fields = FIELDS) -> list[str]:
    return [record[fields.text] for _, record in source.records(fields)]


# lines


@pytest.mark.parametrize("ending", ENDINGS)
@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.text(alphabet="aé苹\r", max_size=6), max_size=8),
    last_ends=st.booleans(),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    block=st.integers(1, 9),
)
def test_every_line_is_given_once_wherever_a_file_is_cut(
    tmp_path_factory, ending, lines, last_ends, cuts, block
):
    data = "\n".join(lines).encode() + (b"\n" if last_ends else b"")
    file = write(tmp_path_factory.mktemp("cut") / f"a{ending}", compress(data, ending))
    borders = sorted({0, *cuts})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "RAW_BLOCK_BYTES", block)
        patch.setattr(streams, "COMPRESSED_BLOCK_BYTES", block)
        patch.setattr(streams, "INFLATED_BLOCK_BYTES", block)
        patch.setattr(streams, "ZSTD_BLOCK_BYTES", block)
        found, numbers = [], []
        for start, stop in zip(borders, [*borders[1:], None], strict=True):
            piece = Lines(file, start, stop)
            for line in piece:
                found.append(line)
                numbers.append(int(piece.place(piece.count).rpartition(" ")[2]))
    expected = io.BytesIO(data).readlines()
    assert [line.encode() for line in found] == expected
    assert numbers == list(range(1, len(expected) + 1))


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_byte_that_is_not_utf8_is_named_by_line_and_position(tmp_path, ending):
    data = b"\xef\xbb\xbf" + "é first\n".encode() + b"second \xe9t\xe9\n"
    file = write(tmp_path / f"a.txt{ending}", compress(data, ending))
    with pytest.raises(InputError, match=r"a\.txt.*, line 2: not UTF-8: byte 0xe9 at byte 19 of the file"):
        list(Lines(file))
    with pytest.raises(InputError, match="not UTF-8: byte 0xe9 at byte 19"):
        read_text(file)


@given(
    lines=st.lists(st.text("\ufeff\u2003\x1c\x85\t\r {é", max_size=3)),
    marked=st.booleans(),
    start=st.integers(0, 4),
)
def test_lines_that_are_counted_are_those_that_are_read(
    lines: list[str], marked: bool, start: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "lines.jsonl"
    file = write(path, b"\xef\xbb\xbf" * marked + "\n".join(lines).encode())
    counting = Lines(file, start)
    n = sum(1 for _ in counting.raw_records())
    reading = Lines(file, start)
    assert n == sum(bool(line.strip()) for line, _ in reading.attempts())
    assert counting.count == reading.count


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    file = write(tmp_path / "a.csv", b"\xef\xbb\xbftext,b\nhello,1\n")
    assert texts(CsvLines(file)) == ["hello"]
    assert read_text(file).startswith("text,b")


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 3 << 20)
    file = write(tmp_path / "a.jsonl", b"{}\n" + b"x" * (5 << 20) + b"\n")
    with pytest.raises(InputError, match=r"a\.jsonl, line 2: a line must be at most 3 MB"):
        list(Lines(file))
    with pytest.raises(InputError, match="one document must be at most 3 MB"):
        read_text(file)


@pytest.mark.parametrize("ending", ENDINGS[1:])
def test_a_compressed_file_that_is_cut_short_is_refused(tmp_path, ending):
    whole = compress(json.dumps({"text": "some words"}).encode() * 1000, ending)
    with pytest.raises(InputError, match=r"a\.jsonl.* file is cut short"):
        list(read_blocks(write(tmp_path / f"a.jsonl{ending}", whole[:-3])))


@pytest.mark.parametrize("ending", ENDINGS[1:])
def test_a_file_that_is_not_what_its_ending_says_is_refused(tmp_path, ending):
    with pytest.raises(InputError, match=r"not a (gzip|zstd|bzip2|xz) file, or damaged"):
        list(read_blocks(write(tmp_path / f"a.jsonl{ending}", b'{"text": "plain"}\n' * 5)))


def test_members_and_frames_that_follow_each_other_are_one_file(tmp_path):
    gz = gzip.compress(b"one\n") + gzip.compress(b"two\n") + b"\0" * 100
    assert b"".join(read_blocks(write(tmp_path / "a.gz", gz))) == b"one\ntwo\n"
    for ending in (".zst", ".bz2", ".xz"):
        data = compress(b"one\n", ending) + compress(b"two\n", ending)
        assert b"".join(read_blocks(write(tmp_path / f"a{ending}", data))) == b"one\ntwo\n"


@pytest.mark.parametrize("ending", ENDINGS[1:])
def test_a_block_that_inflates_a_thousandfold_comes_in_parts(tmp_path, ending):
    n_bytes = 256 << 20 if ending == ".zst" else 32 << 20
    file = write(tmp_path / f"a{ending}", compress(bytes(n_bytes), ending))
    tracemalloc.start()
    try:
        assert sum(len(block) for block in read_blocks(file)) == n_bytes
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()
    if ending != ".zst":
        assert max(map(len, read_blocks(file))) <= streams.INFLATED_BLOCK_BYTES


@pytest.mark.parametrize(
    ("url", "base_name", "compression"),
    [
        ("A.JSONL.GZ", "A.JSONL", "gzip"),
        ("a.csv.gzip", "a.csv", "gzip"),
        ("a.csv.Zst", "a.csv", "zstd"),
        ("a.csv.BZ2", "a.csv", "bzip2"),
        ("odd?.gz", "odd?", "gzip"),
        ("https://host/r.jsonl.gz?download=1", "r.jsonl", "gzip"),
        ("simplecache::https://host/r.csv.xz?a=b/c.d", "r.csv", "xz"),
        ("zip://d/x.jsonl.gz::/p/r.zip", "x.jsonl", "gzip"),
        ("filecache::zip://x.csv::simplecache::s3://b/r.zip", "x.csv", None),
    ],
)
def test_names_and_compressions_are_told_of_any_url(url, base_name, compression):
    file = InputFile(url, 0)
    assert (file.base_name, file.compression) == (base_name, compression)


@pytest.mark.parametrize("name", ["a.jsonl.zip", "a.TAR", "a.csv.tar.gz", "a.tgz", "a.7z", "a.txt.Z"])
def test_archives_are_to_be_unpacked_first(tmp_path, name):
    write(tmp_path / name, b"x")
    with pytest.raises(InputError) as error:
        list_files(tmp_path / name)
    assert error.value.place == str(tmp_path / name)
    assert error.value.remedy == (streams.UNPACK,)


@pytest.mark.parametrize("ending", ENDINGS[1:])
def test_compressed_content_without_its_ending_is_named_as_such(tmp_path, ending):
    file = write(tmp_path / "a.jsonl", compress(b'{"text": "one"}\n', ending))
    with pytest.raises(InputError) as error:
        list(Lines(file))
    assert streams.UNPACK in error.value.remedy


# records


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"not json", "line 3: not JSON"),
        (b'{"text": "a"', "line 3: not JSON"),
        (b"[1, 2]", "line 3: must be a JSON object, got an array"),
        (b'"text"', "line 3: must be a JSON object, got a string"),
        (b"null", "line 3: must be a JSON object, got null"),
        (b"17", "line 3: must be a JSON object, got a number"),
        (b"[" * 100_000, "line 3: not JSON"),
        (b'{"n": ' + b"9" * 5000 + b"}", "line 3: not JSON: a whole number must have at most 4,300 digits$"),
        (b'{"text": "a"}\r{"text": "b"}\r', "line 3: not JSON: .* must end with a line feed"),
    ],
)
def test_a_line_that_is_no_json_object_is_named(tmp_path, line, message):
    file = write(tmp_path / "a.jsonl", b'{"text": "a"}\n\n' + line + b"\n")
    with pytest.raises(InputError, match=message):
        texts(JsonLines(file))
    # also when the piece starts in the middle of the file
    with pytest.raises(InputError, match=message):
        texts(JsonLines(file, 5))


def test_a_byte_order_mark_alone_is_no_record(tmp_path):
    file = write(tmp_path / "a.jsonl", b"\xef\xbb\xbf")
    assert texts(JsonLines(file)) == []
    assert list(Lines(file).raw_records()) == []


def test_an_array_of_documents_is_recognised(tmp_path):
    file = write(tmp_path / "a.json", json.dumps([{"text": "a"}], indent=1).encode())
    with pytest.raises(InputError, match="one JSON object a line, not one array"):
        texts(JsonLines(file))


def csv_file(path: Path, ending: str = "") -> tuple[InputFile, list[str]]:
    documents = [f'text {i}, "quoted"\nwith\r\nlines\n\n é' if i % 3 else f"plain {i}" for i in range(200)]
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(["a", "text", "b"])
    for i, document in enumerate(documents):
        writer.writerow([i, document, ""])
    return write(path.with_name(path.name + ending), compress(buffer.getvalue().encode(), ending)), documents


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("target", [1, 100, 3000])
def test_csv_is_cut_between_records_and_not_inside_quotes(tmp_path, ending, target):
    file, documents = csv_file(tmp_path / "a.csv", ending)
    pieces = cut_file(CsvLines(file), FIELDS, target)
    assert len(pieces) > 1
    assert [text for piece, _ in pieces for text in texts(piece)] == documents
    # the line a record starts at is known in each piece
    last, _ = pieces[-1]
    number, record = list(last.records(FIELDS))[-1]
    line = int(last.place(number).rpartition(" ")[2])
    content = b"".join(read_blocks(file)).decode().split("\n")
    assert content[line - 1].startswith("199,")
    assert record["text"] == documents[-1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("text,b\na,1\nb\n", r"a\.csv, line 3: must have 2 cells as the header has, got 1"),
        ("text,b\na,1\nb,2,3\n", r"a\.csv, line 3: must have 2 cells as the header has, got 3"),
        ('text,b\na,1\n"b,2\nc,3\n', r"a\.csv, line 3: not CSV: .*; is a quote not closed"),
        ('text,b\na,1\n"b"c,2\n', r"a\.csv, line 3: not CSV"),
        ("text,text\na,1\n", r"a\.csv: names the column 'text' twice; rename one"),
        ("title,b\na,1\n", r"a\.csv: has no field 'text' for the text; fields there are: 'title', 'b'"),
    ],
)
def test_csv_that_breaks_a_rule_is_named_by_line(tmp_path, content, message):
    with pytest.raises(InputError, match=message):
        texts(CsvLines(write(tmp_path / "a.csv", content.encode())))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("2 0:1", "M the number of pairs, got M '2' before 1 pairs"),
        ("x 0:1", "M the number of pairs, got M 'x'"),
        ("1 0-1", "pairs term:count of whole numbers, got '0-1'"),
        ("1 0:1.5", "pairs term:count of whole numbers, got '0:1.5'"),
        ("1 0:" + "9" * 5000, "pairs term:count of whole numbers, got '0:999.*; they have at most 18 digits"),
        ("1 0:-1", "pairs term:count of whole numbers, got '0:-1'"),
        ("1 3:1", r"term 3 is not in the vocabulary of 3 terms \(0 is the first\)"),
    ],
)
def test_lda_c_that_breaks_a_rule_is_named_by_line(tmp_path, line, message):
    file = write(tmp_path / "a.ldac", f"0\n{line}\n".encode())
    with pytest.raises(InputError, match=rf"a\.ldac, line 2: .*{message}"):
        list(LdacLines(file, n_terms=3).records(Fields(words="words", counts="counts")))


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (CsvLines, "text,b\ra,1\rc,2\r"),
        (JsonLines, '{"text": "a"}\r{"text": "b"}\r'),
        (LdacLines, "1 0:1\r1 0:2\r"),
        (MatrixMarket, "%%MatrixMarket matrix coordinate integer general\r2 3 2\r1 1 1\r2 1 1\r"),
        (MatrixMarket, "%%MatrixMarket matrix coordinate integer general\n2 3 2\n1 1 1\r2 1 1\r"),
    ],
)
def test_carriage_returns_alone_are_named(tmp_path, kind, content):
    file = write(tmp_path / "a", content.encode())
    with pytest.raises(InputError) as error:
        list(kind(file, n_terms=3).records(kind.own_fields or FIELDS))
    assert error.value.remedy == (
        "lines must end with a line feed, not with a carriage return alone: convert the file",
    )


def test_parquet_rows_beyond_the_limit_are_refused_before_they_are_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "MAX_LINE_BYTES", 1 << 20)
    table = pa.table({"text": ["x" * (2 << 20)] * 3, "y": [1.0, 2.0, 3.0]})
    pq.write_table(table, tmp_path / "a.parquet", use_dictionary=False)
    file = InputFile(str(tmp_path / "a.parquet"), 1)
    with pytest.raises(InputError) as error:
        texts(ParquetRows(file))
    assert error.value.place == file.name
    assert texts(ParquetRows(file), Fields(text="y")) == [1.0, 2.0, 3.0]
    monkeypatch.setattr(parquet, "MAX_LINE_BYTES", 3 << 20)
    assert list(map(len, texts(ParquetRows(file)))) == [2 << 20] * 3


PARQUET_BOMBS = {
    # 100 rows of one text of 70 MB, and 50 rows of lists of three texts of 30 MB: dictionaries store each once
    "text": lambda: {"text": pa.array(["word " * (14 << 20)]).dictionary_encode().take([0] * 100)},
    "words": lambda: {
        "words": pa.ListArray.from_arrays(
            pa.array(range(0, 153, 3), pa.int32()),
            pa.array(["word " * (6 << 20)]).dictionary_encode().take([0] * 150),
        ),
        "counts": pa.array([[1, 1, 1]] * 50),
    },
    # one page of 320 MB, and a list of 100 million equal words
    "page": lambda: {"text": pa.array(["w " * (1 << 20)] * 160)},
    "items": lambda: {
        "words": pa.ListArray.from_arrays(
            pa.array([0, 10**8], pa.int32()),
            pa.DictionaryArray.from_arrays(pa.array(np.zeros(10**8, np.int8)), pa.array(["a"])),
        ),
        "counts": pa.array([[1]], pa.list_(pa.int32())),
    },
}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="measures memory as Linux counts it")
@pytest.mark.parametrize("kind", PARQUET_BOMBS)
def test_a_small_parquet_file_that_unpacks_to_gigabytes_is_one_line_in_little_memory(tmp_path, kind):
    path = tmp_path / "a.parquet"
    options = {
        "use_dictionary": kind != "page",
        "dictionary_pagesize_limit": 1 << 30,
        "data_page_size": 1 << 30,
    }
    pq.write_table(pa.table(PARQUET_BOMBS[kind]()), path, compression="zstd", store_schema=False, **options)
    assert path.stat().st_size < 1 << 17
    fields = ["--text", "text"] if kind in ("text", "page") else ["--words", "words", "--counts", "counts"]
    run = measured("-m", "dslda", "ingest", str(path), *fields, "--out", str(tmp_path / "a.corpus"))
    assert (run.code, run.stderr.count("\n")) == (2, 1), run.stderr
    assert run.stderr.startswith(f"dslda: error: {path}")
    assert run.peak < 700


def test_texts_that_parquet_stores_once_come_in_every_row(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "MAX_LINE_BYTES", 1 << 20)
    values = ["x" * (300 << 10), "y", None, "x" * (300 << 10)] * 5
    table = pa.table(
        {"text": values, "words": [["a", "b"], [], None, ["a"]] * 5, "counts": [[1, 2], [], None, [3]] * 5}
    )
    pq.write_table(table, tmp_path / "a.parquet", dictionary_pagesize_limit=1 << 30)
    file = InputFile(str(tmp_path / "a.parquet"), 1)
    assert texts(ParquetRows(file, 1, 18)) == values[1:18]
    words = Fields(words="words", counts="counts")
    assert [row["words"] for _, row in ParquetRows(file, 3, 6).records(words)] == [["a"], ["a", "b"], []]


@pytest.mark.parametrize("row_group_size", [7, 1000])
def test_parquet_pieces_give_every_row_once_and_name_it(tmp_path, row_group_size):

    documents = [f"document {i} " * 50 for i in range(500)]
    table = pa.table({"other.dotted": range(500), "text": documents})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=row_group_size, use_dictionary=False)
    file = InputFile(str(tmp_path / "a.parquet"), 1)
    pieces = [piece for piece, _ in cut_file(ParquetRows(file), FIELDS, 20_000)]
    assert len(pieces) > 4
    assert [text for piece in pieces for text in texts(piece)] == documents
    places = [piece.place(number) for piece in pieces for number, _ in piece.records(FIELDS)]
    assert places == [f"{file.name}, row {i}" for i in range(500)]


def test_parquet_that_is_cut_short_or_lacks_a_column_is_refused(tmp_path):

    pq.write_table(pa.table({"title": ["a"]}), tmp_path / "a.parquet")
    file = InputFile(str(tmp_path / "a.parquet"), 1)
    with pytest.raises(InputError, match=r"a\.parquet: has no field 'text' .*'title'"):
        texts(ParquetRows(file))
    data = (tmp_path / "a.parquet").read_bytes()
    for damaged in (data[:-9], b"", b"no parquet at all"):
        file = write(tmp_path / "b.parquet", damaged)
        with pytest.raises(InputError, match=r"b\.parquet: not a Parquet file, or cut short"):
            texts(ParquetRows(file))


# files


def test_a_folder_is_searched_to_its_depths_in_order(tmp_path):
    for name in ("b/2.txt", "b/1.txt", "a.txt", "_SUCCESS", ".hidden/x.txt", "c/_temporary/y.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    found = list_files(tmp_path)
    assert found.format == "text"
    assert found.ids == ("a.txt", "b/1.txt", "b/2.txt")


def test_globs_and_several_inputs_keep_their_order(tmp_path):
    for name in ("z.jsonl", "a1.jsonl.gz", "a0.jsonl.zst", "[odd].jsonl"):
        (tmp_path / name).write_bytes(b"")
    found = list_files([tmp_path / "z.jsonl", str(tmp_path / "a*"), tmp_path / "[odd].jsonl"])
    assert found.ids == ("z.jsonl", "a0.jsonl.zst", "a1.jsonl.gz", "[odd].jsonl")
    folder = tmp_path / "run[1]" / "part[2]"
    folder.mkdir(parents=True)
    (folder / "x1.jsonl").write_bytes(b"")
    for pattern in ("run[1]/part[2]/*.jsonl", "run[1]/*/x?.jsonl"):
        assert list_files(tmp_path / pattern).ids == ("x1.jsonl",)
    assert [file.compression for file in found.files] == [None, "zstd", "gzip", None]


@pytest.mark.parametrize(
    ("names", "pattern", "message"),
    [
        ([], "nothing.jsonl", "nothing.jsonl: no file is there"),
        ([], "*.jsonl", "no file is there"),
        (["a.jsonl", "b.csv"], "", r"must be of one format, got jsonl \(.*a\.jsonl\), csv \(.*b\.csv\)"),
        (["a.docx"], "", r"a\.docx: the format is not clear from the ending '\.docx'"),
        (["a.XLSX"], "", r"a\.XLSX: a spreadsheet cannot be read; save .* as CSV: UTF-8, with commas"),
    ],
)
def test_inputs_that_are_not_clear_are_refused(tmp_path, names, pattern, message):
    for name in names:
        (tmp_path / name).write_text("x")
    with pytest.raises(InputError, match=message):
        list_files(tmp_path / pattern)


def test_chained_urls_keep_all_their_parts(tmp_path):
    archive = tmp_path / "r.zip"
    with zipfile.ZipFile(archive, "w") as stream:
        for name in ("x.jsonl", "d/y.jsonl", "d/z.jsonl"):
            stream.writestr(name, json.dumps({"text": name}) + "\n")
    for url, names in (
        (f"zip://x.jsonl::{archive}", ["x.jsonl"]),
        (f"zip://d::{archive}", ["d/y.jsonl", "d/z.jsonl"]),
        (f"zip://d/*.jsonl::file://{archive}", ["d/y.jsonl", "d/z.jsonl"]),
        (f"zip::{archive}", ["d/y.jsonl", "d/z.jsonl", "x.jsonl"]),
        (f"simplecache::zip://x.jsonl::{archive}", ["x.jsonl"]),
    ):
        found = list_files(url)
        assert [text for file in found.files for text in texts(JsonLines(file))] == names
        assert all(file.url.endswith(str(archive)) for file in found.files)


def test_inputs_of_another_kind_are_refused(tmp_path):
    with refused("inputs"):
        list_files([3])  # type: ignore[list-item]
    with refused("inputs"):
        list_files([])
    with refused("format"):
        list_files(tmp_path, "xml")
    with pytest.raises(InputError, match="cannot be read"):
        list_files("nosuchprotocol://bucket/a.jsonl")


def test_thousands_of_tiny_files_and_one_large_file_both_become_balanced_chunks(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    for i in range(5000):
        (folder / f"{i}.txt").write_text(f"document {i}")
    tiny = list_files(folder)
    groups = group_sources(whole_files(tiny, n_terms=0), target_bytes(tiny))
    assert 40 < len(groups) < 200
    assert max(map(len, groups)) < 2 * min(map(len, groups[:-1]))
    assert [source.id for group in groups for source in group] == sorted(f"{i}.txt" for i in range(5000))

    large = tmp_path / "large.jsonl"
    with large.open("wb") as out:
        out.truncate(2 << 30)  # a file of 2 GB that takes no space; only its size matters here
    found = list_files(large)
    (source, _), target = whole_files(found, n_terms=0)[0], target_bytes(found)
    sizes = [size for _, size in cut_file(source, FIELDS, target)]
    assert sum(sizes) == 2 << 30
    assert max(sizes) <= 2 * min(sizes)
    assert max(sizes) <= 32 << 20


def test_messages_hold_no_storage_options():
    file = InputFile("s3://bucket/a.jsonl", 0, {"secret": "hunter2"})
    assert not re.search("hunter2", repr(JsonLines(file)))


@pytest.mark.skipif(sys.platform == "win32", reason="links and pipes of POSIX")
def test_links_to_folders_are_never_taken_for_files(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("word")
    (tmp_path / "sub" / "up").symlink_to(tmp_path)
    (tmp_path / "self.txt").symlink_to(tmp_path)
    (tmp_path / "b.txt").symlink_to("a.txt")
    os.mkfifo(tmp_path / "pipe.txt")
    with caplog.at_level("WARNING", "dslda"):
        assert list_files(tmp_path).ids == ("a.txt", "b.txt")
    assert [record.args for record in caplog.records] == [
        (str(tmp_path / name),) for name in ("pipe.txt", "self.txt", "sub/up")
    ]
    caplog.clear()
    with caplog.at_level("WARNING", "dslda"):
        assert list_files(str(tmp_path / "*")).ids == ("a.txt", "b.txt")
    assert [record.args for record in caplog.records] == [
        (str(tmp_path / name),) for name in ("pipe.txt", "self.txt")
    ]
    with pytest.raises(InputError, match=r"no file is there; passed over, .*: .*/pipe\.txt"):
        list_files(tmp_path / "p*")
    (tmp_path / "nowhere.txt").symlink_to("no such file")
    with pytest.raises(
        InputError, match=r"nowhere\.txt: cannot be opened: it is a link to no such file, which"
    ):
        list(TextFile(list_files(tmp_path).files[2], id="x").records(Fields()))


def test_a_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"]), pa.array([1.0])], ["text", "text", "y"])
    pq.write_table(table, tmp_path / "a.parquet")
    source = ParquetRows(list_files(tmp_path / "a.parquet").files[0])
    with pytest.raises(InputError, match=r"a\.parquet: names the column 'text' twice; rename one"):
        list(source.records(Fields(text="text")))
    assert [record for _, record in source.records(Fields(text="y"))] == [{"y": 1.0}]


@pytest.mark.parametrize("given", ["", " "])
def test_an_empty_input_is_not_the_current_folder(given: str) -> None:
    with refused("inputs"):
        list_files(given)
