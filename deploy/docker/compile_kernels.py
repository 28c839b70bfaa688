"""Compile all kernels of dslda into numba's cache, so that no container of the image has to."""

from dslda.families.categorical import Categorical
from dslda.families.gaussian import Gaussian
from dslda.families.poisson import Poisson
from dslda.variational.compiling import kernel_of

# one family for each kernel: numbers, counts and amounts, classes
for family in (Gaussian(), Poisson(), Categorical(2)):
    kernel_of(family)
