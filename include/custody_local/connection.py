"""A connection to Airflow's REST API: the login, and what to do about an Airflow that is busy."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Any, Self

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


class Connection:
    """One user's connection; use it as a context manager, or call `close`.

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
    found: dict[str, Any] = answer.json()
    return found


def _shorten(text: str) -> str:
    """Return begin and end of a long answer: what was asked of Airflow, and the error at the end of its traceback."""
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]} [...] {text[-_SHOWN // 2 :]}"


def _is_busy(answer: httpx.Response) -> bool:
    is_locked = answer.status_code == httpx.codes.INTERNAL_SERVER_ERROR and '"Database error"' in answer.text
    return is_locked or answer.status_code in _BUSY
