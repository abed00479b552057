"""Publishing: the table that a writer's catalog stands for, written as the next version of its metadata.

The table is derived from the catalog alone: one snapshot a revision, for the newest revisions that are kept, each
without what is forgotten today. So it does not matter who publishes, how often, or what a crash left: the next
publication has the same snapshots. A table is never replaced by one of an earlier revision, because the catalog is
looked at after the table. When events are forgotten, all snapshots are made anew without them, and the versions of the
metadata that still name the former ones are removed at once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid5

import msgspec
from pyiceberg.manifest import read_manifest_list
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.snapshots import Operation, Snapshot, SnapshotLogEntry, Summary

from custody.catalog import AddTombstone, CatalogState, PrunedError, is_remnant
from custody.catalog.garbage import OLDER_THAN_MS
from custody.errors import ConflictError, CorruptionError, NotFoundError
from custody.format.names import parse_event_log
from custody.iceberg.event_columns import name_mapping, partition_spec, table_schema
from custody.iceberg.hidden_rows import HiddenRows, HiddenRowsFolder
from custody.iceberg.manifests import ListedLog, ManifestFolder
from custody.iceberg.store_io import StoreIO
from custody.iceberg.table_folder import FORMAT, FORMAT_PROPERTY, REVISION_PROPERTY, TableFolder
from custody.workspace import Workspace

_DIGEST, _FORGOTTEN, _SNAPSHOTS_MAX = "custody.digest", "custody.forgotten-at", "custody.snapshots-max"
# Each failed try means that another publisher was faster; it published what this one would have.
_ATTEMPTS = 20
# A reader that has just read the hint still finds the version that it names.
_VERSIONS_KEPT = 5
_SNAPSHOT_BITS = (1 << 63) - 1
_SEQUENCE_FIRST = 2  # logs and deletes have 1


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A publication: the table's place, its newest version, and what that holds."""

    writer: str
    location: str
    metadata: str
    """The file of the version, for engines that take one."""
    version: int
    revision: int
    snapshots: int
    earliest_revision: int
    written: bool
    """False when the table was at the newest revision already."""


def publish_table(workspace: Workspace) -> Published:
    """Publish a writer's live events; see `custody.iceberg.publish`."""
    folder = TableFolder(workspace.catalog.objects)
    for _ in range(_ATTEMPTS):
        try:
            done = _tried(workspace, folder)
        except (PrunedError, NotFoundError):
            continue  # others pruned, or replaced the version, while this one looked
        if done is not None:
            return done
    raise ConflictError(f"{folder.location}: others published {_ATTEMPTS} times meanwhile. Try again.")


def _tried(workspace: Workspace, folder: TableFolder) -> Published | None:
    """Publish once; None when another publisher was faster."""
    versions = folder.versions()
    former = folder.read(versions[-1]) if versions else None
    # Behind the look at the table: so no table is replaced by an earlier one.
    state = workspace.catalog.settle()
    if state.revision < 0:
        raise ConflictError(f"{workspace.catalog.objects}: the catalog is empty, there is nothing to publish yet.")
    number = versions[-1] if versions else 0
    is_written = former is None or not _is_current(workspace, folder, former, state)
    metadata = former
    if is_written:
        number += 1
        made = _Table(workspace, folder, state, former).metadata()
        if not folder.put(number, made.model_dump_json().encode()):
            return None
        metadata = folder.read(number)
    if metadata is None:
        raise AssertionError("neither read nor written")
    folder.point()
    _remove_former(folder, number, metadata)
    revisions = [int(each["summary"][REVISION_PROPERTY]) for each in metadata["snapshots"]]
    return Published(
        writer=workspace.writer,
        location=folder.location,
        metadata=folder.locate(folder.version_key(number)),
        version=number,
        revision=state.revision,
        snapshots=len(revisions),
        earliest_revision=min(revisions),
        written=is_written,
    )


def remove_former_versions(workspace: Workspace) -> list[str]:
    """Delete all versions of the metadata but the newest; return their keys."""
    folder = TableFolder(workspace.catalog.objects)
    keys = [folder.version_key(number) for number in folder.versions()[:-1]]
    for key in keys:
        folder.store.delete(key)
    return keys


def collect_former(workspace: Workspace, older_than_ms: int = OLDER_THAN_MS) -> list[str]:
    """Delete parts of the table that no version needs and that are old; return their keys."""
    unneeded = former_parts(workspace, workspace.clock.now_ms() - older_than_ms)
    for key in unneeded:
        workspace.catalog.objects.store.delete(key)
    return unneeded


def former_parts(workspace: Workspace, before_ms: int) -> list[str]:
    """Return the keys of the parts of the table that no version needs and that were written until a time."""
    folder = TableFolder(workspace.catalog.objects)
    # Listed first: what a publisher writes meanwhile is young.
    parts = [info for prefix in (folder.metadata, folder.deletes) for info in folder.store.list(prefix)]
    needed = {folder.version_key(number) for number in folder.versions()}
    for number in folder.versions():
        for snapshot in folder.read(number)["snapshots"]:
            needed.update(_needed_by(folder, snapshot["manifest-list"]) - needed)
    names = (".avro", ".parquet")
    old = (info.key for info in parts if info.key.endswith(names) and info.modified_ms <= before_ms)
    return [key for key in old if key not in needed]


def _needed_by(folder: TableFolder, manifest_list: str) -> set[str]:
    reader = StoreIO(folder)
    keys = {folder.key_of(manifest_list)}
    for manifest in read_manifest_list(reader.new_input(manifest_list)):
        keys.add(folder.key_of(manifest.manifest_path))
        if manifest.content.name == "DELETES":
            entries = manifest.fetch_manifest_entry(reader)
            keys.update(folder.key_of(entry.data_file.file_path) for entry in entries)
    return keys


def _is_current(workspace: Workspace, folder: TableFolder, former: dict[str, Any], state: CatalogState) -> bool:
    properties = former["properties"]
    return bool(
        properties[REVISION_PROPERTY] == str(state.revision)
        and properties.get(_DIGEST) == state.digest.hex()
        and properties.get(_SNAPSHOTS_MAX) == str(workspace.settings.iceberg.snapshots_max)
        and former["location"] == folder.location
    )


def _remove_former(folder: TableFolder, newest: int, metadata: dict[str, Any]) -> None:
    """Remove earlier versions: all that still show what was forgotten, and of the others all but the last few."""
    forgotten = metadata["properties"].get(_FORGOTTEN)
    for number in folder.versions():
        if number >= newest:
            continue
        try:
            shows = folder.read(number)["properties"].get(_FORGOTTEN) != forgotten
        except (NotFoundError, CorruptionError, ConflictError):
            shows = True
        if shows or number <= newest - _VERSIONS_KEPT:
            folder.store.delete(folder.version_key(number))


@dataclass
class _Revision:
    """A revision of the catalog, with the one before it where that is known."""

    state: CatalogState
    before: CatalogState | None


class _Table:
    """The table of a writer at one moment."""

    def __init__(
        self, workspace: Workspace, folder: TableFolder, state: CatalogState, former: dict[str, Any] | None
    ) -> None:
        self._workspace = workspace
        self._folder = folder
        self._state = state
        self._uuid = uuid5(state.catalog_id, "iceberg/events")
        self._first = max(state.floor, state.revision - workspace.settings.iceberg.snapshots_max + 1)
        earlier = self._number_of("earlier")
        self._manifests = ManifestFolder(folder, workspace.writer, earlier)
        self._hidden = HiddenRowsFolder(workspace, folder)
        self._former = former if former is not None and self._follows(former) else None

    def metadata(self) -> TableMetadataV2:
        """Return the metadata; all that it names is durable."""
        forgotten, reusable = self._forgotten_and_reusable()
        snapshots = [reusable[revision] for revision in sorted(reusable)]
        begin = max(self._first, max(reusable, default=-1) + 1)
        if begin <= self._state.revision:
            snapshots += self._made(begin)
        self._manifests.settle()
        parent: int | None = None
        for place, snapshot in enumerate(snapshots):
            snapshots[place] = snapshot.model_copy(update={"parent_snapshot_id": parent})
            parent = snapshot.snapshot_id
        current = snapshots[-1]
        return TableMetadataV2(
            **{
                "location": self._folder.location,
                "table-uuid": self._uuid,
                "last-updated-ms": current.timestamp_ms,
                "last-column-id": table_schema().highest_field_id,
                "schemas": [table_schema()],
                "current-schema-id": 0,
                "partition-specs": [partition_spec()],
                "default-spec-id": 0,
                "last-partition-id": max(each.field_id for each in partition_spec().fields),
                "sort-orders": [{"order-id": 0, "fields": []}],
                "default-sort-order-id": 0,
                "current-snapshot-id": current.snapshot_id,
                "last-sequence-number": current.sequence_number,
                "snapshots": snapshots,
                "snapshot-log": [
                    SnapshotLogEntry(**{"snapshot-id": each.snapshot_id, "timestamp-ms": each.timestamp_ms})
                    for each in snapshots
                ],
                "refs": {"main": {"snapshot-id": current.snapshot_id, "type": "branch"}},
                "properties": {
                    FORMAT_PROPERTY: FORMAT,
                    "custody.writer": self._workspace.writer,
                    "custody.database": self._workspace.database,
                    REVISION_PROPERTY: str(self._state.revision),
                    _DIGEST: self._state.digest.hex(),
                    _FORGOTTEN: str(forgotten),
                    _SNAPSHOTS_MAX: str(self._workspace.settings.iceberg.snapshots_max),
                    "schema.name-mapping.default": name_mapping(),
                    # The logs are custody's: no engine may delete them when it expires snapshots.
                    "gc.enabled": "false",
                },
            }
        )

    def _follows(self, former: dict[str, Any]) -> bool:
        """Whether the former table is of an earlier revision of this catalog, at this place."""
        properties = former["properties"]
        revision = int(properties[REVISION_PROPERTY])
        if former["location"] != self._folder.location or former["table-uuid"] != str(self._uuid):
            return False
        if not self._state.floor <= revision <= self._state.revision:
            return False
        digest = self._state.digest
        if revision < self._state.revision:
            # The next transaction has it, so no state has to be made.
            digest = next(self._workspace.catalog.timeline(revision + 1, revision + 1)).previous_digest
        return bool(digest.hex() == properties.get(_DIGEST))

    def _forgotten_and_reusable(self) -> tuple[int, dict[int, Snapshot]]:
        """Return the last revision that forgot events, and the former table's snapshots that hold as they are."""
        if self._former is None:
            # Unknown, so no earlier version counts as showing the same.
            return self._state.revision, {}
        properties = self._former["properties"]
        revision = int(properties[REVISION_PROPERTY])
        forgotten = int(properties[_FORGOTTEN])
        if revision < self._state.revision:
            for transaction in self._workspace.catalog.timeline(revision + 1, self._state.revision):
                if _tombstones_in(transaction.actions):
                    forgotten = transaction.revision
        if forgotten > revision:
            return forgotten, {}
        snapshots = [Snapshot(**each) for each in self._former["snapshots"]]
        by_revision = {int(each.summary[REVISION_PROPERTY] or -1): each for each in snapshots if each.summary}
        # A gap would be a revision without a snapshot: what does not join up to the newest is made anew.
        if sorted(by_revision) != list(range(min(by_revision), revision + 1)) or min(by_revision) > self._first:
            return forgotten, {}
        return forgotten, {each: by_revision[each] for each in by_revision if each >= self._first}

    def _made(self, begin: int) -> list[Snapshot]:
        """Return the snapshots of the revisions from one on."""
        revisions = list(self._revisions(begin))
        hiding: dict[bytes, AddTombstone] = {}
        later: dict[int, list[AddTombstone]] = {}
        # From the newest back: what a later revision forgot is not shown in an earlier one either.
        for each in reversed(revisions):
            later[each.state.revision] = list(hiding.values())
            if each.before is not None:
                fresh = set(each.state.tombstones) - set(each.before.tombstones)
                stones = (each.state.tombstones[name] for name in sorted(fresh))
                hiding.update({stone.id: stone for stone in stones if not is_remnant(stone)})
        return [self._snapshot(each, later[each.state.revision]) for each in revisions]

    def _revisions(self, begin: int) -> Iterator[_Revision]:
        catalog = self._workspace.catalog
        known = begin - 1 if begin > self._state.floor else begin
        before: CatalogState | None = None
        state = catalog.at(known)
        if known == begin:
            yield _Revision(state, None)
        if known == self._state.revision:
            return
        for transaction in catalog.timeline(known + 1, self._state.revision):
            before, state = state, state.advanced(transaction, b"")
            yield _Revision(state, before)

    def _snapshot(self, revision: _Revision, later: Sequence[AddTombstone]) -> Snapshot:
        state = revision.state
        live = self._logs(state)
        before = None if revision.before is None else self._logs(revision.before)
        hidden = self._hiding(live, state, later)
        digest = hashlib.sha256()
        for log in live.values():
            digest.update(log.identity)
        parts = [state.revision, digest.hexdigest(), *(each.key for each in hidden), self._folder.location]
        number, sequence = self._number_of(*parts), state.revision + _SEQUENCE_FIRST
        added = [live[path] for path in live if before is not None and path not in before]
        removed = [log for path, log in (before or {}).items() if path not in live]
        fresh = {log.file.path for log in added}
        manifests = [
            *self._manifests.existing([log for path, log in live.items() if path not in fresh]),
            *self._manifests.changed(added, number, sequence, is_added=True),
            *self._manifests.changed(removed, number, sequence, is_added=False),
            *self._manifests.hiding(hidden),
        ]
        rows = sum(log.file.rows for log in live.values())
        # Only what adds rows and nothing else is an append: engines that follow a table take the logs of these alone,
        # without a look at deletes.
        is_append = (
            revision.before is not None
            and not removed
            and set(state.tombstones) == set(revision.before.tombstones)
            and not {each.log for each in hidden} & {log.location for log in added}
        )
        return Snapshot(
            **{
                "snapshot-id": number,
                "sequence-number": sequence,
                "timestamp-ms": state.commit_time_ms,
                "manifest-list": self._manifests.listed(number, sequence, state.revision, manifests),
                "schema-id": 0,
                "summary": Summary(
                    Operation.APPEND if is_append else Operation.OVERWRITE,
                    **{
                        REVISION_PROPERTY: str(state.revision),
                        "added-data-files": str(len(added)),
                        "added-records": str(sum(log.file.rows for log in added)),
                        "deleted-data-files": str(len(removed)),
                        "deleted-records": str(sum(log.file.rows for log in removed)),
                        "total-data-files": str(len(live)),
                        "total-records": str(rows),
                        "total-delete-files": str(len(hidden)),
                        "total-position-deletes": str(sum(each.rows for each in hidden)),
                        "total-equality-deletes": "0",
                        "total-files-size": str(sum(log.file.size_bytes for log in live.values())),
                    },
                ),
            }
        )

    def _logs(self, state: CatalogState) -> dict[str, ListedLog]:
        """Return the live event logs of a state by path, in the order of their ids."""
        files = [file for path, file in state.files.items() if parse_event_log(path) is not None]
        files.sort(key=lambda file: (file.first_event_id, file.path))
        place = self._workspace.catalog.objects.files.locate
        return {file.path: ListedLog(file, place(file.path)) for file in files}

    def _hiding(
        self, live: dict[str, ListedLog], state: CatalogState, later: Sequence[AddTombstone]
    ) -> list[HiddenRows]:
        stones = {stone.id: stone for stone in (*state.tombstones.values(), *later) if not is_remnant(stone)}
        if not stones:
            return []
        chosen = [stones[key] for key in sorted(stones)]
        found = (self._hidden.of(log.file, log.location, chosen) for log in live.values())
        return [each for each in found if each is not None]

    def _number_of(self, *parts: object) -> int:
        """Return an id that follows from what it stands for, so that all publishers give the same."""
        text = "\0".join(map(str, (self._uuid, *parts)))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") & _SNAPSHOT_BITS or 1


def _tombstones_in(actions: Sequence[Any]) -> bool:
    return any(action.HasField("add_tombstone") and not is_remnant(action.add_tombstone) for action in actions)
