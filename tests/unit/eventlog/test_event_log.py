"""Event logs: what was written is read, by block or by id, with or without the .toc; damage never gives other data."""

from __future__ import annotations

import hashlib
import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from custody.errors import CorruptionError, NotFoundError
from custody.eventlog import (
    EventLog,
    LogOptions,
    WrittenLog,
    log_metadata,
    write_log,
)
from custody.model import EVENT_SCHEMA, to_batch, to_events
from custody.vfs import PosixFileSystem
from tests.support import event, files_below, flipped, numbered, sample

FS = PosixFileSystem()
FIRST = 100
EVENTS = numbered(sample(150), FIRST)
TABLE = pa.Table.from_batches([to_batch(EVENTS[:70], FIRST), to_batch(EVENTS[70:], FIRST + 70)])
METADATA = log_metadata(TABLE, "main", "provenance")
BLOCK_BYTES = 20_000


def write(path: Path, compression: str = "zstd") -> WrittenLog:
    return write_log(FS, path, TABLE, METADATA, LogOptions(BLOCK_BYTES, compression))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> WrittenLog:
    return write(tmp_path_factory.mktemp("log") / f"{FIRST:020d}.parquet")


@pytest.fixture
def log(written: WrittenLog) -> EventLog:
    return EventLog(FS, written.path)


@pytest.mark.parametrize("compression", ["zstd", "gzip", "none"])
def test_a_log_is_read_back_as_it_was_written(compression: str, tmp_path: Path) -> None:
    made = write(tmp_path / "log.parquet", compression)
    found = EventLog(FS, made.path)
    assert to_events(found.read()) == EVENTS
    assert found.read().schema.equals(EVENT_SCHEMA)
    assert found.metadata == METADATA


def test_the_report_of_a_written_log_is_true(written: WrittenLog) -> None:
    assert written.size_bytes == written.path.stat().st_size
    assert written.sha256 == hashlib.sha256(written.path.read_bytes()).digest()
    assert written.toc_sha256 == hashlib.sha256(written.toc.read_bytes()).digest()
    assert written.blocks == pq.read_metadata(written.path).num_row_groups


def test_writing_again_gives_the_same_bytes_and_leaves_nothing_beside(tmp_path: Path) -> None:
    write(tmp_path / "log.parquet")
    before = files_below(tmp_path)
    write(tmp_path / "log.parquet")
    assert files_below(tmp_path) == before
    assert set(before) == {"log.parquet", "log.toc"}


def test_metadata_tells_the_bounds_of_ids_and_times() -> None:
    times = [item.event_time for item in EVENTS]
    assert (METADATA.first_event_id, METADATA.last_event_id) == (FIRST, FIRST + len(EVENTS) - 1)
    assert (METADATA.first_event_time_ms, METADATA.last_event_time_ms) == (min(times), max(times))
    assert METADATA.partition == "2026-03-02"


def test_a_log_that_says_something_else_of_itself_is_damaged(log: EventLog) -> None:
    other = log_metadata(TABLE, "other", "provenance")
    log.check(METADATA)
    with pytest.raises(CorruptionError, match="other"):
        log.check(other)


def sizes_before_compression(path: Path) -> list[tuple[int, int]]:
    """Return the events and the bytes of each block."""
    footer = pq.read_metadata(path)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    return [(group.num_rows, group.total_byte_size) for group in groups]


def test_no_block_is_larger_than_allowed(log: EventLog, written: WrittenLog) -> None:
    sizes = sizes_before_compression(written.path)
    assert len(sizes) == 5
    assert [rows for rows, _ in sizes] == log.toc.blocks["rows"].tolist()
    assert all(size <= BLOCK_BYTES or rows == 1 for rows, size in sizes)
    assert max(size for _, size in sizes) > BLOCK_BYTES // 2


@pytest.mark.parametrize("column", ["details", "content_uri"])
def test_no_block_is_larger_than_allowed_when_nothing_in_it_repeats(tmp_path: Path, column: str) -> None:
    # What is taken for a column of few values, or of addresses with one beginning, is neither.
    digits = [f"{random.Random(number).getrandbits(4000):x}" for number in range(300)]  # noqa: S311 - repeatable, not secret
    items = [event(number, **{column: text}) for number, text in enumerate(digits)]
    table = pa.Table.from_batches([to_batch(items, 0)])
    calls = []

    def tables() -> list[pa.Table]:
        calls.append(1)
        return [table.slice(0, 100), table.slice(100)]

    made = write_log(FS, tmp_path / "1.parquet", tables, log_metadata(table, "w", "d"), LogOptions(65536))
    assert len(calls) > 1, "the first try was not too large"
    sizes = sizes_before_compression(made.path)
    assert all(size <= 65536 for _, size in sizes)
    assert len(sizes) < 10, "the blocks are smaller than they have to be"
    assert EventLog(FS, made.path).read().equals(table)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.parquet", "1.toc"]


def test_each_block_is_what_the_table_of_contents_says(log: EventLog, written: WrittenLog) -> None:
    footer = pq.read_metadata(written.path)
    end = 4
    for number, block in enumerate(log.toc.blocks):
        events = to_events(log.block(number))
        times = [item.event_time for item in events]
        assert events[0].event_id == block["first_event_id"]
        assert (min(times), max(times)) == (block["first_event_time"], block["last_event_time"])
        assert block["offset"] == end
        end += int(block["length"])
    assert end <= written.size_bytes - footer.serialized_size


@pytest.mark.parametrize(
    "ids",
    [
        [],
        [FIRST],
        [FIRST - 1, FIRST + len(EVENTS)],
        [FIRST + 149, FIRST + 3, FIRST + 3],
        range(FIRST, FIRST + 150, 7),
        range(90, 260),
        [0, 10**18],
    ],
)
def test_get_many_is_a_filter_of_a_full_scan(log: EventLog, ids: list[int]) -> None:
    wanted = set(ids)
    assert to_events(log.get_many(list(ids))) == [item for item in EVENTS if item.event_id in wanted]


def test_some_columns_are_read_alone(log: EventLog) -> None:
    table = log.read(["event_id", "details"])
    assert table.column_names == ["event_id", "details"]
    assert table.column("details").to_pylist() == [item.details for item in EVENTS]


@pytest.mark.parametrize("damage", ["lost", "flipped", "cut", "newer"])
def test_a_lost_or_damaged_toc_is_replaced_by_the_footer(written: WrittenLog, tmp_path: Path, damage: str) -> None:
    path = Path(shutil.copy(written.path, tmp_path / "log.parquet"))
    toc = tmp_path / "log.toc"
    good = written.toc.read_bytes()
    if damage != "lost":
        toc.write_bytes({"flipped": flipped(good, 300), "cut": good[:-1], "newer": flipped(good, 56)}[damage])
    log = EventLog(FS, path)
    assert log.toc.encode() == good
    assert to_events(log.get_many(range(FIRST, FIRST + 150, 5))) == EVENTS[::5]


def test_rows_of_many_blocks_do_not_keep_the_blocks(log: EventLog, monkeypatch: pytest.MonkeyPatch) -> None:
    firsts = log.toc.blocks["first_event_id"].astype(np.int64)
    assert len(firsts) > 4
    whole = sum(piece.get_total_buffer_size() for piece in log.rows(firsts))
    monkeypatch.setattr("custody.eventlog.event_log._SHOWN_MAX", 1)
    pieces = log.rows(firsts)
    assert to_events(pa.Table.from_batches(pieces)) == [EVENTS[first - FIRST] for first in firsts]
    # At most one row is shown without a copy.
    assert len(pieces) == -(-len(firsts) // 2)
    assert sum(piece.get_total_buffer_size() for piece in pieces) < whole / 2


def test_flipped_bits_are_found_and_placed_or_harmless(written: WrittenLog, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    data = written.path.read_bytes()
    shutil.copy(written.toc, tmp_path / "log.toc")
    end = int(EventLog(FS, written.path).toc.blocks[-1]["offset"] + EventLog(FS, written.path).toc.blocks[-1]["length"])
    generator = random.Random(20260302)  # noqa: S311 - repeatable, not secret
    bits = [generator.randrange(8 * end) for _ in range(100)]
    bits += [generator.randrange(8 * end, 8 * len(data)) for _ in range(100)]
    found = 0
    for bit in bits:
        path.write_bytes(flipped(data, bit))
        log = EventLog(FS, path)
        try:
            got = to_events(log.read())
        except CorruptionError as error:
            found += 1
            assert str(path) in str(error)
            if bit // 8 < end and bit // 8 >= 4:
                block = int(log.toc.blocks["offset"].searchsorted(bit // 8, side="right")) - 1
                assert f"block {block}:" in str(error), bit
        else:
            assert got == EVENTS, bit
    assert found > 70


def test_damage_costs_its_block_and_no_other(written: WrittenLog, tmp_path: Path) -> None:
    path = tmp_path / "log.parquet"
    blocks = EventLog(FS, written.path).toc.blocks
    data = bytearray(written.path.read_bytes())
    middle = int(blocks[2]["offset"] + blocks[2]["length"] // 2)
    data[middle : middle + 64] = bytes(byte ^ 0xFF for byte in data[middle : middle + 64])
    path.write_bytes(data)
    log = EventLog(FS, path)
    first = int(blocks[2]["first_event_id"])
    with pytest.raises(CorruptionError, match="block 2"):
        log.get_many([first])
    others = [item for item in EVENTS if not first <= item.event_id < first + int(blocks[2]["rows"])]
    assert to_events(log.get_many([item.event_id for item in others])) == others


def test_a_column_whose_name_was_damaged_is_not_read_as_absent(written: WrittenLog, tmp_path: Path) -> None:
    """One bit of Parquet's footer can rename a column; the table of contents knows how it was."""
    path = tmp_path / "log.parquet"
    data = written.path.read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    place = data.index(b"component_name", footer)
    path.write_bytes(data[:place] + b"componenu_name" + data[place + 14 :])
    assert to_events(EventLog(FS, path).read()) == EVENTS


@pytest.mark.parametrize("length", [0, 4, 100])
def test_a_cut_log_is_damaged(written: WrittenLog, tmp_path: Path, length: int) -> None:
    path = tmp_path / "log.parquet"
    path.write_bytes(written.path.read_bytes()[:length])
    with pytest.raises(CorruptionError, match=str(path)):
        EventLog(FS, path).read()


def test_a_log_that_is_gone_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"log\.parquet is gone"):
        EventLog(FS, tmp_path / "log.parquet").read()


def test_a_single_event_makes_a_log(tmp_path: Path) -> None:
    table = pa.Table.from_batches([to_batch([event(0)], 0)])
    made = write_log(FS, tmp_path / "one.parquet", table, log_metadata(table, "w", "d"), LogOptions())
    assert to_events(EventLog(FS, made.path).read()) == numbered([event(0)])
