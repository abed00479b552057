"""Many writers, one answer: the same events under several writers and under one have the same pages, totals, facets."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from custody.config import Settings, load_settings
from custody.model import Event
from custody.model.visibility import EventCondition, Visibility
from custody.read.search import SearchResult
from custody.repository import EventSelection, Repository
from custody.repository.writers import absorb_retired, retire_writer
from custody.store import remote
from custody.store.traffic import Kind, note_requests
from tests.support import event, sample

WRITERS = ("w0", "w1", "w2", "w3", "w4")
WAITING = ("w1", "w3", "journals-only")
EVENTS = 240
SEEN = (
    Visibility(None),
    Visibility(None, (EventCondition.of({"event_type": "SEND"}),), ("filename",)),
    Visibility((EventCondition.of({"component_name": "*a*"}),), (), ("*",)),
)
TEXTS = (
    "",
    "event_type:SEND",
    "event_type:R*",
    "NOT event_type:SEND",
    "flowfile_uuid:{0} OR flowfile_uuid:{1}",
    "file_size:[0 TO 5000]",
    "event_type:ROUTE AND flowfile_uuid:{2}",
    "flowfile_uuid:none",
)


def named(root: Path, writer: str) -> Repository:
    settings = load_settings(root)
    section = settings.repository.model_copy(update={"writer": writer})
    return Repository(settings.model_copy(update={"repository": section}))


def store(root: Path, writer: str, events: list[Event], *, is_live: bool = True) -> None:
    repository = named(root, writer)
    repository.append(events)
    if is_live:
        assert not any(report.failed for report in repository.roll_over())


def events_of_one_time_each() -> list[Event]:
    return [
        msgspec.structs.replace(item, event_time=1_700_000_000_000 + 7 * n) for n, item in enumerate(sample(EVENTS))
    ]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, datetime]:
    """Several writers, of which one was absorbed, one has journals alone and two have both; and one with their events.

    Times go with ids, as they do within each writer, so the order over writers is that of one.
    """
    several, one = (tmp_path_factory.mktemp("two") / name for name in ("several", "one"))
    events, random = events_of_one_time_each(), Random(7)  # noqa: S311 - the same choices each time
    owners = [random.choice(WRITERS) for _ in range(200)] + [random.choice(WAITING) for _ in range(40)]
    parts = {(0, 120): True, (120, 200): True, (200, EVENTS): False}
    for root in (several, one):
        Repository.create(root)
    moment = datetime.now(UTC)
    for (start, end), is_live in parts.items():
        store(one, "w", events[start:end], is_live=is_live)
        for writer in dict.fromkeys(owners[start:end]):
            its = [events[n] for n in range(start, end) if owners[n] == writer]
            store(several, writer, its, is_live=is_live)
        if start == 0:
            time.sleep(0.005)
            moment = datetime.now(UTC)
            time.sleep(0.005)
    for root in (several, one):
        reasons = Repository.open(root).forget(EventSelection(flowfile_uuids=(events[5].flowfile_uuid,)), "asked")
        assert reasons
    retire_writer(load_settings(several), "w4", "done")
    assert not absorb_retired(load_settings(several), "archive").failed
    return several, one, moment


def pages(repository: Repository, text: str, offset: int, **options: object) -> Iterator[SearchResult]:
    page = repository.search(text, offset=offset, **options)  # type: ignore[arg-type]
    yield page
    while page.cursor is not None:
        page = repository.search(text, cursor=page.cursor, **options)  # type: ignore[arg-type]
        yield page


def told(result: SearchResult) -> tuple[int, list[Event], bool, tuple[str, ...]]:
    shown = [msgspec.structs.replace(item.event, event_id=0) for item in result.events]
    return result.total, shown, result.cursor is None, result.notices


@pytest.mark.in_parts(4)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_several_writers_answer_as_one_with_the_same_events(
    two: tuple[Path, Path, datetime], data: st.DataObject
) -> None:
    several, one, moment = two
    uuids = [item.flowfile_uuid for item in events_of_one_time_each()[:3]]
    text = data.draw(st.sampled_from(TEXTS)).format(*uuids)
    visibility = data.draw(st.sampled_from(SEEN))
    offset = data.draw(st.sampled_from((0, 0, 1, 30, 500)))
    options = {
        "limit": data.draw(st.sampled_from((0, 1, 9, 20, 100, 101, 1000))),
        "oldest_first": data.draw(st.booleans()),
        "as_of": moment if data.draw(st.booleans()) else None,
    }
    if options["limit"] == 1:
        offset = max(offset, 200)  # not a page for each event of everything
    readers = [Repository.open(root).seen_by(visibility) for root in (several, one)]
    # The first time, and when what was seen is known.
    for _ in range(2):
        answers = [[told(page) for page in pages(reader, text, offset, **options)] for reader in readers]
        assert answers[0] == answers[1]
    facets = [reader.facets(text, ["event_type"], as_of=options["as_of"]) for reader in readers]
    assert facets[0] == facets[1]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writers whose times go up and down, of which many are those of other events, too; a part waits in journals."""
    root = tmp_path_factory.mktemp("mixed") / "r"
    Repository.create(root)
    random = Random(11)  # noqa: S311 - the same choices each time
    for writer in WRITERS:
        for part in range(3):
            its = [
                event(n, event_time=1_700_000_000_000 + random.randrange(12)) for n in range(random.randrange(1, 14))
            ]
            store(root, writer, its, is_live=part < 2)
    return root


def merged(queues: dict[str, list[Event]], *, oldest_first: bool) -> list[tuple[str, int]]:
    """Take the next event by time, of one time that of the first writer; each writer's stay in their order."""
    taken = []
    while any(queues.values()):
        heads = [(queue[0].event_time, name) for name, queue in queues.items() if queue]
        pick = (min if oldest_first else max)(heads, key=lambda head: head[0])[1]
        taken.append((pick, queues[pick].pop(0).event_id))
    return taken


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("oldest_first", [False, True])
@pytest.mark.parametrize("limit", [1, 2, 7, 150, 1000])
def test_writers_are_merged_by_time_each_in_the_order_of_its_ids(mixed: Path, limit: int, oldest_first: bool) -> None:
    repository = Repository.open(mixed)
    alone = {
        writer: [item.event for item in repository.search(limit=1000, writer=writer, oldest_first=oldest_first).events]
        for writer in WRITERS
    }
    expected = merged(alone, oldest_first=oldest_first)
    for offset in (0, 1, 17):
        found = list(pages(repository, "", offset, limit=limit, oldest_first=oldest_first))
        given = [(item.writer, item.event.event_id) for page in found for item in page.events]
        assert given == expected[offset:]
        assert {page.total for page in found} == {len(expected)}


def test_of_several_writers_only_the_events_of_the_page_are_read(two: tuple[Path, Path, datetime]) -> None:
    repository = Repository.open(two[0])
    result = repository.search(limit=1, offset=60)
    # The page is one event, of one block of one writer; an event is passed over without a look at its block.
    assert sum(one.blocks for one in result.explained.values()) == 1
    assert len(result.explained) > 2


@pytest.mark.parametrize("oldest_first", [False, True])
def test_what_cannot_be_read_is_passed_over_as_in_a_page_of_one_writer(
    mixed: Path, tmp_path: Path, oldest_first: bool
) -> None:
    root = tmp_path / "damaged"
    shutil.copytree(mixed, root)
    log = sorted((root / "store" / WRITERS[0]).rglob("*.parquet"))[0]
    log.unlink()
    repository = Repository.open(root)
    one = [repository.search(limit=1000, writer=writer, oldest_first=oldest_first) for writer in WRITERS]
    assert [page.lost > 0 for page in one] == [True, *[False] * (len(WRITERS) - 1)]
    alone = {writer: [item.event for item in page.events] for writer, page in zip(WRITERS, one, strict=True)}
    expected = merged(alone, oldest_first=oldest_first)
    for limit in (1, 4, 1000):
        found = list(pages(repository, "", 0, limit=limit, oldest_first=oldest_first))
        assert [(item.writer, item.event.event_id) for page in found for item in page.events] == expected
        assert sum(page.lost for page in found) == one[0].lost


def in_store(root: Path, place: str, writer: str) -> Repository:
    return Repository(Settings.model_validate({"root": root, "repository": {"store": place, "writer": writer}}))


def test_a_reader_of_a_store_asks_for_several_writers_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, events = f"memory://{uuid4().hex}", sample(60)
    for number in range(6):
        producer = in_store(tmp_path / "producer", place, f"w{number}")
        producer.append(events[10 * number : 10 * number + 10])
        assert not any(report.failed for report in producer.roll_over())
    begin = remote.RemoteStore.__init__
    lock, under_way, most, is_far = Lock(), 0, 0, True

    def noted(kind: Kind, number: int = 1, **sizes: int) -> None:
        nonlocal under_way, most
        # Of logs and shards; catalogs are looked at side by side in any case.
        if kind == "range" and number:
            with lock:
                under_way += 1
                most = max(most, under_way)
            time.sleep(0.01)
            with lock:
                under_way -= 1
        note_requests(kind, number, **sizes)

    def begun(store: remote.RemoteStore, *arguments: Any, **options: Any) -> None:
        begin(store, *arguments, **options)
        store.is_remote = is_far

    monkeypatch.setattr(remote, "note_requests", noted)
    monkeypatch.setattr(remote.RemoteStore, "__init__", begun)
    answers = []
    for is_far in (True, False):
        reader = in_store(tmp_path / f"reader-{is_far}", place, "main")
        most = 0
        found = reader.search("", limit=25)
        assert (most > 1) == is_far
        assert found.total == 60
        answers.append((found.total, found.events, found.cursor, reader.facets("", ["event_type", "filename"])))
    assert answers[0] == answers[1]
