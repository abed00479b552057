"""What cannot be written waits in the quarantine, costs itself only, and is written when a user submits it again."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.clock import ManualClock
from custody.errors import NotFoundError
from custody.ngsi_sink.opening import resubmit_entry, sink_backlog
from custody.repository import Repository
from tests.support import run_steps
from tests.unit.ngsi_sink.sink_repository import (
    NOW_MS,
    TREES,
    again,
    bench,
    opened,
    persist,
    receive,
    received,
    refusing,
    send_events,
    values,
)


def test_a_file_that_does_not_answer_costs_itself_only(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1), bench(2, "Tree"), bench(3)])
    target = refusing(repository)
    target.lengths = {"Tree"}
    done = persist(repository, target)
    assert (done.records, done.quarantined, done.is_stopped) == (2, 1, False)
    assert values(repository) == ["1001", "1003"]
    [entry] = repository.quarantine.entries()
    assert (entry.code, entry.format) == ("not-written", "ngsi-sink")
    assert "Tree_Bench.txt: " in entry.message
    assert "permission denied" in entry.message
    shown = json.loads(repository.quarantine.raw(entry.key))
    assert json.loads(shown["notifications"][0]["body"])["data"][0]["id"] == "Tree"
    assert len(send_events(repository)) == 1

    resubmit_entry(repository, entry.key)
    assert sink_backlog(repository).resubmitted == 1
    assert again(repository).resubmitted == 1
    assert values(repository, TREES) == ["1002"]
    assert list(repository.quarantine.entries()) == []
    assert len(send_events(repository)) == 2
    assert not sink_backlog(repository).is_any
    assert again(repository).resubmitted == 0


def test_what_is_refused_again_comes_back(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1), bench(2, "Tree")])
    target = refusing(repository)
    target.lengths = {"Tree"}
    persist(repository, target)
    [entry] = repository.quarantine.entries()
    resubmit_entry(repository, entry.key)
    assert again(repository, target).resubmitted == 0
    [later] = repository.quarantine.entries()
    assert later.key != entry.key
    resubmit_entry(repository, later.key)
    assert again(repository).resubmitted == 1
    assert values(repository, TREES) == ["1002"]


def test_a_part_that_cannot_be_appended_keeps_its_place(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1), bench(2, "Tree")])
    target = refusing(repository)
    target.writes = {"Tree"}
    done = persist(repository, target)
    assert (done.records, done.deferred, done.is_stopped) == (2, 1, False)
    [entry] = repository.quarantine.entries()
    assert repository.quarantine.raw(entry.key).endswith(b'"attrMd":[]}\n')
    assert len(send_events(repository)) == 1
    # More rows of the same file come behind it, once it can be written.
    target.writes = set()
    receive(repository, [bench(4, "Tree")])
    run_steps(repository.settings)
    persist(repository, target)
    assert values(repository, TREES) == ["1002", "1004"]
    assert list(repository.quarantine.entries()) == []
    assert [event.updated_attributes["ngsi.offset"] for event in send_events(repository)][1] == "0"
    assert len(send_events(repository)) == 3


def test_a_deferred_part_is_written_when_it_is_submitted_again(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1, "Tree")])
    target = refusing(repository)
    target.writes = {"Tree"}
    assert persist(repository, target).is_stopped
    [entry] = repository.quarantine.entries()
    resubmit_entry(repository, entry.key)
    assert again(repository, target).resubmitted == 0
    assert [found.key for found in repository.quarantine.entries()] == [entry.key]
    resubmit_entry(repository, entry.key)
    assert again(repository).resubmitted == 1
    assert values(repository, TREES) == ["1001"]
    assert list(repository.quarantine.entries()) == []
    assert len(send_events(repository)) == 1


def test_a_target_that_is_down_stops_the_run_after_one_go(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(number) for number in range(6)])
    target = refusing(repository)
    target.lengths = {"/"}
    with opened(repository, target) as job:
        done = job.run(chunk_events=2)
    assert (done.is_stopped, done.quarantined) == (True, 2)
    assert sink_backlog(repository).notifications == 4
    [entry] = repository.quarantine.entries()
    resubmit_entry(repository, entry.key)
    with opened(repository) as job:
        job.resubmit()
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
        assert job.run().quarantined == 0
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
    assert (done.records, done.quarantined, done.is_stopped) == (2, 1, False)
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
    assert (done.records, done.skipped, done.quarantined) == (1, 1, 0)
    [left] = (tmp_path / "ngsi/sink/ngsi/left").iterdir()
    assert json.loads(left.read_bytes())[0]["reason"].endswith("it expired.")


def test_a_damaged_content_waits_in_the_quarantine(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1)])
    [file] = (path for path in (tmp_path / "store/main/content").rglob("*-*") if path.is_file())
    data = file.read_bytes()
    at = data.index(b"seats")
    file.write_bytes(data[:at] + b"x" + data[at + 1 :])
    done = persist(repository)
    assert (done.records, done.quarantined, done.is_stopped) == (0, 1, False)
    [entry] = repository.quarantine.entries()
    assert entry.code == "unreadable"
    file.write_bytes(data)  # it came back from a backup
    resubmit_entry(repository, entry.key)
    assert again(repository).resubmitted == 1
    assert values(repository) == ["1001"]


def test_events_that_came_from_files_have_no_content_to_write(tmp_path: Path) -> None:
    repository = received(tmp_path, [bench(1)])
    [good] = repository.events(0, 1, "main")
    repository.append([msgspec.structs.replace(good, event_id=-1, content_claim=None)])
    run_steps(repository.settings)
    done = persist(repository)
    assert (done.events, done.skipped, done.quarantined) == (1, 0, 0)


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


def test_entries_of_an_ingest_are_not_the_sinks(tmp_path: Path) -> None:
    repository = received(tmp_path, [])
    bad = tmp_path / "bad.json"
    bad.write_bytes(b"[{}]")
    with repository.ingest() as work:
        work.file(bad)
    [entry] = repository.quarantine.entries()
    with pytest.raises(NotFoundError, match="expected one of the sink"):
        resubmit_entry(repository, entry.key)


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
    assert again(repository).resubmitted == 1
    assert values(repository) == ["1001"]
