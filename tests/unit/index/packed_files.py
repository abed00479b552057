"""Parts of a packed shard in a file by themselves, as a reader of the shard finds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from custody.index.arrays import Bytes
from custody.index.bit_packing import WORD_BYTES
from custody.index.paged_file import CheckedFile, checksums_of
from custody.vfs import PosixFileSystem


def checked(folder: Path, *parts: Bytes, before: int = 0, sums: list[int] | None = None) -> CheckedFile:
    """Return a file of some bytes behind so many others, with the word that ends a shard's file."""
    data = b"\xa5" * before + b"".join(part.tobytes() for part in parts) + bytes(WORD_BYTES)
    path = folder / "packed.data"
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    numbers = np.array(checksums_of(data) if sums is None else sums, np.uint32)
    return CheckedFile(PosixFileSystem(), path, len(data), numbers)
