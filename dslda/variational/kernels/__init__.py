"""The E-step over a block of documents, compiled."""

from dslda.variational.kernels.block import EXTRAS, PER_DOCUMENT, SCALARS, e_step_block

__all__ = ["EXTRAS", "PER_DOCUMENT", "SCALARS", "e_step_block"]
