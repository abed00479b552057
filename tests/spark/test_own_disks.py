"""The steps on a Spark cluster whose executors share nothing with the driver but an object store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from custody.clock import SystemClock
from custody.errors import ExitCode, StorageError
from custody.maintenance.absorption import open_archive
from custody.maintenance.scrub import read_scrub
from custody.recovery import STEPS
from custody.repository import Repository
from custody.repository.writers import retire_writer
from custody.spark.environment import submit_environment
from custody.spark.packaging import UNPACKED, main, make_package
from custody.spark.submit import step_command
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.behaviour.store_proxy import Fault, StoreProxy, store_proxy
from tests.spark.cluster import Cluster, Killer, standalone_cluster
from tests.spark.lost_producer import Answers, answers, new_root, produce, rolled_over_locally
from tests.spark.notified import chunks_planned_by_executors, hand_notifications_over, written_locally
from tests.support import INCLUDE, files_below

__all__ = ["s3_url"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything of the driver's and the producers' machines."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, driver_folder: Path) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster") / "spark", [driver_folder, INCLUDE]) as cluster:
        yield cluster


@pytest.fixture
def proxy(s3_url: str) -> Iterator[StoreProxy]:
    with store_proxy(s3_url) as proxy:
        yield proxy


@pytest.fixture
def root(driver_folder: Path, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in s3_environment(proxy.url).items():
        monkeypatch.setenv(name, value)
    root = driver_folder / uuid4().hex
    return new_root(root, f"s3://{BUCKET}/{uuid4().hex}")


def submit(root: Path, step: str, cluster: Cluster, library: Path, *more: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(INCLUDE)}
    environ |= submit_environment(environ)
    command = step_command(
        step, ["--repository", str(root), *more], master=cluster.master, environ=environ, library=library
    )
    assert "test" not in command, "no credential is on the command line"
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=600)


def reports(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    assert done.returncode == 0, done.stdout + done.stderr
    return {json.loads(line)["step"]: json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")}


@pytest.fixture(scope="module")
def library(driver_folder: Path) -> Path:
    target = driver_folder / "custody.zip"
    make_package(target)
    return target


@pytest.fixture(scope="module")
def local_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return rolled_over_locally(tmp_path_factory.mktemp("local"))


def test_a_pass_on_two_workers_without_a_shared_disk(
    root: Path, cluster: Cluster, library: Path, local_answers: Answers, proxy: StoreProxy
) -> None:
    produce(root)
    done = submit(root, "all", cluster, library)
    steps = reports(done)
    assert set(steps) == set(STEPS)
    assert all(str(steps[name]["place"]).startswith("Spark") for name in ("rollover", "compress", "index"))
    assert all(steps[name]["units"] > 1 for name in ("compress", "index"))  # type: ignore[operator]
    assert answers(root) == local_answers
    assert Repository.open(root).status().pending.sealed_groups == 0
    assert not cluster.left_below_workers()
    assert all(proxy.seen[method] for method in ("PUT", "GET"))
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    assert f"SECRET_ACCESS_KEY={secret}" not in done.stderr + "".join(
        path.read_text(errors="replace") for path in cluster.folder.rglob("stderr")
    )


def test_a_worker_killed_in_the_middle_of_each_step(
    root: Path, cluster: Cluster, library: Path, local_answers: Answers, proxy: StoreProxy
) -> None:
    produce(root)
    killer = Killer(cluster, {"rollover": "/staging/", "compress": ".parquet", "index": ".shard"})
    proxy.watch = killer
    steps = reports(submit(root, "all", cluster, library))
    assert killer.killed == ["rollover", "compress", "index"]
    assert all(step["failed"] == 0 for step in steps.values())
    proxy.watch = lambda method, path: None
    assert answers(root) == local_answers
    assert not cluster.left_below_workers()


def test_a_worker_killed_while_one_large_group_is_merged_by_ranges(
    root: Path, cluster: Cluster, library: Path, local_answers: Answers, proxy: StoreProxy
) -> None:
    (root / "custody.toml").write_text(
        (root / "custody.toml").read_text().replace("[eventlog]", "[eventlog]\nmerge_bytes_max = 60000")
    )
    produce(root, as_one_group=True)
    # Killed when the first range is declared: others are merged, and are used.
    killer = Killer(cluster, {"rollover": ".part"})
    proxy.watch = killer
    steps = reports(submit(root, "all", cluster, library))
    assert killer.killed == ["rollover"]
    proxy.watch = lambda method, path: None
    assert all(step["failed"] == 0 for step in steps.values())
    note = str(steps["rollover"]["details"][0]["note"])  # type: ignore[index]
    assert int(note.rpartition("merged in ")[2].split()[0]) > 4
    assert answers(root) == local_answers
    assert not cluster.left_below_workers()


def test_a_worker_killed_in_the_middle_of_a_rebuild_a_compaction_and_a_scrub(
    root: Path, cluster: Cluster, library: Path, local_answers: Answers, proxy: StoreProxy
) -> None:
    produce(root, is_lost=False)
    reports(submit(root, "all", cluster, library))
    settings = Repository.open(root).settings
    before = Workspace(settings, "main").catalog.load()
    assert len(before.files) > 4
    # Other settings of the index: each shard is stale. Then logs that may be larger: some are joined.
    (root / "custody.toml").write_text((root / "custody.toml").read_text() + '[index]\nattributes = ["filename"]\n')
    for step, mark, method in (
        ("rebuild", ".shard", "PUT"),
        ("compact", ".parquet", "PUT"),
        ("scrub", ".parquet", "GET"),
    ):
        if step == "compact":
            (root / "custody.toml").write_text((root / "custody.toml").read_text().replace("60000", "150000"))
        if step == "scrub":
            (root / "custody.toml").write_text((root / "custody.toml").read_text() + "[maintenance]\nscrub_days = 1\n")
        killer = Killer(cluster, {step: mark}, method)
        proxy.watch = killer
        report = reports(submit(root, step, cluster, library))[step]
        proxy.watch = lambda method, path: None
        assert killer.killed == [step]
        assert report["failed"] == 0
        assert int(str(report["units"])) > 1
        assert str(report["place"]).startswith("Spark")
    after = Workspace(settings, "main").catalog.load()
    assert len(after.files) < len(before.files)
    assert sum(file.rows for file in after.files.values()) == sum(file.rows for file in before.files.values())
    assert not read_scrub(settings, PosixFileSystem()).findings
    assert answers(root) == local_answers
    assert not cluster.left_below_workers()


def test_a_worker_killed_while_a_retired_writer_is_absorbed(
    root: Path, cluster: Cluster, library: Path, proxy: StoreProxy
) -> None:
    produce(root, is_lost=False)
    reports(submit(root, "all", cluster, library))
    settings = Repository.open(root).settings
    before = [stored.event for stored in Repository.open(root).search("", limit=1000).events]
    logs = len(Workspace(settings, "main").catalog.load().files)
    retire_writer(settings, "main", "given back")
    open_archive(settings, "archive", PosixFileSystem(), SystemClock())
    killer = Killer(cluster, {"absorb": ".parquet"})
    proxy.watch = killer
    report = reports(submit(root, "absorb", cluster, library))["absorb"]
    proxy.watch = lambda method, path: None
    assert killer.killed == ["absorb"]
    assert (report["failed"], report["units"]) == (0, logs + 1)
    assert str(report["place"]).startswith("Spark")
    # The first writer that is absorbed keeps its ids.
    found = Repository.open(root).search("", limit=1000)
    assert [stored.event for stored in found.events] == before
    assert {stored.writer for stored in found.events} == {"archive"}
    assert not cluster.left_below_workers()


@pytest.mark.parametrize("fault", ["500", "503", "lost", "hang", "slow"])
def test_a_store_on_a_bad_day(
    root: Path,
    cluster: Cluster,
    library: Path,
    local_answers: Answers,
    proxy: StoreProxy,
    fault: Fault,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if fault == "hang":
        # Executors get it as well, as a variable of the store.
        monkeypatch.setenv("AWS_TIMEOUT", "3s")
    produce(root)
    every = {"slow": 29, "hang": 31}.get(fault, 7)
    proxy.fault = lambda number, method: fault if number % every == 0 else None
    steps = reports(submit(root, "all", cluster, library))
    assert all(step["failed"] == 0 for step in steps.values())
    proxy.fault = lambda number, method: None
    if fault == "hang":
        assert proxy.given_up["PUT"], "a client waited no longer, after the store had done the work"
    assert answers(root) == local_answers


def test_credentials_that_expire_while_executors_work_are_named_and_the_next_pass_goes_on(
    root: Path, cluster: Cluster, library: Path, local_answers: Answers, proxy: StoreProxy
) -> None:
    produce(root)
    for kind, mark in (("rollover", "/staging/"), ("compress", ".parquet"), ("index", ".shard")):
        refused: list[str] = []

        def expires(method: str, path: str, mark: str = mark, refused: list[str] = refused) -> Fault | None:
            if refused or (method == "PUT" and mark in path and cluster.left_below_workers()):
                refused.append(path)
                return "expired"
            return None

        proxy.watch = expires
        done = submit(root, "all", cluster, library)
        proxy.watch = lambda method, path: None
        assert done.returncode in {ExitCode.SOME_WORK_FAILED, StorageError.exit_code}, (kind, done.stdout, done.stderr)
        assert refused, kind
        assert f"{Repository.open(root).settings.repository.store}/" in done.stdout + done.stderr
        assert "may have expired" in done.stdout + done.stderr, (kind, done.stdout, done.stderr[-3000:])
    steps = reports(submit(root, "all", cluster, library))
    assert all(step["failed"] == 0 for step in steps.values())
    assert answers(root) == local_answers
    assert Repository.open(root).status().pending.sealed_groups == 0
    assert not cluster.left_below_workers()


def test_executors_whose_python_has_nothing_take_the_library_and_its_dependencies_from_an_archive(
    driver_folder: Path,
    root: Path,
    cluster: Cluster,
    local_answers: Answers,
    proxy: StoreProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bare = getattr(sys, "_base_executable", sys.executable)
    for module in ("custody", "pyarrow", "obstore"):
        if subprocess.run([bare, "-E", "-c", f"import {module}"], capture_output=True, check=False).returncode == 0:
            pytest.skip(f"{bare} has {module}")
    # Without the second line it would be the driver's, too.
    lines = (f"spark.pyspark.python {bare}", f"spark.pyspark.driver.python {sys.executable}", "")
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    target = driver_folder / "custody.tar.gz"
    assert main([str(target)]) == 0
    produce(root)
    seen: list[str] = []

    def look(method: str, path: str) -> None:
        # An executor's process, while it works: whose Python, and whose library.
        if method == "PUT" and ".shard" in path and not seen:
            seen.extend(cluster.python_commands())

    proxy.watch = look
    steps = reports(submit(root, "all", cluster, target))
    assert all(step["failed"] == 0 for step in steps.values())
    assert all(str(steps[name]["place"]).startswith("Spark") for name in ("rollover", "compress", "index"))
    assert seen
    assert all(command.startswith(f"{bare} ") for command in seen)
    assert list(cluster.folder.rglob(UNPACKED))
    assert answers(root) == local_answers


@pytest.mark.parametrize("mode", ["json-row", "csv-column"])
def test_lines_of_notifications_are_made_by_workers_one_of_which_is_killed(
    driver_folder: Path, root: Path, cluster: Cluster, library: Path, proxy: StoreProxy, mode: str
) -> None:
    expected = written_locally(driver_folder / uuid4().hex, mode)
    hand_notifications_over(root, mode)
    reports(submit(root, "all", cluster, library))
    killer = Killer(cluster, {"ngsi": "/content-handoff/"}, "GET")
    proxy.watch = killer
    report = reports(submit(root, "ngsi_to_hdfs", cluster, library))["ngsi_to_hdfs"]
    proxy.watch = lambda method, path: None
    assert killer.killed == ["ngsi"]
    assert chunks_planned_by_executors(report) > 1
    assert files_below(root / "hdfs") == expected
    assert not cluster.left_below_workers()
    # Of each file's rows the repository has SEND events, whose bytes add up to the files.
    sent = Repository.open(root).events(0, 100_000, "ngsi-sink")
    assert sum({(e.transit_uri, e.updated_attributes["ngsi.offset"]): e.file_size for e in sent}.values()) == sum(
        map(len, expected.values())
    )


def test_lines_of_notifications_that_two_workers_make_at_once_are_written_once(
    driver_folder: Path,
    root: Path,
    cluster: Cluster,
    library: Path,
    proxy: StoreProxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = written_locally(driver_folder / uuid4().hex, "json-row")
    hand_notifications_over(root, "json-row")
    reports(submit(root, "all", cluster, library))
    (tmp_path / "log").mkdir()
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.speculation true\nspark.speculation.quantile 0.25\nspark.speculation.multiplier 1.1\n"
        f"spark.eventLog.enabled true\nspark.eventLog.dir file://{tmp_path}/log\nspark.eventLog.rolling.enabled false\n"
        "spark.eventLog.compress false\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    stopped: list[int] = []
    lock = threading.Lock()

    def stop_one(method: str, path: str) -> None:
        # The executor that asks first stays behind, in the middle of its chunk, until everything is written.
        with lock:
            busy = cluster.left_below_workers() if method == "GET" and "/content-handoff/" in path else []
            if busy and not stopped:
                name = busy[0].relative_to(cluster.folder).parts[0]
                stopped.extend(cluster.stop_pythons(int(name.rpartition("-")[2])))

    proxy.watch = stop_one
    report = reports(submit(root, "ngsi_to_hdfs", cluster, library))["ngsi_to_hdfs"]
    proxy.watch = lambda method, path: None
    assert chunks_planned_by_executors(report) > 1
    started = "".join(path.read_text() for path in (tmp_path / "log").iterdir())
    assert '"Speculative":true' in started
    assert files_below(root / "hdfs") == expected
    for pid in stopped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    time.sleep(3)
    assert stopped
    assert files_below(root / "hdfs") == expected
