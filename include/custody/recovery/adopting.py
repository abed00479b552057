"""Journals that are not the writer's, though they lie among its own: they become another writer's.

Two machines had one writer name before one of them was refused, or a container that was given up came back. What such
journals hold was acknowledged and is in no log. Their ids are others' too, so they get a writer name of their own and
keep the ids: each journal is copied with another name in its header, and removed when the copy is durable. Done again
after a crash anywhere, it ends in the same state.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec

from custody.catalog import CatalogState
from custody.errors import ConflictError
from custody.format.framing import Frame, frame, frames
from custody.format.names import ContainerPaths, JournalName
from custody.journal import WriterContainers, lock_path, read_header
from custody.journal.journal_file import KIND_HEADER, PREAMBLE, JournalHeader
from custody.rollover import strays
from custody.workspace import Workspace

_DIGEST_DIGITS = 8
_NAME_CHARACTERS = 63 - _DIGEST_DIGITS - 1


class Adopted(msgspec.Struct, frozen=True, kw_only=True):
    """A journal that became another writer's."""

    writer: str
    """The new one."""
    path: str
    """Where it lies now."""


def journals_of_others(workspace: Workspace, state: CatalogState) -> Iterator[Path]:
    """Yield the journals of other incarnations, and those of live groups whose events no live log has."""
    yield from (path for group in workspace.foreign_groups() for path in (*group.sealed, *group.open))
    yield from strays(workspace, state, workspace.groups())


def adopt(workspace: Workspace) -> list[Adopted]:
    """Give the sealed ones of these journals a writer of their own; the next pass rolls them over.

    The caller holds the lease of the rollover, and has recovered what dead writers left open.

    Durability: on return the journals that are named survive power loss under their new names.

    Raises:
        ConflictError: another file has the place of one.
        LockedError: a process holds one of the new writer names.
    """
    found: dict[str, list[Path]] = defaultdict(list)
    for path in journals_of_others(workspace, workspace.catalog.settle()):
        name = JournalName.parse(path.name)
        if name is not None and name.sealed:
            found[_new_name(workspace, path)].append(path)
    return [done for writer, paths in sorted(found.items()) for done in _moved(workspace, writer, paths)]


def _new_name(workspace: Workspace, path: Path) -> str:
    """Return a name for what an incarnation wrote; of the writer's own, for what it wrote on one container."""
    incarnation = workspace.ownership.incarnation(path)
    own = {claim.incarnation for claim in workspace.incarnations.known()}
    whence = f"{incarnation}/{path.parent if incarnation in own or not incarnation else ''}"
    digest = hashlib.sha256(f"{workspace.writer}/{whence}".encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{workspace.writer[:_NAME_CHARACTERS]}-{digest}"


def _moved(workspace: Workspace, writer: str, paths: list[Path]) -> Iterator[Adopted]:
    fs, containers = workspace.fs, workspace.settings.containers
    fs.make_directory(lock_path(containers, writer).parent)
    with fs.lock(lock_path(containers, writer)):
        roots = [root for root in containers if any(path.is_relative_to(root) for path in paths)]
        for root in roots:
            fs.make_directory(ContainerPaths(root, writer).journals)
        WriterContainers(fs, roots, writer)
        for path in paths:
            root = next(root for root in roots if path.is_relative_to(root))
            target = ContainerPaths(root, writer).journals / path.name
            data = _renamed(workspace, writer, path)
            if not fs.exists(target):
                fs.write_durably(target, data)
            elif fs.read(target) != data:
                raise ConflictError(f"{target}: expected {path} under its new writer name, got another journal.")
            fs.sync_directory(target.parent)
            fs.remove(path)
            fs.sync_directory(path.parent)
            yield Adopted(writer=writer, path=str(target))


def _renamed(workspace: Workspace, writer: str, path: Path) -> bytes:
    """Return a journal's bytes with another writer in its header; all others stay as they are, damaged ones too."""
    data = workspace.fs.read(path)
    header = read_header(workspace.fs, path)
    start = len(PREAMBLE)
    if header is None:
        name = JournalName.parse(path.name)
        first = 0 if name is None else name.first_event_id
        header = JournalHeader(
            writer=writer, database=workspace.database, first_event_id=first, created_ms=workspace.clock.now_ms()
        )
    else:
        head = next(frames(data, start))
        start = head.end if isinstance(head, Frame) else start
    made = msgspec.structs.replace(header, writer=writer, incarnation="")
    return PREAMBLE + frame(KIND_HEADER, msgspec.json.encode(made)) + data[start:]
