"""What is acknowledged is written when its batch is due, from journals as well, once."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.clock import ManualClock
from custody.errors import LockedError, StorageError, SupersededError
from custody.ingest.slots import SlotWriter
from custody.ngsi_sink.follow import Follower, enter_when_free
from custody.ngsi_sink.opening import next_batch_due_ms, resubmit_entry, sink_backlog, sink_cursors
from custody.ngsi_sink.run import SinkReport
from custody.ngsi_sink.sink import Sink
from custody.read import cache, settled
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.crash.follow_scenarios import overtaken
from tests.support import event as other_event
from tests.support import run_steps
from tests.unit.ngsi_sink.sink_repository import (
    NOW_MS,
    append,
    bench,
    opened,
    persist,
    receive,
    refusing,
    settings,
    values,
)


@contextmanager
def following(repository: Repository, **options: Any) -> Iterator[Follower]:
    with opened(repository, with_journals=True, **options) as job:
        yield Follower(job)


def steps(follower: Follower) -> list[SinkReport]:
    return list(follower.step())


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    tmp_path.joinpath("repository").mkdir()
    return Repository(settings(tmp_path / "repository"), clock=ManualClock(NOW_MS))


def test_what_is_acknowledged_is_written_before_its_journal_is_sealed_and_not_again(repository: Repository) -> None:
    with following(repository) as follower, repository.writer() as writer:
        append(writer, repository, 1)
        [report] = steps(follower)
        assert (report.events, values(repository)) == (1, ["1001"])
        append(writer, repository, 2)
        assert [item.events for item in steps(follower)] == [1]
        assert steps(follower) == []
        assert next(repository.settings.containers[0].glob("main/journals/*.journal"))
    run_steps(repository.settings)
    assert persist(repository).events == 0, "the rollover publishes the same events"
    with following(repository) as follower:
        assert steps(follower) == []
    assert values(repository) == ["1001", "1002"]


def test_events_of_logs_sealed_and_open_journals_keep_their_order(repository: Repository) -> None:
    receive(repository, [bench(1)])
    run_steps(repository.settings)
    receive(repository, [bench(2)])
    with repository.writer() as writer:
        append(writer, repository, 3)
        with following(repository) as follower:
            assert [report.events for report in steps(follower)] == [3]
    assert values(repository) == ["1001", "1002", "1003"]


def test_an_append_that_is_overtaken_is_waited_for(repository: Repository) -> None:
    with following(repository) as follower, repository.writer() as writer:
        append(writer, repository, 1)
        steps(follower)

        def overtake() -> None:
            append(writer, repository, 3)
            assert steps(follower) == [], "an id before it may still come"

        with overtaken(overtake):
            append(writer, repository, 2)
        assert [report.events for report in steps(follower)] == [2]
    assert values(repository) == ["1001", "1002", "1003"]


def test_an_append_that_failed_holds_the_others_up_until_the_rollover(repository: Repository) -> None:
    with following(repository) as follower:
        with repository.writer() as writer:
            append(writer, repository, 1)

            def fail() -> None:
                append(writer, repository, 3)
                raise StorageError("the disk refused")

            with overtaken(fail), pytest.raises(StorageError):
                append(writer, repository, 2)
            steps(follower)
            assert values(repository) == ["1001"]
        run_steps(repository.settings)
        steps(follower)
    assert values(repository) == ["1001", "1003"]


def test_what_is_read_in_an_open_journal_is_synced_before_it_counts(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    right = PosixFileSystem.sync_file

    def sync_file(self: PosixFileSystem, path: Path) -> None:
        synced.append(path.name)
        right(self, path)

    monkeypatch.setattr(PosixFileSystem, "sync_file", sync_file)
    with following(repository) as follower, repository.writer() as writer:
        append(writer, repository, 1)
        steps(follower)
        assert [name for name in synced if name.endswith(".journal")] == ["00000000000000000000.0.journal"]
        synced.clear()
        steps(follower)
        assert synced == [], "nothing new: nothing is synced"


@pytest.mark.parametrize("size", [2, 1000])
def test_a_batch_is_written_when_it_is_full_or_old_and_not_before(tmp_path: Path, size: int) -> None:
    clock = ManualClock(NOW_MS)
    repository = Repository(settings(tmp_path, batch_size=size, batch_timeout=30), clock=clock)
    with following(repository) as follower, repository.writer() as writer:
        append(writer, repository, 1)
        clock.advance(29_999)
        assert steps(follower) == []
        assert next_batch_due_ms(repository) == NOW_MS + 30_000
        assert follower._pause() == pytest.approx(0.001)  # the moment that it wakes at is what is promised
        if size == 2:
            append(writer, repository, 2)
        else:
            clock.advance(1)
        assert next_batch_due_ms(repository) is not None
        assert [report.events for report in steps(follower)] == [min(size, 2) if size == 2 else 1]
        assert next_batch_due_ms(repository) is None
    assert values(repository)[0] == "1001"


def test_a_look_at_a_batch_that_waits_reads_no_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository = Repository(settings(tmp_path, batch_size=1000), clock=ManualClock(NOW_MS))
    runs: list[object] = []
    with following(repository) as follower, repository.writer() as writer:
        append(writer, repository, 1)
        steps(follower)
        monkeypatch.setattr(type(follower._opened), "run", lambda *_, **__: runs.append(1))
        append(writer, repository, 2)
        steps(follower)
    assert runs == []


def test_other_events_cost_no_commit_until_there_are_many(repository: Repository) -> None:
    with following(repository) as follower, repository.writer() as writer:
        writer.append([other_event(number) for number in range(5)])
        assert steps(follower) == []
        assert sink_cursors(repository) == {}
        writer.append([other_event(number) for number in range(10_000)])
        steps(follower)
        assert sink_cursors(repository) == {"main": 10_005}


def test_what_was_submitted_again_is_taken_by_a_follower(repository: Repository) -> None:
    target = refusing(repository)
    target.lengths.add("Bench1")
    with repository.writer() as writer:
        append(writer, repository, 1)
    with following(repository, target=target) as follower:
        [failed] = steps(follower)
        assert (failed.quarantined, failed.is_stopped) == (1, True)
        append_one_more(repository)
        assert steps(follower) == [], "an outage is not asked again at once"
        assert follower._outage_seconds == 1.0
        target.lengths.clear()
        follower._resume_at = 0.0
        [entry] = repository.quarantine.entries()
        resubmit_entry(repository, entry.key)
        assert next_batch_due_ms(repository) == 0
        assert [report.resubmitted for report in steps(follower)] == [1, 0]
    assert sorted(values(repository)) == ["1001", "1002"]


def test_a_batch_that_a_crash_left_is_due_until_a_run_has_finished_it(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise StorageError("crashed")

    receive(repository, [bench(1)])
    with (
        monkeypatch.context() as patch,
        pytest.raises(StorageError, match="crashed"),
        following(repository) as follower,
    ):
        patch.setattr(Sink, "save_cursors", crash)
        steps(follower)
    assert values(repository) == ["1001"]
    assert next_batch_due_ms(repository) == 0
    with following(repository) as follower:
        assert steps(follower) == []
    assert next_batch_due_ms(repository) is None
    assert not sink_backlog(repository, with_journals=True).is_any
    assert values(repository) == ["1001"]


def append_one_more(repository: Repository) -> None:
    with repository.writer() as writer:
        append(writer, repository, 2)


def test_a_follower_that_was_superseded_ends_although_nothing_is_due(repository: Repository, tmp_path: Path) -> None:
    with pytest.raises(SupersededError), following(repository, attempt="dag/run/task/1") as follower:
        lease = repository.settings.root / "ngsi/leases/sink"
        (lease / "0000000002").write_bytes((lease / "0000000001").read_bytes())
        steps(follower)


def test_a_second_follower_waits_until_the_first_ends(repository: Repository) -> None:
    refusals: list[LockedError] = []
    stopped = threading.Event()
    entered: list[object] = []

    def second() -> None:
        other = Repository(repository.settings.model_copy(deep=True), clock=ManualClock(NOW_MS))
        with ExitStack() as stack:
            entered.append(
                enter_when_free(
                    stack,
                    lambda take_over: opened(other, attempt="second/1", take_over=take_over, wait_seconds=0.0),
                    stopped,
                    refusals.append,
                )
            )

    with opened(repository, attempt="first/1"):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(2)
        assert thread.is_alive()
        assert len(refusals) == 1
    thread.join(20)
    assert len(entered) == 1
    assert entered[0] is not None


def test_the_backlog_counts_journals_where_they_are_asked_for(repository: Repository) -> None:
    with repository.writer() as writer:
        append(writer, repository, 1)
        assert sink_backlog(repository).notifications == 0
        assert sink_backlog(repository, with_journals=True).notifications == 1


def test_journals_that_are_sealed_while_they_are_looked_at_are_looked_at_again(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = cache.read_tail
    with following(repository) as follower, repository.writer() as writer:
        append(writer, repository, 1)
        seals = [writer]

        def sealing(*arguments: Any) -> Any:
            if seals:
                SlotWriter.seal(seals.pop())
            return right(*arguments)

        monkeypatch.setattr(settled, "read_tail", sealing)
        assert [report.events for report in steps(follower)] == [1]


def test_a_writer_whose_containers_are_gone_gets_no_id_that_the_sink_has_passed(repository: Repository) -> None:
    with repository.writer() as writer, following(repository) as follower:
        for number in (1, 2, 3):
            append(writer, repository, number)
        steps(follower)
    root = repository.settings.root
    shutil.rmtree(root / "disk1")  # with three events that were acknowledged, and written, and never live
    (root / "custody.toml").write_text('[repository]\ncontainers = ["disk1"]\nwriter_slots = 2\n')
    for name in ("ngsi-sink", "main"):
        done = CliRunner().invoke(cli, ["-r", str(root), "containers", "claim", name, "--yes"])
    assert done.output.endswith("from event id 3 on\n"), done.output
    with repository.writer() as writer, following(repository) as follower:
        append(writer, repository, 4)
        steps(follower)
        run_steps(repository.settings)
        steps(follower)
    assert values(repository) == ["1001", "1002", "1003", "1004"]
