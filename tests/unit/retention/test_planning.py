"""The plan beside a naive model of it: the oldest go first, no more than needed, and nothing that is held."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from custody.catalog import Action, AddFile
from custody.clock import ManualClock
from custody.config import Settings
from custody.config.sections import RetentionSection
from custody.format.names import event_log_path, toc_path
from custody.retention import RetentionPlan, choose_expired, mark_expired, measure_disk
from custody.retention.candidates import ExpiryCandidates
from custody.retention.disk_usage import allocated_bytes
from custody.retention.rules import cutoff_ms
from custody.vfs.memory import MemoryFileSystem
from custody.workspace import Workspace

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
LIMIT = 1 << 20
ROOT = Path("/repository")


@dataclass(frozen=True)
class Log:
    """A made-up log; ages in ms, `size` in bytes."""

    writer: str
    number: int
    oldest: int
    newest: int
    size: int
    is_held: bool

    @property
    def path(self) -> str:
        return event_log_path(self.number, "2026-03-02")


@st.composite
def logs(draw: st.DrawFn) -> list[Log]:
    drawn = []
    for writer in ("one", "two"):
        for number in range(draw(st.integers(0, 6))):
            newest = draw(st.integers(0, 100)) * DAY_MS
            oldest = newest + draw(st.integers(0, 5)) * DAY_MS
            size = draw(st.sampled_from([1, 5_000, 100_000, 400_000]))
            drawn.append(Log(writer, number, oldest, newest, size, draw(st.booleans()) and draw(st.booleans())))
    return drawn


def on_disk(planned: list[Log]) -> MemoryFileSystem:
    """A repository with these logs; their content is of no interest to a plan without rules."""
    fs = MemoryFileSystem()
    settings = Settings.model_validate({"root": ROOT})
    for log in planned:
        workspace = Workspace(settings, log.writer, fs, ManualClock(NOW_MS))
        for path, size in ((log.path, log.size), (toc_path(log.path), 100)):
            fs.make_directory((workspace.paths.home / path).parent)
            fs.write_durably(workspace.paths.home / path, bytes(size))
        file = AddFile(
            path=log.path,
            toc_path=toc_path(log.path),
            size_bytes=log.size,
            rows=1,
            first_event_id=log.number,
            last_event_id=log.number,
            first_event_time_ms=NOW_MS - log.oldest,
            last_event_time_ms=NOW_MS - log.newest,
        )
        workspace.catalog.commit([Action(add_file=file)])
    return fs


def naive(planned: list[Log], used: int, age_max_ms: int | None, percent: int) -> list[tuple[str, str, str]]:
    """Which logs go and why, log by log."""
    free = [log for log in planned if not log.is_held]
    gone = [log for log in free if age_max_ms is not None and NOW_MS - log.newest < cutoff_ms(NOW_MS, age_max_ms)]
    why = [(log.writer, log.path, "age") for log in gone]

    def left() -> int:
        return used - sum(allocated_bytes(log.size) + allocated_bytes(100) for log in gone)

    if used <= LIMIT:
        return why
    queues = {writer: [log for log in planned if log.writer == writer and log not in gone] for writer in ("one", "two")}
    reached = {"one": -(1 << 63), "two": -(1 << 63)}
    while left() > LIMIT * percent // 100 and any(queues.values()):
        heads = [(max(reached[writer], NOW_MS - queue[0].oldest), writer) for writer, queue in queues.items() if queue]
        time, writer = min(heads)
        reached[writer] = time
        log = queues[writer].pop(0)
        if not log.is_held:
            gone.append(log)
            why.append((log.writer, log.path, "size"))
    return why


def plan_of(fs: MemoryFileSystem, planned: list[Log], settings: Settings) -> RetentionPlan:
    held = {(log.writer, log.path) for log in planned if log.is_held}

    def holders(self: ExpiryCandidates, file: AddFile) -> tuple[str, ...]:
        # The logs have no events that a hold could mean; tests/behaviour holds real ones.
        return ("case",) if (self.workspace.writer, file.path) in held else ()

    workspaces = Workspace.all(settings, fs)
    with patch.object(ExpiryCandidates, "holders", holders):
        choice = choose_expired(settings, fs, ManualClock(NOW_MS), workspaces)
        mark_expired(choice)
    return choice.plan


@given(logs(), st.none() | st.integers(1, 60), st.integers(1, 100), st.booleans())
def test_the_plan_is_the_naive_one_and_what_is_marked_is_the_plan(
    found: list[Log], age_max: int | None, percent: int, is_limited: bool
) -> None:
    fs = on_disk(found)
    age = None if age_max is None else f"{age_max} days"
    limit = LIMIT if is_limited else None
    section = RetentionSection(age_max=age, bytes_max=limit, purge_percent=percent)
    settings = Settings.model_validate({"root": ROOT}).model_copy(update={"retention": section})
    used = measure_disk(settings, fs).total_bytes
    plan = plan_of(fs, found, settings)
    expected = naive(found, used if is_limited else 0, None if age_max is None else age_max * DAY_MS, percent)
    assert [(log.writer, log.path, log.why) for log in plan.expiring] == expected
    assert plan.after_bytes == used - sum(log.bytes for log in plan.expiring)
    assert (plan.problem is not None) == (is_limited and plan.after_bytes > LIMIT)
    gone = {(log.writer, log.path) for log in plan.expiring}
    live = {(w.writer, path) for w in Workspace.all(settings, fs) for path in w.catalog.load().files}
    assert live == {(log.writer, log.path) for log in found} - gone
    # What is marked waits for its deletion: a second pass takes nothing in its place.
    again = plan_of(fs, found, settings)
    assert again.expiring == ()
    assert again.waiting_bytes == sum(log.bytes for log in plan.expiring)
