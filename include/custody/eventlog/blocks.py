"""Where a stream of events is cut into logs and into compression blocks, by numpy on whole columns.

A cut depends on the events alone, not on how the stream was divided into tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Sizes = npt.NDArray[np.int64]
Number = TypeVar("Number", bound=np.generic)


def row_bytes(table: pa.Table) -> Sizes:
    """Return the plain, uncompressed size of each row in bytes, shape (rows,)."""
    total = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        total += _column_bytes(column.combine_chunks() if column.num_chunks != 1 else column.chunk(0))
    return total


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


def blocks_of(tables: Iterable[pa.Table], block_bytes_max: int) -> Iterator[pa.Table]:
    """Yield the blocks of a stream of tables; only a block that spans two tables is copied."""
    begun: list[pa.Table] = []
    begun_bytes = 0
    for given in tables:
        if given.num_rows == 0:
            continue
        table = given.combine_chunks()
        sizes = row_bytes(table)
        start = 0
        if begun:
            start = fitting(sizes, block_bytes_max, begun_bytes)
            begun.append(table.slice(0, start))
            begun_bytes += int(sizes[:start].sum())
            if start == table.num_rows:
                continue
            yield pa.concat_tables(begun).combine_chunks()
        found = cut(sizes[start:], block_bytes_max)
        for first, rows in found[:-1]:
            yield table.slice(start + first, rows)
        first, rows = found[-1]
        begun = [table.slice(start + first, rows)]
        begun_bytes = int(sizes[start + first :].sum())
    if begun:
        yield pa.concat_tables(begun).combine_chunks()


def _column_bytes(array: pa.Array) -> Sizes:
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _text_bytes(array) + 4
    if pa.types.is_map(kind):
        entries = _column_bytes(array.keys) + _column_bytes(array.items)
        return _sum_by_row(entries, array.offsets) + 4
    if pa.types.is_list(kind):
        return _sum_by_row(_column_bytes(array.values), array.offsets) + 4
    if pa.types.is_struct(kind):
        summed: Sizes = np.sum([_column_bytes(child) for child in array.flatten()], axis=0, dtype=np.int64)
        return summed
    return np.full(len(array), max(kind.bit_width // 8, 1), np.int64)


def _text_bytes(array: pa.Array) -> Sizes:
    """Return the length of each text, 0 for an absent one; from the buffers, as this is done for every event."""
    validity, offsets, _ = array.buffers()
    first, stop = array.offset, array.offset + len(array)
    lengths: Sizes = np.diff(np.frombuffer(offsets, np.int32)[first : stop + 1]).astype(np.int64)
    if array.null_count:
        present = np.unpackbits(np.frombuffer(validity, np.uint8), bitorder="little")[first:stop]
        lengths *= present
    return lengths


def _sum_by_row(sizes: Sizes, offsets: pa.Array) -> Sizes:
    """Add up the sizes of the elements of each row; `offsets` (rows + 1,) point into `sizes`."""
    totals = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    bounds = numbers(offsets, np.int32)
    by_row: Sizes = totals[bounds[1:]] - totals[bounds[:-1]]
    return by_row
