"""The containers of a repository's writers: which are there, which are missing, and forgetting one that is lost."""

from __future__ import annotations

from pathlib import Path

import msgspec

from custody.config import Settings
from custody.errors import CorruptionError, NotFoundError
from custody.format.names import ContainerPaths
from custody.journal import drop_container, groups, lock_path, writer_states, writers
from custody.vfs import FileSystem, PosixFileSystem


class ContainerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One container as one writer knows it; sizes in bytes."""

    writer: str
    container: str
    """Its identity: 32 hexadecimal digits."""
    path: str
    """Where it is, or where it was last seen."""
    is_missing: bool
    journals: int
    journal_bytes: int


def container_list(settings: Settings, fs: FileSystem | None = None) -> list[ContainerStatus]:
    """Return the containers of all writers, by writer and path."""
    fs = fs or PosixFileSystem()
    found = []
    for writer in writers(fs, settings.containers):
        states = writer_states(fs, settings.containers, writer)
        here = {state.container: root for root, state in states.items()}
        known = {identity: place for state in states.values() for identity, place in state.containers.items()}
        known |= {identity: str(root) for identity, root in here.items()}
        for identity, place in sorted(known.items(), key=lambda item: item[1]):
            root = here.get(identity)
            sizes = _journal_sizes(fs, root, writer) if root is not None else []
            found.append(
                ContainerStatus(
                    writer=writer,
                    container=identity,
                    path=place,
                    is_missing=root is None,
                    journals=len(sizes),
                    journal_bytes=sum(sizes),
                )
            )
    return found


def forget_container(settings: Settings, identity: str, fs: FileSystem | None = None) -> list[str]:
    """Forget a container that is lost for good; return the writers that knew it.

    What its journals held and was not rolled over is lost with it; its ids are not given out again.

    Raises:
        NotFoundError: no writer knows it.
        CorruptionError: it is there; only a missing one can be forgotten.
        LockedError: a writer that knows it is alive.
    """
    fs = fs or PosixFileSystem()
    knowing = [found for found in container_list(settings, fs) if found.container == identity]
    if not knowing:
        raise NotFoundError(f"no writer knows a container {identity}. See: custody containers list")
    for found in knowing:
        if not found.is_missing:
            raise CorruptionError(
                f"container {identity} of writer {found.writer!r}: expected a missing one, got it at {found.path}. "
                "To stop using it, take its folder out of repository.containers once its journals are swept."
            )
    for found in knowing:
        with fs.lock(lock_path(settings.containers, found.writer)):
            drop_container(fs, settings.containers, found.writer, identity)
    return [found.writer for found in knowing]


def _journal_sizes(fs: FileSystem, root: Path, writer: str) -> list[int]:
    folder = ContainerPaths(root, writer).journals
    return [
        fs.size(folder / path.name)
        for group in groups(fs, [root], writer)
        for path in (*group.sealed, *group.open)
        if fs.exists(path)
    ]
