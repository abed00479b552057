"""Merging a large unit in parts: ranges of event ids that several processes, or machines, merge at once.

| part of the work | where | reads | writes |
|---|---|---|---|
| `divide_unit` | driver | heads of all records | evidence of damage |
| `merge_part` | anywhere | the bytes of its range | a folder `part-…`, or objects |
| `join_parts` | driver | manifests of the parts | the unit, which has the same files as one that `merge_unit` writes |

Parts are no units: no later step sees them. A part is named after everything that its events and files follow from, so
that another attempt cuts the same ranges, uses what an earlier one merged, and never what was merged of other records.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from custody.errors import NotFoundError, StorageError
from custody.eventlog import StagedLog, transaction_of_groups
from custody.format.names import UNIT_MANIFEST, parse_unit_part, unit_part
from custody.journal import Group, MergeRange, MergeReader, RangeReader, SlicedJournal
from custody.made_types import made_at_import
from custody.model import SCHEMA_VERSION
from custody.rollover.merge import (
    CHUNK_BYTES,
    Progress,
    attempt_folder,
    damage_note,
    keep_evidence_of,
    publish_folder,
    range_bytes_max,
    unit_manifest,
    write_logs,
)
from custody.workspace.removal import discard
from custody.workspace.run_reports import UnitReport
from custody.workspace.unit_manifest import UnitManifest, staged_path
from custody.workspace.workspace import Workspace

_KEY_DIGITS = 32


class MergePart(msgspec.Struct, frozen=True, kw_only=True):
    """One range of a unit, for whoever merges it; parts are sent to executors as JSON."""

    number: int
    """From 1 on."""
    count: int
    """How many parts the unit has."""
    key: str
    """32 hexadecimal digits, which follow from all that the part is made of."""
    incarnation: str
    """Of the writer that wrote the journals."""
    range: MergeRange
    damage: tuple[str, ...] = ()
    """What could not be read of the unit's journals; the first part says it."""


made_at_import(MergePart)


def divide_unit(workspace: Workspace, groups: Sequence[Group]) -> list[MergePart]:
    """Return the parts of a unit, none where it is merged as a whole; damaged bytes are in the quarantine then.

    Durability: as `merge_unit` for the evidence.
    """
    most = range_bytes_max(workspace)
    paths = [path for group in groups for path in group.sealed]
    # A range names journals by their names alone: they lie elsewhere for an executor.
    if sum(map(workspace.fs.size, paths)) <= most or len({path.name for path in paths}) < len(paths):
        return []
    reader = MergeReader(workspace.fs, groups)
    ranges = reader.ranges(most)
    if len(ranges) == 1:
        return []
    keep_evidence_of(workspace, reader)
    incarnation = workspace.incarnation_of_group(groups[0])
    firsts = [group.first_event_id for group in groups]
    target = workspace.settings.eventlog.log_bytes_target
    parts = []
    for number, described in enumerate(map(reader.describe, ranges), 1):
        made_of = (workspace.writer, workspace.database, incarnation, firsts, target, CHUNK_BYTES, SCHEMA_VERSION)
        key = hashlib.sha256(msgspec.json.encode((made_of, described.sha256))).hexdigest()[:_KEY_DIGITS]
        damage = tuple(map(damage_note, reader.damage)) if number == 1 else ()
        parts.append(
            MergePart(
                number=number, count=len(ranges), key=key, incarnation=incarnation, range=described, damage=damage
            )
        )
    return parts


def merge_part(workspace: Workspace, unit: str, groups: Sequence[int], part: MergePart) -> UnitReport:
    """Merge one range and publish it as a part; one that is there already is kept.

    Durability: on return the part survives power loss.

    Raises:
        CorruptionError: the journals do not hold what they held when the unit was divided.
        NotFoundError: a journal is gone.
    """
    first = groups[0]
    if groups[0] in workspace.staged() or _find_part(workspace, first, part) is not None:
        return UnitReport(unit=unit, bytes_in=part.range.bytes, note="merged already")
    folder = _folder(workspace, first, part.key)
    with attempt_folder(workspace.fs, folder) as attempt:
        logs = _merge(workspace, attempt, unit, groups, part)
        manifest = UnitManifest(
            writer=workspace.writer,
            database=workspace.database,
            transaction=transaction_of_groups(workspace.writer, workspace.database, groups),
            groups=tuple(groups),
            logs=tuple(logs),
            incarnation=part.incarnation,
        )
        if workspace.stored_units is None:
            publish_folder(workspace.fs, attempt, folder, manifest)
        else:
            units = workspace.stored_units
            units.publish_part(manifest, part.key, lambda log: staged_path(attempt, log), workspace.check)
            workspace.fs.remove_tree(attempt)
    return UnitReport(
        unit=unit,
        events=sum(log.rows for log in logs),
        bytes_in=part.range.bytes,
        bytes=sum(log.file_bytes for log in logs),
        note=f"{len(logs)} logs",
    )


def join_parts(
    workspace: Workspace, unit: str, groups: Sequence[Group], parts: Sequence[MergePart], *, ahead: int | None = None
) -> UnitReport:
    """Publish the merged parts of a unit as the unit; one that is there already is kept.

    Durability: on return the unit survives power loss.

    Raises:
        NotFoundError: a part is not there.
    """
    first = groups[0].first_event_id
    merged: list[UnitManifest] = []
    for part in parts:
        manifest = _find_part(workspace, first, part)
        if manifest is None:
            if first in workspace.staged():
                break  # joined by another attempt, which removed the parts
            raise NotFoundError(
                f"{unit}: part {part.number} of {part.count}, {unit_part(first, part.key)}, is gone. Run the step "
                "again."
            )
        merged.append(manifest)
    else:
        _publish(
            workspace, unit_manifest(workspace, groups, [log for each in merged for log in each.logs], ahead), parts
        )
    discard_parts(workspace, first)
    whole = workspace.manifest(first)
    note = f"{len(groups)} groups, {len(whole.logs)} logs, merged in {len(parts)} parts"
    return UnitReport(
        unit=unit,
        events=sum(log.rows for log in whole.logs),
        bytes_in=sum(workspace.fs.size(path) for group in groups for path in group.sealed),
        bytes=sum(log.file_bytes for log in whole.logs),
        note="; ".join([note, *(text for part in parts for text in part.damage)]),
    )


def discard_parts(workspace: Workspace, first_group: int) -> None:
    """Remove the parts on this machine of a unit that is whole; those in a store go with the unit."""
    for name in workspace.fs.list(workspace.paths.staging):
        if parse_unit_part(name) == first_group:
            discard(workspace, workspace.paths.staging / name)


def _publish(workspace: Workspace, manifest: UnitManifest, parts: Sequence[MergePart]) -> None:
    fs, units = workspace.fs, workspace.stored_units
    if units is not None:
        found = [units.part(manifest.first_group, part.key) for part in parts]
        digests = [digest for each in found if each is not None and each.digests for digest in each.digests]
        units.declare(msgspec.structs.replace(manifest, digests=tuple(digests)), workspace.check)
        return
    folder = workspace.paths.staged_unit(manifest.first_group)
    with attempt_folder(fs, folder) as attempt:
        for part in parts:
            source = _folder(workspace, manifest.first_group, part.key)
            for name in fs.list(source):
                if name != UNIT_MANIFEST:
                    # A second name, not a new one: until the unit is whole the part stays, for another attempt.
                    fs.link(source / name, attempt / name)
        publish_folder(fs, attempt, folder, manifest)


def _folder(workspace: Workspace, first_group: int, key: str) -> Path:
    return workspace.paths.staging / unit_part(first_group, key)


def _find_part(workspace: Workspace, first_group: int, part: MergePart) -> UnitManifest | None:
    if workspace.stored_units is not None:
        return workspace.stored_units.part(first_group, part.key)
    path = _folder(workspace, first_group, part.key) / UNIT_MANIFEST
    try:
        return UnitManifest.decode(workspace.fs.read(path), path)
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
        return None


def _merge(workspace: Workspace, attempt: Path, unit: str, groups: Sequence[int], part: MergePart) -> list[StagedLog]:
    fetched = attempt / "journals"
    workspace.fs.make_directory(fetched)
    reader = RangeReader(part.range, list(_sliced(workspace, groups, part, fetched)))
    chunks = Progress(unit, reader.rows).told(reader.chunks(CHUNK_BYTES))
    logs = write_logs(workspace.fs, attempt, chunks, workspace.settings.eventlog.log_bytes_target)
    workspace.fs.remove_tree(fetched)
    return logs


def _sliced(workspace: Workspace, groups: Sequence[int], part: MergePart, fetched: Path) -> Iterator[SlicedJournal]:
    """Yield the slices of a part, from files of this machine, else fetched from the store."""
    fs = workspace.fs
    here = {path.name: path for group in workspace.groups_on_containers(groups) for path in group.sealed}
    handed = {
        journal.name: (folder, journal)
        for folder in (workspace.handoff.folders() if workspace.hands_over else ())
        if folder.first_event_id in groups and folder.incarnation == part.incarnation
        for journal in getattr(workspace.handoff.manifest(folder), "journals", ())
    }
    for number, item in enumerate(part.range.slices):
        path = here.get(item.journal)
        if path is None and item.journal in handed:
            path = workspace.handoff.path_here(*handed[item.journal])
        if path is not None:
            view = fs.view(path)
            yield SlicedJournal(path, view[: item.head], item.start, view[item.start : item.stop])
            continue
        if item.journal not in handed:
            raise NotFoundError(f"journal {item.journal}: is gone since the step began. Run it again.")
        folder, journal = handed[item.journal]
        head, data = fetched / f"{number}.head", fetched / f"{number}.data"
        workspace.handoff.copy_part(folder, journal, 0, item.head, head)
        workspace.handoff.copy_part(folder, journal, item.start, item.stop, data)
        yield SlicedJournal(Path(workspace.handoff.locate(folder, journal)), fs.view(head), item.start, fs.view(data))
