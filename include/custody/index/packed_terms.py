"""The terms of one field of a packed shard, in the order of their bytes, each named by its number in this order.

- `uuids`: every term is a uuid in its usual form. 16 bytes each; before them, the first of each LEAF_TERMS.
- `texts`: blocks of terms, each behind a byte 0xff, which no UTF-8 has, compressed by Snappy. Before them a table
  of the blocks, and what separates each block from the one before: the first bytes of its first term, as few as do.

A term is found by bisection of what lies before, in memory, and then by one search in the bytes of a leaf or a block.
Docs: docs/formats/packed-shard.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.index.arrays import Bytes, Ints, starts
from custody.index.compression import compressed, decompressed
from custody.index.paged_file import CheckedFile
from custody.index.terms import uuid_bytes, uuid_text

Kind = Literal["uuids", "texts"]

# The format: shared by the writer and the readers below.
LEAF_TERMS = 128
UUID_BYTES = 16
SEPARATOR = 0xFF
BLOCK_BYTES = 8192
"""A block ends with the term that reaches so many bytes."""
_HEAD = np.dtype([("blocks", "<u4"), ("stored", "<u4"), ("size", "<u4"), ("unused", "<u4")])
"""How texts begin: the number of blocks; how long what separates them is, as it is stored and as it was."""
_BLOCK = np.dtype([("place", "<u8"), ("stored", "<u4"), ("size", "<u4"), ("first", "<u4"), ("unused", "<u4")])
"""Of each block: its place from the end of this table on, its bytes stored and as they were, its first term."""

# Texts of uuids: which digit stands where.
_UUID_LENGTH = 36
_DASHES = np.array([8, 13, 18, 23])
_DIGITS = np.array([place for place in range(_UUID_LENGTH) if place not in _DASHES])
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
_NO_DIGIT = 0x80
_VALUES = np.full(256, _NO_DIGIT, np.uint8)
_VALUES[_HEX] = np.arange(16)
# From so many terms on all uuids of a field are taken into memory to be searched at once.
_MANY = 48


def encoded_terms(text: Bytes, lengths: Ints) -> tuple[Kind, Bytes]:
    """Return the kind and the bytes of sorted terms, which lie one behind the other in `text`."""
    uuids = _as_uuids(text, lengths)
    if uuids is not None:
        return "uuids", np.concatenate([uuids[::LEAF_TERMS].ravel(), uuids.ravel()])
    return "texts", _as_texts(text, lengths)


def _as_uuids(text: Bytes, lengths: Ints) -> Bytes | None:
    """Return the uuids of terms, shape (terms, 16); None where one is none."""
    if not len(lengths) or (lengths != _UUID_LENGTH).any():
        return None
    rows = text.reshape(-1, _UUID_LENGTH)
    values = _VALUES[rows[:, _DIGITS]]
    if (rows[:, _DASHES] != ord("-")).any() or (values == _NO_DIGIT).any():
        return None
    uuids: Bytes = values[:, ::2] << np.uint8(4) | values[:, 1::2]
    return uuids


def _as_texts(text: Bytes, lengths: Ints) -> Bytes:
    begin = starts(lengths + 1)
    data = np.empty(len(text) + len(lengths), np.uint8)
    is_text = np.ones(len(data), np.bool_)
    is_text[begin] = False
    data[is_text] = text
    data[begin] = SEPARATOR
    # A block begins with the first term that begins behind a multiple of its size.
    first = np.flatnonzero(np.diff(begin // BLOCK_BYTES, prepend=-1))
    bounds = [*begin[first].tolist(), len(data)]
    blocks = [data[low:high].tobytes() for low, high in pairwise(bounds)]
    stored = [compressed(block) for block in blocks]
    separators = _compressed_separators(blocks)
    table = np.zeros(len(blocks), _BLOCK)
    sizes = np.fromiter(map(len, stored), np.int64, len(stored))
    table["place"], table["stored"] = starts(sizes), sizes
    table["size"], table["first"] = np.diff(bounds), first
    head = np.array([(len(blocks), len(separators[0]), separators[1], 0)], _HEAD)
    return np.frombuffer(b"".join([head.tobytes(), table.tobytes(), separators[0], *stored]), np.uint8)


def _compressed_separators(blocks: Sequence[bytes]) -> tuple[bytes, int]:
    """Return what separates the blocks, compressed, and its size: nothing before the first one."""
    mark = bytes([SEPARATOR])
    separators = [b""]
    for before, block in pairwise(blocks):
        last, first = before[before.rindex(mark) + 1 :], block[1:].split(mark, 1)[0]
        separators.append(first[: _common(last, first) + 1])
    joined = mark.join(separators)
    return compressed(joined), len(joined)


def _common(one: bytes, other: bytes) -> int:
    """Return how many bytes two texts begin with together."""
    length = min(len(one), len(other))
    pairs = zip(one, other, strict=False)
    return next((place for place, (mine, theirs) in enumerate(pairs) if mine != theirs), length)


class FieldTerms(Protocol):
    """The interface of the terms of a field of an open shard; may be used by several threads."""

    def find(self, term: bytes) -> int | None:
        """Return the number of a term, None when it is not there."""
        ...

    def find_all(self, terms: Sequence[bytes], uuids: Sequence[bytes | None]) -> Ints:
        """Return the numbers of those of some terms that are there; `uuids` are those of the terms that are uuids."""
        ...

    def lower(self, term: bytes) -> int:
        """Return the number of the first term that is not below another one."""
        ...

    def texts(self, first: int, end: int) -> pa.StringArray:
        """Return the terms from the number `first` to before `end`."""
        ...


class UuidTerms:
    """Terms that are uuids."""

    def __init__(self, file: CheckedFile, place: int, count: int) -> None:
        leaves = -(-count // LEAF_TERMS)
        self._file = file
        self._count = count
        self._place = place + leaves * UUID_BYTES
        if self._place + count * UUID_BYTES > file.size:
            raise file.error(place, f"{count} uuids", "fewer")
        # By numpy in one call: there are thousands, and each shard that is opened for a uuid pays for it.
        self._firsts: list[bytes] = np.frombuffer(file.span(place, self._place), f"V{UUID_BYTES}").tolist()

    def find(self, term: bytes) -> int | None:
        """Return the number of a term, None when it is not there."""
        uuid = uuid_bytes(term)
        return None if uuid is None else self._find(uuid)

    def find_all(self, terms: Sequence[bytes], uuids: Sequence[bytes | None]) -> Ints:
        """Return the numbers of those of some terms that are there."""
        asked = [uuid for uuid in uuids if uuid is not None]
        if len(asked) < _MANY:
            numbers = [number for number in map(self._find, asked) if number is not None]
            return np.array(numbers, np.int64)
        return self._find_many(np.frombuffer(b"".join(asked), np.uint8).reshape(-1, UUID_BYTES))

    def lower(self, term: bytes) -> int:
        """Return the number of the first term that is not below another one."""
        return bisect_left(range(self._count), term, key=lambda number: uuid_text(self._uuid(number)))

    def texts(self, first: int, end: int) -> pa.StringArray:
        """Return the terms from the number `first` to before `end`."""
        uuids = self._rows(first, end)
        rows = np.full((end - first, _UUID_LENGTH), ord("-"), np.uint8)
        digits = np.empty((end - first, 2 * UUID_BYTES), np.uint8)
        digits[:, ::2], digits[:, 1::2] = _HEX[uuids >> 4], _HEX[uuids & 15]
        rows[:, _DIGITS] = digits
        offsets = np.arange(end - first + 1, dtype=np.int32) * _UUID_LENGTH
        return pa.StringArray.from_buffers(end - first, pa.py_buffer(offsets.data), pa.py_buffer(rows.data))

    def _find(self, uuid: bytes) -> int | None:
        leaf = bisect_right(self._firsts, uuid) - 1
        if leaf < 0:
            return None
        first = leaf * LEAF_TERMS
        begin = self._place + first * UUID_BYTES
        data = bytes(self._file.span(begin, begin + min(LEAF_TERMS, self._count - first) * UUID_BYTES))
        at = data.find(uuid)
        while at >= 0 and at % UUID_BYTES:  # bytes of two neighbours that look the same
            at = data.find(uuid, at + 1)
        return None if at < 0 else first + at // UUID_BYTES

    def _find_many(self, asked: Bytes) -> Ints:
        # As texts of a fixed length: numpy compares them byte by byte where they lie, and searches for all at once.
        rows = self._rows(0, self._count)
        places = _texts(rows).searchsorted(_texts(asked))
        inside = places < self._count
        asked, places = asked[inside], places[inside]
        numbers: Ints = places[(rows[places] == asked).all(axis=1)]
        return numbers

    def _uuid(self, number: int) -> bytes:
        at = self._place + number * UUID_BYTES
        return bytes(self._file.span(at, at + UUID_BYTES))

    def _rows(self, first: int, end: int) -> Bytes:
        data = self._file.array(self._place + first * UUID_BYTES, self._place + end * UUID_BYTES)
        return data.reshape(-1, UUID_BYTES)


def _texts(uuids: Bytes) -> npt.NDArray[np.bytes_]:
    return uuids.reshape(-1).view(f"S{UUID_BYTES}")


class BlockCache:
    """Blocks of texts of one shard that were decompressed, within a bound of bytes; may be used by several threads."""

    def __init__(self, bytes_max: int = 1 << 19) -> None:
        self._bytes_max = bytes_max
        self._blocks: dict[int, bytes] = {}
        self._bytes = 0

    def get(self, place: int) -> bytes | None:
        """Return the block that lies at a place, None when it is not kept."""
        return self._blocks.get(place)

    def put(self, place: int, block: bytes) -> None:
        """Keep a block; when that is too much, all others go."""
        if len(block) > self._bytes_max:
            return
        # Without a lock: two threads may count a block twice, and then the others go a little sooner.
        if self._bytes + len(block) > self._bytes_max:
            self._blocks, self._bytes = {}, 0
        self._blocks[place] = block
        self._bytes += len(block)


class TextTerms:
    """Terms that are any texts."""

    def __init__(self, file: CheckedFile, place: int, count: int, kept: BlockCache) -> None:
        self._file = file
        self._count = count
        self._kept = kept
        head = np.frombuffer(file.span(place, place + _HEAD.itemsize), _HEAD)[0]
        table = place + _HEAD.itemsize
        separators = table + int(head["blocks"]) * _BLOCK.itemsize
        self._table = np.frombuffer(file.span(table, separators), _BLOCK)
        self._data = separators + int(head["stored"])
        joined = decompressed(file, separators, self._data, int(head["size"]))
        self._separators = joined.split(bytes([SEPARATOR])) if len(self._table) else []
        self._firsts: list[int] = self._table["first"].tolist()
        if len(self._separators) != len(self._table) or self._firsts[:1] != [0] * bool(count):
            raise file.error(place, f"{len(self._table)} blocks of terms", f"{len(self._separators)}")

    def find(self, term: bytes) -> int | None:
        """Return the number of a term, None when it is not there."""
        block = bisect_right(self._separators, term) - 1
        if block < 0 or SEPARATOR in term:
            return None
        data = self._block(block)
        at = data.find(b"\xff%b\xff" % term)
        return None if at < 0 else self._firsts[block] + data.count(b"\xff", 0, at)

    def find_all(self, terms: Sequence[bytes], uuids: Sequence[bytes | None]) -> Ints:
        """Return the numbers of those of some terms that are there."""
        numbers = [number for number in map(self.find, terms) if number is not None]
        return np.array(numbers, np.int64)

    def lower(self, term: bytes) -> int:
        """Return the number of the first term that is not below another one."""
        block = bisect_right(self._separators, term) - 1
        if block < 0:
            return 0
        terms = self._block(block)[1:-1].split(b"\xff")
        return min(self._firsts[block] + bisect_left(terms, term), self._count)

    def texts(self, first: int, end: int) -> pa.StringArray:
        """Return the terms from the number `first` to before `end`."""
        if first >= end:
            return pa.nulls(0, pa.string())
        low, high = bisect_right(self._firsts, first) - 1, bisect_left(self._firsts, end)
        data = np.frombuffer(b"".join(self._block(number)[:-1] for number in range(low, high)), np.uint8)
        bounds = np.append(np.flatnonzero(data == SEPARATOR), len(data))
        bounds = bounds[first - self._firsts[low] :][: end - first + 1]
        if len(bounds) != end - first + 1:
            raise self._file.error(self._data, f"{end - first} terms", f"{len(bounds) - 1}")
        text = data[bounds[0] : bounds[-1]]
        text = text[text != SEPARATOR].tobytes()
        offsets = (bounds - bounds[0] - np.arange(len(bounds))).astype(np.int32)
        terms = pa.StringArray.from_buffers(end - first, pa.py_buffer(offsets.data), pa.py_buffer(text))
        # The bytes have the right checksums but may be forged: invalid UTF-8 would go wrong deep inside Arrow.
        terms.validate(full=True)
        return terms

    def _block(self, number: int) -> bytes:
        """Return the bytes of a block, with a separator before each term and behind the last."""
        entry = self._table[number]
        place = self._data + int(entry["place"])
        block = self._kept.get(place)
        if block is None:
            block = decompressed(self._file, place, place + int(entry["stored"]), int(entry["size"])) + b"\xff"
            self._kept.put(place, block)
        return block
