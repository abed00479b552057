"""The dictionary of a shard, its `.trm` file: a record for each term, a hash table over them, and their order.

Layout: HEADER; the records; 256 hash tables and where each lies; a pickle for Whoosh; the places of all records in the
order of their keys; i32 size of the last two. A record is i32 length of the key, i32 length of the value, the key
(u16 number of the field, then the term) and the value: ABOUT, and the posting list or its EXTENT in the `.pst` file.
The lowest byte of a key's hash names its table. Whoosh calls this an ordered hash.

Whoosh's own writer hashes keys by MD5; its reader knows CRC-32 as well, which numpy computes for many keys at once.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from whoosh.filedb.structfile import StructFile
from zlib_ng import zlib_ng

from custody.index.arrays import Bytes, Ints, Pieces, copy_pieces, put_rows, raw, starts, take_rows, within
from custody.index.doc_sets import DocList, DocSet, EmptySet
from custody.index.inverted_field import InvertedField
from custody.index.manifest import Description
from custody.index.paged_file import CheckedFile, numbers_at, window
from custody.index.positions import PositionEncoder
from custody.index.postings import (
    DATA_OPEN,
    FIRST_BYTES,
    INLINE_MAX,
    NONE,
    InlineList,
    PostingList,
    PostingsCache,
    SingleBlocks,
    blocks,
    inline,
    single_blocks,
)
from custody.index.term_filter import TermFilter
from custody.index.terms import Codes, Hashes, TermSet

# The layout: shared by the writer and the readers below.
HASH_CRC32, HASH_MD5 = 1, 0
HEADER = struct.pack(">4sBii", b"HSH3", HASH_CRC32, 0, 0)
KEY_LENGTHS = struct.Struct(">ii")
"""How a record begins: the lengths of key and value."""
KEY_HEAD = np.dtype([("key", ">i4"), ("value", ">i4"), ("field", ">u2")])
FIELD_BYTES = 2
"""The number of the field, which begins each key."""
ABOUT = np.dtype(
    [
        ("inline", "u1"),
        ("weight", ">f4"),
        ("frequency", ">u4"),
        ("shortest", "u1"),
        ("longest", "u1"),
        ("greatest", ">f4"),
        ("first", ">u4"),
        ("last", ">u4"),
    ]
)
FREQUENCY_PLACE = 5
"""Where the frequency lies in ABOUT."""
ABOUT_STRUCT = struct.Struct(">BfIBBfII")
"""The same as ABOUT, for one term at a time, where numpy takes longer."""
EXTENT = np.dtype([("place", ">i8"), ("length", ">i4")])
EXTENT_STRUCT = struct.Struct(">qi")
SLOT = np.dtype([("hash", ">u4"), ("place", ">i8")])
SLOT_STRUCT = struct.Struct(">Iq")
TABLE = np.dtype([("place", ">i8"), ("slots", ">i4")])
TABLE_STRUCT = struct.Struct(">qi")
TABLES = 256
ORDER_TYPES = {"H": ">u2", "i": ">i4", "I": ">u4", "q": ">i8"}
"""Types of the places of records in the order of keys; the writer takes the first that is wide enough."""
_ORDER_BOUNDS = (("H", 1 << 16), ("i", 1 << 31), ("I", 1 << 32), ("q", 1 << 63))

_POLYNOMIAL = 0xEDB88320
_BULK = 16  # fewer keys of one length are cheaper one by one
# Far above any term; a damaged length must not make a reader take a gigabyte.
_KEY_BYTES_MAX = 1 << 20
_PROBES = 16
# Fewer keys are found sooner one by one.
_MANY_KEYS = 12
# Per open shard: together with the cached lists it bounds what a process keeps of each.
_TEXT_BYTES_KEPT = 1 << 20


class DictionaryWriter:
    """Writes the dictionary field by field, and the blocks of posting lists; keeps 12 bytes a term in memory."""

    def __init__(self) -> None:
        self.fields: dict[str, int] = {}
        self._size = len(HEADER)
        self._postings_size = 0
        self._places: list[Ints] = []
        self._hashes: list[Hashes] = []

    def add(self, name: str, field: InvertedField) -> tuple[Bytes, Bytes]:
        """Return the records of a field's terms and the blocks of their postings; fields come in a fixed order."""
        # Numbers follow the order of the fields, so that keys, which begin with the number, come sorted.
        number = self.fields[name] = len(self.fields)
        positions_encoder = None if field.positions is None else PositionEncoder(field.positions)
        # Most terms have few documents. Their lists go into the dictionary, which saves a page of the other file for
        # each of them, and half of the shard.
        is_inline = field.frequencies <= INLINE_MAX
        long, short = np.flatnonzero(~is_inline), np.flatnonzero(is_inline)
        far = blocks(field, long, positions_encoder)
        near = inline(field, short, positions_encoder)
        extents = np.empty(len(long), EXTENT)
        extents["place"], extents["length"] = far.places + self._postings_size, far.lengths
        records, places = _records(number, field, near, extents, short, long, _weights(field))
        self._hashes.append(_hashes(number, field))
        self._places.append(places + self._size)
        self._size += len(records)
        self._postings_size += len(far.data)
        return records, far.data

    def hashes(self) -> Hashes:
        """Return the CRC-32 of all keys."""
        return np.concatenate([np.empty(0, np.uint32), *self._hashes])

    def finish(self) -> tuple[bytes, int, str]:
        """Return what follows the records, the number of terms, and the type of the array of places."""
        # Fields and their terms came in order, so the records lie in the order of their keys and need no sort.
        places = np.concatenate([np.empty(0, np.int64), *self._places])
        tables, directory = _hash_tables(self.hashes(), places, self._size)
        last = int(places[-1]) if len(places) else 0
        code = next(code for code, bound in _ORDER_BOUNDS if last < bound)
        extras = _pickled({"fieldmap": self.fields, "indextype": code, "indexlen": len(places)})
        order = places.astype(ORDER_TYPES[code]).tobytes()
        end = struct.pack(">i", len(extras) + len(order))
        return b"".join([tables.tobytes(), directory.tobytes(), extras, order, end]), len(places), code


def _weights(field: InvertedField) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the sum and the greatest of the weights of each term's postings."""
    if field.positions is None:
        return field.frequencies.astype(np.float64), np.ones(len(field.frequencies))
    counts = field.positions.counts
    return np.add.reduceat(counts, field.first).astype(float), np.maximum.reduceat(counts, field.first).astype(float)


def _records(
    number: int,
    field: InvertedField,
    near: Pieces,
    extents: npt.NDArray[np.void],
    short: Ints,
    long: Ints,
    weights: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]],
) -> tuple[Bytes, Ints]:
    """Return the records of a field's terms and where each begins."""
    count = len(field.lengths)
    tails = np.full(count, EXTENT.itemsize, np.int64)
    tails[short] = near.lengths
    heads = np.empty(count, KEY_HEAD)
    heads["key"], heads["value"], heads["field"] = field.lengths + FIELD_BYTES, tails + ABOUT.itemsize, number
    lengths = KEY_HEAD.itemsize + field.lengths + ABOUT.itemsize + tails
    places = starts(lengths)
    about = np.zeros(count, ABOUT)
    about["inline"][short] = 1
    about["weight"], about["greatest"] = weights
    about["frequency"] = field.frequencies
    about["first"] = field.documents[field.first]
    about["last"] = field.documents[field.first + field.frequencies - 1]
    out = np.empty(int(lengths.sum()), np.uint8)
    put_rows(out, places, raw(heads))
    copy_pieces(field.text, starts(field.lengths), out, places + KEY_HEAD.itemsize, field.lengths)
    values = places + KEY_HEAD.itemsize + field.lengths
    put_rows(out, values, raw(about))
    put_rows(out, values[long] + ABOUT.itemsize, raw(extents))
    copy_pieces(near.data, near.places, out, values[short] + ABOUT.itemsize, near.lengths)
    return out, places


def _hashes(number: int, field: InvertedField) -> Hashes:
    return crc32_of(field.text, starts(field.lengths), field.lengths, before=struct.pack(">H", number))


def _hash_tables(hashes: Hashes, places: Ints, begin: int) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """Return the 256 tables and where each lies; `begin` is the place of the first.

    A table has two slots a key. A key goes into its slot or, when that is taken, into the next free one; sorted by
    slot, a key's place is the later of its slot and the place behind the key before it. What runs over a table's end
    starts again at its beginning, in the few free slots there.
    """
    table = (hashes & np.uint32(TABLES - 1)).astype(np.int64)
    counts = np.bincount(table, minlength=TABLES)
    # Twice as many slots as keys, as Whoosh makes them: probes stay short, and an empty slot ends each search.
    slots = 2 * counts
    first = starts(slots)
    slot = (hashes >> np.uint32(8)).astype(np.int64) % np.maximum(slots[table], 1)
    # All tables at once: by table, then by slot, which is the order in which keys fill them.
    order = np.lexsort((slot, table))
    sorted_table = table[order]
    rank = np.arange(len(order)) - starts(counts)[sorted_table]
    # One running maximum serves all tables, because the lift puts each table above those before it.
    lift = sorted_table * (int(slots.max(initial=0)) + 1)
    place = rank + np.maximum.accumulate(slot[order] - rank + lift) - lift if len(order) else rank
    out = np.zeros(int(slots.sum()), SLOT)
    fits = place < slots[sorted_table]
    target = first[sorted_table[fits]] + place[fits]
    out["hash"][target], out["place"][target] = hashes[order[fits]], places[order[fits]]
    # Rare: only keys that run over the end of their table. Each table has as many free slots as keys, so one is
    # found.
    for index in np.flatnonzero(~fits).tolist():
        key = int(order[index])
        free = int(first[table[key]])
        while out["place"][free]:
            free += 1
        out[free] = hashes[key], places[key]
    directory = np.empty(TABLES, TABLE)
    directory["place"], directory["slots"] = begin + first * SLOT.itemsize, slots
    return out, directory


def _pickled(values: dict[str, object]) -> bytes:
    """Return plain values as Whoosh keeps them beside a hash table."""
    # Written by Whoosh, because Whoosh alone reads it; custody takes the same facts from the manifest.
    buffer = io.BytesIO()
    StructFile(buffer).write_pickle(values, 2)
    return buffer.getvalue()


class Dictionary:
    """The terms of all fields; may be used by several threads."""

    def __init__(
        self,
        terms: CheckedFile,
        postings: CheckedFile,
        description: Description,
        term_filter: TermFilter | None = None,
    ) -> None:
        self._terms = terms
        self._postings = postings
        self._filter = term_filter
        self._documents = description.documents
        self._fields = description.fields
        self._layout: Literal["bulk", "stock"] = "bulk" if description.layout == "bulk" else "stock"
        self._records = _Records(terms, description)
        self._ranges: dict[str, tuple[int, int]] = {}
        self.kept = PostingsCache()
        self._texts: tuple[tuple[int, int], pa.StringArray] = (-1, -1), pa.nulls(0, pa.string())

    def find(self, field: str, term: bytes) -> PostingList | None:
        """Return a term's documents, None when no document has it."""
        number = self._fields.get(field)
        if number is None:
            return None
        record = self._records.find(number.to_bytes(FIELD_BYTES, "big") + term)
        return None if record is None else self._list_of(record)

    def placed(self, field: str, word: bytes) -> PostingList | None:
        """Return a word's documents with its places in them, None when no document has it."""
        return self.find(field, word)

    def candidates(self, field: str, term_set: TermSet) -> Ints | None:
        """Return the numbers of those of some terms that the shard may have; None for all of them."""
        number = self._fields.get(field)
        if number is None:
            return NONE
        if self._filter is None:
            return None
        return self._filter.candidates(term_set, number.to_bytes(FIELD_BYTES, "big"))

    def union_of(self, field: str, term_set: TermSet, chosen: Ints | None = None) -> DocSet:
        """Return the documents that have any of some terms, or of those with some numbers; many are found at once."""
        number = self._fields.get(field)
        if number is None:
            return EmptySet()
        keys, hashes = term_set.hashed(number.to_bytes(FIELD_BYTES, "big"))
        if chosen is not None and len(chosen) < len(keys):
            keys, hashes = [keys[term] for term in chosen.tolist()], hashes[chosen]
        return DocList(self._union(*self._records.find_all(keys, hashes)))

    def range_of(self, field: str) -> tuple[int, int]:
        """Return the numbers of a field's terms in the order of all terms: the first, and the one behind the last."""
        bounds = self._ranges.get(field)
        if bounds is None:
            number = self._fields.get(field)
            bounds = (0, 0)
            if number is not None:
                bounds = (
                    self._records.lower(number.to_bytes(FIELD_BYTES, "big")),
                    self._records.lower((number + 1).to_bytes(FIELD_BYTES, "big")),
                )
            self._ranges[field] = bounds
        return bounds

    def between(
        self, field: str, low: bytes | None, high: bytes | None, *, after_low: bool = False, with_high: bool = False
    ) -> tuple[int, int]:
        """Return the numbers of the terms from `low` to before `high`; without an end, to the field's."""
        first, end = self.range_of(field)
        if first == end:
            return 0, 0
        prefix = self._fields[field].to_bytes(FIELD_BYTES, "big")
        if low is not None:
            # A zero byte behind a term gives the smallest key above it: so bounds can leave out the term itself.
            first = self._records.lower(prefix + low + (b"\0" if after_low else b""), first, end)
        if high is not None:
            end = self._records.lower(prefix + high + (b"\0" if with_high else b""), first, end)
        return first, max(first, end)

    def with_prefix(self, field: str, prefix: bytes) -> tuple[int, int]:
        """Return the numbers of the terms that begin with some bytes."""
        return self.between(field, prefix, above_all_with(prefix))

    def texts(self, first: int, end: int) -> pa.StringArray:
        """Return the terms with these numbers, in order; the last answer is kept when it is small."""
        bounds, last_terms = self._texts
        # Without a lock: one tuple is read and replaced as a whole, so another thread sees the old pair or the new one.
        if bounds == (first, end):
            return last_terms
        keys, lengths = self._records.keys(self._records.places(np.arange(first, end)))
        sizes = lengths - FIELD_BYTES
        out = np.empty(int(sizes.sum()), np.uint8)
        begin = starts(sizes)
        self._terms.require(keys, FIELD_BYTES)
        copy_pieces(self._terms.data, keys + FIELD_BYTES, out, begin, sizes)
        offsets = np.append(begin, len(out)).astype(np.int32)
        terms = pa.StringArray.from_buffers(end - first, pa.py_buffer(offsets.tobytes()), pa.py_buffer(out.tobytes()))
        # The bytes have the right checksums but may be forged: invalid UTF-8 would go wrong deep inside Arrow.
        terms.validate(full=True)
        if len(out) <= _TEXT_BYTES_KEPT:
            self._texts = (first, end), terms
        return terms

    def list_of(self, number: int) -> PostingList:
        """Return the documents of the term with this number."""
        return self._list_of(self._records.place(number))

    def frequencies(self, first: int, end: int) -> Ints:
        """Return how many documents each of the terms with these numbers has."""
        return np.array([self.list_of(number).frequency for number in range(first, end)], np.int64)

    def union(self, terms: Ints) -> DocSet:
        """Return the documents that have any of the terms with these numbers."""
        return DocList(self._union(*self._records.keys(self._records.places(terms))))

    def _union(self, keys: Ints, lengths: Ints) -> Ints:
        """Return the documents that have any of the terms whose keys lie at some places and have some lengths."""
        if not len(keys):
            return NONE
        values = keys + lengths
        self._terms.require(values, ABOUT.itemsize)
        # One flag a document: a union of many lists needs no sorting, and its cost does not grow with overlaps.
        has = np.zeros(self._documents, np.bool_)
        is_inline = self._terms.data[values] != 0
        has[self._inline_documents(values[is_inline])] = True
        single, others = self._far(values[~is_inline])
        has[single.documents] = True
        for postings in others:
            for documents in postings.blocks():
                has[documents] = True
        return np.flatnonzero(has)

    def codes(self, field: str) -> Codes:
        """Return the number of each document's term within a field, shape (documents,), -1 for none.

        Of a document with several terms, one counts.
        """
        first, end = self.range_of(field)
        # Facets are counted from this array alone, so a query pays for its documents and not for the terms of the
        # field.
        codes = np.full(self._documents, -1, np.int32)
        keys, lengths = self._records.keys(self._records.places(np.arange(first, end)))
        values = keys + lengths
        self._terms.require(values, ABOUT.itemsize)
        is_inline = self._terms.data[values] != 0
        near = np.flatnonzero(is_inline)
        frequencies = numbers_at(self._terms.data, values[near] + FREQUENCY_PLACE, ">u4")
        codes[self._inline_documents(values[near])] = np.repeat(near, frequencies)
        far = np.flatnonzero(~is_inline)
        single, others = self._far(values[far])
        codes[single.documents] = np.repeat(far[single.is_single], single.counts)
        for code, postings in zip(far[~single.is_single].tolist(), others, strict=True):
            for documents in postings.blocks():
                codes[documents] = code
        return codes

    def _far(self, values: Ints) -> tuple[SingleBlocks, list[PostingList]]:
        """Return the lists that lie in the other file, of the terms whose values lie at some places.

        Those of one block are decoded; the others follow in the same order.
        """
        if self._layout == "bulk":
            self._terms.require(values, ABOUT.itemsize + EXTENT_STRUCT.size)
            places = numbers_at(self._terms.data, values + ABOUT.itemsize, ">i8")
            single = single_blocks(self._postings, places, self._documents)
        else:
            single = SingleBlocks(np.zeros(len(values), np.bool_), NONE, NONE)
        size = ABOUT.itemsize + EXTENT_STRUCT.size
        return single, [self._list_at(value, size) for value in values[~single.is_single].tolist()]

    def _inline_documents(self, values: Ints) -> Ints:
        """Return the documents of short lists, whose values lie at some places, one behind the other."""
        frequencies = numbers_at(self._terms.data, values + FREQUENCY_PLACE, ">u4")
        # Before `repeat` takes memory for them: a forged frequency could ask for any amount.
        if len(values) and int(frequencies.max()) > self._documents:
            raise self._terms.error(int(values[0]), f"up to {self._documents} documents", f"{frequencies.max()}")
        begin = values + ABOUT.itemsize + len(DATA_OPEN)
        places = np.repeat(begin, frequencies) + within(frequencies) * FIRST_BYTES + 1
        self._terms.require(places, 4)
        documents = numbers_at(self._terms.data, places, "<u4")
        if len(documents) and int(documents.max()) >= self._documents:
            raise self._terms.error(int(values[0]), f"documents below {self._documents}", f"{documents.max()}")
        return documents

    def _list_of(self, record: int) -> PostingList:
        return self._list_at(*self._records.value_of(record))

    def _list_at(self, value: int, size: int) -> PostingList:
        """Return the list of the term whose value lies at a place and has a size."""
        end = value + ABOUT.itemsize
        is_inline, _, frequency, _, _, _, first, last = ABOUT_STRUCT.unpack(self._terms.span(value, end))
        # Checked once here, so that the sets above may index arrays of documents without looking again.
        if not 0 < frequency <= self._documents or last >= self._documents:
            raise self._terms.error(value, f"up to {self._documents} documents", f"{frequency} up to {last}")
        if is_inline:
            if self._layout != "bulk":
                raise self._terms.error(value, "the place of a posting list", "a list")
            return InlineList(self._terms, end, value + size, frequency)
        place, _ = EXTENT_STRUCT.unpack(self._terms.span(end, end + EXTENT_STRUCT.size))
        return PostingList(self._postings, self._layout, place, frequency, first, last, self.kept)


class _Records:
    """The records of all terms. A record is named by its place in the file; a key is a field's number and a term."""

    def __init__(self, terms: CheckedFile, description: Description) -> None:
        self._terms = terms
        self._count = description.terms
        head = bytes(terms.span(0, len(HEADER)))
        if head[:4] != HEADER[:4] or head[4] not in (HASH_CRC32, HASH_MD5):
            raise terms.error(0, "a dictionary of terms", repr(head))
        self._hash_type = head[4]
        order_type = ORDER_TYPES.get(str(description.order_type))
        if order_type is None:
            raise terms.error(0, "an array of places", f"type {description.order_type!r}")
        extras = struct.unpack(">i", terms.span(terms.size - 4, terms.size))[0]
        self._directory = terms.size - 4 - extras - TABLES * TABLE.itemsize
        terms.span(self._directory, self._directory + TABLES * TABLE.itemsize)
        width = np.dtype(order_type).itemsize
        order = terms.size - 4 - description.terms * width
        # The array is long and a search looks at few of its places: each page is checked when it is looked at.
        self._order_place, self._order_width = order, width
        # The number of terms comes from the manifest, the size from the file: they have to fit each other.
        if order < self._directory:
            raise terms.error(order, "an array of places", f"{description.terms} terms")
        self._order = np.frombuffer(terms.data, order_type, description.terms, order)

    def find(self, key: bytes) -> int | None:
        """Return where the record of a key lies, None when there is none."""
        return self._find_by_hash(key) if self._hash_type == HASH_CRC32 else self._find_by_order(key)

    def find_all(self, keys: Sequence[bytes], hashes: Hashes) -> tuple[Ints, Ints]:
        """Return where those of some keys lie that are there, and their lengths; `hashes` are the CRC-32 of each."""
        if self._hash_type == HASH_CRC32 and len(keys) >= _MANY_KEYS:
            return self._find_all_by_hash(keys, hashes)
        records = map(self.find, keys)
        return self.keys(np.array([record for record in records if record is not None], np.int64))

    def _find_by_hash(self, key: bytes) -> int | None:
        """Return where the record of a key lies, by its hash."""
        terms, key_hash = self._terms, zlib_ng.crc32(key)
        table = self._directory + (key_hash & (TABLES - 1)) * TABLE_STRUCT.size
        place, slots = TABLE_STRUCT.unpack(terms.span(table, table + TABLE_STRUCT.size))
        if slots <= 0:
            return None
        slot = (key_hash >> 8) % slots
        # Bounded by the table: a damaged one without an empty slot must not loop for ever.
        for _ in range(slots):
            at = place + slot * SLOT.itemsize
            slot_hash, record = SLOT_STRUCT.unpack(terms.span(at, at + SLOT.itemsize))
            if not record:
                return None
            if slot_hash == key_hash:
                begin, length = self.key(record)
                if length == len(key) and terms.span(begin, begin + length) == key:
                    return int(record)
            slot = slot + 1 if slot + 1 < slots else 0
        return None

    def _find_all_by_hash(self, keys: Sequence[bytes], hashes: Hashes) -> tuple[Ints, Ints]:
        """Return where those of some keys lie that are there, and their lengths."""
        terms = self._terms
        terms.span(self._directory, self._directory + TABLES * TABLE.itemsize)
        tables = np.frombuffer(terms.data, TABLE, TABLES, self._directory)[hashes & np.uint32(TABLES - 1)]
        place, slots = tables["place"].astype(np.int64), tables["slots"].astype(np.int64)
        slot = (hashes >> np.uint32(8)).astype(np.int64) % np.maximum(slots, 1)
        records = np.zeros(len(keys), np.int64)
        in_table = np.flatnonzero(slots > 0)
        # The next slots of all keys at once: a key is in the first slot with its hash, if none before that is empty.
        # Tables are half empty, so nearly every key is found, or missed, within _PROBES slots; the rest go one by
        # one.
        nearby = (slot[in_table, None] + np.arange(_PROBES)) % slots[in_table, None]
        at = place[in_table, None] + nearby * SLOT.itemsize
        terms.require(at.ravel(), SLOT.itemsize)
        near_slots = window(terms.data, SLOT)[at]
        is_empty = near_slots["place"] == 0
        is_end = is_empty | (near_slots["hash"] == hashes[in_table, None])
        first = is_end.argmax(axis=1)
        row = np.arange(len(in_table))
        is_hit = is_end[row, first] & ~is_empty[row, first]
        records[in_table[is_hit]] = near_slots["place"][row, first][is_hit]
        for number in in_table[~is_end[row, first]].tolist():
            records[number] = self._find_by_hash(keys[number]) or 0
        return self._verified(keys, records)

    def _verified(self, keys: Sequence[bytes], records: Ints) -> tuple[Ints, Ints]:
        """Return where the keys of records lie, 0 for none, that are of the keys and not only of the same hash."""
        chosen = np.flatnonzero(records)
        checked = records[chosen]
        begin, lengths = self.keys(checked)
        data = self._terms.data
        others = {}
        places = zip(chosen.tolist(), begin.tolist(), lengths.tolist(), strict=True)
        for number, (key, start, length) in enumerate(places):
            if data[start : start + length].tobytes() != keys[key]:
                others[number] = self._find_by_hash(keys[key]) or 0
        if not others:
            return begin, lengths
        checked[list(others)] = list(others.values())
        return self.keys(checked[checked != 0])

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
        _, size = KEY_LENGTHS.unpack(self._terms.span(record, begin))
        return begin + length, size

    def key(self, record: int) -> tuple[int, int]:
        """Return where the key of a record lies and how long it is."""
        length, _ = KEY_LENGTHS.unpack(self._terms.span(record, record + KEY_LENGTHS.size))
        if not FIELD_BYTES <= length <= _KEY_BYTES_MAX:
            raise self._terms.error(record, "a term", f"{length} bytes")
        return record + KEY_LENGTHS.size, length

    def keys(self, records: Ints) -> tuple[Ints, Ints]:
        """Return where the keys of some records lie and how long they are."""
        self._terms.require(records, KEY_LENGTHS.size)
        lengths = numbers_at(self._terms.data, records, ">i4")
        if len(lengths) and not 2 <= int(lengths.min()) <= int(lengths.max()) <= _KEY_BYTES_MAX:
            raise self._terms.error(int(records[0]), "terms", "another length")
        # Later the whole key is read. A short one spans two pages at most, those of its first and its last byte.
        if len(lengths) and int(lengths.max()) > 1 << 13:
            for record, length in zip(records.tolist(), lengths.tolist(), strict=True):
                self._terms.span(record, record + KEY_LENGTHS.size + length)
        else:
            self._terms.require(records + KEY_LENGTHS.size + lengths - 1, 1)
        return records + KEY_LENGTHS.size, lengths


def above_all_with(prefix: bytes) -> bytes | None:
    """Return the first bytes above all that begin with a prefix; None where there are none."""
    # Its last byte plus one; a byte 0xff cannot be raised, so it is dropped before.
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


def crc32_of(keys: Bytes, places: Ints, lengths: Ints, before: bytes = b"") -> Hashes:
    """Return the CRC-32 of `before` followed by keys[place : place + length], for each key."""
    start = zlib_ng.crc32(before)
    hashes = np.full(len(lengths), start, np.uint32)
    order = np.argsort(lengths, kind="stable")
    bounds = np.flatnonzero(np.diff(lengths[order], prepend=-1))
    for group in np.split(order, bounds[1:]) if len(order) else ():
        width = int(lengths[group[0]])
        if width == 0:
            continue
        if len(group) < _BULK:
            for index in group.tolist():
                place = int(places[index])
                hashes[index] = zlib_ng.crc32(keys[place : place + width].data, start)
        else:
            hashes[group] = _columns(take_rows(keys, places[group], width), start)
    return hashes


def _columns(keys: Bytes, start: int) -> Hashes:
    """Return the CRC-32 of each row, shape (rows,), going over the columns."""
    state = np.full(len(keys), start ^ 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(keys.T):
        state = _TABLE[(state ^ column) & np.uint32(0xFF)] ^ (state >> np.uint32(8))
    return state ^ np.uint32(0xFFFFFFFF)


def _table() -> Hashes:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> np.uint32(1)) ^ np.uint32(_POLYNOMIAL), table >> np.uint32(1))
    return table


_TABLE = _table()
