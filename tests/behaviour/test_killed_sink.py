"""The NGSI sink is killed before each of its durable operations, on a real disk; the next run finishes its work.

Afterwards the files of the destinations are byte for byte those of a run that nobody killed, and each row is told of
once.
"""

from __future__ import annotations

import json
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from custody.clock import ManualClock
from custody.config import Settings
from custody.lease import Attempt
from custody.ngsi_sink.batch_file import WRITER
from custody.ngsi_sink.opening import open_sink
from custody.repository import Repository
from custody.vfs import FileSystem, PosixFileSystem
from tests.behaviour.test_killed_steps import KillingFileSystem, points
from tests.support import files_below, python
from tests.unit.ngsi_sink.sink_repository import NOW_MS, bench, received, settings

ROOT = Path(__file__).parents[2]
# It imports everything and starts no thread, so that each fork begins like a new process.
NURSERY = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.behaviour.test_killed_sink import KillingFileSystem, run
for line in sys.stdin:
    root, kill_at = line.split()
    child = os.fork()
    if child == 0:
        run(Path(root), KillingFileSystem(int(kill_at)))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def of(root: Path) -> Settings:
    return settings(root, file_format="csv-column", batch_size=2, backend_files_at_once=1)


def run(root: Path, fs: FileSystem) -> None:
    """Write everything, three events in a go."""
    repository = Repository(of(root), fs, ManualClock(NOW_MS + 60_000))
    with open_sink(repository, Attempt.new("killed")) as opened:
        opened.run(chunk_events=3)


def state(root: Path) -> tuple[dict[str, bytes], Counter[tuple[str, str]]]:
    """Return the files of destinations, and how often each notification was told of for each of them."""
    told = Repository(of(root)).events(0, 1000, WRITER)
    place = root.as_uri()
    rows = Counter((str(event.transit_uri).removeprefix(place), uuid) for event in told for uuid in event.parent_uuids)
    return files_below(root / "hdfs"), rows


@pytest.mark.slow
def test_a_run_that_is_killed_before_any_operation_is_finished_by_the_next_one(tmp_path: Path) -> None:
    prepared = tmp_path / "prepared"
    repository = received(prepared, [bench(number, f"Bench{number % 3}") for number in range(5)], ManualClock(NOW_MS))
    assert repository.settings.repository == of(prepared).repository
    root = tmp_path / "repository"
    shutil.copytree(prepared, root)
    counting = KillingFileSystem()
    run(root, counting)
    expected = state(root)
    assert set(expected[1].values()) == {1}
    assert len(expected[0]) == 6
    killed = 0
    with python(NURSERY, ROOT) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for point in points(counting.operations):
            shutil.rmtree(root)
            shutil.copytree(prepared, root)
            nursery.stdin.write(f"{root} {point}\n")
            nursery.stdin.flush()
            code = int(nursery.stdout.readline())
            where = f"operation {point} ({counting.operations[point - 1]})"
            assert code == -signal.SIGKILL, f"{where}: exit code {code}"
            killed += 1
            for path, data in files_below(root / "hdfs").items():
                assert expected[0][path].startswith(data), f"{where}: {path}"
            run(root, PosixFileSystem())
            assert state(root) == expected, where
    assert killed > 50
    print(json.dumps({"operations": len(counting.operations), "kills": killed}))  # noqa: T201 - the figures of the run
