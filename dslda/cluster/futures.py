"""Waiting for a client's futures, and releasing them."""

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
    """Let the cluster forget results now, not when the garbage collector finds their futures."""
    for future in futures:
        if future is not None:
            future.release()


def spread(client: Client, future: Future[Any], *, timeout: float) -> None:
    """Make every worker hold a value, so that none waits for work: tasks go first to the workers that hold their inputs.

    A worker fetches the inputs of the tasks that it runs. So one small task on each worker spreads a value as fast as a
    broadcast, which has no exit when a worker leaves (distributed#5704). Since this is only for speed, a worker that is
    busy or hangs holds up the others for at most `timeout` seconds.
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
    """Call a method of a client that talks to workers, of which one that hangs never answers.

    Raises
    ------
    TimeoutError
        It takes longer than `seconds`.
    """
    # called in the client's event loop, a method gives a coroutine
    return client.sync(lambda: method(*arguments, **keywords), callback_timeout=seconds)


def _touch(value: object) -> None:
    pass
