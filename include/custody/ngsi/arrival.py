"""What came over HTTP becomes events: the body with the headers that say something of it, read as any notification.

The headers are laid around the body as the envelope that files of notifications have too, so that a body that was kept
in the quarantine can be read again with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from custody.capture import Accepted, Context, Format, Limits, Place, Rejected, read_piece
from custody.model import Event
from custody.ngsi.admission import KEPT_HEADERS, Refusal

_ENVELOPE_BYTES_MAX = 1 << 20
_NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Arrival:
    """One notification as it came; `headers` in lower case, `received_ms` since the epoch."""

    body: bytes
    headers: Mapping[str, str]
    url: str
    host: str | None
    """Address of who sent it."""
    received_ms: int


@dataclass(frozen=True, slots=True)
class Read:
    """What an arrival holds: events that can be stored, and what cannot."""

    events: Sequence[Event]
    rejected: Sequence[Rejected]
    raw: bytes
    """Body and headers as one document, or the body alone when it is no JSON object."""

    @property
    def refusal(self) -> Refusal:
        """What to answer when there is nothing to store."""
        if not self.rejected:
            return Refusal(400, "empty", "data: expected an entity, got none")
        first = self.rejected[0].problem
        return Refusal(400, first.code, first.message)


def read_arrival(arrival: Arrival) -> Read:
    """Return the events of a notification, one an entity; nothing is raised, whatever the bytes are."""
    raw = _envelope(arrival) if _is_object(arrival.body) else arrival.body
    context = Context(received_ms=arrival.received_ms)
    limits = Limits(event_bytes_max=len(arrival.body) + _ENVELOPE_BYTES_MAX)
    outcomes = list(read_piece(raw, Place(None, 0), limits, format=Format.NGSI, context=context))
    events = [_told(item.event, arrival) for item in outcomes if isinstance(item, Accepted)]
    return Read(events, [item for item in outcomes if isinstance(item, Rejected)], raw)


def _told(event: Event, arrival: Arrival) -> Event:
    """Return an event with what only the receiver knows: who sent it, and what the content is."""
    media_type = arrival.headers.get("content-type", "").partition(";")[0].strip().lower()
    return msgspec.structs.replace(
        event,
        source_host=event.source_host or arrival.host,
        updated_attributes={**event.updated_attributes, "mime.type": media_type},
    )


def _is_object(body: bytes) -> bool:
    """Whether a body is one JSON object: otherwise what it holds could end the envelope and begin another."""
    try:
        return isinstance(msgspec.json.decode(body), dict)
    except _NOT_JSON:
        return False


def _envelope(arrival: Arrival) -> bytes:
    kept = {name: arrival.headers[name] for name in KEPT_HEADERS if name in arrival.headers}
    head = msgspec.json.encode({"headers": kept, "url": arrival.url})
    return b"".join((head[:-1], b',"body":', arrival.body, b"}"))
