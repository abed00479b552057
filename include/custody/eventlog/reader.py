"""Reading one event log: a block, some columns, or all of it, with page checksums verified."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from custody.errors import CorruptionError, FormatVersionError, NotFoundError, StorageError
from custody.eventlog.toc import TableOfContents, from_footer
from custody.eventlog.writer import METADATA_KEY, LogMetadata
from custody.format.names import toc_path
from custody.model import EVENT_SCHEMA, SCHEMA_VERSION
from custody.vfs import FileSystem


def parquet_of(data: memoryview) -> pq.ParquetFile:
    """Open a log's bytes; page checksums are verified on reading."""
    return pq.ParquetFile(pa.BufferReader(pa.py_buffer(data)), page_checksum_verification=True)


class EventLog:
    """A published event log.

    Raises:
        NotFoundError: the file is gone (expired between look-up and read).
        CorruptionError: on reading, a page or the footer fails its checksum; the message names file and block.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._fs = fs
        self.path = path

    @cached_property
    def _parquet(self) -> pq.ParquetFile:
        try:
            data = self._fs.view(self.path)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                raise NotFoundError(f"{self.path} is gone; it was expired or never committed.") from error
            raise
        try:
            parquet = parquet_of(data)
            schema = parquet.schema_arrow
        except (OSError, pa.ArrowException, ValueError) as error:
            raise CorruptionError(f"{self.path}: expected a Parquet footer, got {error}.") from error
        _check_version(self.path, schema)
        # The footer has no checksum: a column whose name is damaged would read as absent values.
        if not schema.equals(EVENT_SCHEMA):
            raise CorruptionError(f"{self.path}: expected the columns of schema version {SCHEMA_VERSION}, got others.")
        return parquet

    @cached_property
    def toc(self) -> TableOfContents:
        """The table of contents; taken from the footer and the ids when its file is lost or damaged."""
        path = self.path.with_name(toc_path(self.path.name))
        try:
            if self._fs.exists(path):
                return TableOfContents.decode(self._fs.read(path), path)
        except (CorruptionError, FormatVersionError):
            pass
        return self._toc_from_footer()

    @cached_property
    def metadata(self) -> LogMetadata:
        """What the log says of itself in its footer."""
        return _metadata(self.path, self._parquet.schema_arrow)

    def check(self, expected: LogMetadata) -> None:
        """Raise CorruptionError unless the log says of itself what is expected of it."""
        if self.metadata != expected:
            raise CorruptionError(f"{self.path}: expected {expected}, got {self.metadata}.")

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all events, or only some columns of them, in event-id order."""
        blocks = range(self._parquet.metadata.num_row_groups)
        return pa.concat_tables([self.block(number, columns) for number in blocks])

    def block(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the events of one block, in event-id order."""
        try:
            return self._parquet.read_row_group(number, columns=list(columns) if columns else None)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise CorruptionError(f"{self.path} block {number}: {error}.") from error

    def get_many(self, event_ids: Sequence[int]) -> pa.Table:
        """Return the events with these ids that the log holds, in event-id order; decodes only their blocks."""
        numbers = {self.toc.block_of(event_id) for event_id in event_ids} - {None}
        wanted = pa.array(sorted(event_ids), pa.int64())
        parts = []
        for number in sorted(number for number in numbers if number is not None):
            block = self.block(number)
            parts.append(block.filter(pc.is_in(block.column("event_id"), wanted)))
        return pa.concat_tables(parts) if parts else self._parquet.schema_arrow.empty_table()

    def _toc_from_footer(self) -> TableOfContents:
        footer = self._parquet.metadata
        return from_footer(footer, self.read(["event_id", "event_time"]))


def _metadata(path: Path, schema: pa.Schema) -> LogMetadata:
    stored = (schema.metadata or {}).get(METADATA_KEY)
    try:
        if stored is not None:
            return msgspec.json.decode(stored, type=LogMetadata)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{path}: expected custody's metadata in the footer, got {error}.") from error
    raise CorruptionError(f"{path}: expected custody's metadata in the footer, got none.")


def _check_version(path: Path, schema: pa.Schema) -> None:
    version = _metadata(path, schema).schema_version
    if version != SCHEMA_VERSION:
        raise FormatVersionError(
            f"{path}: expected events of schema version {SCHEMA_VERSION}, got {version}. Use a newer custody."
        )
