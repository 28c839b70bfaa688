"""Waiting for tasks for as long as any gets done, or workers are at work on them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from dslda.cluster.hung_workers import Key, WaitingTasks, WorkerWatch, restart
from dslda.cluster.scheduler_watch import told, why_closed
from dslda.config import EngineSettings
from dslda.exceptions import EngineError

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["PatientWait"]

logger = logging.getLogger("dslda.engine")

POLL_SECONDS = 1.0


class PatientWait:
    """Waits for tasks that can be run again by themselves, and has workers that hang restarted meanwhile.

    What a worker had is run elsewhere by Dask once its nanny has killed it, or the scheduler has forgotten it.

    Parameters
    ----------
    client : distributed.Client
    has : callable
        Whether a task, by its key, is one that is waited for.
    named : callable
        Gives the work of such tasks in words; see :meth:`~dslda.cluster.hung_workers.WaitingTasks.report`.
    give_up : callable
        Cancels these tasks.
    """

    def __init__(
        self,
        client: Client,
        *,
        has: Callable[[Key], bool],
        named: Callable[[Collection[Key]], Sequence[str]],
        give_up: Callable[[], None],
    ) -> None:
        settings = EngineSettings.load()
        self._client = client
        self._has = has
        self._named = named
        self._give_up = give_up
        self._patience = settings.stall_timeout
        self._budget = settings.iteration_budget
        self._workers = WorkerWatch(client, self._patience)
        #: how workers were when some of them hung last, to be told with what came of it
        self.last_stall = ""

    def until(self, ready: Callable[[float], bool], what: str) -> None:
        """Wait until something is ready.

        Parameters
        ----------
        ready : callable
            Given seconds, waits no longer than this, and says whether it is ready.
        what : str
            What it is of, in words.

        Raises
        ------
        EngineError
            Workers hang again and again, or there are none, for longer than the setting
            ``dslda.engine.iteration-budget``; or the client has been closed.
        """
        with told(self._client):
            self._until(ready, what)

    def _until(self, ready: Callable[[float], bool], what: str) -> None:
        progressed = looked = time.monotonic()
        trouble: float | None = None
        before: frozenset[Key] = frozenset()
        while not ready(POLL_SECONDS):
            if self._client.status in ("closing", "closed"):
                raise ConnectionError(why_closed(self._client))
            try:
                workers = self._client.nthreads()
                self._workers.note(workers)
                if time.monotonic() - looked < self._patience:
                    continue
                waiting = WaitingTasks.find(self._client, self._has)
                diagnosis = self._workers.look(waiting.keys)
                report = waiting.report(diagnosis, waiting.running(self._client, diagnosis), self._named)
                busy = any(self._client.processing().values())
            except OSError:  # what is waited for, or the client itself, will tell what came of that
                continue
            if ready(0.0):
                return
            looked = time.monotonic()
            now = frozenset(key for keys in waiting.keys.values() for key in keys)
            # what is waited for may rest on many tasks, which get done one after the other
            if not before <= now:
                progressed = looked
            stall = f"no task was done for {looked - progressed:.0f} seconds: "
            stall += report if workers else "the cluster has no worker"
            if not diagnosis.hung and busy:  # for us or for others
                before, trouble = now, None
                logger.warning("%s: %s; waiting on", what, stall)
                continue
            before = frozenset()  # what is taken from a worker is not done
            trouble = looked if trouble is None else trouble
            given_up = looked - trouble >= self._budget
            if given_up:
                self._give_up()  # or they would hang the next worker
            if diagnosis.hung:
                # when given up too: for whoever uses the cluster next
                with suppress(OSError):  # no answer in time: the next look shows whether it was done
                    restart(self._client, diagnosis.hung)
            if given_up:
                raise EngineError(
                    f"{what} could not be completed: {stall}{self.last_stall}; see the workers' logs, and the settings "
                    "dslda.engine in Dask's configuration for how long to go on"
                )
            logger.warning("%s: %s; trying again", what, stall)
            if diagnosis.hung:
                self.last_stall = f"; before, {report}"
