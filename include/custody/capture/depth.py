"""How deep JSON from outside may be nested: what nobody means is refused with its place before it is decoded."""

from __future__ import annotations

import re

import numpy as np

from custody.errors import InvalidInputError

DEPTH_MAX = 100
"""Objects and arrays in each other; a decoder that follows them needs a stack as deep."""
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_OPEN, _CLOSE = np.frombuffer(b"[{", np.uint8), np.frombuffer(b"]}", np.uint8)


def check_depth(raw: bytes, most: int = DEPTH_MAX) -> None:
    """See that objects and arrays lie at most so many deep in each other.

    Raises:
        InvalidInputError: they lie deeper; the message has the place of the first that does.
    """
    if raw.count(b"[") + raw.count(b"{") <= most:
        return
    # Brackets in texts are none; what stands for them is as long, so that places stay.
    data = np.frombuffer(_TEXT.sub(lambda found: b" " * len(found[0]), raw), np.uint8)
    steps = np.isin(data, _OPEN).astype(np.int32) - np.isin(data, _CLOSE)
    deeper = np.flatnonzero(np.cumsum(steps) > most)
    if deeper.size:
        raise InvalidInputError(f"@{deeper[0]}: expected at most {most} arrays and objects in each other, got more")
