"""Small corpora and models, some with names that a page must not take for markup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dslda.corpus.store import Corpus
from dslda.ingestion.ingest import ingest
from dslda.model import Model
from dslda.training.train import train

HOSTILE = (
    "<script>x</script>",
    '"quoted"',
    "o'clock&amp;",
    "$x^2$",
    "</svg>]]>",
    "{{ 7 * 7 }}",
    "日本",
    "a\u202eb",
)
"""Words, identifiers and names that end what they are in, or begin something else."""
LABEL = "</text><b>&quot; $y$"
PLAIN = tuple(f"{theme}{i}" for theme in ("good", "bad", "plot") for i in range(6))
N = 300


@dataclass(frozen=True)
class Made:
    """A corpus, a model of it, and its texts."""

    corpus: Corpus
    model: Model
    texts: list[dict[str, Any]]


def counts_of_themes(vocabulary: Sequence[str], seed: int) -> tuple[sparse.csr_array, np.ndarray]:
    """Documents that mix three themes of the vocabulary, and the share of the first less that of the second."""
    rng = np.random.default_rng(seed)
    themes = np.array_split(np.arange(len(vocabulary)), 3)
    shares = rng.dirichlet([0.4] * 3, N)
    counts = np.zeros((N, len(vocabulary)), dtype=np.int32)
    for own, share in zip(counts, shares, strict=True):
        length = int(rng.integers(8, 60))
        for theme, n in zip(themes, rng.multinomial(length, share), strict=True):
            np.add.at(own, rng.choice(theme, n), 1)
    return sparse.csr_array(counts), shares[:, 0] - shares[:, 1]


def made(folder: Path, vocabulary: Sequence[str], response: str, ids: Sequence[str], **settings: Any) -> Made:
    """Ingest and train on documents of three themes, a tenth of them kept out."""
    counts, y = counts_of_themes(vocabulary, seed=1)
    y = np.round(3.0 + 2.0 * y, 2)
    corpus = ingest(
        counts,
        folder / "c.corpus",
        vocabulary=vocabulary,
        response={response: y},
        id=ids,
        partition_tokens=1500,
    )
    model = train(corpus, response=response, n_topics=3, objective="joint", hold_out=0.2, **settings)
    rows = counts.toarray()
    texts = [
        {"key": doc_id, "body": " ".join(np.repeat(np.array(vocabulary, dtype=object), row))}
        for doc_id, row in zip(ids, rows, strict=True)
    ]
    return Made(corpus, model, texts)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Three themes with words of letters and digits."""
    ids = [f"review {i}" for i in range(N)]
    made_plain = made(tmp_path_factory.mktemp("plain"), PLAIN, "stars", ids, bootstrap=20)
    made_plain.model.label(1, "a story")
    return made_plain


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Words, identifiers and a response that look like markup."""
    vocabulary = [*HOSTILE, *PLAIN]
    ids = [f"{HOSTILE[i % len(HOSTILE)]} {i}" for i in range(N)]
    made_hostile = made(tmp_path_factory.mktemp("hostile"), vocabulary, '<b>"stars"</b> $&', ids)
    made_hostile.model.label(0, LABEL)
    return made_hostile
