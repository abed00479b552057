"""Report of a failed test of a real Airflow: beside the error, the ends of the logs of Airflow's own processes."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

_HOME = pytest.StashKey[Path]()
_TAIL_LINES = 30
_WIDTH = 300


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
