"""Work in a real kernel of Jupyter: the line below the cell, what a cell shows, and the model after an interrupt."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jupyter_client.manager import start_new_kernel

from dslda.datasets.simulate import simulate_corpus

SECONDS = 120
CELL = """
import dslda, numpy, scipy.sparse
from dslda.engine.progress import NotebookProgress

NotebookProgress.EVERY_SECONDS = 0.0
counts, y = scipy.sparse.load_npz("counts.npz"), numpy.load("y.npy")
model = dslda.train(counts, response=y, n_topics=3, tol=0.0, max_iter={max_iter})
print(model.training.interrupted)
"""

INGEST = """
import json, dslda, dslda.cluster.stage_progress as stage_progress

stage_progress.QUICK_SECONDS = 0.0
records = [{"text": text, "stars": 1 + i % 5} for i, text in enumerate(["good red coat", "bad coat", "fine coat"] * 40)]
with open("new.jsonl", "w") as file:
    file.writelines(json.dumps(record) + "\\n" for record in records)
dslda.ingest(records, "c.corpus", text="text", response="stars", min_df=1, max_df=1.0, partition_tokens=60)
"""
TRAIN = """
model = dslda.train(dslda.open_corpus("c.corpus"), response="stars", n_topics=2, max_iter=2)
model
"""
SCORE = 'dslda.score(model, "june.jsonl", out="scores")'


class Kernel:
    """Runs cells, and gives what they show."""

    def __init__(self, manager: Any, client: Any) -> None:
        self._manager, self._client = manager, client

    def run(self, cell: str, *, interrupt_after: str = "\0") -> list[dict[str, Any]]:
        """The messages of a cell, which is interrupted when it shows this, and again if it has not ended 5 seconds later.

        One interrupt in a hundred is lost among the messages of a kernel that shows hundreds of lines a second.
        """
        asked = self._client.execute(cell)
        messages: list[dict[str, Any]] = []
        deadline = time.monotonic() + SECONDS
        again = math.inf
        while time.monotonic() < deadline:
            message = self._client.get_iopub_msg(timeout=SECONDS)
            if message["parent_header"].get("msg_id") != asked:
                continue
            messages.append(message)
            if interrupt_after in json.dumps(message["content"]) or time.monotonic() > again:
                self._manager.interrupt_kernel()
                interrupt_after, again = "\0", time.monotonic() + 5.0
            if message["content"].get("execution_state") == "idle":
                return messages
        raise AssertionError(f"the cell has not ended: {messages}")


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    folder = tmp_path_factory.mktemp("notebook")
    _write(folder)
    manager, client = start_new_kernel(kernel_name="python3", cwd=str(folder))
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _write(folder: Path) -> None:
    from scipy.sparse import csr_array, save_npz

    block = simulate_corpus(60, 3, 80, mean_tokens=30, seed=0).block
    save_npz(folder / "counts.npz", csr_array((block.counts, block.terms, block.indptr), shape=(60, 80)))
    np.save(folder / "y.npy", block.responses["y"])


def _lines(messages: list[dict[str, Any]]) -> list[str]:
    """The successive texts of the one line below the cell."""
    shown = [m for m in messages if m["msg_type"] in ("display_data", "update_display_data")]
    assert [m["msg_type"] for m in shown] == ["display_data"] + ["update_display_data"] * (len(shown) - 1)
    assert len({m["content"]["transient"]["display_id"] for m in shown}) == 1
    return [m["content"]["data"]["text/plain"] for m in shown]


def _printed(messages: list[dict[str, Any]]) -> str:
    return "".join(m["content"]["text"] for m in messages if m["content"].get("name") == "stdout")


def test_a_line_below_the_cell_tells_how_far_training_is(kernel: Kernel) -> None:
    messages = kernel.run(CELL.format(max_iter=6))
    lines = _lines(messages)
    assert lines[0] == "EM iteration 1: 0/60 documents"
    assert any(line.startswith("EM iteration 4: 0/60 documents; ") and "to go" in line for line in lines)
    assert lines[-1].startswith("EM: 6 iterations, ELBO -")
    assert _printed(messages) == "False\n"


def test_interrupting_the_kernel_keeps_the_last_complete_iteration(kernel: Kernel) -> None:
    messages = kernel.run(CELL.format(max_iter=1_000_000), interrupt_after="EM iteration 5: ")
    assert _printed(messages) == "True\n"
    assert _lines(messages)[-1].startswith("EM: ")


def test_a_line_below_the_cell_tells_how_far_ingestion_is_and_the_corpus_is_a_card(kernel: Kernel) -> None:
    messages = kernel.run(INGEST)
    lines = _lines(messages)
    assert any(line.startswith("writing: ") for line in lines)
    done, total = lines[-1].split(": ")[1].split(" of ")
    assert done == total
    assert "<strong>Corpus c.corpus: 120 documents</strong>" in _shown(messages)


def test_a_line_below_the_cell_tells_how_far_scoring_is_and_the_model_is_a_card(kernel: Kernel) -> None:
    kernel.run(INGEST.replace("c.corpus", "d.corpus").replace("new.jsonl", "june.jsonl"))
    trained = kernel.run(TRAIN.replace("c.corpus", "d.corpus"))
    assert "<strong>Supervised topic model of stars: 2 topics</strong>" in _shown(trained)
    assert "scoring: 1 of 1" in _lines(kernel.run(SCORE))


def _shown(messages: list[dict[str, Any]]) -> str:
    """The value of a cell, as a notebook shows it."""
    (result,) = (m for m in messages if m["msg_type"] == "execute_result")
    return str(result["content"]["data"]["text/html"])
