"""What Airflow's API server answers while its plugin exports: health, a DAG, and the page of that DAG in a browser.

Beside it, in the same turns: the same requests while two processes of the lowest priority compute that have nothing to
do with Airflow. That much any work costs on these cores.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import httpx

from benchmarks.airflow.cost import percentile
from benchmarks.api.__main__ import build_repository
from benchmarks.api.reader import reading
from benchmarks.environment import ROOT
from custody.serving.export_process import NICENESS
from custody_local.airflow import LocalAirflow
from tests.airflow import browser

DAG_ID = "provenance_rollover"
MOUNT = "/custody"
NOTHING = "nothing"
OTHER_WORK = "two processes of the lowest priority"
FORMS = ("ndjson", "arrow")
STATES = (NOTHING, OTHER_WORK, *(f"two exports, {form}" for form in FORMS))
"""By turns: alone, beside work that is not custody's, and beside two exports of each form."""
_READERS = 2
_COMPUTES = "while True: sum(range(10000))"
_PAUSE_SECONDS = 0.02
_WARM_SECONDS = 3.0
"""Until readers have begun: their start is not what is measured."""
_PAGES = 3
"""So often the page is opened in a turn."""


class Answers(NamedTuple):
    """Milliseconds of one request, in one state of the server."""

    request: str
    beside: str
    median: float
    p99: float
    most: float
    requests: int


def exports(events: int, seconds: float, turns: int, workers: int, repository: Path | None) -> list[Answers]:
    """Ask by turns, each for some seconds, alone and beside exports; all turns of a state count together."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if repository is None:
            repository = folder / "repository"
            build_repository(repository, events)
        settings = {
            "CUSTODY_SERVE_MOUNT": MOUNT,
            "CUSTODY__SERVE__DOORS": '["pages"]',
            "CUSTODY_ROLLOVER_SCHEDULE": "",
            "AIRFLOW__API__WORKERS": str(workers),
        }
        at = LocalAirflow(ROOT, home=folder / "airflow", repository=repository, settings=settings)
        airflow = stack.enter_context(at)
        with airflow.client() as client:
            client.wait_for_dag(DAG_ID)
        with httpx.Client(base_url=airflow.url, timeout=120, trust_env=False) as client:
            login = client.post("/auth/token", json={"username": airflow.user, "password": airflow.password})
            authorization = {"Authorization": f"Bearer {login.raise_for_status().json()['access_token']}"}
            client.headers.update(authorization)
            requests: dict[str, Callable[[], object]] = {
                "`/api/v2/monitor/health`": lambda: client.get("/api/v2/monitor/health").raise_for_status(),
                "a DAG, `/api/v2/dags/…/details`": lambda: client.get(
                    f"/api/v2/dags/{DAG_ID}/details"
                ).raise_for_status(),
                "its runs, `/ui/grid/runs/…`": lambda: client.get(f"/ui/grid/runs/{DAG_ID}").raise_for_status(),
            }
            page = _page(stack, airflow)
            return _by_turns(airflow.url, authorization, requests, page, seconds, turns)


def _page(stack: ExitStack, airflow: LocalAirflow) -> Callable[[], object] | None:
    """Return what opens the page of a DAG and waits for what it shows; None where there is no browser."""
    if browser.missing():
        return None
    page: Any = stack.enter_context(browser.page(airflow.url, timeout_ms=120_000))
    browser.log_in(page, airflow.url, airflow.user, airflow.password)

    def opened() -> None:
        page.goto(f"{airflow.url}/dags/{DAG_ID}")
        page.get_by_text("Latest Run").first.wait_for()

    return opened


def _by_turns(
    url: str,
    authorization: dict[str, str],
    requests: dict[str, Callable[[], object]],
    page: Callable[[], object] | None,
    seconds: float,
    turns: int,
) -> list[Answers]:
    times: dict[tuple[str, str], list[float]] = {}
    for ask in (*requests.values(), *([page] if page else [])):
        ask()
    for _ in range(turns):
        for state in STATES:
            with ExitStack() as stack:
                if state == OTHER_WORK:
                    stack.enter_context(_other_work())
                elif state != NOTHING:
                    form = FORMS[STATES.index(state) - 2]
                    stack.enter_context(reading(f"{url}{MOUNT}", form, _READERS, authorization))
                    time.sleep(_WARM_SECONDS)
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    for name, ask in requests.items():
                        times.setdefault((name, state), []).append(_milliseconds(ask))
                        time.sleep(_PAUSE_SECONDS)
                if page is not None:
                    shown = times.setdefault(("the page of a DAG in Chromium", state), [])
                    shown.extend(_milliseconds(page) for _ in range(_PAGES))
    return [
        Answers(name, state, median(values), percentile(values, 0.99), max(values), len(values))
        for (name, state), values in sorted(times.items(), key=lambda one: (one[0][0], STATES.index(one[0][1])))
    ]


@contextmanager
def _other_work() -> Iterator[None]:
    """Run as many processes as there are readers, at the priority of an export's, in the session of this one."""
    command = [sys.executable, "-c", f"import os; os.nice({NICENESS})\n{_COMPUTES}"]
    processes = [subprocess.Popen(command, env=os.environ) for _ in range(_READERS)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _milliseconds(ask: Callable[[], object]) -> float:
    started = time.perf_counter()
    ask()
    return (time.perf_counter() - started) * 1000
