"""Sends events to a server of custody, `POST /events`, with patience while it is away or busy.

It needs nothing but the standard library and msgspec.
"""

from __future__ import annotations

import gzip
import http.client
import random
import ssl
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import msgspec

from custody.client.spool_delivery import Receipt
from custody.errors import BackpressureError, ConfigurationError, InvalidInputError, StorageError

_ZIPPED_BYTES = 1024
"""A longer body is sent as gzip."""
_PAUSE_SECONDS = 0.2
_PAUSE_SECONDS_MAX = 30.0
_ANSWER_BYTES_MAX = 16 << 20
_SHOWN = 300


class _Answer(msgspec.Struct):
    """An answer of the server, good or bad."""

    stored: int = 0
    repeated: int = 0
    rejected: int = 0
    message: str = ""


_ANSWER = msgspec.json.Decoder(_Answer)


class HttpSender:
    """A server, over one connection that is opened again when it breaks.

    Args:
        url: of the server, such as `https://custody.example:5080`.
        token: with the scope append; None where the server asks for none.
        authority: file of certificates (PEM) that the server's is checked with, instead of the system's.
        timeout_seconds: for one answer.
        patience_seconds: how long a server that is away or busy is tried before the call fails.
        sleep: waits; for tests.

    Raises:
        ConfigurationError: the URL is none of http or https, or has a login.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        authority: Path | None = None,
        timeout_seconds: float = 60.0,
        patience_seconds: float = 300.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        place = urlsplit(url)
        if place.scheme not in ("http", "https") or not place.hostname or place.username is not None:
            raise ConfigurationError(
                "url: expected http://HOST or https://HOST with a port and a path, and no login: a token goes into a "
                "file or the environment."
            )
        self._place = place
        self._path = place.path.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._context = (
            ssl.create_default_context(cafile=None if authority is None else str(authority))
            if place.scheme == "https"
            else None
        )
        self._timeout = timeout_seconds
        self._patience = patience_seconds
        self._sleep = sleep
        self._connection: http.client.HTTPConnection | None = None

    def send(self, lines: bytes) -> Receipt:
        """Deliver events, a line of JSON each, in custody's own form.

        Raises:
            InvalidInputError: the server does not take them, and never will.
            ConfigurationError: token, address or rights are wrong; nothing was taken.
            BackpressureError: the server was busy for as long as the patience lasts.
            StorageError: the server was away for as long as that; it is unknown whether it took them.
        """
        headers = {"Content-Type": "application/x-ndjson"}
        if len(lines) > _ZIPPED_BYTES:
            lines, headers["Content-Encoding"] = gzip.compress(lines, 1), "gzip"
        answer = self._patiently("POST", "/events?format=custody", lines, headers)
        return Receipt(answer.stored, answer.repeated, answer.rejected)

    def put_content(self, content: bytes) -> str:
        """Deliver a content, and return the digest by which events name it (`content_sha256`); raises as `send`."""
        digest = sha256(content).hexdigest()
        self._patiently("PUT", f"/contents/{digest}", content, {"Content-Type": "application/octet-stream"})
        return digest

    def close(self) -> None:
        """Close the connection; a later call opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _patiently(self, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> _Answer:
        deadline = time.monotonic() + self._patience
        pause = _PAUSE_SECONDS
        while True:
            wait: float | None = None
            failure: Exception
            try:
                status, retry_after, answer = self._exchange(method, target, body, headers)
                if status < 300:
                    return answer
                if status not in (408, 409, 429) and status < 500:
                    raise _refusal(status, answer.message)
                wait = retry_after
                failure = BackpressureError(f"{self._shown}: it answers {status}: {answer.message[:_SHOWN]}")
            except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
                self.close()
                failure = StorageError(f"{self._shown}: cannot be reached, or broke off: {error!r}"[:_SHOWN])
            if time.monotonic() >= deadline:
                raise failure
            # A part at random: producers that a restart cut off do not all come back at once.
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)
            self._sleep(min(wait if wait is not None else pause * random.uniform(0.5, 1), _PAUSE_SECONDS_MAX))  # noqa: S311

    def _exchange(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, float | None, _Answer]:
        if self._connection is None:
            host, port = self._place.hostname or "", self._place.port
            self._connection = (
                http.client.HTTPConnection(host, port, timeout=self._timeout)
                if self._context is None
                else http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._context)
            )
        self._connection.request(method, self._path + target, body, {**self._headers, **headers})
        response = self._connection.getresponse()
        text = response.read(_ANSWER_BYTES_MAX)
        retry_after = response.headers.get("Retry-After", "")
        if response.will_close:
            self.close()
        is_json = response.headers.get_content_type() == "application/json"
        # A proxy before the server answers in words of its own.
        if response.status < 300 and not is_json:
            raise http.client.HTTPException(f"expected an answer in JSON, got {response.headers.get_content_type()}")
        answer = _ANSWER.decode(text) if is_json else _Answer()
        return response.status, float(retry_after) if retry_after.isdigit() else None, answer

    @property
    def _shown(self) -> str:
        return f"{self._place.scheme}://{self._place.netloc}{self._path}"


def _refusal(status: int, message: str) -> Exception:
    text = f"the server answers {status}: {message[:_SHOWN]}"
    # A batch that is too large, or of which it can make nothing, is halved; everything else is wrong with every batch.
    if status in (413, 422):
        return InvalidInputError(text)
    return ConfigurationError(f"{text}. Check the address of the server, its door for events, and the token.")
