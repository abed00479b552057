"""Today's code reads the FlowFile repository that version 1 wrote, and refuses broken files of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from custody.clock import ManualClock
from custody.errors import CorruptionError, CustodyError, FormatVersionError
from custody.flowfile_repository import FlowFileLook, FlowFileRepository, Waiting
from custody.flowfile_repository.outbox import with_keys
from custody.vfs import PosixFileSystem
from tests.golden.make_flowfiles import COMPONENT, CONNECTIONS, NOW, make_flowfiles, order, sent_event, sent_value
from tests.golden.make_golden import HERE
from tests.unit.flowfile_repository.queue_fixtures import Journal

GOOD, BROKEN = HERE / "v1/flowfiles", HERE / "broken/flowfiles"
LEFT = [order(number) for number in (4, 3, 2, 1, 0)]
"""What is left of the orders, the highest rank first; 6 was sent and 5 is done."""


@pytest.fixture(params=["checked in", "made now"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "flowfiles"
    if request.param == "made now":
        make_flowfiles(folder)
    else:
        shutil.copytree(GOOD, folder)
    return folder


def _open(home: Path, journal: Journal | None = None) -> FlowFileRepository:
    return FlowFileRepository(PosixFileSystem(), home, ManualClock(NOW + 3000), journal or Journal())


def test_the_repository_has_a_file_of_each_kind(home: Path) -> None:
    assert (home / "snapshot").read_bytes()[:8] == b"CUSTFFS\x01"
    [log] = (home / "log").iterdir()
    assert log.read_bytes()[:8] == b"CUSTFFL\x01"
    [swap] = (home / "swap").iterdir()
    assert swap.read_bytes()[:8] == b"CUSTSWP\x01"


def test_queues_and_their_flowfiles_are_read(home: Path) -> None:
    with _open(home) as flowfiles:
        assert flowfiles.connections() == CONNECTIONS
        size = flowfiles.size("orders")
        assert (size.count, size.taken, size.swapped) == (5, 0, 3), "what was taken went back with its process"
        assert size.content_bytes == sum(one.size for one in LEFT)
        assert flowfiles.claims() == {"custody:main/1/0000/1772409602500-0": 4}
        found = flowfiles.take("orders", "s", count=9).items
        assert [item.flowfile for item in found] == LEFT
        assert [item.key for item in found] == [((0, 9 - n), (0, n - NOW)) for n in (4, 3, 2, 1, 0)]


def test_a_look_says_since_when_the_oldest_one_waits_also_in_a_swap_file(home: Path) -> None:
    look = FlowFileLook(PosixFileSystem(), home, NOW + 3000)
    with _open(home) as flowfiles:
        in_memory = min(item.queued_ms for item in flowfiles.waiting("orders"))
        every = [item.queued_ms for item in flowfiles.take("orders", "s", count=9).items]
    [orders] = [status for status in look.queues() if status.connection.name == "orders"]
    assert orders.oldest_ms == min(every) <= in_memory


def test_what_moved_is_read_with_its_changes(home: Path) -> None:
    with _open(home) as flowfiles:
        moved, new = flowfiles.waiting("sent")
        assert moved == Waiting(sent_value(order(6)), "sent", 7, NOW + 2000, (), NOW + 30_000)
        assert new == Waiting(order(8), "sent", 8, NOW + 2000)
        assert flowfiles.take("orders", "s", component=COMPONENT).items == (), "it yields"


def test_events_that_were_not_delivered_are(home: Path) -> None:
    journal = Journal()
    with _open(home, journal):
        [event] = journal.events
        assert event.source_node is not None
        repository = event.source_node.removeprefix("flowfiles:")
        assert [event] == with_keys([sent_event(order(6))], repository, 0)


@pytest.mark.parametrize("kind", ["log", "snapshot", "swap"])
@pytest.mark.parametrize("defect", ["bad-preamble", "future-version", "truncated", "flipped"])
def test_a_broken_file_is_refused_with_file_and_offset(tmp_path: Path, kind: str, defect: str) -> None:
    home = shutil.copytree(GOOD, tmp_path / "flowfiles")
    [path] = [home / "snapshot"] if kind == "snapshot" else (home / kind).iterdir()
    shutil.copy(BROKEN / f"{defect}.{kind}", path)
    if (kind, defect) == ("log", "truncated"):  # as a crash leaves it: what is whole counts
        with _open(home) as flowfiles:
            assert flowfiles.size("orders").count == 7
            assert flowfiles.size("sent").count == 0
        return
    wanted: type[CustodyError] = FormatVersionError if defect == "future-version" else CorruptionError
    with pytest.raises(wanted, match=f"{path} @"), _open(home) as flowfiles:
        flowfiles.take("orders", "s", count=9)
