"""The terms of a shard: one or many of them, ranges of them by their order, and the documents that have each."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from custody.index.manifest import Description
from custody.index.reader.lists import KeptLists
from custody.index.reader.pages import CheckedFile, numbers
from custody.index.reader.postings import NONE, InlineList, PostingList
from custody.index.reader.records import Records
from custody.index.reader.single import SingleBlocks, single_blocks
from custody.index.reader.wanted import TermSet
from custody.index.segment.arrays import Ints, copy_pieces, starts
from custody.index.segment.dictionary import ABOUT
from custody.index.segment.postings import DATA_OPEN, FIRST_BYTES
from custody.index.values import Codes

_ABOUT = struct.Struct(">BfIBBfII")
_EXTENT = struct.Struct(">qi")
_TEXT_BYTES_KEPT = 1 << 20
_FREQUENCY = 5  # where it stands in ABOUT


class Dictionary:
    """The terms of all fields; may be used by several threads."""

    def __init__(self, terms: CheckedFile, postings: CheckedFile, description: Description) -> None:
        self._terms = terms
        self._postings = postings
        self._documents = description.documents
        self._fields = description.fields
        self._layout: Literal["bulk", "stock"] = description.layout
        self._records = Records(terms, description)
        self._ranges: dict[str, tuple[int, int]] = {}
        self._kept = KeptLists()
        self._texts: tuple[tuple[int, int], pa.StringArray] = (-1, -1), pa.nulls(0, pa.string())

    def find(self, field: str, term: bytes) -> PostingList | None:
        """Return a term's documents, None when no document has it."""
        number = self._fields.get(field)
        if number is None:
            return None
        record = self._records.find(number.to_bytes(2, "big") + term)
        return None if record is None else self._list_of(record)

    def union_of(self, field: str, wanted: TermSet) -> Ints:
        """Return the documents that have any of some terms, going up; many terms are found at once."""
        number = self._fields.get(field)
        if number is None:
            return NONE
        keys, hashes = wanted.hashed(number.to_bytes(2, "big"))
        return self._union(self._records.find_all(keys, hashes))

    def range_of(self, field: str) -> tuple[int, int]:
        """Return the numbers of a field's terms in the order of all terms: the first, and the one behind the last."""
        found = self._ranges.get(field)
        if found is None:
            number = self._fields.get(field)
            found = (0, 0)
            if number is not None:
                found = (
                    self._records.lower(number.to_bytes(2, "big")),
                    self._records.lower((number + 1).to_bytes(2, "big")),
                )
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
            first = self._records.lower(prefix + low + (b"\0" if after_low else b""), first, end)
        if high is not None:
            end = self._records.lower(prefix + high + (b"\0" if with_high else b""), first, end)
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
        keys, lengths = self._records.keys(self._records.places(np.arange(first, end)))
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
        return self._list_of(self._records.place(number))

    def union(self, terms: Sequence[int] | Ints) -> Ints:
        """Return the documents that have any of the terms with these numbers, going up."""
        return self._union(self._records.places(np.asarray(terms, np.int64)))

    def _union(self, records: Ints) -> Ints:
        """Return the documents that have any of the terms whose records lie at some places."""
        if not len(records):
            return NONE
        keys, lengths = self._records.keys(records)
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
        keys, lengths = self._records.keys(self._records.places(np.arange(first, end)))
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
        return self._list_at(*self._records.value_of(record))

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
