"""Calls to a REST backend over real sockets: pooled connections, their limits, time-outs, TLS, cookies of Kerberos.

No call is repeated here but one that was not let in, and no redirect is followed: what to do next is the business of
the conversation.
"""

from __future__ import annotations

import threading
from base64 import b64encode
from collections.abc import Callable
from urllib.parse import urlsplit

from custody.config import NgsiSection
from custody.errors import ConfigurationError
from custody.ngsi.kerberos import Login
from custody.ngsi.webhdfs import UNAUTHORIZED, Answer, Call

_COOKIE = "hadoop.auth"
Negotiate = Callable[[str], bytes]
"""Returns the first token of SPNEGO for a host; raises as `custody.ngsi.kerberos.Login.token`."""


class Network:
    """Connections to the hosts of one HDFS; several threads may ask at once."""

    def __init__(self, values: NgsiSection, negotiate: Negotiate | None = None) -> None:
        try:
            import urllib3
        except ImportError as error:
            raise ConfigurationError(
                "ngsi.backend rest: urllib3 is not installed. Run: pip install 'custody[ngsi]'"
            ) from error

        self._scheme = "https" if values.backend_tls else "http"
        self._error: type[Exception] = urllib3.exceptions.HTTPError
        self._pools = urllib3.PoolManager(
            maxsize=values.backend_max_conns_per_route,
            block=True,
            retries=False,
            timeout=urllib3.Timeout(connect=values.backend_timeout, read=values.backend_timeout),
        )
        self._all = threading.BoundedSemaphore(values.backend_max_conns)
        self._negotiate = negotiate or (Login(values).token if values.krb5_auth else None)
        self._proving = threading.Lock()
        self._cookies: dict[str, str] = {}

    def ask(self, host: str, call: Call) -> Answer:
        """Send a call to a host, or to its own URL, and return the answer.

        Raises:
            OSError: nobody answers, or not in time; whether it was done is unknown.
            ConfigurationError: Kerberos refuses the user of the settings.
        """
        url = call.target if urlsplit(call.target).scheme else f"{self._scheme}://{host}{call.target}"
        place = urlsplit(url).netloc
        cookie = self._cookies.get(place)
        answer = self._sent(call, url, _cookie(cookie))
        if answer.status == UNAUTHORIZED and self._negotiate is not None:
            # One at a time: several threads find the same cookie expired, and one login is enough for all.
            with self._proving:
                if self._cookies.get(place) not in (None, cookie):
                    answer = self._sent(call, url, _cookie(self._cookies[place]))
                if answer.status == UNAUTHORIZED:
                    self._cookies.pop(place, None)
                    token = b64encode(self._negotiate(urlsplit(url).hostname or host)).decode()
                    answer = self._sent(call, url, {"Authorization": f"Negotiate {token}"})
        return answer

    def close(self) -> None:
        """Close all connections."""
        self._pools.clear()

    def _sent(self, call: Call, url: str, proofs: dict[str, str]) -> Answer:
        with self._all:
            try:
                found = self._pools.request(
                    call.method,
                    url,
                    # A length of nothing is said too: some proxies refuse a PUT or POST without it.
                    body=call.body if call.method != "GET" else None,
                    headers={**call.headers, **proofs},
                    redirect=False,
                )
            except self._error as error:
                raise ConnectionError(f"{type(error).__name__}: {error}") from error
        for cookie in found.headers.getlist("Set-Cookie"):
            name, _, value = cookie.partition(";")[0].partition("=")
            # One that was not let in gets an empty one, which takes the old one away.
            if name == _COOKIE and value.strip('"') and self._negotiate is not None:
                self._cookies[urlsplit(url).netloc] = f"{name}={value}"
        return Answer(found.status, found.data, found.headers.get("Location", ""))


def _cookie(cookie: str | None) -> dict[str, str]:
    return {"Cookie": cookie} if cookie else {}
