"""Waiting for futures of a given client, and letting go of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["release", "wait_for", "within"]


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
