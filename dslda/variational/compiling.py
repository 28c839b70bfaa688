"""Kernels of families: compiling one takes a minute or two, once after installation, and logs a line."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

from dslda.families.base import Family

__all__ = ["kernel_of", "telling_of_compilation"]

logger = logging.getLogger("dslda.engine")

PATIENCE = 2.0
"""Seconds that compilation may take without a line in the log."""

Kind = Literal["classes", "product", "delta"]

# if two threads need a kernel first, one compiles it and the other waits
_lock = threading.Lock()


def kernel_of(family: Family, *, labelled: bool = True) -> Callable[..., None]:
    """The kernel of a family, compiled, or loaded from numba's cache, by the first call.

    Parameters
    ----------
    family : Family
    labelled : bool, default True
        Documents have responses, as in training. Otherwise no posterior depends on the form of F, and E[exp(omega)] is
        exact for every family with a log link.

    Returns
    -------
    callable
        ``class_block`` for a response of classes, else an ``e_step_block``, which takes the family's functions too.
    """
    kind: Kind = "delta"
    if family.link == "softmax":
        kind = "classes"
    elif family.is_exact_product or (not labelled and family.link == "log"):
        kind = "product"
    with _lock:
        return _kernel(kind)


@cache
def _kernel(kind: Kind) -> Callable[..., None]:
    with telling_of_compilation():
        if kind == "classes":
            # imported here: importing compiles it, and few models have classes
            from dslda.variational.kernels.class_e_step import class_block

            kernel: Callable[..., None] = class_block
            return kernel
        from dslda.variational.kernels.block_e_step import block_kernel

        return block_kernel(kind == "product")


@contextmanager
def telling_of_compilation(patience: float = PATIENCE) -> Iterator[None]:
    """Log one line if numba compiles for longer than `patience` seconds; no line if it loads its cache."""
    from numba.core import event

    timer = threading.Timer(patience, _tell)
    timer.daemon = True

    class Compilation(event.Listener):
        def on_start(self, event: Any) -> None:
            if timer.ident is None:
                timer.start()

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Compilation()):
        try:
            yield
        finally:
            timer.cancel()


def _tell() -> None:
    # a warning where INFO is hidden, as in a notebook: a silent minute looks like a hang
    level = logging.INFO if logger.isEnabledFor(logging.INFO) else logging.WARNING
    logger.log(
        level,
        "compiling the kernel for this kind of response (there are three), once after installation: a minute or two",
    )
