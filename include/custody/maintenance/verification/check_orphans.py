"""Orphans: files on containers and store and in the repository's folder that belong to nothing, with their sizes.

Nothing is read but names, sizes, and the footers of unlisted logs. A log behind the end of the catalog whose journals
are gone is no orphan: journals go after their transaction is durable, so a transaction must be lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from custody.catalog import CatalogState
from custody.catalog.garbage import kept_files
from custody.catalog.keys import HINT
from custody.config import SETTINGS_FILE, Settings
from custody.errors import CustodyError, StorageError
from custody.eventlog import EventLog, LogMetadata
from custody.flow.content import ContentContainers
from custody.flow.content.handed_claims import MANIFEST as MANIFEST_OF_CLAIM
from custody.format.names import (
    BUILDING_PREFIX,
    CONTAINER_MARK,
    CONTENT,
    CONTENT_HANDOFF,
    CONTENT_MARKS,
    ERASURES,
    FETCHING_SUFFIX,
    FILTERS,
    FORGOTTEN,
    ICEBERG,
    INCARNATIONS,
    LEASES,
    REMOVING_PREFIX,
    SOFTWARE,
    STRIPE_MARK,
    STRIPES,
    UNIT_MANIFEST,
    WITNESS,
    ContainerPaths,
    ContentPaths,
    JournalName,
    is_claim,
    is_section,
    parse_event_log,
    parse_filters,
    parse_revision,
    parse_shard,
    parse_staged_unit,
    parse_transaction,
    parse_unit_part,
    staged_log,
    toc_path,
)
from custody.index import OpenShard
from custody.index.manifest import NAME as MANIFEST
from custody.maintenance.findings import Finding
from custody.maintenance.verification.check_units import size_of
from custody.quarantine import is_body_file
from custody.vfs import TEMPORARY_SUFFIX, FileSystem
from custody.workspace import LogFiles, UnitManifest, Workspace, writer_names

_SET_ASIDE = ("transactions-damaged-", "transactions-replaced-")
_OURS = (
    SETTINGS_FILE,
    "quarantine",
    "runs",
    "jobs",
    "replays",
    "turns",
    "maintenance",
    "landed",
    "watch",
    "ngsi",
    "flowfiles",
    "exports",
    "witness",
    "site-to-site",
    "uploads",
)


def orphans(workspaces: list[Workspace], settings: Settings, fs: FileSystem) -> Iterator[Finding]:
    """Yield the orphans of some writers and of the repository's own folders."""
    yield from _root(settings, fs)
    yield from _quarantine(settings, fs)
    # All of them: files of a writer that is not looked at belong to it all the same.
    writers = {*writer_names(settings, fs), *(workspace.writer for workspace in workspaces)}
    for folder in (*settings.containers, settings.store):
        for name in fs.list(folder):
            if name not in writers and folder / name != settings.store / ERASURES:
                yield _orphan(fs, folder / name, "foreign")
    for workspace in workspaces:
        yield from of_writer(workspace)


def of_writer(workspace: Workspace) -> Iterator[Finding]:
    """Yield the orphans below one writer's folders."""
    try:
        state: CatalogState | None = workspace.catalog.load()
        expected = kept_files(workspace.catalog)
    except CustodyError:
        # Without the catalog nobody can tell orphans from live files: logs and shards are then left out.
        state, expected = None, set()
    for container in workspace.settings.containers:
        yield from _container(workspace, ContainerPaths(container, workspace.writer), state)
    fs, home = workspace.fs, workspace.paths.home
    for name in fs.list(home.parent):
        if name not in (home.name, CONTENT, CONTENT_HANDOFF, CONTENT_MARKS, SOFTWARE):
            yield _orphan(fs, home.parent / name, "foreign", workspace.writer)
    yield from _content(workspace)
    yield from _handed_contents(workspace)
    yield from _data(workspace, state, expected)
    yield from _stripes(workspace)
    for name in sorted({*fs.list(home)} - {"data", FORGOTTEN, ICEBERG, INCARNATIONS, LEASES, STRIPES, WITNESS}):
        if name == "staging":
            yield from _staging(workspace)
        elif name == "transactions":
            yield from _transactions(workspace)
        elif name == "trash":
            yield from (_orphan(fs, path, "trash", workspace.writer) for path in _files(fs, home / name))
        else:
            kind = "set-aside" if name.startswith(_SET_ASIDE) else "foreign"
            yield _orphan(fs, home / name, kind, workspace.writer)


def _root(settings: Settings, fs: FileSystem) -> Iterator[Finding]:
    places = (*settings.containers, settings.store, *settings.stripes.values())
    for name in fs.list(settings.root):
        path = settings.root / name
        if name not in _OURS and not any(place.is_relative_to(path) for place in places):
            yield _orphan(fs, path, _kind_of(name))


def _quarantine(settings: Settings, fs: FileSystem) -> Iterator[Finding]:
    for name in fs.list(settings.quarantine):
        if not is_body_file(name):
            yield _orphan(fs, settings.quarantine / name, _kind_of(name))


def _container(workspace: Workspace, paths: ContainerPaths, state: CatalogState | None) -> Iterator[Finding]:
    fs = workspace.fs
    for name in fs.list(paths.home):
        if name not in ("LOCK", "STATE", "journals", "index", FILTERS) and not name.startswith(f"{WITNESS}."):
            yield _orphan(fs, paths.home / name, _kind_of(name), workspace.writer)
    for folder, parse in ((paths.journals, JournalName.parse), (paths.filters, parse_filters)):
        for name in fs.list(folder):
            if parse(name) is None:
                yield _orphan(fs, folder / name, _kind_of(name), workspace.writer)
    live = {workspace.shard_path(shard) for shard in state.shards.values()} if state is not None else set()
    staged = {files.shard for files in _staged_files(workspace)}
    for name in fs.list(paths.index):
        path = paths.index / name
        if path in live:
            yield from _in_shard(workspace, path)
        elif path not in staged:
            kind = "unlisted-shard" if parse_shard(name) is not None and state is not None else _kind_of(name)
            if kind != "foreign" or parse_shard(name) is None:
                yield _orphan(fs, path, kind, workspace.writer)


def _content(workspace: Workspace) -> Iterator[Finding]:
    fs, home = workspace.fs, ContentPaths(workspace.settings.content_store, workspace.writer).home
    containers = ContentContainers(fs, workspace.settings.content_store, workspace.writer)
    for container in fs.list(home):
        if not fs.is_directory(home / container):
            yield _orphan(fs, home / container, _kind_of(container), workspace.writer)
            continue
        if containers.why_missing(container):
            continue  # what lies in the place of a disk that is away is not ours to judge
        for section in fs.list(home / container):
            folder = home / container / section
            if section == CONTAINER_MARK:
                continue
            if not is_section(section) or not fs.is_directory(folder):
                yield _orphan(fs, folder, _kind_of(section), workspace.writer)
                continue
            for name in fs.list(folder):
                if not is_claim(name):
                    yield _orphan(fs, folder / name, _kind_of(name), workspace.writer)


def _handed_contents(workspace: Workspace) -> Iterator[Finding]:
    """Yield what no listing of the store shows; of an interrupted hand-over the check of what was handed over tells."""
    for path in _files(workspace.fs, workspace.settings.store / workspace.writer / CONTENT_HANDOFF):
        if path.name != MANIFEST_OF_CLAIM and not path.name.isdecimal():
            yield _orphan(workspace.fs, path, _kind_of(path.name), workspace.writer)


def _in_shard(workspace: Workspace, folder: Path) -> Iterator[Finding]:
    try:
        described = {MANIFEST, *(file.name for file in OpenShard(workspace.fs, folder).description.files)}
    except CustodyError:
        return
    for name in workspace.fs.list(folder):
        if name not in described:
            yield _orphan(workspace.fs, folder / name, _kind_of(name), workspace.writer)


def _data(workspace: Workspace, state: CatalogState | None, expected: set[str]) -> Iterator[Finding]:
    if state is None:
        return  # nobody knows what is live
    fs = workspace.fs
    # Files that a rollover is about to list are no orphans.
    coming = {path for files in _staged_files(workspace) for path in (files.relative_log, files.relative_toc)}
    for relative, path in _data_files(workspace):
        if relative in expected or relative in coming:
            continue
        first = parse_event_log(relative)
        if first is None:
            yield _orphan(fs, path, _kind_of(path.name), workspace.writer)
        elif first >= state.next_event_id and relative.endswith(".parquet") and _was_live(workspace, path):
            yield _lost_tail(workspace, path, relative)
        elif not (relative.endswith(".toc") and first >= state.next_event_id and _has_tail_log(workspace, path)):
            yield _orphan(fs, path, "unlisted-log", workspace.writer)


def _stripes(workspace: Workspace) -> Iterator[Finding]:
    fs = workspace.fs
    for prefix, home in workspace.catalog.objects.files.parts():
        for name in sorted({*fs.list(home)} - {"data", STRIPE_MARK}) if prefix else ():
            if name == "trash":
                yield from (_orphan(fs, path, "trash", workspace.writer) for path in _files(fs, home / name))
            else:
                yield _orphan(fs, home / name, _kind_of(name), workspace.writer)


def _data_files(workspace: Workspace) -> Iterator[tuple[str, Path]]:
    """Yield everything below the folders of event logs, with its path in the catalog."""
    for prefix, home in workspace.catalog.objects.files.parts():
        for path in _files(workspace.fs, home / "data"):
            yield f"{prefix}{path.relative_to(home)}", path


def _was_live(workspace: Workspace, path: Path) -> bool:
    metadata = _metadata(workspace, path)
    on_disk = {group.first_event_id for group in workspace.groups()}
    on_disk.update(*(manifest.groups for manifest in workspace.manifests()))
    return metadata is not None and not on_disk.intersection(metadata.groups)


def _has_tail_log(workspace: Workspace, toc: Path) -> bool:
    log = toc.with_suffix(".parquet")
    return toc.name == toc_path(log.name) and workspace.fs.exists(log) and _was_live(workspace, log)


def _metadata(workspace: Workspace, path: Path) -> LogMetadata | None:
    try:
        return EventLog(workspace.fs, path).metadata
    except (CustodyError, OSError, ValueError):
        return None


def _lost_tail(workspace: Workspace, path: Path, relative: str) -> Finding:
    metadata = _metadata(workspace, path)
    return Finding(
        kind="catalog-tail",
        writer=workspace.writer,
        path=str(path),
        message=f"{path}: lies behind the end of the catalog, and its journals are gone: its transaction is lost.",
        events=metadata.rows if metadata else 0,
        first_event_id=metadata.first_event_id if metadata else None,
        last_event_id=metadata.last_event_id if metadata else None,
        size_bytes=size_of(workspace.fs, path),
        name=relative,
    )


def _staging(workspace: Workspace) -> Iterator[Finding]:
    fs, folder = workspace.fs, workspace.paths.staging
    manifests = {manifest.first_group: manifest for manifest in _manifests(workspace)}
    names = fs.list(folder)
    parts = {first for name in names if (first := parse_unit_part(name)) is not None}
    waiting = _waiting_of(workspace, parts) - manifests.keys()
    for name in names:
        first = parse_staged_unit(name)
        if parse_unit_part(name) in waiting:
            continue  # the next rollover uses it
        if first is None:
            yield _orphan(fs, folder / name, _kind_of(name), workspace.writer)
        elif first in manifests:
            listed = {UNIT_MANIFEST, *(staged_log(log.first_event_id) for log in manifests[first].logs)}
            for inner in fs.list(folder / name):
                if inner not in listed:
                    yield _orphan(fs, folder / name / inner, _kind_of(inner), workspace.writer)


def _waiting_of(workspace: Workspace, first_ids: set[int]) -> set[int]:
    """Return which of some groups have journals, by their first events."""
    if not first_ids:
        return set()
    try:
        return {group.first_event_id for group in workspace.groups(first_ids)}
    except CustodyError:
        return first_ids  # found by the check of the journals; until it is mended nothing of them is in nobody's use


def _transactions(workspace: Workspace) -> Iterator[Finding]:
    fs, folder = workspace.fs, workspace.paths.transactions
    for path in _files(fs, folder):
        inner = path.parent != folder and path.parent.parent == folder and parse_revision(path.parent.name) is not None
        stem = path.name.removesuffix(".statistics.parquet")
        revision = parse_transaction(path.name) or (stem != path.name and parse_transaction(f"{stem}.ckpt"))
        if not (inner and revision) and not (path.parent == folder and path.name == HINT):
            yield _orphan(fs, path, _kind_of(path.name), workspace.writer)


def _manifests(workspace: Workspace) -> Iterator[UnitManifest]:
    for first in workspace.staged():
        try:
            yield workspace.manifest(first)
        except CustodyError:
            continue  # found by the check of the unit


def _staged_files(workspace: Workspace) -> Iterator[LogFiles]:
    for manifest in _manifests(workspace):
        yield from (workspace.files(manifest.metadata(log), stripe=log.stripe) for log in manifest.logs)


def _files(fs: FileSystem, folder: Path) -> Iterator[Path]:
    for name in fs.list(folder):
        path = folder / name
        if fs.is_directory(path):
            yield from _files(fs, path)
        else:
            yield path


def _kind_of(name: str) -> str:
    if name.endswith((TEMPORARY_SUFFIX, FETCHING_SUFFIX)):
        return "temporary"
    if name.startswith(BUILDING_PREFIX) or parse_unit_part(name) is not None:
        return "attempt"
    return "removal" if name.startswith(REMOVING_PREFIX) else "foreign"


def _orphan(fs: FileSystem, path: Path, kind: str, writer: str | None = None) -> Finding:
    return Finding.of(kind, path, f"{path}: belongs to nothing.", writer=writer, size_bytes=_bytes(fs, path))


def _bytes(fs: FileSystem, path: Path) -> int:
    try:
        if fs.is_directory(path):
            return sum(size_of(fs, inner) for inner in _files(fs, path))
        return fs.size(path)
    except StorageError:
        return 0
