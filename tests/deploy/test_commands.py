"""Every command line in deploy/ is understood by the program it is for: an option that is renamed breaks a test."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import click
import pytest

from tests.helpers.command_lines import all_command_lines, crontab_line, parse

LINES = all_command_lines()


@pytest.mark.parametrize(
    ("where", "words"), LINES, ids=[f"{i}-{where}" for i, (where, _) in enumerate(LINES)]
)
def test_a_command_line_is_understood(where: str, words: list[str]) -> None:
    parse(words)


def test_every_place_has_a_command_line() -> None:
    places = " ".join(where for where, _ in LINES)
    for place in (
        "dslda-score.service",
        "dslda-train.service",
        "cron",
        "airflow",
        "compose: worker",
        "compose: score",
        "tls/README.md",
    ):
        assert place in places
    assert {words[1] for _, words in LINES if words[0] == "dslda"} == {"ingest", "train", "score"}


@pytest.mark.parametrize(
    "words",
    [
        ["dslda", "train", "a.corpus", "--response", "rating", "--outt", "m.model"],
        ["dslda", "train", "a.corpus", "--out", "m.model"],
        ["dask", "worker", "tcp://a:1", "--n-threads-or-so", "4"],
    ],
)
def test_a_command_line_with_a_wrong_option_is_found(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parse(words)


def test_all_places_name_the_image_of_one_version(deploy: Path) -> None:
    named = [
        version
        for path in deploy.rglob("*")
        if path.is_file() and (path.suffix in (".yaml", ".md") or path.name == "Dockerfile")
        for version in re.findall(
            r'(?:dslda:|VERSION=|VERSION: ")(\d[\w.]*)', path.read_text(encoding="utf-8")
        )
    ]
    assert len(named) > 8
    assert len(set(named)) == 1


def test_a_pattern_reaches_the_program_as_it_is() -> None:
    patterns = [
        word for _, words in LINES if words[:2] == ["dslda", "score"] for word in words if "*" in word
    ]
    assert len(patterns) >= 6
    assert all(pattern.endswith("incoming/*.jsonl.gz") for pattern in patterns)


@pytest.mark.parametrize(("code", "says"), [(0, ""), (2, "dslda score: exit code 2, log ")])
def test_cron_has_nothing_to_mail_but_failures(tmp_path: Path, code: int, says: str) -> None:
    when, user, command = crontab_line()
    assert (when, user) == ("0 4 * * 1", "dslda")
    assert "%" not in command  # cron makes a new line of it
    program_file = tmp_path / "dslda"
    program_file.write_text(f"#!/bin/sh\necho the log of $# words >&2\nexit {code}\n")
    program_file.chmod(0o755)
    log = tmp_path / "score.log"
    done = subprocess.run(
        ["sh", "-c", command],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "LOG": str(log)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert log.read_text() == "the log of 8 words\n"
    assert done.stdout.startswith(says)
    assert done.stdout.endswith("the log of 8 words\n") or code == 0
    assert bool(done.stdout) == bool(says)
