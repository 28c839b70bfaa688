from __future__ import annotations

import copy
import hashlib
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dslda.corpus.manifest import Manifest, PartitionInfo
from dslda.corpus.store import Corpus
from dslda.corpus.summary import DISTINCT_LIMIT, ResponseSummary, StoredSummary
from dslda.corpus.text import TextSettings
from dslda.exceptions import FormatError, InputError
from dslda.storage.location import Location
from dslda.storage.typed_json import canonical_json, decode, json_sha256
from dslda.storage.zarr_arrays import checksum

MANIFEST = Manifest(
    n_terms=4,
    vocabulary_sha256="ab" * 32,
    has_document_frequency=True,
    has_weight=False,
    has_doc_id=True,
    text_settings=TextSettings(ngrams=(1, 2)),
    responses={
        "rating": ResponseSummary.of([1.0, 2.5, math.nan]),
        "none/at all": ResponseSummary.of([math.nan] * 3),
        "color": ResponseSummary.of([2.0, 0.0, math.nan]),
    },
    covariates={"age": ResponseSummary.of([3.0, 4.0, 5.0]), "größe": ResponseSummary.of([1.0, 0.0, 1.0])},
    levels={"color": ("", "blue\nish", "🍎"), "größe": ("L", "XL")},
    partitions=(
        PartitionInfo(2, 3, 5, 0, "0" * 16, {"response/0": "1" * 16}),
        PartitionInfo(1, 0, 0, 1, "2" * 16, {"response/0": "3" * 16}),
        PartitionInfo(0, 0, 0, 0, "4" * 16, {"response/0": "5" * 16}),
    ),
    provenance={"sources": ["a.jsonl"], "skipped": 3},
    n_all_tokens=10,
    n_too_frequent_tokens=2,
    too_frequent=("and", "été"),
)
OPTIONAL = ("n_all_tokens", "n_too_frequent_tokens", "too_frequent")
"""Fields that corpora of earlier releases are without."""


def through_json(data):
    return json.loads(json.dumps(data, allow_nan=False))


def resealed(data):
    """The manifest with the checksum made right again, as a writer of another kind would."""
    rest = {name: value for name, value in data.items() if name != "manifest_sha256"}
    return rest | {"manifest_sha256": json_sha256(rest)}


def test_manifest_comes_back_from_json():
    copy_ = Manifest.from_json(through_json(MANIFEST.to_json()), "x.corpus")
    assert copy_.to_json() == MANIFEST.to_json()
    assert copy_.partitions == MANIFEST.partitions
    assert copy_.responses["rating"] == MANIFEST.responses["rating"]
    assert copy_.covariates == MANIFEST.covariates
    assert copy_.levels == MANIFEST.levels
    assert (copy_.n_documents, copy_.nnz, copy_.n_tokens) == (3, 3, 5)
    assert (copy_.n_all_tokens, copy_.n_too_frequent_tokens) == (10, 2)
    corpus = Corpus(Location("x.corpus", local=True), copy_)
    assert (corpus.oov_share, corpus.new_share, corpus.too_frequent) == (
        1 - 5 / 10,
        1 - 5 / 8,
        ("and", "été"),
    )


def test_a_corpus_of_an_earlier_release_does_not_know_its_unknown_words():
    data = {name: value for name, value in through_json(MANIFEST.to_json()).items() if name not in OPTIONAL}
    old = Manifest.from_json(resealed(data), "x.corpus")
    corpus = Corpus(Location("x.corpus", local=True), old)
    assert (corpus.n_all_tokens, corpus.oov_share, corpus.new_share) == (None, None, None)
    assert corpus.too_frequent == ()
    assert old.content_hash == MANIFEST.content_hash
    assert Manifest.from_json(through_json(old.to_json()), "x.corpus") == old


def test_manifest_of_another_writer_may_lack_the_checksum_and_have_more_fields():
    data = through_json(MANIFEST.to_json()) | {"colour": "blue"}
    del data["manifest_sha256"]
    assert Manifest.from_json(data, "x.corpus").content_hash == MANIFEST.content_hash


def test_content_hash_is_of_content_only():
    def changed(**fields):
        data = MANIFEST.to_json()
        data.update(fields)
        return Manifest.from_json(resealed(data), "x").content_hash

    data = MANIFEST.to_json()
    assert changed(provenance={"created": "now"}) == MANIFEST.content_hash
    assert changed(vocabulary_sha256="cd" * 32) != MANIFEST.content_hash
    assert changed(text_settings=TextSettings().to_json()) != MANIFEST.content_hash
    covariates = copy.deepcopy(data["covariates"])
    covariates[0]["mean"] = 4.5
    assert changed(covariates=covariates) == MANIFEST.content_hash
    covariates[1]["levels"] = ["XL", "XXL"]
    assert changed(covariates=covariates) != MANIFEST.content_hash
    covariates[1] = data["covariates"][1] | {"name": "size"}
    assert changed(covariates=covariates) != MANIFEST.content_hash
    partitions = copy.deepcopy(data["partitions"])
    partitions[2]["column_checksums"]["response/0"] = "6" * 16
    assert changed(partitions=partitions) != MANIFEST.content_hash


@pytest.mark.parametrize("version", ["3", 1, None, "1.1"])
def test_other_version_is_refused_with_the_remedy(version):
    data = MANIFEST.to_json() | {"encoding-version": version}
    with pytest.raises(FormatError, match=f"x.corpus is a corpus of version {version!r}.* update dslda"):
        Manifest.from_json(data, "x.corpus")


def test_newer_version_is_refused_before_its_fields_are_looked_at():
    with pytest.raises(FormatError, match="update dslda"):
        Manifest.from_json({"encoding-type": "dslda-corpus", "encoding-version": "9", "rows": 3}, "x.corpus")


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({}, "x is not a dslda corpus"),
        ({"encoding-type": "anndata", "encoding-version": "0.1.0"}, "x is not a dslda corpus"),
        ({"encoding-type": "dslda-model", "encoding-version": "1"}, "x is a model, not a corpus"),
        ({"encoding-type": "dslda-corpus", "encoding-version": "1"}, "x is unfinished"),
    ],
)
def test_what_is_not_a_finished_corpus_is_refused(attributes, message):
    with pytest.raises(FormatError, match=message):
        Manifest.from_json(attributes, "x")


def test_edited_manifest_is_refused():
    data = MANIFEST.to_json()
    data["text_settings"]["lowercase"] = False
    with pytest.raises(FormatError, match="does not agree with its own checksum"):
        Manifest.from_json(data, "x")


REQUIRED = [
    name
    for name in MANIFEST.to_json()
    if name not in ("manifest_sha256", "encoding-type", "encoding-version", *OPTIONAL)
]


@pytest.mark.parametrize("name", REQUIRED)
def test_missing_field_is_named(name):
    data = MANIFEST.to_json()
    del data[name]
    with pytest.raises(FormatError, match=f"x: manifest: Object missing required field `{name}`; copy"):
        Manifest.from_json(resealed(data), "x")


@pytest.mark.parametrize("name", [*REQUIRED, *OPTIONAL])
def test_field_of_wrong_type_is_named(name):
    data = MANIFEST.to_json() | {name: -1.5}
    with pytest.raises(FormatError, match=rf"x: manifest: Expected .*, got `float` - at `\$\.{name}`"):
        Manifest.from_json(resealed(data), "x")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("n_documents",), 4, "`n_documents` must be the sum over partitions, 3, got 4"),
        (("n_tokens",), 6, "`n_tokens` must be the sum"),
        (("n_all_tokens",), 6, "`n_all_tokens` must be at least `n_tokens` and .* together, 7, got 6"),
        (("too_frequent",), ["b", "a"], "`too_frequent` must be distinct strings in the order"),
        (("too_frequent",), ["a", 1], r"Expected `str`, got `int` - at `\$.too_frequent\[1\]`"),
        (("nnz",), True, r"Expected `int`, got `bool` - at `\$.nnz`"),
        (("partitions", 1, "nnz"), -1, r"Expected `int` >= 0 - at `\$.partitions\[1\].nnz`"),
        (("partitions", 1), 7, r"Expected `object`, got `int` - at `\$.partitions\[1\]`"),
        (
            ("partitions", 0, "n_empty"),
            3,
            r"`n_empty` must be at most `n_documents`.* - at `\$.partitions\[0\]`",
        ),
        (
            ("partitions", 0, "checksum"),
            None,
            r"Expected `str`, got `null` - at `\$.partitions\[0\].checksum`",
        ),
        (
            ("partitions", 0, "column_checksums", "response/0"),
            1,
            r"Expected `str`, got `int` - at `\$.partitions\[0\].column_checksums",
        ),
        (("responses", 0, "name"), 3, r"Expected `str`, got `int` - at `\$.responses\[0\].name`"),
        (("responses", 0, "mean"), "1", r"Expected `float \| null`, got `str` - at `\$.responses\[0\].mean`"),
        (
            ("responses", 0, "variance"),
            -1,
            r"`minimum` must not exceed `maximum` nor `variance` be negative - at `\$.responses\[0\]`",
        ),
        (("responses", 0, "whole"), 0, "Expected `bool"),
        (
            ("responses", 0, "distinct"),
            [None],
            r"Expected `float`, got `null` - at `\$.responses\[0\].distinct\[0\]`",
        ),
        (("responses", 0, "distinct"), 3, "Expected `array"),
        (("responses", 1, "name"), "rating", "names of `responses` must be distinct"),
        (("covariates", 1, "name"), "age", "names of `covariates` must be distinct"),
        (
            ("covariates", 0, "mean"),
            None,
            r"`mean` must not be `null` where `n` is not 0 - at `\$.covariates\[0\]`",
        ),
        (("covariates", 0, "n"), 2, "`counts` must say how many of `n` = 2 have each distinct value"),
        (("responses", 1, "missing"), 2, "`n` and `missing` of 'none/at all' must add up"),
        (("responses", 2, "levels"), None, r"Expected `array`, got `null` - at `\$.responses\[2\].levels`"),
        (
            ("responses", 2, "levels"),
            {"a": 1},
            r"Expected `array`, got `object` - at `\$.responses\[2\].levels`",
        ),
        (
            ("responses", 2, "levels"),
            ["a", "b", 3],
            r"Expected `str`, got `int` - at `\$.responses\[2\].levels\[2\]`",
        ),
        (("responses", 2, "levels"), ["a", "b", "b"], "`levels` must be distinct strings in the order"),
        (("responses", 2, "levels"), ["a", "b", "\ud800"], "`levels` must be distinct strings"),
        (("responses", 2, "levels"), ["b", "a", "c"], "`levels` must be distinct strings in the order"),
        (
            ("responses", 2, "levels"),
            ["a", "b"],
            r"the values must be codes 0..1 of the levels.* - at `\$.responses\[2\]`",
        ),
        (("responses", 2, "levels"), [], "the values must be codes"),
        (
            ("responses", 2, "minimum"),
            -1,
            "the values must be codes 0..2 of the levels, got a summary from -1",
        ),
        (("responses", 2, "whole"), False, "the values must be codes 0..2"),
        (("responses", 2, "distinct"), [0, 9], "the values must be codes 0..2"),
        (
            ("covariates", 1, "levels"),
            ["L"],
            r"the values must be codes 0..0 of the levels.* - at `\$.covariates\[1\]`",
        ),
        (("responses", 2, "name"), "größe", "'größe' must have the same levels as response and as covariate"),
        (("text_settings", "min_df"), {"documents": 0}, "x: manifest: text settings: min_df must be"),
    ],
)
def test_wrong_field_is_named_with_its_place(path, value, message):
    data = copy.deepcopy(MANIFEST.to_json())
    inner = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(FormatError, match=message):
        Manifest.from_json(resealed(data), "x")


def test_a_covariate_may_be_missing_and_a_categorical_response_everywhere():
    data = copy.deepcopy(MANIFEST.to_json())
    data["covariates"][0] |= {"n": 2, "missing": 1}
    data["covariates"][0]["counts"][0] -= 1
    assert Manifest.from_json(resealed(data), "x").covariates["age"].missing == 1
    data = copy.deepcopy(MANIFEST.to_json())
    data["responses"][1]["levels"] = []
    assert Manifest.from_json(resealed(data), "x").levels["none/at all"] == ()


def test_checksum_is_that_of_the_specification():
    a, b = np.array([1, 2, 3], dtype=np.int32), np.array([0.5], dtype=np.float64)
    expected = hashlib.sha256(a.astype("<i4").tobytes() + b.astype("<f8").tobytes()).hexdigest()[:16]
    assert checksum(a, b) == expected
    assert checksum(a.astype(">i4"), b) == expected
    assert checksum(np.array([1, 9, 2, 9, 3], dtype=np.int32)[::2], b) == expected
    assert checksum() == hashlib.sha256().hexdigest()[:16]


def test_canonical_json_has_one_form():
    assert canonical_json({"b": [1.5, None], "a": "é"}) == '{"a":"é","b":[1.5,null]}'.encode()
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"a": math.nan})


VALUES = st.lists(
    st.one_of(st.floats(-1e6, 1e6), st.just(math.nan), st.integers(-3, 3).map(float)), max_size=40
)


@given(st.lists(VALUES, max_size=6))
def test_merged_summaries_are_the_summary_of_all_values(parts):
    merged = ResponseSummary.merge_all(ResponseSummary.of(part) for part in parts)
    whole = ResponseSummary.of([value for part in parts for value in part])
    for name in ("n", "missing", "whole", "distinct", "kind"):
        assert getattr(merged, name) == getattr(whole, name), name
    for name in ("minimum", "maximum"):
        assert np.array_equal(getattr(merged, name), getattr(whole, name), equal_nan=True)
    scale = 1 + max((abs(v) for part in parts for v in part if v == v), default=0)
    assert np.isclose(merged.mean, whole.mean, atol=1e-10 * scale, equal_nan=True)
    assert np.isclose(merged.variance, whole.variance, atol=1e-10 * scale**2, equal_nan=True)
    back = decode(through_json(merged.to_json()), StoredSummary, place="x").summary()
    assert back.to_json() == merged.to_json()


def test_summaries_are_equal_when_they_say_the_same():
    for values in ([], [math.nan], [1.0, 2.0]):
        one, same = ResponseSummary.of(values), ResponseSummary.of(values[::-1])
        assert one == same
        assert hash(one) == hash(same)
        assert one != ResponseSummary.of([*values, math.nan])
    assert ResponseSummary() != "nothing"


def test_variance_of_values_far_from_zero_does_not_cancel():
    values = 1e9 + np.random.default_rng(0).normal(size=4000)
    merged = ResponseSummary.merge_all(ResponseSummary.of(part) for part in np.split(values, 40))
    assert merged.variance == pytest.approx(np.var(values), rel=1e-6)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], "missing"),
        ([math.nan], "missing"),
        ([3.5, 3.5], "constant"),
        ([0, 1, 0, math.nan], "binary"),
        ([0, 2, 5], "count"),
        ([-1, 1], "integer"),
        ([0.5, 1], "real"),
        (np.arange(200.0), "count"),
    ],
)
def test_kind_is_what_the_values_look_like(values, kind):
    summary = ResponseSummary.of(values)
    assert summary.kind == kind
    assert summary.to_json()["kind"] == kind


def test_distinct_values_are_listed_up_to_a_limit():
    few, more = np.arange(DISTINCT_LIMIT), np.arange(DISTINCT_LIMIT + 1)
    assert ResponseSummary.of(few).distinct == tuple(few)
    assert ResponseSummary.of(more).distinct is None
    assert ResponseSummary.of(few).merge(ResponseSummary.of(more[-1:])).distinct is None


@pytest.mark.parametrize("values", [[1.0, math.inf], [1e200, -1e200]])
def test_response_whose_square_overflows_is_refused(values):
    with pytest.raises(InputError, match="a value and its square must be finite"):
        ResponseSummary.of(values)
