"""Events that were found by their ids, of one writer or of several, and their objects, which are made in one go.

To make objects of rows takes its time by the column, two rows or twenty. So the rows of all logs of all writers are
joined first. What single events take in the cache of events is the mean of those that are made together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import attrgetter

import pyarrow as pa

from custody.model import Event, in_one_piece, to_events
from custody.read.cache import EventCache, EventKey


@dataclass(slots=True)
class FoundEvents:
    """What was found of one writer's events: objects, and rows that may be given out."""

    cached: list[Event] = field(default_factory=list)
    """Out of the cache of events."""
    copied: list[Event] = field(default_factory=list)
    """Made of copies of rows."""
    copied_bytes: int = 0
    rows: list[pa.RecordBatch] = field(default_factory=list)
    """With all columns of an event."""
    keys: dict[int, EventKey] = field(default_factory=dict)
    """By id the keys in the cache of events, of those that it keeps."""


def objects_of(found: Sequence[FoundEvents], cache: EventCache) -> list[list[Event]]:
    """Return the events of each writer in the order of their ids; `cache` gets those that it keeps.

    Raises:
        msgspec.ValidationError: as `to_events`.
    """
    joined = in_one_piece([piece for of_writer in found for piece in of_writer.rows])
    made = [event for piece in joined for event in to_events(piece)]
    nbytes = sum(piece.get_total_buffer_size() for piece in joined)
    events_of, kept = [], list[tuple[EventKey, Event]]()
    rows = iter(made)
    for of_writer in found:
        new = of_writer.copied + list(islice(rows, sum(piece.num_rows for piece in of_writer.rows)))
        keys = of_writer.keys
        if keys:
            kept += [(keys[event.event_id], event) for event in new if event.event_id in keys]
        # A group may have become live before an older one.
        events_of.append(sorted(of_writer.cached + new, key=_ID))
    if kept:
        nbytes += sum(of_writer.copied_bytes for of_writer in found)
        cache.put(kept, nbytes // (len(made) + sum(len(of_writer.copied) for of_writer in found)))
    return events_of


_ID = attrgetter("event_id")
