"""A fit that goes on from a checkpoint ends with the bits of one that never stopped; others' checkpoints are refused."""

from __future__ import annotations

import logging
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

import dask.bag as db
import numpy as np
import pytest
from scipy import sparse

from dslda.engine.em import IterationRecord
from dslda.exceptions import EngineError, FormatError, InputError, OutputError, OutputExistsError
from dslda.ingestion.ingest import ingest
from dslda.persistence.checkpoint_store import read_checkpoint
from dslda.training.checkpoint import model_of_fit
from dslda.training.fitting import LIBRARIES
from dslda.training.identity import is_of_fit
from dslda.training.train import train
from dslda.versions import library_versions
from tests.helpers.progress import AtIteration, SilentProgress, interrupt

pytestmark = pytest.mark.filterwarnings("ignore::dslda.exceptions.ConvergenceWarning")

D, V = 90, 40


@pytest.fixture(scope="module")
def data() -> dict[str, Any]:
    generator = np.random.default_rng(7)
    topics = generator.dirichlet(np.full(V, 0.1), 3)
    theta = generator.dirichlet(np.full(3, 0.5), D)
    counts = generator.poisson(30 * theta @ topics).astype(np.int32)
    return {
        "counts": sparse.csr_array(counts),
        "y": theta @ [1.0, 3.0, 5.0] + generator.normal(0, 0.1, D),
        "n": generator.poisson(np.exp(theta @ [0.0, 1.0, 2.0])).astype(float),
        "k": np.array(["red", "green", "blue"])[theta.argmax(axis=1)],
        "x": generator.normal(size=D),
        "w": generator.uniform(1.0, 2.0, D),
    }


@pytest.fixture(scope="module")
def corpus(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_corpus(data, tmp_path_factory.mktemp("checkpoints") / "a.corpus")


def make_corpus(data: dict[str, Any], path: Path) -> Path:
    ingest(
        data["counts"],
        path,
        vocabulary=[f"w{t}" for t in range(V)],
        response={name: data[name] for name in "ynk"},
        covariates={name: data[name] for name in "xw"},
        categorical="k",
    )
    return path


def fail() -> None:
    raise EngineError("the cluster is gone")


FITS = {
    "gaussian": {"response": "y", "n_topics": 3},
    "subset, one alpha": {"response": "y", "n_topics": 2, "documents": np.arange(0, D, 2), "doc_topic_prior": "auto"},
    "counts with a covariate": {"response": "n", "family": "negative_binomial", "n_topics": 3, "covariates": "x"},
    "counts with a heavy response": {
        "response": "n", "family": "poisson", "n_topics": 3, "objective": "joint", "response_weight": 8.0, "covariates": "x",
    },
    "classes, alpha for each topic": {
        "response": "k", "family": "categorical", "n_topics": 3, "doc_topic_prior": "asymmetric", "covariates": "x",
    },
}  # fmt: skip


@pytest.mark.parametrize("case", FITS)
def test_a_fit_goes_on_with_the_same_bits(corpus: Path, tmp_path: Path, case: str, assert_same: Any) -> None:
    settings = FITS[case] | {"max_iter": 9, "tol": 0.0}
    whole = train(corpus, **settings)
    kept = {"checkpoint": tmp_path / "c", "checkpoint_every": 1}
    cut = train(corpus, **settings, **kept, progress=AtIteration(interrupt, at=3))
    assert cut.training.interrupted
    assert (
        read_checkpoint(tmp_path / "c").n_iterations == 2
    )  # the third is done again: its M-step was not reached
    with pytest.raises(EngineError, match="the cluster is gone") as raised:
        train(corpus, **settings, **kept, resume=True, progress=AtIteration(fail, at=4))
    assert raised.value.__notes__ == [
        f"the checkpoint {tmp_path}/c holds 5 iterations; train again with resume=True to go on"
    ]
    progress = AtIteration(fail, at=0)
    assert_same(train(corpus, **settings, **kept, resume=True, progress=progress), whole)
    assert progress.resumed_from == [5]


def test_a_fit_that_has_ended_gives_its_model_again_and_goes_on_with_a_higher_cap(
    corpus: Path, tmp_path: Path, assert_same: Any
) -> None:
    settings = {"response": "y", "n_topics": 3, "tol": 0.0, "checkpoint": tmp_path / "c"}
    short = train(corpus, **settings, max_iter=3)
    assert_same(train(corpus, **settings, max_iter=3, resume=True), short)
    longer = train(corpus, **settings, max_iter=5, resume=True)
    assert_same(longer, train(corpus, **settings | {"checkpoint": None}, max_iter=5))
    with pytest.raises(
        InputError, match=r"max_iter must be at least 5 to go on .* which holds 4 iterations, got 3"
    ):
        train(corpus, **settings, max_iter=3, resume=True)


def test_a_fit_that_has_converged_gives_its_model_again(
    corpus: Path, tmp_path: Path, assert_same: Any
) -> None:
    settings = {"response": "y", "n_topics": 2, "tol": 1e-3, "checkpoint": tmp_path / "c"}
    first = train(corpus, **settings)
    assert first.training.converged
    assert_same(train(corpus, **settings, resume=True), first)
    assert_same(train(corpus, **settings, resume=True), first)  # however often


def test_a_complete_model_of_the_fit_is_given_back_and_any_other_ignored(
    corpus: Path, tmp_path: Path
) -> None:
    settings = {"response": "y", "n_topics": 2, "tol": 0.0, "checkpoint": tmp_path / "c", "resume": True}
    complete = train(corpus, **settings, max_iter=3)
    complete.save(tmp_path / "m.model")
    earlier = model_of_fit(tmp_path / "m.model", tmp_path / "c")
    assert earlier is not None
    assert train(corpus, **settings, max_iter=3, earlier=earlier) is earlier
    assert train(corpus, **settings, max_iter=5, earlier=earlier).training.n_iterations == 5
    assert model_of_fit(tmp_path / "no.model", tmp_path / "c") is None
    other = train(corpus, **settings | {"checkpoint": tmp_path / "d"}, max_iter=5, seed=1)
    assert not is_of_fit(other.record, read_checkpoint(tmp_path / "c"))
    assert train(corpus, **settings, max_iter=5, earlier=other) is not other


def test_a_matrix_has_checkpoints_too(data: dict[str, Any], tmp_path: Path, assert_same: Any) -> None:
    settings = {"n_topics": 2, "tol": 0.0, "max_iter": 6, "covariates": {"x": data["x"]}}
    whole = train(data["counts"], response=data["y"], **settings)
    settings |= {"checkpoint": tmp_path / "c"}
    train(data["counts"], response=data["y"], **settings, progress=AtIteration(interrupt, at=3))
    for other in (
        {"response": data["y"][::-1].copy()},
        {"response": data["y"], "covariates": {"x": data["x"] + np.eye(D)[0]}},
    ):
        with pytest.raises(
            InputError, match=r"must be of this fit, got one of another: the data .* have changed: 90 doc"
        ):
            train(data["counts"], **settings | other, resume=True)
    assert_same(train(data["counts"], response=data["y"], **settings, resume=True), whole)


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "n_topics": ({"n_topics": 4}, r"n_topics 3 then, 4 now;"),
    "alpha": ({"doc_topic_prior": 0.5}, r"doc_topic_prior \(alpha\) 'auto' then, 0.5 now"),
    "rho": ({"response_weight": 2.0}, r"response_weight \(rho\) 1.0 then, 2.0 now"),
    "topic_prior": ({"topic_prior": 0.0}, "topic_prior 0.01 then, 0.0 now"),
    "granularity": ({"granularity": "token"}, "granularity 'term' then, 'token' now"),
    "tol": ({"tol": 0.5}, "tol 0.0 then, 0.5 now"),
    "sweeps": (
        {"max_sweeps": 7, "sweep_tol": 0.1},
        "max_sweeps 100 then, 7 now; sweep_tol 0.0001 then, 0.1 now",
    ),
    "floor": ({"dispersion_floor": 0.5}, "dispersion_floor 0.1 then, 0.5 now"),
    "ridge": ({"ridge": 1.0}, "ridge the default of the family then, 1.0 now"),
    "seed": ({"seed": 1}, "seed 0 then, 1 now"),
    "family": ({"family": "student_t"}, r"another: family 'gaussian' then, 'student_t' now;"),
    "response": ({"response": "n"}, r"another: response 'y' then, 'n' now;"),
    "covariates": ({"covariates": "x"}, r"another: covariates none then, 'x' now;"),
    "weight": ({"weight": "w"}, r"another: weight none then, 'w' now;"),
    "documents": (
        {"documents": np.arange(50)},
        r"another: other documents are chosen to train on: 90 documents then, 50 now;",
    ),
}


@pytest.fixture(scope="module")
def kept(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("kept") / "c"
    train(corpus, response="y", n_topics=3, tol=0.0, max_iter=3, checkpoint=place)
    return place


@pytest.mark.parametrize("case", OTHERS)
def test_a_checkpoint_of_another_fit_is_refused(corpus: Path, kept: Path, case: str) -> None:
    other, message = OTHERS[case]
    before = (kept / "zarr.json").read_bytes()
    settings = {"response": "y", "n_topics": 3, "tol": 0.0, "max_iter": 9} | other
    with pytest.raises(
        InputError,
        match=f"{kept} must be of this fit, got one of {'' if 'another' in message else 'another: .*'}{message}",
    ):
        train(corpus, **settings, checkpoint=kept, resume=True)
    assert (kept / "zarr.json").read_bytes() == before


def test_a_checkpoint_of_another_corpus_or_version_is_refused(
    data: dict[str, Any], corpus: Path, kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"response": "y", "n_topics": 3, "tol": 0.0, "max_iter": 9, "checkpoint": kept, "resume": True}
    other = make_corpus(data | {"x": data["x"] + 1.0}, tmp_path / "b.corpus")
    with pytest.raises(
        InputError,
        match=r"another: the corpus has changed: 90 documents as then, with other contents; give another",
    ):
        train(other, **settings)
    versions = library_versions(*LIBRARIES) | {"numpy": "1.26.0", "zarr": "9.9"}
    monkeypatch.setattr("dslda.training.fitting.library_versions", lambda *_: versions)
    with pytest.raises(
        InputError, match=rf"another: version of numpy '{np.__version__}' then, '1.26.0' now; "
    ):
        train(corpus, **settings)
    # a copy of the corpus is the same corpus
    monkeypatch.undo()
    copy = shutil.copytree(corpus, tmp_path / "copy.corpus")
    mine = shutil.copytree(kept, tmp_path / "c")
    assert train(copy, **settings | {"checkpoint": mine}).training.n_iterations == 9


def test_a_checkpoint_that_is_there_is_used_or_replaced_only_when_told_so(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"response": "y", "n_topics": 2, "tol": 0.0, "max_iter": 3, "checkpoint": tmp_path / "c"}
    with caplog.at_level(logging.INFO, "dslda"):
        train(corpus, **settings, resume=True)
    assert f"there is no checkpoint at {tmp_path}/c yet: training from the beginning" in caplog.messages
    with pytest.raises(
        OutputExistsError, match="go on from it with resume=True, or replace it with overwrite=True"
    ):
        train(corpus, **settings)
    train(corpus, **settings | {"seed": 5}, overwrite=True)
    assert read_checkpoint(tmp_path / "c").fit["settings"]["seed"] == 5
    for wrong, parameters in (
        ({"checkpoint": None, "resume": True}, ("resume",)),
        ({"resume": True, "overwrite": True}, ("resume", "overwrite")),
        ({"checkpoint_every": 0}, "checkpoint_every"),
    ):
        with pytest.raises(InputError) as refused:
            train(corpus, **settings | wrong)
        assert refused.value.parameter == parameters
    with pytest.raises(OutputExistsError, match="is not a dslda-checkpoint"):
        train(corpus, **settings | {"checkpoint": corpus}, overwrite=True)


def test_a_checkpoint_is_smaller_than_the_model(corpus: Path, tmp_path: Path) -> None:
    train(corpus, response="y", n_topics=3, max_iter=5, tol=0.0, checkpoint=tmp_path / "c").save(
        tmp_path / "m"
    )
    kept, model = (
        sum(p.stat().st_size for p in (tmp_path / name).rglob("*") if p.is_file()) for name in ("c", "m")
    )
    assert kept < model


def test_a_checkpoint_that_fits_another_shape_is_refused(corpus: Path, kept: Path, tmp_path: Path) -> None:
    from dslda.persistence.checkpoint_store import CheckpointRecord, CheckpointStore

    record = read_checkpoint(kept)
    settings = {"response": "y", "n_topics": 3, "tol": 0.0, "max_iter": 9, "resume": True}
    for name, parameters, trace, message in (
        (
            "a",
            {**record.parameters, "topics": np.ones((7, 3))},
            record.trace,
            r"'topics' must be there in the shape",
        ),
        (
            "b",
            {k: v for k, v in record.parameters.items() if k != "eta"},
            record.trace,
            r"'eta' must be there .* none",
        ),
        ("c", record.parameters, {"elbo": np.zeros(2)}, "'trace' must name iteration, elbo"),
        (
            "d",
            record.parameters,
            {**record.trace, "iteration": np.array([1.0, 5.0])},
            "'trace' must count iterations",
        ),
    ):
        CheckpointStore(tmp_path / name).write(CheckpointRecord(parameters, trace, record.fit))
        with pytest.raises(FormatError, match=message):
            train(corpus, **settings, checkpoint=tmp_path / name)


def test_a_full_disk_does_not_end_the_fit(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, assert_same: Any
) -> None:
    """A file may have no more than 100 bytes from the second iteration to the sixth, as when a disk is full for a while."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    settings = {"response": "y", "n_topics": 3, "max_iter": 9, "tol": 0.0}

    class Full(SilentProgress):
        def iteration(self, record: IterationRecord) -> None:
            full = 2 <= record.iteration <= 6
            resource.setrlimit(resource.RLIMIT_FSIZE, (100 if full else before[0], before[1]))
            if 3 <= record.iteration <= 7:
                assert read_checkpoint(tmp_path / "c").n_iterations == 1

    try:
        with caplog.at_level(logging.INFO, "dslda"):
            model = train(corpus, **settings, checkpoint=tmp_path / "c", checkpoint_every=1, progress=Full())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert_same(model, train(corpus, **settings))
    assert [
        r.getMessage() for r in caplog.records if r.levelno > logging.INFO and "checkpoint" in r.getMessage()
    ] == [
        f"no checkpoint after iteration 2: {tmp_path}/c could not be written: File too large; make room there, or choose "
        "another path"
    ]
    assert (
        f"checkpoints can be written again: the checkpoint {tmp_path}/c holds 7 iterations" in caplog.messages
    )
    assert read_checkpoint(tmp_path / "c").n_iterations == 8
    assert len(list((tmp_path / "c").iterdir())) == 2


@pytest.mark.parametrize("kind", ["corpus", "bag", "matrix"])
def test_a_second_fit_is_refused_before_its_work_while_another_writes(
    data: dict[str, Any], corpus: Path, tmp_path: Path, kind: str
) -> None:
    """In the same process, before the first one has written anything: by the files neither is there."""
    settings: dict[str, Any] = {"n_topics": 2, "max_iter": 3, "tol": 0.0, "checkpoint": tmp_path / "c"}
    settings |= {"checkpoint_every": 1000}
    of = {
        "corpus": (corpus, {"response": "y"}),
        "bag": (db.from_sequence([{"t": "a b", "y": 1.0}]), {"response": "y", "text": "t"}),
        "matrix": (data["counts"], {"response": data["y"]}),
    }
    documents, named = of[kind]

    def second() -> None:
        assert [entry.name for entry in (tmp_path / "c").iterdir()] == [".lock"]
        says = re.escape(f"{tmp_path}/c is being written by another run (process {os.getpid()} on ")
        for how in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(OutputError, match=says):
                train(documents, **settings | named | how, progress=AtIteration(fail, at=1))

    train(corpus, response="y", **settings, progress=AtIteration(second, at=1))
    assert read_checkpoint(tmp_path / "c").n_iterations == 2
    assert len(list((tmp_path / "c").iterdir())) == 2
    train(corpus, response="y", **settings, resume=True)


def test_where_nothing_can_be_locked_the_fit_whose_checkpoint_was_replaced_keeps_off_it(
    corpus: Path, caplog: pytest.LogCaptureFixture, assert_same: Any
) -> None:
    place = f"memory://checkpoints/{uuid.uuid4().hex}"
    settings = {"response": "y", "n_topics": 2, "tol": 0.0}
    kept = {"checkpoint": place, "checkpoint_every": 1}

    def second() -> None:
        train(corpus, **settings, **kept, max_iter=4, overwrite=True)

    first = train(corpus, **settings, **kept, max_iter=6, progress=AtIteration(second, at=2))
    assert_same(first, train(corpus, **settings, max_iter=6))
    assert read_checkpoint(place).n_iterations == 3
    # when it happens, and at the end, which is for good
    assert [r.getMessage() for r in caplog.records if "no checkpoint" in r.getMessage()] == [
        f"no checkpoint after iteration {n}: {place} was written by another fit meanwhile, so this one keeps off it; give "
        "every fit a checkpoint of its own"
        for n in (2, 5)
    ]


def test_a_place_that_cannot_be_written_is_refused_before_work(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written: Not a directory"):
        train(corpus, response="y", checkpoint=tmp_path / "file" / "c", progress=AtIteration(fail, at=1))


def test_what_follows_from_a_corpus_that_has_grown_is_not_told(data: dict[str, Any], tmp_path: Path) -> None:
    """Four SHA-256 and a dozen moments were, and not that there are more documents."""
    path = make_corpus(data, tmp_path / "grows.corpus")
    settings = {"response": "k", "family": "categorical", "n_topics": 2, "tol": 0.0, "covariates": "x"}
    settings |= {"checkpoint": tmp_path / "c", "class_weight": "balanced", "max_iter": 2}
    train(path, **settings)
    half = slice(0, D // 2)
    ingest(
        data["counts"][half],
        path,
        response={name: data[name][half] for name in "ynk"},
        covariates={name: data[name][half] + 1.0 for name in "xw"},
        categorical="k",
        append=True,
    )
    with pytest.raises(InputError) as raised:
        train(path, **settings, resume=True)
    assert str(raised.value).split("got one of another: ")[1] == (
        "the corpus has changed: 90 documents then, 135 now; give another one, or begin anew with overwrite=True instead of "
        "resume=True"
    )
    # but what a user has changed as well is
    with pytest.raises(
        InputError, match=r"135 now; covariates 'x' then, none now; n_topics 2 then, 3 now; give"
    ):
        train(path, **settings | {"covariates": (), "n_topics": 3}, resume=True)


def test_the_log_says_why_an_iteration_is_done_again(
    corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"response": "y", "n_topics": 2, "tol": 0.0, "checkpoint": tmp_path / "c"}
    with caplog.at_level(logging.INFO, "dslda"):
        train(corpus, **settings, max_iter=3)
        train(corpus, **settings, max_iter=4, resume=True)
    where = f"the checkpoint {tmp_path}/c"
    assert f"{where} holds 2 iterations; going on begins with iteration 3 again" in caplog.messages
    assert (
        f"going on after 2 iterations, from {where}: iteration 3, where that fit reached its cap, is done again, since its "
        "sums are not kept"
    ) in caplog.messages
