"""Runs of replay plans: each event once, and a refusal when what the plan rests on has changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from custody.clock import ManualClock
from custody.errors import ConflictError, InvalidInputError, NotFoundError
from custody.flow import Component
from custody.flowfile_repository import REPLAY_DAYS, Replayed, Work
from custody.replay import ReplayPlan, replay_run
from custody.repository import EventSelection, Repository
from tests.support import run_steps
from tests.unit.replay.replay_fixtures import drain, fill, found

DROPS = "event_type:DROP"
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def plan(repository: Repository) -> ReplayPlan:
    fill(repository, 5)
    return repository.plan_replay(DROPS)


def drained(repository: Repository) -> dict[str, bytes]:
    """All FlowFiles of the queue with their contents; they leave the flow."""
    with repository.flowfiles() as flow:
        return {flowfile.uuid: content for flowfile, content in drain(flow)}


def test_a_plan_is_done_once_also_when_its_flowfiles_left_the_flow(repository: Repository, plan: ReplayPlan) -> None:
    report = repository.replay(plan, user="alice")
    assert (report.replayed, report.bytes, report.done_before, report.stopped) == (5, 35, 0, None)
    assert (report.queues, report.consumers) == ({"orders": 5}, {"orders": "sort_orders"})
    again = drained(repository)
    assert again == {plan.flowfile_uuid(item): f"order {n}".encode() for n, item in enumerate(plan.events)}
    second = repository.replay(plan)
    assert (second.replayed, second.done_before, second.queues) == (0, 5, {"orders": 5})
    assert drained(repository) == {}
    replays = found(repository, "event_type:REPLAY")
    assert [item.flowfile_uuid for item in replays] == [item.flowfile_uuid for item in plan.events]
    assert [item.child_uuids for item in replays] == [(uuid,) for uuid in again]
    assert {item.details for item in replays} == {"Replay requested by alice"}


def test_what_is_done_survives_a_snapshot(repository: Repository, plan: ReplayPlan) -> None:
    repository.replay(plan)
    with repository.flowfiles() as flow:
        flow.queues.checkpoint()
    assert repository.replay(plan).done_before == 5


def test_a_replayed_flowfile_can_be_replayed_by_another_plan(repository: Repository, plan: ReplayPlan) -> None:
    repository.replay(plan)
    drained(repository)
    assert repository.replay(repository.plan_replay(DROPS)).replayed == 10


def test_progress_goes_to_the_end(repository: Repository, plan: ReplayPlan) -> None:
    seen: list[tuple[int, int]] = []
    repository.replay(plan, on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 5), (5, 5)]


def test_a_plan_of_another_repository_is_refused(repository: Repository, plan: ReplayPlan, tmp_path: Path) -> None:
    other = Repository.create(tmp_path / "other")
    fill(other, 5)
    with pytest.raises(InvalidInputError, match=rf"got one of {plan.repository}"):
        other.replay(plan)
    assert found(other, "event_type:REPLAY") == []


def test_a_plan_is_refused_when_an_event_of_it_was_forgotten(repository: Repository, plan: ReplayPlan) -> None:
    gone = plan.events[2].event_id
    repository.forget(EventSelection(event_ids=(gone,)), "asked for", "main")
    with pytest.raises(ConflictError, match=rf"event main/{gone} \[unknown-event\].* forgotten") as caught:
        repository.replay(plan)
    assert "--skip-changed" in caught.value.hint
    assert found(repository, "event_type:REPLAY") == []
    check = repository.check_replay(plan)
    assert (check.left, [item.event_id for item in check.changed]) == (4, [gone])
    report = repository.replay(plan, skip_changed=True)
    assert (report.replayed, [item.event_id for item in report.skipped]) == (4, [gone])
    assert repository.replay(plan).done_before == 5


def test_a_plan_is_refused_when_contents_are_gone(repository: Repository, plan: ReplayPlan) -> None:
    for path in repository.settings.store.rglob("*"):
        if path.is_file() and path.read_bytes().startswith(b"CUSTCLM"):
            path.unlink()
    with pytest.raises(ConflictError, match=r"5 of its events .* \[content-gone\]"):
        repository.replay(plan)


def test_a_plan_is_refused_when_its_queue_was_removed(repository: Repository, plan: ReplayPlan) -> None:
    with repository.flowfiles() as flow:
        flow.queues.disconnect("orders")
    with pytest.raises(ConflictError, match=r"\[queue-removed\]: the queue 'orders'"):
        repository.replay(plan)


def test_an_id_that_means_another_flowfile_now_is_refused(repository: Repository, plan: ReplayPlan) -> None:
    first = msgspec.structs.replace(plan.events[0], flowfile_uuid="another")
    with pytest.raises(ConflictError, match="of another FlowFile"):
        repository.replay(msgspec.structs.replace(plan, events=[first]))


def test_an_old_plan_is_refused(repository: Repository, plan: ReplayPlan) -> None:
    later = Repository(repository.settings, clock=ManualClock(plan.made_ms + REPLAY_DAYS * DAY_MS))
    with pytest.raises(InvalidInputError, match="Make a new plan"):
        later.replay(plan)


def test_progress_of_old_plans_is_not_kept(repository: Repository, plan: ReplayPlan) -> None:
    repository.replay(plan)
    later = Repository(repository.settings, clock=ManualClock(plan.made_ms + (REPLAY_DAYS + 1) * DAY_MS))
    with later.flowfiles() as flow:
        assert flow.queues.replayed(plan.id) == 5
        flow.queues.commit(Work("s", replayed=Replayed("other", 0, 1, plan.made_ms + DAY_MS)))
        assert (flow.queues.replayed(plan.id), flow.queues.replayed("other")) == (0, 1)


def test_of_two_runs_at_once_one_gives_way(repository: Repository, plan: ReplayPlan) -> None:
    with repository.flowfiles() as flow:
        flow.queues.commit(Work("s", replayed=Replayed(plan.id, 0, 2, plan.made_ms)))
        with pytest.raises(ConflictError, match="another process runs it"):
            flow.queues.commit(Work("s", replayed=Replayed(plan.id, 0, 2, plan.made_ms)))
    assert repository.replay(plan).replayed == 3


def test_a_full_queue_stops_the_run_and_the_next_one_goes_on(
    repository: Repository, plan: ReplayPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("custody.replay.replay_run.BATCH_EVENTS", 2)
    with repository.flowfiles() as flow:
        flow.connect("orders", count_max=2)
    report = repository.replay(plan)
    assert report.replayed == 2
    assert report.stopped is not None
    assert "2 of 5 events are done: full: the queue 'orders'" in report.stopped
    ledger = [*drained(repository)]
    while report.stopped is not None:
        report = repository.replay(plan)
        ledger += drained(repository)
    assert ledger == [plan.flowfile_uuid(item) for item in plan.events]


def test_one_event_is_replayed_each_time_that_it_is_wanted(repository: Repository) -> None:
    fill(repository, 1)
    drop = found(repository, DROPS)[0].event_id
    sent = [repository.replay_event(drop, user="bob") for _ in range(2)]
    assert len({flowfile.uuid for flowfile in sent}) == 2
    assert drained(repository) == {flowfile.uuid: b"order 0" for flowfile in sent}
    replays = found(repository, "event_type:REPLAY")
    assert [item.details for item in replays] == ["Replay requested by bob"] * 2


def test_one_event_that_cannot_be_replayed_is_an_error_with_its_code(repository: Repository) -> None:
    fill(repository, 1)
    with pytest.raises(NotFoundError, match=r"cannot replay event main/99 \[unknown-event\]"):
        repository.replay_event(99)
    with pytest.raises(InvalidInputError, match=r"\[no-source-queue\]"):
        repository.replay_event(0)


def test_a_joined_flowfile_cannot_be_replayed(repository: Repository) -> None:
    fill(repository, 2)
    repository.replay(repository.plan_replay(DROPS))
    with repository.flowfiles() as flow, flow.session(Component(id="merge", type="Merge")) as session:
        parents = session.get_many("orders", 2)
        session.transfer(session.merge(parents), "orders")
        for parent in parents:
            session.remove(parent)
    plan = repository.plan_replay("event_type:JOIN")
    assert [item.code for item in plan.refused] == ["several-parents"]


def _archive_shrinks(later: Repository) -> None:
    with later.flowfiles() as flow:
        flow.queues.checkpoint()


def _all_is_forgotten_and_goes(later: Repository) -> None:
    later.forget(EventSelection(to_ms=1 << 50), "asked for", "main")
    _archive_shrinks(later)


@pytest.mark.parametrize(
    ("meanwhile", "code"), [(_archive_shrinks, "content-gone"), (_all_is_forgotten_and_goes, "unknown-event")]
)
def test_what_goes_between_the_look_and_the_transaction_is_named_and_can_be_passed_over(
    repository: Repository,
    monkeypatch: pytest.MonkeyPatch,
    meanwhile: Callable[[Repository], None],
    code: str,
) -> None:
    bounds = {"repository": {"writer_slots": 2}, "content": {"archive_age": "1h"}}
    sections = {name: getattr(repository.settings, name).model_copy(update=values) for name, values in bounds.items()}
    repository = Repository(repository.settings.model_copy(update=sections))
    fill(repository, 5)
    with repository.flowfiles() as flow:
        flow.queues.checkpoint()
    run_steps(repository.settings)
    plan = repository.plan_replay(DROPS)
    later = Repository(repository.settings, clock=ManualClock(plan.made_ms + DAY_MS))
    right, waiting = replay_run._send, [meanwhile]

    def send(*arguments: Any) -> Any:
        if waiting:
            waiting.pop()(later)
        return right(*arguments)

    monkeypatch.setattr(replay_run, "_send", send)
    with pytest.raises(ConflictError, match=rf"5 of its events .* \[{code}\]") as caught:
        repository.replay(plan)
    assert "--skip-changed" in caught.value.hint
    assert not waiting
    assert drained(repository) == {}
    report = repository.replay(plan, skip_changed=True)
    assert (report.done_before, report.replayed) == (0, 0)
    assert [item.code for item in report.skipped] == [code] * 5
    assert repository.replay(plan).done_before == 5
