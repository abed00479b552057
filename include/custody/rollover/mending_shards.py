"""Live index shards that are gone or damaged: what is wrong with one, and its rebuild, told to the catalog first.

The first build of a shard is no repair, and neither is a rebuild of a whole one with other settings. A rebuild of one
that is gone or damaged is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from custody.catalog import AddShard, FileRepair
from custody.catalog.file_repairs import file_repair, finish_repairs, tell_repairs
from custody.errors import CorruptionError, CustodyError, FormatVersionError, NotFoundError
from custody.format.framing import misplaced_parts
from custody.index import BuiltShard, OpenShard, StoredShard
from custody.index.manifest import NAME as MANIFEST
from custody.index.manifest import PREAMBLE_BYTES
from custody.rollover.keeping_filters import bounds_of_shard
from custody.rollover.publish import rebuild_shard
from custody.workspace.workspace import Workspace


def require_whole_shard(workspace: Workspace, shard: AddShard, *, every_byte: bool = True) -> OpenShard:
    """Return a live shard, open, if it is there and whole; without `every_byte` its beginnings and sizes count.

    Raises:
        NotFoundError: it is gone.
        CorruptionError: it is damaged, or another shard.
        FormatVersionError: a newer custody wrote it.
    """
    if every_byte:
        # Of pieces that were fetched before, only those that are fetched anew say what the store has.
        workspace.shard_objects.forget(shard.name)
    stored = _stored(workspace, shard.name)
    if stored is not None and workspace.fs.exists(workspace.shard_path(shard)):
        # The folder of a shard that the store has as well is a second copy.
        here = OpenShard(workspace.fs, workspace.shard_path(shard), None)
        _check_description(workspace, shard, here)
        if every_byte:
            here.verify()
    opened = OpenShard(workspace.fs, workspace.shard_path(shard), stored)
    _check_description(workspace, shard, opened)
    if every_byte:
        _check_marks(workspace, shard)
        opened.verify()
    return opened


def mend_shard(workspace: Workspace, shard: AddShard, who: str) -> BuiltShard:
    """Rebuild a live shard; if it is gone or damaged, the catalog tells of that before anything is changed.

    Raises:
        StorageError: the container in which it belongs is missing, or the catalog could not be told: nothing changed.
    """
    with told_if_damaged(workspace, shard, who):
        return rebuild_shard(workspace, shard)


@contextmanager
def told_if_damaged(workspace: Workspace, shard: AddShard, who: str) -> Iterator[None]:
    """Tell the catalog of a shard that is gone or damaged, let it be built anew, and say that this is done."""
    reason = _defect(workspace, shard)
    if reason is not None:
        workspace.require_container(workspace.shard_path(shard))
        tell_repairs(workspace.catalog, [file_repair(FileRepair.SHARD_REBUILT, shard.name, reason)], who)
    yield
    if reason is not None and _defect(workspace, shard) is None:
        # Whether it can be said or not, the shard is whole: the step does not fail for it.
        finish_repairs(workspace.catalog, [(FileRepair.SHARD_REBUILT, shard.name)], who)


def _defect(workspace: Workspace, shard: AddShard) -> str | None:
    try:
        require_whole_shard(workspace, shard)
    except FormatVersionError:
        return None  # of another custody, and not damaged
    except CustodyError as error:
        return str(error)
    return None


def _stored(workspace: Workspace, name: str) -> StoredShard | None:
    """Return a shard of an object store, open; None where it lies in its folder alone, as in older releases."""
    try:
        return workspace.shard_objects.open(name)
    except NotFoundError:
        return None


def _check_description(workspace: Workspace, shard: AddShard, opened: OpenShard) -> None:
    """Raise CorruptionError unless the folder holds the shard that the catalog lists, with files of the right sizes."""
    opened.require(shard.documents, bounds_of_shard(shard))
    for file in opened.description.files if opened.stored is None else ():
        path = opened.path / file.name
        size = workspace.fs.size(path) if workspace.fs.exists(path) else -1
        if size != file.size:
            raise CorruptionError(f"{path}: expected {file.size} bytes, got {'no file' if size < 0 else size}.")


def _check_marks(workspace: Workspace, shard: AddShard) -> None:
    path = workspace.shard_path(shard) / MANIFEST
    if not workspace.fs.exists(path):
        return  # in the store alone, where the manifest has a digest
    for offset in misplaced_parts(workspace.fs.read(path), PREAMBLE_BYTES):
        raise CorruptionError(f"{path} @{offset}: expected the mark of a record, got that of a part.")
