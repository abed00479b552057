"""Framing of records in an append-only file: length, checksum, kind, payload.

A frame is `u32 payload length | u32 CRC-32 of length, kind and payload | u8 kind | payload`, little-endian. The
checksum covers the length. A bad record is a torn tail only when no whole record follows it: appends come one after
the other, so what lies before a whole record was once whole itself, whatever its length says now.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from custody.errors import CorruptionError

_HEAD = struct.Struct("<IIB")
HEAD_BYTES = _HEAD.size
PAYLOAD_BYTES_MAX = 1 << 30
_SCAN_BYTES = 1 << 20


def _checksum(length: int, kind: int, payload: bytes | memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(struct.pack("<IB", length, kind)))


def frame(kind: int, payload: bytes) -> bytes:
    """Return one record ready to be appended; `kind` is 0 to 255."""
    if len(payload) > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a record holds at most {PAYLOAD_BYTES_MAX} bytes, got {len(payload)}")
    return _HEAD.pack(len(payload), _checksum(len(payload), kind, payload), kind) + payload


@dataclass(frozen=True, slots=True)
class Frame:
    """One intact record and where it began."""

    offset: int
    kind: int
    payload: memoryview


@dataclass(frozen=True, slots=True)
class TornTail:
    """The last record is incomplete: an append that no caller was told of."""

    offset: int
    lost_bytes: int


def frames(data: bytes, start: int, path: Path) -> Iterator[Frame | TornTail]:
    """Yield the records of a file from `start`; a torn tail comes last, as a TornTail.

    Torn is a bad record that no whole one follows: a power failure may leave any part of the last append.

    Raises:
        CorruptionError: a record fails its checksum and a whole one follows it.
    """
    view = memoryview(data)
    offset = start
    while offset < len(view):
        rest = len(view) - offset
        if rest < HEAD_BYTES:
            yield TornTail(offset, rest)
            return
        length, checksum, kind = _HEAD.unpack_from(view, offset)
        end = offset + HEAD_BYTES + length
        payload = view[offset + HEAD_BYTES : end]
        if end <= len(view) and checksum == _checksum(length, kind, payload):
            yield Frame(offset, kind, payload)
            offset = end
        elif _whole_record_after(view, offset):
            raise CorruptionError(
                f"{path} @{offset}: expected a record with checksum {checksum:#010x}, got other bytes. "
                f"{rest} bytes from here on were not read."
            )
        else:
            yield TornTail(offset, rest)
            return


def _whole_record_after(view: memoryview, offset: int) -> bool:
    """Whether a whole record begins anywhere behind `offset`; the bad record's own length cannot be trusted."""
    stop = len(view) - HEAD_BYTES + 1
    for start in range(offset + 1, stop, _SCAN_BYTES):
        count = min(_SCAN_BYTES, stop - start)
        lengths = np.zeros(count, np.int64)
        for place in range(4):
            lengths |= np.frombuffer(view, np.uint8, count, start + place).astype(np.int64) << 8 * place
        ends = np.arange(start, start + count) + HEAD_BYTES + lengths
        for position in (np.flatnonzero(ends <= len(view)) + start).tolist():
            length, checksum, kind = _HEAD.unpack_from(view, position)
            payload = view[position + HEAD_BYTES : position + HEAD_BYTES + length]
            if checksum == _checksum(length, kind, payload):
                return True
    return False
