"""A client of Airflow's REST API: the login, patience with a busy Airflow, and runs of DAGs with their tasks.

It has what the demo and the tests need, and no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from custody_local.errors import LocalAirflowError

# Two waits for the lock of a SQLite (custody_local.settings), and some.
_REQUEST_SECONDS = 180.0
_PAUSE_SECONDS = 0.5
# A server that was started again listens after ten seconds, and later on a busy machine.
_START_SECONDS = 60.0
# Said by Airflow when its database is busy, or by its server while it starts: the next try succeeds. So does the one
# after a "Database error": on SQLite the line in the log of requests, written first of all, found it locked.
_BUSY = frozenset({502, 503, 504})
_TRIES = 8
_SHOWN = 6000
_POLL_SECONDS = 0.5
_ENDED = frozenset({"success", "failed"})


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a DAG."""

    dag_id: str
    run_id: str
    state: str
    start: datetime | None
    end: datetime | None
    kind: str = "manual"
    """What started it: manual, scheduled, asset_triggered or backfill."""

    @property
    def has_ended(self) -> bool:
        """Whether the run will not change any more by itself."""
        return self.state in _ENDED


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One task of one run; `state` is None while the scheduler has not looked at it."""

    task_id: str
    map_index: int
    state: str | None
    try_number: int
    start: datetime | None
    end: datetime | None
    duration_s: float | None


def parse_time(text: str | None) -> datetime | None:
    """Read one of Airflow's times; None where it gave none."""
    return datetime.fromisoformat(text) if text else None


def parse_run(entry: Mapping[str, Any]) -> Run:
    """Read a run from the answer of the REST API."""
    return Run(
        dag_id=entry["dag_id"],
        run_id=entry["dag_run_id"],
        state=entry["state"],
        start=parse_time(entry["start_date"]),
        end=parse_time(entry["end_date"]),
        kind=entry["run_type"],
    )


def parse_task(entry: Mapping[str, Any]) -> TaskRun:
    """Read a task instance from the answer of the REST API."""
    return TaskRun(
        task_id=entry["task_id"],
        map_index=entry["map_index"],
        state=entry["state"],
        try_number=entry["try_number"],
        start=parse_time(entry["start_date"]),
        end=parse_time(entry["end_date"]),
        duration_s=entry["duration"],
    )


def ignore(_message: str) -> None:
    """Report progress to nobody."""


class AirflowClient:
    """Talks to one Airflow as one user; use it as a context manager, or call `close`.

    A server that does not listen is waited for, `start_s` seconds at most.
    """

    def __init__(self, url: str, user: str, password: str, *, start_s: float = _START_SECONDS) -> None:
        self._start_s = start_s
        # Without the environment's proxies: this Airflow is on this host.
        self._http = httpx.Client(base_url=url, timeout=_REQUEST_SECONDS, trust_env=False)
        self._login = {"username": user, "password": password}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def health(self) -> dict[str, str]:
        """Return the state of each component, `healthy` or otherwise; needs no login."""
        answer = self._http.get("/api/v2/monitor/health")
        answer.raise_for_status()
        return {name: str(part["status"]) for name, part in answer.json().items() if part}

    def wait_for_dag(self, dag_id: str, *, timeout_s: float = 120) -> None:
        """Wait until Airflow has read the DAG.

        Raises:
            LocalAirflowError: it cannot be imported, or it did not turn up in time.
        """
        deadline = time.monotonic() + timeout_s
        while not self._has_dag(dag_id):
            errors = self.import_errors()
            own = {file: text for file, text in errors.items() if PurePath(file).stem == dag_id}
            if own or time.monotonic() > deadline:
                shown = "\n".join(f"{file}:\n{text}" for file, text in (own or errors).items())
                raise LocalAirflowError(
                    f"DAG {dag_id}: expected it within {timeout_s:.0f} s, Airflow has not read it. "
                    f"Import errors: {shown or 'none; check that its file lies in dags/'}"
                )
            time.sleep(_POLL_SECONDS)

    def dag(self, dag_id: str) -> dict[str, Any]:
        """Return what Airflow's page of a DAG shows of it: documentation, parameters, schedule."""
        return self._get(f"/dags/{quote(dag_id)}/details")

    def import_errors(self) -> dict[str, str]:
        """Return the DAG files that Airflow could not import, with the traceback of each."""
        errors = self._get("/importErrors")["import_errors"]
        return {str(error["filename"]): str(error["stack_trace"]) for error in errors}

    def unpause(self, dag_id: str) -> None:
        """Let the DAG's runs start; DAGs begin paused.

        Its file is read once more: Airflow lets an asset of a DAG be watched only when it reads one that is not paused.
        """
        dag = self._call("PATCH", f"/dags/{quote(dag_id)}", json={"is_paused": False})
        answer = self._send("PUT", f"/parseDagFile/{quote(dag['file_token'], safe='')}")
        if answer.status_code != httpx.codes.CONFLICT:  # else it was asked for already, and not read yet
            expect_success(answer)

    def pause(self, dag_id: str) -> None:
        """Let no further run of the DAG start by schedule."""
        self._call("PATCH", f"/dags/{quote(dag_id)}", json={"is_paused": True})

    def trigger(self, dag_id: str, conf: Mapping[str, object] | None = None) -> str:
        """Start a run with the given parameters, as the trigger form does, and return its id."""
        body = {"logical_date": None, "conf": dict(conf or {})}
        return str(self._call("POST", f"/dags/{quote(dag_id)}/dagRuns", json=body)["dag_run_id"])

    def backfill(
        self,
        dag_id: str,
        start: datetime,
        end: datetime,
        *,
        again: bool = False,
        backwards: bool = False,
        conf: Mapping[str, object] | None = None,
    ) -> int:
        """Start the runs of all intervals from start to end, as the backfill form does, and return the backfill's id.

        With `again` runs that were successful are done once more; `backwards` begins with the newest interval.
        """
        body: dict[str, object] = {
            "dag_id": dag_id,
            "from_date": start.isoformat(),
            "to_date": end.isoformat(),
            "reprocess_behavior": "completed" if again else "none",
            "run_backwards": backwards,
            "max_active_runs": 2,
            "dag_run_conf": dict(conf or {}),
        }
        earlier = self._backfills(dag_id)
        answer = self._send("POST", "/backfills", json=body)
        if answer.status_code == httpx.codes.CONFLICT and (unfinished := self._backfills(dag_id) - earlier):
            # An attempt that found the database locked half-way: Airflow ends it, empty after two minutes or with what
            # it was given, and until then there is no other one.
            self.wait_for_backfill(max(unfinished))
            answer = self._send("POST", "/backfills", json=body)
        return int(expect_success(answer)["id"])

    def wait_for_backfill(self, backfill_id: int, *, timeout_s: float = 600) -> None:
        """Wait until Airflow says that all runs of a backfill have ended.

        Raises:
            LocalAirflowError: they have not ended in time.
        """
        deadline = time.monotonic() + timeout_s
        while self._get(f"/backfills/{backfill_id}")["completed_at"] is None:
            if time.monotonic() > deadline:
                raise LocalAirflowError(
                    f"backfill {backfill_id}: expected its end within {timeout_s:.0f} s. Look at the DAG's runs."
                )
            time.sleep(_POLL_SECONDS)

    def _backfills(self, dag_id: str) -> set[int]:
        """The ids of the newest hundred backfills of a DAG."""
        entries = self._get("/backfills", dag_id=dag_id, order_by="-id", limit="100")["backfills"]
        return {int(entry["id"]) for entry in entries}

    def newest_backfill(self, dag_id: str) -> int:
        """Return the id of the backfill that was created last, by whomever.

        Raises:
            LocalAirflowError: the DAG has none.
        """
        ids = self._backfills(dag_id)
        if not ids:
            raise LocalAirflowError(f"DAG {dag_id}: expected a backfill, it has none.")
        return max(ids)

    def count_runs(self, dag_id: str, *, state: str | None = None, kind: str | None = None) -> int:
        """Return how many runs the DAG has, or has in a state, or of a kind (`Run.kind`)."""
        filters = {name: value for name, value in (("state", state), ("run_type", kind)) if value is not None}
        return int(self._get(f"/dags/{quote(dag_id)}/dagRuns", limit="1", **filters)["total_entries"])

    def run(self, dag_id: str, run_id: str) -> Run:
        """Return one run as it is now."""
        return parse_run(self._get(_run_path(dag_id, run_id)))

    def params(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """Return the parameters that a run was started with, as its form sent them."""
        conf: dict[str, Any] = self._get(_run_path(dag_id, run_id))["conf"]
        return conf

    def runs(self, dag_id: str) -> list[Run]:
        """Return the DAG's newest hundred runs, newest first."""
        path = f"/dags/{quote(dag_id)}/dagRuns"
        page = self._get(path, order_by="-run_after", limit="100")
        return [parse_run(entry) for entry in page["dag_runs"]]

    def asset_events(self, name: str) -> list[dict[str, Any]]:
        """Return the events of the asset of a name, oldest first; none when there is no such asset yet."""
        assets = self._get("/assets", name_pattern=name, limit="100")["assets"]
        [asset] = [entry for entry in assets if entry["name"] == name] or [None]
        if asset is None:
            return []
        events: list[dict[str, Any]] = self._get(
            "/assets/events", asset_id=str(asset["id"]), order_by="timestamp", limit="100"
        )["asset_events"]
        return events

    def wait_for_runs(self, dag_id: str, count: int, *, timeout_s: float = 120) -> list[Run]:
        """Wait until a DAG has so many runs, all ended, and return them, oldest first.

        Raises:
            LocalAirflowError: it has not in time.
        """
        deadline = time.monotonic() + timeout_s
        while len(runs := self.runs(dag_id)) < count or not all(run.has_ended for run in runs):
            if time.monotonic() > deadline:
                states = [f"{run.run_id}: {run.state}" for run in runs]
                raise LocalAirflowError(
                    f"DAG {dag_id}: expected {count} runs within {timeout_s:.0f} s, it has {len(runs)}: {states}"
                )
            time.sleep(_POLL_SECONDS)
        return runs[::-1]

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return the run's state: queued, running, success or failed."""
        return self.run(dag_id, run_id).state

    def wait_for_run(
        self,
        dag_id: str,
        run_id: str,
        *,
        timeout_s: float = 600,
        progress: Callable[[list[TaskRun]], None] | None = None,
    ) -> Run:
        """Wait until the run has ended, well or not, and return it; `progress` sees its tasks.

        Raises:
            LocalAirflowError: it has not ended in time.
        """
        deadline = time.monotonic() + timeout_s
        while not (run := self.run(dag_id, run_id)).has_ended:
            if progress is not None:
                progress(self.task_instances(dag_id, run_id))
            if time.monotonic() > deadline:
                states = [f"{task.task_id}: {task.state}" for task in self.task_instances(dag_id, run_id)]
                raise LocalAirflowError(
                    f"run {run_id} of {dag_id}: expected its end within {timeout_s:.0f} s, "
                    f"it is {run.state} ({', '.join(states)}). Look at the logs of its tasks."
                )
            time.sleep(_POLL_SECONDS)
        return run

    def queued_since(self) -> list[datetime]:
        """Return since when tasks of any run wait in the executor's queue, at most a hundred of them."""
        path = "/dags/~/dagRuns/~/taskInstances"
        tasks = self._get(path, state="queued", limit="100")["task_instances"]
        return [since for entry in tasks if (since := parse_time(entry["queued_when"])) is not None]

    def task_instances(self, dag_id: str, run_id: str) -> list[TaskRun]:
        """Return the run's tasks in the order in which they started; those that have not come last."""
        page = self._get(f"{_run_path(dag_id, run_id)}/taskInstances", limit="1000")
        tasks = [parse_task(entry) for entry in page["task_instances"]]
        return sorted(tasks, key=lambda task: (task.start is None, str(task.start), task.task_id))

    def xcom(
        self,
        dag_id: str,
        run_id: str,
        task_id: str,
        *,
        key: str = "return_value",
        map_index: int = -1,
    ) -> object:
        """Return what the task left under a key, as the JSON value it is."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}/xcomEntries/{quote(key)}"
        entry = self._get(path, map_index=str(map_index), stringify="false")
        value: object = entry["value"]
        return value

    def task_log(self, dag_id: str, run_id: str, task_id: str, *, try_number: int = 1) -> str:
        """Return the log of one try of a task, one line an entry, and one for each exception that an entry is about."""
        path = f"{_run_path(dag_id, run_id)}/taskInstances/{quote(task_id)}/logs/{try_number}"
        content = self._get(path, full_content="true")["content"]
        return "\n".join(_log_line(entry) for entry in content)

    def set_pool(self, name: str, slots: int, description: str = "") -> None:
        """Make a pool, or give it another size."""
        body = {"name": name, "slots": slots, "description": description, "include_deferred": False}
        action = {"action": "create", "action_on_existence": "overwrite", "entities": [body]}
        answer = self._call("PATCH", "/pools", json={"actions": [action]})
        if errors := answer["create"]["errors"]:
            raise LocalAirflowError(f"pool {name}: not made, Airflow says: {errors}")

    def _has_dag(self, dag_id: str) -> bool:
        return self._send("GET", f"/dags/{quote(dag_id)}").status_code == httpx.codes.OK

    def _get(self, path: str, **query: str) -> dict[str, Any]:
        return self._call("GET", path, params=query)

    def _call(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        return expect_success(self._send(method, path, json=json, params=params))

    def _send(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        params: dict[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request; log in where needed, and wait a little where Airflow is busy."""
        for attempt in range(_TRIES):
            answer = self._ask(method, path, json=json, params=params)
            if answer.status_code == httpx.codes.UNAUTHORIZED:
                del self._http.headers["authorization"]  # outlived by this client
            elif not _is_busy(answer):
                break
            time.sleep(_PAUSE_SECONDS * attempt)
        return answer

    def _ask(self, method: str, path: str, *, json: object, params: dict[str, str] | None) -> httpx.Response:
        """Send a request once; wait for a server that is started again: where it was not reached, nothing was done."""
        deadline = time.monotonic() + self._start_s
        while True:
            try:
                if "authorization" not in self._http.headers:
                    self._log_in()
                return self._http.request(method, f"/api/v2{path}", json=json, params=params)
            except httpx.ConnectError as error:
                if time.monotonic() > deadline:
                    raise LocalAirflowError(
                        f"{self._http.base_url}: expected Airflow's server, got: {error}. Look at logs/components in "
                        f"Airflow's folder."
                    ) from error
            time.sleep(_PAUSE_SECONDS)

    def _log_in(self) -> None:
        answer = self._http.post("/auth/token", json=self._login)
        if answer.is_error:
            raise LocalAirflowError(
                f"login of {self._login['username']}: expected a token, Airflow answered "
                f"{answer.status_code}. Check the password."
            )
        self._http.headers["authorization"] = f"Bearer {answer.json()['access_token']}"


def expect_success(answer: httpx.Response) -> dict[str, Any]:
    """Return what was answered.

    Raises:
        LocalAirflowError: Airflow refused, or failed.
    """
    request = answer.request
    if answer.is_error:
        raise LocalAirflowError(
            f"{request.method} {request.url.path}: expected success, Airflow answered {answer.status_code}: "
            f"{_shorten(answer.text)}"
        )
    document: dict[str, Any] = answer.json()
    return document


def _shorten(text: str) -> str:
    """Return the start and the end of a long answer: the request, and the error at the end of Airflow's traceback."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} [...] {text[-_SHOWN // 2 :]}"


def _is_busy(answer: httpx.Response) -> bool:
    is_locked = answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR and '"Database error"' in answer.text
    return is_locked or answer.status_code in _BUSY


def _run_path(dag_id: str, run_id: str) -> str:
    # safe="": a run id holds a time with colons and a plus.
    return f"/dags/{quote(dag_id)}/dagRuns/{quote(run_id, safe='')}"


def _log_line(entry: str | Mapping[str, Any]) -> str:
    if isinstance(entry, str):
        return entry
    # An entry about an exception says so, and nothing else: the exception stands beside it.
    errors = [f"  {error['exc_type']}: {error['exc_value']}" for error in entry.get("error_detail") or ()]
    return "\n".join([str(entry["event"]), *errors])
