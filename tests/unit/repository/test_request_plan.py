"""What `custody plan` says of requests to an object store is what real repositories ask of one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest

from custody.index import filter_bank
from custody.model import Event
from custody.repository import Repository
from custody.repository.request_plan import (
    FILTER_SHARE,
    MANIFEST_SHARE,
    Prices,
    Requests,
    StoredRepository,
    billed,
    compaction_requests,
    kept_filters,
    pass_requests,
    point_read,
    put_requests,
    search,
)
from custody.store import counted
from custody.store.remote import RemoteStore, open_remote
from tests.support import append, sample

CHECKPOINT_EVERY = 4


@pytest.fixture(autouse=True)
def _in_a_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repositories lie in a store of this process's memory that is asked as one behind a network is."""
    made = RemoteStore.__init__

    def remote(self: RemoteStore, *arguments: object, **named: object) -> None:
        made(self, *arguments, **named)  # type: ignore[arg-type]
        self.is_remote = True

    monkeypatch.setattr(RemoteStore, "__init__", remote)
    monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", f"memory://{uuid4().hex}")
    monkeypatch.setenv("CUSTODY__CATALOG__CHECKPOINT_EVERY", str(CHECKPOINT_EVERY))


@dataclass(frozen=True)
class Built:
    """A repository in a store, what its passes asked, and an event in its oldest log."""

    root: Path
    stored: StoredRepository
    passes: list[Requests]
    event: Event

    @property
    def shards(self) -> float:
        return self.stored.logs_a_day * self.stored.writers


def build(root: Path, monkeypatch: pytest.MonkeyPatch, writers: int, passes: int, events: int) -> Built:
    (root / "custody.toml").touch()
    data = sample(events * passes * writers)
    asked = []
    for number in range(passes):
        for writer in range(writers):
            monkeypatch.setenv("CUSTODY__REPOSITORY__WRITER", f"w{writer}")
            start = (number * writers + writer) * events
            append(Repository.open(root), data[start : start + events])
        with counted() as counter:
            assert not any(report.failed for report in Repository.open(root).roll_over())
        asked.append(billed(counter.traffic))
    monkeypatch.setenv("CUSTODY__REPOSITORY__WRITER", "w0")
    # What a machine has that wrote none of it.
    shutil.rmtree(root / "containers")
    state = Repository.open(root).workspace().state()
    size = sum(shard.size_bytes for shard in state.shards.values()) / len(state.shards)
    # The first checkpoint stands beside the fourth transaction.
    behind = (passes - CHECKPOINT_EVERY) % CHECKPOINT_EVERY
    return Built(root, StoredRepository(writers, behind, 1, passes, size), asked, data[3])


def asked(built: Built, question: Callable[[Repository], object]) -> list[Requests]:
    """Return the requests on an empty disk, in a new process on that disk, and again."""
    shutil.rmtree(built.root / "work", ignore_errors=True)
    first, second = Repository.open(built.root), Repository.open(built.root)
    answers = []
    for reader in (first, second, second):
        with counted() as counter:
            question(reader)
        answers.append(billed(counter.traffic))
    return answers


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(("writers", "passes", "events"), [(1, 6, 60), (3, 4, 40)])
def test_questions_ask_what_the_model_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writers: int, passes: int, events: int
) -> None:
    built = build(tmp_path, monkeypatch, writers, passes, events)
    rare = f"flowfile_uuid:{built.event.flowfile_uuid}"
    planned = search(built.stored, "rare", built.shards, 1, 1.0)
    counted_cold, *others = asked(built, lambda it: it.search(rare, limit=5))
    assert others == [planned.new_process, planned.again]
    assert counted_cold.writes == planned.cold.writes
    assert counted_cold.reads == pytest.approx(planned.cold.reads, abs=3)
    # Its FlowFiles are in the same log.
    lineage_cold, *others = asked(built, lambda it: it.lineage([built.event.flowfile_uuid]))
    assert others == [planned.new_process, planned.again]
    assert lineage_cold.reads == pytest.approx(planned.cold.reads, abs=3)
    one = point_read(built.stored)
    assert asked(built, lambda it: it.get(3, "w0")) == [one.cold, one.new_process, one.again]


def test_passes_and_compactions_ask_what_the_model_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Units of a third of what comes between two passes.
    monkeypatch.setenv("CUSTODY__EVENTLOG__LOG_BYTES_TARGET", "25000")
    (tmp_path / "custody.toml").touch()
    data = sample(60)
    behind = 0
    for number, groups in enumerate((1, 1, 1, 3, 3, 0, 1)):
        with Repository.open(tmp_path).writer() as writer:
            for group in range(groups):
                writer.append(data[20 * group : 20 * (group + 1)])
                writer.seal()
        with counted() as counter:
            reports = Repository.open(tmp_path).roll_over()
        units = sum(report.units for report in reports if report.step == "compress")
        checkpoints = sum(report.units for report in reports if report.step == "checkpoint")
        assert units == groups
        given, planned = billed(counter.traffic), pass_requests(units, checkpoints, behind)
        behind = 0 if checkpoints else behind + units
        # The first passes find no checkpoint, and list more.
        if number > 3:
            assert given.reads == pytest.approx(planned.reads, rel=0.05)
            assert given.writes == pytest.approx(planned.writes, rel=0.05)
    monkeypatch.setenv("CUSTODY__EVENTLOG__LOG_BYTES_TARGET", "2000000")
    with counted() as counter:
        rewrites = sum(report.logs_before > 0 for report in Repository.open(tmp_path).compact("main"))
    assert rewrites == 1
    given, planned = billed(counter.traffic), compaction_requests(rewrites)
    assert given.reads == pytest.approx(planned.reads, rel=0.25)
    assert given.writes == pytest.approx(planned.writes, rel=0.25)


@pytest.mark.slow
def test_shards_of_many_pages_ask_what_the_model_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters and terms of larger shards lie in pages of their own."""
    built = build(tmp_path, monkeypatch, 1, 4, 20_000)
    monkeypatch.setattr(filter_bank.FilterBank.__init__, "__defaults__", (0,))
    planned = search(built.stored, "rare", built.shards, 1, kept_filters=0.0)
    rare = f"flowfile_uuid:{built.event.flowfile_uuid}"
    cold, new_process, again = asked(built, lambda it: it.search(rare, limit=5))
    assert cold.reads == pytest.approx(planned.cold.reads, abs=3)
    assert (new_process, again) == (planned.new_process, planned.again)
    [shard, *_] = Repository.open(built.root).workspace().state().shards.values()
    store = open_remote(os.environ["CUSTODY__REPOSITORY__STORE"])
    [key] = [key for key in store.keys("w0/provenance/index/") if shard.name in key]
    tail = store.get_range(key, -48, 48)
    manifest = int.from_bytes(tail[:8], "little")
    # The fixed part of a manifest counts in a small shard.
    assert MANIFEST_SHARE * shard.size_bytes < manifest < 3 * MANIFEST_SHARE * shard.size_bytes


def test_large_objects_go_in_parts_and_prices_add_up() -> None:
    assert put_requests(10 << 20) == Requests(writes=1)
    assert put_requests(160 << 20) == Requests(reads=2, writes=13)
    prices = Prices(gb_month=2.0, thousand_gets=3.0, thousand_puts=5.0)
    assert prices.of_storage(4e9) == 8.0
    assert prices.of_requests(Requests(reads=2000, writes=1000)) == 11.0
    assert kept_filters(0, 1) == 1.0
    assert kept_filters(2 * filter_bank.BYTES_MAX / FILTER_SHARE, 1) == 0.5


def test_what_a_question_asks_grows_with_shards_days_and_writers() -> None:
    stored = StoredRepository(writers=2, behind=3, days=10, logs_a_day=600, shard_bytes=10 << 20)
    few, many = (search(stored, "s", shards, shards / 1200, 1.0) for shards in (1200.0, 12000.0))
    assert many.cold.reads - few.cold.reads == pytest.approx(3 * 10800)
    # A folder of 1,200 names is two requests.
    assert many.new_process.writes - few.new_process.writes == 2 * 9 * 2
    assert many.again == few.again
    unknown = search(stored, "s", 1200.0, 1.0, 0.25).another.reads - few.another.reads
    assert unknown == pytest.approx(900)
    large = replace(stored, shard_bytes=100 << 20)
    assert search(large, "s", 10, 1, 1).cold.reads - search(stored, "s", 10, 1, 1).cold.reads == 10
