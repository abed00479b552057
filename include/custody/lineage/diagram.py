"""The diagram of a lineage: nodes for FlowFiles and for events, and edges in the order of time, as NiFi draws them.

Runs, jobs and datasets are nodes as FlowFiles are, with their kind and their names. A FlowFile goes on from event to
event; a dataset stays where it is, and every event that reads or writes it is joined to its node alone. An event's node
has its reference (`custody:WRITER/events/ID`), the file name, and whether its contents can be had. What may not or
cannot be seen is a node of the kind UNKNOWN.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from custody.flow.content import Availability, ContentReader
from custody.lineage.graph import Cut, FlowFileNode, Lineage
from custody.lineage.identities import Identity, NodeKind
from custody.made_types import made_at_import
from custody.model import ContentClaim, Event, EventType

EVENT = "EVENT"
_BEGINS = (EventType.CREATE, EventType.RECEIVE)


class DiagramNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A FlowFile, run, job or dataset, an event, or what is UNKNOWN of any; the time in ms since the epoch."""

    id: str
    """A FlowFile's uuid as `flowfile:UUID`, an event's reference."""
    kind: str
    flowfile_uuid: str | None = None
    time: int | None = None
    cut: Cut | None = None
    """The bound behind which there is more of a FlowFile."""
    event_type: str | None = None
    event_id: int | None = None
    writer: str | None = None
    url: str | None = None
    filename: str | None = None
    component: str | None = None
    input_content: Availability | None = None
    """None without a content."""
    output_content: Availability | None = None
    parent_uuids: tuple[str, ...] = ()
    child_uuids: tuple[str, ...] = ()
    namespace: str | None = None
    name: str | None = None
    """Of a run's job, a job or a dataset."""
    version: str | None = None
    failed: bool = False
    """Whether the event tells of a failure, or one of the events of the FlowFile does."""

    @property
    def label(self) -> str:
        """What a picture says of it, in a few words."""
        failed = " failed" if self.failed else ""
        if self.kind == EVENT:
            return f"{self.event_type} {self.event_id}{failed}"
        name = f"event {self.event_id}" if self.event_id is not None else self._named or self.flowfile_uuid or ""
        text = name if self.kind == NodeKind.FLOWFILE else f"{self.kind.lower()}: {name}"
        return f"{text}{failed}" if self.cut is None else f"{text}{failed} … (more: {self.cut})"

    @property
    def _named(self) -> str | None:
        if self.kind in (NodeKind.FLOWFILE, NodeKind.UNKNOWN):
            return self.filename
        identity = Identity(kind=NodeKind(self.kind), namespace=self.namespace, name=self.name, version=self.version)
        return identity.label


class DiagramEdge(msgspec.Struct, frozen=True, kw_only=True):
    """From what was earlier to what came of it; `flowfile_uuid` is the FlowFile that went this way."""

    source: str
    target: str
    flowfile_uuid: str


class Diagram(msgspec.Struct, frozen=True, kw_only=True):
    """A lineage as nodes and edges, both in the order of time."""

    nodes: tuple[DiagramNode, ...]
    edges: tuple[DiagramEdge, ...]
    events: int
    is_complete: bool
    cut: dict[str, Cut]
    """The FlowFiles of which there is more, and the bound."""
    notices: tuple[str, ...] = ()

    @classmethod
    def of(cls, lineage: Lineage, contents: ContentReader) -> Diagram:
        """Return the diagram of a lineage; the headers of its contents are looked at, their bytes are not read."""
        plan = _Plan(lineage)
        in_order = sorted(
            (stored for node in lineage.nodes.values() for stored in _stored(node)),
            key=lambda stored: (stored[0].event_time, stored[0].event_id, stored[1]),
        )
        for event, writer, failed in in_order:
            plan.add_event(_event_node(event, writer, contents, failed=failed), event)
        plan.add_unknown()
        edges = tuple(plan.edges.values())
        nodes = tuple(plan.nodes.values())
        return cls(
            nodes=nodes,
            edges=edges,
            events=lineage.events,
            is_complete=lineage.is_complete,
            cut=lineage.cut,
            notices=lineage.notices,
        )


made_at_import(Diagram)


def event_reference(writer: str, event_id: int) -> str:
    """Return the reference of an event, which names it among all writers of a repository."""
    return f"custody:{writer}/events/{event_id}"


class _Plan:
    """Nodes and edges while events are added in the order of time; `last` is the newest node of each FlowFile."""

    def __init__(self, lineage: Lineage) -> None:
        self.nodes: dict[str, DiagramNode] = {}
        self.edges: dict[tuple[str, str, str], DiagramEdge] = {}
        self._lineage = lineage
        self._last: dict[str, str] = {}

    def add_event(self, node: DiagramNode, event: Event) -> None:
        """Add an event behind what it came from, and before the FlowFiles that it made."""
        uuid = event.flowfile_uuid
        begins = event.event_type in _BEGINS and uuid not in self._last
        left_out = self._lineage.left_out
        makes = tuple(one for one in (*event.child_uuids, *([uuid] if begins else [])) if one not in left_out)
        # Before the node itself, so that what an event came from is earlier in the list.
        sources = [
            (parent, self._before(parent))
            for parent in dict.fromkeys((*event.parent_uuids, uuid))
            if (parent not in makes or parent in self._last or self._is_read(parent, event)) and parent not in left_out
        ]
        self.nodes[node.id] = node
        for parent, last in sources:
            self._join(last, node.id, parent)
            if not self._is_dataset(parent):
                self._last[parent] = node.id
        for child in dict.fromkeys(makes):
            if (place := f"flowfile:{child}") not in self.nodes:
                self._join(node.id, self._flowfile(child, event.event_time), child)
                self._last[child] = place
            elif self._is_dataset(child) or (child not in event.parent_uuids and child != uuid):
                self._join(node.id, place, child)

    def add_unknown(self) -> None:
        """Add the FlowFiles that no event led to, and the events that cannot be read."""
        for uuid in self._lineage.nodes:
            self._before(uuid)
        for unknown in self._lineage.unknown_events:
            url = event_reference(unknown.writer, unknown.event_id)
            self.nodes[url] = DiagramNode(
                id=url, kind=NodeKind.UNKNOWN, event_id=unknown.event_id, writer=unknown.writer, url=url
            )
            for uuid in unknown.uuids:
                if uuid in self._lineage.left_out:
                    continue
                # Its time is not known: beside the FlowFile, not behind its last event.
                self._join(self._flowfile(uuid, None), url, uuid)

    def _is_dataset(self, uuid: str) -> bool:
        known = self._lineage.nodes.get(uuid)
        return known is not None and known.kind == NodeKind.DATASET

    def _is_read(self, uuid: str, event: Event) -> bool:
        """Whether it is a dataset that an event reads, be it that the event writes it as well."""
        return uuid in event.parent_uuids and self._is_dataset(uuid)

    def _before(self, uuid: str) -> str:
        if uuid not in self._last:
            self._last[uuid] = self._flowfile(uuid, None)
        return self._last[uuid]

    def _flowfile(self, uuid: str, time: int | None) -> str:
        place = f"flowfile:{uuid}"
        if place not in self.nodes:
            known = self._lineage.nodes.get(uuid)
            self.nodes[place] = DiagramNode(
                id=place,
                kind=NodeKind.UNKNOWN if known is None else known.kind,
                flowfile_uuid=uuid,
                time=time,
                cut=None if known is None else known.cut,
                filename=known.events[-1].filename if known is not None and known.events else None,
                namespace=None if known is None else known.namespace,
                name=None if known is None else known.name,
                version=None if known is None else known.version,
                failed=known is not None and known.failed,
            )
        return place

    def _join(self, source: str, target: str, uuid: str) -> None:
        self.edges.setdefault((source, target, uuid), DiagramEdge(source=source, target=target, flowfile_uuid=uuid))


def _stored(node: FlowFileNode) -> Iterable[tuple[Event, str, bool]]:
    failed = node.events_failed or (False,) * len(node.events)
    return zip(node.events, node.writers, failed, strict=True)


def _event_node(event: Event, writer: str, contents: ContentReader, *, failed: bool) -> DiagramNode:
    url = event_reference(writer, event.event_id)
    return DiagramNode(
        id=url,
        kind=EVENT,
        flowfile_uuid=event.flowfile_uuid,
        time=event.event_time,
        event_type=event.event_type,
        event_id=event.event_id,
        writer=writer,
        url=url,
        filename=event.filename,
        component=event.component_name or event.component_type,
        input_content=_availability(contents, event.previous_content_claim, event.previous_content_uri),
        output_content=_availability(contents, event.content_claim, event.content_uri),
        parent_uuids=event.parent_uuids,
        child_uuids=event.child_uuids,
        failed=failed,
    )


def _availability(contents: ContentReader, claim: ContentClaim | None, uri: str | None) -> Availability | None:
    if claim is None and uri is not None:
        return Availability.ELSEWHERE
    return contents.availability(claim)
