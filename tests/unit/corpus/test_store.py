from __future__ import annotations

import json
import os
import pickle
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

from dslda.corpus.block import DocumentBlock
from dslda.corpus.manifest import Manifest
from dslda.corpus.store import Corpus, open_corpus
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.corpus.writer import CorpusWriter, check_corpus_output
from dslda.exceptions import FormatError, InputError, OutputExistsError
from dslda.model import load_model
from dslda.storage.location import Location
from dslda.storage.output import move_into_place
from tests.helpers.errors import refused

VOCABULARY = Vocabulary(["apple", "birne", "çilek", "苹果", "\N{RED APPLE}"], [5, 4, 3, 2, 1])
RESPONSES = ("rating", "a/b: größe?", "..")
SIZES = (3, 0, 4)


def make_block(n_documents: int, *, seed: int = 0, n_terms: int = len(VOCABULARY)) -> DocumentBlock:
    """Random documents, the first one empty, with everything a document can have."""
    random = np.random.default_rng(seed)
    matrix = random.integers(0, 3, (n_documents, n_terms))
    matrix[:1] = 0
    rows, columns = np.nonzero(matrix)
    rating = random.normal(size=n_documents)
    rating[1::2] = np.nan
    return DocumentBlock(
        indptr=np.concatenate(([0], np.cumsum((matrix > 0).sum(axis=1)))).astype(np.int64),
        terms=columns.astype(np.int32),
        counts=matrix[rows, columns].astype(np.int32),
        responses={
            "rating": rating,
            RESPONSES[1]: np.full(n_documents, np.nan),
            "..": np.arange(n_documents) * 1.0,
        },
        covariates={"age": random.normal(size=n_documents)},
        weight=random.uniform(size=n_documents),
        doc_id=tuple(f"d{seed}.{i} é\N{RED APPLE}" for i in range(n_documents)),
    )


BLOCKS = [make_block(n, seed=i) for i, n in enumerate(SIZES)]


def make_writer(path, blocks=BLOCKS, **changes) -> CorpusWriter:
    arguments = {
        "vocabulary": VOCABULARY,
        "text_settings": TextSettings(stop_words="english"),
        "n_partitions": len(blocks),
        "document_capacity": max(b.n_documents for b in blocks),
        "entry_capacity": max(len(b.terms) for b in blocks),
        "id_capacity": max(len("".join(b.doc_id or ()).encode()) for b in blocks),
        "responses": RESPONSES,
        "covariates": ("age",),
        "has_weight": True,
        "provenance": {"sources": ["reviews.jsonl"]},
        "n_all_tokens": 2**40,
        "n_too_frequent_tokens": 3,
        "too_frequent": ("fruit", "taste"),
    }
    return CorpusWriter(path, **(arguments | changes))


def write(path, blocks=BLOCKS, **changes) -> Corpus:
    writer = make_writer(path, blocks, **changes)
    writer.prepare()
    writer.finish([writer.write_partition(i, block) for i, block in enumerate(blocks)])
    return open_corpus(path)


def read_all(corpus: Corpus, partition: int) -> DocumentBlock:
    return corpus.read(partition, covariates=corpus.covariate_names, weight=True, doc_id=True)


def read_everything(path: Path) -> None:
    """All that damage to partition 2 or to the vocabulary can spoil."""
    corpus = open_corpus(path)
    assert len(corpus.vocabulary) == corpus.n_terms
    read_all(corpus, 2)


def assert_same(found: DocumentBlock, expected: DocumentBlock) -> None:
    for name in ("indptr", "terms", "counts", "weight"):
        array, wanted = getattr(found, name), getattr(expected, name)
        assert array.dtype == wanted.dtype
        assert np.array_equal(array, wanted)
    for name in ("responses", "covariates"):
        assert list(getattr(found, name)) == list(getattr(expected, name))
        for key, values in getattr(expected, name).items():
            assert np.array_equal(getattr(found, name)[key], values, equal_nan=True)
    assert found.doc_id == expected.doc_id


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("pristine") / "fruit.corpus"
    write(path)
    return path


@pytest.fixture
def copy(pristine, tmp_path) -> Path:
    """A corpus to be damaged."""
    return Path(shutil.copytree(pristine, tmp_path / "fruit.corpus"))


@pytest.fixture
def memory_url():
    """A fresh place on fsspec's memory file system."""
    folder = f"memory://dslda-{uuid.uuid4().hex}"
    yield f"{folder}/fruit.corpus"
    fs, root = fsspec.core.url_to_fs(folder)
    if fs.exists(root):
        fs.rm(root, recursive=True)


@pytest.fixture(params=["local", "memory"])
def path(request, tmp_path):
    """A free place, local and remote."""
    return (
        str(tmp_path / "fruit.corpus") if request.param == "local" else request.getfixturevalue("memory_url")
    )


# Writing and reading


def test_corpus_comes_back_as_it_was_written(path):
    corpus = write(path)
    assert (corpus.n_documents, corpus.n_terms, corpus.n_partitions) == (7, 5, 3)
    assert corpus.nnz == sum(len(b.terms) for b in BLOCKS)
    assert corpus.n_tokens == sum(b.n_tokens for b in BLOCKS)
    assert corpus.n_empty == 2
    assert corpus.vocabulary == VOCABULARY
    assert corpus.vocabulary.document_frequency.tolist() == [5, 4, 3, 2, 1]
    assert corpus.vocabulary_sha256 == VOCABULARY.sha256
    assert corpus.text_settings == TextSettings(stop_words="english")
    assert corpus.response_names == RESPONSES
    assert corpus.covariate_names == ("age",)
    assert corpus.has_weight
    assert corpus.document_offsets.tolist() == [0, 3, 3, 7]
    assert corpus.provenance["sources"] == ["reviews.jsonl"]
    for i, block in enumerate(BLOCKS):
        assert_same(read_all(corpus, i), block)


def test_summaries_are_those_of_all_documents(pristine):
    summaries = open_corpus(pristine).response_summaries
    rating = np.concatenate([b.responses["rating"] for b in BLOCKS])
    assert summaries["rating"].n == np.count_nonzero(~np.isnan(rating))
    assert summaries["rating"].missing == np.count_nonzero(np.isnan(rating))
    assert summaries["rating"].mean == pytest.approx(np.nanmean(rating))
    assert summaries["rating"].variance == pytest.approx(np.nanvar(rating))
    assert [summary.kind for summary in summaries.values()] == ["real", "missing", "count"]


def test_only_what_is_asked_for_is_read(pristine):
    corpus = open_corpus(pristine)
    block = corpus.read(0, responses=[])
    assert (block.responses, block.covariates, block.weight, block.doc_id) == ({}, {}, None, None)
    assert list(corpus.read(0).responses) == list(RESPONSES)
    assert list(corpus.read(0, responses=["..", "rating"]).responses) == ["..", "rating"]


def test_read_arrays_are_the_callers_own(pristine):
    block = read_all(open_corpus(pristine), 2)
    for array in (block.indptr, block.terms, block.counts, block.responses["rating"], block.weight):
        assert array.flags.writeable
        assert array.flags.c_contiguous


def test_corpus_without_columns_gives_positions_as_identifiers(tmp_path):
    changes = {"responses": (), "covariates": (), "has_weight": False, "id_capacity": None}
    bare = [DocumentBlock(b.indptr, b.terms, b.counts) for b in BLOCKS]
    corpus = write(tmp_path / "bare.corpus", bare, **changes, vocabulary=Vocabulary(VOCABULARY.terms))
    assert corpus.vocabulary.document_frequency is None
    assert not corpus.has_doc_id
    block = corpus.read(2, weight=True, doc_id=True)
    assert block.weight is None
    assert block.doc_id == ("3", "4", "5", "6")


def test_corpus_of_empty_documents_and_empty_partitions_is_valid(tmp_path):
    nothing = make_block(0)
    corpus = write(tmp_path / "empty.corpus", [make_block(1), nothing, nothing])
    assert (corpus.n_documents, corpus.n_tokens, corpus.n_empty) == (1, 0, 1)
    for i, n in enumerate((1, 0, 0)):
        assert read_all(corpus, i).n_documents == n


DOCUMENTS = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 4), st.integers(1, 2**31 - 1)),
        st.one_of(st.floats(-1e100, 1e100), st.just(np.nan)),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    ),
    max_size=4,
)


@settings(max_examples=12, deadline=None)
@given(st.lists(DOCUMENTS, min_size=1, max_size=3))
def test_any_documents_come_back(partitions):
    path = f"memory://dslda-{uuid.uuid4().hex}.corpus"
    blocks = []
    for documents in partitions:
        counts = [dict(sorted(document.items())) for document, _, _ in documents]
        y = np.array([response for _, response, _ in documents], dtype=np.float64)
        blocks.append(
            DocumentBlock(
                indptr=np.concatenate(([0], np.cumsum([len(c) for c in counts]))).astype(np.int64),
                terms=np.array([t for c in counts for t in c], dtype=np.int32),
                counts=np.array([n for c in counts for n in c.values()], dtype=np.int32),
                responses={"y": y},
                weight=np.abs(np.nan_to_num(y)),
                doc_id=tuple(name for _, _, name in documents),
            )
        )
    try:
        corpus = write(path, blocks, responses=("y",), covariates=())
        for i, block in enumerate(blocks):
            assert_same(read_all(corpus, i), block)
    finally:
        fsspec.filesystem("memory").rm(path, recursive=True)


def test_missing_values_of_any_bit_pattern_come_back_as_missing(tmp_path):
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001], dtype=np.uint64).view(
        np.float64
    )
    block = DocumentBlock(
        np.zeros(4, dtype=np.int64),
        np.zeros(0, dtype=np.int32),
        np.zeros(0, dtype=np.int32),
        responses={"y": odd},
    )
    corpus = write(
        tmp_path / "x.corpus", [block], responses=("y",), covariates=(), has_weight=False, id_capacity=None
    )
    assert np.isnan(corpus.read(0).responses["y"]).all()


def test_partitions_written_at_once_and_in_any_order_are_the_same_corpus(tmp_path):
    blocks = [make_block(n, seed=n) for n in range(1, 8)]
    one = write(tmp_path / "one.corpus", blocks)
    writer = make_writer(tmp_path / "many.corpus", blocks)
    writer.prepare()
    sent = pickle.dumps(writer)
    order = np.random.default_rng(0).permutation(len(blocks)).tolist()
    with ThreadPoolExecutor(8) as pool:
        written = list(pool.map(lambda i: pickle.loads(sent).write_partition(i, blocks[i]), order))
    writer.finish(pickle.loads(pickle.dumps(written)))
    many = open_corpus(tmp_path / "many.corpus")
    assert many.content_hash == one.content_hash
    assert many.response_summaries == one.response_summaries
    with ThreadPoolExecutor(8) as pool:
        for found, block in zip(
            pool.map(lambda i: read_all(many, i), range(len(blocks))), blocks, strict=True
        ):
            assert_same(found, block)


def test_partition_can_be_written_again(tmp_path):
    writer = make_writer(tmp_path / "x.corpus")
    writer.prepare()
    for _ in range(2):
        written = [writer.write_partition(i, block) for i, block in enumerate(BLOCKS)]
    writer.finish(written)
    assert_same(read_all(open_corpus(tmp_path / "x.corpus"), 2), BLOCKS[2])


def test_content_hash_is_the_same_for_a_copy_elsewhere(pristine, memory_url):
    one, other = open_corpus(pristine), write(memory_url, provenance={"sources": ["elsewhere"]})
    assert one.content_hash == other.content_hash
    changed = [*BLOCKS[:2], make_block(4, seed=9)]
    assert write(memory_url, changed, overwrite=True).content_hash != one.content_hash


def test_corpus_and_reader_and_writer_pickle_small(pristine):
    corpus = open_corpus(pristine)
    assert corpus.vocabulary
    copy_ = pickle.loads(pickle.dumps(corpus))
    assert_same(read_all(copy_, 2), BLOCKS[2])
    assert copy_.content_hash == corpus.content_hash
    reader = corpus.reader(2, covariates=["age"], weight=True, doc_id=True)
    assert_same(pickle.loads(pickle.dumps(reader))(), BLOCKS[2])
    assert len(pickle.dumps(reader)) < 2000
    large = Vocabulary(f"term{i}" for i in range(10_000))
    assert len(pickle.dumps(make_writer("x.corpus", vocabulary=large))) < 3000


def test_repr_is_one_informative_line(pristine):
    line = repr(open_corpus(pristine))
    assert "7 documents, 5 terms" in line
    assert (
        "3 partitions, responses: 'rating' (real numbers), 'a/b: größe?' (no value), '..' (whole numbers)"
        in line
    )
    assert "\n" not in line


def test_plain_zarr_reads_a_corpus_as_the_specification_shows(pristine, monkeypatch):
    text = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
    section = text[text.index("### Reading a partition with zarr alone") :]
    code = section.split("```python\n")[1].split("```")[0].replace("p = 1", "p = 2")
    monkeypatch.chdir(pristine.parent)
    names: dict = {"print": lambda *shown: None}
    exec(code, names)
    expected = BLOCKS[2]
    assert np.array_equal(names["indptr"], expected.indptr)
    assert np.array_equal(names["terms"], expected.terms)
    assert np.array_equal(names["counts"], expected.counts)
    assert np.array_equal(names["rating"], expected.responses["rating"], equal_nan=True)
    assert tuple(names["vocabulary"]) == VOCABULARY.terms


def test_manifest_and_arrays_are_those_of_the_specification(pristine):
    text = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
    shown = json.loads(text.split("```json\n")[1].split("```")[0])
    assert Manifest.from_json(shown, "docs").n_documents == 7  # with the right checksum of itself
    written = json.loads((pristine / "zarr.json").read_text())["attributes"]
    assert list(written) == list(shown)
    for name in ("text_settings", "provenance"):
        assert list(written[name]) == list(shown[name])
    for name in ("responses", "covariates", "partitions"):
        assert list(written[name][0]) == list(shown[name][0])
    for array in pristine.rglob("zarr.json"):
        name = array.parent.relative_to(pristine).as_posix()
        metadata = json.loads(array.read_text())
        if metadata["node_type"] == "array":
            stem = name.replace("/0", "/<i>").replace("/1", "/<i>").replace("/2", "/<i>")
            assert f"| `{stem}` | {metadata['data_type']} |" in text
            assert [codec["name"] for codec in metadata["codecs"]] == ["bytes", "blosc", "crc32c"]
        assert metadata.get("consolidated_metadata") is None


def test_corpus_is_found_from_any_working_directory(pristine, monkeypatch, tmp_path):
    monkeypatch.chdir(pristine.parent)
    corpus = open_corpus("fruit.corpus")
    monkeypatch.chdir(tmp_path)
    assert Path(corpus.path).is_absolute()
    assert_same(read_all(corpus, 0), BLOCKS[0])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"partition": 3}, r"partition must be in 0..2, got 3"),
        ({"partition": -1}, "partition must be in 0..2, got -1"),
        (
            {"partition": 0, "responses": ["stars"]},
            "response 'stars' is not in the corpus, which has: 'rating', 'a/b",
        ),
        (
            {"partition": 0, "responses": "rating"},
            "responses must be a list of names, got the string 'rating'",
        ),
        ({"partition": 0, "covariates": ["size"]}, "covariate 'size' is not in the corpus, which has: 'age'"),
    ],
)
def test_what_is_not_in_the_corpus_is_refused_by_name(pristine, arguments, message):
    with pytest.raises(InputError, match=message):
        open_corpus(pristine).read(**arguments)


# What a writer refuses


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_partitions": 0}, "n_partitions must be at least 1, got 0"),
        ({"vocabulary": Vocabulary([])}, "a corpus must have at least one term"),
        ({"responses": ("a", "a")}, "responses must be distinct names"),
        ({"covariates": ("",)}, "covariates must be distinct names that are not empty"),
        (
            {"entry_capacity": 2**29},
            "entry_capacity must be in 0..536870656, got 536870912; use smaller partitions",
        ),
        ({"document_capacity": -1}, "document_capacity must be in"),
        ({"provenance": {"x": {1, 2}}}, "provenance must be what JSON can hold"),
        ({"provenance": {"x": np.nan}}, "provenance must be what JSON can hold"),
    ],
)
def test_wrong_writer_is_refused(tmp_path, changes, message):
    with pytest.raises(InputError, match=message):
        make_writer(tmp_path / "x.corpus", **changes)


def with_columns(**columns) -> DocumentBlock:
    b = BLOCKS[2]
    kept = {name: getattr(b, name) for name in ("responses", "covariates", "weight", "doc_id")}
    return DocumentBlock(b.indptr, b.terms, b.counts, **(kept | columns))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (with_columns(responses={}), "the block must have the response 'rating'"),
        (with_columns(responses=BLOCKS[2].responses | {"..": np.array([0, np.inf, 0, np.inf])}),
         r"response '..' must be finite or missing, and is not in 2 documents, first in document 'd2.1"),
        (with_columns(covariates={}), "the block must have the covariate 'age'"),
        (with_columns(covariates={"age": np.array([0, 0, np.inf, 0])}), "covariate 'age' must be finite"),
        (with_columns(weight=None), "the block must have weights, got none"),
        (with_columns(weight=np.array([1, 1, 1, -1.0])), "weight must be finite and not negative"),
        (with_columns(doc_id=None), "an identifier for each of its 4 documents"),
        (with_columns(doc_id=("a", "b", "\ud800", "d")), "identifier of document 2 must be text that UTF-8"),
        (make_block(4, n_terms=6), "has a term outside 0..4"),
        (make_block(9), "array .* has room for"),
    ],
)  # fmt: skip
def test_wrong_block_is_refused_with_its_partition(tmp_path, block, message):
    writer = make_writer(tmp_path / "x.corpus")
    writer.prepare()
    with pytest.raises(InputError, match=f"^partition 2: .*{message}"):
        writer.write_partition(2, block)
    with refused("partition"):
        writer.write_partition(3, BLOCKS[0])


def test_every_partition_must_be_written_once(tmp_path):
    writer = make_writer(tmp_path / "x.corpus")
    writer.prepare()
    written = [writer.write_partition(i, block) for i, block in enumerate(BLOCKS)]
    for wrong in (written[:2], [*written, written[0]], []):
        with pytest.raises(InputError, match=r"partitions 0..2 must be written once each"):
            writer.finish(wrong)
    writer.finish(written)


# Names, overwriting, clean-up


def listing(path: str) -> set[str]:
    """Everything beside a store."""
    fs, root = fsspec.core.url_to_fs(os.path.dirname(path))
    fs.invalidate_cache()
    return (
        {name.removeprefix(root).strip("/") for name in fs.ls(root, detail=False)}
        if fs.exists(root)
        else set()
    )


def test_local_name_appears_only_with_the_complete_corpus(tmp_path):
    path = tmp_path / "deep" / "er" / "x.corpus"
    writer = make_writer(path)
    assert not path.parent.exists()
    writer.prepare()
    written = [writer.write_partition(i, block) for i, block in enumerate(BLOCKS)]
    assert not path.exists()
    writer.finish(written)
    assert listing(str(path)) == {"x.corpus"}


def test_remote_corpus_without_manifest_is_unfinished(memory_url):
    writer = make_writer(memory_url)
    writer.prepare()
    with pytest.raises(FormatError, match="is unfinished, it has no manifest yet"):
        open_corpus(memory_url)
    with pytest.raises(OutputExistsError, match="is there already"):
        check_corpus_output(memory_url)
    assert write(memory_url, overwrite=True).n_documents == 7
    assert listing(memory_url) == {"fruit.corpus"}


def test_output_that_exists_is_refused_unless_overwritten(path):
    write(path)
    for attempt in (lambda: check_corpus_output(path), make_writer(path).prepare):
        with pytest.raises(
            OutputExistsError, match="is there already; choose another path, or give overwrite=True"
        ):
            attempt()
    check_corpus_output(path, overwrite=True)
    changed = [*BLOCKS, make_block(2, seed=7)]
    corpus = write(path, changed, overwrite=True)
    assert corpus.n_documents == 9
    assert_same(read_all(corpus, 3), changed[3])
    assert listing(path) == {"fruit.corpus"}


def test_replaced_corpus_can_be_read_until_the_new_one_is_complete(path):
    old = write(path)
    changed = [*BLOCKS, make_block(2, seed=7)]
    writer = make_writer(path, changed, overwrite=True)
    writer.prepare()
    written = [writer.write_partition(i, block) for i, block in enumerate(changed)]
    assert_same(read_all(open_corpus(path), 2), BLOCKS[2])
    writer.finish(written)
    assert open_corpus(path).n_documents == 9
    with pytest.raises(FormatError, match="open it again"):
        old.read(2)


def test_abort_removes_what_was_written_and_nothing_else(path):
    refused = make_writer(path)
    write(path)
    with pytest.raises(OutputExistsError):
        refused.prepare()
    refused.abort()
    replacing = make_writer(path, overwrite=True)
    replacing.prepare()
    replacing.write_partition(0, BLOCKS[0])
    replacing.abort()
    replacing.abort()
    assert listing(path) == {"fruit.corpus"}
    assert_same(read_all(open_corpus(path), 2), BLOCKS[2])


def test_abort_of_a_new_corpus_leaves_nothing(path):
    writer = make_writer(path)
    writer.prepare()
    writer.write_partition(0, BLOCKS[0])
    writer.abort()
    assert listing(path) == set()
    with pytest.raises(RuntimeError, match="nothing can be written after"):
        writer.write_partition(1, BLOCKS[1])


def test_abort_after_the_end_keeps_the_corpus(path):
    writer = make_writer(path)
    writer.prepare()
    writer.finish([writer.write_partition(i, block) for i, block in enumerate(BLOCKS)])
    writer.abort()
    assert open_corpus(path).n_documents == 7


@pytest.mark.parametrize("what", ["folder", "file", "zarr", "model", "damaged"])
def test_what_is_not_a_corpus_is_never_replaced(path, what):
    fs, root = fsspec.core.url_to_fs(path)
    if what == "file":
        fs.makedirs(os.path.dirname(root), exist_ok=True)
        fs.pipe_file(root, b"my thesis")
    elif what == "folder":
        fs.makedirs(root)
        fs.pipe_file(f"{root}/thesis.txt", b"my thesis")
    else:
        kind = {"zarr": {}, "model": {"encoding-type": "dslda-model"}, "damaged": {}}[what]
        zarr.create_group(Location.of(path).store(read_only=False), attributes=kind)
        if what == "damaged":
            fs.pipe_file(f"{root}/zarr.json", b"{")
    before = fs.find(root)
    for attempt in (
        lambda: check_corpus_output(path, overwrite=True),
        make_writer(path, overwrite=True).prepare,
    ):
        with pytest.raises(OutputExistsError, match="is not a dslda-corpus, so it is never replaced"):
            attempt()
    assert fs.find(root) == before


def test_output_that_appears_meanwhile_is_kept(tmp_path):
    path = tmp_path / "x.corpus"
    writer = make_writer(path)
    writer.prepare()
    written = [writer.write_partition(i, block) for i, block in enumerate(BLOCKS)]
    write(path, BLOCKS[:1])
    with pytest.raises(OutputExistsError):
        writer.finish(written)
    writer.abort()
    assert open_corpus(path).n_documents == 3
    assert listing(str(path)) == {"x.corpus"}


def test_corpus_is_back_in_its_place_when_the_new_one_cannot_be_moved_there(copy):
    place = Location.of(copy)
    with pytest.raises(FileNotFoundError):
        move_into_place(place.sibling("partial"), place, encoding_type="dslda-corpus", overwrite=True)
    assert_same(read_all(open_corpus(copy), 2), BLOCKS[2])
    assert listing(str(copy)) == {"fruit.corpus"}


def test_empty_folder_is_free(tmp_path):
    path = tmp_path / "x.corpus"
    path.mkdir()
    assert write(path).n_documents == 7


def test_link_to_a_corpus_stays_a_link(tmp_path):
    write(tmp_path / "real.corpus", BLOCKS[:1])
    link = tmp_path / "link.corpus"
    link.symlink_to("real.corpus")
    assert write(link, overwrite=True).n_documents == 7
    assert link.is_symlink()
    assert open_corpus(tmp_path / "real.corpus").n_documents == 7


# Damage


def chunks_of_partition_2(path: Path) -> list[str]:
    return sorted(str(f.relative_to(path)) for f in path.rglob("c/2/0"))


ALL_FILL = ("response/1",)
ROWS = (
    "indptr",
    "terms",
    "counts",
    "response/0",
    "response/2",
    "covariates/0",
    "weight",
    "doc_id",
    "doc_id_offsets",
)


def test_damage_tests_cover_every_array(pristine):
    assert chunks_of_partition_2(pristine) == sorted(f"{name}/c/2/0" for name in ROWS)


@pytest.mark.parametrize("array", ROWS)
def test_missing_chunk_is_named(copy, array):
    (copy / array / "c/2/0").unlink()
    corpus = open_corpus(copy)
    with pytest.raises(
        FormatError, match=f"fruit.corpus: partition 2: the chunk {array}/c/2/0 is missing; copy"
    ):
        read_all(corpus, 2)
    assert_same(read_all(corpus, 0), BLOCKS[0])


def test_missing_chunk_of_a_remote_corpus_is_named(memory_url):
    corpus = write(memory_url)
    fsspec.filesystem("memory").rm_file(f"{memory_url}/terms/c/2/0")
    with pytest.raises(FormatError, match="partition 2: the chunk terms/c/2/0 is missing"):
        corpus.read(2)


@pytest.mark.parametrize("array", [*ROWS, "vocabulary", "vocabulary_offsets", "document_frequency"])
def test_flipped_bit_anywhere_in_a_chunk_is_found(copy, array):
    chunk = (
        next((copy / array / "c").rglob("0"))
        if array.startswith(("voc", "document"))
        else copy / array / "c/2/0"
    )
    intact = chunk.read_bytes()
    for position in np.linspace(0, len(intact) - 1, 3).astype(int):
        broken = bytearray(intact)
        broken[position] ^= 1 << (position % 8)
        chunk.write_bytes(broken)
        with pytest.raises(FormatError, match=f"array {array} is damaged"):
            read_everything(copy)


@pytest.mark.parametrize("keep", [0, 20, -1])
@pytest.mark.parametrize("array", ["terms", "vocabulary"])
def test_truncated_chunk_is_found(copy, array, keep):
    chunk = copy / array / ("c/2/0" if array == "terms" else "c/0")
    chunk.write_bytes(chunk.read_bytes()[:keep])
    with pytest.raises(FormatError, match=f"array {array} is damaged"):
        read_everything(copy)


@pytest.mark.parametrize("array", ["indptr", "response/2", "doc_id_offsets"])
def test_chunk_of_another_partition_is_found(copy, array):
    shutil.copy(copy / array / "c/0/0", copy / array / "c/2/0")
    with pytest.raises(FormatError, match=f"partition 2: .*{array}.* checksum in the manifest do not agree"):
        read_all(open_corpus(copy), 2)


@pytest.mark.parametrize("name", ["vocabulary", "vocabulary_offsets", "document_frequency"])
def test_missing_chunk_of_the_vocabulary_is_named(copy, name):
    (copy / name / "c/0").unlink()
    with pytest.raises(FormatError, match=f"the vocabulary is damaged, its chunk {name}/c/0 is missing"):
        open_corpus(copy).vocabulary  # noqa: B018


def test_vocabulary_of_another_corpus_is_found(copy, tmp_path):
    other = Vocabulary(["elppa", *VOCABULARY.terms[1:]])
    write(tmp_path / "other.corpus", vocabulary=other)
    shutil.copy(tmp_path / "other.corpus/vocabulary/c/0", copy / "vocabulary/c/0")
    with pytest.raises(
        FormatError, match="the vocabulary is damaged, it and its hash in the manifest do not agree"
    ):
        open_corpus(copy).vocabulary  # noqa: B018


@pytest.mark.parametrize("array", ["terms", "response/0", "vocabulary"])
def test_missing_array_is_named(copy, array):
    shutil.rmtree(copy / array)
    with pytest.raises(FormatError, match=f"the array {array} is missing"):
        read_everything(copy)


@pytest.mark.parametrize(
    ("array", "field", "value"),
    [
        ("terms", "data_type", "int16"),
        ("terms", "shape", [2, 14]),
        ("counts", "shape", [3, 1]),
        ("terms", "codecs", []),
    ],
)
def test_array_of_other_shape_or_type_is_named(copy, array, field, value):
    metadata = json.loads((copy / array / "zarr.json").read_text())
    (copy / array / "zarr.json").write_text(json.dumps(metadata | {field: value}))
    with pytest.raises(FormatError, match=f"partition 2: array {array} (must be|is damaged)"):
        open_corpus(copy).read(2)


def test_truncated_metadata_of_an_array_is_named(copy):
    file = copy / "terms/zarr.json"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(FormatError, match="array terms is damaged"):
        open_corpus(copy).read(2)


@pytest.mark.parametrize("keep", [0, 1, 100, 1000, -3])
def test_truncated_manifest_is_refused(copy, keep):
    file = copy / "zarr.json"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(
        FormatError, match=r"fruit.corpus: its manifest zarr.json is damaged or cut short \(.*; copy it"
    ):
        open_corpus(copy)


def test_flipped_bits_in_the_manifest_are_found(copy):
    file = copy / "zarr.json"
    intact = file.read_bytes()
    content = open_corpus(copy).content_hash
    for position in range(0, len(intact), 41):
        broken = bytearray(intact)
        broken[position] ^= 1
        file.write_bytes(broken)
        try:
            corpus = open_corpus(copy)
        except FormatError:
            continue
        assert chr(intact[position]) in " \n" or corpus.content_hash == content


def test_a_folder_of_scores_is_called_so(tmp_path):
    (tmp_path / "manifest.json").write_text("{}")
    with pytest.raises(
        FormatError, match=r"is a folder of scores, neither corpus nor model; look at it with"
    ):
        open_corpus(tmp_path)


def test_missing_manifest_is_refused(copy):
    (copy / "zarr.json").unlink()
    with pytest.raises(FormatError, match=r"has lost its manifest, there is no zarr.json in it"):
        open_corpus(copy)


def test_newer_version_is_refused(copy):
    metadata = json.loads((copy / "zarr.json").read_text())
    metadata["attributes"]["encoding-version"] = "3"
    (copy / "zarr.json").write_text(json.dumps(metadata))
    with pytest.raises(FormatError, match=r"is a corpus of version '3'.* update dslda"):
        open_corpus(copy)


def test_model_in_place_of_a_corpus_is_refused(tmp_path):
    zarr.create_group(
        tmp_path / "stars.model", attributes={"encoding-type": "dslda-model", "encoding-version": "1"}
    )
    with pytest.raises(FormatError, match=r"stars.model is a model, not a corpus"):
        open_corpus(tmp_path / "stars.model")


@pytest.mark.parametrize("scheme", ["", "memory://"])
def test_path_with_nothing_is_refused(tmp_path, scheme):
    with pytest.raises(InputError, match=r"nowhere.corpus does not exist"):
        open_corpus(f"{scheme}{tmp_path}/nowhere.corpus")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", "its zarr.json is not that of a zarr group"),
        (b"[]", "its zarr.json is not that of a zarr group"),
        (b'{"node_type": "group", "attributes": {}}', "is not a dslda corpus"),
    ],
)
def test_what_is_not_a_corpus_is_refused(tmp_path, content, message):
    (tmp_path / "zarr.json").write_bytes(content)
    with pytest.raises(FormatError, match=message):
        open_corpus(tmp_path)


def test_file_in_place_of_a_corpus_is_refused(tmp_path):
    (tmp_path / "reviews.jsonl").write_text("{}")
    for read in (open_corpus, load_model):
        with pytest.raises(FormatError, match=r"reviews.jsonl is a file, .* dslda ingest makes a corpus"):
            read(tmp_path / "reviews.jsonl")
    fsspec.filesystem("memory").pipe_file("/dslda/reviews.jsonl", b"{}")
    with pytest.raises(FormatError, match=r"memory://dslda/reviews.jsonl is a file, "):
        open_corpus("memory://dslda/reviews.jsonl")


def test_folder_in_place_of_a_manifest_is_refused(tmp_path):
    (tmp_path / "zarr.json" / "mine").mkdir(parents=True)
    for read in (open_corpus, load_model):
        with pytest.raises(FormatError, match=r"its manifest zarr.json must be a file, it is a folder; copy"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("", "must be a string or path that is not empty"),
        (3, "must be a string or path"),
        ("nosuch://bucket/x", "nosuch://bucket/x cannot be opened"),
        ("memory://", "must name a folder, got the root of a file system"),
        ("/", "must name a folder"),
    ],
)
def test_path_that_is_none_is_refused(wrong, message):
    with pytest.raises(InputError, match=message):
        open_corpus(wrong)


def test_credentials_are_not_shown():
    location = Location.of("memory://a/b.corpus", {"token": "secret"})
    assert "secret" not in repr(location)
