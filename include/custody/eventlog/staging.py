"""Staged events: the events of one future log in event-id order, as an Arrow stream written and read in pieces.

The stream holds one record batch a piece, compressed by LZ4. The place and the checksum of each batch are in the
description of the file, which the unit's manifest keeps (docs/formats/staging.md). A batch is checked before it is
used, so that no more than one has to be in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from zlib_ng import zlib_ng

from custody.errors import CorruptionError
from custody.eventlog.blocks import Sizes, numbers
from custody.made_types import made_at_import
from custody.model import EVENT_SCHEMA, SCHEMA_VERSION, to_present
from custody.model.columns import read_batch
from custody.vfs import FileSystem

_HEAD = EVENT_SCHEMA.serialize().to_pybytes()
_END = b"\xff\xff\xff\xff\0\0\0\0"  # Arrow's mark of a stream's end
_SPACE_BYTES = 1 << 20
"""Of a message besides its columns: the heads of all buffers."""
# LZ4 takes a fifth of the time that writing what it saves would take (docs/design/011).
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


class StagedBatch(msgspec.Struct, frozen=True, kw_only=True):
    """One record batch of a staging file: where its message lies, and the CRC-32 of the message's bytes."""

    offset: int
    length: int
    rows: int
    crc32: int


class StagedSource(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of a source's own event numbers."""

    node: str
    first_ordinal: int
    last_ordinal: int


class StagedLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The description of a staging file, which saves reading it; sizes in bytes, times in ms, UTC."""

    first_event_id: int
    last_event_id: int
    rows: int
    first_event_time_ms: int
    last_event_time_ms: int
    partition: str
    plain_bytes: int
    file_bytes: int
    sources: tuple[StagedSource, ...]
    batches: tuple[StagedBatch, ...]
    stripe: str = ""
    """The stripe on which the log belongs; empty for the repository's store."""
    rest_crc32: int | None = None
    """CRC-32 of what lies before the first batch and behind the last one; None in units of older releases."""


made_at_import(StagedLog)


class StagingWriter:
    """The writer of one staging file, batch by batch, under a given name; the unit's folder is published as a whole.

    Durability: after `finish` the content survives power loss.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._file = fs.create(path)
        self._file.write(_HEAD)
        self._batches: list[StagedBatch] = []
        self._sources: dict[str, tuple[int, int]] = {}
        self._ids: tuple[int, int] | None = None
        self._times: tuple[int, int] | None = None
        self._partition = ""
        self._space: pa.Buffer | None = None
        """Where messages are put together, one after the other: fresh memory each time takes a third longer."""
        self.plain_bytes = 0

    def write(self, table: pa.Table, sizes: Sizes) -> None:
        """Append events that follow those before, with the plain size of each row, shape (rows,)."""
        [batch] = table.combine_chunks().to_batches()
        first, last = batch.column("event_id")[0].as_py(), batch.column("event_id")[-1].as_py()
        times = batch.column("event_time").cast(pa.int64())
        if self._ids is None:
            self._partition = str(np.datetime64(times[0].as_py(), "ms").astype("datetime64[D]"))
        self._ids = (self._ids[0] if self._ids else first, last)
        self._times = _wider(self._times, tuple(pc.min_max(times).as_py().values()))
        for node, low, high in source_bounds(batch):
            self._sources[node] = _wider(self._sources.get(node), (low, high))
        offset = self._file.tell()
        message = self._message(batch)
        length = self._file.write(message)
        crc32 = zlib_ng.crc32(message)
        self._batches.append(StagedBatch(offset=offset, length=length, rows=batch.num_rows, crc32=crc32))
        self.plain_bytes += int(sizes.sum())

    def _message(self, batch: pa.RecordBatch) -> pa.Buffer:
        """Return the message of a batch in a stream, without what begins and ends the stream; the next takes its place.

        LZ4 makes nothing larger by more than a 255th and some bytes a buffer, which the space allows for.
        """
        needed = batch.nbytes + batch.nbytes // 64 + _SPACE_BYTES
        if self._space is None or self._space.size < needed:
            self._space = pa.allocate_buffer(needed)
        sink = pa.FixedSizeBufferWriter(self._space)
        with pa.ipc.new_stream(sink, EVENT_SCHEMA, options=_OPTIONS) as writer:
            writer.write_batch(batch)
            end = sink.tell()
        # The file has the schema and the mark of the end once, around all of its batches.
        return self._space.slice(len(_HEAD), end - len(_HEAD))

    def finish(self) -> StagedLog:
        """Close the file; return its description. It holds at least one event."""
        self._file.write(_END)
        # The content only: names become durable with the folder of the unit, which is published as a whole.
        self._file.sync()
        size = self._file.tell()
        self._file.close()
        if self._ids is None or self._times is None:
            raise ValueError("a staging file holds at least one event")
        return StagedLog(
            first_event_id=self._ids[0],
            last_event_id=self._ids[1],
            rows=sum(batch.rows for batch in self._batches),
            first_event_time_ms=self._times[0],
            last_event_time_ms=self._times[1],
            partition=self._partition,
            plain_bytes=self.plain_bytes,
            file_bytes=size,
            sources=tuple(
                StagedSource(node=node, first_ordinal=low, last_ordinal=high)
                for node, (low, high) in sorted(self._sources.items())
            ),
            batches=tuple(self._batches),
            rest_crc32=zlib_ng.crc32(_END, zlib_ng.crc32(_HEAD)),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()


def read_staged(
    fs: FileSystem,
    path: Path,
    log: StagedLog,
    columns: Sequence[str] | None = None,
    schema_version: int = SCHEMA_VERSION,
) -> Iterator[pa.Table]:
    """Yield the events of a staging file batch by batch, or some columns of them; without those of a newer version.

    The file is mapped anew for each batch: the pages of one that is no longer used count no more.

    Raises:
        CorruptionError: a batch is not what was written; the message says where, and what to do.
    """
    schema = EVENT_SCHEMA
    # The file begins with its own schema, which is needed only where it differs from the present one.
    if schema_version != SCHEMA_VERSION and log.batches:
        schema = pa.ipc.read_schema(pa.py_buffer(fs.view(path)[: log.batches[0].offset]))
    if fs.size(path) != log.file_bytes:
        raise _damaged(path, min(fs.size(path), log.file_bytes), f"a file of {log.file_bytes} bytes", "another length")
    for batch in log.batches:
        message = fs.view(path)[batch.offset : batch.offset + batch.length]
        if zlib_ng.crc32(message) != batch.crc32:
            raise _damaged(path, batch.offset, "a record batch with its checksum", "other bytes")
        table = to_present(pa.Table.from_batches([read_batch(message, schema)]), columns)
        yield table.select(list(columns)) if columns else table


def check_staged_tail(fs: FileSystem, path: Path, log: StagedLog) -> None:
    """Raise CorruptionError unless what is no batch of a staging file is as it was written.

    Nothing of it is needed to read the events; other programs need it.
    """
    if log.rest_crc32 is None or not log.batches:
        return
    view = fs.view(path)
    end = log.batches[-1].offset + log.batches[-1].length
    if zlib_ng.crc32(view[end:], zlib_ng.crc32(view[: log.batches[0].offset])) != log.rest_crc32:
        raise _damaged(path, 0, "the schema before and the mark behind the batches with their checksum", "other bytes")


def _damaged(path: Path, offset: int, expected: str, got: str) -> CorruptionError:
    return CorruptionError(
        f"{path} @{offset}: expected {expected}, got {got}. "
        f"Remove the folder {path.parent}; the next rollover makes it again from the journals."
    )


def _wider(bounds: tuple[int, int] | None, more: tuple[int, ...]) -> tuple[int, int]:
    low, high = more
    return (low, high) if bounds is None else (min(bounds[0], low), max(bounds[1], high))


def source_bounds(batch: pa.RecordBatch) -> Iterator[tuple[str, int, int]]:
    """Yield (node, smallest, greatest ordinal) of the events that have both."""
    pair = batch.select(["source_node", "source_ordinal"])
    known = pair.filter(pc.and_(pc.is_valid(pair.column(0)), pc.is_valid(pair.column(1))))
    nodes = known.column("source_node").dictionary_encode()
    names = nodes.dictionary.to_pylist()
    if not names:
        return
    of_node, ordinals = numbers(nodes.indices, np.int32), numbers(known.column("source_ordinal"), np.int64)
    bounds = np.iinfo(np.int64)
    low, high = np.full(len(names), bounds.max), np.full(len(names), bounds.min)
    # By `at`: a node has many rows, of which plain indexing would count only the last.
    np.minimum.at(low, of_node, ordinals)
    np.maximum.at(high, of_node, ordinals)
    yield from zip(names, low.tolist(), high.tolist(), strict=True)
