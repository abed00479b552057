"""The `.trm` file: a record for each term, a hash table over them, and their order.

A record is i32 length of the key, i32 length of the value, the key (u16 number of the field, then the term) and the
value: what is known of the term, and its postings or where they lie. Whoosh calls it an ordered hash: 256 tables, by
the lowest byte of a key's hash, for finding a term; an array of the records' places for going through them in order.
"""

from __future__ import annotations

import io
import struct

import numpy as np
import numpy.typing as npt
from whoosh.filedb.structfile import StructFile

from custody.index.segment.arrays import Bytes, Ints, Pieces, copy_pieces, put, raw, starts
from custody.index.segment.checksums import Hashes, crc32_of
from custody.index.segment.lists import FieldTerms
from custody.index.segment.occurrences import Occurrences
from custody.index.segment.postings import INLINE_MAX, blocks, inline

HASH_CRC32 = 1
HEADER = struct.pack(">4sBii", b"HSH3", HASH_CRC32, 0, 0)
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
EXTENT = np.dtype([("place", ">i8"), ("length", ">i4")])
SLOT = np.dtype([("hash", ">u4"), ("place", ">i8")])
TABLE = np.dtype([("place", ">i8"), ("slots", ">i4")])
TABLES = 256
KEY_HEAD = np.dtype([("key", ">i4"), ("value", ">i4"), ("field", ">u2")])
_ORDER_TYPES = (("H", 1 << 16), ("i", 1 << 31), ("I", 1 << 32), ("q", 1 << 63))
ORDER_TYPES = {"H": ">u2", "i": ">i4", "I": ">u4", "q": ">i8"}


class DictionaryWriter:
    """Makes the dictionary field by field, and the blocks of their postings; keeps 12 bytes a term in memory."""

    def __init__(self) -> None:
        self.fields: dict[str, int] = {}
        self._size = len(HEADER)
        self._postings_size = 0
        self._places: list[Ints] = []
        self._hashes: list[Hashes] = []

    def add(self, name: str, field: FieldTerms) -> tuple[Bytes, Bytes]:
        """Return the records of a field's terms and the blocks of their postings; fields come in a fixed order."""
        number = self.fields[name] = len(self.fields)
        occurrences = None if field.positions is None else Occurrences(field.positions)
        is_inline = field.frequencies <= INLINE_MAX
        long, short = np.flatnonzero(~is_inline), np.flatnonzero(is_inline)
        far = blocks(field, long, occurrences)
        near = inline(field, short, occurrences)
        extents = np.empty(len(long), EXTENT)
        extents["place"], extents["length"] = far.places + self._postings_size, far.lengths
        records, places = _records(number, field, near, extents, short, long, _weights(field))
        self._hashes.append(_hashes(number, field))
        self._places.append(places + self._size)
        self._size += len(records)
        self._postings_size += len(far.data)
        return records, far.data

    def finish(self) -> tuple[bytes, int, str]:
        """Return what follows the records, the number of terms, and the type of the array of places."""
        places = np.concatenate([np.empty(0, np.int64), *self._places])
        tables, directory = _hash_tables(np.concatenate([np.empty(0, np.uint32), *self._hashes]), places, self._size)
        last = int(places[-1]) if len(places) else 0
        code = next(code for code, bound in _ORDER_TYPES if last < bound)
        extras = _pickled({"fieldmap": self.fields, "indextype": code, "indexlen": len(places)})
        order = places.astype(ORDER_TYPES[code]).tobytes()
        end = struct.pack(">i", len(extras) + len(order))
        return b"".join([tables.tobytes(), directory.tobytes(), extras, order, end]), len(places), code


def _weights(field: FieldTerms) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the sum and the greatest of the weights of each term's postings."""
    if field.positions is None:
        return field.frequencies.astype(np.float64), np.ones(len(field.frequencies))
    counts = field.positions.counts
    return np.add.reduceat(counts, field.first).astype(float), np.maximum.reduceat(counts, field.first).astype(float)


def _records(
    number: int,
    field: FieldTerms,
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
    heads["key"], heads["value"], heads["field"] = field.lengths + 2, tails + ABOUT.itemsize, number
    lengths = KEY_HEAD.itemsize + field.lengths + ABOUT.itemsize + tails
    places = starts(lengths)
    about = np.zeros(count, ABOUT)
    about["inline"][short] = 1
    about["weight"], about["greatest"] = weights
    about["frequency"] = field.frequencies
    about["first"] = field.documents[field.first]
    about["last"] = field.documents[field.first + field.frequencies - 1]
    out = np.empty(int(lengths.sum()), np.uint8)
    put(out, places, raw(heads))
    copy_pieces(field.text, starts(field.lengths), out, places + KEY_HEAD.itemsize, field.lengths)
    values = places + KEY_HEAD.itemsize + field.lengths
    put(out, values, raw(about))
    put(out, values[long] + ABOUT.itemsize, raw(extents))
    copy_pieces(near.data, near.places, out, values[short] + ABOUT.itemsize, near.lengths)
    return out, places


def _hashes(number: int, field: FieldTerms) -> Hashes:
    return crc32_of(field.text, starts(field.lengths), field.lengths, before=struct.pack(">H", number))


def _hash_tables(hashes: Hashes, places: Ints, begin: int) -> tuple[npt.NDArray[np.void], npt.NDArray[np.void]]:
    """Return the 256 tables and where each lies; `begin` is the place of the first.

    A table has two slots a key. A key goes into its slot or, when that is taken, into the next free one; sorted by
    slot, a key's place is the later of its slot and the place behind the key before it. What runs over a table's end
    starts again at its beginning, in the few free slots there.
    """
    table = (hashes & np.uint32(TABLES - 1)).astype(np.int64)
    counts = np.bincount(table, minlength=TABLES)
    slots = 2 * counts
    first = starts(slots)
    slot = (hashes >> np.uint32(8)).astype(np.int64) % np.maximum(slots[table], 1)
    order = np.lexsort((slot, table))
    sorted_table = table[order]
    rank = np.arange(len(order)) - starts(counts)[sorted_table]
    # One running maximum for all tables: each lies above all that came before it.
    lift = sorted_table * (int(slots.max(initial=0)) + 1)
    place = rank + np.maximum.accumulate(slot[order] - rank + lift) - lift if len(order) else rank
    out = np.zeros(int(slots.sum()), SLOT)
    fits = place < slots[sorted_table]
    target = first[sorted_table[fits]] + place[fits]
    out["hash"][target], out["place"][target] = hashes[order[fits]], places[order[fits]]
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
    buffer = io.BytesIO()
    StructFile(buffer).write_pickle(values, 2)
    return buffer.getvalue()
