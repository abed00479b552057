"""One node of the simulated NiFi instance: it numbers events and gives them their Site-to-Site form.

`emit` writes an event of a session that goes on, `record` the last event of a session about a FlowFile that lives on.
The other acts (`split`, `merge`, `replay`, …) are what a NiFi session commits in one piece: they name parents and
children on the event of the act itself, so that a child's first own event already finds it with its attributes. Acts
that end a FlowFile leave its session open, since nothing follows. Keys appear in the order in which NiFi's reporter
writes them.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from custody.sample.simulation import ROOT, ROOT_NAME, SimComponent, SimFlowFile, SimProcess, Simulation, stable_id

# Nodes start close together: the same ordinal on two nodes is normal in a cluster.
_FIRST_ORDINAL: Final = 40_000
_ORDINAL_STEP: Final = 250
_ENTITY_TYPE: Final = "org.apache.nifi.flowfile.FlowFile"
_OPERATOR: Final = "CN=operator"

EXPIRATION_MS: Final = 30_000
"""How long a FlowFile may wait in a queue with an expiration."""


class SimNode:
    """A host with its own event counter; FlowFiles never leave the node they were born on."""

    def __init__(
        self, simulation: Simulation, index: int, *, instance: str, is_clustered: bool, include_nulls: bool
    ) -> None:
        self.host = f"nifi{index + 1}{instance}.example.com"
        self.next_ordinal = _FIRST_ORDINAL + _ORDINAL_STEP * index
        self.simulation = simulation
        self.draw = simulation.draw
        self.chance = simulation.chance
        self.new_uuid = simulation.new_uuid
        self._include_nulls = include_nulls
        self._query = f"?clusterNodeId={stable_id(self.host)}" if is_clustered else ""
        self._second = -1
        self._second_text = ""

    def spawn(self, process: SimProcess, delay_ms: int = 0) -> None:
        """Let a process run beside the others on this node."""
        self.simulation.spawn(process, delay_ms)

    def queued(self) -> int:
        """Return how long a FlowFile waits in a connection: mostly little, sometimes seconds."""
        return self.draw(3, 80) if self.chance(0.6) else self.draw(80, 4_000)

    def create(self, size: int, attributes: Mapping[str, str], took_ms: int) -> SimFlowFile:
        """Return a brand-new FlowFile that entered the flow `took_ms` ago."""
        uuid = self.new_uuid()
        return SimFlowFile(
            uuid=uuid,
            lineage_start_ms=self.simulation.now_ms - took_ms,
            size=size,
            previous_size=None,
            updates={"uuid": uuid, "path": "./", **attributes},
        )

    def event_uri(self, ordinal: int) -> str:
        """Return where this node's interface serves one event."""
        return f"https://{self.host}:8443/nifi-api/provenance-events/{ordinal}"

    def record(
        self,
        kind: str,
        at: SimComponent,
        flowfile: SimFlowFile,
        took_ms: int,
        *,
        details: str | None = None,
        transit_uri: str | None = None,
        remote_id: str | None = None,
        alternate_id: str | None = None,
    ) -> None:
        """Emit the last event of a session and commit its changes."""
        self.emit(
            kind,
            at,
            flowfile,
            took_ms,
            details=details,
            transit_uri=transit_uri,
            remote_id=remote_id,
            alternate_id=alternate_id,
        )
        flowfile.commit()

    def emit(
        self,
        kind: str,
        at: SimComponent,
        flowfile: SimFlowFile,
        took_ms: int = -1,
        *,
        details: str | None = None,
        parents: Sequence[str] = (),
        children: Sequence[str] = (),
        transit_uri: str | None = None,
        remote_id: str | None = None,
        alternate_id: str | None = None,
    ) -> None:
        """Emit an event of the FlowFile's current session."""
        ordinal = self.next_ordinal
        self.next_ordinal = ordinal + 1
        flowfile.last_ordinal = ordinal
        content_uri = f"{self.event_uri(ordinal)}/content/"
        event: dict[str, object] = {
            "eventId": self.new_uuid(),
            "eventOrdinal": ordinal,
            "eventType": kind,
            "timestampMillis": self.simulation.now_ms,
            "timestamp": self._timestamp(),
            "durationMillis": took_ms,
            "lineageStart": flowfile.lineage_start_ms,
            "details": details,
            "componentId": at.id,
            "componentType": at.kind,
            "componentName": at.name,
            "processGroupId": at.group_id,
            "processGroupName": at.group_name,
            "entityId": flowfile.uuid,
            "entityType": _ENTITY_TYPE,
            "entitySize": flowfile.size,
            "previousEntitySize": flowfile.previous_size,
            # Copies: the FlowFile goes on changing while the event waits in the outbox.
            "updatedAttributes": flowfile.updates.copy(),
            "previousAttributes": flowfile.attributes.copy(),
            "actorHostname": self.host,
            "contentURI": f"{content_uri}output{self._query}",
            "previousContentURI": f"{content_uri}input{self._query}",
            "parentIds": list(parents),
            "childIds": list(children),
            "transitUri": transit_uri,
            "remoteIdentifier": remote_id,
            "alternateIdentifier": alternate_id,
            "platform": "nifi",
            "application": ROOT_NAME,
        }
        if not self._include_nulls:
            event["updatedAttributes"] = _without_nulls(flowfile.updates)
            event = _without_nulls(event)
        self.simulation.outbox.append(event)

    def drop(self, at: SimComponent, flowfile: SimFlowFile, took_ms: int, relationship: str) -> None:
        """End a FlowFile on a relationship that leads nowhere."""
        details = f"Auto-Terminated by {relationship} Relationship"
        self.emit("DROP", at, flowfile, took_ms, details=details)

    def deliver(
        self,
        at: SimComponent,
        flowfile: SimFlowFile,
        took_ms: int,
        transit_uri: str,
        relationship: str = "success",
    ) -> None:
        """Send a FlowFile to its destination and end it in the same session."""
        self.emit("SEND", at, flowfile, took_ms, transit_uri=transit_uri)
        self.drop(at, flowfile, took_ms, relationship)

    def expire(self, at: SimComponent, flowfile: SimFlowFile) -> SimProcess:
        """Leave a FlowFile in the queue before a component until it is too old."""
        yield EXPIRATION_MS + self.draw(0, 900)
        details = f"Expiration Threshold = {EXPIRATION_MS // 1000} sec"
        self.emit("EXPIRE", at, flowfile, details=details)

    def clone(self, at: SimComponent, flowfile: SimFlowFile, took_ms: int) -> SimFlowFile:
        """Return an exact duplicate; the original's session stays open."""
        copy = flowfile.child(self.new_uuid(), flowfile.size, {})
        self.emit("CLONE", at, flowfile, took_ms, parents=[flowfile.uuid], children=[copy.uuid])
        return copy

    def split(self, at: SimComponent, flowfile: SimFlowFile, took_ms: int, count: int) -> list[SimFlowFile]:
        """Return the FlowFile's parts and end the original."""
        fragments = {
            "fragment.identifier": self.new_uuid(),
            "fragment.count": str(count),
            "segment.original.filename": flowfile.attributes["filename"],
        }
        size = flowfile.size // count
        parts = [
            flowfile.child(self.new_uuid(), size, {**fragments, "fragment.index": str(index)}) for index in range(count)
        ]
        uuids = [part.uuid for part in parts]
        self.emit("FORK", at, flowfile, took_ms, parents=[flowfile.uuid], children=uuids)
        self.drop(at, flowfile, took_ms, "original")
        return parts

    def merge(self, at: SimComponent, parts: Sequence[SimFlowFile], took_ms: int, filename: str) -> SimFlowFile:
        """Return the concatenation of the parts, with the oldest part's lineage start, and end them."""
        merged = self.create(
            sum(part.size for part in parts),
            {
                "filename": filename,
                "mime.type": "application/json",
                "merge.count": str(len(parts)),
            },
            took_ms,
        )
        merged.lineage_start_ms = min(part.lineage_start_ms for part in parts)
        parents = [part.uuid for part in parts]
        self.emit("JOIN", at, merged, took_ms, parents=parents, children=[merged.uuid])
        merged.commit()
        for part in parts:
            self.drop(at, part, took_ms, "original")
        return merged

    def replay(self, at: SimComponent, flowfile: SimFlowFile, attributes: dict[str, str]) -> SimFlowFile:
        """Return a new FlowFile that takes the step at `at` again, with the attributes from before it.

        The step must not have changed the content: the event shows the size of its output, the new FlowFile has that
        of its input.
        """
        # time.asctime, unlike strftime, gives English names whatever the locale.
        weekday, month, day, clock, year = time.asctime(time.gmtime(self.simulation.now_ms // 1000)).split()
        uuid = self.new_uuid()
        replayed: dict[str, str] = {
            **attributes,
            "uuid": uuid,
            "flowfile.replay": "true",
            "flowfile.replay.timestamp": f"{weekday} {month} {int(day):02d} {clock} UTC {year}",
        }
        # The event is about the original, but shows the new FlowFile's attributes as its changes.
        shown = replace(flowfile, previous_size=None, attributes={}, updates={**replayed})
        details = f"Replay requested by {_OPERATOR}"
        self.emit("REPLAY", at, shown, details=details, parents=[flowfile.uuid], children=[uuid])
        return replace(flowfile, uuid=uuid, attributes=replayed, updates={})

    def download(self, flowfile: SimFlowFile) -> None:
        """Let an operator look at the content that the FlowFile's last event left behind."""
        shown = replace(flowfile, previous_size=None)
        ordinal = flowfile.last_ordinal
        self.emit(
            "DOWNLOAD",
            ROOT,
            shown,
            details=f"Download of Output Content requested by {_OPERATOR} for Provenance Event {ordinal}",
            transit_uri=f"{self.event_uri(ordinal)}/content/output",
        )

    def _timestamp(self) -> str:
        second, millis = divmod(self.simulation.now_ms, 1000)
        # Formatting a date costs as much as the rest of the event: do it once a second.
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second_text}.{millis:03d}Z"


def _without_nulls(values: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if value is not None}
