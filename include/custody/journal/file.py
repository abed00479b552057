"""One journal file: a preamble, a header record, then one record a batch of events.

Layout (docs/formats/journal.md): 8 bytes preamble; a header frame with a JSON document (schema version, writer,
database, group); a schema frame with the Arrow schema of this file's batches; then batch frames, each one Arrow record
batch in IPC form. Numbers below are part of the format: add, never change.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from custody.errors import CorruptionError, FormatVersionError
from custody.format.framing import Frame, TornTail, frame, frames
from custody.model import EVENT_SCHEMA, SCHEMA_VERSION
from custody.vfs import FileSystem, WritableFile

PREAMBLE = b"CUSTJRN\x01"
KIND_HEADER = 1
KIND_SCHEMA = 2
KIND_BATCH = 3


class JournalHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Who wrote a journal, and which ids it may hold."""

    writer: str
    database: str
    first_event_id: int
    schema_version: int = SCHEMA_VERSION
    created_ms: int


def write_header(file: WritableFile, header: JournalHeader) -> None:
    """Write all that precedes the first batch; not durable before the file is synced."""
    file.write(
        PREAMBLE
        + frame(KIND_HEADER, msgspec.json.encode(header))
        + frame(KIND_SCHEMA, EVENT_SCHEMA.serialize().to_pybytes())
    )


def encode_batch(batch: pa.RecordBatch) -> bytes:
    """Return a batch of EVENT_SCHEMA as one record."""
    return frame(KIND_BATCH, batch.serialize().to_pybytes())


class JournalFile:
    """A journal that was read: its header, its batches and where its intact part ends."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self._data = data
        self.intact_bytes = 0
        self.torn: TornTail | None = None
        self.header: JournalHeader | None = None
        """None when the file ends before its header: nothing in it was ever acknowledged."""
        self._batches: list[memoryview] = []
        self._schema: pa.Schema | None = None
        self._scan()

    @classmethod
    def read(cls, fs: FileSystem, path: Path) -> JournalFile:
        """Read and check a journal.

        Raises:
            CorruptionError: a record that is not the torn last one fails its checksum.
            FormatVersionError: the file is of a version that this code does not know.
        """
        return cls(path, fs.read(path))

    @property
    def is_empty(self) -> bool:
        """Whether no event in it was ever acknowledged."""
        return not self._batches

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches in the order in which they were appended."""
        for payload in self._batches:
            yield pa.ipc.read_record_batch(pa.py_buffer(payload), self._schema)

    def table(self) -> pa.Table:
        """Return all events of the file, in append order."""
        return pa.Table.from_batches(self.batches(), schema=self._schema or EVENT_SCHEMA)

    def _scan(self) -> None:
        if len(self._data) < len(PREAMBLE):
            if not PREAMBLE.startswith(self._data) and any(self._data):
                raise self._unknown()
            self.torn = TornTail(0, len(self._data))
            return
        if not self._data.startswith(PREAMBLE):
            if any(self._data):
                raise self._unknown()
            self.torn = TornTail(0, len(self._data))
            return
        for item in frames(self._data, len(PREAMBLE), self.path):
            if isinstance(item, TornTail):
                self.torn = item
                break
            self._accept(item)
        end = self.torn.offset if self.torn else len(self._data)
        self.intact_bytes = end if self.header and self._schema else 0

    def _accept(self, item: Frame) -> None:
        if item.kind == KIND_HEADER:
            self.header = self._read_header(item)
        elif item.kind == KIND_SCHEMA:
            self._schema = pa.ipc.read_schema(pa.py_buffer(item.payload))
        elif item.kind == KIND_BATCH and self._schema is not None:
            self._batches.append(item.payload)
        else:
            raise FormatVersionError(
                f"{self.path} @{item.offset}: expected a record of kind 1 to 3, got kind {item.kind}. "
                "The file was written by a newer custody; use that one."
            )

    def _read_header(self, item: Frame) -> JournalHeader:
        header = msgspec.json.decode(item.payload, type=JournalHeader)
        if header.schema_version != SCHEMA_VERSION:
            raise FormatVersionError(
                f"{self.path} @{item.offset}: expected events of schema version {SCHEMA_VERSION}, "
                f"got {header.schema_version}. Use a newer custody."
            )
        return header

    def _unknown(self) -> CorruptionError | FormatVersionError:
        shown = self._data[: len(PREAMBLE)]
        if shown[:7] == PREAMBLE[:7]:
            return FormatVersionError(
                f"{self.path} @7: expected journal version {PREAMBLE[7]}, got {shown[7]}. "
                "The file was written by a newer custody; use that one."
            )
        return CorruptionError(f"{self.path} @0: expected a journal's preamble {PREAMBLE!r}, got {shown!r}.")
