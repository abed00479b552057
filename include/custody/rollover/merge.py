"""Merge: sealed groups of journals become a staged unit, the events of future logs in event-id order.

`plan_units` chooses the groups that are merged together: small neighbours, up to the size of a log, so that a quiet
writer does not fill the catalog with tiny logs. The choice is made anew on each pass until the unit is published; then
its manifest fixes it.

`merge_unit` works in a folder of the attempt, which is renamed when everything in it is durable: a crash leaves nothing
that is half used. Memory is bounded by the chunks in which the journals are read, whatever a group's size. Where the
events are cut depends on the events and the settings alone, so that a repeated merge gives the same files.
"""

from __future__ import annotations

import errno
import logging
import time
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pyarrow as pa

from custody.catalog import stored_footer
from custody.errors import LastingDiskError, StorageError
from custody.eventlog import StagedLog, StagingWriter, row_bytes, rows_that_fit, transaction_of_groups
from custody.eventlog.log_writer import METADATA_KEY
from custody.format.names import BUILDING_PREFIX, UNIT_MANIFEST, split_stripe, staged_log
from custody.journal import Group, JournalDamage, MergeReader
from custody.quarantine import keep_evidence
from custody.vfs import FileSystem
from custody.workspace.run_reports import UnitReport
from custody.workspace.unit_manifest import UnitManifest, staged_path
from custody.workspace.workspace import Workspace

# About how much of the journals is decoded at a time, however large the groups are.
CHUNK_BYTES = 32 << 20
_PROGRESS_SECONDS = 10.0
_LOG = logging.getLogger("custody.rollover")


def plan_units(
    groups: Sequence[Group], bytes_of: Callable[[Group], int], bytes_max: int, finished: Collection[int] = ()
) -> Iterator[list[Group]]:
    """Yield the units of a writer's groups (by first event id): neighbours while their journals fit into `bytes_max`.

    A larger group is a unit of its own. `groups` are all groups on disk; those that are not to be rolled over have size
    -1. No unit spans one of them, nor one of `finished`, by first event ids, whose journals may be gone: a group may
    wait longer than those behind it, when its disk failed, and the id ranges of logs must not overlap.
    """
    firsts = sorted(finished)
    unit: list[Group] = []
    used = 0
    for group in groups:
        size = bytes_of(group)
        # A group that is left out ends the unit: the ids of its events must not lie within the range of a log without
        # them.
        if unit and (size < 0 or used + size > bytes_max or _is_between(firsts, unit[-1], group)):
            yield unit
            unit, used = [], 0
        if size >= 0:
            unit.append(group)
            used += size
    if unit:
        yield unit


def _is_between(firsts: Sequence[int], before: Group, behind: Group) -> bool:
    return bisect_right(firsts, before.first_event_id) < bisect_left(firsts, behind.first_event_id)


def merge_unit(workspace: Workspace, unit: str, groups: Sequence[Group], *, ahead: int | None = None) -> UnitReport:
    """Merge sealed groups and publish them as a staged unit; one that is there already is kept.

    `ahead` is how many units wait before this one; None for those that are merged by now.

    Durability: on return the unit and the evidence of damaged records survive power loss.
    """
    fs, folder = workspace.fs, workspace.paths.staged_unit(groups[0].first_event_id)
    reader = MergeReader(fs, groups)
    keep_evidence_of(workspace, reader)
    with attempt_folder(fs, folder) as attempt:
        target = workspace.settings.eventlog.log_bytes_target
        progress = Progress(unit, reader.rows)
        # As `merge_parts` does it in several places at once: the files are the same.
        logs = [
            log
            for records in reader.ranges(range_bytes_max(workspace))
            for log in write_logs(fs, attempt, progress.told(reader.chunks(CHUNK_BYTES, records)), target)
        ]
        manifest = unit_manifest(workspace, groups, logs, ahead)
        if workspace.stored_units is None:
            publish_folder(fs, attempt, folder, manifest)
        else:
            workspace.stored_units.publish(manifest, lambda log: staged_path(attempt, log), workspace.check)
            fs.remove_tree(attempt)
    return UnitReport(
        unit=unit,
        events=sum(log.rows for log in logs),
        bytes_in=sum(fs.size(path) for group in groups for path in group.sealed),
        bytes=sum(log.file_bytes for log in logs),
        note="; ".join([f"{len(groups)} groups, {len(logs)} logs", *map(damage_note, reader.damage)]),
    )


def range_bytes_max(workspace: Workspace) -> int:
    """Return from how many bytes of journals on a unit is merged by ranges: never less than a log's."""
    options = workspace.settings.eventlog
    return max(options.merge_bytes_max, options.log_bytes_target)


def keep_evidence_of(workspace: Workspace, reader: MergeReader) -> None:
    """Put what cannot be read of journals into the quarantine.

    First the evidence, then the unit: once the unit is live, the journals with the damaged bytes are removed.

    Raises:
        LastingDiskError: there is some, and this machine's disk does not last.
    """
    for damage in reader.damage:
        if not workspace.disk_lasts:
            raise LastingDiskError(f"{damage}: the evidence needs a disk that lasts. The driver merges this unit.")
        _keep_evidence(workspace, damage)


@contextmanager
def attempt_folder(fs: FileSystem, folder: Path) -> Iterator[Path]:
    """Give a folder for what is to become `folder`; an error leaves nothing behind.

    Each attempt has its own: two of them, one overtaken, never write into each other's files. After a crash, recovery
    finds the folder by its prefix.
    """
    fs.make_directory(folder.parent)
    attempt = folder.with_name(f"{BUILDING_PREFIX}{folder.name}-{uuid.uuid4().hex}")
    fs.make_directory(attempt)
    try:
        yield attempt
    except BaseException:
        fs.remove_tree(attempt)
        raise


def write_logs(fs: FileSystem, folder: Path, chunks: Iterator[pa.Table], bytes_target: int) -> list[StagedLog]:
    """Write the events of each future log into a file of its own: as many as fit into the target, at least one."""
    done: list[StagedLog] = []
    with ExitStack() as opened:
        writer: StagingWriter | None = None
        for pieces in chunks:
            # In one piece from here on: sizes and batches are taken from whole columns, and each would join them anew.
            chunk = pieces.combine_chunks()
            # Cut by the plain sizes of rows, which depend on nothing but the events: a repeated merge cuts at the same
            # places.
            sizes = row_bytes(chunk)
            start = 0
            while start < chunk.num_rows:
                rows = rows_that_fit(sizes[start:], bytes_target, writer.plain_bytes if writer else 0)
                # The log is full: the same row goes into a new one, which takes at least one row.
                if writer is not None and rows == 0:
                    done.append(writer.finish())
                    writer = None
                    continue
                if writer is None:
                    first = chunk.column("event_id")[start].as_py()
                    writer = opened.enter_context(StagingWriter(fs, folder / staged_log(first)))
                writer.write(chunk.slice(start, rows), sizes[start : start + rows])
                start += rows
        if writer is not None:
            done.append(writer.finish())
    return done


def unit_manifest(
    workspace: Workspace, groups: Sequence[Group], logs: Sequence[StagedLog], ahead: int | None
) -> UnitManifest:
    """Return the manifest of a whole unit, of these logs."""
    firsts = tuple(group.first_event_id for group in groups)
    return UnitManifest(
        writer=workspace.writer,
        database=workspace.database,
        # Derived from the groups, so that the catalog recognises the commit of a repeated merge.
        transaction=transaction_of_groups(workspace.writer, workspace.database, firsts),
        groups=firsts,
        logs=_placed(workspace, firsts, logs),
        # That of all groups: units are planned within one incarnation.
        incarnation=workspace.incarnation_of_group(groups[0]),
        revision=_aimed_revision(workspace, firsts, ahead),
    )


def _aimed_revision(workspace: Workspace, groups: Sequence[int], ahead: int | None) -> int | msgspec.UnsetType:
    """Return the revision at which a unit is to become live: behind those of the units that wait before it.

    Of groups that are live already, whose log is lost, it is the one that the log had: its bytes must be the same.
    """
    state = workspace.catalog.load()
    if any(workspace.is_committed(state, group) for group in groups):
        wanted = set(groups)
        for file in state.files.values():
            footer = stored_footer(file) if wanted.intersection(file.groups) else None
            if footer is not None:
                stored = (footer.metadata or {}).get(METADATA_KEY, b"{}")
                return _NUMBERED.decode(stored).revision
        return msgspec.UNSET
    # As it was planned: units are merged at the same time and in any order.
    if ahead is not None:
        return state.revision + 1 + ahead
    # By the names of the units: their manifests need not be read.
    waiting = [first for first in workspace.staged() if not workspace.is_committed(state, first)]
    return state.revision + 1 + sum(first < groups[0] for first in waiting)


def _placed(workspace: Workspace, groups: Sequence[int], logs: Sequence[StagedLog]) -> tuple[StagedLog, ...]:
    """Return the logs of a unit with the stripe of each: the manifest fixes the choice for all later steps.

    Of groups that are live already, whose log is lost, it is the one that the log had.
    """
    state = workspace.catalog.load()
    former: dict[int, str] = {}
    if any(workspace.is_committed(state, group) for group in groups):
        wanted = set(groups)
        former = {
            file.first_event_id: split_stripe(path)[0]
            for path, file in state.files.items()
            if wanted.intersection(file.groups)
        }
    return tuple(
        msgspec.structs.replace(
            log,
            stripe=former[log.first_event_id]
            if log.first_event_id in former
            else workspace.choose_stripe(log.first_event_id, log.file_bytes),
        )
        for log in logs
    )


class _Numbered(msgspec.Struct):
    revision: int | msgspec.UnsetType = msgspec.UNSET


_NUMBERED = msgspec.json.Decoder(_Numbered)


def publish_folder(fs: FileSystem, attempt: Path, folder: Path, manifest: UnitManifest) -> None:
    """Complete a folder by its manifest and give it its name, unless another attempt was faster."""
    with fs.create(attempt / UNIT_MANIFEST) as file:
        file.write(manifest.encode())
        file.sync()
    # Everything in the folder is durable before it gets its name: a folder with a unit's name is always whole.
    fs.sync_directory(attempt)
    try:
        # Another attempt was first; its unit is as good as this one.
        if fs.exists(folder):
            fs.remove_tree(attempt)
        else:
            fs.rename(attempt, folder)
    except StorageError as error:
        # Another attempt published between the look and the rename. A folder does not replace one that holds files, so
        # exactly one of them wins.
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        fs.remove_tree(attempt)
    # Also for a unit that is there already: whoever published it may have died before its name was durable.
    fs.sync_directory(folder.parent)


def _keep_evidence(workspace: Workspace, damage: JournalDamage) -> None:
    """Put damaged bytes into the quarantine; what a former attempt put there stays as it is."""
    keep_evidence(
        workspace.fs,
        workspace.settings.quarantine,
        damage.evidence(),
        code="journal-damage",
        message=str(damage),
        file=str(damage.path),
        offset=damage.offset,
        now_ms=workspace.clock.now_ms(),
        format="journal",
    )


def damage_note(damage: JournalDamage) -> str:
    """Return what a report says of damage."""
    return f"damage kept in the quarantine: {damage.path} @{damage.offset}, {damage.length} bytes"


class Progress:
    """Writes into the log, now and then, how far a long merge has come."""

    def __init__(self, unit: str, rows: int) -> None:
        self._unit = unit
        self._rows = rows
        self._done = 0
        self._logged = time.monotonic()

    def told(self, chunks: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """Yield the chunks, and count them."""
        for chunk in chunks:
            yield chunk
            self._done += chunk.num_rows
            if time.monotonic() - self._logged >= _PROGRESS_SECONDS:
                self._logged = time.monotonic()
                _LOG.info("%s: %d of %d events merged", self._unit, self._done, self._rows)
