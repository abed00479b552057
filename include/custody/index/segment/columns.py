"""Columns: one number a document, big-endian, so that a document's number is found by its place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from custody.index.fields import ABSENT
from custody.index.manifest import ZONE_DOCUMENTS, Zones

_SIGN = np.uint64(1 << 63)
_OFFSETS_FROM = 1 << 15  # Whoosh writes where each value begins only for more documents than these


def sortable_column(numbers: npt.NDArray[np.int64]) -> bytes:
    """Return a column of a NUMERIC field: the sign bit turned over, so that bytes sort as numbers do."""
    return (numbers.view(np.uint64) ^ _SIGN).astype(">u8").tobytes()


def plain_column(numbers: npt.NDArray[np.int64]) -> bytes:
    """Return a column of signed or unsigned numbers as they are."""
    return numbers.astype(">i8").tobytes()


def zones(numbers: npt.NDArray[np.int64]) -> Zones:
    """Return the smallest and greatest number of each stretch of documents, shape (2, zones)."""
    if not len(numbers):
        return np.empty((2, 0), np.int64)
    begin = np.arange(0, len(numbers), ZONE_DOCUMENTS)
    smallest = np.minimum.reduceat(numbers, begin)  # what is absent is the greatest number of all
    present = np.where(numbers == ABSENT, np.iinfo(np.int64).min, numbers)
    return np.stack([smallest, np.maximum.reduceat(present, begin)])


def empty_stored(documents: int) -> bytes:
    """Return the column of stored fields, which Whoosh wants to be there: for each document nothing.

    It is an array of lengths, an array of offsets when there are many documents, and their types.
    """
    return bytes(documents) + (bytes(documents) + b"BBX" if documents > _OFFSETS_FROM else b"B")
