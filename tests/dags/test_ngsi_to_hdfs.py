"""The DAG of the NGSI sink as Airflow reads it: when it runs, its form, what its sensor says, up to when it writes."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from custody.ngsi_sink.tables import PendingTables
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.support import run_steps
from tests.unit.ngsi.notification_records import attribute, body, parameters, recorded
from tests.unit.ngsi_sink.sink_repository import NOW_MS, append, bench, opened, receive, received

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")

DAGS = Path(__file__).resolve().parents[2] / "dags"
NOON = datetime(2026, 3, 4, 12, tzinfo=UTC)
SETTINGS = '[repository]\ncontainers = ["disk1"]\nwriter_slots = 2\n[ngsi]\nhdfs_username = "warden"\nhive = false\n'


@pytest.fixture
def load(load_dag: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the DAG as it is under an environment."""
    return partial(load_dag, "ngsi_to_hdfs")


def test_it_runs_after_commits_and_by_intervals(load: Callable[..., Any]) -> None:
    from airflow.sdk import AssetOrTimeSchedule, CronDataIntervalTimetable

    dag = load()
    assert isinstance(dag.schedule, AssetOrTimeSchedule)
    assert isinstance(dag.schedule.timetable, CronDataIntervalTimetable)
    assert dag.schedule.timetable.expression == "0 * * * *"
    assert load(CUSTODY_NGSI_SCHEDULE="*/5 * * * *").schedule.timetable.expression == "*/5 * * * *"
    [asset] = load(CUSTODY_NGSI_SCHEDULE="").schedule
    assert asset.name == "provenance_commits"


def test_the_dag_is_documented_and_its_form_is_typed(load: Callable[..., Any]) -> None:
    dag = load()
    for task_id in dag.task_ids:
        assert f"`{task_id}`" in dag.doc_md
    assert dag.get_task("wait_for_notifications").downstream_task_ids == {"persist"}
    assert {name: dag.params.get_param(name).schema["type"] for name in dag.params} == {
        "until": ["null", "string"],
        "wait_seconds": "integer",
        "take_over": "boolean",
    }
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    assert (DAGS.parent / "spark_jobs" / dag.get_task("persist").application).is_file()
    assert all(task.retries >= 2 and task.owner == "custody" for task in dag.tasks)


class Run:
    def __init__(self, run_type: str) -> None:
        self.run_type = run_type


@pytest.mark.parametrize(
    ("run_type", "params", "interval_end", "until"),
    [
        ("scheduled", {}, NOON, "2026-03-04 12:00:00+00:00"),
        ("backfill", {}, NOON, "2026-03-04 12:00:00+00:00"),
        ("backfill", {"until": "2026-03-04T10:00:00Z"}, NOON, "2026-03-04T10:00:00Z"),
        ("manual", {}, NOON, ""),
        ("manual", {"until": "2026-03-04T10:00:00Z"}, None, "2026-03-04T10:00:00Z"),
        ("asset_triggered", {}, None, ""),
    ],
)
def test_an_interval_or_the_form_says_up_to_when_all_is_written(
    load: Callable[..., Any], run_type: str, params: dict[str, str], interval_end: datetime | None, until: str
) -> None:
    task = load().get_task("persist")
    chosen = {"until": None, "take_over": False, **params}
    context: dict[str, Any] = {"params": chosen, "dag_run": Run(run_type)}
    if interval_end is not None:
        context["data_interval_end"] = interval_end
    rendered = task.render_template(task.arguments, context)
    assert rendered == ["", f"--until={until}"]


def test_a_watch_replaces_the_commits_and_takes_journals(load: Callable[..., Any], root: Path) -> None:
    dag = load(CUSTODY_NGSI_WATCH="0.5", CUSTODY_NGSI_SCHEDULE="", CUSTODY_REPOSITORY=str(root))
    [asset] = dag.schedule
    assert asset.name == "provenance_ngsi_due"
    [watcher] = asset.watchers
    assert watcher.trigger.serialize()[1] == {"repository": str(root), "poke_seconds": 0.5, "again_seconds": 900.0}
    assert "--journals" in dag.get_task("persist").arguments


@pytest.mark.parametrize("seconds", ["-1", "soon", "nan"])
def test_a_watch_that_is_no_number_of_seconds_is_refused(
    load: Callable[..., Any], seconds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from custody.errors import ConfigurationError
    from custody_airflow.environment import ngsi_watch

    monkeypatch.setenv("CUSTODY_NGSI_WATCH", seconds)
    with pytest.raises(ConfigurationError, match="CUSTODY_NGSI_WATCH: expected seconds above 0"):
        ngsi_watch()


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path / "airflow"))
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "custody.toml").write_text(SETTINGS)
    monkeypatch.setenv("CUSTODY_REPOSITORY", str(folder))
    return folder


def test_the_sensor_skips_the_run_when_nothing_waits(root: Path) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from custody_airflow.notifications import NotificationSensor

    sensor = NotificationSensor(task_id="wait")
    received(root, [])
    with pytest.raises(AirflowSkipException, match="no notifications wait"):
        sensor.execute({})
    repository = received(root, [bench(1)])
    assert sensor.execute({}) == {"notifications": 1, "again": 0, "unfinished": False, "is_configured": True}
    with opened(repository) as job:
        job.run()
    with pytest.raises(AirflowSkipException, match="no notifications wait"):
        sensor.execute({})
    receive(repository, [bench(2)])  # acknowledged, and not live yet
    with pytest.raises(AirflowSkipException, match="no notifications wait"):
        sensor.execute({})
    run_steps(repository.settings)
    assert sensor.execute({})["notifications"] == 1


def test_a_table_that_could_not_be_made_starts_a_run_by_itself(root: Path) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from custody_airflow.notifications import NotificationSensor

    received(root, [])
    fs, folder = PosixFileSystem(), root / "hive"
    used = parameters()
    [record] = recorded(body({"wood": attribute("oak")}), used)
    PendingTables(fs, folder).note([record.placed.destination])
    configured = SETTINGS.replace("hive = false\n", "")
    (root / "custody.toml").write_text(configured)
    assert NotificationSensor(task_id="wait").execute({})["tables"] == 1
    (root / "custody.toml").write_text(f"{configured}hive = false\n")
    with pytest.raises(AirflowSkipException, match="no notifications wait"):
        NotificationSensor(task_id="wait").execute({})
    (root / "custody.toml").write_text(configured)
    PendingTables(fs, folder).done(record.placed.destination)
    with pytest.raises(AirflowSkipException, match="no notifications wait"):
        NotificationSensor(task_id="wait").execute({})


def test_a_repository_without_a_sink_is_skipped_and_not_failed(root: Path) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from custody_airflow.notifications import NotificationSensor

    received(root, [bench(1)])
    (root / "custody.toml").write_text(SETTINGS.replace('hdfs_username = "warden"\n', ""))
    with pytest.raises(AirflowSkipException, match="hdfs_username is not set"):
        NotificationSensor(task_id="wait").execute({})


def test_a_sensor_that_shall_wait_defers(root: Path) -> None:
    from airflow.sdk.exceptions import TaskDeferred

    from custody_airflow.notifications import NotificationSensor, NotificationTrigger

    received(root, [])
    with pytest.raises(TaskDeferred) as deferred:
        NotificationSensor(task_id="wait", wait_seconds="60", poke_interval=2).execute({})
    trigger = deferred.value.trigger
    assert isinstance(trigger, NotificationTrigger)
    assert trigger.serialize()[1] == {"repository": str(root), "poke_seconds": 2}


def fired(root: Path, act: Callable[[], None], seconds: float = 20.0) -> list[dict[str, Any]]:
    """Return what the watch fires until its first event after `act`, which comes when it has looked once."""
    from custody_airflow.notifications import BatchWatch

    async def watch() -> list[dict[str, Any]]:
        events = BatchWatch(str(root), 0.02, 900.0).run()
        first = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.3)
        assert not first.done(), "nothing is due"
        act()
        event = await asyncio.wait_for(first, seconds)
        again = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0.3)
        assert not again.done(), "a batch is reported once"
        again.cancel()
        return [event.payload]

    return asyncio.run(watch())


def test_the_watch_fires_for_what_is_acknowledged_when_it_is_due(root: Path) -> None:
    (root / "custody.toml").write_text(SETTINGS + "batch_size = 1000\nbatch_timeout = 1\n")
    repository = Repository.open(root)
    now_ms = int(time.time() * 1000)
    with repository.writer() as writer:
        [event] = fired(root, lambda: append(writer, repository, 1, now_ms))
        assert event == {"repository": str(root), "due_ms": now_ms + 1000}
        assert time.time() * 1000 >= now_ms + 1000


def test_the_watch_keeps_quiet_while_somebody_has_the_sink(root: Path) -> None:
    repository = Repository.open(root)
    with opened(repository):
        receive(repository, [bench(1)])
        with pytest.raises(TimeoutError):
            fired(root, lambda: None, seconds=0.5)
    from custody_airflow.notifications import BatchWatch

    assert BatchWatch(str(root), 1.0, 900.0)._look() == NOW_MS + 30_000  # old since then


def test_the_sensor_leaves_the_work_to_a_follower(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    from custody_airflow.notifications import NotificationSensor

    monkeypatch.setenv("CUSTODY_NGSI_WATCH", "1")
    repository = Repository.open(root)
    receive(repository, [bench(1)])
    sensor = NotificationSensor(task_id="wait")
    assert sensor.execute({})["notifications"] == 1, "journals count where batches are watched"
    with opened(repository, attempt="follow/host-1/1"), pytest.raises(AirflowSkipException, match="a follower"):
        sensor.execute({})
