"""The schedule of a fit's checkpoints, and what happens when one cannot be written. The caller does the writing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from dslda.engine.em import Position, checkpoint_is_due
from dslda.exceptions import Note
from dslda.wording import number_of

__all__ = ["Checkpoints"]

logger = logging.getLogger("dslda.engine")


class Checkpoints:
    """The checkpoints of one fit.

    Parameters
    ----------
    write : callable
        Replaces the previous checkpoint, whole or not at all. No error that it raises ends the fit.
    where : str
        Place of the checkpoint, for messages.
    every : int, optional
        Iterations between two; by default as many as :func:`~dslda.engine.em.checkpoint_is_due` says.
    n_written : int, default 0
        Complete iterations of an existing checkpoint.
    """

    def __init__(
        self, write: Callable[[Position], None], where: str, *, every: int | None = None, n_written: int = 0
    ) -> None:
        self._write = write
        self._where = where
        self._every = every
        self._n_written = self._n_tried = n_written
        self._position: Position | None = None
        self._failed = False
        self._cost = 0.0
        self._ended = time.monotonic()

    def after_m_step(self, position: Position) -> None:
        """Remember the position, and write it if a checkpoint is due."""
        self._position = position
        if checkpoint_is_due(
            every=self._every,
            iterations=len(position.trace) - self._n_tried,
            seconds=time.monotonic() - self._ended,
            cost=self._cost,
        ):
            self._try(position)

    def at_end(self, *, n_complete: int) -> None:
        """Write the last position, unless the checkpoint holds it already.

        Parameters
        ----------
        n_complete : int
            Iterations of the model that the fit ends with: one more than the last position has, where no M-step followed.
        """
        if self._position is not None and len(self._position.trace) > self._n_written:
            self._failed = False  # a failure is logged once more, since it is final now
            self._try(self._position)
        if self._n_written:
            again = (
                f"; going on begins with iteration {self._n_written + 1} again"
                if n_complete > self._n_written
                else ""
            )
            logger.info("%s%s", self._state(), again)

    def note(self, error: BaseException) -> None:
        """Add to an error that ends the fit how to go on."""
        if self._n_written:
            error.add_note(Note(f"{self._state()}; train again with {{resume=True}} to go on"))

    def _state(self) -> str:
        return f"the checkpoint {self._where} holds {number_of(self._n_written, 'iteration')}"

    def _try(self, position: Position) -> None:
        began = time.monotonic()
        self._n_tried = len(position.trace)
        try:
            self._write(position)
        # a failing file system, or library beneath it, must not cost a fit of days
        except Exception as error:
            if not self._failed:
                logger.warning("no checkpoint after iteration %d: %s", len(position.trace), error)
            self._failed = True
        else:
            self._n_written = len(position.trace)
            if self._failed:
                logger.info("checkpoints can be written again: %s", self._state())
            self._failed = False
        self._ended = time.monotonic()
        self._cost = self._ended - began
