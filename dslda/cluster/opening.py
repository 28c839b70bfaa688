"""Opening a cluster: the user's own, the active one, one at an address, or a temporary one on this machine."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from dslda.cluster.client import ClientLater, within
from dslda.cluster.encryption import for_own_workers, for_scheduler
from dslda.cluster.scheduler_watch import watched
from dslda.cluster.scratch_folders import scratch_folder
from dslda.config import ClusterSettings
from dslda.exceptions import EngineError, InputError
from dslda.wording import number_of

if TYPE_CHECKING:
    from distributed import Client, Security

__all__ = ["ClusterOptions", "active_workers", "cluster", "default_workers", "worker_per_core"]

logger = logging.getLogger("dslda.engine")

CONFIG = {
    # a peer on this machine that does not answer at once is dead
    "distributed.comm.timeouts.connect": "10s",
    # a nanny starts its worker again, which takes longer than the usual 15 seconds on a busy machine
    "distributed.deploy.lost-worker-timeout": "10 minutes",
    # Every iteration reads all partitions, so that spilling the least recently used would thrash: spill late, and stop
    # before the machine does.
    "distributed.worker.memory.target": 0.75,
    "distributed.worker.memory.spill": 0.85,
    "distributed.worker.memory.pause": 0.90,
    "distributed.worker.memory.terminate": 0.95,
    # it samples every thread a hundred times a second for a dashboard that does not run
    "distributed.worker.profile.enabled": False,
    # By default every process wakes up 50 times a second to time its event loop, and 10 times to look at its memory:
    # an idle cluster takes 5% of a core.
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "2s",
    "distributed.worker.memory.monitor-interval": "500ms",
    # By default every process keeps its last thousand messages, tasks and transitions for developers of Dask: memory grew
    # by 0.2 MiB in every iteration until these were full.
    "distributed.admin.low-level-log-length": 100,
}

# a server for metrics starts all the same; on its usual port it warns if there is another scheduler
NO_DASHBOARD = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}

MOST_PROCESSES = 1024
MOST_PATHS = 20
"""Paths of inputs that the workers of the active client are asked for."""

LEAST_MEMORY = 400 * 2**20
CONNECT_SECONDS = 8
ANSWER_SECONDS = 10
"""Time for a scheduler to identify itself. The client's own limit, 30 seconds, covers only the connection; it then waits for
ever for the first message."""

CLOSE_SECONDS = 10
"""Time for the last messages to a scheduler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The choice of a cluster.

    Attributes
    ----------
    scheduler : str or None
        Address of a running scheduler, such as ``tcp://host:8786``; None starts workers on this machine.
    tls_ca_file, tls_cert, tls_key : str or None
        Files for a ``tls://`` scheduler, by default those of Dask's configuration.
    workers : int or None
        Worker processes to start; by default one for every 8 cores.
    threads : int or None
        Threads of each process; by default the processes share all cores.
    memory_limit : str, int or None
        Memory of each process, such as "4 GiB", or in bytes; by default its share of the machine's.

    Raises
    ------
    InputError
        An option is invalid, or options for both kinds of cluster are present.
    """

    scheduler: str | None = None
    tls_ca_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    workers: int | None = None
    threads: int | None = None
    memory_limit: str | int | None = None

    def __post_init__(self) -> None:
        for name in ("workers", "threads"):
            value = getattr(self, name)
            if value is not None and not 1 <= value <= MOST_PROCESSES:
                raise InputError(f"must be from 1 to {MOST_PROCESSES}, got {value}", parameter=name)
        self._check_memory_limit()
        local = [n for n in ("workers", "threads", "memory_limit") if getattr(self, n) is not None]
        if self.scheduler is not None and not self.scheduler.strip():
            raise InputError(
                f"must be an address such as tcp://host:8786, got {self.scheduler!r}",
                parameter="scheduler",
                remedy="leave it out to start workers on this machine",
            )
        if self.scheduler is not None and local:
            raise InputError(
                f"must be left out with a scheduler, got one at {self.scheduler}: they are for workers on this machine",
                parameter=local,
            )
        if self.scheduler is None and (self.tls_ca_file or self.tls_cert or self.tls_key):
            raise InputError(
                "files for TLS are for a scheduler that is running, got none",
                remedy="give its address with {scheduler=}",
            )

    def _check_memory_limit(self) -> None:
        from dask.utils import parse_bytes

        if self.memory_limit is None:
            return
        try:
            size = parse_bytes(self.memory_limit)
        except (ValueError, TypeError):
            raise InputError(
                f"must be a size such as 4GB, got {self.memory_limit!r}", parameter="memory_limit"
            ) from None
        if size < LEAST_MEMORY:
            raise InputError(
                f"must be at least {LEAST_MEMORY // 2**20} MiB, which a worker takes before it works, got "
                f"{self.memory_limit!r}",
                parameter="memory_limit",
            )


@contextmanager
def cluster(
    client: Client | ClientLater | None = None, *, options: ClusterOptions | None = None
) -> Iterator[Client]:
    """A client, closed at the end together with everything started for it.

    Parameters
    ----------
    client : distributed.Client or ClientLater, optional
        The user's own, which stays open, or one to open now and close at the end.
    options : ClusterOptions, optional
        The cluster to open without a client; by default workers on this machine that use all of it.

    Raises
    ------
    EngineError
        The scheduler does not answer, now or later, or workers do not start.
    InputError
        Certificates that the address or Dask's configuration require are missing or unusable.
    """
    if isinstance(client, ClientLater):
        with client.open() as opened_now:
            yield opened_now
        return
    if client is not None:
        with _apart_from_tasks(), watched(client):
            yield client
        return
    options = options or ClusterOptions()
    opened = _local(options) if options.scheduler is None else _remote(options)
    # current, but not the default: the user's own `dask.compute` elsewhere must not come to us
    with opened as ours, ours.as_current():
        yield ours


def default_workers(
    start: Callable[[], AbstractContextManager[Client]], paths: Sequence[str]
) -> ClientLater | None:
    """The workers for work that is worth some: those of the active client, or else new ones.

    Inside a task of Dask, and in a thread that it may have started, it is None, this process: the cluster has other tasks for
    the other cores.

    Parameters
    ----------
    start : callable
        Starts new workers, :func:`cluster` or :func:`worker_per_core`.
    paths : sequence of str
        The inputs, which all workers must be able to open.
    """
    return None if _is_held_by_task() else active_workers(paths) or ClientLater(start, here=True)


def active_workers(paths: Sequence[str] = ()) -> ClientLater | None:
    """The client that this process has as its default or current one, if its workers can do the work.

    Inside a task of Dask it is None, since that task may hold the only thread of the workers.
    """
    if "distributed" not in sys.modules or _is_held_by_task():
        return None
    from distributed import default_client

    try:
        client: Client = default_client()
    except ValueError:
        return None
    if client.asynchronous or client.status != "running":
        return None
    local = [path for path in paths[:MOST_PATHS] if os.path.isabs(path) and os.path.exists(path)]
    try:
        able = not local or all(within(client, ANSWER_SECONDS, client.run, _have, local).values())
    except Exception:  # workers that have no dslda, or do not answer
        able = False
    if able:
        return ClientLater(partial(_joined, client), here=False)
    logger.info(
        "not working on the active Dask client: its workers have no dslda, or cannot open %s", local[0]
    )
    return None


@contextmanager
def _joined(client: Client) -> Iterator[Client]:
    logger.info("working on the active Dask client, %r; client= chooses another", client)
    with cluster(client):
        yield client


def _have(paths: Sequence[str]) -> bool:
    return all(map(os.path.exists, paths))


def _in_task() -> bool:
    """True inside a task on a worker of Dask."""
    if "distributed" not in sys.modules:
        return False
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


def _is_held_by_task() -> bool:
    """True in a task of Dask, and while a worker in this process runs one.

    The task may wait for this thread, with the only thread of the workers.
    """
    if "distributed" not in sys.modules:
        return False
    from distributed import Status, Worker

    # one that was closed in the middle of a task holds nothing any more
    ended = (Status.closed, Status.failed)
    alive = [worker for worker in list(Worker._instances) if worker.status not in ended]
    return _in_task() or any(worker.state.executing for worker in alive)


def _apart_from_tasks() -> AbstractContextManager[Any]:
    """Give back the thread of a task that waits for other tasks, since its worker may have no other."""
    from distributed import worker_client

    return worker_client() if _in_task() else nullcontext()


def worker_per_core() -> AbstractContextManager[Client]:
    """A client of workers on this machine, one process for each core, since reading text holds Python's lock."""
    from dask.system import CPU_COUNT

    return cluster(options=ClusterOptions(workers=min(CPU_COUNT, MOST_PROCESSES), threads=1))


@contextmanager
def _remote(options: ClusterOptions) -> Iterator[Client]:
    from distributed import Client

    assert options.scheduler is not None
    security = for_scheduler(
        options.scheduler, ca_file=options.tls_ca_file, certificate=options.tls_cert, key=options.tls_key
    )
    try:
        with quiet_distributed():
            kind = _who_is(options.scheduler, security)
        if kind != "Scheduler":
            raise EngineError(
                f"the address {options.scheduler} must be that of a scheduler, got that of a {kind.lower()}",
                remedy="write the address that the scheduler prints when it starts",
            )
        client = Client(options.scheduler, security=security, set_as_default=False)
    except EngineError:
        raise
    # another kind of server can make Dask's protocol fail in any way: bytes taken for a length cause a MemoryError
    except Exception as error:
        raise EngineError(
            f"the scheduler at {options.scheduler} must answer, got: {_reason(error)}",
            remedy="check its address, the network and the files for TLS",
        ) from error
    with quiet_distributed():  # a client that loses its scheduler logs that, often with a traceback
        try:
            with watched(client):
                yield client
        finally:
            # the scheduler may hang unnoticed: do not wait for it
            with suppress(TimeoutError):
                client.close(timeout=CLOSE_SECONDS)


def _who_is(address: str, security: Security) -> str:
    """The kind of Dask server at an address, such as "Scheduler"; any error if there is none."""
    import asyncio

    import dask.config
    from dask.utils import parse_timedelta
    from distributed import rpc
    from distributed.utils import LoopRunner

    configured = parse_timedelta(dask.config.get("distributed.comm.timeouts.connect"))

    async def ask() -> str:
        arguments = security.get_connection_args("client")
        peer = rpc(address, timeout=min(configured, CONNECT_SECONDS), connection_args=arguments)
        try:
            identity = await asyncio.wait_for(peer.identity(), ANSWER_SECONDS)
        except TimeoutError:
            raise TimeoutError(f"no message from a scheduler within {ANSWER_SECONDS} seconds") from None
        finally:
            await peer.close_rpc()
        return identity["type"]  # type: ignore[no-any-return]

    # in a thread of its own: the caller may be in an event loop
    runner = LoopRunner()
    runner.start()
    try:
        return str(runner.run_sync(ask))
    finally:
        runner.stop()


def _reason(error: Exception) -> str:
    """Reason for a missing answer, without distributed's internals."""
    if not isinstance(error, (OSError, ValueError, RuntimeError)):
        return f"an answer that is not Dask's ({type(error).__name__})"
    cause = error.__cause__
    return f"{error} ({cause})" if isinstance(cause, OSError) and str(cause) else str(error)


@contextmanager
def _local(options: ClusterOptions) -> Iterator[Client]:
    import dask.config
    from dask.system import CPU_COUNT
    from distributed import Client
    from distributed.system import MEMORY_LIMIT
    from distributed.worker_memory import parse_memory_limit

    settings = ClusterSettings.load()
    encryption = for_own_workers()
    n_workers, threads = _shape(options, CPU_COUNT, settings.cores_per_process)
    memory = options.memory_limit if options.memory_limit is not None else MEMORY_LIMIT // n_workers
    # logged now: starting, with the imports, takes most of the time of a small fit
    logger.info(
        "starting %d worker process%s of %s on this machine",
        n_workers,
        "" if n_workers == 1 else "es",
        number_of(threads, "thread"),
    )
    if n_workers * threads > CPU_COUNT:
        logger.warning(
            "%s of %s: more threads than this machine has cores, %d, so that they take turns; start fewer",
            number_of(n_workers, "worker"),
            number_of(threads, "thread"),
            CPU_COUNT,
        )
    with scratch_folder() as scratch, dask.config.set({**CONFIG, **encryption}), quiet_distributed():
        worker = {
            "host": "127.0.0.1",
            "nthreads": threads,
            "memory_limit": parse_memory_limit(memory, threads, n_workers, logger=logger),
            "local_directory": scratch,
            "silence_logs": logging.CRITICAL,
            "dashboard": False,
        }
        with _start(n_workers, worker) as started, Client(started, set_as_default=False) as client:
            try:
                client.wait_for_workers(n_workers, timeout=settings.start_timeout)
            except TimeoutError as error:
                raise EngineError(
                    f"all workers, {n_workers}, must start on this machine within "
                    f"{settings.start_timeout:.0f} seconds, got {len(client.nthreads())}",
                    remedy="see the setting dslda.cluster.start-timeout",
                ) from error
            yield client


@contextmanager
def quiet_distributed() -> Iterator[None]:
    """Keep messages of `distributed` about a cluster of ours out of the user's log.

    `silence_logs` ends when a cluster closes, before messages about connections that were just cut. Those of a scheduler
    whose workers still send events when their client has gone, as after Ctrl-C, are critical ones.
    """
    names = [n for n in logging.root.manager.loggerDict if n.partition(".")[0] == "distributed"]
    levels = {name: logging.getLogger(name).level for name in names}
    for name, level in levels.items():
        if level != logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)


def _start(n_workers: int, worker: dict[str, Any]) -> Any:
    """A cluster on this machine, not started yet."""
    from distributed import LocalCluster, Scheduler, SpecCluster

    if sys.platform == "win32":  # distributed#7434: no subprocess workers there
        return LocalCluster(
            n_workers=n_workers,
            threads_per_worker=worker["nthreads"],
            memory_limit=worker["memory_limit"],
            local_directory=worker["local_directory"],
            silence_logs=logging.CRITICAL,
            dashboard_address=NO_DASHBOARD["dashboard_address"],
        )
    from dslda.cluster.worker_program import WorkerProgram

    return SpecCluster(
        scheduler={"cls": Scheduler, "options": {"host": "127.0.0.1", "port": 0, **NO_DASHBOARD}},
        workers={i: {"cls": WorkerProgram, "options": {"worker_kwargs": worker}} for i in range(n_workers)},
        silence_logs=logging.CRITICAL,
    )


def _shape(options: ClusterOptions, cores: int, cores_per_process: float) -> tuple[int, int]:
    """Number of worker processes, and of threads in each."""
    if options.workers is not None:
        n_workers = options.workers
    elif options.threads is not None:
        n_workers = max(cores // options.threads, 1)
    else:
        n_workers = math.ceil(cores / cores_per_process)
    return n_workers, options.threads or max(cores // n_workers, 1)
