"""How many bytes events have, by numpy on whole columns: what cuts them into logs and into compression blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Sizes = npt.NDArray[np.int64]
Offsets = npt.NDArray[np.int32]
Ends = npt.NDArray[np.int32] | npt.NDArray[np.int64]
Number = TypeVar("Number", bound=np.generic)

_LENGTH_BYTES = 4  # of a text, or of a list
_ENTRY_NUMBER_BYTES = 2
_KEY, _VALUE, _ELEMENT = ".key_value.key", ".key_value.value", ".list.element"


def row_bytes(table: pa.Table) -> Sizes:
    """Return the plain, uncompressed size of each row in bytes, shape (rows,)."""
    return _by_row(table, None)


def encoded_bytes(table: pa.Table, dictionary: Collection[str]) -> Sizes:
    """Return the size of each row in a block, before compression, in bytes: not less than it is; shape (rows,).

    An absent value takes no place, and a text of the `dictionary` columns (Parquet paths, such as
    `attributes.key_value.key`) only that of an entry's number; the dictionaries come on top: `dictionary_bytes`.
    """
    return _by_row(table, dictionary)


def dictionary_bytes(table: pa.Table, dictionary: Collection[str]) -> int:
    """Return the plain size of the dictionaries of some columns: each different text once."""
    return sum(_distinct_bytes(_leaf(table, path)) for path in dictionary if path.split(".")[0] in table.column_names)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; one that is in one piece is not copied."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def numbers(array: pa.Array, kind: type[Number]) -> npt.NDArray[Number]:
    """Return the values of a column of fixed width as they lie in memory; what an absent one says means nothing.

    Not to_numpy: that imports pandas where there is one, which takes longer than the whole merge of a small group.
    """
    return np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + len(array)]


def fitting(sizes: Sizes, bytes_max: int, used: int = 0) -> int:
    """Return how many of the first rows fit into what is left of `bytes_max` when `used` bytes are taken.

    A row that is larger than an empty container is put into it all the same, alone.
    """
    rows = int(np.searchsorted(np.cumsum(sizes), bytes_max - used, side="right"))
    return max(rows, 1) if used == 0 and len(sizes) else rows


def _by_row(table: pa.Table, dictionary: Collection[str] | None) -> Sizes:
    total = np.zeros(table.num_rows, np.int64)
    fixed = 0
    for name, column in zip(table.column_names, table.columns, strict=True):
        ends, each = _ends(one_chunk(column), name, dictionary)
        fixed += each
        if ends is not None:
            total += ends[1:]
            total -= ends[:-1]
    return total + fixed


def _ends(array: pa.Array, path: str, dictionary: Collection[str] | None) -> tuple[Ends | None, int]:
    """Return the bytes before each value and before the end, and what each value takes besides.

    Shape (values + 1,), or None when there is nothing but that. What is in lists is added up by looking at their
    bounds alone. `dictionary` is None for plain sizes.
    """
    kind = array.type
    if pa.types.is_map(kind):
        entries = (array.keys, f"{path}{_KEY}"), (array.items, f"{path}{_VALUE}")
        return _in_lists(numbers(array.offsets, np.int32), entries, dictionary), _LENGTH_BYTES
    if pa.types.is_list(kind):
        return _in_lists(numbers(array.offsets, np.int32), [(array.values, f"{path}{_ELEMENT}")], dictionary), _LENGTH_BYTES
    if pa.types.is_struct(kind):
        children = zip(kind, array.flatten(), strict=True)
        return _sum([_ends(child, f"{path}.{field.name}", dictionary) for field, child in children])
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    width = _LENGTH_BYTES if is_text else max(kind.bit_width // 8, 1)
    if dictionary is not None and path in dictionary:
        return None, _ENTRY_NUMBER_BYTES
    if array.null_count == 0:
        return (_text_ends(array) if is_text else None), width
    if array.null_count == len(array):
        return None, 0 if dictionary is not None else width
    lengths = _text_bytes(array) if is_text else np.zeros(len(array), np.int64)
    if dictionary is not None:
        return _added(lengths + width * _present(array)), 0
    return (_added(lengths) if is_text else None), width


def _in_lists(
    bounds: Offsets, parts: Iterable[tuple[pa.Array, str]], dictionary: Collection[str] | None
) -> Ends:
    ends, each = _sum([_ends(values, path, dictionary) for values, path in parts])
    fixed = bounds.astype(np.int64) * each
    return fixed if ends is None else ends[bounds] + fixed


def _sum(parts: Sequence[tuple[Ends | None, int]]) -> tuple[Ends | None, int]:
    found = [ends for ends, _ in parts if ends is not None]
    each = sum(each for _, each in parts)
    return (sum(found[1:], found[0].astype(np.int64)) if found else None), each


def _added(sizes: Sizes) -> Ends:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _leaf(table: pa.Table, path: str) -> pa.Array:
    """Return the texts of a column, or those in its lists or maps."""
    name, _, inner = path.partition(".")
    array = one_chunk(table.column(name))
    if not inner:
        return array
    texts = array.keys if path.endswith(_KEY) else array.items if path.endswith(_VALUE) else array.values
    bounds = numbers(array.offsets, np.int32)
    return texts.slice(bounds[0], bounds[-1] - bounds[0]) if len(bounds) else texts


def _distinct_bytes(texts: pa.Array) -> int:
    distinct = texts.unique()
    return int(_text_bytes(distinct).sum()) + _LENGTH_BYTES * len(distinct)


def _text_ends(array: pa.Array) -> Ends:
    """Return where each text begins, and where the last one ends: as they lie in memory, without a copy."""
    offsets: Ends = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    return offsets if len(offsets) else np.zeros(1, np.int32)


def _text_bytes(array: pa.Array) -> Sizes:
    """Return the length of each text, 0 for an absent one."""
    lengths: Sizes = np.diff(_text_ends(array)).astype(np.int64)
    return lengths * _present(array) if array.null_count else lengths


def _present(array: pa.Array) -> npt.NDArray[np.uint8]:
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)]
