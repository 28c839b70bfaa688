"""The E-step over a block of documents, compiled."""

from dslda.variational.kernels.block_e_step import block_kernel
from dslda.variational.kernels.layout import PER_DOCUMENT, SCALARS

__all__ = ["PER_DOCUMENT", "SCALARS", "block_kernel"]
