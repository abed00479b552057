"""custody's doors as Airflow's API server mounts them, in gunicorn: two workers that are forked, below a path."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from threading import Thread
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest

from custody.repository import Repository
from custody.serving.access import Scope
from tests.own_environment import folder_of
from tests.support import INCLUDE
from tests.unit.serving.serve_process import token
from tests.unit.serving.test_api_changes import LOAD, ORDERS, SORT, waiting, with_orders

pytestmark = pytest.mark.slow

ROOT = INCLUDE.parent
BELOW = "/team/air/custody"
API = f"{BELOW}/api/v1"
WORKERS = 2
# As Airflow does it: the parent loads everything, and forks.
APPLICATION = f"""\
from pathlib import Path

from starlette.applications import Starlette
from starlette.routing import Mount

from custody_airflow.receiving import mounted_doors

doors = mounted_doors(Path({{root!r}}))
app = Starlette(routes=[Mount({BELOW!r}, doors)], lifespan=doors.router.lifespan_context)
"""


class Asked:
    """One worker, by a connection that stays with it."""

    def __init__(self, port: int, headers: dict[str, str]) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=60)
        self._headers = headers
        self.ask("GET", f"{API}/").read()

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> HTTPResponse:
        sent = None if body is None else json.dumps(body)
        kind = {} if body is None else {"content-type": "application/json"}
        self._connection.request(method, path, sent, {**self._headers, **kind, **headers})
        return self._connection.getresponse()

    def told(self, method: str, path: str, body: object = None, status: int = 200) -> Any:
        answer = self.ask(method, f"{API}/{path}", body)
        text = answer.read()
        assert answer.status == status, text
        return json.loads(text)

    def worker_of(self, parent: psutil.Process) -> int:
        """The number of the process at the other end."""
        port = self._connection.sock.getsockname()[1]
        [pid] = [
            child.pid
            for child in parent.children()
            if any(one.raddr and one.raddr.port == port for one in child.net_connections())
        ]
        return int(pid)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def gunicorn(root: Path, work: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start it, and yield its process and its port."""
    (work / "below.py").write_text(APPLICATION.format(root=str(root)))
    packages = folder_of("gunicorn", Path(__file__).with_name("gunicorn-requirements.txt"))
    path = os.pathsep.join(map(str, (INCLUDE, ROOT / "plugins", work, packages)))
    options = ["--preload", "-w", str(WORKERS), "-k", "uvicorn.workers.UvicornWorker", "-b", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", *options, "below:app"],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said: list[str] = []
    reader: Thread | None = None
    try:
        for line in process.stderr:
            said.append(line)
            if listening := re.search(r"Listening at: http://127\.0\.0\.1:(\d+)", line):
                # A pipe that nobody reads would hold it up.
                reader = Thread(target=lambda: said.extend(process.stderr or ()))
                reader.start()
                yield process, int(listening[1])
                break
        else:
            raise AssertionError(f"gunicorn did not start: {''.join(said)}")
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            if reader is not None:
                reader.join()
            process.stderr.close()


def test_both_workers_answer_all_that_is_asked_below_a_path(tmp_path: Path) -> None:
    repository = with_orders(tmp_path / "repository", LOAD, SORT, ORDERS)
    root = repository.settings.root
    (root / "custody.toml").write_text(
        '[repository]\nwriter_slots = 3\n\n[serve]\ndoors = ["pages"]\ntoken_file = "tokens"\n'
    )
    everything = token(root, "everything", Scope.READ, Scope.CONTENT, Scope.REPLAY)
    [loaded, *_] = repository.search("component_id:dag.load", oldest_first=True).events
    claim = loaded.event.content_claim
    assert claim is not None
    content = b"17,late"
    with gunicorn(root, tmp_path) as (process, port):
        parent = psutil.Process(process.pid)
        workers: dict[int, Asked] = {}
        opened: list[Asked] = []
        # Either worker may take a connection: as many are opened as it takes to have one of each.
        while len(workers) < WORKERS:
            assert len(opened) < 200
            opened.append(Asked(port, everything))
            workers[opened[-1].worker_of(parent)] = opened[-1]
        jobs = {}
        for pid, worker in workers.items():
            _asks_as_the_library_does(worker, repository)
            where = f"{API}/events/{loaded.writer}/{loaded.event.event_id}/content"
            part = worker.ask("GET", where, Range="bytes=3-5")
            assert (part.status, part.read()) == (206, content[3:6])
            assert part.headers["content-range"] == f"bytes 3-5/{len(content)}"
            jobs[pid] = worker.told("POST", "replay-plans?wait=10", {"query": "component_id:dag.sort"}, 202)
        assert len({job["owner"] for job in jobs.values()}) == WORKERS
        # Each answers for the job of the other, and the plan of one is run by the other: once.
        for pid, job in jobs.items():
            for worker in workers.values():
                seen = worker.told("GET", f"jobs/{job['id']}?wait=10")
                assert (seen["state"], seen["result"]["events"]) == ("succeeded", ORDERS)
            [other] = [worker for number, worker in workers.items() if number != pid]
        for worker in (other, *workers.values()):
            run = worker.told("POST", f"{seen['result']['href']}/runs?wait=10", {}, 202)
            assert run["state"] == "succeeded", run
        assert waiting(repository) == ORDERS
        stranger = HTTPConnection("127.0.0.1", port, timeout=60)
        with closing(stranger):
            stranger.request("GET", f"{API}/events")
            assert stranger.getresponse().status == 401
        for one in opened:
            one.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    # No worker is left, and the slots of both are free.
    after = Repository.open(root)
    with after.writer(), after.writer(), after.writer():
        pass


def _asks_as_the_library_does(worker: Asked, repository: Repository) -> None:
    page = worker.ask("GET", f"{BELOW}/ui/search.html")
    assert (page.status, b'<div id="page">' in page.read()) == (200, True)
    assert "script-src 'self'" in page.headers["content-security-policy"]
    found = repository.search("component_id:dag.sort", limit=2)
    first = worker.told("GET", "events?q=component_id:dag.sort&limit=2")
    assert (first["total"], len(first["items"])) == (found.total, 2)
    assert [one["event"]["event_id"] for one in first["items"]] == [one.event.event_id for one in found.events]
    # Addresses are relative: they lead on below the path.
    assert len(worker.told("GET", first["next"])["items"]) == found.total - 2
    export = worker.ask("GET", f"{API}/events/export?format=ndjson")
    *lines, end = export.read().splitlines(keepends=True)
    assert len(lines) == repository.search("").total == json.loads(end)["events"]
    assert json.loads(end)["digest"] == f"sha-256:{hashlib.sha256(b''.join(lines)).hexdigest()}"
