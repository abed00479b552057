"""Forgotten events, live or not, are in no answer any more; all others are, later ones too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.errors import ExitCode, InvalidInputError, NotFoundError
from custody.model import Event
from custody.repository import EventSelection, Repository
from tests.support import append, event, run_steps, write_samples

SECRET = {"customer": "4711"}


def events() -> list[Event]:
    return [
        event(number, event_type="RECEIVE", updated_attributes=SECRET if number % 3 == 0 else {"customer": "12"})
        for number in range(12)
    ]


@pytest.fixture(params=["all live", "half live", "none live"])
def opened(repository: Repository, request: pytest.FixtureRequest) -> Repository:
    made = events()
    append(repository, made[:6])
    if request.param != "none live":
        run_steps(repository.settings)
    append(repository, made[6:])
    if request.param == "all live":
        run_steps(repository.settings)
    return Repository.open(repository.settings.root)


def ids_everywhere(repository: Repository, *, with_sql: bool = True) -> list[int]:
    """The ids that every way of asking gives; they must agree. SQL starts a process for each question."""
    listed = [event.event_id for event in repository.events()]
    assert [event.event_id for event in repository.get_many(range(100))] == listed
    searched = repository.search("")
    assert searched.total == len(listed)
    assert sorted(stored.event.event_id for stored in searched.events) == listed
    between = repository.events_between(0, 1 << 60)
    assert [event.event_id for event in between] == listed
    if with_sql:
        with repository.sql("SELECT event_id FROM events ORDER BY event_id") as result:
            rows = [row["event_id"] for batch in result.batches() for row in batch.to_pylist()]
        assert rows == listed
    for event_id in range(12):
        if event_id in listed:
            repository.get(event_id)
        else:
            with pytest.raises(NotFoundError):
                repository.get(event_id)
    return listed


@pytest.mark.in_parts(3)
@pytest.mark.parametrize(
    ("meant", "gone"),
    [
        (EventSelection(attributes=SECRET), {0, 3, 6, 9}),
        (EventSelection(event_ids=[1, 7, 99]), {1, 7}),
        (EventSelection(flowfile_uuids=[events()[8].flowfile_uuid]), {8}),
        (EventSelection(from_ms=events()[2].event_time, to_ms=events()[5].event_time), {2, 3, 4}),
        (EventSelection(attributes=SECRET, event_ids=[0, 1]), {0}),
    ],
    ids=["attribute", "ids", "flowfile", "time", "both conditions"],
)
def test_what_is_forgotten_is_given_out_by_nothing(opened: Repository, meant: EventSelection, gone: set[int]) -> None:
    assert opened.count_selected(meant) == {"main": len(gone)}
    assert len(ids_everywhere(opened, with_sql=False)) == 12
    [done] = opened.forget(meant, "asked for")
    left = [number for number in range(12) if number not in gone]
    assert ids_everywhere(opened) == left
    assert ids_everywhere(Repository.open(opened.settings.root), with_sql=False) == left
    assert done.writer == "main"
    run_steps(opened.settings)
    assert ids_everywhere(opened, with_sql=False) == left
    assert ids_everywhere(Repository.open(opened.settings.root)) == left


def test_later_events_are_not_meant(opened: Repository) -> None:
    opened.forget(EventSelection(attributes=SECRET), "asked for")
    append(opened, [event(12, updated_attributes=SECRET)])
    assert ids_everywhere(opened) == [1, 2, 4, 5, 7, 8, 10, 11, 12]
    run_steps(opened.settings)
    assert ids_everywhere(opened) == [1, 2, 4, 5, 7, 8, 10, 11, 12]


def test_a_lineage_does_not_show_what_is_forgotten(opened: Repository) -> None:
    uuid = events()[3].flowfile_uuid
    assert opened.lineage([uuid]).events == 1
    opened.forget(EventSelection(flowfile_uuids=[uuid]), "asked for")
    with pytest.raises(NotFoundError):
        opened.lineage([uuid])


def test_an_ingest_of_the_same_file_does_not_bring_it_back(repository: Repository, tmp_path: Path) -> None:
    [path, *_] = write_samples(tmp_path, 60)
    with repository.ingest() as ingest:
        stored = ingest.file(path).stored
    run_steps(repository.settings)
    victim = next(iter(repository.events())).flowfile_uuid
    [done] = repository.count_selected(EventSelection(flowfile_uuids=[victim])).values()
    repository.forget(EventSelection(flowfile_uuids=[victim]), "asked for")
    with repository.ingest() as ingest:
        again = ingest.file(path)
    assert (again.stored, again.repeated, again.rejected) == (0, stored, 0)
    assert len(list(repository.events())) == stored - done


def test_a_tombstone_without_a_condition_is_refused(opened: Repository) -> None:
    with pytest.raises(InvalidInputError, match="expected event ids"):
        opened.forget(EventSelection(), "everything")
    assert len(list(opened.events())) == 12


def test_the_command_counts_first_and_forgets_when_told(opened: Repository) -> None:
    root = str(opened.settings.root)
    asked = ["-r", root, "forget", "--attribute", "customer=4711", "--reason", "request"]
    counted = CliRunner().invoke(cli, [*asked, "--dry-run", "--json"])
    assert json.loads(counted.output) == {"main": 4}
    without_consent = CliRunner().invoke(cli, asked)
    assert without_consent.exit_code == ExitCode.USAGE
    assert "--yes does it unasked" in without_consent.output
    assert len(list(Repository.open(root).events())) == 12
    done = CliRunner().invoke(cli, [*asked, "--yes", "--json"])
    assert done.exit_code == 0, done.output
    assert len(list(Repository.open(root).events())) == 8
    shown = CliRunner().invoke(cli, ["-r", root, "catalog", "show"])
    assert "1 tombstones" in shown.output
    assert "main" in CliRunner().invoke(cli, [*asked, "--yes"]).output
    refused = CliRunner().invoke(cli, ["-r", root, "forget", "--event-id", "1", "--reason", "x", "--yes"])
    assert refused.exit_code == InvalidInputError.exit_code
    assert CliRunner().invoke(cli, ["-r", root, "forget", "--attribute", "x", "--reason", "y"]).exit_code == 13
