"""Sets of numbers: what is asked is answered as by a Python set, for sparse, dense and tiny ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.swh.elias_fano import EliasFano

KEY = st.integers(0, (1 << 63) - 1)


def numbers(values: set[int]) -> np.ndarray:
    return np.array(sorted(values), np.uint64)


@given(
    held=st.one_of(st.sets(KEY), st.sets(st.integers(0, 300)), st.sets(st.integers((1 << 62), (1 << 62) + 99))),
    asked=st.sets(KEY),
)
def test_a_set_holds_what_was_put_in_and_nothing_else(held: set[int], asked: set[int]) -> None:
    number_set = EliasFano.of(numbers(held))
    assert number_set.numbers().tolist() == sorted(held)
    near = {max(number + step, 0) for number in held for step in (-1, 0, 1)}
    questions = numbers({number for number in asked | near if number < 1 << 63})
    assert number_set.contains(questions).tolist() == [int(number) in held for number in questions]
    assert [number_set.holds(int(number)) for number in questions] == [int(number) in held for number in questions]
    assert number_set.is_sound


@pytest.mark.parametrize(("count", "gap", "bits_max"), [(100_000, 10, 6.0), (100_000, 1000, 12.5), (100_000, 1, 2.1)])
def test_it_takes_two_bits_a_number_and_those_of_the_gaps(count: int, gap: int, bits_max: float) -> None:
    chosen = np.unique(np.random.default_rng(5).integers(0, count * gap, count, dtype=np.uint64))
    number_set = EliasFano.of(np.arange(count, dtype=np.uint64) if gap == 1 else chosen)
    assert len(number_set.words) * 64 / number_set.count < bits_max
