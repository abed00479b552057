"""The events that every peer stores: one sample history, cut into the same batches for all.

Made once, outside the clock. A measurement that runs out of batches begins again with the first: stores that give out
ids take an event twice. Times lie shortly before now, because NiFi keeps an event's time as a 32-bit distance from
its file's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from custody.capture.nifi_json import event_from_json
from custody.model import Event
from custody.sample import SampleOptions, sample_events

_BEFORE_NOW_MS = 3_600_000


class Workload:
    """Sample events and how they are cut."""

    def __init__(self, events: int, batches_max: int) -> None:
        self._batches_max = batches_max
        options = SampleOptions(events=events, start_time_ms=time.time_ns() // 1_000_000 - _BEFORE_NOW_MS)
        self.events = [event_from_json(document) for document in sample_events(options)]

    def count(self, batch_events: int) -> int:
        """How many different batches of this size there are."""
        return min(self._batches_max, len(self.events) // batch_events)

    def batches(self, batch_events: int) -> Sequence[list[Event]]:
        """The first events, cut into batches of one size."""
        starts = range(0, self.count(batch_events) * batch_events, batch_events)
        return [self.events[start : start + batch_events] for start in starts]
