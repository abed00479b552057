"""CRC-32 of many keys at once: the hash by which a term is found in the dictionary.

Whoosh's own writer hashes keys by MD5. Its reader knows CRC-32 as well, which an array of keys can share the work of:
keys of one length are a matrix, and the checksum goes over its columns.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from custody.index.segment.arrays import Bytes, Ints, take

Hashes = npt.NDArray[np.uint32]

_POLYNOMIAL = 0xEDB88320
_BULK = 16  # fewer keys of one length are cheaper one by one


def _table() -> Hashes:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> np.uint32(1)) ^ np.uint32(_POLYNOMIAL), table >> np.uint32(1))
    return table


_TABLE = _table()


def crc32_of(keys: Bytes, places: Ints, lengths: Ints, before: bytes = b"") -> Hashes:
    """Return the CRC-32 of `before` followed by keys[place : place + length], for each key."""
    begun = zlib.crc32(before)
    found = np.full(len(lengths), begun, np.uint32)
    order = np.argsort(lengths, kind="stable")
    bounds = np.flatnonzero(np.diff(lengths[order], prepend=-1))
    for group in np.split(order, bounds[1:]) if len(order) else ():
        width = int(lengths[group[0]])
        if width == 0:
            continue
        if len(group) < _BULK:
            for index in group.tolist():
                place = int(places[index])
                found[index] = zlib.crc32(keys[place : place + width].data, begun)
        else:
            found[group] = _columns(take(keys, places[group], width), begun)
    return found


def _columns(keys: Bytes, begun: int) -> Hashes:
    """Return the CRC-32 of each row, shape (rows,), going over the columns."""
    state = np.full(len(keys), begun ^ 0xFFFFFFFF, np.uint32)
    for column in np.ascontiguousarray(keys.T):
        state = _TABLE[(state ^ column) & np.uint32(0xFF)] ^ (state >> np.uint32(8))
    return state ^ np.uint32(0xFFFFFFFF)
