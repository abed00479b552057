"""The interface of object stores: the operations that the catalog needs, whatever holds the bytes.

A key is a relative path of safe segments with `/` between them. Text from outside is checked before it becomes a key,
so that none can point out of the store.
"""

from __future__ import annotations

import re
from builtins import list as list_of
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from custody.errors import InvalidInputError

# No segment begins with a dot: `..` cannot be one, nor can hidden files.
_SEGMENT = r"[A-Za-z0-9_=][A-Za-z0-9._=+-]{0,254}"
_KEY = re.compile(rf"{_SEGMENT}(?:/{_SEGMENT})*")
_KEY_LENGTH_MAX = 1024
PART_BYTES = 16 << 20
"""Larger objects are read in parts of this size, so that memory is bounded."""

ObjectData = bytes | memoryview
"""What is put: bytes in memory, or the view of a file, of which only what is on its way has to be in memory."""


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """An object in a store: its key, its size in bytes, and when it was last written (ms since the epoch)."""

    key: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """An upload in parts that was neither completed nor aborted: its key, its id, its start (ms since the epoch)."""

    key: str
    upload_id: str
    begun_ms: int


class ObjectStore(Protocol):
    """Objects by key. Every method raises StorageError, which names the object, when the store refuses."""

    is_remote: bool
    """Whether a call costs a round trip over a network."""

    keeps_times: bool
    """Whether an object that is moved keeps the time when it was written."""

    can_put_if_absent: bool
    """Whether `put_if_absent` gives a key to exactly one of several callers that race for it."""

    def locate(self, key: str) -> str:
        """Return where an object lies, for messages: a path or a URL."""
        ...

    def get(self, key: str) -> bytes:
        """Return the whole content; raises NotFoundError."""
        ...

    def get_many(self, keys: Sequence[str]) -> list_of[bytes]:
        """Return the contents of the leading keys that exist: up to the first that does not."""
        ...

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`; a negative start counts from the end. Raises NotFoundError."""
        ...

    def head(self, key: str) -> ObjectInfo | None:
        """Return size and time of an object, None when there is none."""
        ...

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix that ends in `/`, sorted by key; `after` leaves out all up to a key."""
        ...

    def keys(self, prefix: str, *, after: str = "", ending: str = "") -> Iterator[str]:
        """Yield the keys alone that `list` yields; on a local disk the files themselves are not touched.

        `ending` leaves out those that do not end so.
        """
        ...

    def folders(self, prefix: str) -> list_of[str]:
        """Return the sorted names of the segments that follow a prefix and have something below them."""
        ...

    def put_if_absent(self, key: str, data: ObjectData) -> bool:
        """Write an object only if its key is free; return False, with nothing changed by this call, when it is taken.

        A store may return False although nothing is there (an unlucky race): the caller then has to look what is there.
        Durability: on return what holds the key survives power loss. On raise it is unknown whether it was written.
        """
        ...

    def put(self, key: str, data: ObjectData) -> None:
        """Write an object, replacing one of the same key; a reader sees the old or the new content.

        Durability: on return the new content survives power loss.
        """
        ...

    def move(self, source: str, target: str) -> None:
        """Give an object another key, replacing one that has it. A crash may leave the object under both."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; an absent one is fine."""
        ...

    def unfinished(self, prefix: str) -> list_of[UnfinishedUpload]:
        """Return the uploads in parts below a prefix that nobody completed yet; none where a store does not tell."""
        ...

    def abort(self, upload: UnfinishedUpload) -> None:
        """Free the parts of an upload, which then cannot be completed; one that is gone is fine."""
        ...

    def drop_folder(self, prefix: str) -> None:
        """Remove an empty folder, where a store has folders; one that is not empty stays."""
        ...

    def exclusive(self, key: str) -> AbstractContextManager[None]:
        """Keep other processes out of the block for the same key, where a store can; raises LockedError when one is in.

        A process that is stopped keeps others out until it goes on or ends. An object store cannot: there the caller
        has to check again before each step.
        """
        ...

    def settle(self, key: str) -> None:
        """Make an object that somebody else wrote durable under its key."""
        ...


def read_parts(store: ObjectStore, key: str) -> Iterator[bytes] | None:
    """Return an object's content in parts, so that memory is bounded; None when there is none.

    Raises:
        NotFoundError: it has gone meanwhile; the iterator raises it.
        StorageError: the store refuses.
    """
    info = store.head(key)
    if info is None:
        return None
    if info.size_bytes <= PART_BYTES:
        return iter([store.get(key)])
    starts = range(0, info.size_bytes, PART_BYTES)
    return (store.get_range(key, start, min(PART_BYTES, info.size_bytes - start)) for start in starts)


def check_key(key: str) -> str:
    """Return a key that is safe in every store.

    Raises:
        InvalidInputError: it is empty, absolute, too long, or a segment is not made of A-Z a-z 0-9 . _ = + - or begins
            with a dot.
    """
    if len(key) > _KEY_LENGTH_MAX or _KEY.fullmatch(key) is None:
        raise InvalidInputError(
            f"key {key[:200]!r}: expected segments of letters, digits, '.', '_', '=', '+', '-' with '/' between them."
        )
    return key


def is_segment(name: str) -> bool:
    """Whether a name can be a part of a key; files and folders with other names do not belong to the store."""
    return _KEY.fullmatch(name) is not None and "/" not in name


def check_prefix(prefix: str) -> str:
    """Return a prefix that is empty or a safe key with `/` behind it: a bare string would match siblings too.

    Raises:
        InvalidInputError: it is neither.
    """
    if prefix:
        check_key(prefix.removesuffix("/"))
        if not prefix.endswith("/"):
            raise InvalidInputError(f"prefix {prefix!r}: expected a '/' at its end.")
    return prefix
