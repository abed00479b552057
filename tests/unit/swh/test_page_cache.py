"""The cache of decoded pages: what is needed twice is read twice and then kept, up to a number of bytes."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from custody.swh import pages
from custody.swh.pages import PageCache

ROWS = 100


def page(number: int) -> pa.Table:
    return pa.table({"number": pa.array([number] * ROWS, pa.int64())})


SIZE = page(0).nbytes


@given(asked=st.lists(st.integers(0, 6), max_size=60), room=st.integers(0, 4))
def test_it_gives_what_was_asked_for_and_holds_no_more_than_it_may(asked: list[int], room: int) -> None:
    cache = PageCache(room * SIZE + SIZE // 2)
    read: Counter[int] = Counter()

    def reading(number: int) -> pa.Table:
        read[number] += 1
        return page(number)

    for number in asked:
        given_page = cache.get(number, partial(reading, number))
        assert given_page.column(0)[0].as_py() == number
        assert cache.bytes <= room * SIZE
    if len(set(asked)) <= room:
        assert all(read[number] == min(times, 2) for number, times in Counter(asked).items())


def test_what_is_needed_once_is_not_kept_and_forgotten_after_a_while() -> None:
    cache = PageCache(1 << 20)
    for number in range(pages._SEEN_MAX + 1):
        cache.get(number, partial(page, number))
    assert cache.bytes == 0
    cache.get(0, lambda: page(0))
    assert cache.bytes == 0, "it was seen too long ago"
    cache.get(0, lambda: page(0))
    assert cache.bytes == SIZE
