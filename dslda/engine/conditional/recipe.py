"""The choices of conditional training that follow from the corpus and the settings."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dslda.engine.conditional.selection import Selection
from dslda.variational.parameters import FitSpec
from dslda.variational.term_weights import TermWeighting
from dslda.wording import number_of

__all__ = ["LAST_STEP_SIZE", "N_STEPS", "Recipe", "inner_share_of"]

START_ITERATIONS = {"themes": 9, "balance": 5, "prediction": 4}
"""Iterations of EM at the start, by emphasis. EM drives topics apart: the longer, the more they are themes of their own, and
the less they predict (docs/benchmarks.md)."""
TOLERANCE = {"themes": 1.0, "balance": 0.4, "prediction": 0.0}
"""Loss of the inner part at which an epoch still counts as good as the best one, by emphasis: a share of what words add,
divided by the square root of its responses over their dispersion. 0.4 is about a standard error of the difference. Topics of
classes, which start from the words of these, are distinct at once, and have none. Nor have those of levels: what it adds
makes them hardly more distinct, and costs 0.001 of log loss (docs/benchmarks.md)."""
START_DOCUMENTS, LEAST_START, WHOLE_ITERATIONS = 5_000, 0.1, 2
"""About how many documents with a response take part in these iterations, the least share of them, and how many of the last
iterations take all: themes need no more, but what is fitted to a sample alone predicts a little less."""
EPOCHS, PATIENCE = 12, 2
PULL = 4.0
TOPIC_PRIOR = 0.1
RIDGE_SHARE = 2e-3
"""Ridge of the coefficients for 20 topics, as a share of the information of all responses about one linear predictor."""
STEP_SIZE = 0.1
LAST_EPOCHS, LAST_STEP_SIZE = 2, 0.05
"""Epochs after the best one over all documents, the inner part included, and the size of their steps: topics learn of the
others too, and shorter steps settle. Classes have none, since their coefficients would outgrow what the inner part
has calibrated: the log loss of newsgroups20 would rise from 0.63 to 0.67."""
N_STEPS = 20
"""Steps of an epoch: few enough for the rounds of a cluster, and as good as many small batches (docs/benchmarks.md)."""
SLICE_DOCUMENTS, MOST_SLICES = 400, 60
"""About how many documents with a response a step of a large corpus takes, and the most slices. More documents make no better
steps: imdb50k and clothing predict as well with three and two times as many, which take longer."""
WHOLE_PARTITIONS = 400
"""Fewest partitions of a corpus whose steps take whole ones. With fewer, most workers of a large cluster would wait: an epoch
of 160 partitions on 50 workers takes half the time in parts of each, and of 400 as long (docs/benchmarks.md)."""
LEAST_INNER, MOST_INNER, INNER_DOCUMENTS = 0.1, 0.3, 200
"""Bounds of the share of the documents in the inner part, and how many with a response it should have: one of 60 chooses the
wrong epoch more often than what the others lose by another 140."""
LOWEST_ALPHA, HIGHEST_ALPHA = 1.0, 2.0
MOST_REPEATED = 1.0 / 3.0
"""Share of different documents stored more than once above which copies are in one part. Documents that are all stored four
times would teach noise that their copies in the inner part confirm; a tenth with a copy, as of bills, does no harm."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a conditional fit runs: a pure function of the corpus and the settings.

    Attributes
    ----------
    alpha : float
        Dirichlet parameter of the topic proportions.
    topic_prior : float
        Pseudo-count of every term in every topic.
    weighting : TermWeighting
    ridge : float
        Precision of the prior of the coefficients, as a share of the information of all responses about a linear predictor.
    start_iterations : int
        Iterations of EM at the start; of classes there are none.
    start_share : float
        Share of the documents that take part in these, but for the last two.
    pull : float
        Weight of the response in these.
    step_size : float
    epochs : int
        Most epochs.
    last_epochs : int
        Epochs over all documents that follow the best one, unless topics are trained once more.
    tolerance : float
        See `TOLERANCE`.
    patience : int
        Epochs without a better inner part after which training stops.
    n_slices : int
        Slices of the documents; each step takes one. An epoch of a large corpus visits some of them, and the next goes on.
    inner_share : float
        Share of the documents in the inner part.
    copies_together : bool
        Copies of a document are in one part; see `MOST_REPEATED`.
    by_partition : bool
        A slice is every n-th partition, and not a part of each: of corpora with many partitions each is read once an epoch.
    """

    alpha: float
    topic_prior: float
    weighting: TermWeighting
    ridge: float
    start_iterations: int
    start_share: float
    pull: float
    step_size: float
    epochs: int
    last_epochs: int
    tolerance: float
    patience: int
    n_slices: int
    inner_share: float
    copies_together: bool
    by_partition: bool

    @classmethod
    def of(
        cls,
        spec: FitSpec,
        *,
        has_classes: bool,
        has_levels: bool,
        weighting: TermWeighting,
        n_labelled: int,
        n_documents: int,
        n_tokens: float,
        n_partitions: int,
        repeated_share: float,
    ) -> Recipe:
        alpha = spec.doc_topic_prior
        if alpha == "auto":
            length = n_tokens / max(n_documents, 1)
            alpha = min(max(length / (2.0 * spec.n_topics), LOWEST_ALPHA), HIGHEST_ALPHA)
        elif alpha is None:
            alpha = 1.0 / spec.n_topics
        n_slices = min(max(n_labelled // SLICE_DOCUMENTS, N_STEPS), MOST_SLICES)
        return cls(
            alpha=float(alpha),
            topic_prior=TOPIC_PRIOR,
            weighting=weighting,
            ridge=RIDGE_SHARE * 20.0 / spec.n_topics,
            start_iterations=min(START_ITERATIONS[spec.emphasis], spec.max_iter - 1),
            start_share=min(max(START_DOCUMENTS / max(n_labelled, 1), LEAST_START), 1.0),
            pull=PULL,
            step_size=STEP_SIZE,
            epochs=EPOCHS,
            last_epochs=0 if has_classes else max(LAST_EPOCHS, round(n_slices / N_STEPS)),
            tolerance=0.0 if has_classes or has_levels else TOLERANCE[spec.emphasis],
            patience=PATIENCE,
            n_slices=n_slices,
            inner_share=inner_share_of(n_labelled),
            copies_together=repeated_share > MOST_REPEATED,
            by_partition=n_partitions >= WHOLE_PARTITIONS,
        )

    @property
    def refits(self) -> bool:
        """True if the inner part is so large a share that topics are trained once more on all documents from the start."""
        return self.inner_share > LEAST_INNER

    @property
    def inner(self) -> Selection:
        """The documents that choose."""
        return Selection(True, self.inner_share, by_words=self.copies_together)

    @property
    def outer(self) -> Selection:
        """The documents that train."""
        return Selection(False, self.inner_share, by_words=self.copies_together)

    def start_of(self, iteration: int) -> Selection:
        """Those of them that take part in an iteration of EM at the start, counted from 0."""
        whole = iteration >= self.start_iterations - WHOLE_ITERATIONS
        return self.outer if whole else replace(self.outer, sample=self.start_share)

    @property
    def in_words(self) -> str:
        """The choices that were made by themselves, for the log."""
        start = (
            "the start"
            if self.start_share == 1.0
            else f"a start with {self.start_share:.0%} of the documents"
        )
        together = (
            "; many are stored more than once, copies of them in one part" if self.copies_together else ""
        )
        return (
            f"alpha {self.alpha:.3g}, term weights {self.weighting.name}, at most {number_of(self.epochs, 'epoch')} of "
            f"{number_of(N_STEPS, 'step')} after {start}, chosen by the inner part: {self.inner_share:.0%} of the "
            f"documents, set aside to judge what the others have taught{together}"
        )


def inner_share_of(n_labelled: int) -> float:
    """Share of the documents in the inner part, of so many with a response of a weight above 0."""
    return min(max(INNER_DOCUMENTS / max(n_labelled, 1), LEAST_INNER), MOST_INNER)
