"""The commit feed and the parts of scans: each event in one batch, whatever was compacted, limited or forgotten."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from custody.catalog import PrunedError, prune
from custody.config import Settings
from custody.errors import ConflictError
from custody.read import event_scan
from custody.read.commit_feed import Position, Positions, limited_positions, new_parts, newest_positions
from custody.read.event_scan import ALL, EventFilter, ScanPart, joined, plan_scan, read_part
from custody.repository import EventSelection, Repository
from custody.vfs import PosixFileSystem
from tests.support import append, run_steps, sample

EVENTS = sample(300)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    found = Repository.create(tmp_path / "repository")
    for number in range(4):
        append(found, EVENTS[number * 30 : number * 30 + 30])
        run_steps(found.settings)
    return found


def ids(parts: list[ScanPart], asked: EventFilter = ALL) -> list[int]:
    # The settings of nobody: of a log in a folder a part says all.
    nowhere = Settings(root=Path("/nowhere"))
    tables = [table for part in parts for table in read_part(nowhere, PosixFileSystem(), part, asked, ["event_id"])]
    return sorted(value for table in tables for value in table.column(0).to_pylist())


def between(repository: Repository, start: Positions, end: Positions) -> list[int]:
    return ids(new_parts(repository.workspaces(), start, end, ALL))


def test_batches_join_to_all_events_each_once_whatever_is_compacted_in_between(repository: Repository) -> None:
    positions: list[Positions] = [{}]
    for _ in range(3):
        stop = newest_positions(repository.workspaces())
        positions.append(limited_positions(repository.workspaces(), positions[-1], stop, 1))
    assert [between(repository, *pair) for pair in pairwise(positions)] == [
        list(range(first, first + 30)) for first in (0, 30, 60)
    ]
    repository.compact()
    repository.forget(EventSelection(event_ids=(31,)), "asked for")
    append(repository, EVENTS[120:150])
    run_steps(repository.settings)
    repository.compact()
    newest = newest_positions(repository.workspaces())
    assert between(repository, positions[1], positions[2]) == [30, *range(32, 60)]
    assert between(repository, positions[3], newest) == list(range(90, 150))
    assert between(repository, {}, newest) == [number for number in range(150) if number != 31]
    assert between(repository, newest, newest) == []


def test_a_limit_passes_at_least_one_commit_and_never_the_end(repository: Repository) -> None:
    workspaces = repository.workspaces()
    stop = newest_positions(workspaces)
    assert limited_positions(workspaces, {}, stop, 3)["main"].revision == 2
    assert limited_positions(workspaces, {}, stop, 1000) == stop
    assert limited_positions(workspaces, stop, stop, 1) == stop


def test_a_position_that_is_pruned_or_of_another_catalog_is_refused(repository: Repository) -> None:
    workspaces = repository.workspaces()
    first = limited_positions(workspaces, {}, newest_positions(workspaces), 1)
    newest = newest_positions(workspaces)
    other = {"main": Position(revision=0, digest="00" * 32)}
    with pytest.raises(ConflictError, match="revision 0 is another one than was read before"):
        between(repository, other, newest)
    with pytest.raises(ConflictError, match="the catalog was repaired or rebuilt"):
        between(repository, first, {"main": Position(revision=99, digest="")})
    for number in range(4, 8):
        append(repository, EVENTS[number * 30 : number * 30 + 30])
        run_steps(repository.settings)
        repository.workspace().catalog.checkpoint()
    prune(repository.workspace().catalog, 5)
    with pytest.raises(PrunedError, match="keep more of the history"):
        between(repository, first, newest_positions(repository.workspaces()))
    assert between(repository, {}, newest_positions(repository.workspaces())) == list(range(240))


def test_what_waits_in_journals_travels_in_small_parts_and_no_log_is_read_for_an_id_beyond(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(repository, EVENTS[120:220])
    monkeypatch.setattr(event_scan, "_TAIL_PART_BYTES", 10_000)
    plan = plan_scan(repository.workspaces())
    tails = [part for part in plan.parts if part.log is None]
    assert len(tails) > 3
    assert ids(plan.parts) == list(range(220))
    asked = EventFilter(ids=((150, 400),), event_types=("SEND", "DROP"))
    chosen = plan_scan(repository.workspaces(), asked)
    assert [part for part in chosen.parts if part.log is not None] == []
    assert ids(chosen.parts, asked) == [
        number for number in range(150, 220) if EVENTS[number].event_type in ("SEND", "DROP")
    ]
    assert ids(plan_scan(repository.workspaces(), EventFilter(ids=())).parts, EventFilter(ids=())) == []


def test_ranges_are_joined() -> None:
    assert joined([(5, 9), (0, 2), (3, 3), (8, 12), (20, 20)]) == ((0, 3), (5, 12), (20, 20))
