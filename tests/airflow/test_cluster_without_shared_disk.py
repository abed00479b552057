"""The DAG in a real Airflow, with a Spark cluster whose workers share nothing with Airflow's machine but a bucket.

A worker is killed in the middle of each step that works there, and the store errs on some of all requests.
"""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from custody.repository import Repository
from custody.spark.packaging import make_package
from custody_local.airflow import LocalAirflow
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.behaviour.store_proxy import Fault, store_proxy
from tests.spark.cluster import Killer, standalone_cluster
from tests.spark.lost_producer import answers, new_root, produce, rolled_over_locally
from tests.support import INCLUDE

__all__ = ["s3_url"]

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.slow]
PROJECT = Path(__file__).resolve().parents[2]
DAG_ID = "provenance_rollover"
WAIT_SECONDS = 1200.0
FAULTS: tuple[Fault, ...] = ("500", "503", "lost", "hang", "slow")


def test_the_dag_on_a_cluster_without_a_shared_disk(
    tmp_path: Path, s3_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = tmp_path / "driver"
    monkeypatch.setenv("CUSTODY__SPARK__LIBRARY", str(driver / "custody.zip"))
    make_package(driver / "custody.zip")
    (tmp_path / "local").mkdir()
    expected = rolled_over_locally(tmp_path / "local")
    with (
        store_proxy(s3_url) as proxy,
        standalone_cluster(tmp_path / "spark", [driver, INCLUDE]) as cluster,
    ):
        for name, value in s3_environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        root = new_root(driver / "repository", f"s3://{BUCKET}/{uuid4().hex}")
        produce(root)
        killer = Killer(cluster, {"rollover": "/staging/", "compress": ".parquet", "index": ".shard"})
        proxy.watch = killer
        proxy.fault = lambda number, method: FAULTS[number % 3] if number % 23 == 0 else None
        settings = {"CUSTODY_ROLLOVER_SCHEDULE": ""}
        home = driver / "airflow"
        with (
            LocalAirflow(PROJECT, home=home, repository=root, master=cluster.master, settings=settings) as airflow,
            airflow.client() as client,
        ):
            client.wait_for_dag(DAG_ID)
            client.unpause(DAG_ID)
            run_id = client.trigger(DAG_ID, {"wait_seconds": 1})
            assert client.wait_for_run(DAG_ID, run_id, timeout_s=WAIT_SECONDS).state == "success"
        proxy.watch = lambda method, path: None
        proxy.fault = lambda number, method: None
        assert killer.killed == ["rollover", "compress", "index"]
        assert answers(root) == expected
        assert Repository.open(root).status().pending.sealed_groups == 0
        assert not cluster.left_below_workers()
        for log in (*home.rglob("*.log"), *cluster.folder.rglob("stderr")):
            assert "AWS_SECRET_ACCESS_KEY=" not in log.read_text(errors="replace"), log
