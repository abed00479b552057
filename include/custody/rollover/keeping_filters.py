"""Keeping the filters of live shards together in few files, so that a search of a new process opens few shards.

Each file is made of shards that no other one has. When there are several, a new one takes up those that are not much
larger than itself, so that there are few, and a filter is written a few times in all. Files are never the truth: one
that is damaged, or of shards that are not live any more, goes, and what is still live is written with the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from custody.catalog import AddShard
from custody.errors import CorruptionError, FormatVersionError, NotFoundError, StorageError
from custody.format.names import FILTERS, container_paths, filters_name, parse_filters, parse_shard
from custody.index import FilterFile, OpenShard, ShardFilter, list_filter_files, shard_filter, write_filter_file
from custody.vfs import TEMPORARY_SUFFIX, FileSystem
from custody.workspace.workspace import Workspace

SHARDS_MIN = 8
"""So many shards without a filter in a file are worth a new one; fewer are opened, half a millisecond each."""
# A new file takes up each that has at most so many times its shards.
_TAKES_UP = 4


@dataclass(frozen=True, slots=True)
class _Kept:
    """A file of filters, and the shards in it that are live and in no newer one."""

    file: FilterFile
    live: tuple[str, ...]

    @property
    def is_mostly_gone(self) -> bool:
        return 2 * len(self.live) < len(self.file.names)


@dataclass(frozen=True, slots=True)
class _Folder:
    """The files of filters on one container."""

    path: Path
    kept: tuple[_Kept, ...]
    lacking: tuple[AddShard, ...]
    """The live shards of the container that no file has."""
    removable: tuple[str, ...]
    """The names of files that are damaged, or of which no shard is live."""

    @property
    def is_due(self) -> bool:
        return len(self.lacking) >= SHARDS_MIN or bool(self.removable) or any(each.is_mostly_gone for each in self.kept)


def keep_filters(workspace: Workspace) -> int:
    """Write the filters of live shards that no file has, where they are enough; return of how many shards.

    Durability: on return the files survive power loss; what they replace is gone, or found by the next pass.
    """
    done = 0
    for folder in _due_folders(workspace):
        if folder.is_due:
            done += _write(workspace, folder)
    return done


def forget_filters(workspace: Workspace, shard: Path) -> None:
    """Remove what files say of a shard that is built anew; to be called before it is there, and behind that.

    Durability: on return the removal survives power loss.
    """
    # Behind that as well: meanwhile a pass may have read the shard that was there before.
    folder = shard.parent.parent / FILTERS
    files = _files_in(workspace.fs, folder)
    remove_filter_files(workspace, folder, [name for name, file in files if file is None or shard.name in file.names])


def drop_former_filters(workspace: Workspace) -> list[Path]:
    """Remove the files of filters that name a shard which is not live, and damaged ones; return their paths.

    The filters of live shards in them are written anew with the next file.

    Durability: on return the removal survives power loss.
    """
    live = set(workspace.catalog.load().shards)
    removed: list[Path] = []
    for folder in workspace.filter_folders():
        files = _files_in(workspace.fs, folder)
        names = [name for name, file in files if file is None or not live.issuperset(file.names)]
        remove_filter_files(workspace, folder, names)
        removed += [folder / name for name in names]
    return removed


def _due_folders(workspace: Workspace) -> list[_Folder]:
    """Return the folders that may be due, with what the catalog says of them."""
    # The catalog may lie in a bucket, and is asked where it decides something.
    roots = [root for root in workspace.settings.containers if _may_be_due(workspace, root)]
    return _folders(workspace, roots) if roots else []


def _may_be_due(workspace: Workspace, root: Path) -> bool:
    """Whether a folder is due by the shards that lie beside it, whether they are live or not."""
    fs, paths = workspace.fs, container_paths(root, workspace.writer)
    lacking = {name for name in fs.list(paths.index) if parse_shard(name) is not None}
    for _, file in _files_in(fs, paths.filters):
        if file is None or 2 * len(lacking.intersection(file.names)) < len(file.names):
            return True
        lacking.difference_update(file.names)
    return len(lacking) >= SHARDS_MIN


def _files_in(fs: FileSystem, folder: Path) -> Iterator[tuple[str, FilterFile | None]]:
    """Yield the names of files of filters, the newest first, with the file; None for one that is damaged."""
    for path, file in list_filter_files(fs, folder):
        if not isinstance(file, StorageError):  # what the disk refuses stays as it is
            yield path.name, None if isinstance(file, CorruptionError) else file


def _folders(workspace: Workspace, roots: Iterable[Path]) -> list[_Folder]:
    # Containers are few and shards many, so that no path is made for each shard.
    shards: dict[str, dict[str, AddShard]] = {}
    for shard in workspace.catalog.load().shards.values():
        shards.setdefault(shard.container, {})[shard.name] = shard
    by_root = {workspace.settings.root / container: own for container, own in shards.items()}
    return [_folder(workspace, root, by_root.get(root, {})) for root in roots]


def _folder(workspace: Workspace, root: Path, live: dict[str, AddShard]) -> _Folder:
    paths = container_paths(root, workspace.writer)
    kept: list[_Kept] = []
    removable: list[str] = []
    for name, file in _files_in(workspace.fs, paths.filters):
        if file is None:
            removable.append(name)
            continue
        own = tuple(
            shard
            for shard, bounds in zip(file.names, file.bounds.tolist(), strict=True)
            if shard in live and tuple(bounds) == bounds_of_shard(live[shard])
        )
        for shard in own:
            del live[shard]
        if own:
            kept.append(_Kept(file, own))
        else:
            removable.append(name)
    # What is not in a folder is in an object store, and read by ranges.
    lacking = tuple(shard for shard in live.values() if workspace.fs.exists(paths.index / shard.name))
    return _Folder(paths.filters, tuple(kept), lacking, tuple(removable))


def _write(workspace: Workspace, folder: _Folder) -> int:
    fs = workspace.fs
    filters = [found for shard in folder.lacking if (found := _filter_of(workspace, shard)) is not None]
    written = len(filters)
    replaced: list[str] = []
    for each in sorted(folder.kept, key=lambda kept: len(kept.live)):
        if each.is_mostly_gone or (filters and len(each.live) <= _TAKES_UP * len(filters)):
            with suppress(CorruptionError):  # its shards are read by the next pass
                filters += each.file.filters(each.live)
            replaced.append(each.file.path.name)
    if filters:
        fs.make_directory(folder.path)
        names = fs.list(folder.path)
        # What an attempt left that ended before it gave its file a name.
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX):
                fs.remove(folder.path / name)
        numbers = [number for name in names if (number := parse_filters(name)) is not None]
        workspace.check()
        write_filter_file(fs, folder.path / filters_name(max(numbers, default=-1) + 1), filters)
    remove_filter_files(workspace, folder.path, (*replaced, *folder.removable))
    return written


def _filter_of(workspace: Workspace, shard: AddShard) -> ShardFilter | None:
    """Return the filter of a shard; None if it cannot be read, which others report."""
    try:
        return shard_filter(OpenShard(workspace.fs, workspace.shard_path(shard)), bounds_of_shard(shard))
    except (NotFoundError, CorruptionError, FormatVersionError):
        return None


def remove_filter_files(workspace: Workspace, folder: Path, names: Iterable[str]) -> None:
    """Remove files of filters; durability: on return the removal survives power loss."""
    gone = [*names]
    for name in gone:
        workspace.fs.remove(folder / name)
    if gone:
        workspace.fs.sync_directory(folder)


def bounds_of_shard(shard: AddShard) -> tuple[int, int, int, int]:
    """Return the bounds that the catalog has of a shard, in the order of `Bounds`."""
    return shard.first_event_id, shard.last_event_id, shard.first_event_time_ms, shard.last_event_time_ms
