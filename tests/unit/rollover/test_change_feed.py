"""Announcements of waiting groups: each group once, also over a restart, and again while it waits too long."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from custody.clock import ManualClock
from custody.errors import CorruptionError, FormatVersionError, StorageError
from custody.repository import Repository
from custody.rollover import GroupWatch, WaitingGroups, read_mark
from custody.vfs import FileSystem, PosixFileSystem
from tests.support import FailingFileSystem, append, event, run_steps

AGAIN_MS = 60_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_772_409_600_000)


def opened(repository: Repository, clock: ManualClock, fs: FileSystem | None = None) -> GroupWatch:
    return GroupWatch(fs or PosixFileSystem(), repository.settings, clock, AGAIN_MS)


def groups(news: WaitingGroups | None) -> dict[str, int]:
    assert news is not None
    assert not news.again
    return news.groups


def test_each_sealed_group_is_announced_once(repository: Repository, clock: ManualClock) -> None:
    watch = opened(repository, clock)
    assert watch.poll() is None
    append(repository, [event(0), event(1)])
    news = watch.poll()
    assert groups(news) == {"main": 0}
    assert watch.poll() is None
    append(repository, [event(2)])
    assert groups(watch.poll()) == {"main": 2}
    assert watch.poll() is None
    run_steps(repository.settings)
    assert watch.poll() is None


def test_only_unconfirmed_groups_are_announced_again_after_a_restart(
    repository: Repository, clock: ManualClock
) -> None:
    append(repository, [event(0)])
    watch = opened(repository, clock)
    news = watch.poll()
    assert groups(opened(repository, clock).poll()) == {"main": 0}
    assert news is not None
    watch.confirm(news)
    assert opened(repository, clock).poll() is None
    append(repository, [event(1)])
    assert groups(opened(repository, clock).poll()) == {"main": 1}
    assert read_mark(PosixFileSystem(), repository.settings.watch_mark).groups == {"main": 0}


def test_the_journal_of_a_live_writer_is_no_news_and_that_of_a_dead_one_is(
    repository: Repository, clock: ManualClock
) -> None:
    watch = opened(repository, clock)
    with repository.writer() as writer:
        writer.append([event(0)])
        assert watch.poll() is None
    [sealed] = (repository.settings.containers[0] / "main/journals").glob("*.sealed")
    sealed.rename(sealed.with_suffix(".journal"))
    assert groups(watch.poll()) == {"main": 0}


def test_a_group_that_still_waits_is_announced_again_but_not_at_once_after_a_restart(
    repository: Repository, clock: ManualClock
) -> None:
    append(repository, [event(0)])
    watch = opened(repository, clock)
    first = watch.poll()
    assert first is not None
    watch.confirm(first)
    clock.advance(AGAIN_MS - 1)
    assert watch.poll() is None
    clock.advance(1)
    assert watch.poll() == WaitingGroups(groups={"main": 0}, again=True)
    assert watch.poll() is None
    assert opened(repository, clock).poll() is None
    run_steps(repository.settings)
    clock.advance(10 * AGAIN_MS)
    assert watch.poll() is None


def test_a_mark_that_cannot_be_written_leaves_the_groups_to_be_announced(
    repository: Repository, clock: ManualClock
) -> None:
    append(repository, [event(0)])
    number = 0
    while True:
        number += 1
        fs = FailingFileSystem(fail_at=number)
        watch = opened(repository, clock, fs)
        news = watch.poll()
        assert groups(news) == {"main": 0}
        assert news is not None
        try:
            watch.confirm(news)
        except StorageError:
            told = opened(repository, clock).poll()
            assert told is None or groups(told) == {"main": 0}
            repository.settings.watch_mark.unlink(missing_ok=True)
            continue
        break
    assert number > 3
    assert opened(repository, clock).poll() is None


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"{", CorruptionError),
        (b'{"groups": {"main": "x"}, "version": 1}', CorruptionError),
        (b'{"groups": {}, "version": 2}', FormatVersionError),
    ],
)
def test_a_mark_that_cannot_be_read_is_refused_with_its_path(
    repository: Repository, clock: ManualClock, content: bytes, error: type[Exception]
) -> None:
    path = repository.settings.watch_mark
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(error, match=r"groups\.json"):
        opened(repository, clock)


def test_the_mark_of_other_writers_stays(repository: Repository, clock: ManualClock) -> None:
    path = repository.settings.watch_mark
    path.parent.mkdir()
    path.write_bytes(msgspec.json.encode({"groups": {"other": 7}, "version": 1}))
    append(repository, [event(0)])
    watch = opened(repository, clock)
    news = watch.poll()
    assert news is not None
    watch.confirm(news)
    assert read_mark(PosixFileSystem(), Path(path)).groups == {"other": 7, "main": 0}
