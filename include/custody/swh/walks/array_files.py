"""Arrays that are written a part after the other, and mapped into memory where they are read."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from custody.vfs import FileSystem

SUFFIX = ".npy"


class ArrayFile:
    """An array of one dimension on its way to disk; as NumPy's own where its length is known, bare otherwise."""

    def __init__(self, fs: FileSystem, path: Path, dtype: type[np.generic], count: int | None = None) -> None:
        self._dtype = np.dtype(dtype)
        self._file = fs.create(path)
        if count is not None:
            header = {"descr": np.lib.format.dtype_to_descr(self._dtype), "fortran_order": False, "shape": (count,)}
            np.lib.format.write_array_header_1_0(self._file, header)

    def append(self, part: np.ndarray) -> None:
        """Write what comes next."""
        # An empty array cannot be written as bytes.
        if len(part):
            self._file.write(np.ascontiguousarray(part, self._dtype).data.cast("B"))  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def write_bare(fs: FileSystem, path: Path, part: np.ndarray) -> None:
    """Write a whole array without a header."""
    with ArrayFile(fs, path, part.dtype.type) as file:
        file.append(part)


def map_bare(path: Path, dtype: type[np.generic]) -> np.ndarray:
    """Map an array without a header."""
    # Nothing cannot be mapped.
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.empty(0, dtype)


def map_array(path: Path) -> np.ndarray:
    """Map an array of NumPy's form."""
    array: np.ndarray = np.load(path, mmap_mode="r")
    return array
