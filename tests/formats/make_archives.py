"""Stores of a release as small archives, which every later one must read: `python -m tests.formats.make_archives 0.5.0`.

They go to `tests/formats/archives/<version>/`, with what a reader must find in them in `expected.json`. Run it from the root
of the repository when a format or a version is new, and commit the result. Archives of a version that has been released
(there is a git tag of it) are never made again: they are what its users have.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dslda
from dslda.persistence.checkpoint_store import read_checkpoint

ROOT = Path(__file__).resolve().parents[2]
ARCHIVES = Path(__file__).parent / "archives"
WORDS = ("good", "fine", "lovely", "bad", "poor", "awful", "dress", "shirt", "coat")
COVARIATES = {"days": 12.0, "party": "R"}
DOCUMENTS: tuple[dict[str, int], ...] = (
    {"good": 1, "dress": 2},
    {"awful": 3, "poor": 1, "coat": 5, "shirt": 1},
    {"good": 1, "bad": 1, "xyzzy": 4},
    {"lovely": 40, "awful": 1},
    {"xyzzy": 1},
)
"""What every model is asked, with `COVARIATES`: words that it knows, some that it does not, and none that it knows."""

EXACT = {"objective": "joint", "sweep_tol": 1e-14, "max_sweeps": 50_000}
"""A model's own settings of prediction: its answers are where the E-step comes to rest, however a later one gets there."""

MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "gaussian": ("gaussian", {}),
    "variational": (
        "gaussian",
        {"covariates": ["party", "days"], "topic_estimation": "variational"},
    ),
    "poisson": ("poisson", {"covariates": ["party"], "exposure": "days"}),
    "binomial": ("binomial", {"trials": "days", "covariates": ["party"]}),
    "categorical": ("categorical", {"covariates": ["days"]}),
    "conditional": ("gaussian", {"objective": "conditional"}),
    "starts": ("poisson", {"objective": "conditional", "n_starts": 2}),
    "corrected": ("binomial", {"objective": "conditional", "trials": "days"}),
}
"""Kind of the response, and options of training."""


def records(kind: str, n: int = 120, *, seed: int = 11) -> list[dict[str, Any]]:
    """Documents whose words tell the response, with a covariate of names and one of numbers."""
    random = np.random.default_rng(seed)
    made = []
    for i in range(n):
        good = random.random()
        shares = np.concatenate([np.full(3, good), np.full(3, 1.0 - good), np.full(3, 0.4)])
        drawn = random.multinomial(random.integers(3, 30), shares / shares.sum())
        days, party = float(random.integers(5, 40)), "DR"[i % 2]
        predictor = 2.0 * good - 1.0 + (0.5 if party == "R" else 0.0)
        y: float | str
        if kind == "gaussian":
            y = 3.0 + predictor + random.normal(0.0, 0.3)
        elif kind == "poisson":
            y = float(random.poisson(days / 10 * np.exp(predictor)))
        elif kind == "binomial":
            y = float(random.binomial(int(days), 1.0 / (1.0 + np.exp(-2.0 * predictor))))
        else:
            y = ("low", "middle", "high")[int(np.digitize(predictor + random.normal(0.0, 0.2), (-0.3, 0.6)))]
        present = np.flatnonzero(drawn)
        made.append(
            {
                "id": f"{kind}-{i}",
                "words": [WORDS[t] for t in present],
                "counts": drawn[present].tolist(),
                "y": y,
                "days": days,
                "party": party,
            }
        )
    return made


def corpus_of(kind: str, folder: Path, n: int = 120, **options: Any) -> dslda.Corpus:
    """A corpus of such documents in a folder, as `<kind>.corpus`."""
    source = folder / f"{kind}.jsonl"
    lines = [json.dumps(record) + "\n" for record in records(kind, n)]
    source.write_text("".join(lines), encoding="utf-8")
    return dslda.ingest(
        source,
        folder / f"{kind}.corpus",
        words="words",
        counts="counts",
        id="id",
        response="y",
        covariates=["days", "party"],
        categorical=["party", "y"] if kind == "categorical" else ["party"],
        min_df=1,
        max_df=1.0,
        **options,
    )


def answers(model: dslda.Model) -> dict[str, Any]:
    """What a model says of `DOCUMENTS`, as JSON."""
    given = [{"words": list(d), "counts": list(d.values()), **COVARIATES} for d in DOCUMENTS]
    said = {
        "predictions": np.asarray(model.predict(given)).tolist(),
        "topics": model.transform(given).tolist(),
        "coefficients": [[c.topic, c.coefficient] for c in model.coefficients()],
    }
    if model.classes is not None:
        said["probabilities"] = model.predict_proba(given).tolist()
    return said


def with_corrections(model: dslda.Model) -> dslda.Model:
    """The model with corrections of its probabilities, which so few documents do not ask for."""
    record = model.record
    parameters = replace(record.parameters, level_corrections=np.array([[0.4, -0.3, 0.2]]))
    return dslda.Model(replace(record, parameters=parameters))


def contents(corpus: dslda.Corpus) -> dict[str, Any]:
    """All documents of a corpus, as JSON."""
    documents: list[list[Any]] = []
    terms = corpus.vocabulary.terms
    for partition in range(corpus.n_partitions):
        block = corpus.read(partition, covariates=corpus.covariate_names, doc_id=True)
        assert block.doc_id is not None
        for d, name in enumerate(block.doc_id):
            entries = range(block.indptr[d], block.indptr[d + 1])
            counts = {terms[block.terms[e]]: int(block.counts[e]) for e in entries}
            columns = {**block.responses, **block.covariates}
            documents.append([name, counts, {column: values[d] for column, values in columns.items()}])
    return {
        "content_hash": corpus.content_hash,
        "levels": {name: list(levels) for name, levels in corpus.levels.items()},
        "documents": documents,
    }


def progress_of(path: Path) -> dict[str, Any]:
    """How far a checkpoint's fit is, as JSON."""
    record = read_checkpoint(path)
    return {
        "n_iterations": record.n_iterations,
        "elbo": record.trace["elbo"].tolist(),
        "eta": record.parameters["eta"].tolist(),
    }


def make(folder: Path) -> None:
    """Write stores of all kinds as archives into a folder, with what is in them."""
    expected: dict[str, Any] = {"models": {}, "corpora": {}, "checkpoints": {}}
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fit that is cut short
        here = Path(name)
        for archive, (kind, options) in MODELS.items():
            path = here / f"{kind}.corpus"
            corpus = dslda.open_corpus(path) if path.exists() else corpus_of(kind, here)
            settings = options if "objective" in options else EXACT | options
            model = dslda.train(corpus, response="y", family=kind, n_topics=3, max_iter=12, **settings)
            if archive == "corrected":
                model = with_corrections(model)
            model.save(here / f"{archive}.model")
            expected["models"][archive] = answers(model)
        small = here / "small"
        small.mkdir()
        for archive in ("plain", "appended"):
            corpus = corpus_of("categorical", small, 7, partition_tokens=60, overwrite=True)
            if archive == "appended":
                more = [
                    json.dumps(record) + "\n"
                    for record in records("categorical", 12, seed=11)[7:]
                    if record["y"] in corpus.levels["y"]
                ]
                (small / "more.jsonl").write_text("".join(more), encoding="utf-8")
                corpus = dslda.ingest(small / "more.jsonl", small / "categorical.corpus", append=True)
            expected["corpora"][archive] = contents(corpus)
            (small / "categorical.corpus").rename(here / f"{archive}.corpus")
        fitted = dslda.open_corpus(here / "gaussian.corpus")
        path = here / "gaussian.checkpoint"
        dslda.train(fitted, response="y", n_topics=3, max_iter=4, tol=0.0, checkpoint=path)
        expected["checkpoints"]["gaussian"] = progress_of(path)

        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for ending, kind in ((".model", "models"), (".corpus", "corpora"), (".checkpoint", "checkpoints")):
            for archive in expected[kind]:
                pack(here / f"{archive}{ending}", folder / f"{archive}{ending}.zip")
    text = json.dumps(expected, indent=1, ensure_ascii=False)
    (folder / "expected.json").write_text(f"{text}\n", encoding="utf-8")


def pack(store: Path, archive: Path) -> None:
    """A folder as an archive that has the same bytes whenever it is made of the same files."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for path in sorted(p for p in store.rglob("*") if p.is_file()):
            entry = zipfile.ZipInfo(str(path.relative_to(store.parent)), date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            target.writestr(entry, path.read_bytes())


def is_released(version: str, repository: Path = ROOT) -> bool:
    """Whether there is a git tag of a version."""
    listed = subprocess.run(
        ["git", "-C", repository, "tag", "--list", f"v{version}", version],
        capture_output=True,
        text=True,
        check=True,
    )
    return bool(listed.stdout.strip())


def main(version: str, *, repository: Path = ROOT, archives: Path = ARCHIVES) -> None:
    """Make the archives of a version that has not been released yet."""
    folder = archives / version
    if folder.exists() and is_released(version, repository):
        sys.exit(f"version {version} is released: its archives stay as they are; name the next one")
    make(folder)
    sizes = [path.stat().st_size for path in folder.iterdir()]
    sys.stdout.write(f"{folder}: {len(sizes)} files, {sum(sizes) / 1000:.0f} kB\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
