"""Preparation of every worker process before its first task."""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import WorkerPlugin

from dslda.cluster.client import within
from dslda.cluster.health import WorkerWatch, restart
from dslda.cluster.scheduler_watch import no_scheduler, why_closed
from dslda.exceptions import EngineError

if TYPE_CHECKING:
    from distributed import Client, Worker
    from threadpoolctl import threadpool_limits

    from dslda.families.base import Family
    from dslda.settings import Objective

__all__ = ["DsldaPlugin", "register", "versions"]

logger = logging.getLogger("dslda.engine")

PLUGIN_NAME = "dslda"
ATTEMPTS = 3
PREPARATION_SECONDS = 300.0
"""Limit for one attempt to prepare all workers. Compiling the kernels takes a free core a minute."""

MOST_NAMED = 10
"""Most workers that a message names for each difference."""

ZARR_CONCURRENCY = 4
"""Reads in flight for each partition that loads. zarr's default, 10 for each thread of a worker, opens hundreds of
connections to an object store."""


def versions() -> dict[str, str]:
    """Versions that all processes must share to compute the same bits and to understand each other."""
    import dask
    import distributed
    import numba
    import numpy
    import scipy

    from dslda.versions import __version__

    return {
        # the third number of Python's version changes neither pickles nor arithmetic
        "python": ".".join(platform.python_version_tuple()[:2]),
        "dslda": __version__,
        **{module.__name__: module.__version__ for module in (numpy, numba, scipy, dask, distributed)},
    }


class DsldaPlugin(WorkerPlugin):
    """Prepares a worker process.

    It compiles the kernels, or loads them from numba's cache beside the package or in NUMBA_CACHE_DIR. If machines share
    the file system of the package, set NUMBA_CACHE_DIR to a local folder in the workers' environment: processes that write
    one cache at once can crash each other (numba#4807, numba#10128).

    It keeps BLAS to one thread, since bits depend on it and workers with several threads would oversubscribe the machine,
    and limits zarr's concurrent reads. It stays registered after a fit, for workers that join later.

    Parameters
    ----------
    expected : mapping of str to str
        The client's :func:`versions`.
    family : Family, optional
        The family whose kernel is compiled; by default the kernel that most families need.
    objective : {"joint", "conditional"}, default "joint"
        That of the fit: conditional training has kernels of its own.
    labelled : bool, default True
        Compile the kernel of training, not that of predictions.
    """

    name = PLUGIN_NAME
    idempotent = False

    def __init__(
        self,
        expected: Mapping[str, str],
        family: Family | None = None,
        *,
        objective: Objective = "joint",
        labelled: bool = True,
    ) -> None:
        self.expected = dict(expected)
        self.family = family
        self.objective = objective
        self.labelled = labelled
        #: the error of a worker that must not be used
        self.problem: EngineError | None = EngineError("the worker is not prepared yet")
        self._blas: threadpool_limits | None = None

    async def setup(self, worker: Worker) -> None:
        try:
            if differences := _differences(versions(), self.expected):
                # `register` has asked the workers that were present when the fit began
                raise EngineError(
                    f"worker {worker.address}, which joined later, must run the same versions as the client, got "
                    f"{differences}",
                    remedy="install the same environment on both",
                )
            # compiling takes seconds: the worker must go on sending heartbeats (distributed#6324)
            await asyncio.to_thread(self._prepare)
        except Exception as error:  # a worker that joins later keeps running if its plugin fails
            reason = f"could not be prepared: {type(error).__name__}: {error}"
            unprepared = EngineError(reason, place=f"worker {worker.address}")
            self.problem = error if isinstance(error, EngineError) else unprepared
            raise
        self.problem = None

    def _prepare(self) -> None:
        import zarr
        from threadpoolctl import threadpool_limits

        from dslda.families.gaussian import Gaussian
        from dslda.variational.compiling import prepare_kernels

        prepare_kernels(self.family or Gaussian(), self.objective, labelled=self.labelled)

        zarr.config.set({"async.concurrency": ZARR_CONCURRENCY, "threading.max_workers": ZARR_CONCURRENCY})
        self._blas = threadpool_limits(limits=1, user_api="blas")

    def teardown(self, worker: Worker) -> None:
        if self._blas is not None:
            self._blas.restore_original_limits()


def register(
    client: Client,
    family: Family | None = None,
    *,
    objective: Objective = "joint",
    labelled: bool = True,
) -> None:
    """Prepare all workers of a cluster, including those that join later; parameters are those of :class:`DsldaPlugin`.

    Raises
    ------
    EngineError
        Workers lack dslda or run other versions than the client, workers die one after the other, or the scheduler dies.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _compare_versions(client)
            plugin = DsldaPlugin(versions(), family, objective=objective, labelled=labelled)
            within(client, PREPARATION_SECONDS, client.register_plugin, plugin)
            return
        # the connection to a dying worker broke; its replacement is prepared when it joins
        except OSError as error:
            lost = client.status != "running"
            if attempt == ATTEMPTS and lost:
                raise no_scheduler(client) from error
            if attempt == ATTEMPTS:
                raise EngineError(
                    f"all workers must stay while they are prepared, got {error} at each of {ATTEMPTS} attempts",
                    remedy="look at the workers' logs, most often they run out of memory",
                ) from error
            reason = why_closed(client) if lost else "a worker was lost while it was prepared, or hangs"
            logger.warning("%s: once more", reason)
            # no answer comes while a worker hangs
            if isinstance(error, TimeoutError) and (hung := WorkerWatch(client).look().silent):
                restart(client, hung)
            time.sleep(1)


def _compare_versions(client: Client) -> None:
    """Ask all workers for their versions before they unpickle more than the name of a function."""
    answers: dict[str, Any] = within(client, PREPARATION_SECONDS, client.run, versions, on_error="return")
    wanted = versions()
    deviating: dict[str, list[str]] = {}
    for worker, answer in sorted(answers.items()):
        if isinstance(answer, OSError):  # the worker is gone
            continue
        differences = str(answer) if isinstance(answer, Exception) else _differences(answer, wanted)
        if differences:
            deviating.setdefault(differences, []).append(worker)
    if deviating:
        listed = "; ".join(f"{text} on {_listed(workers)}" for text, workers in deviating.items())
        raise EngineError(
            f"all workers must have dslda and the same versions as the client, got {listed}",
            remedy="install the client's environment on them",
        )


def _differences(installed: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    return ", ".join(
        f"{name} {installed.get(name, 'missing')} (client: {version})"
        for name, version in wanted.items()
        if installed.get(name) != version
    )


def _listed(workers: Sequence[str]) -> str:
    more = [f"{len(workers) - MOST_NAMED} more"] if len(workers) > MOST_NAMED else []
    return ", ".join([*workers[:MOST_NAMED], *more])
