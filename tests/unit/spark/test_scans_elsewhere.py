"""Spark's formats where executors share with the driver an object store alone: by what Spark calls, without Spark.

The driver plans in its repository's folder. The executor gets reader and parts as Spark sends them, and the folder of
the repository is not on its machine.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from custody.catalog import AddTombstone, pruning
from custody.config import Settings
from custody.errors import ConflictError, CorruptionError
from custody.read.event_scan import EventFilter, ScanPart, plan_scan, read_part
from custody.repository import EventSelection, Repository
from custody.repository.writers import place_writer
from custody.spark.own_disk import FOLDER_VARIABLE, reading_disk
from custody.store import Traffic, counted
from custody.store.remote import RemoteStore, open_remote
from custody.vfs import PosixFileSystem
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.support import append, run_steps, sample
from tests.swh.database import publish_reference, rows_of
from tests.swh.graphs import Shape, random_graph
from tests.swh.reference import Reference

__all__ = ["s3_url"]

EVENTS = sample(600)
COMMITS = 4
SETTINGS = "[eventlog]\nblock_bytes_max = 8192\n"
REFERENCE = Reference(random_graph(Shape(5, 30, 25, 12, 4, 3, 3, 20, 0.1)), "all")

pytestmark = pytest.mark.filterwarnings("default")  # PySpark's own are not this project's errors


@dataclass
class Elsewhere:
    """A driver with its repository, and an executor on another machine."""

    repository: Repository
    store: RemoteStore
    executor: Path
    """The folder in which the executor works."""
    of_driver: Traffic = field(default_factory=Traffic)
    of_executor: Traffic = field(default_factory=Traffic)
    parts: list[Any] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.repository.settings.root

    def rows(self, **options: str) -> list[tuple[Any, ...]]:
        """Ids and types of the events that the tasks of a read give out."""
        return sorted(self.events_of("custody", {"repository": str(self.root), **options}))

    def events_of(self, kind: str, options: dict[str, str]) -> Iterator[tuple[Any, ...]]:
        from custody.spark.event_source import EventSource
        from custody.spark.software_source import SoftwareSource

        source = (EventSource if kind == "custody" else SoftwareSource)(options)
        with counted() as traffic:
            reader = source.reader(source.schema())
            parts = reader.partitions()
        self.of_driver = traffic.traffic
        yield from self.read(reader, parts)

    def read(self, reader: Any, parts: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """Read parts on the executor, each as a task of its own."""
        from pyspark.serializers import CloudPickleSerializer

        travel = CloudPickleSerializer()
        sent = travel.loads(travel.dumps(reader))
        name = "settings" if hasattr(sent, "settings") else "_settings"
        # On that machine nothing lies where the driver has its repository.
        setattr(sent, name, getattr(sent, name).model_copy(update={"root": Path("/on/the/driver")}))
        self.parts = list(parts)
        with counted() as traffic:
            batches = [batch for part in parts for batch in sent.read(travel.loads(travel.dumps(part)))]
        self.of_executor = traffic.traffic
        assert list(self.executor.iterdir()) == [], "the folder of a task goes with it"
        for batch in batches:
            columns = [name for name in ("event_id", "event_type") if name in batch.schema.names] or batch.schema.names
            yield from zip(*(batch.column(each).to_pylist() for each in columns), strict=True)

    def fetched_by_driver(self) -> list[Path]:
        """Files of the store of which the driver's work folder has anything: of those that are all hole it has not."""
        below = self.repository.settings.store.rglob("*")
        return sorted(path for path in below if path.suffix in (".parquet", ".toc") and path.stat().st_blocks)


@pytest.fixture(scope="module", params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def bucket(request: pytest.FixtureRequest) -> Iterator[str]:
    """What the URLs of stores begin with."""
    if request.param == "memory":
        yield "memory://"
        return
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_environment(request.getfixturevalue("s3_url")).items():
            patch.setenv(name, value)
        yield f"s3://{BUCKET}/"


def made(root: Path, location: str) -> Repository:
    """Four commits, forgotten events, and some that wait in journals."""
    Repository.create(root)
    (root / "custody.toml").write_text(f'[repository]\nstore = "{location}"\n{SETTINGS}')
    found = Repository.open(root)
    for number in range(COMMITS):
        append(found, EVENTS[number * 120 : number * 120 + 120])
        run_steps(found.settings)
    found.forget(EventSelection(event_ids=(7, 431)), "asked for")
    found.forget(EventSelection(attributes={"filename": filename(200)}), "asked for")
    append(found, EVENTS[480:500])
    return found


@pytest.fixture(scope="module")
def shared(bucket: str, tmp_path_factory: pytest.TempPathFactory) -> Elsewhere:
    """Of tests that leave it as it was."""
    location = bucket + uuid4().hex
    found = made(tmp_path_factory.mktemp("driver") / "r", location)
    publish_reference(found.settings, "one", REFERENCE, "all")
    return Elsewhere(found, open_remote(location), tmp_path_factory.mktemp("executor"))


@pytest.fixture
def elsewhere(shared: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """The same; the driver's disk has nothing of the store."""
    return cold(shared, monkeypatch)


@pytest.fixture
def fresh(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """Of a test alone."""
    location = bucket + uuid4().hex
    (tmp_path / "executor").mkdir()
    return cold(
        Elsewhere(made(tmp_path / "driver", location), open_remote(location), tmp_path / "executor"), monkeypatch
    )


def cold(place: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    monkeypatch.setenv(FOLDER_VARIABLE, str(place.executor))
    shutil.rmtree(place.repository.settings.store, ignore_errors=True)
    place.repository = Repository.open(place.root)
    return place


def filename(number: int) -> str:
    event = EVENTS[number]
    return {**event.previous_attributes, **event.updated_attributes}["filename"] or ""


def in_sql(root: Path, **options: Any) -> list[tuple[Any, ...]]:
    """Of all events id, type, time in ms, FlowFile and writer."""
    text = "select event_id, event_type, epoch_ms(event_time), flowfile_uuid, writer from events order by 1"
    with Repository.open(root).sql(text, **options) as result:
        return [row for batch in result.batches() for row in zip(*(each.to_pylist() for each in batch), strict=True)]


def test_rows_are_those_of_sql_and_the_driver_fetches_no_log(elsewhere: Elsewhere) -> None:
    late, early = EVENTS[400].event_time, EVENTS[90].event_time
    questions: list[tuple[dict[str, str], Callable[[Any], bool]]] = [
        ({}, lambda row: True),
        ({"eventIds": "3, 60-70,431"}, lambda row: row[0] in (3, *range(60, 71))),
        ({"eventTypes": "SEND, DROP"}, lambda row: row[1] in ("SEND", "DROP")),
        ({"eventTimeFrom": str(late)}, lambda row: row[2] >= late),
        ({"eventTimeTo": str(early)}, lambda row: row[2] < early),
        ({"flowfileUuids": EVENTS[77].flowfile_uuid}, lambda row: row[3] == EVENTS[77].flowfile_uuid),
        *(({"asOf": str(n)}, lambda row, n=n: row[0] < 120 * (n + 1)) for n in range(COMMITS)),
        ({"asOf": datetime.now(UTC).isoformat()}, lambda row: row[0] < 480),
    ]
    answers = [elsewhere.rows(**options) for options, _ in questions]
    assert elsewhere.fetched_by_driver() == []
    # Only now, for SQL fetches whole logs.
    expected = in_sql(elsewhere.root)
    assert 470 < len(expected) < 498
    for (options, is_asked), rows in zip(questions, answers, strict=True):
        assert rows
        assert rows == [row[:2] for row in expected if is_asked(row)], options
    assert answers[7] == [row[:2] for row in in_sql(elsewhere.root, as_of=1)]


def test_an_id_costs_a_table_of_contents_and_a_block(elsewhere: Elsewhere) -> None:
    files = elsewhere.repository.workspace().state().files.values()
    [file] = [file for file in files if file.first_event_id <= 130 <= file.last_event_id]
    size, contents = file.size_bytes, len(elsewhere.store.get(f"main/provenance/{file.toc_path}"))
    assert elsewhere.rows(eventIds="130") == [(130, EVENTS[130].event_type)]
    assert elsewhere.of_executor.requests == {"get": 1, "head": 1, "range": 1}
    assert elsewhere.of_executor.bytes_read < contents + size / 2
    # The catalog's checkpoints do not know blocks. Then the table of contents tells, on the executor.
    elsewhere.repository.workspace().catalog.checkpoint()
    pruning._KNOWN.clear()
    assert elsewhere.rows(eventIds="130") == [(130, EVENTS[130].event_type)]
    assert [part.part.blocks for part in elsewhere.parts] == [None]
    assert elsewhere.of_executor.requests == {"get": 1, "head": 1, "range": 1}
    assert elsewhere.of_executor.bytes_read < contents + size / 2
    assert elsewhere.rows(eventIds="900") == []
    assert elsewhere.of_executor.count == 0


def test_a_stream_reads_of_a_compacted_log_the_groups_of_its_batch(fresh: Elsewhere) -> None:
    from custody.spark.event_source import EventSource

    options = {"repository": str(fresh.root), "maxFilesPerTrigger": "1"}
    fresh.repository.compact()
    [file] = fresh.repository.workspace().state().files.values()
    shutil.rmtree(fresh.repository.settings.store)
    source = EventSource(options)
    reader = source.streamReader(source.schema())
    start, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        batches.append([row[0] for row in fresh.read(reader, reader.partitions(start, end))])
        if len(batches) == 2:
            assert 0 < fresh.of_executor.bytes_read < file.size_bytes / 2
        start = json.loads(json.dumps(end))
    given = [number for batch in batches for number in batch]
    assert sorted(given) == [row[0] for row in in_sql(fresh.root) if row[0] < 480]
    assert len(given) == len(set(given))
    assert [min(batch) for batch in batches if batch] == [0, 120, 240, 360]


def test_a_log_that_is_gone_and_one_that_is_damaged_are_told_apart(elsewhere: Elsewhere) -> None:
    from custody.spark.event_source import EventSource

    source = EventSource({"repository": str(elsewhere.root), "eventIds": "130"})
    reader = source.reader(source.schema())
    [part] = reader.partitions()
    assert part.part.log is not None
    key = f"main/provenance/{part.part.log.path}"
    good = elsewhere.store.get(key)
    elsewhere.store.put(key, bytes(len(good)))
    with pytest.raises(CorruptionError, match=rf"{elsewhere.store.locate(key)} block \d+: expected the checksum"):
        list(elsewhere.read(reader, [part]))
    elsewhere.store.delete(key)
    with pytest.raises(ConflictError, match=r"gone since the scan was planned.* Load the events again"):
        list(elsewhere.read(reader, [part]))
    # Without its table of contents the log is read by the one that it holds.
    elsewhere.store.put(key, good)
    beside = key.replace(".parquet", ".toc")
    contents = elsewhere.store.get(beside)
    elsewhere.store.delete(beside)
    assert list(elsewhere.read(reader, [part])) == [(130, EVENTS[130].event_type)]
    elsewhere.store.put(beside, contents)
    assert elsewhere.fetched_by_driver() == []


def test_a_writer_in_a_store_of_its_own_is_read_there(fresh: Elsewhere) -> None:
    other = f"{fresh.store.locate('').rstrip('/')}-far"
    place_writer(fresh.repository.settings, "far", other)
    settings = fresh.repository.settings
    section = settings.repository.model_copy(update={"writer": "far"})
    far = Repository(settings.model_copy(update={"repository": section}))
    append(far, EVENTS[500:520])
    run_steps(far.settings)
    shutil.rmtree(settings.store)
    rows = fresh.rows(writer="far")
    assert {part.part.log.store for part in fresh.parts} == {other}
    assert rows == [row[:2] for row in in_sql(fresh.root) if row[4] == "far"]
    assert len(rows) == 20


@pytest.mark.parametrize(
    ("options", "table"), [({}, "nodes"), ({"keys": "first"}, "nodes"), ({"keys": "none"}, "nodes"), ({}, "origins")]
)
def test_tables_of_software_are_fetched_by_who_reads_them(
    elsewhere: Elsewhere, options: dict[str, str], table: str
) -> None:
    columns, expected = rows_of(REFERENCE)[table]
    ids = sorted(row[columns.split().index("id")] for row in list[Any](expected))
    chosen = {"first": [ids[0]], "none": [1 << 60]}.get(options.get("keys", ""), ids)
    keys = {"keys": ",".join(map(str, chosen))} if options else {}
    given = elsewhere.events_of("custody-software", {"repository": str(elsewhere.root), "table": table, **keys})
    assert sorted(row[0] for row in given) == [each for each in chosen if each in ids]
    assert elsewhere.fetched_by_driver() == []
    if options:
        assert len(elsewhere.parts) == (chosen[0] in ids)
        # A page of each column at most, and the index.
        assert elsewhere.of_executor.requests.get("range", 0) <= 3 * len(elsewhere.parts)


def test_a_table_of_software_that_is_gone_says_so(elsewhere: Elsewhere) -> None:
    from custody.spark.software_source import SoftwareSource

    for keys in ({}, {"keys": "0"}):
        source = SoftwareSource({"repository": str(elsewhere.root), "table": "nodes", **keys})
        reader = source.reader(source.schema())
        parts = reader.partitions()
        kept = {key: elsewhere.store.get(key) for key in elsewhere.store.keys("main/swh/builds/")}
        for key in kept:
            elsewhere.store.delete(key)
        with pytest.raises(ConflictError, match="gone since the read was planned"):
            list(elsewhere.read(reader, parts))
        for key, data in kept.items():
            elsewhere.store.put(key, data)


def test_a_tombstone_travels_with_the_ids_that_its_log_can_hold(elsewhere: Elsewhere) -> None:
    by_log = {
        part.log.path: [AddTombstone.FromString(stone) for stone in part.tombstones]
        for part in plan_scan(elsewhere.repository.workspaces()).parts
        if part.log is not None
    }
    ids = [sorted(number for stone in stones for number in stone.event_ids) for stones in by_log.values()]
    assert sorted(ids) == [[], [], [7], [431]]
    # One that names no ids may mean events of any log.
    assert all(any(stone.attributes for stone in stones) for stones in by_log.values())


def test_the_folder_of_the_repository_serves_where_it_is(elsewhere: Elsewhere, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = elsewhere.repository.settings
    with reading_disk(settings) as here:
        assert here is settings
    parts = [part for part in plan_scan(elsewhere.repository.workspaces()).parts if part.log is not None]
    for _ in range(2):
        with counted() as traffic:
            assert sum(map(len, tables(settings, parts))) > 470
    # What one task fetched is there for the next.
    assert "range" not in traffic.traffic.requests
    monkeypatch.setattr("custody.spark.own_disk.os.access", lambda path, mode: False)
    with reading_disk(settings) as here:
        folder = here.root
        assert folder.parent == elsewhere.executor
        assert here.repository.store == settings.repository.store
    assert not folder.exists()


def tables(settings: Settings, parts: list[ScanPart]) -> list[Any]:
    fs = PosixFileSystem()
    return [table for part in parts for table in read_part(settings, fs, part, EventFilter(), ["event_id"])]
