"""Hundreds of sensors that wait in one event loop: they share their looks, and look from threads only."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")

TRIGGERS = 300
POKE_SECONDS = 0.3
LOGS = 12
_LOOKING = ("list", "exists", "is_directory", "size", "modified_ms", "read", "is_locked")


class Calls:
    """What was asked of the file system, and by which threads."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()
        self.folders: Counter[str] = Counter()
        self.threads: set[int] = set()

    def watch(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in _LOOKING:
            monkeypatch.setattr(PosixFileSystem, name, self._counted(name, getattr(PosixFileSystem, name)))

    def _counted(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fs: PosixFileSystem, path: Path) -> Any:
            self.by_name[name] += 1
            self.threads.add(threading.get_ident())
            if name == "list":
                self.folders[path.name] += 1
            return real(fs, path)

        return call


@pytest.fixture
def crowded(repository: Repository) -> Repository:
    """A repository of many live logs in which nothing is left to do."""
    settings = repository.settings
    for number in range(LOGS):
        append(repository, [event(number)])
        run_steps(settings, "rollover", "compress", "index", "commit", "sweep")
    return repository


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Calls:
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path))
    return Calls()


async def fires(trigger: Any) -> dict[str, Any]:
    async for fired in trigger.run():
        payload: dict[str, Any] = fired.payload
        return payload
    raise AssertionError("it ended without an event")


def test_triggers_share_looks_that_touch_small_folders_and_all_fire(
    crowded: Repository, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    from custody_airflow.triggers import JournalTrigger

    root = crowded.settings.root
    assert JournalTrigger.look(root) is None
    calls.watch(monkeypatch)
    JournalTrigger.look(root)
    alone, folders = sum(calls.by_name.values()), set(calls.folders)
    assert not {"data", "transactions", "events"} & folders, "neither logs nor transactions are listed"
    assert alone <= 25
    calls.by_name.clear()

    async def many() -> tuple[float, list[dict[str, Any]]]:
        begun = time.monotonic()
        waiting = [asyncio.create_task(fires(JournalTrigger(str(root), POKE_SECONDS))) for _ in range(TRIGGERS)]
        await asyncio.sleep(5 * POKE_SECONDS)
        assert not any(task.done() for task in waiting)
        seconds = time.monotonic() - begun
        looked = sum(calls.by_name.values())
        assert looked >= 3 * alone, "they do look"
        # Each answer serves for half of the time between two pokes, whoever asks.
        assert looked <= alone * (seconds / (POKE_SECONDS / 2) + 1)
        await asyncio.to_thread(append, crowded, [event(LOGS)])
        return seconds, await asyncio.wait_for(asyncio.gather(*waiting), 60)

    _, fired = asyncio.run(many())
    assert len(fired) == TRIGGERS
    assert {payload["sealed_groups"] for payload in fired} == {1}


def test_looks_leave_the_event_loop_alone(
    repository: Repository, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    from custody_airflow.landing import LandingTrigger
    from custody_airflow.triggers import JournalTrigger

    (repository.settings.root / "custody.toml").write_text('[landing]\nfolder = "landing"\n')
    hour = ("2026-11-10T07:00+00:00", "2026-11-10T08:00+00:00")
    append(repository, [event()])
    calls.watch(monkeypatch)

    async def both() -> tuple[dict[str, Any], dict[str, Any]]:
        root = str(repository.settings.root)
        landing = LandingTrigger(root, *hour, until=0.0, poke_seconds=POKE_SECONDS)
        return await asyncio.gather(fires(JournalTrigger(root, POKE_SECONDS)), fires(landing))

    waits, landed = asyncio.run(both())
    assert (waits["sealed_groups"], landed["files"]) == (1, 0)
    assert calls.threads
    assert threading.get_ident() not in calls.threads


def test_a_look_that_takes_long_is_waited_for_and_one_that_is_cancelled_ends_alone() -> None:
    from custody_airflow.triggers import SharedLooks

    looks: SharedLooks[int] = SharedLooks()
    begun: list[int] = []
    may_end = threading.Event()

    def slow() -> int:
        begun.append(1)
        assert may_end.wait(60)
        return len(begun)

    async def several() -> list[int]:
        asking = [asyncio.create_task(looks.ask("it", slow, 0.0)) for _ in range(3)]
        await asyncio.sleep(0.05)
        asking[0].cancel()
        asking.append(asyncio.create_task(looks.ask("it", slow, 0.0)))
        await asyncio.sleep(0.05)
        may_end.set()
        answers = await asyncio.gather(*asking[1:])
        assert asking[0].cancelled()
        return [*answers, await looks.ask("it", slow, 60.0), await looks.ask("it", slow, 60.0)]

    assert asyncio.run(several()) == [1, 1, 1, 1, 1]
    assert len(begun) == 1
    assert asyncio.run(looks.ask("it", slow, 60.0)) == 2, "an answer ends with its event loop"


def test_an_error_reaches_all_who_share_the_look_and_the_next_look_is_a_new_one() -> None:
    from custody_airflow.triggers import SharedLooks

    looks: SharedLooks[int] = SharedLooks()
    answers: Iterator[ValueError | int] = iter([ValueError("no such folder"), 7])

    def look() -> int:
        answer = next(answers)
        if isinstance(answer, ValueError):
            raise answer
        return answer

    async def several() -> list[object]:
        asking = [looks.ask("it", look, 0.0) for _ in range(3)]
        return [*await asyncio.gather(*asking, return_exceptions=True), await looks.ask("it", look, 0.0)]

    *failed, last = asyncio.run(several())
    assert [str(error) for error in failed] == ["no such folder"] * 3
    assert last == 7
