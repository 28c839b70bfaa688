"""Bad input: one line, exit code 2, nothing left behind."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Dslda = Callable[..., Any]

ROOT = Path(__file__).parents[2]

GOOD = '{"text": "good shirt", "stars": 1}\n{"text": "bad shirt", "stars": 2}\n'

INGEST = {
    "no such file": (None, [], "no file is there"),
    "missing text field": (GOOD.replace("text", "body"), [], r"no field 'text'.*'body'"),
    "missing response field": (GOOD.replace("stars", "rating"), [], r"no field 'stars'.*'rating'"),
    "response not a number": (
        GOOD.replace("2}", '"many"}'),
        [],
        r"line 2: response 'stars' must be a number.*many",
    ),
    "response infinite": (GOOD.replace("2}", "Infinity}"), [], r"line 2: response 'stars' must be finite"),
    "all responses equal": (GOOD.replace("2}", "1}"), [], r"response 'stars' is 1 in all 2 documents"),
    "all responses missing": (
        GOOD.replace("1}", "null}").replace("2}", "null}"),
        [],
        "response 'stars' is missing in all 2",
    ),
    "empty file": ("", [], "is empty"),
    "not JSON": (GOOD + "good\n", [], "line 3: not JSON"),
    "wrong encoding": (GOOD.replace("good", "caf\xe9").encode("latin-1"), [], "line 1.*UTF-8"),
    "vocabulary empty after filters": (
        GOOD,
        ["--min-df", "0.9", "--max-df", "0.95"],
        "^--min-df and --max-df leave none of the 3 terms in 2 documents: 2 are in fewer than 1.8 of them, 1 in more "
        "than 1.9; lower --min-df, or raise --max-df$",
    ),
    "min-df is no number": (GOOD, ["--min-df", "few"], r"'--min-df': must be a number of documents.*'few'"),
    "ngrams are no range": (GOOD, ["--ngrams", "1:2"], r"'--ngrams': must be a length.*'1:2'"),
    "ngrams from long to short": (GOOD, ["--ngrams", "2-1"], r"'--ngrams': must be a length.*'2-1'"),
    "unknown ending": (GOOD, ["--format", "xml"], "'xml' is not one of"),
    "bad pattern": (GOOD, ["--token-pattern", "("], "--token-pattern must be a regular expression"),
    "stop words of a language": (
        GOOD,
        ["--stop-words", "german"],
        "--stop-words must be english, .* or a file with a word a line, got 'german': no file is there$",
    ),
    "words without counts": (GOOD, ["--words", "w"], "both|together"),
}


@pytest.mark.parametrize("case", INGEST)
def test_ingest_refuses(dslda: Dslda, tmp_path: Path, case: str) -> None:
    content, extra, message = INGEST[case]
    path = tmp_path / "in.jsonl"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    before = sorted(tmp_path.iterdir())
    base = ["--text", "text", "--response", "stars", "--min-df", "1", "--max-df", "1.0"]
    done = dslda("ingest", path, "--out", tmp_path / "out.corpus", *base, *extra)
    assert done.code == 2, done.err
    assert done.out == ""
    assert re.search(message, done.error), done.error
    assert sorted(tmp_path.iterdir()) == before


TRAIN = {
    "no such corpus": (["no.corpus", "--response", "stars"], "no.corpus does not exist"),
    "a model for a corpus": (
        ["stars.model", "--response", "stars"],
        "is a model, not a corpus; .* look at it with dslda info$",
    ),
    "a file for a corpus": (
        ["reviews.jsonl", "--response", "stars"],
        "reviews.jsonl is a file, .* dslda ingest makes",
    ),
    "no such response": (
        ["reviews.corpus", "--response", "rating"],
        "response must name one of.*'stars', 'age'.*, got 'rating'",
    ),
    "no response named": (["reviews.corpus"], "Missing option '--response'"),
    "no topics": (
        ["reviews.corpus", "--response", "stars", "--topics", "0"],
        "--topics must be .* at least 1, got 0",
    ),
    "more topics than any machine holds": (
        ["reviews.corpus", "--response", "stars", "--topics", "99999999999999999999"],
        "--topics must be at most 100000",
    ),
    "no room for a worker": (
        ["reviews.corpus", "--response", "stars", "--memory-limit", "1kB"],
        "--memory-limit must be at least 400 MiB",
    ),
    "memory is no size": (
        ["reviews.corpus", "--response", "stars", "--memory-limit", "lots"],
        "--memory-limit must be a size such as 4GB, got 'lots'",
    ),
    "a million workers": (
        ["reviews.corpus", "--response", "stars", "--workers", "1000000"],
        "workers must be from 1 to 1024",
    ),
    "rho is 0": (
        ["reviews.corpus", "--response", "stars", "--rho", "0"],
        "--rho must be a number from 1e-06 to",
    ),
    "no prior for topics that are distributions": (
        ["reviews.corpus", "--response", "stars", "--topic-estimation", "variational", "--topic-prior", "0"],
        "--topic-prior must be at least 0.005 for variational topics, got 0",
    ),
    "alpha is a word": (
        ["reviews.corpus", "--response", "stars", "--alpha", "some"],
        "must be one of X\\|auto\\|asymmetric\\|1/K",
    ),
    "unknown family": (
        ["reviews.corpus", "--response", "stars", "--family", "probit"],
        "--family must be one of .*gaussian.*, got 'probit'; if it is your own, make it known with --family MODULE:CLASS$",
    ),
    "a family that is misspelt": (
        ["reviews.corpus", "--response", "stars", "--family", "ordnal"],
        "got 'ordnal'; did you mean 'ordinal'",
    ),
    "counts without trials": (
        ["reviews.corpus", "--response", "age", "--family", "binomial"],
        "name the column of the trials with --trials, or use --family ",
    ),
    "covariates without a name": (
        ["reviews.corpus", "--response", "stars", "--covariates", ","],
        "--covariates.* must name covariates of .*, got ''$",
    ),
    "two clusters": (
        ["reviews.corpus", "--response", "stars", "--scheduler", "tcp://127.0.0.1:1", "--workers", "2"],
        "--workers must be left out with a scheduler",
    ),
    "output exists": (
        ["reviews.corpus", "--response", "stars", "--out", "stars.model"],
        "stars.model is there already",
    ),
    "output is no model": (
        ["reviews.corpus", "--response", "stars", "--out", "reviews.corpus", "--overwrite"],
        "is not a dslda-model, so it is never replaced",
    ),
}


@pytest.mark.parametrize("case", TRAIN)
def test_train_refuses(
    dslda: Dslda, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    arguments, message = TRAIN[case]
    for name in ("reviews.jsonl", "reviews.corpus", "stars.model"):
        copy = shutil.copytree if (made / name).is_dir() else shutil.copy
        copy(made / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    out = [] if "--out" in arguments else ["--out", "new.model"]
    done = dslda("train", *arguments, *out)
    assert done.code == 2, done.err
    assert re.search(message, done.error), done.error
    assert sorted(tmp_path.rglob("*")) == before


def test_stores_of_another_version_are_refused(dslda: Dslda, made: Path, tmp_path: Path) -> None:
    for name, command in (
        ("reviews.corpus", ["train", "{}", "--response", "stars", "--out", str(tmp_path / "x.model")]),
        ("stars.model", ["predict", "{}", str(made / "reviews.jsonl")]),
        ("stars.model", ["topics", "{}"]),
        ("stars.model", ["info", "{}"]),
        ("reviews.corpus", ["info", "{}"]),
    ):
        path = tmp_path / name
        shutil.copytree(made / name, path, dirs_exist_ok=True)
        metadata = json.loads((path / "zarr.json").read_text())
        metadata["attributes"]["encoding-version"] = "9"
        (path / "zarr.json").write_text(json.dumps(metadata))
        done = dslda(*(part.format(path) for part in command))
        assert done.code == 2
        assert "of version '9'" in done.error
        assert "update dslda" in done.error
    assert not (tmp_path / "x.model").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "stars.model", "no.jsonl"], "no file is there"),
        (
            ["predict", "reviews.corpus", "reviews.jsonl"],
            "is a corpus, not a model; .* look at it with dslda info$",
        ),
        (["topics", "reviews.corpus"], "look at it with dslda info$"),
        (["predict", "stars.model", "reviews.jsonl", "--text", "body"], r"no field 'body'"),
        (
            ["predict", "stars.model", "reviews.jsonl", "--words", "w"],
            "--words and --counts must both be named",
        ),
        (
            ["predict", "stars.model", "reviews.jsonl", "--text", ""],
            "--text must be the name of a field, got ''",
        ),
        (["predict", "stars.model", ""], "path must be .* not empty"),
        (["predict", "stars.model", "-", "--id", "key"], "reads lines of text"),
        (
            ["predict", "stars.model", "reviews.jsonl", "--out", "reviews.jsonl", "--overwrite"],
            "is the input itself",
        ),
        (
            ["predict", "stars.model", "*.jsonl", "--out", "reviews.jsonl", "--overwrite"],
            "is the input itself",
        ),
        (
            ["predict", "stars.model", "reviews.jsonl", "--out", "s3://bucket/x.csv"],
            "--out must be a local file, got s3://bucket/x.csv; dslda score writes to URLs",
        ),
        (["predict", "stars.model", "reviews.jsonl", "--out", "/dev/zero", "--overwrite"], "must be a file"),
        (["predict", "stars.model", "other.corpus"], "another vocabulary.*--realign"),
        (["topics", "stars.model", "--top", "0"], "--top.: must be a whole number of at least 1, got .0."),
        (["info", "reviews.jsonl"], "is a file, and corpora, models and checkpoints are folders"),
        (["info", "nowhere"], "does not exist"),
        *(
            (
                [*line.split(), "memory://name"],
                f"'{line.split()[-1]}': must .* outlives this command, got memory://name",
            )
            for line in (
                "ingest reviews.jsonl --text text --out",
                "train reviews.corpus --response stars --out",
                "train reviews.corpus --response stars --out m.model --checkpoint",
                "score stars.model reviews.jsonl --out",
                "demo --out",
            )
        ),
        (["nonsense"], "No such command 'nonsense'"),
        (["train", "--no-such-option"], "No such option"),
    ],
)
def test_other_commands_refuse(
    dslda: Dslda,
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write_reviews: Callable[..., Path],
    arguments: list[str],
    message: str,
) -> None:
    for name in ("reviews.jsonl", "reviews.corpus", "stars.model"):
        (tmp_path / name).symlink_to(made / name)
    monkeypatch.chdir(tmp_path)
    if "other.corpus" in arguments:
        write_reviews(tmp_path / "few.jsonl", 20)
        assert (
            dslda("ingest", "few.jsonl", "--out", "other.corpus", "--text", "text", "--max-df", "1.0").code
            == 0
        )
    done = dslda(*arguments)
    assert done.code == 2, done.err
    assert re.search(message, done.error), done.error
    if "other.corpus" in arguments:
        assert dslda(*arguments, "--realign").code == 0


def test_a_scheduler_that_does_not_answer_is_a_failure(dslda: Dslda, made: Path, tmp_path: Path) -> None:
    import dask
    import distributed  # noqa: F401 - its defaults must be there before one is changed

    with dask.config.set({"distributed.comm.timeouts.connect": "1s"}):
        done = dslda(
            *("train", made / "reviews.corpus", "--response", "stars", "--out", tmp_path / "m.model"),
            *("--scheduler", "tcp://127.0.0.1:9"),
        )
    assert done.code == 1
    assert "scheduler at tcp://127.0.0.1:9 must answer" in done.error
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_refused(dslda: Dslda, made: Path, tmp_path: Path) -> None:
    done = dslda(
        "predict", made / "stars.model", made / "reviews.jsonl", "--out", tmp_path / "no" / "folder" / "p.csv"
    )
    assert done.code == 2
    assert "must be in an existing folder" in done.error


def test_the_program_says_errors_the_same_way_as_a_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from dslda.cli import main; main()", "info", str(tmp_path / "nothing")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("dslda: error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ingest", "nowhere.jsonl", "--text", "text", "--out", "c"], "nowhere.jsonl"),
        (["score", "nowhere.model", "nowhere.jsonl", "--out", "s"], "nowhere.model"),
        (["train", "nowhere.corpus", "--response", "y", "--out", "m", "--topics", "no"], "'no'"),
    ],
)
def test_with_json_logs_the_error_at_the_end_is_json_too(
    dslda: Dslda, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = dslda(*arguments, "--json")
    assert done.code == 2
    told = json.loads(done.err.splitlines()[-1])
    assert (told["level"], told["exit_code"]) == ("error", 2)
    assert message in told["message"]


def test_the_module_is_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "dslda", "--version"], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stdout.split()[0]) == (0, "dslda,"), done.stderr
