"""Cutting a stream of events into logs and compression blocks, by numpy on whole columns.

The cuts depend on the events alone, not on how the stream was divided into tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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


def encoded_bytes(table: pa.Table, shares: Mapping[str, float]) -> Sizes:
    """Return about how large each row is as Parquet encodes it, before compression, in bytes, shape (rows,).

    An absent value takes no place. Of some columns (Parquet paths, such as `attributes.key_value.key`) a text has
    only a share of its length; where that is 0, it is the number of an entry of a dictionary.
    """
    return _by_row(table, shares)


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array; one that is in one piece is not copied."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def numbers(array: pa.Array, kind: type[Number]) -> npt.NDArray[Number]:
    """Return the values of a column of fixed width as they lie in memory; what an absent one says means nothing.

    Not to_numpy: that imports pandas where there is one, which takes longer than the whole merge of a small group.
    """
    return np.frombuffer(array.buffers()[1] or b"", kind)[array.offset : array.offset + len(array)]


def rows_that_fit(sizes: Sizes, bytes_max: int, used: int = 0) -> int:
    """Return how many of the first rows fit into what is left of `bytes_max` when `used` bytes are taken.

    A row that is larger than an empty container is put into it all the same, alone.
    """
    rows = int(np.searchsorted(np.cumsum(sizes), bytes_max - used, side="right"))
    return max(rows, 1) if used == 0 and len(sizes) else rows


def cut(sizes: Sizes, block_bytes_max: int) -> list[tuple[int, int]]:
    """Return (first row, rows) of each block: as many rows as fit, at least one.

    A row that is larger than a block gets a block of its own.
    """
    ends = np.cumsum(sizes)
    blocks: list[tuple[int, int]] = []
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + block_bytes_max, side="right"))
        stop = max(stop, start + 1)
        blocks.append((start, stop - start))
        start = stop
    return blocks


def blocks_of(
    tables: Iterable[pa.Table], block_bytes_max: int, measure: Callable[[pa.Table], Sizes] = row_bytes
) -> Iterator[pa.Table]:
    """Yield the blocks of a stream of tables; only a block that spans two tables is copied."""
    pending: list[pa.Table] = []
    pending_bytes = 0
    for piece in tables:
        if piece.num_rows == 0:
            continue
        # Sizes are read from the buffers of a column, which has to be in one piece for that.
        table = piece.combine_chunks()
        sizes = measure(table)
        start = 0
        if pending:
            start = rows_that_fit(sizes, block_bytes_max, pending_bytes)
            pending.append(table.slice(0, start))
            pending_bytes += int(sizes[:start].sum())
            if start == table.num_rows:
                continue
            yield pa.concat_tables(pending).combine_chunks()
        blocks = cut(sizes[start:], block_bytes_max)
        for first, rows in blocks[:-1]:
            yield table.slice(start + first, rows)
        first, rows = blocks[-1]
        # The last block of a table may go on in the next one.
        pending = [table.slice(start + first, rows)]
        pending_bytes = int(sizes[start + first :].sum())
    if pending:
        yield pa.concat_tables(pending).combine_chunks()


def _by_row(table: pa.Table, shares: Mapping[str, float] | None) -> Sizes:
    total = np.zeros(table.num_rows, np.int64)
    fixed = 0
    for name, column in zip(table.column_names, table.columns, strict=True):
        ends, each = _ends(one_chunk(column), name, shares)
        fixed += each
        if ends is not None:
            total += ends[1:]
            total -= ends[:-1]
    return total + fixed


def _ends(array: pa.Array, path: str, shares: Mapping[str, float] | None) -> tuple[Ends | None, int]:
    """Return the bytes before each value and before the end, and what each value takes besides.

    Shape (values + 1,), or None when there is nothing but that. What is in lists is added up by looking at their
    bounds alone. `shares` is None for plain sizes.
    """
    kind = array.type
    if pa.types.is_map(kind):
        entries = (array.keys, f"{path}{_KEY}"), (array.items, f"{path}{_VALUE}")
        return _in_lists(numbers(array.offsets, np.int32), entries, shares), _LENGTH_BYTES
    if pa.types.is_list(kind):
        return _in_lists(numbers(array.offsets, np.int32), [(array.values, f"{path}{_ELEMENT}")], shares), _LENGTH_BYTES
    if pa.types.is_struct(kind):
        children = zip(kind, array.flatten(), strict=True)
        return _sum([_ends(child, f"{path}.{field.name}", shares) for field, child in children])
    is_text = pa.types.is_string(kind) or pa.types.is_binary(kind)
    width = _LENGTH_BYTES if is_text else max(kind.bit_width // 8, 1)
    share = 1.0 if shares is None else shares.get(path, 1.0)
    if share == 0:
        return None, _ENTRY_NUMBER_BYTES
    if share < 1:
        return _added((_text_bytes(array) * share).astype(np.int64)), width
    if array.null_count == 0:
        return (_text_ends(array) if is_text else None), width
    if array.null_count == len(array):
        return None, 0 if shares is not None else width
    lengths = _text_bytes(array) if is_text else np.zeros(len(array), np.int64)
    if shares is not None:
        return _added(lengths + width * _present(array)), 0
    return (_added(lengths) if is_text else None), width


def _in_lists(bounds: Offsets, parts: Iterable[tuple[pa.Array, str]], shares: Mapping[str, float] | None) -> Ends:
    ends, each = _sum([_ends(values, path, shares) for values, path in parts])
    # The bounds of a slice count from the beginning of the values, which are not sliced with it.
    fixed = bounds.astype(np.int64) * each
    return fixed if ends is None else ends[bounds] + fixed


def _sum(parts: Sequence[tuple[Ends | None, int]]) -> tuple[Ends | None, int]:
    bounds = [ends for ends, _ in parts if ends is not None]
    each = sum(each for _, each in parts)
    return (sum(bounds[1:], bounds[0].astype(np.int64)) if bounds else None), each


def _added(sizes: Sizes) -> Ends:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])


def _text_ends(array: pa.Array) -> Ends:
    """Return where each text begins, and where the last one ends: as they lie in memory, without a copy."""
    offsets: Ends = np.frombuffer(array.buffers()[1], np.int32)[array.offset : array.offset + len(array) + 1]
    # Arrow may leave out the buffer's only entry when there is no text.
    return offsets if len(offsets) else np.zeros(1, np.int32)


def _text_bytes(array: pa.Array) -> Sizes:
    """Return the length of each text, 0 for an absent one."""
    lengths: Sizes = np.diff(_text_ends(array)).astype(np.int64)
    return lengths * _present(array) if array.null_count else lengths


def _present(array: pa.Array) -> npt.NDArray[np.uint8]:
    bits = np.frombuffer(array.buffers()[0], np.uint8)
    return np.unpackbits(bits, bitorder="little")[array.offset : array.offset + len(array)]
