"""Documents to try things on: real reviews that ship with the package, and corpora drawn from the model."""

from dslda.datasets.clothing import CLOTHING_FILE, ClothingReviews, load_clothing
from dslda.datasets.simulate import SimulatedCorpus, simulate_corpus

__all__ = ["CLOTHING_FILE", "ClothingReviews", "SimulatedCorpus", "load_clothing", "simulate_corpus"]
