"""Between Arrow's arrays and numpy's, by their buffers.

Not by `to_numpy`, `asarray`, `pa.array`, `pa.scalar`, or a function of Arrow given a Python value: each imports pandas
where there is one, which takes longer than a search.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

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
    """Return whole numbers or times as they lie in memory; what an absent one says means nothing."""
    array = one(column)
    return np.frombuffer(array.buffers()[1] or b"", kind)[array.offset : array.offset + len(array)]


def flags(column: pa.Array | pa.ChunkedArray) -> Mask:
    """Return truth values; absent ones are false."""
    array = one(column)
    found = integers(array.cast(pa.uint8()), np.uint8).astype(np.bool_)
    return found & integers(array.is_valid().cast(pa.uint8()), np.uint8).astype(np.bool_) if array.null_count else found


def number(value: int) -> pa.Scalar:
    """Return a whole number for Arrow's functions."""
    return to_arrow(np.array([value], np.int64))[0]


def text(value: str) -> pa.Scalar:
    """Return a text for Arrow's functions."""
    return texts([value])[0]


def texts(values: Sequence[str]) -> pa.StringArray:
    """Return texts as an Arrow array."""
    encoded = [value.encode("utf-8", "replace") for value in values]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int32)
    return pa.StringArray.from_buffers(len(encoded), pa.py_buffer(offsets.data), pa.py_buffer(b"".join(encoded)))


def to_arrow(numbers: npt.NDArray[np.generic], absent: Mask | None = None) -> pa.Array:
    """Return whole numbers as an Arrow array of the same kind; those that are `absent` as nulls."""
    packed = np.ascontiguousarray(numbers)
    validity = None if absent is None else pa.py_buffer(np.packbits(~absent, bitorder="little").tobytes())
    return pa.Array.from_buffers(_KINDS[packed.dtype], len(packed), [validity, pa.py_buffer(packed.data)])
