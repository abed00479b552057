"""Makes the golden files of the FlowFile repository, `v1/flowfiles` and `broken/flowfiles`; see make_golden.py.

The repository is stopped in the middle: a snapshot and a swap file are there, the log behind them holds a commit whose
events were not delivered, and a FlowFile that a session had taken. The ids of the repository and of the process, and
with them the swap file's name, differ from one run to the next.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from custody.clock import ManualClock
from custody.flow import FlowFile
from custody.flowfile_repository import Connection, FlowFileOptions, FlowFileRepository, Placed, Work
from custody.model import ContentClaim, Event
from custody.vfs.memory import MemoryFileSystem
from tests.unit.flowfile_repository.queue_fixtures import Journal

NOW = 1_772_409_600_000
CONNECTIONS = [
    Connection(name="orders", prioritizers=("attribute:rank", "newest"), count_max=50, expiration_ms=86_400_000),
    Connection(name="sent", bytes_max=0, consumer="send_orders"),
]
COMPONENT = "c0ffee00-0000-4000-8000-000000000001"
_HOME = Path("/flowfiles")


def order(number: int) -> FlowFile:
    """Return the FlowFile of an order; every third one has no content, and their ranks go down."""
    uuid = f"00000000-0000-4000-8000-{number:012}"
    claim = ContentClaim(
        container="custody:main/1", section="0000", identifier="1772409602500-0", offset=100 * number, size=100
    )
    return FlowFile(
        uuid=uuid,
        attributes={"uuid": uuid, "filename": f"order-{number}.csv", "rank": str(9 - number), "note": "\N{SNOWMAN}"},
        size=0 if number % 3 == 2 else 100,
        entry_date=NOW,
        lineage_start_date=NOW - number,
        content_claim=None if number % 3 == 2 else claim,
    )


def sent_event(flowfile: FlowFile) -> Event:
    """Return the event of the commit whose events were not delivered."""
    return Event(
        event_type="SEND",
        event_time=NOW + 2000,
        component_id=COMPONENT,
        component_type="SendOrder",
        flowfile_uuid=flowfile.uuid,
        file_size=flowfile.size,
        transit_uri="https://example.org/orders",
    )


def sent_value(flowfile: FlowFile) -> FlowFile:
    """Return a FlowFile as that commit left it."""
    attributes = {name: value for name, value in flowfile.attributes.items() if name != "note"} | {"sent": "yes"}
    return msgspec.structs.replace(flowfile, attributes=attributes, size=0, content_claim=None)


def make_flowfiles(folder: Path) -> None:
    """Write the repository of version 1."""
    fs, clock = MemoryFileSystem(), ManualClock(NOW)
    journal = Journal()
    flowfiles = FlowFileRepository(fs, _HOME, clock, journal, FlowFileOptions(swap_threshold=3))
    for connection in CONNECTIONS:
        flowfiles.connect(connection)
    flowfiles.commit(Work("first", [Placed(order(number), "orders") for number in range(7)]))
    clock.advance(1000)
    flowfiles.checkpoint()
    clock.advance(1000)
    least, next_one = flowfiles.take("orders", "second", count=2).items
    flowfiles.yield_component(COMPONENT, 60_000)
    journal.refuse()
    flowfiles.commit(
        Work(
            "second",
            [Placed(sent_value(least.flowfile), "sent", NOW + 30_000), Placed(order(8), "sent")],
            leaves=[next_one.uuid],
            events=[sent_event(least.flowfile)],
        )
    )
    flowfiles.take("orders", "third")
    for path, data in fs.files().items():
        if data and path.parent.name != "members" and path.name != "lock":
            target = folder / path.relative_to(_HOME)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def make_broken_flowfiles(good: Path, folder: Path, defects: dict[str, Callable[[bytes], bytes]]) -> None:
    """Write one broken file a kind and defect, each named by both."""
    folder.mkdir(parents=True)
    kinds = {"log": sorted((good / "log").iterdir())[-1], "snapshot": good / "snapshot"}
    kinds["swap"] = next((good / "swap").iterdir())
    for kind, path in kinds.items():
        for defect, damage in defects.items():
            (folder / f"{defect}.{kind}").write_bytes(damage(path.read_bytes()))
