"""Copies of rows are the events of the blocks, bit by bit; damage to either costs nothing, to both the event."""

from __future__ import annotations

import shutil
from pathlib import Path

import duckdb
import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings

from custody.errors import CorruptionError
from custody.eventlog import EventLog, LogOptions, WrittenLog, log_metadata, write_log
from custody.eventlog.row_copies import COPIES_KEY, DIRECTORY_ENTRY, FRAME_ROWS, CopiesMetadata, RowCopies
from custody.maintenance.findings import Level, damages
from custody.maintenance.verification import verify_repository
from custody.model import Event, to_batch, to_events
from custody.repository import EventSelection, Repository
from custody.vfs import FileSystem, PosixFileSystem
from custody.vfs.memory import MemoryFileSystem
from tests.support import EVENTS as ANY_EVENTS
from tests.support import append, files_below, flipped, numbered, run_steps, sample
from tests.unit.model.test_columns import EXTREME

FS = PosixFileSystem()
FIRST = 100
EVENTS = numbered(sample(150), FIRST)
OPTIONS = LogOptions(20_000, row_copies=True)
IDS = np.arange(FIRST, FIRST + len(EVENTS))


def table_of(events: list[Event]) -> pa.Table:
    ids = pa.array([event.event_id for event in events], pa.int64())
    table = pa.Table.from_batches([to_batch(events, 0)])
    return table.set_column(0, table.schema.field(0), ids)


def write(path: Path, events: list[Event], options: LogOptions = OPTIONS, fs: FileSystem = FS) -> WrittenLog:
    table = table_of(events)
    return write_log(fs, path, table, log_metadata(table, "main", "provenance"), options)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> WrittenLog:
    return write(tmp_path_factory.mktemp("log") / "log.parquet", EVENTS)


def bounds_of_copies(log: EventLog) -> tuple[int, int, CopiesMetadata]:
    """Return where the copies of a log begin and end, and what its metadata says of them."""
    stored = pq.read_metadata(pa.BufferReader(log.toc.footer([]))).metadata[COPIES_KEY]
    metadata = msgspec.json.decode(stored, type=CopiesMetadata)
    end = log.toc.copy_offset
    sizes = metadata.frames_bytes + metadata.dictionary_bytes + metadata.frames * DIRECTORY_ENTRY.itemsize
    return end - sizes, end, metadata


def damage_block(data: bytes, log: EventLog, number: int) -> bytes:
    block = log.toc.blocks[number]
    return flipped(data, 8 * int(block["offset"] + block["length"] // 2))


@pytest.mark.parametrize("compression", ["zstd", "gzip", "none"])
@pytest.mark.parametrize("count", [1, FRAME_ROWS - 1, FRAME_ROWS, FRAME_ROWS + 1, 150])
def test_copies_are_the_events_of_the_blocks(compression: str, count: int, tmp_path: Path) -> None:
    options = LogOptions(20_000, compression, row_copies=True)
    log = EventLog(FS, write(tmp_path / "log.parquet", EVENTS[:count], options).path)
    blocks = to_events(log.read())
    assert blocks == EVENTS[:count]
    copied = log.copied(IDS[:count])
    assert copied.events == blocks
    assert not len(copied.missing)
    for event in blocks:
        [one] = log.copied(np.array([event.event_id])).events
        assert one == event
        assert list(one.updated_attributes.items()) == list(event.updated_attributes.items())


@example([EXTREME])
@hypothesis_settings(max_examples=30, deadline=None)
@given(ANY_EVENTS.map(lambda one: [one]) | ANY_EVENTS.map(lambda one: [EXTREME, one]))
def test_copies_of_any_events_are_those_of_the_blocks(events: list[Event]) -> None:
    events = numbered(events, 7)
    fs = MemoryFileSystem()
    # The time of an event is the day in its file's path, which has no year beyond 9999.
    events = [msgspec.structs.replace(event, event_time=event.event_time % 10**12) for event in events]
    log = EventLog(fs, write(Path("/log.parquet"), events, fs=fs).path)
    ids = np.arange(7, 7 + len(events))
    assert log.copied(ids).events == to_events(log.get_many(ids)) == events


def test_ids_with_gaps_are_found_and_others_are_neither_read_nor_missing(tmp_path: Path) -> None:
    held = [msgspec.structs.replace(event, event_id=event.event_id * 3) for event in EVENTS]
    log = EventLog(FS, write(tmp_path / "log.parquet", held).path)
    asked = np.arange(3 * FIRST - 10, 3 * (FIRST + len(EVENTS)) + 10)
    copied = log.copied(asked)
    assert copied.events == held
    assert not len(copied.missing)
    assert log.copied(np.array([3 * FIRST + 1, 3 * FIRST + 3])).events == [held[1]]


def test_few_events_of_a_block_are_read_by_copies_and_many_are_left_to_the_block(tmp_path: Path) -> None:
    log = EventLog(FS, write(tmp_path / "log.parquet", numbered(sample(700)), LogOptions(row_copies=True)).path)
    assert len(log.toc.blocks) == 1
    few, many = np.arange(0, 700, 10), np.arange(100)
    assert log.copied_if_sparse(few).events == to_events(log.get_many(few))
    assert log.copied_if_sparse(many).missing.tolist() == many.tolist()
    assert log.copied_if_sparse(many[:0]).events == []


def test_a_log_without_copies_is_the_same_but_for_them(written: WrittenLog, tmp_path: Path) -> None:
    plain = EventLog(FS, write(tmp_path / "log.parquet", EVENTS, LogOptions(20_000)).path)
    log = EventLog(FS, written.path)
    assert plain.copied(IDS).missing.tolist() == IDS.tolist()
    assert plain.copied_if_sparse(IDS).missing.tolist() == IDS.tolist()
    assert log.toc.blocks["crc32"].tolist() == plain.toc.blocks["crc32"].tolist()
    assert log.metadata == plain.metadata
    start, end, _ = bounds_of_copies(log)
    bloom_filters = int(plain.toc.blocks[-1]["offset"] + plain.toc.blocks[-1]["length"])
    assert log.data[bloom_filters:start] == plain.data[bloom_filters : plain.toc.copy_offset]
    assert start < end


def test_other_readers_of_parquet_pass_over_copies(written: WrittenLog) -> None:
    table = pq.ParquetFile(written.path, page_checksum_verification=True).read()
    assert to_events(table) == EVENTS
    wanted = EVENTS[77]
    query = "select event_id from read_parquet(?) where flowfile_uuid = ?"
    found = duckdb.connect().execute(query, [str(written.path), wanted.flowfile_uuid]).fetchall()
    assert (wanted.event_id,) in found


def test_the_same_events_give_the_same_copies(tmp_path: Path) -> None:
    write(tmp_path / "log.parquet", EVENTS)
    before = files_below(tmp_path)
    write(tmp_path / "log.parquet", EVENTS)
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("toc", ["lost", "flipped"])
def test_copies_are_found_without_the_toc(written: WrittenLog, tmp_path: Path, toc: str) -> None:
    path = Path(shutil.copy(written.path, tmp_path / "log.parquet"))
    if toc == "flipped":
        (tmp_path / "log.toc").write_bytes(flipped(written.toc.read_bytes(), 999))
    assert EventLog(FS, path).copied(IDS).events == EVENTS


@pytest.mark.in_parts(2)
def test_a_flipped_bit_of_copies_costs_nothing(written: WrittenLog, tmp_path: Path) -> None:
    shutil.copy(written.toc, tmp_path / "log.toc")
    path, data = tmp_path / "log.parquet", written.path.read_bytes()
    start, end, metadata = bounds_of_copies(EventLog(FS, written.path))
    costs = set()
    for bit in [*range(8 * start, 8 * end, 1009), 8 * end - 1]:
        path.write_bytes(flipped(data, bit))
        log = EventLog(FS, path)
        copied = log.copied(IDS)
        in_frames = bit // 8 < start + metadata.frames_bytes
        # A frame by itself; a bit of the dictionary, or of the directory, concerns all of them.
        assert 0 < len(copied.missing) <= (FRAME_ROWS if in_frames else len(IDS)), bit
        costs.add(len(copied.missing))
        assert sorted([*copied.events, *to_events(log.get_many(copied.missing))], key=id_of) == EVENTS
    assert costs >= {FRAME_ROWS, len(IDS)}


def id_of(event: Event) -> int:
    return event.event_id


@pytest.mark.parametrize("said", [b"", b"{}", b'{"version":2,"frames":1,"frames_bytes":1}'])
def test_what_the_metadata_says_of_other_copies_is_passed_over(written: WrittenLog, said: bytes) -> None:
    log = EventLog(FS, written.path)
    assert RowCopies.within(log.data, log.toc.copy_offset, said) is None


def test_copies_of_a_later_version_are_passed_over(written: WrittenLog) -> None:
    log = EventLog(FS, written.path)
    _, end, metadata = bounds_of_copies(log)
    assert RowCopies.within(log.data, end, msgspec.json.encode(metadata)) is not None
    for other in (
        msgspec.structs.replace(metadata, version=2),
        msgspec.structs.replace(metadata, frames=0),
        msgspec.structs.replace(metadata, frames_bytes=1 << 40),
        msgspec.structs.replace(metadata, sha256="0" * 64),
    ):
        assert RowCopies.within(log.data, end, msgspec.json.encode(other)) is None


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    Repository.create(tmp_path / "r")
    (tmp_path / "r/custody.toml").write_text("[eventlog]\nblock_bytes_max = 32000\nrow_copies = true\n")
    made = Repository.open(tmp_path / "r")
    append(made, sample(150))
    run_steps(made.settings)
    return Repository.open(tmp_path / "r")


def logs(repository: Repository) -> list[EventLog]:
    workspace = Repository.open(repository.settings.root).workspace()
    return [EventLog(FS, workspace.paths.home / file) for file in sorted(workspace.state().files)]


def only_log(repository: Repository) -> EventLog:
    [log] = logs(repository)
    return log


STORED = numbered(sample(150))


def test_an_event_of_a_damaged_block_is_read_by_its_copy(repository: Repository) -> None:
    log = only_log(repository)
    number = 1
    block = log.toc.blocks[number]
    lost = range(int(block["first_event_id"]), int(block["first_event_id"] + block["rows"]))
    log.path.write_bytes(damage_block(log.path.read_bytes(), log, number))
    again = Repository.open(repository.settings.root)
    assert again.get(lost[0]) == STORED[lost[0]]
    many = again.get_many(range(150), strict=True)
    assert list(many) == STORED
    # Pages agree with point reads: neither passes the events over.
    result = again.search("", limit=40, offset=20)
    assert [item.event for item in result.events] == STORED[::-1][20:60]
    assert (result.lost, result.notices) == (0, ())


def test_a_damaged_block_with_damaged_copies_costs_the_events_that_lack_both(repository: Repository) -> None:
    log = only_log(repository)
    start, _, _ = bounds_of_copies(log)
    block = log.toc.blocks[0]
    data = damage_block(log.path.read_bytes(), log, 0)
    log.path.write_bytes(flipped(data, 8 * (start + 8)))  # the first frame
    again = Repository.open(repository.settings.root)
    lost = range(FRAME_ROWS)
    assert int(block["rows"]) > FRAME_ROWS
    many = again.get_many(range(150))
    assert list(many) == STORED[FRAME_ROWS:]
    assert any("block 0" in notice for notice in many.notices)
    with pytest.raises(CorruptionError, match="block 0"):
        again.get(lost[0])
    assert again.get(FRAME_ROWS) == STORED[FRAME_ROWS]
    page = again.search("", limit=10, offset=150 - (FRAME_ROWS + 4), oldest_first=False)
    assert [item.event for item in page.events] == STORED[FRAME_ROWS : FRAME_ROWS + 4][::-1]


def test_a_forgotten_event_is_not_given_out_by_its_copy_and_leaves_the_disk_with_it(repository: Repository) -> None:
    gone = STORED[60]
    repository.forget(EventSelection(flowfile_uuids=[gone.flowfile_uuid]), "asked for")
    hidden = {item.event_id for item in STORED if gone.flowfile_uuid == item.flowfile_uuid}
    again = Repository.open(repository.settings.root)
    assert again.get_many([60, 61, 62]) == [STORED[n] for n in (61, 62) if n not in hidden]
    seen = again.lineage([next(item.flowfile_uuid for item in STORED[61:] if item.event_id not in hidden)])
    assert not hidden & {event.event_id for node in seen.nodes.values() for event in node.events}
    assert only_log(repository).copied(np.array([60])).events == [gone], "it lies on the disk until a compaction"
    assert sum(report.erased for report in again.compact()) == len(hidden)
    left = [event for log in logs(repository) for event in log.copied(np.arange(150)).events]
    assert left == [item for item in STORED if item.event_id not in hidden]


def test_lineages_are_the_same_with_and_without_copies(repository: Repository, tmp_path: Path) -> None:
    Repository.create(tmp_path / "plain")
    plain = Repository.open(tmp_path / "plain")
    append(plain, sample(150))
    run_steps(plain.settings)
    for event in STORED[::11]:
        assert repository.lineage([event.flowfile_uuid]) == plain.lineage([event.flowfile_uuid])


def test_verify_finds_damaged_copies(repository: Repository) -> None:
    log = only_log(repository)
    start, _, _ = bounds_of_copies(log)
    for is_damaged in (False, True):
        if is_damaged:
            log.path.write_bytes(flipped(log.path.read_bytes(), 8 * start))
        found = verify_repository(repository.workspaces(), repository.settings, FS, Level.DEFAULT).findings
        assert bool([item for item in damages(found) if log.path.name in item.message + item.path]) == is_damaged
