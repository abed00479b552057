"""One journal file: a preamble, a header record, then records of events, and an end record once it is sealed.

Layout (docs/formats/journal.md): 8 bytes preamble; a header frame with a JSON document (writer, database, group); a
schema frame with the Arrow schema of this file's batches; then frames with events; the end frame counts them, so that
a sealed file that lost its tail is told from a whole one. Numbers below are part of the format: add, never change.

Damage costs the damaged record: the records before and behind it are read, and what could not be read is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import msgspec
import pyarrow as pa

from custody.errors import CorruptionError, CustodyError, FormatVersionError
from custody.format.framing import HEAD_BYTES, Frame, Gap, frame, frames, judge_tail
from custody.format.names import JournalName
from custody.journal.encoding import JOURNAL_SCHEMA, KIND_BATCH, KIND_ROWS, EventRecord, decode
from custody.model import READER_VERSION, SCHEMA_VERSION, schema_of, unknown_columns
from custody.vfs import FileSystem, WritableFile, release_pages

PREAMBLE = b"CUSTJRN\x01"
FORMAT_VERSION = PREAMBLE[7]
KIND_HEADER = 1
KIND_SCHEMA = 2
KIND_GROUP = 5
KIND_END = 6
_HEADER_BYTES_MAX = 4096


class JournalHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a journal: its writer, the promise of its acknowledgements, and the least id it may hold."""

    writer: str
    database: str
    first_event_id: int
    schema_version: int = SCHEMA_VERSION
    reader_version: int = READER_VERSION
    """Writers of schema version 2 and later always say it."""
    created_ms: int
    format_version: int = FORMAT_VERSION
    sync: str = "always"
    """The sync policy: under any but `always`, a power loss may cost events whose ids were returned."""
    incarnation: str = ""
    """The writer's incarnation, 32 hexadecimal digits; empty in journals that were made before there was one."""


class JournalEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a sealed journal, counted when it was sealed."""

    events: int
    first_event_id: int | None = None
    last_event_id: int | None = None

    def with_events(self, first_event_id: int, count: int) -> JournalEnd:
        """Return the count with the events of one more append."""
        return self.with_ids(count, first_event_id, first_event_id + count - 1)

    def with_ids(self, count: int, first: int, last: int) -> JournalEnd:
        """Return the count with more events, of which these are the smallest and the greatest id."""
        return JournalEnd(
            events=self.events + count,
            first_event_id=first if self.first_event_id is None else min(self.first_event_id, first),
            last_event_id=last if self.last_event_id is None else max(self.last_event_id, last),
        )


_HEADER = msgspec.json.Decoder(JournalHeader)
END_DECODER = msgspec.json.Decoder(JournalEnd)


@dataclass(frozen=True, slots=True)
class JournalDamage:
    """Unreadable bytes of a journal; their length is 0 when the end record is missing."""

    path: Path
    offset: int
    length: int
    data: memoryview = field(repr=False, compare=False)

    def evidence(self) -> bytes:
        """Return the bytes as they are."""
        return bytes(self.data)

    def __str__(self) -> str:
        if self.length == 0:
            return f"{self.path} @{self.offset}: expected another record, got the end of the file."
        return (
            f"{self.path} @{self.offset}: expected whole records with their checksums, got {self.length} other bytes."
        )


@dataclass(frozen=True, slots=True)
class TornTail:
    """The incomplete end of the last write; as far as can be told, it was never acknowledged."""

    offset: int
    lost_bytes: int
    is_certain: bool = True
    """Whether it can be nothing else: if not, it may be an acknowledged record that was damaged since."""

    def __str__(self) -> str:
        if self.is_certain:
            return f"{self.lost_bytes} bytes of a write that was broken off, which nobody was told of"
        return (
            f"{self.lost_bytes} bytes that are no whole record: a write that was broken off, which nobody was told of, "
            "or events that were acknowledged and damaged since"
        )


def write_header(file: WritableFile, header: JournalHeader) -> None:
    """Write everything that precedes the first event; not durable before the file is synced."""
    file.write(
        PREAMBLE
        + frame(KIND_HEADER, msgspec.json.encode(header))
        + frame(KIND_SCHEMA, JOURNAL_SCHEMA.serialize().to_pybytes())
    )


def read_header(fs: FileSystem, path: Path) -> JournalHeader | None:
    """Return the header of a journal, None when it is damaged; nothing else is read.

    Raises:
        StorageError: the journal is gone: sealed or swept in this moment.
    """
    first = next(frames(fs.view(path)[:_HEADER_BYTES_MAX], len(PREAMBLE)), None)
    if not isinstance(first, Frame) or first.kind != KIND_HEADER:
        return None
    try:
        return _HEADER.decode(first.payload)
    except msgspec.MsgspecError:
        return None


def begun_ms(fs: FileSystem, paths: Iterable[Path]) -> int | None:
    """Return when the oldest of some journals was begun, in ms; None where all of them are gone or damaged."""
    oldest: int | None = None
    for path in paths:
        with suppress(CustodyError):  # sealed or swept in this moment
            header = read_header(fs, path)
            if header is not None and (oldest is None or header.created_ms < oldest):
                oldest = header.created_ms
    return oldest


def read_records(path: Path, head: memoryview, data: memoryview, start: int) -> Iterator[EventRecord]:
    """Yield the intact records of events in `data`, the bytes of a journal from `start` on.

    `head` is the beginning of the journal, in which the schema of its batches is.

    Raises:
        CorruptionError: a record of several ones does not hold what was written.
    """
    schema = JOURNAL_SCHEMA
    for item in frames(head, len(PREAMBLE)) if len(head) else ():
        if isinstance(item, Frame) and item.kind == KIND_SCHEMA:
            schema = pa.ipc.read_schema(pa.py_buffer(item.payload))
    for item in frames(data):
        if isinstance(item, Frame) and item.kind == KIND_GROUP:
            offset = start + item.offset
            for part in _parts_of(item, path, offset):
                if part.kind in (KIND_BATCH, KIND_ROWS):
                    yield EventRecord.of(part, path, offset + HEAD_BYTES + part.offset, schema)
        elif isinstance(item, Frame) and item.kind in (KIND_BATCH, KIND_ROWS):
            yield EventRecord.of(item, path, start + item.offset, schema)


def _parts_of(item: Frame, path: Path, offset: int) -> Iterator[Frame]:
    """Yield the records that were written together, with their places in the payload of the record around them."""
    for part in frames(item.payload):
        if isinstance(part, Gap):
            raise CorruptionError(f"{path} @{offset}: expected whole records in a group of records.")
        yield part


def end_record(end: JournalEnd) -> bytes:
    """Return the last record of a sealed journal."""
    return frame(KIND_END, msgspec.json.encode(end))


class JournalFile:
    """A journal that was read: its header, its records, its damage, and where its intact part ends.

    Raises:
        FormatVersionError: it is of a version that this code does not know.
    """

    def __init__(self, path: Path, data: bytes | memoryview) -> None:
        self.path = path
        self._data = memoryview(data)
        name = JournalName.parse(path.name)
        self._is_sealed = name is not None and name.sealed
        self.header: JournalHeader | None = None
        """None when it is damaged."""
        self.records: list[EventRecord] = []
        """The intact records of events, in append order."""
        self.end: JournalEnd | None = None
        self.damage: tuple[JournalDamage, ...] = ()
        self.head_bytes = 0
        """Where the schema of its batches ends; 0 where that is damaged."""
        self.joined: list[tuple[int, int]] = []
        """Where the records that were written together begin and end, in order."""
        self.torn: TornTail | None = None
        """Of an open journal only: of a sealed one it was cut before."""
        self._schema = JOURNAL_SCHEMA
        self._has_head = False
        self._scan()

    @classmethod
    def read(cls, fs: FileSystem, path: Path) -> JournalFile:
        """Read and check a journal."""
        name = JournalName.parse(path.name)
        # An open journal is read, not mapped: recovery may cut it, and access to a page that is gone ends the process.
        return cls(path, fs.view(path) if name is not None and name.sealed else fs.read(path))

    @property
    def is_empty(self) -> bool:
        """Whether it holds no event, and nothing that may have been one."""
        return not self.records and not self.damage

    @property
    def intact_bytes(self) -> int:
        """Length without the torn tail."""
        return self.torn.offset if self.torn else len(self._data)

    @property
    def unknown_columns(self) -> tuple[str, ...]:
        """The columns that a newer custody added; reading ignores them."""
        return unknown_columns(self._schema)

    @property
    def cut_bytes(self) -> bytes:
        """The torn tail."""
        return bytes(self._data[self.intact_bytes :])

    def counted(self) -> JournalEnd:
        """Return the end record that it would get: the count of its intact events."""
        return reduce(
            lambda end, record: end.with_events(record.first_event_id, record.count),
            self.records,
            JournalEnd(events=0),
        )

    def table(self) -> pa.Table:
        """Return all intact events of the file, in the order of ids, with EVENT_SCHEMA."""
        return decode(self.records)

    def tables(self, piece_bytes: int) -> Iterator[pa.Table]:
        """Yield the intact events as `table` has them, some at a time, in append order.

        Each piece is decoded from about so many bytes of the file, from one record at least.
        """
        first = size = 0
        for place, record in enumerate(self.records):
            if place > first and size + record.bytes > piece_bytes:
                yield decode(self.records[first:place])
                first, size = place, 0
            size += record.bytes
        if self.records:
            yield decode(self.records[first:])

    def release_memory(self) -> None:
        """Release the memory that reading took, where the file is mapped; it may be read again."""
        release_pages(self._data)

    def _scan(self) -> None:
        items = list(frames(self._data, len(PREAMBLE)))
        gaps = self._gap_of_preamble(items)
        for item in self._without_torn_tail(items):
            if isinstance(item, Gap):
                gaps.append(item)
            else:
                self._accept(item, item.offset)
        # A gap of no length: where the file ends, a sealed journal lacks its end record, an open one its head.
        if (self.end is None) if self._is_sealed else not (gaps or self._has_head):
            gaps.append(Gap(len(self._data), 0))
        self.damage = tuple(
            JournalDamage(self.path, gap.offset, gap.length, self._data[gap.offset : gap.offset + gap.length])
            for gap in gaps
        )

    def _gap_of_preamble(self, items: list[Frame | Gap]) -> list[Gap]:
        shown = bytes(self._data[: len(PREAMBLE)])
        if shown == PREAMBLE or (not shown and self._is_sealed):
            return []
        is_known = any(isinstance(item, Frame) for item in items)  # one flipped bit is no other version
        if shown[:-1] == PREAMBLE[:-1] and not is_known:
            raise self._other_version(7, shown[7])
        return [Gap(0, len(shown))]

    def _without_torn_tail(self, items: list[Frame | Gap]) -> list[Frame | Gap]:
        """Take the torn tail off an open journal's items: what was cut short behind the last record that is all there.

        Writes come one after the other, each synced before its events are acknowledged, so only parts of the last
        one can be missing; what is whole of it was not acknowledged either. A record that is all there, with other
        bytes in it, is damage. The head of a file was synced before the file got its name, so a gap there is damage.
        """
        # A whole part proves nothing, it may be what a torn write left; only a record of its own shows that the writes
        # before it were complete.
        last = max((at for at, item in enumerate(items) if isinstance(item, Frame) and not item.is_part), default=-1)
        gap = next((item for item in items[last + 1 :] if isinstance(item, Gap)), None)
        behind = items[last] if last >= 0 else None
        if self._is_sealed or gap is None or not isinstance(behind, Frame) or behind.kind == KIND_HEADER:
            return items
        tail = judge_tail(self._data, behind.end)
        if tail.damaged < tail.end:
            self.torn = TornTail(tail.damaged, tail.end - tail.damaged, tail.is_certain)
        return [*items[: last + 1], *frames(self._data[: tail.damaged], behind.end)]

    def _accept(self, item: Frame, offset: int) -> None:
        """Process one record; `offset` is where it begins in the file."""
        if item.kind in (KIND_BATCH, KIND_ROWS):
            self.records.append(EventRecord.of(item, self.path, offset, self._schema))
        elif item.kind == KIND_GROUP:
            self.joined.append((offset, offset + HEAD_BYTES + len(item.payload)))
            for part in _parts_of(item, self.path, offset):
                self._accept(part, offset + HEAD_BYTES + part.offset)
        elif item.kind == KIND_HEADER:
            self.header = self._read_header(item)
        elif item.kind == KIND_SCHEMA:
            self._schema = pa.ipc.read_schema(pa.py_buffer(item.payload))
            self._has_head = True
            self.head_bytes = item.end
        elif item.kind == KIND_END:
            self.end = END_DECODER.decode(item.payload)
        else:
            # Not passed over: events of an unknown kind would be missing without a word.
            raise FormatVersionError(
                f"{self.path} @{offset}: expected a record of kind 1 to 6, got kind {item.kind}. "
                "The file was written by a newer custody; use that one."
            )

    def _read_header(self, item: Frame) -> JournalHeader:
        header = _HEADER.decode(item.payload)
        if header.format_version != FORMAT_VERSION:
            raise self._other_version(item.offset, header.format_version)
        schema_of(header.schema_version, f"{self.path} @{item.offset}", header.reader_version)
        return header

    def _other_version(self, offset: int, version: int) -> FormatVersionError:
        return FormatVersionError(
            f"{self.path} @{offset}: expected journal version {FORMAT_VERSION}, got {version}. "
            "The file was written by a newer custody; use that one."
        )
