"""Ten thousand events go through every step and come out as they went in.

One driver does all steps, and as a slow test a driver of its own each one, as the tasks of Airflow do
(tests/airflow/test_provenance_rollover.py).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.capture import event_to_json
from custody.cli.main import cli
from custody.recovery import STEPS
from custody.repository import Repository
from custody.sample import SampleOptions, sample_files

pytestmark = pytest.mark.spark

EVENTS = 10_000
WORKING_STEPS = ["rollover", "compress", "index", "commit", "sweep"]


@dataclass(frozen=True)
class Pipeline:
    """A repository that every step went over once, and what it was fed."""

    root: Path
    files: list[Path]
    sent: list[dict[str, object]]
    reports: dict[str, dict[str, object]]


def custody(root: Path, *arguments: str) -> tuple[int, str]:
    # Ten thousand events are little: without it the drivers would do it all.
    by_spark = {"CUSTODY__SPARK__DRIVER_BYTES_MAX": "0"}
    result = CliRunner(env=by_spark).invoke(cli, ["--repository", str(root), *arguments])
    return result.exit_code, result.stdout


def run(root: Path, *names: str) -> dict[str, dict[str, object]]:
    """Submit the driver of each step, or of all of them; return the report of each step."""
    reports: dict[str, dict[str, object]] = {}
    for name in names:
        code, output = custody(root, "run", name, "--json")
        assert code == 0, output
        reports |= {report["step"]: report for report in map(json.loads, output.splitlines())}
    return reports


def content_of(root: Path) -> dict[str, bytes]:
    """Every file of a repository; locks and run reports are not content."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != "LOCK" and "runs" not in path.parts
    }


@pytest.fixture(
    scope="module",
    params=[("all",), pytest.param(tuple(STEPS), marks=pytest.mark.slow)],
    ids=["one driver", "a driver each"],
)
def pipeline(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    folder = tmp_path_factory.mktemp("pipeline")
    files, sent = [], []
    for name, data in sample_files(SampleOptions(events=EVENTS, include_nulls=True)):
        path = folder / name
        path.write_bytes(data)
        files.append(path)
        sent += json.loads(data)
    root = folder / "repository"
    Repository.create(root)
    code, output = custody(root, "ingest", "--json", *map(str, files))
    assert code == 0, output
    return Pipeline(root, files, sent, run(root, *request.param))


def test_every_step_reports_its_units_and_events(pipeline: Pipeline) -> None:
    units = {step: report["units"] for step, report in pipeline.reports.items()}
    assert units == {"recover": 0, "checkpoint": 0, **dict.fromkeys(WORKING_STEPS, 1)}
    for step in ("rollover", "compress", "index", "commit"):
        assert pipeline.reports[step]["events"] == EVENTS


def test_every_field_of_every_event_comes_out_as_it_went_in(pipeline: Pipeline) -> None:
    stored = list(Repository.open(pipeline.root).events(0, 2 * EVENTS))
    assert [event.event_id for event in stored] == list(range(EVENTS))
    for event, document in zip(stored, pipeline.sent, strict=True):
        # A key whose value is null says the same as a key that is missing.
        given = {key: value for key, value in document.items() if value is not None}
        assert event_to_json(event) == given


def test_every_event_is_found_by_search_and_by_its_id(pipeline: Pipeline) -> None:
    repository = Repository.open(pipeline.root)
    assert repository.search("", limit=1).total == EVENTS
    by_type: dict[str, int] = {}
    for document in pipeline.sent:
        by_type[str(document["eventType"])] = by_type.get(str(document["eventType"]), 0) + 1
    found = {kind: repository.search(f"event_type:{kind}", limit=1).total for kind in by_type}
    assert found == by_type
    for event_id in (0, 1, EVENTS // 2, EVENTS - 1):
        assert repository.get(event_id).source_event_id == pipeline.sent[event_id]["eventId"]


def test_a_second_pass_finds_nothing_to_do_and_changes_no_byte(pipeline: Pipeline) -> None:
    before = content_of(pipeline.root)
    reports = run(pipeline.root, "all")
    assert list(reports) == list(STEPS)
    assert [report["units"] for report in reports.values()] == [0] * len(STEPS)
    assert content_of(pipeline.root) == before


def test_the_same_files_again_store_no_event_twice(pipeline: Pipeline) -> None:
    code, output = custody(pipeline.root, "ingest", "--json", *map(str, pipeline.files))
    reports = json.loads(output)
    assert code == 0
    assert sum(report["repeated"] for report in reports) == EVENTS
    assert sum(report["stored"] for report in reports) == 0
    assert Repository.open(pipeline.root).status().writers[0].next_event_id == EVENTS


def test_journals_and_staging_are_gone_once_the_events_are_live(pipeline: Pipeline) -> None:
    names = content_of(pipeline.root)
    assert not [name for name in names if name.endswith((".journal", ".sealed", ".arrow", ".partial"))]
    assert len([name for name in names if name.endswith(".txn")]) == 1
