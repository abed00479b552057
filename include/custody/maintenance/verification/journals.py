"""One group of journals: whole records, an end record that counts them, names that say what the headers say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa

from custody.errors import CustodyError
from custody.format.framing import misplaced_parts
from custody.format.names import JournalName
from custody.journal import Group, JournalFile, read_end
from custody.journal.encoding import decode
from custody.journal.file import PREAMBLE
from custody.maintenance.findings import Finding, Level
from custody.rollover import Workspace
from custody.rollover.pending import is_live


def check_group(workspace: Workspace, first_event_id: int, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the journals of a group; a group that was swept meanwhile has none."""
    group = next(iter(workspace.groups([first_event_id])), None)
    if group is None:
        return
    for path in group.sealed:
        yield from _sealed(workspace, path, level)
    if group.open and not is_live(workspace.fs, workspace.settings, workspace.writer):
        for path in group.open:
            yield from _open(workspace, path)


def read_journal(workspace: Workspace, path: Path) -> JournalFile | None:
    """Return a journal, None when it cannot be read at all, or was swept or sealed in this moment."""
    try:
        return JournalFile.read(workspace.fs, path)
    except (CustodyError, msgspec.MsgspecError, pa.ArrowException, ValueError):
        return None


def records_of(workspace: Workspace, group: Group) -> list[tuple[int, int]]:
    """Return (first id, events) of each whole record of a group's journals."""
    journals = [read_journal(workspace, path) for path in (*group.sealed, *group.open)]
    return [(record.first_event_id, record.count) for file in journals if file for record in file.records]


def _sealed(workspace: Workspace, path: Path, level: Level) -> Iterator[Finding]:
    if level is Level.QUICK:
        if read_end(workspace.fs, path) is None:
            size = workspace.fs.size(path)
            yield _finding(workspace, path, size, "expected the end record of a sealed journal, got none.")
        return
    try:
        journal = JournalFile.read(workspace.fs, path)
    except (CustodyError, msgspec.MsgspecError, pa.ArrowException, ValueError) as error:
        if workspace.fs.exists(path):
            yield _finding(workspace, path, None, str(error))
        return
    yield from _damage(workspace, journal)
    yield from _header(workspace, journal)
    if level is Level.DEEP:
        yield from _decoded(workspace, journal)


def _damage(workspace: Workspace, journal: JournalFile) -> Iterator[Finding]:
    """Name damaged bytes; the end record tells how many events they held, all of them together."""
    known = sum(record.count for record in journal.records)
    lost = max(journal.end.events - known, 0) if journal.end is not None else 0
    for number, damage in enumerate(journal.damage):
        events = lost if number == 0 else 0
        yield _finding(workspace, journal.path, damage.offset, str(damage), events, damage.length)
    if not journal.damage:
        if journal.end is not None and journal.end.events != known:
            text = f"expected {journal.end.events} events, as its end record says, got {known}."
            yield _finding(workspace, journal.path, None, text, lost)
        for offset in misplaced_parts(workspace.fs.read(journal.path), len(PREAMBLE)):
            yield _finding(workspace, journal.path, offset, "expected the mark of a record, got that of a part.")


def _header(workspace: Workspace, journal: JournalFile) -> Iterator[Finding]:
    name, header = JournalName.parse(journal.path.name), journal.header
    if header is None or name is None:
        return
    said = (header.writer, header.database, header.first_event_id)
    if said != (workspace.writer, workspace.database, name.first_event_id):
        text = f"{journal.path}: expected a journal of this writer and group, got writer, database and group {said}."
        yield Finding(
            kind="journal-foreign",
            writer=workspace.writer,
            path=str(journal.path),
            message=text,
            name=str(header.first_event_id),
        )


def _decoded(workspace: Workspace, journal: JournalFile) -> Iterator[Finding]:
    for record in journal.records:
        try:
            decode([record])
        except (CustodyError, msgspec.MsgspecError, pa.ArrowException, ValueError) as error:
            yield _finding(workspace, journal.path, record.offset, str(error), record.count)


def _open(workspace: Workspace, path: Path) -> Iterator[Finding]:
    """A dead writer's journal: the end of its last write was promised to nobody, as far as that can be told."""
    try:
        journal = JournalFile.read(workspace.fs, path)
    except (CustodyError, msgspec.MsgspecError, pa.ArrowException, ValueError) as error:
        if workspace.fs.exists(path):
            yield _finding(workspace, path, None, str(error))
        return
    for damage in journal.damage:
        yield _finding(workspace, path, damage.offset, str(damage), 0, damage.length)
    yield from _header(workspace, journal)
    if journal.torn is not None:
        text = f"{path} @{journal.torn.offset}: {journal.torn}."
        yield Finding(
            kind="journal-torn", writer=workspace.writer, path=str(path), offset=journal.torn.offset, message=text
        )
    elif not journal.damage:
        for offset in misplaced_parts(workspace.fs.read(path), len(PREAMBLE)):
            yield _finding(workspace, path, offset, "expected the mark of a record, got that of a part.")


def _finding(
    workspace: Workspace, path: Path, offset: int | None, text: str, events: int = 0, size: int = 0
) -> Finding:
    place = str(path) if offset is None else f"{path} @{offset}"
    return Finding(
        kind="journal-damaged",
        writer=workspace.writer,
        path=str(path),
        offset=offset,
        message=text if text.startswith(str(path)) else f"{place}: {text}",
        events=events,
        size_bytes=size,
        name=str(getattr(JournalName.parse(path.name), "first_event_id", "")),
    )
