"""Units of systemd, and the DAG of Airflow."""

from __future__ import annotations

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from command_lines import airflow_command, crontab_line


@pytest.fixture
def units(deploy: Path, tmp_path: Path) -> Path:
    """The units, with a program that is there in the place of the operator's."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not there")
    for path in (deploy / "systemd").glob("dslda-*"):
        text = path.read_text(encoding="utf-8").replace("/opt/dslda/bin/dslda", "/bin/true")
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    return tmp_path


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_systemd_finds_nothing_wrong_in_the_units(units: Path) -> None:
    shutil.copy(units / "dslda-failed@.service", units / "dslda-failed@dslda-score.service")
    names = ["dslda-score.service", "dslda-score.timer", "dslda-failed@dslda-score.service"]
    done = analyze("verify", *(units / name for name in names))
    ours = [line for line in done.stderr.splitlines() if "dslda" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_systemd_finds_what_is_wrong(units: Path) -> None:
    path = units / "dslda-score.service"
    path.write_text(path.read_text(encoding="utf-8").replace("KillMode=", "KilMode="), encoding="utf-8")
    assert re.search("Unknown key .*'KilMode'", analyze("verify", path).stderr)


def test_little_is_exposed(units: Path) -> None:
    done = analyze("security", "--offline=true", "--threshold=20", units / "dslda-score.service")
    if "offline" in done.stderr:
        pytest.skip("this systemd judges running units alone")
    assert done.returncode == 0, done.stdout[-300:]


def test_the_units_belong_together(deploy: Path) -> None:
    def read(name: str) -> configparser.ConfigParser:
        parser = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes="#")
        parser.optionxform = str  # type: ignore[assignment, method-assign]
        # a key that is given twice, such as Environment, keeps the last value: none of those is asked for here
        parser.read(deploy / "systemd" / name, encoding="utf-8")
        return parser

    service, timer, failed = (
        read(name) for name in ("dslda-score.service", "dslda-score.timer", "dslda-failed@.service")
    )
    assert (
        deploy / "systemd" / "dslda-score.timer"
    ).stem == "dslda-score"  # a timer starts the service of its name
    assert timer["Install"]["WantedBy"] == "timers.target"
    assert service["Unit"]["OnFailure"] == "dslda-failed@%n.service"
    assert "%i" in failed["Service"]["ExecStart"]
    # the program's exit codes: 1 is tried again, 2 is not, 143 is systemd's own stop
    assert service["Service"]["Restart"] == "on-failure"
    assert service["Service"]["RestartPreventExitStatus"] == "2"
    assert service["Service"]["SuccessExitStatus"] == "143"
    assert "MemoryDenyWriteExecute" not in service["Service"]  # numba compiles into memory


def test_the_timer_means_what_cron_means(deploy: Path) -> None:
    timer = (deploy / "systemd" / "dslda-score.timer").read_text(encoding="utf-8")
    (calendar,) = re.findall(r"^OnCalendar=(.*)$", timer, re.MULTILINE)
    assert calendar == "Mon *-*-* 04:00:00"
    assert crontab_line()[0] == "0 4 * * 1"
    if shutil.which("systemd-analyze") is not None:
        assert f"Normalized form: {calendar}" in analyze("calendar", calendar).stdout


def test_all_places_start_the_same_command(deploy: Path) -> None:
    unit = (deploy / "systemd" / "dslda-score.service").read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    words = shlex.split(line)
    assert shlex.split(airflow_command()) == words
    cron = shlex.split(crontab_line()[2])
    assert ["/opt/dslda/bin/dslda", *cron[1 : len(words)]] == words


def test_airflow_can_load_the_dag(deploy: Path) -> None:
    path = deploy / "airflow" / "dslda_score.py"
    source = path.read_text(encoding="utf-8")
    compile(source, str(path), "exec")
    assert "bash_command=COMMAND" in source
    assert not airflow_command().endswith((".sh", ".bash"))  # Airflow would look for a template of that name
    done = subprocess.run(
        ["bash", "-n", "-c", airflow_command()], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
