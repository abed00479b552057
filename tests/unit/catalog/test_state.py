"""Holds and marks as facts of a catalog: they survive a checkpoint, and what did not know a hold takes nothing away."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.catalog import (
    EXPIRED,
    Action,
    AddHold,
    AddMark,
    Condition,
    MarkedShard,
    RemoveFile,
    RemoveHold,
    RemoveMark,
    RespectHolds,
    live_groups,
    verify,
)
from custody.errors import ConflictError, InvalidInputError
from tests.unit.catalog.catalogs import add, open_catalog


def hold(name: str, *event_ids: int) -> Action:
    condition = Condition(event_ids=event_ids)
    return Action(add_hold=AddHold(name=name, condition=condition, reason="asked for", who="legal", created_ms=7))


def mark(number: int, *groups: int) -> Action:
    shards = [MarkedShard(name="shard", container="containers/1")]
    return Action(
        add_mark=AddMark(id=bytes([number]) * 16, paths=["a", "b"], shards=shards, groups=groups, created_ms=7)
    )


def test_holds_and_marks_are_in_the_state_with_and_without_a_checkpoint(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.commit([hold("one", 1), hold("two", 2), mark(1, 5), mark(2, 6, 7)])
    catalog.commit([Action(remove_hold=RemoveHold(name="one", reason="over", who="legal", created_ms=8))])
    catalog.commit([Action(remove_mark=RemoveMark(id=bytes([1]) * 16)), mark(3)])
    for _ in range(2):
        state = open_catalog(tmp_path).load()
        assert {name: held.condition.event_ids for name, held in state.holds.items()} == {"two": [2]}
        assert sorted(state.marks) == ["02" * 16, "03" * 16]
        assert live_groups(state) == {6, 7}
        catalog.checkpoint()
    report = verify(open_catalog(tmp_path), files=False)
    assert (report.defects, report.checkpoints) == ([], 1)


def test_what_did_not_know_a_hold_does_not_apply(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.commit([add("a"), add("b", 1), hold("one", 1)])
    gone = Action(remove_file=RemoveFile(path="a", reason=EXPIRED))
    with pytest.raises(ConflictError, match="what the hold one may mean: it was not known"):
        catalog.commit([gone, Action(respect_holds=RespectHolds())])
    assert set(open_catalog(tmp_path).load().files) == {"a", "b"}
    catalog.commit([gone, Action(respect_holds=RespectHolds(names=["one", "released meanwhile"]))])
    assert set(open_catalog(tmp_path).load().files) == {"b"}
    with pytest.raises(ConflictError):
        catalog.commit([hold("two", 2), Action(respect_holds=RespectHolds(names=["one"]))])


@pytest.mark.parametrize(
    "refused",
    [
        AddHold(name="all", reason="?"),
        AddHold(condition=Condition(event_ids=[1])),
        AddHold(name="no time", condition=Condition(from_time_ms=5, to_time_ms=5)),
    ],
    ids=["no condition", "no name", "empty time"],
)
def test_a_hold_of_everything_or_nothing_is_refused(tmp_path: Path, refused: AddHold) -> None:
    with pytest.raises(InvalidInputError, match="hold"):
        open_catalog(tmp_path).commit([Action(add_hold=refused)])


def test_a_hold_that_does_not_stand_cannot_be_released_nor_a_name_given_twice(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.commit([hold("one", 1)])
    with pytest.raises(ConflictError, match="is live already"):
        catalog.commit([hold("one", 2)])
    with pytest.raises(ConflictError, match="is not live"):
        catalog.commit([Action(remove_hold=RemoveHold(name="two"))])
