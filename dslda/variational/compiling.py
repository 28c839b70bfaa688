"""Which kernel a family needs, and compiling it: each once after installation, which takes a minute or two and is told of."""

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
"""Seconds that pass without a word."""

Kind = Literal["classes", "product", "delta"]

# of two threads that come first, one compiles and the other waits
_lock = threading.Lock()


def kernel_of(family: Family, *, labelled: bool = True) -> Callable[..., None]:
    """The kernel of a family, compiled, or loaded from numba's cache, when it is first asked for.

    Parameters
    ----------
    family : Family
    labelled : bool, default True
        Documents have responses, as in training. Without, no posterior depends on the form of F, and E[exp(omega)] is exact
        for every family with a log link.

    Returns
    -------
    callable
        ``class_block`` for a response of classes, else an ``e_step_block``: their arguments differ.
    """
    with _lock:
        return _kernel(_kind(family, labelled=labelled))


def _kind(family: Family, *, labelled: bool) -> Kind:
    if family.link == "softmax":
        return "classes"
    product = family.is_exact_product or (not labelled and family.link == "log")
    return "product" if product else "delta"


@cache
def _kernel(kind: Kind) -> Callable[..., None]:
    with telling_of_compilation():
        if kind == "classes":
            # not with the others: a second kernel to compile, for those who have classes
            from dslda.variational.kernels.class_e_step import class_block

            kernel: Callable[..., None] = class_block
            return kernel
        from dslda.variational.kernels import block_kernel

        return block_kernel(kind == "product")


@contextmanager
def telling_of_compilation(patience: float = PATIENCE) -> Iterator[None]:
    """Log one line when numba compiles, and goes on for longer than `patience` seconds; none where it loads its cache."""
    from numba.core import event

    told = threading.Timer(patience, _tell)
    told.daemon = True

    class Compilation(event.Listener):
        def on_start(self, event: Any) -> None:
            if told.ident is None:
                told.start()

        def on_end(self, event: Any) -> None:
            pass

    with event.install_listener("numba:compile", Compilation()):
        try:
            yield
        finally:
            told.cancel()


def _tell() -> None:
    # a warning where information is not shown, as in a notebook: a minute without a word looks like a hang
    level = logging.INFO if logger.isEnabledFor(logging.INFO) else logging.WARNING
    logger.log(
        level,
        "compiling the kernel for this kind of response (there are three), once after installation: a minute or two",
    )
