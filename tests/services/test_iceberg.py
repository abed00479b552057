"""The published table in other engines: DuckDB and Spark read of each revision what custody itself gives out."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from custody import iceberg
from custody.repository import Repository
from custody.spark.java import find_java
from tests.iceberg_reading import expected, rows_in_sql, with_history
from tests.own_environment import python_of
from tests.services.jars import jars

HERE = Path(__file__).parent

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Ten revisions and more: commits, forgotten events, compacted logs."""
    found = with_history(Repository.create(tmp_path_factory.mktemp("it's ${a} table%20") / "repository"))
    assert len(expected(found.workspace())) >= 10
    return found


def location(repository: Repository) -> str:
    return iceberg.publish(repository.workspace()).location


def test_duckdb_reads_the_rows_of_every_revision(repository: Repository) -> None:
    python = python_of("duckdb-iceberg", HERE / "duckdb-iceberg-requirements.txt")
    command = [str(python), str(HERE / "duckdb_iceberg.py"), location(repository)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    answer = json.loads(done.stdout)
    assert {int(key): ids for key, ids in answer["snapshots"].items()} == expected(repository.workspace())
    assert answer["rows"] == rows_in_sql(repository)
    assert answer["one"] == 1


@pytest.fixture(scope="module")
def in_spark(repository: Repository) -> dict[str, Any]:
    """What Spark read. Its release is one that Iceberg has a reader for, so it lies in an environment of its own."""
    done = iceberg.publish(repository.workspace())
    python = python_of("spark-iceberg", HERE / "spark-iceberg-requirements.txt")
    [jar] = jars(HERE / "iceberg.jars")
    command = [str(python), str(HERE / "spark_iceberg.py"), str(jar), str(repository.settings.store)]
    environ = {**os.environ, "JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environ["PYSPARK_PYTHON"] = environ["PYSPARK_DRIVER_PYTHON"] = str(python)
    for name in ("SPARK_HOME", "PYTHONPATH"):
        environ.pop(name, None)
    ended = subprocess.run(
        [*command, done.location, done.metadata], env=environ, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    answer: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return answer


def test_spark_reads_the_rows_of_every_revision_by_path_and_by_name(
    repository: Repository, in_spark: dict[str, Any]
) -> None:
    right = expected(repository.workspace())
    assert {int(key): ids for key, ids in in_spark["snapshots"].items()} == right
    assert in_spark["rows"] == rows_in_sql(repository)
    assert in_spark["at the third"] == len(right[2])
    assert in_spark["some"] == len([number for number in right[max(right)] if 40 <= number <= 60])


def test_spark_follows_appends(in_spark: dict[str, Any]) -> None:
    assert in_spark["added by the second"] == list(range(50, 100))


def test_spark_cannot_expire_the_logs_of_the_table(repository: Repository, in_spark: dict[str, Any]) -> None:
    assert "GC is disabled" in in_spark["expired"]
    assert not iceberg.publish(repository.workspace()).written
