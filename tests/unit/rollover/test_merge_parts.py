"""A large unit that is merged in parts, by whoever and however often, has the files of one that is merged at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.eventlog.bulk import tables, write_journals
from custody.config import Settings
from custody.errors import CorruptionError, NotFoundError
from custody.format.framing import join_records
from custody.format.names import PART_PREFIX, UNIT_MANIFEST, ContainerPaths, JournalName
from custody.journal.encoding import batch_record
from custody.journal.journal_file import (
    KIND_GROUP,
    JournalEnd,
    JournalFile,
    JournalHeader,
    end_record,
    write_header,
)
from custody.lease import Attempt
from custody.maintenance.verification.check_orphans import orphans
from custody.recovery import STEPS
from custody.recovery.leftovers import LeftoverScan
from custody.repository import Repository
from custody.repository.local_pass import LocalUnits
from custody.rollover.rollover_steps import Rollover, RolloverUnit
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from custody.workspace import StepReport, Unit, UnitManifest, UnitReport, Workspace, run_step
from custody.workspace.step import Step
from tests.support import flipped

ROOT = Path("/repository")
BASE = 400
ALL = pa.concat_tables(tables(BASE, base=BASE))


def settings(target: int = 40_000, merged_at_once: int = 40_000) -> Settings:
    options = {"log_bytes_target": target, "merge_bytes_max": merged_at_once}
    return Settings.model_validate({"root": ROOT, "eventlog": options})


def written(
    rows: int = BASE, *, batch_events: int = 7, journals: int = 3, group_events: int = BASE
) -> MemoryFileSystem:
    fs = MemoryFileSystem()
    write_journals(
        fs,
        settings(),
        [ALL.slice(0, rows)],
        group_events=group_events,
        batch_events=batch_events,
        journals=journals,
    )
    return fs


def copy(fs: MemoryFileSystem) -> MemoryFileSystem:
    return fs.crashed(CrashMode.ALL_KEPT)


def at_once(fs: FileSystem, chosen: Settings) -> None:
    for unit in STEPS["rollover"].units(chosen, fs):
        STEPS["rollover"].run(Workspace(chosen, unit.writer, fs), unit)


def in_parts(fs: FileSystem, chosen: Settings, runner: LocalUnits | None = None) -> StepReport:
    return run_step(STEPS["rollover"], chosen, runner or LocalUnits(fs=fs), Attempt.new("test"), take_over=True, fs=fs)


def staged(fs: MemoryFileSystem) -> dict[Path, object]:
    """Return what is staged; of manifests all but the revision, which counts transactions of attempts that failed."""
    found: dict[Path, object] = {}
    for path, data in fs.files().items():
        if "staging" in path.parts and data is not None:
            is_manifest = path.name == UNIT_MANIFEST
            found[path] = msgspec.structs.replace(UnitManifest.decode(data, path), revision=0) if is_manifest else data
    return found


class Noting(LocalUnits):
    """Does units here and keeps their reports; every part `times` times, the last one first."""

    def __init__(self, fs: FileSystem, times: int = 1, only: Sequence[int] = ()) -> None:
        super().__init__(fs=fs)
        self.times = times
        self.only = only
        self.reports: dict[str, UnitReport] = {}

    def run(self, step: Step, settings: Settings, units: Sequence[Unit], epochs: Mapping[str, int]) -> list[UnitReport]:
        for number in [*range(len(units))][::-1] * self.times:
            unit = units[number]
            if self.only and number not in self.only:
                self.reports.setdefault(str(unit), UnitReport(unit=str(unit), error="its worker was lost"))
                continue
            # On its way to a worker and back.
            sent = msgspec.json.decode(msgspec.json.encode(unit), type=step.unit_type)
            [self.reports[str(unit)]] = super().run(step, settings, [sent], epochs)
        return [self.reports[str(unit)] for unit in units]


@pytest.mark.in_parts(4)
@given(
    rows=st.integers(1, BASE),
    group_events=st.integers(50, BASE),
    batch_events=st.integers(1, 60),
    journals=st.integers(1, 5),
    target=st.sampled_from([4096, 20_000, 100_000]),
    most=st.sampled_from([4096, 50_000, 300_000]),
    times=st.integers(1, 2),
)
def test_parts_make_the_very_files_that_one_merge_makes(
    rows: int, group_events: int, batch_events: int, journals: int, target: int, most: int, times: int
) -> None:
    chosen = settings(target, most)
    fs = written(rows, batch_events=batch_events, journals=journals, group_events=group_events)
    other = copy(fs)
    at_once(fs, chosen)
    report = in_parts(other, chosen, Noting(other, times))
    assert report.failed == 0
    assert staged(other) == staged(fs)
    assert report.events == rows
    for manifest in Workspace(chosen, "main", fs).manifests():
        ends = [(log.first_event_id, log.last_event_id) for log in manifest.logs]
        assert all(last < first for (_, last), (first, _) in pairwise(ends))


def test_a_large_unit_has_parts_and_a_report_of_its_own() -> None:
    fs, chosen = written(), settings()
    runner = Noting(fs)
    report = in_parts(fs, chosen, runner)
    assert (report.units, report.events, report.failed) == (1, BASE, 0)
    [unit] = report.details
    assert unit.unit == "main/0"
    assert unit.note is not None
    assert unit.note.endswith(f"merged in {len(runner.reports)} parts")
    assert len(runner.reports) > 8
    assert sum(part.events for part in runner.reports.values()) == BASE
    assert f"main/0, part 2 of {len(runner.reports)}" in runner.reports
    # As many logs as parts: the cut leaves room, so that no part ends with a tiny log.
    [manifest] = Workspace(chosen, "main", fs).manifests()
    assert len(manifest.logs) == len(runner.reports)
    assert not [path for path in fs.files() if PART_PREFIX in str(path)]


@pytest.mark.parametrize("most", [BASE * 2000, 1 << 40])
def test_a_unit_that_is_not_large_is_merged_as_a_whole(most: int) -> None:
    fs = written()
    runner = Noting(fs)
    assert in_parts(fs, settings(merged_at_once=most), runner).failed == 0
    assert list(runner.reports) == ["main/0"]


def test_a_log_larger_than_a_range_is_not_cut_for_it() -> None:
    fs = written()
    runner = Noting(fs)
    in_parts(fs, settings(1 << 28, 4096), runner)
    assert list(runner.reports) == ["main/0"]


def together(fs: MemoryFileSystem, size: int, per_record: int) -> None:
    """Write one journal whose records were written several at once."""
    folder = ContainerPaths(settings().containers[0], "main").journals
    fs.make_directory(folder)
    path = folder / str(JournalName(0, 0, sealed=True))
    header = JournalHeader(writer="main", database="provenance", first_event_id=0, created_ms=0)
    end = JournalEnd(events=0)
    with fs.create(path) as file:
        write_header(file, header)
        records = []
        for start in range(0, BASE, size):
            [batch] = ALL.slice(start, size).combine_chunks().to_batches()
            records.append(batch_record(batch.remove_column(0), start))
            end = end.with_events(start, batch.num_rows)
        for start in range(0, len(records), per_record):
            file.write(join_records(KIND_GROUP, records[start : start + per_record]))
        file.write(end_record(end))
        file.sync()
    fs.sync_directory(folder)


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(("size", "per_record"), [(1, 50), (3, 40), (10, 2), (7, 1)])
def test_records_that_were_written_together_are_cut_apart(size: int, per_record: int) -> None:
    fs = MemoryFileSystem()
    together(fs, size, per_record)
    other, runner = copy(fs), Noting(fs)
    assert in_parts(fs, settings(), runner).failed == 0
    at_once(other, settings())
    assert len(runner.reports) > 8
    assert staged(fs) == staged(other)


def damage(fs: MemoryFileSystem, *places: int) -> Path:
    """Flip a bit in records of the first journal, by their places in it."""
    path = next(path for path in sorted(fs.files()) if path.suffix == ".sealed")
    records = JournalFile.read(fs, path).records
    data = fs.read(path)
    for place in places:
        data = flipped(data, 8 * (records[place].offset + records[place].bytes // 2))
    fs.remove(path)
    fs.write_durably(path, data)
    return path


@pytest.mark.parametrize("joined", [False, True])
def test_damage_costs_its_records_and_is_kept_and_reported_once(joined: bool) -> None:
    fs, chosen = written(), settings()
    if joined:
        fs = MemoryFileSystem()
        together(fs, 2, 40)
    path = damage(fs, 3, 9)
    other = copy(fs)
    [unit] = in_parts(fs, chosen).details
    at_once(other, chosen)
    assert unit.error is None
    # Of records that were written together the mark around them is lost as well.
    pieces = 3 if joined else 2
    assert str(unit.note).count(f"damage kept in the quarantine: {path} @") == pieces
    assert staged(fs) == staged(other)
    assert len(list(Repository(chosen, fs).quarantine.entries())) == pieces
    assert 0 < BASE - unit.events < 20


class Damaging(Noting):
    """A journal is damaged when its unit is divided already."""

    def run(self, step: Step, settings: Settings, units: Sequence[Unit], epochs: Mapping[str, int]) -> list[UnitReport]:
        assert isinstance(self._fs, MemoryFileSystem)
        self.path = damage(self._fs, 3)
        return super().run(step, settings, units, epochs)


def test_damage_behind_the_division_fails_the_unit_and_the_next_pass_keeps_it() -> None:
    fs, chosen = written(), settings()
    runner = Damaging(fs)
    report = in_parts(fs, chosen, runner)
    [unit] = report.details
    assert unit.error_kind == CorruptionError.kind
    assert f"{runner.path} @" in str(unit.error)
    assert "part 4 of" in str(unit.error)
    assert not Workspace(chosen, "main", fs).staged()
    [unit] = in_parts(fs, chosen).details
    assert unit.error is None
    assert BASE - unit.events == 7
    other = written()
    damage(other, 3)
    at_once(other, chosen)
    assert staged(fs) == staged(other)


def test_parts_of_an_attempt_that_ended_are_used_by_the_next_one() -> None:
    fs, chosen = written(), settings()
    report = in_parts(fs, chosen, Noting(fs, only=[1, 4]))
    assert report.failed == 1
    assert "its worker was lost" in str(report.details[0].error)
    workspace = Workspace(chosen, "main", fs)
    assert not workspace.staged()
    assert len([name for name in fs.list(workspace.paths.staging) if name.startswith(PART_PREFIX)]) == 2
    assert not list(orphans([workspace], chosen, fs)), "the next attempt uses them"
    assert not list(LeftoverScan(workspace)._staging())
    runner = Noting(fs)
    assert in_parts(fs, chosen, runner).failed == 0
    kept = [name.partition(", ")[2] for name, part in runner.reports.items() if part.note == "merged already"]
    assert sorted(name.split()[1] for name in kept) == ["2", "5"]
    other = written()
    at_once(other, chosen)
    assert staged(fs) == staged(other)


def test_parts_of_other_settings_or_other_records_are_never_used_and_go() -> None:
    fs, chosen = written(), settings()
    in_parts(fs, settings(50_000), Noting(fs, only=[0, 1]))
    runner = Noting(fs)
    assert in_parts(fs, chosen, runner).failed == 0
    assert not [part for part in runner.reports.values() if part.note == "merged already"]
    other = written()
    at_once(other, chosen)
    assert staged(fs) == staged(other)
    # A journal that is whole again has more records than the part that was merged without them.
    fs = written()
    path = next(path for path in sorted(fs.files()) if path.suffix == ".sealed")
    data = fs.read(path)
    damage(fs, 0)
    in_parts(fs, chosen, Noting(fs, only=[0]))
    fs.write_durably(path, data)
    assert in_parts(fs, chosen).events == BASE
    assert staged(fs) == staged(other)


def test_a_part_that_is_gone_when_they_are_joined_is_named() -> None:
    class Losing(Noting):
        def run(
            self, step: Step, settings: Settings, units: Sequence[Unit], epochs: Mapping[str, int]
        ) -> list[UnitReport]:
            done = super().run(step, settings, units, epochs)
            folder = Workspace(settings, "main", fs).paths.staging
            fs.remove_tree(folder / next(name for name in fs.list(folder) if name.startswith(PART_PREFIX)))
            return done

    fs, chosen = written(), settings()
    [unit] = in_parts(fs, chosen, Losing(fs)).details
    assert unit.error_kind == NotFoundError.kind
    assert "is gone" in str(unit.error)
    assert in_parts(fs, chosen).events == BASE


def test_a_part_that_comes_behind_its_unit_is_found_and_removed() -> None:
    fs, chosen = written(), settings()
    in_parts(fs, chosen, Noting(fs, only=[2]))
    late = {path: data for path, data in fs.files().items() if PART_PREFIX in str(path) and data is not None}
    assert in_parts(fs, chosen).failed == 0
    for path, data in late.items():
        fs.make_directory(path.parent)
        fs.write_durably(path, data)
    workspace = Workspace(chosen, "main", fs)
    [finding] = orphans([workspace], chosen, fs)
    assert finding.kind == "attempt"
    [left] = LeftoverScan(workspace)._staging()
    assert (left.what, left.action) == ("merged part of a unit", "discard")
    assert Repository(chosen, fs).recover()
    assert not [path for path in fs.files() if PART_PREFIX in str(path)]


def test_a_unit_that_cannot_be_divided_says_why_and_others_are_merged() -> None:
    fs, chosen = written(group_events=BASE // 2), settings(20_000, 20_000)

    class Refusing(Rollover):
        def divide(self, workspace: Workspace, unit: Unit) -> list[Unit]:
            if unit.first_event_id == 0:
                raise CorruptionError("a journal of it")
            return super().divide(workspace, unit)

        def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
            if not isinstance(unit, RolloverUnit):
                raise CorruptionError("a journal of it")
            return super().run(workspace, unit)

    report = run_step(Refusing(), chosen, LocalUnits(fs=fs), Attempt.new("test"), take_over=True, fs=fs)
    assert [unit.error for unit in report.details] == ["CorruptionError: a journal of it", None]
    assert report.events == BASE // 2
