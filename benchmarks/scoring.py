"""How many documents a second are scored, from text to Parquet, beside tomotopy and scikit-learn, and in what memory?

Texts of 100 words drawn from K topics over a vocabulary of 5,000; all programs learn from the same 2,000 of them, dslda by
`train` with few iterations, the rivals' LDA likewise. Each is timed in a separate process with one thread, in CPU seconds:
dslda from JSON lines to the files of a complete run, the rivals from texts in memory to topic proportions in memory, with the
usual tokenisation for each. "kernel" is inference alone, of documents counted before. Two workers are timed by the
clock, beside one, and memory is that of one process: both of whole runs over the same texts again and again. Figures of time
are the median of a few runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.measure import measure
from benchmarks.report import machine, markdown

if TYPE_CHECKING:
    from distributed import Client

N_TERMS = 5000
TOKENS = 100
TRAINED_ON = 2000
FILES = 8
RUNS = 3
PAIRS = 5

SPEED = {
    "method": ("method", ""),
    "per_second": ("documents/s/core", ",.0f"),
    "ratio": ("dslda, text to Parquet, is faster by", ".2f"),
    "rest": ("", ""),
}
WORKERS = {
    "files": ("files", "d"),
    "one": ("one worker, documents/s by the clock", ",.0f"),
    "two": ("two workers", ",.0f"),
    "ratio": ("ratio, median of the pairs", ".2f"),
    "lowest": ("lowest", ".2f"),
    "highest": ("highest", ".2f"),
}
MEMORY = {"rows": ("rows", ",d"), "peak": ("peak, MiB", ".0f"), "per_second": ("documents/s/core", ",.0f")}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topics", type=int, default=50)
    parser.add_argument(
        "--only-workers", action="store_true", help="compare one worker with two, nothing else"
    )
    parser.add_argument("--documents", type=int, default=20_000, help="documents to score")
    parser.add_argument(
        "--rows",
        type=int,
        nargs="*",
        default=[10_000, 1_000_000],
        help="rows of the runs that measure memory",
    )
    parser.add_argument(
        "--sampling", type=int, default=100, help="iterations of tomotopy's infer, its default"
    )
    parser.add_argument(
        "--worker-rows", type=int, default=100_000, help="rows of the runs on one worker and two; 0 for none"
    )


def main(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(prefix="dslda-bench-") as name:
        folder = Path(name)
        write_texts(folder / "texts.jsonl", arguments.documents, arguments.topics)
        measure(_train, str(folder), arguments.topics)
        facts = machine()
        print(
            f"{arguments.documents:,} texts of {TOKENS} words, K = {arguments.topics}; {facts['processor']}, ",
            end="",
        )
        print(f"{facts['date']}, {', '.join(f'{n} {v}' for n, v in facts['versions'].items())}\n")
        if not arguments.only_workers:
            print(markdown(list(_speeds(folder, arguments)), SPEED), "\n")
        if arguments.worker_rows:
            print(markdown(list(_workers(folder, arguments.worker_rows)), WORKERS), "\n")
        rows = []
        for n in () if arguments.only_workers else arguments.rows:
            _repeat(folder / "texts.jsonl", folder / "many.jsonl", n)
            cost = measure(_dslda, str(folder), "many.jsonl")
            rows.append({"rows": n, "peak": cost["peak_mib"], "per_second": n / cost["cpu_seconds"]})
        if rows:
            print(markdown(rows, MEMORY))


def write_texts(path: Path, n: int, n_topics: int) -> None:
    """JSON lines with texts of an LDA model, whose response is a number in 0 to 4."""
    rng = np.random.default_rng(0)
    cumulated = rng.dirichlet(np.full(N_TERMS, 0.05), n_topics).cumsum(axis=1)
    scores = np.linspace(0.0, 4.0, n_topics)
    with path.open("w") as stream:
        for i in range(n):
            theta = rng.dirichlet(np.full(n_topics, 0.1))
            of = rng.choice(n_topics, TOKENS, p=theta)
            draws = rng.random(TOKENS)
            words = [
                min(int(np.searchsorted(cumulated[k], u)), N_TERMS - 1)
                for k, u in zip(of, draws, strict=True)
            ]
            record = {"id": f"d{i}", "text": " ".join(f"word{w}" for w in words), "y": float(theta @ scores)}
            stream.write(json.dumps(record) + "\n")


def _repeat(source: Path, target: Path, n: int) -> None:
    """The records repeated under new identifiers."""
    records = [json.loads(line) for line in source.open()]
    with target.open("w") as stream:
        for i in range(n):
            stream.write(json.dumps(records[i % len(records)] | {"id": f"r{i}"}) + "\n")


def _texts(folder: str, n: int | None = None) -> list[str]:
    with (Path(folder) / "texts.jsonl").open() as lines:
        return [json.loads(line)["text"] for line in lines][:n]


def _speeds(folder: Path, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    n = arguments.documents
    base = n / measure(_dslda, str(folder), "texts.jsonl", runs=RUNS)["cpu_seconds"]
    yield {"method": "dslda score, text to Parquet", "per_second": base, "ratio": 1.0}
    kernel = measure(_kernel, str(folder), runs=RUNS)
    yield {"method": "dslda, kernel alone", "per_second": n / kernel["cpu_seconds"], "rest": "counted before"}
    rivals: tuple[tuple[str, Callable[..., Callable[[], Any]], tuple[Any, ...]], ...] = (
        ("tomotopy LDAModel.infer", _tomotopy, (arguments.topics, arguments.sampling)),
        ("scikit-learn CountVectorizer + LDA transform", _sklearn, (arguments.topics,)),
    )
    for name, task, more in rivals:
        cost = measure(task, str(folder), *more, runs=RUNS)
        speed = cost["result"] / cost["cpu_seconds"]
        yield {"method": name, "per_second": speed, "ratio": base / speed, "rest": "no response, no files"}


def _train(folder: str, n_topics: int) -> Callable[[], Any]:
    import dslda

    place = Path(folder)

    def work() -> None:
        with (place / "train.jsonl").open("w") as stream:
            stream.writelines(
                line for line, _ in zip((place / "texts.jsonl").open(), range(TRAINED_ON), strict=False)
            )
        corpus = dslda.ingest(
            place / "train.jsonl", place / "train.corpus", text="text", id="id", response="y", max_df=1.0
        )
        dslda.train(corpus, response="y", n_topics=n_topics, max_iter=30).save(place / "m.model")

    return work


def _dslda(folder: str, name: str) -> Callable[[], Any]:
    import dslda
    from dslda.scoring import score as module

    module.IN_PROCESS_BYTES = 1 << 60  # one process, whatever the size
    place = Path(folder)
    model = dslda.load_model(place / "m.model")
    model.predict(["word1 word2"])  # kernels are loaded

    def work() -> int:
        rows = int(dslda.score(model, place / name, place / "scores").manifest["rows_out"])
        shutil.rmtree(place / "scores")
        return rows

    return work


def _kernel(folder: str) -> Callable[[], Any]:
    import dslda
    from dslda.prediction.record_counting import counted_documents
    from dslda.variational.estep import infer

    record = dslda.load_model(Path(folder) / "m.model").scoring_record
    blocks = [counted.block for counted, _ in counted_documents(_texts(folder), record)]

    def work() -> None:
        for block in blocks:
            infer(block.indptr, block.terms, block.counts, record.parameters, spec=record.spec)

    infer(blocks[0].indptr, blocks[0].terms, blocks[0].counts, record.parameters, spec=record.spec)
    return work


def _tomotopy(folder: str, n_topics: int, sampling: int) -> Callable[[], Any]:
    import tomotopy

    model = tomotopy.LDAModel(k=n_topics, seed=0)
    for text in _texts(folder, TRAINED_ON):
        model.add_doc(text.split())
    model.train(100, workers=1)
    texts = _texts(folder)

    def work() -> int:
        documents = [model.make_doc(text.split()) for text in texts]
        topics, _ = model.infer(documents, iterations=sampling, workers=1)
        return len(topics)

    return work


def _sklearn(folder: str, n_topics: int) -> Callable[[], Any]:
    from sklearn.decomposition import LatentDirichletAllocation
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer = CountVectorizer()
    counts = vectorizer.fit_transform(_texts(folder, TRAINED_ON))
    model = LatentDirichletAllocation(n_topics, max_iter=10, random_state=0).fit(counts)
    texts = _texts(folder)

    def work() -> int:
        return len(model.transform(vectorizer.transform(texts)))

    return work


def _workers(folder: Path, n: int) -> Iterator[dict[str, Any]]:
    """Wall time, after runs that warm up the workers; the texts are in one file, and in eight.

    One worker and two take turns, so that both meet the machine in the same state: each idles while the other works.
    """
    import dslda
    from dslda.cluster.opening import ClusterOptions, cluster

    model = dslda.load_model(folder / "m.model")
    inputs = {1: folder / "many.jsonl", FILES: folder / "files"}
    _repeat(folder / "texts.jsonl", inputs[1], n)
    _split(inputs[1], inputs[FILES])
    with ExitStack() as stack:
        clients = [
            stack.enter_context(cluster(options=ClusterOptions(workers=workers, threads=1)))
            for workers in (1, 2)
        ]

        def seconds(client: Client, path: Path) -> float:
            began = time.perf_counter()
            dslda.score(model, path, folder / "scores", client=client)
            taken = time.perf_counter() - began
            shutil.rmtree(folder / "scores")
            return taken

        for files, path in inputs.items():
            pairs = np.array([[seconds(client, path) for client in clients] for _ in range(1 + PAIRS)])[1:]
            one, two = np.median(pairs, axis=0)
            ratios = pairs[:, 0] / pairs[:, 1]
            yield {
                "files": files,
                "one": n / one,
                "two": n / two,
                "ratio": float(np.median(ratios)),
                "lowest": float(ratios.min()),
                "highest": float(ratios.max()),
            }


def _split(source: Path, target: Path) -> None:
    """The lines of a file in FILES files of as many lines each."""
    target.mkdir()
    lines = source.read_text().splitlines(keepends=True)
    for i in range(FILES):
        part = lines[i * len(lines) // FILES : (i + 1) * len(lines) // FILES]
        (target / f"{i}.jsonl").write_text("".join(part))
