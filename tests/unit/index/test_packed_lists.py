"""Packed lists hold the documents that they were made of, in every form, and refuse what cannot be."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from custody.errors import CorruptionError
from custody.index.arrays import Ints
from custody.index.doc_sets import DocSet, TermDocs
from custody.index.inverted_field import InvertedField
from custody.index.packed_postings import (
    _FEW_LISTS,
    BLOCK_POSTINGS,
    DENSE,
    GROUP_TERMS,
    HEAD,
    SHORT_MAX,
    BitList,
    DecodedBits,
    EliasFanoList,
    ListTable,
    ShortList,
    packed_lists,
)
from custody.index.postings import DecodedPostings, PostingsCache
from tests.unit.index.packed_files import checked

BEFORE = 24
"""Bytes before the stream: places are those of the file, not of the stream."""


def field_of(lists: list[Ints]) -> InvertedField:
    """Return a field whose terms have these lists of documents."""
    lengths = np.ones(len(lists), np.int64)
    counts = np.array([len(own) for own in lists], np.int64)
    return InvertedField(np.zeros(len(lists), np.uint8), lengths, counts, np.concatenate(lists).astype(np.uint32))


def table_of(folder: Path, lists: list[Ints], documents: int) -> ListTable:
    """Return the lists as a reader has them."""
    made = packed_lists(field_of(lists), documents, BEFORE)
    file = checked(folder, made.stream, made.longer, before=BEFORE)
    return ListTable(file, made.heads, made.places.astype(np.uint64), BEFORE, documents, PostingsCache())


def all_of(found: DocSet) -> Ints:
    """Return the documents of a set."""
    return np.concatenate([np.empty(0, np.int64), *found.chunks(found.low, found.high)])


def agrees(table: ListTable, lists: list[Ints], documents: int) -> None:
    """Check each way in which lists are read against what they were made of."""
    everywhere = np.arange(documents)
    chance = np.random.default_rng(7)
    for number, own in enumerate(lists):
        found = table.list_of(number)
        assert (found.frequency, found.first, found.last) == (len(own), own[0], own[-1])
        low, high = sorted(chance.integers(0, documents + 1, 2).tolist())
        for begin, end in ((0, documents), (low, high)):
            expected = own[(own >= begin) & (own < end)]
            chunks = [np.empty(0, np.int64), *found.chunks(begin, end)]
            assert np.array_equal(np.concatenate(chunks), expected)
        asked = np.unique(np.append(chance.integers(0, documents, 50), own[:: max(1, len(own) // 20)]))
        for some in (asked, everywhere[: 3 * BLOCK_POSTINGS]):
            assert np.array_equal(some[found.among(some)], np.intersect1d(some, own))
        assert np.array_equal(np.concatenate(list(table.list_of(number).blocks())), own)
    every = np.arange(len(lists))
    for numbers in (every, every[::3], every[:1], every[-1:], every[::-1]):
        union = np.unique(np.concatenate([lists[number] for number in numbers.tolist()]))
        assert np.array_equal(all_of(table.union(numbers)), union)
    for first, end in ((0, len(lists)), (len(lists) // 3, len(lists) // 2 + 1)):
        assert table.counts(first, end).tolist() == [len(own) for own in lists[first:end]]
        terms: dict[int, list[int]] = {}
        for documents_of, numbers_of in table.by_term(first, end):
            pairs = np.broadcast_arrays(documents_of, numbers_of)
            for document, number in zip(*(part.tolist() for part in pairs), strict=True):
                terms.setdefault(number, []).append(document)
        expected_terms = {number: lists[number].tolist() for number in range(first, end)}
        assert {number: sorted(own) for number, own in terms.items()} == expected_terms


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    documents=st.integers(1, 70_000),
    shapes=st.lists(
        st.tuples(st.integers(0, 1 << 32), st.sampled_from([1, 2, 3, 40, 300, 1500])), min_size=1, max_size=70
    ),
)
@example(documents=1, shapes=[(0, 1)])
@example(documents=2, shapes=[(1, 1)] * (GROUP_TERMS + 1))
def test_lists_are_read_as_they_were_written(tmp_path: Path, documents: int, shapes: list[tuple[int, int]]) -> None:
    lists = []
    for seed, most in shapes:
        chance = np.random.default_rng(seed)
        around = int(chance.integers(0, documents))
        reach = int(chance.choice([most, 8 * most, documents]))
        near = np.arange(max(0, around - reach), min(documents, around + reach + 1))
        lists.append(np.sort(chance.choice(near, min(most, len(near)), replace=False)))
    agrees(table_of(tmp_path, lists, documents), lists, documents)


@pytest.mark.parametrize(
    "count",
    [1, 2, 24, 25, *(border + by for border in (SHORT_MAX, BLOCK_POSTINGS, 2 * BLOCK_POSTINGS) for by in (-1, 0, 1))],
)
@pytest.mark.parametrize("step", [1, 2, DENSE - 1, DENSE, DENSE + 1, 100])
def test_the_borders_of_lists_and_blocks(tmp_path: Path, count: int, step: int) -> None:
    documents = count * step + 9
    own = np.arange(count) * step + 5
    lists = [own, own[:1], own + 3, own]
    table = table_of(tmp_path, lists, documents)
    kind = type(table.list_of(0))
    agrees(table, lists, documents)
    # And once more, of what is kept.
    agrees(table, lists, documents)
    longer = BitList if own[-1] - own[0] < count * DENSE else EliasFanoList
    assert kind is (ShortList if count <= SHORT_MAX else longer)


def test_the_last_documents_of_a_shard_as_large_as_there_may_be(tmp_path: Path) -> None:
    documents = (1 << 32) - 1
    lists = [
        np.array([0, documents - 1]),
        np.array([documents - 1]),
        np.append(np.arange(SHORT_MAX), documents - 1),
        np.append(np.arange(BLOCK_POSTINGS + 1) * 1000, documents - 1),
    ]
    table = table_of(tmp_path, lists, documents)
    for number, own in enumerate(lists):
        assert np.array_equal(np.concatenate(list(table.list_of(number).blocks())), own)


def lists_of_each_form() -> list[Ints]:
    return [np.arange(200) * 3, np.arange(3000) * 20, np.arange(4000) + 50, np.array([7]), np.arange(30) * 2000]


def test_no_bit_that_is_flipped_gives_another_answer(tmp_path: Path) -> None:
    lists, documents = lists_of_each_form(), 60_010
    made = packed_lists(field_of(lists), documents, BEFORE)
    sums = checked(tmp_path, made.stream, made.longer, before=BEFORE)._checksums.tolist()
    data = np.concatenate([made.stream, made.longer])
    for place in range(0, len(data), 41):
        bad = data.copy()
        bad[place] ^= 0x10
        file = checked(tmp_path, bad, before=BEFORE, sums=sums)
        table = ListTable(file, made.heads, made.places.astype(np.uint64), BEFORE, documents, PostingsCache())
        with pytest.raises(CorruptionError, match=r"packed\.data @\d+: expected a page with its checksum"):
            table.union(np.arange(len(lists)))


@pytest.mark.parametrize("count", [SHORT_MAX + 1, BLOCK_POSTINGS, 3 * BLOCK_POSTINGS, 4 * BLOCK_POSTINGS, 9000])
@pytest.mark.parametrize("step", [DENSE + 1, 40, 300])
def test_a_list_that_was_decoded_is_not_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, step: int
) -> None:
    own = np.arange(count) * step + 3
    table = table_of(tmp_path, [own], count * step + 9)
    everywhere = np.arange(count * step + 9)
    for _ in range(2):
        assert np.array_equal(everywhere[table.list_of(0).among(everywhere)], own)
    monkeypatch.setattr(EliasFanoList, "_decode", None)
    assert np.array_equal(all_of(TermDocs(table.list_of(0))), own)
    # One whose numbers are many is kept as bits.
    (kept,) = table._cache._lists.values()
    assert isinstance(kept, DecodedBits if step < 256 else DecodedPostings)
    assert kept.nbytes <= min(32 * count, own[-1] // 8 + 1)


def test_lists_go_with_the_last_reference_and_their_file_with_them(tmp_path: Path) -> None:
    lists = lists_of_each_form()
    table = table_of(tmp_path, lists, 60_010)
    found: list[weakref.ref[object]] = [weakref.ref(table.list_of(number)) for number in range(3)]
    dense = table.list_of(2)
    all_of(TermDocs(table.list_of(1)))
    all_of(TermDocs(dense))
    found += [weakref.ref(dense), weakref.ref(table._file), weakref.ref(table._cache)]
    # Without the collector of cycles: a file is unmapped when the last reader of its shard is done.
    gc.disable()
    try:
        del dense, table
        assert [one() for one in found] == [None] * 6
    finally:
        gc.enable()


def test_few_lists_are_united_as_many_are_and_their_pages_checked(tmp_path: Path) -> None:
    chance = np.random.default_rng(3)
    lists = [np.unique(chance.integers(0, 5000, chance.integers(1, 30))) for _ in range(400)]
    table = table_of(tmp_path, lists, 5000)
    for count in (1, 2, _FEW_LISTS, _FEW_LISTS + 1, 100):
        for _ in range(20):
            numbers = np.sort(chance.choice(len(lists), count, replace=False))
            union = np.unique(np.concatenate([lists[number] for number in numbers.tolist()]))
            assert np.array_equal(all_of(table.union(numbers)), union)
            assert all_of(table.union(numbers)).dtype == np.int64
    made = packed_lists(field_of(lists), 5000, BEFORE)
    sums = checked(tmp_path, made.stream, made.longer, before=BEFORE)._checksums.tolist()
    bad = made.stream.copy()
    bad[5] ^= 1
    file = checked(tmp_path, bad, made.longer, before=BEFORE, sums=sums)
    table = ListTable(file, made.heads, made.places.astype(np.uint64), BEFORE, 5000, PostingsCache())
    with pytest.raises(CorruptionError, match="a page with its checksum"):
        table.union(np.array([0, 1]))


def test_forged_lists_are_refused_or_stay_within_the_shard(tmp_path: Path) -> None:
    """With right checksums: what a reader takes of memory follows from the documents, and no answer leaves them."""
    lists, documents = lists_of_each_form(), 60_010
    made = packed_lists(field_of(lists), documents, BEFORE)
    data = np.concatenate([made.stream, made.longer])
    chance = np.random.default_rng(7)
    refused = 0
    for _ in range(400):
        bad, heads, places = data.copy(), made.heads.copy(), made.places.astype(np.uint64)
        what = chance.integers(0, 4)
        if what == 0:
            heads[chance.integers(0, len(heads))] = chance.integers(0, 1 << 16)
        elif what == 1:
            places[0] = chance.choice(np.array([len(data), 1 << 40, (1 << 63) - 1, (1 << 64) - 1], np.uint64))
        else:
            bad[chance.integers(0, len(bad), 4)] = chance.integers(0, 256, 4)
        file = checked(tmp_path, bad, before=BEFORE)
        for asked in [*range(len(lists)), None]:
            try:
                table = ListTable(file, heads, places, BEFORE, documents, PostingsCache())
                found = [all_of(table.union(np.arange(len(lists))))] if asked is None else table.list_of(asked).blocks()
                assert all(int(part.min()) >= 0 and int(part.max()) < documents for part in found if len(part))
            except CorruptionError as error:
                assert "packed.data @" in str(error)
                refused += 1
    assert refused > 100


def test_a_group_s_heads_say_where_the_next_list_lies(tmp_path: Path) -> None:
    made = packed_lists(field_of([np.array([3, 9, 10]), np.arange(300)]), 300, BEFORE)
    assert made.heads.dtype == HEAD
    # Of three documents the differences, less one, are 5 and 0: three bits hold both. The other list is a row of bits.
    assert made.heads.tolist() == [3 | 3 << 8, 0 | 1 << 8]
    # Nine bits name any of 300 documents: 3, then 5 and 0 in three bits each.
    first = int.from_bytes(made.stream.tobytes(), "little")
    assert first & ((1 << 15) - 1) == 3 | 5 << 9 | 0 << 12
    assert (first >> 15) & ((1 << 64) - 1) == BEFORE + len(made.stream)
    assert (first >> 79) & ((1 << 32) - 1) == 300
    assert made.longer[:8].view("<u4").tolist() == [0, 299]
