"""Reading an event log: a block, some columns, or all of it, and what damage to it costs.

Only bytes whose checksums were verified reach the Parquet library. Damage is named by file, block and event ids; the
caller decides whether reading passes over it.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from zlib_ng import zlib_ng

from custody.errors import (
    ClosedError,
    CorruptionError,
    FormatVersionError,
    NotFoundError,
    StorageError,
    StripeMissingError,
)
from custody.eventlog.blocks import numbers as values_of
from custody.eventlog.bounded_cache import BoundedCache
from custody.eventlog.log_writer import METADATA_KEY, LogMetadata
from custody.eventlog.parquet_footer import MAGIC, key_values
from custody.eventlog.row_copies import COPIES_KEY, CopiedEvents, RowCopies
from custody.eventlog.toc import TableOfContents, toc_within
from custody.format.names import toc_path
from custody.format.number_sets import distinct, is_among
from custody.model import (
    EVENT_SCHEMA,
    NO_EVENTS,
    check_columns,
    in_one_piece,
    int64_column,
    schema_of,
    to_present,
    unknown_columns,
)
from custody.vfs import FileSystem, prefetch_pages

if TYPE_CHECKING:
    from custody.store.ranged_file import RangedFile, Span


@dataclass(frozen=True, slots=True)
class Damage:
    """A block, or something else in a file, that cannot be read, and the ids of the events that it may have held."""

    path: Path
    block: int | None
    """None: it is not a block that is damaged."""
    first_event_id: int | None
    last_event_id: int | None
    """None: nothing tells which events it held."""
    problem: str
    is_doubt: bool = False
    """Whether nobody can tell if anything was lost: it is told, and stops nobody."""
    is_away: bool = False
    """Whether nothing is damaged: the disk of a stripe is not there, and the events are when it is."""

    def __str__(self) -> str:
        block = "" if self.block is None else f" block {self.block}"
        place = "" if self.problem.startswith(str(self.path)) else f"{self.path}{block}: "
        fate = "out of reach" if self.is_away else "lost"
        ids = f"{self.first_event_id} to {self.last_event_id}"
        lost = "" if self.first_event_id is None else f"; events {ids} are {fate}"
        return f"{place}{self.problem.removesuffix('.')}{lost}."


OnDamage = Callable[[Damage], None]
"""Called with what cannot be read, which is then passed over."""


def refuse(damage: Damage) -> None:
    """Pass nothing over that is certain.

    Raises:
        CorruptionError: unless nobody can tell whether anything was lost.
        StripeMissingError: it is not damaged, but its disk is away.
    """
    if damage.is_doubt:
        return
    if damage.is_away:
        raise StripeMissingError(str(damage))
    raise CorruptionError(str(damage))


_METADATA = msgspec.json.Decoder(LogMetadata)
_SPELLED: dict[tuple[bytes, int], tuple[str, ...]] = {}
"""Beginnings of footers whose columns are those of a schema version, and which of them are not known."""
_SPELLED_MAX = 16
_TOGETHER_BYTES = 8 << 20
"""Neighbouring blocks are decoded together up to this size, compressed: it is quicker than one by one."""
_TOGETHER_BLOCKS = 16
# A thread more than that is worth its start: these take some 5 ms to decode.
_VALUES_A_THREAD = 100_000
_FETCHED_BYTES = 32 << 20
"""Of a log that is read by ranges, so many bytes of blocks are fetched at a time."""
_SPARSE_ROWS = 64
_SPARSE_SHARE = 8
# Rows that are shown one by one: of a block, 14 µs each, where a `take` of 37 columns takes 150; and of all blocks.
_SHOWN_OF_BLOCK_MAX = 8
_SHOWN_MAX = 64
"""So many events of a block, or one in so many, are read by their copies; of more, decoding the block is quicker."""


class EventLog:
    """A published event log. Its events are returned with the present schema, whatever version it is of.

    `sha256` and `toc_sha256` are what the catalog says of the log and of its `.toc`, when they are known. The log's
    file is opened once, when it is first needed; it is never changed, so one object may be used as long as the log is
    live, by any number of threads. Blocks that `get_many` decodes are kept in `cache`. Of a log that is `ranged`, only
    the table of contents lies at its path; blocks are fetched when they are looked at.

    Raises:
        NotFoundError: the file is gone (expired between look-up and read).
        CorruptionError: on reading, what is damaged; the message names file, block and events.
        FormatVersionError: the log was written by a newer custody, for readers that are newer than this one.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        *,
        sha256: bytes | None = None,
        toc_sha256: bytes | None = None,
        cache: BoundedCache[Hashable, object] | None = None,
        ranged: RangedFile | None = None,
    ) -> None:
        self._fs: FileSystem | None = fs
        self._ranged = ranged
        self._gone = ""
        """Of a ranged log that is no longer in the store: what the store says."""
        self.path = path
        self._sha256 = sha256
        self._toc_sha256 = toc_sha256 or None
        self._cache = cache
        self._whole: set[int] = set()
        """Blocks whose bytes were whole when `readable` looked; what was damaged is looked at anew each time."""

    @property
    def _files(self) -> FileSystem:
        if self._fs is None:
            raise ClosedError(f"{self.path}: the log is open, its files are not looked at again.")
        return self._fs

    @cached_property
    def data(self) -> memoryview:
        """All bytes of the file, mapped: what is not looked at is not read. Of a ranged log, only what was fetched."""
        if self._ranged is not None:
            return self._ranged.view
        try:
            return self._files.view(self.path)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                raise NotFoundError(f"{self.path} is gone; it was expired or never committed.") from error
            raise

    @property
    def is_ranged(self) -> bool:
        """Whether the log is read by ranges: then no file of its name lies at its path."""
        return self._ranged is not None

    @cached_property
    def toc(self) -> TableOfContents:
        """The table of contents; taken from the log itself when its file is lost, damaged or another one's.

        Whichever it is, it has the digest that the catalog lists, if that is known.
        """
        # The log comes first: a reader that has the table but not the log has nothing.
        data = self.data
        path = self.path.with_name(toc_path(self.path.name))
        try:
            stored = self._files.read(path)
            if self._toc_sha256 in (None, hashlib.sha256(stored).digest()):
                return TableOfContents.decode(stored, path)
        except (CorruptionError, FormatVersionError):
            # The log holds the same table: the file beside it only saves a search for it.
            pass
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
        self._fetch_all()
        within = toc_within(data, self.path, self._sha256)
        # A log that lies in another one's place is whole by itself, and so is the table in it.
        if self._toc_sha256 not in (None, hashlib.sha256(within.encode()).digest()):
            raise CorruptionError(
                f"{self.path}: expected the log that the catalog lists, got another one, or one with damage to both "
                "tables of contents. See: custody verify"
            )
        return within

    def load(self) -> None:
        """Open the log and find its blocks, so that reading can fail at single blocks only."""
        _ = self._described
        self._fs = None  # all is open; who keeps the log must not keep the file system

    @cached_property
    def metadata(self) -> LogMetadata:
        """What the log says of itself in its footer."""
        return self._described[0]

    @property
    def schema(self) -> pa.Schema:
        """The columns of it that are known."""
        return self._described[1]

    @property
    def unknown_columns(self) -> tuple[str, ...]:
        """The columns that a newer custody added; reading passes over them."""
        return self._described[2]

    @cached_property
    def _stored(self) -> dict[bytes, bytes]:
        """The key-value metadata of the footer."""
        try:
            return key_values(self.toc.after)
        except ValueError as error:
            raise CorruptionError(f"{self.path}: {error}.") from error

    @cached_property
    def _copies(self) -> RowCopies | None:
        stored = self._stored.get(COPIES_KEY)
        if self._ranged is not None and stored is not None:
            # They lie behind the last block. Their checksums are their own, so that all of them are fetched.
            last = self.toc.blocks[-1]
            copies = int(last["offset"] + last["length"]), self.toc.copy_offset
            self._fetch([copies], lambda _: RowCopies.within(self.data, self.toc.copy_offset, stored) is not None)
        return RowCopies.within(self.data, self.toc.copy_offset, stored)

    def _fetch(self, spans: Sequence[Span], is_whole: Callable[[Span], bool]) -> None:
        """Fetch pieces of a ranged log that are not whole here."""
        if self._ranged is not None and spans:
            try:
                self._ranged.fetch(spans, is_whole)
                self._gone = ""
            except NotFoundError as error:
                # Whoever looks at the pieces names them: those that are here can be read.
                self._gone = str(error)

    def _fetch_all(self) -> None:
        if self._ranged is not None:
            self._fetch([(0, self._ranged.size)], lambda _: hashlib.sha256(self.data).digest() == self._sha256)

    def _bring(self, numbers: Iterable[int]) -> None:
        """Fetch those of some blocks of a ranged log that are not whole here, together."""
        if self._ranged is None:
            return
        blocks = {self._span(number): number for number in numbers}
        # Looked at by their checksums: nothing else says what was fetched.
        missing = [span for span, number in blocks.items() if not self._fits(number)]
        self._fetch(missing, lambda span: self._fits(blocks[span]))

    @cached_property
    def _described(self) -> tuple[LogMetadata, pa.Schema, tuple[str, ...]]:
        metadata = _metadata(self.path, self._stored)
        known = schema_of(metadata.schema_version, self.path, metadata.reader_version)
        # Logs of one version begin their footers with the same bytes, which spell their columns: to let pyarrow parse
        # and compare these takes longer than all else that opening a log does.
        spelled = self.toc.before, metadata.schema_version
        unknown = _SPELLED.get(spelled)
        if unknown is None:
            schema = pq.read_metadata(pa.BufferReader(self.toc.footer([]))).schema.to_arrow_schema()
            check_columns(schema, metadata.schema_version, self.path)
            unknown = unknown_columns(schema)
            if len(_SPELLED) >= _SPELLED_MAX:
                _SPELLED.clear()
            _SPELLED[spelled] = unknown
        return metadata, known, unknown

    def check(self, expected: LogMetadata) -> None:
        """Raise CorruptionError unless the log says of itself what is expected of it, and its `.toc` says the same."""
        if self.metadata != expected:
            raise CorruptionError(f"{self.path}: expected {expected}, got {self.metadata}.")
        if toc_within(self.data, self.path).encode() != self.toc.encode():
            raise CorruptionError(f"{self.path}: expected the table of contents that lies beside it, got another one.")

    def read(self, columns: Sequence[str] | None = None, on_damage: OnDamage = refuse) -> pa.Table:
        """Return all events, or only some columns of them, in event-id order."""
        return _joined(list(self.tables(range(len(self.toc.blocks)), columns, on_damage)), columns)

    def block(self, number: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the events of one block, in event-id order."""
        return _joined(list(self.tables([number], columns)), columns)

    def tables(
        self, numbers: Sequence[int], columns: Sequence[str] | None = None, on_damage: OnDamage = refuse
    ) -> Iterator[pa.Table]:
        """Yield the events of some blocks, in event-id order, several blocks in a table."""
        whole: list[int] = []
        held = 0
        # Of a ranged log, what is decoded together is fetched together.
        for number in self._brought(numbers):
            problem = self._problem(number)
            if problem is not None:
                on_damage(self._damage(number, problem))
                continue
            whole.append(number)
            # Compressed bytes: known without a look at the block, and in proportion to what decoding takes.
            held += int(self.toc.blocks[number]["length"])
            if held >= _TOGETHER_BYTES or len(whole) == _TOGETHER_BLOCKS:
                yield from self._decoded(whole, columns, on_damage)
                whole, held = [], 0
        if whole:
            yield from self._decoded(whole, columns, on_damage)

    def _brought(self, numbers: Sequence[int]) -> Iterator[int]:
        if self._ranged is None:
            yield from numbers
            return
        window: list[int] = []
        size = 0
        for number in numbers:
            window.append(number)
            size += int(self.toc.blocks[number]["length"])
            if size >= _FETCHED_BYTES:
                self._bring(window)
                yield from window
                window, size = [], 0
        self._bring(window)
        yield from window

    def whole_blocks(self, on_damage: OnDamage) -> list[int]:
        """Return the numbers of the blocks whose bytes are whole; reads the file from end to end."""
        whole = []
        for number in self._brought(range(len(self.toc.blocks))):
            problem = self._problem(number)
            if problem is None:
                whole.append(number)
            else:
                on_damage(self._damage(number, problem))
        return whole

    def readable(self, event_ids: npt.NDArray[np.int64], on_damage: OnDamage) -> npt.NDArray[np.bool_]:
        """Return which of some ids lie in blocks whose bytes are whole, shape (ids,); decodes nothing.

        Ids that the log does not hold count as readable. A block that was whole is not looked at again.
        """
        holders = self._holders(event_ids)
        found = np.ones(len(event_ids), np.bool_)
        numbers: list[int] = distinct(holders[holders >= 0]).tolist()
        self._bring(number for number in numbers if number not in self._whole and not self._is_kept(number))
        for number in numbers:
            problem = None if number in self._whole or self._is_kept(number) else self._problem(number)
            if problem is None:
                self._whole.add(number)
            else:
                # Its events can be read all the same, if they have copies that are whole.
                ids = event_ids[holders == number]
                lost = is_among(ids, self.copied(ids).missing)
                if lost.any():
                    on_damage(self._damage(number, problem))
                found[holders == number] = ~lost
        return found

    def mended_footer(self) -> tuple[int, bytes] | None:
        """Return where and which end the log needs to be a whole Parquet file; None when its own is whole.

        For readers that do not know the checksum of the footer.
        """
        start, length = self.toc.footer_offset, self.toc.footer_bytes
        tail = length.to_bytes(4, "little") + MAGIC
        is_whole = self.data[start + length :] == tail
        if is_whole and hashlib.sha256(self.data[start : start + length]).digest() == self.toc.footer_sha256:
            return None
        blocks = self.toc.blocks
        footer = self.toc.footer(range(len(blocks)))
        return int(blocks[-1]["offset"] + blocks[-1]["length"]), footer[len(MAGIC) :]

    def get_many(self, event_ids: Sequence[int] | npt.NDArray[np.int64], on_damage: OnDamage = refuse) -> pa.Table:
        """Return the events with these ids that the log holds, in event-id order; decodes only their blocks."""
        return pa.Table.from_batches(self.rows(distinct(np.asarray(event_ids, np.int64)), on_damage), EVENT_SCHEMA)

    def rows(self, event_ids: npt.NDArray[np.int64], on_damage: OnDamage = refuse) -> list[pa.RecordBatch]:
        """Return the same events in pieces, many of one row, of ids that go up; what is shown keeps its block.

        Pieces of several logs are joined in one go: that takes its time by the column, not by the event.
        """
        holders = self._holders(event_ids)
        numbers: list[int] = distinct(holders[holders >= 0]).tolist()
        if self._ranged is not None:
            self._bring(number for number in numbers if not self._is_kept(number))
        parts: list[pa.RecordBatch] = []
        shown: list[pa.RecordBatch] = []
        for number in numbers:
            block = self._kept(number, on_damage)
            if block is None:
                continue
            shown += _rows(block, event_ids[holders == number] if len(numbers) > 1 else event_ids)
            # A row that is shown keeps a block of a thousand times its size.
            if len(shown) > _SHOWN_MAX:
                parts += in_one_piece(shown)
                shown = []
        return parts + shown

    def values(self, event_ids: npt.NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
        """Return some columns of the events with these ids, `event_id` among them; decodes only their blocks."""
        holders = self._holders(event_ids)
        found = [
            table.filter(pc.is_in(table.column("event_id"), pa.array(event_ids)))
            for table in self.tables(distinct(holders[holders >= 0]).tolist(), columns)
        ]
        return _joined(found, columns)

    def copied(self, event_ids: npt.NDArray[np.int64]) -> CopiedEvents:
        """Return the events with some ids by the copies of rows; all are missing where there are none."""
        return CopiedEvents(missing=event_ids) if self._copies is None else self._copies.read(event_ids)

    def copied_if_sparse(self, event_ids: npt.NDArray[np.int64]) -> CopiedEvents:
        """Return the same of those ids that are few of their blocks; the others are missing.

        Of a ranged log all are missing: one block is fewer bytes than all copies.
        """
        if self._ranged is not None or self._copies is None:
            return CopiedEvents(missing=event_ids)
        # Fewer than make one block dense, in whichever blocks they are.
        if len(event_ids) <= _SPARSE_ROWS:
            return self._copies.read(event_ids)
        numbers, places, counts = np.unique(self._holders(event_ids), return_inverse=True, return_counts=True)
        rows = self.toc.blocks["rows"].astype(np.int64)[np.maximum(numbers, 0)]
        is_sparse = (counts <= np.maximum(rows // _SPARSE_SHARE, _SPARSE_ROWS))[places]
        copied = self._copies.read(event_ids[is_sparse])
        return replace(copied, missing=distinct(np.concatenate([copied.missing, event_ids[~is_sparse]])))

    def _holders(self, event_ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the number of the block whose range holds each id, -1 for ids before the first."""
        holders: npt.NDArray[np.int64] = self._firsts.searchsorted(event_ids, side="right") - 1
        return holders

    @cached_property
    def _firsts(self) -> npt.NDArray[np.int64]:
        firsts: npt.NDArray[np.int64] = self.toc.blocks["first_event_id"].astype(np.int64)
        return firsts

    def _key(self, number: int) -> Hashable:
        return self.path, self._sha256, number

    def _is_kept(self, number: int) -> bool:
        return self._cache is not None and self._cache.get(self._key(number)) is not None

    def _kept(self, number: int, on_damage: OnDamage) -> pa.Table | None:
        """Return a block, from the cache when it is there; None when it is damaged."""
        key = self._key(number)
        block = self._cache.get(key) if self._cache is not None else None
        if block is None:
            # One request for exactly this block: the system's own read-ahead takes megabytes around each page.
            prefetch_pages(self.data, int(self.toc.blocks[number]["offset"]), int(self.toc.blocks[number]["length"]))
            found = list(self.tables([number], None, on_damage))
            block = found[0] if found else None
            if self._cache is not None and block is not None:
                # The buffers as a whole: a slice keeps all of a buffer that it shows a part of.
                self._cache.put(key, block, block.get_total_buffer_size())
        return block

    def _span(self, number: int) -> Span:
        block = self.toc.blocks[number]
        return int(block["offset"]), int(block["offset"] + block["length"])

    def _fits(self, number: int) -> bool:
        """Whether the bytes of a block that are here are whole."""
        start, end = self._span(number)
        return zlib_ng.crc32(self.data[start:end]) == int(self.toc.blocks[number]["crc32"])

    def _problem(self, number: int) -> str | None:
        """Return what is wrong with the bytes of a block."""
        block = self.toc.blocks[number]
        start, length, crc32 = int(block["offset"]), int(block["length"]), int(block["crc32"])
        data = self.data[start : start + length]
        # Checked before the Parquet library sees a byte of it: damaged headers of pages could end the process.
        if len(data) == length and zlib_ng.crc32(data) == crc32:
            return None
        # Bytes that were whole can be damaged later: the first look must not vouch for them any more.
        self._whole.discard(number)
        if self._gone:
            return self._gone
        if len(data) != length:
            return f"expected {length} bytes @{start}, got {len(data)}"
        return f"expected the checksum {crc32:08x} @{start}, got another one"

    def _damage(self, number: int, problem: str) -> Damage:
        blocks = self.toc.blocks
        # The table has only the first id of a block: its last one lies before the next block's first.
        last = self.metadata.last_event_id if number + 1 == len(blocks) else blocks[number + 1]["first_event_id"] - 1
        return Damage(self.path, number, int(blocks[number]["first_event_id"]), int(last), problem)

    def _decoded(self, numbers: list[int], columns: Sequence[str] | None, on_damage: OnDamage) -> Iterator[pa.Table]:
        """Decode blocks whose bytes are whole; when that fails, find out by decoding one by one which it is."""
        try:
            tables = self._decode_in_threads(numbers, columns)
        except (OSError, pa.ArrowException, ValueError) as error:
            if len(numbers) == 1:
                on_damage(self._damage(numbers[0], str(error)))
                return
            # The checksums were right, so at least one block was written in a way that this Parquet library refuses.
            for number in numbers:
                yield from self._decoded([number], columns, on_damage)
        else:
            yield from tables

    def _decode_in_threads(self, numbers: list[int], columns: Sequence[str] | None) -> list[pa.Table]:
        values = int(self.toc.blocks["rows"][numbers].sum()) * len(self.schema.names if columns is None else columns)
        count = min(pa.cpu_count(), len(numbers), values // _VALUES_A_THREAD)
        if count <= 1:
            return [self._decode(numbers, columns)]
        bounds = [len(numbers) * part // count for part in range(count + 1)]
        with ThreadPoolExecutor(count, thread_name_prefix="custody-decode") as threads:
            return list(
                threads.map(lambda part: self._decode(numbers[part[0] : part[1]], columns), itertools.pairwise(bounds))
            )

    def _decode(self, numbers: list[int], columns: Sequence[str] | None) -> pa.Table:
        schema = self.schema
        # With a footer of these blocks alone: to parse that of all costs more than to decode one block.
        parquet = pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(self.data)),
            metadata=pq.read_metadata(pa.BufferReader(self.toc.footer(numbers))),
            # The checksum of the block, which was right, covers its pages, their heads and their own checksums: to
            # verify these as well takes a fifth of all decoding and finds nothing more.
            page_checksum_verification=False,
        )
        # Columns that a newer custody added are not decoded.
        wanted = schema.names if columns is None and self.unknown_columns else columns
        held = None if wanted is None else [name for name in wanted if name in schema.names]
        # pyarrow's own threads let go of the log's bytes after the answer is there, and need Python's lock for that: a
        # process that ends in that moment is aborted.
        table = parquet.read_row_groups(range(len(numbers)), columns=held, use_threads=False)
        rows = int(self.toc.blocks["rows"][numbers].sum())
        if table.num_rows != rows:
            raise ValueError(f"expected {rows} events, got {table.num_rows}")
        return to_present(table, columns)


def _joined(tables: list[pa.Table], columns: Sequence[str] | None) -> pa.Table:
    if len(tables) == 1:
        return tables[0]
    return pa.concat_tables([to_present(NO_EVENTS, columns), *tables])


def _rows(block: pa.Table, event_ids: npt.NDArray[np.int64]) -> list[pa.RecordBatch]:
    """Return the rows of a block with these ids, both sorted, in pieces."""
    batches = block.to_batches()
    if len(batches) != 1:
        return [piece for batch in batches for piece in _rows(pa.Table.from_batches([batch]), event_ids)]
    held = values_of(batches[0].column("event_id"), np.int64)
    places = held.searchsorted(event_ids)
    if places[-1] == len(held):
        places = places[places < len(held)]
        event_ids = event_ids[: len(places)]
    is_held = held[places] == event_ids
    if not is_held.all():
        places = places[is_held]
    if not len(places):
        return []
    # Neighbouring rows are shown without a copy.
    if places[-1] - places[0] + 1 == len(places):
        return [batches[0].slice(int(places[0]), len(places))]
    # Few rows that are shown are joined with those of other blocks in half the time of a `take` of a block.
    if len(places) <= _SHOWN_OF_BLOCK_MAX:
        return [batches[0].slice(place, 1) for place in places.tolist()]
    return [batches[0].take(int64_column(places))]


def _metadata(path: Path, stored_by_key: Mapping[bytes, bytes]) -> LogMetadata:
    stored = stored_by_key.get(METADATA_KEY)
    try:
        if stored is not None:
            return _METADATA.decode(stored)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{path}: expected custody's metadata in the footer, got {error}.") from error
    raise CorruptionError(f"{path}: expected custody's metadata in the footer, got none.")
