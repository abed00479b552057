"""Pieces of a packed shard that are compressed by Snappy.

Terms are read a block at a time, of which a pattern needs all: what takes them apart quickest costs least. Snappy's
blocks take a byte an event more than Zstandard's, and a quarter of the time.
"""

from __future__ import annotations

import pyarrow as pa

from custody.index.paged_file import CheckedFile

_CODEC = pa.Codec("snappy")
# A copy of up to 64 bytes takes two at least. So a forged size takes no memory that its bytes cannot fill.
_RATIO_MAX = 32


def compressed(data: bytes) -> bytes:
    """Return bytes compressed, or as they are where that is no longer: equal lengths say which."""
    small: bytes = _CODEC.compress(data, asbytes=True)
    return small if len(small) < len(data) else data


def decompressed(file: CheckedFile, start: int, end: int, size: int) -> bytes:
    """Return the `size` bytes that were compressed to those from `start` to `end` of a file.

    Raises:
        CorruptionError: a page is damaged, or it cannot be these bytes that were compressed.
    """
    stored = file.span(start, end)
    if len(stored) == size:
        return bytes(stored)
    # What is compressed begins with its size. pyarrow takes the caller's word for it, and where there are fewer bytes,
    # the rest of the memory would be given out as it was.
    begin = _varint(size)
    if stored[: len(begin)] != begin or size > len(stored) * _RATIO_MAX:
        raise file.error(start, f"{size} bytes compressed to {len(stored)}", "others")
    try:
        data: bytes = _CODEC.decompress(stored, size, asbytes=True)
    except OSError as error:  # pyarrow's for damaged data; not one of the disk
        raise file.error(start, f"{size} bytes compressed", str(error)) from error
    return data


def _varint(number: int) -> bytes:
    """Return a number as seven bits a byte, the lowest first; all bytes but the last have their highest bit set."""
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)
