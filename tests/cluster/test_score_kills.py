"""A scoring run that ends at any of its writes, by SIGKILL, goes on to the bytes of an undisturbed one."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import dslda

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="signals and forks of POSIX"),
]

REPOSITORY = Path(__file__).resolve().parents[2]

HARNESS = '''
"""Run scoring in children that are killed at their n-th change of a file, and look at the files that remain."""
import json, logging, os, shutil, signal, sys, traceback
from pathlib import Path

import dslda
import fsspec.implementations.local, pandas, pyarrow.parquet, rich.progress, sklearn.feature_extraction.text
from dslda.prediction.predict import predict_nothing
from tests.helpers.dying_children import count_changes, run_in_child
from tests.helpers.files import contents, write_records

folder = Path(sys.argv[1])
out = folder / "work" / "scores"
logging.disable(logging.CRITICAL)
model = dslda.load_model(folder / "m.model")
predict_nothing(model.scoring_record)  # before children are made of this process
def score():
    dslda.score(model, folder / "c.corpus", out)


def score_later():
    dslda.score(model, folder / "in", out, rescore_changed=True)


def begin(before):
    shutil.rmtree(folder / "work", ignore_errors=True)
    (folder / "work").mkdir()
    if before is not None:
        shutil.copytree(before, out)


def killed_everywhere(run, before=None, step=1):
    """Kill a run at every `step`-th of its changes, and look that it goes on to the same files; all changes, and these."""

    def counted():
        seen = count_changes(folder / "work")
        run()
        (folder / "changes").write_text(str(seen[0]))

    def killed(at):
        count_changes(folder / "work", at=at, number=signal.SIGKILL)
        run()

    begin(before)
    old = contents(out)
    assert run_in_child(counted) == 0
    undisturbed = contents(out)
    n = int((folder / "changes").read_text())
    replaced = 0
    for at in range(1, n + 1, step):
        begin(before)
        code = run_in_child(lambda: killed(at))
        assert code == -signal.SIGKILL, (at, code)
        found = contents(out)
        if old:  # what counts stays until all that follows it is there
            is_new = found["manifest.json"] == undisturbed["manifest.json"]
            replaced += is_new
            counts = (undisturbed if is_new else old).items()
            assert counts <= found.items(), (at, is_new, sorted(found))
        assert run_in_child(run) == 0, at
        found = contents(out)
        wrong = [k for k in undisturbed if found.get(k) != undisturbed[k]]
        assert found == undisturbed, (at, sorted(found), wrong)
    assert not old or 0 < replaced < n / (2 * step), replaced
    return {"changes": n, "files": sorted(undisturbed)}


if sys.argv[2] == "of a corpus":
    print(json.dumps(killed_everywhere(score, step=2)))
    sys.exit()
records = [json.loads(line) for line in (folder / "t.jsonl").read_text().splitlines()]
(folder / "in").mkdir()
begin(None)
for name, some in (("a.jsonl", records[:20]), ("b.jsonl", records[20:40])):
    write_records(folder / "in" / name, some)
    assert run_in_child(score_later) == 0
out.rename(folder / "complete")
write_records(folder / "in" / "a.jsonl", records[10:20])
write_records(folder / "in" / "c.jsonl", records[40:])
print(json.dumps(killed_everywhere(score_later, folder / "complete")))
'''


@pytest.mark.filterwarnings("ignore:.*have nearly the words")
@pytest.mark.parametrize(
    ("run", "parts"),
    [("of a corpus", (0, 1)), pytest.param("after a complete one", (1, 2), marks=pytest.mark.soak)],
)
def test_killed_at_each_of_its_writes_a_run_goes_on_to_the_same_bytes(
    run: str, parts: tuple[int, int], tmp_path: Path
) -> None:
    with (tmp_path / "t.jsonl").open("w") as stream:
        for i in range(60):
            words = " ".join(f"w{(i * j) % 17}" for j in range(20))
            stream.write(json.dumps({"id": f"d{i % 50}", "text": words, "y": i % 7}) + "\n")
    settings = {
        "text": "text",
        "id": "id",
        "response": "y",
        "min_df": 1,
        "max_df": 1.0,
        "partition_tokens": 500,
    }
    with pytest.warns(dslda.exceptions.DataWarning, match="10 documents repeat the identifier"):
        corpus = dslda.ingest(tmp_path / "t.jsonl", tmp_path / "c.corpus", **settings)
    assert corpus.n_partitions == 2
    whole = dslda.ingest(
        tmp_path / "t.jsonl", tmp_path / "w.corpus", text="text", response="y", min_df=1, max_df=1.0
    )
    dslda.train(whole, response="y", n_topics=2).save(tmp_path / "m.model")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(HARNESS), str(tmp_path), run],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["changes"] > 20
    assert [name for name in report["files"] if name.endswith(".parquet")] == [
        f"part-{i:06d}.parquet" for i in parts
    ]
