"""Searches whose shards are asked by several threads: the same answers in the same order, whatever is damaged."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from custody.config import SETTINGS_FILE
from custody.index import OpenShard
from custody.query import shard_search
from custody.read.search import SearchResult, StoredEvent
from custody.repository import EventSelection, Repository
from tests.support import append, flipped, run_steps, sample

QUESTIONS = [
    "",
    "event_type:SEND",
    "event_type:(SEND OR DROP) AND filename:*1*",
    "attribute.mime.type:*",
    "filename:nothing",
]


def settings(threads: int) -> str:
    index = "[eventlog]\nlog_bytes_target = 20000\n[index]\nattributes = ['mime.type']\n"
    return f"{index}[query]\nsearch_threads = {threads}\n"


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with many shards of two writers, one of them old, damaged or gone, and forgotten events."""
    root = tmp_path_factory.mktemp("threads") / "repository"
    Repository.create(root)
    events = sample(1500)
    for number, writer in enumerate(("main", "other")):
        text = settings(1).replace("['mime.type']", "[]") if number else settings(1)
        (root / SETTINGS_FILE).write_text(f'{text}[repository]\nwriter = "{writer}"\n')
        append(Repository.open(root), events[number * 900 : 900 + number * 600])
        run_steps(Repository.open(root).settings)
    (root / SETTINGS_FILE).write_text(settings(1))
    Repository.open(root).forget(EventSelection(event_ids=tuple(range(3, 300, 7))), "asked", "main")
    folders = sorted(path for path in root.glob("containers/1/main/index/*") if path.is_dir())
    assert len(folders) > 12
    damaged = folders[3] / "custody.shard"
    damaged.write_bytes(flipped(damaged.read_bytes(), 80))
    shutil.rmtree(folders[6])
    return root


def answers(root: Path, threads: int, **options: Any) -> list[SearchResult]:
    (root / SETTINGS_FILE).write_text(settings(threads))
    opened = Repository.open(root)
    results = [opened.search(text, **options) for text in QUESTIONS]
    for result in results:
        for explained in result.explained.values():
            explained.seconds = 0.0
    return results


@pytest.mark.in_parts(3)
@pytest.mark.parametrize(
    "options",
    [
        {"limit": 5},
        {"limit": 400},
        {"limit": 37, "oldest_first": True},
        {"offset": 900},
    ],
    ids=str,
)
def test_several_threads_give_the_answers_of_one(shards: Path, options: dict[str, Any]) -> None:
    one, several = answers(shards, 1, **options), answers(shards, 5, **options)
    assert several == one
    assert any(result.notices for result in one), "the damage is met"
    assert one[0].total > 1000


def test_pages_of_several_threads_follow_each_other_without_a_gap(shards: Path) -> None:
    (shards / SETTINGS_FILE).write_text(settings(4))
    opened, cursor = Repository.open(shards), None
    events: list[StoredEvent] = []
    while True:
        page = opened.search("event_type:*", limit=83, cursor=cursor)
        events += page.events
        cursor = page.cursor
        if cursor is None:
            break
    assert tuple(events) == answers(shards, 1, limit=10_000)[0].events


def test_shards_are_asked_at_once_and_by_one_thread_where_the_setting_says_so(
    shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: set[str] = set()
    met = threading.Event()
    wait_seconds = 0.0  # with one thread there is nobody to wait for
    count = OpenShard.count

    def counted(self: OpenShard, question: Any) -> int:
        names.add(threading.current_thread().name)
        if len(names) > 1:
            met.set()
        met.wait(wait_seconds)
        return count(self, question)

    monkeypatch.setattr(OpenShard, "count", counted)
    answers(shards, 1, limit=1)
    assert names == {threading.current_thread().name}
    names.clear()
    wait_seconds = 0.05
    answers(shards, 3, limit=1)
    assert met.is_set()
    assert threading.current_thread().name not in names


@pytest.mark.in_parts(2)
def test_many_searches_at_once_share_their_shards(shards: Path) -> None:
    (shards / SETTINGS_FILE).write_text(settings(3))
    opened = Repository.open(shards)
    expected = [opened.search(text, limit=50).events for text in QUESTIONS]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda text: opened.search(text, limit=50).events, QUESTIONS * 6))
    assert found == expected * 6


def test_a_thread_that_needs_logs_leaves_them_to_the_search(shards: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []
    refuse = shard_search._refuse

    def told(shard: Any, question: Any) -> Any:
        refused.append(shard.name)
        return refuse(shard, question)

    monkeypatch.setattr(shard_search, "_refuse", told)
    answers(shards, 4, limit=10_000)
    assert refused, "a shard that is gone was met by a thread"
