"""Durability bugs, seeded one at a time between the code and the disk or into the code.

`python -m tests.crash.seeded_bugs` prints which crash mode finds which bug.
"""

from __future__ import annotations

from builtins import list as list_of
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import msgspec

from custody.catalog import AddLoss, Catalog
from custody.journal import lane, writer
from custody.journal.file import JournalEnd, end_record
from custody.maintenance import compaction
from custody.maintenance.repair import logs as log_repairs
from custody.recovery import STEPS
from custody.repository import retaining
from custody.repository.reading import Snapshot
from custody.retention import Choice, deleting, marking, survey
from custody.retention.deleting import due_marks
from custody.retention.survey import Surveyed
from custody.rollover import Unit, UnitManifest, UnitReport, Workspace
from custody.rollover.publish import waiting_units
from custody.vfs import FileSystem, WritableFile
from custody.vfs.composed import TEMPORARY_SUFFIX
from custody.vfs.crash import CrashMode
from custody.vfs.memory import MemoryFileSystem
from custody.vfs.wrapping import WrappingFile, WrappingFileSystem
from tests.crash.committing import Racing
from tests.crash.crowd import Crowding
from tests.crash.enumeration import Outcome, Scenario, Wrap, enumerate_crashes, plain
from tests.crash.healing import Healing
from tests.crash.mending import Mending, Scrubbing, damage_a_block, damage_a_journal, swap_logs
from tests.crash.retaining import Retaining
from tests.crash.scenarios import Appending, RollingOver, RollingOverDamage, RollingOverRetried, RollingOverSplit

KEPT, SYNCED, FILES, BLOCKS = CrashMode
ALL = frozenset(CrashMode)
POWER_LOSS = ALL - {KEPT}
TORN = ALL - {SYNCED}  # a write that was cut short leaves a beginning, also in the page cache
PathTest = Callable[[Path], bool]


class _File(WrappingFile):
    """A file whose syncs, or also whose writes, are put off until the next use, or are not done at all."""

    def __init__(self, inner: WritableFile, path: Path, bug: Buggy) -> None:
        super().__init__(inner, path)
        self._bug = bug
        self._late: list_of[Callable[[], object]] = []
        self._synced = False

    def write(self, data: bytes) -> int:
        self._catch_up()
        if self._synced and self._bug.late_write(self.path):
            kept = bytes(data)
            self._late.append(lambda: self.inner.write(kept))
            return len(kept)
        return self.inner.write(data)

    def sync(self) -> None:
        if self._bug.no_sync(self.path):
            return
        if self._synced and (self._late or self._bug.late_sync(self.path)):
            self._late.append(self.inner.sync)
            return
        self._synced = True  # the first sync is that of the header
        self.inner.sync()

    def close(self) -> None:
        self._catch_up()
        super().close()

    def _catch_up(self) -> None:
        late, self._late = self._late, []
        for work in late:
            work()


class _NeverSynced(WrappingFile):
    def sync(self) -> None:
        """Leave it to luck."""


def _never(path: Path) -> bool:
    return False


class Buggy(WrappingFileSystem):
    """A disk between which and the code something is left out, for the paths that a test picks."""

    def __init__(
        self,
        inner: FileSystem,
        *,
        no_sync: PathTest = _never,
        no_directory_sync: PathTest = _never,
        late_sync: PathTest = _never,
        late_write: PathTest = _never,
        no_cut: bool = False,
        no_recovery_sync: bool = False,
        final_name_at_once: PathTest = _never,
        trusts_found_folders: bool = False,
        trusts_found_shards: bool = False,
    ) -> None:
        super().__init__(inner)
        self.no_sync = no_sync
        self.late_sync = late_sync
        self.late_write = late_write
        self._no_directory_sync = no_directory_sync
        self._no_cut = no_cut
        self._no_recovery_sync = no_recovery_sync
        self._final_name_at_once = final_name_at_once
        self._trusts_found_folders = trusts_found_folders
        self._trusts_found_shards = trusts_found_shards
        self._renamed_into: set[Path] = set()

    def create(self, path: Path) -> WritableFile:
        return _File(self.inner.create(self._name(path)), path, self)

    def append(self, path: Path) -> WritableFile:
        # Only recovery appends to a journal that it did not write itself.
        file = self.inner.append(path)
        return _NeverSynced(file, path) if self._no_recovery_sync else file

    def view(self, path: Path) -> memoryview:
        return self.inner.view(self._name(path))

    def rename(self, source: Path, target: Path) -> None:
        self._renamed_into.add(target.parent)
        if self._name(source) != target:
            self.inner.rename(self._name(source), target)

    def sync_file(self, path: Path) -> None:
        if not self.no_sync(path) and not self._no_recovery_sync:
            self.inner.sync_file(path)

    def sync_directory(self, folder: Path) -> None:
        trusted = self._trusts_found_shards and folder.name == "index" and folder not in self._renamed_into
        if not self._no_directory_sync(folder) and not trusted:
            self.inner.sync_directory(folder)

    def cut(self, path: Path, length: int) -> None:
        if not self._no_cut:
            self.inner.cut(path, length)

    def make_directory(self, folder: Path) -> None:
        if not (self._trusts_found_folders and self.exists(folder)):
            super().make_directory(folder)

    def _name(self, path: Path) -> Path:
        if path.suffix == TEMPORARY_SUFFIX and self._final_name_at_once(path):
            return path.with_suffix("").with_suffix("")
        return path


def _delete_before_commit() -> AbstractContextManager[object]:
    commit = type(STEPS["commit"])
    right = commit.run

    def wrong(self: Any, workspace: Workspace, unit: Unit) -> UnitReport:
        for path in [path for group in workspace.groups() for path in group.sealed]:
            workspace.fs.remove(path)
            workspace.fs.sync_directory(path.parent)
        return right(self, workspace, unit)

    return patch.object(commit, "run", wrong)


def _ids_from_the_catalog_alone() -> AbstractContextManager[object]:
    stack = ExitStack()
    stack.enter_context(patch.object(writer, "least_free_id", lambda *_: 0))
    stack.enter_context(patch.object(Snapshot, "next_event_id", PropertyMock(return_value=0)))
    return stack


def _hasty(fs: FileSystem, path: Path, file: WritableFile, end: JournalEnd | None) -> Path:
    target = path.with_suffix(".sealed")
    fs.rename(path, target)
    fs.sync_directory(path.parent)
    if end is not None:
        file.write(end_record(end))
    file.close()
    return target


def _no_checksum() -> AbstractContextManager[object]:
    return patch("zlib.crc32", lambda *_: 0)


def _expire_before_the_mark() -> AbstractContextManager[object]:
    right = marking.mark

    def wrong(choice: Choice) -> dict[str, int]:
        for name, gone in choice.gone.items():
            at = choice.writers[name].workspace
            for path in gone:
                at.fs.remove(at.paths.home / path)
                at.fs.sync_directory((at.paths.home / path).parent)
        return right(choice)

    return patch.object(retaining, "mark", wrong)


def _marks_forgotten_first() -> AbstractContextManager[object]:
    stack = ExitStack()
    names = retaining._AFTER_THE_MARK
    stack.enter_context(patch.object(retaining, "_AFTER_THE_MARK", ("retention_collect_garbage", *names)))
    stack.enter_context(patch.object(deleting, "_settled", due_marks))
    return stack


def _commit_log_by_log() -> AbstractContextManager[object]:
    def wrong(workspace: Workspace) -> Iterator[UnitManifest]:
        for manifest in waiting_units(workspace):
            for log in manifest.logs:
                yield msgspec.structs.replace(manifest, logs=(log,))

    return patch("custody.rollover.steps.waiting_units", wrong)


def _loss_noted_later() -> AbstractContextManager[object]:
    def wrong(workspace: Workspace, state: Any, files: Any, found: Any, held: Any, more: Any, *, on_damage: Any) -> Any:
        done = compaction.replace(workspace, state, files, found, held, (), on_damage=on_damage)
        workspace.catalog.commit(more)
        return done

    return patch("custody.maintenance.repair.logs.replace", wrong)


def _nothing_is_noted() -> AbstractContextManager[object]:
    return patch("custody.maintenance.repair.others.loss", lambda *_: AddLoss(id=bytes(16)))


@dataclass(frozen=True)
class Bug:
    """A bug, the scenario that meets it, and the crash modes that must find it."""

    name: str
    scenario: Callable[[], Scenario[Any]]
    found_by: frozenset[CrashMode]
    wrap: Wrap = plain
    seeded: Callable[[], AbstractContextManager[object]] = nullcontext

    def found(self, *modes: CrashMode) -> Outcome:
        """Enumerate with the bug in place, up to the first alarm of each mode."""
        with self.seeded():
            return enumerate_crashes(self.scenario(), modes=modes, wrap=self.wrap, first_alarm_only=True)


def _with(**options: Any) -> Wrap:
    def wrap(fs: MemoryFileSystem) -> FileSystem:
        return Buggy(fs, **options)

    return wrap


def _named(text: str) -> PathTest:
    return lambda path: text in path.name


def _below(text: str) -> PathTest:
    return lambda path: text in path.parent.name


def _is(name: str) -> PathTest:
    return lambda path: path.name == name


BUGS = [
    Bug("acknowledged before the write", Appending, ALL, _with(late_write=_named(".journal"))),
    Bug("acknowledged before the sync", Appending, POWER_LOSS, _with(late_sync=_named(".journal"))),
    Bug("journals deleted before the commit", RollingOver, ALL, seeded=_delete_before_commit),
    Bug(
        "journals of a live group rolled over again",
        RollingOver,
        ALL,
        seeded=lambda: patch.object(Workspace, "is_committed", lambda *_: False),
    ),
    Bug("no sync of the journal", Appending, ALL, _with(no_sync=_named(".journal"))),
    Bug("no sync of the folder after a new journal", Appending, ALL, _with(no_directory_sync=_is("journals"))),
    Bug("no sync of the event log", RollingOver, ALL, _with(no_sync=_named(".parquet"))),
    Bug("no sync of the table of contents", RollingOver, ALL, _with(no_sync=_named(".toc"))),
    Bug("staging file renamed before its sync", RollingOver, POWER_LOSS, _with(no_sync=_named(".arrow"))),
    Bug("staged unit named before its manifest's sync", RollingOver, POWER_LOSS, _with(no_sync=_is("unit"))),
    Bug("the logs of a group become live one by one", RollingOverSplit, ALL, seeded=_commit_log_by_log),
    Bug(
        "no sync of the folder after evidence of damage",
        lambda: RollingOverDamage((1,)),
        ALL,
        _with(no_directory_sync=_is("quarantine")),
    ),
    Bug("no sync of a transaction", RollingOver, ALL, _with(no_sync=_named(".txn"))),
    Bug("no sync of the folder after an event log's rename", RollingOver, ALL, _with(no_directory_sync=_is("events"))),
    Bug("no sync of the folder after a commit", RollingOver, ALL, _with(no_directory_sync=_below("transactions"))),
    Bug("no sync of an index shard", RollingOver, ALL, _with(no_sync=_below("building-"))),
    Bug("no sync of the folder after a shard's rename", RollingOver, ALL, _with(no_directory_sync=_is("index"))),
    Bug("no checksum", Appending, frozenset({BLOCKS}), seeded=_no_checksum),
    Bug("torn tail not cut", Appending, TORN, _with(no_cut=True)),
    Bug(
        "journal named before its header",
        Appending,
        frozenset({FILES, BLOCKS}),
        _with(final_name_at_once=_named(".journal")),
    ),
    Bug("what a full disk left is not cut", Healing, frozenset({KEPT}), _with(no_cut=True)),
    Bug("what recovery keeps is not synced", Appending, frozenset({FILES, BLOCKS}), _with(no_recovery_sync=True)),
    Bug("found folders are taken for durable", Appending, frozenset({KEPT}), _with(trusts_found_folders=True)),
    Bug("a found shard is taken for durable", RollingOverRetried, frozenset({KEPT}), _with(trusts_found_shards=True)),
    Bug(
        "a found transaction is taken for durable",
        lambda: Racing(8),
        ALL,
        seeded=lambda: patch.object(Catalog, "settle", Catalog.load),
    ),
    Bug(
        "journals deleted for a transaction that is not durable",
        RollingOver,
        frozenset({KEPT}),
        seeded=lambda: patch.object(Catalog, "settle", Catalog.load),
    ),
    Bug(
        "ids counted from the catalog alone",
        Appending,
        ALL,
        seeded=_ids_from_the_catalog_alone,
    ),
    Bug("sealed before the end record is synced", Appending, ALL, seeded=lambda: patch.object(lane, "finish", _hasty)),
    Bug(
        "records of one sync are records of their own",
        Crowding,
        frozenset({BLOCKS}),
        seeded=lambda: patch.object(lane, "joined", lambda _, records: b"".join(records)),
    ),
    Bug("expired logs deleted before the mark", Retaining, frozenset({KEPT}), seeded=_expire_before_the_mark),
    Bug(
        "expired logs deleted before the floor is raised",
        Retaining,
        ALL,
        seeded=lambda: patch.object(deleting, "keep_from", lambda *_: None),
    ),
    Bug("marks forgotten before the deletion", Retaining, ALL, seeded=_marks_forgotten_first),
    Bug("held logs expire", Retaining, ALL, seeded=lambda: patch.object(Surveyed, "holders", lambda *_: ())),
    Bug(
        "logs whose journals are there expire",
        Retaining,
        ALL,
        seeded=lambda: patch.object(survey, "groups_on_disk", lambda _: frozenset()),
    ),
    Bug(
        "logs deleted for a mark that is not durable",
        Retaining,
        frozenset({KEPT}),
        seeded=lambda: patch.object(Catalog, "settle", Catalog.load),
    ),
    Bug(
        "marks forgotten for a deletion that is not durable",
        Retaining,
        frozenset({KEPT}),
        seeded=lambda: patch.object(deleting, "_settle_deletion", lambda *_: None),
    ),
    Bug("no checksum of what is synced together", Crowding, frozenset({BLOCKS}), seeded=_no_checksum),
    Bug(
        "what a repair gives up is noted in a transaction of its own",
        lambda: Mending(damage_a_block),
        frozenset({KEPT}),
        seeded=_loss_noted_later,
    ),
    Bug(
        "no sync of the folder after a damaged block was kept",
        lambda: Mending(damage_a_block),
        frozenset({SYNCED}),
        _with(no_directory_sync=_is("quarantine")),
    ),
    Bug(
        "no sync of a log that a repair wrote",
        lambda: Mending(damage_a_block),
        frozenset({SYNCED}),
        _with(no_sync=_named(".parquet")),
    ),
    Bug(
        "a repair overwrites what lies in a log's place",
        lambda: Mending(swap_logs),
        frozenset({KEPT}),
        seeded=lambda: patch.object(log_repairs, "_make_room", lambda *_: None),
    ),
    Bug(
        "a damaged journal is rolled over and no loss noted",
        lambda: Mending(damage_a_journal),
        frozenset({KEPT}),
        seeded=_nothing_is_noted,
    ),
    Bug("no sync of how far the scrub is", Scrubbing, frozenset({FILES}), _with(no_sync=_named("scrub"))),
]


def table() -> list_of[tuple[str, list_of[bool]]]:
    """Return for each bug which mode finds it."""
    rows = []
    for bug in BUGS:
        outcome = bug.found(*CrashMode)
        rows.append((bug.name, [mode in outcome.alarms for mode in CrashMode]))
    return rows


if __name__ == "__main__":
    print("| seeded bug |", *(f"{mode.value} |" for mode in CrashMode))  # noqa: T201
    for name, found in table():
        print(f"| {name} |", *("found |" if each else "– |" for each in found))  # noqa: T201
