"""Terms, numbers, places of words and compressed pieces of a packed shard are read as they were written."""

from __future__ import annotations

import struct
from bisect import bisect_left
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from custody.errors import CorruptionError
from custody.index.arrays import Ints
from custody.index.bit_packing import padded
from custody.index.compression import compressed, decompressed
from custody.index.fields import ABSENT
from custody.index.inverted_field import InvertedField
from custody.index.manifest import ZONE_DOCUMENTS
from custody.index.number_columns import zones
from custody.index.packed_numbers import PackedColumn, encoded_numbers
from custody.index.packed_positions import GROUP_PLACES, WordPlaces, encoded_positions
from custody.index.packed_postings import ListTable, packed_lists
from custody.index.packed_terms import (
    BLOCK_BYTES,
    LEAF_TERMS,
    BlockCache,
    FieldTerms,
    TextTerms,
    UuidTerms,
    encoded_terms,
)
from custody.index.positions import Positions
from custody.index.postings import PostingsCache
from custody.index.terms import uuid_bytes
from tests.unit.index.packed_files import checked

with_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
BEFORE = 24


def terms_of(folder: Path, terms: list[bytes]) -> tuple[str, FieldTerms]:
    """Return sorted terms as a reader has them, and their kind."""
    lengths = np.array([len(term) for term in terms], np.int64)
    kind, data = encoded_terms(np.frombuffer(b"".join(terms), np.uint8), lengths)
    file = checked(folder, data, before=BEFORE)
    if kind == "uuids":
        return kind, UuidTerms(file, BEFORE, len(terms))
    return kind, TextTerms(file, BEFORE, len(terms), BlockCache())


def agrees(found: FieldTerms, terms: list[bytes], others: list[bytes]) -> None:
    numbers = {term: number for number, term in enumerate(terms)}
    asked = [*terms[:: max(1, len(terms) // 200)], terms[-1], *others]
    for term in asked:
        assert found.find(term) == numbers.get(term)
        assert found.lower(term) == bisect_left(terms, term)
        assert found.lower(term + b"\0") == bisect_left(terms, term + b"\0")
    for some in (asked, asked[:3], others, others[:1] * 60):
        expected = [numbers[term] for term in some if term in numbers]
        assert sorted(found.find_all(some, [uuid_bytes(term) for term in some]).tolist()) == sorted(expected)
    for first, end in ((0, len(terms)), (0, 0), (len(terms) // 3, len(terms) // 2 + 1), (len(terms) - 1, len(terms))):
        assert found.texts(first, end).to_pylist() == [term.decode() for term in terms[first:end]]


@with_folder
@given(
    terms=st.sets(st.text(max_size=12), min_size=1, max_size=120),
    others=st.lists(st.text(max_size=12), min_size=1, max_size=20),
)
def test_any_texts_are_found_at_their_places(tmp_path: Path, terms: set[str], others: list[str]) -> None:
    own = sorted({term.encode("utf-8", "replace") for term in terms})
    _, found = terms_of(tmp_path, own)
    agrees(found, own, [other.encode("utf-8", "replace") for other in others])


@pytest.mark.parametrize("count", [1, 1000, 2500])
def test_texts_of_many_blocks_are_found_at_their_places(tmp_path: Path, count: int) -> None:
    chance = np.random.default_rng(count)
    starts = ("", "/data/in/", "/data/in/ä", "x" * 3000)
    terms = sorted({f"{starts[int(n) % 4]}{n:x}".encode() for n in chance.integers(0, 1 << 40, count)})
    kind, found = terms_of(tmp_path, terms)
    assert kind == "texts"
    assert count == 1 or sum(map(len, terms)) > 3 * BLOCK_BYTES
    agrees(found, terms, [b"", b"\0", b"/data", b"/data/in/", b"x" * 3000, b"z" * 9000, b"\xff", b"a\xffb"])


@with_folder
@given(numbers=st.sets(st.integers(0, (1 << 128) - 1), min_size=1, max_size=200))
@example(numbers={0})
@example(numbers=set(range(1 << 64, (1 << 64) + LEAF_TERMS + 1)))
@example(numbers={1 << 120, 0x61 << 120 | 0x61, 256, 1, (1 << 128) - 1})
def test_uuids_are_found_at_their_places(tmp_path: Path, numbers: set[int]) -> None:
    terms = sorted(str(UUID(int=number)).encode() for number in numbers)
    kind, found = terms_of(tmp_path, terms)
    assert kind == "uuids"
    others = [str(UUID(int=(number + by) % (1 << 128))).encode() for number in list(numbers)[:40] for by in (1, -1)]
    odd = [others[0].upper(), others[0].replace(b"-", b""), b"{" + others[0] + b"}", b"", b"none", b"f" * 36]
    agrees(found, terms, [*others, *odd])


@pytest.mark.parametrize(
    "odd", [b"0000000A-0000-4000-8000-000000000000", b"0000000g-0000-4000-8000-000000000000", b"1-2"]
)
def test_terms_of_which_one_is_no_uuid_are_texts(tmp_path: Path, odd: bytes) -> None:
    terms = sorted([*(str(UUID(int=number)).encode() for number in range(300)), odd])
    kind, found = terms_of(tmp_path, terms)
    assert kind == "texts"
    agrees(found, terms, [odd.lower(), odd.upper()])


def test_forged_terms_are_refused_or_found_within_the_field(tmp_path: Path) -> None:
    terms = sorted(f"/data/{number * 7919 % 10_007}/file".encode() for number in range(2000))
    lengths = np.array([len(term) for term in terms], np.int64)
    _, data = encoded_terms(np.frombuffer(b"".join(terms), np.uint8), lengths)
    chance = np.random.default_rng(7)
    refused = 0
    for turn in range(300):
        bad = data.copy()
        # Head, table and separators come first, and are a small part.
        reach = 300 if turn % 2 else len(bad)
        bad[chance.integers(0, reach, 3)] = chance.integers(0, 256, 3)
        try:
            found = TextTerms(checked(tmp_path, bad, before=BEFORE), BEFORE, len(terms), BlockCache())
            found.find(terms[700])
            assert found.lower(terms[700]) <= len(terms)
            assert len(found.texts(100, 1900)) == 1800
        except (CorruptionError, ValueError, IndexError) as error:
            refused += isinstance(error, CorruptionError) and "packed.data @" in str(error)
    assert refused > 50


NUMBERS = st.integers(-(1 << 63), (1 << 63) - 1)


@with_folder
@given(
    numbers=st.one_of(
        st.lists(NUMBERS, max_size=50),
        st.lists(st.one_of(st.just(ABSENT), st.integers(-300, 300)), max_size=50),
        st.lists(st.sampled_from([ABSENT, ABSENT - 1, -ABSENT - 1, 0]), max_size=50),
    ),
    copies=st.sampled_from([1, 1, 30, 70]),
    slope=st.sampled_from([0, 1, -1, -77, 1 << 40]),
)
@example(numbers=[ABSENT], copies=1, slope=0)
@example(numbers=[], copies=1, slope=0)
def test_numbers_are_read_as_they_were_written(tmp_path: Path, numbers: list[int], copies: int, slope: int) -> None:
    column = np.tile(np.array(numbers, np.int64), copies)
    is_small = np.abs(column.astype(np.float64)) < 1 << 60
    column[is_small] += (slope * np.arange(len(column)))[is_small]
    reads_back(tmp_path, column)


@pytest.mark.parametrize("width", range(65))
@pytest.mark.parametrize("has_absent", [False, True])
def test_numbers_of_every_width_are_read_as_they_were_written(tmp_path: Path, width: int, has_absent: bool) -> None:
    chance = np.random.default_rng(width)
    above = chance.integers(0, (1 << width) - 1, ZONE_DOCUMENTS + 90, np.uint64, endpoint=True)
    above[3], above[4], above[5] = 0, (1 << width) - 1, 0
    column = (above + np.uint64((1 << 64) - (1 << 63) if width == 64 else 12_345)).view(np.int64)
    if has_absent:
        column[chance.integers(0, len(column), 100)] = ABSENT
    reads_back(tmp_path, column)


@pytest.mark.parametrize("count", [1, 2, ZONE_DOCUMENTS - 1, ZONE_DOCUMENTS, ZONE_DOCUMENTS + 1, 3 * ZONE_DOCUMENTS])
def test_numbers_on_one_line_take_their_table_alone(tmp_path: Path, count: int) -> None:
    column = 9_000_000 - np.arange(count)
    assert len(encoded_numbers(column)) == 25 * -(-count // ZONE_DOCUMENTS)
    reads_back(tmp_path, column)
    packed = PackedColumn(checked(tmp_path, encoded_numbers(column)), 0, count)
    for number in (0, int(column[-1]), int(column[count // 2]), 9_000_000, 9_000_001):
        assert packed.below(number) == int((column >= number).sum())


def reads_back(folder: Path, column: Ints) -> None:
    """Check each way in which a column is read."""
    found = PackedColumn(checked(folder, encoded_numbers(column), before=BEFORE), BEFORE, len(column), zones(column))
    everywhere = np.arange(len(column))
    for documents in (everywhere, everywhere[::7], everywhere[-1:], everywhere[:0]):
        assert np.array_equal(found.of(documents), column[documents])
    borders = [0, 1, len(column) // 2, ZONE_DOCUMENTS, ZONE_DOCUMENTS + 1, len(column) - 1, len(column)]
    borders = [min(max(border, 0), len(column)) for border in borders]
    for low in borders:
        for high in borders:
            assert np.array_equal(found.span(low, high), column[low:high])
    present = column[column != ABSENT]
    if len(present):
        assert (found.least, found.greatest) == (present.min(), present.max())


def test_forged_numbers_are_refused_or_any_others(tmp_path: Path) -> None:
    column = np.random.default_rng(7).integers(0, 1 << 20, 3000)
    data = encoded_numbers(column)
    tables = 25 * 3
    chance = np.random.default_rng(8)
    refused = 0
    for turn in range(300):
        bad = data.copy()
        bad[chance.integers(0, tables if turn % 2 else len(bad), 2)] = chance.integers(0, 256, 2)
        try:
            found = PackedColumn(checked(tmp_path, bad), 0, len(column))
            assert len(found.of(np.arange(len(column)))) == len(column)
            assert len(found.span(100, 700)) == 600
        except CorruptionError as error:
            assert "packed.data @" in str(error)
            refused += 1
    assert refused > 50


@pytest.mark.parametrize("most", [1, 3, 300, 70_000])
def test_places_of_words_are_read_as_they_were_written(tmp_path: Path, most: int) -> None:
    chance = np.random.default_rng(most)
    frequencies = np.append(chance.integers(1, 60, 300), [4000, 1, 2])
    documents = np.concatenate([np.sort(chance.choice(5000, count, replace=False)) for count in frequencies])
    counts = chance.integers(1, 5, len(documents))
    places = np.concatenate([np.sort(chance.choice(most + 5, count, replace=False)) for count in counts])
    assert len(places) > GROUP_PLACES
    lengths = np.ones(len(frequencies), np.int64)
    positions = Positions(places.astype(np.int32), counts)
    field = InvertedField(
        np.zeros(len(lengths), np.uint8), lengths, frequencies, documents.astype(np.uint32), positions
    )
    lists = packed_lists(field, 5000, 0)
    file = checked(tmp_path, lists.stream, lists.longer, padded(encoded_positions(field, positions)))
    table = ListTable(file, lists.heads, lists.places.astype(np.uint64), 0, 5000, PostingsCache())
    found = WordPlaces(file, len(lists.stream) + len(lists.longer))
    bounds = np.append(0, np.cumsum(counts))
    for number, (first, count) in enumerate(zip(field.first.tolist(), frequencies.tolist(), strict=True)):
        own, own_counts = found.of(number, table)
        assert own_counts.tolist() == counts[first : first + count].tolist()
        assert own.tolist() == places[bounds[first] : bounds[first + count]].tolist()


@with_folder
@given(
    data=st.one_of(
        st.binary(max_size=400),
        st.builds(lambda part, times: part * times, st.binary(max_size=9), st.integers(0, 9000)),
    )
)
def test_compressed_bytes_are_what_they_were(tmp_path: Path, data: bytes) -> None:
    stored = compressed(data)
    assert len(stored) <= len(data)
    file = checked(tmp_path, np.frombuffer(stored, np.uint8), before=BEFORE)
    assert decompressed(file, BEFORE, BEFORE + len(stored), len(data)) == data
    # As they are where that is no longer; otherwise less and more than they hold are refused, before memory is taken.
    for size in {0, 1, len(data) - 1, len(data) + 1, 1 << 20, 1 << 60} - {len(stored), len(data), -1}:
        if len(stored) < len(data) or size != len(data):
            with pytest.raises(CorruptionError, match=rf"packed\.data @{BEFORE}: expected {size} bytes"):
                decompressed(file, BEFORE, BEFORE + len(stored), size)


def test_a_size_that_is_forged_with_the_bytes_takes_no_memory(tmp_path: Path) -> None:
    """What says how long it is, and is not: a terabyte, and bytes that end sooner."""
    varint = bytes([0x80] * 5 + [0x20])  # 1 << 40
    ended = bytes([100]) + bytes([4 << 2]) + b"abcde"  # a hundred bytes, of which five come
    for stored, size in ((varint + b"\0" * 50, 1 << 40), (ended, 100)):
        file = checked(tmp_path, np.frombuffer(stored, np.uint8))
        with pytest.raises(CorruptionError, match=rf"packed\.data @0: expected {size} bytes"):
            decompressed(file, 0, len(stored), size)


def test_a_table_that_is_longer_than_the_file_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    huge = np.frombuffer(struct.pack("<QQ", 1 << 60, 1 << 60) * 40, np.uint8)
    file = checked(tmp_path, huge)
    for open_it in (
        lambda: WordPlaces(file, 0),
        lambda: TextTerms(file, 0, 1 << 50, BlockCache()),
        lambda: UuidTerms(file, 0, 1 << 50),
        lambda: PackedColumn(file, 0, 1 << 50),
    ):
        with pytest.raises(CorruptionError, match=r"packed\.data @(0|8|16): expected"):
            open_it()
