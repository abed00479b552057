"""Sets of numbers are those that numpy finds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.format.number_sets import distinct, is_among

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
