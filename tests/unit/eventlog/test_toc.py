"""The table of contents: read back as written, every damaged bit found, and enough to describe any block to Parquet."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import CorruptionError, FormatVersionError
from custody.eventlog import TableOfContents
from custody.eventlog.toc import BLOCK, PREAMBLE, pack
from tests.support import flipped

FILE = Path("00000000000000000000.toc")
U64 = st.integers(0, (1 << 64) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
U32 = st.integers(0, (1 << 32) - 1)
ROWS = st.lists(st.tuples(U64, U64, U64, U64, I64, I64, U32), max_size=5)


def table(rows: list[tuple[int, ...]], before: bytes = b"before", after: bytes = b"after") -> TableOfContents:
    packed = pack(b"row group %d" % number for number in range(len(rows)))
    blocks = np.array([(*row, len(one)) for row, one in zip(rows, packed, strict=True)], BLOCK)
    return TableOfContents(blocks, before, after, b"".join(packed), 301, 40, bytes(range(32)))


THREE = table([(4, 100, 10, 5, 1000, 1001, 7), (104, 90, 15, 5, 1001, 1009, 8), (194, 7, 20, 1, 1010, 1010, 9)])


@given(ROWS, st.binary(max_size=9), st.binary(max_size=9), st.binary(max_size=9))
def test_a_table_is_read_back_as_it_was_written(
    rows: list[tuple[int, ...]], before: bytes, after: bytes, behind: bytes
) -> None:
    written = table(rows, before, after)
    found = TableOfContents.decode(written.encode(), FILE)
    within = TableOfContents.decode(b"blocks" + written.encode() + behind, FILE, 6)
    for read in (found, within):
        assert read.blocks.tolist() == written.blocks.tolist()
        assert (read.before, read.after, read.packed) == (before, after, written.packed)
        assert (read.footer_offset, read.footer_bytes, read.footer_sha256) == (301, 40, bytes(range(32)))


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


@pytest.mark.parametrize(
    ("start", "end", "blocks"),
    [(0, 1000, []), (0, 1001, [0]), (1001, 1002, [0, 1]), (1002, 1010, [1]), (1009, 5000, [1, 2]), (1011, 9999, [])],
)
def test_blocks_are_passed_over_by_their_times(start: int, end: int, blocks: list[int]) -> None:
    assert THREE.blocks_between(start, end) == blocks


@pytest.mark.parametrize("numbers", [[], [0], [2], [0, 1, 2], [1, 2]])
def test_a_footer_of_some_blocks_has_their_descriptions_and_their_rows(numbers: list[int]) -> None:
    rows = sum((5, 5, 1)[number] for number in numbers)
    groups = b"".join(b"row group %d" % number for number in numbers)
    thrift = b"before" + bytes([rows * 2, 0x19, len(numbers) << 4 | 12]) + groups + b"after"
    assert THREE.footer(numbers) == b"PAR1" + thrift + len(thrift).to_bytes(4, "little") + b"PAR1"


def test_the_format_s_numbers_stand() -> None:
    data = table([(1, 2, 3, 4, -5, 6, 7)]).encode()
    assert data[:8] == b"CUSTTOC\x01"
    assert [int.from_bytes(data[n : n + 4], "little") for n in (8, 12, 16)] == [1, 6, 5]
    assert [int.from_bytes(data[n : n + 8], "little") for n in (20, 28)] == [301, 40]
    assert data[36:68] == bytes(range(32))
    assert [int.from_bytes(data[n : n + 8], "little", signed=True) for n in range(68, 116, 8)] == [1, 2, 3, 4, -5, 6]
    assert [int.from_bytes(data[n : n + 4], "little") for n in (116, 120)] == [7, 13]
    assert data[124:135] == b"beforeafter"
    assert len(data) == 124 + 11 + 13 + 32
