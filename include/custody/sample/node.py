"""One node of the simulated instance: it numbers events and gives them their Site-to-Site form.

`emit` writes an event of a session that goes on, `record` the last event of a session about a
FlowFile that lives on. Keys appear in the order in which the reporter writes them.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from custody.sample.simulation import ROOT_NAME, Component, FlowFile, Process, Simulation, stable_id

# Nodes start close together: the same ordinal on two nodes is normal in a cluster.
_FIRST_ORDINAL: Final = 40_000
_ORDINAL_STEP: Final = 250
_ENTITY_TYPE: Final = "org.apache.nifi.flowfile.FlowFile"


class Node:
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

    def spawn(self, process: Process, delay_ms: int = 0) -> None:
        """Let a process run beside the others on this node."""
        self.simulation.spawn(process, delay_ms)

    def queued(self) -> int:
        """Return how long a FlowFile waits in a connection: mostly little, sometimes seconds."""
        return self.draw(3, 80) if self.chance(0.6) else self.draw(80, 4_000)

    def create(self, size: int, attributes: Mapping[str, str], took_ms: int) -> FlowFile:
        """Return a brand-new FlowFile that entered the flow `took_ms` ago."""
        uuid = self.new_uuid()
        return FlowFile(
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
        at: Component,
        flowfile: FlowFile,
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
        at: Component,
        flowfile: FlowFile,
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

    def _timestamp(self) -> str:
        second, millis = divmod(self.simulation.now_ms, 1000)
        # Formatting a date costs as much as the rest of the event: do it once a second.
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return f"{self._second_text}.{millis:03d}Z"


def _without_nulls(values: Mapping[str, object]) -> dict[str, object]:
    return {key: value for key, value in values.items() if value is not None}
