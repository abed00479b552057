"""A receiver killed in the middle of a burst: every notification that was answered with 200 is stored."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from custody.maintenance.findings import damages
from custody.maintenance.verification import verify_repository
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.unit.serving.receiver_process import Receiving, notification, receiving

THREADS = 8
ROUNDS = 5


def post_until_dead(at: Receiving, number: int) -> list[tuple[int, bytes]]:
    """Post one notification after the other; return those that were answered with 200."""
    told: list[tuple[int, bytes]] = []
    with httpx.Client(timeout=30) as client:
        for count in range(100_000):
            pad = {"type": "Text", "value": "x" * (count * 37 % 2000), "metadata": {}}
            body = notification(number * 100_000 + count, pad=pad)
            try:
                answer = client.post(at.url, content=body, headers={"content-type": "application/json"})
            except httpx.TransportError:
                return told
            assert answer.status_code == 200, answer.text
            told.append((answer.json()["first_event_id"], body))
    return told


@pytest.mark.slow
def test_what_a_killed_receiver_answered_with_200_is_in_the_repository(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    told: list[tuple[int, bytes]] = []
    for turn in range(ROUNDS):
        with receiving(root, "--quiet") as at, ThreadPoolExecutor(THREADS) as pool:
            work = [pool.submit(post_until_dead, at, turn * THREADS + number) for number in range(THREADS)]
            while at.health()["notifications"] < THREADS and not any(future.done() for future in work):
                time.sleep(0.05)
            time.sleep(turn / 3)
            at.process.kill()
            pairs = [pair for future in work for pair in future.result()]
            assert pairs
            told += pairs
    with Repository.open(root).writer():
        pass  # the next start recovers
    repository = Repository.open(root)
    assert len({number for number, _ in told}) == len(told)
    events = {event.event_id: event for event in repository.get_many([number for number, _ in told])}
    lost = [number for number, _ in told if number not in events]
    assert not lost, f"{len(lost)} of {len(told)} acknowledged notifications are lost"
    for number, body in told:
        assert repository.content(events[number]).read() == body
    checked = verify_repository(repository.workspaces(), repository.settings, PosixFileSystem())
    assert not damages(checked.findings)
