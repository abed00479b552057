"""Lineage: a graph of FlowFiles with all their events, their ancestors and their descendants."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum

from custody.errors import InvalidInputError
from custody.model import Event, EventType

EXPANDABLE = (EventType.CLONE, EventType.FORK, EventType.JOIN, EventType.REPLAY)
"""The types of events whose parents and children can be expanded, as in NiFi."""


class Direction(StrEnum):
    """The side of an event to which it is expanded."""

    PARENTS = "parents"
    CHILDREN = "children"


class Cut(StrEnum):
    """The bound behind which a FlowFile has more than the lineage shows."""

    SIZE = "size"
    DEPTH = "depth"
    TIME = "time"
    IDENTIFIER = "identifier"


class NodeKind(StrEnum):
    """FLOWFILE, or UNKNOWN for what may not or cannot be seen and still connects others."""

    FLOWFILE = "FLOWFILE"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far a lineage goes; times in ms since the epoch, both included."""

    events_max: int
    depth_max: int | None = None
    """Generations away from where it begins; 0 gives the events of the FlowFiles that were named."""
    since_ms: int | None = None
    until_ms: int | None = None
    identifier_flowfiles_max: int = 100
    """An alternate identifier that more FlowFiles have tells nothing of them: the lineage does not go on across it."""

    def include(self, event: Event) -> bool:
        """Whether an event lies within the times."""
        is_late_enough = self.since_ms is None or event.event_time >= self.since_ms
        return is_late_enough and (self.until_ms is None or event.event_time <= self.until_ms)


Lookup = Callable[[Sequence[str], int], list[tuple[str, Event]]]
"""Given FlowFile uuids and a bound, returns at most that many events that mention one of them, each with its writer."""

Identified = Callable[[Sequence[str], int], list[tuple[str, Event]]]
"""Given alternate identifiers and a bound, returns at most that many events that name one, each with its writer."""


@dataclass(frozen=True, slots=True)
class FlowFileNode:
    """One FlowFile: its own events in time order, the writer of each, and the FlowFiles made from it."""

    uuid: str
    events: tuple[Event, ...]
    writers: tuple[str, ...]
    parents: tuple[str, ...]
    children: tuple[str, ...]
    kind: NodeKind = NodeKind.FLOWFILE
    """UNKNOWN: others name it, and no event that made it or that it had can be seen."""
    cut: Cut | None = None
    """The bound behind which there is more of it."""


@dataclass(frozen=True, slots=True)
class UnknownEvent:
    """An event that is there and cannot be read, with the FlowFiles of the lineage that it mentions."""

    writer: str
    event_id: int
    uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lineage:
    """The graph around the requested FlowFiles."""

    nodes: dict[str, FlowFileNode]
    events: int
    is_complete: bool
    """False when a bound was reached."""
    notices: tuple[str, ...] = ()
    """What could not be read, where more of the lineage may be."""
    unknown_events: tuple[UnknownEvent, ...] = ()
    identifiers: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The alternate identifiers across which it goes on, or began, each with the FlowFiles that have it."""
    as_of: Mapping[str, int] = field(default_factory=dict, compare=False)
    """The revisions that it is made of, by writer, as those of a search."""

    @property
    def cut(self) -> dict[str, Cut]:
        """The FlowFiles of which there is more, each with the bound."""
        return {uuid: node.cut for uuid, node in self.nodes.items() if node.cut is not None}

    def with_events(self, change: Callable[[Event], Event]) -> Lineage:
        """Return the lineage with each event as `change` returns it."""
        nodes = {
            uuid: replace(node, events=tuple(change(event) for event in node.events))
            for uuid, node in self.nodes.items()
        }
        return replace(self, nodes=nodes)

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


_EVENTS_AN_IDENTIFIER = 4
"""Of an identifier so many events a FlowFile are read first, and so many times more where these do not tell."""


@dataclass(slots=True)
class _Walk:
    """What a breadth-first walk has met so far."""

    bounds: Bounds
    events: dict[tuple[str, int], Event] = field(default_factory=dict)  # each writer counts its own ids
    visited: set[str] = field(default_factory=set)
    cut: dict[str, Cut] = field(default_factory=dict)
    identifiers: dict[str, set[str]] = field(default_factory=dict)
    """Each alternate identifier that was met, with its FlowFiles as far as they were asked for."""
    followed: set[str] = field(default_factory=set)

    def take(self, found: Sequence[tuple[str, Event]]) -> set[str]:
        """Keep the events within the times; return the FlowFiles that they mention."""
        mentioned: set[str] = set()
        for writer, event in found:
            if self.bounds.include(event):
                self.events[writer, event.event_id] = event
                if event.alternate_identifier_uri:
                    self.identifiers.setdefault(event.alternate_identifier_uri, set()).add(event.flowfile_uuid)
                mentioned.update(_relatives(event))
            else:
                self.mark(_relatives(event), Cut.TIME)
        return mentioned

    def follow(self, identified: Identified, asked: Set[str] = frozenset()) -> set[str]:
        """Return the FlowFiles that have an identifier which was met and not followed yet, or one that is `asked` for.

        Those of an identifier with too many of them are marked instead.
        """
        wanted = sorted((self.identifiers.keys() | asked) - self.followed)
        if not wanted:
            return set()
        self.followed.update(wanted)
        flowfiles: set[str] = set()
        for name, uuids in self._having(identified, wanted, asked).items():
            self.identifiers.setdefault(name, set()).update(uuids)
            if name in asked or len(uuids) <= self.bounds.identifier_flowfiles_max:
                flowfiles |= uuids
            else:
                self.mark(self.identifiers[name] & self.visited, Cut.IDENTIFIER)
        return flowfiles

    def _having(self, identified: Identified, wanted: Sequence[str], asked: Set[str]) -> dict[str, set[str]]:
        """Return the FlowFiles of each identifier; of one that has too many, some, but more than it may have.

        Millions of events may name an identifier that tells nothing: few are read to know that.
        """
        having: dict[str, set[str]] = {name: set() for name in wanted}
        most = self.bounds.events_max + 1
        few = min(most, _EVENTS_AN_IDENTIFIER * (self.bounds.identifier_flowfiles_max + 1))
        if not asked and self._add(having, identified(wanted, few)) < few:
            return having
        for name in wanted:
            limit = most if name in asked else few
            while True:
                count = self._add(having, identified([name], limit))
                if count < limit or limit == most or len(having[name]) > self.bounds.identifier_flowfiles_max:
                    break
                limit = min(most, _EVENTS_AN_IDENTIFIER * limit)
            if count > self.bounds.events_max:
                self.mark(having[name], Cut.SIZE)
        return having

    @staticmethod
    def _add(having: Mapping[str, set[str]], found: Sequence[tuple[str, Event]]) -> int:
        for _, event in found:
            # An index has texts in lower case, and of long ones the beginning.
            if event.alternate_identifier_uri and event.alternate_identifier_uri in having:
                having[event.alternate_identifier_uri].add(event.flowfile_uuid)
        return len(found)

    def mark(self, uuids: Iterable[str], cut: Cut) -> None:
        """Take note that there is more of some FlowFiles."""
        for uuid in uuids:
            self.cut.setdefault(uuid, cut)


def trace(
    lookup: Lookup,
    uuids: Iterable[str],
    bounds: Bounds | int,
    begin: Sequence[tuple[str, Event]] = (),
    identified: Identified | None = None,
    identifiers: Collection[str] = (),
) -> Lineage:
    """Follow parents and children from some FlowFiles until nothing new is found or a bound is reached.

    FlowFiles with an equal alternate identifier follow as well, one generation away, where there is an `identified`.

    Args:
        lookup: finds the events of FlowFiles.
        uuids: the FlowFiles to begin with.
        bounds: how far to go; a number is the most events.
        begin: events that are part of the lineage whatever is found.
        identified: finds the events that name alternate identifiers.
        identifiers: alternate identifiers to begin with.
    """
    if isinstance(bounds, int):
        bounds = Bounds(bounds)
    walk = _Walk(bounds)
    walk.take(begin)
    frontier, depth = set(uuids), 0
    if identified is not None and identifiers:
        frontier |= walk.follow(identified, set(identifiers))
    # Invariant: a FlowFile is looked up once; what was visited leaves the frontier, so a cycle ends.
    while frontier and len(walk.events) <= bounds.events_max:
        if bounds.depth_max is not None and depth > bounds.depth_max:
            walk.mark(frontier, Cut.DEPTH)
            break
        # Breadth first: one lookup for a whole generation, and one event more than allowed to know that the bound was
        # met.
        found = lookup(sorted(frontier), bounds.events_max + 1)
        if len(found) > bounds.events_max:
            walk.mark(frontier, Cut.SIZE)
        walk.visited |= frontier
        frontier = walk.take(found)
        if identified is not None:
            frontier |= walk.follow(identified)
        frontier -= walk.visited
        depth += 1
    walk.mark(frontier, Cut.SIZE)
    # Cut in time order, so that a graph that is not complete lacks its newest events and not random ones.
    in_order = sorted(walk.events, key=lambda place: (walk.events[place].event_time, place[1], place[0]))
    for place in in_order[bounds.events_max :]:
        walk.mark(_relatives(walk.events[place]), Cut.SIZE)
    chosen = [(writer, walk.events[writer, event_id]) for writer, event_id in in_order[: bounds.events_max]]
    # What is cut, and no node of the graph, is named by the nodes that the same events mention.
    nodes = _nodes(chosen, walk)
    return Lineage(nodes, len(chosen), not walk.cut, identifiers=_shared(nodes, walk, identifiers))


def require_expandable(event: Event, direction: Direction) -> tuple[str, ...]:
    """Return the FlowFiles that an event came from, or those that it made.

    Raises:
        InvalidInputError: events of its type have neither.
    """
    if event.event_type not in EXPANDABLE:
        raise InvalidInputError(
            f"event {event.event_id}: expected one of the types {', '.join(EXPANDABLE)}, got {event.event_type}, so "
            f"its {direction} cannot be expanded."
        )
    return event.parent_uuids if direction is Direction.PARENTS else event.child_uuids


def expansion_bounds(event: Event, direction: Direction, bounds: Bounds) -> Bounds:
    """Return the bounds of one step from an event: what came before it, or what came after it."""
    since, until = bounds.since_ms, bounds.until_ms
    if direction is Direction.CHILDREN:
        since = event.event_time if since is None else max(since, event.event_time)
    else:
        until = event.event_time if until is None else min(until, event.event_time)
        since = event.lineage_start_date if since is None else since
    return Bounds(bounds.events_max, bounds.depth_max or 0, since, until)


def _relatives(event: Event) -> Iterator[str]:
    yield event.flowfile_uuid
    yield from event.parent_uuids
    yield from event.child_uuids


def _shared(nodes: Mapping[str, FlowFileNode], walk: _Walk, asked: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the identifiers that join FlowFiles of the graph, and those that were asked for."""
    having = {name: tuple(sorted(uuid for uuid in uuids if uuid in nodes)) for name, uuids in walk.identifiers.items()}
    return {name: uuids for name, uuids in sorted(having.items()) if len(uuids) > 1 or (uuids and name in asked)}


def _nodes(events: Iterable[tuple[str, Event]], walk: _Walk) -> dict[str, FlowFileNode]:
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
    nodes = {}
    for uuid in names:
        cut = walk.cut.get(uuid)
        # A FlowFile that an event made is known by it, although nothing else happened to it.
        is_known = uuid in own or uuid in parents or cut is not None
        kind = NodeKind.FLOWFILE if is_known else NodeKind.UNKNOWN
        nodes[uuid] = FlowFileNode(
            uuid, tuple(own[uuid]), tuple(writers[uuid]), tuple(parents[uuid]), tuple(children[uuid]), kind, cut
        )
    return nodes
