"""Which logs, and which blocks of them, can hold an event that meets a condition: from what the catalog keeps of them.

The entry of a log has bounds of each column that was written with statistics, and for `flowfile_uuid` a bloom filter
of each block. The table of contents has the bounds of each block: those of ids and times at fixed places, those of
other columns in the description of the block. What these rule out need not be opened. A column without bounds, a
damaged bloom filter, a table of contents that nobody read: then nothing is ruled out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash
from cachetools import LRUCache
from google.protobuf.message import DecodeError

from custody.catalog.footers import block_bounds
from custody.catalog.transaction_pb2 import AddFile, ColumnStatistics, FileStatistics, Value
from custody.errors import CorruptionError
from custody.eventlog.log_writer import STATISTICS
from custody.eventlog.toc import TableOfContents
from custody.format import split_block

# A header has four small fields; the filter itself is the rest.
_HEADER_BYTES_MAX = 64

Bound = int | bytes
"""A value as it is compared: times in ms, texts as UTF-8."""
Bounds = Mapping[str, tuple[Bound, Bound] | None]
"""Least and greatest value by column; None for a column that has no value at all."""


class Restriction(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on one column: its value is within bounds, both included, and one of some values."""

    column: str
    least: int | bytes | None = None
    greatest: int | bytes | None = None
    values: tuple[int | bytes, ...] | None = None

    def may_match(self, bounds: tuple[Bound, Bound] | None) -> bool:
        """Whether a value within these bounds can meet it; without any value none can."""
        if bounds is None:
            return False
        low, high = bounds
        asked: list[Any] = [each for each in (self.least, self.greatest, *(self.values or ())) if each is not None]
        if not all(isinstance(each, type(low)) for each in asked):
            return True  # compared in another way than by its own values
        return (
            (self.values is None or any(low <= value <= high for value in self.values))  # type: ignore[operator]
            and (self.least is None or high >= self.least)  # type: ignore[operator]
            and (self.greatest is None or low <= self.greatest)  # type: ignore[operator]
        )


@dataclass(slots=True)
class PrunedReads:
    """How many logs and blocks there are, and how many of them a read leaves out, with what ruled them out."""

    logs: int = 0
    logs_pruned: int = 0
    blocks: int = 0
    """Of logs whose blocks are known."""
    blocks_pruned: int = 0
    """Those of pruned logs included."""
    by: Counter[str] = field(default_factory=Counter)
    """Blocks left out, by `<column> bounds` or `<column> bloom`."""

    def blocks_of(
        self, file: AddFile, alternatives: Sequence[Sequence[Restriction]], toc: TableOfContents | None = None
    ) -> list[int] | None:
        """Return the blocks of a log that can hold an event that is asked for; None for all, without a look at any.

        An event is asked for when it meets all restrictions of one of the alternatives. Without the table of contents
        only bloom filters tell blocks apart.
        """
        self.logs += 1
        if not alternatives or not all(alternatives):
            return None
        columns = {each.column for each in _flat(alternatives)}
        known = known_log(file, columns)
        # The log as a whole first: then the bounds of its blocks are not looked at.
        whole = known.whole_ruled_out_by(alternatives)
        if toc is not None:
            known = known if whole is not None else known_log(file, columns, toc)
            count = len(toc.blocks)
        else:
            count = known.count
        self.blocks += count
        if whole is not None:
            ruled_out: list[str | None] = [whole] * count
        elif known.count != count:
            return None  # its entry is damaged
        else:
            ruled_out = [known.ruled_out_by(number, alternatives) for number in range(known.count)]
        left = [number for number, reason in enumerate(ruled_out) if reason is None]
        self.by.update(reason for reason in ruled_out if reason is not None)
        self.blocks_pruned += len(ruled_out) - len(left)
        if whole is not None or (ruled_out and not left):
            self.logs_pruned += 1
            return []
        return left if len(left) < count else None


@dataclass(frozen=True, slots=True)
class KnownLog:
    """What the catalog knows of one log, of the columns that are asked for."""

    bounds: Bounds
    blocks: Sequence[Bounds]
    """By block; without bounds where the table of contents was not at hand, none where their number is not known."""
    blooms: Mapping[str, Sequence[BloomFilter]]
    size: int = 0
    """About how many bytes of memory it takes."""

    @property
    def count(self) -> int:
        """How many blocks are known."""
        return len(self.blocks)

    def whole_ruled_out_by(self, alternatives: Sequence[Sequence[Restriction]]) -> str | None:
        """Return what rules out the whole log, None when nothing does."""
        return _ruled_out_by(alternatives, self.bounds, {})

    def ruled_out_by(self, number: int, alternatives: Sequence[Sequence[Restriction]]) -> str | None:
        """Return what rules out a block, None when nothing does."""
        blooms = {column: filters[number] for column, filters in self.blooms.items() if len(filters) == self.count}
        return _ruled_out_by(alternatives, self.blocks[number], blooms)


_BLOCK_BYTES = 1000
_CACHE_BYTES = 32 << 20
_DESCRIBED = frozenset(STATISTICS) - {"event_id", "event_time"}
"""The columns whose bounds stand in the descriptions of blocks alone."""
_Key = tuple[str, bytes, bytes, frozenset[str], bool]
_KNOWN: LRUCache[_Key, KnownLog] = LRUCache(_CACHE_BYTES, lambda known: known.size)
_LOCK = Lock()


class BloomFilter:
    """A split-block bloom filter of Parquet, with its header; a value that it does not have is not in the block.

    Raises:
        CorruptionError: it is none, or of a kind that nobody writes.
    """

    def __init__(self, data: bytes) -> None:
        start = _end_of_header(data)
        is_whole = start and not (len(data) - start) % split_block.BLOCK_BYTES
        words = np.frombuffer(data, "<u4", offset=start) if is_whole else None
        if words is None or not len(words):
            raise CorruptionError("bloom filter: expected Parquet's header and blocks of 32 bytes.")
        self._blocks: npt.NDArray[np.uint32] = words.reshape(-1, split_block.WORDS)

    def may_have(self, value: bytes) -> bool:
        """Whether a text can be in the block."""
        return self.may_have_all([value])

    def may_have_all(self, values: Sequence[bytes]) -> bool:
        """Whether all of some texts can be in the block."""
        digests = np.array([xxhash.xxh64_intdigest(value) for value in values], np.uint64)
        return bool(split_block.may_have(self._blocks, split_block.Probes.of(digests)).all())


def bounds_of(statistics: FileStatistics) -> dict[str, tuple[Bound, Bound] | None]:
    """Return the bounds of the columns of a log, as far as they are known."""
    bounds: dict[str, tuple[Bound, Bound] | None] = {}
    for column in statistics.columns:
        pair = _value(column.minimum), _value(column.maximum)
        if pair[0] is not None and pair[1] is not None:
            bounds[column.column] = pair[0], pair[1]
    return bounds


def known_log(file: AddFile, columns: AbstractSet[str], toc: TableOfContents | None = None) -> KnownLog:
    """Return what is known of some columns of a log; nothing where its entry is damaged."""
    # By digest: a log that was mended is listed again under its name. Without a digest nothing is remembered.
    key = (file.path, file.sha256, file.toc_sha256, frozenset(columns), toc is not None)
    with _LOCK:
        known = _KNOWN.get(key) if file.sha256 else None
    if known is None:
        known = _read(file, columns, toc)
        with _LOCK, suppress(ValueError):  # one that is larger than the cache is not kept
            _KNOWN[key] = known
    return known


def _read(file: AddFile, columns: AbstractSet[str], toc: TableOfContents | None) -> KnownLog:
    try:
        statistics = FileStatistics.FromString(file.statistics)
        bounds = bounds_of(statistics)
        # These are in every entry.
        bounds |= {
            "event_id": (file.first_event_id, file.last_event_id),
            "event_time": (file.first_event_time_ms, file.last_event_time_ms),
        }
        blooms = {each.column: _blooms(each) for each in statistics.columns if each.blooms and each.column in columns}
        blocks = bounds_of_blocks(toc, columns, file.last_event_id) if toc is not None else _unbounded(blooms)
    # What helps to leave something out is no reason to fail: `verify` names the damage.
    except (CorruptionError, DecodeError, OSError, ValueError):
        return KnownLog({}, [], {})
    size = len(file.statistics) + _BLOCK_BYTES * (1 + len(blocks))
    return KnownLog(bounds, blocks, blooms, size)


def bounds_of_blocks(toc: TableOfContents, columns: AbstractSet[str], last_event_id: int) -> list[Bounds]:
    """Return the least and greatest values of some columns in each block, by the table of contents of a log."""
    blocks = toc.blocks
    firsts = blocks["first_event_id"].tolist()
    # The table has only the first id of a block: its last one lies before the next block's first.
    ids = zip(firsts, [*(first - 1 for first in firsts[1:]), last_event_id], strict=True) if firsts else ()
    times = zip(blocks["first_event_time"].tolist(), blocks["last_event_time"].tolist(), strict=True)
    fixed: list[Bounds] = [{"event_id": i, "event_time": t} for i, t in zip(ids, times, strict=True)]
    described = columns & _DESCRIBED
    if not described:
        return fixed
    # To parse the descriptions of all blocks takes some tenths of a millisecond a block: only if they are asked for.
    found = block_bounds(pq.read_metadata(pa.BufferReader(toc.footer(range(len(blocks))))), described)
    return [{**one, **other} for one, other in zip(fixed, found, strict=True)]


def _unbounded(blooms: Mapping[str, Sequence[BloomFilter]]) -> list[Bounds]:
    return [{} for _ in range(max(map(len, blooms.values()), default=0))]


def _blooms(column: ColumnStatistics) -> list[BloomFilter]:
    try:
        return [BloomFilter(data) for data in column.blooms]
    except CorruptionError:
        return []


def _ruled_out_by(
    alternatives: Sequence[Sequence[Restriction]], bounds: Bounds, blooms: Mapping[str, BloomFilter]
) -> str | None:
    """Return what rules out the first alternative when all of them are ruled out, None when one may be met."""
    reasons = [_reason(restrictions, bounds, blooms) for restrictions in alternatives]
    return reasons[0] if all(reason is not None for reason in reasons) else None


def _reason(restrictions: Iterable[Restriction], bounds: Bounds, blooms: Mapping[str, BloomFilter]) -> str | None:
    for each in restrictions:
        if each.column in bounds and not each.may_match(bounds[each.column]):
            return f"{each.column} bounds"
        bloom = blooms.get(each.column)
        if bloom is not None and each.values is not None:
            texts = [value for value in each.values if isinstance(value, bytes)]
            if len(texts) == len(each.values) and not any(map(bloom.may_have, texts)):
                return f"{each.column} bloom"
    return None


def _flat(alternatives: Iterable[Iterable[Restriction]]) -> Iterable[Restriction]:
    return (each for restrictions in alternatives for each in restrictions)


def _value(value: Value) -> Bound | None:
    kind = value.WhichOneof("kind")
    stored: Any = None if kind is None else getattr(value, kind)
    if kind == "text":
        return str(stored).encode()
    return stored if kind in ("integer", "binary") else None


def _end_of_header(data: bytes) -> int:
    """Return where a bloom filter's bits begin: behind its header in Thrift's compact form; 0 when it is none.

    The header says the number of bytes, then three unions with an empty struct each: split blocks, XXH64, plain.
    """
    if data[:1] != b"\x15":  # field 1, a 32-bit number
        return 0
    length, shift, place = 0, 0, 1
    for place in range(1, min(len(data), _HEADER_BYTES_MAX)):
        length |= (data[place] & 0x7F) << shift
        shift += 7
        if not data[place] & 0x80:
            break
    length >>= 1  # zigzag
    tail = b"\x1c\x1c\x00\x00" * 3 + b"\x00"
    start = place + 1 + len(tail)
    return start if data[place + 1 : start] == tail and len(data) - start == length else 0
