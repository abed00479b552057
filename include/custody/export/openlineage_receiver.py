"""Events for an OpenLineage endpoint: POST of one event after the other, as its clients send them.

OpenLineage's own events are forwarded as the documents that came. Any other event is a run: it reads the FlowFiles that
the event came from and writes those that it made; the other end of a transfer, as far as the event names it, is a
dataset by OpenLineage's rules of naming. The same event always gives the same run id, so that one that comes again
after a crash is known.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from custody.capture.openlineage import document_of
from custody.config import ExportTarget
from custody.export.http_client import HttpClient, require_taken
from custody.export.receiver import EventBatch
from custody.lineage.diagram import event_reference
from custody.lineage.openlineage import Dataset, Job, run_event
from custody.model import Event, EventType

_PATH = "/api/v1/lineage"
"""Where OpenLineage's own clients send to, where an address has no path."""
_TAKES_IN = (EventType.RECEIVE, EventType.FETCH)
_MAKES = (EventType.FORK, EventType.CLONE, EventType.REPLAY)


class OpenLineageReceiver:
    """An endpoint such as that of Marquez."""

    def __init__(self, target: ExportTarget) -> None:
        parts = urlsplit(target.url)
        self._url = target.url if parts.path.strip("/") else f"{parts.scheme}://{parts.netloc}{_PATH}"
        self._client = HttpClient(target)

    def deliver(self, batch: EventBatch) -> None:
        """Hand a batch over, event by event: few endpoints take more at once."""
        headers = {"Content-Type": "application/json"}
        for event in batch.events():
            body = as_document(event, batch.writer)
            require_taken(self._url, self._client.send("POST", self._url, headers, body))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def as_document(event: Event, writer: str) -> bytes:
    """Return an event as OpenLineage: the document that came, or a run event."""
    return document_of(event) or msgspec.json.encode(as_run_event(event, writer))


def as_run_event(event: Event, writer: str) -> dict[str, object]:
    """Return an event as an OpenLineage run event."""
    reference = event_reference(writer, event.event_id)
    inputs, outputs = _ends(event)
    facet = {
        "url": reference,
        "eventType": event.event_type,
        "eventId": event.event_id,
        "writer": writer,
        "flowFileUuid": event.flowfile_uuid,
        "filename": event.filename,
        "fileSize": event.file_size,
        "transitUri": event.transit_uri,
        "details": event.details,
        "relationship": event.relationship,
    }
    job = event.component_name or event.component_type or event.component_id or "unknown"
    return run_event(reference, event.event_time, Job(job), facet, inputs, outputs)


def _ends(event: Event) -> tuple[list[Dataset], list[Dataset]]:
    """Return what an event read, and what it wrote."""
    own, far = Dataset(event.flowfile_uuid), _far_end(event.transit_uri)
    if event.event_type in _TAKES_IN:
        return ([far] if far else []), [own]
    if event.event_type == EventType.SEND:
        return [own], [far] if far else []
    if event.event_type == EventType.CREATE:
        return [], [own]
    if event.event_type in (EventType.DROP, EventType.EXPIRE):
        return [own], []
    parents = [Dataset(uuid) for uuid in event.parent_uuids]
    children = [Dataset(uuid) for uuid in event.child_uuids]
    if event.event_type in _MAKES:
        return parents or [own], children or [own]
    return parents or [own], children or [own]


def _far_end(uri: str | None) -> Dataset | None:
    """Return the other end of a transfer as a dataset: scheme and host are the namespace, the path is the name."""
    if not uri:
        return None
    try:
        parts = urlsplit(uri)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return Dataset(uri)
    if not parts.scheme:
        return Dataset(uri)
    # Without user, password and query: secrets may be there.
    name = parts.path.lstrip("/") if host else parts.path
    return Dataset(name or "/", f"{parts.scheme}://{host}" if host else parts.scheme)
