"""`kill -9` of a process in which many threads append: every acknowledged event is kept, and nothing else appears.

A process that has everything loaded forks a writer for each kill, so that the moments are spread over the writer's
life: recovery of what the one before left, the first append, seals. What the writer sends and what it is told goes to
a file, line by line.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from custody.repository import Repository
from tests.support import event, numbered, python

ROOT = Path(__file__).parents[2]
KILLS = 10
WRITERS = """
import os, random, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from threading import Thread
from custody.repository import Repository
from tests.support import event

def say(*words):
    os.write(told, (" ".join(map(str, words)) + "\\n").encode())

def work(writer, life, thread):
    chance = random.Random(life * 100 + thread)
    number = life * 1_000_000 + thread * 100_000
    while True:
        size = chance.choice((1, 1, 1, 2, 5, 40))
        events = [event(number + item) for item in range(size)]
        say("sent", number, size)
        ids = writer.append(events)
        say("told", number, size, ids.start)
        number += size

told = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        with Repository.open(Path(sys.argv[1])).writer() as writer:
            threads = [Thread(target=work, args=(writer, int(line), thread)) for thread in range(8)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
    print(child, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(slots=True)
class Told:
    """What the writers sent, and the ids that they were told."""

    sent: set[int] = field(default_factory=set)
    numbers: dict[int, int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Told:
        told = cls()
        for line in path.read_text().splitlines(keepends=True):
            word, *values = line.split()
            numbers = range(int(values[0]), int(values[0]) + int(values[1]))
            if word == "sent":
                told.sent.update(numbers)
            else:
                ids = range(int(values[2]), int(values[2]) + len(numbers))
                assert not told.numbers.keys() & set(ids), "an id was given twice"
                told.numbers.update(zip(ids, numbers, strict=True))
        return told


def kill_writers(repository: Repository, file: Path, seed: int) -> int:
    """Kill KILLS writers, one after the other, at random moments; return how many had been told of an event."""
    chance = random.Random(seed)  # noqa: S311 - a test's chance
    productive = 0
    with python(WRITERS, repository.settings.root, ROOT, file) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for life in range(KILLS):
            before = file.stat().st_size if file.exists() else 0
            nursery.stdin.write(f"{life}\n")
            nursery.stdin.flush()
            child = int(nursery.stdout.readline())
            time.sleep(chance.choice((0.02, 0.1, 0.5)) * chance.random())
            if chance.random() < 0.7:  # most of them not before they are at work
                deadline = time.monotonic() + 20
                while file.stat().st_size == before and time.monotonic() < deadline:
                    time.sleep(0.001)
                time.sleep(0.3 * chance.random() ** 2)
            os.kill(child, signal.SIGKILL)
            assert nursery.stdout.readline() == f"{-signal.SIGKILL}\n"
            productive += b"told" in file.read_bytes()[before:]
    return productive


def expect_kept(repository: Repository, told: Told) -> None:
    """Compare what is stored with what was told."""
    with repository.writer():
        pass
    events = list(repository.events(count=10_000_000))
    by_id = {item.event_id: item for item in events}
    assert len(by_id) == len(events), "an id twice"
    for event_id, number in told.numbers.items():
        assert by_id.get(event_id) == numbered([event(number)], event_id)[0], "lost or changed"
    numbers = Counter(item.source_ordinal for item in events)
    assert max(numbers.values()) == 1, "an event twice"
    assert numbers.keys() <= told.sent, "an event that was never sent"
    assert all(item == numbered([event(item.source_ordinal or 0)], item.event_id)[0] for item in events)


def check(repository: Repository, tmp_path: Path, seed: int, policy: str) -> None:
    root = repository.settings.root
    (root / "custody.toml").write_text(
        '[repository]\ncontainers = ["disk1", "disk2"]\n'
        f'[journal]\njournals = 3\nseal_bytes = 30000\nsync = "{policy}"\n'
    )
    opened = Repository.open(root)
    productive = kill_writers(opened, tmp_path / "told", seed)
    assert productive >= KILLS // 3
    told = Told.read(tmp_path / "told")
    assert len(told.numbers) > 50
    expect_kept(opened, told)


def test_ten_killed_writers_lose_nothing_that_their_threads_were_told(repository: Repository, tmp_path: Path) -> None:
    check(repository, tmp_path, seed=0, policy="always")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 21))
def test_two_hundred_killed_writers_lose_nothing(repository: Repository, tmp_path: Path, seed: int) -> None:
    """Every policy keeps what was acknowledged when only the process ends."""
    check(repository, tmp_path, seed, policy="interval" if seed % 10 == 0 else "never" if seed % 10 == 5 else "always")
