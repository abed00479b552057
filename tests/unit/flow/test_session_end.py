"""How a session ends: one append, a rollback, or an error that says what is unknown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from custody.errors import (
    BackpressureError,
    ClosedError,
    CustodyError,
    InvalidInputError,
    StorageError,
)
from custody.model import Acknowledged
from tests.unit.flow.event_rules import URI
from tests.unit.flow.session_fixtures import Kept, Work, existing, kinds


def test_all_events_of_a_session_are_one_append_and_their_ids_are_returned() -> None:
    work = Work()
    work.kept.append([])
    for _ in range(3):
        work.receive(work.create(), URI)
    assert work.commit() == Acknowledged("main", range(3))
    assert [len(events) for events in work.kept.appends] == [0, 3]


def test_what_was_sent_by_force_survives_a_rollback_and_nothing_else_does() -> None:
    work = Work()
    flowfile = work.create()
    work.send(flowfile, URI)
    work.send(flowfile, URI, force=False)
    work.upload(flowfile, URI, 0)
    work.route(flowfile, "success")
    work.rollback()
    assert kinds(work.kept.events) == ["SEND", "UPLOAD"]


def test_an_ended_session_does_nothing_more() -> None:
    work = Work()
    work.commit()
    take = partial(work.take, existing())
    for act in (work.commit, work.rollback, work.create, work.__enter__, take):
        with pytest.raises(ClosedError, match="was committed"):
            act()


@pytest.mark.parametrize("error", [BackpressureError("full"), ClosedError("closed"), InvalidInputError("bad")])
def test_a_commit_that_was_refused_can_be_tried_again(error: CustodyError) -> None:
    work = Work()
    work.create()
    work.kept.error = error
    with pytest.raises(type(error)):
        work.commit()
    work.kept.error = None
    assert work.commit().event_ids == range(1)


@pytest.mark.parametrize("error", [StorageError("cannot sync"), KeyboardInterrupt()])
def test_a_commit_that_failed_says_what_is_unknown_and_can_only_be_rolled_back(error: BaseException) -> None:
    work = Work()
    flowfile = work.create()
    work.kept.error = error
    with pytest.raises(type(error)) as caught:
        work.commit()
    if isinstance(error, StorageError):
        assert "writer 'main': the commit of 1 events of LoadOrders failed: cannot sync" in str(caught.value)
        assert "It is unknown whether they are stored" in str(caught.value)
        assert caught.value.__cause__ is error
    work.kept.error = None
    acts: list[Callable[[], object]] = [work.commit, lambda: work.route(flowfile, "x")]
    for act in acts:
        with pytest.raises(ClosedError, match="can only be rolled back"):
            act()
    work.rollback()
    assert work.kept.events == []


def test_the_block_commits_at_its_end_and_rolls_back_when_it_raises() -> None:
    with Work() as work:
        work.create()
    assert kinds(work.kept.events) == ["CREATE"]
    with pytest.raises(RuntimeError), Work() as failed:
        failed.create()
        raise RuntimeError
    assert failed.kept.events == []
    with pytest.raises(ClosedError, match="was rolled back"):
        failed.commit()
    with Work() as ended:
        ended.create()
        ended.commit()
    assert kinds(ended.kept.events) == ["CREATE"]
    with Work() as left:
        left.create()
        left.rollback()
    assert left.kept.events == []


def test_a_block_whose_commit_fails_raises_and_is_rolled_back() -> None:
    kept = Kept()
    kept.error = StorageError("cannot sync")
    with pytest.raises(StorageError, match="unknown"), Work(kept) as work:
        work.create()
    with pytest.raises(ClosedError, match="was rolled back"):
        work.create()
