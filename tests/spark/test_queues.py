"""Executors of Spark take FlowFiles from one queue at the same time and commit: each FlowFile goes on once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from custody.config import SETTINGS_FILE
from custody.flow import Component
from custody.repository import Repository
from custody.spark.environment import submit_environment
from tests.support import INCLUDE

pytestmark = pytest.mark.spark

FLOWFILES = 120
PROGRAM = """
import os
import sys

from custody.spark.session import start_session

ROOT = sys.argv[1]


def work(partition):
    import custody

    number = next(iter(partition))
    count = 1
    while count:
        with custody.session(ROOT, "spark.double", wait_seconds=60) as session:
            taken = session.get_many("numbers", 7)
            for flowfile in taken:
                value = int(session.read_bytes(flowfile))
                session.write_bytes(flowfile, str(2 * value).encode())
                session.put_attribute(flowfile, "worker", str(os.getpid()))
                session.transfer(flowfile, "doubled")
            uuids = [flowfile.uuid for flowfile in taken]
        count = len(uuids)
        yield from uuids
        if number == 1 and count:
            # Work that is undone: what was taken goes back, for whoever comes next.
            with custody.session(ROOT, "spark.double", wait_seconds=60) as session:
                session.get_many("numbers", 7)
                session.rollback()


spark = start_session("queues", {"spark.master": "local[2]"})
done = spark.sparkContext.parallelize(range(4), 4).mapPartitions(work).collect()
print("taken:", len(done), len(set(done)))
spark.stop()
"""


@pytest.mark.in_parts(3)
def test_two_executors_drain_a_queue_and_each_flowfile_goes_on_once(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    (tmp_path / "repository" / SETTINGS_FILE).write_text("[repository]\nwriter_slots = 3\n")
    repository = Repository.open(tmp_path / "repository")
    with repository.flowfiles() as flow:
        flow.connect("numbers")
        flow.connect("doubled")
        with flow.session(Component(id="load", type="Load")) as session:
            for number in range(FLOWFILES):
                flowfile = session.create({"number": str(number)})
                session.write_bytes(flowfile, str(number).encode())
                session.transfer(flowfile, "numbers")
    program = tmp_path / "double.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, **submit_environment(), "PYTHONPATH": str(INCLUDE)}
    command = [sys.executable, "-W", "ignore", str(program), str(tmp_path / "repository")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1:] == [f"taken: {FLOWFILES} {FLOWFILES}"], done.stderr[-3000:]

    sizes = {status.connection.name: (status.count, status.taken) for status in repository.queues().queues()}
    assert sizes == {"numbers": (0, 0), "doubled": (FLOWFILES, 0)}
    results = {}
    for item in repository.queues().flowfiles("doubled", FLOWFILES):
        assert item.flowfile.content_claim is not None
        content = repository.content(item.flowfile.content_claim).read()
        results[int(item.flowfile.attributes["number"])] = int(content)
    assert results == {number: 2 * number for number in range(FLOWFILES)}
    # More than one process took part, and the history has each change once.
    workers = {item.flowfile.attributes["worker"] for item in repository.queues().flowfiles("doubled", FLOWFILES)}
    assert len(workers) >= 2
    changes = repository.search("event_type:CONTENT_MODIFIED", limit=1000).events
    assert Counter(stored.event.flowfile_uuid for stored in changes) == Counter(
        item.flowfile.uuid for item in repository.queues().flowfiles("doubled", FLOWFILES)
    )
