"""Waiting for futures of a given client, and letting go of them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["release", "spread", "wait_for", "within"]


def wait_for(client: Client, futures: Sequence[Future[Any]], *, timeout: float) -> None:
    """Wait until all are done, well or badly.

    Raises
    ------
    TimeoutError
        They take longer than `timeout` seconds.
    CancelledError
        One was cancelled, or lost.
    """
    from distributed import wait

    # `wait` asks the current client, which need not be ours
    with client.as_current():
        wait(futures, timeout=timeout)


def release(futures: Sequence[Future[Any] | None]) -> None:
    """Let the cluster forget results now, not when the garbage collector comes to their futures."""
    for future in futures:
        if future is not None:
            future.release()


def spread(client: Client, future: Future[Any], *, timeout: float) -> None:
    """Have every worker hold a value, so that none waits for work: tasks that need it go first to those that have it.

    A worker that runs a task which needs a value fetches it: one touch on each spreads it as fast as a broadcast, which
    has no exit when a worker leaves (distributed#5704). This is only for speed: a worker whose threads are busy, or that
    hangs, need not hold up the others for longer than `timeout` seconds.
    """
    workers = list(client.nthreads())
    if len(workers) < 2:
        return
    token = uuid.uuid4().hex
    touches = [
        # loosely pinned, so that a touch whose worker dies runs elsewhere
        client.submit(
            _touch,
            future,
            key=(f"dslda-touch-{token}", i),
            workers=[worker],
            allow_other_workers=True,
            priority=1000,
        )
        for i, worker in enumerate(workers)
    ]
    with suppress(TimeoutError):
        wait_for(client, touches, timeout=timeout)
    release(touches)


def within(
    client: Client, seconds: float, method: Callable[..., Any], *arguments: Any, **keywords: Any
) -> Any:
    """Call a method of a client that talks to workers: one that hangs answers neither yes nor no.

    Raises
    ------
    TimeoutError
        It takes longer than `seconds`.
    """
    # called in the client's event loop, a method gives a coroutine
    return client.sync(lambda: method(*arguments, **keywords), callback_timeout=seconds)


def _touch(value: object) -> None:
    pass
