"""Bytes of many records moved at once: rows of a matrix, and pieces of different lengths, to given places.

A piece of k bytes is moved as one element of a k-byte void type, so that numpy does one copy a piece and nothing is
done byte by byte or in Python.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

_LONG_PIECE = 1024  # from here on a slice each costs less than sorting pieces by length


class Pieces(NamedTuple):
    """Bytes, and where in them each of some pieces begins and how long it is, shape (pieces,)."""

    data: Bytes
    places: Ints
    lengths: Ints


def starts(lengths: Ints) -> Ints:
    """Return where each piece begins when pieces of these lengths lie one behind the other, shape (n,)."""
    found = np.zeros(len(lengths), np.int64)
    np.cumsum(lengths[:-1], out=found[1:])
    return found


def raw(array: npt.NDArray[np.generic]) -> Bytes:
    """Return the bytes of an array's elements, shape (n, bytes of one)."""
    packed = np.ascontiguousarray(array)
    return packed.view(np.uint8).reshape(len(packed), packed.itemsize)


def put(out: Bytes, places: Ints, rows: Bytes) -> None:
    """Copy row i of `rows`, shape (n, k), to out[places[i] : places[i] + k]; k > 0."""
    if len(rows):
        width = rows.shape[1]
        _windows(out, width)[places] = np.ascontiguousarray(rows).view(f"V{width}").ravel()


def put_same(out: Bytes, places: Ints, data: bytes) -> None:
    """Copy the same bytes to each of some places."""
    if len(places):
        _windows(out, len(data))[places] = np.frombuffer(data, f"V{len(data)}")[0]


def take(source: Bytes, places: Ints, width: int) -> Bytes:
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
    order = chosen[np.argsort(lengths[chosen], kind="stable")]
    bounds = np.flatnonzero(np.diff(lengths[order], prepend=-1))
    for group in np.split(order, bounds[1:]) if len(order) else ():
        width = int(lengths[group[0]])
        _windows(out, width)[places[group]] = _windows(source, width)[source_places[group]]


def _windows(data: Bytes, width: int) -> npt.NDArray[np.void]:
    """Return a view whose element i is data[i : i + width]."""
    return np.ndarray((max(0, len(data) - width + 1),), f"V{width}", buffer=data.data, strides=(1,))
