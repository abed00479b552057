"""What Airflow's REST API says of runs, tries and assets, page by page: a client that only reads.

A user and a password are exchanged for a token, which is asked for again when Airflow calls it too old. Neither is in
any message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from custody.errors import ConfigurationError, CorruptionError, StorageError

PAGE_ENTRIES = 100
"""What Airflow gives of one page at most, unless it was told otherwise."""
_ANSWER_BYTES_MAX = 64 << 20
_TRIES = 6
_PAUSE_SECONDS_MAX = 20.0
# Its database is busy, a server behind a proxy starts again, or somebody asks too much.
_LATER = frozenset({408, 429, 500, 502, 503, 504})
_SHOWN = 300
Answer = TypeVar("Answer")
Page = TypeVar("Page", bound="_CursorPage")


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who asks: a user with a password, or a token; `repr` shows neither."""

    user: str = ""
    password: str = ""
    token: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.user!r})"


class RunEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a DAG."""

    dag_id: str
    dag_run_id: str
    run_after: datetime
    state: str
    run_type: str | None = None
    logical_date: datetime | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None


class TryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A try of a task, as it is or as it was."""

    dag_id: str
    dag_run_id: str
    task_id: str
    map_index: int
    try_number: int
    state: str | None = None
    start_date: datetime | None = None
    end_date: datetime | None = None
    hostname: str | None = None
    operator: str | None = None
    run_after: datetime | None = None
    """None of an earlier try: it is the run's."""
    logical_date: datetime | None = None


class AssetEventEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An asset was written."""

    uri: str | None = None
    source_dag_id: str | None = None
    source_run_id: str | None = None
    source_task_id: str | None = None
    source_map_index: int = -1


class TaskReference(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a DAG."""

    dag_id: str
    task_id: str


class AssetEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An asset, and the tasks that read it."""

    uri: str
    consuming_tasks: tuple[TaskReference, ...] = ()


class _CursorPage(msgspec.Struct, kw_only=True):
    next_cursor: str | None


class _RunPage(_CursorPage, kw_only=True):
    dag_runs: list[RunEntry]


class _TryPage(_CursorPage, kw_only=True):
    task_instances: list[TryEntry]


class _TriesOfTask(msgspec.Struct):
    task_instances: list[TryEntry]


class _AssetEventPage(msgspec.Struct):
    asset_events: list[AssetEventEntry]


class _AssetPage(msgspec.Struct):
    assets: list[AssetEntry]


class _Token(msgspec.Struct):
    access_token: str


_RUN_PAGE = msgspec.json.Decoder(_RunPage)
_TRY_PAGE = msgspec.json.Decoder(_TryPage)
_TRIES_OF_TASK = msgspec.json.Decoder(_TriesOfTask)
_ASSET_EVENT_PAGE = msgspec.json.Decoder(_AssetEventPage)
_ASSET_PAGE = msgspec.json.Decoder(_AssetPage)
_TOKEN = msgspec.json.Decoder(_Token)


class AirflowApi:
    """One Airflow, asked as one user.

    Every method but `close` raises ConfigurationError where Airflow refuses the user or knows no such page,
    StorageError where it cannot be reached for about a minute, and CorruptionError where an answer has another form
    than expected.

    Args:
        url: of its web server, such as `https://airflow.example/team`, without a login.
        credentials: of a user who may read DAG runs, task instances and assets.
        authority: file of certificates (PEM) that the server's is checked with, instead of the system's.
        timeout_seconds: for one answer.

    Raises:
        ConfigurationError: the address is none of http or https, or urllib3 is not installed.
    """

    def __init__(
        self, url: str, credentials: Credentials, *, authority: Path | None = None, timeout_seconds: float = 60.0
    ) -> None:
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname or place.username is not None or place.query:
            raise ConfigurationError(
                "url: expected http://HOST or https://HOST of an Airflow, with its path if it has one, and no login."
            )
        import urllib3

        self.url = url.rstrip("/")
        """Its address, without a slash at the end."""
        self._credentials = credentials
        self._token = credentials.token
        self._error: type[Exception] = urllib3.exceptions.HTTPError
        self._pools = urllib3.PoolManager(
            # All questions change nothing, and a second token is as good as the first one.
            retries=urllib3.Retry(
                total=_TRIES,
                redirect=0,
                status_forcelist=_LATER,
                allowed_methods=None,
                backoff_factor=1.0,
                backoff_max=_PAUSE_SECONDS_MAX,
                raise_on_status=False,
            ),
            timeout=urllib3.Timeout(connect=timeout_seconds, read=timeout_seconds),
            ca_certs=None if authority is None else str(authority),
        )
        self._now_ms: int | None = None

    def now_ms(self) -> int | None:
        """Return what Airflow's clock says, to the second; None where its server does not say."""
        if self._now_ms is None:
            self._ask("/api/v2/version")
        return self._now_ms

    def runs(self, begin: datetime, end: datetime) -> Iterator[list[RunEntry]]:
        """Yield the runs that changed last between two moments, in pages."""
        for page in self._pages("/dags/~/dagRuns", _RUN_PAGE, begin, end):
            yield page.dag_runs

    def tries(self, begin: datetime, end: datetime) -> Iterator[list[TryEntry]]:
        """Yield the newest try of each task that changed last between two moments, in pages."""
        for page in self._pages("/dags/~/dagRuns/~/taskInstances", _TRY_PAGE, begin, end):
            yield page.task_instances

    def tries_of(self, entry: TryEntry) -> list[TryEntry]:
        """Return all tries of a task in its run; none where the run was removed meanwhile."""
        path = (
            f"/dags/{_quoted(entry.dag_id)}/dagRuns/{_quoted(entry.dag_run_id)}/taskInstances/{_quoted(entry.task_id)}"
            f"/{entry.map_index}/tries"
        )
        status, data = self._ask(f"/api/v2{path}")
        return [] if status == HTTPStatus.NOT_FOUND else _decoded(data, _TRIES_OF_TASK, path).task_instances

    def asset_events(self, begin: datetime, end: datetime) -> Iterator[AssetEventEntry]:
        """Yield which assets were written between two moments, and by whom."""
        window = {"timestamp_gte": begin.isoformat(), "timestamp_lt": end.isoformat(), "order_by": "timestamp"}
        offset = 0
        while True:
            fields = {**window, "limit": str(PAGE_ENTRIES), "offset": str(offset)}
            entries = self._page("/assets/events", _ASSET_EVENT_PAGE, fields).asset_events
            yield from entries
            if len(entries) < PAGE_ENTRIES:
                return
            offset += len(entries)

    def assets(self) -> Iterator[AssetEntry]:
        """Yield all assets that are in use."""
        offset = 0
        while True:
            fields = {"limit": str(PAGE_ENTRIES), "offset": str(offset), "order_by": "id"}
            entries = self._page("/assets", _ASSET_PAGE, fields).assets
            yield from entries
            if len(entries) < PAGE_ENTRIES:
                return
            offset += len(entries)

    def log_url(self, entry: TryEntry) -> str:
        """Return the page with the log of a try, as Airflow itself names it."""
        mapped = f"/mapped/{entry.map_index}" if entry.map_index >= 0 else ""
        run = f"{self.url}/dags/{entry.dag_id}/runs/{quote(entry.dag_run_id)}"
        return f"{run}/tasks/{entry.task_id}{mapped}?try_number={entry.try_number}"

    def close(self) -> None:
        """Close the connections."""
        self._pools.clear()

    def _pages(self, path: str, form: msgspec.json.Decoder[Page], begin: datetime, end: datetime) -> Iterator[Page]:
        """Yield pages of what changed last between two moments, in an order that changes do not move."""
        fields = {"updated_at_gte": begin.isoformat(), "updated_at_lt": end.isoformat(), "order_by": "id"}
        cursor: str | None = ""
        while cursor is not None:
            page = self._page(path, form, {**fields, "limit": str(PAGE_ENTRIES), "cursor": cursor})
            yield page
            if page.next_cursor == cursor:
                raise CorruptionError(f"{self.url}/api/v2{path}: expected a further page, got the same place again.")
            cursor = page.next_cursor

    def _page(self, path: str, form: msgspec.json.Decoder[Answer], fields: Mapping[str, str]) -> Answer:
        status, data = self._ask(f"/api/v2{path}", fields)
        if status != HTTPStatus.OK:
            raise ConfigurationError(
                f"{self.url}/api/v2{path}: expected a page, Airflow answered {status}: {_shown(data)}. "
                "Check the address, and that it is Airflow 3.3 or newer."
            )
        return _decoded(data, form, f"{self.url}/api/v2{path}")

    def _ask(self, path: str, fields: Mapping[str, str] | None = None) -> tuple[int, bytes]:
        for is_again in (False, True):
            if not self._token:
                self._log_in()
            status, data = self._send("GET", path, fields=fields, headers={"Authorization": f"Bearer {self._token}"})
            if status != HTTPStatus.UNAUTHORIZED or is_again or self._credentials.token:
                break
            self._token = ""  # outlived by this client
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise ConfigurationError(
                f"{self.url}{path}: Airflow answers {status}. Give credentials of a user who may read DAG runs, task "
                "instances and assets."
            )
        return status, data

    def _log_in(self) -> None:
        login = {"username": self._credentials.user, "password": self._credentials.password}
        body, headers = msgspec.json.encode(login), {"Content-Type": "application/json"}
        status, data = self._send("POST", "/auth/token", body=body, headers=headers)
        if status >= HTTPStatus.BAD_REQUEST:
            # Not what it answers: a server may repeat what it was sent.
            raise ConfigurationError(
                f"{self.url}/auth/token: expected a token for {self._credentials.user!r}, Airflow answered {status}. "
                "Check user and password."
            )
        self._token = _decoded(data, _TOKEN, f"{self.url}/auth/token").access_token

    def _send(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        fields: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> tuple[int, bytes]:
        try:
            answer = self._pools.request(
                method,
                self.url + path,
                headers=dict(headers),
                preload_content=False,
                redirect=False,
                # Two ways of one argument, of which urllib3 takes one.
                **({"body": body} if body is not None else {"fields": dict(fields or {})}),
            )
            try:
                data = answer.read(_ANSWER_BYTES_MAX, decode_content=True)
            finally:
                answer.release_conn()
        except (self._error, OSError) as error:
            reason = type(error.__cause__ or error).__name__
            raise StorageError(f"{self.url}: Airflow cannot be reached, or broke off: {reason}") from None
        self._now_ms = _date_ms(answer.headers.get("Date", "")) or self._now_ms
        if answer.status in _LATER:
            raise StorageError(f"{self.url}{path}: Airflow answers {answer.status} for some time: {_shown(data)}")
        return answer.status, data


def _decoded(data: bytes, form: msgspec.json.Decoder[Answer], where: str) -> Answer:
    try:
        return form.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptionError(
            f"{where}: expected an answer of Airflow 3.3 or newer, got another one: {error}: {_shown(data)}"
        ) from None


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _shown(data: bytes) -> str:
    text = data[:_SHOWN].decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _date_ms(header: str) -> int | None:
    try:
        return int(parsedate_to_datetime(header).timestamp() * 1000)
    except (TypeError, ValueError):
        return None
