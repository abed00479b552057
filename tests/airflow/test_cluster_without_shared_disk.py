"""The DAGs in a real Airflow, with a Spark cluster whose workers share nothing with Airflow's machine but a bucket.

A worker is killed in the middle of each step that works there, the driver in the middle of each step that works in the
driver, and the store errs on some of all requests. Airflow and the cluster start once for all tests here.
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psutil  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.config import load_settings
from custody.repository import Repository
from custody.repository.writers import absorb_retired, list_writers, retire_writer
from custody.spark.packaging import make_package
from custody.workspace import Workspace
from custody_local.airflow import LocalAirflow
from custody_local.airflow_api import AirflowClient
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.behaviour.store_proxy import Fault, StoreProxy, store_proxy
from tests.spark.cluster import Cluster, Killer, standalone_cluster
from tests.spark.lost_producer import (
    EVENTS,
    PARTS,
    Answers,
    answers,
    new_root,
    produce,
    produce_and_die,
    rolled_over_locally,
)
from tests.spark.notified import chunks_planned_by_executors, hand_notifications_over, written_locally
from tests.support import INCLUDE, event, files_below

__all__ = ["s3_url"]

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]
PROJECT = Path(__file__).resolve().parents[2]
DAG_ID = "provenance_rollover"
WAIT_SECONDS = 1200.0
FAULTS: tuple[Fault, ...] = ("500", "503", "lost", "hang", "slow")
SETTINGS = {
    "CUSTODY_ROLLOVER_SCHEDULE": "",
    "CUSTODY_MAINTENANCE_SCHEDULE": "",
    "CUSTODY_NGSI_SCHEDULE": "",
    # What a deployment waits minutes for: a dead supervisor.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
}


@dataclass(frozen=True)
class Place:
    """What runs for all tests: the folder of the repository is the same, its content is not."""

    proxy: StoreProxy
    cluster: Cluster
    airflow: LocalAirflow
    client: AirflowClient
    root: Path

    def new_repository(self, more: str = "") -> Path:
        """Begin a repository in a bucket folder of its own."""
        self.proxy.watch = self.proxy.watch_done = lambda method, path: None
        self.proxy.fault = lambda number, method: None
        shutil.rmtree(self.root, ignore_errors=True)
        new_root(self.root, f"s3://{BUCKET}/{uuid4().hex}")
        with (self.root / "custody.toml").open("a") as file:
            file.write(more)
        return self.root

    def run(self, dag_id: str = DAG_ID, conf: dict[str, object] | None = None) -> tuple[str, dict[str, int]]:
        """Run a DAG to its end; return its state, and for each task how often it was tried."""
        self.client.wait_for_dag(dag_id)
        self.client.unpause(dag_id)
        run_id = self.client.trigger(dag_id, conf)
        self.client.wait_for_run(dag_id, run_id, timeout_s=WAIT_SECONDS)
        tasks = self.client.task_instances(dag_id, run_id)
        assert {task.task_id: task.state for task in tasks if task.state not in {"success", "skipped"}} == {}
        return run_id, {task.task_id: task.try_number for task in tasks if task.state == "success"}

    def report(self, dag_id: str, run_id: str, task_id: str) -> dict[str, object]:
        """The report of a step, which the task left."""
        report = self.client.xcom(dag_id, run_id, task_id)
        assert isinstance(report, dict)
        return report


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return rolled_over_locally(tmp_path_factory.mktemp("local"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, s3_url: str) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("cluster")
    driver = folder / "driver"
    root = driver / "repository"
    make_package(driver / "custody.zip")
    with (
        pytest.MonkeyPatch.context() as monkeypatch,
        store_proxy(s3_url) as proxy,
        standalone_cluster(folder / "spark", [driver, INCLUDE]) as cluster,
    ):
        monkeypatch.setenv("CUSTODY__SPARK__LIBRARY", str(driver / "custody.zip"))
        # A client that gets no answer waits no longer.
        for name, value in {**s3_environment(proxy.url), "AWS_TIMEOUT": "10s"}.items():
            monkeypatch.setenv(name, value)
        new_root(root, f"s3://{BUCKET}/{uuid4().hex}")
        home = driver / "airflow"
        with (
            LocalAirflow(PROJECT, home=home, repository=root, master=cluster.master, settings=SETTINGS) as airflow,
            airflow.client() as client,
        ):
            yield Place(proxy, cluster, airflow, client, root)


def test_the_dag_on_a_cluster_without_a_shared_disk(place: Place, expected: Answers) -> None:
    root = place.new_repository()
    produce(root)
    killer = Killer(place.cluster, {"rollover": "/staging/", "compress": ".parquet", "index": ".shard"})
    place.proxy.watch = killer
    place.proxy.fault = lambda number, method: FAULTS[number % len(FAULTS)] if number % 23 == 0 else None
    place.run(conf={"wait_seconds": 1})
    place.proxy.watch = lambda method, path: None
    place.proxy.fault = lambda number, method: None
    assert killer.killed == ["rollover", "compress", "index"]
    assert place.proxy.given_up, "a client met an answer that never came"
    assert answers(root) == expected
    assert Repository.open(root).status().pending.sealed_groups == 0
    assert not place.cluster.left_below_workers()
    for log in (*place.airflow.home.rglob("*.log"), *place.cluster.folder.rglob("stderr")):
        assert "AWS_SECRET_ACCESS_KEY=" not in log.read_text(errors="replace"), log


@dataclass(frozen=True)
class Death:
    """The driver of a step dies at its request number `count` of a kind: before it is done, or after."""

    step: str
    method: str
    mark: str
    count: int = 1
    is_after: bool = False
    with_supervisor: bool = False


DEATHS = (
    # It has the lease; it has sealed what the dead writer left.
    Death("recover", "PUT", "/leases/rollover/", is_after=True),
    Death("recover", "PUT", ".released"),
    # Nothing of a transaction is there; it is there, and nobody was told.
    Death("commit", "PUT", ".txn"),
    Death("commit", "PUT", ".txn", is_after=True),
    # The checkpoint is there, and nothing names it.
    Death("checkpoint", "PUT", ".ckpt", is_after=True, with_supervisor=True),
    Death("sweep", "POST", "?delete", count=5),
    Death("sweep", "POST", "?delete", count=20, is_after=True),
)


class DriverKiller:
    """Kills the driver of a step at its requests, as the loss of its machine does, one death after the other."""

    def __init__(self, root: Path, deaths: tuple[Death, ...]) -> None:
        self._root = root
        self._waiting = list(deaths)
        self.died: list[Death] = []
        self._seen = 0
        self._lock = threading.Lock()

    def before(self, method: str, path: str) -> Fault | None:
        """Look at a request that was not done yet."""
        return "dropped" if self._dies(method, path, is_after=False) else None

    def after(self, method: str, path: str) -> Fault | None:
        """Look at a request that was done and is not answered yet."""
        return "lost" if self._dies(method, path, is_after=True) else None

    def _dies(self, method: str, path: str, *, is_after: bool) -> bool:
        with self._lock:
            if not self._waiting:
                return False
            death = self._waiting[0]
            if (method, is_after) != (death.method, death.is_after) or death.mark not in path:
                return False
            driver = self._driver(death.step)
            if driver is None:
                return False
            self._seen += 1
            if self._seen < death.count:
                return False
            jvm, runner = driver.parents()[:2]
            assert "org.apache.spark.deploy.SparkSubmit" in jvm.cmdline()
            if death.with_supervisor:
                supervisor = runner.parent()
                assert "LocalExecutor" in " ".join(supervisor.cmdline())
                supervisor.kill()
            for process in (driver, jvm):
                process.kill()
            del self._waiting[0]
            self._seen = 0
            self.died.append(death)
            return True

    def _driver(self, step: str) -> psutil.Process | None:
        """The Python process of a step's job on this repository; None while none runs."""
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                command = process.cmdline()
                is_ours = str(self._root) in command and "org.apache.spark.deploy.SparkSubmit" not in command
                if is_ours and any(part.endswith(f"/{step}.py") for part in command):
                    return process
        return None


def test_a_driver_killed_in_the_middle_of_each_step_that_it_does_itself(place: Place, expected: Answers) -> None:
    root = place.new_repository("[catalog]\ncheckpoint_every = 1\n")
    produce_and_die(root)
    killer = DriverKiller(root, DEATHS)
    place.proxy.watch, place.proxy.watch_done = killer.before, killer.after
    _, tries = place.run(conf={"wait_seconds": 1})
    place.proxy.watch = place.proxy.watch_done = lambda method, path: None
    assert killer.died == list(DEATHS)
    assert {step: tries[step] for step in ("recover", "commit", "checkpoint", "sweep")} == {
        "recover": 3,
        "commit": 3,
        "checkpoint": 2,
        "sweep": 3,
    }
    assert answers(root) == expected
    repository = Repository.open(root)
    waiting = repository.status().pending
    assert (waiting.sealed_groups, waiting.abandoned_journals, waiting.staged_units) == (0, 0, 0)
    assert waiting.groups_not_handed_over == 0
    assert repository.recoverable() == []
    # One transaction a unit, however often its commit was tried; besides, who takes over from the dead notes that.
    log = json.loads(CliRunner().invoke(cli, ["-r", str(root), "catalog", "log", "--json"]).stdout)
    assert sorted(entry["revision"] for entry in log) == list(range(len(log)))
    assert [entry["events_added"] for entry in log if entry["other"] != ["note"]] == [len(EVENTS) // PARTS] * PARTS
    for arguments in (("catalog", "verify"), ("verify", "--deep")):
        done = CliRunner().invoke(cli, ["-r", str(root), *arguments])
        assert done.exit_code == 0, done.output
    assert not place.cluster.left_below_workers()


def test_the_maintenance_on_a_cluster_without_a_shared_disk(place: Place, expected: Answers) -> None:
    root = place.new_repository()
    produce(root, is_lost=False)
    for writer, number in (("old", 1000), ("older", 2000)):
        settings = load_settings(root)
        named = settings.repository.model_copy(update={"writer": writer})
        old = Repository(settings.model_copy(update={"repository": named}))
        old.append([event(number + n) for n in range(3)])
        old.hand_over()
    place.run(conf={"wait_seconds": 1})
    settings = load_settings(root)
    # The first one makes the archive, which takes up the second one in the DAG.
    retire_writer(settings, "old", "done")
    absorb_retired(settings, "archive")
    retire_writer(settings, "older", "done")
    before = Workspace(settings, "main").catalog.load()
    text = (root / "custody.toml").read_text().replace("log_bytes_target = 60000", "log_bytes_target = 150000")
    (root / "custody.toml").write_text(text + '[index]\nattributes = ["filename"]\n[maintenance]\nscrub_days = 1\n')
    dag_id = "provenance_maintenance"
    run_id, tries = place.run(dag_id)
    assert set(tries) == {"absorb", "compact", "rebuild", "scrub", "handed_over"}
    reports = {task: place.report(dag_id, run_id, task) for task in ("absorb", "compact", "rebuild", "scrub")}
    assert all(report["failed"] == 0 and report["units"] for report in reports.values()), reports
    assert str(reports["compact"]["place"]).startswith("Spark")
    after = Workspace(load_settings(root), "main").catalog.load()
    assert len(after.files) < len(before.files)
    kinds = {entry.writer: entry.kind for entry in list_writers(load_settings(root))}
    assert (kinds["old"], kinds["older"]) == ("absorbed", "absorbed")
    repository = Repository.open(root)
    assert list(repository.events(0, 1000, "main")) == expected["events"]
    assert repository.search("", limit=0).total == len(EVENTS) + 6
    assert not place.cluster.left_below_workers()


def test_the_sink_on_a_cluster_without_a_shared_disk(place: Place, tmp_path: Path) -> None:
    files = written_locally(tmp_path / "local", "json-row")
    root = place.new_repository()
    hand_notifications_over(root, "json-row")
    place.run(conf={"wait_seconds": 1})
    run_id, tries = place.run("ngsi_to_hdfs", {"wait_seconds": 60})
    assert set(tries) == {"wait_for_notifications", "persist"}
    report = place.report("ngsi_to_hdfs", run_id, "persist")
    assert report["failed"] == 0
    assert chunks_planned_by_executors(report) > 1
    assert files_below(root / "hdfs") == files
    assert not place.cluster.left_below_workers()
