"""The events of sealed groups in event-id order, in pieces: an index of the journals' records first, then the events.

Each append takes a block of ids from one counter, so records do not interleave: in the order of their first ids they
are the merged group.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from custody.errors import CorruptionError, FormatVersionError
from custody.format.framing import MARK, Frame, frames
from custody.journal import Group
from custody.journal.encoding import KIND_BATCH, KIND_ROWS, decode_rows
from custody.journal.file import KIND_GROUP, PREAMBLE
from custody.model import EVENT_SCHEMA
from custody.vfs import FileSystem

_ROW_ID = re.compile(rb'^\{"event_id":(\d+)', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a sealed journal that are no whole record."""

    fs: FileSystem
    path: Path
    offset: int
    bytes: int

    def evidence(self) -> builtins.bytes:
        """Return the bytes as they are."""
        return builtins.bytes(self.fs.view(self.path)[self.offset : self.offset + self.bytes])


@dataclass(frozen=True, slots=True)
class _Record:
    first: int
    last: int
    rows: int
    path: Path
    offset: int
    length: int
    kind: int


class MergeReader:
    """Reads sealed groups; damaged records are left out and listed."""

    def __init__(self, fs: FileSystem, groups: Sequence[Group]) -> None:
        self._fs = fs
        self._records: list[_Record] = []
        self._damage: list[Damage] = []
        for group in groups:
            for path in group.sealed:
                self._index(path)
        self._records.sort(key=lambda record: record.first)
        self.rows = sum(record.rows for record in self._records)
        self.first_event_id = self._records[0].first if self._records else -1
        self.last_event_id = self._records[-1].last if self._records else -1
        self.damage = tuple(self._damage)

    def chunks(self, bytes_max: int) -> Iterator[pa.Table]:
        """Yield tables of EVENT_SCHEMA in event-id order, each of about `bytes_max` bytes at most."""
        waiting: list[_Record] = []
        size = 0
        for record in self._records:
            if waiting and size + record.length > bytes_max:
                yield self._decode(waiting)
                waiting, size = [], 0
            waiting.append(record)
            size += record.length
        if waiting:
            yield self._decode(waiting)

    def _decode(self, records: Sequence[_Record]) -> pa.Table:
        return pa.concat_tables([_table(r.kind, self._view(r)) for r in records]).combine_chunks()

    def _view(self, record: _Record) -> memoryview:
        return self._fs.view(record.path)[record.offset : record.offset + record.length]

    def _index(self, path: Path) -> None:
        data = self._fs.read(path)
        start = len(PREAMBLE)
        if not data.startswith(PREAMBLE):
            if data.startswith(PREAMBLE[:7]):
                raise FormatVersionError(f"{path} @7: expected journal version {PREAMBLE[7]}, got {data[7:8]!r}.")
            start = 0
        while start < len(data):
            start = self._index_run(path, data, start)

    def _index_run(self, path: Path, data: bytes, start: int) -> int:
        """Index records from `start` up to the next damage; return where to go on behind it."""
        end = start
        try:
            for item in frames(data, start, path):
                if not isinstance(item, Frame):
                    self._damage.append(Damage(self._fs, path, item.offset, item.lost_bytes))
                    return len(data)
                payload = item.offset + 13
                self._add(path, item.kind, payload, item.payload)
                end = payload + len(item.payload)
        except CorruptionError:
            position = data.find(MARK, end + 1)
            while position >= 0:
                try:
                    if isinstance(next(iter(frames(data, position, path))), Frame):
                        break
                except CorruptionError:
                    pass
                position = data.find(MARK, position + 1)
            self._damage.append(Damage(self._fs, path, end, position - end))
            return position
        return len(data)

    def _add(self, path: Path, kind: int, offset: int, payload: memoryview) -> None:
        if kind == KIND_GROUP:
            for part in frames(bytes(payload), 0, path):
                assert isinstance(part, Frame)  # noqa: S101 - its own checksum was right
                self._add(path, part.kind, offset + part.offset + 13, part.payload)
        elif kind == KIND_ROWS:
            ids = [int(found) for found in _ROW_ID.findall(payload)]
            self._records.append(_Record(ids[0], ids[-1], len(ids), path, offset, len(payload), kind))
        elif kind == KIND_BATCH:
            column = _table(kind, payload).column("event_id")
            first, last = column[0].as_py(), column[-1].as_py()
            self._records.append(_Record(first, last, len(column), path, offset, len(payload), kind))


def _table(kind: int, payload: memoryview) -> pa.Table:
    if kind == KIND_ROWS:
        return decode_rows([payload])
    return pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(payload), EVENT_SCHEMA)])
