"""Fixtures of the retention tests: a repository whose clock a test sets, and logs of chosen days."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from custody.clock import ManualClock
from custody.config import Settings
from custody.model import Event
from custody.repository import Repository
from custody.rollover import STEPS
from custody.vfs import FileSystem, PosixFileSystem
from custody.workspace import Workspace
from tests.support import event

DAY_MS = 86_400_000
START_MS = 1_772_409_600_000
"""The time of event 0: midnight, 2 March 2026."""


def repository_at(root: Path, days: float, fs: FileSystem | None = None, **retention: Any) -> Repository:
    """The repository in a folder, so many days after event 0, with these settings of retention."""
    root.mkdir(exist_ok=True)
    (root / "custody.toml").touch()
    settings = Settings.model_validate({"root": root, "retention": {"grace": "0 seconds", **retention}})
    return Repository(settings, fs or PosixFileSystem(), ManualClock(START_MS + int(days * DAY_MS)))


def on_day(number: int, day: float, **values: Any) -> Event:
    """An event of a day, counted from event 0's."""
    return event(number, event_time=START_MS + int(day * DAY_MS) + number, **values)


def store(repository: Repository, *logs: Iterable[Event]) -> None:
    """Make a live log of each group of events."""
    for events in logs:
        with repository.writer() as writer:
            writer.append(list(events))
        pass_of(repository)


def pass_of(repository: Repository) -> None:
    """Roll over what waits, with the repository's own clock."""
    for step in STEPS.values():
        for unit in step.units(repository.settings):
            step.run(Workspace(repository.settings, unit.writer, PosixFileSystem(), repository._clock), unit)


def ids(repository: Repository) -> list[int]:
    """The ids that are given out, by reading and by searching, which must agree."""
    listed = [event.event_id for event in repository.events()]
    searched = repository.search("")
    assert searched.total == len(listed)
    assert sorted(stored.event.event_id for stored in searched.events) == listed
    return listed


def logs_on_disk(repository: Repository) -> set[str]:
    """The event logs that lie on disk, listed or not."""
    home = repository.workspace().paths.home
    return {str(path.relative_to(home)) for path in home.rglob("*.parquet") if "transactions" not in path.parts}
