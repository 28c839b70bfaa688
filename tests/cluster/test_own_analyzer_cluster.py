"""An analyzer of the user's own in two worker processes."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType

import dask.bag
import pytest
from distributed import Client

import dslda
from tests.helpers.errors import refused

ROOT = Path(__file__).parents[2]
RECORDS = [{"text": f"Dress{'es' * (i % 3)} fit {('big', 'small')[i % 2]}", "y": i % 5} for i in range(60)]
ALL = {"min_df": 1, "max_df": 1.0}


@pytest.fixture(scope="module")
def client(processes: Callable[[int], AbstractContextManager[Client]]) -> Iterator[Client]:
    with processes(2) as client:
        yield client


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A module that workers, which run already, cannot import yet."""
    name = f"words_{uuid.uuid4().hex}"
    (tmp_path / f"{name}.py").write_text("def stems(text): return [word[:4] for word in text.split()]")
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "r.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in RECORDS))
    return importlib.import_module(name)


def import_from(folder: str) -> None:
    sys.path.insert(0, folder)


def test_workers_import_it_by_its_name(client: Client, words: ModuleType, tmp_path: Path) -> None:
    arguments = {"text": "text", "response": "y", "analyzer": words.stems, **ALL}
    with refused("analyzer", place=None) as error:
        dslda.ingest(tmp_path / "r.jsonl", tmp_path / "r.corpus", client=client, **arguments)
    assert error.value.place is None
    assert error.value.remedy == (f"install the module {words.__name__} on the workers",)
    assert not (tmp_path / "r.corpus").exists()

    client.run(import_from, str(tmp_path))
    corpus = dslda.ingest(tmp_path / "r.jsonl", tmp_path / "r.corpus", client=client, **arguments)
    assert corpus.vocabulary.terms == ("Dres", "big", "fit", "smal")
    assert corpus.content_hash == dslda.ingest(tmp_path / "r.jsonl", **arguments).content_hash
    bag = dask.bag.from_sequence(RECORDS, npartitions=3)
    with pytest.warns(dslda.exceptions.ConvergenceWarning):
        model = dslda.train(
            bag, response="y", n_topics=2, max_iter=2, analyzer=words.stems, client=client, **ALL
        )
    predicted = model.predict(["Dresses fit big"])
    assert client.submit(model.predict, ["Dresses fit big"]).result().tobytes() == predicted.tobytes()
    run = dslda.score(model, tmp_path / "r.jsonl", tmp_path / "scores", client=client)
    assert "60 rows" in str(run)

    # a later process has to be told what to import, by the same name
    model.save(tmp_path / "m.model")
    name = f"{words.__name__}:stems"
    code = f"""
import sys
import dslda.exceptions
model = dslda.load_model("m.model")
print(len(model.topics()), len(model.predict([(["Dres"], [2])])))
for load in (lambda: model, lambda: dslda.load_model("m.model", analyzer="builtins:sorted")):
    try:
        load().predict(["Dresses"])
    except dslda.exceptions.InputError as error:
        print(error.parameter, {words.__name__!r} in sys.modules)
print(dslda.load_model("m.model", analyzer={name!r}).predict(["Dresses fit big"]).tobytes().hex())
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split("\n")[:-1] == [
        "2 1",
        "analyzer False",
        "analyzer False",
        predicted.tobytes().hex(),
    ], done.stderr
