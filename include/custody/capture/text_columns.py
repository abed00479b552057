"""Columns of texts by their buffers: where each text begins, texts between bounds, and their bytes where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bounds = npt.NDArray[np.int32]
_BOUND_BYTES = 4


def bounds_of_texts(texts: pa.StringArray) -> Bounds:
    """Return where each text begins in the bytes of all, and the end of the last, shape (texts + 1,)."""
    if not len(texts):
        return np.zeros(1, np.int32)
    return np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, _BOUND_BYTES * texts.offset)


def texts_between(bounds: Bounds, data: bytes | pa.Buffer) -> pa.StringArray:
    """Return the texts between bounds in some bytes, which are not copied, shape (bounds - 1,)."""
    return pa.StringArray.from_buffers(len(bounds) - 1, pa.py_buffer(np.ascontiguousarray(bounds)), pa.py_buffer(data))


def bytes_of_texts(texts: pa.StringArray) -> npt.NDArray[np.uint8]:
    """Return the bytes of texts, one behind the other, where they lie."""
    bounds = bounds_of_texts(texts)
    size = int(bounds[-1] - bounds[0])
    return np.frombuffer(texts.buffers()[2], np.uint8, size, int(bounds[0])) if size else np.empty(0, np.uint8)


def views_of_texts(texts: pa.StringArray) -> Iterator[memoryview]:
    """Yield the bytes of each of some texts, none of which is null, where they lie."""
    data = memoryview(texts.buffers()[2] or b"")
    return (data[begin:end] for begin, end in pairwise(bounds_of_texts(texts).tolist()))
