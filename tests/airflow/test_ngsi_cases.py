"""Cases of NGSI through the pipeline itself: HTTP, journals, the DAG of the rollover, that of the sink, a real HDFS.

All shipped cases of the plainest configuration are posted one after the other; then the files on HDFS are, byte for
byte, those of the runs in memory, one behind the other where several cases write to one file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from custody.clock import ManualClock
from custody.repository import Repository
from custody_conformance.case import Case
from custody_conformance.checking import shipped_cases
from custody_conformance.end_to_end import post_case, receiving
from custody_conformance.in_memory import Outcome, run
from custody_local.airflow import LocalAirflow
from tests.services import reading
from tests.services.hdfs import Hdfs, hdfs

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
DAG_ID, ROLLOVER = "ngsi_to_hdfs", "provenance_rollover"
CONFIG = {"hdfs_username": "warden", "hive": False}
SETTINGS = """
[ngsi]
hdfs_username = "warden"
hive = false
backend = "rest"
hdfs_host = "127.0.0.1"
hdfs_port = {port}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    with hdfs(tmp_path_factory.mktemp("hdfs")) as up:
        yield up


def plain() -> list[Case]:
    """The cases of the plainest configuration in the order of their arrival."""
    chosen = (
        case
        for case in shipped_cases()
        if case.config == CONFIG
        and not (case.faults or case.grouping_rules or case.name_mappings or case.events)
        and case.clock.timestamp is None
    )
    return sorted(chosen, key=lambda case: case.clock.recv_time_ms)


def test_cases_come_out_of_the_pipeline_as_in_memory(running: Hdfs, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text(SETTINGS.format(port=running.web))
    clock = ManualClock(0)
    repository = Repository(Repository.open(root).settings, clock=clock)
    expected: dict[str, bytes] = defaultdict(bytes)
    events = 0
    with receiving(repository, clock) as port:
        for case in plain():
            memory, answered = run(case), Outcome()
            post_case(case, port, clock, answered)
            assert answered.statuses == memory.statuses, case.id
            events += answered.events
            for path, data in memory.files.items():
                expected[path] += data
    assert len(expected) > 20
    assert events > 40

    schedules = {"CUSTODY_ROLLOVER_SCHEDULE": "", "CUSTODY_NGSI_SCHEDULE": ""}
    with (
        LocalAirflow(PROJECT, home=tmp_path / "airflow", repository=root, settings=schedules) as airflow,
        airflow.client() as client,
    ):
        for dag in (DAG_ID, ROLLOVER):
            client.wait_for_dag(dag)
            client.unpause(dag)
        assert client.wait_for_run(ROLLOVER, client.trigger(ROLLOVER)).state == "success"
        [commit] = client.wait_for_runs(DAG_ID, 1)
        assert client.wait_for_run(DAG_ID, commit.run_id).state == "success"
        found = {path: reading.read(running.web, path) for path in reading.files(running.web, "/user/warden")}
        assert found == expected
