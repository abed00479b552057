"""From the settings of a repository to a writer's catalog, on whatever store they name."""

from __future__ import annotations

from custody.catalog.forgotten import Forgotten
from custody.catalog.log import Catalog
from custody.clock import Clock
from custody.config import Settings
from custody.store import ObjectStore, open_store
from custody.vfs import FileSystem


def store_of(settings: Settings, fs: FileSystem) -> ObjectStore:
    """Return the store of a repository.

    Raises:
        ConfigurationError: its URL is of no known kind, or the environment does not fit it.
    """
    return open_store(settings.repository.store, fs, settings.root, can_put_if_absent=settings.catalog.put_if_absent)


def open_catalog(settings: Settings, writer: str, fs: FileSystem, clock: Clock) -> Catalog:
    """Return the catalog of a writer's event logs, which keeps twice what it lets go; raises as `store_of` does."""
    catalog = Catalog(store_of(settings, fs), writer, settings.repository.database, clock)
    catalog.copies = Forgotten(catalog.objects)
    return catalog
