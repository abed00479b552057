"""Notifications in event logs become files, once, and all of it is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from custody.clock import ManualClock
from custody.errors import LockedError, SupersededError
from custody.model import Event
from custody.ngsi_sink.notifications import LiveNotifications
from custody.ngsi_sink.opening import sink_backlog
from custody.repository import Repository
from custody.spark.ngsi import take_all
from tests.support import event as other_event
from tests.support import run_steps
from tests.unit.ngsi_sink.sink_repository import (
    NOW_MS,
    ROWS,
    TREES,
    bench,
    files,
    opened,
    persist,
    receive,
    received,
    send_events,
    values,
)


def test_each_notification_is_written_once_whoever_asks_how_often(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1), bench(2, "Tree"), bench(3)])
    assert sink_backlog(repository).notifications == 3
    first, second = persist(repository), persist(repository)
    assert (first.events, first.batches, first.records, first.files) == (3, 3, 3, 2)
    assert (second.events, second.files) == (0, 0)
    assert values(repository) == ["1001", "1003"]
    assert values(repository, TREES) == ["1002"]
    assert not sink_backlog(repository).is_any


def test_the_report_of_a_run_names_the_files_that_got_lines_each_once(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1), bench(2, "Tree"), bench(3)])
    with opened(repository) as job:
        _, [report] = take_all(job, chunk_events=1)
        _, [nothing] = take_all(job)
    hdfs = (tmp_path / "hdfs").as_uri()
    assert sorted(report.files) == sorted(hdfs + path for path in (ROWS, TREES))
    assert nothing.files == ()


def test_the_lineage_of_a_notification_leads_to_its_rows_and_back(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1), bench(2, "Tree")])
    persist(repository)
    sent = next(
        event for event in send_events(repository) if event.updated_attributes["filename"] == "Bench1_Bench.txt"
    )
    assert sent.transit_uri == (tmp_path / "hdfs").as_uri() + ROWS
    assert sent.file_size == len(files(repository)[ROWS])
    [notification] = sent.parent_uuids
    down = repository.lineage([notification])
    assert down.nodes[notification].children == (sent.flowfile_uuid,)
    run_steps(repository.settings)  # the events that tell are events like all others
    up = repository.lineage([sent.flowfile_uuid])
    assert [event.event_type for event in up.nodes[notification].events] == ["RECEIVE"]
    assert [event.event_type for event in up.nodes[sent.flowfile_uuid].events] == ["SEND"]


def test_a_notification_of_several_files_is_told_of_for_each(tmp_path: Path) -> None:
    value = {"type": "Number", "value": 1, "metadata": {"n": {"type": "Number", "value": 2}}}
    bare = {"type": "Number", "value": 1, "metadata": {}}
    repository = received(tmp_path, [bench(0, seats=value, wood=bare)], file_format="csv-row")
    persist(repository)
    names = [str(event.updated_attributes["filename"]) for event in send_events(repository)]
    # The file without metadata is there, but nothing was sent to it.
    assert sorted(names) == ["Bench1_Bench.txt", "Bench1_Bench_seats_Number.txt"]
    assert len(files(repository)) == 3


def test_many_notifications_of_one_file_have_several_events(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(number) for number in range(250)])
    persist(repository)
    assert [len(event.parent_uuids) for event in send_events(repository)] == [100, 100, 50]
    assert len({event.flowfile_uuid for event in send_events(repository)}) == 3


def test_what_the_entities_of_a_notification_share_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = [{"id": f"Bench{n}", "type": "Bench", "seats": {"type": "Number", "value": n}} for n in range(30)]
    large = json.dumps({"subscriptionId": "1", "padding": "x" * 1_000_000, "data": data}).encode()
    repository = received(tmp_path, [large, bench(1, "Bench7"), large.replace(b"Bench", b"Tree")])
    reads: list[Event] = []
    contents = LiveNotifications.contents

    def counting(self: LiveNotifications) -> Callable[[Event], bytes]:
        read = contents(self)

        def counted(event: Event) -> bytes:
            reads.append(event)
            return read(event)

        return counted

    monkeypatch.setattr(LiveNotifications, "contents", counting)  # nothing of what a run gives out shows it
    done = persist(repository)
    assert (done.records, done.files, len(reads)) == (61, 60, 3)
    assert done.chunks == 1  # 30 MB, counted entity by entity, would be several
    assert values(repository, ROWS.replace("Bench1", "Bench7")) == ["7", "1001"]


def test_several_writers_share_a_file(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1)], file_format="csv-column")
    with repository.writer():  # the first slot is taken
        receive(repository, [bench(2, wood={"type": "Text", "value": "oak"})], NOW_MS + 5)
    run_steps(repository.settings)
    persist(repository)
    with repository.writer():
        receive(repository, [bench(3)], NOW_MS + 9)
    run_steps(repository.settings)
    with opened(repository) as job:
        job.run()
        assert job.sink.cursors == {"main": 1, "main-2": 2}
        assert job.sink.columns == {ROWS.rpartition("/")[0]: ("seats", "wood")}
    rows = files(repository)[ROWS].decode().splitlines()
    assert [row.split(",")[4] for row in rows] == ["1001", "NULL", "1003"]


def test_what_is_not_live_waits_for_the_rollover(tmp_path: Path) -> None:
    repository = received(tmp_path, [])
    receive(repository, [bench(1)])
    assert persist(repository).events == 0
    run_steps(repository.settings)
    assert persist(repository).events == 1


def test_journals_that_became_live_out_of_turn_cost_nothing(tmp_path: Path) -> None:
    repository = received(tmp_path, [])
    receive(repository, [bench(1)])
    [first] = tmp_path.glob("disk1/main/journals/*.sealed")
    receive(repository, [bench(2)])
    hidden = first.rename(tmp_path / "elsewhere")
    run_steps(repository.settings)
    hidden.rename(first)
    assert persist(repository).events == 0
    run_steps(repository.settings)
    assert persist(repository).events == 2
    assert values(repository) == ["1001", "1002"]


@pytest.mark.parametrize(("size", "age_s", "written"), [(2, 0, 2), (10, 29, 0), (10, 30, 3), (3, 0, 3)])
def test_a_batch_waits_until_it_is_full_or_old(tmp_path: Path, size: int, age_s: int, written: int) -> None:
    clock = ManualClock(NOW_MS)
    repository = received(tmp_path, [bench(number) for number in range(3)], clock, batch_size=size)
    clock.advance(age_s * 1000)
    done = persist(repository)
    assert (done.events, done.waiting) == (written, 3 - written)
    clock.advance(60_000)
    assert persist(repository).events == 3 - written


def test_an_arrival_in_the_future_holds_nobody_up(tmp_path: Path) -> None:
    repository = received(tmp_path, [], batch_size=10)
    receive(repository, [bench(1)], NOW_MS + 10**9)
    run_steps(repository.settings)
    assert persist(repository).events == 1


def test_until_a_time_all_that_arrived_is_written_in_any_order_and_twice(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1)], batch_size=100, batch_timeout=86_400)
    receive(repository, [bench(2)], NOW_MS + 3_600_000)
    run_steps(repository.settings)
    clock = ManualClock(NOW_MS + 3_600_001)
    repository = Repository(repository.settings, clock=clock)
    assert persist(repository).events == 0
    assert persist(repository, until_ms=NOW_MS + 3_600_001).events == 2
    assert persist(repository, until_ms=NOW_MS + 1).events == 0
    assert values(repository) == ["1001", "1002"]


def test_other_events_are_passed_over_and_not_looked_at_again(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1)])
    repository.append([other_event(number) for number in range(5)])
    run_steps(repository.settings)
    with opened(repository) as job:
        job.run()
        assert job.sink.cursors == {"main": 6}


def test_memory_holds_a_go_and_not_what_waits(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(number) for number in range(35)])
    goes: list[int] = []
    with opened(repository) as job:
        done = job.run(on_chunk=lambda written: goes.append(written.records), chunk_events=10)
    assert goes == [10, 10, 10, 5]
    assert (done.events, done.batches) == (35, 35)
    assert values(repository) == [str(1000 + number) for number in range(35)]


def test_an_attempt_that_was_taken_over_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = received(tmp_path, [bench(1), bench(2)])
    other = Repository(repository.settings.model_copy(deep=True), clock=ManualClock(NOW_MS))
    with pytest.raises(SupersededError), opened(repository, attempt="dag/run/task/1") as job:
        # The lock of this machine keeps a living process out; on another machine nothing but the epoch does.
        lease = tmp_path / "ngsi/leases/sink"
        (lease / "0000000002").write_bytes((lease / "0000000001").read_bytes())
        job.run()
    assert files(other) == {}
    assert send_events(other) == []


def test_two_attempts_at_once_do_not_both_write(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1)])
    impatient = repository.settings.lease.model_copy(update={"wait_seconds": 0})
    other = Repository(repository.settings.model_copy(update={"lease": impatient}), clock=ManualClock(NOW_MS))
    with opened(repository) as job:
        with pytest.raises(LockedError), opened(other):
            pass
        assert job.run().events == 1
