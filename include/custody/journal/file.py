"""One journal file: a preamble, a header record, then one record a batch of events.

Layout (docs/formats/journal.md): 8 bytes preamble; a header frame with a JSON document (schema version, writer,
database, group); a schema frame with the Arrow schema of this file's batches; then batch frames, each one Arrow record
batch in IPC form. Numbers below are part of the format: add, never change.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import msgspec
import pyarrow as pa

from custody.errors import CorruptionError, FormatVersionError
from custody.format.framing import Frame, TornTail, frame, frames
from custody.journal.encoding import KIND_BATCH, KIND_ROWS, decode_rows
from custody.model import EVENT_SCHEMA, SCHEMA_VERSION, schema_of, to_present
from custody.vfs import FileSystem, WritableFile

PREAMBLE = b"CUSTJRN\x01"
KIND_HEADER = 1
KIND_SCHEMA = 2
KIND_GROUP = 5


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


class JournalFile:
    """A journal that was read: its header, its batches and where its intact part ends."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self._data = data
        self.intact_bytes = 0
        self.torn: TornTail | None = None
        self.header: JournalHeader | None = None
        """None when the file ends before its header: nothing in it was ever acknowledged."""
        self._records: list[Frame] = []
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
        return not self._records

    def table(self) -> pa.Table:
        """Return all events of the file, in append order; neighbouring records of rows are read together."""
        tables = [EVENT_SCHEMA.empty_table()]
        for kind, records in groupby(self._records, key=lambda record: record.kind):
            payloads = [record.payload for record in records]
            if kind == KIND_ROWS:
                tables.append(decode_rows(payloads))
            else:
                batches = [pa.ipc.read_record_batch(pa.py_buffer(payload), self._schema) for payload in payloads]
                tables.append(to_present(pa.Table.from_batches(batches, schema=self._schema)))
        return pa.concat_tables(tables)

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
        elif item.kind == KIND_GROUP:
            for part in frames(bytes(item.payload), 0, self.path):
                if isinstance(part, TornTail):
                    raise CorruptionError(f"{self.path} @{item.offset}: expected whole records in a group of records.")
                self._accept(part)
        elif item.kind in (KIND_BATCH, KIND_ROWS) and self._schema is not None:
            self._records.append(item)
        else:
            raise FormatVersionError(
                f"{self.path} @{item.offset}: expected a record of kind 1 to 5, got kind {item.kind}. "
                "The file was written by a newer custody; use that one."
            )

    def _read_header(self, item: Frame) -> JournalHeader:
        header = msgspec.json.decode(item.payload, type=JournalHeader)
        schema_of(header.schema_version, f"{self.path} @{item.offset}")
        return header

    def _unknown(self) -> CorruptionError | FormatVersionError:
        shown = self._data[: len(PREAMBLE)]
        if shown[:7] == PREAMBLE[:7]:
            return FormatVersionError(
                f"{self.path} @7: expected journal version {PREAMBLE[7]}, got {shown[7]}. "
                "The file was written by a newer custody; use that one."
            )
        return CorruptionError(f"{self.path} @0: expected a journal's preamble {PREAMBLE!r}, got {shown!r}.")
