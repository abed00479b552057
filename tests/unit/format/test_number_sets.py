"""Sets of numbers are those that numpy finds."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.format.number_sets import distinct, is_among

_LIBRARY = Path(__file__).parents[3] / "include" / "custody"
_BY_TABLES = {"union1d", "setdiff1d", "setxor1d"}

numbers = st.lists(st.one_of(st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1)))


@given(numbers)
def test_numbers_each_once_are_those_of_numpy(given_numbers: list[int]) -> None:
    array = np.array(given_numbers, np.int64)
    found = distinct(array)
    assert found.dtype == np.int64
    assert found.tolist() == np.unique(array).tolist()
    assert array.tolist() == given_numbers


@pytest.mark.parametrize("kind", [np.int32, np.uint64, np.int8])
def test_a_set_has_the_type_of_its_numbers_and_one_dimension(kind: type[np.integer[np.typing.NBitBase]]) -> None:
    found = distinct(np.array([[3, 1], [3, 0]], kind))
    assert found.dtype == kind
    assert found.tolist() == [0, 1, 3]


@given(numbers, numbers)
def test_numbers_are_among_others_where_numpy_says_so(some: list[int], held: list[int]) -> None:
    arrays = np.array(some, np.int64), np.array(held, np.int64)
    found = is_among(*arrays)
    assert found.dtype == np.bool_
    assert found.tolist() == np.isin(*arrays).tolist()
    assert (arrays[0].tolist(), arrays[1].tolist()) == (some, held)


def test_the_library_asks_numpy_for_no_set_that_it_makes_with_a_table() -> None:
    calls = [
        f"{path.relative_to(_LIBRARY)}:{call.lineno}"
        for path, text in ((path, path.read_text()) for path in sorted(_LIBRARY.rglob("*.py")))
        if any(f"np.{name}(" in text for name in ("unique", *_BY_TABLES))
        for call in ast.walk(ast.parse(text))
        if isinstance(call, ast.Call) and _is_slow(call)
    ]
    assert calls == []


def _is_slow(call: ast.Call) -> bool:
    if not (isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "np"):
        return False
    said = {keyword.arg for keyword in call.keywords}
    if call.func.attr == "unique":
        return not said & {"return_index", "return_inverse", "return_counts"}
    return call.func.attr in _BY_TABLES
