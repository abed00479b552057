"""Arrow arrays of Python values, made of buffers.

Arrow imports pandas, where it is installed, the first time that it is given a list, a number or an array of numpy, to
see whether it is one of pandas' own; so do its answers as arrays of numpy. The import takes 0.4 s of CPU, more than a
whole pass. A command and a job refuse pandas in their own process. The library must not: what Arrow once knows of
pandas it knows for good, and a program that imports pandas later would find its values misread. So what lies on the
ways of every program is made here, of the buffers that an array consists of. Where pandas is imported already, or is
not to be had, Arrow does it.

Value by value Arrow is quicker: 3.1 µs for the columns of an event where these took 4.5. So a program that has made as
many values here as cost it about the import lets Arrow do the rest, pandas and all: it never pays twice what it could
have. Texts of many events are joined (`custody.model.joined_texts`), which takes no longer than in Arrow.
"""

from __future__ import annotations

import importlib.util
import sys
from array import array
from collections.abc import Sequence
from functools import cache
from itertools import repeat
from operator import is_not
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

VALUES_MAX = 8_000_000
"""So many take 0.3 s more here than in Arrow, about as long as the import of pandas. Joined texts are not counted."""
_INT32_MAX = (1 << 31) - 1
_TEXT, _BINARY, _FLAG = pa.string(), pa.binary(), pa.bool_()
_NUMBER, _INTEGER, _TIME = pa.float64(), pa.int64(), pa.timestamp("ms")


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return values and None as an array: what `pa.array` returns, and where it refuses a value, as it does.

    Texts, bytes, flags, floats, 64-bit integers and timestamps of integers are made without Arrow; all else by it.
    """
    if _is_left_to_arrow(len(values)):
        return pa.array(values, kind)
    if not values:
        return pa.nulls(0, kind)
    try:
        return _of_buffers(values, kind)
    except (TypeError, OverflowError):
        return pa.array(values, kind)  # Arrow may know what it is, or says what is wrong with it


def exact_texts(values: Sequence[Any]) -> pa.Array | None:
    """Return texts and None as an array of texts; None where one of the values is something else.

    Raises:
        UnicodeEncodeError, OverflowError, pa.ArrowException: a text is no valid Unicode, or there is too much of it.
    """
    if _is_left_to_arrow(len(values)):
        # Arrow finds out what the values are. Asked for texts it would take bytes, too.
        column = pa.array(values)
        if column.type == _TEXT:
            return column
        return column.cast(_TEXT) if pa.types.is_null(column.type) else None
    try:
        return _of_texts(values)
    except TypeError:
        return None


def offsets_of(lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    """Return where each of some lists, or texts, begins, and the end of the last.

    Raises:
        OverflowError: there is more than an array holds.
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > _INT32_MAX:
        raise OverflowError(f"expected at most {_INT32_MAX} bytes or elements in a column, got {offsets[-1]}")
    return offsets.astype(np.int32)


class _Made:
    """How many values this process has made here. Threads may lose each other's: nothing hangs on the exact number."""

    values = 0


def _is_left_to_arrow(values: int) -> bool:
    """Whether Arrow makes an array of so many values."""
    if "pandas" in sys.modules or not _may_import_pandas():
        return True
    _Made.values += values
    return _Made.values > VALUES_MAX


@cache
def _may_import_pandas() -> bool:
    try:
        return importlib.util.find_spec("pandas") is not None
    except ModuleNotFoundError:
        return False  # refused, as commands do


def _of_buffers(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return an array made of its buffers; raises TypeError for values, or a kind, that it is not made for."""
    if kind == _TEXT:
        return _of_texts(values)
    there, filled = _filled(values, _FILLINGS.get(kind.id))
    if kind == _BINARY:
        return _joined(kind, there, b"".join(filled), filled)
    # By the types: for Python a flag is a number as well.
    kinds = set(map(type, filled))
    buffer: object
    if kind.id in (_INTEGER.id, _TIME.id) and kinds <= {int}:
        buffer = array("q", filled)
    elif kind == _NUMBER and kinds <= {float}:
        buffer = array("d", filled)
    elif kind == _FLAG and kinds <= {bool}:
        buffer = _bits(np.fromiter(filled, np.bool_, len(filled)))
    else:
        raise TypeError(f"values for {kind} of other types")
    return pa.Array.from_buffers(kind, len(filled), [there, pa.py_buffer(buffer)])


def _of_texts(values: Sequence[Any]) -> pa.Array:
    there, texts = _filled(values, "")
    joined = "".join(texts)
    data = joined.encode()
    # Of ASCII alone a character is a byte, and the texts need not be encoded one by one.
    return _joined(_TEXT, there, data, texts if len(data) == len(joined) else list(map(str.encode, texts)))


def _joined(kind: pa.DataType, there: pa.Buffer | None, data: bytes, parts: Sequence[Any]) -> pa.Array:
    offsets = offsets_of(np.fromiter(map(len, parts), np.int64, len(parts)))
    return pa.Array.from_buffers(kind, len(parts), [there, pa.py_buffer(offsets), pa.py_buffer(data)])


def _filled(values: Sequence[Any], filling: object) -> tuple[pa.Buffer | None, Sequence[Any]]:
    """Return which values are there, None where all are; and the values with something in the place of each None."""
    if None not in values:
        return None, values
    there = np.fromiter(map(is_not, values, repeat(None)), np.bool_, len(values))
    return _bits(there), [filling if value is None else value for value in values]


def _bits(flags: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


_FILLINGS: dict[int, object] = {_BINARY.id: b"", _INTEGER.id: 0, _TIME.id: 0, _NUMBER.id: 0.0, _FLAG.id: False}
"""By kind, what takes the place of a value that is not there."""
