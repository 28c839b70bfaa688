"""The E-step over a block of documents, compiled."""

from dslda.variational.kernels.block import e_step_block
from dslda.variational.kernels.layout import PER_DOCUMENT, SCALARS

__all__ = ["PER_DOCUMENT", "SCALARS", "e_step_block"]
