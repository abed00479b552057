"""JSON objects for people to read, whose last key is a checksum of all before it.

A reader that does not know the key ignores it. Objects of older releases, which lack it, are read as they are.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

# Part of the format: readers look for these very bytes.
_CHECKSUM = b',\n "checksum": "%b"\n}'
_BEFORE, _BEHIND = _CHECKSUM.split(b"%b")
_CHECKSUM_BYTES = len(_CHECKSUM % bytes(64))
_DIGITS = re.compile(rb"[0-9a-f]{64}")


def with_checksum(document: bytes) -> bytes:
    """Return a JSON object indented by one space, with a last key, the SHA-256 of all before it."""
    body = msgspec.json.format(document, indent=1).removesuffix(b"\n}")
    return body + _CHECKSUM % hashlib.sha256(body).hexdigest().encode()


def has_right_checksum(data: bytes) -> bool:
    """Whether an object ends with the checksum of what is before it."""
    body = data[:-_CHECKSUM_BYTES]
    return data[-_CHECKSUM_BYTES:] == _CHECKSUM % hashlib.sha256(body).hexdigest().encode()


def is_changed(data: bytes) -> bool:
    """Whether an object that was written with a checksum is not as it was written; False for one without any.

    A changed byte may be one of the checksum: what still looks like one, in part, was one.
    """
    tail = data[-_CHECKSUM_BYTES:]
    digits = tail[len(_BEFORE) : -len(_BEHIND)]
    once = [tail.startswith(_BEFORE), _DIGITS.fullmatch(digits) is not None, tail.endswith(_BEHIND)]
    return sum(once) >= 2 and not has_right_checksum(data)
