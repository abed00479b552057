"""Mapped files: any number of them, and what the system is told: whole pages, of what will be read and nothing else."""

from __future__ import annotations

import ctypes
import gc
import mmap
import os
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import StorageError
from custody.eventlog import EventLog, LogOptions, log_metadata, write_log
from custody.model import to_batch
from custody.vfs import PosixFileSystem, advise_random_access, mapped, prefetch_pages, release_pages, rfind
from tests.support import sample

FS = PosixFileSystem()
PAGE = mmap.PAGESIZE


class Told:
    """The C library, which notes what the system is told, and tells it."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int, int]] = []
        self._real = ctypes.CDLL(None)

    def madvise(self, address: ctypes.c_void_p, length: ctypes.c_size_t, advice: int) -> None:
        """Note it, and do it."""
        assert self._real.madvise(address, length, advice) == 0
        self.told.append((advice, address.value or 0, length.value))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, int]]:
    listening = Told()
    monkeypatch.setattr(mapped, "_LIBC", listening)
    return listening.told


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, 10, (0, 10)),
        (PAGE + 7, 9, (PAGE, 16)),
        (PAGE, PAGE, (PAGE, PAGE)),
        (3 * PAGE - 1, 99, (2 * PAGE, PAGE)),
    ],
)
def test_the_pages_of_a_part_are_asked_for(
    tmp_path: Path, told: list[tuple[int, int, int]], start: int, length: int, expected: tuple[int, int]
) -> None:
    (tmp_path / "file").write_bytes(bytes(3 * PAGE))
    view = FS.view(tmp_path / "file")
    prefetch_pages(view, start, length)
    assert isinstance(view.obj, pa.Buffer)
    assert told == [(mmap.MADV_WILLNEED, view.obj.address + expected[0], expected[1])]


def test_what_lies_behind_the_end_or_is_not_mapped_is_left_alone(
    tmp_path: Path, told: list[tuple[int, int, int]]
) -> None:
    (tmp_path / "file").write_bytes(bytes(PAGE))
    prefetch_pages(FS.view(tmp_path / "file"), PAGE, 1)
    memory = memoryview(pa.py_buffer(b"abc" * PAGE))  # of Arrow, too, and no file's
    for view in (memory, memoryview(b"abc")):
        prefetch_pages(view, 0, 3)
        release_pages(view)
        advise_random_access(view)
    assert told == []
    assert bytes(memory) == b"abc" * PAGE


def test_one_event_asks_for_one_block(tmp_path: Path, told: list[tuple[int, int, int]]) -> None:
    table = pa.Table.from_batches([to_batch(sample(200), 0)])
    made = write_log(FS, tmp_path / "1.parquet", table, log_metadata(table, "w", "d"), LogOptions(20_000))
    log = EventLog(FS, made.path)
    assert isinstance(log.data.obj, pa.Buffer)
    assert log.get_many([100]).num_rows == 1
    block = log.toc.blocks[log.toc.block_of(100)]
    [(_, address, length)] = told
    start = address - log.data.obj.address
    assert start <= block["offset"] < start + PAGE
    assert start + length == block["offset"] + block["length"]


def test_a_mapped_file_keeps_no_descriptor_and_ends_with_its_last_part(tmp_path: Path) -> None:
    path = tmp_path / "mapped-file"
    path.write_bytes(b"\xff" * (2 * PAGE))
    before = len(os.listdir("/proc/self/fd"))
    views = [FS.view(path) for _ in range(50)]
    release_pages(views[0])
    assert (views[0].readonly, views[0][0], bytes(views[0])) == (True, 255, path.read_bytes())
    part = pa.py_buffer(views[0][PAGE:])
    assert len(os.listdir("/proc/self/fd")) == before
    assert Path("/proc/self/maps").read_text().count(str(path)) >= 1
    del views
    gc.collect()
    assert part.to_pybytes() == b"\xff" * PAGE
    assert str(path) in Path("/proc/self/maps").read_text()
    del part
    assert str(path) not in Path("/proc/self/maps").read_text()


def test_what_cannot_be_mapped_is_said_and_an_empty_file_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot read") as refused:
        FS.view(tmp_path / "absent")
    assert refused.value.errno == 2
    (tmp_path / "empty").touch()
    assert bytes(FS.view(tmp_path / "empty")) == b""
    odd = tmp_path / os.fsdecode(b"men\xfc")
    odd.write_bytes(b"abc")
    assert bytes(FS.view(odd)) == b"abc"


@given(st.lists(st.sampled_from([b"a", b"b", b"aa", b"ab"])), st.sampled_from([b"a", b"ab", b"aab"]), st.data())
def test_bytes_are_found_from_the_end_as_python_finds_them(
    pieces: list[bytes], wanted: bytes, data: st.DataObject
) -> None:
    text = b"".join(pieces)
    end = data.draw(st.none() | st.integers(0, len(text)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mapped, "_RFIND_BYTES", 4)
        assert rfind(memoryview(text), wanted, end) == text.rfind(wanted, 0, len(text) if end is None else end)
