"""Units are merged, compressed and indexed where no disk of the repository is: only the object store is shared."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from custody.clock import SystemClock
from custody.config import Settings
from custody.errors import ConfigurationError, SupersededError
from custody.lease import Attempt
from custody.maintenance.maintenance_steps import MAINTENANCE_STEPS, MaintenanceUnit
from custody.maintenance.scrub import read_scrub, scrub_once
from custody.model import Event
from custody.recovery import STEPS
from custody.repository import Repository
from custody.repository.local_pass import LocalUnits
from custody.spark.executor import execute, units_away
from custody.spark.executor import run_on_executors as run_away
from custody.spark.job import SparkUnits
from custody.store import ObjectStore
from custody.store.remote import RemoteStore
from custody.vfs import PosixFileSystem
from custody.workspace import Start, StepReport, UnitReport, Workspace, run_step, take_rollover
from custody.workspace.step import Step, Unit
from tests.support import append, flipped, numbered, sample

EVENTS = sample(24)


class OwnDisks:
    """Does units as the executors of a cluster do: each in a folder of its own, from settings and unit as JSON."""

    def __init__(self, times: int = 1) -> None:
        self.times = times

    def start(self, step: Step, settings: Settings, units: Sequence[Unit]) -> Start:
        return Start()

    def run(self, step: Step, settings: Settings, units: Sequence[Unit], epochs: Mapping[str, int]) -> list[UnitReport]:
        if not step.needs_store_only:
            return LocalUnits().run(step, settings, units, epochs)

        def collect(sent: Sequence[Unit]) -> Sequence[bytes]:
            tasks = [msgspec.json.encode(unit) for unit in sent]
            done = [execute(step.name, settings.to_json(), epochs, task) for task in tasks for _ in range(self.times)]
            return done[:: self.times]

        return run_away(step, settings, units, epochs, collect)


@pytest.fixture
def executor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The disk of the executors."""
    monkeypatch.setenv("CUSTODY_EXECUTOR_FOLDER", str(tmp_path / "executor"))
    return tmp_path / "executor"


def new_root(root: Path, store: str = "", *, log_bytes: int = 9000, merge_bytes: int = 1 << 28) -> Path:
    root.mkdir(parents=True)
    (root / "custody.toml").write_text(
        f'[repository]\nstore = "{store or f"memory://{uuid4().hex}"}"\nstaging = "store"\n'
        f'[journal]\nhandoff = "store"\n[eventlog]\nlog_bytes_target = {log_bytes}\nblock_bytes_max = 4096\n'
        f"merge_bytes_max = {merge_bytes}\n"
        "[catalog]\ncheckpoint_every = 1\n"
    )
    return root


def lose_disk(root: Path) -> None:
    """What a machine has but its settings is gone; the next one has other containers."""
    settings = (root / "custody.toml").read_text()
    shutil.rmtree(root)
    root.mkdir()
    (root / "custody.toml").write_text(settings)


def produced(root: Path, events: Sequence[Event], parts: int = 2, *, rows: int = 1000, is_lost: bool = True) -> Path:
    size = len(events) // parts
    for part in range(parts):
        with Repository.open(root).writer() as writer:
            for start in range(part * size, (part + 1) * size, rows):
                writer.append(events[start : min(start + rows, (part + 1) * size)])
    assert sum(group.events for group in Repository.open(root).hand_over()) == len(events)
    if is_lost:
        lose_disk(root)
    return root


def run_on_executors(root: Path, *names: str, times: int = 1) -> dict[str, StepReport]:
    settings = Repository.open(root).settings
    steps = {**STEPS, **MAINTENANCE_STEPS}
    return {
        name: run_step(steps[name], settings, OwnDisks(times), Attempt.new("test")) for name in names or tuple(STEPS)
    }


def store_of(root: Path) -> ObjectStore:
    return Workspace(Repository.open(root).settings, "main").catalog.objects.store


def check(root: Path, events: Sequence[object]) -> None:
    """A machine with an empty disk reads what was appended, and nothing waits or is left in the store."""
    lose_disk(root)
    repository = Repository.open(root)
    assert list(repository.events(count=1000)) == numbered(events)  # type: ignore[arg-type]
    assert repository.search("", limit=0).total == len(events)
    sends = [event for event in numbered(events)[::-1] if event.event_type == "SEND"]  # type: ignore[arg-type]
    assert [item.event for item in repository.search("event_type:SEND", limit=100).events] == sends
    assert not list(store_of(root).keys("main/provenance/staging/"))
    assert not list(store_of(root).keys("main/provenance/handoff/"))


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_pass_needs_the_store_alone_also_where_each_unit_is_done_twice(
    tmp_path: Path, executor: Path, times: int
) -> None:
    root = produced(new_root(tmp_path / "machine"), EVENTS)
    done: dict[str, StepReport] = {}
    for name in STEPS:
        # Each step has a driver on a machine of its own.
        lose_disk(root)
        done |= run_on_executors(root, name, times=times)
    assert all(report.failed == 0 for report in done.values()), [report.line() for report in done.values()]
    assert done["compress"].units > 1
    assert not list(executor.iterdir())
    assert all(name.startswith("memory://") for name in done["index"].files)
    check(root, EVENTS)


def objects(store: ObjectStore, prefix: str) -> Iterator[tuple[str, bytes]]:
    yield from ((key, store.get(key)) for key in store.keys(prefix))


@pytest.mark.parametrize("times", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_large_group_is_merged_by_ranges_on_executors_that_read_no_more_than_these(
    tmp_path: Path, executor: Path, times: int
) -> None:
    one = produced(new_root(tmp_path / "one", merge_bytes=4096), sample(96), parts=1, rows=3)
    root = produced(new_root(tmp_path / "machine", merge_bytes=4096), sample(96), parts=1, rows=3)
    settings = Repository.open(one).settings
    assert run_step(STEPS["rollover"], settings, LocalUnits(), Attempt.new("test")).failed == 0
    report = run_on_executors(root, "rollover", times=times)["rollover"]
    assert (report.units, report.failed, report.events) == (1, 0, 96), report.line()
    [unit] = report.details
    assert int(str(unit.note).rpartition("merged in ")[2].split()[0]) > 4
    # Events have the names and the bytes of those that one process merged; the parts stay beside them until the sweep.
    staged = [dict(objects(store_of(each), "main/provenance/staging/")) for each in (one, root)]
    events = [{key: data for key, data in each.items() if re.search("/[0-9a-f]{64}$", key)} for each in staged]
    assert events[0] == events[1]
    assert len(events[1]) > 4
    assert sum(key.endswith(".part") for key in staged[1]) > 4
    journals = sum(info.size_bytes for info in store_of(root).list("main/provenance/handoff/"))
    assert unit.store is not None
    # Each range is read for itself: all of them are the journals once, with their heads, and what the driver reads.
    assert unit.store.bytes_read < times * 2 * journals + 200_000
    assert not list(executor.iterdir())
    lose_disk(root)
    for name in list(STEPS)[2:]:
        assert run_on_executors(root, name)[name].failed == 0
    check(root, sample(96))


@pytest.mark.slow
def test_logs_are_joined_and_shards_rebuilt_on_executors(
    tmp_path: Path, executor: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = produced(new_root(tmp_path / "machine"), EVENTS, is_lost=False)
    run_on_executors(root)
    (root / "custody.toml").write_text((root / "custody.toml").read_text().replace("9000", "1000000"))
    assert run_on_executors(root, "compact")["compact"].failed == 0
    assert len(Workspace(Repository.open(root).settings, "main").catalog.load().files) == 1
    monkeypatch.setenv("CUSTODY__INDEX__ATTRIBUTES", '["filename"]')
    report = run_on_executors(root, "rebuild")["rebuild"]
    assert (report.units, report.failed) == (1, 0), report.line()
    assert run_on_executors(root, "rebuild")["rebuild"].units == 0
    assert not list(executor.iterdir())
    check(root, EVENTS)


def flip(store: ObjectStore, ending: str) -> None:
    key = next(key for key in store.keys("main/provenance/") if key.endswith(ending))
    data = store.get(key)
    store.put(key, flipped(data, 4 * len(data)))


def test_executors_read_what_is_due_in_the_store_and_the_driver_what_lies_on_its_disks(
    tmp_path: Path, executor: Path
) -> None:
    root = produced(new_root(tmp_path / "machine"), EVENTS)
    (root / "custody.toml").write_text((root / "custody.toml").read_text() + "[maintenance]\nscrub_days = 1\n")
    run_on_executors(root)
    for ending in (".parquet", ".toc", ".shard"):
        flip(store_of(root), ending)
    lose_disk(root)
    settings = Repository.open(root).settings
    step = MAINTENANCE_STEPS["scrub"]
    units = step.units(settings)
    away = {
        unit.piece.kind
        for unit in units_away(step, settings, units)
        if isinstance(unit, MaintenanceUnit) and unit.piece
    }
    assert away == {"log", "shard"}
    assert len(units_away(step, settings, units)) < len(units)
    spread = read_scrub(settings, PosixFileSystem())
    # A day's part is everything, but for units without bytes behind it: each run takes the next one.
    while spread.former is None:
        report = run_on_executors(root, "scrub")["scrub"]
        assert report.units
        assert not report.failed
        spread = read_scrub(settings, PosixFileSystem())
    assert not list(executor.iterdir())
    lose_disk(root)
    assert scrub_once(settings, PosixFileSystem(), SystemClock(), whole=True).former is not None
    alone = read_scrub(settings, PosixFileSystem())
    assert [(item.kind, item.path, item.message) for item in spread.latest()] == [
        (item.kind, item.path, item.message) for item in alone.latest()
    ]
    kinds = {item.kind for item in spread.latest()}
    assert {"log-damaged", "toc-damaged", "shard-damaged"} <= kinds


@pytest.mark.slow
def test_logs_are_not_joined_while_a_container_of_the_driver_is_missing(tmp_path: Path, executor: Path) -> None:
    root = produced(new_root(tmp_path / "machine"), EVENTS, is_lost=False)
    run_on_executors(root)
    lose_disk(root)
    (root / "custody.toml").write_text((root / "custody.toml").read_text().replace("9000", "1000000"))
    report = run_on_executors(root, "compact")["compact"]
    assert report.failed == report.units
    assert "is missing" in str(report.details[0].error)


def test_an_executor_of_an_attempt_that_was_overtaken_changes_nothing(tmp_path: Path, executor: Path) -> None:
    root = produced(new_root(tmp_path / "machine"), EVENTS)
    settings = Repository.open(root).settings
    former = take_rollover(settings, "main", Attempt("task", 1))
    unit = STEPS["rollover"].units(settings)[0]
    # From another machine: only the store says who holds the lease.
    lose_disk(root)
    later = take_rollover(settings, "main", Attempt("task", 2))
    assert later.epoch > former.epoch
    report = msgspec.json.decode(
        execute("rollover", settings.to_json(), {"main": former.epoch}, msgspec.json.encode(unit)), type=UnitReport
    )
    assert report.error_kind == SupersededError.kind
    assert not list(store_of(root).keys("main/provenance/staging/"))
    later.release()
    run_on_executors(root)
    check(root, EVENTS)


def test_damaged_records_are_left_to_the_driver_which_keeps_them(tmp_path: Path, executor: Path) -> None:
    root = new_root(tmp_path / "machine")
    repository = Repository.open(root)
    append(repository, EVENTS)
    [journal] = (root / "containers").rglob("*.sealed")
    journal.write_bytes(flipped(journal.read_bytes(), 8 * (journal.stat().st_size - 40)))
    repository.hand_over()
    settings = repository.settings
    lease = take_rollover(settings, "main", Attempt.new("test"))
    [unit] = STEPS["rollover"].units(settings)
    epochs = {"main": lease.epoch}
    away = execute("rollover", settings.to_json(), epochs, msgspec.json.encode(unit))
    assert msgspec.json.decode(away, type=UnitReport).error_kind == "lasting-disk"
    assert not list(store_of(root).keys("main/provenance/staging/"))
    [report] = OwnDisks().run(STEPS["rollover"], settings, [unit], epochs)
    assert report.error is None
    assert "damage kept in the quarantine" in str(report.note)
    assert list(settings.quarantine.rglob("*"))


def test_a_log_that_another_attempt_replaced_is_not_listed(tmp_path: Path, executor: Path) -> None:
    root = produced(new_root(tmp_path / "machine"), EVENTS)
    run_on_executors(root, "rollover", "compress", "index")
    store = store_of(root)
    key = next(key for key in store.keys("main/provenance/data/") if key.endswith(".parquet"))
    data = store.get(key)
    store.put(key, data[:100] + bytes(8) + data[108:-300] + data[-200:])
    report = run_on_executors(root, "commit")["commit"]
    assert report.failed == 1
    assert f"{key.rpartition('/')[2]}" in str(report.details[0].error)
    again = run_on_executors(root, "compress", "commit", "sweep")
    assert all(step.failed == 0 for step in again.values()), [
        unit.error for step in again.values() for unit in step.details
    ]
    check(root, EVENTS)


@pytest.mark.slow
def test_objects_of_a_unit_that_came_too_late_are_swept(tmp_path: Path, executor: Path) -> None:
    root = produced(new_root(tmp_path / "machine"), EVENTS)
    run_on_executors(root, "rollover")
    store = store_of(root)
    late = {key: store.get(key) for key in store.keys("main/provenance/staging/") if not key.endswith("/unit")}
    run_on_executors(root, *list(STEPS)[2:])
    for key, data in late.items():
        store.put(key, data)
    assert run_on_executors(root, "sweep")["sweep"].units >= 1
    check(root, EVENTS)


def test_steps_that_work_on_disks_stay_in_the_driver(tmp_path: Path) -> None:
    settings = Repository.open(new_root(tmp_path / "machine")).settings
    settings = settings.model_copy(update={"spark": settings.spark.model_copy(update={"driver_bytes_max": 0})})
    assert str(SparkUnits().start(STEPS["sweep"], settings, [Unit("main")]).place).startswith("driver: the step works")


@pytest.mark.parametrize("lines", ["", 'store = "memory://x"\n'])
def test_staging_in_the_store_needs_a_store_and_the_hand_over(tmp_path: Path, lines: str) -> None:
    (tmp_path / "custody.toml").write_text(f'[repository]\nstaging = "store"\n{lines}')
    with pytest.raises(ConfigurationError, match=r"journal\.handoff"):
        Repository.open(tmp_path)


class _CutError(BaseException):
    """The process ends here: nothing catches it."""


_EFFECTS = ("put_if_absent", "put", "delete", "move")


@contextmanager
def failing(number: int, *, arrived: bool) -> Iterator[list[str]]:
    """End the process at one effect on the store, before the store has it, or after and without the answer."""
    seen: list[str] = []

    def wrapped(name: str) -> object:
        inner = getattr(RemoteStore, name)

        def call(store: RemoteStore, key: str, *more: object) -> object:
            seen.append(f"{name} {key}")
            if len(seen) - 1 != number:
                return inner(store, key, *more)
            if arrived:
                inner(store, key, *more)
            raise _CutError(seen[-1])

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in _EFFECTS:
            patch.setattr(RemoteStore, name, wrapped(name))
        yield seen


def every_cut(folder: Path, *, parts: int = 2, merge_bytes: int = 1 << 28, names: Sequence[str] = ()) -> int:
    number = count = 0
    while number <= count:
        for arrived in (False, True):
            root = produced(new_root(folder / f"{number}-{arrived}", merge_bytes=merge_bytes), EVENTS, parts, rows=2)
            with failing(number, arrived=arrived) as seen, suppress(_CutError):
                run_on_executors(root, *names)
            count = len(seen)
            # The next pass is another machine's.
            lose_disk(root)
            settings = Repository.open(root).settings
            for name in STEPS:
                report = run_step(STEPS[name], settings, OwnDisks(), Attempt.new("next"), take_over=True)
                assert report.failed == 0, f"{seen[number : number + 1]}: {report.line()}"
            check(root, EVENTS)
        number += 1
    return number


@pytest.mark.slow
def test_a_pass_that_ends_at_any_effect_on_the_store_is_made_whole_on_another_machine(
    tmp_path: Path, executor: Path
) -> None:
    assert every_cut(tmp_path) > 20


@pytest.mark.slow
def test_a_large_merge_that_ends_at_any_effect_on_the_store_is_made_whole_on_another_machine(
    tmp_path: Path, executor: Path
) -> None:
    assert every_cut(tmp_path, parts=1, merge_bytes=4096, names=["rollover"]) >= 12
