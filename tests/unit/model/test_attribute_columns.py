"""Attributes by name become the attributes of each row, in the order of the names."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.model import EVENT_SCHEMA
from custody.model.attribute_columns import attribute_column
from custody.model.columns import column_of, lacking_column

_VALUES = st.none() | st.text(max_size=3)


@given(
    st.integers(0, 5).flatmap(
        lambda rows: st.dictionaries(
            st.text(max_size=3), st.lists(_VALUES, min_size=rows, max_size=rows), min_size=1, max_size=4
        )
    )
)
def test_a_row_has_the_attributes_that_are_not_null(values: dict[str, list[str | None]]) -> None:
    column = attribute_column({name: pa.array(texts, pa.string()) for name, texts in values.items()})
    rows = [
        {name: text for name, text in zip(values, row, strict=True) if text is not None}
        for row in zip(*values.values(), strict=True)
    ]
    column.validate(full=True)
    assert column.equals(column_of(EVENT_SCHEMA.field("updated_attributes"), rows))


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_what_is_lacking_is_what_an_event_has_that_does_not_say_it(rows: int) -> None:
    for field in EVENT_SCHEMA:
        column = lacking_column(field, rows)
        column.validate(full=True)
        assert column.type == field.type
        empty: list[object] | None = [] if field.name.endswith(("uuids", "attributes")) else None
        if field.nullable or empty is not None:
            assert column.to_pylist() == [empty] * rows
