"""Digests of everything that dslda writes, to show that a change of the code changes no bit of its results.

Run from the root of the repository, on one machine, with the same libraries:

    python -m tests.formats.same_bits write before.json     # before the change
    python -m tests.formats.same_bits compare before.json   # after it

It ingests each input format, trains each built-in family under several settings, scores, and writes checkpoints, all
with the public interface alone. The digest of a store covers each of its files. Times, places and
random names, and the checksums of manifests that cover them, are left out.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import hashlib
import json
import re
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import dslda

VOLATILE = frozenset({"manifest_sha256", "versions", "trace", "created", "inputs", "state"})
"""Fields of a manifest that differ between two runs of one program: times, places, random names."""
RANDOM_NAME = re.compile(r"(state|appended)[-/][0-9A-Za-z-]+")
REVIEWS = Path(__file__).resolve().parents[3] / "shared" / "data" / "movie_reviews"
WORDS = [
    f"{first}{second}"
    for first in ("ba", "de", "ki", "lo", "mu", "pa")
    for second in ("n", "r", "s", "t", "x")
]


def records(n: int, *, seed: int) -> list[dict[str, Any]]:
    """Documents with a column for each family, a covariate of names and one of numbers."""
    random = np.random.default_rng(seed)
    made = []
    for i in range(n):
        shares = random.dirichlet([0.3, 0.3, 0.3])
        of_topics = np.stack([np.roll(np.r_[np.full(10, 6.0), np.full(20, 1.0)], 10 * k) for k in range(3)])
        probabilities = shares @ (of_topics / of_topics.sum(1, keepdims=True))
        drawn = random.multinomial(random.integers(8, 60), probabilities)
        text = " ".join(np.repeat(WORDS, drawn).tolist())
        raised = float(shares[0] - shares[1])
        days, party = float(random.integers(5, 40)), ("D", "R", "I")[i % 3]
        mean = float(np.exp(0.5 + raised))
        made.append(
            {
                "id": f"d{i}",
                "text": text if i % 41 else "unseen",
                "number": round(3.0 + 2.0 * raised + random.normal(0.0, 0.3), 6) if i % 17 else None,
                "count": int(random.poisson(mean * days / 10.0)),
                "yes": int(random.random() < 1.0 / (1.0 + np.exp(-3.0 * raised))),
                "kind": ("low", "middle", "high")[int(np.digitize(raised, (-0.3, 0.3)))],
                "stars": int(np.digitize(raised + random.normal(0.0, 0.1), (-0.5, -0.1, 0.1, 0.5))) + 1,
                "amount": float(random.gamma(3.0, mean / 3.0)),
                "ended": int(random.random() < 0.8),
                "days": days,
                "party": party,
            }
        )
    return made


COLUMNS: dict[str, Any] = {
    "id": "id",
    "response": ["number", "count", "yes", "kind", "stars", "amount"],
    "covariates": ["days", "party", "ended"],
    "categorical": ["kind", "party"],
    "min_df": 2,
    "max_df": 0.95,
    "partition_tokens": 3000,
}
FITS: dict[str, dict[str, Any]] = {
    "gaussian": {"response": "number"},
    "gaussian_heavy_token": {"response": "number", "response_weight": 3.0, "granularity": "token"},
    "gaussian_variational_asymmetric": {
        "response": "number",
        "topic_estimation": "variational",
        "doc_topic_prior": "asymmetric",
        "covariates": ["party", "days"],
    },
    "gaussian_auto": {"response": "number", "doc_topic_prior": "auto", "weight": "days"},
    "student_t": {"response": "number", "family": "student_t"},
    "poisson": {"response": "count", "family": "poisson", "exposure": "days", "covariates": "party"},
    "negative_binomial": {"response": "count", "family": "negative_binomial", "covariates": ["days"]},
    "binomial": {"response": "yes", "family": "binomial", "class_weight": "balanced"},
    "categorical": {"response": "kind", "family": "categorical", "covariates": ["days"]},
    "ordinal": {"response": "stars", "family": "ordinal"},
    "gamma": {"response": "amount", "family": "gamma"},
    "inverse_gaussian": {"response": "amount", "family": "inverse_gaussian", "ridge": 0.5},
    "weibull": {"response": "amount", "family": "weibull", "event": "ended"},
}


def write_inputs(folder: Path) -> None:
    """One set of documents in each input format, and more to append and to score."""
    documents = records(240, seed=5)
    for name, chosen in (("all", documents), ("more", records(60, seed=6)), ("new", records(90, seed=7))):
        lines = "".join(json.dumps(each) + "\n" for each in chosen)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    with gzip.open(folder / "all.jsonl.gz", "wt", encoding="utf-8") as target:
        target.write((folder / "all.jsonl").read_text(encoding="utf-8"))
    with (folder / "all.csv").open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, list(documents[0]))
        writer.writeheader()
        writer.writerows(documents)
    pq.write_table(pa.Table.from_pylist(documents), folder / "all.parquet", row_group_size=50)
    (folder / "texts").mkdir()
    for each in documents[:40]:
        (folder / "texts" / f"{each['id']}.txt").write_text(each["text"], encoding="utf-8")
    counted = []
    for each in documents:
        positions = [WORDS.index(word) for word in each["text"].split() if word in WORDS]
        present = sorted(set(positions))
        counted.append(f"{len(present)} " + " ".join(f"{p}:{positions.count(p)}" for p in present))
    (folder / "counts.ldac").write_text("\n".join(counted) + "\n", encoding="utf-8")
    (folder / "vocabulary.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")


def without_volatile(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_volatile(each) for name, each in value.items() if name not in VOLATILE}
    return [without_volatile(each) for each in value] if isinstance(value, list) else value


def digest(store: Path) -> str:
    """SHA-256 of the names and contents of all files of a store."""
    total = hashlib.sha256()
    for path in sorted(p for p in store.rglob("*") if p.is_file()):
        name = path.relative_to(store).as_posix()
        if "trace/" in name:
            continue
        name = RANDOM_NAME.sub(r"\1", name)
        content = path.read_bytes()
        if path.suffix == ".json":
            kept = without_volatile(json.loads(content))
            content = RANDOM_NAME.sub(r"\1", json.dumps(kept, sort_keys=True)).encode()
        total.update(f"{name} {hashlib.sha256(content).hexdigest()}\n".encode())
    return total.hexdigest()


def trace_digest(trace: Any) -> str:
    """SHA-256 of a fit's history without its times."""
    total = hashlib.sha256()
    for name, values in trace.items():
        if "second" not in name:
            total.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return total.hexdigest()


def corpora(found: dict[str, str]) -> None:
    for name, source, options in (
        ("jsonl", "all.jsonl", {"text": "text", **COLUMNS}),
        ("jsonl_gz", "all.jsonl.gz", {"text": "text", "ngrams": (1, 2), "stop_words": "english", **COLUMNS}),
        ("csv", "all.csv", {"text": "text", **COLUMNS}),
        ("parquet", "all.parquet", {"text": "text", **COLUMNS}),
        ("texts", "texts", {"min_df": 1, "max_df": 1.0}),
        ("ldac", "counts.ldac", {"vocabulary": "vocabulary.txt"}),
    ):
        dslda.ingest(source, f"{name}.corpus", **options)
        found[f"corpus {name}"] = digest(Path(f"{name}.corpus"))
    dslda.ingest("all.jsonl", "appended.corpus", text="text", **COLUMNS)
    dslda.ingest("more.jsonl", "appended.corpus", append=True)
    found["corpus appended"] = digest(Path("appended.corpus"))


def fits(found: dict[str, str]) -> None:
    new = [json.loads(line) for line in Path("new.jsonl").read_text(encoding="utf-8").splitlines()]
    for name, options in FITS.items():
        model = dslda.train("appended.corpus", n_topics=4, max_iter=12, documents=np.arange(280), **options)
        model.save(f"{name}.model")
        found[f"model {name}"] = digest(Path(f"{name}.model"))
        found[f"trace {name}"] = trace_digest(model.record.trace)
        predictions = np.asarray(model.predict(new))
        raw = json.dumps(predictions.tolist()).encode() + model.transform(new).tobytes()
        found[f"predictions {name}"] = hashlib.sha256(raw).hexdigest()
    for name in ("gaussian", "categorical"):
        options = FITS[name]
        dslda.train("jsonl.corpus", n_topics=3, max_iter=5, checkpoint=f"{name}.checkpoint", **options)
        found[f"checkpoint {name}"] = digest(Path(f"{name}.checkpoint"))


def scores(found: dict[str, str]) -> None:
    for name, options in (
        ("gaussian", {"topics": 2}),
        ("categorical", {"output_format": "csv"}),
        ("poisson", {"output_format": "jsonl", "topics": "all"}),
    ):
        dslda.score(f"{name}.model", "new.jsonl", out=f"{name}.scores", **options)
        written = hashlib.sha256()
        for path in sorted(Path(f"{name}.scores").iterdir()):
            if path.suffix in (".parquet", ".csv", ".jsonl"):
                written.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
        found[f"scores {name}"] = written.hexdigest()


def reviews(found: dict[str, str]) -> None:
    """Real documents: the movie reviews, where they are beside the checkout."""
    files = sorted(REVIEWS.glob("*.jsonl*")) + sorted(REVIEWS.glob("*.parquet"))
    if not files:
        return
    dslda.ingest(
        str(files[0]),
        "reviews.corpus",
        text="text",
        response="rating",
        stop_words="english",
        partition_tokens=200_000,
    )
    found["corpus reviews"] = digest(Path("reviews.corpus"))
    model = dslda.train("reviews.corpus", response="rating", n_topics=10, max_iter=6)
    model.save("reviews.model")
    found["model reviews"] = digest(Path("reviews.model"))


def digests() -> dict[str, str]:
    """Digests of all results, by name."""
    found: dict[str, str] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        write_inputs(Path())
        corpora(found)
        fits(found)
        scores(found)
        reviews(found)
    return found


def main() -> None:
    """Write digests to a file, or compare with those of a file."""
    if len(sys.argv) != 3 or sys.argv[1] not in ("write", "compare"):
        sys.exit(__doc__)
    path = Path(sys.argv[2]).resolve()
    found = digests()
    if sys.argv[1] == "write":
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{len(found)} digests written")
        return
    kept = json.loads(path.read_text(encoding="utf-8"))
    changed = [name for name in kept if found.get(name) != kept[name]]
    for name in changed:
        print(f"changed: {name}")
    print(f"{len(kept) - len(changed)} of {len(kept)} digests are the same")
    sys.exit(bool(changed))


if __name__ == "__main__":
    main()
