"""Arrays: from Arrow to numpy and back, and the copying of many byte strings at once.

Arrays change sides by their buffers, not by `to_numpy`, `asarray`, `pa.array` or `pa.scalar`, nor by a function of
Arrow that is given a Python value: each of these imports pandas where it is installed, which takes longer than a
search.

Byte strings are copied as elements of a void type of their length, so that numpy makes one copy for each, and nothing
is done byte by byte or in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Number = TypeVar("Number", bound=np.generic)
Mask = npt.NDArray[np.bool_]
_KINDS = {np.dtype(np.int32): pa.int32(), np.dtype(np.int64): pa.int64(), np.dtype(np.uint64): pa.uint64()}


def one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks or [pa.nulls(0, column.type)])


def integers(column: pa.Array | pa.ChunkedArray, kind: type[Number]) -> npt.NDArray[Number]:
    """Return whole numbers or times as they lie in memory; the value of an absent one is arbitrary."""
    array = one(column)
    # A view, not a copy. The offset matters: slices share the buffer of the array that they were cut from.
    return np.frombuffer(array.buffers()[1] or b"", kind)[array.offset : array.offset + len(array)]


def flags(column: pa.Array | pa.ChunkedArray) -> Mask:
    """Return truth values; absent ones are false."""
    array = one(column)
    validity, values = array.buffers()
    mask = _unpacked(values, array)
    return mask & _unpacked(validity, array) if array.null_count else mask


def _unpacked(buffer: pa.Buffer | None, array: pa.Array) -> Mask:
    """Return the bits of an array, which Arrow packs, lowest first, as bytes, as numpy has them."""
    end = array.offset + len(array)
    bits = np.unpackbits(np.frombuffer(buffer or b"", np.uint8), count=end, bitorder="little")
    return bits[array.offset :].view(np.bool_)


def number_scalar(value: int) -> pa.Scalar:
    """Return a whole number for Arrow's functions."""
    return to_arrow(np.array([value], np.int64))[0]


def text_scalar(value: str) -> pa.Scalar:
    """Return a text for Arrow's functions."""
    return text_array([value])[0]


def text_array(values: Sequence[str]) -> pa.StringArray:
    """Return texts as an Arrow array."""
    encoded = [value.encode("utf-8", "replace") for value in values]
    # Of 32 bits, as a string array has them: callers pass values of one query or one table.
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets.data), pa.py_buffer(b"".join(encoded)))


def to_arrow(numbers: npt.NDArray[np.generic], absent: Mask | None = None) -> pa.Array:
    """Return whole numbers as an Arrow array of the same kind; those that are `absent` as nulls."""
    packed = np.ascontiguousarray(numbers)
    # Arrow's bitmap says what is there, lowest bit first: the inverse of `absent`.
    validity = None if absent is None else pa.py_buffer(np.packbits(~absent, bitorder="little").tobytes())
    return pa.Array.from_buffers(_KINDS[packed.dtype], len(packed), [validity, pa.py_buffer(packed.data)])


Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_LONG_PIECE = 1024  # from this length on, one slice a piece costs less than sorting pieces by length


class Pieces(NamedTuple):
    """Byte strings in one array: where each begins and how long it is, shape (pieces,)."""

    data: Bytes
    places: Ints
    lengths: Ints


def starts(lengths: Ints) -> Ints:
    """Return where each piece begins when pieces of these lengths follow each other, shape (n,)."""
    places = np.zeros(len(lengths), np.int64)
    np.cumsum(lengths[:-1], out=places[1:])
    return places


def within(counts: Ints) -> Ints:
    """Return 0, 1, … count - 1 for each count, one behind the other."""
    return np.arange(int(counts.sum())) - np.repeat(starts(counts), counts)


def raw(array: npt.NDArray[np.generic]) -> Bytes:
    """Return the bytes of an array's elements, shape (n, bytes of one)."""
    packed = np.ascontiguousarray(array)
    return packed.view(np.uint8).reshape(len(packed), packed.itemsize)


def put_rows(out: Bytes, places: Ints, rows: Bytes) -> None:
    """Copy row i of `rows`, shape (n, k), to out[places[i] : places[i] + k]; k > 0."""
    if len(rows):
        width = rows.shape[1]
        # One assignment for all rows. Invariant: places do not overlap, or the order of the copies would matter.
        _windows(out, width)[places] = np.ascontiguousarray(rows).view(f"V{width}").ravel()


def put_same(out: Bytes, places: Ints, data: bytes) -> None:
    """Copy the same bytes to each of some places."""
    if len(places):
        _windows(out, len(data))[places] = np.frombuffer(data, f"V{len(data)}")[0]


def take_rows(source: Bytes, places: Ints, width: int) -> Bytes:
    """Return source[places[i] : places[i] + width] as row i, shape (n, width)."""
    if not len(places):
        return np.empty((0, width), np.uint8)
    return _windows(source, width)[places].view(np.uint8).reshape(len(places), width)


def copy_pieces(source: Bytes, source_places: Ints, out: Bytes, places: Ints, lengths: Ints) -> None:
    """Copy source[s : s + length] to out[p : p + length] for each piece."""
    short = (lengths < _LONG_PIECE) & (lengths > 0)
    for index in np.flatnonzero(lengths >= _LONG_PIECE).tolist():
        start, place, length = int(source_places[index]), int(places[index]), int(lengths[index])
        out[place : place + length] = source[start : start + length]
    chosen = np.flatnonzero(short)
    # Grouped by length: a void type has one width, so each group is a single assignment.
    order = chosen[np.argsort(lengths[chosen], kind="stable")]
    bounds = np.flatnonzero(np.diff(lengths[order], prepend=-1))
    for group in np.split(order, bounds[1:]) if len(order) else ():
        width = int(lengths[group[0]])
        _windows(out, width)[places[group]] = _windows(source, width)[source_places[group]]


def _windows(data: Bytes, width: int) -> npt.NDArray[np.void]:
    """Return a view whose element i is data[i : i + width]."""
    # Overlapping windows over the same memory: nothing is copied, and numpy checks the last place.
    return np.ndarray((max(0, len(data) - width + 1),), f"V{width}", buffer=data.data, strides=(1,))
