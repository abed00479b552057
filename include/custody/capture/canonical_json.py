"""Canonical JSON: keys sorted, no blanks, and numbers as they were written, so that equal documents are equal bytes."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec


def _as_written(number: str) -> msgspec.Raw:
    # Decoding would round: 1.10e2 and 110.0 are two texts, and long fractions lose digits.
    return msgspec.Raw(number.encode())


_DECODER = msgspec.json.Decoder(float_hook=_as_written)
_ENCODER = msgspec.json.Encoder(order="sorted")


def canonical_json(raw: bytes | str) -> bytes:
    """Return the canonical form of a document.

    Raises:
        msgspec.DecodeError: it is no JSON.
    """
    return _ENCODER.encode(_DECODER.decode(raw))


def decoded_with_digest(raw: bytes | str) -> tuple[Any, str]:
    """Return a document and the SHA-256 of its canonical form, in hexadecimal digits; raises as `canonical_json`.

    Numbers with a point or an exponent are `msgspec.Raw`, as they were written.
    """
    document = _DECODER.decode(raw)
    return document, hashlib.sha256(_ENCODER.encode(document)).hexdigest()


def digest_of(raw: bytes | str) -> str:
    """Return the SHA-256 of the canonical form of a document, in hexadecimal digits; raises as `canonical_json`."""
    return decoded_with_digest(raw)[1]
