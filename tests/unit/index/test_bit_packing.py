"""Numbers of any width are read as they were written, in every way that reads them; damage is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import CorruptionError
from custody.index.bit_packing import (
    WIDTH_MAX,
    WORD_BYTES,
    as_bytes,
    bit_lengths,
    masks,
    ones,
    packed,
    padded,
    run,
    unpacked,
)
from tests.unit.index.packed_files import checked

COUNTS = (0, 1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 1023, 1024)


def numbers_of(width: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return numbers of a width, with the smallest and the greatest among them."""
    chance = np.random.default_rng(width * 5000 + count)
    values = chance.integers(0, (1 << width) - 1, count, np.uint64, endpoint=True)
    values[1:2], values[2:3] = (1 << width) - 1, 0
    return values


@pytest.mark.parametrize("width", range(65))
def test_every_width_is_read_as_it_was_written(tmp_path: Path, width: int) -> None:
    for count in COUNTS:
        values = numbers_of(width, count)
        for bit in (0, 1, 7, 63):
            words = packed(values, np.arange(count) * width + bit, count * width + bit)
            whole = sum(int(value) << (place * width + bit) for place, value in enumerate(values))
            assert int.from_bytes(words.tobytes(), "little") == whole
        stored = as_bytes(packed(values, np.arange(count) * width, count * width), -(-count * width // 8))
        assert len(padded(stored)) % WORD_BYTES == 0
        if width > WIDTH_MAX:
            continue
        file = checked(tmp_path, stored, before=5)
        assert run(file, 5, width, count, max(COUNTS)).tolist() == values.tolist()
        places = 40 + np.arange(count) * width
        assert unpacked(file.data, places, np.full(count, width)).tolist() == values.tolist()


@given(st.lists(st.tuples(st.integers(0, WIDTH_MAX), st.integers(0, (1 << WIDTH_MAX) - 1)), min_size=1, max_size=200))
def test_numbers_of_mixed_widths_are_read_as_they_were_written(numbers: list[tuple[int, int]]) -> None:
    widths = np.array([width for width, _ in numbers], np.int64)
    values = np.array([number & ((1 << width) - 1) for width, number in numbers], np.uint64)
    places = np.cumsum(widths) - widths
    size = int(widths.sum())
    stored = np.append(as_bytes(packed(values, places, size), -(-size // 8)), np.zeros(WORD_BYTES, np.uint8))
    assert unpacked(stored, places, widths).tolist() == values.tolist()


@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=50))
def test_lengths_in_bits_are_those_of_python(numbers: list[int]) -> None:
    numbers += [0, 1, (1 << 53) - 1, 1 << 53, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
    lengths = bit_lengths(np.array(numbers, np.uint64))
    assert lengths.tolist() == [number.bit_length() for number in numbers]
    assert all(number <= int(mask) for number, mask in zip(numbers, masks(lengths), strict=True))


def test_a_damaged_page_and_a_place_outside_are_refused_with_file_and_offset(tmp_path: Path) -> None:
    stored = as_bytes(packed(numbers_of(13, 20_000), np.arange(20_000) * 13, 260_000), 32_500)
    whole = checked(tmp_path, stored)
    sums = whole._checksums.tolist()
    damaged = stored.copy()
    damaged[20_000] ^= 1
    file = checked(tmp_path, damaged, sums=sums)
    assert len(run(file, 0, 13, 100, 100)) == 100  # on another page
    with pytest.raises(CorruptionError, match=r"packed\.data @16384: expected a page with its checksum"):
        run(file, 19_990, 13, 100, 100)
    for place in (file.size, file.size - 100, -1, 1 << 62):
        with pytest.raises(CorruptionError, match=rf"packed\.data @{place}: "):
            run(file, place, 13, 100, 100)


@pytest.mark.parametrize("share", [0, 0.0001, 0.01, 0.03, 0.04, 0.3, 1])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 4096])
def test_bits_that_are_one_are_found_however_many_there_are(share: float, count: int) -> None:
    chance = np.random.default_rng(count)
    for _ in range(20):
        bits = chance.random(8 * count) < share
        assert ones(np.packbits(bits, bitorder="little")).tolist() == np.flatnonzero(bits).tolist()
