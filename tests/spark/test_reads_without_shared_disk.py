"""Spark's formats on a cluster whose workers share with the driver an object store alone: the rows of `custody sql`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from custody.repository import EventSelection, Repository
from custody.spark.environment import submit_environment
from custody.spark.packaging import make_package
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.behaviour.store_proxy import StoreProxy, store_proxy
from tests.spark.cluster import Cluster, Killer, standalone_cluster
from tests.support import INCLUDE, append, run_steps, sample
from tests.swh.database import publish_reference, rows_of
from tests.swh.graphs import Shape, random_graph
from tests.swh.reference import Reference

__all__ = ["s3_url"]

pytestmark = [pytest.mark.spark, pytest.mark.slow]
EVENTS = sample(600)
COMMITS = 5
REFERENCE = Reference(random_graph(Shape(5, 30, 25, 12, 4, 3, 3, 20, 0.1)), "all")


@pytest.fixture(scope="module")
def driver_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything of the driver's machine."""
    return tmp_path_factory.mktemp("driver")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, driver_folder: Path) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster") / "spark", [driver_folder, INCLUDE]) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def proxy(s3_url: str) -> Iterator[StoreProxy]:
    with store_proxy(s3_url) as proxy, pytest.MonkeyPatch.context() as patch:
        for name, value in s3_environment(proxy.url).items():
            patch.setenv(name, value)
        yield proxy


@pytest.fixture(scope="module")
def repository(driver_folder: Path, proxy: StoreProxy) -> Repository:
    """Five commits, forgotten events, some that wait in journals, and tables of software."""
    root = driver_folder / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text(
        f'[repository]\nstore = "s3://{BUCKET}/{uuid4().hex}"\n[eventlog]\nblock_bytes_max = 8192\n'
    )
    found = Repository.open(root)
    for number in range(COMMITS):
        append(found, EVENTS[number * 100 : number * 100 + 100])
        run_steps(found.settings)
    found.forget(EventSelection(event_ids=(7, 431)), "asked for")
    named = {**EVENTS[200].previous_attributes, **EVENTS[200].updated_attributes}["filename"]
    found.forget(EventSelection(attributes={"filename": named or ""}), "asked for")
    append(found, EVENTS[500:520])
    publish_reference(found.settings, "one", REFERENCE, "all")
    return found


@pytest.fixture(scope="module")
def library(driver_folder: Path) -> Path:
    target = driver_folder / "custody.zip"
    make_package(target)
    return target


def reads(
    repository: Repository, cluster: Cluster, library: Path, checkpoint: Path, asked: dict[str, dict[str, str]]
) -> dict[str, Any]:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(INCLUDE), str(Path(__file__).parents[2])])}
    environ |= submit_environment(environ)
    command = [sys.executable, "-m", "tests.spark.reads", cluster.master, str(library), str(repository.settings.root)]
    done = subprocess.run(
        [*command, str(checkpoint), json.dumps(asked)],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def in_sql(repository: Repository, where: str = "true", **options: Any) -> list[list[Any]]:
    names = "event_id, writer, event_type, epoch_ms(event_time), flowfile_uuid, updated_attributes"
    text = f"select {names} from events where {where} order by event_id"  # noqa: S608 - the test's own
    with Repository.open(repository.settings.root).sql(text, **options) as result:
        rows = [list(row.values()) for batch in result.batches() for row in batch.to_pylist()]
    return [[*row[:-1], dict(row[-1])] for row in rows]


def fetched(repository: Repository) -> list[Path]:
    """What the driver's disk has of logs and tables."""
    below = repository.settings.store.rglob("*.parquet")
    return [path for path in below if path.stat().st_blocks]


def forget_copies(repository: Repository) -> None:
    for path in [path for path in repository.settings.store.rglob("*") if path.is_file()]:
        path.unlink()


def test_batches_and_a_stream_have_the_rows_of_sql_though_a_worker_is_killed(
    repository: Repository, cluster: Cluster, library: Path, proxy: StoreProxy, driver_folder: Path
) -> None:
    forget_copies(repository)
    node = min(row[0] for row in list[Any](rows_of(REFERENCE)["nodes"][1]))
    killer = Killer(cluster, {"read": ".parquet"}, "GET")
    proxy.watch = killer
    answers = reads(
        repository,
        cluster,
        library,
        driver_folder / "stream",
        {
            "all": {"format": "custody"},
            "ids": {"format": "custody", "eventIds": "3, 60-70, 431, 510"},
            "types": {"format": "custody", "eventTypes": "SEND,DROP"},
            "flowfile": {"format": "custody", "flowfileUuids": EVENTS[77].flowfile_uuid},
            "second": {"format": "custody", "asOf": "1"},
            "stream": {"format": "stream", "maxFilesPerTrigger": "2"},
            "nodes": {"format": "custody-software", "table": "nodes"},
            "node": {"format": "custody-software", "table": "nodes", "keys": str(node)},
        },
    )
    proxy.watch = lambda method, path: None
    assert killer.killed == ["read"]
    assert fetched(repository) == [], "the driver fetched logs or tables"
    assert not cluster.left_below_workers()
    everything = in_sql(repository)
    assert len([row for row in everything if row[0] >= 500]) == 20, "acknowledged, and in no log"
    assert answers["all"] == everything
    assert answers["ids"] == in_sql(repository, "event_id in (3, 431, 510) or event_id between 60 and 70")
    assert answers["types"] == [row for row in everything if row[2] in ("SEND", "DROP")]
    assert answers["flowfile"] == [row for row in everything if row[4] == EVENTS[77].flowfile_uuid]
    assert answers["second"] == in_sql(repository, as_of=1)
    assert len(answers["stream"]) > 1
    streamed = sorted((row for batch in answers["stream"] for row in batch), key=lambda row: row[0])
    assert streamed == [row for row in everything if row[0] < 500]
    nodes = sorted(list[Any](rows_of(REFERENCE)["nodes"][1]), key=lambda row: row[0])
    assert answers["nodes"] == [[number, kind, digest.hex().upper()] for number, kind, digest in nodes]
    assert answers["node"] == answers["nodes"][:1]


def test_an_id_costs_a_table_of_contents_and_a_block(
    repository: Repository, cluster: Cluster, library: Path, proxy: StoreProxy, driver_folder: Path
) -> None:
    forget_copies(repository)
    seen: list[tuple[str, str]] = []
    proxy.watch = lambda method, path: seen.append((method, path))
    answer = reads(
        repository, cluster, library, driver_folder / "none", {"one": {"format": "custody", "eventIds": "130"}}
    )
    proxy.watch = lambda method, path: None
    assert answer["one"] == in_sql(repository, "event_id = 130")
    of_logs = [(method, path.rpartition(".")[2]) for method, path in seen if "/data/" in path]
    assert sorted(of_logs) == [("GET", "parquet"), ("GET", "toc"), ("HEAD", "toc")]
