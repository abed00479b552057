"""Chunks that are planned elsewhere: what is written equals what a run writes by itself, byte by byte."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.clock import ManualClock
from custody.config import Settings
from custody.model import Event
from custody.ngsi.parameters import Parameters
from custody.ngsi.rendering import ColumnsByLocation
from custody.ngsi_sink.batch_plan import BatchPlan
from custody.ngsi_sink.chunk import Chunk, PlannedChunk, Span, WriterEvent, merged, plan_chunk, source_records
from custody.ngsi_sink.notifications import LiveNotifications
from custody.ngsi_sink.opening import resubmit_entry, sink_cursors
from custody.ngsi_sink.run import SinkReport
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.support import event, run_steps
from tests.unit.ngsi_sink.sink_repository import (
    NOW_MS,
    bench,
    files,
    opened,
    receive,
    refusing,
    send_events,
    settings,
)

LATER_MS = NOW_MS + 60_000
FORMATS = ("json-row", "json-column", "csv-row", "csv-column", "parquet")
LONG = "b" * 300


class Elsewhere:
    """Plans chunks as another process does: it gets them as bytes, opens the repository itself, and answers in bytes.

    Each chunk is planned twice, as a speculative task is, the last one first. `lost` are numbers of chunks that nobody
    can read there.
    """

    starts_at_bytes = 0

    def __init__(
        self, repository: Repository, at_once: int = 3, lost: Sequence[int] = (), starts_at_bytes: int = 0
    ) -> None:
        self.chunks_at_once = at_once
        self.starts_at_bytes = starts_at_bytes
        self.chunks: list[Chunk] = []
        self._lost = lost
        self._settings = repository.settings.to_json()

    def plan(self, chunks: Sequence[Chunk], columns: ColumnsByLocation) -> Future[Sequence[BatchPlan | None]]:
        sent = moved((list(chunks), dict(columns)))
        first = len(self.chunks)
        self.chunks += chunks
        plans = {
            place: self._plan(chunk, sent[1], is_lost=first + place in self._lost)
            for place, chunk in reversed([*enumerate(sent[0]), *enumerate(sent[0])])
        }
        answer: Future[Sequence[BatchPlan | None]] = Future()
        answer.set_result([plans[place] for place in range(len(chunks))])
        return answer

    def _plan(self, chunk: Chunk, columns: ColumnsByLocation, *, is_lost: bool) -> BatchPlan | None:
        if is_lost:
            return None
        used = Repository(Settings.from_json(self._settings))
        parameters = Parameters.from_section(used.settings.ngsi, used.settings.root)
        source = LiveNotifications(used, PosixFileSystem())
        return moved(plan_chunk(source, parameters, chunk, columns))


Moved = TypeVar("Moved")


def moved(value: Moved) -> Moved:
    """Return what another process gets, as Spark sends it."""
    there: Moved = pickle.loads(pickle.dumps(value))  # noqa: S301 - of this process
    return there


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with notifications of two writers: later columns, names that are too long, no attribute."""
    root = tmp_path_factory.mktemp("origin") / "repository"
    root.mkdir()
    repository = Repository(settings(root), clock=ManualClock(NOW_MS))
    number = 0
    for round_ in range(4):
        bodies = []
        for _ in range(12):
            number += 1
            more: dict[str, Any] = {f"at{round_}": {"type": "Text", "value": f'{number}, "q"\n\\n', "metadata": {}}}
            kind = ("Bench1", "Tree", "Bench1", LONG if number % 12 == 7 else "Bench2")[number % 4]
            values = {} if number % 11 == 0 else {"seats": {"type": "Number", "value": number, "metadata": {}}, **more}
            bodies.append(bench(number, kind, **values))
        # The second slot while the first one is held: two writers, whose events arrive in turns.
        if round_ % 2:
            with repository.writer():
                receive(repository, bodies, NOW_MS - 5 + round_)
        else:
            receive(repository, bodies, NOW_MS - 7 + round_)
    run_steps(repository.settings)
    return root


def copied(origin: Path, to: Path, **ngsi: object) -> Repository:
    shutil.copytree(origin, to)
    return Repository(settings(to, **ngsi), clock=ManualClock(LATER_MS))


def outcome(repository: Repository, report: SinkReport) -> dict[str, object]:
    """Everything that a run leaves but random names."""
    counts = asdict(report)
    del counts["planned_elsewhere"]
    root = str(repository.settings.root)
    return {
        "report": {name: str(value).replace(root, "") for name, value in counts.items()},
        "files": files(repository),
        "cursors": sink_cursors(repository),
        "quarantine": [(entry.code, entry.message.replace(root, "")) for entry in repository.quarantine.entries()],
        "events": [(item.parent_uuids, item.updated_attributes, item.file_size) for item in send_events(repository)],
    }


def run(repository: Repository, planner: Elsewhere | None, refused: Mapping[str, set[str]] | None = None) -> Any:
    target = refusing(repository)
    target.lengths |= (refused or {}).get("lengths", set())
    target.writes |= (refused or {}).get("writes", set())
    with opened(repository, target) as job:
        report = job.run(planner=planner, chunk_events=5)
    return outcome(repository, report), report, target.attempts


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("mode", FORMATS)
def test_what_is_written_by_plans_from_elsewhere_equals_a_run_by_itself(
    origin: Path, tmp_path: Path, mode: str
) -> None:
    alone, expected, _ = run(copied(origin, tmp_path / "alone", file_format=mode), None)
    repository = copied(origin, tmp_path / "spread", file_format=mode)
    planner = Elsewhere(repository)
    spread, report, _ = run(repository, planner)
    assert spread == alone
    assert len(alone["files"]) >= 3
    assert alone["report"]["skipped"] == "4"
    assert {span.writer for chunk in planner.chunks for span in chunk.spans} == {"main", "main-2"}
    assert (report.planned_elsewhere, expected.planned_elsewhere) == (report.chunks, 0)
    assert report.chunks > 2 * planner.chunks_at_once


def test_a_run_begins_by_itself_and_hands_over_what_follows(origin: Path, tmp_path: Path) -> None:
    alone, _, _ = run(copied(origin, tmp_path / "alone"), None)
    repository = copied(origin, tmp_path / "spread")
    planner = Elsewhere(repository, starts_at_bytes=20_000)
    spread, report, _ = run(repository, planner)
    assert spread == alone
    assert report.planned_elsewhere == len(planner.chunks) == report.chunks - 2


@pytest.mark.parametrize("lost", [[0], [2, 3], range(100)])
def test_a_chunk_that_nobody_can_read_elsewhere_is_read_by_the_run(
    origin: Path, tmp_path: Path, lost: Sequence[int]
) -> None:
    alone, _, _ = run(copied(origin, tmp_path / "alone"), None)
    repository = copied(origin, tmp_path / "spread")
    spread, report, _ = run(repository, Elsewhere(repository, lost=lost))
    assert spread == alone
    assert report.planned_elsewhere == report.chunks - len([number for number in lost if number < report.chunks])


@pytest.mark.in_parts(3)
@pytest.mark.parametrize("refused", [{"lengths": {"Tree"}}, {"writes": {"Tree"}}, {"lengths": {"/user"}}])
def test_files_that_refuse_are_tried_as_often_and_leave_the_same_quarantine(
    origin: Path, tmp_path: Path, refused: dict[str, set[str]]
) -> None:
    alone, stopped, attempts = run(copied(origin, tmp_path / "alone"), None, refused)
    repository = copied(origin, tmp_path / "spread")
    spread, report, attempts_of_spread = run(repository, Elsewhere(repository), refused)
    assert (spread, attempts_of_spread) == (alone, attempts)
    assert alone["quarantine"]
    assert report.is_stopped is stopped.is_stopped is ("/user" in refused.get("lengths", ()))
    # Mended, and submitted again: whoever made the lines, nothing is lost or there twice.
    for name, planner in (("alone", None), ("spread", Elsewhere(repository))):
        there = Repository(settings(tmp_path / name), clock=ManualClock(LATER_MS))
        for entry in list(there.quarantine.entries()):
            resubmit_entry(there, entry.key)
        with opened(there) as job:
            job.resubmit()
            job.run(planner=planner, chunk_events=5)
    assert files(repository) == files(Repository(settings(tmp_path / "alone")))
    assert not list(repository.quarantine.entries())


def test_damaged_and_missing_contents_are_left_to_the_run(origin: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "damaged"
    shutil.copytree(origin, damaged)
    claims = sorted(path for path in (damaged / "store").rglob("content/*/*/*") if path.is_file())
    assert len(claims) > 1
    data = bytearray(claims[0].read_bytes())
    data[len(data) // 2] ^= 1
    claims[0].write_bytes(data)
    claims[1].unlink()
    alone, _, _ = run(copied(damaged, tmp_path / "alone"), None)
    repository = copied(damaged, tmp_path / "spread")
    spread, report, _ = run(repository, Elsewhere(repository))
    assert spread == alone
    assert alone["quarantine"]
    assert 0 < report.planned_elsewhere < report.chunks


def test_a_plan_of_events_that_were_written_meanwhile_is_not_taken(origin: Path, tmp_path: Path) -> None:
    repository = copied(origin, tmp_path / "repository", file_format="csv-column")
    parameters = Parameters.from_section(repository.settings.ngsi, repository.settings.root)
    source = LiveNotifications(repository, PosixFileSystem())
    events = list(merged(source, [Span("main", 0, 10)]))
    chunk = Chunk.of(events, 0)
    plan = plan_chunk(source, parameters, chunk, {})
    assert plan is not None
    planned = PlannedChunk(chunk, plan, {})
    location, columns = next(iter(plan.additions.columns.items()))
    assert planned.holds({}, {})
    assert planned.holds({"main": events[0].event.event_id or 0, "other": 99}, {"/elsewhere": ("one",)})
    assert not planned.holds({"main": (events[0].event.event_id or 0) + 1}, {})
    assert not planned.holds({}, {location: ("another", *columns)})
    with opened(repository) as job:
        cursors = {"main": chunk.spans[0].upto}

        def records() -> Any:
            return source_records(merged(source, chunk.spans), source, parameters)

        first = job.sink.write_planned(planned, records, cursors)
        written = files(repository)
        again = job.sink.write_planned(planned, records, cursors)
    assert first.records > 0
    assert again.records == 0
    assert files(repository) == written


def test_a_chunk_whose_events_are_others_there_has_no_plan(origin: Path) -> None:
    repository = Repository(settings(origin))
    parameters = Parameters.from_section(repository.settings.ngsi, repository.settings.root)
    source = LiveNotifications(repository, PosixFileSystem())
    chunk = Chunk.of(list(merged(source, [Span("main", 0, 10)])), 0)
    short = Chunk(chunk.spans, chunk.events + 1, chunk.sha256, 0)
    other = Chunk((Span("main", 1, 11),), chunk.events, chunk.sha256, 0)
    assert plan_chunk(source, parameters, chunk, {}) is not None
    assert plan_chunk(source, parameters, short, {}) is None
    assert plan_chunk(source, parameters, other, {}) is None


ARRIVALS = st.dictionaries(st.sampled_from("abc"), st.lists(st.integers(0, 5), max_size=8))


@given(ARRIVALS, st.lists(st.integers(1, 6), min_size=1))
def test_pieces_of_what_arrived_merge_to_the_same_order(times: dict[str, list[int]], sizes: list[int]) -> None:
    class Source(LiveNotifications):
        def __init__(self) -> None:
            pass

        def notified(self, writer: str, first: int, bound: int) -> Iterator[Event]:
            for number, at in list(enumerate(times[writer]))[first:bound]:
                yield event(number, event_time=at, event_id=number)

    whole = list(merged(Source(), [Span(writer, 0, len(all_)) for writer, all_ in times.items()]))
    at = 0
    for size in sizes * len(whole):
        piece = whole[at : at + size]
        if piece:
            assert names(merged(Source(), Chunk.of(piece, 0).spans)) == names(piece)
        at += size


def names(events: Any) -> list[tuple[str, int | None]]:
    return [(item.writer, item.event.event_id) for item in events if isinstance(item, WriterEvent)]
