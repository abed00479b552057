"""Commands for what the pages list: runs of DAGs, long work, runs of steps, spans and values of a search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from custody.clock import SystemClock
from custody.repository import Repository
from custody.repository.local_pass import PASSES, run_locally
from custody.serving.jobs import JobKind, Jobs, Outcome
from custody.vfs import PosixFileSystem
from tests.support import append, event
from tests.unit.cli.test_commands import run
from tests.unit.serving.test_api_as_of import told

DAY = 86_400_000
START = 1_772_409_600_000  # 2026-03-02T00:00Z


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An event at each of five midnights of UTC, and what was told of a run of a DAG."""
    made = Repository.create(tmp_path_factory.mktemp("listings") / "repository")
    append(made, [event(at, event_time=START + at * DAY, event_type="SEND") for at in range(5)])
    append(made, told("a run", "hdfs://out"))
    run_locally(PASSES["all"], made.settings, run_id="of today")
    return made.settings.root


def test_runs_of_dags_are_listed_and_one_is_shown(root: Path) -> None:
    [listed] = json.loads(run(root, "airflow-runs", "list", "--json").stdout)["items"]
    assert (listed["dag_id"], listed["run_id"], listed["state"]) == ("orders", "a run", "success")
    assert json.loads(run(root, "airflow-runs", "list", "other", "--json").stdout)["items"] == []
    shown = json.loads(run(root, "airflow-runs", "show", "orders", "a run", "--json").stdout)
    assert [one["name"] for one in shown["wrote"]] == ["hdfs://out"]
    assert [one["name"] for one in shown["read"]] == [None]
    task = run(root, "airflow-runs", "show", "orders", "a run", "--task", "sort", "--map-index", "-1").stdout
    assert "hdfs://out" in task
    assert "nothing that is known" in run(root, "airflow-runs", "show", "orders", "no run").stdout
    assert run(root, "airflow-runs", "list").stdout.count("a run") == 1


def test_long_work_is_listed(root: Path) -> None:
    assert "0 jobs" in run(root, "jobs").stdout
    settings = Repository.open(root).settings
    jobs = Jobs(PosixFileSystem(), settings.jobs, settings.root, SystemClock())
    made = [jobs.submit(JobKind.RESUBMIT, f"{n} pieces", "carol", "pieces", lambda _: Outcome({})) for n in range(3)]
    jobs.close()
    document = json.loads(run(root, "jobs", "--limit", 2, "--json").stdout)
    assert [one["id"] for one in document["items"]] == [job.id for job in made[:0:-1]]
    assert document["total"] == 3
    assert "visibility" not in document["items"][0]
    table = run(root, "jobs").stdout
    assert all(word in table for word in ("2 pieces", "resubmit", "carol"))


def test_runs_of_steps_are_listed_and_one_is_shown(root: Path) -> None:
    document = json.loads(run(root, "runs", "--json").stdout)
    [listed] = document["items"]
    assert (document["total"], listed["events"], "commit" in listed["steps"]) == (1, 10, True)
    shown = json.loads(run(root, "runs", listed["run"], "--json").stdout)
    assert [step["step"] for step in shown["steps"]] == listed["steps"]
    assert listed["run"] in run(root, "runs").stdout
    assert "compress" in run(root, "runs", listed["run"]).stdout
    assert run(root, "runs", "no-such-run").exit_code == 12


def test_matches_are_counted_by_spans_and_by_days_of_a_zone(root: Path) -> None:
    spans = ("--since", "2026-03-02", "--until", "2026-03-06", "--buckets", 5)
    document = json.loads(
        run(root, "search", "event_type:SEND AND component_type:GenerateFlowFile", *spans, "--json").stdout
    )
    assert [one["events"] for one in document["buckets"]] == [1, 1, 1, 1, 1]
    assert (document["total"], document["buckets"][0]["first_ms"]) == (5, START)
    assert run(root, "search", *spans).stdout.count("2026-03-0") >= 10
    assert run(root, "search", "--buckets", 5).exit_code == 2
    query = f"event_time:[{START} TO {START + 5 * DAY}]"
    days = json.loads(
        run(root, "search", query, "--facet", "day", "--zone", "America/St_Johns", "--top", 3, "--json").stdout
    )
    # Midnight of UTC is the evening before there.
    assert set(days["day"]) <= {"2026-03-01", "2026-03-02", "2026-03-03", "2026-03-04", "2026-03-05"}
    assert len(days["day"]) == 3
    assert run(root, "search", "--facet", "day", "--zone", "Nowhere").exit_code == 13
