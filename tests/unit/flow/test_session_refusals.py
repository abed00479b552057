"""What a session refuses: wrong values, FlowFiles that it does not know or that have ended, and its own end."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import pytest

from custody.clock import ManualClock
from custody.errors import (
    ClosedError,
    InvalidInputError,
    NotFoundError,
)
from custody.flow import Component, FlowFile, Session
from custody.model import ContentClaim
from tests.unit.flow.event_rules import RULES, URI
from tests.unit.flow.session_fixtures import COMPONENT, Kept, Work, existing, kinds, only

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
    ("a size", lambda w, f: w.modify_content(f, size=-1), "size: expected 0 bytes or more, at most 2.63-1, got -1"),
    ("too large a size", lambda w, f: w.create(size=1 << 63), "size: expected 0 bytes or more"),
    ("a size that is no number", lambda w, f: w.create(size=1.5), "size: .*got 1.5"),  # type: ignore[arg-type]
    ("a number for a text", lambda w, f: w.route(f, 5), "relationship"),  # type: ignore[arg-type]
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


HALF = os.fsdecode(b"men\xfc.csv")
"""What `os.listdir` gives for a name that is no UTF-8."""
NO_UNICODE: list[tuple[str, Callable[[Work, FlowFile], object]]] = [
    (r"updated_attributes\['filename'\], character 3", lambda w, _: w.create({"filename": HALF})),
    ("updated_attributes: a name, character 3", lambda w, _: w.create({HALF: "x"})),
    (r"updated_attributes\['a'\]", lambda w, f: w.fork(f, {"a": HALF})),
    (r"updated_attributes\['a'\]", lambda w, f: w.join([f], {"a": HALF})),
    (r"updated_attributes\['a'\]", lambda w, f: w.modify_attributes(f, {"a": HALF})),
    ("details", lambda w, f: w.modify_attributes(f, {"a": "1"}, details=HALF)),
    ("details", lambda w, f: w.modify_content(f, size=1, details=HALF)),
    ("content_claim.identifier", lambda w, f: w.modify_content(f, size=1, content_claim=ContentClaim(identifier=HALF))),
    ("content_claim.container", lambda w, f: w.fork(f, content_claim=ContentClaim(container=HALF))),
    ("transit_uri", lambda w, f: w.receive(f, HALF)),
    ("source_system_flowfile_identifier", lambda w, f: w.receive(f, URI, source_identifier=HALF)),
    ("transit_uri", lambda w, f: w.fetch(f, HALF)),
    ("transit_uri", lambda w, f: w.send(f, HALF)),
    ("transit_uri", lambda w, f: w.send(f, HALF, force=False)),
    ("details", lambda w, f: w.upload(f, URI, 1, details=HALF)),
    ("transit_uri", lambda w, f: w.remote_invocation(f, HALF)),
    ("relationship", lambda w, f: w.route(f, HALF)),
    ("alternate_identifier_uri", lambda w, f: w.addinfo(f, "order", HALF)),
    ("details", lambda w, f: w.drop(f, HALF)),
    ("details", lambda w, f: w.terminate(f, HALF)),
    ("details", lambda w, _: w.expire(w.take(existing("other")), HALF)),
    ("source_queue_identifier", lambda w, _: w.take(existing("other"), queue=HALF)),
    ("flowfile_uuid", lambda w, _: w.take(existing(HALF))),
    (r"attributes\['a'\]", lambda w, _: w.take(existing("other", a=HALF))),
]


@pytest.mark.parametrize(("field", "act"), NO_UNICODE)
def test_text_that_is_no_unicode_is_refused_by_name_and_the_session_goes_on(
    field: str, act: Callable[[Work, FlowFile], object]
) -> None:
    work = Work()
    flowfile = work.take(existing())
    work.receive(flowfile, URI)
    with pytest.raises(InvalidInputError, match=f"{field}.*lone surrogate U.DCFC, for the byte 0xFC") as refused:
        act(work, flowfile)
    assert str(refused.value).isprintable()
    assert work.current(flowfile) == existing()
    assert kinds(work.done()) == ["RECEIVE"]


@pytest.mark.parametrize("name", ["id", "type", "name", "process_group_id", "process_group_name"])
def test_a_component_is_named_in_unicode(name: str) -> None:
    component = msgspec.structs.replace(COMPONENT, **{name: HALF})
    with pytest.raises(InvalidInputError, match=f"component.{name}, character 3"):
        Session(component, Kept(), ManualClock())


def test_a_child_that_is_refused_leaves_no_trace_in_a_fork() -> None:
    work = Work()
    flowfile = work.take(existing())
    with pytest.raises(InvalidInputError):
        work.fork(flowfile, {"a": HALF})
    child = work.fork(flowfile, {"a": "\0"})
    assert only(work.done(), "FORK").child_uuids == (child.uuid,)


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
