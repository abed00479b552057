"""Notifications in event logs become files, once; what cannot be written waits in the quarantine; all of it is told."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.clock import ManualClock
from custody.errors import LockedError, NotFoundError, SupersededError
from custody.model import Event
from custody.ngsi.backends import open_target
from custody.ngsi.parameters import Parameters
from custody.ngsi.persist import Persisted
from custody.ngsi.telling import WRITER
from custody.repository import Repository
from custody.repository.persisting import submit_entry_again, waits
from custody.vfs import PosixFileSystem
from tests.support import event as other_event
from tests.support import run_steps
from tests.unit.ngsi.persisting import NOW_MS, Refusing, bench, files, opened, receive, received

ROWS = "/user/warden/parks/north/Bench1_Bench/Bench1_Bench.txt"
TREES = "/user/warden/parks/north/Tree_Bench/Tree_Bench.txt"


def persist(repository: Repository, target: Refusing | None = None, until_ms: int | None = None) -> Persisted:
    with opened(repository, target) as job:
        return job.run(until_ms=until_ms)


def again(repository: Repository, target: Refusing | None = None) -> Persisted:
    with opened(repository, target) as job:
        return job.submit_again()


def values(repository: Repository, path: str = ROWS) -> list[str]:
    return [json.loads(line)["attrValue"] for line in files(repository).get(path, b"").splitlines()]


def told(repository: Repository) -> list[Event]:
    return list(repository.events(0, 10_000, WRITER))


def refusing(repository: Repository) -> Refusing:
    parameters = Parameters.from_section(repository.settings.ngsi, repository.settings.root)
    return Refusing(open_target(parameters, PosixFileSystem(), repository.settings.root))


def test_each_notification_is_written_once_whoever_asks_how_often(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1), bench(2, "Tree"), bench(3)])
    assert waits(repository).notifications == 3
    first, second = persist(repository), persist(repository)
    assert (first.events, first.batches, first.records, first.files) == (3, 3, 3, 2)
    assert (second.events, second.files) == (0, 0)
    assert values(repository) == ["1001", "1003"]
    assert values(repository, TREES) == ["1002"]
    assert not waits(repository).is_any


def test_the_lineage_of_a_notification_leads_to_its_rows_and_back(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1), bench(2, "Tree")])
    persist(repository)
    sent = next(event for event in told(repository) if event.updated_attributes["filename"] == "Bench1_Bench.txt")
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
    names = [str(event.updated_attributes["filename"]) for event in told(repository)]
    # The file without metadata is there, but nothing was sent to it.
    assert sorted(names) == ["Bench1_Bench.txt", "Bench1_Bench_seats_Number.txt"]
    assert len(files(repository)) == 3


def test_many_notifications_of_one_file_have_several_events(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(number) for number in range(250)])
    persist(repository)
    assert [len(event.parent_uuids) for event in told(repository)] == [100, 100, 50]
    assert len({event.flowfile_uuid for event in told(repository)}) == 3


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
        done = job.run(on_go=lambda written: goes.append(written.records), go_events=10)
    assert goes == [10, 10, 10, 5]
    assert (done.events, done.batches) == (35, 35)
    assert values(repository) == [str(1000 + number) for number in range(35)]


def test_a_file_that_does_not_answer_costs_itself_only(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1), bench(2, "Tree"), bench(3)])
    target = refusing(repository)
    target.lengths = {"Tree"}
    done = persist(repository, target)
    assert (done.records, done.aside, done.is_stopped) == (2, 1, False)
    assert values(repository) == ["1001", "1003"]
    [entry] = repository.quarantine.entries()
    assert (entry.code, entry.format) == ("not-written", "ngsi-sink")
    assert "Tree_Bench.txt: " in entry.message
    assert "permission denied" in entry.message
    shown = json.loads(repository.quarantine.raw(entry.key))
    assert json.loads(shown["notifications"][0]["body"])["data"][0]["id"] == "Tree"
    assert len(told(repository)) == 1

    submit_entry_again(repository, entry.key)
    assert waits(repository).again == 1
    assert again(repository).again == 1
    assert values(repository, TREES) == ["1002"]
    assert list(repository.quarantine.entries()) == []
    assert len(told(repository)) == 2
    assert not waits(repository).is_any
    assert again(repository).again == 0


def test_what_is_refused_again_comes_back(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1), bench(2, "Tree")])
    target = refusing(repository)
    target.lengths = {"Tree"}
    persist(repository, target)
    [entry] = repository.quarantine.entries()
    submit_entry_again(repository, entry.key)
    assert again(repository, target).again == 0
    [later] = repository.quarantine.entries()
    assert later.key != entry.key
    submit_entry_again(repository, later.key)
    assert again(repository).again == 1
    assert values(repository, TREES) == ["1002"]


def test_a_part_that_cannot_be_appended_keeps_its_place(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1), bench(2, "Tree")])
    target = refusing(repository)
    target.writes = {"Tree"}
    done = persist(repository, target)
    assert (done.records, done.deferred, done.is_stopped) == (2, 1, False)
    [entry] = repository.quarantine.entries()
    assert repository.quarantine.raw(entry.key).endswith(b'"attrMd":[]}\n')
    assert len(told(repository)) == 1
    # More rows of the same file come behind it, once it can be written.
    target.writes = set()
    receive(repository, [bench(4, "Tree")])
    run_steps(repository.settings)
    persist(repository, target)
    assert values(repository, TREES) == ["1002", "1004"]
    assert list(repository.quarantine.entries()) == []
    assert [event.updated_attributes["ngsi.offset"] for event in told(repository)][1] == "0"
    assert len(told(repository)) == 3


def test_a_deferred_part_is_written_when_it_is_submitted_again(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1, "Tree")])
    target = refusing(repository)
    target.writes = {"Tree"}
    assert persist(repository, target).is_stopped
    [entry] = repository.quarantine.entries()
    submit_entry_again(repository, entry.key)
    assert again(repository, target).again == 0
    assert [found.key for found in repository.quarantine.entries()] == [entry.key]
    submit_entry_again(repository, entry.key)
    assert again(repository).again == 1
    assert values(repository, TREES) == ["1001"]
    assert list(repository.quarantine.entries()) == []
    assert len(told(repository)) == 1


def test_a_target_that_is_down_stops_the_run_after_one_go(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(number) for number in range(6)])
    target = refusing(repository)
    target.lengths = {"/"}
    with opened(repository, target) as job:
        done = job.run(go_events=2)
    assert (done.is_stopped, done.aside) == (True, 2)
    assert waits(repository).notifications == 4
    [entry] = repository.quarantine.entries()
    submit_entry_again(repository, entry.key)
    with opened(repository) as job:
        job.submit_again()
        job.run()
    assert sorted(values(repository)) == [str(1000 + number) for number in range(6)]


def test_a_retry_writes_what_was_refused_at_first(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1)], batch_ttl=3, batch_retry_intervals="5000,10000")
    target = refusing(repository)
    target.lengths = {"Bench1"}
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            target.lengths = set()

    with opened(repository, target, sleep=sleep) as job:
        assert job.run().aside == 0
    assert slept == [5.0, 10.0, 10.0]
    assert values(repository) == ["1001"]


BROKEN: dict[str, tuple[bytes, str]] = {
    "not JSON": (b"{" * 10, "unreadable"),
    "another notification": (bench(9, "Tree")[:-20], "unreadable"),
    "no entity": (b'{"subscriptionId":"1","data":[]}', "unreadable"),
    "not UTF-8": (b"\xff\xfe", "unreadable"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_content_that_is_no_notification_waits_in_the_quarantine(tmp_path: Path, what: str) -> None:
    body, code = BROKEN[what]
    repository = received(tmp_path, [bench(1)])
    [good] = repository.events(0, 1, "main")
    bare = msgspec.structs.replace(good, event_id=-1, content_claim=None, flowfile_uuid="f" * 8, source_ordinal=None)
    repository.append_with_content([bare], body)
    receive(repository, [bench(2)])
    run_steps(repository.settings)
    done = persist(repository)
    assert (done.records, done.aside, done.is_stopped) == (2, 1, False)
    assert values(repository) == ["1001", "1002"]
    [entry] = repository.quarantine.entries()
    assert entry.code == code
    shown = json.loads(repository.quarantine.raw(entry.key))
    assert shown["notifications"][0]["body"] == body.decode(errors="replace")
    assert shown["notifications"][0]["source"] == ["main", 1, "f" * 8]


def test_a_content_that_is_gone_is_said_and_holds_nobody_up(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    repository = received(tmp_path, [bench(1)], clock)
    for file in (tmp_path / "store/main/content").rglob("*-*"):
        file.unlink()
    clock.advance(1)
    receive(repository, [bench(2)])
    run_steps(repository.settings)
    done = persist(repository)
    assert (done.records, done.left, done.aside) == (1, 1, 0)
    [left] = (tmp_path / "ngsi/sink/ngsi/left").iterdir()
    assert json.loads(left.read_bytes())[0]["reason"].endswith("it expired, or its disk is missing.")


def test_a_damaged_content_waits_in_the_quarantine(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1)])
    [file] = (path for path in (tmp_path / "store/main/content").rglob("*-*") if path.is_file())
    data = file.read_bytes()
    at = data.index(b"seats")
    file.write_bytes(data[:at] + b"x" + data[at + 1 :])
    done = persist(repository)
    assert (done.records, done.aside, done.is_stopped) == (0, 1, False)
    [entry] = repository.quarantine.entries()
    assert entry.code == "unreadable"
    file.write_bytes(data)  # it came back from a backup
    submit_entry_again(repository, entry.key)
    assert again(repository).again == 1
    assert values(repository) == ["1001"]


def test_events_that_came_from_files_have_no_content_to_write(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1)])
    [good] = repository.events(0, 1, "main")
    repository.append([msgspec.structs.replace(good, event_id=-1, content_claim=None)])
    run_steps(repository.settings)
    done = persist(repository)
    assert (done.events, done.left, done.aside) == (1, 0, 0)


def test_notifications_that_expired_before_they_were_taken_are_passed_over(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    repository = received(tmp_path, [bench(1)], clock)
    clock.advance(10 * 86_400_000)
    settings = repository.settings.model_copy(
        update={"retention": repository.settings.retention.model_copy(update={"age_max": "1 day"})}
    )
    repository = Repository(settings, clock=clock)
    receive(repository, [bench(2)], NOW_MS + 10 * 86_400_000)
    run_steps(repository.settings)
    repository.apply_retention()
    assert persist(repository).events == 1
    assert values(repository) == ["1002"]


def test_an_attempt_that_was_taken_over_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = received(tmp_path, [bench(1), bench(2)])
    other = Repository(repository.settings.model_copy(deep=True), clock=ManualClock(NOW_MS))
    with pytest.raises(SupersededError), opened(repository, attempt="dag/run/task/1") as job:
        # The lock of this machine keeps a living process out; on another machine nothing but the epoch does.
        lease = tmp_path / "ngsi/leases/sink"
        (lease / "0000000002").write_bytes((lease / "0000000001").read_bytes())
        job.run()
    assert files(other) == {}
    assert told(other) == []


def test_two_attempts_at_once_do_not_both_write(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1)])
    impatient = repository.settings.lease.model_copy(update={"wait_seconds": 0})
    other = Repository(repository.settings.model_copy(update={"lease": impatient}), clock=ManualClock(NOW_MS))
    with opened(repository) as job:
        with pytest.raises(LockedError), opened(other):
            pass
        assert job.run().events == 1


def test_entries_of_an_ingest_are_not_the_sinks(tmp_path: Path) -> None:
    repository = received(tmp_path, [])
    bad = tmp_path / "bad.json"
    bad.write_bytes(b"[{}]")
    with repository.ingest() as work:
        work.file(bad)
    [entry] = repository.quarantine.entries()
    with pytest.raises(NotFoundError, match="expected one of the sink"):
        submit_entry_again(repository, entry.key)


def test_a_user_submits_an_entry_again(tmp_path: Path) -> None:
    (tmp_path / "custody.toml").write_text('[repository]\ncontainers = ["disk1"]\n[ngsi]\nhdfs_username = "warden"\n')
    repository = received(tmp_path, [bench(1)])
    target = refusing(repository)
    target.lengths = {"Bench1"}
    persist(repository, target)
    [entry] = repository.quarantine.entries()
    listed = CliRunner().invoke(cli, ["-r", str(tmp_path), "quarantine", "list", "--json"])
    assert entry.key in listed.output
    done = CliRunner().invoke(cli, ["-r", str(tmp_path), "quarantine", "resubmit", entry.key])
    assert done.exit_code == 0, done.output
    assert "1 pieces are left to the next run of ngsi_to_hdfs" in done.stderr
    assert again(repository).again == 1
    assert values(repository) == ["1001"]
