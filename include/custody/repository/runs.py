"""Numbers and what each stands for, in sorted columns: 16 bytes an entry, added a batch at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]


class Runs:
    """A few sorted runs, each at least twice as long as the next; of a number added again the newer value holds."""

    def __init__(self) -> None:
        self._runs: list[tuple[Column, Column]] = []

    def add(self, numbers: Sequence[int], values: Sequence[int]) -> None:
        """Add a batch, and merge it with runs that are not much longer."""
        if not numbers:
            return
        parts = [(np.array(numbers, np.int64), np.array(values, np.int64))]
        length = len(numbers)
        while self._runs and len(self._runs[-1][0]) < 2 * length:
            parts.insert(0, self._runs.pop())
            length += len(parts[0][0])
        keys = np.concatenate([part[0] for part in parts])
        order = np.argsort(keys, kind="stable")
        self._runs.append((keys[order], np.concatenate([part[1] for part in parts])[order]))

    def find(self, numbers: Sequence[int]) -> dict[int, int]:
        """Return the values of those numbers that were added."""
        wanted = np.array(numbers, np.int64)
        found: dict[int, int] = {}
        for keys, values in self._runs:
            places = np.searchsorted(keys, wanted, side="right") - 1  # the newest of equal ones
            hits = (places >= 0) & (keys[places] == wanted)
            found.update(zip(wanted[hits].tolist(), values[places[hits]].tolist(), strict=True))
        return found
