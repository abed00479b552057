"""Sweeping: removal of journals whose events are in live logs, and of the staged units that they became.

A journal goes only with proof that the live logs hold its events. The catalog knows a live group by its first event id
alone, and that is not enough: two machines with one writer name both have a group 0, and a container that was given up
and comes back may have journals that no log has seen. So the events are looked for in the logs that say that they hold
the group: by their ids where log and journal are of one incarnation, which gives no id twice, else event for event.

A group is done when it is live, or when its staged unit says that no event of it is whole: what was damaged is in the
quarantine before such a unit is published. Of a group that is done, journals go first and the staged unit last, so that
a sweep that was interrupted finds the rest.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import AddFile, CatalogState
from custody.errors import (
    ConflictError,
    CorruptionError,
    FormatVersionError,
    NotFoundError,
    StorageError,
    StripeMissingError,
)
from custody.eventlog import EventLog
from custody.eventlog.blocks import numbers, one_chunk
from custody.format.names import parse_written_anew
from custody.format.number_sets import is_among
from custody.journal import Group, JournalFile
from custody.model import EVENT_SCHEMA
from custody.workspace.removal import removal_name
from custody.workspace.run_reports import UnitReport
from custody.workspace.unit_manifest import UnitManifest
from custody.workspace.workspace import Workspace

if TYPE_CHECKING:
    from custody.workspace.handoff import HandoffFolder

_Ids = npt.NDArray[np.int64]


class Proof(Enum):
    """Whether live logs hold the events of a journal whose group counts as live."""

    HELD = "held"
    """All its events are in the logs, or were erased, or expired."""
    OTHER = "other"
    """It has events that the logs do not have: nothing else holds them."""
    UNKNOWN = "unknown"
    """A log cannot be read, so it is unknown."""


# By journal, its size, and the digests of the logs: as long as none of them changes, neither does the answer.
_PROOFS: WeakKeyDictionary[Workspace, dict[tuple[Path, int, tuple[bytes, ...]], Proof]] = WeakKeyDictionary()


def swept_groups(workspace: Workspace) -> Iterator[tuple[int, ...]]:
    """Yield the groups that are done and still have something to sweep; those of a staged unit together."""
    # Good enough to list units: `sweep_unit` settles the state before it removes anything.
    state = workspace.catalog.load()
    staged: set[int] = set()
    for manifest in workspace.manifests():
        staged.update(manifest.groups)
        if _is_done(workspace, state, manifest):
            yield manifest.groups
    for group in workspace.groups():
        first = group.first_event_id
        if group.is_sealed and first not in staged and any(_removable(workspace, state, group, is_empty=False)):
            yield (first,)
            staged.add(first)
    unnamed = [first for first in _unnamed_units(workspace, state) if first not in staged]
    staged.update(unnamed)
    yield from ((first,) for first in unnamed)
    if workspace.hands_over:
        # Left by a sweep that was interrupted, or put by a hand-over that went on when all was live.
        for folder in workspace.handoff.folders():
            first = folder.first_event_id
            if first not in staged and _is_unneeded(workspace, state, folder, is_empty=False):
                staged.add(first)
                yield (first,)


def groups_to_do(workspace: Workspace, groups: Sequence[Group]) -> Iterator[Group]:
    """Yield the sealed groups that a pass has something to do for: not the live ones whose journals have to stay."""
    state = workspace.catalog.load() if groups else None
    for group in groups:
        if group.is_sealed and state is not None:
            is_live = workspace.is_committed(state, group.first_event_id)
            if not is_live or any(_removable(workspace, state, group, is_empty=False)):
                yield group


def sweep_unit(workspace: Workspace, unit: str, groups: Sequence[int]) -> UnitReport:
    """Remove the journals of groups that are done, their staged unit, and what an interrupted removal left.

    Of what is staged, only the units of these groups are read: there are as many sweeps as units.
    """
    fs = workspace.fs
    # Settled: only what is certain to stay live allows to remove a journal.
    state = workspace.catalog.settle()
    staged = workspace.manifests(groups)
    empty = {group for manifest in staged if not manifest.logs for group in manifest.groups}
    done = {group for group in groups if group in empty or workspace.is_committed(state, group)}
    on_disk = workspace.groups(done)
    journals = [
        path
        for group in on_disk
        for path in _removable(workspace, state, group, is_empty=group.first_event_id in empty)
    ]
    handed_over = _unneeded_folders(workspace, state, done, empty)
    unproven = sum(len(group.sealed) for group in on_disk) - len(journals)
    # Objects of the store go as a group, manifest first.
    journals = [path for path in journals if any(path.is_relative_to(root) for root in workspace.settings.containers)]
    size = sum(fs.size(path) for path in journals)
    if journals or handed_over:
        _witness(workspace, state)
    _remove_durably(workspace, journals)
    # Behind the journals on containers: as long as one of them is there, a hand-over would put the group again.
    for handed in handed_over:
        size += workspace.handoff.remove(handed)
    if workspace.hands_over:
        workspace.handoff.drop_stale_copies()
    for first in _unnamed_units(workspace, state):
        _retire(workspace, first)
    if workspace.stored_units is not None:
        workspace.stored_units.drop_stale_copies()
    for manifest in staged:
        if done.intersection(manifest.groups) and _is_done(workspace, state, manifest):
            size += sum(log.file_bytes for log in manifest.logs)
            _retire(workspace, manifest.first_group)
    # They have lost their names, so nobody takes them for units any more.
    for folder in workspace.leftovers():
        fs.remove_tree(folder)
    note = f"{len(journals)} journals removed" + (
        f", {unproven} kept: no live log has their events" if unproven else ""
    )
    return UnitReport(unit=unit, bytes=size, note=note)


def _remove_durably(workspace: Workspace, journals: Sequence[Path]) -> None:
    for path in journals:
        workspace.fs.remove(path)
    # The removals are durable before the staged unit goes: a journal of a unit without events that came back after a
    # power loss would be merged anew.
    for folder in {path.parent for path in journals}:
        workspace.fs.sync_directory(folder)


def _witness(workspace: Workspace, state: CatalogState) -> None:
    """Let the containers know the state that lists the events, before these have no other copy.

    Raises:
        EarlierStateError: it is earlier than one that was seen.
        StorageError: no container takes it.
    """
    workspace.catalog.require_newest(state)
    witnesses = workspace.catalog.witnesses
    if witnesses is None:
        return
    try:
        witnesses.note(workspace.catalog.witness_of(state))
    except StorageError as error:
        # Where every disk is full the journals are what frees it.
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise


def _unneeded_folders(
    workspace: Workspace, state: CatalogState, done: Collection[int], empty: Collection[int]
) -> list[HandoffFolder]:
    """Return the groups in the store, of those that are done, that nobody needs any more."""
    if not workspace.hands_over:
        return []
    return [
        folder
        for folder in workspace.handoff.folders()
        if folder.first_event_id in done
        and _is_unneeded(workspace, state, folder, is_empty=folder.first_event_id in empty)
    ]


def _is_unneeded(workspace: Workspace, state: CatalogState, folder: HandoffFolder, *, is_empty: bool) -> bool:
    """Whether a group in the store is live as a whole, or was never handed over and is live."""
    first = folder.first_event_id
    if not (is_empty or workspace.is_committed(state, first)):
        return False
    try:
        manifest = workspace.handoff.manifest(folder)
        # Without a manifest nobody was promised anything: the journals are still on their containers.
        paths = () if manifest is None else workspace.handoff.paths(folder, manifest)
    except NotFoundError:
        return True  # as below
    except (CorruptionError, FormatVersionError):
        return False
    # A hand-over that was stopped before its manifest, and went on behind the sweep that removed its journals, declares
    # what is not there any more.
    paths = tuple(path for path in paths if workspace.fs.exists(path))
    group = Group(workspace.writer, first, paths, ())
    return set(_removable(workspace, state, group, is_empty=is_empty)) == set(paths)


def stray_journals(workspace: Workspace, state: CatalogState, groups: Iterable[Group]) -> Iterator[Path]:
    """Yield the sealed journals of groups that count as live whose events are in no log."""
    for group in groups:
        if workspace.is_committed(state, group.first_event_id):
            for path in group.sealed:
                try:
                    if _remembered_proof(workspace, state, group.first_event_id, path) is Proof.OTHER:
                        yield path
                except StorageError as error:
                    if error.errno != errno.ENOENT:
                        raise  # else swept in this moment


def refuse_overlap(workspace: Workspace, manifest: UnitManifest, state: CatalogState) -> None:
    """Raise ConflictError when a live log has ids between those of a unit: two writers gave out the same ids."""
    # The last safety net, for stores without put-if-absent and for older versions beside this one: claims keep writers
    # apart before.
    for log in manifest.logs:
        for file in state.files.overlapping(log.first_event_id, log.last_event_id):
            raise ConflictError(
                f"{workspace.where_staged(manifest.first_group)}: expected ids that no live log has, got "
                f"{log.first_event_id} to {log.last_event_id}, and {file.path} has {file.first_event_id} to "
                f"{file.last_event_id}. The journals stay. Bring them in under another writer name: "
                "custody recover --adopt"
            )


def proof_of(workspace: Workspace, state: CatalogState, group: int, path: Path) -> Proof:
    """Return whether the live logs of a group hold the events of one of its sealed journals.

    Raises:
        StorageError: the journal is gone.
    """
    return _prove(workspace, _logs_of(state, group), path)


def _remembered_proof(workspace: Workspace, state: CatalogState, group: int, path: Path) -> Proof:
    """Return what `proof_of` does, from memory where it can; good enough for a notice, not for a removal."""
    files = _logs_of(state, group)
    key = path, workspace.fs.size(path), tuple(file.sha256 for file in files)
    proofs = _PROOFS.setdefault(workspace, {})
    # Every read asks for stray journals, and a proof reads a journal and a column of each log.
    if key not in proofs:
        proofs[key] = _prove(workspace, files, path)
    return proofs[key]


def _logs_of(state: CatalogState, group: int) -> list[AddFile]:
    return state.files.of_group(group)


def _prove(workspace: Workspace, files: Sequence[AddFile], path: Path) -> Proof:
    if not files:
        return Proof.HELD  # erased, or expired: a tombstone or a mark names the group
    # A journal without whole records has nothing to lose: its damaged bytes went to the quarantine at the merge.
    journal = JournalFile.read(workspace.fs, path)
    if not journal.records:
        return Proof.HELD
    own = bytes.fromhex(workspace.incarnation_of(path))
    incarnations = {file.incarnation for file in files}
    try:
        # One incarnation gives no id twice, so the ids prove it.
        if incarnations == {own} and own:
            log_ids = np.concatenate([_ids(workspace, file) for file in files])
            ids = [np.arange(r.first_event_id, r.last_event_id + 1, dtype=np.int64) for r in journal.records]
            is_held = bool(is_among(np.concatenate(ids), log_ids).all())
        # Both incarnations are known and differ: the same ids are other events.
        elif own and b"" not in incarnations and own not in incarnations:
            return Proof.OTHER
        else:
            # An earlier version wrote one of them without its incarnation, so the events themselves are compared.
            count, is_same = _compare(workspace, files, journal)
            if not is_same:
                return Proof.OTHER
            is_held = count == sum(record.count for record in journal.records)
    # A log that cannot be read proves nothing: the journal stays until one can be read.
    except (CorruptionError, FormatVersionError, NotFoundError, StripeMissingError):
        return Proof.UNKNOWN
    # What a compaction left out was erased on purpose.
    is_rewritten = any(parse_written_anew(PurePosixPath(file.path).name) for file in files)
    return Proof.HELD if is_held or is_rewritten else Proof.OTHER


def _ids(workspace: Workspace, file: AddFile) -> _Ids:
    return numbers(one_chunk(_log(workspace, file).read(["event_id"]).column("event_id")), np.int64)


def _compare(workspace: Workspace, files: Sequence[AddFile], journal: JournalFile) -> tuple[int, bool]:
    """Return how many ids journal and logs have in common, and whether these are the same events."""
    events = journal.table()
    ids = events.column("event_id").combine_chunks()
    parts = [
        table.filter(pc.is_in(table.column("event_id"), ids)).select(EVENT_SCHEMA.names)
        for table in (_log(workspace, file).read() for file in files)
    ]
    in_logs = pa.concat_tables(parts).sort_by("event_id")
    common = events.filter(pc.is_in(events.column("event_id"), in_logs.column("event_id").combine_chunks()))
    common = common.select(EVENT_SCHEMA.names).sort_by("event_id")
    columns = (
        (common.column(name).combine_chunks(), in_logs.column(name).combine_chunks()) for name in common.column_names
    )
    return in_logs.num_rows, all(one.equals(other) for one, other in columns)


def _log(workspace: Workspace, file: AddFile) -> EventLog:
    return EventLog(workspace.fs, workspace.log_path(file.path), sha256=file.sha256, toc_sha256=file.toc_sha256)


def _removable(workspace: Workspace, state: CatalogState, group: Group, *, is_empty: bool) -> Iterator[Path]:
    """Yield the sealed journals of a group whose events are live, or that have none in a unit without events."""
    is_live = workspace.is_committed(state, group.first_event_id)
    for path in group.sealed:
        try:
            if (is_live and proof_of(workspace, state, group.first_event_id, path) is Proof.HELD) or (
                is_empty and not is_live and not _has_events(workspace, path)
            ):
                yield path
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise  # else another attempt has just removed it


def _has_events(workspace: Workspace, path: Path) -> bool:
    """Whether a journal has an event that can be read."""
    return bool(JournalFile.read(workspace.fs, path).records)


def _is_done(workspace: Workspace, state: CatalogState, manifest: UnitManifest) -> bool:
    return not manifest.logs or any(workspace.is_committed(state, group) for group in manifest.groups)


def _unnamed_units(workspace: Workspace, state: CatalogState) -> list[int]:
    """Return what is in the store of units that have no manifest, and whose group is live: it can be no unit again."""
    units = workspace.stored_units
    if units is None:
        return []
    named = set(units.firsts())
    return [first for first in units.folders() if first not in named and workspace.is_committed(state, first)]


def _retire(workspace: Workspace, first_group: int) -> None:
    """Take a unit's name away, so that no folder with a unit's name is ever a part of one."""
    if workspace.stored_units is not None:
        workspace.check()
        workspace.stored_units.remove(first_group)
        return
    # The folder only loses its name here. What removes leftovers removes it.
    folder = workspace.paths.staged_unit(first_group)
    workspace.fs.rename(folder, removal_name(folder))
    # Durable before the first removal, or a power loss could bring the name back on a part of the unit.
    workspace.fs.sync_directory(folder.parent)
