from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator

import dask.bag
import numpy as np
import pytest
from distributed import Client

from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.exceptions import DataWarning, InputError
from dslda.ingestion.corpus_plan import blocks_from_bag
from dslda.ingestion.ingest import ingest
from dslda.inputs.fields import Fields
from dslda.inputs.in_memory import is_dask_collection
from dslda.training.train import train
from tests.helpers.files import write_records

ALL = TextSettings(min_df=1, max_df=1.0)
RATED = Fields(text="text", responses=("rating",))


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with Client(
        processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0", set_as_default=False
    ) as client:
        yield client


@pytest.fixture(scope="module")
def reviews(shared_data) -> list[dict]:
    with gzip.open(shared_data / "womens_clothing" / "womens_clothing.jsonl.gz", "rt") as lines:
        return [json.loads(line) for _, line in zip(range(200), lines, strict=False)]


@pytest.mark.parametrize("n_partitions", [1, 7])
def test_blocks_of_a_bag_are_the_partitions_of_the_store(client, reviews, tmp_path, n_partitions):
    settings = TextSettings(min_df=2, max_df=0.5)
    bag = dask.bag.from_sequence(reviews, npartitions=n_partitions)
    found = blocks_from_bag(bag, client, fields=RATED, settings=settings, partition_tokens=800)
    write_records(tmp_path / "a.jsonl", reviews)
    corpus = ingest(
        tmp_path / "a.jsonl", text="text", response="rating", min_df=2, max_df=0.5, partition_tokens=800
    )
    terms = found.plan.terms
    assert terms.vocabulary == corpus.vocabulary
    assert terms.vocabulary.document_frequency.tolist() == corpus.vocabulary.document_frequency.tolist()
    assert (found.plan.n_documents, terms.n_tokens) == (corpus.n_documents, corpus.n_tokens)
    assert (terms.oov_share, terms.new_share) == (corpus.oov_share, corpus.new_share)
    assert terms.too_frequent == corpus.too_frequent
    assert found.responses == corpus.response_summaries
    assert len(found.futures) == corpus.n_partitions > 3
    for i, future in enumerate(found.futures):
        block, stored = future.result(), corpus.read(i)
        assert block.n_documents == found.plan.partitions[i].n_documents
        assert len(block.terms) == found.plan.partitions[i].n_entries
        for name in ("indptr", "terms", "counts"):
            np.testing.assert_array_equal(getattr(block, name), getattr(stored, name), strict=True)
        np.testing.assert_array_equal(block.responses["rating"], stored.responses["rating"], strict=True)


def test_only_the_partitions_stay_on_the_cluster(client, reviews):
    bag = dask.bag.from_sequence(reviews, npartitions=5)
    found = blocks_from_bag(bag, client, fields=RATED, settings=ALL)
    ours = {future.key for future in found.futures}

    def kept() -> set[str]:
        return {key for keys in client.has_what().values() for key in keys}

    assert ours <= kept()
    # counts over all terms, tables and blocks of chunks are let go, as soon as the scheduler comes to it
    deadline = time.monotonic() + 30
    while [key for key in kept() - ours if "restrict" in key or "table" in key]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert all(future.client is client for future in found.futures)


@pytest.mark.parametrize("pair", [tuple, list])
def test_records_may_be_pairs_of_text_and_response(client, pair):
    records = [pair(["apple pear", 1]), pair(["fig", None]), pair(["apple", 2.5])]
    bag = dask.bag.from_sequence(records, npartitions=2)
    found = blocks_from_bag(bag, client, fields=Fields(text="text", responses=("stars",)), settings=ALL)
    (block,) = client.gather(list(found.futures))
    assert found.plan.terms.vocabulary.terms == ("apple", "fig", "pear")
    np.testing.assert_array_equal(block.responses["stars"], [1, np.nan, 2.5])


def test_records_may_be_texts_or_counted_words(client):
    texts = dask.bag.from_sequence(["apple apple pear", "fig"], npartitions=2)
    found = blocks_from_bag(texts, client, fields=Fields(text="text"), settings=ALL)
    counted = texts.map(lambda t: {"w": t.split(), "n": [1] * len(t.split())})
    fields = Fields(words="w", counts="n")
    settings = TextSettings("counts", min_df=1, max_df=1.0)
    again = blocks_from_bag(counted, client, fields=fields, settings=settings)
    assert again.plan.terms.vocabulary == found.plan.terms.vocabulary
    (a,), (b,) = client.gather([list(found.futures), list(again.futures)])
    assert a.terms.tolist() == b.terms.tolist() == [0, 2, 1]
    assert a.counts.tolist() == b.counts.tolist() == [2, 1, 1]


def test_a_given_vocabulary_is_taken_as_it_is(client):
    bag = dask.bag.from_sequence(["apple pear", "fig"], npartitions=1)
    vocabulary = Vocabulary(["pear", "kiwi"])
    found = blocks_from_bag(bag, client, fields=Fields(text="text"), settings=ALL, vocabulary=vocabulary)
    assert found.plan.terms.vocabulary == vocabulary
    (block,) = client.gather(list(found.futures))
    assert block.indptr.tolist() == [0, 1, 1]


def test_empty_partitions_of_a_bag_do_no_harm(client):
    bag = dask.bag.from_sequence(["apple", "fig", "apple"], npartitions=3).filter(lambda t: t == "apple")
    found = blocks_from_bag(bag, client, fields=Fields(text="text"), settings=ALL)
    assert found.plan.n_documents == 2


@pytest.mark.parametrize(
    ("records", "fields", "message"),
    [
        (
            [("a text", 1), "b"],
            RATED,
            r"bag partition 1, record 0: must have the response 'rating', got only a text",
        ),
        ([("a text", 1), ("b", "high")], RATED, r"partition 1, record 0: response 'rating' must be a number"),
        ([("a text", 1)], Fields(text="text"), "a pair .* must have one name for its response"),
        ([3.5], RATED, "must be a text, a pair .* or a mapping, got a number"),
        ([{"body": "a"}], RATED, r"no field 'text' for the text; fields there are: 'body'"),
        ([("a text", 1), ("b text", 1)], RATED, "response 'rating' is 1 in all 2 documents"),
        ([], RATED, "no documents"),
        ([("?", 1), ("!", 2)], RATED, "none of 2 documents has any"),
    ],
)
def test_a_record_that_cannot_be_used_is_named(client, records, fields, message, caplog):
    bag = dask.bag.from_sequence(records, npartitions=max(len(records), 1))
    with pytest.raises(InputError, match=message) as caught:
        blocks_from_bag(bag, client, fields=fields, settings=ALL)
    assert caught.value.__cause__ is None
    assert "Compute Failed" not in caplog.text


def test_a_dataframe_column_that_is_not_there_is_refused_before_reading(client):
    import dask.dataframe
    import pandas as pd

    frame = dask.dataframe.from_pandas(pd.DataFrame({"body": ["a"], "rating": [1.0]}), npartitions=1)
    with pytest.raises(
        InputError, match=r"the DataFrame: has no field 'text' .* there are: 'body', 'rating'"
    ):
        blocks_from_bag(frame, client, fields=RATED, settings=ALL)
    with pytest.raises(
        InputError, match=r"the field of the documents must be named; .* there are: 'body', 'rating'"
    ):
        blocks_from_bag(frame, client, fields=Fields(), settings=ALL)
    lists = pd.DataFrame({"words": [["a", "b"]], "counts": [[1, 2]], "rating": [1.0]})
    counted = Fields(words="words", counts="counts", responses=("rating",))
    with pytest.raises(
        InputError, match=r"words 'words' must be a column of lists, .*convert-string.* a bag"
    ):
        blocks_from_bag(
            dask.dataframe.from_pandas(lists, npartitions=1), client, fields=counted, settings=ALL
        )
    with dask.config.set({"dataframe.convert-string": False}):
        kept = dask.dataframe.from_pandas(pd.concat([lists, lists.assign(rating=2.0)]), npartitions=1)
    assert blocks_from_bag(kept, client, fields=counted, settings=ALL).plan.terms.n_tokens == 6
    assert is_dask_collection(frame)
    assert not is_dask_collection(pd.DataFrame())


def test_terms_that_no_document_of_a_bag_can_have_are_named(client, reviews):
    bag = dask.bag.from_sequence(reviews, npartitions=2)
    vocabulary = Vocabulary(["dress", "Dress"])
    with pytest.warns(DataWarning, match="'Dress'"):
        blocks_from_bag(bag, client, fields=RATED, settings=ALL, vocabulary=vocabulary)


def test_columns_that_are_numbered_are_named_by_their_digits(client):
    import dask.dataframe
    import pandas as pd

    frame = pd.DataFrame({0: ["apple pear", "fig"], 1: [1.0, 2.0]})
    partitions = dask.dataframe.from_pandas(frame, npartitions=2)
    corpus = ingest(partitions, text="0", response="1", min_df=1, max_df=1.0)
    assert corpus.content_hash == ingest(frame, text="0", response="1", min_df=1, max_df=1.0).content_hash
    found = blocks_from_bag(partitions, client, fields=Fields(text="0", responses=("1",)), settings=ALL)
    assert found.plan.terms.vocabulary == corpus.vocabulary


def _without_response(number: int):
    import pandas as pd

    frame = pd.DataFrame({"text": ["apple pear", "fig"], "rating": [1.0, 2.0]})
    return frame if number == 0 else frame.drop(columns="rating")


def test_a_partition_that_lacks_a_column_is_named():
    import dask.dataframe

    frame = dask.dataframe.from_map(_without_response, [0, 1], meta=_without_response(0))
    with pytest.raises(InputError) as error:
        ingest(frame, text="text", response="rating", min_df=1, max_df=1.0)
    assert error.value.place == "DataFrame partition 1"


@pytest.mark.parametrize("kind", ["Series", "Array"])
def test_collections_that_are_neither_bags_nor_frames_are_refused(kind):
    import dask.array
    import dask.dataframe
    import pandas as pd

    collection = (
        dask.dataframe.from_pandas(pd.Series(["apple", "fig"], name="text"), npartitions=2)
        if kind == "Series"
        else dask.array.ones((4, 3))
    )
    for entry in (train, ingest):
        with pytest.raises(InputError) as error:
            entry(collection, text="text", response="rating")
        assert kind in error.value.reason
