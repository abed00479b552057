"""An Airflow for several files, and what a failed test reports: the ends of the logs of the processes of Airflow."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from custody.repository import Repository
from custody_local.airflow import LocalAirflow
from tests.airflow.pipeline import airflow_on, waiting_repository

_HOME = pytest.StashKey[Path]()
_PIPELINE = pytest.StashKey[LocalAirflow]()
_TAIL_LINES = 30
_WIDTH = 300


_ON_ONE_AIRFLOW = ("test_provenance_rollover.py", "test_provenance_ingest.py", "test_local_airflow.py")
"""Files that share an Airflow, whose start takes 40 s of CPU.

The first one counts the events, the second adds some, the last one stops it.
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of files that share an Airflow in their order, where the tests of all of them lie now."""
    places = [place for place, item in enumerate(items) if _order(item) >= 0]
    for place, item in zip(places, sorted((items[place] for place in places), key=_order), strict=True):
        items[place] = item


def _order(item: pytest.Item) -> int:
    is_here = item.path.parent == Path(__file__).parent and item.path.name in _ON_ONE_AIRFLOW
    return _ON_ONE_AIRFLOW.index(item.path.name) if is_here else -1


@pytest.fixture(scope="session")
def pipeline_repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return waiting_repository(tmp_path_factory.mktemp("pipeline"))


@pytest.fixture(scope="session")
def pipeline_airflow(request: pytest.FixtureRequest, pipeline_repository: Repository) -> Iterator[LocalAirflow]:
    with airflow_on(pipeline_repository) as running:
        request.session.stash[_PIPELINE] = running
        yield running


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Stop the shared Airflow behind the last file that uses it: it would idle until all tests are done."""
    running = item.session.stash.get(_PIPELINE, None)
    if running is not None and (nextitem is None or _order(nextitem) < 0):
        del item.session.stash[_PIPELINE]
        running.stop()


@pytest.fixture(autouse=True)
def _logs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    request.node.stash[_HOME] = tmp_path_factory.getbasetemp()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and (home := item.stash.get(_HOME, None)) is not None:
        for log in sorted(home.rglob("logs/components/*.log")):
            lines = [line[:_WIDTH] for line in log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]]
            report.sections.append((f"end of {log.parents[2].name}/{log.name}", "\n".join(lines)))
    return report
