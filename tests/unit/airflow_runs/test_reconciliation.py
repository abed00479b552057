"""Reconciliation with a server that answers as Airflow does: what is added, how far it goes on, and what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from custody.airflow_runs import (
    AirflowApi,
    Credentials,
    Reconciliation,
    ReconciliationReport,
    RunFacts,
    end_events,
    read_cursor,
    start_events,
)
from custody.airflow_runs.reconciliation import CURSOR, FIRST_MS, OVERLAP_MS, SETTLE_MS
from custody.cli.main import cli
from custody.client import Spool
from custody.client.spool_delivery import Receipt
from custody.errors import ConfigurationError, CorruptionError, InvalidInputError, LockedError, StorageError
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody.workspace import StepReport, UnitReport, write_report
from tests.unit.airflow_runs.airflow_server import NOW, PASSWORD, Airflow, serving

NOW_MS = int(NOW.timestamp() * 1000)
ODD = "run ü/1?&%2F '\"#"
LOG = "file:///repository/logs/main/0.parquet"


class Server:
    """Knows events by source and ordinal, as a repository does."""

    def __init__(self) -> None:
        self.events: dict[tuple[str, int], dict[str, Any]] = {}
        self.refuses: set[str] = set()
        self.fails_after: int | None = None

    def send(self, lines: bytes) -> Receipt:
        events = [json.loads(line) for line in lines.splitlines()]
        if any(event["component_id"] in self.refuses for event in events):
            raise InvalidInputError("the server answers 422")
        if self.fails_after is not None:
            self.fails_after -= 1
            if self.fails_after < 0:
                raise StorageError("the server is away")
        known = len(self.events)
        for event in events:
            self.events.setdefault((event["source_node"], event["source_ordinal"]), event)
        stored = len(self.events) - known
        return Receipt(stored, len(events) - stored)

    def told(self) -> set[tuple[str, str, str, str]]:
        return {
            (
                event["component_id"],
                event["updated_attributes"]["airflow.run_id"],
                event["updated_attributes"].get("airflow.try_number", ""),
                event.get("transit_uri") or event["updated_attributes"]["airflow.state"],
            )
            for event in self.events.values()
        }


@pytest.fixture
def airflow() -> Airflow:
    return Airflow()


@pytest.fixture
def url(airflow: Airflow) -> Iterator[str]:
    with serving(airflow) as url:
        yield url


@pytest.fixture
def api(url: str) -> Iterator[AirflowApi]:
    api = AirflowApi(url, Credentials("custody", PASSWORD))
    yield api
    api.close()


def reconcile(
    api: AirflowApi, server: Server, folder: Path, since_ms: int | None = None, **other: Any
) -> ReconciliationReport:
    return Reconciliation(api, server, folder, **{"deployment": "airflow", **other}).run(since_ms)


def test_a_pass_adds_what_airflow_knows_and_the_next_one_goes_on(
    airflow: Airflow, api: AirflowApi, tmp_path: Path
) -> None:
    for number in range(5):
        airflow.add_run("sales", f"run-{number}", 60 * number + 10)
        airflow.add_try("sales", f"run-{number}", "report", 60 * number + 10)
    airflow.add_run("sales", "run-now", 0.5, "running")
    server = Server()
    report = reconcile(api, server, tmp_path)
    assert (report.runs, report.tries, report.stored, report.repeated) == (5, 5, 20, 0)
    assert server.told() == {
        (component, f"run-{number}", attempt, state)
        for number in range(5)
        for component, attempt in (("sales", ""), ("sales.report", "1"))
        for state in ("running", "success")
    }
    cursor = read_cursor(tmp_path)
    assert cursor is not None
    assert cursor.until_ms == report.until_ms == NOW_MS - SETTLE_MS
    assert report.windows == FIRST_MS // 3_600_000
    # What was too new, and what came since.
    airflow.now += timedelta(minutes=10)
    airflow.add_try("sales", "run-now", "report", 5, "failed")
    api._now_ms = None
    again = reconcile(api, server, tmp_path)
    assert (again.windows, again.runs, again.tries, again.stored, again.repeated) == (1, 1, 1, 3, 0)
    assert again.until_ms - report.until_ms == 600_000


def test_what_the_listener_told_of_is_not_stored_again(airflow: Airflow, api: AirflowApi, tmp_path: Path) -> None:
    airflow.add_run("sales", "run", 10)
    airflow.add_try("sales", "run", "report", 10)
    server = Server()
    entry = airflow.tries[0]
    facts = RunFacts(
        deployment="airflow",
        dag_id="sales",
        run_id="run",
        run_after=datetime.fromisoformat(entry["run_after"]),
        state="success",
        # Later than what the database has: a clock of another process.
        start=datetime.fromisoformat(entry["start_date"]) + timedelta(milliseconds=40),
        end=datetime.fromisoformat(entry["end_date"]),
        task_id="report",
        try_number=1,
        operator="_PythonDecoratedOperator",
        log_url="http://elsewhere.example/log",
    )
    events = [*start_events(facts), *end_events(facts)]
    server.send(b"".join(json.dumps(event).encode() + b"\n" for event in events))
    report = reconcile(api, server, tmp_path)
    assert (report.stored, report.repeated) == (2, 2)
    # And in a repository, which compares what they say.
    Repository.create(tmp_path / "repository")
    with Spool(tmp_path / "spool", "airflow") as spool:
        spool.append(events)
    done = command(tmp_path, api.url, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert (answer["stored"], answer["repeated"], answer["rejected"]) == (2, 2, 0)
    assert answer["delivered"]["stored"] == 2
    assert list(Repository.open(tmp_path / "repository").quarantine.entries()) == []


def test_earlier_tries_come_from_the_history_and_what_never_began_from_nowhere(
    airflow: Airflow, api: AirflowApi, tmp_path: Path
) -> None:
    airflow.add_try("sales", ODD, "third", 10, "running", try_number=3, end_date=None)
    for number in (1, 2):
        airflow.add_try("sales", ODD, "third", 10, "failed", try_number=number)
        airflow.history.append(airflow.tries.pop())
    # Waits for its second try: the first one is in the history alone.
    airflow.add_try("sales", ODD, "waits", 10, "up_for_retry", map_index=4)
    airflow.history.append(airflow.tries[-1] | {"state": "failed"})
    for state in ("upstream_failed", "skipped", None, "scheduled", "removed", "queued", "a new state"):
        airflow.add_try("sales", ODD, f"never-{state}", 10, state, try_number=0 if state == "skipped" else 1)
    airflow.add_try("sales", ODD, "deferred", 10, "deferred", end_date=None)
    airflow.add_try("sales", ODD, "soft", 10, "skipped")
    airflow.add_try("sales", "gone", "third", 10, "success", try_number=2)
    airflow.tries[-1]["map_index"] = 7  # removed since it was listed
    server = Server()
    reconcile(api, server, tmp_path)
    told = {item for item in server.told() if item[1] == ODD}
    own = {(component.removeprefix("sales."), attempt, state) for component, _, attempt, state in told}
    assert own == {
        ("third", "1", "running"),
        ("third", "1", "failed"),
        ("third", "2", "running"),
        ("third", "2", "failed"),
        ("third", "3", "running"),
        ("waits", "1", "running"),
        ("waits", "1", "failed"),
        ("deferred", "1", "running"),
        ("soft", "1", "running"),
        ("soft", "1", "skipped"),
    }


def test_assets_and_files_of_a_try_are_found_again(airflow: Airflow, api: AirflowApi, tmp_path: Path) -> None:
    airflow.add_try("provenance_rollover", "run ü/1", "compress", 10)
    airflow.add_try("provenance_rollover", "run ü/1", "index", 10, "failed")
    task = {"dag_id": "provenance_rollover", "task_id": "compress"}
    airflow.assets = [{"uri": f"s3://lake/{number}", "consuming_tasks": []} for number in range(150)]
    airflow.assets[140]["consuming_tasks"] = [task]
    source = {"source_dag_id": "provenance_rollover", "source_run_id": "run ü/1", "source_map_index": -1}
    event = {**source, "uri": "s3://lake/out", "source_task_id": "compress", "at": NOW - timedelta(minutes=10)}
    airflow.asset_events = [event, event | {"source_task_id": "index", "uri": "s3://lake/no"}, event | {"uri": None}]
    unit = UnitReport(unit="main/0", files=(LOG,))
    report = StepReport.of("compress", "/repository", 1.0, [unit])
    fs, runs = PosixFileSystem(), tmp_path / "runs"
    path = write_report(fs, runs, "run ü/1", report, "provenance_rollover/run ü/1/compress/1")
    (path.parent / "index.json").write_text("damaged")
    server = Server()
    reconcile(api, server, tmp_path, reports=runs)
    [end] = [event for event in server.events.values() if event["event_type"] == "FORK"]
    assert len(end["parent_uuids"]) == 1
    assert len(end["child_uuids"]) == 2
    written = {event["transit_uri"] for event in server.events.values() if event["event_type"] == "SEND"}
    assert written == {"s3://lake/out", LOG}


def test_a_pass_that_breaks_off_does_its_last_window_again(airflow: Airflow, api: AirflowApi, tmp_path: Path) -> None:
    for number in range(6):
        airflow.add_run("sales", f"run-{number}", 60 * number + 10)
    server = Server()
    server.fails_after = 3
    with pytest.raises(StorageError, match="away"):
        reconcile(api, server, tmp_path)
    cursor = read_cursor(tmp_path)
    assert cursor is not None
    assert 2 * 3_600_000 < NOW_MS - cursor.until_ms < 4 * 3_600_000
    server.fails_after = None
    report = reconcile(api, server, tmp_path)
    assert len(server.events) == 12
    assert report.windows <= 4


def test_an_event_that_is_refused_stops_the_pass_and_the_others_are_sent(
    airflow: Airflow, api: AirflowApi, tmp_path: Path
) -> None:
    for number in range(4):
        airflow.add_run(f"sales{number}", "run", 10)
    server = Server()
    server.refuses = {"sales2"}
    with pytest.raises(InvalidInputError, match="422"):
        reconcile(api, server, tmp_path)
    assert {component for component, *_ in server.told()} == {"sales0", "sales1"}


def test_two_passes_at_once_and_the_cursor_of_another_airflow_are_refused(api: AirflowApi, tmp_path: Path) -> None:
    reconcile(api, Server(), tmp_path)
    with pytest.raises(ConfigurationError, match="'airflow'"):
        reconcile(api, Server(), tmp_path, deployment="other")
    reconcile(api, Server(), tmp_path, deployment="other", since_ms=NOW_MS - 3_600_000)
    with PosixFileSystem().lock(tmp_path / "reconciliation.lock"), pytest.raises(LockedError):
        reconcile(api, Server(), tmp_path)
    (tmp_path / CURSOR).write_bytes(b"\0" + (tmp_path / CURSOR).read_bytes()[1:])
    with pytest.raises(CorruptionError, match="--since"):
        reconcile(api, Server(), tmp_path)


def test_the_clock_of_airflow_counts_and_a_part_of_the_last_pass_is_looked_at_again(
    airflow: Airflow, api: AirflowApi, tmp_path: Path
) -> None:
    report = reconcile(api, Server(), tmp_path, since_ms=NOW_MS - 7_200_000)
    assert report.until_ms == NOW_MS - SETTLE_MS
    # Dated by a machine whose clock is behind, and committed after the pass.
    airflow.add_run("sales", "late", (SETTLE_MS + OVERLAP_MS / 2) / 60_000)
    assert reconcile(api, Server(), tmp_path).stored == 2


def test_a_token_that_is_too_old_is_asked_for_again_and_a_busy_airflow_is_waited_for(
    airflow: Airflow, api: AirflowApi, tmp_path: Path
) -> None:
    airflow.add_run("sales", "run", 10)
    reconcile(api, Server(), tmp_path)
    airflow.tokens += 1
    airflow.broken = [500]
    assert reconcile(api, Server(), tmp_path, since_ms=NOW_MS - 3_600_000).stored == 2
    assert airflow.tokens == 3


def command(root: Path, url: str, *arguments: str, **environment: str) -> Result:
    given = ["-r", str(root / "repository"), "airflow-runs", "reconcile", str(root / "spool"), "--airflow", url]
    known = {"CUSTODY_AIRFLOW_PASSWORD": PASSWORD, **environment}
    return CliRunner().invoke(cli, [*given, "--user", "custody", *arguments], env=known)


def test_neither_password_nor_token_is_in_what_a_failure_says(airflow: Airflow, url: str, tmp_path: Path) -> None:
    Repository.create(tmp_path / "repository")
    refused = command(tmp_path, url, CUSTODY_AIRFLOW_PASSWORD="secret word")  # noqa: S106 - of nothing
    assert refused.exit_code == ConfigurationError.exit_code
    assert "for 'custody'" in refused.output
    (tmp_path / "token").write_text("secret-token")
    unknown = command(tmp_path, url, "--airflow-token-file", str(tmp_path / "token"))
    assert "Airflow answers 401" in unknown.output
    airflow.without_cursors = True
    old = command(tmp_path, url)
    assert "Airflow 3.3 or newer" in old.output
    for done in (refused, unknown, old):
        assert done.exit_code
        assert not any(word in done.output for word in ("secret", "pass ${", "token-"))
    assert "secret" not in repr(Credentials("custody", "secret", "secret"))
    for wrong in ("ftp://host", "http://custody:secret@host", "host"):
        with pytest.raises(ConfigurationError, match="expected http://HOST"):
            AirflowApi(wrong, Credentials())


def test_which_run_wrote_this_file_has_a_command(airflow: Airflow, url: str, tmp_path: Path) -> None:
    Repository.create(tmp_path / "repository")
    # As it is, and as a library writes it.
    uris = {"old": "file:///data/it's new.csv", "new": Path("/data/it's new.csv").as_uri()}
    for run, uri in uris.items():
        airflow.add_try("sales", run, "report", 10 if run == "new" else 20)
        source = {"source_dag_id": "sales", "source_run_id": run, "source_task_id": "report", "source_map_index": -1}
        airflow.asset_events.append({**source, "uri": uri, "at": NOW - timedelta(minutes=10)})
    (tmp_path / "password").write_text(PASSWORD + "\n")
    password = ["--password-file", str(tmp_path / "password")]
    done = command(tmp_path, url, *password, CUSTODY_AIRFLOW_PASSWORD="")
    assert done.exit_code == 0, done.output

    def asked(*arguments: str) -> str:
        done = CliRunner().invoke(cli, ["-r", str(tmp_path / "repository"), "airflow-runs", *arguments])
        assert done.exit_code == 0, done.output
        return done.stdout

    for named, runs in (
        ("/data/it's new.csv", ["new", "old"]),
        ("file:///data/it%27s%20new.csv", ["new"]),
        ("it's new.csv", ["old"]),
        ("it%27s%20new.csv", ["new"]),
        ("new.csv", []),
    ):
        tries = json.loads(asked("wrote", named, "--json"))["tries"]
        assert [item["run_id"] for item in tries] == runs, named
        for item in tries:
            assert item["log_url"] == f"{url}/dags/sales/runs/{item['run_id']}/tasks/report?try_number=1"
    assert "2 tries" in asked("wrote", "/data/it's new.csv")
    with Spool(tmp_path / "spool", "airflow"):
        pass
    state = json.loads(asked("status", str(tmp_path / "spool"), "--json"))
    assert (state["deployment"], state["waiting_events"]) == ("airflow", 0)
    assert state["reconciled_until_ms"] == NOW_MS - SETTLE_MS
    assert "reconciled until" in asked("status", str(tmp_path / "spool"))
