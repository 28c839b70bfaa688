"""The E-step over a block of documents, compiled."""

from dslda.variational.kernels.block import EXTRAS, SCALARS, e_step_block

__all__ = ["EXTRAS", "SCALARS", "e_step_block"]
