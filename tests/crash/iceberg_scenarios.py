"""Scenarios of the published table: whatever a crash leaves, what a version names is there, and the next one is right.

A version is whole or not there. One that is of the catalog's newest revision shows what custody itself gives out; one
that is behind never shows less, and the next publication is as if nothing had happened. Expired logs go only when no
version names them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pyiceberg.avro.file

from custody import iceberg
from custody.config.sections import IcebergSection
from custody.iceberg.table_folder import REVISION_PROPERTY, TableFolder
from custody.repository import EventSelection
from custody.rollover import STEPS
from custody.vfs import FileSystem
from tests.crash.machine_with_bucket import new_disk
from tests.crash.memory_repository import SETTINGS, Promises, repository, run_pass, workspace
from tests.crash.retention_scenarios import Retaining
from tests.crash.rollover_scenarios import Prepared
from tests.iceberg_reading import expected, shown

PUBLISHING = SETTINGS.model_copy(update={"iceberg": IcebergSection(publish=True)})
FORGOTTEN = 1


@contextmanager
def equal_marks() -> Iterator[None]:
    """Avro's files get a random mark: with equal ones, runs are equal but for their end."""
    with patch.object(pyiceberg.avro.file.os, "urandom", lambda count: bytes(count)):
        yield


def check_table(fs: FileSystem, *, is_forgotten: bool = False) -> None:
    """Raise unless each version that is there can be read, and the newest shows what it should."""
    at = workspace(fs)
    folder = TableFolder(at.catalog.objects)
    right, newest = expected(at), at.catalog.load().revision
    for number in folder.versions():
        metadata = folder.read(number)
        table = shown(at, metadata)
        for revision, ids in table.items():
            # A version that is behind may show what was forgotten since, and nothing else besides.
            assert set(ids) >= set(right.get(revision, ())), (number, revision)
        if int(metadata["properties"][REVISION_PROPERTY]) == newest:
            assert table == right, number
        if is_forgotten:
            assert not any(FORGOTTEN in ids for ids in table.values()), f"version {number} shows a forgotten event"


class PublishingTable(Prepared):
    """A table that is there gets a commit, and then loses an event that is forgotten."""

    def __init__(self) -> None:
        disk, promises = new_disk(), Promises()
        for number in range(2):
            with repository(disk).writer() as writer:
                promises.append(writer, 2)
            run_pass(disk, *[name for name in STEPS if number == 0 or name in ("rollover", "compress", "index")])
            if number == 0:
                with equal_marks():
                    iceberg.publish(workspace(disk))
        super().__init__(disk, promises)

    def run(self, fs: FileSystem, record: Promises) -> None:
        with equal_marks():
            run_pass(fs, "commit", settings=PUBLISHING)
            # From the moment of the call it may be gone.
            record.acknowledged.pop(FORGOTTEN, None)
            repository(fs).forget(EventSelection(event_ids=(FORGOTTEN,)), "asked for")

    def check(self, fs: FileSystem, record: Promises) -> None:
        super().check(fs, record)
        check_table(fs)

    def use(self, fs: FileSystem, record: Promises) -> None:
        run_pass(fs, "commit", settings=PUBLISHING)
        done = iceberg.publish(workspace(fs))
        assert done.revision == workspace(fs).catalog.load().revision
        check_table(fs, is_forgotten=FORGOTTEN not in live(fs))
        super().use(fs, record)


class RetainingPublished(Retaining):
    """A pass of retention beside a table that names the logs which go."""

    def __init__(self) -> None:
        super().__init__()
        with equal_marks():
            iceberg.publish(workspace(self._disk))

    def run(self, fs: FileSystem, record: Promises) -> None:
        with equal_marks():
            super().run(fs, record)

    def check(self, fs: FileSystem, record: Promises) -> None:
        super().check(fs, record)
        at = workspace(fs)
        folder = TableFolder(at.catalog.objects)
        # The newest version is what engines read: it names no log that is gone.
        newest = folder.read(folder.versions()[-1])
        shown(at, newest)


def live(fs: FileSystem) -> set[int]:
    """The ids that custody gives out."""
    return {item.event_id for item in repository(fs).events(0, 100)}
