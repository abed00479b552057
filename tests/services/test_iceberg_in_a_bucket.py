"""The published table in a bucket: pyiceberg, DuckDB and Spark read of each revision what custody itself gives out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.table import StaticTable

from custody import iceberg
from custody.repository import EventSelection, Repository
from custody.spark.java import find_java
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.iceberg_reading import EVENTS, expected, newest, rows_in_sql, with_history
from tests.own_environment import python_of
from tests.services.jars import jars
from tests.support import append, run_steps

__all__ = ["s3_url"]

HERE = Path(__file__).parent


@pytest.fixture(autouse=True, scope="module")
def server(s3_url: str) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in s3_environment(s3_url).items():
            patch.setenv(name, value)
        yield


def in_a_bucket(root: Path) -> Repository:
    Repository.create(root)
    (root / "custody.toml").write_text(f'[repository]\nstore = "s3://{BUCKET}/{uuid4().hex}"\n')
    return Repository.open(root)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    found = with_history(in_a_bucket(tmp_path_factory.mktemp("bucket") / "repository"))
    assert len(expected(found.workspace())) >= 10
    return found


def by_pyiceberg(location: str) -> StaticTable:
    properties = {
        "s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": os.environ["AWS_REGION"],
    }
    return StaticTable.from_metadata(location, properties)


def ids_of_snapshots(table: StaticTable) -> dict[int, list[int]]:
    """The ids of the events of each snapshot, by the revision that it is of."""
    found = {}
    for snapshot in table.metadata.snapshots:
        rows = table.scan(selected_fields=("event_id",), snapshot_id=snapshot.snapshot_id).to_arrow()
        found[int(snapshot.summary["custody.revision"])] = sorted(rows.column("event_id").to_pylist())
    return found


def test_a_table_in_a_bucket_is_read_by_its_own_files_alone(tmp_path: Path) -> None:
    found = in_a_bucket(tmp_path / "repository")
    for first in (0, 20):
        append(found, EVENTS[first : first + 20])
        run_steps(found.settings)
    done = iceberg.publish(found.workspace())
    assert done.location == f"{found.settings.repository.store}/main/provenance/iceberg/events"
    assert done.metadata.startswith(f"{done.location}/metadata/")
    assert ids_of_snapshots(by_pyiceberg(done.location)) == {0: [*range(20)], 1: [*range(40)]}
    # Forgetting publishes: the snapshots before it are made anew, and the version that showed the event goes.
    found.forget(EventSelection(event_ids=(7, 30)), "asked for")
    shutil.rmtree(tmp_path)
    kept = [[number for number in range(end) if number not in (7, 30)] for end in (20, 40, 40)]
    assert ids_of_snapshots(by_pyiceberg(done.location)) == dict(enumerate(kept))
    with pytest.raises(FileNotFoundError):
        by_pyiceberg(done.metadata)


@pytest.mark.slow
def test_pyiceberg_reads_the_rows_of_every_revision(repository: Repository) -> None:
    table = by_pyiceberg(iceberg.publish(repository.workspace()).location)
    assert ids_of_snapshots(table) == expected(repository.workspace())
    rows = table.scan(row_filter="event_id >= 40 and event_id <= 60", selected_fields=("writer", "event_id")).to_arrow()
    assert sorted(rows.column("event_id").to_pylist()) == list(range(40, 61))
    assert set(rows.column("writer").to_pylist()) == {"main"}


@pytest.mark.slow
def test_duckdb_reads_the_rows_of_every_revision(repository: Repository) -> None:
    python = python_of("duckdb-iceberg", HERE / "duckdb-iceberg-requirements.txt")
    location = iceberg.publish(repository.workspace()).location
    command = [str(python), str(HERE / "duckdb_iceberg.py"), location]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert {int(key): ids for key, ids in answer["snapshots"].items()} == expected(repository.workspace())
    assert answer["rows"] == rows_in_sql(repository)
    assert answer["one"] == 1


@pytest.mark.slow
def test_spark_reads_the_rows_of_every_revision(repository: Repository, tmp_path: Path) -> None:
    done = iceberg.publish(repository.workspace())
    metadata = tmp_path / "metadata.json"
    metadata.write_text(json.dumps(newest(repository.workspace())))
    python = python_of("spark-iceberg", HERE / "spark-iceberg-requirements.txt")
    listed = ",".join(map(str, jars(HERE / "iceberg-aws.jars")))
    environ = {**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environ["PYSPARK_PYTHON"] = environ["PYSPARK_DRIVER_PYTHON"] = str(python)
    for name in ("SPARK_HOME", "PYTHONPATH"):
        environ.pop(name, None)
    command = [str(python), str(HERE / "spark_bucket_iceberg.py"), listed, done.metadata, str(metadata)]
    ended = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    problems = [line for line in ended.stderr.splitlines() if "Error" in line or "Exception" in line]
    assert ended.returncode == 0, "\n".join(problems)
    answer = json.loads(ended.stdout.splitlines()[-1])
    assert {int(key): ids for key, ids in answer["snapshots"].items()} == expected(repository.workspace())
    assert answer["rows"] == rows_in_sql(repository)
