"""A crawl whose process is killed again and again ends as one that was left alone: each step's work is done once."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from custody.repository import Repository
from tests import forks
from tests.support import INCLUDE
from tests.unit.examples.crawls import EVENTS, events_by_step, require_final_state

CRAWL = [sys.executable, "-c", "from custody.cli.main import main; main()"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(INCLUDE)}
DEADLINE_SECONDS = 60.0


def logged_bytes(repository: Repository) -> int:
    return sum(path.stat().st_size for path in repository.settings.flowfiles_home.glob("log/*.log"))


def kill_after(repository: Repository, folder: Path, more_bytes: int) -> None:
    """Let a crawl go on until its log has grown by so much, and kill it."""
    end = logged_bytes(repository) + more_bytes
    command = [*CRAWL, "-r", str(repository.settings.root), "example", "crawl", str(folder)]
    deadline = time.monotonic() + DEADLINE_SECONDS
    with forks.Popen(command, env=ENVIRONMENT, stdout=forks.DEVNULL, stderr=forks.DEVNULL) as crawl:
        while crawl.poll() is None and logged_bytes(repository) < end:
            assert time.monotonic() < deadline
        crawl.kill()


@pytest.mark.in_parts(4)
@pytest.mark.parametrize(
    "steps",
    [
        (20_000, 50_000, 30_000),
        pytest.param((6_000, 45_000, 30_000, 25_000), marks=pytest.mark.slow),
        pytest.param((60_000, 55_000), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_killed_crawls_go_on_and_do_each_thing_once(steps: tuple[int, ...], tmp_path: Path) -> None:
    repository, folder = Repository.create(tmp_path / "repository"), tmp_path / "crawled"
    for more_bytes in steps:
        kill_after(repository, folder, more_bytes)
    waiting = sum(status.count for status in repository.queues().queues())
    assert waiting > 1, "the crawl was over before its last kill"
    command = [*CRAWL, "-r", str(repository.settings.root), "example", "crawl", str(folder)]
    forks.run(command, env=ENVIRONMENT, check=True, capture_output=True)
    require_final_state(repository, folder)
    counted = events_by_step(repository, lambda event: event.component_type)
    # How many URLs are seen at once depends on where it was broken off.
    counted["DetectDuplicate"]["CONTENT_MODIFIED"] = EVENTS["DetectDuplicate"]["CONTENT_MODIFIED"]
    assert counted == EVENTS
