"""Acts of more than one FlowFile or event: what a NiFi session commits in one piece.

Parents and children are named on the event of the act itself, so a child's first own event already
finds it with attributes. Acts that end a FlowFile leave its session open: nothing follows.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from custody.sample.node import Node
from custody.sample.simulation import ROOT, Component, FlowFile, Process

EXPIRATION_MS: Final = 30_000
_OPERATOR: Final = "CN=operator"


def drop(node: Node, at: Component, flowfile: FlowFile, took_ms: int, relationship: str) -> None:
    """End a FlowFile on a relationship that leads nowhere."""
    details = f"Auto-Terminated by {relationship} Relationship"
    node.emit("DROP", at, flowfile, took_ms, details=details)


def deliver(
    node: Node,
    at: Component,
    flowfile: FlowFile,
    took_ms: int,
    transit_uri: str,
    relationship: str = "success",
) -> None:
    """Send a FlowFile to its destination and end it in the same session."""
    node.emit("SEND", at, flowfile, took_ms, transit_uri=transit_uri)
    drop(node, at, flowfile, took_ms, relationship)


def expire(node: Node, at: Component, flowfile: FlowFile) -> Process:
    """Leave a FlowFile in the queue before a component until it is too old."""
    yield EXPIRATION_MS + node.draw(0, 900)
    details = f"Expiration Threshold = {EXPIRATION_MS // 1000} sec"
    node.emit("EXPIRE", at, flowfile, details=details)


def clone(node: Node, at: Component, flowfile: FlowFile, took_ms: int) -> FlowFile:
    """Return an exact duplicate; the original's session stays open."""
    copy = flowfile.child(node.new_uuid(), flowfile.size, {})
    node.emit("CLONE", at, flowfile, took_ms, parents=[flowfile.uuid], children=[copy.uuid])
    return copy


def split(node: Node, at: Component, flowfile: FlowFile, took_ms: int, count: int) -> list[FlowFile]:
    """Return the FlowFile's parts and end the original."""
    fragments = {
        "fragment.identifier": node.new_uuid(),
        "fragment.count": str(count),
        "segment.original.filename": flowfile.attributes["filename"],
    }
    size = flowfile.size // count
    parts = [
        flowfile.child(node.new_uuid(), size, {**fragments, "fragment.index": str(index)}) for index in range(count)
    ]
    uuids = [part.uuid for part in parts]
    node.emit("FORK", at, flowfile, took_ms, parents=[flowfile.uuid], children=uuids)
    drop(node, at, flowfile, took_ms, "original")
    return parts


def merge(node: Node, at: Component, parts: Sequence[FlowFile], took_ms: int, filename: str) -> FlowFile:
    """Return the concatenation of the parts, with the oldest part's lineage start, and end them."""
    merged = node.create(
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
    node.emit("JOIN", at, merged, took_ms, parents=parents, children=[merged.uuid])
    merged.commit()
    for part in parts:
        drop(node, at, part, took_ms, "original")
    return merged


def replay(node: Node, at: Component, flowfile: FlowFile, attributes: dict[str, str]) -> FlowFile:
    """Return a new FlowFile that takes the step at `at` again, with the attributes from before it.

    The step must not have changed the content: the event shows the size of its output, the new
    FlowFile has that of its input.
    """
    # time.asctime, unlike strftime, gives English names whatever the locale.
    weekday, month, day, clock, year = time.asctime(time.gmtime(node.simulation.now_ms // 1000)).split()
    uuid = node.new_uuid()
    replayed: dict[str, str] = {
        **attributes,
        "uuid": uuid,
        "flowfile.replay": "true",
        "flowfile.replay.timestamp": f"{weekday} {month} {int(day):02d} {clock} UTC {year}",
    }
    # The event is about the original, but shows the new FlowFile's attributes as its changes.
    shown = replace(flowfile, previous_size=None, attributes={}, updates={**replayed})
    details = f"Replay requested by {_OPERATOR}"
    node.emit("REPLAY", at, shown, details=details, parents=[flowfile.uuid], children=[uuid])
    return replace(flowfile, uuid=uuid, attributes=replayed, updates={})


def download(node: Node, flowfile: FlowFile) -> None:
    """Let an operator look at the content that the FlowFile's last event left behind."""
    shown = replace(flowfile, previous_size=None)
    ordinal = flowfile.last_ordinal
    node.emit(
        "DOWNLOAD",
        ROOT,
        shown,
        details=f"Download of Output Content requested by {_OPERATOR} for Provenance Event {ordinal}",
        transit_uri=f"{node.event_uri(ordinal)}/content/output",
    )
