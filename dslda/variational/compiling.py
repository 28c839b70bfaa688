"""Kernels of families: compiling one takes a minute or two, once after installation, and logs a line."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

from dslda.families.base import Family
from dslda.settings import Objective

__all__ = ["kernel_of", "prepare_kernels", "telling_of_compilation"]

logger = logging.getLogger("dslda.engine")

PATIENCE = 2.0
"""Seconds that compilation may take without a line in the log."""

MESSAGE = "compiling the kernel for this kind of response (there are three), once after installation: a minute or two"
CONDITIONAL_MESSAGE = (
    "compiling the kernels of conditional training, once after installation: some ten seconds"
)

Kind = Literal["classes", "product", "delta"]

# if two threads need a kernel first, one compiles it and the other waits
_lock = threading.Lock()


def prepare_kernels(family: Family, objective: Objective, *, labelled: bool = True) -> None:
    """Compile the kernels of a fit or of predictions, or load them from numba's cache, before the first document."""
    if objective != "conditional":
        kernel_of(family, labelled=labelled)
        return
    with _lock, telling_of_compilation(message=CONDITIONAL_MESSAGE):
        # importing compiles them; one set serves every family
        import dslda.variational.kernels.family_values
        import dslda.variational.kernels.topic_moves
        import dslda.variational.kernels.word_derivative
        import dslda.variational.kernels.word_inference  # noqa: F401


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
def telling_of_compilation(patience: float = PATIENCE, message: str = MESSAGE) -> Iterator[None]:
    """Log one line if numba compiles for longer than `patience` seconds; no line if it loads its cache."""
    from numba.core import event

    timer = threading.Timer(patience, _tell, [message])
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


def _tell(message: str) -> None:
    # a warning where INFO is hidden, as in a notebook: a silent minute looks like a hang
    level = logging.INFO if logger.isEnabledFor(logging.INFO) else logging.WARNING
    logger.log(level, message)
