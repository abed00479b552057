"""What a session refuses: wrong values, FlowFiles that it does not know or that have ended, and its own end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from custody.clock import ManualClock
from custody.errors import (
    ClosedError,
    InvalidInputError,
    NotFoundError,
)
from custody.flow import Component, FlowFile, Session
from tests.unit.flow.acts import RULES, URI
from tests.unit.flow.sessions import Kept, Work, existing

WRONG: list[tuple[str, Callable[[Work, FlowFile], object], str]] = [
    ("no transit URI", lambda w, f: w.receive(f, ""), "RECEIVE of FlowFile old: .*transit URI"),
    ("no URI of a fetch", lambda w, f: w.fetch(f, ""), "transit URI"),
    ("no URI of a send", lambda w, f: w.send(f, ""), "transit URI"),
    ("no URI of an upload", lambda w, f: w.upload(f, "", 1), "transit URI"),
    ("no URI of an invocation", lambda w, f: w.remote_invocation(f, ""), "transit_uri"),
    ("no relationship", lambda w, f: w.route(f, ""), "relationship"),
    ("no identifier", lambda w, f: w.addinfo(f, "order", " : "), "expected a namespace and an identifier"),
    ("no namespace", lambda w, f: w.addinfo(f, ":", "7"), "expected a namespace and an identifier"),
    ("a duration", lambda w, f: w.receive(f, URI, duration_ms=-2), "event_duration"),
    ("uploaded bytes", lambda w, f: w.upload(f, URI, -1), "uploaded_bytes"),
    ("a size", lambda w, f: w.modify_content(f, size=-1), "size: expected 0 bytes or more, got -1"),
    ("a new size", lambda w, f: w.create(size=-1), "size"),
    ("the uuid", lambda w, f: w.modify_attributes(f, {"uuid": "x"}), "keeps its uuid"),
    ("the new uuid", lambda w, f: w.create({"uuid": "x"}), "keeps its uuid"),
    ("a value", lambda w, f: w.modify_attributes(f, {"a": 1}), "expected text, got 1"),  # type: ignore[dict-item]
    ("no value", lambda w, f: w.create({"a": None}), "expected text, got None"),  # type: ignore[dict-item]
    ("a name", lambda w, f: w.modify_attributes(f, {"": "x"}), "expected a name"),
    ("no parents", lambda w, f: w.join([]), "expected at least one FlowFile"),
    ("taken twice", lambda w, f: w.take(f), "has it already"),
]


@pytest.mark.parametrize(("act", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_use_is_refused_and_leaves_no_trace(act: Callable[[Work, FlowFile], object], message: str) -> None:
    work = Work()
    flowfile = work.take(existing())
    with pytest.raises(InvalidInputError, match=message):
        act(work, flowfile)
    assert work.current(flowfile) == existing()
    assert work.done() == []


USES: list[Callable[[Work, FlowFile], object]] = [
    *(rule[1] for rule in RULES if rule[0] != "nothing"),
    lambda w, f: w.expire(f, "1 sec"),
    lambda w, f: w.current(f),
]


@pytest.mark.parametrize("act", USES)
def test_every_method_refuses_unknown_and_ended_flowfiles_and_ended_sessions(
    act: Callable[[Work, FlowFile], object],
) -> None:
    work = Work()
    with pytest.raises(NotFoundError, match="does not know it"):
        act(work, existing("stranger"))
    ends: list[Callable[[FlowFile], object]] = [
        work.drop,
        lambda f: work.terminate(f, "x"),
        lambda f: work.expire(f, "1"),
    ]
    for name, end in zip("abc", ends, strict=True):
        flowfile = work.take(existing(name))
        end(flowfile)
        with pytest.raises(NotFoundError, match="has ended in this session"):
            act(work, flowfile)
    last = work.take(existing("last"))
    work.commit()
    with pytest.raises(ClosedError, match="LoadOrders was committed"):
        act(work, last)
    rolled = Work()
    flowfile = rolled.take(existing())
    rolled.rollback()
    with pytest.raises(ClosedError, match="was rolled back"):
        act(rolled, flowfile)


@pytest.mark.parametrize(
    "act",
    [
        lambda w, f: w.modify_attributes(f, {"a": "1"}),
        lambda w, f: w.send(f, URI),
        lambda w, f: w.route(f, "success"),
        lambda w, f: w.fork(f),
        lambda w, f: w.join([f]),
        lambda w, f: w.clone(f),
    ],
)
def test_only_a_flowfile_that_nothing_was_done_with_expires(act: Callable[[Work, FlowFile], object]) -> None:
    work = Work()
    flowfile = work.take(existing())
    act(work, flowfile)
    with pytest.raises(InvalidInputError, match="nothing was done with"):
        work.expire(flowfile, "30 sec")
    with pytest.raises(InvalidInputError, match="nothing was done with"):
        work.expire(work.create(), "30 sec")


@pytest.mark.parametrize(("id", "type"), [("", "T"), ("i", "")])
def test_a_component_has_an_id_and_a_type(id: str, type: str) -> None:
    with pytest.raises(InvalidInputError, match="expected an id and a type"):
        Session(Component(id=id, type=type), Kept(), ManualClock())
