"""Staged events: read back batch by batch as they were written, and never as other events."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import CorruptionError
from custody.eventlog import StagedLog, StagingWriter, read_staged, row_bytes
from custody.eventlog.blocks import blocks_of, cut, rows_that_fit
from custody.model import EVENT_SCHEMA, to_batch, to_events
from custody.vfs import PosixFileSystem
from tests.support import event, flipped, numbered, sample

FS = PosixFileSystem()
EVENTS = numbered(sample(150), 100)
TABLE = pa.Table.from_batches([to_batch(EVENTS, 100)])


def write(path: Path, *tables: pa.Table) -> StagedLog:
    path.unlink(missing_ok=True)
    with StagingWriter(FS, path) as writer:
        for table in tables:
            writer.write(table, row_bytes(table))
        return writer.finish()


def test_batches_are_read_back_and_described(tmp_path: Path) -> None:
    path = tmp_path / "0.arrow"
    log = write(path, TABLE.slice(0, 60), TABLE.slice(60, 1), TABLE.slice(61))
    found = list(read_staged(FS, path, log))
    assert [table.num_rows for table in found] == [60, 1, 89]
    assert to_events(pa.concat_tables(found)) == EVENTS
    assert all(table.schema.equals(EVENT_SCHEMA) for table in found)
    assert (log.first_event_id, log.last_event_id, log.rows) == (100, 249, 150)
    assert log.first_event_time_ms == min(item.event_time for item in EVENTS)
    assert log.last_event_time_ms == max(item.event_time for item in EVENTS)
    assert log.plain_bytes == row_bytes(TABLE).sum()
    assert log.file_bytes == path.stat().st_size
    for source in log.sources:
        ordinals = [item.source_ordinal for item in EVENTS if item.source_node == source.node]
        assert (source.first_ordinal, source.last_ordinal) == (min(ordinals), max(ordinals))  # type: ignore[type-var]
    assert len(log.sources) == len({item.source_node for item in EVENTS})


def test_batches_of_any_size_and_of_texts_that_no_codec_makes_smaller_are_read_back(tmp_path: Path) -> None:
    random, sizes = np.random.default_rng(5), (3, 900_000, 20, 1_500_000, 0)
    texts = ["".join(map(chr, random.integers(128, 0xD000, size).tolist())) for size in sizes]
    tables = [
        pa.Table.from_batches([to_batch([event(details=text)] * count, number * 10)])
        for number, (text, count) in enumerate(zip(texts, (4, 2, 10, 1, 3), strict=True))
    ]
    log = write(tmp_path / "0.arrow", *tables)
    assert [table.to_pylist() for table in read_staged(FS, tmp_path / "0.arrow", log)] == [
        table.to_pylist() for table in tables
    ]


def test_some_columns_are_read_alone(tmp_path: Path) -> None:
    log = write(tmp_path / "0.arrow", TABLE)
    [table] = read_staged(FS, tmp_path / "0.arrow", log, ["event_id"])
    assert table.column_names == ["event_id"]


def test_any_arrow_reader_reads_the_file(tmp_path: Path) -> None:
    write(tmp_path / "0.arrow", TABLE.slice(0, 60), TABLE.slice(60))
    with pa.ipc.open_stream((tmp_path / "0.arrow").read_bytes()) as stream:
        assert to_events(stream.read_all()) == EVENTS


def test_events_without_a_source_have_no_bounds(tmp_path: Path) -> None:
    events = [event(0, source_node=None), event(1, source_ordinal=None)]
    log = write(tmp_path / "0.arrow", pa.Table.from_batches([to_batch(events, 0)]))
    assert log.sources == ()


def test_a_damaged_file_is_never_read_as_other_events(tmp_path: Path) -> None:
    path = tmp_path / "0.arrow"
    log = write(path, TABLE.slice(0, 60), TABLE.slice(60))
    good = path.read_bytes()
    harmless = 0
    for data in [*(flipped(good, bit) for bit in range(0, 8 * len(good), 997)), good[:-1], good + b"\0", b""]:
        path.write_bytes(data)
        try:
            found = to_events(pa.concat_tables(read_staged(FS, path, log)))
        except CorruptionError as error:
            assert str(path) in str(error)
        else:
            harmless += 1
            assert found == EVENTS
    assert harmless * 20 < 8 * len(good) / 997, "more than the head and the end can be damaged"


def test_damage_is_named_by_its_place_and_costs_nothing_before_it(tmp_path: Path) -> None:
    path = tmp_path / "0.arrow"
    log = write(path, TABLE.slice(0, 60), TABLE.slice(60))
    path.write_bytes(flipped(path.read_bytes(), 8 * log.batches[1].offset + 999))
    batches = read_staged(FS, path, log)
    assert to_events(next(batches)) == EVENTS[:60]
    with pytest.raises(CorruptionError, match=rf"0\.arrow @{log.batches[1].offset}: .*next rollover"):
        next(batches)


def test_a_stream_is_cut_into_the_same_blocks_however_it_is_divided() -> None:
    whole = [block.num_rows for block in blocks_of([TABLE], 20_000)]
    assert whole == [rows for _, rows in cut(row_bytes(TABLE), 20_000)]

    @given(st.lists(st.integers(0, 150), max_size=6))
    def check(places: list[int]) -> None:
        bounds = [0, *sorted(places), 150]
        pieces = [TABLE.slice(a, b - a) for a, b in pairwise(bounds)]
        blocks = list(blocks_of(pieces, 20_000))
        assert [block.num_rows for block in blocks] == whole
        assert pa.concat_tables(blocks).equals(TABLE)

    check()


@given(st.lists(st.integers(1, 50), max_size=20), st.integers(1, 100), st.integers(0, 120))
def test_what_fits_is_the_longest_beginning(sizes: list[int], most: int, used: int) -> None:
    rows = rows_that_fit(np.array(sizes, np.int64), most, used)
    assert rows <= len(sizes)
    assert used + sum(sizes[:rows]) <= most or (used == 0 and rows == 1) or rows == 0
    assert rows == len(sizes) or used + sum(sizes[: rows + 1]) > most
