"""What every worker process gets once, before it works for us."""

from __future__ import annotations

import asyncio
import logging
import platform
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from distributed.diagnostics.plugin import WorkerPlugin

from dslda.exceptions import EngineError

if TYPE_CHECKING:
    from distributed import Client, Worker
    from threadpoolctl import threadpool_limits

    from dslda.families.base import Family

__all__ = ["DsldaPlugin", "register", "versions"]

logger = logging.getLogger("dslda.engine")

PLUGIN_NAME = "dslda"
ATTEMPTS = 3
ZARR_CONCURRENCY = 4
"""Reads in flight for each partition that loads. zarr's own default, 10 for each of a worker's threads,
opens hundreds of connections to an object store."""


def versions() -> dict[str, str]:
    """What must be alike in all processes for a fit to give the same bits."""
    import numba
    import numpy

    from dslda._version import __version__

    # the third number of Python's version changes neither pickles nor arithmetic
    python = ".".join(platform.python_version_tuple()[:2])
    return {"python": python, "dslda": __version__, "numpy": numpy.__version__, "numba": numba.__version__}


class DsldaPlugin(WorkerPlugin):
    """Prepares a worker process.

    Compiles the kernels, or loads them from numba's cache: beside the package, or in NUMBA_CACHE_DIR. Where
    the package lies on a file system that several machines share, set that to a local directory in the
    workers' environment: processes that write one cache at once can crash each other (numba#4807,
    numba#10128).

    Keeps BLAS to one thread, since bits depend on it and workers with several threads would oversubscribe
    the machine, and limits zarr's concurrent reads. It stays registered after a fit, so that workers that
    join later are prepared too.

    Parameters
    ----------
    expected : mapping of str to str
        The client's :func:`versions`.
    family : Family, optional
        Whose kernel is compiled; by default the one that most families need.
    """

    name = PLUGIN_NAME
    idempotent = False

    def __init__(self, expected: Mapping[str, str], family: Family | None = None) -> None:
        self.expected = dict(expected)
        self.family = family
        #: why this worker must not be used; None when all is well
        self.problem: str | None = None
        self._blas: threadpool_limits | None = None

    async def setup(self, worker: Worker) -> None:
        here = versions()
        different = [
            f"{name} {here[name]} (client: {wanted})"
            for name, wanted in self.expected.items()
            if here[name] != wanted
        ]
        if different:
            self.problem = (
                f"worker {worker.address} must run the same versions as the client, got "
                f"{', '.join(different)}; install the same environment on both"
            )
            raise EngineError(self.problem)
        # compiling takes seconds: the worker must go on sending heartbeats (distributed#6324)
        await asyncio.to_thread(self._prepare)

    def _prepare(self) -> None:
        import zarr
        from threadpoolctl import threadpool_limits

        from dslda.families.gaussian import Gaussian
        from dslda.variational.compiling import kernel_of

        kernel_of(self.family or Gaussian())

        zarr.config.set({"async.concurrency": ZARR_CONCURRENCY, "threading.max_workers": ZARR_CONCURRENCY})
        self._blas = threadpool_limits(limits=1, user_api="blas")

    def teardown(self, worker: Worker) -> None:
        if self._blas is not None:
            self._blas.restore_original_limits()


def register(client: Client, family: Family | None = None) -> None:
    """Prepare all workers of a cluster for a family, those that join later too.

    Raises
    ------
    EngineError
        A worker lacks dslda or runs other versions than the client, or workers die one after the other.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            client.register_plugin(DsldaPlugin(versions(), family))
            return
        except ImportError as error:
            raise EngineError(
                f"workers must have dslda and what it needs installed, got {error}; install the client's "
                "environment on them"
            ) from error
        # of the connection to a worker that dies meanwhile; the one in its place is prepared when it joins
        except OSError as error:
            if attempt == ATTEMPTS:
                raise EngineError(
                    f"workers must stay while they are prepared, got {error} at each of {ATTEMPTS} attempts; look "
                    "at the workers' logs, most often they run out of memory"
                ) from error
            logger.warning("a worker was lost while it was prepared: once more")
            time.sleep(1)
