"""Sets of whole numbers as arrays: each number once, and which numbers are in a set.

numpy's `unique` without counts or places takes a microsecond a number in numpy 2.4, which puts each into a table of its
own, where sorting takes 20 ns; `isin` and `union1d` call it. It also imports the module of masked arrays, to look for
one: 16 to 29 ms of each process that asks. So these are used instead.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Whole = TypeVar("Whole", bound=np.integer[Any])


def distinct(numbers: npt.NDArray[Whole]) -> npt.NDArray[Whole]:
    """Return each of some numbers once, in ascending order, as a new array of one dimension."""
    ordered = np.sort(numbers, axis=None)
    if len(ordered) < 2:
        return ordered
    is_first = np.empty(len(ordered), np.bool_)
    is_first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def is_among(numbers: npt.NDArray[Whole], held: npt.NDArray[Whole]) -> npt.NDArray[np.bool_]:
    """Tell of each of some numbers whether it is among those that are held, in whatever order these are."""
    if not len(held):
        return np.zeros(numbers.shape, np.bool_)
    ordered = np.sort(held)
    places = ordered.searchsorted(numbers)
    places[places == len(ordered)] = 0
    found: npt.NDArray[np.bool_] = ordered[places] == numbers
    return found
