"""The table of contents: read back as written, every damaged bit found, and never needed to read a log."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import CorruptionError, FormatVersionError
from custody.eventlog import TableOfContents
from custody.eventlog.toc import BLOCK, PREAMBLE
from tests.support import flipped

FILE = Path("00000000000000000000.toc")
U64 = st.integers(0, (1 << 64) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
ROWS = st.lists(st.tuples(U64, U64, U64, U64, I64, I64), max_size=5)


def table(rows: list[tuple[int, ...]]) -> TableOfContents:
    return TableOfContents(np.array(rows, BLOCK))


THREE = table([(4, 100, 10, 5, 1000, 1001), (104, 90, 15, 5, 1001, 1009), (194, 7, 20, 1, 1010, 1010)])


@given(ROWS)
def test_a_table_is_read_back_as_it_was_written(rows: list[tuple[int, ...]]) -> None:
    found = TableOfContents.decode(table(rows).encode(), FILE)
    assert [tuple(row) for row in found.blocks.tolist()] == rows


def test_every_flipped_bit_is_found_and_named() -> None:
    data = THREE.encode()
    for bit in range(8 * len(data)):
        expected = FormatVersionError if bit // 8 == len(PREAMBLE) - 1 else CorruptionError
        with pytest.raises(expected, match=f"{FILE} @"):
            TableOfContents.decode(flipped(data, bit), FILE)


def test_every_truncation_is_found() -> None:
    data = THREE.encode()
    for length in range(len(data)):
        with pytest.raises(CorruptionError, match=f"{FILE} @"):
            TableOfContents.decode(data[:length], FILE)
    with pytest.raises(CorruptionError):
        TableOfContents.decode(data + b"\0", FILE)


@pytest.mark.parametrize(
    ("event_id", "block"), [(0, None), (9, None), (10, 0), (14, 0), (15, 1), (19, 1), (20, 2), (10**9, 2)]
)
def test_an_event_is_looked_for_in_the_block_that_would_hold_it(event_id: int, block: int | None) -> None:
    assert THREE.block_of(event_id) == block


def test_the_format_s_numbers_stand() -> None:
    data = table([(1, 2, 3, 4, -5, 6)]).encode()
    assert data[:8] == b"CUSTTOC\x01"
    assert data[8:12] == (1).to_bytes(4, "little")
    assert [int.from_bytes(data[n : n + 8], "little", signed=True) for n in range(12, 60, 8)] == [1, 2, 3, 4, -5, 6]
    assert len(data) == 12 + 48 + 32
