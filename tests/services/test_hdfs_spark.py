"""Spark on a real HDFS: files by RPC, and Hive tables over them in a real remote metastore."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import reading
from tests.services.hdfs import Hdfs, free_ports, hdfs
from tests.services.metastore import metastore
from tests.spark.test_ngsi_tables import check_tables, submitted

pytestmark = [pytest.mark.slow, pytest.mark.spark]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as up:
        yield up


def hosts(running: Hdfs) -> str:
    """The NameNode behind one that is dead."""
    return f"127.0.0.1:{free_ports(1)[0]},127.0.0.1:{running.rpc}"


def test_files_by_rpc_stand_once_whatever_crashed(running: Hdfs, tmp_path: Path) -> None:
    named = hosts(running)
    told = submitted("ngsi_rpc.py", tmp_path, named, "8020")
    for path, text in told["files"].items():
        assert reading.read(running.web, path) == text.encode(), path
    assert told["uri"].startswith(f"hdfs://{named.partition(',')[0]}/user/warden/rpc/%C3%A4%20b%2525")
    invalid, long = told["said"]
    assert "a:b" in invalid
    assert "PathComponentTooLong" in long


def test_tables_in_a_remote_metastore_read_what_is_on_hdfs(running: Hdfs, tmp_path: Path) -> None:
    with metastore(tmp_path) as port:
        section = {
            "backend": "binary",
            "hdfs_host": hosts(running),
            "hdfs_port": 8020,
            "hive_location": f"hdfs://127.0.0.1:{running.rpc}",
            "hive_metastore_uri": f"thrift://127.0.0.1:{free_ports(1)[0]},thrift://127.0.0.1:{port}",
            "hive_host": "127.0.0.1",
            "hive_port": port,
        }
        check_tables(submitted("ngsi_hive.py", tmp_path, str(tmp_path), json.dumps(section)))
        assert not (tmp_path / "hive" / "metastore").exists()
