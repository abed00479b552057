"""The jobs of a build as programs: what is done already is reported without Spark, errors have their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from custody.config import Settings
from custody.repository import Repository
from custody.spark.swh import steps as swh_steps
from custody.swh import open_graph
from custody.swh.build import PUBLISH, STEPS, Build, BuildDescription, StepOutput
from custody.swh.publishing import database_folder
from custody.vfs import PosixFileSystem
from custody.workspace import read_report
from tests.swh.database import write_database
from tests.swh.graphs import Shape, random_graph, write_graph
from tests.swh.reference import Reference

GRAPH = random_graph(Shape(5, 20, 20, 10, 3, 2, 3, 20, 0.1))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Repository.create(tmp_path / "repository").settings


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    return write_graph(GRAPH, tmp_path / "graph")


def finished(settings: Settings, graph: Path, steps: tuple[str, ...] = STEPS, by: str = "") -> Build:
    """A build whose steps are done, by an attempt; the files come from the reference."""
    fs = PosixFileSystem()
    description = BuildDescription(
        graph=str(graph), fingerprint=open_graph(fs, graph).fingerprint(fs), node_filter="heads"
    )
    build = Build.begin(fs, database_folder(settings), "b", description)
    for step in steps:
        attempt = build.attempt(step)
        written = write_database(attempt / "tables", Reference(GRAPH, "heads")) if step == STEPS[0] else {}
        files = tuple(file for several in written.values() for file in several)
        build.finish(attempt, StepOutput(step=step, files=files, kept={"roots": 3}, rounds=7, seconds=1.0, attempt=by))
    return build


def run(settings: Settings, *steps: str, **options: object) -> int:
    given = {"repository": settings.root, "build": "b"} | options
    words = [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return swh_steps.main(steps, words)


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_steps_that_are_done_are_reported_and_published_without_a_session(
    settings: Settings, graph: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(settings, graph)
    monkeypatch.setattr(swh_steps, "start_session", lambda _: pytest.fail("a session was started"))
    assert run(settings, *swh_steps.ALL, graph=graph, run_id="by hand/1") == 0
    reports = lines(capsys)
    assert [report["step"] for report in reports] == list(swh_steps.ALL)
    nodes = {unit["unit"]: unit for unit in reports[0]["details"]}
    assert nodes["nodes"]["events"] == len(Reference(GRAPH, "heads").nodes())
    assert nodes["kept/roots"]["events"] == 3
    assert nodes["nodes"]["note"] == "was done before"
    assert reports[-1]["details"][0]["note"] == "published as revision 0"
    assert read_report(PosixFileSystem(), settings.runs, "by hand/1", PUBLISH).events == reports[-1]["events"]
    assert run(settings, PUBLISH) == 0
    assert lines(capsys)[0]["details"][0]["note"] == "published as revision 0"


def test_who_made_the_tables_names_their_files_and_nobody_else_does(
    settings: Settings, graph: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = finished(settings, graph, by="swh/one/swh_nodes/1")
    monkeypatch.setattr(swh_steps, "start_session", lambda _: pytest.fail("a session was started"))
    # The second try of a task whose first one died behind its work, another run, and one that nobody named.
    for run_id, attempt in (("one", "swh/one/swh_nodes/2"), ("two", "swh/two/swh_nodes/1"), ("three", "")):
        assert run(settings, STEPS[0], graph=graph, run_id=run_id, attempt=attempt) == 0
    fs, runs = PosixFileSystem(), settings.runs
    files = {run_id: read_report(fs, runs, run_id, STEPS[0]).files for run_id in ("one", "two", "three")}
    tables = build.folder / STEPS[0] / "tables"
    assert set(files["one"]) == {path.as_uri() for path in tables.rglob("*") if path.is_file()}
    assert len(files["one"]) > 8
    assert files["two"] == files["three"] == ()


def test_a_build_that_is_not_finished_is_not_published(
    settings: Settings, graph: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(settings, PUBLISH) == 12
    assert "expected" in capsys.readouterr().err
    finished(settings, graph, STEPS[:-1])
    assert run(settings, PUBLISH) == 12
    assert f"the step {STEPS[-1]} did not finish" in capsys.readouterr().err


def test_a_graph_that_is_not_there_or_changed_is_an_error_of_its_own(
    settings: Settings, graph: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(settings, STEPS[0], graph=tmp_path / "none") == 12
    assert "expected the table nodes" in capsys.readouterr().err
    finished(settings, graph, STEPS[:1])
    assert run(settings, STEPS[0], graph=graph, node_filter="all") == 11
    (graph / "origins.parquet").write_bytes((graph / "timestamps.parquet").read_bytes())
    assert run(settings, STEPS[0], graph=graph) == 13
    assert "expected a column 'url'" in capsys.readouterr().err
