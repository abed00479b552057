"""Where a stream of events is cut into compression blocks.

A block is as large as Parquet makes it before compression, not as its values are in memory: a column that is written
with a dictionary costs each different text once a block, and a small number a value. A cut depends on the events
alone, not on how the stream was divided into tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import numpy as np
import pyarrow as pa

from custody.eventlog.blocks import Sizes, dictionary_bytes, encoded_bytes, fitting, row_bytes


def blocks_of(tables: Iterable[pa.Table], block_bytes_max: int, dictionary: Collection[str] = ()) -> Iterator[pa.Table]:
    """Yield the blocks of a stream of tables: as many rows as fit, at least one.

    `dictionary` are the columns that are written with one. Only a block that spans two tables is copied.
    """
    waiting = _Waiting(block_bytes_max, dictionary)
    for given in tables:
        if given.num_rows:
            waiting.add(given.combine_chunks())
            while waiting.has_more_than_a_block:
                yield waiting.take()
    while waiting.rows:
        yield waiting.take()


class _Waiting:
    """Events that are in no block yet."""

    def __init__(self, block_bytes_max: int, dictionary: Collection[str]) -> None:
        self._bytes_max = block_bytes_max
        self._dictionary = dictionary
        self._tables: list[pa.Table] = []
        self._sizes: Sizes = np.zeros(0, np.int64)
        """Of each row, without the dictionaries."""

    @property
    def rows(self) -> int:
        """Return how many there are."""
        return len(self._sizes)

    @property
    def has_more_than_a_block(self) -> bool:
        """Whether the next block is certain, whatever comes after these events."""
        return fitting(self._sizes, self._bytes_max) < self.rows

    def add(self, table: pa.Table) -> None:
        """Put events behind the others."""
        self._tables.append(table)
        self._sizes = np.concatenate([self._sizes, encoded_bytes(table, self._dictionary)])

    def take(self) -> pa.Table:
        """Take the first block away."""
        block = self._first(fitting(self._sizes, self._bytes_max))
        block = block.slice(0, self._fitting(block))
        left = block.num_rows
        while left and left >= self._tables[0].num_rows:
            left -= self._tables.pop(0).num_rows
        if left:
            self._tables[0] = self._tables[0].slice(left)
        self._sizes = self._sizes[block.num_rows :]
        return block

    def _first(self, rows: int) -> pa.Table:
        parts: list[pa.Table] = []
        for table in self._tables:
            if rows:
                parts.append(table.slice(0, rows))
                rows -= parts[-1].num_rows
        return parts[0] if len(parts) == 1 else pa.concat_tables(parts).combine_chunks()

    def _fitting(self, rows: pa.Table) -> int:
        """Return how many of some rows, which fit without their dictionaries, fit with them.

        The dictionaries of fewer rows are not larger. Where they take most of a block, plain values are not larger.
        """
        left = max(self._bytes_max - dictionary_bytes(rows, self._dictionary), 1)
        plain = fitting(row_bytes(rows), self._bytes_max) if left < self._bytes_max // 2 else 0
        return max(fitting(self._sizes[: rows.num_rows], left), plain)
