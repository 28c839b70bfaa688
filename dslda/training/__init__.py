"""Training: from documents in any form to a fitted :class:`~dslda.model.Model`.

Seen from outside it is one function; how a fit goes is told in ``fitting.py``.
"""

from dslda.training.entry import train

__all__ = ["train"]
