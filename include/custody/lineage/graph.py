"""Lineage: a graph of FlowFiles with all their events, their ancestors and their descendants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from custody.model import Event

Lookup = Callable[[Sequence[str], int], list[tuple[str, Event]]]
"""Given FlowFile uuids and a bound, returns at most that many events that mention one of them, each with its writer."""


@dataclass(frozen=True, slots=True)
class FlowFileNode:
    """One FlowFile: its own events in time order, the writer of each, and the FlowFiles made from it."""

    uuid: str
    events: tuple[Event, ...]
    writers: tuple[str, ...]
    parents: tuple[str, ...]
    children: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lineage:
    """The graph around the requested FlowFiles."""

    nodes: dict[str, FlowFileNode]
    events: int
    is_complete: bool
    """False when the bound on events was reached."""
    notices: tuple[str, ...] = ()
    """What could not be read, where more of the lineage may be."""

    def roots(self) -> list[FlowFileNode]:
        """Return the FlowFiles without a parent in the graph, oldest first."""
        roots = [node for node in self.nodes.values() if not node.parents]
        return sorted(roots, key=lambda node: (node.events[0].event_time if node.events else 0, node.uuid))

    def ancestors(self, uuid: str) -> set[str]:
        """Return the uuids of what a FlowFile came from, its own included."""
        ancestors: set[str] = set()
        pending = [uuid] if uuid in self.nodes else []
        while pending:
            one = pending.pop()
            if one not in ancestors:
                ancestors.add(one)
                pending += self.nodes[one].parents
        return ancestors

    def walk(self, toward: str | None = None) -> Iterator[tuple[int, FlowFileNode, bool]]:
        """Yield (depth, FlowFile, whether seen before) from the roots down; of a seen one no children follow.

        The branches that lead to the FlowFile `toward` come first.
        """
        first = set() if toward is None else self.ancestors(toward)
        seen: set[str] = set()
        starts = sorted(self.roots(), key=lambda node: node.uuid not in first)
        for start in [*starts, *self.nodes.values()]:  # a cycle has no root, so every node is a start
            stack = [] if start.uuid in seen else [(0, start.uuid)]
            while stack:
                depth, uuid = stack.pop()
                again = uuid in seen
                yield depth, self.nodes[uuid], again
                if not again:
                    seen.add(uuid)
                    children = sorted(self.nodes[uuid].children, key=lambda child: child not in first)
                    stack += [(depth + 1, child) for child in reversed(children)]


def trace(lookup: Lookup, uuids: Iterable[str], events_max: int) -> Lineage:
    """Follow parents and children from some FlowFiles until nothing new is found or `events_max` is reached."""
    events_by_id: dict[tuple[str, int], Event] = {}  # each writer counts its own ids
    visited: set[str] = set()
    frontier = set(uuids)
    # Invariant: a FlowFile is looked up once; what was visited leaves the frontier, so a cycle ends.
    while frontier and len(events_by_id) <= events_max:
        # Breadth first: one lookup for a whole generation, and one event more than allowed to know that the bound was
        # met.
        events = lookup(sorted(frontier), events_max + 1)
        visited |= frontier
        events_by_id.update(((writer, event.event_id), event) for writer, event in events)
        mentioned = {uuid for _, event in events for uuid in _relatives(event)}
        frontier = mentioned - visited
    is_complete = not frontier and len(events_by_id) <= events_max
    # Cut in time order, so that a graph that is not complete lacks its newest events and not random ones.
    in_order = sorted(events_by_id, key=lambda place: (events_by_id[place].event_time, place[1], place[0]))
    chosen = [(writer, events_by_id[writer, event_id]) for writer, event_id in in_order[:events_max]]
    return Lineage(_nodes(chosen), len(chosen), is_complete)


def _relatives(event: Event) -> Iterator[str]:
    yield event.flowfile_uuid
    yield from event.parent_uuids
    yield from event.child_uuids


def _nodes(events: Iterable[tuple[str, Event]]) -> dict[str, FlowFileNode]:
    own: dict[str, list[Event]] = defaultdict(list)
    writers: dict[str, list[str]] = defaultdict(list)
    parents: dict[str, dict[str, None]] = defaultdict(dict)
    children: dict[str, dict[str, None]] = defaultdict(dict)
    for writer, event in events:
        own[event.flowfile_uuid].append(event)
        writers[event.flowfile_uuid].append(writer)
        for parent in event.parent_uuids:
            for child in event.child_uuids:
                # An event may name a FlowFile as its own parent; an edge to itself would make it no root.
                if parent != child:
                    children[parent][child] = None
                    parents[child][parent] = None
    names = dict.fromkeys([*own, *parents, *children])
    return {
        uuid: FlowFileNode(uuid, tuple(own[uuid]), tuple(writers[uuid]), tuple(parents[uuid]), tuple(children[uuid]))
        for uuid in names
    }
