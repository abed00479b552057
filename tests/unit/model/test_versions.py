"""Older schema versions are read beside the present one, newer ones refused: in logs and in journals."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from custody.catalog import Action, AddFile, RemoveFile, describe
from custody.errors import CorruptionError, FormatVersionError
from custody.eventlog import EventLog, LogOptions, log_metadata, log_writer, write_log
from custody.eventlog.hashing_file import HashingSink
from custody.eventlog.toc import GuardedSink
from custody.journal import JournalFile
from custody.journal import journal_file as journal_file
from custody.model import EVENT_SCHEMA, Event, columns, schema_of, to_batch, to_events, to_present
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.support import append, event, numbered, run_steps

FS = PosixFileSystem()
LACKING = ("event_duration", "details", "child_uuids", "updated_attributes", "source_ordinal", "extra")
"""What a made-up version 0 had not yet."""
OLD_SCHEMA = pa.schema([field for field in EVENT_SCHEMA if field.name not in LACKING])


@pytest.fixture
def version_0(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(columns.SCHEMAS, 0, OLD_SCHEMA)


def old(events: list[Event]) -> list[Event]:
    """Events as version 0 would have kept them."""
    plain = Event(event_type="", event_time=0, component_id="", component_type="", flowfile_uuid="", file_size=0)
    return [msgspec.structs.replace(item, **{name: getattr(plain, name) for name in LACKING}) for item in events]


EVENTS = numbered([event(n, details="x", child_uuids=("u",), updated_attributes={"a": "b"}) for n in range(6)])
TABLE = pa.Table.from_batches([to_batch(EVENTS, 0)])


def write_version(path: Path, version: int, schema: pa.Schema, reader_version: int = 1) -> EventLog:
    """A log as custody of that version would have written it."""
    versions = {"schema_version": version, "reader_version": reader_version}
    metadata = msgspec.structs.replace(log_metadata(TABLE, "main", "provenance"), **versions)
    named = schema.with_metadata({log_writer.METADATA_KEY: msgspec.json.encode(metadata)})
    with FS.create(path) as file:
        sink = GuardedSink(HashingSink(file))
        with pq.ParquetWriter(sink, named, write_page_checksum=True) as parquet:
            for start in (0, 3):
                parquet.write_table(TABLE.slice(start, 3).select(schema.names).cast(named))
            sink.hold()
        toc = sink.finish(FS, path)
    path.with_suffix(".toc").write_bytes(toc.encode())
    return EventLog(FS, path)


def replace_log(repository: Repository) -> None:
    """Replace the one live log by a log of version 0, as custody of that version would have listed it."""
    catalog = repository.workspace().catalog
    [entry] = catalog.load().files.values()
    [path] = repository.settings.store.rglob("*.parquet")
    path.unlink()
    write_version(path, 0, OLD_SCHEMA)
    data = path.read_bytes()
    listed = AddFile()
    listed.CopyFrom(entry)
    listed.size_bytes, listed.schema_version = len(data), 0
    listed.sha256 = hashlib.sha256(data).digest()
    listed.toc_sha256 = hashlib.sha256(path.with_suffix(".toc").read_bytes()).digest()
    describe(listed, lambda start, length: data[start:][:length])
    catalog.commit([Action(remove_file=RemoveFile(path=entry.path)), Action(add_file=listed)])


@pytest.mark.usefixtures("version_0")
def test_a_log_of_an_older_version_is_read_with_the_present_columns(tmp_path: Path) -> None:
    log = write_version(tmp_path / "old.parquet", 0, OLD_SCHEMA)
    assert log.read().schema.equals(EVENT_SCHEMA)
    assert to_events(log.read()) == old(EVENTS)
    assert to_events(log.get_many([1, 4])) == [old(EVENTS)[n] for n in (1, 4)]
    part = log.read(["details", "event_id"])
    assert part.to_pydict() == {"event_id": list(range(6)), "details": [None] * 6}


def test_a_log_of_a_version_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    for version in (0, 3):
        log = write_version(tmp_path / f"{version}.parquet", version, OLD_SCHEMA, reader_version=version)
        with pytest.raises(FormatVersionError, match=f"expected events of schema version 1 or 2, got {version}"):
            log.read()


def test_a_log_with_other_columns_than_its_version_has_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(CorruptionError, match="columns of schema version 2"):
        write_version(tmp_path / "odd.parquet", 2, OLD_SCHEMA).read()
    with pytest.raises(CorruptionError, match=r"the column event_duration \(int64\), as schema version 3 says"):
        write_version(tmp_path / "newer.parquet", 3, OLD_SCHEMA).read()


@pytest.mark.usefixtures("version_0")
def test_a_repository_with_logs_of_two_versions_is_one(repository: Repository) -> None:
    append(repository, EVENTS)
    run_steps(repository.settings)
    replace_log(repository)
    append(repository, EVENTS)
    run_steps(repository.settings)
    stream = repository.events()
    found = list(stream)
    assert stream.notices == ()
    assert found == old(EVENTS) + numbered(EVENTS, 6)


def test_every_column_that_may_be_lacking_has_a_value_that_the_schema_allows() -> None:
    bare = to_present(pa.table({"event_id": pa.array([7, 8], pa.int64())}))
    assert bare.schema.equals(EVENT_SCHEMA)
    bare.validate(full=True)
    for field in EVENT_SCHEMA:
        assert field.nullable or bare.column(field.name).null_count == 0
    assert bare.column("event_duration").to_pylist() == [-1, -1]


def test_the_present_version_is_known_and_passes_unchanged() -> None:
    assert schema_of(2, "x").equals(EVENT_SCHEMA)
    assert to_present(TABLE) is TABLE


@pytest.mark.usefixtures("version_0")
def test_a_journal_of_an_older_version_is_read_with_the_present_columns(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = EVENTS * 10  # so many that they are written as columns
    with monkeypatch.context() as past:
        past.setattr("custody.journal.encoding.JOURNAL_SCHEMA", OLD_SCHEMA.remove(0))
        past.setattr("custody.model.event_message.exact_message", lambda _: None)
        past.setattr("custody.journal.encoding.to_batch", _old_batch)
        past.setattr(journal_file, "JOURNAL_SCHEMA", OLD_SCHEMA.remove(0))
        header = journal_file.JournalHeader
        past.setattr("custody.journal.journal_writer.JournalHeader", lambda **named: header(**named, schema_version=0))
        append(repository, many)
    [path] = repository.settings.root.rglob("*.sealed")
    journal = JournalFile.read(FS, path)
    assert journal.header is not None
    assert journal.header.schema_version == 0
    assert journal.table().schema.equals(EVENT_SCHEMA)
    assert list(repository.events()) == numbered(old(many))


def _old_batch(events: list[Event], first: int) -> pa.RecordBatch:
    return to_batch(events, first).select(OLD_SCHEMA.names)


def test_the_log_of_the_present_version_is_written_as_before(tmp_path: Path) -> None:
    made = write_log(FS, tmp_path / "l.parquet", TABLE, log_metadata(TABLE, "main", "provenance"), LogOptions())
    assert EventLog(FS, made.path).metadata.schema_version == 2
