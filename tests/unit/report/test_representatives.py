"""Documents that topics describe best, and excerpts of their texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse

from dslda.corpus.text import TextSettings
from dslda.ingestion.ingest import ingest
from dslda.model import load_model
from dslda.report.excerpts import LONGEST, Marker, excerpt, tidy
from dslda.report.representatives import wilson
from tests.helpers.errors import refused
from tests.unit.report.conftest import PLAIN, Made


def test_wilson_is_the_interval_of_statsmodels() -> None:
    from statsmodels.stats.proportion import proportion_confint

    for share, n in ((0.0, 5), (0.2, 30), (1.0, 3), (0.5, 1000)):
        low, high = proportion_confint(share * n, n, method="wilson")
        assert_allclose(wilson(share, n), (low, high), rtol=1e-6, atol=1e-12)
    assert_allclose(wilson(np.array([0.3]), np.array([0])), ([0.0], [1.0]))


def test_each_topic_has_its_documents_with_what_is_known_of_them(plain: Made) -> None:
    model, corpus = plain.model, plain.corpus
    table = model.representative_documents(corpus, n=4)
    assert list(table.columns) == [
        "topic",
        "id",
        "row",
        "share",
        "known_tokens",
        "observed",
        "predicted",
        "words",
    ]
    assert table.groupby("topic").size().to_dict() == {0: 4, 1: 4, 2: 4}
    scored = model.score_table(corpus).to_pandas()
    contributions = model.contributions(corpus, relative=False).to_pandas()
    observed = np.concatenate([corpus.read(p).responses["stars"] for p in range(corpus.n_partitions)])
    coefficients = {row.topic: row.coefficient for row in model.coefficients()}
    shares = np.stack([contributions[f"topic_{k}"] / coefficients[k] for k in range(3)], axis=1)
    for row in table.itertuples():
        assert row.id == f"review {row.row}"
        assert row.known_tokens == scored["known_tokens"][row.row]
        assert row.predicted == pytest.approx(scored["prediction"][row.row])
        assert row.observed == observed[row.row]
        assert row.share == pytest.approx(shares[row.row, row.topic], abs=1e-6)
        top = {word for topic in model.topics(top=6) if topic.topic == row.topic for word in topic.words}
        assert row.words.split()[0] in top
    # all documents by the rule that the docstring states
    lowest, _ = wilson(np.clip(shares, 0, 1), scored["known_tokens"].to_numpy()[:, np.newaxis])
    for k in range(3):
        expected = np.argsort(-lowest[:, k], kind="stable")[:4]
        assert table[table["topic"] == k]["row"].tolist() == expected.tolist()
    one = model.representative_documents(corpus, topic=1, n=4)
    assert one.equals(table[table["topic"] == 1].reset_index(drop=True))


def test_a_sample_is_the_same_each_time_and_holds_documents_kept_from_training(
    plain: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dslda.report import sampled_documents as module

    monkeypatch.setattr(module, "MOST_DOCUMENTS", 40)
    monkeypatch.setattr(module, "LEAST_DOCUMENTS", 40)
    first, again = (
        module.sampled_documents(plain.model.scoring_record, plain.corpus, n_best=2) for _ in range(2)
    )
    assert first.rows.tolist() == again.rows.tolist()
    assert len(first.rows) == 40
    assert first.n_documents == plain.corpus.n_documents
    assert int(first.unseen.sum()) == 20
    unseen = module.unseen_documents(plain.model.record, plain.corpus)
    assert unseen is not None
    assert int(unseen.sum()) == plain.corpus.n_documents - plain.model.training.n_documents
    assert (unseen[first.rows] == first.unseen).all()
    inside = module.sampled_documents(plain.model.scoring_record, plain.corpus, n_best=2, documents=[3, 5, 8])
    assert inside.rows.tolist() == [3, 5, 8]


def test_a_model_does_not_claim_to_know_what_others_chose(plain: Made) -> None:
    from dslda.report.sampled_documents import unseen_documents
    from dslda.training.train import train

    half = np.arange(plain.corpus.n_documents) % 2 == 0
    model = train(plain.corpus, response="stars", n_topics=2, objective="joint", documents=half, tol=1e-2)
    assert model.training.held_out is not None
    assert unseen_documents(model.record, plain.corpus) is None


def test_copies_count_once_and_three_words_do_not_win(plain: Made, tmp_path: Path) -> None:
    row = np.zeros(len(PLAIN), dtype=np.int32)
    copied, short = row.copy(), row.copy()
    copied[:6] = 5
    short[0] = 3
    corpus = ingest(
        sparse.csr_array(np.stack([short, copied, copied, copied])),
        tmp_path / "c.corpus",
        vocabulary=PLAIN,
        response={"stars": [1.0, np.nan, 2.0, 3.0]},
        id=["short", "a", "b", "c"],
    )
    table = plain.model.representative_documents(corpus, n=3)
    good = next(t.topic for t in plain.model.topics(top=1) if t.words[0].startswith("good"))
    assert table[table["topic"] == good]["id"].tolist() == ["a", "short"]
    assert table[table["id"] == "a"]["observed"].isna().all()
    # the other topics have no words in these documents
    assert set(table["topic"]) == {good}


def test_what_cannot_be_asked_is_refused(plain: Made) -> None:
    for topic in (-1, 3, 1.5, True):
        with refused("topic"):
            plain.model.representative_documents(plain.corpus, topic=topic)  # type: ignore[arg-type]
    with refused("n"):
        plain.model.representative_documents(plain.corpus, n=0)
    with refused("corpus"):
        plain.model.representative_documents(["a text"])  # type: ignore[arg-type]


def test_terms_are_marked_as_they_are_written() -> None:
    text = "A Lovely\n  DRESS, \u201clovely\u201d: na\u00efve cafe\u0301 well-made."
    pieces = excerpt(text, ["lovely", "café", "made"], Marker(TextSettings()))
    assert "".join(piece for piece, _ in pieces) == "A Lovely DRESS, “lovely”: naïve café well-made."
    assert [piece for piece, is_marked in pieces if is_marked] == ["Lovely", "lovely", "café", "made"]


def test_pairs_of_words_are_marked_together() -> None:
    marker = Marker(TextSettings(ngrams=(1, 2), stop_words=("the",)))
    pieces = excerpt("A very good film and good the very thing", ["very good"], marker)
    assert [piece for piece, is_marked in pieces if is_marked] == ["very good"]


def test_a_long_text_is_cut_where_most_terms_are() -> None:
    words = ["filler"] * 900
    words[500:504] = ["good", "better", "best", "great"]
    words[800] = "good"
    pieces = excerpt(" ".join(words), ["good", "better", "best", "great"], Marker(TextSettings()))
    text = "".join(piece for piece, _ in pieces)
    assert "good better best great" in text
    assert text.startswith("… ")
    assert text.endswith(" …")
    assert len(text) < 1.2 * LONGEST + 100
    assert [p for p, is_marked in pieces if is_marked] == ["good", "better", "best", "great", "good"]


@given(st.text(max_size=2000), st.lists(st.text(min_size=1, max_size=5), max_size=4))
def test_an_excerpt_is_made_of_the_text_whatever_it_holds(text: str, terms: list[str]) -> None:
    pieces = excerpt(text, terms, Marker(TextSettings()))
    joined = "".join(piece for piece, _ in pieces)
    assert not any(ord(c) < 32 for c in joined)
    assert all(piece for piece, _ in pieces)
    whole = tidy(text)
    if len(whole) <= LONGEST:
        assert joined == whole
    else:
        assert all(piece.strip("… ") in whole for piece, _ in pieces)


def test_a_saved_model_remembers_which_documents_were_kept_out(plain: Made, tmp_path: Path) -> None:
    plain.model.save(tmp_path / "m.model")
    loaded = load_model(tmp_path / "m.model")
    assert loaded.training.held_out is not None
    assert loaded.training.held_out.share == 0.2
