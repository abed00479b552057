"""The sink: every event once, in the files of its destination; what is damaged is named and nothing is changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from custody.catalog import Catalog
from custody.clock import ManualClock
from custody.errors import CorruptionError, CustodyError, FormatVersionError, InvalidInputError, LockedError
from custody.model import Event
from custody.ngsi.records import Record, Unplaced
from custody.ngsi_sink.batch_file import decode
from custody.ngsi_sink.batch_plan import SourceRecord
from custody.ngsi_sink.sink import Sink
from custody.ngsi_sink.sink_state import DATABASE, NAME
from custody.quarantine import Quarantine
from custody.store import LocalStore
from custody.vfs import FileSystem, PosixFileSystem
from custody.vfs.memory import MemoryFileSystem
from tests.crash.sink_scenarios import EVENTS, FOLDER, ROOT, WRITER, expected, items, notified, read_events
from tests.support import event as other_event
from tests.unit.ngsi.notification_records import parameters

USED = parameters(file_format="csv-column")
ROWS = ROOT / "user/warden/parks/north/Bench1_T/Bench1_T.txt"


def opened(fs: FileSystem) -> AbstractContextManager[Sink]:
    return Sink.open(fs, FOLDER, ROOT, ManualClock(1), USED)


def files(fs: MemoryFileSystem) -> dict[str, bytes]:
    found = {path: data for path, data in fs.files().items() if path.is_relative_to(ROOT)}
    return {f"/{path.relative_to(ROOT)}": data for path, data in found.items() if data is not None}


@pytest.fixture
def fs() -> MemoryFileSystem:
    return MemoryFileSystem()


def test_batches_add_up_and_say_what_they_did(fs: MemoryFileSystem) -> None:
    with opened(fs) as sink:
        assert sink.cursors.get(WRITER, 0) == 0
        first = sink.write(items(USED, 0, 2), {WRITER: 2})
        second = sink.write(items(USED, 2, 4), {WRITER: 4})
        assert sink.cursors.get(WRITER, 0) == 4
    assert (first.number, first.records, first.skipped, first.files) == (0, 2, 0, 4)
    assert [destination.name for destination in first.destinations] == ["Bench1_T", "Tree1_T"]
    assert (second.records, second.skipped, second.files) == (1, 1, 2)
    assert files(fs) == expected(USED, [(0, 2), (2, 4)])


def test_events_that_are_in_the_files_are_passed_over(fs: MemoryFileSystem) -> None:
    with opened(fs) as sink:
        sink.write(items(USED, 0, 3), {WRITER: 3})
    with opened(fs) as sink:
        again = sink.write(items(USED, 0, 3), {WRITER: 3})
        assert (again.records, again.files, again.number) == (0, 0, 0)
        more = sink.write(items(USED, 0, 6), {WRITER: 6})
        assert (more.number, more.records) == (1, 2)
    assert files(fs) == expected(USED, [(0, 6)])


def test_columns_of_a_destination_outlive_the_process(fs: MemoryFileSystem) -> None:
    with opened(fs) as sink:
        sink.write(items(USED, 0, 3), {WRITER: 3})
    with opened(fs) as sink:
        assert sink.columns["/user/warden/parks/north/Bench1_T"] == ("seats", "wood")


def test_what_has_no_destination_is_kept_with_its_event(fs: MemoryFileSystem) -> None:
    with opened(fs) as sink:
        sink.write(items(USED, 0, 4), {WRITER: 4})
        sink.write(items(USED, 4, 6), {WRITER: 6})
    [name] = fs.list(FOLDER / "sink/ngsi/left")
    [left] = json.loads(fs.read(FOLDER / "sink/ngsi/left" / name))
    assert (name, left["event_id"]) == ("00000000000000000000.json", 3)
    assert "expected at most 255 characters" in left["reason"]


def test_a_row_whose_metadata_file_has_no_name_is_kept_with_its_event(fs: MemoryFileSystem) -> None:
    number, (found, body) = 7, notified(7, "Bench1", "a" * 250)
    batch = [
        *items(USED, 0, 1),
        *(SourceRecord(WRITER, *pair) for pair in read_events([found], lambda event: body, USED)),
    ]
    with opened(fs) as sink:
        done = sink.write(batch, {WRITER: 8})
    assert (done.records, done.skipped) == (1, 1)
    [left] = json.loads(fs.read(FOLDER / "sink/ngsi/left/00000000000000000000.json"))
    assert left["event_id"] == number


def test_a_batch_without_entities_moves_on_all_the_same(fs: MemoryFileSystem) -> None:
    with opened(fs) as sink:
        done = sink.write([], {WRITER: 100})
        assert (done.number, done.files) == (0, 0)
    with opened(fs) as sink:
        assert sink.cursors.get(WRITER, 0) == 100


@pytest.mark.parametrize("upto", [1, 5])
def test_events_out_of_their_order_or_behind_the_batch_are_refused(fs: MemoryFileSystem, upto: int) -> None:
    batch = items(USED, 0, 2) if upto == 1 else items(USED, 0, 2)[::-1]
    with opened(fs) as sink:
        with pytest.raises(InvalidInputError, match=r"expected ids of writer 'main' from \d up to"):
            sink.write(batch, {WRITER: upto})
        assert sink.cursors.get(WRITER, 0) == 0
    assert files(fs) == {}


def test_only_one_process_has_it_open(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    clock = ManualClock(1)
    with Sink.open(fs, tmp_path / "ngsi", tmp_path / "hdfs", clock, USED) as sink:
        sink.write(items(USED, 0, 2), {WRITER: 2})
        with pytest.raises(LockedError), Sink.open(fs, tmp_path / "ngsi", tmp_path / "hdfs", clock, USED):
            pass
    assert (tmp_path / "hdfs" / ROWS.relative_to(ROOT)).read_bytes().count(b"\n") == 1


def test_a_batch_is_one_object_until_the_next_one(fs: MemoryFileSystem) -> None:
    with opened(fs) as sink:
        for first in range(4):
            sink.write(items(USED, first, first + 1), {WRITER: first + 1})
    [name] = fs.list(FOLDER / "sink/ngsi/batches")
    manifest = decode(fs.read(FOLDER / "sink/ngsi/batches" / name), name).manifest
    assert (manifest.number, manifest.cursors) == (3, {WRITER: 4})
    assert len(fs.list(FOLDER / "sink/ngsi/columns")) == 1


def test_the_catalog_gets_a_checkpoint_now_and_then(fs: MemoryFileSystem) -> None:
    with opened(fs) as sink:
        for upto in range(1, 102):
            sink.write([], {WRITER: upto})
    catalog = Catalog(LocalStore(fs, FOLDER), NAME, DATABASE, ManualClock(1))
    assert catalog.load().next_event_id == 101
    assert catalog.checkpoint_age() < 100


def flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


Damage = Callable[[MemoryFileSystem], None]


def rewrite(fs: MemoryFileSystem, path: Path, data: bytes) -> None:
    fs.remove(path)
    with fs.create(path) as file:
        file.write(data)
        file.sync()


BATCH = FOLDER / "sink/ngsi/batches/00000000000000000001.batch"
DAMAGES: dict[str, tuple[Damage, str]] = {
    "a batch": (lambda fs: rewrite(fs, BATCH, flip(fs.read(BATCH))), f"{BATCH}: expected other bytes"),
    "no batch": (lambda fs: fs.remove(BATCH), f"{BATCH}: expected a live object, found none"),
    "a file that lost its end": (
        lambda fs: rewrite(fs, ROWS, fs.read(ROWS)[:10]),
        f"{ROWS}: expected at least the ",
    ),
    "no file": (lambda fs: fs.remove(ROWS), f"{ROWS}: expected at least the "),
    "other bytes and more behind them": (
        lambda fs: rewrite(fs, ROWS, flip(fs.read(ROWS)) + b"mine\n"),
        "that were committed, got others, and 5 more behind them",
    ),
}


@pytest.mark.parametrize("what", ["a batch", "no batch"])
def test_damage_of_the_sink_s_own_is_named_and_nothing_is_changed(fs: MemoryFileSystem, what: str) -> None:
    says, before = _damaged(fs, what)
    with pytest.raises(CorruptionError) as caught, opened(fs):
        pass
    assert says in str(caught.value)
    assert fs.files() == before


@pytest.mark.parametrize("what", ["a file that lost its end", "no file", "other bytes and more behind them"])
def test_damage_of_a_destination_waits_in_the_quarantine_and_its_file_is_not_changed(
    fs: MemoryFileSystem, what: str
) -> None:
    says, before = _damaged(fs, what)
    with opened(fs):
        pass
    after = fs.files()
    targets = [path for path in {*before, *after} if path.is_relative_to(ROOT)]
    assert {path: after.get(path) for path in targets} == {path: before.get(path) for path in targets}
    [entry] = Quarantine(fs, FOLDER / "quarantine").entries()
    assert says in entry.message.replace("file://", "")
    with opened(fs) as sink:
        if what != "no file":
            assert says in str(sink.retry_deferred(entry.file)).replace("file://", "")
            return
        # Nobody else's bytes are in the way: who asks for it gets a new file.
        assert sink.retry_deferred(entry.file) is None
        part = expected(USED, [(0, 2), (2, 3)])[f"/{ROWS.relative_to(ROOT)}"]
        first = expected(USED, [(0, 2)])[f"/{ROWS.relative_to(ROOT)}"]
        assert fs.read(ROWS) == part[len(first) :]
    assert list(Quarantine(fs, FOLDER / "quarantine").entries()) == []
    with opened(fs) as sink:
        sink.write(items(USED, 3, 6), {WRITER: 6})
    assert fs.read(ROWS).startswith(part[len(first) :])


def _damaged(fs: MemoryFileSystem, what: str) -> tuple[str, dict[Path, bytes | None]]:
    with opened(fs) as sink:
        sink.write(items(USED, 0, 2), {WRITER: 2})
        sink.write(items(USED, 2, 3), {WRITER: 3})
    damage, says = DAMAGES[what]
    damage(fs)
    return says, fs.files()


def test_lines_that_somebody_else_added_are_left_alone(fs: MemoryFileSystem) -> None:
    with opened(fs) as sink:
        sink.write(items(USED, 0, 2), {WRITER: 2})
    with fs.append(ROWS) as file:
        file.write(b"mine\n")
        file.sync()
    with opened(fs) as sink:
        sink.write(items(USED, 2, 3), {WRITER: 3})
    before, after = expected(USED, [(0, 2)]), expected(USED, [(0, 2), (2, 3)])
    path = f"/{ROWS.relative_to(ROOT)}"
    assert fs.read(ROWS) == before[path] + b"mine\n" + after[path][len(before[path]) :]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", CorruptionError),
        (b"CUSTNGB\x01", CorruptionError),
        (b"NOTOURS\x01", CorruptionError),
        (b"CUSTNGB\x02", FormatVersionError),
    ],
)
def test_what_is_no_batch_is_refused(data: bytes, error: type[CustodyError]) -> None:
    with pytest.raises(error, match=r"a\.batch @"):
        decode(data, "a.batch")


def test_every_flipped_byte_of_a_batch_is_found(fs: MemoryFileSystem) -> None:
    with opened(fs) as sink:
        sink.write(items(USED, 0, 1), {WRITER: 1})
    data = fs.read(FOLDER / "sink/ngsi/batches/00000000000000000000.batch")
    for at in range(len(data)):
        with pytest.raises((CorruptionError, FormatVersionError)):
            decode(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :], "a.batch")
    for length in range(len(data)):
        with pytest.raises(CorruptionError):
            decode(data[:length], "a.batch")


def record_of(found: Event, body: bytes) -> Record:
    [(_, record)] = read_events([found], lambda event: body, USED)
    assert isinstance(record, Record)
    return record


def test_an_event_gives_the_same_record_whenever_it_is_read() -> None:
    event, body = EVENTS[0]
    record = record_of(event, body)
    assert record == record_of(event, body)
    assert (record.service, record.path, record.entity.id) == ("parks", "/north", "Bench1")
    assert record.notification == event.flowfile_uuid
    assert record.arrival.received_ms == event.event_time


def test_other_events_have_no_records() -> None:
    assert list(read_events([other_event(1)], lambda event: b"", USED)) == []


def test_defaults_are_those_of_the_sink_where_no_header_named_them() -> None:
    event, body = EVENTS[0]
    unnamed = {**event.updated_attributes, "ngsi.unnamed": "ngsi.service,ngsi.service_path"}
    record = record_of(msgspec.structs.replace(event, updated_attributes=unnamed), body)
    assert (record.service, record.path) == ("test", "/path")


def test_a_content_that_is_another_one_is_damage() -> None:
    event, _ = EVENTS[0]
    for body in (b"", b"[", b"{}", b'{"data":[]}', b"\xff"):
        with pytest.raises(CorruptionError, match="event 0: expected its content to be the notification"):
            record_of(event, body)


def test_an_entity_without_a_destination_says_so() -> None:
    [item] = items(USED, 3, 4)
    assert isinstance(item.content, Unplaced)
