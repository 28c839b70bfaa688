"""Units of systemd, and the DAG of Airflow."""

from __future__ import annotations

import ast
import configparser
import re
import runpy
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.helpers.command_lines import airflow_command, crontab_line


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
    names = [
        "dslda-score.service",
        "dslda-score.timer",
        "dslda-failed@dslda-score.service",
        "dslda-train.service",
    ]
    done = analyze("verify", *(units / name for name in names))
    ours = [line for line in done.stderr.splitlines() if "dslda" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


def test_systemd_finds_what_is_wrong(units: Path) -> None:
    path = units / "dslda-score.service"
    path.write_text(path.read_text(encoding="utf-8").replace("KillMode=", "KilMode="), encoding="utf-8")
    assert re.search("Unknown key .*'KilMode'", analyze("verify", path).stderr)


@pytest.mark.parametrize("name", ["dslda-score.service", "dslda-train.service"])
def test_little_is_exposed(units: Path, name: str) -> None:
    done = analyze("security", "--offline=true", "--threshold=20", units / name)
    if "offline" in done.stderr:
        pytest.skip("this systemd judges running units alone")
    assert done.returncode == 0, done.stdout[-300:]


def read(path: Path) -> configparser.ConfigParser:
    """A unit. A key that is given twice, such as Environment, keeps its last value."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes="#")
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(path.read_text(encoding="utf-8").replace("\\\n", " "))
    return parser


def test_the_units_belong_together(deploy: Path) -> None:
    service, timer, failed = (
        read(deploy / "systemd" / name)
        for name in ("dslda-score.service", "dslda-score.timer", "dslda-failed@.service")
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


def test_training_is_shut_in_as_scoring_is_and_makes_its_model(deploy: Path) -> None:
    score, train = (read(deploy / "systemd" / f"dslda-{name}.service") for name in ("score", "train"))
    # of the score's alone are the command and the folder of metrics
    own = {"ExecStart", "ReadWritePaths"}
    assert {k: v for k, v in score["Service"].items() if k not in own} == {
        k: v for k, v in train["Service"].items() if k not in own
    }
    assert set(score["Service"]) - set(train["Service"]) == {"ReadWritePaths"}
    made = shlex.split(train["Service"]["ExecStart"])
    assert made[made.index("--out") + 1] == shlex.split(score["Service"]["ExecStart"])[2]
    assert "--resume" in made


def test_units_name_their_programs_by_their_paths(deploy: Path) -> None:
    units = sorted((deploy / "systemd").glob("*.service"))
    assert len(units) == 3
    for path in units:
        # systemd knows neither the environment of the program nor the PATH of a shell
        assert Path(shlex.split(read(path)["Service"]["ExecStart"])[0]).is_absolute(), path.name
    page = (deploy / "systemd" / "README.md").read_text(encoding="utf-8")
    (installed,) = re.findall(r"^install -m 644 (.*) /etc/systemd/system/$", page, re.MULTILINE)
    assert set(installed.split()) == {path.name for path in (deploy / "systemd").glob("dslda-*")}


def test_workers_spill_to_disk_wherever_they_are_started(deploy: Path) -> None:
    for place in ("systemd/dslda-score.service", "cron/dslda-score", "airflow/dslda_score.py"):
        text = (deploy / place).read_text(encoding="utf-8")
        assert re.search(r"""\bTMPDIR\W+/var/tmp\b""", text), place


@pytest.mark.parametrize("place", ["systemd", "cron", "airflow"])
def test_each_page_makes_what_its_command_needs(deploy: Path, place: str) -> None:
    page = " ".join((deploy / place / "README.md").read_text(encoding="utf-8").split())
    assert "python3 -m venv /opt/dslda" in page
    assert "/opt/dslda/bin/pip install --constraint ../docker/constraints.txt '../..[metrics]'" in page
    if " -o dslda" in page or place == "systemd":
        assert "useradd --system" in page.partition(" -o dslda")[0]
    assert "every run ends with 2 before it scores anything" in page  # where there is no folder of metrics


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


# what Airflow 3 (its task SDK 1.3, and apache-airflow-providers-standard 1.21) has of what a DAG like ours may name
AIRFLOW = {"airflow.sdk": {"DAG"}, "airflow.providers.standard.operators.bash": {"BashOperator"}}
OF_DAG = {
    *(
        "dag_id",
        "description",
        "schedule",
        "start_date",
        "end_date",
        "default_args",
        "max_active_tasks",
        "max_active_runs",
    ),
    *(
        "max_consecutive_failed_dag_runs",
        "dagrun_timeout",
        "catchup",
        "on_success_callback",
        "on_failure_callback",
    ),
    *("doc_md", "params", "is_paused_upon_creation", "tags", "owner_links", "fail_fast", "dag_display_name"),
}
OF_TASK = {
    *("task_id", "owner", "email", "email_on_retry", "email_on_failure", "retries", "retry_delay"),
    *("retry_exponential_backoff", "max_retry_delay", "depends_on_past", "priority_weight", "queue", "pool"),
    *("execution_timeout", "on_failure_callback", "on_success_callback", "on_retry_callback", "trigger_rule"),
    *("run_as_user", "max_active_tis_per_dag", "executor", "do_xcom_push", "doc_md"),
}
OF_BASH = {
    "bash_command",
    "env",
    "append_env",
    "output_encoding",
    "skip_on_exit_code",
    "cwd",
    "output_processor",
}


def test_the_dag_names_nothing_that_airflow_3_has_not(deploy: Path) -> None:
    tree = ast.parse((deploy / "airflow" / "dslda_score.py").read_text(encoding="utf-8"))
    imported = {
        (node.module, name.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    assert not any(isinstance(node, ast.Import) for node in ast.walk(tree))
    ours = {each for each in imported if each[0] not in ("__future__", "datetime")}
    assert ours == {(module, name) for module, names in AIRFLOW.items() for name in names}
    given: dict[str, set[str | None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            assert isinstance(node.func, ast.Name)
            assert not node.args or node.func.id == "datetime"  # Airflow takes names alone
            given[node.func.id] = {keyword.arg for keyword in node.keywords}
            for keyword in node.keywords:
                if keyword.arg == "default_args":
                    given["default_args"] = set(map(ast.literal_eval, keyword.value.keys))  # type: ignore[attr-defined]
    assert given["DAG"] <= OF_DAG
    assert {"dag_id", "schedule", "start_date"} <= given[
        "DAG"
    ]  # without them it is no DAG that runs by itself
    assert given["BashOperator"] <= OF_BASH | OF_TASK
    assert {"task_id", "bash_command"} <= given["BashOperator"]
    assert given["default_args"] <= OF_TASK


def test_airflow_loads_the_dag(deploy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    pytest.importorskip("airflow.sdk", reason="Airflow is not there: it wants an environment of its own")
    dag = runpy.run_path(str(deploy / "airflow" / "dslda_score.py"))["dag"]
    assert dag.task_ids == ["score"]
    assert (dag.catchup, dag.max_active_runs, dag.get_task("score").retries) == (False, 1, 2)


def test_the_command_of_the_dag_is_one_that_bash_takes(deploy: Path) -> None:
    assert not airflow_command().endswith((".sh", ".bash"))  # Airflow would look for a template of that name
    done = subprocess.run(
        ["bash", "-n", "-c", airflow_command()], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
