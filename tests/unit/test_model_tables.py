"""Topics, classes and coefficients as data frames and for pyLDAvis: the numbers of the model, no name that nothing has."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from dslda.exceptions import InputError
from dslda.model import Model
from tests.helpers.errors import refused
from tests.unit.persistence.test_model_directory import a_record, a_record_of_classes, a_record_of_starts

NUMBERS = ["coefficient", "conditional_error", "prevalence", "coherence", "exclusivity"]


def test_topics_are_rows_from_the_lowest_coefficient_to_the_highest() -> None:
    model = Model(a_record())
    table = model.topic_table(top=2)
    assert [*table] == ["topic", *NUMBERS, "words"]
    for row, topic in zip(table.itertuples(), model.topics(top=2), strict=True):
        assert (row.topic, row.coefficient, row.conditional_error) == topic[:3]
        assert row.words == ", ".join(topic.words)
    assert table["coefficient"].is_monotonic_increasing
    model.label(1, "fit")
    table = model.topic_table()
    assert [*table] == ["topic", "label", *NUMBERS, "words"]
    assert table.set_index("topic")["label"].dropna().to_dict() == {1: "fit"}


def test_words_come_in_the_order_asked_for() -> None:
    model = Model(a_record())
    for words in ("probability", "frex", "lift"):
        of_topics = {topic.topic: topic.words for topic in model.topics(6, words)}
        table = model.topic_table(6, words).set_index("topic")["words"]
        assert {topic: tuple(cell.split(", ")) for topic, cell in table.items()} == of_topics
    first = model.topics(6, "frex")[0]
    weights = model.topic_word[first.topic]
    assert first.probabilities == tuple(weights[[model.vocabulary.terms.index(word) for word in first.words]])
    for call in (model.topics, model.topic_table, Model(a_record_of_classes()).class_table):
        with refused("words"):
            call(words="best")


def test_a_measure_that_the_model_lacks_is_not_a_number() -> None:
    record = replace(a_record(), quality=None, prevalence=None)
    table = Model(record).topic_table()
    assert [*table] == ["topic", *NUMBERS, "words"]
    assert table[["prevalence", "coherence", "exclusivity"]].isna().all(axis=None)
    assert set(map(str, table[NUMBERS].dtypes)) == {"float64"}
    assert "stability" in Model(a_record_of_starts()).topic_table()
    unknown = Model(replace(a_record(), covariance=None)).topic_table()
    assert unknown["conditional_error"].isna().all()


def test_classes_have_a_row_for_every_topic_from_what_raises_them_most() -> None:
    model = Model(a_record_of_classes())
    table = model.class_table(top=1)
    assert [*table] == ["class", "topic", "label", "coefficient", "conditional_error", "words"]
    values = model.class_coefficients()
    for c, (name, rows) in enumerate(table.groupby("class")):
        assert name == model.classes[c]
        assert_array_equal(rows["coefficient"], np.sort(values[:, c])[::-1])
        assert_array_equal(values[rows["topic"], c], rows["coefficient"])
    assert "class" in model.topic_table()
    with pytest.raises(InputError, match="one coefficient a topic"):
        Model(a_record()).class_table()


def test_all_coefficients_are_in_one_table() -> None:
    model = Model(a_record())
    table = model.coefficient_table()
    assert [*table] == ["topic", "coefficient", "conditional_error"]
    assert table.to_dict("list")["topic"] == [row.topic for row in model.coefficients()]


def test_covariates_follow_the_topics_with_what_they_stand_against() -> None:
    model = Model(a_record_of_classes())
    table = model.coefficient_table()
    assert [*table] == [
        *("topic", "label", "covariate", "level", "against", "class"),
        *("coefficient", "conditional_error"),
    ]
    topics, covariates = table[table["topic"].notna()], table[table["topic"].isna()]
    assert len(topics) == model.class_coefficients().size
    assert len(topics) + len(covariates) == len(table)
    assert topics["covariate"].isna().all()
    shown = [
        tuple(None if pd.isna(value) else value for value in row[1:])
        for row in covariates[["topic", "covariate", "level", "against", "class"]].itertuples(index=False)
    ]
    assert shown == [
        (name, level, against, of)
        for name, level, against in (("age", None, None), ("party", "I", "D"), ("party", "R", "D"))
        for of in ("1", "5")
    ]
    expected = [row.coefficient for row in model.covariate_coefficients()]
    assert_array_equal(covariates["coefficient"], expected)
    errors = np.sqrt(np.diagonal(model.coefficient_covariance(), axis1=1, axis2=2))
    for c, name in enumerate(model.classes):
        of_class = topics[topics["class"] == name].sort_values("topic")
        assert_array_equal(of_class["conditional_error"], errors[c, : model.n_topics])


def test_arguments_of_pyldavis_are_distributions_over_the_terms_and_topics_of_the_model() -> None:
    model = Model(a_record())
    arguments = model.to_pyldavis()
    topics, documents = arguments["topic_term_dists"], arguments["doc_topic_dists"]
    assert_array_equal(topics, model.topic_word)
    assert_allclose(topics.sum(axis=1), 1.0)
    assert_allclose(documents, [model.topic_prevalence / model.topic_prevalence.sum()])
    assert arguments["vocab"] == [*model.vocabulary.terms]
    assert arguments["doc_lengths"].tolist() == [model.training.n_tokens]
    assert arguments["term_frequency"].sum() == pytest.approx(model.training.n_tokens)
    of_matrix = replace(a_record(), vocabulary=None, text_settings=None)
    assert Model(of_matrix).to_pyldavis()["vocab"] == [str(i) for i in range(model.n_terms)]
    with pytest.raises(InputError):
        Model(replace(a_record(), prevalence=None)).to_pyldavis()


def test_pyldavis_keeps_the_numbers_of_topics_and_shows_what_it_would_of_single_documents() -> None:
    pyldavis = pytest.importorskip("pyLDAvis")
    model = Model(a_record())
    arguments = model.to_pyldavis() | {"n_jobs": 1, "R": 4}
    rng = np.random.default_rng(0)
    assigned = arguments["doc_topic_dists"] * rng.dirichlet(np.ones(30), model.n_topics).T
    single = {
        "doc_topic_dists": assigned / assigned.sum(axis=1, keepdims=True),
        "doc_lengths": assigned.sum(axis=1),
    }
    single["doc_lengths"] = single["doc_lengths"] * model.training.n_tokens
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen, of_documents = (pyldavis.prepare(**each) for each in (arguments, arguments | single))
    assert seen.topic_coordinates.index.tolist() == [*range(model.n_topics)]
    assert seen.topic_coordinates["topics"].tolist() == [*range(model.n_topics)]
    assert_allclose(seen.topic_coordinates["Freq"], 100.0 * arguments["doc_topic_dists"][0])
    assert_allclose(
        of_documents.topic_coordinates[["x", "y", "Freq"]], seen.topic_coordinates[["x", "y", "Freq"]]
    )
    for topic in model.topics(4):
        rows = seen.topic_info[seen.topic_info["Category"] == f"Topic{topic.topic}"]
        assert set(topic.words) <= set(rows["Term"])
    # pyLDAvis rounds counts, and sorts by them
    same = [
        each.topic_info.set_index(["Category", "Term"])["logprob"].sort_index()
        for each in (seen, of_documents)
    ]
    assert same[0].equals(same[1])
