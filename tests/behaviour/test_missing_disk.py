"""A disk that is not mounted for a while: what lies on it is neither forgotten nor gone over, and comes back whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from custody.config import Settings
from custody.errors import StorageError
from custody.maintenance import compact
from custody.repository import Repository
from custody.repository.containers import container_list, forget_container
from custody.vfs import PosixFileSystem
from tests.benchmarks.eventlog.bulk import tables, write_journals
from tests.support import append, event, run_steps

EVENTS = 400


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of a repository on two disks, both of which know the writer."""
    found = Settings.model_validate({"root": tmp_path / "repository", "repository": {"containers": ["disk1", "disk2"]}})
    with Repository(found).writer():
        return found


def ids(settings: Settings) -> list[int]:
    return [found.event_id for found in Repository(settings).events(count=EVENTS * 10)]


def take_out(settings: Settings) -> Path:
    """Take the second disk out; return where it is put."""
    shutil.move(settings.containers[1], settings.root / "away")
    return settings.root / "away"


def put_back(settings: Settings) -> None:
    shutil.rmtree(settings.containers[1], ignore_errors=True)  # a step may have made the folder
    shutil.move(settings.root / "away", settings.containers[1])


def test_a_group_on_two_disks_waits_for_both(settings: Settings) -> None:
    write_journals(PosixFileSystem(), settings, tables(EVENTS), group_events=EVENTS, batch_events=50)
    assert all(list(disk.glob("main/journals/*.sealed")) for disk in settings.containers)
    take_out(settings)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"container [0-9a-f]{32}, last seen at .*disk2, is missing\. Mount it"):
            run_steps(settings)
    put_back(settings)
    run_steps(settings)
    assert ids(settings) == list(range(EVENTS))


def test_groups_around_one_on_a_missing_disk_do_not_become_one_log(settings: Settings) -> None:
    repository = Repository(settings)
    for number in range(3):
        append(repository, [event(number)])
    first = settings.containers[0] / "main/journals/00000000000000000001.0.sealed"
    first.rename(settings.containers[1] / "main/journals" / first.name)
    take_out(settings)
    with pytest.raises(StorageError, match="is missing"):
        run_steps(settings)
    put_back(settings)
    run_steps(settings)
    assert ids(settings) == [0, 1, 2]


def test_logs_around_a_group_on_a_missing_disk_are_not_joined(settings: Settings) -> None:
    repository = Repository(settings)
    append(repository, [event(0)])
    run_steps(settings)
    append(repository, [event(1)])
    append(repository, [event(2)])
    held = settings.containers[0] / "main/journals/00000000000000000001.0.sealed"
    held.rename(settings.root / held.name)  # its disk failed when it was sealed, say, and the next group went before it
    run_steps(settings)
    (settings.root / held.name).rename(settings.containers[1] / "main/journals" / held.name)
    take_out(settings)
    reports = list(compact(repository.workspace()))
    assert reports
    assert all("is missing" in (report.error or "") for report in reports)
    put_back(settings)
    run_steps(settings)
    assert ids(settings) == [0, 1, 2]


def test_what_is_left_goes_on_once_a_lost_disk_is_dropped(settings: Settings) -> None:
    write_journals(PosixFileSystem(), settings, tables(EVENTS), group_events=EVENTS, batch_events=50)
    away = take_out(settings)
    shutil.rmtree(away)
    [lost] = [found for found in container_list(settings) if found.is_missing]
    forget_container(settings, lost.container)
    run_steps(settings)
    left = ids(settings)
    assert 0 < len(left) < EVENTS
