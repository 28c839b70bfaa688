"""Documents out of pipes, as shells make them: the corpus and the predictions of the same documents in a file."""

from __future__ import annotations

import gzip
import lzma
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas
import pytest

from dslda.cli.program import run
from dslda.corpus.store import open_corpus
from tests.helpers.processes import shell

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")

INGEST = "$D ingest --text text --id key --response stars --min-df 1 --max-df 1.0 --out {out}/c.corpus"


@pytest.fixture
def leftovers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files, of which none may stay."""
    folder = tmp_path / "spool"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield folder
    assert not list(folder.glob("dslda-*"))


@pytest.fixture(scope="module")
def source(made: Path) -> Path:
    """The reviews in several forms."""
    folder = made / "piped"
    folder.mkdir()
    raw = (made / "reviews.jsonl").read_bytes()
    (folder / "r.jsonl").write_bytes(raw)
    (folder / "r.jsonl.gz").write_bytes(gzip.compress(raw))
    (folder / "r.jsonl.xz").write_bytes(lzma.compress(raw))
    frame = pandas.read_json(folder / "r.jsonl", lines=True)
    frame.to_csv(folder / "r.csv", index=False)
    frame.to_parquet(folder / "r.parquet", index=False)
    return folder


@pytest.fixture(scope="module")
def content(source: Path) -> str:
    """Hash of the corpus of the file."""
    out = source / "plain.corpus"
    options = INGEST.replace("{out}/c.corpus", str(out)).split()[2:]
    assert run(["ingest", str(source / "r.jsonl"), *options]) == 0
    return open_corpus(out).content_hash


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"{INGEST} - < {{in}}/r.jsonl.gz", "stdin"),
        (f"cat {{in}}/r.jsonl.xz | {INGEST} /dev/stdin", "stdin"),
        (f"cat {{in}}/r.csv | gzip | {INGEST} - --format csv", "stdin"),
        (f"cat {{in}}/r.parquet | {INGEST} -", "stdin"),
        (f"{INGEST} <(zcat {{in}}/r.jsonl.gz)", "/dev/fd/63"),
        (
            f"mkfifo {{out}}/f.csv; cat {{in}}/r.csv > {{out}}/f.csv & sleep 0.1; {INGEST} {{out}}/f.csv",
            "{out}/f.csv",
        ),
        # what another program has read before stays read
        (f"(echo; cat {{in}}/r.jsonl) > {{out}}/x; (read -r line; {INGEST} -) < {{out}}/x", "stdin"),
        (f"cat {{in}}/r.jsonl | {INGEST} - --workers 1", "stdin"),
    ],
)
def test_a_pipe_gives_the_corpus_of_its_file(
    source: Path, content: str, leftovers: Path, tmp_path: Path, line: str, name: str
) -> None:
    line = line.replace("{in}", str(source)).replace("{out}", str(tmp_path))
    done = shell(line)
    assert done.returncode == 0, done.stderr
    said = f"{name.replace('{out}', str(tmp_path))} can be read only once: it is copied to {leftovers} first"
    assert done.stderr.decode().count(said) == 1
    piped = open_corpus(tmp_path / "c.corpus")
    assert piped.content_hash == content
    assert piped.provenance["inputs"] == [name.replace("{out}", str(tmp_path))]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (f": | {INGEST} -", "stdin: no documents: the pipe is empty; see whether"),
        (f"{INGEST} <(true)", "/dev/fd/63: no documents: the pipe is empty"),
        (f"head -c 300 {{in}}/r.jsonl | {INGEST} -", "stdin, line 5: not JSON"),
        (f"head -c 300 {{in}}/r.jsonl.gz | {INGEST} -", "stdin: the gzip file is cut short"),
        (
            f"cat {{in}}/r.csv | {INGEST} -",
            "stdin: the format is not clear from the content of the pipe; name it with --format",
        ),
        (f"cat {{in}}/r.jsonl | {INGEST} - -", "must name each pipe once, got stdin again"),
        (f"cat {{in}}/r.jsonl | {INGEST} - /dev/fd/0", "must name each pipe once, got /dev/fd/0 again"),
        (f"{INGEST} - <&-", "- reads stdin, which is closed; give the path of a file"),
        (f"{INGEST} - 0>&2", "stdin: the pipe cannot be read: Bad file descriptor"),
        (f"{INGEST} /dev/fd/77", "/dev/fd/77: the pipe cannot be read: Bad file descriptor"),
        (
            f"ulimit -f 1; cat {{in}}/r.jsonl | {INGEST} -",
            "make room there, or set the environment variable TMPDIR",
        ),
        (f"cat {{in}}/r.jsonl | {INGEST} - --text body", "stdin: has no field 'body' for the text"),
        ("cat {in}/r.jsonl | $D score {made}/stars.model - --out {out}/s", "got the pipe -"),
        ("$D score {made}/stars.model <(cat {in}/r.jsonl) --out {out}/s", "got the pipe /dev/fd/63"),
    ],
)
def test_a_pipe_that_cannot_be_used_is_one_line(
    made: Path, source: Path, leftovers: Path, tmp_path: Path, line: str, says: str
) -> None:
    before = sorted(tmp_path.iterdir())
    done = shell(
        line.replace("{in}", str(source)).replace("{out}", str(tmp_path)).replace("{made}", str(made))
    )
    assert done.returncode in (1, 2), done.stderr
    last = done.stderr.decode().splitlines()[-1]
    assert last.startswith("dslda: error: "), done.stderr
    assert says in last
    assert b"Traceback" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "line",
    [
        "cat {in}/r.parquet | $D predict {made}/stars.model - --format parquet",
        "$D predict {made}/stars.model <(cat {in}/r.jsonl.xz)",
        "gzip < {in}/r.csv | $D predict {made}/stars.model - --format csv",
    ],
)
def test_predictions_of_a_pipe_are_those_of_its_file(
    dslda: Callable[..., Any], made: Path, source: Path, leftovers: Path, line: str
) -> None:
    done = shell(line.replace("{in}", str(source)).replace("{made}", str(made)))
    assert done.returncode == 0, done.stderr
    plain = dslda("predict", made / "stars.model", source / "r.jsonl")
    assert done.stdout.decode() == plain.out
