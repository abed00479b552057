"""Pieces of a packed shard that are compressed by Zstandard."""

from __future__ import annotations

import pyarrow as pa

_CODEC = pa.Codec("zstd", compression_level=3)
# Zstandard makes few bytes of very many equal ones. A forged size must still not take any amount of memory.
_RATIO_BITS = 16


def compressed(data: bytes) -> bytes:
    """Return bytes compressed, or as they are where that is no longer: equal lengths say which."""
    small: bytes = _CODEC.compress(data, asbytes=True)
    return small if len(small) < len(data) else data


def decompressed(stored: memoryview, size: int) -> bytes:
    """Return the `size` bytes that were compressed.

    Raises:
        ValueError: it cannot be these bytes that were compressed.
    """
    if len(stored) == size:
        return bytes(stored)
    if size > (len(stored) + 1) << _RATIO_BITS:
        raise ValueError(f"{len(stored)} bytes that hold {size}")
    try:
        data: bytes = _CODEC.decompress(stored, size, asbytes=True)
    except OSError as error:  # pyarrow's for damaged data; not one of the disk
        raise ValueError(f"damaged compressed bytes: {error}") from error
    return data
