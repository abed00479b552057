"""Lineage: everything that a FlowFile came from and everything that came of it, or a bound that says so."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.lineage import trace
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
