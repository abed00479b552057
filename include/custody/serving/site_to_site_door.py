"""The door for NiFi: Site-to-Site over HTTP, and beside it over RAW sockets.

A NiFi finds the input port by discovery, begins a transaction, sends packets, and confirms their checksum. Events are
durable before that confirmation is answered, and the same confirmation again gets the same answer. Clients show the
text of a 403 and of an unknown port to their users, and take everything else for "later".

Who may send: whom TLS lets in by certificate. A client of Site-to-Site cannot bring a token in a header, so a token
stands in the address that the user types: https://HOST:PORT/t/TOKEN/nifi. The id of the port, which all later requests
have to name, is derived from it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from fastapi import Request, Response
from starlette.requests import ClientDisconnect
from starlette.types import Message

from custody.clock import Clock
from custody.config import Settings
from custody.config.sections import ListenerSection
from custody.errors import BackpressureError, CustodyError, StorageError
from custody.serving.access import Scope, Tokens, port_of, producer_named
from custody.serving.application import passed_on
from custody.serving.door import Measure, Services
from custody.serving.route_rights import OPEN, DoorMount, DoorRoute
from custody.serving.serving_access import access_of
from custody.serving.site_to_site_intake import IntakeStore, PacketIntake
from custody.serving.site_to_site_raw import RawListener
from custody.site_to_site import protocol
from custody.site_to_site.packets import PacketError, PacketLimits, TransactionTooLargeError
from custody.site_to_site.protocol import Peer, ResponseCode
from custody.site_to_site.transactions import (
    EndedTransaction,
    Staging,
    TransactionLimits,
    Transactions,
    UnknownTransactionError,
)
from custody.vfs import FileSystem, PosixFileSystem

_LOGGER = logging.getLogger(__name__)
_HOLD_BACK_SECONDS = 5.0
"""For so long after a failed commit no transaction is begun: to refuse early spares the transfer."""
_DEFAULT_PORTS = {"http": 80, "https": 443}
_TRANSACTIONS = "/data-transfer/input-ports/{port}/transactions"
_API = "/nifi-api"


class _RefusedError(Exception):
    """A request that is answered with a code of the protocol."""

    def __init__(self, status: int, code: ResponseCode, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class SiteToSiteDoor:
    """An input port for NiFi's reporting tasks.

    Args:
        settings: of the repository; the section `site_to_site` applies.
        intake: takes the packets of confirmed transactions.
        fs: where transactions lie until then.
        clock: tells when they expire.
        tokens: a sender has to bring one of them; None asks for none.
        listener: address and TLS of the RAW transport; those of the section `site_to_site` if not given.
    """

    name = "site-to-site"

    def __init__(
        self,
        settings: Settings,
        intake: PacketIntake,
        fs: FileSystem,
        clock: Clock,
        *,
        tokens: Tokens | None = None,
        listener: ListenerSection | None = None,
    ) -> None:
        options = settings.site_to_site
        self._options = options
        self._intake = intake
        self._tokens = tokens
        limits = TransactionLimits(
            options.transactions_max, options.transaction_seconds, PacketLimits(settings.capture.body_bytes_max)
        )
        self._transactions = Transactions(fs, settings.site_to_site_home, clock, limits)
        # One thread: what is confirmed is stored in the order of the confirmations, beside the loop.
        self._committer = ThreadPoolExecutor(1, "custody-site-to-site")
        self._held_back_until = 0.0
        self._problem: str | None = None
        self.counts: Counter[str] = Counter()
        """Transactions by how they went: begun, committed, canceled, refused, failed."""
        self._raw: RawListener | None = None
        if options.raw_port is not None:
            self._raw = RawListener(settings.root, listener or options, options.raw_port, _RawPort(self), options)

    @property
    def raw_port(self) -> int | None:
        """The port of the RAW transport; None where it is not served."""
        return None if self._raw is None else self._raw.port

    def routes(self) -> Sequence[DoorRoute | DoorMount]:
        """Return the routes; NiFi gives all but the first of them, at the root of the host.

        They are open, as a token cannot come in a header: `_discover` and `_checked` look at what comes in the path.
        """
        one = f"{_API}{_TRANSACTIONS}/{{transaction}}"
        return [
            self._route(f"{_API}/site-to-site", self._discover, "GET"),
            self._route(f"/t/{{token}}{_API}/site-to-site", self._discover, "GET"),
            self._route(f"{_API}/site-to-site/peers", self._peers, "GET"),
            self._route(f"{_API}{_TRANSACTIONS}", self._begin, "POST"),
            self._route(f"{one}/flow-files", self._receive, "POST"),
            self._route(one, self._extend, "PUT"),
            self._route(one, self._end, "DELETE"),
        ]

    def ready(self) -> str | None:
        """Return why nothing can be taken now; None when it can."""
        return self._problem

    def metrics(self) -> Sequence[Measure]:
        """Return the door's numbers."""
        ends = {name: self.counts[name] for name in ("begun", "committed", "canceled", "refused", "failed")}
        intake = self._intake
        events = {"stored": intake.stored, "repeated": intake.repeated, "rejected": intake.rejected}
        return [
            *_counters("site_to_site_transactions", "Transactions of Site-to-Site, by how they went.", ends),
            *_counters("site_to_site_events", "Events that NiFi sent, by what became of them.", events),
            Measure("site_to_site_kept", "counter", "Packets that are no provenance.", intake.kept),
        ]

    def close(self) -> None:
        """Finish what was confirmed; a second call does nothing."""
        if self._raw is not None:
            self._raw.close()
        self._committer.shutdown(wait=True)

    def producer_at(self, port_id: str) -> str | None:
        """Return who delivers at the port with this id, by the name of a token; None where none is asked for."""
        grant = None if self._tokens is None else self._tokens.grant_of_port(port_id)
        return None if grant is None else producer_named(grant.name)

    def admits(self, port_id: str) -> bool:
        """Whether this is the id of the port for one of those who may deliver."""
        if self._tokens is not None:
            return self._tokens.admits_port(port_id)
        return port_id == protocol.open_port_id(self._options.port_name)

    @property
    def is_held_back(self) -> bool:
        """Whether no transaction is begun now, since one could not be stored a moment ago."""
        return time.monotonic() < self._held_back_until

    def stage(self, transaction: str, *, is_compressed: bool) -> Staging:
        """Return where the packets of a transaction go."""
        return self._transactions.stage(transaction, is_compressed=is_compressed)

    def begin(self) -> str:
        """Begin a transaction; return its id.

        Raises:
            BackpressureError: not now.
        """
        try:
            if self.is_held_back:
                raise BackpressureError(f"nothing can be stored at the moment: {self._problem}")
            transaction = self._transactions.begin()
        except CustodyError:
            self.counts["refused"] += 1
            raise
        self.counts["begun"] += 1
        return transaction

    def commit(self, transaction: str, port_id: str) -> EndedTransaction:
        """Store the packets of a transaction durably; blocks, behind those that were confirmed before."""
        return self._committer.submit(self._commit, transaction, port_id).result()

    def _commit(self, transaction: str, port_id: str) -> EndedTransaction:
        started = time.monotonic()
        try:
            take = partial(self._intake.take, producer=self.producer_at(port_id))
            ended = self._transactions.commit(transaction, take)
        except (PacketError, UnknownTransactionError):
            raise  # of the sender's making; nothing is wrong here
        except Exception as error:
            self.counts["failed"] += 1
            self._problem = str(error)
            self._held_back_until = time.monotonic() + _HOLD_BACK_SECONDS
            _LOGGER.warning("transaction %s could not be stored: %s", transaction, error)
            if isinstance(error, CustodyError):
                raise
            raise StorageError(f"{type(error).__name__}: {error}") from error
        self._problem, self._held_back_until = None, 0.0
        self.counts["committed"] += 1
        milliseconds = (time.monotonic() - started) * 1000
        _LOGGER.info("transaction %s: %d packets stored in %.1f ms", transaction, ended.packets, milliseconds)
        return ended

    def _route(self, path: str, answer: Callable[[Request], Awaitable[Response]], method: str) -> DoorRoute:
        return DoorRoute(path, partial(self._answered, answer), methods=[method], right=OPEN)

    async def _answered(self, answer: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        try:
            response = await answer(request)
        except _RefusedError as refused:
            response = _result(refused.status, refused.code, message=str(refused))
        except UnknownTransactionError as error:
            response = _result(404, ResponseCode.ABORT, message=str(error))
        except PacketError as error:
            status = 413 if isinstance(error, TransactionTooLargeError) else 400
            response = _result(status, ResponseCode.ABORT, message=str(error))
            response.headers["Connection"] = "close"  # the rest of a body is not read
        except CustodyError as error:
            response = _result(503, ResponseCode.ABORT, message=str(error))
        response.headers[protocol.VERSION_HEADER] = str(protocol.HTTP_VERSION)
        return response

    async def _discover(self, request: Request) -> Response:
        name = self._options.port_name
        port = protocol.open_port_id(name)
        if self._tokens is not None:
            port = port_of(request.path_params.get("token", ""))
            if not self._tokens.admits_port(port):
                text = "expected a token in the Destination URL: https://HOST:PORT/t/TOKEN/nifi"
                return Response(text, 403, media_type="text/plain")
        document = protocol.discovery(name, port, self._peer(request), self.raw_port)
        return Response(document, media_type="application/json")

    async def _peers(self, request: Request) -> Response:
        return Response(protocol.peers(self._peer(request)), media_type="application/json")

    def _peer(self, request: Request) -> Peer:
        options, url = self._options, request.url
        is_secure = options.is_secure(is_served=url.scheme == "https")
        port = options.advertised_port or url.port or _DEFAULT_PORTS["https" if is_secure else "http"]
        return Peer(options.advertised_host or url.hostname or options.host, port, is_secure)

    async def _begin(self, request: Request) -> Response:
        port = self._checked(request)
        try:
            transaction = self.begin()
        except BackpressureError as error:
            raise _RefusedError(503, ResponseCode.PORTS_DESTINATION_FULL, str(error)) from None
        response = _result(201, ResponseCode.PROPERTIES_OK)
        # Without host: NiFi puts the peer's address before it, whatever name that has for it.
        response.headers["Location"] = f"{_TRANSACTIONS.format(port=port)}/{transaction}"
        response.headers[protocol.INTENT_HEADER] = protocol.TRANSACTION_INTENT
        response.headers[protocol.SECONDS_HEADER] = str(self._options.transaction_seconds)
        return response

    async def _receive(self, request: Request) -> Response:
        self._checked(request)
        transaction = request.path_params["transaction"]
        is_compressed = request.headers.get(protocol.COMPRESSION_HEADER, "").lower() == "true"
        staging = self.stage(transaction, is_compressed=is_compressed)
        try:
            await self._feed(request, transaction, staging)
            checksum = staging.end()
        except BaseException:
            staging.abort()
            raise
        return Response(str(checksum), 202, media_type="text/plain")

    async def _feed(self, request: Request, transaction: str, staging: Staging) -> None:
        """Stage a body as it comes, as long as its sender gives signs of life."""
        is_more = True
        while is_more:
            coming = asyncio.create_task(_next_message(request))
            try:
                while not coming.done():
                    await asyncio.wait({coming}, timeout=self._options.transaction_seconds)
                    # However slowly it comes: what holds a place here says regularly that it is still there.
                    self._transactions.require(transaction)
            finally:
                coming.cancel()
            message = coming.result()
            if message["type"] != "http.request":
                raise ClientDisconnect
            body = message.get("body", b"")
            staging.feed(body)
            passed_on(request, len(body))
            is_more = message.get("more_body", False)

    async def _extend(self, request: Request) -> Response:
        self._checked(request)
        self._transactions.extend(request.path_params["transaction"])
        return _result(200, ResponseCode.CONTINUE_TRANSACTION)

    async def _end(self, request: Request) -> Response:
        port = self._checked(request)
        transaction = request.path_params["transaction"]
        code = request.query_params.get("responseCode", "")
        if code == str(int(ResponseCode.CONFIRM_TRANSACTION)):
            loop = asyncio.get_running_loop()
            ended = await loop.run_in_executor(self._committer, self._commit, transaction, port)
            return _result(200, ResponseCode.TRANSACTION_FINISHED, ended.packets)
        if code in (str(int(ResponseCode.CANCEL_TRANSACTION)), str(int(ResponseCode.BAD_CHECKSUM))):
            self._transactions.cancel(transaction)
            self.counts["canceled"] += 1
            return _result(200, ResponseCode.CANCEL_TRANSACTION, message="thrown away")
        raise _RefusedError(400, ResponseCode.ABORT, f"responseCode: expected 12, 15 or 19, got {code[:20]!r}")

    def _checked(self, request: Request) -> str:
        """Return the id of the port, after the checks that each request of a transaction has to pass."""
        version = request.headers.get(protocol.VERSION_HEADER, "")
        # A later version than ours is answered with ours, and its client decides.
        if not version.isdecimal() or int(version[:9]) < protocol.HTTP_VERSION:
            text = f"{protocol.VERSION_HEADER}: expected {protocol.HTTP_VERSION}, got {version[:20]!r}"
            raise _RefusedError(400, ResponseCode.ABORT, text)
        port = str(request.path_params["port"])
        if not self.admits(port):
            raise _RefusedError(404, ResponseCode.UNKNOWN_PORT, "no input port has this id; ask for the ports anew")
        return port


class _RawPort:
    """The port as the RAW transport sees it."""

    def __init__(self, door: SiteToSiteDoor) -> None:
        self._door = door

    def admits(self, port_id: str) -> bool:
        return self._door.admits(port_id)

    def is_full(self) -> bool:
        return self._door.is_held_back

    def begin(self, *, is_compressed: bool) -> tuple[str, Staging]:
        transaction = self._door.begin()
        return transaction, self._door.stage(transaction, is_compressed=is_compressed)

    def commit(self, transaction: str, port_id: str) -> EndedTransaction:
        return self._door.commit(transaction, port_id)


def open_site_to_site(services: Services) -> SiteToSiteDoor:
    """Return the door of the one server: with its intake, its tokens, and its address and TLS also for RAW."""
    settings = services.settings
    access = access_of(settings)
    by_certificate = (
        access.certificate_scopes is not None
        and Scope.APPEND in access.certificate_scopes
        and settings.serve.client_certificates == "required"
    )
    tokens = None if by_certificate else access.tokens
    intake = PacketIntake(settings, IntakeStore(services.intake), services.repository.quarantine, services.clock)
    return SiteToSiteDoor(
        settings,
        intake,
        PosixFileSystem(),
        services.clock,
        tokens=tokens,
        listener=settings.serve,
    )


def _counters(name: str, meaning: str, counts: Mapping[str, int]) -> list[Measure]:
    return [Measure(name, "counter", meaning, count, (("outcome", outcome),)) for outcome, count in counts.items()]


async def _next_message(request: Request) -> Message:
    return await request.receive()


def _result(status: int, code: ResponseCode, packets: int = 0, message: str = "") -> Response:
    return Response(protocol.result(code, packets, message), status, media_type="application/json")
