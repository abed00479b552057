"""Calls to a REST backend over real sockets: pooled connections, their limits, time-outs, TLS, Kerberos.

No call is repeated here, and no redirect is followed: what to do next is the conversation's business.
"""

from __future__ import annotations

import os
import threading
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from custody.config import NgsiSection
from custody.errors import ConfigurationError
from custody.ngsi.webhdfs import Answer, Call

_UNAUTHORIZED = 401
_COOKIE = "hadoop.auth"
Negotiate = Callable[[str], bytes]
"""Returns the first token of SPNEGO for a host."""


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
        self._negotiate = negotiate or (_kerberos(values) if values.krb5_auth else None)
        self._cookies: dict[str, str] = {}

    def ask(self, host: str, call: Call) -> Answer:
        """Send a call to a host, or to its own URL, and return the answer.

        Raises:
            OSError: nobody answers, or not in time; whether it was done is unknown.
        """
        url = call.target if urlsplit(call.target).scheme else f"{self._scheme}://{host}{call.target}"
        place = urlsplit(url).netloc
        answer = self._sent(call, url, self._proofs(place))
        if answer.status == _UNAUTHORIZED and self._negotiate is not None:
            self._cookies.pop(place, None)
            token = b64encode(self._negotiate(urlsplit(url).hostname or host)).decode()
            answer = self._sent(call, url, {"Authorization": f"Negotiate {token}"})
        return answer

    def close(self) -> None:
        """Close all connections."""
        self._pools.clear()

    def _proofs(self, place: str) -> dict[str, str]:
        cookie = self._cookies.get(place)
        return {"Cookie": cookie} if cookie else {}

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
            if cookie.startswith(f"{_COOKIE}=") and self._negotiate is not None:
                self._cookies[urlsplit(url).netloc] = cookie.partition(";")[0]
        return Answer(found.status, found.data, found.headers.get("Location", ""))


def _kerberos(values: NgsiSection) -> Negotiate:
    """Return what logs in with user and password, as NGSIToHDFS does, and makes tokens for a host's HTTP service."""
    try:
        import spnego
    except ImportError as error:
        raise ConfigurationError(
            "ngsi.krb5_auth with backend rest: the package pyspnego is not installed. Run: "
            "pip install 'pyspnego[kerberos]' (it needs the system's Kerberos: Debian's libkrb5-dev), or take backend "
            "binary, whose client brings its own Kerberos."
        ) from error
    if Path(values.krb5_conf_file).is_file():
        # libkrb5 has no other way to be told.
        os.environ["KRB5_CONFIG"] = str(Path(values.krb5_conf_file).absolute())

    def token(host: str) -> bytes:
        client: Any = spnego.client(
            values.krb5_user, values.krb5_password, hostname=host, service="HTTP", protocol="kerberos"
        )
        try:
            made: bytes | None = client.step()
        except spnego.exceptions.SpnegoError as error:
            raise ConnectionError(f"Kerberos of {values.krb5_user} for HTTP/{host}: {error}") from error
        return made or b""

    return token
