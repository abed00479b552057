"""CSV: every value comes back, a line is one line, and plain values stay plain."""

from __future__ import annotations

import csv as standard

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from custody.errors import InvalidInputError
from custody.ngsi import rendering

SEPARATORS = st.sampled_from([",", ";", "|", "\t", "^"])
VALUES = st.none() | st.text(st.sampled_from('a\\nr",;|\t\n\rNULé🌳 ')) | st.text()


@given(st.lists(VALUES, min_size=1, max_size=6), SEPARATORS)
@example(["NULL", None, "", '"', "\\", "\\n", "\n", "\\\\n", "a,b"], ",")
def test_every_value_comes_back(values: list[str | None], separator: str) -> None:
    line = rendering.line(values, separator)
    assert "\n" not in line
    assert "\r" not in line
    assert rendering.read_line(line, separator) == values


@given(st.lists(VALUES, min_size=2, max_size=6), SEPARATORS)
def test_any_reader_of_csv_finds_the_same_fields(values: list[str | None], separator: str) -> None:
    """Whoever knows nothing of our escapes still finds every field at its place."""
    line = rendering.line(values, separator)
    [fields] = standard.reader([line], delimiter=separator, doublequote=True, strict=True)
    assert len(fields) == len(values)
    for field, value in zip(fields, values, strict=True):
        if value is not None and not set(value) & set("\\\r\n"):
            assert field == value


@given(st.text(st.characters(exclude_characters='",\\\r\n')).filter(lambda text: text != "NULL"))
def test_a_plain_value_is_itself(value: str) -> None:
    assert rendering.line([value], ",") == value


@pytest.mark.parametrize("line", ['"a', 'a"b', '"a"b', '"a""'])
def test_a_line_whose_quotes_do_not_fit_is_refused(line: str) -> None:
    with pytest.raises(InvalidInputError, match="CSV line @0: expected a field and ','"):
        rendering.read_line(line, ",")
