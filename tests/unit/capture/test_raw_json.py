"""Nesting of JSON from outside is bounded, whatever stands in its texts; the place of the first too deep is told."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture.raw_json import DEPTH_MAX, check_depth
from custody.capture.validate import Context, InputPlace, Rejected, validate_element
from custody.errors import InvalidInputError

TEXTS = st.text(st.sampled_from('[]{}"\\,: aü'), max_size=8)
VALUES = st.recursive(
    TEXTS | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=12,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@given(VALUES, st.integers(1, 5), st.booleans())
def test_the_depth_is_that_of_the_value(value: Any, most: int, is_ascii: bool) -> None:
    raw = json.dumps(value, ensure_ascii=is_ascii).encode()
    if depth(value) <= most:
        check_depth(raw, most)
    else:
        with pytest.raises(InvalidInputError, match=f"expected at most {most} arrays and objects") as caught:
            check_depth(raw, most)
        place = int(str(caught.value)[1:].partition(":")[0])
        assert raw[place : place + 1] in (b"[", b"{")


@given(st.binary(max_size=60))
def test_any_bytes_are_looked_at(raw: bytes) -> None:
    try:
        check_depth(raw, 2)
    except InvalidInputError as error:
        assert "expected at most 2" in str(error)


def test_an_element_of_a_file_is_refused_as_a_request_is() -> None:
    deep = b'{"a":' * (DEPTH_MAX + 2) + b"1" + b"}" * (DEPTH_MAX + 2)
    [outcome] = validate_element(deep, InputPlace(None, 0), lambda raw, context: [], Context())
    assert isinstance(outcome, Rejected)
    assert outcome.problem.code == "bad-value"
    assert list(validate_element(deep[5:-1], InputPlace(None, 0), lambda raw, context: [], Context())) == []
