"""Receiver and follower as processes on a real HDFS: each acknowledged notification is a line, whoever is killed."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from custody.repository import Repository
from tests.services import reading
from tests.services.hdfs import hdfs
from tests.support import INCLUDE, run_steps
from tests.unit.ngsi_sink.sink_repository import bench
from tests.unit.serving.receiver_process import receiving

pytestmark = pytest.mark.slow
SETTINGS = """
[repository]
writer_slots = 2
[ngsi]
hdfs_username = "warden"
backend = "rest"
hdfs_host = "127.0.0.1"
hdfs_port = {port}
hive = false
batch_retry_intervals = "200"
"""
HEADERS = {"fiware-service": "parks", "fiware-servicepath": "/north"}
FILE = "/user/warden/parks/north/Bench1_Bench/Bench1_Bench.txt"
KILLS = 3
WAIT_SECONDS_MAX = 240


@contextmanager
def follower(root: Path) -> Iterator[subprocess.Popen[str]]:
    code = "from custody.cli.main import main; main()"
    command = [sys.executable, "-c", code, "-r", str(root), "ngsi", "persist", "--follow", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(INCLUDE)}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def values(port: int) -> list[str]:
    if FILE not in reading.files(port, "/user/warden"):
        return []
    return [json.loads(line)["attrValue"] for line in reading.read(port, FILE).splitlines()]


def test_a_follower_that_is_killed_again_and_again_writes_each_line_once(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    (tmp_path / "hdfs").mkdir()
    sent = 0
    with hdfs(tmp_path / "hdfs") as up:
        (root / "custody.toml").write_text(SETTINGS.format(port=up.web))
        with receiving(root, "--quiet") as at:
            for kill in range(KILLS + 1):
                with follower(root) as process:
                    for _ in range(10):
                        assert at.post(bench(sent), HEADERS).status_code == 200
                        sent += 1
                        time.sleep(0.05)
                    if kill == KILLS:
                        until_written(up.web, sent)
                        process.send_signal(signal.SIGTERM)
                        assert process.wait(60) == 0
                    else:
                        assert process.stdout is not None
                        # As soon as something was written, so that the next batch is most likely under way.
                        assert re.search(r'"events": ?[1-9]', process.stdout.readline())
            at.process.send_signal(signal.SIGTERM)
            assert at.process.wait(60) == 0
        assert values(up.web) == [str(1000 + number) for number in range(sent)]
        repository = Repository.open(root)
        run_steps(repository.settings)
        with follower(root) as process:
            time.sleep(5)
        assert values(up.web) == [str(1000 + number) for number in range(sent)], "the rollover published them again"
    told = [parent for event in repository.events(0, 10_000, "ngsi-sink") for parent in event.parent_uuids]
    assert len(told) == len(set(told)) == sent


def until_written(port: int, count: int) -> None:
    # HDFS leaves the file of a killed writer to it for up to a minute.
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(values(port)) < count:
        assert time.monotonic() < deadline, values(port)
        time.sleep(0.5)
