"""The records of a shard's terms: where each lies, found by the hash of its key or by the order of all keys."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

from custody.index.manifest import Description
from custody.index.reader.pages import CheckedFile, numbers, window
from custody.index.reader.wanted import Hashes
from custody.index.segment.arrays import Ints
from custody.index.segment.dictionary import HEADER, ORDER_TYPES, SLOT, TABLE, TABLES

_KEY = struct.Struct(">ii")
_SLOT = struct.Struct(">Iq")
_TABLE = struct.Struct(">qi")
_KEY_BYTES_MAX = 1 << 20
_CRC32, _MD5 = 1, 0
_PROBES = 16


class Records:
    """The records of all terms; a record is named by its place in the file, a key is a field's number and a term."""

    def __init__(self, terms: CheckedFile, description: Description) -> None:
        self._terms = terms
        self._count = description.terms
        head = bytes(terms.span(0, len(HEADER)))
        if head[:4] != HEADER[:4] or head[4] not in (_CRC32, _MD5):
            raise terms.error(0, "a dictionary of terms", repr(head))
        self._hash_type = head[4]
        order_type = ORDER_TYPES.get(description.order_type)
        if order_type is None:
            raise terms.error(0, "an array of places", f"type {description.order_type!r}")
        extras = struct.unpack(">i", terms.span(terms.size - 4, terms.size))[0]
        self._directory = terms.size - 4 - extras - TABLES * TABLE.itemsize
        terms.span(self._directory, self._directory + TABLES * TABLE.itemsize)
        width = np.dtype(order_type).itemsize
        order = terms.size - 4 - description.terms * width
        # The places are read one by one while a term is looked for, so only those are checked that are looked at.
        self._order_place, self._order_width = order, width
        if order < self._directory:
            raise terms.error(order, "an array of places", f"{description.terms} terms")
        self._order = np.frombuffer(terms.data, order_type, description.terms, order)

    def find(self, key: bytes) -> int | None:
        """Return where the record of a key lies, None when there is none."""
        return self._find_by_hash(key) if self._hash_type == _CRC32 else self._find_by_order(key)

    def find_all(self, keys: Sequence[bytes], hashes: Hashes) -> Ints:
        """Return where the records of those of some keys lie that are there; `hashes` are the CRC-32 of each."""
        if self._hash_type == _CRC32:
            return self._find_all_by_hash(keys, hashes)
        found = (self._find_by_order(key) for key in keys)
        return np.array([record for record in found if record is not None], np.int64)

    def _find_by_hash(self, key: bytes) -> int | None:
        """Return where the record of a key lies, by its hash."""
        terms, wanted = self._terms, zlib.crc32(key)
        table = self._directory + (wanted & (TABLES - 1)) * _TABLE.size
        place, slots = _TABLE.unpack(terms.span(table, table + _TABLE.size))
        if slots <= 0:
            return None
        slot = (wanted >> 8) % slots
        for _ in range(slots):
            at = place + slot * SLOT.itemsize
            found, record = _SLOT.unpack(terms.span(at, at + SLOT.itemsize))
            if not record:
                return None
            if found == wanted:
                begin, length = self.key(record)
                if length == len(key) and terms.span(begin, begin + length) == key:
                    return int(record)
            slot = slot + 1 if slot + 1 < slots else 0
        return None

    def _find_all_by_hash(self, keys: Sequence[bytes], wanted: Hashes) -> Ints:
        """Return where the records of those of some keys lie that are there."""
        terms = self._terms
        terms.span(self._directory, self._directory + TABLES * TABLE.itemsize)
        tables = np.frombuffer(terms.data, TABLE, TABLES, self._directory)[wanted & np.uint32(TABLES - 1)]
        place, slots = tables["place"].astype(np.int64), tables["slots"].astype(np.int64)
        slot = (wanted >> np.uint32(8)).astype(np.int64) % np.maximum(slots, 1)
        records = np.zeros(len(keys), np.int64)
        known = np.flatnonzero(slots > 0)
        # The next slots of each key, all at once: a key is in the first one with its hash, if none before is empty.
        nearby = (slot[known, None] + np.arange(_PROBES)) % slots[known, None]
        at = place[known, None] + nearby * SLOT.itemsize
        terms.require(at.ravel(), SLOT.itemsize)
        found = window(terms.data, SLOT)[at]
        is_empty = found["place"] == 0
        is_end = is_empty | (found["hash"] == wanted[known, None])
        first = is_end.argmax(axis=1)
        row = np.arange(len(known))
        is_hit = is_end[row, first] & ~is_empty[row, first]
        records[known[is_hit]] = found["place"][row, first][is_hit]
        for number in known[~is_end[row, first]].tolist():
            records[number] = self._find_by_hash(keys[number]) or 0
        return self._verified(keys, records)

    def _verified(self, keys: Sequence[bytes], records: Ints) -> Ints:
        """Return the records, 0 for none, that are of the keys and not only of the same hash."""
        chosen = np.flatnonzero(records)
        found = records[chosen]
        begin, lengths = self.keys(found)
        data = self._terms.data
        places = zip(chosen.tolist(), begin.tolist(), lengths.tolist(), strict=True)
        for number, (key, start, length) in enumerate(places):
            if data[start : start + length].tobytes() != keys[key]:
                found[number] = self._find_by_hash(keys[key]) or 0
        kept: Ints = found[found != 0]
        return kept

    def _find_by_order(self, key: bytes) -> int | None:
        """Return where the record of a key lies, by the order of keys: for tables by another hash."""
        number = self.lower(key)
        if number == self._count:
            return None
        record = self.place(number)
        begin, length = self.key(record)
        return record if self._terms.span(begin, begin + length) == key else None

    def lower(self, key: bytes, low: int = 0, high: int | None = None) -> int:
        """Return the number of the first term that is not below a key."""
        high = self._count if high is None else high
        while low < high:
            middle = (low + high) // 2
            begin, length = self.key(self.place(middle))
            if bytes(self._terms.span(begin, begin + length)) < key:
                low = middle + 1
            else:
                high = middle
        return low

    def place(self, number: int) -> int:
        """Return where the record of the term with this number lies."""
        at = self._order_place + number * self._order_width
        self._terms.span(at, at + self._order_width)
        return int(self._order[number])

    def places(self, terms: Ints) -> Ints:
        """Return where the records of the terms with these numbers lie."""
        self._terms.require(self._order_place + terms * self._order_width, self._order_width)
        return self._order[terms].astype(np.int64)

    def value_of(self, record: int) -> tuple[int, int]:
        """Return where the value of a record lies and how long it is."""
        begin, length = self.key(record)
        _, size = _KEY.unpack(self._terms.span(record, begin))
        return begin + length, size

    def key(self, record: int) -> tuple[int, int]:
        """Return where the key of a record lies and how long it is."""
        length, _ = _KEY.unpack(self._terms.span(record, record + _KEY.size))
        if not 2 <= length <= _KEY_BYTES_MAX:
            raise self._terms.error(record, "a term", f"{length} bytes")
        return record + _KEY.size, length

    def keys(self, records: Ints) -> tuple[Ints, Ints]:
        """Return where the keys of some records lie and how long they are."""
        self._terms.require(records, _KEY.size)
        lengths = numbers(self._terms.data, records, ">i4")
        if len(lengths) and not 2 <= int(lengths.min()) <= int(lengths.max()) <= _KEY_BYTES_MAX:
            raise self._terms.error(int(records[0]), "terms", "another length")
        # The whole record is looked at later; its pages are those of its begin and its end.
        if len(lengths) and int(lengths.max()) > 1 << 13:
            for record, length in zip(records.tolist(), lengths.tolist(), strict=True):
                self._terms.span(record, record + _KEY.size + length)
        else:
            self._terms.require(records + _KEY.size + lengths - 1, 1)
        return records + _KEY.size, lengths
