"""A process killed at any moment loses no acknowledged event, and the next one takes up what it left."""

from __future__ import annotations

import time
from pathlib import Path

from custody.repository import Repository
from tests.support import append, event, files_below, python, run_steps, unnumbered, write_samples

ROOT = Path(__file__).parents[2]
WRITE = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from custody.repository import Repository
from tests.support import event
with Repository.open(Path(sys.argv[1])).writer() as writer:
    number = 0
    while True:
        writer.append([event(number), event(number + 1)])
        number += 2
        print(number, flush=True)
        if number % 20 == 0:
            writer.seal()
"""
STEPS = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from custody.config import load_settings
from tests.support import run_steps
settings = load_settings(Path(sys.argv[1]))
print("go", flush=True)
run_steps(settings)
"""


def test_a_killed_writer_loses_no_acknowledged_event(repository: Repository) -> None:
    acknowledged = 0
    with python(WRITE, repository.settings.root, ROOT) as writer:
        assert writer.stdout is not None
        while acknowledged < 50:
            acknowledged = int(writer.stdout.readline())
        writer.kill()
        writer.wait(10)
        acknowledged = max([acknowledged, *(int(line) for line in writer.stdout.read().split("\n")[:-1])])
    for _ in range(2):
        events = unnumbered(repository.events(count=100_000))
        assert len(events) >= acknowledged
        assert events == [event(number) for number in range(len(events))]
        run_steps(repository.settings)
    assert repository.search("").total == len(events)
    assert append(repository, [event()]) == range(len(events), len(events) + 1)


def test_a_pass_that_is_killed_anywhere_is_finished_by_the_next(repository: Repository, tmp_path: Path) -> None:
    files = write_samples(tmp_path, 800, batch_size=200)
    for path in files:
        with repository.ingest() as work:
            work.file(path)
    before = list(repository.events(count=1000))
    for delay in (0.0, 0.1, 0.25):
        with python(STEPS, repository.settings.root, ROOT) as other:
            assert other.stdout is not None
            other.stdout.readline()
            time.sleep(delay)
            other.kill()
            other.wait(10)
        assert list(repository.events(count=1000)) == before
    run_steps(repository.settings)
    assert list(repository.events(count=1000)) == before
    result = repository.search("", limit=1000)
    assert [stored.event for stored in result.events] == before[::-1]
    assert result.notices == ()
    assert not any(name.endswith((".sealed", ".journal", ".arrow")) for name in files_below(repository.settings.root))


def test_readers_see_every_event_once_while_a_pass_runs(repository: Repository, tmp_path: Path) -> None:
    for path in write_samples(tmp_path, 600, batch_size=100):
        with repository.ingest() as work:
            work.file(path)
    before = list(repository.events(count=1000))
    totals = []
    with python(STEPS, repository.settings.root, ROOT) as other:
        assert other.stdout is not None
        other.stdout.readline()
        while other.poll() is None:
            assert list(repository.events(count=1000)) == before
            totals.append(repository.search("event_type:DROP", limit=5).total)
        assert other.returncode == 0
    drops = sum(item.event_type == "DROP" for item in before)
    assert set(totals) <= {0, drops}
    assert repository.search("event_type:DROP").total == drops
