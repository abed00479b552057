"""HTTP for exports: one request and its answer, and what an answer means for the events that were sent."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

from custody.clock import SystemClock
from custody.config import ExportTarget
from custody.errors import ConfigurationError
from custody.export.receiver import RefusedError, UnavailableError

_ANSWER_BYTES_MAX = 1 << 16
_SHOWN_CHARACTERS = 200
_LATER = frozenset({408, 425, 429})
"""Statuses that say: not now."""
_NOT_LET_IN = frozenset({401, 403, 404, 405, 407, 410, 501})
"""Statuses that are about the address or the client, whatever it sends."""
_NOT_PRINTABLE = re.compile(r"[^\x20-\x7e\xa0-\U0010ffff]+")


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer; names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The beginning of the body, fit to be shown."""
        return _NOT_PRINTABLE.sub(" ", self.body.decode("utf-8", "replace"))[:_SHOWN_CHARACTERS].strip()


class HttpClient:
    """Connections of one export, kept between requests; redirects are not followed.

    Raises:
        ConfigurationError: urllib3 is not installed, or a certificate cannot be read.
    """

    def __init__(self, target: ExportTarget) -> None:
        import urllib3

        for path in filter(None, (target.ca_file, target.certificate_file, target.key_file)):
            if not path.is_file():
                raise ConfigurationError(f"{path}: expected a file in PEM, found none.")
        self._error: type[Exception] = urllib3.exceptions.HTTPError
        self._pools = urllib3.PoolManager(
            retries=False,
            timeout=urllib3.Timeout(connect=target.timeout_seconds, read=target.timeout_seconds),
            ca_certs=None if target.ca_file is None else str(target.ca_file),
            cert_file=None if target.certificate_file is None else str(target.certificate_file),
            key_file=None if target.key_file is None else str(target.key_file),
        )
        self._authorization = {} if target.token is None else {"Authorization": f"Bearer {target.token}"}

    def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> HttpAnswer:
        """Send a request and return its answer.

        Raises:
            UnavailableError: nobody answers, or not in time; whether the request was carried out is unknown.
        """
        try:
            answer = self._pools.request(
                method,
                url,
                body=body,
                headers={**self._authorization, **headers},
                redirect=False,
                preload_content=False,
            )
            try:
                data = answer.read(_ANSWER_BYTES_MAX, decode_content=True)
            finally:
                # What is left of a longer answer is read, so that the connection can be used again; not without end.
                answer.drain_conn() if len(data) < _ANSWER_BYTES_MAX else answer.close()
                answer.release_conn()
        except (self._error, OSError, ValueError) as error:
            raise UnavailableError(f"{method} {place(url)}: expected an answer, got {_reason(error)}") from error
        return HttpAnswer(answer.status, {name.lower(): value for name, value in answer.headers.items()}, data)

    def close(self) -> None:
        """Close the connections."""
        self._pools.clear()


def require_taken(url: str, answer: HttpAnswer) -> None:
    """Return where an answer says that what was sent was taken.

    Raises:
        RefusedError: it is refused for good.
        UnavailableError: the receiver takes nothing now.
        ConfigurationError: the address or the token is wrong.
    """
    status = answer.status
    if 200 <= status < 300:
        return
    message = f"POST {place(url)}: expected a status from 200 to 299, got {status}"
    message += f": {answer.text}" if answer.text else ""
    if status in _NOT_LET_IN or 300 <= status < 400:
        raise ConfigurationError(f"{message}. Correct url, token or the certificates of the export.")
    if status in _LATER or status >= 500:
        raise UnavailableError(message, _retry_after(answer))
    raise RefusedError(message)


def place(url: str) -> str:
    """Return an address for messages: without what follows a question mark, where secrets may be."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _retry_after(answer: HttpAnswer) -> float | None:
    text = answer.headers.get("retry-after", "").strip()
    if text.isdecimal():
        return float(text[:6])
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return max(0.0, moment.timestamp() - SystemClock().now_ms() / 1000)


def _reason(error: Exception) -> str:
    # The error of urllib3 repeats the address with its query; its cause says what happened.
    cause = getattr(error, "reason", None) or error.__cause__ or error
    return f"{type(cause).__name__}: {str(cause)[:_SHOWN_CHARACTERS]}" if cause is not error else type(error).__name__
