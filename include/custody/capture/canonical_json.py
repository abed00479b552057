"""Canonical JSON: keys sorted, no blanks, and numbers as they were written, so that equal documents are equal bytes."""

from __future__ import annotations

import hashlib

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


def canonical_digest(raw: bytes | str) -> str:
    """Return the SHA-256 of the canonical form, in hexadecimal digits; raises as `canonical_json`."""
    return hashlib.sha256(canonical_json(raw)).hexdigest()
