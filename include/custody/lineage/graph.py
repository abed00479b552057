"""Lineage: a graph of FlowFiles with all their events, their ancestors and their descendants.

Runs and datasets are nodes as FlowFiles are (`identities.py`). A run stands between what it read and what it wrote.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum

from custody.errors import InvalidInputError
from custody.lineage.failures import has_failed
from custody.lineage.identities import Identity, NodeKind, identities
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


class Toward(StrEnum):
    """The sides to which a lineage goes: to what led to where it begins, to what came of it, or to both."""

    BOTH = "both"
    UP = "up"
    DOWN = "down"


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
    toward: Toward = Toward.BOTH

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
    """UNKNOWN: others name it, and no event that made it or that it had can be seen, nor one that says what it is."""
    cut: Cut | None = None
    """The bound behind which there is more of it."""
    namespace: str | None = None
    """Of a run's job, a job or a dataset."""
    name: str | None = None
    """The name of a run's job, of a job or of a dataset; None where it may not be told, and of a FlowFile."""
    version: str | None = None
    """Of a dataset whose versions are told apart."""
    failed: bool = False
    """Whether one of its events tells of a failure (`failures.py`)."""
    events_failed: tuple[bool, ...] = ()
    """For each of its events whether it does."""

    @property
    def label(self) -> str | None:
        """What people know it by: namespace and name, or the newest file name; None where nobody named it."""
        named = Identity(kind=self.kind, namespace=self.namespace, name=self.name, version=self.version).label
        if named is not None or self.kind not in (NodeKind.FLOWFILE, NodeKind.UNKNOWN):
            return named
        return self.events[-1].filename if self.events else None


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
    starts: tuple[str, ...] = ()
    """The FlowFiles at which it begins, as far as something is known of them."""
    left_out: frozenset[str] = frozenset()
    """FlowFiles that its events name and that are no nodes, because they were not asked for."""

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

    def only_failures(self) -> Lineage:
        """Return the nodes with failures, and those on a shortest way from where it begins to each of them."""
        near = self._neighbours()
        came: dict[str, str | None] = dict.fromkeys(self.starts)
        # A dict gives its keys in the order in which they came, but may not grow meanwhile: a list may.
        pending = list(came)
        for uuid in pending:
            for other in near[uuid]:
                if other not in came:
                    came[other] = uuid
                    pending.append(other)
        kept = set(self.starts)
        for node in self.nodes.values():
            at: str | None = node.uuid if node.failed else None
            while at is not None and at not in kept:
                kept.add(at)
                at = came.get(at)
        return self._only(kept)

    def _neighbours(self) -> dict[str, list[str]]:
        near = {uuid: [*node.parents, *node.children] for uuid, node in self.nodes.items()}
        for uuids in self.identifiers.values():
            for uuid in uuids:
                near[uuid] += uuids
        return near

    def _only(self, kept: Set[str]) -> Lineage:
        """Return the lineage with some of its nodes."""
        nodes = {
            uuid: replace(
                node,
                parents=tuple(one for one in node.parents if one in kept),
                children=tuple(one for one in node.children if one in kept),
            )
            for uuid, node in self.nodes.items()
            if uuid in kept
        }
        shared = {name: tuple(one for one in uuids if one in kept) for name, uuids in self.identifiers.items()}
        return replace(
            self,
            nodes=nodes,
            events=sum(len(node.events) for node in nodes.values()),
            unknown_events=tuple(one for one in self.unknown_events if not kept.isdisjoint(one.uuids)),
            identifiers={name: uuids for name, uuids in shared.items() if uuids},
            left_out=self.left_out | (self.nodes.keys() - kept),
        )

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

    def take(self, found: Sequence[tuple[str, Event]], asked: Set[str] | None = None) -> set[str]:
        """Keep the events within the times, and on the sides that are asked for; return the FlowFiles to go on with.

        `asked` are the FlowFiles that the events were found by; without them an event leads to all that it mentions.
        """
        mentioned: set[str] = set()
        for writer, event in found:
            leads_to = set(_relatives(event)) if asked is None else _leads_to(event, asked, self.bounds.toward)
            if not leads_to:
                continue
            if self.bounds.include(event):
                self.events[writer, event.event_id] = event
                if event.alternate_identifier_uri:
                    self.identifiers.setdefault(event.alternate_identifier_uri, set()).add(event.flowfile_uuid)
                mentioned |= leads_to
            else:
                self.mark(leads_to, Cut.TIME)
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
    begins_at = tuple(dict.fromkeys(uuids))
    frontier, depth = set(begins_at), 0
    if identified is not None and identifiers:
        frontier |= walk.follow(identified, set(identifiers))
    reached = set(frontier)
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
        reached |= frontier
        frontier = walk.take(found, None if bounds.toward is Toward.BOTH else frontier)
        if identified is not None:
            frontier |= walk.follow(identified)
        frontier -= walk.visited
        depth += 1
    walk.mark(frontier, Cut.SIZE)
    reached |= frontier
    # Cut in time order, so that a graph that is not complete lacks its newest events and not random ones.
    in_order = sorted(walk.events, key=lambda place: (walk.events[place].event_time, place[1], place[0]))
    for place in in_order[bounds.events_max :]:
        walk.mark(_relatives(walk.events[place]), Cut.SIZE)
    chosen = [(writer, walk.events[writer, event_id]) for writer, event_id in in_order[: bounds.events_max]]
    # What is cut, and no node of the graph, is named by the nodes that the same events mention.
    nodes = _nodes(chosen, walk)
    shared = _shared(nodes, walk, identifiers)
    begins_at = (*begins_at, *(uuid for name in identifiers for uuid in shared.get(name, ())))
    lineage = Lineage(
        nodes,
        len(chosen),
        not walk.cut,
        identifiers=shared,
        starts=tuple(uuid for uuid in dict.fromkeys(begins_at) if uuid in nodes),
    )
    # An event of a FlowFile names what is on its other side, too, which was not asked for.
    return lineage if bounds.toward is Toward.BOTH else lineage._only(reached & nodes.keys())


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


def _leads_to(event: Event, asked: Set[str], toward: Toward) -> set[str]:
    """Return the FlowFiles to one side of some FlowFiles that an event mentions; none where it is not of that side.

    An event of a FlowFile itself is of both sides, and leads to the FlowFile where to nothing else.
    """
    before, after = event.parent_uuids, event.child_uuids
    if toward is Toward.DOWN:
        before, after = after, before
    own = event.flowfile_uuid
    found = {own} if own in asked else set[str]()
    # Of a run that is neither parent nor child, its inputs lie on the one side and its outputs on the other.
    if not asked.isdisjoint(after) or (own in asked and own not in before):
        found.update(before)
        if own not in after:
            found.add(own)
    return found


def _shared(nodes: Mapping[str, FlowFileNode], walk: _Walk, asked: Collection[str]) -> dict[str, tuple[str, ...]]:
    """Return the identifiers that join FlowFiles of the graph, and those that were asked for."""
    having = {name: tuple(sorted(uuid for uuid in uuids if uuid in nodes)) for name, uuids in walk.identifiers.items()}
    return {name: uuids for name, uuids in sorted(having.items()) if len(uuids) > 1 or (uuids and name in asked)}


def _nodes(events: Sequence[tuple[str, Event]], walk: _Walk) -> dict[str, FlowFileNode]:
    own: dict[str, list[Event]] = defaultdict(list)
    writers: dict[str, list[str]] = defaultdict(list)
    parents: dict[str, dict[str, None]] = defaultdict(dict)
    children: dict[str, dict[str, None]] = defaultdict(dict)
    known = identities(event for _, event in events)
    for writer, event in events:
        own[event.flowfile_uuid].append(event)
        writers[event.flowfile_uuid].append(writer)
        for parent, child in _edges(event, known):
            # An event may name a FlowFile as its own parent; an edge to itself would make it no root.
            if parent != child:
                children[parent][child] = None
                parents[child][parent] = None
    names = dict.fromkeys([*own, *parents, *children])
    nodes = {}
    for uuid in names:
        cut, identity = walk.cut.get(uuid), known.get(uuid)
        if identity is None:
            # A FlowFile that an event made is known by it, although nothing else happened to it.
            is_known = uuid in own or uuid in parents or cut is not None
            identity = _FLOWFILE if is_known else _UNKNOWN
        failed = tuple(map(has_failed, own[uuid]))
        nodes[uuid] = FlowFileNode(
            uuid,
            tuple(own[uuid]),
            tuple(writers[uuid]),
            tuple(parents[uuid]),
            tuple(children[uuid]),
            identity.kind,
            cut,
            identity.namespace,
            identity.name,
            identity.version,
            any(failed),
            failed,
        )
    return nodes


def _edges(event: Event, known: Mapping[str, Identity]) -> Iterator[tuple[str, str]]:
    """Yield parents with children; a run that is neither stands between them."""
    uuid, before, after = event.flowfile_uuid, event.parent_uuids, event.child_uuids
    is_run = uuid in known and known[uuid].kind == NodeKind.RUN
    if is_run and uuid not in before and uuid not in after:
        yield from ((parent, uuid) for parent in before)
        yield from ((uuid, child) for child in after)
        return
    for parent in before:
        for child in after:
            yield parent, child


_FLOWFILE, _UNKNOWN = Identity(kind=NodeKind.FLOWFILE), Identity(kind=NodeKind.UNKNOWN)
