"""Uuids and ordinals of many names at once: those of `uuid_of_name` and `digest_ordinal`, as columns."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.format.identifiers import HOUR_MAX, HOUR_MS, HOUR_SHIFT, NAMESPACE

_NAMESPACE_BYTES = NAMESPACE.bytes
_SHA1_BYTES, _SHA256_BYTES = 20, 32
_UUID_BYTES, _UUID_CHARACTERS = 16, 36
_HEX = np.frombuffer("".join(f"{value:02x}" for value in range(256)).encode(), np.uint8).reshape(256, 2)
_DASH = ord("-")
_DASHES = (8, 13, 18, 23)
_DIGITS = np.delete(np.arange(_UUID_CHARACTERS), _DASHES)
_BITS = 64


def uuids_of_names(names: Sequence[bytes]) -> pa.StringArray:
    """Return the uuid of each name, which is the JSON array of a kind and the parts of a name."""
    hashed = (hashlib.sha1(_NAMESPACE_BYTES + name, usedforsecurity=False).digest() for name in names)
    digests = np.frombuffer(b"".join(hashed), np.uint8).reshape(-1, _SHA1_BYTES)[:, :_UUID_BYTES].copy()
    digests[:, 6] = digests[:, 6] & 0x0F | 0x50
    digests[:, 8] = digests[:, 8] & 0x3F | 0x80
    texts = np.full((len(names), _UUID_CHARACTERS), _DASH, np.uint8)
    texts[:, _DIGITS] = _HEX[digests].reshape(-1, 2 * _UUID_BYTES)
    offsets = np.arange(len(names) + 1, dtype=np.int32) * _UUID_CHARACTERS
    return pa.StringArray.from_buffers(len(names), pa.py_buffer(offsets), pa.py_buffer(texts))


def ordinals_of_names(names: Sequence[bytes | memoryview], times_ms: Sequence[int | None]) -> npt.NDArray[np.int64]:
    """Return the ordinal of each name at its time, which may be none.

    Raises:
        OverflowError: a time has more than 64 bits.
    """
    hashed = b"".join([hashlib.sha256(name).digest() for name in names])
    digests = np.frombuffer(hashed, ">u8").reshape(-1, _SHA256_BYTES // 8)[:, 0].astype(np.uint64)
    times = np.array([time or 0 for time in times_ms], np.int64)
    hours = np.minimum(np.maximum(times, 0) // HOUR_MS, HOUR_MAX).astype(np.uint64)
    timed: npt.NDArray[np.uint64] = hours << np.uint64(HOUR_SHIFT) | digests >> np.uint64(_BITS - HOUR_SHIFT)
    if None not in times_ms:
        return timed.astype(np.int64)
    is_timeless = np.array([time is None for time in times_ms], np.bool_)
    return np.where(is_timeless, digests >> np.uint64(1), timed).astype(np.int64)
