"""The folder of a published table: numbered versions of its metadata, a hint that names the newest, and its parts.

A version is written by put-if-absent, so of two publishers one gets a number. The hint only spares a listing: readers
that go by it alone may be one publication behind, never ahead.
"""

from __future__ import annotations

import json
import re
from typing import Any

from custody.catalog.keys import CatalogObjects
from custody.errors import ConfigurationError, ConflictError, CorruptionError, NotFoundError
from custody.format.names import ICEBERG
from custody.store import ObjectStore, put_object

TABLE = f"{ICEBERG}/events"
"""The table's folder in that of the database; part of the format."""
FORMAT = "1"
FORMAT_PROPERTY, REVISION_PROPERTY = "custody.format", "custody.revision"
_VERSION = re.compile(r"v(\d{1,18})\.metadata\.json")
_HINT = "version-hint.text"
# Each failed try means that somebody else published: the last one gives up.
_HINT_ATTEMPTS = 10


class TableFolder:
    """The objects of one table."""

    def __init__(self, objects: CatalogObjects) -> None:
        self.store: ObjectStore = objects.store
        self.home = f"{objects.home}{TABLE}/"
        self.metadata = f"{self.home}metadata/"
        self.deletes = f"{self.home}deletes/"

    @property
    def location(self) -> str:
        """Where the table lies, as engines name it."""
        return self.store.locate(self.home.rstrip("/"))

    def locate(self, key: str) -> str:
        """Return where an object lies, as manifests name it."""
        return self.store.locate(key)

    def key_of(self, location: str) -> str:
        """Return the key of an object of the table by where it lies."""
        return f"{self.home}{location.removeprefix(self.location).lstrip('/')}"

    def version_key(self, number: int) -> str:
        """Return the key of a version of the metadata."""
        return f"{self.metadata}v{number}.metadata.json"

    def versions(self) -> list[int]:
        """Return the numbers of the versions that are there, in their order."""
        names = (key.removeprefix(self.metadata) for key in self.store.keys(self.metadata))
        return sorted(int(match[1]) for name in names if (match := _VERSION.fullmatch(name)))

    def read(self, number: int) -> dict[str, Any]:
        """Return a version of the metadata.

        Raises:
            CorruptionError: it is none.
            ConflictError: it is of another program.
            NotFoundError: it was removed meanwhile, for there is a newer one.
        """
        key = self.version_key(number)
        try:
            document = json.loads(self.store.get(key))
            properties = document["properties"]
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptionError(
                f"{self.locate(key)}: expected the metadata of an Iceberg table. {self._anew}"
            ) from error
        if properties.get(FORMAT_PROPERTY) != FORMAT or REVISION_PROPERTY not in properties:
            raise ConflictError(
                f"{self.locate(key)}: expected metadata that custody wrote (format {FORMAT}), got another program's. "
                f"{self._anew}"
            )
        snapshots: list[Any] = document.get("snapshots", [])
        if any(REVISION_PROPERTY not in each.get("summary", {}) for each in snapshots):
            raise ConflictError(
                f"{self.locate(key)}: expected snapshots of revisions of the catalog, got one that another program "
                f"added. {self._anew}"
            )
        return document  # type: ignore[no-any-return]

    def put(self, number: int, data: bytes) -> bool:
        """Write a version if its number is free; False when another publisher was faster.

        Durability: on return it survives power loss.

        Raises:
            ConfigurationError: the store cannot put if absent.
        """
        if not self.store.can_put_if_absent:
            raise ConfigurationError(
                f"{self.location}: expected a store with put-if-absent, which catalog.put_if_absent says that this "
                "one lacks: of two publishers at once the older one could win. Nothing was published."
            )
        return put_object(self.store, self.version_key(number), data)

    def point(self) -> int:
        """Make the hint name the newest version, also when others write it meanwhile; return that version."""
        key = f"{self.metadata}{_HINT}"
        newest = -1
        for _ in range(_HINT_ATTEMPTS):
            # Looked up in each turn: a process that was stopped before it wrote must not move the hint back for good.
            newest = self.versions()[-1]
            text = str(newest).encode()  # readers take all of the file for the number: no end of line
            try:
                if self.store.get(key) == text:
                    break
            except NotFoundError:
                pass
            self.store.put(key, text)
        return newest

    @property
    def _anew(self) -> str:
        return (
            f"Nothing was published. The table holds nothing of its own: remove {self.location}, and publish it anew "
            "(custody catalog publish-iceberg)."
        )


def has_table(objects: CatalogObjects) -> bool:
    """Whether a writer was published before."""
    folder = TableFolder(objects)
    return next(iter(folder.store.keys(folder.metadata)), None) is not None


def published_revision(objects: CatalogObjects) -> int | None:
    """Return the revision that the newest version is of; None without any, or while it is being replaced."""
    folder = TableFolder(objects)
    versions = folder.versions()
    if not versions:
        return None
    try:
        return int(folder.read(versions[-1])["properties"][REVISION_PROPERTY])
    except NotFoundError:
        return None
