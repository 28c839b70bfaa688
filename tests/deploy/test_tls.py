"""A cluster whose connections are encrypted, with the settings and certificates of deploy/: processes, hosts, refusals."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import dask.config
import pytest

from dslda.cli.program import run
from dslda.cluster.opening import ClusterOptions, cluster
from dslda.exceptions import InputError
from dslda.model import load_model

TRAIN = ("--response", "rating", "--topics", "2", "--json")


@pytest.fixture(scope="module")
def in_process(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The model of a fit without a cluster."""
    path = tmp_path_factory.mktemp("plain") / "plain.model"
    assert run(["train", str(corpus), *TRAIN, "--out", str(path)]) == 0
    return load_model(path)


def test_certificates_are_what_the_strictest_reader_wants(certificates: Path) -> None:
    for folder in (certificates, certificates / "other"):
        assert sorted(path.name for path in folder.glob("*.*")) == [
            *("ca-key.pem", "ca.pem", "client-key.pem", "client.pem"),
            *("scheduler-key.pem", "scheduler.pem", "worker-key.pem", "worker.pem"),
        ]
        for path in folder.glob("*-key.pem"):
            assert path.stat().st_mode & 0o077 == 0, path
        for role in ("scheduler", "worker", "client"):
            verify = [
                "openssl",
                "verify",
                "-x509_strict",
                "-CAfile",
                folder / "ca.pem",
                folder / f"{role}.pem",
            ]
            subprocess.run(verify, check=True, capture_output=True)


def test_another_certificate_leaves_those_that_are_there(
    certificates: Path, deploy: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(certificates / "other", tmp_path / "more")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    subprocess.run(["sh", deploy / "tls" / "make-certificates.sh", folder, "ada"], check=True)
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after.keys() - before.keys() == {"ada.pem", "ada-key.pem"}
    assert before.items() <= after.items()
    verify = ["openssl", "verify", "-CAfile", folder / "ca.pem", folder / "ada.pem"]
    subprocess.run(verify, check=True, capture_output=True)


def with_options(certificates: Path, folder: str = ".") -> list[str]:
    where = certificates / folder
    return [
        *("--tls-ca-file", str(where / "ca.pem")),
        *("--tls-cert", str(where / "client.pem"), "--tls-key", str(where / "client-key.pem")),
    ]


@pytest.mark.parametrize("how", ["options", pytest.param("configuration", marks=pytest.mark.soak)])
def test_a_fit_on_an_encrypted_cluster_has_the_bits_of_one_process(
    how: str,
    tls_cluster: str,
    corpus: Path,
    certificates: Path,
    shipped_settings: dict[str, Any],
    in_process: Any,
    program: Callable[..., subprocess.CompletedProcess[str]],
    assert_same: Callable[[Any, Any], None],
    tmp_path: Path,
) -> None:
    assert tls_cluster.startswith("tls://")
    out = tmp_path / "tls.model"
    options = with_options(certificates) if how == "options" else []
    done = program(
        *("train", corpus, *TRAIN, "--out", out, "--scheduler", tls_cluster, *options),
        folder=tmp_path,
        settings=None if how == "options" else shipped_settings,
    )
    assert done.returncode == 0, done.stderr
    assert "in 2 workers" in done.stderr
    assert_same(load_model(out), in_process)


@pytest.mark.parametrize(
    ("options", "settings", "says"),
    [
        ([], {}, "got no certificate of an authority and no own certificate; see --tls-ca-file"),
        (["--tls-ca-file", "{}/ca.pem"], {}, "got no own certificate"),
        (
            ["--tls-ca-file", "{}/ca.pem", "--tls-cert", "{}/client.pem", "--tls-key", "{}/worker-key.pem"],
            {},
            "must be PEM that can be read and belongs together, got {}/ca.pem, {}/client.pem, {}/worker-key.pem",
        ),
        (
            [],
            {"ca-file": "{}/ca.pem", "client.cert": "{}/lost.pem", "client.key": "{}/lost.pem"},
            "got {}/ca.pem, {}/lost.pem, {}/lost.pem ([Errno 2] No such file",
        ),
        (
            [
                "--tls-ca-file",
                "{}/other/ca.pem",
                "--tls-cert",
                "{}/client.pem",
                "--tls-key",
                "{}/client-key.pem",
            ],
            {},
            "TLS certificate does not match",
        ),
        (
            [
                "--tls-ca-file",
                "{}/ca.pem",
                "--tls-cert",
                "{}/other/client.pem",
                "--tls-key",
                "{}/other/client-key.pem",
            ],
            {},
            "must answer, got: ",
        ),
    ],
    ids=[
        "nothing",
        "no certificate",
        "key of another",
        "file lost",
        "authority of another",
        "client of another",
    ],
)
def test_a_client_without_the_right_certificate_is_refused_in_one_line(
    tls_cluster: str,
    corpus: Path,
    certificates: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    settings: Mapping[str, str],
    says: str,
) -> None:
    here = str(certificates)
    given = {f"distributed.comm.tls.{name}": value.replace("{}", here) for name, value in settings.items()}
    out = tmp_path / "refused.model"
    command = ["train", str(corpus), "--response", "rating", "--out", str(out), "--scheduler", tls_cluster]
    with dask.config.set(given):
        code = run([*command, *(option.replace("{}", here) for option in options)])
    error = capsys.readouterr().err
    assert code in (1, 2)
    assert says.replace("{}", here) in error.splitlines()[-1]
    assert error.count("error: ") == 1
    assert "Traceback" not in error
    assert not out.exists()


@pytest.mark.parametrize("require", [True, None], ids=["required", "given"])
def test_an_address_that_is_not_encrypted_is_refused(certificates: Path, require: bool | None) -> None:
    files = {} if require else {"tls_ca_file": str(certificates / "ca.pem")}
    with (
        dask.config.set({"distributed.comm.require-encryption": require}),
        pytest.raises(InputError, match=r"must begin with tls:// .* got tcp://127\.0\.0\.1:1;"),
        cluster(options=ClusterOptions(scheduler="tcp://127.0.0.1:1", **files)),
    ):
        pass


def test_workers_of_ones_own_are_encrypted_where_all_connections_must_be(
    shipped_settings: dict[str, Any],
    with_settings: Callable[[dict[str, Any]], AbstractContextManager[Any]],
) -> None:
    # a client's machine: it has no certificates of the other roles
    settings = json.loads(json.dumps(shipped_settings))
    for role in ("scheduler", "worker"):
        del settings["distributed"]["comm"]["tls"][role]
    options = ClusterOptions(workers=1, threads=1)
    with with_settings(settings), cluster(options=options) as client:
        addresses = [client.scheduler.address, *client.nthreads()]
        assert client.submit(pow, 2, 5).result() == 32
    assert all(address.startswith("tls://127.0.0.1:") for address in addresses)
    with (
        dask.config.set({"distributed.comm.require-encryption": True}),
        pytest.raises(
            InputError, match=r"workers on this machine, where .* got no certificate of an authority"
        ),
        cluster(options=options),
    ):
        pass


@pytest.fixture
def hosts() -> Iterator[list[tuple[tuple[str, ...], str]]]:
    """Four hosts as network namespaces, joined by a bridge in a fifth: what their commands begin with, and their IPs."""
    names = [f"dslda{os.getpid()}{letter}" for letter in "xabcd"]
    hub, *others = names
    made: list[str] = []

    def ip(*arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True)

    try:
        if shutil.which("ip") is None:
            pytest.skip("the program ip is not there: no network namespaces")
        try:
            for name in names:
                ip("netns", "add", name)
                made.append(name)
                ip("-n", name, "link", "set", "lo", "up")
            ip("-n", hub, "link", "add", "bridge", "type", "bridge")
            ip("-n", hub, "link", "set", "bridge", "up")
            for number, name in enumerate(others):
                cable = (
                    "link",
                    "add",
                    f"port{number}",
                    "type",
                    "veth",
                    "peer",
                    "name",
                    "eth0",
                    "netns",
                    name,
                )
                ip("-n", hub, *cable)
                ip("-n", hub, "link", "set", f"port{number}", "master", "bridge", "up")
                ip("-n", name, "address", "add", f"10.77.0.{number + 1}/24", "dev", "eth0")
                ip("-n", name, "link", "set", "eth0", "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces are not allowed here: {error.stderr.decode().strip()}")
        yield [(("ip", "netns", "exec", name), f"10.77.0.{number + 1}") for number, name in enumerate(others)]
    finally:
        for name in made:
            ip("netns", "delete", name)


@pytest.mark.soak
def test_a_cluster_of_several_hosts_has_the_bits_of_one_process(
    hosts: list[tuple[tuple[str, ...], str]],
    cluster_of_processes: Callable[..., Any],
    corpus: Path,
    shipped_settings: dict[str, Any],
    in_process: Any,
    program: Callable[..., subprocess.CompletedProcess[str]],
    assert_same: Callable[[Any, Any], None],
    tmp_path: Path,
) -> None:
    *servers, (client, _) = hosts
    out = tmp_path / "hosts.model"
    with cluster_of_processes(tmp_path, shipped_settings, servers, nanny=False) as address:
        assert address.startswith("tls://10.77.0.1:")
        done = program(
            *("train", corpus, *TRAIN, "--out", out, "--scheduler", address),
            folder=tmp_path,
            settings=shipped_settings,
            prefix=client,
        )
    assert done.returncode == 0, done.stderr
    assert "in 2 workers" in done.stderr
    assert_same(load_model(out), in_process)
