"""The state: each change does what it says, a snapshot of it restores it, and what cannot be applied is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from custody.errors import CorruptionError
from custody.flowfile_repository import Connection, Waiting
from custody.flowfile_repository.records import (
    Connect,
    Delivered,
    Disconnect,
    Enter,
    Gone,
    Leave,
    Move,
    Released,
    Return,
    SwapBlock,
    SwapFile,
    SwapIn,
    SwapOut,
    Take,
    Transaction,
    Yield,
    encode_events,
)
from custody.flowfile_repository.state import FlowFileState
from tests.support import event
from tests.unit.flowfile_repository.queue_fixtures import CLAIM, NOW, flowfile

BLOCKS: dict[tuple[str, int], list[Waiting]] = {}


def _state(*changes: Any) -> FlowFileState:
    state = FlowFileState(lambda swap, number: BLOCKS[swap.name, number])
    _apply(state, Connect(Connection(name="q")), Connect(Connection(name="r")), *changes)
    return state


def _apply(state: FlowFileState, *changes: Any, **fields: Any) -> None:
    state.apply(Transaction(state.last_transaction + 1, "m", NOW, tuple(changes), **fields))


def _enter(name: str, sequence: int, **values: Any) -> Enter:
    return Enter(Waiting(flowfile(name, **values), "q", sequence, NOW))


def _restored(state: FlowFileState) -> FlowFileState:
    """The state as a snapshot keeps it."""
    summary = msgspec.msgpack.decode(msgspec.msgpack.encode(state.summary()), type=type(state.summary()))
    flowfiles = msgspec.msgpack.decode(msgspec.msgpack.encode(list(state.flowfiles())), type=list[Waiting])
    return FlowFileState.restored(state.read_block, state.last_transaction, flowfiles, summary)


def _seen(state: FlowFileState) -> dict[str, Any]:
    """All that two equal states have in common."""
    return {
        "waiting": {name: dict(sorted(queue.waiting.items())) for name, queue in state.queues.items()},
        "sizes": {name: queue.size for name, queue in state.queues.items()},
        "swaps": {name: queue.swaps for name, queue in state.queues.items()},
        "taken": {uuid: (taken.item, taken.session) for uuid, taken in state.taken.items()},
        "claimants": +state.claimants,
        "rest": (state.undelivered, state.releasable, state.yielded, state.drained_swaps, state.places),
        "numbers": (state.last_transaction, state.next_sequence, state.next_ordinal),
    }


def test_a_flowfile_enters_is_taken_moves_and_leaves() -> None:
    state = _state(_enter("f", 0, size=5, claim=1, a="1", b="2"))
    _apply(state, Take(("f",), "m/s"))
    assert state.queues["q"].size.taken == 1
    assert state.places == {}
    _apply(state, Move("f", "r", 1, NOW + 1, attributes={"a": None, "c": "3"}))
    moved = state.queues["r"].waiting["f"]
    assert moved.flowfile.attributes == {"uuid": "f", "b": "2", "c": "3"}
    assert (moved.flowfile.size, moved.flowfile.content_claim) == (5, flowfile(size=5, claim=1).content_claim)
    assert state.claimants == {f"{CLAIM}1": 1}
    _apply(state, Take(("f",), "m/s"), Leave("f"))
    assert [queue.size.count for queue in state.queues.values()] == [0, 0]
    assert (state.claimants, list(state.releasable)) == ({}, [f"{CLAIM}1"])


def test_new_content_lets_go_of_the_old_one() -> None:
    state = _state(_enter("f", 0, size=5, claim=1), _enter("g", 1, size=5, claim=1), Take(("f",), "m/s"))
    new = flowfile(size=7, claim=2).content_claim
    _apply(state, Move("f", "q", 2, NOW, has_new_content=True, size=7, content_claim=new))
    assert state.queues["q"].waiting["f"].flowfile.size == 7
    assert state.claimants == {f"{CLAIM}1": 1, f"{CLAIM}2": 1}
    assert not state.releasable
    _apply(state, Take(("f", "g"), "m/s"), Leave("g"))
    assert list(state.releasable) == [f"{CLAIM}1"]
    _apply(state, _enter("h", 3, size=5, claim=1))
    assert not state.releasable, "it is referred to again"


def test_a_released_claim_is_in_the_archive() -> None:
    state = _state(_enter("f", 0, claim=1), Take(("f",), "m/s"), Leave("f"))
    _apply(state, Released((f"{CLAIM}1", f"{CLAIM}9")))
    assert (state.releasable, list(state.archived)) == ({}, [f"{CLAIM}1"])


def test_what_goes_back_gets_its_place_again() -> None:
    state = _state(*(_enter(name, n) for n, name in enumerate("abc")), Take(("a", "b"), "m/s"))
    _apply(state, Return(("a",)), Return(("b",), NOW + 9))
    queue = state.queues["q"]
    first = queue.first(NOW)
    assert first is not None
    assert (first.uuid, queue.size.penalised, queue.size.taken) == ("a", 1, 0)


def test_what_a_dead_member_had_taken_goes_back_and_nothing_else() -> None:
    state = _state(*(_enter(name, n) for n, name in enumerate("abc")))
    _apply(state, Take(("a",), "m/s"), Take(("b",), "m/t"), Take(("c",), "mm/s"))
    assert state.members == {"m", "mm"}
    _apply(state, Gone("m"))
    assert set(state.queues["q"].waiting) == {"a", "b"}
    assert set(state.taken) == {"c"}


def test_a_yield_counts_until_its_end() -> None:
    state = _state(Yield("x", NOW + 5))
    assert state.yielded == {"x": NOW + 5}
    state.apply(Transaction(state.last_transaction + 1, "m", NOW + 5, (Yield("y", NOW + 9),)))
    assert state.yielded == {"y": NOW + 9}


def test_events_are_undelivered_until_the_log_tells_otherwise() -> None:
    state = _state()
    _apply(state, _enter("f", 0), first_ordinal=0, event_count=2, events=encode_events([event(0), event(1)]))
    [waiting] = state.undelivered.values()
    assert (waiting.changes, waiting.decoded_events(), state.next_ordinal) == ((), [event(0), event(1)], 2)
    _apply(state, Delivered((1, 99)))
    assert not state.undelivered


def test_a_queue_gets_other_bounds_and_keeps_what_waits() -> None:
    state = _state(_enter("f", 0), Connect(Connection(name="q", count_max=7)), Disconnect("r"))
    assert list(state.queues) == ["q"]
    assert (state.queues["q"].connection.count_max, state.queues["q"].size.count) == (7, 1)


@pytest.mark.parametrize(
    "change",
    [
        Leave("no"),
        Move("no", "q", 0, 0),
        Take(("no",), "m/s"),
        Return(("no",)),
        Disconnect("no"),
        SwapIn("no"),
        Enter(Waiting(flowfile(), "no", 0, 0)),
        SwapOut(SwapFile("s", "no", ())),
    ],
)
def test_a_change_of_what_is_not_there_is_damage(change: Any) -> None:
    with pytest.raises(CorruptionError, match="transaction 1 changes 'no', which is not there"):
        _apply(_state(), change)


def test_a_transaction_out_of_turn_is_damage() -> None:
    with pytest.raises(CorruptionError, match="expected transaction 1, got 3"):
        _state().apply(Transaction(3, "m", NOW))


def test_a_snapshot_restores_everything() -> None:
    state = _state(*(_enter(name, n, claim=n // 2) for n, name in enumerate("abcdef")))
    for number, names in enumerate(("cd", "ef")):
        BLOCKS["s", number] = [state.queues["q"].waiting[name] for name in names]
    blocks = (SwapBlock(8, ((), 2), 2, 0, {f"{CLAIM}1": 2}), SwapBlock(99, ((), 4), 2, 0, {f"{CLAIM}2": 2}))
    _apply(state, SwapOut(SwapFile("s", "q", blocks)), Take(("a",), "m/s"), Take(("b",), "m/s"), Leave("b"))
    _apply(state, Yield("x", NOW + 1), first_ordinal=3, event_count=1, events=encode_events([event(3)]))
    assert _seen(_restored(state)) == _seen(state)
    _apply(state, SwapIn("s"), Take(("c",), "m/s"), Return(("a",), NOW + 7))
    assert _seen(_restored(state)) == _seen(state)
    _apply(state, SwapIn("s"), Take(("d", "f", "a"), "m/s"), Leave("d"), Leave("f"))
    assert _seen(_restored(state)) == _seen(state)
    assert state.drained_swaps == {"s": None}
    assert set(_restored(state).queues["q"].waiting) == {"e"}
