"""Events by NiFi's Site-to-Site protocol over HTTP(S), as NiFi's own reporting task delivers them to an input port.

One transaction carries one packet: a JSON array of a batch, with the attributes that the reporting task sets. The
receiver has it once it answered the DELETE that commits the transaction; before that, nothing counts.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from zlib_ng import zlib_ng

from custody.config import ExportTarget
from custody.errors import ConfigurationError
from custody.export.http_client import HttpAnswer, HttpClient, place
from custody.export.http_receiver import json_array
from custody.export.receiver import EventBatch, UnavailableError
from custody.site_to_site.packets import encode_packet
from custody.site_to_site.protocol import HTTP_VERSION, SECONDS_HEADER, VERSION_HEADER, ResponseCode

_OK, _CREATED, _ACCEPTED, _FORBIDDEN, _NOT_FOUND, _UNAUTHORIZED = 200, 201, 202, 403, 404, 401
_HEADERS = {VERSION_HEADER: str(HTTP_VERSION), "Accept": "application/json"}
_SECONDS_DEFAULT = 30
_FINISHED = (ResponseCode.TRANSACTION_FINISHED, ResponseCode.TRANSACTION_FINISHED_BUT_DESTINATION_FULL)
_Answer = TypeVar("_Answer")


class _Port(msgspec.Struct):
    id: str
    name: str


class _Controller(msgspec.Struct):
    input_ports: list[_Port] = msgspec.field(name="inputPorts", default_factory=list)
    http_port: int | None = msgspec.field(name="remoteSiteHttpListeningPort", default=None)
    is_secure: bool | None = msgspec.field(name="siteToSiteSecure", default=None)


class _Discovery(msgspec.Struct):
    controller: _Controller


class _Peer(msgspec.Struct):
    hostname: str
    port: int
    secure: bool
    count: int = msgspec.field(name="flowFileCount", default=0)


class _Peers(msgspec.Struct):
    peers: list[_Peer]


_DISCOVERY = msgspec.json.Decoder(_Discovery)
_PEERS = msgspec.json.Decoder(_Peers)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where transactions are begun: a peer's base address and the id of the port."""

    base: str
    port_id: str


class SiteToSiteReceiver:
    """An input port of a NiFi, or of whatever else speaks the protocol."""

    def __init__(self, name: str, target: ExportTarget) -> None:
        self._name, self._target = name, target
        self._client = HttpClient(target)
        self._place: _Place | None = None

    def deliver(self, batch: EventBatch) -> None:
        """Hand a batch over in one transaction."""
        packet = encode_packet(self._attributes(batch), json_array(batch.events()))
        try:
            self._transact(packet)
        except UnavailableError:
            # Asked for anew the next time: the peer may be gone, and the port may have another id.
            self._place = None
            raise

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _attributes(self, batch: EventBatch) -> dict[str, str]:
        return {
            # A batch that comes again has the same id: a receiver may know it by that.
            "reporting.task.transaction.id": f"{batch.writer}/{batch.first_event_id}-{batch.last_event_id}",
            "reporting.task.name": self._name,
            "reporting.task.uuid": f"custody-{self._name}",
            "reporting.task.type": "SiteToSiteProvenanceReportingTask",
            "mime.type": "application/json",
        }

    def _transact(self, packet: bytes) -> None:
        where = self._place = self._place or self._discover()
        url, seconds = self._begin(where)
        with _Extending(self._client, url, seconds):
            headers = {**_HEADERS, "Accept": "text/plain", "Content-Type": "application/octet-stream"}
            answer = self._client.send("POST", f"{url}/flow-files", headers, packet)
        if answer.status != _ACCEPTED:
            raise self._refused("POST", f"{url}/flow-files", answer)
        if answer.body.strip() != str(zlib_ng.crc32(packet)).encode():
            self._end(url, ResponseCode.BAD_CHECKSUM)
            raise UnavailableError(f"POST {place(url)}: expected the checksum of what was sent, got {answer.text!r}")
        ended = self._end(url, ResponseCode.CONFIRM_TRANSACTION)
        if ended not in _FINISHED:
            raise UnavailableError(f"DELETE {place(url)}: expected the transaction to be finished, got code {ended}")

    def _begin(self, where: _Place) -> tuple[str, int]:
        """Begin a transaction; return its address and how many seconds it lives without a sign."""
        url = f"{where.base}/data-transfer/input-ports/{where.port_id}/transactions"
        answer = self._client.send("POST", url, _HEADERS)
        location = answer.headers.get("location", "")
        if answer.status != _CREATED or not location:
            raise self._refused("POST", url, answer)
        seconds = answer.headers.get(SECONDS_HEADER, "")
        is_whole = location.startswith(("http://", "https://"))
        # Only to the host that was asked: what answers must not send the events, and the token, to another one.
        if is_whole and urlsplit(location).netloc != urlsplit(where.base).netloc:
            raise ConfigurationError(f"POST {place(url)}: expected a transaction there, got one at {place(location)}.")
        return (
            location if is_whole else where.base + location,
            int(seconds) if seconds.isdecimal() else _SECONDS_DEFAULT,
        )

    def _end(self, url: str, code: ResponseCode) -> int | None:
        """End a transaction; return the code of the answer, None where it has none."""
        answer = self._client.send("DELETE", f"{url}?responseCode={int(code)}", _HEADERS)
        if answer.status != _OK:
            raise self._refused("DELETE", url, answer)
        return _code(answer)

    def _discover(self) -> _Place:
        base = base_address(self._target.url)
        controller = self._ask(f"{base}/site-to-site", _DISCOVERY).controller
        ids = [port.id for port in controller.input_ports if port.name == self._target.port]
        if not ids:
            names = ", ".join(sorted(port.name for port in controller.input_ports)) or "none"
            raise ConfigurationError(
                f"{place(base)}: expected an input port {self._target.port!r}, got {names}. Correct the export's port."
            )
        if controller.http_port is None:
            raise ConfigurationError(f"{place(base)}: expected Site-to-Site over HTTP, which is not configured there.")
        host = urlsplit(base).hostname
        first = f"{'https' if controller.is_secure else 'http'}://{_in_url(host)}:{controller.http_port}/nifi-api"
        peers = self._ask(f"{first}/site-to-site/peers", _PEERS).peers
        if not peers:
            raise UnavailableError(f"{place(first)}: expected peers, got none")
        # The one with the least to do, as NiFi's own client prefers it.
        chosen = min(peers, key=lambda peer: peer.count)
        scheme = "https" if chosen.secure else "http"
        return _Place(f"{scheme}://{_in_url(chosen.hostname)}:{chosen.port}/nifi-api", ids[0])

    def _ask(self, url: str, form: msgspec.json.Decoder[_Answer]) -> _Answer:
        answer = self._client.send("GET", url, _HEADERS)
        if answer.status != _OK:
            raise self._refused("GET", url, answer)
        try:
            return form.decode(answer.body)
        except msgspec.DecodeError as error:
            raise UnavailableError(f"GET {place(url)}: expected an answer of Site-to-Site, got {error}") from error

    def _refused(self, method: str, url: str, answer: HttpAnswer) -> Exception:
        """Return an answer as an error: nothing is said against the events themselves, a port takes any bytes."""
        text = f"{method} {place(url)}: expected it to be done, got status {answer.status} {answer.text}".rstrip()
        is_unknown_port = answer.status == _NOT_FOUND and _code(answer) == ResponseCode.UNKNOWN_PORT
        if is_unknown_port or answer.status in (_FORBIDDEN, _UNAUTHORIZED):
            return ConfigurationError(f"{text}. Correct the export's url, port or certificates.")
        return UnavailableError(text)


class _Extending:
    """Keeps a transaction alive while its packet is sent."""

    def __init__(self, client: HttpClient, url: str, seconds: int) -> None:
        self._client, self._url = client, url
        self._pause = max(1, seconds // 2)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="custody-site-to-site", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._pause):
            try:
                self._client.send("PUT", self._url, _HEADERS)
            except UnavailableError:
                continue  # the answer to the packet says whether the transaction still lives


def base_address(url: str) -> str:
    """Return the address of NiFi's API for the address of a NiFi, as its own client does."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if path.endswith("/nifi"):
        path += "-api"
    elif not path.endswith("/nifi-api"):
        path += "/nifi-api"
    return f"{parts.scheme}://{parts.netloc}{path}"


def _code(answer: HttpAnswer) -> int | None:
    try:
        document = msgspec.json.decode(answer.body)
    except msgspec.DecodeError:
        return None
    code = document.get("responseCode") if isinstance(document, dict) else None
    return code if isinstance(code, int) else None


def _in_url(host: str | None) -> str:
    return f"[{host}]" if host and ":" in host else host or ""
