"""Events as JSON over HTTP: POST of arrays, as NiFi's Site-to-Site reporting task writes them."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from custody.capture.nifi_json import event_to_json
from custody.config import ExportTarget
from custody.export.http_client import HttpClient, require_taken
from custody.export.receiver import EventBatch
from custody.model import Event

_ENCODER = msgspec.json.Encoder()


def json_array(events: Iterable[Event]) -> bytes:
    """Return events as a JSON array in NiFi's form."""
    return _ENCODER.encode([event_to_json(event) for event in events])


class HttpReceiver:
    """An address that takes POST."""

    def __init__(self, name: str, target: ExportTarget) -> None:
        self._name, self._url = name, target.url
        self._client = HttpClient(target)

    def deliver(self, batch: EventBatch) -> None:
        """Hand a batch over; a batch that comes again has the same key, so that a receiver can know it."""
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": f"{self._name}/{batch.writer}/{batch.first_event_id}-{batch.last_event_id}",
        }
        require_taken(self._url, self._client.send("POST", self._url, headers, json_array(batch.events())))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
