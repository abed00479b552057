"""Merging: any journals give the events sorted by id, cut by size alone; damaged and empty journals do no harm."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.eventlog.bulk import tables, write_journals
from custody.clock import ManualClock
from custody.config import SETTINGS_FILE, Settings
from custody.errors import CorruptionError, FormatVersionError
from custody.eventlog import EventLog, read_staged
from custody.eventlog.blocks import encoded_bytes
from custody.format.names import UNIT_MANIFEST
from custody.journal.encoding import EventRecord
from custody.recovery import STEPS
from custody.repository import Repository
from custody.rollover import merge
from custody.vfs import FileSystem
from custody.vfs.memory import MemoryFileSystem
from custody.workspace import Unit, UnitManifest, Workspace, staged_path
from tests.support import append, event, flipped, run_steps, unnumbered

ROOT = Path("/repository")
BASE = 400
ALL = pa.concat_tables(tables(BASE, base=BASE))


def settings(target: int) -> Settings:
    return Settings.model_validate({"root": ROOT, "eventlog": {"log_bytes_target": target}})


def roll_over(fs: FileSystem, chosen: Settings) -> list[UnitManifest]:
    for unit in STEPS["rollover"].units(chosen, fs):
        STEPS["rollover"].run(Workspace(chosen, unit.writer, fs), unit)
    return Workspace(chosen, "main", fs).manifests()


@pytest.mark.in_parts(3)
@given(
    rows=st.integers(1, BASE),
    group_events=st.integers(1, 150),
    batch_events=st.integers(1, 60),
    journals=st.integers(1, 5),
    target=st.sampled_from([4096, 20_000, 100_000, 1 << 28]),
    chunk=st.sampled_from([1, 30_000, 1 << 25]),
)
def test_merging_any_journals_gives_their_events_by_id_whatever_the_cuts(
    rows: int, group_events: int, batch_events: int, journals: int, target: int, chunk: int
) -> None:
    fs, chosen = MemoryFileSystem(), settings(target)
    write_journals(
        fs, chosen, [ALL.slice(0, rows)], group_events=group_events, batch_events=batch_events, journals=journals
    )
    with patch.object(merge, "CHUNK_BYTES", chunk):
        manifests = roll_over(fs, chosen)
    workspace = Workspace(chosen, "main", fs)
    found, last = [], -1
    for manifest in manifests:
        folder = workspace.paths.staged_unit(manifest.first_group)
        held: set[int] = set()
        for log in manifest.logs:
            assert log.first_event_id > last
            last = log.last_event_id
            assert log.plain_bytes <= target or log.rows == 1
            found += list(read_staged(fs, staged_path(folder, log), log))
            inside = {first for first in manifest.groups if log.first_event_id <= first <= log.last_event_id}
            assert inside <= set(manifest.groups_of(log))
            held.update(manifest.groups_of(log))
        assert held == set(manifest.groups)
    assert pa.concat_tables(found).combine_chunks().equals(ALL.slice(0, rows).combine_chunks())
    assert [group for manifest in manifests for group in manifest.groups] == list(range(0, rows, group_events))


@pytest.mark.parametrize("chunk", [1, 50_000, 1 << 25])
def test_the_cuts_and_the_logs_do_not_depend_on_the_chunks(tmp_path: Path, chunk: int) -> None:
    logs = []
    for size in (chunk, 1 << 20):
        fs, chosen = MemoryFileSystem(), settings(60_000)
        write_journals(fs, chosen, [ALL], group_events=170, batch_events=13, journals=3)
        with patch.object(merge, "CHUNK_BYTES", size):
            roll_over(fs, chosen)
        for unit in STEPS["compress"].units(chosen, fs):
            STEPS["compress"].run(Workspace(chosen, unit.writer, fs), unit)
        logs.append({path: data for path, data in fs.files().items() if path.suffix in (".parquet", ".toc")})
    assert logs[0] == logs[1]
    assert len(logs[0]) > 6


def test_a_published_unit_fixes_the_choice_of_groups(repository: Repository) -> None:
    for number in range(3):
        append(repository, [event(number)])
    first, second, _ = STEPS["rollover"].units(repository.settings)[0].groups
    workspace = repository.workspace()
    STEPS["rollover"].run(workspace, Unit("main", first, (first, second)))
    [rest] = STEPS["rollover"].units(repository.settings)
    assert rest.groups == (2,)
    # An attempt that had listed all three groups before comes too late.
    before = workspace.manifest(first)
    STEPS["rollover"].run(workspace, Unit("main", first, (0, 1, 2)))
    assert workspace.manifest(first) == before
    run_steps(repository.settings)
    STEPS["rollover"].run(workspace, Unit("main", first, (0, 1, 2)))
    assert workspace.staged() == []
    assert unnumbered(repository.events()) == [event(number) for number in range(3)]


def test_a_group_whose_first_ids_were_cut_off_becomes_live_and_is_swept(repository: Repository) -> None:
    """Ids are given out before the append; those of an append that was never acknowledged stay unused."""
    with repository.writer() as writer:
        writer.append([event(0)])
    [sealed] = repository.settings.root.rglob("*.sealed")
    sealed.rename(sealed.with_name("00000000000000000007.0.sealed"))  # as if 7 had been the first id given out
    run_steps(repository.settings)
    [file] = repository.workspace().catalog.load().files.values()
    assert list(file.groups) == [7]
    assert list(repository.settings.root.rglob("*.sealed")) == []
    assert unnumbered(repository.events()) == [event(0)]
    assert STEPS["rollover"].units(repository.settings) == []


def damaged(repository: Repository, *numbers: int) -> Path:
    """Three records of one event each, some of them damaged."""
    with repository.writer() as writer:
        for number in range(3):
            writer.append([event(number)])
    [path] = repository.settings.root.rglob("*.sealed")
    data = path.read_bytes()
    for number in numbers:
        data = flipped(data, 8 * data.index(f"00000000-0000-4000-8000-{number:012d}".encode()))
    path.write_bytes(data)
    return path


def test_damage_costs_its_record_alone_and_is_kept_and_reported(repository: Repository) -> None:
    path = damaged(repository, 1)
    data = path.read_bytes()
    run_steps(repository.settings, "recover")
    [report] = run_steps(repository.settings, "rollover")
    [entry] = repository.quarantine.entries()
    assert (entry.severity, entry.code, entry.file) == ("error", "journal-damage", str(path))
    raw = repository.quarantine.raw(entry.key)
    assert data[entry.offset : entry.offset + entry.size_bytes] == raw
    assert b"4000-8000-00000000000" in raw
    assert f"{path} @{entry.offset}, {entry.size_bytes} bytes" in (report.note or "")
    run_steps(repository.settings, "compress", "index", "commit", "sweep")
    assert not path.exists()
    assert unnumbered(repository.events()) == [event(0), event(2)]
    assert repository.workspace().catalog.load().next_event_id == 3
    assert len(list(repository.quarantine.entries())) == 1


def test_evidence_is_added_once_however_often_the_step_runs(repository: Repository) -> None:
    damaged(repository, 0, 2)
    [unit] = STEPS["rollover"].units(repository.settings)
    for _ in range(3):
        STEPS["rollover"].run(Workspace(repository.settings, "main", clock=ManualClock(1)), unit)
    assert len(list(repository.quarantine.entries())) == 2


def test_a_group_without_a_whole_event_comes_to_an_end(repository: Repository) -> None:
    path = damaged(repository, 0, 1, 2)
    run_steps(repository.settings, "rollover")
    [manifest] = repository.workspace().manifests()
    assert (manifest.groups, manifest.logs) == ((0,), ())
    assert STEPS["rollover"].units(repository.settings) == []
    run_steps(repository.settings)
    assert not path.exists()
    assert repository.workspace().staged() == []
    assert repository.workspace().catalog.load().revision == -1
    assert sum(len(repository.quarantine.raw(entry.key)) for entry in repository.quarantine.entries()) > 500
    assert all(step.units(repository.settings) == [] for step in STEPS.values())


def test_a_group_without_an_event_goes_with_its_neighbours(repository: Repository) -> None:
    damaged(repository, 0, 1, 2)
    first = append(repository, [event(3)]).start
    run_steps(repository.settings)
    [file] = repository.workspace().catalog.load().files.values()
    assert list(file.groups) == [0, first]
    assert list(repository.settings.root.rglob("*.sealed")) == []
    assert unnumbered(repository.events()) == [event(3)]


class Chunks:
    """Stands in for a group of any size: chunks that are made when they are asked for, and counted while they live."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.made: list[weakref.ref[pa.Table]] = []
        self.most = 0
        self.damage = ()
        self.first_event_id, self.last_event_id, self.rows = 0, count * BASE - 1, count * BASE

    def ranges(self, bytes_max: int) -> list[Sequence[EventRecord]]:
        return [()]

    def chunks(self, bytes_max: int, records: Sequence[EventRecord]) -> Iterator[pa.Table]:
        assert bytes_max <= 64 << 20
        for table in tables(self.rows, base=BASE):
            self.made.append(weakref.ref(table))
            gc.collect()
            self.most = max(self.most, sum(made() is not None for made in self.made))
            yield table


@pytest.mark.in_parts(4)
def test_a_merge_and_a_compression_hold_a_bounded_number_of_chunks(repository: Repository) -> None:
    (repository.settings.root / SETTINGS_FILE).write_text("[eventlog]\nblock_bytes_max = 65536\n")
    repository = Repository.open(repository.settings.root)
    append(repository, [event(0)])
    source = Chunks(12)
    with patch.object(merge, "MergeReader", lambda fs, groups: source):
        run_steps(repository.settings, "rollover")
    assert source.most <= 2
    [manifest] = repository.workspace().manifests()
    [log] = manifest.logs
    assert len(log.batches) == 12
    before = pa.total_allocated_bytes()
    most = 0

    def measured(table: pa.Table, shares: Mapping[str, float]) -> object:
        nonlocal most
        most = max(most, pa.total_allocated_bytes() - before)
        return encoded_bytes(table, shares)

    with patch("custody.eventlog.log_writer.encoded_bytes", measured):
        run_steps(repository.settings, "compress")
    [path] = repository.settings.root.rglob("*.parquet")
    assert EventLog(repository.workspace().fs, path).read(["event_id"]).num_rows == 12 * BASE
    batch_bytes = log.plain_bytes // 12
    assert batch_bytes // 2 < most < 5 * batch_bytes, f"{most} bytes at once, a batch has {batch_bytes}"


@pytest.mark.parametrize(
    ("damage", "error"),
    [
        (lambda data: flipped(data, 300), CorruptionError),
        (lambda data: data[:-1], CorruptionError),
        (lambda data: b"", CorruptionError),
        (lambda data: data + data[8:], CorruptionError),
        (lambda data: data[:7] + b"\x02" + data[8:], FormatVersionError),
    ],
)
def test_a_damaged_manifest_is_refused_and_removing_the_unit_mends_it(
    repository: Repository, damage: Callable[[bytes], bytes], error: type[Exception]
) -> None:
    append(repository, [event(0)])
    run_steps(repository.settings, "rollover")
    path = repository.workspace().paths.staged_unit(0) / UNIT_MANIFEST
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(error, match=str(path)):
        STEPS["compress"].units(repository.settings)
    for file in path.parent.iterdir():
        file.unlink()
    path.parent.rmdir()
    run_steps(repository.settings)
    assert unnumbered(repository.events()) == [event(0)]


def test_an_interrupted_removal_of_a_unit_is_finished(repository: Repository) -> None:
    append(repository, [event(0)])
    run_steps(repository.settings)
    left = repository.workspace().paths.staging / "removing-00000000000000000000-0123"
    left.mkdir()
    (left / "unit").write_bytes(b"")
    run_steps(repository.settings, "sweep")
    assert not left.exists()
    assert STEPS["sweep"].units(repository.settings) == []
