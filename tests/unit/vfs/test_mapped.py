"""What the system is told about a mapped file: whole pages, of what will be read and of nothing else."""

from __future__ import annotations

import mmap
from pathlib import Path

import pyarrow as pa
import pytest

from custody.eventlog import EventLog, LogOptions, log_metadata, write_log
from custody.model import to_batch
from custody.vfs import PosixFileSystem, will_need
from tests.support import sample

FS = PosixFileSystem()
PAGE = mmap.PAGESIZE


class Told(mmap.mmap):
    """A mapping that notes what it is told."""

    told: list[tuple[int, int, int]]

    def madvise(self, option: int, start: int = 0, length: int = 0) -> None:
        """Note it, and do it."""
        self.told = [*getattr(self, "told", []), (option, start, length)]
        super().madvise(option, start, length)


def mapped(path: Path) -> Told:
    with path.open("rb") as file:
        return Told(file.fileno(), 0, access=mmap.ACCESS_READ)


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, 10, (0, 10)),
        (PAGE + 7, 9, (PAGE, 16)),
        (PAGE, PAGE, (PAGE, PAGE)),
        (3 * PAGE - 1, 99, (2 * PAGE, PAGE + 98)),
    ],
)
def test_the_pages_of_a_part_are_asked_for(tmp_path: Path, start: int, length: int, expected: tuple[int, int]) -> None:
    (tmp_path / "file").write_bytes(bytes(3 * PAGE))
    view = mapped(tmp_path / "file")
    will_need(memoryview(view), start, length)
    assert view.told == [(mmap.MADV_WILLNEED, *expected)]


def test_what_lies_behind_the_end_or_is_not_mapped_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(PAGE))
    view = mapped(tmp_path / "file")
    will_need(memoryview(view), PAGE, 1)
    assert not hasattr(view, "told")
    will_need(memoryview(b"abc"), 0, 3)


def test_one_event_asks_for_one_block(tmp_path: Path) -> None:
    table = pa.Table.from_batches([to_batch(sample(200), 0)])
    made = write_log(FS, tmp_path / "1.parquet", table, log_metadata(table, "w", "d"), LogOptions(20_000))
    log = EventLog(FS, made.path)
    view = mapped(made.path)
    log.__dict__["data"] = memoryview(view)
    assert log.get_many([100]).num_rows == 1
    block = log.toc.blocks[log.toc.block_of(100)]
    [(_, start, length)] = view.told
    assert start <= block["offset"] < start + PAGE
    assert start + length == block["offset"] + block["length"]
