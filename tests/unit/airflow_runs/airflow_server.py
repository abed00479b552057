"""A server that answers as Airflow's REST API does, from lists; what a real one says is in tests/airflow."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
PAGE = 2
PASSWORD = "pass ${word}'s"  # noqa: S105 - of this server alone


def text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")


@dataclass
class Airflow:
    """What an Airflow knows; `updated` of an entry is when it changed last."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    tries: list[dict[str, Any]] = field(default_factory=list)
    """The newest try of each task."""
    history: list[dict[str, Any]] = field(default_factory=list)
    """Earlier tries."""
    assets: list[dict[str, Any]] = field(default_factory=list)
    asset_events: list[dict[str, Any]] = field(default_factory=list)
    now: datetime = NOW
    asked: list[str] = field(default_factory=list)
    tokens: int = 0
    """Tokens that were given out; only the newest one counts."""
    broken: list[int] = field(default_factory=list)
    """Statuses of the next answers, instead of what was asked for."""
    without_cursors: bool = False

    def add_run(self, dag: str, run: str, minutes: float, state: str = "success") -> None:
        """A run that was due half an hour before it changed last, so many minutes ago."""
        end = self.now - timedelta(minutes=minutes)
        start = end - timedelta(minutes=2)
        entry: dict[str, Any] = {"dag_id": dag, "dag_run_id": run, "state": state, "run_type": "scheduled"}
        entry |= {"run_after": text(end - timedelta(minutes=30)), "logical_date": None, "updated": end}
        entry |= {"start_date": text(start), "end_date": text(end if state in ("success", "failed") else None)}
        self.runs.append(entry)

    def add_try(
        self, dag: str, run: str, task: str, minutes: float, state: str | None = "success", **other: Any
    ) -> None:
        end = self.now - timedelta(minutes=minutes)
        entry = {"dag_id": dag, "dag_run_id": run, "task_id": task, "map_index": -1, "try_number": 1, "state": state}
        entry |= {"run_after": text(end - timedelta(minutes=30)), "logical_date": None, "updated": end}
        entry |= {"start_date": text(end - timedelta(minutes=1)), "end_date": text(end), "operator": "PythonOperator"}
        self.tries.append(entry | {"hostname": "worker-7"} | other)

    def page(self, path: str, asked: dict[str, str]) -> dict[str, Any] | None:
        parts = [unquote(part) for part in path.removeprefix("/api/v2/").split("/")]
        if path == "/api/v2/dags/~/dagRuns":
            return self._changed("dag_runs", self.runs, asked)
        if path == "/api/v2/dags/~/dagRuns/~/taskInstances":
            return self._changed("task_instances", self.tries, asked)
        if parts[-1] == "tries":
            key = (parts[1], parts[3], parts[5], int(parts[6]))
            own = [entry for entry in [*self.history, *self.tries] if _key(entry) == key]
            own = [entry for entry in own if entry["state"] != "up_for_retry"]
            # The history says nothing of the run.
            shown = [{name: value for name, value in entry.items() if name != "run_after"} for entry in own]
            return {"task_instances": shown, "total_entries": len(own)} if own else None
        if path == "/api/v2/assets":
            return {"assets": self.assets[int(asked["offset"]) :][:100], "total_entries": len(self.assets)}
        if path == "/api/v2/assets/events":
            begin, end = (datetime.fromisoformat(asked[name]) for name in ("timestamp_gte", "timestamp_lt"))
            own = [entry for entry in self.asset_events if begin <= entry["at"] < end]
            return {"asset_events": own[int(asked["offset"]) :][:100], "total_entries": len(own)}
        return {"version": "3.3.2"} if path == "/api/v2/version" else None

    def _changed(self, name: str, entries: list[dict[str, Any]], asked: dict[str, str]) -> dict[str, Any]:
        begin, end = (datetime.fromisoformat(asked[key]) for key in ("updated_at_gte", "updated_at_lt"))
        own = [entry for entry in entries if begin <= entry["updated"] < end]
        first = int(asked["cursor"] or 0)
        more = str(first + PAGE) if len(own) > first + PAGE else None
        return {name: own[first : first + PAGE]} | ({} if self.without_cursors else {"next_cursor": more})


def _key(entry: dict[str, Any]) -> tuple[str, str, str, int]:
    return entry["dag_id"], entry["dag_run_id"], entry["task_id"], entry["map_index"]


@contextmanager
def serving(airflow: Airflow) -> Iterator[str]:
    """Yield the address of a server that answers for it."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body as one piece: the client does not wait for a second one

        def do_GET(self) -> None:
            place = urlsplit(self.path)
            airflow.asked.append(place.path)
            if airflow.broken:
                return self._answer(airflow.broken.pop(0), {"detail": "Database error"})
            if self.headers["authorization"] != f"Bearer token-{airflow.tokens}":
                return self._answer(401, {"detail": "Not authenticated"})
            fields = {name: values[0] for name, values in parse_qs(place.query, keep_blank_values=True).items()}
            page = airflow.page(place.path, fields)
            return self._answer(404 if page is None else 200, page or {"detail": "not there"})

        def do_POST(self) -> None:
            login = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path != "/auth/token" or login != {"username": "custody", "password": PASSWORD}:
                return self._answer(401, {"detail": f"Invalid credentials {login}"})
            airflow.tokens += 1
            return self._answer(201, {"access_token": f"token-{airflow.tokens}"})

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(airflow.now.timestamp())

        def _answer(self, status: int, document: object) -> None:
            body = json.dumps(document, default=str).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            self.wfile.flush()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
