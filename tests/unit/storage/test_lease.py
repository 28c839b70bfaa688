"""Locks in object stores, in a file system of fsspec that only this process has, for two holders."""

from __future__ import annotations

import json
import logging
import re
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from dslda.exceptions import OutputError
from dslda.storage import lease as module
from dslda.storage.lease import ENDED, Lease
from dslda.storage.location import Location
from dslda.storage.lock import only_writer
from dslda.storage.output import move_into_place


class Bucket(MemoryFileSystem):
    """Creates objects exclusively on demand."""

    protocol = "bucket"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    may_remove = True
    creates = True
    before_creation: ClassVar[list[Callable[[str], None]]] = []

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return super()._strip_protocol(path.removeprefix("bucket://"))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        if mode == "create":
            if not self.creates:
                raise NotImplementedError("no conditions here")
            while self.before_creation:
                self.before_creation.pop()(path)
        super().pipe_file(path, value, mode=mode, **kwargs)

    def rm_file(self, path: str) -> None:
        if not self.may_remove:
            raise PermissionError("rights to write are none to remove")
        super().rm_file(path)


fsspec.register_implementation("bucket", Bucket, clobber=True)


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Path of an output, with short periods."""
    monkeypatch.setattr(module, "RENEWAL_SECONDS", 0.01)
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.1)
    monkeypatch.setattr(module, "LOOKS", 3)
    Bucket.store.clear()
    yield f"/{uuid.uuid4().hex}"
    Bucket.may_remove = Bucket.creates = True
    Bucket.before_creation.clear()


def put(place: str, number: int, token: str = "f" * 32, beat: bytes | None = b'{"beat": 4}') -> None:
    """Leave the lock of a process that has died."""
    said = {"process": 123, "host": "elsewhere", "token": token}
    Bucket().pipe_file(f"{place}/.lock/{number}", json.dumps(said).encode())
    if beat is not None:
        Bucket().pipe_file(f"{place}/.lock/{number}.{token}", beat)


def there(place: str) -> list[str]:
    return sorted(name.removeprefix(f"{place}/.lock/") for name in Bucket.store if name.startswith(place))


def test_a_lock_is_held_and_renewed_and_leaves_nothing(place: str) -> None:
    with only_writer(Location.of(f"bucket:/{place}"), inside=True) as lock:
        assert lock.alone
        own, beat = there(place)
        assert own == "1"
        first = Bucket().cat_file(f"{place}/.lock/{beat}")
        while Bucket().cat_file(f"{place}/.lock/{beat}") == first:
            pass
        lock.check()
        assert not lock.is_lost()
    assert there(place) == []


def test_a_lock_beside_an_output_has_its_name(place: str) -> None:
    with only_writer(Location.of(f"bucket:/{place}/a.corpus")):
        assert len([name for name in Bucket.store if name.startswith(f"{place}/.a.corpus.lock/")]) == 2
        assert not Location.of(f"bucket:/{place}/a.corpus").holds()
    assert there(place) == []


def test_another_thread_is_refused_at_once(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 1000)
    location = Location.of(f"bucket:/{place}")
    with only_writer(location, inside=True) as lock:
        with (
            pytest.raises(OutputError, match=r"is being written by another run \(process \d+ on "),
            only_writer(location, inside=True),
        ):
            pass
        lock.check()


def test_the_lock_of_a_dead_run_is_taken_and_removed(place: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "dslda")
    put(place, 7)
    put(place, 3, "e" * 32)
    with only_writer(Location.of(f"bucket:/{place}"), inside=True) as lock:
        assert lock.alone
        assert [name.partition(".")[0] for name in there(place)] == ["8", "8"]
    assert there(place) == []
    assert "is locked by the run of process 123 on elsewhere: looking for" in caplog.text
    assert "process 123 on elsewhere is gone: going on with" in caplog.text


def test_one_that_is_at_work_is_named(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Lease(Bucket(), f"{place}/.lock", "other")
    other.acquire()
    monkeypatch.setattr(module, "_held_tokens", set())  # as of another process
    monkeypatch.setattr(module, "LOOKS", 1000)
    try:
        with (
            pytest.raises(
                OutputError, match=r"written by another run \(process \d+ on .*; wait for it to end"
            ),
            only_writer(Location.of(f"bucket:/{place}"), inside=True),
        ):
            pass
        other.check()
    finally:
        other.release()
    assert there(place) == []


@pytest.mark.parametrize("how", ["higher", "gone", "anew"])
def test_a_run_that_lost_its_lock_stops_and_removes_nothing_of_the_other(place: str, how: str) -> None:
    with only_writer(Location.of(f"bucket:/{place}"), inside=True) as lock:
        if how != "higher":
            Bucket().rm_file(f"{place}/.lock/1")
        if how != "gone":
            put(place, {"higher": 2, "anew": 1}[how])
        with pytest.raises(OutputError, match="was given to another run: this one stood still for so long"):
            lock.check()
        assert lock.is_lost()
    left = {"higher": ["2", f"2.{'f' * 32}"], "gone": [], "anew": ["1", f"1.{'f' * 32}"]}
    assert there(place) == left[how]


def test_one_of_two_runs_that_take_a_lock_holds_it(place: str) -> None:
    """The other created the next number just before."""
    put(place, 1)
    Bucket.before_creation.append(lambda path: put(place, 2, "e" * 32, ENDED))
    with only_writer(Location.of(f"bucket:/{place}"), inside=True) as lock:
        # and has ended since
        assert [name.partition(".")[0] for name in there(place)] == ["3", "3"]
        lock.check()


def test_a_run_steps_back_if_the_lock_that_it_takes_was_begun_anew(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place, 1)
    monkeypatch.setattr(module, "LOOKS", 2)
    new = Lease(Bucket(), f"{place}/.lock", "new")

    def begin(path: str) -> None:
        Bucket().rm_file(f"{place}/.lock/1")
        new.acquire()

    Bucket.before_creation.append(begin)
    with (
        pytest.raises(OutputError, match="is being written by another run"),
        only_writer(Location.of(f"bucket:/{place}"), inside=True),
    ):
        pass
    new.check()
    new.release()


def test_a_run_steps_back_if_another_took_a_higher_number(place: str) -> None:
    Bucket.before_creation.append(lambda path: put(place, 5, beat=ENDED))
    with only_writer(Location.of(f"bucket:/{place}"), inside=True):
        assert [name.partition(".")[0] for name in there(place)] == ["6", "6"]


def test_the_next_run_does_not_wait_for_one_without_rights_to_remove(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 1000)
    Bucket.may_remove = False
    for number in (1, 2, 3):
        with only_writer(Location.of(f"bucket:/{place}"), inside=True) as lock:
            lock.check()
            assert max(int(name.partition(".")[0]) for name in there(place)) == number


def test_a_warning_says_that_nothing_can_be_created_exclusively(
    place: str, caplog: pytest.LogCaptureFixture
) -> None:
    Bucket.creates = False
    with only_writer(Location.of(f"bucket:/{place}"), inside=True) as lock:
        assert not lock.alone
        lock.check()
    says = rf"bucket:/{place} is not locked \(no conditions here\): see to it that no other run writes it now"
    assert re.search(says, caplog.text)
    assert there(place) == []


def test_a_run_recognises_its_lock_if_the_answer_was_lost(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is sent again, and refused for the object that it made."""
    create = Bucket.pipe_file

    def twice(self: Bucket, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        create(self, path, value, mode=mode, **kwargs)
        if mode == "create":
            create(self, path, value, mode=mode, **kwargs)

    monkeypatch.setattr(Bucket, "pipe_file", twice)
    with only_writer(Location.of(f"bucket:/{place}"), inside=True) as lock:
        lock.check()
        assert there(place)[0] == "1"


def test_an_output_behind_a_cache_is_not_locked(place: str, caplog: pytest.LogCaptureFixture) -> None:
    with only_writer(Location.of(f"simplecache::bucket:/{place}"), inside=True) as lock:
        assert not lock.alone
    assert "it is written through another file system" in caplog.text


def test_a_run_follows_one_that_ends_while_it_watches(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RENEWAL_SECONDS", 1000)
    other = Lease(Bucket(), f"{place}/.lock", "other")
    other.acquire()
    monkeypatch.setattr(module, "_held_tokens", set())  # as of another process
    ending = threading.Timer(0.05, other.release)
    ending.start()
    with only_writer(Location.of(f"bucket:/{place}"), inside=True) as lock:
        ending.join()
        lock.check()
        assert there(place)[0] == "1"


def test_a_lock_that_cannot_be_read_is_neither_taken_nor_ignored(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place, 1)

    def refuse(self: Bucket, path: str, **_: Any) -> bytes:
        raise PermissionError("may not read")

    with monkeypatch.context() as patch:
        patch.setattr(Bucket, "cat_file", refuse)
        with (
            pytest.raises(OutputError, match="could not be written: may not read"),
            only_writer(Location.of(f"bucket:/{place}"), inside=True),
        ):
            pass
    assert there(place) == ["1", f"1.{'f' * 32}"]
    with only_writer(Location.of(f"bucket:/{place}"), inside=True) as lock:
        monkeypatch.setattr(Bucket, "cat_file", refuse)
        with pytest.raises(OutputError, match="its lock cannot be read: may not read; try again"):
            lock.check()


def test_a_copy_gets_no_manifest_if_the_lock_is_lost_meanwhile(place: str) -> None:
    source, target = (Location.of(f"bucket:/{place}/{name}") for name in "st")
    attributes = {"node_type": "group", "attributes": {"encoding-type": "dslda-corpus"}}
    Bucket().pipe_file(f"{place}/s/zarr.json", json.dumps(attributes).encode())
    Bucket().pipe_file(f"{place}/s/terms/c/0/0", b"numbers")

    def lost() -> None:
        raise OutputError("lost")

    settings: dict[str, Any] = {"encoding_type": "dslda-corpus", "overwrite": False}
    with pytest.raises(OutputError, match="lost"):
        move_into_place(source, target, **settings, before_manifest=lost)
    assert target.holds("terms/c/0/0")
    assert not target.holds("zarr.json")
    assert source.holds("zarr.json")
