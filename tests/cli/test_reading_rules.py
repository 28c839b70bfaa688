"""Exports of spreadsheets and databases on the command line: encodings, separators, escapes and missing values."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dslda as library
from dslda.corpus.store import open_corpus
from dslda.exceptions import DataWarning
from tests.helpers.errors import refused

Dslda = Callable[..., Any]

WORDS = ("größe schön café prima", "übel naß teuer müde")
FIELDS = ("--text", "text", "--id", "key", "--response", "stars", "--covariates", "age,size")
FILTERS = ("--categorical", "size", "--min-df", "1", "--max-df", "1.0")
RULES = ("--encoding", "cp1252", "--separator", ";", "--escape", "\\", "--na-values", "NA,-")


def rows(n: int = 60, first: int = 0) -> list[dict[str, str]]:
    found = []
    for i in range(first, first + n):
        words = WORDS[i % 2].split()
        found.append(
            {
                "key": f"k{i}",
                "text": f'{words[i % 4]} {words[(i + 1) % 4]}; "{words[(i + 2) % 4]}"',
                "stars": "" if i % 11 == 7 else str((5, 1)[i % 2] + i % 3 / 10),
                "age": "" if i % 13 == 5 else str(20 + i % 9),
                "size": "" if i % 17 == 3 else "sml"[i % 3],
            }
        )
    return found


def plain(path: Path, records: list[dict[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as stream:
        table = csv.DictWriter(stream, list(records[0]))
        table.writeheader()
        table.writerows(records)
    return path


def exported(path: Path, records: list[dict[str, str]], encoding: str = "cp1252") -> Path:
    """The records as a database exports them: semicolons, backslashes, and NA or - for missing values."""
    lines = [";".join(records[0])]
    for i, record in enumerate(records):
        cells = [(value or ("NA", "-")[i % 2]).replace('"', '\\"') for value in record.values()]
        lines.append(";".join(f'"{cell}"' for cell in cells))
    content = "\r\n".join([*lines, ""]).encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents as our own CSV and as an export, with a corpus and a model of the former."""
    path = tmp_path_factory.mktemp("exports")
    plain(path / "plain.csv", rows())
    exported(path / "export.csv", rows())
    exported(path / "new.csv.gz", rows(30, 100))
    plain(path / "new-plain.csv", rows(30, 100))
    corpus = library.ingest(
        path / "plain.csv", path / "plain.corpus", text="text", id="key", response="stars",
        covariates=["age", "size"], categorical="size", min_df=1, max_df=1.0,
    )  # fmt: skip
    with pytest.warns(DataWarning, match="lack a covariate"):
        model = library.train(
            corpus, response="stars", covariates=["age", "size"], n_topics=2, max_iter=200, seed=0
        )
    model.save(path / "stars.model")
    return path


def test_an_export_becomes_the_corpus_of_its_plain_form(dslda: Dslda, folder: Path, tmp_path: Path) -> None:
    done = dslda("ingest", folder / "export.csv", "--out", tmp_path / "c", *FIELDS, *FILTERS, *RULES)
    assert done.code == 0, done.err
    corpus = open_corpus(tmp_path / "c")
    assert corpus.content_hash == open_corpus(folder / "plain.corpus").content_hash
    assert corpus.levels["size"] == ("l", "m", "s")
    assert corpus.provenance["rules"] == {
        "encoding": "cp1252", "separator": ";", "escape": "\\", "na_values": ["-", "NA"]
    }  # fmt: skip
    assert "--encoding cp1252, --separator ;" in dslda("info", tmp_path / "c").out


def test_an_append_reads_by_the_rules_of_the_corpus_unless_others_are_given(
    dslda: Dslda, folder: Path, tmp_path: Path
) -> None:
    ingest = ("ingest", "--out", tmp_path / "c")
    assert dslda(*ingest, folder / "export.csv", *FIELDS, *FILTERS, *RULES).code == 0
    appended = dslda(*ingest, folder / "new.csv.gz", "--append")
    assert appended.code == 0, appended.err
    assert "encoding 'cp1252'" in appended.err
    expected = dslda("ingest", folder / "new-plain.csv", "--out", folder / "plain.corpus", "--append")
    assert expected.code == 0, expected.err
    assert open_corpus(tmp_path / "c").content_hash == open_corpus(folder / "plain.corpus").content_hash
    # other files of the same format, and another format
    exported(tmp_path / "utf16.csv", rows(5, 200), encoding="utf-16")
    assert dslda(*ingest, tmp_path / "utf16.csv", "--append", "--encoding", "utf-16").code == 0
    (tmp_path / "a.jsonl").write_text(json.dumps({**rows(1, 300)[0], "text": "größe"}, ensure_ascii=False))
    assert dslda(*ingest, tmp_path / "a.jsonl", "--append").code == 0
    corpus = open_corpus(tmp_path / "c")
    assert corpus.n_documents == 96
    assert corpus.n_empty == 0
    assert corpus.n_all_tokens == 90 * 3 + 5 * 3 + 1
    assert corpus.new_share == 0.0


def test_predictions_and_scores_of_an_export_are_those_of_its_plain_form(
    dslda: Dslda, folder: Path, tmp_path: Path
) -> None:
    model = folder / "stars.model"
    fields = ("--text", "text", "--id", "key")
    expected = dslda("predict", model, folder / "new-plain.csv", *fields)
    assert expected.code == 0, expected.err
    assert {row["flag"] for row in csv.DictReader(io.StringIO(expected.out))} == {"", "no_covariate"}
    assert dslda("predict", model, folder / "new.csv.gz", *fields, *RULES).out == expected.out
    score = (
        "score",
        model,
        folder / "new.csv.gz",
        "--out",
        tmp_path / "out",
        *fields,
        "--output-format",
        "csv",
    )
    done = dslda(*score, *RULES)
    assert done.code == 0, done.err
    plain_out = tmp_path / "plain"
    assert (
        dslda(
            "score", model, folder / "new-plain.csv", "--out", plain_out, *fields, "--output-format", "csv"
        ).code
        == 0
    )
    assert (tmp_path / "out" / "part-000000.csv").read_bytes() == (plain_out / "part-000000.csv").read_bytes()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert manifest["settings"]["rules"]["separator"] == ";"
    assert "rules" not in json.loads((plain_out / "manifest.json").read_bytes())["settings"]
    assert "nothing was new" in dslda(*score, *RULES).out
    # another rule would change rows
    other = dslda(*score, *RULES[:-1], "NA")
    assert other.code == 2
    assert "na_values" in other.error


def test_a_large_export_is_scored_in_parts_that_workers_share(
    dslda: Dslda, folder: Path, tmp_path: Path
) -> None:
    many = [{**row, "text": " ".join([row["text"]] * 30)} for row in rows(4_000)]
    model = folder / "stars.model"
    fields = ("--text", "text", "--id", "key", "--topics", "none")
    rules = ("--encoding", "utf-16", *RULES[2:], "--workers", "2")
    for name, given, file in (
        ("utf16", rules, exported(tmp_path / "x.csv", many, "utf-16")),
        ("utf8", (), plain(tmp_path / "y.csv", many)),
    ):
        done = dslda("score", model, file, "--out", tmp_path / name, *fields, *given)
        assert done.code == 0, done.err
        tables = [library_rows(part) for part in sorted((tmp_path / name).glob("part-*.parquet"))]
        assert len(tables) > 1
        (tmp_path / f"{name}.json").write_text(json.dumps([row for table in tables for row in table]))
    assert (tmp_path / "utf16.json").read_bytes() == (tmp_path / "utf8.json").read_bytes()


def library_rows(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pylist()


def test_a_line_that_is_not_in_the_encoding_is_skipped_alone(
    dslda: Dslda, folder: Path, tmp_path: Path
) -> None:
    raw = (folder / "export.csv").read_bytes()
    lines = raw.split(b"\r\n")
    lines[3] = lines[3].replace(b"k2", b"k\x81")
    (tmp_path / "x.csv").write_bytes(b"\r\n".join(lines))
    score = (
        "score",
        folder / "stars.model",
        tmp_path / "x.csv",
        "--out",
        tmp_path / "out",
        *FIELDS[:4],
        *RULES,
    )
    stopped = dslda(*score)
    assert stopped.code == 2
    assert "x.csv, line 4: not cp1252" in stopped.error
    assert "--encoding" in stopped.error
    done = dslda(*score, "--on-error", "skip")
    assert done.code == 0, done.err
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_bytes())
    assert (manifest["rows_out"], manifest["skipped"]["count"]) == (59, 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--encoding", "cp99"], "--encoding must be an encoding"),
        (["--separator", ";;"], "--separator must be one character"),
        (["--escape", '"'], "--escape must be one character"),
        (["--separator", ";", "--escape", ";"], "--separator and --escape must differ"),
        ([], "--separator ';'"),
        (["--separator", ";"], "--encoding cp1252"),
        (["--format", "jsonl", "--separator", ";"], "--separator must be left out for JSON lines"),
        (["--format", "parquet", "--na-values", "NA"], "--na-values must be left out for Parquet"),
    ],
)
def test_a_wrong_rule_is_one_line(
    dslda: Dslda, folder: Path, tmp_path: Path, arguments: list[str], says: str
) -> None:
    fields = ("--text", "text", "--id", "key")
    for command in ("ingest", "predict", "score"):
        model = () if command == "ingest" else (folder / "stars.model",)
        out = ("--out", tmp_path / command)
        failed = dslda(command, *model, folder / "export.csv", *out, *fields, *arguments)
        assert failed.code == 2
        assert says in failed.error
        assert not list(tmp_path.glob("**/part-*"))
    assert not (tmp_path / "ingest").exists()
    assert not (tmp_path / "predict").exists()


def test_rules_are_for_files(dslda: Dslda, folder: Path, tmp_path: Path) -> None:
    with refused("encoding", "separator"):
        library.ingest([{"text": "word"}], encoding="cp1252", separator=";")
    model, corpus = folder / "stars.model", folder / "plain.corpus"
    for command in ("predict", "score"):
        failed = dslda(command, model, corpus, "--out", tmp_path / "out", "--separator", ";")
        assert failed.code == 2
        assert "--separator must be left out for a corpus" in failed.error


@pytest.mark.parametrize("encoding", ["utf-16"])
def test_standard_input_may_be_in_another_encoding(
    dslda: Dslda, made: Path, tmp_path: Path, encoding: str
) -> None:
    lines = ["good fine dress", "größe bad", "awful coat"]
    records = "".join(f'{{"text": "{line}"}}\n' for line in lines)
    (tmp_path / "r.jsonl").write_text(records, encoding="utf-8")
    expected = dslda("predict", made / "stars.model", tmp_path / "r.jsonl").out
    for content, arguments in (("\n".join(lines), ()), (records, ("--format", "jsonl"))):
        done = subprocess.run(
            [sys.executable, "-m", "dslda", "predict", str(made / "stars.model"), "-", *arguments, "--encoding", encoding],
            input=content.encode(encoding), capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.decode() == expected
    wrong = subprocess.run(
        [sys.executable, "-m", "dslda", "predict", str(made / "stars.model"), "-"],
        input=b"good\nw\xe9\n", capture_output=True, check=False,
    )  # fmt: skip
    assert wrong.returncode == 2
    assert b"stdin, line 2: not UTF-8" in wrong.stderr
    assert b"--encoding cp1252" in wrong.stderr


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_file_without_the_byte_order_mark_that_its_encoding_needs_is_one_line(
    dslda: Dslda, tmp_path: Path, encoding: str
) -> None:
    (tmp_path / "plain.csv").write_text("text,y\nfine,1\npoor,2\n")
    out = tmp_path / "c"
    told = dslda("ingest", tmp_path / "plain.csv", "--text", "text", "--out", out, "--encoding", encoding)
    assert told.code == 2
    assert told.error.startswith(f"{tmp_path}/plain.csv: does not begin with the byte order mark")
    assert f"{encoding}-le" in told.error
    assert "--encoding" in told.error
    assert not out.exists()


@pytest.mark.parametrize("encoding", ["punycode", "idna"])
def test_codecs_that_mend_no_errors_are_no_encodings(dslda: Dslda, tmp_path: Path, encoding: str) -> None:
    (tmp_path / "plain.csv").write_text("text,y\nfine,1\npoor,2\n")
    told = dslda(
        "ingest", tmp_path / "plain.csv", "--text", "text", "--out", tmp_path / "c", "--encoding", encoding
    )
    assert told.code == 2
    assert "--encoding must be an encoding that Python knows" in told.error
