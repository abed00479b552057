"""Adoption: foreign journals that lie among a writer's own get a writer name of their own.

They come from two machines that had one writer name before one of them was refused, or from a container that was given
up and came back. Their events were acknowledged and are in no log. Their ids were given out twice, so the journals get
another writer name and keep their ids: each is copied with the new name in its header, and removed once the copy is
durable. Repeated after a crash anywhere, adoption ends in the same state.
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
from custody.rollover import stray_journals
from custody.workspace import Workspace

# Part of names on disk: with another length a repeated adoption would not find the journals that it moved.
_DIGEST_DIGITS = 8
# A writer's name has at most 63 characters; the digest and the hyphen before it take their part.
_NAME_CHARACTERS = 63 - _DIGEST_DIGITS - 1


class AdoptedJournal(msgspec.Struct, frozen=True, kw_only=True):
    """A journal under its new writer name."""

    writer: str
    """The new name."""
    path: str
    """Its present path."""


def list_foreign_journals(workspace: Workspace, state: CatalogState) -> Iterator[Path]:
    """Yield the journals that cannot become live under the name.

    Those are the journals of other incarnations, those of live groups whose events no live log has, and, of a writer
    that was retired, those that came back later.
    """
    yield from (path for group in workspace.foreign_groups() for path in (*group.sealed, *group.open))
    groups = workspace.groups()
    yield from stray_journals(workspace, state, groups)
    if state.seal is not None:
        live = workspace.live_groups(state)
        late = (group for group in groups if group.first_event_id not in live)
        yield from (path for group in late for path in (*group.sealed, *group.open))


def adopt(workspace: Workspace) -> list[AdoptedJournal]:
    """Give the sealed foreign journals a writer name of their own; the next pass rolls them over.

    The caller holds the lease of the rollover, and has sealed what dead writers left open.

    Durability: on return the journals that are returned survive power loss under their new names.

    Raises:
        ConflictError: another file lies where a journal belongs.
        LockedError: a process holds one of the new writer names.
    """
    by_writer: dict[str, list[Path]] = defaultdict(list)
    for path in list_foreign_journals(workspace, workspace.catalog.settle()):
        name = JournalName.parse(path.name)
        if name is not None and name.sealed:
            by_writer[_new_name(workspace, path)].append(path)
    return [journal for writer, paths in sorted(by_writer.items()) for journal in _move(workspace, writer, paths)]


def _new_name(workspace: Workspace, path: Path) -> str:
    """Return a name for all journals of an incarnation; for those of the writer's own, one name a container."""
    incarnation = workspace.incarnation_of(path)
    own = {claim.incarnation for claim in workspace.incarnations.readable_claims()}
    # Part of the name on disk: an adoption that is repeated must find the journals that it has moved.
    origin = f"{incarnation}/{path.parent if incarnation in own or not incarnation else ''}"
    digest = hashlib.sha256(f"{workspace.writer}/{origin}".encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{workspace.writer[:_NAME_CHARACTERS]}-{digest}"


def _move(workspace: Workspace, writer: str, paths: list[Path]) -> Iterator[AdoptedJournal]:
    fs, containers = workspace.fs, workspace.settings.containers
    fs.make_directory(lock_path(containers, writer).parent)
    # The new name's own lock: no writer of that name may start while its journals arrive.
    with fs.lock(lock_path(containers, writer)):
        roots = [root for root in containers if any(path.is_relative_to(root) for path in paths)]
        for root in roots:
            fs.make_directory(ContainerPaths(root, writer).journals)
        WriterContainers(fs, roots, writer)
        for path in paths:
            root = next(root for root in roots if path.is_relative_to(root))
            target = ContainerPaths(root, writer).journals / path.name
            data = _renamed(workspace, writer, path)
            # After a crash the copy may be there already, with the same bytes: it is made of the journal alone.
            if not fs.exists(target):
                fs.write_durably(target, data)
            elif fs.read(target) != data:
                raise ConflictError(f"{target}: expected {path} under its new writer name, got another journal.")
            # The copy's name first: without it the journal would be gone after power loss.
            fs.sync_directory(target.parent)
            fs.remove(path)
            fs.sync_directory(path.parent)
            yield AdoptedJournal(writer=writer, path=str(target))


def _renamed(workspace: Workspace, writer: str, path: Path) -> bytes:
    """Return a journal's bytes with another writer in its header; all other bytes stay, damaged ones too."""
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
    # Without an incarnation it counts as one of its new writer's container, whatever the old writer's was.
    renamed = msgspec.structs.replace(header, writer=writer, incarnation="")
    return PREAMBLE + frame(KIND_HEADER, msgspec.json.encode(renamed)) + data[start:]
