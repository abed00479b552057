"""A disk that is not mounted for a while: its events are neither dropped nor passed over, and come back whole."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from benchmarks.eventlog.bulk import tables, write_journals
from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import CustodyError, NotFoundError, StorageError
from custody.journal import read_end
from custody.maintenance import compact
from custody.maintenance.findings import Level
from custody.maintenance.verification import verify_repository
from custody.recovery import STEPS
from custody.repository import Repository
from custody.repository.containers import container_statuses, forget_container
from custody.repository.soft_delete import EventSelection
from custody.vfs import PosixFileSystem
from tests.support import append, event, run_steps
from tests.unit.capture.json_documents import document
from tests.unit.ingest.test_ingest import write

EVENTS = 400


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Of a repository on two disks, both of which know the writer."""
    loaded = Settings.model_validate(
        {"root": tmp_path / "repository", "repository": {"containers": ["disk1", "disk2"]}}
    )
    with Repository(loaded).writer():
        return loaded


def ids(settings: Settings) -> list[int]:
    return [event.event_id for event in Repository(settings).events(count=EVENTS * 10)]


def take_out(settings: Settings) -> Path:
    """Take the second disk out; return where it is put."""
    shutil.move(settings.containers[1], settings.root / "away")
    return settings.root / "away"


def put_back(settings: Settings) -> None:
    shutil.rmtree(settings.containers[1], ignore_errors=True)  # a step may have made the folder
    shutil.move(settings.root / "away", settings.containers[1])


@pytest.mark.in_parts(2)
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
    [lost] = [status for status in container_statuses(settings) if status.is_missing]
    forget_container(settings, lost.container)
    run_steps(settings)
    left = ids(settings)
    assert 0 < len(left) < EVENTS


def write_documents(path: Path, ordinals: range) -> Path:
    return write(path, *(document("SEND", eventOrdinal=number) for number in ordinals))


def found_kinds(settings: Settings, level: Level = Level.DEFAULT) -> list[str]:
    report = verify_repository(Repository(settings).workspaces(), settings, PosixFileSystem(), level)
    return [item.kind for item in report.findings if item.severity == "damage"]


def test_no_source_is_taken_while_a_disk_is_away_that_may_hold_its_events(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {"root": tmp_path / "repository", "repository": {"containers": ["disk1", "disk2"], "writer_slots": 2}}
    )
    path = write_documents(tmp_path / "a.json", range(40))
    with Repository(settings).ingest() as held:  # slot main, on both disks
        assert held.file(path).stored == 40
        take_out(settings)
        with Repository(settings).ingest() as work:  # slot main-2, which was never on the second one
            for _ in range(2):
                with pytest.raises(StorageError, match=r"writer 'main': container [0-9a-f]{32}, .*disk2, is missing"):
                    work.file(path)
        assert Repository(settings).append([event(99)]).writer == "main-2"  # producers go on elsewhere
        assert not settings.containers[1].exists(), "the disk would hide it"
        put_back(settings)
        with Repository(settings).ingest() as work:
            report = work.file(path)
        assert (report.stored, report.repeated) == (0, 40)
    assert Repository(settings).search("").total == 41


def test_a_disk_that_goes_away_in_the_middle_of_an_ingest_stops_it_and_nothing_is_stored_twice(
    settings: Settings, tmp_path: Path
) -> None:
    paths = [write_documents(tmp_path / f"{number}.json", range(30 * number, 30 * number + 30)) for number in range(3)]
    with Repository(settings).ingest() as work:
        assert work.file(paths[0]).stored == 30
        take_out(settings)
        with suppress(CustodyError):
            for path in paths[1:]:
                work.file(path)
        with suppress(CustodyError):
            work.file(paths[2])
    put_back(settings)
    with Repository(settings).ingest() as work:
        reports = [work.file(path) for path in paths]
    assert [report.stored + report.repeated for report in reports] == [30] * 3
    assert Repository(settings).search("").total == 90


def test_no_step_makes_a_folder_where_the_disk_is_missing(settings: Settings) -> None:
    repository = Repository(settings)
    for number in range(8):  # shards on both disks
        append(repository, [event(number)])
        run_steps(settings)
    assert list(settings.containers[1].glob("main/index/*"))
    append(repository, [event(9)])
    run_steps(settings, "rollover", "compress")
    take_out(settings)
    for name in STEPS:
        with suppress(StorageError):
            run_steps(settings, name)
    for stale_only in (True, False):
        with pytest.raises(StorageError, match="is missing"):
            list(repository.rebuild_index(stale_only=stale_only))
    with pytest.raises(StorageError, match="is missing"):
        append(repository, [event(10)])
    assert not settings.containers[1].exists()
    put_back(settings)
    run_steps(settings)
    assert ids(settings) == list(range(9))
    assert found_kinds(settings) == []


def test_every_answer_names_a_disk_that_is_away(settings: Settings) -> None:
    repository = Repository(settings)
    append(repository, [event(0)])
    run_steps(settings)
    there = EVENTS + 1 - waits_behind(settings)
    take_out(settings)
    asked = Repository(settings)
    found = asked.search("", limit=10)
    counts, facet_notices = asked.facets("")
    stream = asked.events(count=10 * EVENTS)
    seen = [item.event_id for item in stream]
    lineage = asked.lineage([event(0).flowfile_uuid])
    with asked.sql("select count(*) from events") as result:
        [[total]] = [batch.to_pylist()[0].values() for batch in result.batches()]
        sql_notices = result.notices
    assert found.total == total == len(seen) == sum(counts["event_type"].values()) == there
    missing = sorted(set(range(1, EVENTS + 1)) - set(seen))
    answers = [found.notices, facet_notices, stream.notices, lineage.notices, sql_notices, asked.status().notices]
    for notices in answers:
        [notice] = [text for text in notices if "disk2, is missing" in text]
        assert f"nothing here holds {missing[0]} to " in notice
        assert f"({len(missing)} events at most)" in notice or missing[-1] == EVENTS
    assert asked.status().writers[0].missing_containers == (str(settings.containers[1]),)
    with pytest.raises(StorageError, match=rf"event {missing[0]}: .*may be in what is missing\..*disk2, is missing"):
        asked.get(missing[0])
    assert asked.get(0).event_id == 0
    with pytest.raises(NotFoundError, match="has no event"):
        asked.get(1 << 40)
    for level in Level:
        assert "container-missing" in found_kinds(settings, level)
    with pytest.raises(StorageError, match="is missing"):
        asked.forget(EventSelection(event_ids=[missing[0]]), "asked for")
    put_back(settings)
    assert asked.search("").total == EVENTS + 1, "the same process sees it again"
    assert asked.search("").notices == ()
    assert asked.get(missing[0]).event_id == missing[0]
    assert found_kinds(settings) == []


def test_contents_stay_that_an_event_on_a_missing_disk_may_speak_of(settings: Settings) -> None:
    with Repository(settings).writer() as writer:
        writer.append_with_content([event(0)], b"kept")
        [journal] = writer.seal()
    held = settings.containers[1] / "main/journals" / journal.name
    if journal != held:
        journal.rename(held)
    take_out(settings)
    later = Repository(settings, clock=ManualClock(1 << 45))
    with pytest.raises(NotFoundError, match="is missing"):
        later.clean_contents(apply=True)
    put_back(settings)
    later.clean_contents(apply=True)
    assert later.content(later.get(0)).read() == b"kept"


def waits_behind(settings: Settings) -> int:
    """Write journals behind what is there, on both disks; return how many events of them are on the second."""
    with Repository(settings).writer() as writer, ThreadPoolExecutor(8) as pool:
        chosen = [[event(number) for number in range(first, first + 25)] for first in range(1, EVENTS + 1, 25)]
        list(pool.map(writer.append, chosen))
        writer.seal()
    if not list((settings.containers[1] / "main/journals").glob("*.sealed")):  # one thread was faster than all others
        path = next((settings.containers[0] / "main/journals").glob("*.sealed"))
        path.rename(settings.containers[1] / "main/journals" / path.name)
    paths = list((settings.containers[1] / "main/journals").glob("*.sealed"))
    return sum(end.events for end in (read_end(PosixFileSystem(), path) for path in paths) if end is not None)


def test_the_only_disk_is_missed_too(tmp_path: Path) -> None:
    settings = Settings.model_validate({"root": tmp_path / "repository"})
    append(Repository(settings), [event(0), event(1)])
    shutil.move(settings.containers[0], settings.root / "away")
    asked = Repository(settings)
    [notice] = asked.search("").notices
    assert "containers/1, is missing" in notice
    with pytest.raises(StorageError, match="is missing"):
        asked.get(0)
    assert found_kinds(settings) == ["container-missing"]
    with pytest.raises(CustodyError, match="mount them"):
        append(asked, [event(2)])
    assert not settings.containers[0].exists()
    shutil.move(settings.root / "away", settings.containers[0])
    append(asked, [event(2)])
    assert ids(settings) == [0, 1, 2]
