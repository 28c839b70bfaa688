"""Measures of topics by their most probable words: coherence, exclusivity, and the share of words that are distinct."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from dslda.corpus.block import borders, entries_of
from dslda.variational.parameters import FitSpec, Parameters
from dslda.variational.sums import ARRAY, NUMBER, Sums
from dslda.variational.topics import near_equal_topics
from dslda.wording import short_repr

__all__ = [
    "NO_TERM",
    "N_EXCLUSIVE",
    "N_TOP",
    "CoOccurrence",
    "TopicQuality",
    "alike_topics",
    "co_occurrence",
    "most_probable",
    "npmi",
    "top_terms",
    "topic_quality",
]

N_TOP = 10
"""Words of a topic whose coherence is measured."""
N_EXCLUSIVE = 8
"""Words of a topic of which the exclusivity is the mean, and which are compared with those of other topics."""
NO_TERM = -1
"""Stands for a word in the list of a topic that has fewer."""

_N_SETS = 1 << N_TOP
_BLOCK_NUMBERS = 1 << 18
# smaller logarithms of a share are those of rounded sums of weights: the pair is in every document
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class TopicQuality:
    """How well the topics of a model can be read; docs/model.md has the definitions.

    Attributes
    ----------
    npmi : ndarray of float64, shape (K,)
        Coherence: mean normalised pointwise mutual information of the pairs of a topic's 10 most probable words in the
        training documents, from -1 (no two are ever in one document) over 0 (independent) to 1 (always together). NaN for
        a topic of one word.
    exclusivity : ndarray of float64, shape (K,)
        Mean share of the topic in the probabilities that all topics give to its 8 most probable words: 1 / K where all
        topics are the same, 1 where no other topic has these words.
    distinct_share : float
        Number of different words among the 8 most probable of all topics, as a share of the words listed.
    """

    npmi: NDArray[np.float64]
    exclusivity: NDArray[np.float64]
    distinct_share: float

    __repr__ = short_repr

    @property
    def in_words(self) -> str:
        """The means over the topics."""
        measured = self.npmi[~np.isnan(self.npmi)]
        coherence = f"{measured.mean():.2f}" if len(measured) else "not known"
        return (
            f"coherence (NPMI) {coherence}, exclusivity {self.exclusivity.mean():.2f}, "
            f"{self.distinct_share:.0%} of the top words distinct"
        )


@dataclass(slots=True, eq=False)
class CoOccurrence(Sums):
    """In how many documents words of a topic occur together.

    Attributes
    ----------
    documents : ndarray of float64, shape (K, N_TOP, N_TOP)
        Sum of the weights of the documents that hold both words of a pair; on the diagonal, of those that hold the word.
    weight : float
        Sum of the weights of all documents.
    """

    documents: NDArray[np.float64] = field(metadata=ARRAY)
    weight: float = field(metadata=NUMBER)


def most_probable(weights: NDArray[np.float64], n: int) -> NDArray[np.int64]:
    """Positions of the `n` largest weights, the largest first, and equal ones in their order."""
    among = np.arange(len(weights))
    if n < len(weights):
        # sorting all of a large vocabulary takes ten times as long
        among = np.flatnonzero(weights >= np.partition(weights, -n)[-n])
    return among[np.argsort(-weights[among], kind="stable")[:n]]


def top_terms(topics: NDArray[np.float64]) -> NDArray[np.int32]:
    """The `N_TOP` most probable terms of each topic, shape (K, N_TOP), filled up with `NO_TERM`.

    `topics` have shape (V, K). Terms that a topic cannot have, such as unknown ones, are not among its words.
    """
    n_terms, n_topics = topics.shape
    top = np.full((n_topics, N_TOP), NO_TERM, dtype=np.int32)
    # some topics at a time, since a copy of all may take gigabytes
    step = max(_BLOCK_NUMBERS // max(n_terms, 1), 1)
    for start in range(0, n_topics, step):
        columns = np.ascontiguousarray(topics[:, start : start + step].T)
        for topic, weights in enumerate(columns, start):
            terms = most_probable(weights, N_TOP)
            terms = terms[weights[terms] > 0.0]
            top[topic, : len(terms)] = terms
    return top


def alike_topics(parameters: Parameters, prevalence: NDArray[np.float64] | None, spec: FitSpec) -> list[int]:
    """Numbers of the topics that are nearly the same as another one.

    In the joint model, those whose words have nearly the same probabilities, so that their coefficients cannot be told apart.
    A ridge does that in conditional training; but a reader sees copies where most of the first words are the same.
    """
    if spec.objective != "conditional":
        return near_equal_topics(parameters.topics, prevalence)
    top = top_terms(parameters.topics)
    n_topics = len(top)
    topics, places = np.nonzero(top != NO_TERM)
    holds = csr_array((np.ones(len(topics)), (topics, top[topics, places])))
    shared = (holds @ holds.T).toarray()
    np.fill_diagonal(shared, 0.0)
    copies: list[int] = np.flatnonzero((shared > N_TOP / 2).any(axis=1)).tolist() if n_topics > 1 else []
    return copies


def co_occurrence(
    indptr: NDArray[np.int64],
    terms: NDArray[np.int32],
    weight: NDArray[np.float64],
    *,
    top: NDArray[np.int32],
    n_terms: int,
) -> CoOccurrence:
    """Count the documents of a block; `weight` has shape (D,), and `top` is that of :func:`top_terms`.

    The work grows with the entries of the block, and with the number of topics whose words a document has.
    """
    n_documents, n_topics = len(indptr) - 1, len(top)
    # Where each term stands in the lists: its topics and its places there.
    topics, places = np.nonzero(top != NO_TERM)
    listed = top[topics, places]
    order = np.argsort(listed, kind="stable")
    topics, places = topics[order], places[order]
    uses = np.bincount(listed, minlength=n_terms)
    first_use = borders(uses)
    # The words of a topic that a document holds are a set, written as a number with a bit for each place.
    of_sets = np.zeros((n_topics, _N_SETS))
    step = max(_BLOCK_NUMBERS // n_topics, 1)
    for start in range(0, n_documents, step):
        stop = min(start + step, n_documents)
        own = terms[indptr[start] : indptr[stop]]
        document = np.repeat(np.arange(stop - start), np.diff(indptr[start : stop + 1]))
        _, use = entries_of(first_use, own)
        sets = np.bincount(
            np.repeat(document, uses[own]) * n_topics + topics[use],
            weights=1 << places[use],
            minlength=(stop - start) * n_topics,
        ).astype(np.int64)
        (some,) = np.nonzero(sets)
        of_sets += np.bincount(
            some % n_topics * _N_SETS + sets[some],
            weights=weight[start + some // n_topics],
            minlength=of_sets.size,
        ).reshape(of_sets.shape)
    # Add to each set those that hold one more place, place after place: then it has all sets that include it.
    for place in range(N_TOP):
        halves = of_sets.reshape(n_topics, -1, 2, 1 << place)
        halves[:, :, 0] += halves[:, :, 1]
    bits = 1 << np.arange(N_TOP)
    return CoOccurrence(
        documents=of_sets[:, bits[:, np.newaxis] | bits],
        weight=float(weight.sum()),
        n_documents=n_documents,
    )


def npmi(together: CoOccurrence, top: NDArray[np.int32]) -> NDArray[np.float64]:
    """Coherence of each topic, shape (K,); see :class:`TopicQuality`.

    With h = -log p, the normalised pointwise mutual information log(p_ij / (p_i p_j)) / h_ij (Bouma 2009) is
    (h_i + h_j) / h_ij - 1. It is -1 for a pair that never occurs, as in the limit, and 1 for one that is in every document.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        h = -np.log(together.documents / together.weight)
        own = np.diagonal(h, axis1=1, axis2=2)
        of_pairs = (own[:, :, np.newaxis] + own[:, np.newaxis]) / h - 1.0
        of_pairs[together.documents == 0.0] = -1.0
        of_pairs[h <= _ROUNDING] = 1.0
        known = top != NO_TERM
        pairs = np.triu(known[:, :, np.newaxis] & known[:, np.newaxis], 1)
        means: NDArray[np.float64] = np.where(pairs, of_pairs, 0.0).sum(axis=(1, 2)) / pairs.sum(axis=(1, 2))
    return means


def topic_quality(
    topics: NDArray[np.float64], top: NDArray[np.int32], together: CoOccurrence
) -> TopicQuality:
    """The measures of topics of shape (V, K), with their :func:`top_terms` and the counts of all documents."""
    first = top[:, :N_EXCLUSIVE]
    known = first != NO_TERM
    # the first term stands in where there is none, and is left out again
    rows = np.where(known, first, 0)
    own = topics[rows, np.arange(len(top))[:, np.newaxis]]
    with np.errstate(invalid="ignore"):
        shares = own / topics.sum(axis=1)[rows]
    return TopicQuality(
        npmi=npmi(together, top),
        exclusivity=np.where(known, shares, 0.0).sum(axis=1) / known.sum(axis=1),
        distinct_share=len(np.unique(first[known])) / int(known.sum()),
    )
