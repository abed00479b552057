"""The filters of many shards in one file, which tells a new process the few shards that are worth opening.

A shard's own filter says that the shard lacks a term, but to ask it the shard has to be opened, each of hundreds by the
first question of each process. A file of filters is mapped as it is, and only the pages that a question asks are read.

It is made of shards that are live, and never the truth: without it, or where it is damaged, the shards are asked. What
it says of a shard is what the shard said when it was read, so it also has how many events each term of a small field
has, for totals that need no shard then.

Layout (docs/formats/shard-filters.md): the filters, blocks of 32 bytes, filled with zeros to whole pages; three framed
records (`custody.format.framing`), the contents in JSON, the CRC-32 of each page, and the numbers of events; a tail of
16 bytes, little-endian: the length of the filters with their zeros as u64, and MAGIC.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from custody.errors import CorruptionError, FormatVersionError, StorageError
from custody.format.framing import Frame, frame, frames
from custody.format.names import parse_filters
from custody.format.split_block import BLOCK_BYTES, WORDS, Words
from custody.index.manifest import Count, whole_below
from custody.index.paged_file import PAGE_BYTES, CheckedFile, PagedFileWriter, pages_of
from custody.index.shard import Bounds, OpenShard
from custody.vfs import FileSystem, temporary

MAGIC = b"CUSTFLT\x01"
_TAIL = struct.Struct("<Q8s")
# Kinds of records on disk, in this order: add, never change.
_CONTENTS, _PAGES, _COUNTS = 1, 2, 3
COUNTED_TERMS_MAX = 32
"""The numbers of events are kept for the terms of fields with so many terms or fewer, as of types and components."""
# Bounds what a damaged or foreign file makes a reader do.
_SHARDS_MAX = 1 << 20

Numbers = npt.NDArray[np.int64]
Counts = npt.NDArray[np.uint32]


class ShardKind(msgspec.Struct, frozen=True, kw_only=True):
    """What tells which terms some shards know of; nearly all shards of a writer are of one kind."""

    fields: dict[str, int]
    """As `Description.fields`."""
    cut: dict[str, int] | None
    """As `Description.cut`."""
    counted: tuple[str, ...]
    """The fields of which the numbers of events are kept for each term."""

    def whole_below(self, name: str) -> int | None:
        """As `Description.whole_below`."""
        return whole_below(self.cut, name)


class _Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A shard of the file; of one without a filter `blocks` is 0."""

    name: str
    digest: str
    """Of its manifest, hexadecimal."""
    bounds: Bounds
    blocks: Count
    kind: Count


class _Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a file says of its filters."""

    shards: tuple[_Listed, ...]
    kinds: tuple[ShardKind, ...]
    terms: tuple[tuple[str, str], ...]
    """Field and text of each term whose numbers of events are kept."""


_DECODER = msgspec.json.Decoder(_Contents)


@dataclass(frozen=True, slots=True)
class ShardFilter:
    """The filter of one shard and what belongs to it; `blocks` has the shape (blocks, 8), without one (0, 8)."""

    name: str
    digest: bytes
    bounds: Bounds
    kind: ShardKind
    blocks: Words
    counts: Mapping[tuple[str, str], int]
    """The numbers of events by field and term; terms of `kind.counted` that are not here have none."""


def shard_filter(shard: OpenShard, bounds: Bounds) -> ShardFilter:
    """Return the filter of an open shard.

    Raises:
        CorruptionError: the shard is damaged.
    """
    about = shard.description
    counted: list[str] = []
    counts: dict[tuple[str, str], int] = {}
    for name in about.fields:
        first, end = shard.terms.range_of(name)
        if end - first <= COUNTED_TERMS_MAX:
            counted.append(name)
            texts, frequencies = shard.terms.texts(first, end).to_pylist(), shard.terms.frequencies(first, end).tolist()
            counts.update(((name, text), number) for text, number in zip(texts, frequencies, strict=True))
    kind = ShardKind(fields=about.fields, cut=about.cut, counted=tuple(counted))
    blocks = np.empty((0, WORDS), np.uint32) if shard.term_filter is None else shard.term_filter.blocks
    return ShardFilter(shard.path.name, shard.digest, bounds, kind, blocks, counts)


def write_filter_file(fs: FileSystem, path: Path, filters: Sequence[ShardFilter]) -> None:
    """Write filters as a file that is not there yet, in a folder that is.

    Durability: on return the file survives power loss; on raise, or after a crash, it is whole or not there.
    """
    kinds: dict[bytes, int] = {}
    by_kind: list[ShardKind] = []
    listed: list[_Listed] = []
    counts: dict[tuple[str, str], Counts] = {}
    partial = temporary(path)
    file = PagedFileWriter(fs, partial)
    try:
        for row, each in enumerate(filters):
            key = msgspec.json.encode(each.kind, order="sorted")
            if key not in kinds:
                kinds[key] = len(by_kind)
                by_kind.append(each.kind)
            for term, count in each.counts.items():
                if term not in counts:
                    counts[term] = np.zeros(len(filters), "<u4")
                counts[term][row] = count
            listed.append(
                _Listed(
                    name=each.name,
                    digest=each.digest.hex(),
                    bounds=each.bounds,
                    blocks=len(each.blocks),
                    kind=kinds[key],
                )
            )
            file.write(np.ascontiguousarray(each.blocks, "<u4").reshape(-1).view(np.uint8))
        checksums = np.array(file.end_page(), "<u4")
        contents = _Contents(shards=tuple(listed), kinds=tuple(by_kind), terms=tuple(counts))
        length = file.size
        file.write(frame(_CONTENTS, msgspec.json.encode(contents)))
        file.write(frame(_PAGES, checksums.tobytes()))
        file.write(frame(_COUNTS, *(numbers.tobytes() for numbers in counts.values())))
        file.write(_TAIL.pack(length, MAGIC))
        file.finish()
    finally:
        file.close()
    # A reader sees the whole file or none: the name comes when the bytes are durable.
    fs.rename(partial, path)
    fs.sync_directory(path.parent)


class FilterFile:
    """An open file of filters; may be used by several threads. Pages are checked when they are first looked at.

    Raises:
        StorageError: it cannot be read.
        FormatVersionError: it is of another version.
        CorruptionError: it is damaged, or no such file.
    """

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self.path = path
        view = fs.view(path)
        size = len(view)
        length, magic = _TAIL.unpack(view[-_TAIL.size :]) if size >= _TAIL.size else (0, b"")
        if magic[:-1] == MAGIC[:-1] and magic != MAGIC:
            raise FormatVersionError(f"{path}: expected filters of shards of version {MAGIC[-1]}, got {magic[-1]}.")
        if magic != MAGIC or length % PAGE_BYTES or length > size - _TAIL.size:
            raise self._other("the tail of a file of filters")
        records = list(frames(view[length : size - _TAIL.size]))
        kinds = [record.kind if isinstance(record, Frame) else None for record in records]
        if kinds != [_CONTENTS, _PAGES, _COUNTS]:
            raise self._other("contents, checksums and numbers of events with theirs")
        encoded, checksums, counts = (record.payload for record in records if isinstance(record, Frame))
        try:
            contents = _DECODER.decode(encoded)
            digests = [bytes.fromhex(shard.digest) for shard in contents.shards]
            bounds = np.array([shard.bounds for shard in contents.shards], np.int64).reshape(-1, 4)
        except (msgspec.DecodeError, ValueError, OverflowError) as error:
            raise CorruptionError(f"{path} @{length}: expected the contents of filters, got {error}.") from error
        shards = contents.shards
        blocks = sum(shard.blocks for shard in shards)
        if (
            len(shards) > _SHARDS_MAX
            or -(-blocks * BLOCK_BYTES // PAGE_BYTES) * PAGE_BYTES != length
            or len(checksums) != 4 * pages_of(length)
            or any(shard.kind >= len(contents.kinds) for shard in shards)
            or len(counts) != 4 * len(shards) * len(contents.terms)
            or len({*contents.terms}) != len(contents.terms)
        ):
            raise self._other("as many filters as its contents tell")
        self._file = CheckedFile(fs, path, length, np.frombuffer(checksums, "<u4"), is_begin=True)
        self.blocks: Words = self._file.data.view("<u4").reshape(-1, WORDS)
        """All blocks, shape (blocks, 8): only those may be read for which `require` was called."""
        self.names = tuple(shard.name for shard in shards)
        self.digests = tuple(digests)
        self.kinds = tuple(contents.kinds[shard.kind] for shard in shards)
        self.bounds: Numbers = bounds
        """Of each shard, shape (shards, 4), in the order of `Bounds`."""
        self.blocks_of = np.array([shard.blocks for shard in shards], np.uint64)
        """How many blocks each shard's filter has; 0 for a shard without one."""
        self.first: Numbers = np.array([0, *accumulate(shard.blocks for shard in shards)][:-1], np.int64)
        """Where the blocks of each begin."""
        self._terms = {term: number for number, term in enumerate(contents.terms)}
        self._counts: Counts = np.frombuffer(counts, "<u4").reshape(len(contents.terms), len(shards))
        self.is_damaged = False
        """Whether a page had other bytes than were written: the shards are asked from then on."""

    @property
    def bytes(self) -> int:
        """The size of the filters."""
        return self._file.size

    def require(self, numbers: Numbers) -> None:
        """Check the pages of some blocks; raises CorruptionError."""
        self._file.require(numbers.reshape(-1) * BLOCK_BYTES, 1)

    def require_all(self) -> None:
        """Check all pages; raises CorruptionError."""
        self._file.require_all()

    def counts(self, field: str, text: str, rows: Iterable[int]) -> Iterator[tuple[str, int]]:
        """Yield the names of some shards, and how many of their events have a term, where that is known."""
        number = self._terms.get((field, text))
        known = None if number is None else self._counts[number].tolist()
        for row in rows:
            kind = self.kinds[row]
            least = kind.whole_below(field)
            # Of a text that long the term may be the beginning of some values, which the logs tell apart.
            if field in kind.counted and (least is None or len(text) < least):
                yield self.names[row], 0 if known is None else known[row]

    def filters(self, names: Iterable[str]) -> Iterator[ShardFilter]:
        """Yield the filters of some of its shards, checked; raises CorruptionError."""
        rows = {name: row for row, name in enumerate(self.names)}
        for row in sorted(rows[name] for name in names):
            begin, size = int(self.first[row]), int(self.blocks_of[row])
            self.require(np.arange(begin, begin + size))
            counts = {
                term: count for term, count in zip(self._terms, self._counts[:, row].tolist(), strict=True) if count
            }
            first_id, last_id, first_ms, last_ms = self.bounds[row].tolist()
            yield ShardFilter(
                self.names[row],
                self.digests[row],
                (first_id, last_id, first_ms, last_ms),
                self.kinds[row],
                self.blocks[begin : begin + size],
                counts,
            )

    def _other(self, expected: str) -> CorruptionError:
        return CorruptionError(f"{self.path}: expected {expected}, got other bytes.")


def list_filter_files(
    fs: FileSystem, folder: Path
) -> Iterator[tuple[Path, FilterFile | CorruptionError | StorageError]]:
    """Yield the paths of the files of filters in a folder, the newest first, with each file, or why it is none.

    One of a newer custody, which knows what to do with it, is passed over.
    """
    for name in reversed(fs.list(folder)):
        if parse_filters(name) is not None:
            try:
                yield folder / name, FilterFile(fs, folder / name)
            except FormatVersionError:
                continue
            except (CorruptionError, StorageError) as error:
                yield folder / name, error


def filter_files(fs: FileSystem, folders: Iterable[Path]) -> Iterator[FilterFile]:
    """Yield the files of filters in some folders that can be read, the newest of a folder first.

    Of one that is damaged, or removed meanwhile, the shards are asked.
    """
    for folder in folders:
        yield from (file for _, file in list_filter_files(fs, folder) if isinstance(file, FilterFile))
