"""The E-step over a block of documents, compiled."""

from dslda.variational.kernels.block import SCALARS, e_step_block

__all__ = ["SCALARS", "e_step_block"]
