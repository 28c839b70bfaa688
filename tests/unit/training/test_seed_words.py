"""Topics that a user names and begins with words: where they end, in both objectives, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dslda.cli.info_command import _describe
from dslda.corpus.store import Corpus
from dslda.corpus.vocabulary import Vocabulary
from dslda.datasets import load_clothing
from dslda.exceptions import DataWarning, EngineError, InputError
from dslda.ingestion.ingest import ingest
from dslda.model import load_model
from dslda.training.seed_words import read_seed_words, topic_seeds
from dslda.training.train import train
from tests.helpers.errors import refused
from tests.helpers.progress import AtIteration

pytestmark = pytest.mark.filterwarnings("ignore::dslda.exceptions.ConvergenceWarning")

D, THEMES, WORDS_EACH = 300, 4, 12
TERMS = [f"w{t}" for t in range(THEMES * WORDS_EACH)]
SEEDS = {"third": ["w24", "w25"], "first": ["w0", "w1"]}
OBJECTIVES = pytest.mark.parametrize("objective", ["joint", "conditional"])


@pytest.fixture(scope="module")
def planted() -> tuple[sparse.csr_array, np.ndarray]:
    """Documents of four themes, each with words of its own, of which every second one raises the response."""
    generator = np.random.default_rng(0)
    theta = generator.dirichlet(np.full(THEMES, 0.3), D)
    words = np.repeat(np.eye(THEMES), WORDS_EACH, axis=1) / WORDS_EACH
    counts = generator.poisson(40 * (0.9 * theta @ words + 0.1 / len(TERMS)))
    return sparse.csr_array(counts), theta @ [1.0, 5.0, 2.0, 4.0] + generator.normal(0, 0.3, D)


@pytest.fixture(scope="module")
def corpus(planted: tuple[sparse.csr_array, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    counts, y = planted
    path = tmp_path_factory.mktemp("seeds") / "a.corpus"
    return ingest(counts, path, vocabulary=TERMS, response={"y": y})


@OBJECTIVES
def test_a_topic_ends_where_its_words_are_planted_with_its_name(corpus: Corpus, objective: Any) -> None:
    model = train(corpus, n_topics=THEMES, objective=objective, seed_words=SEEDS, max_iter=30)
    assert model.labels == {0: "third", 1: "first"}
    topics = {topic.label: topic for topic in model.topics(top=WORDS_EACH)}
    for name, theme in (("third", 2), ("first", 0)):
        own = set(TERMS[theme * WORDS_EACH : (theme + 1) * WORDS_EACH])
        assert len(own & set(topics[name].words)) >= WORDS_EACH - 1
        assert set(topics[name].words[:2]) == set(SEEDS[name])


@OBJECTIVES
def test_seeds_gather_what_real_reviews_say_beside_them(objective: Any) -> None:
    clothing = load_clothing()
    counts = clothing.counts[:1500]
    frequency = np.bincount(counts.indices, minlength=counts.shape[1])
    kept = np.flatnonzero((frequency >= 5) & (frequency <= 750))
    seeds = {"fit": ["small", "tight", "large", "size"]}
    model = train(
        counts[:, kept],
        response=clothing.responses["rating"][:1500],
        terms=[clothing.vocabulary[t] for t in kept],
        n_topics=6,
        objective=objective,
        seed_words=seeds,
        max_iter=15,
    )
    words = {topic.label: topic.words for topic in model.topics(top=15)}["fit"]
    assert len(set(seeds["fit"]) & set(words[:8])) >= 3
    # what nobody named
    assert len({"runs", "medium", "big", "usually", "ordered", "run", "true", "petite"} & set(words)) >= 3


def test_topics_of_classes_may_have_seeds(planted: tuple[sparse.csr_array, np.ndarray]) -> None:
    counts, y = planted
    areas = np.array(["low", "mid", "high"])[np.digitize(y, [2.0, 4.0])]
    model = train(
        counts,
        response=areas,
        family="categorical",
        terms=TERMS,
        n_topics=8,
        objective="conditional",
        seed_words=SEEDS,
        max_iter=4,
    )
    topics = {topic.label: topic for topic in model.topics(top=6)}
    for name, theme in (("third", 2), ("first", 0)):
        own = TERMS[theme * WORDS_EACH : (theme + 1) * WORDS_EACH]
        assert len(set(own) & set(topics[name].words)) >= 4
        assert set(SEEDS[name]) <= set(topics[name].words)


@OBJECTIVES
def test_a_fit_with_seeds_goes_on_with_the_same_bits(
    planted: tuple[sparse.csr_array, np.ndarray],
    tmp_path: Path,
    assert_same: Callable[..., None],
    objective: Any,
) -> None:
    counts, y = planted
    settings = {"response": y, "terms": TERMS, "n_topics": 3, "objective": objective, "seed_words": SEEDS}
    settings |= {"max_iter": 14, "tol": 0.0} if objective == "joint" else {"max_iter": 14}
    whole = train(counts, **settings)

    def fail() -> None:
        raise EngineError("the cluster is gone")

    kept = {"checkpoint": tmp_path / "c", "checkpoint_every": 1}
    # during the start of conditional training, and after it
    for at, resume in ((4, False), (8, True)):
        with pytest.raises(EngineError, match="the cluster is gone"):
            train(counts, **settings, **kept, resume=resume, progress=AtIteration(fail, at=at))
    assert_same(train(counts, **settings, **kept, resume=True), whole)
    # the order of the names numbers the topics
    for other in (None, dict(reversed(SEEDS.items())), SEEDS | {"first": ["w0"]}):
        with pytest.raises(InputError, match="seed_words"):
            train(counts, **settings | {"seed_words": other}, **kept, resume=True)


def test_seeds_are_kept_with_the_model(planted: tuple[sparse.csr_array, np.ndarray], tmp_path: Path) -> None:
    counts, y = planted
    model = train(
        counts, response=y, terms=TERMS, n_topics=3, seed_words=SEEDS, max_iter=2, objective="joint"
    )
    again = load_model(model.save(tmp_path / "a.model"))
    assert again.spec == model.spec
    assert again.labels == {0: "third", 1: "first"}
    told = dict(_describe(str(tmp_path / "a.model"), None))
    assert "--seed-words third: w24, w25; first: w0, w1" in told["settings"]
    # other names for the same topics are no other model
    again.label(0, None)
    assert again.spec == model.spec


def test_words_become_terms_and_unknown_ones_are_named() -> None:
    vocabulary = Vocabulary(["small", "tight", "cheap"])
    seeds = topic_seeds((("fit", ("tight", "small")), ("quality", ("cheap", "tight"))), vocabulary)
    assert seeds is not None
    assert seeds.terms.tolist() == [1, 0, 2, 1]
    assert seeds.topics.tolist() == [0, 0, 1, 1]
    assert topic_seeds((), vocabulary) is None
    with pytest.warns(DataWarning) as told:
        topic_seeds((("fit", ("tight", "Small")), ("quality", ("cheap", "poor"))), vocabulary)
    (warning,) = told
    assert "2 seed words are not in the vocabulary, and left out: 'Small' (fit), 'poor' (quality)" in str(
        warning.message
    )
    with refused("seed_words"):
        topic_seeds((("fit", ("Small",)),), vocabulary)
    with refused("seed_words"):
        topic_seeds((("fit", ("small",)),), None)


def test_a_file_has_a_line_for_each_topic(tmp_path: Path) -> None:
    path = tmp_path / "seeds.txt"
    path.write_text(
        "\ufeff# what to look for\n\nfit: small, too tight ,\n  quality of it :cheap\n", encoding="utf-8"
    )
    assert read_seed_words(path) == {"fit": ["small", "too tight"], "quality of it": ["cheap"]}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        *(("fit: small\nquality", 2), ("fit:", 1), (": small", 1), ("fit: ,", 1)),
        ("fit: small\n\nfit: tight", 3),
        *(("", None), ("# nothing", None)),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, text: str, line: int | None) -> None:
    path = tmp_path / "seeds.txt"
    path.write_text(text)
    with refused("seed_words", place=str(path) if line is None else f"{path}: line {line}"):
        read_seed_words(path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with refused("seed_words", place=str(tmp_path / "none.txt")):
        read_seed_words(tmp_path / "none.txt")
    (tmp_path / "latin.txt").write_bytes("größe: klein".encode("latin-1"))
    with refused("seed_words", place=str(tmp_path / "latin.txt")):
        read_seed_words(tmp_path / "latin.txt")
