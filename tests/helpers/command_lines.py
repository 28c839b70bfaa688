"""Command lines of deploy/, out of files and pages, and of other pages, as the words that a program would get."""

from __future__ import annotations

import ast
import copy
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import yaml

from dslda.cli.program import program

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
ENTRYPOINT = "dslda"
"""What the image runs."""


def all_command_lines() -> list[tuple[str, list[str]]]:
    """Where each stands, and its words: the program's name without its folder, then the arguments."""
    found = [
        *_of_units(),
        *_of_crontab(),
        *_of_compose(),
        *_of_manifests(),
        *_of_airflow(),
        *_of_pages(),
    ]
    return [(where, [Path(words[0]).name, *words[1:]]) for where, words in found]


def parse(words: list[str]) -> None:
    """Have click take a command line apart, as running it would, up to whether its files are there."""
    name, *arguments = words
    if name == "dask":
        import distributed.cli.dask_scheduler
        import distributed.cli.dask_worker

        group, *arguments = arguments
        command: click.Command = {
            "scheduler": distributed.cli.dask_scheduler.main,
            "worker": distributed.cli.dask_worker.main,
        }[group]
    else:
        assert name == "dslda", words
        group, *arguments = arguments
        command = command_of(group)
    # the files of a page are the operator's, and not here
    command = copy.copy(command)
    command.params = [copy.copy(option) for option in command.params]
    for option in command.params:
        if isinstance(option.type, click.Path):
            option.type = click.Path()
    context = command.make_context(group, list(arguments))
    assert all(not isinstance(v, str) or not v.startswith("--") for v in context.params.values()), words


def command_of(name: str) -> click.Command:
    """The command of dslda of this name."""
    found = program.get_command(click.Context(program), name)
    assert found is not None, f"no command {name}"
    return found


def lines_of_code(code: str) -> list[list[str]]:
    """The words of each line of a block that runs dslda, with or without a prompt."""
    lines = (line.removeprefix("$ ") for line in code.replace("\\\n", " ").splitlines())
    return [_simple(shlex.split(line, comments=True)) for line in lines if line.startswith("dslda ")]


def airflow_command() -> str:
    """The string of the DAG that the shell gets."""
    tree = ast.parse((DEPLOY / "airflow" / "dslda_score.py").read_text(encoding="utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "COMMAND"
    )
    command: str = ast.literal_eval(value)
    return command


def crontab_line() -> tuple[str, str, str]:
    """When, as whom, and the command of /etc/cron.d/dslda-score."""
    lines = (DEPLOY / "cron" / "dslda-score").read_text(encoding="utf-8").splitlines()
    (line,) = (
        line for line in lines if line and not line.startswith("#") and not re.match(r"[A-Z_]+=", line)
    )
    *when, user, command = line.split(None, 6)
    return " ".join(when), user, command


def manifests(name: str) -> list[dict[str, Any]]:
    """The documents of a file of YAML."""
    return list(yaml.safe_load_all((DEPLOY / name).read_text(encoding="utf-8")))


def _simple(words: list[str]) -> list[str]:
    """The first command of a line of shell: what is before a redirection, `||` or `&&`."""
    taken: list[str] = []
    for word in words:
        if word.startswith((">", "2>", "||", "&&", "|")):
            break
        taken.append(word)
    return taken


def _of_units() -> Iterator[tuple[str, list[str]]]:
    for unit in sorted((DEPLOY / "systemd").glob("dslda-*.service")):
        text = unit.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in re.findall(r"^ExecStart=(.*)$", text, re.MULTILINE):
            words = shlex.split(line)
            if words[0] != "/bin/sh":  # of what tells people
                yield unit.name, words


def _of_crontab() -> Iterator[tuple[str, list[str]]]:
    yield "cron", _simple(shlex.split(crontab_line()[2]))


def _of_compose() -> Iterator[tuple[str, list[str]]]:
    (file,) = manifests("compose/compose.yaml")
    for name, service in file["services"].items():
        yield f"compose: {name}", [*service.get("entrypoint", [ENTRYPOINT]), *service["command"]]


def _of_manifests() -> Iterator[tuple[str, list[str]]]:
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        for document in manifests(f"kubernetes/{path.name}"):
            for container in containers(document):
                words = [*container.get("command", [ENTRYPOINT]), *container["args"]]
                yield f"{path.name}: {container['name']}", words


def containers(node: Any) -> Iterator[dict[str, Any]]:
    """All containers anywhere in a manifest."""
    if isinstance(node, dict):
        yield from node.get("containers", [])
        for value in node.values():
            yield from containers(value)
    elif isinstance(node, list):
        for value in node:
            yield from containers(value)


def _of_airflow() -> Iterator[tuple[str, list[str]]]:
    yield "airflow", shlex.split(airflow_command())


def _of_pages() -> Iterator[tuple[str, list[str]]]:
    """Lines of blocks of code that run dslda or Dask, also in the image."""
    for page in sorted(DEPLOY.rglob("*.md")):
        for block in re.findall(
            r"^```\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
        ):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                where = str(page.relative_to(DEPLOY))
                if words and words[0] in ("dslda", "dask"):
                    yield where, words
                elif words[:2] == ["docker", "run"]:
                    (image,) = (i for i, word in enumerate(words) if word.startswith("dslda:"))
                    yield where, [ENTRYPOINT, *words[image + 1 :]]
