"""The workload: sample events in bulk, among them lineages of a known number of events that lie close together or far
apart.

A lineage is a FlowFile that is received and forked twice, ten FlowFiles each time; the events of its 111 FlowFiles look
like those around them. A close one takes every fifth event of a stretch, a spread one has its events evenly over all.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import numpy as np
import pyarrow as pa

from benchmarks.eventlog.bulk import BASE_EVENTS, tables
from custody.model import EVENT_SCHEMA, Event, to_batch
from tests.support import sample

LAYOUTS = ("close", "spread")
FANOUT = 10
STRIDE = 5
"""Of the events of a close lineage: those of other FlowFiles lie between them."""
_MIDDLE = ("ROUTE", "ATTRIBUTES_MODIFIED", "CONTENT_MODIFIED", "ADDINFO")
_AT_END = ("SEND", "DROP")
_EVENT_TIME = EVENT_SCHEMA.get_field_index("event_time")


@dataclass(frozen=True, slots=True)
class Planted:
    """One lineage: its first FlowFile, another one of its last generation, and the place of each of its events."""

    layout: str
    root: str
    leaf: str
    places: tuple[int, ...]
    events: tuple[Event, ...]


def plant(events: int, lineages: int, size: int, seed: int = 7) -> list[Planted]:
    """Return as many lineages of each layout, of `size` events each, with the places that they take among all events.

    Raises:
        ValueError: there is no room for them.
    """
    if events < 2 * lineages * size * STRIDE:
        raise ValueError(
            f"{lineages} lineages of {size} events need {2 * lineages * size * STRIDE} events, got {events}."
        )
    models = [event for event in sample(2000, seed=seed) if not event.parent_uuids and not event.child_uuids]
    taken: set[int] = set()
    planted = []
    for layout in LAYOUTS:
        for number in range(lineages):
            places = []
            for step in range(size):
                share = (number + 0.5) / lineages
                place = (
                    int(events * share) + step * STRIDE if layout == "close" else int((step + share) * events / size)
                )
                while place in taken:
                    place += 1
                taken.add(place)
                places.append(place)
            planted.append(_lineage(layout, f"{layout}-{number}-{seed}", sorted(places), models))
    return planted


def pieces(events: int, planted: list[Planted]) -> Iterator[pa.Table]:
    """Yield the events with the lineages among them, in the order of their ids."""
    by_tile: dict[int, list[tuple[int, Event]]] = {}
    for lineage in planted:
        for place, event in zip(lineage.places, lineage.events, strict=True):
            by_tile.setdefault(place // BASE_EVENTS, []).append((place % BASE_EVENTS, event))
    for number, table in enumerate(tables(events)):
        yield _with_events(table, by_tile.get(number, []))


def _with_events(table: pa.Table, replaced: list[tuple[int, Event]]) -> pa.Table:
    if not replaced:
        return table
    rows = table.num_rows
    others = pa.Table.from_batches([to_batch([event for _, event in replaced], 0)])
    order = np.arange(rows)
    order[[row for row, _ in replaced]] = rows + np.arange(len(replaced))
    joined = pa.concat_tables([table, others]).combine_chunks().take(pa.array(order))
    # Ids and times stay those of the places, so that they go up as everywhere.
    for at in (0, _EVENT_TIME):
        joined = joined.set_column(at, EVENT_SCHEMA.field(at), table.column(at))
    return joined


def _lineage(layout: str, name: str, places: list[int], models: list[Event]) -> Planted:
    def flowfile(*path: int) -> str:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name}/{'/'.join(map(str, path))}"))

    told: list[tuple[str, str, tuple[str, ...]]] = [("RECEIVE", flowfile(), ())]
    told.append(("FORK", flowfile(), tuple(flowfile(child) for child in range(FANOUT))))
    for child in range(FANOUT):
        made = tuple(flowfile(child, one) for one in range(FANOUT))
        told += [("ATTRIBUTES_MODIFIED", flowfile(child), ()), ("FORK", flowfile(child), made)]
    leaves = [flowfile(child, one) for child in range(FANOUT) for one in range(FANOUT)]
    ends = [(kind, leaf, ()) for kind in _AT_END for leaf in leaves]
    middle = len(places) - len(told) - len(ends)
    for step in range(middle):
        told.append((_MIDDLE[step // len(leaves) % len(_MIDDLE)], leaves[step % len(leaves)], ()))
    told += ends
    events = tuple(
        msgspec.structs.replace(
            models[number % len(models)],
            event_type=kind,
            flowfile_uuid=own,
            parent_uuids=(own,) if made else (),
            child_uuids=made,
            # The samples' own identifiers would tie every planted lineage to all others.
            alternate_identifier_uri=None,
        )
        for number, (kind, own, made) in enumerate(told)
    )
    return Planted(layout, flowfile(), leaves[-1], tuple(places), events)
