"""The image and compose's file, as far as they can be checked without an engine."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.helpers.command_lines import manifests

ROOT = Path(__file__).resolve().parents[2]
DOCKER = ROOT / "deploy" / "docker"


def instructions() -> list[tuple[str, str]]:
    """Instructions of the Dockerfile, with their arguments on one line."""
    text = re.sub(r"^#.*\n", "", (DOCKER / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def pins() -> dict[str, str]:
    lines = (DOCKER / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint", path=Path(sys.executable).parent)
    if program is None:
        pytest.skip("hadolint is not there: its wheels are for Linux on x86-64")
    done = subprocess.run([program, DOCKER / "Dockerfile"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_dockerfile_copies_what_is_there_and_sent_to_the_builder() -> None:
    sent = {
        line[1:]
        for line in (DOCKER / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = []
    for name, arguments in instructions():
        if name == "COPY" and "--from" not in arguments:
            copied += arguments.split()[:-1]
    assert copied
    assert set(copied) == sent
    for path in copied:
        assert (ROOT / path).exists(), path


def test_the_image_is_of_two_stages_of_one_python_and_runs_without_root() -> None:
    listed = instructions()
    stages = [arguments for name, arguments in listed if name == "FROM"]
    assert stages == ["python:${PYTHON} AS build", "python:${PYTHON}"]
    (python,) = (arguments for name, arguments in listed if arguments.startswith("PYTHON="))
    found = re.fullmatch(r"PYTHON=3\.(\d+)\.\d+-slim-\w+", python)
    assert found is not None
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"Programming Language :: Python :: 3.{found[1]}" in project["classifiers"]
    final = listed[[name for name, _ in listed].index("FROM", 3) :]
    users = [arguments for name, arguments in final if name == "USER"]
    assert users == ["10001:10001"]
    after = [name for name, _ in final][[name for name, _ in final].index("USER") :]
    assert "COPY" not in after
    # the kernels are compiled by the user who runs, or numba would not take them
    assert ("RUN", "python /opt/dslda/compile_kernels.py") in final[final.index(("USER", "10001:10001")) :]
    assert final[-2:] == [("ENTRYPOINT", '["dslda"]'), ("CMD", '["--help"]')]


def test_the_script_of_the_image_has_all_kernels_ready() -> None:
    from dslda.families.categorical import Categorical
    from dslda.families.registry import FAMILIES
    from dslda.variational.compiling import _kernel, kernel_of

    runpy.run_path(str(DOCKER / "compile_kernels.py"))
    ready = _kernel.cache_info().currsize
    for family in FAMILIES.values():
        instance = family(2) if family is Categorical else family()
        for labelled in (True, False):
            kernel_of(instance, labelled=labelled)
    assert _kernel.cache_info().currsize == ready


def test_constraints_hold_every_package_of_the_image() -> None:
    pinned = pins()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *project["optional-dependencies"]["metrics"]]
    waiting = [Requirement(text) for text in texts]
    seen: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        key = name, frozenset(wanted.extras)
        if key in seen:
            continue
        seen.add(key)
        assert name in pinned, f"{name} has no version in constraints.txt"
        assert wanted.specifier.contains(pinned[name]), f"{name} {pinned[name]} is not {wanted.specifier}"
        try:
            same = version(name) == pinned[name]
        except PackageNotFoundError:
            continue
        if same:  # of another version it is not known here what it needs
            for text in requires(name) or []:
                further = Requirement(text)
                extras = [{"extra": extra} for extra in ("", *wanted.extras)]
                if further.marker is None or any(map(further.marker.evaluate, extras)):
                    waiting.append(further)


def compose() -> dict[str, Any]:
    (file,) = manifests("compose/compose.yaml")
    return file


def test_lines_that_start_a_container_by_hand_are_as_shut_in_as_the_services() -> None:
    lines = [
        line
        for page in sorted((ROOT / "deploy").rglob("*.md"))
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("docker run ")
    ]
    assert len(lines) >= 2
    assert all("--network none " in line and "--init " in line for line in lines), lines


def test_the_compose_file_is_what_its_specification_says() -> None:
    compose_spec = pytest.importorskip("compose_spec", reason="its wheels are for Linux on x86-64")
    plain = yaml.safe_dump(compose())  # anchors are YAML's, resolved
    compose_spec.PyCompose.from_yaml(plain).to_spec()
    with pytest.raises(ValueError, match="healthy"):
        compose_spec.PyCompose.from_yaml(plain.replace("service_healthy", "healthy")).to_spec()


def test_services_of_compose_hold_together() -> None:
    file = compose()
    settings = yaml.safe_load((ROOT / "deploy" / "dask-config.yaml").read_text(encoding="utf-8"))
    tls = settings["distributed"]["comm"]["tls"]
    for name, service in file["services"].items():
        assert "ports" not in service, "nothing is published"
        assert set(service["networks"]) <= set(file["networks"])
        assert set(service.get("depends_on", ())) <= set(file["services"])
        assert service["cap_drop"] == ["ALL"]
        role = name if name in ("scheduler", "worker") else "client"
        targets = [secret["target"] for secret in service["secrets"]]
        assert targets == [tls["ca-file"], tls[role]["cert"], tls[role]["key"]], "its own role's alone"
        assert all(secret["source"] in file["secrets"] for secret in service["secrets"])
        # on disk: what is spilled into memory counts against the limit of the service
        assert "tmpfs" not in service
        assert {"type": "volume", "target": "/tmp"} in service["volumes"]
        if "--local-directory" in service["command"]:
            assert service["command"][service["command"].index("--local-directory") + 1] == "/tmp"
    build = file["services"]["scheduler"]["build"]
    context = ROOT / "deploy" / "compose" / build["context"]
    assert context.resolve() == ROOT
    assert (context / build["dockerfile"]).is_file()
    assert all(network["internal"] for network in file["networks"].values())
    script = (ROOT / "deploy" / "tls" / "make-certificates.sh").read_text(encoding="utf-8")
    assert "set -- scheduler worker client" in script
    made = {"./tls/ca.pem"} | {
        f"./tls/{r}{e}.pem" for r in ("scheduler", "worker", "client") for e in ("", "-key")
    }
    assert {secret["file"] for secret in file["secrets"].values()} == made
