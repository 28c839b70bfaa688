from __future__ import annotations

import json
import pickle
import shutil
import uuid
from pathlib import Path

import dask.bag
import fsspec
import numpy as np
import pytest
import scipy.sparse
import zarr

from dslda.corpus.manifest import Manifest
from dslda.corpus.store import Corpus, open_corpus
from dslda.corpus.vocabulary import Vocabulary
from dslda.corpus.writer import CorpusAppender
from dslda.exceptions import DataWarning, FormatError, InputError, OutputError, OutputExistsError
from dslda.ingestion.ingest import ingest
from tests.helpers.errors import refused
from tests.helpers.files import write_records

WORDS = ["apple", "pear", "plum", "fig", "kiwi", "lime", "date"]
FIELDS = {
    "text": "text",
    "id": "key",
    "response": ["rating", "kind"],
    "covariates": ["age", "shop"],
    "weight": "w",
    "categorical": ["kind", "shop"],
}
SETTINGS = {"min_df": 1, "max_df": 1.0, "stop_words": ["fig"], "lowercase": False}


def records(n: int, seed: int) -> list[dict[str, object]]:
    random = np.random.default_rng(seed)
    return [
        {
            "key": None if i % 5 == 0 else f"{seed}.{i}",
            "text": " ".join(["kiwi", *random.choice(WORDS[: 4 + seed], 1 + i % 7)]),
            "rating": None if i % 3 == 0 else round(random.normal(), 3),
            "kind": "bag"[i % 3],
            "age": int(random.integers(20, 60)),
            "shop": ("north", "south")[int(random.integers(2))],
            "w": round(random.uniform(), 3),
        }
        for i in range(n)
    ]


FIRST, SECOND, THIRD = records(60, 3), records(40, 1), records(9, 2)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Path:
    """A corpus of the first documents, in some partitions."""
    folder = tmp_path_factory.mktemp("pristine")
    path = folder / "fruit.corpus"
    ingest(write_records(folder / "first.jsonl", FIRST), path, partition_tokens=90, **FIELDS, **SETTINGS)
    return path


@pytest.fixture
def old(pristine, tmp_path) -> Path:
    """The same, to be appended to."""
    return Path(shutil.copytree(pristine, tmp_path / "fruit.corpus"))


@pytest.fixture
def second(tmp_path) -> Path:
    return write_records(tmp_path / "second.jsonl", SECOND)


def documents(corpus: Corpus) -> list[dict[str, object]]:
    """Every document with all that belongs to it."""
    found = []
    for p in range(corpus.n_partitions):
        block = corpus.read(p, covariates=corpus.covariate_names, weight=True, doc_id=True)
        for d in range(block.n_documents):
            entries = slice(block.indptr[d], block.indptr[d + 1])
            columns = {**block.responses, **{f"covariate {k}": v for k, v in block.covariates.items()}}
            found.append(
                {name: None if np.isnan(values[d]) else values[d] for name, values in columns.items()}
                | {
                    "id": block.doc_id[d],
                    "weight": None if block.weight is None else block.weight[d],
                    "words": dict(
                        zip(block.terms[entries].tolist(), block.counts[entries].tolist(), strict=True)
                    ),
                }
            )
    return found


def files(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


@pytest.mark.parametrize("scheme", ["local", "memory"])
def test_what_is_appended_is_as_if_all_had_been_ingested_at_once(tmp_path, scheme):
    url = str(tmp_path / "a.corpus") if scheme == "local" else f"memory://dslda-{uuid.uuid4().hex}/a.corpus"
    names = [write_records(tmp_path / f"{i}.jsonl", rows) for i, rows in enumerate((FIRST, SECOND, THIRD))]
    before = ingest(names[0], url, partition_tokens=90, **FIELDS, **SETTINGS)
    for name in names[1:]:
        grown = ingest(name, url, append=True, partition_tokens=90)
    whole = ingest(
        names, partition_tokens=90, vocabulary=before, **FIELDS, stop_words=["fig"], lowercase=False
    )
    assert before.n_partitions > 1
    assert len(grown.manifest.appended) == 2
    assert grown.partitions[: before.n_partitions] == before.partitions
    assert documents(grown) == documents(whole)
    assert documents(grown)[60]["id"] == "60"
    assert np.array_equal(grown.vocabulary.document_frequency, whole.vocabulary.document_frequency)
    assert grown.levels == whole.levels
    assert (grown.n_documents, grown.n_tokens, grown.nnz, grown.n_empty) == (
        whole.n_documents,
        whole.n_tokens,
        whole.nnz,
        whole.n_empty,
    )
    given = [str(row["text"]).split() for row in (*FIRST, *SECOND, *THIRD)]
    assert grown.n_all_tokens == whole.n_all_tokens == sum(word != "fig" for words in given for word in words)
    assert grown.text_settings == before.text_settings
    assert grown.vocabulary_sha256 == before.vocabulary_sha256
    for found, expected in (
        (grown.response_summaries, whole.response_summaries),
        (grown.covariate_summaries, whole.covariate_summaries),
    ):
        for name, summary in expected.items():
            other = found[name]
            assert (other.n, other.missing, other.counts) == (summary.n, summary.missing, summary.counts)
            assert np.allclose([other.mean, other.variance], [summary.mean, summary.variance], rtol=1e-12)
    assert [entry["n_documents"] for entry in grown.provenance["appended"]] == [40, 9]
    if scheme == "memory":
        fs, root = fsspec.core.url_to_fs(url)
        fs.rm(root, recursive=True)


def test_what_was_left_out_is_counted_on_as_long_as_it_is_known(tmp_path):
    texts = [{"text": f"the pear {word}"} for word in ("apple", "apple", "plum", "of")]
    path = tmp_path / "a.corpus"
    first = ingest(write_records(tmp_path / "a.jsonl", texts), path, text="text", min_df=1, max_df=0.9)
    assert (first.n_tokens, first.n_all_tokens, first.too_frequent) == (4, 12, ("pear", "the"))
    assert first.new_share == 0.0
    more = write_records(tmp_path / "b.jsonl", [{"text": "the new apple and the old"}])
    grown = ingest(more, path, append=True)
    assert (grown.n_tokens, grown.n_all_tokens, grown.too_frequent) == (5, 18, ("pear", "the"))
    assert (grown.oov_share, grown.new_share) == (1 - 5 / 18, 1 - 5 / (18 - 8 - 2))
    other = ingest(more, text="text", vocabulary=grown)
    assert (other.n_tokens, other.n_all_tokens, other.too_frequent) == (1, 6, ("pear", "the"))
    assert other.new_share == 1 - 1 / (6 - 2)
    # an earlier release has written it, or appended to it
    metadata = json.loads((path / "zarr.json").read_text())
    for name in ("n_all_tokens", "n_too_frequent_tokens", "too_frequent", "manifest_sha256"):
        del metadata["attributes"][name]
    (path / "zarr.json").write_text(json.dumps(metadata))
    old = open_corpus(path)
    assert (old.n_all_tokens, old.oov_share, old.content_hash) == (None, None, grown.content_hash)
    grown = ingest(write_records(tmp_path / "c.jsonl", [{"text": "plum"}]), path, append=True)
    assert (grown.n_tokens, grown.n_all_tokens, grown.oov_share, grown.too_frequent) == (6, None, None, ())
    assert grown.new_share is None


def test_who_has_opened_the_corpus_reads_on_what_was_there(old, second):
    before = open_corpus(old)
    readers = pickle.loads(pickle.dumps([before.reader(p) for p in range(before.n_partitions)]))
    expected, stored = documents(before), files(old)
    grown = ingest(second, old, append=True)
    grown_frequency = grown.vocabulary.document_frequency
    assert documents(before) == expected
    grew = grown_frequency - before.vocabulary.document_frequency
    assert grew.sum() > 0
    assert sum(reader().n_documents for reader in readers) == before.n_documents
    assert grown.content_hash != before.content_hash
    now = files(old)
    assert {name: now[name] for name in stored if name != "zarr.json"} == {
        name: content for name, content in stored.items() if name != "zarr.json"
    }


def test_plain_zarr_reads_what_was_appended(old, second):
    grown = ingest(second, old, append=True)
    store = zarr.open_group(old, mode="r")
    (group,) = store.attrs["appended"]
    size = store.attrs["partitions"][-1]
    row = group["n_partitions"] - 1
    assert store.attrs["encoding-version"] == "2"
    arrays = store[group["path"]]
    assert np.array_equal(arrays["terms"][row, : size["nnz"]], grown.read(grown.n_partitions - 1).terms)
    assert np.array_equal(arrays["document_frequency"][:], grown.vocabulary.document_frequency)


def test_a_large_append_to_a_small_corpus_is_cut_as_a_large_corpus_is(tmp_path, old):
    """Not into as many partitions as would fit into the few rows of the old ones."""
    many = write_records(
        tmp_path / "many.jsonl", [row | {"text": " ".join(WORDS * 30)} for row in records(9000, 1)]
    )
    before = open_corpus(old)
    grown = ingest(many, old, append=True)
    assert grown.n_tokens > 1_500_000
    assert grown.n_partitions - before.n_partitions == 2
    assert max(p.n_tokens for p in before.partitions) < 100


def test_a_few_documents_that_are_alike_are_enough(tmp_path, old):
    grown = ingest(
        write_records(tmp_path / "one.jsonl", [FIRST[1] | {"key": key} for key in "ab"]), old, append=True
    )
    assert grown.n_documents == 62
    assert documents(grown)[-1] == documents(grown)[1] | {"id": "b"}


def test_metadata_that_a_killed_run_was_writing_are_removed_by_the_next(tmp_path):
    path = tmp_path / "a.corpus"
    ingest(write_records(tmp_path / "a.jsonl", FIRST), path, **FIELDS, **SETTINGS)
    ingest(write_records(tmp_path / "b.jsonl", SECOND[:5]), path, append=True)
    left = [path / "zarr.0f.partial", path / "appended" / "zarr.0f.partial", path / "appended" / "7-0123abcd"]
    for each in left[:2]:
        each.write_text("{")
    left[2].mkdir()
    theirs = path / "appended" / "notes.txt"
    theirs.write_text("not of dslda")
    ingest(write_records(tmp_path / "c.jsonl", SECOND[5:]), path, append=True)
    assert not any(each.exists() for each in left)
    assert theirs.exists()


@pytest.mark.parametrize("scheme", ["local", "memory"])
def test_the_same_documents_once_more_are_not_appended(tmp_path, scheme):
    """A job that is run again, though its first run had done its work: one warning, and not one bit of the corpus."""
    url = str(tmp_path / "a.corpus") if scheme == "local" else f"memory://dslda-{uuid.uuid4().hex}/a.corpus"
    named = [row | {"key": f"x{i}"} for i, row in enumerate(FIRST + SECOND)]
    ingest(write_records(tmp_path / "a.jsonl", named[:60]), url, partition_tokens=90, **FIELDS, **SETTINGS)
    june = write_records(tmp_path / "b.jsonl", named[60:])
    grown = ingest(june, url, append=True, partition_tokens=30)
    stored = files(tmp_path)
    for input_, n in ((june, 40), (tmp_path / "a.jsonl", 60)):
        with pytest.warns(
            DataWarning,
            match=rf"all {n} documents are in .*a.corpus already, .*the first: 'x.*nothing was app",
        ) as told:
            again = ingest(input_, url, append=True)
        assert len(told) == 1
        assert told[0].filename == __file__
        assert (again.content_hash, again.n_documents) == (grown.content_hash, 100)
        assert files(tmp_path) == stored
    if scheme == "memory":
        fs, root = fsspec.core.url_to_fs(url)
        fs.rm(root, recursive=True)


@pytest.mark.parametrize(
    "change", [{"text": "pear"}, {"rating": 99}, {"kind": "b"}, {"age": 99}, {"w": 0.5}, {"rating": None}]
)
def test_a_known_identifier_of_another_document_is_appended_with_a_warning(tmp_path, old, change):
    """Names that begin anew in every folder must lose no document."""
    assert FIRST[1]["kind"] != "b"
    with pytest.warns(
        DataWarning, match=r"1 of 1 documents that were appended has an identifier .*'3.1'\): "
    ):
        grown = ingest(write_records(tmp_path / "one.jsonl", [FIRST[1] | change]), old, append=True)
    assert grown.n_documents == 61


def test_documents_of_which_some_are_there_are_appended_with_a_warning(tmp_path, old):
    rows = [SECOND[1], FIRST[3], FIRST[2] | {"text": "pear"}, SECOND[0]]
    assert SECOND[0]["key"] is None
    with pytest.warns(
        DataWarning, match=r"2 of 4 documents that .*: '3.3', '3.2'\), 1 of them with the same"
    ):
        grown = ingest(write_records(tmp_path / "some.jsonl", rows), old, append=True)
    assert grown.n_documents == 64
    # one that has no identifier cannot be known
    with pytest.warns(DataWarning, match=r"1 of 2 documents that"):
        assert (
            ingest(write_records(tmp_path / "t.jsonl", [FIRST[0], FIRST[1]]), old, append=True).n_documents
            == 66
        )


def test_fields_of_other_names_and_the_settings_of_the_corpus_may_be_given(tmp_path, old, second):
    renamed = [{"body": row["text"], **{k: v for k, v in row.items() if k != "text"}} for row in SECOND]
    other = write_records(tmp_path / "renamed.jsonl", renamed)
    vocabulary = list(open_corpus(old).vocabulary.terms)
    arguments = FIELDS | {"text": "body", "response": ["kind", "rating"]} | SETTINGS
    ingest(other, old, append=True, vocabulary=vocabulary, **arguments)
    keyed = [row | {"key": row["key"] and f"again {row['key']}"} for row in SECOND]
    found = documents(ingest(write_records(second, keyed), old, append=True))
    for one, same in zip(found[60:100], found[100:], strict=True):
        assert one | {"id": ""} == same | {"id": ""}


@pytest.mark.parametrize(
    ("arguments", "changes", "message"),
    [
        ({"min_df": 2}, {}, r"min_df must be left out, or be that of the corpus .*, 1, got 2"),
        ({"lowercase": True}, {}, "lowercase must be left out, or be that of the corpus"),
        ({"stop_words": "english"}, {}, "stop_words must be left out"),
        ({"ngrams": (1, 2)}, {}, "ngrams must be left out"),
        ({"vocabulary": ["apple", "pear"]}, {}, "vocabulary must be left out, or be that of the corpus"),
        (
            {"response": "rating"},
            {},
            "response must be those of the corpus .*, 'rating', 'kind', got 'rating'",
        ),
        ({"covariates": ["age"], "categorical": ["kind"]}, {}, "covariates must be those of the corpus"),
        ({"categorical": ["kind"]}, {}, "categorical must be those of the corpus"),
        ({"words": "w", "counts": "c"}, {}, "documents must be texts, as those of the corpus"),
        ({"text": "body"}, {}, "no field 'body'"),
        (
            {},
            {"kind": "zebra"},
            "field 'kind' must hold one of the 3 levels that the corpus has, got 1 new: 'zebra'",
        ),
        ({}, {"shop": "west"}, "field 'shop' must hold one of the 2 levels"),
        ({}, {"rating": "five"}, "response 'rating' must be a number"),
        ({"overwrite": True}, {}, "append and overwrite exclude each other"),
        ({"out": None}, {}, "out must be the corpus to append to"),
        ({"partition_tokens": 0}, {}, "partition_tokens must be"),
    ],
)
def test_what_would_change_the_corpus_is_refused_and_leaves_it_as_it_was(
    tmp_path, old, arguments, changes, message
):
    name = write_records(tmp_path / "b.jsonl", [*SECOND[:5], SECOND[5] | changes])
    stored = files(tmp_path)
    with pytest.raises(InputError, match=message):
        ingest(name, **({"out": old, "append": True} | arguments))
    assert files(tmp_path) == stored


def test_only_a_corpus_is_appended_to(tmp_path, second):
    with pytest.raises(InputError, match="does not exist"):
        ingest(second, tmp_path / "new.corpus", append=True)
    zarr.create_group(tmp_path / "stars.model", attributes={"encoding-type": "dslda-model"})
    with pytest.raises(FormatError, match="is a model, not a corpus"):
        ingest(second, tmp_path / "stars.model", append=True)


def test_identifiers_and_weights_are_there_for_all_or_for_none(tmp_path):
    name = write_records(tmp_path / "a.jsonl", FIRST)
    bare = ingest(name, tmp_path / "bare.corpus", text="text", **SETTINGS)
    with pytest.raises(InputError, match="id must be left out: the stored documents have none"):
        ingest(name, tmp_path / "bare.corpus", append=True, id="key")
    with refused("weight"):
        ingest(name, tmp_path / "bare.corpus", append=True, weight="w")
    grown = ingest(name, tmp_path / "bare.corpus", append=True)
    assert [d["id"] for d in documents(grown)] == list(map(str, range(2 * bare.n_documents)))
    ingest(name, tmp_path / "weighted.corpus", text="text", weight="w", **SETTINGS)
    bag = dask.bag.from_sequence(["apple pear"], npartitions=1)
    with pytest.raises(InputError, match="has no field 'w' for the weight"):
        ingest(bag, tmp_path / "weighted.corpus", append=True)
    (tmp_path / "letter.txt").write_text("apple pear")
    with pytest.raises(
        InputError, match=r"text files have no weights, and the documents of .* have; append them as JSON"
    ):
        ingest(tmp_path / "letter.txt", tmp_path / "weighted.corpus", append=True, format="text")


def test_every_kind_of_input_can_be_appended(tmp_path):
    """Text files to records, whose responses they lack; a bag; LDA-C and a matrix to counted words."""
    texts = ingest(
        write_records(tmp_path / "a.jsonl", FIRST),
        tmp_path / "a.corpus",
        text="text",
        response="rating",
        **SETTINGS,
    )
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "b.txt").write_text("apple apple kiwi")
    with refused("id"):
        ingest(tmp_path / "letters", tmp_path / "a.corpus", append=True)
    bag = dask.bag.from_sequence([{"text": "apple apple kiwi"}, {"text": "plum", "rating": 2}], npartitions=2)
    grown = documents(ingest(bag, tmp_path / "a.corpus", append=True))
    index = texts.vocabulary.index
    assert [d["words"] for d in grown[60:]] == [{index["apple"]: 2, index["kiwi"]: 1}, {index["plum"]: 1}]
    assert [d["rating"] for d in grown[60:]] == [None, 2]

    named = ingest(
        write_records(tmp_path / "n.jsonl", FIRST),
        tmp_path / "n.corpus",
        text="text",
        id="key",
        response="rating",
        **SETTINGS,
    )
    grown = documents(ingest(tmp_path / "letters", tmp_path / "n.corpus", append=True))
    assert grown[60] == {"id": "b.txt", "weight": None, "rating": None, "words": grown[60]["words"]}
    assert grown[60]["words"] == {named.vocabulary.index["apple"]: 2, named.vocabulary.index["kiwi"]: 1}

    (tmp_path / "c.dat").write_text("2 0:1 2:3\n1 1:2\n")
    counted = ingest(tmp_path / "c.dat", tmp_path / "c.corpus", vocabulary=["x", "y", "z"])
    ingest(tmp_path / "c.dat", tmp_path / "c.corpus", append=True)
    grown = ingest(scipy.sparse.csr_matrix([[0, 0, 7]]), tmp_path / "c.corpus", append=True)
    words = write_records(tmp_path / "w.jsonl", [{"words": ["z", "new"], "counts": [4, 1]}])
    grown = ingest(words, tmp_path / "c.corpus", append=True)
    assert [d["words"] for d in documents(grown)] == [
        {0: 1, 2: 3},
        {1: 2},
        {0: 1, 2: 3},
        {1: 2},
        {2: 7},
        {2: 4},
    ]
    assert grown.n_all_tokens is None
    assert grown.vocabulary.document_frequency.tolist() == [2, 2, 4]
    assert counted.vocabulary.document_frequency.tolist() == [1, 1, 1]
    fields = {"words": "words", "counts": "counts"}
    known = ingest(words, tmp_path / "d.corpus", vocabulary=counted, **fields)
    assert (known.n_tokens, known.n_all_tokens) == (4, 5)
    # what is not in the vocabulary of LDA-C was lost before
    assert ingest(tmp_path / "c.dat", known.path, append=True).n_all_tokens is None


def test_empty_documents_are_told_of_those_that_are_new(tmp_path, old):
    name = write_records(tmp_path / "b.jsonl", [SECOND[1], SECOND[2] | {"text": "unknown words"}])
    with pytest.warns(DataWarning, match="1 of 2 documents has no term of the vocabulary"):
        ingest(name, old, append=True)


def test_an_append_to_what_has_changed_meanwhile_is_refused(old):
    """Two at once where nothing can be locked: the second to end is refused, and what it wrote is removed."""
    corpus = open_corpus(old)
    block = corpus.read(0, covariates=corpus.covariate_names, weight=True, doc_id=True)
    appenders = [
        CorpusAppender(
            corpus,
            vocabulary=Vocabulary(corpus.vocabulary.terms, np.ones(corpus.n_terms, dtype=int)),
            n_partitions=1,
            document_capacity=block.n_documents,
            entry_capacity=len(block.terms),
            id_capacity=1000,
            provenance={},
        )
        for _ in range(2)
    ]
    for appender in appenders:
        appender.prepare()
    written = [[appender.write_partition(0, block)] for appender in appenders]
    appenders[0].finish(written[0])
    with pytest.raises(OutputError, match="was changed by another run since it was opened"):
        appenders[1].finish(written[1])
    appenders[1].abort()
    grown = open_corpus(old)
    assert grown.n_documents == corpus.n_documents + block.n_documents
    assert {p.name for p in (old / "appended").iterdir()} == {
        "zarr.json",
        grown.manifest.appended[0].path.removeprefix("appended/"),
    }


def test_damage_to_what_was_appended_is_found_and_named(old, second):
    grown = ingest(second, old, append=True)
    (group,) = grown.manifest.appended
    (old / group.path / "terms" / "c" / "0" / "0").unlink()
    with pytest.raises(
        FormatError,
        match=f"partition {grown.n_partitions - 1}: the chunk {group.path}/terms/c/0/0 is missing",
    ):
        grown.read(grown.n_partitions - 1)
    (old / group.path / "document_frequency" / "c" / "0").unlink()
    with pytest.raises(FormatError, match=f"its chunk {group.path}/document_frequency/c/0 is missing"):
        len(grown.vocabulary)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "appended/../../other"}, r"\$.appended\[0\].path"),
        ({"path": "/etc"}, r"\$.appended\[0\].path"),
        ({"n_partitions": 0}, r"\$.appended\[0\].n_partitions"),
        ({"n_partitions": 10**6}, "must have fewer than the"),
        ({"path": None}, r"\$.appended\[0\].path"),
    ],
)
def test_groups_that_cannot_be_are_refused(old, second, change, message):
    data = ingest(second, old, append=True).manifest.to_json()
    data["appended"][0] |= change
    del data["manifest_sha256"]
    with pytest.raises(FormatError, match=message):
        Manifest.from_json(data, "x.corpus")


def test_a_corpus_that_was_appended_to_can_be_replaced(old, second):
    ingest(second, old, append=True)
    with pytest.raises(OutputExistsError):
        ingest(second, old, **FIELDS, **SETTINGS)
    assert ingest(second, old, overwrite=True, **FIELDS, **SETTINGS).n_documents == 40
    assert open_corpus(old).manifest.appended == ()
