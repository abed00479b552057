"""Contents go with the last event that speaks of them: counted in the plan, deleted by the pass, never sooner."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from custody.config import Settings
from custody.errors import NotFoundError
from custody.flow.content import with_content
from custody.model import Event
from custody.repository import EventSelection, Repository
from custody.retention import measure_disk
from custody.vfs import PosixFileSystem
from tests.behaviour.retained import START_MS, ids, on_day, pass_of, repository_at

BODY = 200_000
UNUSED = {"content": {"claim_bytes": 4096, "unused_minutes": 60.0}}


def at(root: Path, days: float, **retention: Any) -> Repository:
    """The repository so many days after event 0; its contents were written when it began."""
    repository = repository_at(root, days, **retention)
    document = {"root": root, "retention": {"grace": "0 seconds", **retention}, **UNUSED}
    return Repository(Settings.model_validate(document), PosixFileSystem(), repository._clock)


def store_with_contents(root: Path, *days: int) -> list[Event]:
    """A live log a day, each of one event with a content of its own file."""
    told = []
    for number, day in enumerate(days):
        repository = at(root, day)
        with repository.writer() as writer:
            writer.append_with_content([on_day(number, day)], bytes([number]) * BODY)
        pass_of(repository)
        told.append(repository.get(number))
    for path in claims(root):
        os.utime(path, (START_MS / 1000, START_MS / 1000))
    return told


def claims(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("store/*/content/*/*/*") if path.is_file())


def test_by_age_contents_go_with_their_events_and_a_hold_keeps_both(tmp_path: Path) -> None:
    events = store_with_contents(tmp_path, 0, 1, 2, 3)
    at(tmp_path, 10).hold("case", EventSelection(flowfile_uuids=[events[1].flowfile_uuid]), "asked for", "legal")
    repository = at(tmp_path, 12.5, age_max="10 days")
    plan = repository.plan_retention()
    assert [log.first_event_id for log in plan.expiring] == [0, 2]
    assert all(log.bytes > BODY for log in plan.expiring), "the room of contents is counted"
    repository.apply_retention()
    assert ids(repository) == [1, 3]
    assert len(claims(tmp_path)) == 2
    for number in (1, 3):
        assert repository.content(events[number]).read() == bytes([number]) * BODY
    for number in (0, 2):
        with pytest.raises(NotFoundError, match="expired"):
            repository.content(events[number])


def test_by_size_no_more_logs_go_than_their_contents_need(tmp_path: Path) -> None:
    store_with_contents(tmp_path, *range(8))
    repository = at(tmp_path, 9, bytes_max=8 * BODY)
    settings = repository.settings
    used = measure_disk(settings, PosixFileSystem())
    assert used.kinds["content"] > 8 * BODY
    assert used.total_bytes > 8 * BODY
    plan = repository.plan_retention()
    needed = used.total_bytes - 8 * BODY * 90 // 100
    assert len(plan.expiring) == -(-needed // plan.expiring[0].bytes)
    assert plan.problem is None
    repository.apply_retention()
    after = measure_disk(settings, PosixFileSystem()).total_bytes
    assert after <= 8 * BODY
    assert abs(after - plan.after_bytes) < 100_000, "what the pass itself writes"
    assert len(claims(tmp_path)) == 8 - len(plan.expiring)


def test_what_no_event_speaks_of_waits_for_its_time(tmp_path: Path) -> None:
    store_with_contents(tmp_path, 0, 5)
    repository = at(tmp_path, 11, age_max="10 days")
    with repository.writer() as writer:
        young = writer.content.put(b"young" * 1000)
        old = writer.content.put(b"old" * 2000)
    for stored, age_ms in ((young, 59 * 60_000), (old, 61 * 60_000)):
        moment = (repository._clock.now_ms() - age_ms) / 1000
        os.utime(repository.content(stored.claim).path, (moment, moment))
    repository.apply_retention()
    assert repository.content(young.claim).read() == b"young" * 1000
    with pytest.raises(NotFoundError):
        repository.content(old.claim)


def test_a_live_writer_s_files_stay_while_it_may_append_to_them(tmp_path: Path) -> None:
    store_with_contents(tmp_path, 0, 5)
    document = {"root": tmp_path, "retention": {"grace": "0 seconds", "age_max": "10 days"}}
    settings = Settings.model_validate({**document, "content": {"claim_bytes": 4096, "unused_minutes": 0}})
    repository = Repository(settings, PosixFileSystem(), at(tmp_path, 11)._clock)
    with repository.writer() as writer:
        stored = writer.content.put(b"open")
        moment = (repository._clock.now_ms() - 19 * 60_000) / 1000
        os.utime(repository.content(stored.claim).path, (moment, moment))
        repository.apply_retention()
        assert repository.content(stored.claim).read() == b"open"


def test_events_of_other_writers_and_of_journals_keep_a_content(tmp_path: Path) -> None:
    events = store_with_contents(tmp_path, 0)
    document = {"root": tmp_path, "repository": {"writer": "other"}, **UNUSED}
    other = Repository(Settings.model_validate(document), PosixFileSystem(), at(tmp_path, 9)._clock)
    told = msgspec.structs.replace(on_day(1, 9), previous_content_claim=events[0].content_claim)
    other.append([told])
    repository = at(tmp_path, 11, age_max="10 days")
    repository.apply_retention()
    assert [item.event_id for item in repository.events(writer="main")] == []
    assert repository.content(told, previous=True).read() == bytes(BODY)


def test_an_event_that_cannot_be_read_keeps_every_content(tmp_path: Path) -> None:
    store_with_contents(tmp_path, 0, 5)
    log = sorted(tmp_path.glob("store/main/provenance/data/*/events/*.parquet"))[-1]
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF
    log.write_bytes(bytes(data))
    repository = at(tmp_path, 11, age_max="10 days")
    done = repository.apply_retention()
    [report] = done.steps["retention_collect_garbage"]
    assert "contents stay" in (report.note or "")
    assert len(claims(tmp_path)) == 2


def test_one_file_of_several_contents_stays_until_the_last_event_goes(tmp_path: Path) -> None:
    repository = at(tmp_path, 0)
    with repository.writer() as writer:
        stored = writer.content.put_many([b"one", b"two"])
    for number, content in enumerate(stored):
        with at(tmp_path, number * 5).writer() as writer:
            writer.append([with_content(on_day(number, number * 5), content)])
        pass_of(at(tmp_path, number * 5))
    for path in claims(tmp_path):
        os.utime(path, (START_MS / 1000, START_MS / 1000))
    at(tmp_path, 11, age_max="10 days").apply_retention()
    assert at(tmp_path, 11).content(stored[0].claim).read() == b"one"
    at(tmp_path, 16, age_max="10 days").apply_retention()
    assert claims(tmp_path) == []
