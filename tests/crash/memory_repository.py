"""A repository in memory for the crash scenarios: its settings, its passes, and the checks of a disk after a crash."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from whoosh.query import Every

from custody.catalog import CatalogState
from custody.catalog.codec import decode
from custody.catalog.keys import HINT
from custody.catalog.second_copies import SINCE
from custody.catalog.stripes import StripeMark
from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import StorageError
from custody.eventlog import EventLog, TableOfContents, read_staged
from custody.format.names import (
    BUILDING_PREFIX,
    FAILED_SUFFIX,
    FETCHING_SUFFIX,
    FILTERS_SUFFIX,
    INCARNATIONS,
    RANGES,
    RELEASED_SUFFIX,
    REMOVING_PREFIX,
    STRIPE_MARK,
    STRIPES,
    UNIT_MANIFEST,
    UPLOADS,
    WITNESS,
    JournalName,
    parse_epoch,
    parse_shard,
    parse_staged_unit,
    parse_transaction,
    parse_unit_part,
)
from custody.index import FilterFile, IndexedFields, OpenShard, builder, stored_shard
from custody.index.manifest import Manifest
from custody.index.segment_writer import write_segment
from custody.journal import JournalFile, JournalWriter
from custody.journal.incarnations import decode_claim
from custody.journal.writer_state import decode_state
from custody.lease import Holder
from custody.model import Event
from custody.quarantine.store import decode_envelope
from custody.recovery import STEPS
from custody.repository import Repository
from custody.store.conditional_put import CONDITION_PROBE
from custody.store.witness import decode_witness
from custody.vfs import FileSystem
from custody.vfs.durable import TEMPORARY_SUFFIX
from custody.vfs.memory import MemoryFileSystem
from custody.workspace import UnitManifest, Workspace, staged_path
from custody.workspace.handoff import MANIFEST, decode_manifest
from custody.workspace.run_reports import decode_report
from custody.workspace.stored_units import decode_entry as decode_entry_of_unit
from tests.crash.machine_with_bucket import BUCKET, machine_of, settings_on
from tests.support import event, numbered

WRITER = "main"
SETTINGS = Settings.model_validate(
    {
        "root": Path("/repository"),
        "repository": {"writer": WRITER, "containers": ["disk1", "disk2"]},
        "catalog": {"checkpoint_every": 1},
        # Two groups of a few events fit into one log, seventy events do not.
        "eventlog": {"log_bytes_target": 12_000, "row_copies": True},
    }
)
NOW_MS = 1_772_409_600_000
EVERYTHING = 10_000
UNFINISHED = (builder.ATTEMPT_PREFIX, BUILDING_PREFIX, REMOVING_PREFIX)


@dataclass
class Promises:
    """Which events were tried and which of them were acknowledged, by id."""

    tried: int = 0
    acknowledged: dict[int, Event] = field(default_factory=dict)

    def copy(self) -> Promises:
        return Promises(self.tried, dict(self.acknowledged))

    def append(self, writer: JournalWriter, count: int) -> None:
        """Append events that nobody appended before, and write down the acknowledgement."""
        events = [event(number) for number in range(self.tried, self.tried + count)]
        self.tried += count
        last = max(self.acknowledged, default=-1)
        ids = writer.append(events)
        assert len(ids) == count
        assert ids.start > last, f"id {ids.start} was given out again, {last} was acknowledged"
        self.acknowledged.update({stored.event_id: stored for stored in numbered(events, ids.start)})


def repository(fs: FileSystem, settings: Settings = SETTINGS) -> Repository:
    """The repository on a disk, opened by a process that just started."""
    return Repository(settings_on(fs, settings), fs, ManualClock(NOW_MS))


def workspace(fs: FileSystem, settings: Settings = SETTINGS) -> Workspace:
    return repository(fs, settings).workspace()


def run_pass(fs: FileSystem, *names: str, settings: Settings = SETTINGS, is_segment_copied: bool = True) -> None:
    """Do all steps (or some) as the jobs do them: units listed from disk, each with a workspace of its own.

    The same events are indexed at hundreds of crash points. Unless a scenario is about the writing itself, the files
    that the index writer makes of them are kept and written again, each in one piece.
    """
    clock, settings = ManualClock(NOW_MS), settings_on(fs, settings)
    hand_over_if_needed(fs, settings)
    with copied_segments() if is_segment_copied else nullcontext():
        for name in names or STEPS:
            for unit in STEPS[name].units(settings, fs):
                STEPS[name].run(Workspace(settings, unit.writer, fs, clock), unit)


def hand_over_if_needed(fs: FileSystem, settings: Settings = SETTINGS) -> None:
    """Hand over what is sealed where no step reads the journals of the disks."""
    if settings_on(fs, settings).is_staging_stored:
        repository(fs, settings).hand_over()


def require_done(what: object, *, is_done: bool) -> None:
    """Raise what a caller of custody would get who finds in a report that some of the work failed."""
    if not is_done:
        raise StorageError(f"not all was done: {what}")


@contextmanager
def copied_segments() -> Iterator[None]:
    """Write the files of shards that were written once before as copies, each in one piece."""
    with patch.object(builder, "write_segment", copied_segment):
        yield


_SEGMENTS: dict[tuple[IndexedFields, tuple[bytes, ...]], tuple[Manifest, dict[str, bytes]]] = {}


def copied_segment(
    fs: FileSystem, folder: Path, tables: Iterable[pa.Table], indexed: IndexedFields, memory_bytes: int
) -> Manifest:
    chunks = list(tables)
    key = indexed, tuple(batch.serialize().to_pybytes() for table in chunks for batch in table.to_batches())
    if key not in _SEGMENTS:
        scratch = MemoryFileSystem()
        scratch.make_directory(folder)
        segment = write_segment(scratch, folder, chunks, indexed, memory_bytes)
        _SEGMENTS[key] = segment, {name: scratch.read(folder / name) for name in scratch.list(folder)}
    segment, files = _SEGMENTS[key]
    for name, data in files.items():
        with fs.create(folder / name) as file:
            file.write(data)
            file.sync()
    return segment


def check_events(fs: FileSystem, promises: Promises, settings: Settings = SETTINGS) -> None:
    """Every acknowledged event once, in order, as it was; nothing else but what was tried."""
    events = list(repository(fs, settings).events(0, EVERYTHING))
    ids = [item.event_id for item in events]
    assert all(first < second for first, second in pairwise(ids)), f"ids do not go up: {ids}"
    by_id = dict(zip(ids, events, strict=True))
    for event_id, acknowledged in promises.acknowledged.items():
        assert event_id in by_id, f"acknowledged event {event_id} is lost; there are {ids}"
        assert by_id[event_id] == acknowledged, f"event {event_id} is not what was appended"
    numbers = [int(item.flowfile_uuid[-12:]) for item in events]
    assert len(set(numbers)) == len(numbers), f"events are there twice: {numbers}"
    for number, item in zip(numbers, events, strict=True):
        assert number < promises.tried, f"event {item.event_id} was never appended"
        assert item == event(number, event_id=item.event_id), f"event {item.event_id} is not what was appended"


def check_catalog(fs: FileSystem, settings: Settings = SETTINGS) -> CatalogState:
    """The chain is valid from its first kept transaction on, and all that is live is there and whole."""
    at = workspace(fs, settings)
    state = at.catalog.load()
    revisions = [transaction.revision for transaction in at.catalog.timeline()]
    assert revisions == list(range(state.floor, state.revision + 1))
    for file in state.files.values():
        for path, digest in ((file.path, file.sha256), (file.toc_path, file.toc_sha256)):
            # Of a bucket what it has, and not its copy on this machine.
            assert hashlib.sha256(at.catalog.objects.files.get(path)).digest() == digest, path
    for shard in state.shards.values():
        opened_shard = OpenShard(fs, at.shard_path(shard), at.stored_shard(shard))
        assert len(opened_shard.search(Every())) == shard.documents
    if machine_of(fs) is not None:
        _check_from_elsewhere(at, state)
    return state


def _check_from_elsewhere(at: Workspace, state: CatalogState) -> None:
    """A machine with an empty disk gives out of the bucket what is live, and nothing else."""
    elsewhere = Repository(at.settings, MemoryFileSystem(), ManualClock(NOW_MS))
    page = elsewhere.search("", limit=EVERYTHING)
    # Journals lie on the disks of the machine that wrote them: a fresh one is told so, and of nothing else.
    others = [notice for notice in page.notices if not re.search("container .* is missing", notice)]
    assert not others, others
    assert page.total == len(page.events)
    ids = sorted(item.event.event_id for item in page.events if item.writer == at.writer)
    assert len(set(ids)) == len(ids), f"events are there twice: {ids}"
    held = [(file.first_event_id, file.last_event_id) for file in state.files.values()]
    stray = [event_id for event_id in ids if not any(first <= event_id <= last for first, last in held)]
    assert not stray or at.hands_over, f"no live log holds {stray}"
    for shard in state.shards.values():
        stored = at.shard_objects.open(shard.name)
        assert len(OpenShard(at.fs, at.shard_path(shard), stored).search(Every())) == shard.documents, shard.name


def check_final_names(fs: FileSystem, folder: Path = SETTINGS.root) -> None:
    """Whatever has a final name is whole, listed or not; in the bucket as well."""
    machine = machine_of(fs)
    if machine is not None:
        for key, data in machine.bucket.objects.items():
            _check_object(BUCKET / key, data)
    _check_folder(fs, folder)


def _check_folder(fs: FileSystem, folder: Path) -> None:
    for name in fs.list(folder):
        path = folder / name
        if fs.is_directory(path):
            if folder.name == "staging" and (parse_staged_unit(name), parse_unit_part(name)) != (None, None):
                _check_unit(fs, path)
            elif parse_shard(name):
                _check_shard(path, tuple((file, fs.read(path / file)) for file in fs.list(path)))
            # Files with holes, and copies of what the bucket has: whoever reads them compares them with their digests.
            elif not name.startswith(UNFINISHED) and name not in (RANGES, "staged-copies"):
                _check_folder(fs, path)
        elif path.suffix not in (TEMPORARY_SUFFIX, FETCHING_SUFFIX) and not name.startswith(REMOVING_PREFIX):
            check = _check_part_of_table if "iceberg" in path.parts else _check_whole
            check(path, fs.read(path))


@lru_cache(maxsize=1024)
def _check_shard(path: Path, files: tuple[tuple[str, bytes], ...]) -> None:
    """Raise unless a shard is whole; equal shards are found on many disks."""
    fs = MemoryFileSystem()
    fs.make_directory(path)
    for name, data in files:
        fs.write_durably(path / name, data)
    OpenShard(fs, path).verify()


def _check_unit(fs: FileSystem, folder: Path) -> None:
    """A folder with a unit's name has all its files, and they are whole."""
    manifest = UnitManifest.decode(fs.read(folder / UNIT_MANIFEST), folder / UNIT_MANIFEST)
    paths = [staged_path(folder, log) for log in manifest.logs]
    assert fs.list(folder) == sorted([UNIT_MANIFEST, *(path.name for path in paths)])
    for path, log in zip(paths, manifest.logs, strict=True):
        assert sum(table.num_rows for table in read_staged(fs, path, log)) == log.rows


def _decoder(path: Path) -> Callable[[bytes, Path], object] | None:
    """Return what reads a document: JSON, a stripe's mark, a hand-over; None where nobody knows the file."""
    if path.name == MANIFEST:
        return decode_manifest
    if path.name == STRIPE_MARK or path.parent.name == STRIPES:
        return StripeMark.decode
    if path.parent == SETTINGS.quarantine:
        return decode_envelope
    if path.suffix != ".json":
        return None
    if BUCKET / "RUNS/reports" in path.parents:
        return decode_report
    return decode_report if path.parent.parent == SETTINGS.runs else None


def _check_object(path: Path, data: bytes) -> None:
    """Raise unless an object is whole that is no upload on its way to its name."""
    folders = path.parts
    if UPLOADS in folders or path.name == CONDITION_PROBE:
        return
    if BUCKET / "RUNS/days" in path.parents:
        assert data == b""
        return
    if "iceberg" in folders:
        _check_part_of_table(path, data)
    elif "staging" in folders and (path.name == UNIT_MANIFEST or path.suffix == ".part"):
        UnitManifest.decode(data, path)
    elif path.parent.parent.name in ("handoff", "staging") and len(path.name) == 2 * hashlib.sha256().digest_size:
        assert hashlib.sha256(data).hexdigest() == path.name, path
    elif "staging" in folders and path.suffix in (".log", ".shard"):
        decode_entry_of_unit(data, str(path))
    elif path.suffix == ".shard":
        assert stored_shard._manifest_in(memoryview(data)) is not None, f"{path} has no end"
    else:
        _check_whole(path, data)


def _check_part_of_table(path: Path, data: bytes) -> None:
    """Raise unless a file of a published table is whole."""
    if path.suffix == ".parquet":
        pq.read_table(pa.BufferReader(data))
    elif path.suffix == ".avro":
        assert len(list(fastavro.reader(BytesIO(data)))) > 0 or path.name.startswith("snap-")
    elif path.suffix == ".json":
        json.loads(data)
    else:
        assert path.name == "version-hint.text"
        assert data.isdigit()


_READERS: dict[str, Callable[[FileSystem, Path], object]] = {
    ".parquet": lambda fs, path: EventLog(fs, path).read(),
    ".toc": lambda fs, path: TableOfContents.decode(fs.read(path), path),
    FILTERS_SUFFIX: lambda fs, path: FilterFile(fs, path).require_all(),
}


@lru_cache(maxsize=4096)
def _check_whole(path: Path, data: bytes) -> None:
    """Raise unless a file is whole; equal files are found on many disks."""
    fs = MemoryFileSystem()
    fs.make_directory(path.parent)
    fs.write_durably(path, data)
    journal = JournalName.parse(path.name)
    if journal is not None:
        assert JournalFile.read(fs, path).damage == (), f"{path} is damaged"
    elif parse_transaction(path.name) is not None or path.name in (HINT, SINCE) or path.suffix == ".kept":
        decode(data, path)
    elif path.name.endswith(".statistics.parquet"):
        pq.read_table(pa.BufferReader(data))
    elif path.suffix in _READERS:
        _READERS[path.suffix](fs, path)
    elif parse_epoch(path.name) is not None:
        decode_claim(data, str(path)) if path.parent.name == INCARNATIONS else Holder.decode(data, path)
    elif path.suffix in (RELEASED_SUFFIX, FAILED_SUFFIX):
        assert data == b""
    elif path.name == "STATE":
        decode_state(data, path)
    elif path.name.startswith(WITNESS) or (path.parent.name == "witness" and path.name != "LOCK"):
        decode_witness(data, path)
    elif (decode_json := _decoder(path)) is not None:
        decode_json(data, path)
    else:
        assert path.name == "LOCK", f"{path}: a file that nobody knows"
