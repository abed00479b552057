"""Publishing: a staged unit becomes event logs and index shards, and the actions that make them live.

Everything is written under its final name before the catalog lists it, and described for the catalog by the bytes on
disk. What an earlier attempt left under one of these names is removed first, unless a kept revision lists it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import msgspec
import pyarrow as pa

from custody.catalog import Action, AddFile, AddShard, CatalogState, SourceRange, describe, kept_files
from custody.errors import ConflictError, CorruptionError, FormatVersionError, NotFoundError
from custody.eventlog import (
    EventLog,
    LogMetadata,
    StagedLog,
    StagedSource,
    WrittenLog,
    read_staged,
    refuse,
    write_log,
)
from custody.format.names import stored_shard, trash_path
from custody.index import BuiltShard, Description, IndexedFields, build_shard, describe_shard
from custody.journal import unmounted_suspects
from custody.model import READER_VERSION, SCHEMA_VERSION, require_keeping
from custody.rollover.keeping_filters import forget_filters
from custody.rollover.remaking import can_be_made_again
from custody.workspace.removal import discard
from custody.workspace.run_reports import UnitReport, file_uri
from custody.workspace.stored_units import LOG_ENTRY, SHARD_ENTRY, StoredUnits
from custody.workspace.unit_manifest import UnitManifest
from custody.workspace.workspace import LogFiles, Workspace

_READ_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class StagedEvents:
    """The events of one future log, and the unit that they belong to."""

    manifest: UnitManifest
    log: StagedLog

    @property
    def metadata(self) -> LogMetadata:
        """The metadata that the log will have."""
        return self.manifest.metadata(self.log)

    def files(self, workspace: Workspace) -> LogFiles:
        """Return where the files of the log belong."""
        return workspace.files(self.metadata, stripe=self.log.stripe)

    def path(self, workspace: Workspace) -> Path:
        """Return where the events lie."""
        return workspace.staged_events(self.manifest, self.log)


def waiting_units(workspace: Workspace) -> Iterator[UnitManifest]:
    """Yield the staged units that have to become live, by first group."""
    state = workspace.catalog.load()
    for manifest in workspace.manifests():
        if manifest.logs and not any(workspace.is_committed(state, group) for group in manifest.groups):
            yield manifest


def find_staged(workspace: Workspace, first_event_id: int) -> StagedEvents:
    """Return the staged events of the log that begins with an event.

    Raises:
        NotFoundError: no staged unit has such a log.
    """
    # Staging may hold thousands of units; usually one manifest is read.
    for of in ([first_event_id], None):  # the unit that should have it; the others only where it does not
        for manifest in workspace.manifests(of):
            for log in manifest.logs:
                if log.first_event_id == first_event_id:
                    return StagedEvents(manifest, log)
    raise NotFoundError(
        f"{workspace.where_staged(first_event_id)}: expected a staged unit with the log {first_event_id}, found none. "
        "It is live already, or the rollover step has to run first."
    )


def compress_log(workspace: Workspace, unit: str, first_event_id: int, *, is_listed: bool = False) -> UnitReport:
    """Write an event log and its table of contents from staged events; what an earlier attempt left is removed first.

    Args:
        workspace: the files of the writer.
        unit: names the unit in the report.
        first_event_id: names the log.
        is_listed: the log is live and its file is lost: what is left of it may be replaced.

    Raises:
        ConflictError: a kept revision lists a log of this name, or another attempt published one just now.
        FormatVersionError: a newer custody staged the events, with columns that would be lost.
    """
    staged = find_staged(workspace, first_event_id)
    metadata, source = staged.metadata, staged.path(workspace)
    files = staged.files(workspace)
    # Before anything is removed or written: a log without the newer columns would lose them for good.
    require_keeping(metadata.schema_version, source)
    staged_version = metadata.schema_version
    # What is written has the present columns, whichever ones were staged.
    metadata = msgspec.structs.replace(metadata, schema_version=SCHEMA_VERSION, reader_version=READER_VERSION)

    def events() -> Iterator[pa.Table]:
        return read_staged(workspace.fs, source, staged.log, schema_version=staged_version)

    # Of what the store has, equal bytes are taken: two attempts at once must not take each other's log away.
    clear_log(workspace, files, events, is_listed=is_listed, with_published=workspace.stored_units is None)

    def write() -> WrittenLog:
        return write_log(workspace.fs, files.log, events, metadata, workspace.log_options)

    log = write()
    if workspace.stored_units is not None:
        try:
            _publish_log(workspace, staged, files)
        except ConflictError:
            # Of an attempt that ended, with other settings or another version. What goes in the store goes here, too.
            clear_log(workspace, files, events, is_listed=is_listed)
            log = write()
            _publish_log(workspace, staged, files)
    return UnitReport(
        unit=unit,
        events=staged.log.rows,
        bytes_in=staged.log.file_bytes,
        bytes=log.size_bytes,
        note=f"{log.blocks} blocks",
        files=(file_uri(workspace.catalog.objects.files.locate(files.relative_log)),),
    )


def _publish_log(workspace: Workspace, staged: StagedEvents, files: LogFiles) -> None:
    """Bring a log that was just written into the store, and leave its entry beside the staged unit for the commit."""
    units, manifest = workspace.stored_units, staged.manifest
    assert units is not None  # noqa: S101 - the caller asked
    incarnation = bytes.fromhex(manifest.incarnation)
    entry = add_file(workspace, files, staged.metadata, staged.log.sources, incarnation)
    units.put_entry(manifest.first_group, staged.log, LOG_ENTRY, Action(add_file=entry))


def clear_log(
    workspace: Workspace,
    files: LogFiles,
    events: Callable[[], Iterator[pa.Table]],
    *,
    is_listed: bool,
    with_published: bool = True,
) -> None:
    """Remove a log and its table of contents; objects of a store go to the trash.

    `events` gives those that are written in their place.

    Raises:
        ConflictError: a kept revision lists it, and it is not known to be lost; or it may be the last copy of an event.
    """
    # Written at a place where no disk is mounted, the log would lie below the place of the disk.
    stored = workspace.catalog.objects.files
    stored.require(files.relative_log)
    # The catalog is asked only where something is in the way, which is rare.
    there = [path for path in (files.toc, files.log) if workspace.fs.exists(path)]
    names = (files.relative_toc, files.relative_log) if with_published else ()
    published = [path for path in names if stored.is_published(path)]
    lost = {loss.path for loss in workspace.catalog.load().losses.values()} if there or published else set()
    if (
        (there or published)
        and not is_listed
        and files.relative_log not in lost
        and {files.relative_log, files.relative_toc} & kept_files(workspace.catalog)
    ):
        raise ConflictError(
            f"{files.log}: expected a log that no revision lists, got one that is listed. "
            "Its group was live before: it must not become live again. Run the sweep step."
        )
    if not is_listed and files.relative_log not in lost:
        _require_made_again(workspace, files, there, published, events)
    for path in there:
        discard(workspace, path)
    if published:
        workspace.check()
    for relative in published:
        # To the trash: should an attempt that was overtaken do so late, the garbage collection brings it back.
        stored.move(relative, trash_path(relative, workspace.clock.now_ms()))


def _require_made_again(
    workspace: Workspace,
    files: LogFiles,
    there: list[Path],
    published: list[str],
    events: Callable[[], Iterator[pa.Table]],
) -> None:
    """Raise ConflictError when a log that is in the way, here or in the store, may be the last copy of its events."""
    stored = workspace.catalog.objects.files
    places = [files.log] if files.log in there else []
    places += [stored.path(files.relative_log)] if files.relative_log in published else []
    for place in places:
        if not can_be_made_again(workspace, place, events):
            raise ConflictError(
                f"{stored.locate(files.relative_log)}: expected a log of an interrupted attempt, whose events are "
                "written again, got one with events that nothing else has: its transaction may be lost. It stays. "
                "List it again: custody repair"
            )


def build_index(workspace: Workspace, unit: str, first_event_id: int, live: AddShard | None = None) -> UnitReport:
    """Build the index shard of a staged log, or a live one that is gone or old; a good one is kept.

    Args:
        workspace: the files of the writer.
        unit: names the unit in the report.
        first_event_id: names the log.
        live: the shard with this first event (`live_shard`); None if its log is staged.

    Raises:
        NotFoundError: no staged unit has such a log.
        StorageError: the container in which it belongs is missing.
    """
    path, tables, documents = _shard_input(workspace, first_event_id, live)
    workspace.require_container(path)
    # Sizes are noted as the tables pass: the tables themselves are not held.
    sizes: list[int] = []
    index = workspace.settings.index
    replace = is_old(workspace, path)
    if live is not None:
        forget_filters(workspace, path)
    if not replace and workspace.fs.exists(path) and describe_shard(workspace.fs, path).documents != documents:
        discard(workspace, path)  # a shard with the same first event, of a log that was cut elsewhere
    shard = build_shard(
        workspace.fs,
        path,
        _record_sizes(tables, sizes),
        index.attributes,
        standard=index.fields,
        ranges=index.ranges,
        layout=index.layout,
        attribute_characters=workspace.settings.query.attribute_characters_max,
        replace=replace,
    )
    if path.name in workspace.catalog.load().shards:
        forget_filters(workspace, path)
        # Of a staged log the commit does it.
        publish_shard(workspace, path)
        leave_to_the_store(workspace, path)
    elif workspace.stored_units is not None:
        _publish_shard_entry(workspace, first_event_id)
    return UnitReport(
        unit=unit,
        events=shard.documents,
        bytes_in=sum(sizes),
        bytes=shard.size_bytes,
        note=shard.path.name,
        files=(_shard_uri(workspace, path),),
    )


def _shard_uri(workspace: Workspace, path: Path) -> str:
    if workspace.stored_units is None:
        return file_uri(path)
    return file_uri(workspace.catalog.objects.files.locate(stored_shard(path.name)))


def _publish_shard_entry(workspace: Workspace, first_event_id: int) -> None:
    """Bring a shard into the store, and leave its entry beside the staged unit for the commit."""
    units, staged = workspace.stored_units, find_staged(workspace, first_event_id)
    assert units is not None  # noqa: S101 - the caller asked
    files = staged.files(workspace)
    entry = add_shard(workspace, files, staged.metadata)
    units.put_entry(staged.manifest.first_group, staged.log, SHARD_ENTRY, Action(add_shard=entry))
    leave_to_the_store(workspace, files.shard)


def leave_to_the_store(workspace: Workspace, path: Path) -> None:
    """Remove the folder of a shard that is in the store, where any machine may build the next one under its name."""
    if workspace.stored_units is not None:
        discard(workspace, path)


def _record_sizes(tables: Iterator[pa.Table], sizes: list[int]) -> Iterator[pa.Table]:
    for table in tables:
        sizes.append(table.nbytes)
        yield table


def rebuild_shard(workspace: Workspace, shard: AddShard) -> BuiltShard:
    """Build a live shard anew from its logs, with the settings of today, in the place of the one that is there.

    Readers go on with what they have open. One that opens the shard while it is replaced finds its events in the logs.

    Raises:
        StorageError: the container in which it belongs is missing.
    """
    path = workspace.shard_path(shard)
    workspace.require_container(path)
    tables = _tables_of_logs(workspace, shard)
    index = workspace.settings.index
    forget_filters(workspace, path)
    built = build_shard(
        workspace.fs,
        path,
        tables,
        index.attributes,
        standard=index.fields,
        ranges=index.ranges,
        layout=index.layout,
        attribute_characters=workspace.settings.query.attribute_characters_max,
        replace=True,
    )
    forget_filters(workspace, path)
    publish_shard(workspace, path)
    leave_to_the_store(workspace, path)
    return built


def publish_shard(workspace: Workspace, path: Path) -> None:
    """Bring the shard of a folder into the store, if that is an object store; raises as `ShardObjects.publish`."""
    workspace.check()
    workspace.shard_objects.publish(workspace.fs, path, workspace.clock.now_ms())


def shard_input_bytes(state: CatalogState, shard: AddShard) -> int | None:
    """Return the sizes of a live shard's logs together; None where one is live no longer."""
    logs = [state.files.get(path) for path in shard.log_paths]
    return None if None in logs else sum(log.size_bytes for log in logs if log is not None)


def is_stale(workspace: Workspace, shard: AddShard) -> bool:
    """Whether a shard is gone, damaged at its beginning, or was built with other settings than those of today."""
    path = workspace.shard_path(shard)
    if workspace.fs.exists(path):
        return is_old(workspace, path)
    # On another machine than that which built it, the shard of the store is as good.
    if not _is_stored_stale(workspace, shard):
        return False
    # The pieces that are here may be those of the shard before: another machine built it anew.
    workspace.shard_objects.forget(shard.name)
    return _is_stored_stale(workspace, shard)


def _is_stored_stale(workspace: Workspace, shard: AddShard) -> bool:
    try:
        stored = workspace.stored_shard(shard)
    except (NotFoundError, CorruptionError, FormatVersionError):
        return True
    return stored is None or not _is_of_today(workspace, stored.manifest.description)


def is_old(workspace: Workspace, path: Path) -> bool:
    """Whether a shard that is there cannot be read, or was built with other settings than those of today."""
    if not workspace.fs.exists(path):
        return False
    try:
        description = describe_shard(workspace.fs, path)
    # A shard that cannot be read is treated as an old one: its log still has everything.
    except (NotFoundError, CorruptionError, FormatVersionError):
        return True
    return not _is_of_today(workspace, description)


def _is_of_today(workspace: Workspace, description: Description) -> bool:
    index = workspace.settings.index
    return description.is_of(IndexedFields.checked(index.attributes, index.fields, index.ranges, layout=index.layout))


def old_shards(workspace: Workspace) -> Iterator[int]:
    """Yield the first event ids of the live shards that are old, the newest first."""
    # Searches need the newest shards most, and a pass rebuilds only some.
    for shard in sorted(workspace.catalog.load().shards.values(), key=lambda live: -live.first_event_id):
        if is_old(workspace, workspace.shard_path(shard)):
            yield shard.first_event_id


def _tables_of_logs(workspace: Workspace, shard: AddShard) -> Iterator[pa.Table]:
    files = workspace.catalog.load().files

    def opened(path: str) -> EventLog:
        # With its digests: a log that lies in another one's place would give that one's shard.
        file = files.get(path, AddFile())
        where = workspace.log_path(path)
        return EventLog(workspace.fs, where, sha256=file.sha256 or None, toc_sha256=file.toc_sha256)

    logs = (opened(path) for path in shard.log_paths)
    return chain.from_iterable(log.tables(range(len(log.toc.blocks))) for log in logs)


def lost_shards(workspace: Workspace) -> Iterator[int]:
    """Yield the first event ids of the live shards that neither a container that is there nor an object store has."""
    # A shard on a disk that is not mounted is not lost, and must not be built on the disk below.
    missing = unmounted_suspects(workspace.fs, workspace.settings.containers)
    stored: set[str] | None = None
    for shard in workspace.catalog.load().shards.values():
        path = workspace.shard_path(shard)
        if workspace.fs.exists(path) or any(path.is_relative_to(root) for root in missing):
            continue
        # The store is asked only where a folder is gone, and once.
        stored = workspace.shard_objects.names() if stored is None else stored
        if shard.name not in stored:
            yield shard.first_event_id


def live_shard(workspace: Workspace, first_event_id: int) -> AddShard | None:
    """Return the live shard that begins with an event, None where there is none yet."""
    shards = workspace.catalog.load().shards.values()
    return next((shard for shard in shards if shard.first_event_id == first_event_id), None)


def _shard_input(
    workspace: Workspace, first_event_id: int, live: AddShard | None
) -> tuple[Path, Iterator[pa.Table], int]:
    """Return where a shard belongs, what it indexes and how many events: by the catalog if it is live, else staging."""
    if live is not None:
        return workspace.shard_path(live), _tables_of_logs(workspace, live), live.documents
    staged = find_staged(workspace, first_event_id)
    version = staged.manifest.schema_version
    events = read_staged(workspace.fs, staged.path(workspace), staged.log, schema_version=version)
    return staged.files(workspace).shard, events, staged.log.rows


def commit_actions(workspace: Workspace, manifest: UnitManifest) -> tuple[list[Action], int]:
    """Return the actions that make a unit live, and the bytes of its files.

    Raises:
        NotFoundError: a log or a shard is not there: its step has to run first.
        CorruptionError: a log is not the one of this unit.
    """
    actions: list[Action] = []
    size = 0
    if workspace.stored_units is not None:
        return _stored_actions(workspace, workspace.stored_units, manifest)
    for log in manifest.logs:
        metadata = manifest.metadata(log)
        files = workspace.files(metadata, stripe=log.stripe)
        file = add_file(workspace, files, metadata, log.sources, bytes.fromhex(manifest.incarnation))
        shard = add_shard(workspace, files, metadata)
        actions += [Action(add_file=file), Action(add_shard=shard)]
        size += file.size_bytes + shard.size_bytes
    return actions, size


def _stored_actions(workspace: Workspace, units: StoredUnits, manifest: UnitManifest) -> tuple[list[Action], int]:
    """Return what `commit_actions` does, by the entries of the steps and by what the store has."""
    actions: list[Action] = []
    size = 0
    for log in manifest.logs:
        files = workspace.files(manifest.metadata(log), stripe=log.stripe)
        try:
            file = units.entry(manifest.first_group, log, LOG_ENTRY)
            shard = units.entry(manifest.first_group, log, SHARD_ENTRY)
        except NotFoundError as error:
            raise NotFoundError(f"{error} Run the steps compress and index before the commit.") from error
        check_stored_log(workspace, file.add_file, files.relative_log)
        workspace.shard_objects.require(shard.add_shard.name)
        # The executor knows no containers of this repository; nothing lies in it until a shard is built there.
        shard.add_shard.container = files.container
        actions += [file, shard]
        size += file.add_file.size_bytes + shard.add_shard.size_bytes
    return actions, size


def check_stored_log(workspace: Workspace, entry: AddFile, path: str, step: str = "compress") -> None:
    """Check that the store has the log of an entry: its size, its footer, and the whole of its table of contents.

    The table has a checksum of each block, and the footer the place of each. So the log is not read a second time.

    Raises:
        CorruptionError: it has another one.
        NotFoundError: it has none.
    """
    stored = workspace.catalog.objects.files
    if entry.path != path:
        raise CorruptionError(f"{stored.locate(path)}: expected its entry, got that of {entry.path}.")
    info = stored.head(path)
    if info is None:
        raise NotFoundError(f"{stored.locate(path)}: is missing. Run the step {step} before the commit.")
    described = AddFile()
    described.CopyFrom(entry)
    describe(described, lambda start, length: stored.get_range(path, start, length))
    toc = hashlib.sha256(stored.get(entry.toc_path)).digest()
    if info.size_bytes != entry.size_bytes or toc != entry.toc_sha256 or described != entry:
        raise CorruptionError(
            f"{stored.locate(path)}: expected the log that the step {step} wrote, got another one. Run the step "
            f"{step} again, then the commit."
        )


def add_file(
    workspace: Workspace,
    files: LogFiles,
    metadata: LogMetadata,
    sources: Iterable[StagedSource],
    incarnation: bytes = b"",
) -> AddFile:
    """Describe a log by the bytes on disk, after a check that it is the log of the metadata.

    Where the store is an object store, log and table of contents are there on return.

    `incarnation` is the one under which all its events were acknowledged, 16 bytes; empty where that is not known.

    Raises:
        CorruptionError: it is another one, or a block of it is damaged.
        ConflictError: an object store has other bytes under the name.
    """
    stored = workspace.catalog.objects.files
    stored.require(files.relative_log)
    # The name proves nothing: an earlier attempt with other settings may have left another log under it.
    log = EventLog(workspace.fs, files.log)
    log.check(metadata)
    # Nor does the digest, which is taken now: what was damaged since it was written is never listed, as its journals
    # go once it is.
    log.whole_blocks(refuse)
    action = AddFile(
        path=files.relative_log,
        size_bytes=workspace.fs.size(files.log),
        rows=metadata.rows,
        sha256=_sha256(workspace, files.log),
        table=metadata.table,
        partition=metadata.partition,
        schema_version=metadata.schema_version,
        first_event_id=metadata.first_event_id,
        last_event_id=metadata.last_event_id,
        first_event_time_ms=metadata.first_event_time_ms,
        last_event_time_ms=metadata.last_event_time_ms,
        toc_path=files.relative_toc,
        toc_sha256=_sha256(workspace, files.toc),
        sources=[
            SourceRange(node=source.node, first_ordinal=source.first_ordinal, last_ordinal=source.last_ordinal)
            for source in sources
        ],
        groups=metadata.groups,
        incarnation=incarnation,
    )
    # Described by the bytes on disk, so that the catalog can vouch for them.
    data = workspace.fs.view(files.log)
    describe(action, lambda start, length: bytes(data[start:][:length]))
    stored.publish(action.toc_path, action.toc_sha256)
    stored.publish(action.path, action.sha256)
    return action


def _sha256(workspace: Workspace, path: Path) -> bytes:
    """Return the digest of a file, of which only a piece is in memory at a time."""
    digest = hashlib.sha256()
    for start in range(0, workspace.fs.size(path), _READ_BYTES):
        digest.update(workspace.fs.view(path)[start : start + _READ_BYTES])
    return digest.digest()


def add_shard(workspace: Workspace, files: LogFiles, metadata: LogMetadata) -> AddShard:
    """Describe the shard of a log. Where the store is an object store, the shard is there on return.

    Raises:
        NotFoundError: it was not built.
        StorageError: the container in which it belongs is missing.
    """
    names = workspace.fs.list(files.shard)
    if not names:
        # On a missing disk the shard may well be there: the error must not advise to build it.
        workspace.require_container(files.shard)
        raise NotFoundError(f"index shard {files.shard} is missing. Run the index step before the commit.")
    publish_shard(workspace, files.shard)
    return AddShard(
        name=files.shard_name,
        container=files.container,
        documents=metadata.rows,
        size_bytes=sum(workspace.fs.size(files.shard / name) for name in names),
        first_event_id=metadata.first_event_id,
        last_event_id=metadata.last_event_id,
        first_event_time_ms=metadata.first_event_time_ms,
        last_event_time_ms=metadata.last_event_time_ms,
        log_paths=[files.relative_log],
    )
