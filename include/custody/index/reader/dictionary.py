"""The terms of a shard: finding one by its hash, a range of them by their order, and what is known of each."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from custody.index.manifest import Description
from custody.index.reader.lists import KeptLists
from custody.index.reader.pages import CheckedFile, numbers, window
from custody.index.reader.postings import NONE, InlineList, PostingList
from custody.index.reader.single import SingleBlocks, single_blocks
from custody.index.reader.wanted import Hashes, TermSet
from custody.index.segment.arrays import Ints, copy_pieces, starts
from custody.index.segment.dictionary import ABOUT, HEADER, ORDER_TYPES, SLOT, TABLE, TABLES
from custody.index.segment.postings import DATA_OPEN, FIRST_BYTES
from custody.index.values import Codes

_ABOUT = struct.Struct(">BfIBBfII")
_EXTENT = struct.Struct(">qi")
_KEY = struct.Struct(">ii")
_SLOT = struct.Struct(">Iq")
_TABLE = struct.Struct(">qi")
_KEY_BYTES_MAX = 1 << 20
_CRC32, _MD5 = 1, 0
_PROBES = 16
_TEXT_BYTES_KEPT = 1 << 20
_FREQUENCY = 5  # where it stands in ABOUT


class Dictionary:
    """The terms of all fields; may be used by several threads."""

    def __init__(self, terms: CheckedFile, postings: CheckedFile, description: Description) -> None:
        self._terms = terms
        self._postings = postings
        self._about = description
        self._documents = description.documents
        self._fields = description.fields
        self._layout: Literal["bulk", "stock"] = description.layout
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
        self._ranges: dict[str, tuple[int, int]] = {}
        self._kept = KeptLists()
        self._texts: tuple[tuple[int, int], pa.StringArray] = (-1, -1), pa.nulls(0, pa.string())

    def find(self, field: str, term: bytes) -> PostingList | None:
        """Return a term's documents, None when no document has it."""
        number = self._fields.get(field)
        if number is None:
            return None
        key = number.to_bytes(2, "big") + term
        record = self._find_crc(key) if self._hash_type == _CRC32 else self._find_ordered(key)
        return None if record is None else self._list_of(record)

    def union_of(self, field: str, wanted: TermSet) -> Ints:
        """Return the documents that have any of some terms, going up; many terms are found at once."""
        number = self._fields.get(field)
        if number is None:
            return NONE
        keys, hashes = wanted.hashed(number.to_bytes(2, "big"))
        if self._hash_type == _CRC32:
            return self._union(self._find_all_crc(keys, hashes))
        found = (self._find_ordered(key) for key in keys)
        return self._union(np.array([record for record in found if record is not None], np.int64))

    def range_of(self, field: str) -> tuple[int, int]:
        """Return the numbers of a field's terms in the order of all terms: the first, and the one behind the last."""
        found = self._ranges.get(field)
        if found is None:
            number = self._fields.get(field)
            found = (0, 0)
            if number is not None:
                found = self._lower(number.to_bytes(2, "big")), self._lower((number + 1).to_bytes(2, "big"))
            self._ranges[field] = found
        return found

    def between(
        self, field: str, low: bytes | None, high: bytes | None, *, after_low: bool = False, with_high: bool = False
    ) -> tuple[int, int]:
        """Return the numbers of the terms from `low` to before `high`; without an end, to the field's."""
        first, end = self.range_of(field)
        if first == end:
            return 0, 0
        prefix = self._fields[field].to_bytes(2, "big")
        if low is not None:
            first = self._lower(prefix + low + (b"\0" if after_low else b""), first, end)
        if high is not None:
            end = self._lower(prefix + high + (b"\0" if with_high else b""), first, end)
        return first, max(first, end)

    def with_prefix(self, field: str, prefix: bytes) -> tuple[int, int]:
        """Return the numbers of the terms that begin with some bytes."""
        stripped = prefix.rstrip(b"\xff")
        above = stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None
        return self.between(field, prefix, above)

    def texts(self, first: int, end: int) -> pa.StringArray:
        """Return the terms with these numbers, in order; those asked for last are kept when they are small."""
        bounds, kept = self._texts
        if bounds == (first, end):
            return kept
        keys, lengths = self._keys(self._places(np.arange(first, end)))
        sizes = lengths - 2
        out = np.empty(int(sizes.sum()), np.uint8)
        begin = starts(sizes)
        self._terms.require(keys, 2)
        copy_pieces(self._terms.data, keys + 2, out, begin, sizes)
        offsets = np.append(begin, len(out)).astype(np.int32)
        found = pa.StringArray.from_buffers(end - first, pa.py_buffer(offsets.tobytes()), pa.py_buffer(out.tobytes()))
        found.validate(full=True)
        if len(out) <= _TEXT_BYTES_KEPT:
            self._texts = (first, end), found
        return found

    def list_of(self, number: int) -> PostingList:
        """Return the documents of the term with this number."""
        return self._list_of(self._place(number))

    def union(self, terms: Sequence[int] | Ints) -> Ints:
        """Return the documents that have any of the terms with these numbers, going up."""
        return self._union(self._places(np.asarray(terms, np.int64)))

    def _union(self, records: Ints) -> Ints:
        """Return the documents that have any of the terms whose records lie at some places."""
        if not len(records):
            return NONE
        keys, lengths = self._keys(records)
        values = keys + lengths
        self._terms.require(values, ABOUT.itemsize)
        has = np.zeros(self._documents, np.bool_)
        is_inline = self._terms.data[values] != 0
        has[self._inline_documents(values[is_inline])] = True
        single, others = self._far(values[~is_inline])
        has[single.documents] = True
        for found in others:
            for _, documents in found.blocks():
                has[documents] = True
        return np.flatnonzero(has)

    def codes(self, field: str) -> Codes:
        """Return the number of each document's term within a field, shape (documents,), -1 for none.

        Of a document with several terms, one counts.
        """
        first, end = self.range_of(field)
        codes = np.full(self._documents, -1, np.int32)
        keys, lengths = self._keys(self._places(np.arange(first, end)))
        values = keys + lengths
        self._terms.require(values, ABOUT.itemsize)
        is_inline = self._terms.data[values] != 0
        near = np.flatnonzero(is_inline)
        frequencies = numbers(self._terms.data, values[near] + _FREQUENCY, ">u4")
        codes[self._inline_documents(values[near])] = np.repeat(near, frequencies)
        far = np.flatnonzero(~is_inline)
        single, others = self._far(values[far])
        codes[single.documents] = np.repeat(far[single.is_single], single.counts)
        for code, found in zip(far[~single.is_single].tolist(), others, strict=True):
            for _, documents in found.blocks():
                codes[documents] = code
        return codes

    def _far(self, values: Ints) -> tuple[SingleBlocks, list[PostingList]]:
        """Return the lists that lie in the other file, of the terms whose values lie at some places.

        Those of one block are decoded; the others follow in the same order.
        """
        if self._layout == "bulk":
            self._terms.require(values, ABOUT.itemsize + _EXTENT.size)
            places = numbers(self._terms.data, values + ABOUT.itemsize, ">i8")
            single = single_blocks(self._postings, places, self._documents)
        else:
            single = SingleBlocks(np.zeros(len(values), np.bool_), NONE, NONE)
        size = ABOUT.itemsize + _EXTENT.size
        return single, [self._list_at(value, size) for value in values[~single.is_single].tolist()]

    def _inline_documents(self, values: Ints) -> Ints:
        """Return the documents of short lists, whose values lie at some places, one behind the other."""
        frequencies = numbers(self._terms.data, values + _FREQUENCY, ">u4")
        if len(values) and int(frequencies.max()) > self._documents:
            raise self._terms.error(int(values[0]), f"up to {self._documents} documents", f"{frequencies.max()}")
        begin = values + ABOUT.itemsize + len(DATA_OPEN)
        within = np.arange(int(frequencies.sum())) - np.repeat(starts(frequencies), frequencies)
        places = np.repeat(begin, frequencies) + within * FIRST_BYTES + 1
        self._terms.require(places, 4)
        found = numbers(self._terms.data, places, "<u4")
        if len(found) and int(found.max()) >= self._documents:
            raise self._terms.error(int(values[0]), f"documents below {self._documents}", f"{found.max()}")
        return found

    def _list_of(self, record: int) -> PostingList:
        begin, length = self._key(record)
        _, size = _KEY.unpack(self._terms.span(record, begin))
        return self._list_at(begin + length, size)

    def _list_at(self, value: int, size: int) -> PostingList:
        """Return the list of the term whose value lies at a place and has a size."""
        end = value + ABOUT.itemsize
        is_inline, _, frequency, _, _, _, first, last = _ABOUT.unpack(self._terms.span(value, end))
        if not 0 < frequency <= self._documents or last >= self._documents:
            raise self._terms.error(value, f"up to {self._documents} documents", f"{frequency} up to {last}")
        if is_inline:
            if self._layout != "bulk":
                raise self._terms.error(value, "the place of a posting list", "a list")
            return InlineList(self._terms, end, value + size, frequency)
        place, _ = _EXTENT.unpack(self._terms.span(end, end + _EXTENT.size))
        return PostingList(self._postings, self._layout, place, frequency, first, last, self._kept)

    def _find_crc(self, key: bytes) -> int | None:
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
                begin, length = self._key(record)
                if length == len(key) and terms.span(begin, begin + length) == key:
                    return int(record)
            slot = slot + 1 if slot + 1 < slots else 0
        return None

    def _find_all_crc(self, keys: Sequence[bytes], wanted: Hashes) -> Ints:
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
            records[number] = self._find_crc(keys[number]) or 0
        return self._verified(keys, records)

    def _verified(self, keys: Sequence[bytes], records: Ints) -> Ints:
        """Return the records, 0 for none, that are of the keys and not only of the same hash."""
        chosen = np.flatnonzero(records)
        found = records[chosen]
        begin, lengths = self._keys(found)
        data = self._terms.data
        places = zip(chosen.tolist(), begin.tolist(), lengths.tolist(), strict=True)
        for number, (key, start, length) in enumerate(places):
            if data[start : start + length].tobytes() != keys[key]:
                found[number] = self._find_crc(keys[key]) or 0
        kept: Ints = found[found != 0]
        return kept

    def _find_ordered(self, key: bytes) -> int | None:
        """Return where the record of a key lies, by the order of keys: for tables by another hash."""
        number = self._lower(key)
        if number == self._about.terms:
            return None
        record = self._place(number)
        begin, length = self._key(record)
        return record if self._terms.span(begin, begin + length) == key else None

    def _lower(self, key: bytes, low: int = 0, high: int | None = None) -> int:
        """Return the number of the first term that is not below a key."""
        high = self._about.terms if high is None else high
        while low < high:
            middle = (low + high) // 2
            begin, length = self._key(self._place(middle))
            if bytes(self._terms.span(begin, begin + length)) < key:
                low = middle + 1
            else:
                high = middle
        return low

    def _place(self, number: int) -> int:
        at = self._order_place + number * self._order_width
        self._terms.span(at, at + self._order_width)
        return int(self._order[number])

    def _places(self, terms: Ints) -> Ints:
        self._terms.require(self._order_place + terms * self._order_width, self._order_width)
        return self._order[terms].astype(np.int64)

    def _key(self, record: int) -> tuple[int, int]:
        """Return where the key of a record lies and how long it is."""
        length, _ = _KEY.unpack(self._terms.span(record, record + _KEY.size))
        if not 2 <= length <= _KEY_BYTES_MAX:
            raise self._terms.error(record, "a term", f"{length} bytes")
        return record + _KEY.size, length

    def _keys(self, records: Ints) -> tuple[Ints, Ints]:
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
