"""Batches: every event is in one, in order, and no batch is larger or later than it may be."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from custody.ngsi_sink.run import cut_batches
from custody.ngsi_sink.target import retry_waits_ms

TIMES = st.lists(st.integers(0, 100), max_size=30).map(sorted)


@given(TIMES, st.integers(1, 5), st.integers(1, 40))
def test_every_event_is_in_one_batch_that_is_neither_too_large_nor_too_late(
    times: list[int], size: int, timeout_ms: int
) -> None:
    events = [(at, number) for number, at in enumerate(times)]
    batches = list(cut_batches(events, size=size, timeout_ms=timeout_ms))
    assert [item for batch in batches for item in batch.items] == list(range(len(times)))
    for batch in batches:
        arrived = [times[item] for item in batch.items]
        assert 1 <= len(batch.items) <= size
        assert arrived[-1] <= batch.due_ms <= arrived[0] + timeout_ms
        assert len(batch.items) == size or batch.due_ms == arrived[0] + timeout_ms
    assert [batch.due_ms for batch in batches] == sorted(batch.due_ms for batch in batches)


@given(st.integers(-1, 20), st.lists(st.integers(1, 100), min_size=1, max_size=5))
def test_a_batch_is_tried_as_often_as_its_ttl_says_and_the_last_wait_is_repeated(ttl: int, waits: list[int]) -> None:
    found = list(itertools.islice(retry_waits_ms(ttl, waits), 50))
    assert len(found) == (50 if ttl < 0 else ttl)
    assert found == [waits[min(number, len(waits) - 1)] for number in range(len(found))]
