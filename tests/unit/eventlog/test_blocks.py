"""Blocks: every row is in exactly one, and none is larger than allowed unless one row alone is."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from custody.eventlog.blocks import cut, encoded_bytes, row_bytes
from custody.eventlog.log_writer import SHARES
from custody.model import Event, to_batch
from tests.support import EVENTS, event, sample

SIZES = st.lists(st.integers(0, 100), max_size=50)


def table_of(events: list[Event]) -> pa.Table:
    return pa.Table.from_batches([to_batch(events, 0)])


@given(SIZES, st.integers(1, 150))
def test_blocks_hold_every_row_once_and_in_order(sizes: list[int], limit: int) -> None:
    blocks = cut(np.array(sizes, np.int64), limit)
    assert [row for start, rows in blocks for row in range(start, start + rows)] == list(range(len(sizes)))


@given(SIZES, st.integers(1, 150))
def test_a_block_is_within_the_limit_unless_it_is_one_row(sizes: list[int], limit: int) -> None:
    for start, rows in cut(np.array(sizes, np.int64), limit):
        assert rows >= 1
        assert rows == 1 or sum(sizes[start : start + rows]) <= limit


@given(SIZES, st.integers(1, 150))
def test_a_block_takes_all_that_fits(sizes: list[int], limit: int) -> None:
    for start, rows in cut(np.array(sizes, np.int64), limit):
        if start + rows < len(sizes):
            assert sum(sizes[start : start + rows + 1]) > limit


def naive(item: Event) -> int:
    """The measure in plain Python: 8 bytes a number, 4 and its UTF-8 a text, 4 a list or map."""

    def text(value: str | None) -> int:
        return 4 + len((value or "").encode())

    total = 0
    for name, value in ((name, getattr(item, name)) for name in item.__struct_fields__):
        if name.endswith("attributes"):
            total += 4 + sum(text(key) + text(found) for key, found in value.items())
        elif name.endswith("uuids"):
            total += 4 + sum(map(text, value))
        elif name.endswith("content_claim"):
            total += 16 + sum(text(getattr(value, part, None)) for part in ("container", "section", "identifier"))
        elif isinstance(value, str) or "int" not in str(Event.__annotations__[name]):
            total += text(value)
        else:
            total += 8
    return total


@given(st.lists(EVENTS, max_size=4))
def test_row_bytes_are_the_plain_size_of_each_row(events: list[Event]) -> None:
    assert row_bytes(table_of(events)).tolist() == [naive(item) for item in events]


def test_a_slice_measures_as_its_rows_do_in_the_whole() -> None:
    table = table_of(sample(50))
    whole = row_bytes(table)
    assert row_bytes(table.slice(7, 20)).tolist() == whole[7:27].tolist()
    assert row_bytes(pa.concat_tables([table.slice(0, 9), table.slice(9)])).tolist() == whole.tolist()


def test_a_large_event_gets_a_block_of_its_own() -> None:
    events = [event(0), event(1), event(2, details="x" * 5000), event(3), event(4)]
    sizes = row_bytes(table_of(events))
    assert cut(sizes, 4096) == [(0, 2), (2, 1), (3, 2)]


def naive_encoded(item: Event) -> int:
    """The measure of encoded values: a dictionary for `details` and keys, half of `transit_uri`, nothing for absent."""

    def text(value: str | None) -> int:
        return 0 if value is None else 4 + len(value.encode())

    total = 0
    for name in item.__struct_fields__:
        value = getattr(item, name)
        if name.endswith("attributes"):
            total += 4 + sum(2 + text(found) for found in value.values())
        elif name.endswith("uuids"):
            total += 4 + sum(map(text, value))
        elif name == "details":
            total += 2
        elif name == "transit_uri":
            total += 4 + len((value or "").encode()) // 2
        elif name.endswith("content_claim"):
            total += sum(text(getattr(value, part, None)) for part in ("container", "section", "identifier"))
            total += sum(8 for part in ("offset", "size") if getattr(value, part, None) is not None)
        elif isinstance(value, str):
            total += text(value)
        else:
            total += 0 if value is None else 8
    return total


@given(st.lists(EVENTS, max_size=4))
def test_encoded_bytes_are_those_of_the_values_that_are_there(events: list[Event]) -> None:
    keys = ("previous_attributes.key_value.key", "updated_attributes.key_value.key")
    shares = {"details": 0.0, "transit_uri": 0.5, **dict.fromkeys(keys, 0.0)}
    assert encoded_bytes(table_of(events), shares).tolist() == [naive_encoded(item) for item in events]


def test_a_slice_is_as_large_when_encoded_as_its_rows_are_in_the_whole() -> None:
    table = table_of(sample(50))
    whole = encoded_bytes(table, SHARES)
    assert (whole < row_bytes(table)).all()
    assert encoded_bytes(table.slice(7, 20), SHARES).tolist() == whole[7:27].tolist()
    assert encoded_bytes(pa.concat_tables([table.slice(0, 9), table.slice(9)]), SHARES).tolist() == whole.tolist()
