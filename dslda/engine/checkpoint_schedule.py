"""When a fit writes checkpoints, and what it does when one cannot be written. The writing itself is the caller's."""

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
        Puts a checkpoint in the place of the one before, whole or not at all. Whatever it raises does not end the fit.
    where : str
        Its place, for messages.
    every : int, optional
        Iterations between two; by default as many as :func:`~dslda.engine.em.checkpoint_is_due` says.
    n_written : int, default 0
        Complete iterations of the checkpoint that is there already.
    """

    def __init__(
        self, write: Callable[[Position], None], where: str, *, every: int | None = None, n_written: int = 0
    ) -> None:
        self._write = write
        self._where = where
        self._every = every
        self._n_written = self._n_tried = n_written
        self._failed = False
        self._cost = 0.0
        self._ended = time.monotonic()

    def after_iteration(self, position: Position) -> None:
        """Write one if it is due."""
        if checkpoint_is_due(
            every=self._every,
            iterations=len(position.trace) - self._n_tried,
            seconds=time.monotonic() - self._ended,
            cost=self._cost,
        ):
            self._try(position)

    def at_end(self, position: Position, *, n_complete: int) -> None:
        """Write the last one, if any iteration is complete that the one before does not have.

        Parameters
        ----------
        position : Position
        n_complete : int
            Iterations of the model that the fit ends with: one more than `position` has where no M-step came after the last.
        """
        if len(position.trace) > self._n_written:
            self._failed = False  # said once more: now it is for good
            self._try(position)
        if self._n_written:
            again = (
                f"; going on begins with iteration {self._n_written + 1} again"
                if n_complete > self._n_written
                else ""
            )
            logger.info("%s%s", self._what_there_is(), again)

    def note(self, error: BaseException) -> None:
        """Tell with an error that ends the fit how to go on."""
        if self._n_written:
            error.add_note(Note(f"{self._what_there_is()}; train again with {{resume=True}} to go on"))

    def _what_there_is(self) -> str:
        return f"the checkpoint {self._where} holds {number_of(self._n_written, 'iteration')}"

    def _try(self, position: Position) -> None:
        began = time.monotonic()
        self._n_tried = len(position.trace)
        try:
            self._write(position)
        # no file system, and no library beneath one, may cost a fit of days
        except Exception as error:
            if not self._failed:
                logger.warning("no checkpoint after iteration %d: %s", len(position.trace), error)
            self._failed = True
        else:
            self._n_written = len(position.trace)
            if self._failed:
                logger.info("checkpoints can be written again: %s", self._what_there_is())
            self._failed = False
        self._ended = time.monotonic()
        self._cost = self._ended - began
