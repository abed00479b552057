"""Disk usage of a repository: every file and folder of containers, store and stripes, counted as `du` does.

Of an object store its objects count, and not the local copies of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import msgspec

from custody.catalog import store_of
from custody.catalog.garbage import OLDER_THAN_MS
from custody.config import Settings
from custody.errors import StorageError
from custody.flow.content import ContentContainers
from custody.format.names import CONTENT_HANDOFF, FILTERS, INDEX, RANGES, SOFTWARE, ContainerPaths, is_name
from custody.vfs import FileSystem
from custody.workspace import Workspace

BLOCK_BYTES = 4096
"""Disks allocate blocks: a file of one byte takes a block, and so does a folder."""
_CONTAINER_KINDS = {"journals": "journals", "index": "index", FILTERS: "index"}
_DATABASE_KINDS = {
    "staging": "staging",
    "data": "logs",
    RANGES: "logs",
    INDEX: "index",
    "transactions": "catalog",
    "trash": "trash",
    "builds": "software",
    "iceberg": "catalog",
}
_WRITER_KINDS = {"content": "content", "content-marks": "content", CONTENT_HANDOFF: "content", "flowfiles": "content"}
_DATABASE_DEPTH = 3  # <store>/<writer>/<database>/<what>


class DiskUse(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes on disk, in total and by purpose."""

    total_bytes: int
    kinds: dict[str, int]

    @classmethod
    def of(cls, kinds: Mapping[str, int]) -> DiskUse:
        """Add up the bytes of each kind."""
        return cls(total_bytes=sum(kinds.values()), kinds=dict(sorted(kinds.items())))


def allocated_bytes(size: int) -> int:
    """Return the room that a file of a size takes."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


def measure_disk(settings: Settings, fs: FileSystem) -> DiskUse:
    """Measure every file of containers, store and the stripes that are there; one that vanishes counts nothing."""
    kinds: Counter[str] = Counter()
    # Looked up once: a large store has thousands of files.
    store, is_remote = settings.store, settings.is_store_remote
    roots = {*settings.containers, store}
    # Another disk in the place of a content container must cost no event.
    passed_over = set(_missing_containers(settings, fs))
    for root in sorted(roots):
        if any(root != other and root.is_relative_to(other) for other in roots):
            continue  # the other one counts it
        # Every file and not only listed ones: the limit is a promise about the disk.
        is_store = root == store
        for parts, size in _walk(fs, root, passed_over):
            kind = _kind(parts, is_store=is_store)
            is_copy = kind in ("logs", "software") or parts[1:2] == (CONTENT_HANDOFF,)
            # Copies of an object store's files have a bound of their own: what counts is what the store has.
            if not (is_remote and is_store and is_copy):
                kinds[kind] += size
    kinds["content"] += sum(
        size for folder in _containers_elsewhere(settings, fs, roots) for _, size in _walk(fs, folder)
    )
    for path, size in _stored(settings, fs) if is_remote else ():
        kinds[_kind(path.parts, is_store=True)] += size
    kinds.update(_on_stripes(settings, fs, roots))
    return DiskUse.of(kinds)


def waiting_bytes(workspace: Workspace, now_ms: int) -> int:
    """Return the bytes of a writer's files that are live no longer and will be deleted: marked, trash, or garbage."""
    state, files = workspace.catalog.load(), workspace.catalog.objects.files
    live = {path for file in state.files.values() for path in (file.path, file.toc_path)}
    marked = {path for mark in state.marks.values() for path in mark.paths}
    size = sum(allocated_bytes(info.size_bytes) for info in files.list("trash/", present_only=True))
    for info in files.others("data/", live - marked):
        if info.key in marked or info.modified_ms <= now_ms - OLDER_THAN_MS:
            size += allocated_bytes(info.size_bytes)
    for mark in state.marks.values():
        for shard in mark.shards:
            index = ContainerPaths(workspace.settings.root / shard.container, workspace.writer).index
            size += allocated_folder_bytes(workspace.fs, index / shard.name)
            size += allocated_bytes(workspace.shard_objects.size_bytes(shard.name))
    return size


def allocated_folder_bytes(fs: FileSystem, folder: Path) -> int:
    """Return the room that a folder takes with its content; 0 for one that does not exist."""
    return sum(size for _, size in _walk(fs, folder)) if fs.exists(folder) else 0


def allocated_file_bytes(fs: FileSystem, path: Path) -> int:
    """Return the room that a file takes; 0 for one that does not exist."""
    try:
        return allocated_bytes(fs.size(path))
    except StorageError:
        return 0


def _stored(settings: Settings, fs: FileSystem) -> Iterator[tuple[Path, int]]:
    """Yield the keys below the writers' databases in an object store, and their sizes."""
    store = store_of(settings, fs)
    for writer in filter(is_name, store.folders("")):
        for database in (settings.repository.database, SOFTWARE, CONTENT_HANDOFF):
            for info in store.list(f"{writer}/{database}/"):
                yield Path(info.key), allocated_bytes(info.size_bytes)


def _on_stripes(settings: Settings, fs: FileSystem, roots: Collection[Path]) -> Counter[str]:
    """Return the bytes of each kind on the stripes that are there and lie below none of some folders."""
    kinds: Counter[str] = Counter()
    for workspace in Workspace.all(settings, fs) if settings.stripes else ():
        for prefix, home in workspace.catalog.objects.files.parts():
            # Only what has the mark of this repository: another disk in the place of a stripe must cost no event.
            if prefix and not any(home.is_relative_to(root) for root in roots):
                for parts, size in _walk(fs, home):
                    kinds[_DATABASE_KINDS.get(parts[0] if parts else "", "other")] += size
    return kinds


def _containers_elsewhere(settings: Settings, fs: FileSystem, roots: Collection[Path]) -> Iterator[Path]:
    """Yield the folders of the content containers that are there and lie below none of some folders."""
    store = settings.content_store
    for writer in filter(is_name, fs.list(settings.store)) if store.elsewhere else ():
        containers = ContentContainers(fs, store, writer)
        folders = [containers.get(name).folder for name in containers.present() if name in store.elsewhere]
        yield from (folder for folder in folders if not any(folder.is_relative_to(root) for root in roots))


def _missing_containers(settings: Settings, fs: FileSystem) -> Iterator[Path]:
    for writer in filter(is_name, fs.list(settings.store)):
        containers = ContentContainers(fs, settings.content_store, writer)
        yield from (containers.get(name).folder for name, _ in containers.missing())


def _walk(fs: FileSystem, root: Path, passed_over: Collection[Path] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield a folder and all that is below it, each by the parts of its name below the folder, with its room.

    A folder that lies deep enough is told with the files in it.
    """
    # By texts, and all that a folder says read at once: with a path for each name this takes four times as long.
    below = fs.below(root)
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        parts = waiting.pop()
        size = BLOCK_BYTES
        for entry in below.entries("/".join(parts)):
            if not entry.is_folder:
                room = allocated_bytes(entry.size_bytes)
                # What tells the purpose of a file lies above it: then its folder counts it.
                if len(parts) >= _DATABASE_DEPTH:
                    size += room
                else:
                    yield (*parts, entry.name), room
            elif not (passed_over and root.joinpath(*parts, entry.name) in passed_over):
                waiting.append((*parts, entry.name))
        yield parts, size


def _kind(parts: tuple[str, ...], *, is_store: bool) -> str:
    inside = parts[1] if len(parts) > 1 else ""
    if not is_store:
        return _CONTAINER_KINDS.get(inside, "other")
    if inside in _WRITER_KINDS:
        return _WRITER_KINDS[inside]
    return _DATABASE_KINDS.get(parts[_DATABASE_DEPTH - 1], "other") if len(parts) >= _DATABASE_DEPTH else "other"
