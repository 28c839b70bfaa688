"""What scoring counts and plans, by itself: stability indices, frequent words, parts, cells."""

from __future__ import annotations

import collections
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dslda.cluster.runner import SerialRunner
from dslda.exceptions import FormatError, InputError
from dslda.inputs.fields import Fields
from dslda.inputs.files import list_files
from dslda.persistence.model_record import Reference
from dslda.scoring.resumption import compare, taken_up
from dslda.scoring.run_folder import RunFolder, RunState
from dslda.scoring.run_plan import plan_files, scan
from dslda.scoring.score import score
from dslda.scoring.scoring_units import Input, reason_of, source_of
from dslda.scoring.tables import csv_lines, plain_cell, safe_cell
from dslda.scoring.tally import FrequentWords, find_duplicates, stability_index, warned_above
from dslda.storage.location import Location
from dslda.storage.typed_json import MANIFEST_CHECKSUM
from tests.helpers.files import write_records


def test_the_stability_index_is_the_usual_sum_and_0_where_nothing_moved() -> None:
    then, now = np.array([100, 200, 700]), np.array([200, 200, 600])
    p, q = (now + 0.5) / 1001.5, (then + 0.5) / 1001.5
    assert stability_index(now, then) == pytest.approx(float(np.sum((p - q) * np.log(p / q))))
    assert stability_index(then, then) == 0.0
    assert stability_index(np.array([0, 0, 9]), np.array([9, 0, 0])) > 1.0  # empty bins are no infinity
    # by chance alone, of as many bins: about bins * (1 / n + 1 / m)
    rng = np.random.default_rng(0)
    chance = [
        stability_index(rng.multinomial(5000, [0.1] * 10), rng.multinomial(5000, [0.1] * 10))
        for _ in range(200)
    ]
    assert np.mean(chance) == pytest.approx(9 * 2 / 5000, rel=0.2)


@pytest.mark.parametrize("n_looks", [1, 50])
@pytest.mark.parametrize("n", [5, 20, 50, 100, 250, 1000])
def test_few_rows_of_the_same_kind_are_no_drift_and_many_of_another_are(n: int, n_looks: int) -> None:
    rng = np.random.default_rng(0)
    limit = warned_above(10, n, 1000, n_looks)
    same = [
        max(
            stability_index(rng.multinomial(n, [0.1] * 10), rng.multinomial(1000, [0.1] * 10))
            for _ in range(n_looks)
        )
        for _ in range(400)
    ]
    assert np.mean([index > limit for index in same]) <= 0.05
    assert np.mean([index > 0.25 for index in same]) > 0.3 or n >= 50
    moved = rng.multinomial(n, [0.7, 0.2, *[0.1 / 8] * 8])
    assert n <= 20 or stability_index(moved, rng.multinomial(1000, [0.1] * 10)) > limit


def test_bins_are_counted_where_borders_are_equal() -> None:
    reference = Reference(
        prediction_borders=np.array([0.0] * 5 + [1.0] * 4),
        prediction_counts=np.zeros(10, dtype=np.int64),
        topic_borders=np.zeros((1, 9)),
        topic_counts=np.zeros((1, 10), dtype=np.int64),
        topic_means=np.zeros(1),
    )
    counts = reference.no_counts()
    counts.add(reference, np.array([-1.0, 0.0, 0.5, 1.0, 2.0, np.nan]), np.ones((6, 1)))
    assert counts.predictions.tolist() == [1, 0, 0, 0, 0, 2, 0, 0, 0, 2]
    again = reference.no_counts()
    again.add_json(json.loads(json.dumps(counts.to_json())))
    assert again.topics.tolist() == [[0] * 9 + [6]]


def test_frequent_words_are_found_in_bounded_memory_and_never_counted_too_often() -> None:
    rng = np.random.default_rng(1)
    words = [f"w{i}" for i in rng.zipf(1.3, 60_000) % 30_000]
    exact = collections.Counter(words)
    parts = []
    for start in range(0, len(words), 20_000):
        part = FrequentWords(capacity=500)
        for word in words[start : start + 20_000]:
            part.add(word, 1)
        parts.append(part)
    assert all(0 < part.error <= 20_000 / 500 for part in parts)
    merged = FrequentWords(capacity=500)
    for part in parts:
        merged.merge(part.top(200), part.error + part.rest(200))
    found = merged.top(20)
    assert found == sorted(found, key=lambda item: (-item[1], item[0]))
    for word, count in found:
        assert exact[word] - merged.error <= count <= exact[word]
    assert {word for word, n in exact.items() if n > merged.error + found[-1][1]} <= {
        word for word, _ in found
    }


def test_a_plan_gives_every_record_once_and_survives_json(tmp_path: Path) -> None:
    n = 0
    for name, lines in (("a", 3000), ("b", 2), ("c", 2)):
        with (tmp_path / f"{name}.csv").open("w") as stream:
            stream.write("text,n\n")
            for _ in range(lines):
                stream.write(f'"{"word " * 200}\n",{n}\n')
                n += 1
    files = list_files(tmp_path)
    fields = Fields(text="text", covariates=("n",))
    state = plan_files(SerialRunner(), RunState({}, {}), files, fields, skip=False)
    assert len(state.parts) > 2
    assert sum(part.rows for part in state.parts) == n
    data = json.loads(json.dumps(state.to_json() | {"model": {}, "settings": {}}))
    again = RunState.from_json(data, "manifest")
    assert again.parts == state.parts
    assert again.inputs == state.inputs
    row = 0
    for part in again.parts:
        assert part.first_row == row
        for piece in part.pieces:
            source = source_of(again.inputs[piece.input], piece, format="csv", n_terms=0, options={})
            found = [int(record["n"]) for _, record in source.records(fields)]
            assert found == list(range(row, row + piece.rows))
            row += piece.rows
    data["parts"][0]["pieces"][0]["range"] = {"strat": 1}
    broken = RunState.from_json(data, "manifest").parts[0].pieces[0]
    with pytest.raises(FormatError, match="must be one of csv"):
        source_of(again.inputs[broken.input], broken, format="csv", n_terms=0, options={})
    data["parts"][0]["pieces"][0]["input"] = 99
    with pytest.raises(FormatError, match="must name inputs that are there"):
        RunState.from_json(data, "manifest")


def _lines(path: Path, n: int) -> Path:
    """Large enough to be cut."""
    write_records(path, ({"text": "word " * 200, "n": i} for i in range(n)))
    return path


def test_of_a_large_file_with_a_line_that_cannot_be_read_what_is_before_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _lines(tmp_path / "a.jsonl", 3000)
    with path.open("a") as stream:
        stream.write("x" * 30_000 + '\n{"text": "late"}\n')
    files, fields = list_files(tmp_path), Fields(text="text")
    (sound,) = scan(SerialRunner(), files, fields, target=1 << 20, skip=True)
    assert len(sound.pieces) > 2
    assert sound.input.rows == 3002
    monkeypatch.setattr("dslda.inputs.streams.MAX_LINE_BYTES", 20_000)
    with pytest.raises(InputError, match=r"a\.jsonl, line 3001: a line must be at most"):
        scan(SerialRunner(), files, fields, target=1 << 20, skip=False)
    (found,) = scan(SerialRunner(), files, fields, target=1 << 20, skip=True)
    assert not found.input.unreadable
    assert found.input.sha256 == sound.input.sha256
    ((where, n_rows, _),) = found.pieces
    assert (where, n_rows, found.input.rows) == ({}, 3000, 3000)


@pytest.mark.parametrize("skip", [False, True])
def test_a_large_file_that_changes_after_it_was_cut_is_refused(tmp_path: Path, skip: bool) -> None:
    path = _lines(tmp_path / "a.jsonl", 3000)

    class Disturbed(SerialRunner):
        def stream(
            self, function: Callable[..., Any], rows: Iterable[tuple[Any, ...]], *, n: int, stage: str
        ) -> Iterator[tuple[int, Any]]:
            for i, value in super().stream(function, rows, n=n, stage=stage):
                if isinstance(value, int):
                    path.write_text('{"text": "another"}\n')
                yield i, value

    with pytest.raises(InputError, match="must stay as it is while it is scored"):
        scan(Disturbed(), list_files(tmp_path), Fields(text="text"), target=1 << 20, skip=skip)


def test_a_run_that_is_given_up_gives_way_to_what_is_complete_and_leaves_its_order() -> None:
    a, b, c, d = (Input(name, modified="1", size=1) for name in "abcd")
    complete = RunState({}, {}, inputs=(replace(a, verified=True),), complete=True)
    unfinished = replace(complete, inputs=(*complete.inputs, c, d), complete=False)
    assert taken_up(unfinished, complete, [a, b, c, d]) is unfinished
    for now, new in (([a, b, c, replace(d, size=2)], (2, 3, 1)), ([a, b, c], (2, 1))):
        state = taken_up(unfinished, complete, now)
        assert state is complete
        found = compare(state, now, rescore_changed=False, options={}, order=unfinished.inputs)
        assert (found.state, found.new) == (complete, new)  # parts that are done keep their numbers


def test_a_manifest_is_refused_field_by_field(tmp_path: Path) -> None:
    folder = RunFolder(Location.of(tmp_path), "parquet")
    good = RunState({"model": {}, "settings": {}}, {}).to_json()
    folder.write_manifest(good)
    assert (folder.read_manifest() or {}).keys() == {*good, MANIFEST_CHECKSUM}
    for name in good:
        if not name.startswith("encoding") and name != "latest_part":  # earlier releases lack it
            with pytest.raises(FormatError, match=f"`{name}`"):
                RunState.from_json({k: v for k, v in good.items() if k != name}, "manifest")
    folder.write_manifest(good | {"encoding-version": "2"})
    with pytest.raises(FormatError, match="update dslda"):
        folder.read_manifest()
    (tmp_path / "manifest.json").write_text('{"encoding-type": ')
    with pytest.raises(FormatError, match="damaged or cut short"):
        folder.read_manifest()


@pytest.mark.parametrize("sign", [*"=+-@\t\r\n'", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_cells_that_could_be_formulas_come_back(sign: str) -> None:
    for before in ("", "a;", "a\t", "a|", "a\n", "a\r"):
        assert safe_cell(f"{before}{sign}1").startswith(f"{before}'{sign}")


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_in_no_dialect_is_a_cell_a_formula_and_all_strings_come_back(separator: str, second: bool) -> None:
    texts = ["".join(each) for n in range(5) for each in product("a=\uff1d,;\t\n\"'", repeat=n)]
    assert [plain_cell(safe_cell(text)) for text in texts] == texts
    lines = csv_lines(["x", safe_cell(text)] if second else [safe_cell(text)] for text in texts)
    if separator == ",":
        assert [plain_cell(row[-1]) for row in csv.reader(io.StringIO(lines, newline="")) if row] == texts
    # quotes are obeyed at the beginning of a cell; of what is not ours some programs know none at all
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_NONE)[: 1 if separator == "," else 2]:
        found = csv.reader(io.StringIO(lines, newline=""), delimiter=separator, quoting=quoting)
        assert not [cell for row in found for cell in row if cell.lstrip().startswith(("=", "\uff1d"))]


def test_plain_cells_stay() -> None:
    assert [safe_cell(text) for text in ("a", "1=1", "", " =1", "a;b=1")] == ["a", "1=1", "", " =1", "a;b=1"]
    # in one cell where the separator is another one
    assert csv_lines([["a;b", "c\td", "e|f", "g"]]) == '"a;b","c\td","e|f",g\n'


def test_duplicates_are_counted_range_by_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dslda.ingestion.counting import hashes_of

    (tmp_path / "parts").mkdir()
    names = [f"id{i % 700}" for i in range(1000)]
    files = []
    for i in range(4):
        mine = names[250 * i : 250 * (i + 1)]
        hashes = np.sort(hashes_of(name.encode() for name in mine)).astype("<u8")
        (tmp_path / "parts" / f"{i:06d}.ids").write_bytes(hashes.tobytes())
        write_records(tmp_path / f"part-{i:06d}.jsonl", ({"id": n} for n in mine))
        ids = Location.of(tmp_path / "parts" / f"{i:06d}.ids")
        files.append((Location.of(tmp_path / f"part-{i:06d}.jsonl"), ids))
    whole = find_duplicates(files, "jsonl", 1000)
    monkeypatch.setattr("dslda.scoring.tally.HASHES_AT_ONCE", 10)
    assert find_duplicates(files, "jsonl", 1000) == whole
    assert whole["count"] == 300
    assert len(whole["first"]) == 10
    assert set(whole["first"]) <= set(names[:300])


def test_a_file_with_the_content_of_another_is_told_with_both_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, text in (("a", "good"), ("b", "bad"), ("c", "fine")):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"text": text}) + "\n")
    fields, before = Fields(text="text"), RunState({}, {})
    state = plan_files(SerialRunner(), before, list_files(tmp_path), fields, skip=False)
    assert not caplog.records
    (tmp_path / "a.jsonl").rename(tmp_path / "z.jsonl")
    again = plan_files(SerialRunner(), state, list_files(tmp_path / "z.jsonl"), fields, skip=False)
    (record,) = caplog.records
    assert (record.__dict__["event"], record.__dict__["count"]) == ("same_content", 1)
    assert f"{tmp_path}/z.jsonl that of {tmp_path}/a.jsonl" in record.getMessage()
    assert sum(part.rows for part in again.parts) == 4  # it is scored all the same


def test_documents_in_memory_are_no_inputs(tmp_path: Path) -> None:
    for inputs in (np.ones((2, 2)), {"text": "good"}):
        with pytest.raises(InputError) as caught:
            score(tmp_path / "no.model", inputs, tmp_path / "out")
        assert caught.value.parameter == "inputs"
    assert not (tmp_path / "out").exists()


def test_reasons_name_neither_place_nor_parameters() -> None:
    for error, reason in (
        (InputError("not JSON", place="a.jsonl, line 2"), "not JSON"),
        (InputError("not JSON", remedy="write one object a line"), "not JSON; write one object a line"),
        (InputError("has no text", remedy="name it with {text=}"), "has no text"),
        # a record of several lines that is wrong in its third
        (InputError("not UTF-8", place="a.jsonl, line 4"), "line 4: not UTF-8"),
    ):
        assert reason_of(error, "a.jsonl, line 2") == reason
