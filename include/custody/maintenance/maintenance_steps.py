"""The steps of the maintenance. Each lists its units from disk, and each unit can be done again with the same result.

| step | unit | reads | writes |
|---|---|---|---|
| absorb | log of a retired writer | the log, tombstones, holds | log, shard of the archive; then one transaction |
| compact | live logs, or a writer | logs, tombstones | logs, shards, one transaction; old shards go |
| rebuild | shard | logs | the shard, with the settings of today |
| scrub | check unit | all that is due | nothing; the driver saves the position and the findings |

Where drivers and executors share an object store alone, executors do the units of `compact` and `rebuild`, the logs of
`absorb`, and the check units of logs, shards, staged units and contents in the store; the driver checks what lies on
its disks, and makes the transactions of `absorb`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from custody.catalog import Action
from custody.clock import SystemClock
from custody.config import Settings
from custody.errors import CustodyError, NotFoundError
from custody.format.names import COMPACT_LEASE, split_stripe
from custody.maintenance import absorption, compaction
from custody.maintenance.findings import Finding, damages
from custody.maintenance.scrub import ScrubSlice, next_slice, save_progress, scrub_unit
from custody.maintenance.verification import CheckUnit
from custody.rollover import is_stale, mend_shard, shard_input_bytes
from custody.vfs import FileSystem, PosixFileSystem
from custody.workspace import UnitReport, Workspace, file_uri
from custody.workspace.step import Step, Unit

# Check units whose files lie in the store alone, where that is an object store, besides most shards.
_STORED_KINDS = ("log", "unit", "handed-contents")


class MaintenanceUnit(Unit, frozen=True):
    """A unit with the names of what it works on: paths of logs, a shard, or a check unit of a scrub's slice."""

    names: tuple[str, ...] = ()
    piece: CheckUnit | None = None
    slice: ScrubSlice | None = None

    def __str__(self) -> str:
        names = self.names if self.piece is None else (self.piece.kind, self.piece.name)
        return "/".join((self.writer, *names))


class MaintenanceReport(UnitReport, frozen=True, kw_only=True):
    """The outcome of a unit, with the findings on the way."""

    findings: tuple[Finding, ...] = ()


class AbsorbReport(UnitReport, frozen=True, kw_only=True):
    """The outcome of a unit of `absorb`, with what the transaction says of the new files: actions, encoded."""

    actions: tuple[bytes, ...] = ()


class Absorb(Step):
    """The archive, where there is one, takes up the writers that were retired."""

    name = "absorb"
    # As for a rebuild: the log goes from file to file, and its shard is made of all of it.
    memory_a_byte = 5.0
    unit_type = MaintenanceUnit
    report_type = AbsorbReport
    lease = COMPACT_LEASE
    needs_store_only = True

    def units(self, settings: Settings, fs: FileSystem | None = None) -> list[Unit]:
        """Return the live logs of each retired writer, and behind them the writer itself."""
        workspaces = Workspace.all(settings, fs)
        archive = absorption.archive_of(workspaces)
        return [] if archive is None else _units_of_the_archive(archive, workspaces)

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Yield the units of the archive; other writers have none."""
        units = self.units(workspace.settings, workspace.fs)
        yield from (unit for unit in units if unit.writer == workspace.writer)

    def stays(self, workspace: Workspace, unit: Unit) -> bool:
        """Whether a unit is that of a whole writer, whose transaction the driver makes."""
        return len(_names(unit)) == 1

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return the size of the log; the unit of a whole writer works on the catalog."""
        writer, *paths = _names(unit)
        files = Workspace(workspace.settings, writer, workspace.fs, workspace.clock).state().files if paths else {}
        return sum(files[path].size_bytes for path in paths if path in files)

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Write one log anew; the unit of a whole writer is done at the end."""
        writer, *paths = _names(unit)
        if not paths:
            return UnitReport(unit=str(unit))
        planned = absorption.absorption_of(workspace, writer, unit.first_event_id or 0)
        if planned is None or paths[0] not in planned.state.files:
            return UnitReport(unit=str(unit), note="absorbed already")
        file = planned.state.files[paths[0]]
        actions = absorption.absorb_log(workspace, planned, paths[0])
        rows = sum(action.add_file.rows for action in actions)
        return AbsorbReport(
            unit=str(unit),
            events=rows,
            bytes_in=file.size_bytes,
            bytes=sum(action.add_file.size_bytes + action.add_shard.size_bytes for action in actions),
            note=f"{rows} of {file.rows} events",
            actions=tuple(action.SerializeToString() for action in actions),
        )

    def finish(
        self, settings: Settings, units: Sequence[Unit], reports: Sequence[UnitReport], fs: FileSystem | None = None
    ) -> list[UnitReport]:
        """Commit each writer whose logs are all written; an error is in the report of the writer's unit."""
        failed = {_names(unit)[0] for unit, report in zip(units, reports, strict=True) if report.error is not None}
        absorbed: dict[str, dict[str, list[Action]]] = {}
        for unit, report in zip(units, reports, strict=True):
            writer, *paths = _names(unit)
            if paths and isinstance(report, AbsorbReport):
                decoded = [Action.FromString(action) for action in report.actions]
                absorbed.setdefault(writer, {})[paths[0]] = decoded
        done = []
        for unit, report in zip(units, reports, strict=True):
            writer, *paths = _names(unit)
            # Entries of files are for the transaction; a report stays a line.
            plain = msgspec.convert(msgspec.to_builtins(report), UnitReport)
            is_due = not paths and writer not in failed
            done.append(_committed(settings, unit, plain, absorbed.get(writer, {}), fs) if is_due else plain)
        return done


def _units_of_the_archive(archive: Workspace, workspaces: Sequence[Workspace]) -> list[Unit]:
    units: list[Unit] = []
    for item in absorption.plan_absorptions(archive, workspaces):
        names = [(item.retired.writer, path) for path in sorted(item.state.files)]
        units += [MaintenanceUnit(archive.writer, item.base, names=each) for each in (*names, (item.retired.writer,))]
    return units


def _committed(
    settings: Settings,
    unit: Unit,
    report: UnitReport,
    absorbed: Mapping[str, Sequence[Action]],
    fs: FileSystem | None,
) -> UnitReport:
    archive, writer = Workspace(settings, unit.writer, fs), _names(unit)[0]
    try:
        planned = absorption.absorption_of(archive, writer, unit.first_event_id or 0)
        if planned is None:
            return msgspec.structs.replace(report, note="absorbed already")
        taken = absorption.commit_absorption(archive, planned, absorbed)
    except CustodyError as error:
        return msgspec.structs.replace(report, error=f"{type(error).__name__}: {error}", error_kind=error.kind)
    note = f"{taken.events} events in {taken.logs} logs, from id {taken.first_event_id} on, revision {taken.revision}"
    return msgspec.structs.replace(report, note=note)


class Compact(Step):
    """Erases forgotten events and joins small logs."""

    name = "compact"
    memory_a_byte = 6.0
    unit_type = MaintenanceUnit
    lease = COMPACT_LEASE
    needs_store_only = True

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Logs that become one, and tombstones and old shards that are to go."""
        for unit in compaction.waiting_compactions(workspace):
            yield MaintenanceUnit(unit.writer, names=unit.paths)

    def check_driver(self, workspace: Workspace) -> None:
        """Raise StorageError where a container is missing: it may hold journals of groups between the logs."""
        workspace.require_containers()

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return the sizes of the logs; a unit without logs works on the catalog."""
        files = workspace.catalog.load().files
        return sum(files[path].size_bytes for path in _names(unit) if path in files)

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Write the logs anew; raises as `compaction.run` does."""
        report = compaction.compact_unit(workspace, compaction.CompactionUnit(unit.writer, _names(unit)))
        note = report.note or f"{report.logs_before} logs became {report.logs_after}, revision {report.revision}"
        return UnitReport(
            unit=str(unit),
            events=report.erased,
            bytes_in=report.bytes_before,
            bytes=report.bytes_after,
            note=note,
            files=report.files,
        )


class Rebuild(Step):
    """Rebuilds shards that are gone, whose header is damaged, or that have other settings."""

    name = "rebuild"
    memory_a_byte = 5.0
    unit_type = MaintenanceUnit
    lease = COMPACT_LEASE
    needs_store_only = True

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """The stale shards."""
        for name, shard in workspace.catalog.load().shards.items():
            if is_stale(workspace, shard):
                yield MaintenanceUnit(workspace.writer, names=(name,))

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return the sizes of the shard's logs."""
        state = workspace.catalog.load()
        shards = (state.shards.get(name) for name in _names(unit))
        return next((shard_input_bytes(state, shard) for shard in shards if shard is not None), None)

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Rebuild one shard, unless another process did; one that is gone or damaged is told to the catalog first."""
        [name] = _names(unit)
        shard = workspace.catalog.settle().shards.get(name)
        if shard is None:
            raise NotFoundError(f"shard {name}: is not live any more. Nothing is left to do.")
        # Rebuilt by another process since the units were listed.
        if not is_stale(workspace, shard):
            return UnitReport(unit=str(unit), note="built already")
        built = mend_shard(workspace, shard, "step rebuild")
        return UnitReport(
            unit=str(unit),
            events=built.documents,
            bytes=built.size_bytes,
            note=built.path.name,
            files=(file_uri(built.path),),
        )


class ScrubStep(Step):
    """Verifies the check units that are due."""

    name = "scrub"
    unit_type = MaintenanceUnit
    report_type = MaintenanceReport
    lease = None
    needs_store_only = True

    def units(self, settings: Settings, fs: FileSystem | None = None) -> list[Unit]:
        """Return the check units that are due, of all writers."""
        _, slice = next_slice(settings, fs or PosixFileSystem(), SystemClock())
        # Each unit carries the position alone: with all units of the slice in each, the list would grow by the square.
        position = ScrubSlice(slice.round, slice.after, (), slice.is_last)
        return [MaintenanceUnit(piece.writer, piece=piece, slice=position) for piece in slice.pieces]

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Yield the check units of one writer that are due."""
        units = self.units(workspace.settings, workspace.fs)
        yield from (unit for unit in units if unit.writer == workspace.writer)

    def stays(self, workspace: Workspace, unit: Unit) -> bool:
        """Whether a check unit is about anything but objects that have a digest or checksums of their own."""
        piece = _piece(unit)
        if piece.kind == "shard":
            # A folder of it on this machine is a second copy, which is checked as well.
            shard = workspace.state().shards.get(piece.name)
            return shard is None or workspace.fs.exists(workspace.shard_path(shard))
        return piece.kind not in _STORED_KINDS or bool(split_stripe(piece.name)[0])

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return what the check unit reads."""
        return _piece(unit).bytes

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Verify one check unit; findings are no failure of the step."""
        piece = _piece(unit)
        findings = scrub_unit(workspace.settings, workspace.fs, workspace.clock, piece)
        wrong = damages(findings)
        note = None if not wrong else f"{len(wrong)} damaged: {wrong[0].message}"
        return MaintenanceReport(unit=str(unit), bytes_in=piece.bytes, note=note, findings=tuple(findings))

    def finish(
        self, settings: Settings, units: Sequence[Unit], reports: Sequence[UnitReport], fs: FileSystem | None = None
    ) -> list[UnitReport]:
        """Save the scrub's position and the findings, up to the first unit that could not be checked."""
        pieces: list[CheckUnit] = []
        findings: list[Finding] = []
        slice: ScrubSlice | None = None
        for unit, report in zip(units, reports, strict=True):
            # The position is one key: units behind one that failed are checked again by the next run.
            if report.error is not None:
                break
            pieces.append(_piece(unit))
            findings += _named_here(settings, fs, pieces[-1], report)
            slice = slice or (unit.slice if isinstance(unit, MaintenanceUnit) else None)
        if slice is not None:
            is_end = slice.is_last and len(pieces) == len(units)
            save_progress(settings, fs or PosixFileSystem(), SystemClock(), slice, pieces, findings, is_end=is_end)
        # The findings are kept in the scrub's file; a report stays a line.
        return [msgspec.convert(msgspec.to_builtins(report), UnitReport) for report in reports]


MAINTENANCE_STEPS: Mapping[str, Step] = {step.name: step for step in (Absorb(), Compact(), Rebuild(), ScrubStep())}
"""The steps of a maintenance run by name, in their order."""


def _named_here(settings: Settings, fs: FileSystem | None, piece: CheckUnit, report: UnitReport) -> Sequence[Finding]:
    """Return the findings of a unit with the places of this machine: an executor has others, which are gone by now."""
    findings = report.findings if isinstance(report, MaintenanceReport) else ()
    if findings and piece.kind == "shard" and settings.is_staging_stored:
        return scrub_unit(settings, fs or PosixFileSystem(), SystemClock(), piece)
    return findings


def _names(unit: Unit) -> tuple[str, ...]:
    return unit.names if isinstance(unit, MaintenanceUnit) else ()


def _piece(unit: Unit) -> CheckUnit:
    if not isinstance(unit, MaintenanceUnit) or unit.piece is None:
        raise ValueError(f"unit {unit} names no check unit")
    return unit.piece
