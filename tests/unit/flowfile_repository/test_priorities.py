"""Priorities: each kind orders as it says, values of any types can be compared, a bad function is named."""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any

import pytest

from custody.errors import ConfigurationError, InvalidInputError
from custody.flow import FlowFile
from custody.flowfile_repository.priorities import key_of, prioritizer
from custody.flowfile_repository.records import Key
from tests.unit.flowfile_repository.queue_fixtures import flowfile


def _order(name: str, items: list[FlowFile]) -> list[str]:
    chosen = [(name, prioritizer(name))]
    return [item.uuid for item in sorted(items, key=lambda item: key_of(item, chosen, "q"))]


def _key(value: object) -> Key:
    return key_of(flowfile(), [("m:f", lambda _: value)], "q")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    made = ModuleType("priorities_of_a_user")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    return made


def test_oldest_and_newest_compare_the_start_of_the_lineage() -> None:
    items = [flowfile("b", age=20), flowfile("c", age=10), flowfile("a", age=30)]
    assert _order("oldest", items) == ["a", "b", "c"]
    assert _order("newest", items) == ["c", "b", "a"]


def test_an_attribute_orders_numbers_before_texts_and_nothing_last() -> None:
    values = {"ten": "10", "two": "2", "minus": "-3", "text": "x", "more": "xy", "empty": ""}
    items = [flowfile("none"), *(flowfile(name, p=value) for name, value in values.items())]
    assert _order("attribute:p", items) == ["minus", "two", "ten", "empty", "text", "more", "none"]


@pytest.mark.parametrize("value", [str(2**63), str(-(2**63) - 1), "9" * 5000])
def test_a_number_beyond_64_bits_is_a_text(value: str) -> None:
    assert key_of(flowfile(p=value), [("attribute:p", prioritizer("attribute:p"))], "q") == ((1, value),)


NAMED: dict[str, Any] = {"a:b": "7"}


def test_an_attribute_s_name_may_hold_a_colon() -> None:
    assert key_of(flowfile(**NAMED), [("attribute:a:b", prioritizer("attribute:a:b"))], "q") == ((0, 7),)


def test_a_function_of_a_user_is_imported_and_may_return_several_parts(module: ModuleType) -> None:
    module.urgent = lambda item: (item.attributes["grade"] != "gold", item.size)  # type: ignore[attr-defined]
    gold, large, small = flowfile("g", size=9, grade="gold"), flowfile("l", size=5), flowfile("s", size=1)
    items = [large, gold, small]
    for item in (large, small):
        item.attributes["grade"] = "tin"
    assert _order("priorities_of_a_user:urgent", items) == ["g", "s", "l"]


def test_keys_of_any_types_and_lengths_can_be_compared() -> None:
    values = [1, 1.5, True, -math.inf, math.inf, "x", "", None, (1, "x"), ("x", 1), (None, None), (), 2**63 - 1]
    keys = [_key(value) for value in values]
    for one in keys:
        for other in keys:
            assert (one < other) + (other < one) + (one == other) == 1


@pytest.mark.parametrize("value", [math.nan, 2**63, -(2**63) - 1, b"x", [1], object(), (1, (2,))])
def test_what_cannot_be_ordered_is_refused_with_the_name_of_the_function(value: object) -> None:
    with pytest.raises(InvalidInputError, match=r"queue 'q'.*'m:f'"):
        _key(value)


def test_too_many_parts_are_refused() -> None:
    assert len(_key(tuple(range(16)))) == 16
    with pytest.raises(InvalidInputError, match="at most 16 parts, got 17"):
        _key(tuple(range(17)))


def test_a_function_that_raises_is_named_with_the_flowfile_and_its_error() -> None:
    def bad(_: FlowFile) -> object:
        return 1 / 0

    with pytest.raises(InvalidInputError, match=r"'m:bad' failed for FlowFile f: ZeroDivisionError: .* Nothing was"):
        key_of(flowfile(), [("m:bad", bad)], "q")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("", "expected oldest, newest"),
        ("largest", "expected oldest, newest"),
        ("attribute:", "expected oldest, newest"),
        (":f", "expected oldest, newest"),
        ("no_such_module_anywhere:f", "No module named"),
        ("math:no_such_function", "no attribute"),
        ("math:pi", "expected a function, got float"),
    ],
)
def test_a_name_that_stands_for_nothing_is_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        prioritizer(name)
