"""Files in other encodings than UTF-8, and CSV with other separators, escapes and missing values."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dslda.exceptions import InputError
from dslda.inputs import streams
from dslda.inputs.fields import Fields
from dslda.inputs.files import InputFiles, cut_file, list_files
from dslda.inputs.formats import FORMATS
from dslda.inputs.reading import ReadingRules
from dslda.inputs.streams import InputFile, Lines, read_text
from tests.helpers.errors import refused
from tests.helpers.files import COMPRESS

TEXTS = {
    "cp1252": "größe café “naïve” € straße",
    "latin-1": "größe café naïve\x85 straße",  # \x85 ends a line for str.splitlines, not for an editor
    "shift_jis": "表示 ソース 能力 構造 ab",  # their second bytes are those of \ and |
    "gb18030": "联通 龙㐀 \U00020000 word",
    "big5": "許功蓋 成功 word",
    "utf-16": "größe 联通 \U0001f600 \u0a0a\u0d0d word",  # holds the bytes of line ends
    "utf-16-be": "größe 联通 \U0001f600 \u0a0a\u0d0d word",
    "utf-32": "größe \U0001f600",
    "iso2022_jp": "表示 word 能力",
    "koi8-r": "привет мир",
    "utf-8-sig": "größe",
}
FIELDS = Fields(text="text", id="id")


def listed(path: Path, **rules: Any) -> InputFiles:
    return list_files(path).read_by(ReadingRules(**rules))


def records(files: InputFiles, fields: Fields = FIELDS) -> list[dict[str, Any]]:
    return [dict(record) for file in files.files for _, record in files.piece(file).records(fields)]


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize("encoding", TEXTS)
@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_a_file_of_any_encoding_holds_the_same_records_in_any_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, encoding: str, ending: str
) -> None:
    text = TEXTS[encoding]
    expected = [{"id": str(i), "text": f"{text} {i}\nand {text}"} for i in range(40)]
    if format == "csv":
        stream = io.StringIO(newline="")
        csv.writer(stream).writerows([["id", "text"], *(row.values() for row in expected)])
        content = stream.getvalue()
    else:
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in expected)
    path = tmp_path / f"a.{format}{ending}"
    path.write_bytes(COMPRESS[ending](content.encode(encoding)))
    files = listed(path, encoding=encoding)
    # blocks that end inside characters
    monkeypatch.setattr(streams, "RAW_BLOCK_BYTES", 7)
    monkeypatch.setattr(streams, "INFLATED_BLOCK_BYTES", 5)
    assert records(files) == expected
    whole = files.piece(files.files[0])
    pieces = [piece for piece, _ in cut_file(whole, FIELDS, 300)]
    assert len(pieces) > 3
    assert [dict(record) for piece in pieces for _, record in piece.records(FIELDS)] == expected
    assert sum(1 for piece in pieces for _ in piece.raw_records()) == len(expected)
    (last, record), *_ = reversed(list(pieces[-1].records(FIELDS)))
    assert pieces[-1].place(last) == whole.place(len(expected) if format == "jsonl" else 2 * len(expected))
    assert record == expected[-1]


@settings(max_examples=100, deadline=None)
@given(
    lines=st.lists(st.text(alphabet="aé苹\r\u0a0a\U0001f600", max_size=6), max_size=8),
    cuts=st.lists(st.integers(0, 60), max_size=5),
    block=st.integers(1, 9),
    encoding=st.sampled_from(["utf-16", "utf-16-le", "utf-16-be", "gb18030", "utf-32"]),
)
def test_every_line_of_two_bytes_a_character_is_given_once_wherever_a_file_is_cut(
    lines: list[str],
    cuts: list[int],
    block: int,
    encoding: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.txt"
    data = "\n".join(lines)
    path.write_bytes(data.encode(encoding))
    file = InputFile(str(path), path.stat().st_size, rules=ReadingRules(encoding))
    borders = sorted({0, *cuts})
    found, numbers = [], []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "RAW_BLOCK_BYTES", block)
        for start, stop in zip(borders, [*borders[1:], None], strict=True):
            piece = Lines(file, start, stop)
            for line in piece:
                found.append(line)
                numbers.append(int(piece.place(piece.count).rpartition(" ")[2]))
    expected = io.StringIO(data, newline="\n").readlines()
    assert found == expected
    assert numbers == list(range(1, len(expected) + 1))


@pytest.mark.parametrize(
    ("encoding", "wrong"),
    [
        ("cp1252", b"\x81"),
        ("utf-16-le", b"\x00\xd8"),
        ("shift_jis", b"\xff"),
        ("gb18030", b"\xff"),
        ("ascii", b"\xe9"),
    ],
)
def test_a_byte_that_is_no_character_spoils_its_own_line(tmp_path: Path, encoding: str, wrong: bytes) -> None:
    lines = ['{"text": "one"}\n', '{"text": "two', '"}\n{"text": "three"}\n']
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        lines[0].encode(encoding) + lines[1].encode(encoding) + wrong + lines[2].encode(encoding)
    )
    files = listed(path, encoding=encoding)
    attempts = [attempt for _, attempt in files.piece(files.files[0]).attempts(FIELDS)]
    assert [isinstance(attempt, InputError) for attempt in attempts] == [False, True, False]
    assert attempts[1].place == f"{path}, line 2"  # type: ignore[union-attr]
    assert attempts[1].reason.startswith(f"not {encoding}: ")  # type: ignore[union-attr]


def test_a_text_that_ends_in_the_middle_of_a_character_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes("word".encode("utf-16-le")[:-1])
    with pytest.raises(InputError, match="not utf-16-le"):
        read_text(listed(tmp_path, encoding="utf-16-le").files[0])
    (tmp_path / "a.txt").write_bytes("größe".encode("utf-16"))
    assert [record["text"] for record in records(listed(tmp_path, encoding="utf-16"))] == ["größe"]


@pytest.mark.parametrize("separator", [";", "\t", "|", "^", "¦", "\u001f", r"\t"])
def test_cells_are_split_at_the_separator_alone(tmp_path: Path, separator: str) -> None:
    character = "\t" if separator == r"\t" else separator
    rows = [["id", "text"], ["1", f"one, two{character} three"], ["2", 'a "quoted" word']]
    with (tmp_path / "a.csv").open("w", newline="") as stream:
        csv.writer(stream, delimiter=character).writerows(rows)
    found = records(listed(tmp_path, separator=separator))
    assert [list(record.values()) for record in found] == [row[::-1] for row in rows[1:]]


def test_files_of_tabs_are_known_by_their_ending(tmp_path: Path) -> None:
    for ending in ("tsv", "tab", "TSV.gz"):
        path = tmp_path / f"a.{ending}"
        content = b'id\ttext\n1\tone, "two"\n2\t"three\tfour"\n'
        path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
        assert [r["text"] for r in records(list_files(path))] == ['one, "two"', "three\tfour"]
        cut = cut_file(FORMATS["tsv"](list_files(path).files[0]), FIELDS, 1)
        assert [r["id"] for piece, _ in cut for _, r in piece.records(FIELDS)] == ["1", "2"]
    path = tmp_path / "b.tsv"
    path.write_text("id;text\n1;one\n")
    assert records(listed(path, separator=";")) == [{"text": "one", "id": "1"}]


def test_an_escape_takes_the_meaning_from_quotes_separators_and_line_ends(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        'id,text\n1,"a \\"b\\" and ""c"""\n2,one\\, two\n3,"back\\\\slash"\n4,up\\\ndown\n'
    )
    found = [record["text"] for record in records(listed(tmp_path, escape="\\"))]
    assert found == ['a "b" and "c"', "one, two", "back\\slash", "up\ndown"]


def test_cells_that_stand_for_missing_values_are_missing_in_every_field(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text,y\nNA,NA, n/a \n-,nan banana,-99\n3,-99.0,0\n")
    fields = Fields(text="text", id="id", responses=("y",))
    found = records(listed(tmp_path, na_values=["NA", "n/a", "-", "-99"]), fields)
    assert found == [
        {"text": None, "id": None, "y": None},
        {"text": "nan banana", "id": None, "y": None},
        {"text": "-99.0", "id": "3", "y": "0"},
    ]
    assert records(listed(tmp_path, na_values="NA"), fields)[0] == {"text": None, "id": None, "y": " n/a "}


@pytest.mark.parametrize(
    ("rules", "parameters"),
    [
        ({"encoding": "utf-99"}, ["encoding"]),
        ({"encoding": "base64"}, ["encoding"]),
        ({"encoding": "undefined"}, ["encoding"]),
        ({"encoding": "a\0b"}, ["encoding"]),
        ({"encoding": 8}, ["encoding"]),
        ({"separator": ";;"}, ["separator"]),
        ({"separator": ""}, ["separator"]),
        ({"separator": "\n"}, ["separator"]),
        ({"separator": '"'}, ["separator"]),
        ({"escape": '"'}, ["escape"]),
        ({"escape": 3}, ["escape"]),
        ({"separator": ";", "escape": ";"}, ["separator", "escape"]),
        ({"na_values": -99}, ["na_values"]),
        ({"na_values": [-99]}, ["na_values"]),
        ({"na_values": [r"\N"], "escape": "\\"}, ["na_values"]),
    ],
)
def test_a_rule_that_cannot_hold_is_refused(rules: dict[str, Any], parameters: list[str]) -> None:
    with refused(*parameters):
        ReadingRules(**rules)


def test_equal_rules_compare_equal_however_they_are_spelled() -> None:
    assert ReadingRules("UTF8") == ReadingRules("utf-8-sig")
    assert ReadingRules("Windows-1252", r"\t") == ReadingRules("cp1252", "\t")
    assert ReadingRules(na_values=["b", "a", "a"]) == ReadingRules(na_values=("a", " b"))
    assert ReadingRules().to_json() == {}


@pytest.mark.parametrize(
    ("name", "rules", "parameters"),
    [
        ("a.jsonl", {"separator": ";", "encoding": "cp1252", "na_values": "NA"}, ["separator", "na_values"]),
        ("a.parquet", {"encoding": "cp1252"}, ["encoding"]),
        ("a.txt", {"escape": "\\"}, ["escape"]),
        ("a.ldac", {"encoding": "cp1252"}, ["encoding"]),
        ("docword.a.txt", {"separator": " "}, ["separator"]),
    ],
)
def test_a_rule_that_a_format_has_no_use_for_is_refused(
    tmp_path: Path, name: str, rules: dict[str, Any], parameters: list[str]
) -> None:
    (tmp_path / name).write_bytes(b"")
    with refused(*parameters):
        listed(tmp_path, **rules)


def test_a_file_in_utf8_that_is_read_as_another_encoding_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.csv").write_text("text\nplain\n")
    (tmp_path / "b.csv").write_bytes("text\ngröße\n".encode("cp1252"))
    (tmp_path / "c.csv").write_text("text\ngröße\n", encoding="utf-8")
    for name, reported in (("a.csv", False), ("b.csv", False), ("c.csv", True)):
        caplog.clear()
        listed(tmp_path / name, encoding="cp1252")
        assert ("looks like UTF-8" in caplog.text) is reported
