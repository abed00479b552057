"""Ten times as much is stored as there is room for: `du` never finds more than the limit and one headroom."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from custody.journal import groups
from custody.repository.retention_api import apply_retention
from custody.rollover import STEPS
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from tests.behaviour.retained import ids, on_day, repository_at

LIMIT = 2 << 20
EVENTS = 24
EVENT_BYTES = 32_000
TIMES = 10
CATALOG_BYTES = 256 << 10
"""What the catalog and the folders of a pass take besides."""


def du(root: Path) -> int:
    """Bytes that containers and store take on the disk."""
    command = ["du", "-s", "--block-size=1", str(root / "containers"), str(root / "store")]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    return sum(int(line.split()[0]) for line in process.stdout.splitlines())


@pytest.mark.in_parts(4)
def test_ten_times_the_limit_is_stored_in_the_room_of_the_limit(tmp_path: Path) -> None:
    opened = repository_at(tmp_path / "repository", 0, bytes_max=LIMIT)
    root, random = opened.settings.root, Random(7)  # noqa: S311 - made-up content, the same in every run
    (root / "store").mkdir()
    seen: list[int] = []
    ingested = stored = largest = 0
    while ingested < TIMES * LIMIT:
        # Text that no codec makes smaller than half: hexadecimal digits of random bytes.
        events = [
            on_day(stored + number, stored / 1000, details=random.randbytes(EVENT_BYTES // 2).hex())
            for number in range(EVENTS)
        ]
        with opened.writer() as writer:
            writer.append(events)
        stored += EVENTS
        waiting = groups(PosixFileSystem(), opened.settings.containers, "main")
        journals = sum(path.stat().st_size for group in waiting for path in group.sealed)
        ingested, largest = ingested + journals, max(largest, journals)
        seen.append(du(root))
        for step in STEPS.values():
            for unit in step.units(opened.settings):
                step.run(Workspace(opened.settings, unit.writer, clock=opened._clock), unit)
            if step.name in ("rollover", "index", "sweep"):
                seen.append(du(root))
        plan = apply_retention(opened.settings, PosixFileSystem(), opened._clock).plan
        assert plan.problem is None
        if plan.expiring:
            least = plan.after_bytes + plan.expiring[-1].bytes
            assert least > LIMIT * 90 // 100, "no more goes than has to"
        seen.append(du(root))
        assert seen[-1] <= LIMIT, "after a pass of retention the limit is kept"
    # What comes in between two passes lies there as journals, as a staged unit, and as logs with their shards.
    headroom = 3 * largest + CATALOG_BYTES
    assert max(seen) <= LIMIT + headroom, (max(seen), LIMIT, largest)
    ids_now = ids(opened)
    assert ids_now == list(range(stored - len(ids_now), stored)), "the newest events are all there"
    figures = f"limit {LIMIT}, ingested {ingested}, largest group {largest}, most on disk {max(seen)}"
    sys.stdout.write(f"{figures}, kept {len(ids_now)} of {stored} events\n")
