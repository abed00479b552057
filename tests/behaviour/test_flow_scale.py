"""A million FlowFiles wait in one queue: in bounded memory, through a restart, and come in the order of priorities."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from custody.clock import SystemClock
from custody.flow import FlowFile
from custody.flowfile_repository import Connection, FlowFileRepository, Placed, Work
from custody.model import ContentClaim
from custody.vfs import PosixFileSystem
from tests.support import INCLUDE

ROOT = Path(__file__).parents[2]
COUNT = 1_000_000
AT_ONCE = 1000
STEP = 7919
"""Prime to COUNT: the priorities come in no order, each number once."""
MEMORY_BYTES_MAX = 192 << 20
"""Beyond what the process has before: 20,000 FlowFiles and a batch, and a block of each file that overlaps."""
RESTART_SECONDS_MAX = 20.0


@pytest.mark.in_parts(3)
def test_a_few_come_in_the_order_of_priorities(tmp_path: Path) -> None:
    _phases(tmp_path, 35_000)


@pytest.mark.slow
def test_a_million_wait_in_bounded_memory_and_survive_a_restart(tmp_path: Path) -> None:
    for name, figures in _phases(tmp_path, COUNT).items():
        assert figures["bytes"] < MEMORY_BYTES_MAX, (name, figures)
        assert figures["opened"] < RESTART_SECONDS_MAX, (name, figures)


def _phases(folder: Path, count: int) -> dict[str, dict[str, float]]:
    """Fill and drain a queue, each in a process of its own."""
    figures = {}
    for phase in ("fill", "drain"):
        done = subprocess.run(
            [sys.executable, __file__, phase, str(folder / "flowfiles"), str(count)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(INCLUDE), str(ROOT)])},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        )
        figures[phase] = json.loads(done.stdout)
    assert figures["fill"]["waiting"] == count
    assert figures["drain"]["waiting"] == 0
    return figures


def _peak_bytes() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def _fill(flowfiles: FlowFileRepository, count: int) -> None:
    flowfiles.connect(Connection(name="q", count_max=0, bytes_max=0, prioritizers=("attribute:priority",)))
    now_ms = SystemClock().now_ms()
    for first in range(0, count, AT_ONCE):
        placed = []
        for number in range(first, first + AT_ONCE):
            priority = number * STEP % count
            uuid = f"00000000-0000-4000-8000-{priority:012}"
            claim = ContentClaim(
                container="custody:main/1", section="0000", identifier=f"{now_ms}-{first}", offset=number % AT_ONCE
            )
            flowfile = FlowFile(
                uuid=uuid,
                attributes={"uuid": uuid, "filename": f"{number}.csv", "path": "./", "priority": str(priority)},
                size=1,
                entry_date=now_ms,
                lineage_start_date=now_ms,
                content_claim=claim,
            )
            placed.append(Placed(flowfile, "q"))
        flowfiles.commit(Work("fill", placed))


def _drain(flowfiles: FlowFileRepository) -> None:
    expected = 0
    while items := flowfiles.take("q", "drain", count=AT_ONCE).items:
        for item in items:
            assert int(item.flowfile.attributes["priority"]) == expected, "in order, each once"
            expected += 1
        flowfiles.commit(Work("drain", leaves=[item.uuid for item in items]))


def _main(phase: str, folder: Path, count: int) -> None:
    base, begin = _peak_bytes(), time.monotonic()
    with FlowFileRepository(PosixFileSystem(), folder, SystemClock()) as flowfiles:
        opened = time.monotonic() - begin
        if phase == "fill":
            _fill(flowfiles, count)
        else:
            _drain(flowfiles)
        flowfiles.checkpoint()
        waiting = flowfiles.size("q").count
        done = time.monotonic() - begin - opened
    told = {"waiting": waiting, "opened": opened, "seconds": done, "bytes": _peak_bytes() - base}
    sys.stdout.write(json.dumps(told))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
