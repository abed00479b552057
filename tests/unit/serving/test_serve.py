"""The server as a whole: several workers, kills, stops, doors beside each other, numbers, and the log."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

from custody.cli.main import cli
from custody.repository import Repository
from tests.support import run_steps
from tests.unit.capture.sample_inputs import run_event
from tests.unit.serving.receiver_process import JSON, notification
from tests.unit.serving.serve_process import Served, served

ONE = "/api/v1/lineage"


def deliver(at: Served, number: int) -> int | None:
    """Deliver an event until it is answered; None where nobody is there any more."""
    body = json.dumps(run_event("START", number)).encode()
    for _ in range(50):
        try:
            answer = at.post(ONE, body)
        except httpx.TransportError:
            if at.process.poll() is not None:
                return None
            time.sleep(0.2)
            continue
        if answer.status_code != 503:
            return answer.status_code
        time.sleep(0.2)
    raise AssertionError("the server does not take it")


def run_ids(root: Path) -> list[int]:
    repository = Repository.open(root)
    writers = [workspace.writer for workspace in repository.workspaces()]
    events = [event for writer in writers for event in repository.events(writer=writer)]
    return sorted(int(str(event.attributes["openlineage.run_id"])[-12:]) for event in events)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text("[repository]\nwriter_slots = 4\n")
    return root


@pytest.mark.in_parts(2)
def test_workers_share_an_address_an_event_that_reaches_two_is_stored_once_and_a_killed_one_comes_back(
    root: Path,
) -> None:
    with served(root, "--workers", "2", "--quiet") as at:
        workers = psutil.Process(at.process.pid).children()
        assert len(workers) == 2
        with ThreadPoolExecutor(8) as pool:
            first = list(pool.map(lambda number: deliver(at, number), [*range(40), *range(40)]))
            assert sorted(first, key=str) == [200] * 40 + [201] * 40
            os.kill(workers[0].pid, signal.SIGKILL)
            second = list(pool.map(lambda number: deliver(at, number), range(100, 140)))
        # 200 where the killed worker had stored it and could not say so.
        assert set(second) <= {200, 201}
        deadline = time.monotonic() + 60
        while at.measures().get("custody_workers_answering") != 2:
            assert time.monotonic() < deadline, at.log()
            time.sleep(0.2)
        labels = {'worker="0"', 'worker="1"'}
        assert {label for label in labels if any(label in name for name in at.measures())} == labels
        at.process.terminate()
        assert at.process.wait(60) == 0
    assert run_ids(root) == [*range(40), *range(100, 140)]
    assert Repository.open(root).status().slots_taken == 0
    # Who ended in order sealed its journals; the killed one's wait for recovery, unless its successor took its slot.
    open_journals = list(root.glob("containers/*/*/journals/*.journal"))
    assert len({path.parent for path in open_journals}) <= 1
    run_steps(Repository.open(root).settings)
    assert run_ids(root) == [*range(40), *range(100, 140)]
    assert not list(root.glob("containers/*/*/journals/*"))


def test_more_workers_than_slots_are_refused_before_anything_starts(root: Path) -> None:
    done = CliRunner().invoke(cli, ["-r", str(root), "serve", "--workers", "5", "--port", "0"])
    assert done.exit_code == 11
    assert "repository.writer_slots: expected at least 5" in done.stderr


@pytest.mark.in_parts(2)
def test_workers_that_cannot_start_end_the_server_with_an_error(root: Path) -> None:
    held = Repository.open(root)
    (root / "custody.toml").write_text("[repository]\nwriter_slots = 2\nwriter_wait_seconds = 0\n")
    held = Repository.open(root)
    with held.writer():
        done = CliRunner().invoke(cli, ["-r", str(root), "serve", "--workers", "2", "--port", "0"])
    assert done.exit_code != 0
    assert "ended 4 times before it was ready" in done.stderr.replace("\n", " ")


@pytest.mark.in_parts(2)
def test_sigterm_answers_what_has_begun_and_loses_nothing_that_was_answered(root: Path) -> None:
    with served(root, "--quiet") as at:
        with ThreadPoolExecutor(8) as pool:
            codes = [pool.submit(deliver, at, number) for number in range(200)]
            assert [code.result() for code in codes[:11]] == [201] * 11
            at.process.send_signal(signal.SIGTERM)
            answered = [number for number, code in enumerate(codes) if code.result() == 201]
        assert at.process.wait(60) == 0
    assert len(answered) >= 11
    assert set(answered) <= set(run_ids(root))
    assert {path.suffix for path in root.glob("containers/*/*/journals/*")} == {".sealed"}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("doors") / "repository"
    Repository.create(root)
    with served(root, "--door", "openlineage", "--door", "ngsi") as server:
        yield server


def test_doors_stand_beside_each_other_and_each_is_counted(both: Served) -> None:
    assert both.post("/notify", notification(1), JSON).status_code == 200
    assert both.post("/notify", b"{nonsense", JSON).status_code == 400
    assert both.post(ONE, json.dumps(run_event("START", 1)).encode()).status_code == 201
    assert both.get("/ngsi/health").json()["notifications"] == 1
    assert both.get("/readyz").json() == {"status": "ok", "doors": {"openlineage": "ready", "ngsi": "ready"}}
    text = both.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert len(families) == text.count("# TYPE")
    measures = both.measures()
    assert measures['custody_requests_total{door="ngsi",status="200"}'] >= 1
    assert measures['custody_requests_total{door="ngsi",status="400"}'] == 1
    assert measures['custody_ngsi_answers_total{answer="not-json"}'] == 1
    assert measures['custody_openlineage_events_total{outcome="stored"}'] == 1
    assert measures['custody_request_seconds_count{door="openlineage"}'] == 1
    assert measures["custody_waiting_bytes"] > 0
    assert measures["custody_live_lag_seconds"] >= 0
    assert measures["custody_requests_under_way"] == 1, "this one"
    assert measures["custody_body_bytes_held"] == 0


def test_lag_and_waiting_bytes_are_gone_when_events_are_live(root: Path) -> None:
    with served(root, "--quiet") as at:
        assert deliver(at, 1) == 201
        assert at.measures()["custody_waiting_bytes"] > 0
    Repository.open(root).roll_over()
    with served(root, "--quiet") as at:
        measures = at.measures()
    assert (measures["custody_waiting_bytes"], measures["custody_live_lag_seconds"]) == (0, 0)


@pytest.mark.parametrize(
    "path",
    ["/", "/..%2f..%2fetc/passwd", "/openlineage/%00", "/notify/../x", "//api/v1/lineage", "/metrics/", "/readyz/x"],
)
def test_every_other_path_is_answered_with_404_in_the_one_shape_of_errors(both: Served, path: str) -> None:
    for answer in (both.get(path), both.post(path, b"{}")):
        assert answer.status_code == 404
        assert answer.json() == {"error": "no-route", "message": "nothing is taken or answered here"}


def test_a_request_with_two_meanings_is_refused(both: Served) -> None:
    body = json.dumps(run_event("START", 9)).encode()
    twice = [("content-type", "application/json"), ("content-type", "text/plain")]
    answer = httpx.post(f"{both.url}{ONE}", content=body, headers=twice)
    assert (answer.status_code, answer.json()["error"]) == (400, "ambiguous")


def test_more_bytes_than_may_be_held_are_told_to_come_again(root: Path) -> None:
    limit = {"CUSTODY__SERVE__WAITING_BYTES_MAX": str(1 << 20)}
    with served(root, "--quiet", **limit) as at:
        answer = at.post(ONE, b" " * (2 << 20))
        assert (answer.status_code, answer.json()["error"]) == (503, "busy")
        assert "retry-after" in answer.headers
        assert deliver(at, 1) == 201, "what was held is given back"
        assert at.measures()["custody_body_bytes_held"] == 0
        assert at.measures()['custody_refusals_total{door="openlineage",reason="busy"}'] == 1
