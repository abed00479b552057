"""A message made of buffers is the one that Arrow makes, to the bit."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.model import EVENT_SCHEMA
from custody.model.arrow_message import MessageTemplate, column_buffers, null_buffers

TEXTS = st.text(max_size=9)
CLAIM = pa.struct([("a", pa.string()), ("b", pa.int64())])
KINDS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), TEXTS),
    (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    (pa.int32(), st.integers(-5, 5)),
    (pa.bool_(), st.booleans()),
    (pa.timestamp("ms", tz="UTC"), st.integers(0, 1 << 40)),
    (pa.list_(pa.field("element", pa.string(), nullable=False)), st.lists(TEXTS, max_size=3)),
    (pa.map_(pa.string(), pa.string()), st.lists(st.tuples(TEXTS, TEXTS | st.none()), max_size=3)),
    (CLAIM, st.fixed_dictionaries({"a": TEXTS | st.none(), "b": st.integers(-9, 9) | st.none()})),
]


@given(data=st.data(), rows=st.integers(1, 70), kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
def test_a_message_of_buffers_is_that_of_arrow(
    data: st.DataObject, rows: int, kinds: list[tuple[pa.DataType, st.SearchStrategy[Any]]]
) -> None:
    seeds = data.draw(st.randoms(use_true_random=False))
    arrays = []
    for kind, values in kinds:
        few = data.draw(st.lists(values | st.none(), min_size=1, max_size=4))
        arrays.append(pa.array([seeds.choice(few) for _ in range(rows)], kind))
    schema = pa.schema([(f"{number}", kind) for number, (kind, _) in enumerate(kinds)])
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    message = MessageTemplate(schema).message(rows, map(column_buffers, arrays))
    assert message == batch.serialize().to_pybytes()


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 1000, 70_000])
def test_columns_of_nothing_are_those_of_arrow(rows: int) -> None:
    arrays = [pa.nulls(rows, field.type) for field in EVENT_SCHEMA]
    template = MessageTemplate(EVENT_SCHEMA)
    message = template.message(rows, [null_buffers(field.type, rows) for field in EVENT_SCHEMA])
    batch = pa.RecordBatch.from_arrays(arrays, names=EVENT_SCHEMA.names)
    assert message == batch.serialize().to_pybytes()
    # A second message of the same template has nothing of the first one.
    again = template.message(3, [null_buffers(field.type, 3) for field in EVENT_SCHEMA])
    three = pa.RecordBatch.from_arrays([pa.nulls(3, field.type) for field in EVENT_SCHEMA], names=EVENT_SCHEMA.names)
    assert again == three.serialize().to_pybytes()


def test_a_slice_is_what_it_shows() -> None:
    array = pa.array(["a", None, "bc", "d", None, "efg"] * 5)[3:21]
    schema = pa.schema([("texts", pa.string())])
    expected = pa.RecordBatch.from_arrays([array], schema=schema).serialize().to_pybytes()
    assert MessageTemplate(schema).message(18, [column_buffers(array)]) == expected
