"""A model directory: the same model back, in any process; and nothing else is taken for one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dslda.corpus.summary import ResponseSummary
from dslda.corpus.text import TextSettings
from dslda.corpus.vocabulary import Vocabulary
from dslda.evaluation.intervals import Intervals, conformal_intervals
from dslda.evaluation.topic_quality import TopicQuality
from dslda.evaluation.topic_stability import TopicStability
from dslda.exceptions import FormatError, InputError, OutputExistsError
from dslda.model import Model, load_model
from dslda.persistence.model_record import HeldOut, ModelRecord, OtherStart, Reference, TrainingSummary
from dslda.persistence.model_store import check_model_output, read_model, write_model
from dslda.storage.typed_json import canonical_json, json_sha256
from dslda.variational.design import CovariateColumn, Design
from dslda.variational.parameters import FitSpec, Parameters, Scaling
from dslda.variational.remainder import Remainder

READER = Path(__file__).resolve().parents[3] / "docs" / "read_model.py"
TERMS = ("apple", "fig", "kiwi", "naïve", "pear", "日本")


def a_record(n_topics: int = 3, terms: tuple[str, ...] | None = TERMS) -> ModelRecord:
    """A small record with awkward numbers in it."""
    generator = np.random.default_rng(0)
    n_terms = 6 if terms is None else len(terms)
    half = generator.normal(size=(n_topics, n_topics))
    return ModelRecord(
        parameters=Parameters(
            topics=np.ascontiguousarray(generator.dirichlet(np.ones(n_terms), n_topics).T),
            alpha=np.full(n_topics, 1 / n_topics),
            eta=generator.normal(size=n_topics),
            delta=np.array([1 / 3]),
        ),
        covariance=half @ half.T,
        design=Design("rating", Scaling(3.1, 0.7)),
        spec=FitSpec(n_topics=n_topics, response_weight=np.float64(2.5), seed=7),
        response="rating",
        response_summary=ResponseSummary.of([1.0, 2.0, 5.0, np.nan]),
        training=TrainingSummary(
            n_documents=4,
            n_labelled=3,
            n_empty=1,
            n_tokens=99,
            n_unconverged=0,
            n_iterations=2,
            converged=True,
            interrupted=False,
            held_out=HeldOut(2, "predictive_r2", 1 / 3, None),
        ),
        trace={"elbo": np.array([-10.1, -9.7]), "seconds": np.array([0.1, np.nan])},
        vocabulary=None if terms is None else Vocabulary(terms, np.arange(1, n_terms + 1)),
        text_settings=None if terms is None else TextSettings(min_df=1, max_df=1.0),
        fields={"text": "body"},
        corpus_hash="0" * 64,
        versions={"dslda": "0.1.0"},
        prevalence=generator.dirichlet(np.ones(n_topics)),
        quality=TopicQuality(
            npmi=np.array([1 / 3, -1 / 7, np.nan][:n_topics]),
            exclusivity=np.linspace(0.1, 0.7, n_topics),
            distinct_share=2 / 3,
        ),
    )


def a_record_of_classes() -> ModelRecord:
    """Classes, covariates of both kinds, and whatever else is optional."""
    generator = np.random.default_rng(1)
    plain = a_record()
    half = generator.normal(size=(2, 6, 6))
    covariates = (
        CovariateColumn("age", None, 40.5, 1 / 3),
        CovariateColumn("party", 1, 0.1, 1.0),
        CovariateColumn("party", 2, 0.5, 1.0),
    )
    return replace(
        plain,
        parameters=replace(
            plain.parameters,
            eta=generator.normal(size=(3, 2)),
            zeta=generator.normal(size=(3, 2)),
            delta=np.zeros(0),
        ),
        covariance=half @ half.transpose(0, 2, 1),
        design=Design(
            "stars", weight="weight", classes=(1.0, 5.0), class_weight=(0.5, 2.5), covariates=covariates
        ),
        spec=FitSpec(
            n_topics=3,
            family="categorical",
            family_options={"n_classes": 2, "form": "bound"},
            doc_topic_prior="asymmetric",
            ridge=0.5,
        ),
        classes=("1", "5"),
        levels={"party": ("D", "I", "R")},
        labels=("fruit", None, "Düfte"),
        training=replace(plain.training, oov_share=1 / 3, new_share=1 / 7),
        too_frequent=("and", "été"),
        base=np.array([-1 / 3, 1 / 3]),
    )


def a_record_of_distributions() -> ModelRecord:
    """Topics by full variational Bayes: with the sums of their Dirichlet parameters."""
    plain = a_record()
    return replace(
        plain,
        parameters=replace(plain.parameters, concentration=np.array([7.1, 1e9 / 3, 0.06])),
        spec=replace(plain.spec, topic_estimation="variational"),
    )


def a_record_of_starts() -> ModelRecord:
    """Two starts, and how far they agree."""
    plain = a_record()
    other = replace(plain.parameters, eta=plain.parameters.eta[::-1].copy())
    return replace(
        plain,
        other_starts=(OtherStart(other),),
        stability=TopicStability(np.array([1 / 3, 0.0, 1.0]), np.array([0.0, 1 / 7, 1.0])),
    )


def assert_same(one: ModelRecord, other: ModelRecord) -> None:
    for name in ("topics", "alpha", "eta", "delta", "zeta"):
        assert getattr(one.parameters, name).tobytes() == getattr(other.parameters, name).tobytes()
    assert one.parameters.topics.shape == other.parameters.topics.shape
    sums = [record.parameters.concentration for record in (one, other)]
    assert [None if s is None else s.tolist() for s in sums[:1]] == [
        None if s is None else s.tolist() for s in sums[1:]
    ]
    assert (one.covariance is None) == (other.covariance is None)
    if one.covariance is not None:
        assert one.covariance.tobytes() == other.covariance.tobytes()
    assert (one.prevalence is None) == (other.prevalence is None)
    if one.prevalence is not None:
        assert one.prevalence.tobytes() == other.prevalence.tobytes()
    assert (one.quality is None) == (other.quality is None)
    if one.quality is not None:
        assert one.quality.npmi.tobytes() == other.quality.npmi.tobytes()
        assert one.quality.exclusivity.tobytes() == other.quality.exclusivity.tobytes()
        assert one.quality.distinct_share == other.quality.distinct_share
    assert (one.stability is None) == (other.stability is None)
    if one.stability is not None:
        assert one.stability.words.tobytes() == other.stability.words.tobytes()
        assert one.stability.shares.tobytes() == other.stability.shares.tobytes()
    assert len(one.other_starts) == len(other.other_starts)
    assert (one.base is None) == (other.base is None)
    if one.base is not None:
        assert one.base.tobytes() == other.base.tobytes()
    assert {k: v.tobytes() for k, v in one.trace.items()} == {k: v.tobytes() for k, v in other.trace.items()}
    assert one.vocabulary == other.vocabulary
    for name in (
        "design",
        "classes",
        "levels",
        "spec",
        "response",
        "response_summary",
        "training",
        "text_settings",
        "too_frequent",
        "fields",
        "labels",
        "corpus_hash",
        "versions",
    ):
        assert getattr(one, name) == getattr(other, name), name


@pytest.mark.parametrize(
    "record",
    [
        a_record(),
        a_record(n_topics=1),
        a_record(terms=None),
        a_record_of_classes(),
        a_record_of_distributions(),
        a_record_of_starts(),
        replace(
            a_record(),
            covariance=None,
            prevalence=None,
            quality=None,
            trace={},
            response=None,
            corpus_hash=None,
        ),
    ],
    ids=["complete", "one topic", "no vocabulary", "classes", "distributions", "starts", "nothing optional"],
)
def test_every_field_comes_back(tmp_path: Path, record: ModelRecord) -> None:
    write_model(record, tmp_path / "a.model")
    assert_same(read_model(tmp_path / "a.model"), record)
    assert [p.name for p in tmp_path.iterdir()] == ["a.model"]


def test_a_model_lives_on_any_fsspec_file_system() -> None:
    url = "memory://models/deep/a.model"
    write_model(a_record(), url)
    with pytest.raises(OutputExistsError):
        write_model(a_record(), url)
    write_model(a_record(n_topics=2), url, overwrite=True)
    assert read_model(url).parameters.n_topics == 2


def test_a_model_from_before_there_was_a_choice_of_estimation_opens_as_the_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.model"
    write_model(a_record(), path)
    settings = json.loads((path / "zarr.json").read_text())["attributes"]["settings"]
    assert settings.pop("topic_estimation") == "map"
    edit_attributes(path, settings=settings)
    assert_same(read_model(path), a_record())


def test_a_model_from_before_unknown_words_were_counted_knows_no_share_of_them(tmp_path: Path) -> None:
    path = tmp_path / "a.model"
    record = a_record_of_classes()
    write_model(record, path)
    training = json.loads((path / "zarr.json").read_text())["attributes"]["training"]
    assert [training.pop(name) for name in ("oov_share", "new_share")] == [1 / 3, 1 / 7]
    edit_attributes(path, training=training, too_frequent=...)
    assert_same(
        read_model(path),
        replace(record, training=replace(record.training, oov_share=None, new_share=None), too_frequent=()),
    )
    for changes, message in (
        (
            {"training": training | {"oov_share": 1.5}},
            r"<= 1\.0 - at `\$\.training\.oov_share`",
        ),
        ({"training": training | {"new_share": "no"}}, r"got `str` - at `\$\.training\.new_share`"),
        ({"training": training, "too_frequent": ["b", "a"]}, "must be distinct strings"),
    ):
        edit_attributes(path, **changes)
        with pytest.raises(FormatError, match=message):
            read_model(path)


@pytest.mark.parametrize(
    ("concentration", "message"),
    [
        (None, r"'concentration' must be float64 of shape \(3,\)"),
        (np.ones(2), r"'concentration' must be float64 of shape \(3,\)"),
        (np.array([1.0, 0.0, 1.0]), "'concentration' has values that no model can have"),
        (np.array([1.0, np.nan, 1.0]), "'concentration' has values that no model can have"),
    ],
)
def test_topics_that_are_distributions_need_the_sums_of_their_parameters(
    tmp_path: Path, concentration: np.ndarray | None, message: str
) -> None:
    record = a_record_of_distributions()
    write_model(
        replace(record, parameters=replace(record.parameters, concentration=concentration)),
        tmp_path / "a.model",
    )
    with pytest.raises(FormatError, match=message):
        read_model(tmp_path / "a.model")


@pytest.mark.parametrize(
    ("family", "classes", "corrections", "message"),
    [
        ("binomial", None, np.ones((2, 3)), r"'level_corrections' must be float64 of shape \(1, 3\)"),
        ("binomial", ("no", "yes"), np.ones((2, 3)), r"must be float64 of shape \(1, 3\)"),
        ("ordinal", None, np.ones((1, 3)), r"must be float64 of shape \(2, 3\)"),
        ("ordinal", ("low", "medium", "high"), np.ones((1, 3)), r"must be float64 of shape \(2, 3\)"),
        ("binomial", None, np.full((1, 3), np.nan), "'level_corrections' has values that no model can have"),
    ],
)
def test_corrections_that_no_classes_can_have_are_refused(
    tmp_path: Path, family: str, classes: tuple[str, ...] | None, corrections: np.ndarray, message: str
) -> None:
    record = a_record()
    spoilt = replace(
        record,
        spec=replace(record.spec, family=family),
        classes=classes,
        parameters=replace(record.parameters, level_corrections=corrections),
    )
    write_model(spoilt, tmp_path / "a.model")
    with pytest.raises(FormatError, match=message):
        read_model(tmp_path / "a.model")


@pytest.mark.parametrize("values", [np.ones(2), np.array([0.5, -0.1, 1.0]), np.array([0.5, np.nan, 1.0])])
def test_a_stability_that_no_topics_can_have_is_refused(tmp_path: Path, values: np.ndarray) -> None:
    record = a_record_of_starts()
    write_model(replace(record, stability=TopicStability(np.ones(3), values)), tmp_path / "a.model")
    with pytest.raises(FormatError, match=r"'stability_shares' (must be float64|has values that no model)"):
        read_model(tmp_path / "a.model")


def a_record_of_intervals(intervals: Intervals) -> ModelRecord:
    reference = Reference(
        prediction_borders=np.arange(9.0),
        prediction_counts=np.ones(10, dtype=np.int64),
        topic_borders=np.zeros((3, 9)),
        topic_counts=np.ones((3, 10), dtype=np.int64),
        topic_means=np.full(3, 1 / 3),
        intervals=intervals,
    )
    return replace(a_record(), reference=reference)


def test_intervals_of_any_level_are_those_of_the_model_that_was_saved(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    predictions = random.normal(size=400)
    intervals = conformal_intervals(predictions, predictions + random.normal(size=400))
    assert intervals is not None
    write_model(a_record_of_intervals(intervals), tmp_path / "a.model")
    reference = read_model(tmp_path / "a.model").reference
    assert reference is not None
    assert reference.intervals is not None
    for level in (0.5, 0.9, 0.95):
        mine, theirs = intervals.at(level), reference.intervals.at(level)
        assert np.array_equal(mine.bounds, theirs.bounds)
        assert np.array_equal(mine.borders, theirs.borders)


@pytest.mark.parametrize(
    ("borders", "bounds"),
    [
        ([2.0], [[-1.0, 1.0], [1.0, -1.0]]),
        ([2.0], [[-1.0, 1.0], [np.nan, 1.0]]),
        ([2.0, 1.0], [[-1.0, 1.0]] * 3),
    ],
)
def test_bounds_that_are_in_no_order_are_refused(
    tmp_path: Path, borders: list[float], bounds: list[list[float]]
) -> None:
    write_model(a_record_of_intervals(Intervals(np.array(borders), np.array(bounds))), tmp_path / "a.model")
    with pytest.raises(FormatError, match="'reference_residuals' has values that no model can have"):
        read_model(tmp_path / "a.model")


@pytest.mark.parametrize("record", [a_record(), a_record_of_distributions()], ids=["points", "distributions"])
def test_another_process_loads_the_same_bits(tmp_path: Path, record: ModelRecord) -> None:
    model = Model(record)
    model.save(tmp_path / "a.model")
    documents = ["apple fig fig", "", "kiwi 日本 unknown"]
    code = (
        "import sys, dslda, numpy as np\n"
        "model = dslda.load_model(sys.argv[1])\n"
        f"sys.stdout.buffer.write(model.predict({documents!r}).tobytes() + model.topic_word.tobytes())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "a.model")],
        capture_output=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert found.stdout == model.predict(documents).tobytes() + model.topic_word.tobytes()


def test_the_format_is_readable_with_plain_zarr_and_numpy(tmp_path: Path) -> None:
    import zarr

    model = Model(a_record())
    model.save(tmp_path / "a.model")

    group = zarr.open_group(tmp_path / "a.model", mode="r")
    attributes = dict(group.attrs)
    assert (attributes["encoding-type"], attributes["encoding-version"]) == ("dslda-model", "1")
    scaling = attributes["design"]["scaling"]
    values = scaling["center"] + scaling["scale"] * group["eta"][:]
    errors = scaling["scale"] * np.sqrt(np.diagonal(group["covariance"][:]))
    data, offsets = group["vocabulary"][:].tobytes(), group["vocabulary_offsets"][:]
    terms = [data[a:b].decode() for a, b in pairwise(offsets)]

    for topic in model.topics(top=2):
        row = group["topics"][topic.topic]
        assert row.sum() == pytest.approx(1)
        assert [terms[t] for t in np.argsort(-row)[:2]] == list(topic.words)
    for row in model.coefficients():
        assert (values[row.topic], errors[row.topic]) == (row.coefficient, row.conditional_error)
    checksum = attributes.pop("manifest_sha256")
    assert json_sha256(attributes) == checksum


def test_manifest_and_arrays_are_those_of_the_specification(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
    section = text[text.index("## Model, versions 1 to 4") :]
    shown = json.loads(section.split("```json\n")[1].split("```")[0])
    write_model(a_record_of_classes(), tmp_path / "a.model")
    written = json.loads((tmp_path / "a.model" / "zarr.json").read_text())["attributes"]
    assert list(written) == list(shown)
    for name in ("design", "response", "training", "settings"):
        assert list(written[name]) == list(shown[name])
    assert list(written["design"]["covariates"][0]) == list(shown["design"]["covariates"][0])
    write_model(a_record_of_distributions(), tmp_path / "b.model")
    names = set(written["arrays"]) | {p.name for p in (tmp_path / "b.model").iterdir() if p.is_dir()}
    assert "concentration" in names
    write_model(a_record_of_starts(), tmp_path / "c.model")
    measured = {p.name for p in (tmp_path / "c.model").iterdir() if p.name.startswith("stability")}
    assert measured == {"stability_words", "stability_shares"}
    names |= measured
    for name in names:
        assert f"`{name}`" in section[: section.index("### Manifest")], name


def test_plain_zarr_reads_a_model_as_the_specification_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
    section = text[text.index("### Reading a model with zarr alone") :]
    code = section.split("```python\n")[1].split("```")[0]
    record = replace(a_record(), base=np.array([0.25]))
    Model(record).save(tmp_path / "stars.model")
    monkeypatch.chdir(tmp_path)
    names: dict = {"print": lambda *shown: None}
    exec(code, names)
    model = Model(record)
    assert sorted(names["coefficients"].tolist()) == [c.coefficient for c in model.coefficients()]
    assert names["vocabulary"] == list(TERMS)
    assert names["base"] == model.predict(["xyzzy"])[0]


def test_a_family_of_ones_own_must_be_known_to_predict(tmp_path: Path) -> None:
    spec = FitSpec(n_topics=3, family="tweedie")
    write_model(replace(a_record(), spec=spec), tmp_path / "a.model")
    model = load_model(tmp_path / "a.model")
    with pytest.raises(
        InputError, match=r"'tweedie'.*make it known with dslda\.families\.registry\.register"
    ):
        model.predict(["apple"])


def test_nothing_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_model(tmp_path / "no.model")


def test_what_is_there_is_not_overwritten_unasked(tmp_path: Path) -> None:
    write_model(a_record(), tmp_path / "a.model")
    with pytest.raises(OutputExistsError, match="is there already"):
        write_model(a_record(n_topics=2), tmp_path / "a.model")
    assert read_model(tmp_path / "a.model").parameters.n_topics == 3
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "dear.txt").write_text("dear")
    with pytest.raises(OutputExistsError, match="never replaced"):
        write_model(a_record(), tmp_path / "letters", overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.model", "letters"]


def test_a_path_that_cannot_be_written_is_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"a\.model cannot be written: Not a directory in"):
        check_model_output(tmp_path / "file" / "deep" / "a.model", overwrite=True)
    check_model_output(tmp_path / "new" / "deep" / "a.model", overwrite=False)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_failed_write_leaves_the_old_model_and_nothing_else(tmp_path: Path) -> None:
    write_model(a_record(), tmp_path / "a.model")
    broken = replace(a_record(), versions={"dslda": object()})
    with pytest.raises(TypeError):
        write_model(broken, tmp_path / "a.model", overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == ["a.model"]
    assert_same(read_model(tmp_path / "a.model"), a_record())


def edit_attributes(model: Path, **changes: object) -> None:
    """Change attributes as a careful program of another version would, checksum included."""
    metadata = json.loads((model / "zarr.json").read_text())
    attributes = metadata["attributes"]
    attributes.update(changes)
    del attributes["manifest_sha256"]
    for name in [n for n, v in attributes.items() if v is ...]:
        del attributes[name]
    attributes["manifest_sha256"] = json_sha256(attributes)
    (model / "zarr.json").write_bytes(canonical_json(metadata))


def edit_array(model: Path, name: str, **changes: object) -> None:
    arrays = json.loads((model / "zarr.json").read_text())["attributes"]["arrays"]
    edit_attributes(model, arrays=arrays | {name: arrays[name] | changes})


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))


def swap_digit(path: Path) -> None:
    path.write_text(path.read_text().replace('"n_documents": 4', '"n_documents": 5'))


DAMAGE = {
    "newer version": (lambda m: edit_attributes(m, **{"encoding-version": "5"}), "update dslda"),
    "a corpus": (
        lambda m: edit_attributes(m, **{"encoding-type": "dslda-corpus"}),
        "a corpus, not a model",
    ),
    "another zarr group": (lambda m: edit_attributes(m, **{"encoding-type": "anndata"}), "not a dslda model"),
    "attributes edited": (lambda m: swap_digit(m / "zarr.json"), "do not agree with their checksum"),
    "attributes truncated": (lambda m: truncate(m / "zarr.json"), "damaged or cut short"),
    "attributes gone": (lambda m: (m / "zarr.json").unlink(), "no zarr.json"),
    "setting of no meaning": (
        lambda m: edit_attributes(m, classes=3),
        r"Expected `array \| null`, got `int` - at `\$.classes`",
    ),
    "field gone": (lambda m: edit_attributes(m, settings=...), "missing required field `settings`"),
    "wrong size": (lambda m: edit_attributes(m, n_topics=4), "'topics' must be float64 of shape"),
    "family gone": (lambda m: edit_attributes(m, family=...), "missing required field `family`"),
    "another family": (
        lambda m: edit_attributes(m, family="poisson"),
        "`settings` must have .* the name of the family 'poisson'",
    ),
    "type of an array gone": (lambda m: edit_array(m, "topics", dtype=None), "Expected `str`, got `null`"),
    "chunk gone": (lambda m: (m / "topics/c/0/0").unlink(), "'topics' does not agree"),
    "chunk truncated": (lambda m: truncate(m / "topics/c/0/0"), "'topics' cannot be read"),
    "bit flipped": (lambda m: flip(m / "eta/c/0"), "'eta' cannot be read"),
    "array gone": (lambda m: shutil.rmtree(m / "vocabulary_offsets"), "'vocabulary_offsets' cannot be read"),
    "array metadata truncated": (lambda m: truncate(m / "alpha/zarr.json"), "'alpha' cannot be read"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_damage_is_refused(tmp_path: Path, case: str) -> None:
    break_it, message = DAMAGE[case]
    write_model(a_record(), tmp_path / "a.model")
    break_it(tmp_path / "a.model")
    with pytest.raises(FormatError, match=message) as caught:
        load_model(tmp_path / "a.model")
    assert str(tmp_path / "a.model") in str(caught.value)


def later_records() -> dict[str, tuple[ModelRecord, str, str]]:
    """Models with what came later than version 1, their version, and what they have."""
    plain, starts = a_record(), a_record_of_starts()
    spec, parameters = plain.spec, plain.parameters
    words = Remainder(np.ones(len(TERMS)), np.ones(3), 0.5)
    corrected = replace(parameters, level_corrections=np.zeros((1, 3)))
    of_two_levels = replace(starts, spec=replace(spec, family="binomial"))
    return {
        "conditional": (replace(plain, spec=replace(spec, objective="conditional")), "2", "'conditional'"),
        "words": (replace(plain, parameters=replace(parameters, remainder=words)), "2", "remainder_"),
        "starts": (starts, "3", "n_other_starts"),
        "corrections": (replace(of_two_levels, parameters=corrected), "4", "'level_corrections'"),
        "corrections of another start": (
            replace(of_two_levels, other_starts=(OtherStart(corrected),)),
            "4",
            "'start_2_level_corrections'",
        ),
    }


@pytest.mark.parametrize("case", later_records())
def test_what_came_after_the_version_of_a_model_is_refused(tmp_path: Path, case: str) -> None:
    record, version, name = later_records()[case]
    path = tmp_path / "a.model"
    write_model(record, path)
    edit_attributes(path, **{"encoding-version": version})
    read_model(path)
    before = str(int(version) - 1)
    edit_attributes(path, **{"encoding-version": before})
    says = f"{name}.* must not be there in a model of version '{before}', but from version '{version}' on"
    with pytest.raises(FormatError, match=says):
        read_model(path)
    # the reader without dslda knows arrays alone
    if case != "conditional":
        done = subprocess.run(
            [sys.executable, READER, path, "{}"], capture_output=True, text=True, check=False
        )
        assert f"models of version {before} have no" in done.stderr


def test_attributes_and_arrays_unknown_to_this_release_are_passed_over(tmp_path: Path) -> None:
    """So that what a later release adds is no reason for an older one to refuse, as `prevalence` was not."""
    write_model(a_record(), tmp_path / "a.model")
    path = tmp_path / "a.model"
    arrays = json.loads((path / "zarr.json").read_text())["attributes"]["arrays"]
    shutil.copytree(path / "eta", path / "mood")
    edit_attributes(path, mood="good", arrays=arrays | {"mood": arrays["eta"]})
    assert_same(read_model(tmp_path / "a.model"), a_record())
