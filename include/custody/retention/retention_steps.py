"""The steps of a retention pass. Like those of the rollover, they list their units from disk and can be repeated.

| step | unit | reads | writes |
|---|---|---|---|
| retention_plan | repository | catalogs, disk | nothing; its report is the plan |
| retention_mark | repository | the same | one transaction a writer: expired logs are live no longer |
| retention_expire | writer | marks older than the grace | the catalog's floor; deletes event logs |
| retention_drop_shards | writer | the same | deletes index shards without logs |
| retention_history | writer | catalog, attestations | raises the floor as far as the limits on the history say |
| retention_prune | writer | catalog | deletes revisions before the floor |
| retention_collect_garbage | writer | catalog, store | shortens marks; deletes unlisted files, contents, builds |
| retention_erase | repository | requests of erasure | all that a request asks for and that can be done now |
| retention_check | repository | catalogs, disk | nothing; fails when the limit cannot be kept |
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import ClassVar

import msgspec

from custody import iceberg
from custody.catalog import collect_garbage, left_below_floor
from custody.catalog.garbage import TRASH_KEPT_MS
from custody.config import Settings
from custody.errors import CorruptionError, FormatVersionError, NotFoundError, StorageError
from custody.format.names import RETENTION_LEASE
from custody.lease import Attempt
from custody.retention.deletion import (
    delete_logs,
    delete_revisions,
    delete_shards,
    due_marks,
    has_settled,
    keep_from,
    settle_marks,
)
from custody.retention.disk_usage import measure_disk, waiting_bytes
from custody.retention.erasure import due_erasures, pursue
from custody.retention.erasures import Erasure
from custody.retention.history import is_history_limited, limit_history, plan_history
from custody.retention.planning import ExpiryChoice, RetentionPlan, choose_expired, mark_expired
from custody.retention.swh_builds import former_builds, remove_former
from custody.retention.unused_contents import drop_unused
from custody.vfs import FileSystem, PosixFileSystem
from custody.workspace import Step, Unit, UnitReport, Workspace


class RetentionStep(Step):
    """One step of retention."""

    lease: ClassVar[str | None] = RETENTION_LEASE

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return 0: a catalog and names are read, and files removed."""
        return 0

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        """Do one unit; doing it again changes nothing. Every step of retention begins here, and nowhere else."""
        return self.work(workspace, str(unit))

    @abstractmethod
    def work(self, workspace: Workspace, unit: str) -> UnitReport:
        """Do one unit."""


class _WholeRepository(RetentionStep):
    """A step whose one unit is the repository: which log is the oldest is a question to all writers together."""

    def units(self, settings: Settings, fs: FileSystem | None = None) -> list[Unit]:
        """Return one unit for all writers, none for a repository without any."""
        workspaces = Workspace.all(settings, fs)
        return [Unit(settings.repository.writer)] if workspaces and _is_asked_for(settings, workspaces) else []

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Return the one unit."""
        yield Unit(workspace.settings.repository.writer)

    def choose(self, workspace: Workspace) -> ExpiryChoice:
        """Look at everything."""
        settings, fs = workspace.settings, workspace.fs
        writers = Workspace.all(settings, fs, workspace.clock)
        return choose_expired(settings, fs, workspace.clock, writers)


class MakePlan(_WholeRepository):
    """Says what would go; changes nothing."""

    name = "retention_plan"
    lease = None

    def work(self, workspace: Workspace, unit: str) -> UnitReport:
        """Return the plan as the report's note."""
        return _planned(unit, self.choose(workspace).plan)


class Mark(_WholeRepository):
    """Takes out of the catalogs what expired."""

    name = "retention_mark"

    def work(self, workspace: Workspace, unit: str) -> UnitReport:
        """Plan and carry it out; the report is the plan that was carried out."""
        choice = self.choose(workspace)
        mark_expired(choice)
        for writer in Workspace.all(workspace.settings, workspace.fs, workspace.clock):
            # What a rule hides from now on, no engine shows either.
            iceberg.republish(writer)
        return _planned(unit, choice.plan)


class _DueMarks(RetentionStep):
    """A step that deletes files of marks that are due."""

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Writers with marks that are due."""
        if due_marks(workspace):
            yield Unit(workspace.writer)


class Expire(_DueMarks):
    """Deletes the event logs of marks that are due."""

    name = "retention_expire"

    def work(self, workspace: Workspace, unit: str) -> UnitReport:
        """Raise the floor, then delete."""
        count, size = delete_logs(workspace)
        return UnitReport(unit=unit, bytes=size, note=f"{count} files deleted")


class DropShards(_DueMarks):
    """Deletes the index shards of marks that are due."""

    name = "retention_drop_shards"

    def work(self, workspace: Workspace, unit: str) -> UnitReport:
        """Delete them as wholes."""
        count, size = delete_shards(workspace)
        return UnitReport(unit=unit, bytes=size, note=f"{count} shards deleted")


class LimitHistory(RetentionStep):
    """Raises the floor as far as `catalog.history_*` say, and holds and attestations allow."""

    name = "retention_history"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Writers with revisions that the limits let go."""
        if is_history_limited(workspace) and not plan_history(workspace).is_empty:
            yield Unit(workspace.writer)

    def work(self, workspace: Workspace, unit: str) -> UnitReport:
        """Commit the floor; `retention_prune` deletes what lies below."""
        plan = limit_history(workspace)
        notes = [f"earliest revision {plan.floor_before} before, {plan.floor} now ({plan.why})", *plan.limited_by]
        return UnitReport(unit=unit, bytes=plan.bytes_before - plan.bytes_after, note="; ".join(notes))


class PruneRevisions(RetentionStep):
    """Deletes revisions before the floor; with too much on disk it raises the floor for what else they keep."""

    name = "retention_prune"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Writers with revisions before the floor, or whose earlier revisions keep files that the limit needs."""
        if left_below_floor(workspace.catalog).keys or self._keeps_too_much(workspace):
            yield Unit(workspace.writer)

    def work(self, workspace: Workspace, unit: str) -> UnitReport:
        """Delete them, oldest first."""
        if self._keeps_too_much(workspace):
            # Earlier revisions alone keep these files on disk: without them the garbage collection can take the files.
            keep_from(workspace.catalog, workspace.catalog.load().revision)
        count = delete_revisions(workspace.catalog)
        return UnitReport(unit=unit, note=f"{count} objects of the catalog deleted")

    def _keeps_too_much(self, workspace: Workspace) -> bool:
        state = workspace.catalog.load()
        # Marks first: while one is due, its own deletion raises the floor and frees room. What looks at files comes
        # last, and the look at every file behind the one at the logs.
        if workspace.settings.retention.bytes_max is None or state.floor >= state.revision or due_marks(workspace):
            return False
        return waiting_bytes(workspace, workspace.clock.now_ms()) > 0 and _is_over(workspace)


class CollectGarbage(RetentionStep):
    """Shortens marks whose files are gone, and deletes what no kept revision lists, contents included."""

    name = "retention_collect_garbage"

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Writers with marks that are done, or with garbage."""
        if has_settled(workspace) or self._collect(workspace, dry_run=True)[0] or self._former(workspace):
            yield Unit(workspace.writer)

    def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
        """Return the sizes of the writer's logs, whose references to contents are read."""
        return sum(file.size_bytes for file in workspace.catalog.load().files.values())

    def work(self, workspace: Workspace, unit: str) -> UnitReport:
        """Do all of it; the trash is kept for a while, unless the limit needs its room.

        Contents come before the marks: whoever is killed in between finds the mark again, and looks once more.
        """
        count, size = self._collect(workspace, dry_run=False)
        settings, fs = workspace.settings, workspace.fs
        writers = Workspace.all(settings, fs, workspace.clock)
        try:
            contents, freed = drop_unused(writers, settings, fs, workspace.clock)
            problem = ""
        except (NotFoundError, CorruptionError, FormatVersionError) as error:
            # An event that cannot be read may refer to any content, so all contents stay; the rest of the step goes on.
            contents, freed, problem = 0, 0, f"; contents stay, for an event cannot be read: {error}"
        settled = settle_marks(workspace)
        builds = room = 0
        if self._former(workspace):
            builds, room = remove_former(settings, fs, workspace.clock, needs_room=_is_over(workspace))
        note = f"{settled} marks done, {count} files moved or deleted, {contents} files of contents deleted{problem}"
        if builds:
            note += f", {builds} builds of software tables removed"
        return UnitReport(unit=unit, bytes=size + freed + room, note=note)

    def _former(self, workspace: Workspace) -> bool:
        """Whether a build may go; builds lie with the repository's own writer."""
        settings, fs = workspace.settings, workspace.fs
        if workspace.writer != settings.repository.writer:
            return False
        # Whether room is needed decides only where there is a build: to know it takes a look at every file.
        if not former_builds(settings, fs, workspace.clock, needs_room=True):
            return False
        return bool(former_builds(settings, fs, workspace.clock, needs_room=False)) or _is_over(workspace)

    def _collect(self, workspace: Workspace, *, dry_run: bool) -> tuple[int, int]:
        # As with builds: an empty trash is emptied without a look at every file.
        is_filled = any(True for _ in workspace.catalog.objects.files.list("trash/", present_only=True))
        kept_ms = 0 if is_filled and _is_over(workspace) else TRASH_KEPT_MS
        if not dry_run and iceberg.republish(workspace) is not None:
            iceberg.collect_former(workspace)
        garbage = collect_garbage(workspace.catalog, workspace.clock, trash_kept_ms=kept_ms, dry_run=dry_run)
        return len(garbage.moved) + len(garbage.deleted) + len(garbage.restored), garbage.deleted_bytes


class Erase(RetentionStep):
    """Goes on with the erasures that were requested: what was chosen goes to the last copy."""

    name = "retention_erase"

    def units(self, settings: Settings, fs: FileSystem | None = None) -> list[Unit]:
        """Return one unit for all requests, none when nothing of them can be done."""
        is_due = bool(due_erasures(settings, fs or PosixFileSystem()))
        return [Unit(settings.repository.writer)] if is_due else []

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        """Yield the one unit, to the repository's own writer."""
        settings = workspace.settings
        if workspace.writer == settings.repository.writer:
            yield from self.units(settings, workspace.fs)

    def work(self, workspace: Workspace, unit: str) -> UnitReport:
        """Go on with each; what a request waits for is no error."""
        settings, fs, clock = workspace.settings, workspace.fs, workspace.clock
        erasures = [
            pursue(settings, fs, clock, erasure.id, Attempt.new(self.name)) for erasure in due_erasures(settings, fs)
        ]
        notes = [f"{erasure.id}: {erasure.state}{_behind(erasure)}" for erasure in erasures]
        return UnitReport(unit=unit, events=sum(erasure.events for erasure in erasures), note="; ".join(notes))


def _behind(erasure: Erasure) -> str:
    texts = [*erasure.waiting, *(f"hold {name} keeps {count} events" for name, count in erasure.held.items())]
    return f" ({'; '.join(texts)})" if texts else ""


class Check(_WholeRepository):
    """Fails when the limit cannot be kept, after all that may go is gone."""

    name = "retention_check"
    lease = None

    def work(self, workspace: Workspace, unit: str) -> UnitReport:
        """Plan once more.

        Raises:
            StorageError: the limit cannot be kept; the message says what stands in the way.
        """
        plan = self.choose(workspace).plan
        if plan.problem is not None:
            raise StorageError(plan.problem)
        return UnitReport(unit=unit, note=f"{plan.used_bytes} bytes on disk")


RETENTION_STEPS: Mapping[str, Step] = {
    step.name: step
    for step in (
        MakePlan(),
        Mark(),
        Expire(),
        DropShards(),
        LimitHistory(),
        PruneRevisions(),
        CollectGarbage(),
        Erase(),
        Check(),
    )
}
"""All steps of retention by name, in the order in which a pass runs them."""


def _planned(unit: str, plan: RetentionPlan) -> UnitReport:
    events = sum(log.events for log in plan.expiring)
    freed = sum(log.bytes for log in plan.expiring)
    return UnitReport(unit=unit, events=events, bytes=freed, note=msgspec.json.encode(plan).decode())


def _is_asked_for(settings: Settings, workspaces: list[Workspace]) -> bool:
    """Whether a setting says that something goes, or an earlier one left something hidden."""
    chosen = settings.retention
    if chosen.age_max is not None or chosen.bytes_max is not None or chosen.rules:
        return True
    if any(is_history_limited(workspace) for workspace in workspaces):
        return True
    stones = (stone for workspace in workspaces for stone in workspace.catalog.load().tombstones.values())
    return any(stone.by_retention for stone in stones)


def _is_over(workspace: Workspace) -> bool:
    limit = workspace.settings.retention.bytes_max
    return limit is not None and measure_disk(workspace.settings, workspace.fs).total_bytes > limit
