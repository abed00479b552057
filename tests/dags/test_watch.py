"""The watcher in Airflow's own stream of events: its mark follows what Airflow says it has kept, and nothing else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from custody.errors import ConfigurationError
from custody.repository import Repository
from custody.rollover import read_mark
from custody.vfs import PosixFileSystem
from tests.support import append, event

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")

POKE_SECONDS = 0.02
TRIGGER = 1


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> None:
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path))


class Triggerer:
    """What Airflow's triggerer does with a trigger, without its database."""

    def __init__(self, repository: Repository, *, ack_timeout: float = 60) -> None:
        import structlog
        from airflow.triggers.shared_stream import SharedStreamManager

        from custody_airflow.watch import JournalWatch

        self.trigger = JournalWatch(str(repository.settings.root), POKE_SECONDS, 900)
        self.manager = SharedStreamManager(log=structlog.get_logger(), ack_timeout=ack_timeout)
        self.key = self.trigger.shared_stream_key()
        self.seen: asyncio.Queue[tuple[dict[str, Any], int | None]] = asyncio.Queue()

    async def run(self) -> None:
        stream = self.manager.subscribe(trigger_id=TRIGGER, trigger=self.trigger, key=self.key)
        async for fired in self.trigger.filter_shared_stream(stream):
            await self.seen.put((fired.payload, self.manager.bind_pending_event(trigger_id=TRIGGER, key=self.key)))

    async def next(self) -> tuple[dict[str, Any], int]:
        payload, number = await asyncio.wait_for(self.seen.get(), 20)
        assert number is not None, "Airflow would not confirm this event"
        return payload, number


@asynccontextmanager
async def triggerer(repository: Repository) -> AsyncIterator[Triggerer]:
    """A triggerer that is killed at the end: nothing more is confirmed."""
    made = Triggerer(repository)
    task = asyncio.create_task(made.run())
    try:
        yield made
    finally:
        task.cancel()
        await made.manager.stop_all()


def mark(repository: Repository) -> dict[str, int]:
    return read_mark(PosixFileSystem(), repository.settings.watch_mark).groups


async def until(repository: Repository, expected: dict[str, int]) -> None:
    for _ in range(1000):
        if mark(repository) == expected:
            return
        await asyncio.sleep(POKE_SECONDS)
    assert mark(repository) == expected


def test_the_mark_is_written_when_airflow_has_kept_the_event_and_not_before(repository: Repository) -> None:
    async def scenario() -> None:
        async with triggerer(repository) as running:
            append(repository, [event(0)])
            payload, number = await running.next()
            assert payload == {"repository": str(repository.settings.root), "groups": {"main": 0}, "again": False}
            await asyncio.sleep(5 * POKE_SECONDS)
            assert mark(repository) == {}
            running.manager.confirm_persisted([number])
            await until(repository, {"main": 0})
            append(repository, [event(1)])
            payload, number = await running.next()
            assert payload["groups"] == {"main": 1}
            running.manager.confirm_persisted([number])
            await until(repository, {"main": 1})

    asyncio.run(scenario())


def test_a_triggerer_that_is_killed_loses_no_event_and_the_next_one_doubles_none(repository: Repository) -> None:
    async def scenario() -> None:
        append(repository, [event(0)])
        async with triggerer(repository) as running:
            _, number = await running.next()
            running.manager.confirm_persisted([number])
            await until(repository, {"main": 0})
            append(repository, [event(1)])
            assert (await running.next())[0]["groups"] == {"main": 1}
        # Killed before the second event was kept, and before a third group was there.
        append(repository, [event(2)])
        async with triggerer(repository) as running:
            payload, number = await running.next()
            assert payload["groups"] == {"main": 2}
            running.manager.confirm_persisted([number])
            await until(repository, {"main": 2})
        async with triggerer(repository) as running:
            await asyncio.sleep(10 * POKE_SECONDS)
            assert running.seen.empty()

    asyncio.run(scenario())


def test_what_airflow_cannot_keep_is_told_again(repository: Repository) -> None:
    from airflow.triggers.shared_stream import AdvanceItem, AdvanceOutcome

    from custody_airflow.watch import JournalStream

    async def scenario() -> None:
        append(repository, [event(0)])
        for outcome in (AdvanceOutcome(acked=0, failed=1), AdvanceOutcome(acked=0, failed=0)):
            stream = JournalStream(str(repository.settings.root), POKE_SECONDS, 900)
            payload, news = await anext(stream.open_stream())
            assert payload["groups"] == {"main": 0}
            with pytest.raises(RuntimeError, match="did not keep"):
                await stream.advance([AdvanceItem(news, outcome)])
            assert mark(repository) == {}

    asyncio.run(scenario())


def test_a_disk_that_is_gone_for_a_while_stops_no_watcher(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from custody.errors import StorageError
    from custody.rollover import change_feed
    from custody_airflow.watch import JournalStream

    looked = 0
    look = change_feed.waiting_groups

    def failing(*arguments: Any) -> dict[str, int]:
        nonlocal looked
        looked += 1
        if looked < 3:
            raise StorageError("the disk is gone")
        return look(*arguments)

    monkeypatch.setattr(change_feed, "waiting_groups", failing)
    append(repository, [event(0)])

    async def scenario() -> None:
        stream = JournalStream(str(repository.settings.root), POKE_SECONDS, 900)
        payload, _ = await anext(stream.open_stream())
        assert payload["groups"] == {"main": 0}

    asyncio.run(scenario())
    assert looked == 3
    assert "the disk is gone" in caplog.text


def test_an_airflow_that_would_confirm_nothing_is_refused(repository: Repository) -> None:
    from custody_airflow.watch import JournalWatch

    async def first() -> object:
        return await anext(JournalWatch(str(repository.settings.root), POKE_SECONDS, 900).run())

    with pytest.raises(ConfigurationError, match=r"shared streams.*Airflow 3\.3"):
        asyncio.run(first())


def test_revisions_are_read_from_the_newest_event_about_the_repository() -> None:
    from custody_airflow.operators import told_revisions

    def told(revision: int, repository: str = "/data/one") -> dict[str, Any]:
        return {"repository": repository, "revisions": {"main": revision}}

    assert told_revisions("/data/one", []) == {}
    assert told_revisions("/data/one", [None, {}, {"from_rest_api": True}]) == {}
    assert told_revisions("/data/one", [{}, told(7), told(6)]) == {"main": 7}
    assert told_revisions("/data/one", [told(90, "/other/one"), told(6)]) == {"main": 6}
