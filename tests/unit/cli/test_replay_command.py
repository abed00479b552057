"""The commands of replay: plans as tables, JSON and files, and runs with consent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from custody.cli.main import cli
from custody.errors import BackpressureError, ConflictError, ExitCode
from custody.repository import EventSelection, Repository
from tests.unit.replay.replay_fixtures import drain, fill, found

DROPS = "event_type:DROP"


@pytest.fixture
def plan(repository: Repository, tmp_path: Path) -> Path:
    fill(repository, 3)
    path = tmp_path / "a.plan"
    assert custody(repository, "plan", DROPS, "-o", str(path)).exit_code == 0
    return path


def custody(repository: Repository, *words: str) -> Result:
    return CliRunner().invoke(cli, ["-r", str(repository.settings.root), "replay", *words])


def test_a_plan_is_shown_with_its_reasons(repository: Repository) -> None:
    fill(repository, 3)
    result = custody(repository, "plan", "")
    assert result.exit_code == 0
    for text in ("3 events", "21 (21 B)", "no-source-queue", "orders", "event main/0 [no-source-queue]"):
        assert text in result.output
    document = json.loads(custody(repository, "plan", "", "--json").stdout)
    assert (document["events"], document["bytes"], document["queues"]) == (3, 21, {"orders": 3})
    assert document["refused_by_code"] == {"no-source-queue": 3}
    assert [(item["event_id"], item["code"]) for item in document["refused"]] == [
        (number, "no-source-queue") for number in range(3)
    ]
    assert document["revisions"] == {"main": -1}
    by_id = json.loads(custody(repository, "plan", "--event", "3", "--event", "4", "--json").stdout)
    assert by_id["events"] == 2


@pytest.mark.parametrize("words", [(), (DROPS, "--event", "3")])
def test_either_a_query_or_events_are_wanted(repository: Repository, words: tuple[str, ...]) -> None:
    result = custody(repository, "plan", *words)
    assert result.exit_code == ExitCode.USAGE
    assert "give either a QUERY" in result.output


def test_a_plan_replaces_no_file(repository: Repository, plan: Path) -> None:
    before = plan.read_bytes()
    assert "a new file" in custody(repository, "plan", DROPS, "-o", str(plan)).output
    assert plan.read_bytes() == before


def test_a_run_asks_first(repository: Repository, plan: Path) -> None:
    unasked = custody(repository, "run", str(plan))
    assert unasked.exit_code == ExitCode.USAGE
    assert "--yes does it unasked" in unasked.output
    shown = custody(repository, "run", str(plan), "--dry-run", "--json")
    assert json.loads(shown.stdout) == {
        "plan": json.loads(shown.stdout)["plan"],
        "done": 0,
        "left": 3,
        "left_bytes": 21,
        "changed": [],
    }
    assert found(repository, "event_type:REPLAY") == []


def test_a_run_sends_each_once(repository: Repository, plan: Path) -> None:
    words = ("run", str(plan), "--yes", "--user", "alice", "--json")
    first, second = (json.loads(custody(repository, *words).stdout) for _ in range(2))
    assert (first["replayed"], first["done_before"], first["consumers"]) == (3, 0, {"orders": "sort_orders"})
    assert (second["replayed"], second["done_before"]) == (0, 3)
    assert "done before" in custody(repository, "run", str(plan), "--yes").output
    assert "to be sent" in custody(repository, "run", str(plan)).output
    with repository.flowfiles() as flow:
        assert len(drain(flow)) == 3
    assert found(repository, "event_type:REPLAY")[0].details == "Replay requested by alice"


def test_a_run_whose_ground_has_changed_is_refused_and_names_the_way_on(repository: Repository, plan: Path) -> None:
    repository.forget(EventSelection(event_ids=(3,)), "asked for", "main")
    refused = custody(repository, "run", str(plan), "--yes")
    assert refused.exit_code == ConflictError.exit_code
    assert "event main/3 [unknown-event]" in refused.output
    assert "--skip-changed" in refused.output
    shown = custody(repository, "run", str(plan), "--dry-run")
    assert "event main/3 [unknown-event]" in shown.output
    done = custody(repository, "run", str(plan), "--yes", "--skip-changed", "--json")
    assert json.loads(done.stdout)["replayed"] == 2


def test_a_full_queue_is_back_pressure(repository: Repository, plan: Path) -> None:
    repository.replay_event(3)
    with repository.flowfiles() as flow:
        flow.connect("orders", count_max=1)
    result = custody(repository, "run", str(plan), "--yes")
    assert result.exit_code == BackpressureError.exit_code
    assert "0 of 3 events are done: full" in result.output
