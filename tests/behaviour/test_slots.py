"""Several processes write at once, each in a slot of its own; killed ones lose nothing; each event is stored once."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import Popen

import pytest

from custody.errors import LockedError
from custody.repository import Repository
from tests.support import event, numbered, python, run_steps, write_samples
from tests.unit.capture.json_documents import document
from tests.unit.ingest.test_ingest import write
from tests.unit.ingest.test_slots import slotted

ROOT = Path(__file__).parents[2]
EVENTS = 120
WORKER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from custody.errors import LockedError
from custody.repository import Repository
from tests.support import event

opened = Repository.open(Path(sys.argv[1]))
print("ready", flush=True)
start = int(sys.stdin.readline())
try:
    with opened.writer() as writer:
        print(writer.name, flush=True)
        for number in range(start, start + 10_000_000):
            print(number, writer.append([event(number)]).start, flush=True)
            if not sys.stdin.readline():
                break
except LockedError as error:
    print("locked", error.exit_code, error, flush=True)
"""
INGEST = """
import sys
from pathlib import Path
from custody.repository import Repository

opened = Repository.open(Path(sys.argv[1]))
with opened.ingest() as work:
    print("ready", flush=True)
    sys.stdin.readline()
    for path in sys.argv[2:]:
        report = work.file(Path(path))
        print(report.writer, report.read, report.stored, report.repeated, report.rejected, flush=True)
"""


def say(process: Popen[str], text: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{text}\n")
    process.stdin.flush()


def hear(process: Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


@contextmanager
def ready(count: int, source: str, *arguments: object) -> Iterator[list[Popen[str]]]:
    """Processes that have everything loaded and wait for a line."""
    with ExitStack() as stack:
        processes = [stack.enter_context(python(source, *arguments)) for _ in range(count)]
        for process in processes:
            assert hear(process) == "ready"
        yield processes


@pytest.mark.in_parts(2)
def test_processes_take_a_slot_each_and_one_more_is_refused(repository: Repository) -> None:
    opened = slotted(repository, 4)
    told: dict[str, dict[int, int]] = {}
    with ready(5, WORKER, opened.settings.root, ROOT) as processes:
        for place, process in enumerate(processes):  # all of them race for the slots
            say(process, str(place * 1000))
        names = {process: hear(process) for process in processes}
        [refused] = [process for process, name in names.items() if name.startswith("locked")]
        assert "all 4 writer slots, 'main' to 'main-4'" in names[refused]
        assert names[refused].startswith("locked 14 ")
        assert sorted(set(names.values()) - {names[refused]}) == ["main", "main-2", "main-3", "main-4"]
        winners = [process for process in processes if process is not refused]
        for _ in range(EVENTS):
            for process in winners:
                number, event_id = map(int, hear(process).split())
                told.setdefault(names[process], {})[event_id] = number
                say(process, "more")
        result = opened.search("", limit=10_000)
        assert result.total >= 4 * EVENTS
        with pytest.raises(LockedError):
            opened.append([event()])
        for process in winners[:2]:
            os.kill(process.pid, signal.SIGKILL)
            process.wait(10)
    expect_told(opened, told)
    assert sorted(name for name in os.listdir(opened.settings.containers[0])) == ["main", "main-2", "main-3", "main-4"]


def expect_told(opened: Repository, told: dict[str, dict[int, int]]) -> None:
    """Every acknowledged event is there under its id, and no number twice; also when all of them are live."""
    for live in (False, True):
        if live:
            run_steps(opened.settings)
            assert not opened.status().pending.is_any
        stored = {(item.writer, item.event.event_id): item.event for item in opened.search("", limit=10_000).events}
        for writer, ids in told.items():
            for event_id, number in ids.items():
                assert stored[writer, event_id] == numbered([event(number)], event_id)[0]
        assert max(Counter(item.source_ordinal for item in stored.values()).values()) == 1


def test_the_slot_of_a_killed_process_is_taken_again_and_recovered(repository: Repository) -> None:
    opened = slotted(repository, 2)
    with ready(2, WORKER, opened.settings.root, ROOT) as processes:
        for place, process in enumerate(processes):
            say(process, str(place * 1000))
            assert hear(process) == ("main", "main-2")[place]
            assert hear(process) == f"{place * 1000} 0"
        os.kill(processes[0].pid, signal.SIGKILL)
        processes[0].wait(10)
        assert [item.is_held for item in opened.status().writers] == [False, True]
        assert opened.status().pending.abandoned_journals == 1
        with opened.writer() as writer:
            assert writer.name == "main"
            assert len(writer.recovered) == 1
            assert writer.append([event(1)]) == range(1, 2)
    assert list(opened.events(writer="main")) == numbered([event(0), event(1)])
    assert opened.search("").total == 3


def test_two_processes_that_ingest_the_same_files_at_once_store_each_event_once(
    repository: Repository, tmp_path: Path
) -> None:
    opened = slotted(repository, 3, "[capture]\nbatch_events = 50\n")
    files = write_samples(tmp_path, 1200, batch_size=400)
    with ready(3, INGEST, opened.settings.root, *files) as processes:
        for process in processes:
            say(process, "go")
        reports = [[hear(process).split() for _ in files] for process in processes]
    assert {writer for report in reports for writer, *_ in report} == {"main", "main-2", "main-3"}
    counts = [[list(map(int, line[1:])) for line in report] for report in reports]
    assert all(read == stored + repeated for report in counts for read, stored, repeated, _ in report)
    assert sum(stored for report in counts for _, stored, _, _ in report) == 1200
    result = opened.search("", limit=10_000)
    assert result.total == 1200
    keys = Counter((item.event.source_node, item.event.source_ordinal) for item in result.events)
    assert max(keys.values()) == 1
    assert list(opened.quarantine.entries()) == []


def test_of_two_that_contradict_each_other_at_once_one_is_kept(repository: Repository, tmp_path: Path) -> None:
    opened = slotted(repository, 2, "[capture]\nbatch_events = 5\n")
    files = []
    for name, size in (("a", 1), ("b", 2)):
        events = [document("SEND", eventOrdinal=number, entitySize=size) for number in range(40)]
        files.append(write(tmp_path / f"{name}.json", *events))
    with ExitStack() as stack:
        processes = [stack.enter_context(python(INGEST, opened.settings.root, file)) for file in files]
        for process in processes:
            assert hear(process) == "ready"
        for process in processes:
            say(process, "go")
        reports = [list(map(int, hear(process).split()[1:])) for process in processes]
    assert sum(stored for _, stored, _, _ in reports) == sum(rejected for *_, rejected in reports) == 40
    assert opened.search("").total == 40
    entries = list(opened.quarantine.entries())
    assert {entry.code for entry in entries} == {"contradiction"}
    size_by_ordinal = {item.event.source_ordinal: item.event.file_size for item in opened.search("").events}
    for entry in entries:
        rejected = json.loads(opened.quarantine.raw(entry.key))
        assert size_by_ordinal[rejected["eventOrdinal"]] != rejected["entitySize"]
