"""The encoding of one object of the catalog: preamble, length, protobuf message, SHA-256 of all before it."""

from __future__ import annotations

import hashlib
import struct

from google.protobuf.message import DecodeError

from custody.catalog.state import FEATURES_READ
from custody.catalog.transaction_pb2 import Transaction
from custody.errors import CorruptionError, FormatVersionError

# On disk: seven letters and the version. Part of the format: a new version gets a new last byte.
PREAMBLE = b"CUSTCAT\x01"
_LENGTH = struct.Struct("<Q")
_DIGEST_BYTES = 32
FEATURES_WRITTEN: frozenset[str] = frozenset()
"""Names of the features that this code keeps when it writes."""


def encode(transaction: Transaction) -> bytes:
    """Return the object's bytes; equal messages give equal bytes."""
    # Deterministic, because the digest of the bytes is part of the next transaction.
    message = transaction.SerializeToString(deterministic=True)
    body = PREAMBLE + _LENGTH.pack(len(message)) + message
    return body + hashlib.sha256(body).digest()


def digest(data: bytes) -> bytes:
    """Return what the next transaction says of this object."""
    return hashlib.sha256(data).digest()


def decode(data: bytes, path: object) -> Transaction:
    """Return the message of an object; `path` says in errors where it lies.

    Raises:
        FormatVersionError: the object is of another version, or needs a feature that this code does not know.
        CorruptionError: its checksum or its length is wrong.
    """
    return decode_digested(data, path)[0]


def decode_digested(data: bytes, path: object) -> tuple[Transaction, bytes]:
    """Return the message of an object and its `digest`; raises as `decode` does."""
    # The version before the checksum: a newer version may end in another way, and must not look like damage.
    if data[:7] == PREAMBLE[:7] and data[7:8] not in (b"", PREAMBLE[7:8]):
        raise FormatVersionError(f"{path} @7: expected catalog object version 1, got {data[7:8]!r}.")
    start = len(PREAMBLE) + _LENGTH.size
    body, checksum = memoryview(data)[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    # Of all bytes but the last ones, and then of all of them: both in one go.
    hashed = hashlib.sha256(body)
    if len(body) < start or not data.startswith(PREAMBLE) or hashed.digest() != checksum:
        raise CorruptionError(f"{path} @0: expected a catalog object with its checksum, got other bytes.")
    # Checked although the digest is right: it proves only that nothing changed, not that the writer was right.
    (length,) = _LENGTH.unpack_from(body, len(PREAMBLE))
    if len(body) - start != length:
        raise CorruptionError(f"{path} @{start}: expected {length} bytes of message, got {len(body) - start}.")
    transaction = Transaction()
    try:
        transaction.ParseFromString(bytes(body[start:]))
    except DecodeError as error:
        raise CorruptionError(f"{path} @{start}: expected a transaction, got {error}.") from error
    # Before anything is used of the message: a feature may change what the other fields mean.
    if transaction.reader_features:
        check_readable(transaction, path)
    hashed.update(checksum)
    return transaction, hashed.digest()


def check_readable(transaction: Transaction, path: object) -> None:
    """Raise FormatVersionError when an object needs a feature that this code does not know."""
    unknown = sorted(set(transaction.reader_features) - FEATURES_READ)
    if unknown:
        raise FormatVersionError(
            f"{path}: needs the reader features {', '.join(unknown)}, which this custody does not know."
        )
