"""Sorted runs of numbers on disk, which are merged a range at a time; the memory is that of one range.

A run has each key once. Samples of all runs say where to cut, so that a range has about as many rows as are wanted,
however the keys are spread.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from custody.format.number_sets import distinct
from custody.swh.walks.array_files import map_bare, write_bare
from custody.vfs import FileSystem

# Each run adds to a range up to one sample's distance at both ends.
_SAMPLES_OF_A_RANGE = 3


class NumberRuns:
    """Runs of keys (int64), and of a value of each (int32) where they have one; files of one folder."""

    def __init__(self, fs: FileSystem, folder: Path) -> None:
        self._fs = fs
        self._folder = folder
        self._count = 0
        fs.make_directory(folder)

    def add(self, keys: np.ndarray, values: np.ndarray | None = None) -> None:
        """Write a run: keys that rise, and their values."""
        write_bare(self._fs, self._path("keys", self._count), keys)
        if values is not None:
            write_bare(self._fs, self._path("values", self._count), values)
        self._count += 1

    def merged_keys(self, rows: int) -> Iterator[np.ndarray]:
        """Give the different keys, rising, about so many rows of all runs at a time."""
        runs = [map_bare(self._path("keys", number), np.int64) for number in range(self._count)]
        for parts in _ranges(runs, rows):
            yield distinct(np.concatenate([run[part] for run, part in zip(runs, parts, strict=True)]))

    def merged(self, rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Give the different keys, each with the least of its values."""
        runs = [map_bare(self._path("keys", number), np.int64) for number in range(self._count)]
        values = [map_bare(self._path("values", number), np.int32) for number in range(self._count)]
        for parts in _ranges(runs, rows):
            yield least_of_each(
                np.concatenate([run[part] for run, part in zip(runs, parts, strict=True)]),
                np.concatenate([run[part] for run, part in zip(values, parts, strict=True)]),
            )

    def _path(self, kind: str, number: int) -> Path:
        return self._folder / f"{kind}-{number:06}"


def least_of_each(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the different keys, rising, each with the least of its values."""
    # Stable, as that is fast where sorted runs follow each other.
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    del order
    begins = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])) if len(keys) else np.empty(0, np.int64)
    return keys[begins], np.minimum.reduceat(values, begins) if len(begins) else values


def _ranges(runs: list[np.ndarray], rows: int) -> Iterator[list[slice]]:
    """Give the part of each run that belongs to a range of keys, range by range; no range without rows."""
    distance = max(rows // (_SAMPLES_OF_A_RANGE * max(len(runs), 1)), 1)
    samples = np.sort(np.concatenate([np.empty(0, np.int64), *(run[::distance] for run in runs)]))
    pivots = distinct(samples[len(runs) :: max(len(runs), 1)])
    cuts = [np.concatenate([[0], np.searchsorted(run, pivots), [len(run)]]).tolist() for run in runs]
    for place in range(len(pivots) + 1):
        parts = [slice(cut[place], cut[place + 1]) for cut in cuts]
        if any(part.start < part.stop for part in parts):
            yield parts
