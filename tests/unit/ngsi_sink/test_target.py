"""Targets: which one the parameters choose, and what `apply` does with each state that a crash can leave."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from custody.config import Settings
from custody.errors import ConfigurationError, CorruptionError, StorageError
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.batch_file import FileAppend
from custody.ngsi_sink.opening import open_target
from custody.ngsi_sink.target import BusyError, FilesTarget
from custody.vfs import PosixFileSystem
from custody.vfs.memory import MemoryFileSystem
from tests.unit.ngsi.notification_records import parameters

PATH = "/user/warden/a b/ä.txt"


@dataclass
class Told:
    """A file system that keeps one file and what was asked of it; `busy` is how often it says so first."""

    data: bytes | None = None
    busy: int = 0
    on_busy: Callable[[Told], None] = lambda files: None
    asked: list[str] = field(default_factory=list)
    outlives_writers: bool = False

    def _say(self, what: str) -> None:
        self.asked.append(what)
        if what != "size" and self.busy:
            self.busy -= 1
            self.on_busy(self)
            raise BusyError("another writer")

    def size(self, path: str) -> int | None:
        self._say("size")
        return None if self.data is None else len(self.data)

    def digest(self, path: str, offset: int, length: int) -> str:
        self._say("digest")
        return hashlib.sha256((self.data or b"")[offset : offset + length]).hexdigest()

    def settle(self, path: str) -> None:
        self._say("settle")

    def create(self, path: str, data: memoryview) -> None:
        self._say("create")
        self.data = bytes(data)

    def append(self, path: str, data: memoryview) -> None:
        self._say("append")
        self.data = (self.data or b"") + data

    def cut(self, path: str, length: int) -> None:
        self._say("cut")
        self.data = (self.data or b"")[:length]

    def uri(self, path: str) -> str:
        return f"told:{path}"

    def close(self) -> None:
        self.asked.append("close")


class Watch:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def now(self) -> float:
        return self.seconds


def target(files: Told, watch: Watch | None = None) -> FilesTarget:
    watch = watch or Watch()
    return FilesTarget(files, busy_seconds=60, sleep=watch.sleep, now=watch.now)


def apply(files: Told, offset: int, data: bytes) -> list[str]:
    target(files).apply(FileAppend.of(PATH, offset, data), memoryview(data))
    return files.asked


@pytest.mark.parametrize(
    ("before", "offset", "asked"),
    [
        (None, 0, ["size", "create"]),
        (b"", 0, ["size", "append"]),
        (b"one\n", 4, ["size", "append"]),
        (b"one\ntw", 4, ["size", "settle", "size", "cut", "append"]),
        (b"one\ntwo\n", 4, ["size", "settle", "size", "digest"]),
        (b"one\nTWO\n", 4, ["size", "settle", "size", "digest", "cut", "append"]),
        (b"one\ntwo\nmine\n", 4, ["size", "settle", "size", "digest"]),
    ],
)
def test_a_part_stands_once_whatever_was_there(before: bytes | None, offset: int, asked: list[str]) -> None:
    files = Told(before)
    assert apply(files, offset, b"two\n") == asked
    after = b"one\n"[:offset] + b"two\n"
    assert files.data == after + (before or b"")[len(after) :]
    files.asked.clear()
    assert apply(files, offset, b"two\n") == ["size", "settle", "size", "digest"]


def test_a_file_that_a_dead_writer_may_still_change_is_settled_before_its_length_counts() -> None:
    """The half of a part reaches the file between a look at it and the append."""
    files = Told(b"one\n", outlives_writers=True)
    used = target(files)

    def settle(path: str) -> None:
        files.asked.append("settle")
        files.data = b"one\ntw"

    files.settle = settle  # type: ignore[method-assign]
    used.apply(FileAppend.of(PATH, 4, b"two\n"), memoryview(b"two\n"))
    assert files.asked == ["size", "settle", "size", "cut", "append"]
    assert files.data == b"one\ntwo\n"
    files.asked.clear()
    used.apply(FileAppend.of(PATH, 8, b"three\n"), memoryview(b"three\n"))
    assert files.asked == ["size", "append"]


def test_after_an_error_a_file_is_settled_again() -> None:
    files = Told(b"", outlives_writers=True)
    used = target(files)
    used.apply(FileAppend.of(PATH, 0, b"one\n"), memoryview(b"one\n"))
    with pytest.raises(CorruptionError):
        used.apply(FileAppend.of(PATH, 99, b"x"), memoryview(b"x"))
    files.asked.clear()
    used.apply(FileAppend.of(PATH, 4, b"two\n"), memoryview(b"two\n"))
    assert files.asked == ["size", "settle", "size", "append"]


def test_an_empty_part_makes_an_empty_file_and_leaves_it() -> None:
    files = Told()
    assert apply(files, 0, b"") == ["size", "create"]
    files.asked.clear()
    assert apply(files, 0, b"") == ["size", "settle", "size", "digest"]
    assert files.data == b""


@pytest.mark.parametrize(
    ("before", "says"),
    [
        (None, "expected at least the 4 bytes that were committed, got 0"),
        (b"one", "expected at least the 4 bytes that were committed, got 3"),
        (b"one\nTWO\nmine\n", "@4: expected 4 bytes that were committed, got others, and 5 more behind them"),
    ],
)
def test_what_is_not_ours_is_damage_and_stays(before: bytes | None, says: str) -> None:
    files = Told(before)
    with pytest.raises(CorruptionError) as caught:
        apply(files, 4, b"two\n")
    assert says in str(caught.value)
    assert PATH in str(caught.value)
    assert files.data == before


def test_who_waited_looks_again_at_what_the_other_one_wrote() -> None:
    """The other one is a former try of this very batch, which gets its part written while we wait."""

    def other(files: Told) -> None:
        files.data = b"one\ntwo\n"

    files = Told(b"one\n", busy=1, on_busy=other)
    assert apply(files, 4, b"two\n") == ["size", "append", "size", "settle", "size", "digest"]
    assert files.data == b"one\ntwo\n"


def test_waits_grow_and_end() -> None:
    watch = Watch()
    files = Told(b"one\n", busy=1000)
    with pytest.raises(StorageError, match="expected it to be free within 60 s, got another writer"):
        target(files, watch).apply(FileAppend.of(PATH, 4, b"x"), memoryview(b"x"))
    assert 50 < watch.seconds <= 60
    assert 10 < files.asked.count("append") < 30


def chosen(**names: Any) -> tuple[str, str]:
    values = parameters(**names).values
    return values.backend, values.backend_impl


def test_a_folder_is_the_default_and_naming_a_namenode_wants_hdfs() -> None:
    assert chosen() == ("file", "rest")
    assert chosen(backend="rest") == ("rest", "rest")
    assert chosen(backend="binary") == ("binary", "binary")
    assert chosen(hdfs_host="nn1,nn2") == ("rest", "rest")
    assert chosen(**{"backend.impl": "binary"}) == ("binary", "binary")
    assert chosen(backend="file", hdfs_host="nn1", backend_impl="binary") == ("file", "binary")


def test_a_backend_that_says_two_things_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="backend: rest and backend_impl binary contradict each other"):
        Parameters.from_names({"hdfs_username": "warden", "backend": "rest", "backend_impl": "binary"})


def test_a_worker_on_another_machine_gets_the_same_backend(tmp_path: Path) -> None:
    for section in ({}, {"hdfs_host": "nn1"}, {"backend": "binary"}):
        settings = Settings(root=tmp_path, ngsi=section)
        assert Settings.from_json(settings.to_json()).ngsi == settings.ngsi


def test_the_folder_lies_in_the_repository(tmp_path: Path) -> None:
    fs = MemoryFileSystem()
    used = open_target(parameters(), fs, tmp_path)
    assert used.length(PATH) == 0
    used.apply(FileAppend.of(PATH, 0, b"one\n"), memoryview(b"one\n"))
    used.apply(FileAppend.of(PATH, 4, b"two\n"), memoryview(b"two\n"))
    used.close()
    assert used.length(PATH) == 8
    assert fs.read(tmp_path / "hdfs" / PATH[1:]) == b"one\ntwo\n"
    assert used.uri(PATH) == f"file://{tmp_path}/hdfs/user/warden/a%20b/%C3%A4.txt"
    elsewhere = open_target(parameters(backend_folder=str(tmp_path / "x")), PosixFileSystem(), tmp_path)
    elsewhere.apply(FileAppend.of(PATH, 0, b"one\n"), memoryview(b"one\n"))
    assert (tmp_path / "x" / PATH[1:]).read_bytes() == b"one\n"


def test_hadoop_s_client_is_spark_s() -> None:
    with pytest.raises(ConfigurationError, match="expected a Spark session"):
        open_target(parameters(backend="binary"), MemoryFileSystem(), Path("/r"))
    files = Told(b"one\n")
    assert (
        open_target(parameters(backend="binary"), MemoryFileSystem(), Path("/r"), rpc=lambda used: files).length("")
        == 4
    )
