"""The keys of a catalog's objects in the store, and listings of them.

Layout: `<writer>/<database>/transactions/<revision, 20 digits>/<uuid>.txn`, a checkpoint beside its transaction as
`<uuid>.ckpt`. The uuid in a name is derived from the catalog's id, the revision and the predecessor's uuid: two
processes that race for a revision aim at one key, which put-if-absent gives to one of them. The first transaction's
name is fixed, so creation is a race with one winner too. Names are random only where a store has no put-if-absent.
"""

from __future__ import annotations

from builtins import list as list_of
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha1
from uuid import UUID

from custody.catalog.data_files import DataFiles
from custody.catalog.stripes import Stripes
from custody.format.names import (
    CHECKPOINT_SUFFIX,
    check_name,
    parse_revision,
    parse_transaction,
    revision_folder,
    transaction_file,
)
from custody.store import ObjectStore

_FIRST_NAMESPACE = UUID("7f3c1a52-6f0e-4b57-9a0a-6f0d5c1f2b11")  # part of the format: names revision 0
# Part of the format: readers of every release look under this name first.
HINT = "newest-checkpoint"


@dataclass(frozen=True, slots=True)
class CatalogObject:
    """A transaction or checkpoint in a listing."""

    revision: int
    uuid: UUID
    is_checkpoint: bool
    key: str


class CatalogObjects:
    """The keys of one writer's catalog of one database, and listings of them."""

    def __init__(self, store: ObjectStore, writer: str, database: str, stripes: Stripes | None = None) -> None:
        self.store = store
        self.writer = check_name("writer", writer)
        self.database = check_name("database", database)
        self.home = f"{writer}/{database}/"
        """Paths in the catalog are relative to this prefix."""
        self.files = DataFiles(store, self.home, stripes)
        """The files that the catalog lists."""
        self.prefix = f"{self.home}transactions/"
        self.hint = f"{self.prefix}{HINT}"
        self.first_uuid = derived(_FIRST_NAMESPACE.bytes, f"{writer}/{database}")

    def __str__(self) -> str:
        return self.store.locate(self.prefix.rstrip("/"))

    def folder(self, revision: int) -> str:
        """Return the prefix of a revision's objects."""
        return f"{self.prefix}{revision_folder(revision)}/"

    def key(self, revision: int, uuid: bytes | UUID, *, checkpoint: bool = False) -> str:
        """Return the key of a transaction or checkpoint."""
        text = uuid_text(uuid.bytes if isinstance(uuid, UUID) else uuid)
        return self.folder(revision) + transaction_file(text, checkpoint=checkpoint)

    def next_uuid(self, catalog_id: bytes, revision: int, uuid: bytes) -> bytes:
        """Return the derived uuid of the revision that follows this one."""
        if revision < 0:
            return self.first_uuid
        return _following(catalog_id, revision + 1, uuid_text(uuid))

    def next_keys(self, catalog_id: bytes, revision: int, uuid: bytes, count: int) -> list_of[str]:
        """Return the keys of so many transactions behind a revision that there is, with derived names."""
        keys, text = [], uuid_text(uuid)
        for following in range(revision + 1, revision + 1 + count):
            text = uuid_text(_following(catalog_id, following, text))
            keys.append(self.folder(following) + transaction_file(text))
        return keys

    def at(self, revision: int) -> list_of[CatalogObject]:
        """Return the transactions and checkpoints of one revision."""
        return list(self._parsed(self.store.keys(self.folder(revision))))

    def list(self, *, after: int = -1) -> Iterator[CatalogObject]:
        """Yield all transactions and checkpoints, oldest revision first; `after` leaves out revisions up to it."""
        offset = "" if after < 0 else f"{self.prefix}{revision_folder(after)}/z"  # behind every uuid
        return self._parsed(self.store.keys(self.prefix, after=offset))

    def checkpoints(self, *, up_to: int | None = None) -> list_of[CatalogObject]:
        """Return all checkpoints up to a revision, newest first; lists the whole catalog."""
        # By the end of their names: to parse those of all transactions would cost a third of the listing.
        keys = self.store.keys(self.prefix, ending=CHECKPOINT_SUFFIX)
        items = [item for item in self._parsed(keys) if up_to is None or item.revision <= up_to]
        return items[::-1]

    def _parsed(self, keys: Iterator[str]) -> Iterator[CatalogObject]:
        for key in keys:
            folder, _, name = key.removeprefix(self.prefix).partition("/")
            revision, parsed = parse_revision(folder), parse_transaction(name)
            # Foreign names are passed over here: partial files of a crash, tables of statistics, the hint.
            if revision is not None and parsed is not None:
                yield CatalogObject(revision, parsed[0], parsed[1], key)


def uuid_text(uuid: bytes) -> str:
    """Return the text of a uuid, without the detour over the class, which costs more than a read from the disk."""
    text = uuid.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _following(catalog_id: bytes, revision: int, before: str) -> bytes:
    """Return the derived uuid of a revision by the text of the one before it."""
    return derived(catalog_id, f"{revision}:{before}")


def derived(namespace: bytes, name: str) -> bytes:
    """Return the 16 bytes of the uuid of version 5, as RFC 9562 makes it."""
    uuid = bytearray(sha1(namespace + name.encode(), usedforsecurity=False).digest()[:16])
    # Version and variant bits, as RFC 9562 sets them. Names on disk follow from this: it must never change.
    uuid[6] = uuid[6] & 0x0F | 0x50
    uuid[8] = uuid[8] & 0x3F | 0x80
    return bytes(uuid)
