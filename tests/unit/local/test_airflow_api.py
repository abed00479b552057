"""The client of Airflow's REST API against answers that a real one gives only when it is overloaded."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from custody_local.airflow_api import AirflowClient
from custody_local.errors import LocalAirflowError

DATABASE_ERROR = {"detail": {"reason": "Database error", "message": "database is locked"}}
DAY = datetime(2026, 11, 9, tzinfo=UTC)


class Overloaded(ThreadingHTTPServer):
    """Makes a backfill and then finds its database locked, so that the same question meets a conflict."""

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), Answers)
        self.backfills: dict[int, bool] = {1: True}
        self.creations: list[int] = []
        self.looks = 0
        self.is_broken = False

    def create(self) -> tuple[int, object]:
        if self.is_broken:
            return 500, {"detail": {"reason": "Database error", "message": "x" * 10_000 + " disk I/O error"}}
        if not all(self.backfills.values()):
            return 409, {"detail": "There is already a running backfill"}
        number = max(self.backfills) + 1
        self.backfills[number] = False
        self.creations.append(number)
        return (500, DATABASE_ERROR) if len(self.creations) == 1 else (200, {"id": number})

    def look(self, number: int) -> tuple[int, object]:
        self.looks += 1
        self.backfills[number] = self.looks > 1
        return 200, {"completed_at": "2026-11-09T00:00:00Z" if self.backfills[number] else None}


class Answers(BaseHTTPRequestHandler):
    server: Overloaded

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self._answer(*((201, {"access_token": "t"}) if self.path == "/auth/token" else self.server.create()))

    def do_GET(self) -> None:
        last = self.path.partition("?")[0].rpartition("/")[2]
        if last.isdecimal():
            self._answer(*self.server.look(int(last)))
        else:
            self._answer(200, {"backfills": [{"id": number} for number in self.server.backfills]})

    def _answer(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output quiet."""


@pytest.fixture
def server() -> Iterator[Overloaded]:
    with Overloaded() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def client(server: Overloaded) -> Iterator[AirflowClient]:
    with AirflowClient(f"http://127.0.0.1:{server.server_address[1]}", "admin", "secret") as client:
        yield client


def test_a_backfill_that_was_left_half_made_is_waited_for_and_asked_for_again(
    server: Overloaded, client: AirflowClient
) -> None:
    assert client.backfill("greet", DAY, DAY) == 3
    assert server.creations == [2, 3]
    assert server.looks == 2


def test_a_backfill_of_somebody_else_is_a_conflict(server: Overloaded, client: AirflowClient) -> None:
    server.backfills[2] = False
    with pytest.raises(LocalAirflowError, match=r"409: .*already a running backfill"):
        client.backfill("greet", DAY, DAY)


def test_a_server_that_is_started_again_is_waited_for(server: Overloaded, client: AirflowClient) -> None:
    port = server.server_address[1]
    server.shutdown()
    server.server_close()

    def start_again() -> None:
        with Overloaded(port) as again:
            for _ in ("login", "question"):
                again.handle_request()

    starter = threading.Timer(1.2, start_again)
    starter.start()
    assert client.dag("greet") == {"backfills": [{"id": 1}]}
    starter.join()


def test_a_server_that_is_gone_is_named(server: Overloaded) -> None:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    expected = r"http://127\.0\.0\.1:\d+.*: expected Airflow's server, got: "
    with AirflowClient(url, "admin", "secret", start_s=1) as client, pytest.raises(LocalAirflowError, match=expected):
        client.dag("greet")


def test_a_long_answer_is_shown_with_its_end(
    server: Overloaded, client: AirflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("custody_local.airflow_api._PAUSE_SECONDS", 0.0)
    server.is_broken = True
    with pytest.raises(
        LocalAirflowError, match=r"POST /api/v2/backfills: .* 500: .*\[\.\.\.\].*disk I/O error"
    ) as caught:
        client.backfill("greet", DAY, DAY)
    assert len(str(caught.value)) < 7000
