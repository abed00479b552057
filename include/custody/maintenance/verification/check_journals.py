"""Checks of what is not live yet: a writer's STATE files, containers and name claims, its journals, its staged units.

Journals must consist of whole records, end with a record that counts them, and have names that agree with their
headers. Of a staged unit the manifest and each batch of events are checked against their checksums.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from custody.catalog import CatalogState
from custody.errors import CorruptionError, CustodyError, StorageError
from custody.eventlog import StagedLog, check_staged_tail, read_staged
from custody.format.framing import misplaced_parts
from custody.format.names import UNIT_MANIFEST, ContainerPaths, JournalName
from custody.journal import Group, JournalFile, count_pending, decode_state, encode_state, read_end
from custody.journal.encoding import decode
from custody.journal.incarnations import decode_claim, encode_claim
from custody.journal.journal_file import PREAMBLE as JOURNAL_PREAMBLE
from custody.journal.writer_state import PREAMBLE as STATE_PREAMBLE
from custody.journal.writer_state import WriterState
from custody.maintenance.findings import Finding, Level
from custody.rollover import stray_journals
from custody.workspace import UnitManifest, Workspace, staged_path
from custody.workspace.stored_units import StoredUnits
from custody.workspace.unit_manifest import PREAMBLE as UNIT_PREAMBLE


def check_states(workspace: Workspace) -> Iterator[Finding]:
    """Yield the STATE files that are not whole; a container that was never written to has none."""
    for root in workspace.settings.containers:
        path = ContainerPaths(root, workspace.writer).state
        if not workspace.fs.exists(path):
            continue
        data = workspace.fs.read(path)
        try:
            state = decode_state(data, path)
        except CustodyError as error:
            yield _damaged_state(workspace, path, error)
            continue
        if state.writer != workspace.writer:
            text = f"{path}: expected the state of writer {workspace.writer!r}, got that of {state.writer!r}."
            yield _damaged_state(workspace, path, text)
        elif any(misplaced_parts(data, len(STATE_PREAMBLE))) or _least_bytes(state) > len(data):
            yield _damaged_state(workspace, path, f"{path} @8: expected the mark of a record, got that of a part.")


def _least_bytes(state: WriterState) -> int:
    """Return the least length of a state's file; a state of an older custody lacks the incarnation."""
    return len(encode_state(state)) - (0 if state.incarnation else len(b',"incarnation":""'))


def check_missing_containers(workspace: Workspace) -> Iterator[Finding]:
    """Yield the containers of the writer that are not mounted; nobody knows what they hold."""
    for missing in workspace.missing():
        if missing.host:
            kind, text = "container-elsewhere", f"container {missing.place} is on the machine {missing.host!r}."
        else:
            kind, text = "container-missing", f"{missing}. Acknowledged events may lie on it."
        yield Finding.of(kind, missing.place, text, writer=workspace.writer, name=missing.container)


def check_witnesses(workspace: Workspace) -> Iterator[Finding]:
    """Yield what is of an earlier moment than one that was seen of it, and witnesses that cannot be read."""
    earlier = workspace.earlier_state()
    if earlier is not None:
        where = workspace.paths.home
        yield Finding.of("state-earlier", where, str(earlier), writer=workspace.writer, name=earlier.part)
    witnesses = workspace.catalog.witnesses
    for path, text in () if witnesses is None else witnesses.damaged():
        yield Finding.of("witness-damaged", path, text, writer=workspace.writer, offset=0)


def check_incarnations(workspace: Workspace, state: CatalogState | None) -> Iterator[Finding]:
    """Yield claims of the writer's name that are not whole, and journals of other incarnations."""
    store = workspace.catalog.objects.store
    for key in workspace.incarnations.objects():
        data, where = store.get(key), workspace.incarnations.locate(key)
        try:
            claim = decode_claim(data, where)
        except CustodyError as error:
            yield Finding.of("incarnation-damaged", where, error, writer=workspace.writer, offset=0)
            continue
        if any(misplaced_parts(data, len(STATE_PREAMBLE))) or len(encode_claim(claim)) != len(data):
            text = f"{where} @8: expected the mark of a record, got that of a part."
            yield Finding.of("incarnation-damaged", where, text, writer=workspace.writer, offset=8)
    foreign = [path for group in workspace.foreign_groups() for path in (*group.sealed, *group.open)]
    for path in foreign:
        yield _foreign_journal(workspace, path, "was written under another incarnation of the writer's name")
    if state is not None:
        for path in stray_journals(workspace, state, workspace.groups()):
            yield _foreign_journal(workspace, path, "has events of a live group that no live log has")


def _foreign_journal(workspace: Workspace, path: Path, text: str) -> Finding:
    try:
        events = count_pending(workspace.fs, [Group(workspace.writer, 0, (path,), ())]).events
    except (CustodyError, OSError):
        events = 0
    message = f"{path}: {text}; no answer gives its events out."
    return Finding.of("journal-of-others", path, message, writer=workspace.writer, events=events)


def _damaged_state(workspace: Workspace, path: Path, text: object) -> Finding:
    return Finding.of("state-damaged", path, text, writer=workspace.writer, offset=0)


def check_group(workspace: Workspace, first_event_id: int, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the journals of a group; nothing for one that was swept meanwhile."""
    group = next(iter(workspace.groups([first_event_id])), None)
    if group is None:
        return
    for path in group.sealed:
        yield from _sealed(workspace, path, level)
    # The end of a live writer's journal may be a write under way.
    if group.open and not workspace.is_held():
        for path in group.open:
            yield from _open(workspace, path)


def read_journal(workspace: Workspace, path: Path) -> JournalFile | None:
    """Return a journal; None when it cannot be read at all, or has just been swept or sealed."""
    try:
        return JournalFile.read(workspace.fs, path)
    except (CustodyError, msgspec.MsgspecError, pa.ArrowException, ValueError):
        return None


def record_ranges(workspace: Workspace, group: Group) -> list[tuple[int, int]]:
    """Return (first id, events) of each whole record of a group's journals."""
    journals = [read_journal(workspace, path) for path in (*group.sealed, *group.open)]
    return [(record.first_event_id, record.count) for file in journals if file for record in file.records]


def _sealed(workspace: Workspace, path: Path, level: Level) -> Iterator[Finding]:
    if level is Level.QUICK:
        if read_end(workspace.fs, path) is None:
            size = workspace.fs.size(path)
            yield _damaged_journal(workspace, path, size, "expected the end record of a sealed journal, got none.")
        return
    try:
        journal = JournalFile.read(workspace.fs, path)
    except (CustodyError, msgspec.MsgspecError, pa.ArrowException, ValueError) as error:
        if workspace.fs.exists(path):
            yield _damaged_journal(workspace, path, None, str(error))
        return
    yield from _damage(workspace, journal)
    yield from _header(workspace, journal)
    if level is Level.DEEP:
        yield from _decoded(workspace, journal)


def _damage(workspace: Workspace, journal: JournalFile) -> Iterator[Finding]:
    """Yield the damaged bytes; the end record tells how many events all of them held together."""
    readable = sum(record.count for record in journal.records)
    lost = max(journal.end.events - readable, 0) if journal.end is not None else 0
    for number, damage in enumerate(journal.damage):
        # The end record counts the whole file, so the loss cannot be divided: the first damage carries it.
        events = lost if number == 0 else 0
        yield _damaged_journal(workspace, journal.path, damage.offset, str(damage), events, damage.length)
    if not journal.damage:
        if journal.end is not None and journal.end.events != readable:
            text = f"expected {journal.end.events} events, as its end record says, got {readable}."
            yield _damaged_journal(workspace, journal.path, None, text, lost)
        # The checksum of a record does not cover its mark: a changed one is looked for by itself.
        for offset in misplaced_parts(workspace.fs.read(journal.path), len(JOURNAL_PREAMBLE)):
            yield _damaged_journal(
                workspace, journal.path, offset, "expected the mark of a record, got that of a part."
            )


def _header(workspace: Workspace, journal: JournalFile) -> Iterator[Finding]:
    name, header = JournalName.parse(journal.path.name), journal.header
    if header is None or name is None:
        return
    named = (header.writer, header.database, header.first_event_id)
    if named != (workspace.writer, workspace.database, name.first_event_id):
        text = f"{journal.path}: expected a journal of this writer and group, got writer, database and group {named}."
        name_of_group = str(header.first_event_id)
        yield Finding.of("journal-foreign", journal.path, text, writer=workspace.writer, name=name_of_group)


def _decoded(workspace: Workspace, journal: JournalFile) -> Iterator[Finding]:
    for record in journal.records:
        try:
            decode([record])
        except (CustodyError, msgspec.MsgspecError, pa.ArrowException, ValueError) as error:
            yield _damaged_journal(workspace, journal.path, record.offset, str(error), record.count)


def _open(workspace: Workspace, path: Path) -> Iterator[Finding]:
    """Check a dead writer's journal: a torn tail is, as far as can be told, an append that was never acknowledged."""
    try:
        journal = JournalFile.read(workspace.fs, path)
    except (CustodyError, msgspec.MsgspecError, pa.ArrowException, ValueError) as error:
        if workspace.fs.exists(path):
            yield _damaged_journal(workspace, path, None, str(error))
        return
    for damage in journal.damage:
        yield _damaged_journal(workspace, path, damage.offset, str(damage), 0, damage.length)
    yield from _header(workspace, journal)
    if journal.torn is not None:
        text = f"{path} @{journal.torn.offset}: {journal.torn}."
        yield Finding.of("journal-torn", path, text, writer=workspace.writer, offset=journal.torn.offset)
    elif not journal.damage:
        for offset in misplaced_parts(workspace.fs.read(path), len(JOURNAL_PREAMBLE)):
            yield _damaged_journal(workspace, path, offset, "expected the mark of a record, got that of a part.")


def _damaged_journal(
    workspace: Workspace, path: Path, offset: int | None, text: str, events: int = 0, size: int = 0
) -> Finding:
    place = str(path) if offset is None else f"{path} @{offset}"
    return Finding.of(
        "journal-damaged",
        path,
        text if text.startswith(str(path)) else f"{place}: {text}",
        writer=workspace.writer,
        offset=offset,
        events=events,
        size_bytes=size,
        name=str(getattr(JournalName.parse(path.name), "first_event_id", "")),
    )


def check_staged_unit(workspace: Workspace, first_group: int, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with a staged unit; nothing for one that was swept meanwhile."""
    if workspace.stored_units is not None:
        yield from _check_stored_unit(workspace, workspace.stored_units, first_group, level)
        return
    folder = workspace.paths.staged_unit(first_group)
    path = folder / UNIT_MANIFEST
    try:
        data = workspace.fs.read(path)
        manifest = UnitManifest.decode(data, path)
        for offset in misplaced_parts(data, len(UNIT_PREAMBLE)):
            raise CorruptionError(f"{path} @{offset}: expected the mark of a record, got that of a part.")
        if (manifest.writer, manifest.database, manifest.first_group) != (
            workspace.writer,
            workspace.database,
            first_group,
        ):
            raise CorruptionError(f"{path}: expected the unit of group {first_group}, got that of another one.")
    except (CustodyError, msgspec.MsgspecError) as error:
        if workspace.fs.exists(folder):
            yield _damaged_unit(workspace, first_group, path, str(error))
        return
    for log in manifest.logs:
        staged = staged_path(folder, log)
        try:
            _check(workspace, staged, log, level, manifest.schema_version)
        except (CustodyError, OSError, pa.ArrowException, ValueError) as error:
            if workspace.fs.exists(folder):
                yield _damaged_unit(workspace, first_group, staged, str(error), log)


def _check_stored_unit(workspace: Workspace, units: StoredUnits, first_group: int, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with a unit of an object store: its events are fetched and compared with their digests."""
    path = Path(units.locate(first_group))
    log: StagedLog | None = None
    try:
        manifest = units.manifest(first_group)
        for log in manifest.logs:
            _check(workspace, units.events(manifest, log), log, level, manifest.schema_version)
    except (CustodyError, OSError, pa.ArrowException, ValueError, msgspec.MsgspecError) as error:
        if first_group in units.firsts():
            yield _damaged_unit(workspace, first_group, path, str(error), log)


def _check(workspace: Workspace, path: Path, log: StagedLog, level: Level, version: int) -> None:
    if not workspace.fs.exists(path):
        raise StorageError(f"{path}: expected the events of a staged unit, found no file.")
    if level is Level.QUICK:
        if workspace.fs.size(path) != log.file_bytes:
            raise CorruptionError(f"{path}: expected {log.file_bytes} bytes, got {workspace.fs.size(path)}.")
        return
    check_staged_tail(workspace.fs, path, log)
    last, rows = log.first_event_id - 1, 0
    for table in read_staged(workspace.fs, path, log, ["event_id"], version):
        ids = table.column("event_id").to_numpy()
        if len(ids) and (ids[0] <= last or (np.diff(ids) <= 0).any()):
            raise CorruptionError(f"{path}: expected event ids that go up, got {int(ids[0])} behind {last}.")
        last, rows = int(ids[-1]), rows + len(ids)
    if (rows, last) != (log.rows, log.last_event_id):
        raise CorruptionError(f"{path}: expected {log.rows} events up to {log.last_event_id}, got {rows} up to {last}.")


def _damaged_unit(
    workspace: Workspace, first_group: int, path: Path, text: str, log: StagedLog | None = None
) -> Finding:
    # It costs no event: its journals are there until it is live.
    ids = (log.first_event_id, log.last_event_id) if log else (None, None)
    return Finding.of("unit-damaged", path, text, writer=workspace.writer, ids=ids, name=str(first_group))
