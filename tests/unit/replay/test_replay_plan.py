"""Plans of replays: what they hold, as a value and as a file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from custody.errors import ConfigurationError, CorruptionError, FormatVersionError, NotFoundError
from custody.model import Event
from custody.replay import ReplayJudge, make_plan, read_plan, save_plan
from custody.repository import EventSelection, Repository
from custody.vfs import PosixFileSystem
from tests.support import event, run_steps
from tests.unit.replay.replay_fixtures import fill, found

FS = PosixFileSystem()
DROPS = "event_type:DROP"


def test_a_plan_says_what_can_be_sent_and_what_cannot(repository: Repository) -> None:
    fill(repository, 12)
    plan = repository.plan_replay("")
    assert (len(plan.events), plan.bytes, plan.queues) == (12, 10 * 7 + 2 * 8, {"orders": 12})
    assert plan.refused_by_code == {"no-source-queue": 12}
    assert plan.revisions == {"main": -1}
    assert [item.event_id for item in plan.events] == [item.event_id for item in found(repository, DROPS)]
    assert len(repository.plan_replay(DROPS).refused) == 0
    assert repository.plan_replay(DROPS).id != plan.id


def test_events_are_named_by_id_too(repository: Repository) -> None:
    fill(repository, 2)
    last = found(repository, DROPS)[-1].event_id
    plan = repository.plan_replay(event_ids=[last, 4711, last])
    assert [item.event_id for item in plan.events] == [last]
    assert [(item.event_id, item.code) for item in plan.refused] == [(4711, "unknown-event")]


def test_of_the_events_of_an_earlier_time_none_comes_back_that_was_forgotten(repository: Repository) -> None:
    fill(repository, 3)
    run_steps(repository.settings)
    drop = found(repository, DROPS)[0]
    repository.forget(EventSelection(event_ids=(drop.event_id,)), "asked for", "main")
    revision = repository.workspace().catalog.load().revision
    plan = repository.plan_replay(DROPS, as_of=revision - 1)
    assert (plan.as_of, plan.revisions) == (str(revision - 1), {"main": revision})
    assert drop.event_id not in [item.event_id for item in plan.events]
    assert (len(plan.events), len(repository.plan_replay(DROPS, as_of=datetime.now(UTC)).events)) == (2, 2)


def test_two_events_that_would_send_the_same_are_sent_once() -> None:
    def step(number: int, **values: object) -> Event:
        same = {"flowfile_uuid": "a", "source_queue_identifier": "orders", "file_size": 0, "updated_attributes": {}}
        return event(number, event_id=number, **{**same, **values})

    events = [step(1), step(2), step(3, updated_attributes={"x": "1"}), step(4, flowfile_uuid="b")]
    judge = ReplayJudge({"orders"}, lambda claim: claim)
    chosen = [("main", item.event_id, item) for item in events]
    plan = make_plan(chosen, judge, repository="r", revisions={}, now_ms=0)
    assert [item.event_id for item in plan.events] == [1, 3, 4]
    assert [(item.code, item.detail) for item in plan.refused] == [("repeated", "event main/1")]


def test_without_queues_there_is_nothing_to_replay_and_nothing_is_made(repository: Repository) -> None:
    repository.append([event(1)])
    with pytest.raises(NotFoundError, match="expected the queues of a flow"):
        repository.plan_replay("")
    assert not repository.settings.flowfiles_home.exists()


def test_a_plan_of_a_file_is_the_plan(repository: Repository, tmp_path: Path) -> None:
    fill(repository, 3)
    plan = repository.plan_replay("")
    path = tmp_path / "a.plan"
    save_plan(FS, path, plan)
    assert read_plan(FS, path) == plan
    with pytest.raises(ConfigurationError, match="expected the name of a new file"):
        save_plan(FS, path, plan)


def test_a_damaged_plan_is_refused(repository: Repository, tmp_path: Path) -> None:
    fill(repository, 1)
    save_plan(FS, tmp_path / "a.plan", repository.plan_replay(""))
    whole = (tmp_path / "a.plan").read_bytes()
    for data, error in (
        (whole[:-1], CorruptionError),
        (whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], CorruptionError),
        (whole[:7] + b"\x02" + whole[8:], FormatVersionError),
        (b"", CorruptionError),
    ):
        (tmp_path / "b.plan").write_bytes(data)
        with pytest.raises(error, match=r"b\.plan @"):
            repository.check_replay(tmp_path / "b.plan")


def test_each_event_of_each_plan_has_a_flowfile_of_its_own(repository: Repository) -> None:
    fill(repository, 5)
    plan = repository.plan_replay("")
    other = msgspec.structs.replace(plan, id="0" * 32)
    uuids = [each.flowfile_uuid(item) for each in (plan, other) for item in plan.events]
    assert len(set(uuids)) == 10
    assert uuids == [each.flowfile_uuid(item) for each in (plan, other) for item in plan.events]
