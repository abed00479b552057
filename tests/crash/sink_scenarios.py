"""Scenario of the NGSI sink: after any crash each committed line of each file is there once, in order, and no other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from custody.capture import Accepted, CaptureLimits, Context, Format, InputPlace, read_piece
from custody.catalog import Catalog
from custody.clock import ManualClock
from custody.model import Event
from custody.ngsi.parameters import Parameters
from custody.ngsi.records import Record, Unplaced
from custody.ngsi.rendering import file_additions
from custody.ngsi_sink.batch_file import decode
from custody.ngsi_sink.batch_plan import SourceRecord
from custody.ngsi_sink.notifications import Content, NotificationReader
from custody.ngsi_sink.sink import Sink
from custody.ngsi_sink.sink_state import DATABASE, NAME
from custody.store import LocalStore
from custody.vfs import FileSystem
from tests.crash.enumeration import Scenario

FOLDER, ROOT = Path("/repository/ngsi"), Path("/hdfs")
RECEIVED_MS = 1_772_600_767_089
HEADERS = {"Fiware-Service": "parks", "Fiware-ServicePath": "/north"}
NAMES = (
    ("Bench1", "seats"),
    ("Tree1", "height"),
    ("Bench1", "wood"),
    ("x" * 130, "seats"),
    ("Bench1", "seats"),
    ("Tree1", "height"),
)
"""Entity and attribute of each event; one has no destination, one brings a new column."""
BATCHES = ((0, 2), (2, 4), (4, 4), (4, 6))


def notified(number: int, entity: str, attribute: str) -> tuple[Event, bytes]:
    """An event with its id, and the body that it received; the value tells it from all others."""
    found = {"type": "Number", "value": 1000 + number, "metadata": {"n": {"type": "Number", "value": number}}}
    body = json.dumps({"subscriptionId": "1", "data": [{"id": entity, "type": "T", attribute: found}]}).encode()
    envelope = b'{"headers":' + json.dumps(HEADERS).encode() + b',"body":' + body + b"}"
    context = Context(received_ms=RECEIVED_MS)
    [outcome] = read_piece(envelope, InputPlace(0, 0), CaptureLimits(1 << 20), format=Format.NGSI, context=context)
    assert isinstance(outcome, Accepted), outcome
    return msgspec.structs.replace(outcome.event, event_id=number), body


EVENTS = [notified(number, *name) for number, name in enumerate(NAMES)]


WRITER = "main"


def read_events(
    events: Iterable[Event], content: Content, parameters: Parameters
) -> Iterator[tuple[Event, Record | Unplaced]]:
    """Yield the records of those events that received an entity, in their order."""
    reader = NotificationReader(content, parameters)
    for event in events:
        for record in reader.records(event):
            yield event, record


def items(parameters: Parameters, first: int, upto: int) -> list[SourceRecord]:
    bodies = {event.event_id: body for event, body in EVENTS}
    found = read_events((event for event, _ in EVENTS[first:upto]), lambda event: bodies[event.event_id], parameters)
    return [SourceRecord(WRITER, event, record, bodies[event.event_id]) for event, record in found]


def expected(parameters: Parameters, batches: list[tuple[int, int]]) -> dict[str, bytes]:
    """The files after some batches, each of them a file of Parquet, all of them together lines of text."""
    files: dict[str, bytes] = {}
    known: dict[str, tuple[str, ...]] = {}
    for first, upto in batches:
        records = [item.content for item in items(parameters, first, upto) if isinstance(item.content, Record)]
        additions = file_additions(records, parameters, known, part=f"{WRITER}-{first:020d}")
        known |= additions.columns
        for path, data in additions.files.items():
            files[path] = files.get(path, b"") + data
    return files


def committed_cursor(fs: FileSystem) -> int:
    """Up to where events are committed, read as the catalog says it, without a repair."""
    state = Catalog(LocalStore(fs, FOLDER), NAME, DATABASE, ManualClock(0)).load()
    newest = [path for path in state.files if path.startswith("batches/")]
    if not newest:
        return 0
    data = fs.read(FOLDER / NAME / DATABASE / newest[0])
    return decode(data, newest[0]).manifest.cursors.get(WRITER, 0)


@dataclass
class Cursor:
    """The batches that were tried, and up to where it was promised that events are in the files."""

    tried: list[tuple[int, int]]
    promised: int = 0


class Sinking(Scenario[Cursor]):
    """Batches of two events, one of them without any, and the sink opened anew in between."""

    def __init__(self, mode: str, sink: type[Sink] = Sink) -> None:
        self._sink = sink
        self._parameters = Parameters.from_names(
            # One file at a time: the operations of an enumeration have one order.
            {"hdfs_username": "warden", "file_format": mode, "backend_files_at_once": 1}
        )

    def new_record(self) -> Cursor:
        return Cursor([])

    def copy(self, record: Cursor) -> Cursor:
        return Cursor(list(record.tried), record.promised)

    def run(self, fs: FileSystem, record: Cursor) -> None:
        for half in (BATCHES[:2], BATCHES[2:]):
            with self._open(fs) as sink:
                for first, upto in half:
                    record.tried.append((first, upto))
                    sink.write(items(self._parameters, first, upto), {WRITER: upto})
                    record.promised = upto

    def check(self, fs: FileSystem, record: Cursor) -> None:
        # Before anybody repairs anything: no file is longer than what was committed until then.
        committed = committed_cursor(fs)
        whole = expected(self._parameters, [batch for batch in record.tried if batch[1] <= committed])
        for path, data in self._files(fs):
            assert len(data) <= len(whole.get(path, b"")), f"{path} holds what was not committed"
        with self._open(fs) as sink:
            cursor = sink.cursors.get(WRITER, 0)
        assert record.promised <= cursor <= max([upto for _, upto in record.tried], default=0)
        done = [batch for batch in record.tried if batch[1] <= cursor]
        assert dict(self._files(fs)) == expected(self._parameters, done)

    def use(self, fs: FileSystem, record: Cursor) -> None:
        with self._open(fs) as sink:
            cursor = sink.cursors.get(WRITER, 0)
            # What was committed stands; the rest comes as one batch, with events that are in the files already.
            record.tried = [batch for batch in record.tried if batch[1] <= cursor]
            if cursor < len(EVENTS):
                record.tried.append((cursor, len(EVENTS)))
            sink.write(items(self._parameters, 0, len(EVENTS)), {WRITER: len(EVENTS)})
            record.promised = len(EVENTS)

    def _open(self, fs: FileSystem) -> AbstractContextManager[Sink]:
        return self._sink.open(fs, FOLDER, ROOT, ManualClock(RECEIVED_MS), self._parameters)

    @staticmethod
    def _files(fs: FileSystem) -> Iterator[tuple[str, bytes]]:
        def below(folder: Path) -> Iterator[Path]:
            for name in fs.list(folder):
                path = folder / name
                if fs.is_directory(path):
                    yield from below(path)
                else:
                    yield path

        for path in below(ROOT):
            yield f"/{path.relative_to(ROOT)}", fs.read(path)
