"""The steps of exports: each export of the settings is a unit, which delivers what waits, or what was refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

from custody.clock import SystemClock
from custody.config import Settings
from custody.errors import LockedError
from custody.export.export_run import Export, ExportReport, ExportRun
from custody.lease import Attempt
from custody.vfs import FileSystem, PosixFileSystem
from custody.workspace import UnitReport, Workspace
from custody.workspace.step import Step, Unit

_EVENT_BYTES = 1024
"""About the size of an event in a journal."""


class ExportUnit(Unit, frozen=True, kw_only=True):
    """One export."""

    export: str

    def __str__(self) -> str:
        return self.export


class DeliverStep(Step):
    """Delivers what waits, every writer's; each export under a lease of its own."""

    name: ClassVar[str] = "export_deliver"
    lease: ClassVar[str | None] = None
    unit_type: ClassVar[type[Unit]] = ExportUnit

    def units(self, settings: Settings, fs: FileSystem | None = None) -> list[Unit]:
        """Return the exports that have something to do."""
        exports = (Export(settings, name, fs or PosixFileSystem(), SystemClock()) for name in sorted(settings.exports))
        return [ExportUnit(writer="", export=export.name) for export in exports if self._waits(export)]

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Yield nothing: an export is of all writers."""
        return iter(())

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return what the events that wait may have: their bytes are known only when they are read."""
        if not isinstance(unit, ExportUnit):
            return None
        export = Export(workspace.settings, unit.export, workspace.fs, workspace.clock)
        return self._events(export) * _EVENT_BYTES

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Deliver; another run that is under way does it already."""
        if not isinstance(unit, ExportUnit):
            raise TypeError(f"expected an export, got {unit!r}")
        export = Export(workspace.settings, unit.export, workspace.fs, workspace.clock)
        try:
            with export.started(Attempt.new("export")) as run:
                report = self._work(run)
        except LockedError:
            return UnitReport(unit=unit.export, note="another run of the export delivers")
        notes = [f"{report.refused} refused, see custody quarantine list"] if report.refused else []
        return UnitReport(
            unit=unit.export,
            events=report.delivered,
            bytes_in=report.bytes,
            note="; ".join([*notes, *report.notices]) or None,
            # A file that was refused as a whole and then taken by halves is written twice, under one name.
            files=tuple(dict.fromkeys(report.files)),
        )

    def _waits(self, export: Export) -> bool:
        return self._events(export) > 0

    def _events(self, export: Export) -> int:
        return export.status().waiting

    def _work(self, run: ExportRun) -> ExportReport:
        return run.deliver_waiting()


class ResendStep(DeliverStep):
    """Delivers once more what receivers refused."""

    name: ClassVar[str] = "export_resend"

    def _waits(self, export: Export) -> bool:
        return any(True for _ in export.refused())

    def _events(self, export: Export) -> int:
        return sum(1 for _ in export.refused())

    def _work(self, run: ExportRun) -> ExportReport:
        return run.resend()


EXPORT_STEPS: Mapping[str, Step] = {step.name: step for step in (ResendStep(), DeliverStep())}
"""The steps in the order of a run, by name."""
