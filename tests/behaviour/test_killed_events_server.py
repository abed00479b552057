"""Spools are delivered to a server that is killed, and whose answers are lost: each event is stored once."""

from __future__ import annotations

import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from custody.client import HttpSender, Spool, SpoolDelivery
from custody.client.spool_delivery import Receipt
from custody.errors import CustodyError, StorageError
from custody.repository import Repository
from tests.unit.capture.sample_inputs import own_event
from tests.unit.serving.serve_process import served

PRODUCERS = 4


class LosesAnswers:
    """A way to the server on which every third answer is lost."""

    def __init__(self, sender: HttpSender, seed: int) -> None:
        self._sender = sender
        self._chosen = random.Random(seed)  # noqa: S311 - no secret

    def send(self, lines: bytes) -> Receipt:
        receipt = self._sender.send(lines)
        if self._chosen.random() < 1 / 3:
            raise StorageError("the answer was lost")
        return receipt


def produce(folder: Path, first: int, stop: threading.Event, kept: set[int]) -> None:
    """Keep events one by one; note each that was kept."""
    with Spool(folder, f"shop-{first}") as spool:
        number = first
        while not stop.is_set():
            spool.append([own_event(number), own_event(number + 1)])
            kept.update((number, number + 1))
            number += 2
            time.sleep(0.002)


def deliver(folder: Path, url: list[str], stop: threading.Event, seed: int) -> None:
    """Deliver until the server has all of it, wherever it is."""
    while True:
        is_last = stop.is_set()
        sender = HttpSender(url[0], patience_seconds=0, timeout_seconds=20)
        try:
            SpoolDelivery(folder, LosesAnswers(sender, seed)).deliver()
            if is_last:
                return
        except CustodyError:
            seed += 1
            time.sleep(0.02)
        finally:
            sender.close()


@pytest.mark.in_parts(4)
@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_each_event_of_a_spool_is_stored_once_whatever_becomes_of_server_and_answers(
    tmp_path: Path, kills: int
) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    stop, ended = threading.Event(), threading.Event()
    kept: list[set[int]] = [set() for _ in range(PRODUCERS)]
    folders = [tmp_path / f"spool-{number}" for number in range(PRODUCERS)]
    producers = [
        threading.Thread(target=produce, args=(folder, number * 1_000_000, stop, kept[number]))
        for number, folder in enumerate(folders)
    ]
    for thread in producers:
        thread.start()
    url: list[str] = []
    couriers: list[threading.Thread] = []
    for turn in range(kills + 1):
        with served(root, "--door", "events", "--quiet") as at:
            url[:] = [at.url]
            if not couriers:
                for number, folder in enumerate(folders):
                    while not (folder / "spool.id").exists():
                        time.sleep(0.01)
                    couriers.append(threading.Thread(target=deliver, args=(folder, url, ended, number * 1000)))
                    couriers[-1].start()
            time.sleep(0.5 + (turn * 37 % 10) / 10)
            if turn < kills:
                at.process.kill()
                at.process.wait()
                continue
            stop.set()
            for thread in producers:
                thread.join()
            ended.set()
            for thread in couriers:
                thread.join()
    stored = [event.file_size - 10 for event in Repository.open(root).events(0, 10_000_000)]
    assert len(stored) == len(set(stored)), "an event is stored twice"
    assert set(stored) == set().union(*kept), "an event that was kept is not stored"
    assert len(stored) > 100
    for folder in folders:
        assert not [name for name in folder.iterdir() if name.suffix == ".events"]
    with suppress(FileNotFoundError):
        assert not list((root / "quarantine").glob("*.rejected"))
