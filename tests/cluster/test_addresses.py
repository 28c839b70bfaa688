"""Addresses that a client can connect to, and workers that die while they are prepared."""

from __future__ import annotations

import contextlib
import http.server
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import dask.config
import pytest
from distributed import Client

from dslda.cluster import opening as module
from dslda.cluster.opening import ClusterOptions, cluster
from dslda.engine.dask.plugin import register
from dslda.exceptions import EngineError, InputError


@contextlib.contextmanager
def listener(says: bytes | None) -> Iterator[str]:
    """The address of a socket that sends these bytes to whoever connects, or hangs up if they are None."""
    connections = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    if says is None:
                        connection.close()
                        continue
                    connections.append(connection)
                    connection.sendall(says)

        threading.Thread(target=serve, daemon=True).start()
        yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    for connection in connections:
        connection.close()


@contextlib.contextmanager
def web_server() -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"tcp://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        (lambda: listener(b"SSH-2.0-OpenSSH_9.2p1\r\n" * 20), "not Dask's"),
        (lambda: listener(None), "Connection|closed|no message from a scheduler"),
        (lambda: listener(b""), "no message from a scheduler within 2 seconds"),
        (web_server, "no message from a scheduler|not Dask's"),
    ],
    ids=["garbage", "hangs up", "silent", "web server"],
)
def test_what_is_no_scheduler_is_refused_soon(
    monkeypatch: pytest.MonkeyPatch, what: Callable[[], AbstractContextManager[str]], reason: str
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 2)
    with what() as address:  # noqa: SIM117 - the address must be there for the message
        with (
            pytest.raises(EngineError, match=f"scheduler at {address} must answer, got: .*({reason})"),
            cluster(options=ClusterOptions(scheduler=address)),
        ):
            pass
    assert all(not thread.name.startswith("IO loop") for thread in threading.enumerate())


def test_a_worker_is_not_taken_for_a_scheduler(in_process: Client) -> None:
    (address,) = in_process.nthreads()
    with (
        pytest.raises(EngineError, match="must be that of a scheduler, got that of a worker"),
        cluster(options=ClusterOptions(scheduler=address)),
    ):
        pass


@pytest.mark.parametrize("address", ["", "  "])
def test_an_empty_address_is_refused(address: str) -> None:
    with pytest.raises(InputError, match="scheduler must be an address"):
        ClusterOptions(scheduler=address)


@pytest.mark.slow
def test_a_worker_that_dies_while_it_is_prepared_is_replaced(
    processes: Callable[[int], AbstractContextManager[Client]],
) -> None:
    # LocalCluster gives up a worker that does not come back in 15 seconds, which a busy machine may take
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "5 minutes"}), processes(2) as client:
        pids = client.run(os.getpid)
        victim = next(iter(pids))
        os.kill(pids[victim], signal.SIGSTOP)  # so that it cannot be done before it dies
        killer = threading.Timer(2.0, os.kill, (pids[victim], signal.SIGKILL))
        killer.start()
        register(client)
        killer.join()
        deadline = time.monotonic() + 60
        while (pids[victim] in client.run(os.getpid).values()) or len(client.nthreads()) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert all(client.run(lambda dask_worker: "dslda" in dask_worker.plugins).values())
