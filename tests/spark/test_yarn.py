"""The steps on YARN, submitted as the DAGs' operator does it, with nodes that share no disk with the driver."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from custody.recovery import STEPS
from custody.repository import Repository
from custody.spark.environment import spark_home
from custody.spark.java import find_java
from custody.spark.packaging import main
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.behaviour.store_proxy import StoreProxy, store_proxy
from tests.dags.operator_submit import CONNECTIONS, operator_submit
from tests.spark.lost_producer import Answers, answers, new_root, produce, rolled_over_locally
from tests.spark.yarn import Yarn, yarn_cluster
from tests.support import INCLUDE

__all__ = ["s3_url"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]

MARKS = {"rollover": "/staging/", "compress": ".parquet", "index": ".shard"}
"""In the paths of what a unit of each step puts."""
SECRET = "a-secret-of-this-test"  # noqa: S105 - it opens nothing
# What docs/clusters.md tells to configure, for nodes of this size.
DEFAULTS = """\
spark.pyspark.python {python}
spark.pyspark.driver.python {driver_python}
spark.yarn.jars local:{spark}/jars/*
spark.executor.instances 2
spark.executor.memory 512m
spark.executor.memoryOverhead 768m
"""


@pytest.fixture(scope="module")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything of the driver's and the producers' machines."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def yarn(tmp_path_factory: pytest.TempPathFactory, driver_folder: Path) -> Iterator[Yarn]:
    with yarn_cluster(tmp_path_factory.mktemp("cluster") / "yarn", [driver_folder, INCLUDE]) as yarn:
        yield yarn


@pytest.fixture(scope="module")
def library(driver_folder: Path) -> Path:
    """The archive with all dependencies."""
    target = driver_folder / "custody.tar.gz"
    assert main([str(target)]) == 0
    return target


@pytest.fixture(scope="module")
def local_answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    return rolled_over_locally(tmp_path_factory.mktemp("local"))


@pytest.fixture
def proxy(s3_url: str) -> Iterator[StoreProxy]:
    with store_proxy(s3_url) as proxy:
        yield proxy


@pytest.fixture
def root(
    driver_folder: Path, proxy: StoreProxy, library: Path, yarn: Yarn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Path:
    """A repository whose producer handed over and lost its disk, and the environment of its drivers."""
    bare = getattr(sys, "_base_executable", sys.executable)
    for module in ("custody", "pyarrow", "obstore"):
        if subprocess.run([bare, "-E", "-c", f"import {module}"], capture_output=True, check=False).returncode == 0:
            pytest.skip(f"{bare} has {module}")
    (tmp_path / "spark-defaults.conf").write_text(
        DEFAULTS.format(python=bare, driver_python=sys.executable, spark=spark_home())
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf))
    monkeypatch.setenv("PYTHONPATH", str(INCLUDE))
    for name, value in {**s3_environment(proxy.url), "AWS_SECRET_ACCESS_KEY": SECRET}.items():
        monkeypatch.setenv(name, value)
    root = new_root(driver_folder / uuid4().hex, f"s3://{BUCKET}/{uuid4().hex}")
    settings = root / "custody.toml"
    settings.write_text(settings.read_text().replace("[spark]", f'[spark]\nlibrary = "{library}"'))
    produce(root)
    return root


@pytest.fixture
def java_of_the_driver(driver_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Java where no node has it."""
    home = driver_folder / "java"
    if not home.exists():
        home.symlink_to(find_java().home)
    monkeypatch.setenv("JAVA_HOME", str(home))
    return home


def submit(root: Path, step: str, airflow_home: Path) -> dict[str, object]:
    """Do a step as its task does, and return its report."""
    [connection] = [connection for connection in CONNECTIONS if '"yarn"' in connection]
    command, environment = operator_submit(root, connection, step=step, run_id=root.name, airflow_home=airflow_home)
    assert not any(SECRET in part for part in command)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-8000:]
    assert SECRET not in done.stdout + done.stderr
    [report] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return dict(report)


def test_a_pass_whose_steps_are_submitted_as_the_operator_does_it(
    root: Path, yarn: Yarn, proxy: StoreProxy, local_answers: Answers, java_of_the_driver: Path, tmp_path: Path
) -> None:
    lines: list[str] = []

    def look(method: str, path: str) -> None:
        # While an executor works: whose Python and Java it is.
        if method == "PUT" and ".shard" in path and not lines:
            lines.extend(yarn.command_lines())

    proxy.watch = look
    reports = {step: submit(root, step, tmp_path) for step in STEPS}
    proxy.watch = lambda method, path: None
    assert all(report["failed"] == 0 for report in reports.values())
    assert all(str(reports[step]["place"]).startswith("Spark") for step in MARKS)
    assert all(int(str(reports[step]["units"])) > 1 for step in ("compress", "index"))
    assert answers(root) == local_answers
    assert Repository.open(root).status().pending.sealed_groups == 0
    bare = getattr(sys, "_base_executable", sys.executable)
    pythons = [line for line in lines if "pyspark.daemon" in line]
    assert pythons
    assert all(line.startswith(f"{bare} ") for line in pythons)
    assert not any(str(java_of_the_driver) in line for line in lines)
    assert not any(SECRET in line for line in lines)
    # What docs/clusters.md warns of: these stay on the nodes. No log has it.
    kept = {path.name for path in yarn.files_with(SECRET)}
    assert kept == {"launch_container.sh", "__spark_conf__.properties", "__spark_hadoop_conf__.xml"}
    assert not yarn.units()


def test_a_node_that_is_lost_in_the_middle_of_each_step(
    root: Path, yarn: Yarn, proxy: StoreProxy, local_answers: Answers, tmp_path: Path
) -> None:
    killed: dict[str, int] = {}
    lock = threading.Lock()

    def kill(step: str, mark: str, method: str, path: str) -> None:
        # It does not come back before the step is done.
        with lock:
            busy = yarn.units() if method == "PUT" and mark in path and step not in killed else {}
            if busy:
                killed[step] = min(busy)
                yarn.kill_node(killed[step])
                shutil.rmtree(yarn.folder / f"node-{killed[step]}")

    for step, mark in MARKS.items():
        proxy.watch = lambda method, path, step=step, mark=mark: kill(step, mark, method, path)  # type: ignore[misc]
        report = submit(root, step, tmp_path)
        proxy.watch = lambda method, path: None
        assert report["failed"] == 0
        assert str(report["place"]).startswith("Spark")
        assert step in killed
        yarn.start_node(killed[step])
        yarn.await_nodes(2)
    assert submit(root, "commit", tmp_path)["failed"] == 0
    assert answers(root) == local_answers
    assert not yarn.units()
