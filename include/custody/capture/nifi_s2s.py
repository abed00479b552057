"""Files of NiFi's Site-to-Site provenance reporting task as JSON: arrays of events, or one event a line."""

from __future__ import annotations

from collections.abc import Sequence

from custody.capture.nifi_json import event_from_bytes
from custody.capture.validate import Context
from custody.model import Event


def read_element(raw: bytes, context: Context) -> Sequence[Event]:
    """Return the one event of an element."""
    return (event_from_bytes(raw, context.node),)
