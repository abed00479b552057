"""Sorted runs of names on disk, which are merged a range at a time and numbered in the order of their bytes."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from custody.swh.walks.array_files import ArrayFile, map_bare, write_bare
from custody.vfs import FileSystem

_SAMPLES_OF_A_RANGE = 3


class NameRuns:
    """Runs of different names that rise, and the number of each among all once they are merged."""

    def __init__(self, fs: FileSystem, folder: Path) -> None:
        self._fs = fs
        self._folder = folder
        self._runs = 0
        self.count = 0
        """How many different names there are, once they are merged."""
        fs.make_directory(folder)

    def add(self, names: pa.Array) -> None:
        """Write a run; large binaries that rise."""
        ends, data = columns_of(names)
        write_bare(self._fs, self._path("ends", self._runs), ends)
        write_bare(self._fs, self._path("bytes", self._runs), data)
        self._runs += 1

    def merge(self, rows: int) -> None:
        """Put all runs together, about so many names of them at a time."""
        runs = [self._run(number) for number in range(self._runs)]
        cuts = _cuts(runs, rows)
        for number in range(self._runs):
            write_bare(self._fs, self._path("numbers", number), np.empty(0, np.int32))
        end = 0
        with (
            ArrayFile(self._fs, self._folder / "ends", np.int64) as ends,
            ArrayFile(self._fs, self._folder / "bytes", np.uint8) as data,
        ):
            ends.append(np.zeros(1, np.int64))
            for place in range(len(cuts[0]) - 1 if cuts else 0):
                parts = [run[cut[place] : cut[place + 1]] for run, cut in zip(runs, cuts, strict=True)]
                names = pa.concat_arrays(parts).unique()
                names = names.take(pc.sort_indices(names))
                self._number(parts, names)
                name_ends, name_bytes = columns_of(names)
                ends.append(name_ends[1:] + end)
                data.append(name_bytes)
                end += len(name_bytes)
                self.count += len(names)

    def numbers(self, run: int) -> np.ndarray:
        """Return the number of each name of a run; int32."""
        return map_bare(self._path("numbers", run), np.int32)

    def ends(self) -> np.ndarray:
        """Return where each name ends in `data`, with the 0 where the first one begins."""
        return map_bare(self._folder / "ends", np.int64)

    def data(self) -> np.ndarray:
        """Return the bytes of all names."""
        return map_bare(self._folder / "bytes", np.uint8)

    def _number(self, parts: list[pa.Array], names: pa.Array) -> None:
        for number, part in enumerate(parts):
            # Opened for each range: there may be more runs than a process may have files open.
            if len(part):
                with self._fs.append(self._path("numbers", number)) as file:
                    places = np.asarray(pc.index_in(part, value_set=names)) + self.count
                    file.write(places.astype(np.int32).tobytes())

    def _run(self, number: int) -> pa.Array:
        ends, data = (
            map_bare(self._path(kind, number), dtype) for kind, dtype in (("ends", np.int64), ("bytes", np.uint8))
        )
        return pa.Array.from_buffers(pa.large_binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])

    def _path(self, kind: str, run: int) -> Path:
        return self._folder / f"{kind}-{run:06}"


def columns_of(names: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return large binaries without nulls as where each ends, from 0 on, and the bytes of all."""
    offsets, data = names.buffers()[1:]
    # An array without anything may lack its buffers.
    if not len(names):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    ends = np.frombuffer(offsets, np.int64)[names.offset : names.offset + len(names) + 1]
    whole = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return ends - ends[0], whole[ends[0] : ends[-1]]


def _cuts(runs: list[pa.Array], rows: int) -> list[list[int]]:
    """Where each run is cut into ranges of names; the same ranges in all."""
    distance = max(rows // (_SAMPLES_OF_A_RANGE * max(len(runs), 1)), 1)
    samples = sorted(run[place].as_py() for run in runs for place in range(0, len(run), distance))
    pivots = sorted(set(samples[len(runs) :: max(len(runs), 1)]))
    return [
        [0, *(bisect_left(run, pivot, key=lambda name: name.as_py()) for pivot in pivots), len(run)] for run in runs
    ]
