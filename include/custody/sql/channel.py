"""What goes between who asks and the engine: frames of a kind, a length and that many bytes.

To the engine: the text of the query, then what it is asked of. From it: the names of the tables that the query reads,
the columns of the result, its rows, and how it ended.
"""

from __future__ import annotations

import struct
from typing import Annotated, BinaryIO, Literal

import msgspec

HEAD = struct.Struct("<cQ")
ASKED, NAMES, SCHEMA, ROWS, END, PROBLEM = b"A", b"N", b"S", b"R", b"E", b"X"
FRAME_BYTES = 8 << 20
"""Rows are sent in frames of about this size, so that neither side holds many of them; one row may be larger."""


class Problem(msgspec.Struct, frozen=True):
    """Why there is no result."""

    kind: Literal["query", "run", "memory", "row", "gone"]
    """`query`: it cannot be read, or must not be asked. `run`: it failed while it ran; damage may be why. `gone`: the
    file of a log is not there any more; the text is its path."""
    text: str


class EngineLimits(msgspec.Struct, frozen=True):
    """What the process of one query may take."""

    engine_bytes: Annotated[int, msgspec.Meta(ge=1)]
    """What the engine may keep in memory before it puts something aside."""
    process_bytes: int
    spill_bytes: int
    row_bytes: int
    cpu_seconds: int


def send(file: BinaryIO, kind: bytes, payload: bytes | memoryview) -> None:
    """Write one frame."""
    file.write(HEAD.pack(kind, len(payload)))
    file.write(payload)
    file.flush()


def receive(file: BinaryIO) -> bytes:
    """Return the payload of the next frame.

    Raises:
        EOFError: the other side is gone.
    """
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        raise EOFError
    length = HEAD.unpack(head)[1]
    payload = file.read(length)
    if len(payload) < length:
        raise EOFError
    return payload
