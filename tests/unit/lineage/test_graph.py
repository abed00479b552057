"""Lineage: everything that a FlowFile came from and everything that came of it, or a bound that says so."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import InvalidInputError
from custody.lineage import Bounds, Cut, Direction, expansion_bounds, require_expandable, trace
from custody.model import Event
from tests.support import event


class Store:
    """A list of events that is asked as a search would be."""

    def __init__(self, events: list[tuple[str, Event]]) -> None:
        self.events = events
        self.asked: list[str] = []

    def lookup(self, uuids: Sequence[str], events_max: int) -> list[tuple[str, Event]]:
        self.asked += uuids
        wanted = set(uuids)
        events = [
            (writer, item)
            for writer, item in self.events
            if wanted & {item.flowfile_uuid, *item.parent_uuids, *item.child_uuids}
        ]
        return events[::-1][:events_max]

    def identified(self, identifiers: Sequence[str], events_max: int) -> list[tuple[str, Event]]:
        self.asked += identifiers
        wanted = {name.lower() for name in identifiers}  # as an index does
        return [pair for pair in self.events if (pair[1].alternate_identifier_uri or "").lower() in wanted][:events_max]


def family(edges: list[tuple[str, str]], writer: str = "main") -> Store:
    """An event that made each FlowFile, and one for each parent that it was made from."""
    names = dict.fromkeys(name for edge in edges for name in edge)
    events = [event(n, event_id=n, flowfile_uuid=name) for n, name in enumerate(names)]
    for parent, child in edges:
        number = len(events)
        events.append(
            event(
                number,
                event_id=number,
                event_type="FORK",
                flowfile_uuid=parent,
                parent_uuids=(parent,),
                child_uuids=(child,),
            )
        )
    return Store([(writer, item) for item in events])


EDGES = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e"), ("x", "y")]


@pytest.mark.parametrize("start", "abcde")
def test_forks_and_joins_are_followed_both_ways_to_the_end(start: str) -> None:
    lineage = trace(family(EDGES).lookup, [start], 100)
    assert sorted(lineage.nodes) == list("abcde")
    assert lineage.is_complete
    assert lineage.events == 5 + 5
    edges = {(node.uuid, child) for node in lineage.nodes.values() for child in node.children}
    assert edges == {edge for edge in EDGES if "x" not in edge}
    assert edges == {(parent, node.uuid) for node in lineage.nodes.values() for parent in node.parents}
    assert [node.uuid for node in lineage.roots()] == ["a"]


def test_an_event_keeps_to_its_own_flowfile_and_to_time() -> None:
    lineage = trace(family(EDGES).lookup, ["a"], 100)
    for node in lineage.nodes.values():
        assert {item.flowfile_uuid for item in node.events} == {node.uuid}
        assert list(node.events) == sorted(node.events, key=lambda item: item.event_time)


def test_a_walk_shows_each_flowfile_under_every_parent_but_opens_it_once() -> None:
    lineage = trace(family(EDGES).lookup, ["e"], 100)
    seen = [(depth, node.uuid, again) for depth, node, again in lineage.walk()]
    assert seen == [
        (0, "a", False),
        (1, "b", False),
        (2, "d", False),
        (3, "e", False),
        (1, "c", False),
        (2, "d", True),
    ]


def test_no_flowfile_is_asked_for_twice() -> None:
    store = family(EDGES)
    trace(store.lookup, ["d"], 100)
    assert sorted(store.asked) == list("abcde")


@given(st.integers(1, 14))
def test_a_lineage_is_cut_at_its_bound_and_says_so(limit: int) -> None:
    lineage = trace(family(EDGES).lookup, ["a"], limit)
    assert lineage.events == min(limit, 10)
    assert lineage.is_complete == (limit >= 10)


def test_a_lineage_that_just_fits_its_bound_is_whole() -> None:
    forks = [item for item in family(EDGES[:4]).events if item[1].event_type == "FORK"]
    lineage = trace(Store(forks).lookup, ["a"], len(forks))
    assert (lineage.events, lineage.is_complete) == (4, True)
    assert sorted(lineage.nodes) == list("abcd")


def test_events_of_two_writers_with_the_same_ids_are_all_kept() -> None:
    one = family([("a", "b")], "one").events
    other = family([("b", "c")], "two").events
    lineage = trace(Store(one + other).lookup, ["a"], 100)
    assert sorted(lineage.nodes) == ["a", "b", "c"]
    assert lineage.events == 6


def test_a_flowfile_that_nobody_mentions_has_no_lineage() -> None:
    lineage = trace(family(EDGES).lookup, ["nobody"], 100)
    assert (lineage.nodes, lineage.events, lineage.is_complete) == ({}, 0, True)


def test_a_replay_that_names_itself_as_parent_is_no_loop() -> None:
    again = event(0, event_id=0, event_type="REPLAY", flowfile_uuid="a", parent_uuids=("a",), child_uuids=("a",))
    lineage = trace(Store([("main", again)]).lookup, ["a"], 100)
    assert [node.uuid for _, node, _ in lineage.walk()] == ["a"]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.sampled_from("abcdef")), min_size=1, max_size=8))
def test_a_lineage_is_the_connected_part_of_the_graph(edges: list[tuple[str, str]]) -> None:
    start = edges[0][0]
    connected = {start}
    for _ in edges:
        connected |= {name for edge in edges if connected & set(edge) for name in edge}
    assert set(trace(family(edges).lookup, [start], 1000).nodes) == connected


def test_a_walk_reaches_every_flowfile_of_a_cycle() -> None:
    lineage = trace(family([("a", "b"), ("b", "a")]).lookup, ["a"], 100)
    assert {node.uuid for _, node, _ in lineage.walk()} == {"a", "b"}


def test_a_bound_of_depth_names_the_flowfiles_that_have_more() -> None:
    store = family(EDGES)
    near = trace(store.lookup, ["a"], Bounds(100, depth_max=0))
    assert sorted(near.nodes) == ["a", "b", "c"]
    assert near.cut == {"b": Cut.DEPTH, "c": Cut.DEPTH}
    assert not near.is_complete
    further = trace(store.lookup, ["a"], Bounds(100, depth_max=1))
    assert further.cut == {"d": Cut.DEPTH}
    whole = trace(store.lookup, ["a"], Bounds(100, depth_max=3))
    assert (sorted(whole.nodes), whole.cut, whole.is_complete) == (list("abcde"), {}, True)


def test_bounds_of_time_include_their_ends_and_name_what_has_more() -> None:
    events = [event(n, event_id=n, event_time=n, flowfile_uuid="a") for n in range(5)]
    store = Store([("main", item) for item in events])
    lineage = trace(store.lookup, ["a"], Bounds(100, since_ms=1, until_ms=3))
    assert [item.event_time for item in lineage.nodes["a"].events] == [1, 2, 3]
    assert (lineage.cut, lineage.is_complete) == ({"a": Cut.TIME}, False)
    assert trace(store.lookup, ["a"], Bounds(100, since_ms=0, until_ms=4)).is_complete


def test_a_bound_of_size_names_what_lost_events() -> None:
    events = [event(n, event_id=n, event_time=n, flowfile_uuid="a") for n in range(5)]
    lineage = trace(Store([("main", item) for item in events]).lookup, ["a"], 2)
    assert (lineage.events, lineage.cut) == (2, {"a": Cut.SIZE})


def test_a_flowfile_of_which_nothing_can_be_seen_keeps_the_graph_together() -> None:
    # Of `b` only the events that name it are left: what made it and what happened to it was forgotten.
    store = Store([pair for pair in family([("a", "x"), ("b", "d")]).events if pair[1].flowfile_uuid != "b"])
    join = event(9, event_id=9, event_type="JOIN", flowfile_uuid="d", parent_uuids=("a", "b"), child_uuids=("d",))
    store.events.append(("main", join))
    lineage = trace(store.lookup, ["a"], 100)
    kinds = {uuid: node.kind for uuid, node in lineage.nodes.items()}
    assert kinds == {"a": "FLOWFILE", "x": "FLOWFILE", "b": "UNKNOWN", "d": "FLOWFILE"}
    assert lineage.nodes["b"].children == ("d",)


def test_a_flowfile_behind_a_bound_is_not_unknown() -> None:
    join = event(9, event_id=9, event_type="JOIN", flowfile_uuid="d", parent_uuids=("b",), child_uuids=("d",))
    lineage = trace(Store([("main", join)]).lookup, ["d"], Bounds(100, depth_max=0))
    assert (lineage.nodes["b"].kind, lineage.cut) == ("FLOWFILE", {"b": Cut.DEPTH})


@pytest.mark.parametrize("event_type", ["SEND", "DROP", "RECEIVE", "CREATE", "OWN"])
@pytest.mark.parametrize("direction", list(Direction))
def test_only_events_with_relatives_can_be_expanded(event_type: str, direction: Direction) -> None:
    with pytest.raises(InvalidInputError, match=rf"got {event_type}, so its {direction} cannot be expanded"):
        require_expandable(event(event_type=event_type), direction)


@pytest.mark.parametrize("event_type", ["CLONE", "FORK", "JOIN", "REPLAY"])
def test_an_expansion_ends_at_the_time_of_the_event(event_type: str) -> None:
    one = event(event_type=event_type, event_time=50, lineage_start_date=10, parent_uuids=("a",), child_uuids=("b",))
    assert require_expandable(one, Direction.PARENTS) == ("a",)
    assert require_expandable(one, Direction.CHILDREN) == ("b",)
    assert expansion_bounds(one, Direction.PARENTS, Bounds(9)) == Bounds(9, 0, 10, 50)
    assert expansion_bounds(one, Direction.CHILDREN, Bounds(9, 2, until_ms=70)) == Bounds(9, 2, 50, 70)


def named(*pairs: tuple[str, str], first: int = 100) -> list[tuple[str, Event]]:
    """An ADDINFO for each pair of a FlowFile and an identifier."""
    return [
        (
            "main",
            event(
                first + n,
                event_id=first + n,
                event_type="ADDINFO",
                flowfile_uuid=uuid,
                alternate_identifier_uri=identifier,
            ),
        )
        for n, (uuid, identifier) in enumerate(pairs)
    ]


def test_a_lineage_goes_on_across_equal_identifiers_and_no_others() -> None:
    store = family([("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")])
    store.events += named(
        ("b", "erp:1"), ("c", "erp:1"), ("d", "ERP:1"), ("f", "erp:1 "), ("d", "crm:2"), ("g", "crm:2")
    )
    lineage = trace(store.lookup, ["a"], 100, identified=store.identified)
    assert set(lineage.nodes) == {*"abcdgh"}
    assert lineage.identifiers == {"erp:1": ("b", "c"), "crm:2": ("d", "g")}
    assert lineage.is_complete
    assert len(store.asked) == len(set(store.asked)), "nothing is asked for twice"
    apart = trace(store.lookup, ["a"], 100)
    assert (set(apart.nodes), apart.identifiers) == ({*"ab"}, {})


def test_a_lineage_can_begin_with_an_identifier() -> None:
    store = family([("a", "b"), ("c", "d")])
    store.events += named(("b", "erp:1"))
    lineage = trace(store.lookup, [], 100, identified=store.identified, identifiers=["erp:1"])
    assert (set(lineage.nodes), lineage.identifiers) == ({*"ab"}, {"erp:1": ("b",)})
    assert trace(store.lookup, [], 100, identified=store.identified, identifiers=["erp:2"]).events == 0


def test_an_identifier_is_one_generation_away() -> None:
    store = family([("a", "b"), ("c", "d")])
    store.events += named(("a", "erp:1"), ("c", "erp:1"))
    lineage = trace(store.lookup, ["a"], Bounds(100, depth_max=0), identified=store.identified)
    assert "c" not in lineage.nodes
    assert not lineage.is_complete
    assert set(trace(store.lookup, ["a"], Bounds(100, depth_max=1), identified=store.identified).nodes) == {*"abcd"}


@pytest.mark.parametrize(("flowfiles_max", "expected"), [(3, {*"abcd"}), (2, {*"a"})])
def test_an_identifier_of_too_many_flowfiles_is_a_bound_that_says_so(flowfiles_max: int, expected: set[str]) -> None:
    store = family([])
    store.events += named(("a", "x:0"), ("b", "x:0"), ("c", "x:0"))
    store.events += family([("c", "d")]).events
    lineage = trace(
        store.lookup, ["a"], Bounds(100, identifier_flowfiles_max=flowfiles_max), identified=store.identified
    )
    assert set(lineage.nodes) == expected
    assert lineage.cut == ({} if "b" in expected else {"a": Cut.IDENTIFIER})
    asked = trace(
        store.lookup, [], Bounds(100, identifier_flowfiles_max=1), identified=store.identified, identifiers=["x:0"]
    )
    assert {*"abc"} <= set(asked.nodes), "what was asked for is given"


def test_of_an_identifier_that_tells_nothing_few_events_are_read() -> None:
    store = family([("a", "b")])
    store.events += named(("b", "erp:1"), ("c", "erp:1"), *((f"f{number:05}", "x:0") for number in range(20_000)))
    store.events += named(("b", "x:0"), ("c", "x:0"))
    read = 0

    def counted(identifiers: Sequence[str], events_max: int) -> list[tuple[str, Event]]:
        nonlocal read
        found = store.identified(identifiers, events_max)
        read += len(found)
        return found

    lineage = trace(store.lookup, ["a"], 50_000, identified=counted)
    assert set(lineage.nodes) == {*"abc"}
    assert lineage.cut == {"b": Cut.IDENTIFIER}
    # Also where it is not followed: these two have it in common, whichever events were read.
    assert lineage.identifiers == {"erp:1": ("b", "c"), "x:0": ("b", "c")}
    assert read < 2000


def test_an_identifier_of_few_flowfiles_with_many_events_is_followed() -> None:
    store = family([])
    store.events += named(("a", "x:0"), *((f"f{number % 3}", "x:0") for number in range(5000)))
    lineage = trace(store.lookup, ["a"], 50_000, identified=store.identified)
    assert set(lineage.nodes) == {"a", "f0", "f1", "f2"}
    assert lineage.is_complete


def test_identifiers_of_more_events_than_the_bound_cut_the_lineage() -> None:
    store = family([])
    store.events += named(*((f"f{number:02}", "x:0") for number in range(30)))
    lineage = trace(store.lookup, ["f00"], 10, identified=store.identified)
    assert lineage.events <= 10
    assert not lineage.is_complete
