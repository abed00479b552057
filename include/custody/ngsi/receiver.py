"""The receiver: an HTTP application that takes notifications and answers 200 once they are on disk.

It can be served on its own (`custody.ngsi.serve`) or mounted in another application, which then closes the intake.
Each notification becomes RECEIVE events, one an entity, whose content is the body as it came. What cannot be read is
answered with a status that says why, and kept in the quarantine.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
import uuid
from collections import Counter

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from custody.capture import Format, Rejected
from custody.clock import Clock
from custody.config import Settings
from custody.errors import BackpressureError, ClosedError, CustodyError, StorageError
from custody.ngsi.admission import Refusal, refusal_of_head, refusal_of_type
from custody.ngsi.arrival import Arrival, read_arrival
from custody.ngsi.intake import Intake
from custody.quarantine import Quarantine
from custody.serving import Tokens

RETRY_SECONDS = 5
LONG_RETRY_SECONDS = 30
_ACCESS = logging.getLogger("custody.ngsi.access")
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class _RefusedError(Exception):
    """A request that is answered with something else than 200; `retry_seconds` is for who should come again."""

    def __init__(self, refusal: Refusal, *, retry_seconds: int | None = None) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
        self.retry_seconds = retry_seconds


class Receiver:
    """Takes the requests of one application.

    Args:
        settings: those of the repository; the section `receiver` counts.
        intake: stores what was accepted.
        quarantine: keeps what was not.
        clock: tells when a notification came.
        tokens: of which one has to come with a request; None asks for none.
    """

    def __init__(
        self, settings: Settings, intake: Intake, quarantine: Quarantine, clock: Clock, tokens: Tokens | None = None
    ) -> None:
        self._options = settings.receiver
        self._intake = intake
        self._quarantine = quarantine
        self._clock = clock
        self._tokens = tokens
        self._busy = 0
        self._keeping = asyncio.Semaphore(1)
        self.answers: Counter[str] = Counter()
        """How often each answer was given; `stored` counts notifications."""

    async def notify(self, request: Request) -> Response:
        """Take one notification."""
        begun = time.monotonic()
        correlator = request.headers.get("fiware-correlator") or str(uuid.uuid4())
        self._busy += 1
        try:
            code, response = "stored", _json(200, await self._answer(request, correlator))
        except _RefusedError as refused:
            code, response = refused.refusal.code, _refusal(refused.refusal, refused.retry_seconds)
        finally:
            self._busy -= 1
        self.answers[code] += 1
        response.headers["Fiware-Correlator"] = correlator
        host = request.client.host if request.client else "-"
        milliseconds = (time.monotonic() - begun) * 1000
        # Neither the query nor a header: both may hold secrets. The correlator is quoted, for it comes from outside.
        _ACCESS.info(
            "%s POST %s %d %s %.1f ms %s",
            *(host, self._options.path, response.status_code, code, milliseconds, ascii(correlator)[:100]),
        )
        return response

    async def health(self, _: Request) -> Response:
        """Say whether notifications are stored, and how many were."""
        problem = self._intake.problem
        told = {
            "status": "ok" if problem is None else "failing",
            "writer": self._intake.writer,
            "waiting": self._intake.waiting,
            "notifications": self._intake.stored,
            "batches": self._intake.batches,
            "answers": dict(sorted(self.answers.items())),
        }
        return _json(200 if problem is None else 503, told)

    async def _answer(self, request: Request, correlator: str) -> dict[str, object]:
        headers = {name.lower(): value for name, value in request.headers.items()}
        self._admit(headers)
        body = await self._body(request)
        host = request.client.host if request.client else None
        url = str(request.url.replace(query="", fragment="", username=None, password=None))
        told = {**headers, "fiware-correlator": correlator}
        read = read_arrival(Arrival(body, told, url, host, self._clock.now_ms()))
        for item in read.rejected:
            await self._keep(item, read.raw, url)
        if not read.events:
            raise _RefusedError(read.refusal)
        try:
            ids = await self._intake.store(body, read.events)
        except CustodyError as error:
            raise _not_stored(error) from error
        return {
            "writer": self._intake.writer,
            "first_event_id": ids.start,
            "stored": len(ids),
            "rejected": len(read.rejected),
        }

    def _admit(self, headers: dict[str, str]) -> None:
        options = self._options
        if self._tokens is not None and not self._tokens.admit(headers):
            raise _RefusedError(Refusal(401, "token", "expected a token: Authorization: Bearer …, or X-Auth-Token"))
        if self._busy > options.requests_max:
            busy = Refusal(503, "busy", f"{options.requests_max} requests wait (receiver.requests_max)")
            raise _RefusedError(busy, retry_seconds=RETRY_SECONDS)
        refusal = refusal_of_type(headers.get("content-type"), strict=options.strict_content_type)
        refusal = refusal or refusal_of_head(headers, key_values=options.key_values)
        if refusal is not None:
            raise _RefusedError(refusal)

    async def _body(self, request: Request) -> bytes:
        """Return the body, of bounded length and in bounded time."""
        limit = self._options.body_bytes_max
        too_large = _RefusedError(
            Refusal(413, "too-large", f"expected at most {limit} bytes (receiver.body_bytes_max)")
        )
        declared = request.headers.get("content-length", "")
        if declared.isdigit() and int(declared[:20]) > limit:
            raise too_large
        held = bytearray()
        try:
            async with asyncio.timeout(self._options.body_seconds):
                async for chunk in request.stream():
                    held += chunk
                    if len(held) > limit:
                        raise too_large
        except TimeoutError:
            slow = f"the body took more than {self._options.body_seconds:g} s (receiver.body_seconds)"
            raise _RefusedError(Refusal(408, "slow", slow)) from None
        except ClientDisconnect:
            raise _RefusedError(Refusal(400, "broken-off", "the body broke off")) from None
        if not held:
            raise _RefusedError(Refusal(400, "empty", "expected a notification, got an empty body"))
        return bytes(held)

    async def _keep(self, item: Rejected, raw: bytes, url: str) -> None:
        """Put what cannot be read into the quarantine; one at a time, so that bad input holds nobody up."""
        async with self._keeping:
            try:
                await asyncio.to_thread(
                    self._quarantine.add,
                    raw,
                    severity=item.problem.severity,
                    code=item.problem.code,
                    message=item.problem.message,
                    file=url,
                    index=item.place.index,
                    offset=item.place.offset,
                    node=None,
                    received_ms=self._clock.now_ms(),
                    format=Format.NGSI,
                )
            except CustodyError as error:
                raise _not_stored(error) from error


def create_app(receiver: Receiver, path: str) -> FastAPI:
    """Return the application: `path` takes notifications, `/health` says how it goes."""
    app = FastAPI(title="custody NGSI receiver", docs_url=None, redoc_url=None, openapi_url=None)
    app.router.redirect_slashes = False
    for route in (path, f"{path}/"):  # some brokers' configurations end with a slash
        app.add_route(route, receiver.notify, methods=["POST"])
    app.add_route("/health", receiver.health, methods=["GET"])

    async def refused(_: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        codes = {404: "not-found", 405: "method"}
        receiver.answers[codes.get(status, "error")] += 1
        message = error.detail if isinstance(error, HTTPException) else "the receiver failed; its log says why"
        response = _refusal(Refusal(status, codes.get(status, "error"), message), None)
        response.headers.update((error.headers or {}) if isinstance(error, HTTPException) else {})
        return response

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(Exception, refused)
    return app


def _not_stored(error: CustodyError) -> _RefusedError:
    """Return what to answer when nothing, or nobody knows what, was stored: the broker may send it again."""
    if isinstance(error, BackpressureError):
        return _RefusedError(Refusal(503, "backpressure", str(error)), retry_seconds=RETRY_SECONDS)
    if isinstance(error, ClosedError):
        return _RefusedError(Refusal(503, "closed", str(error)), retry_seconds=LONG_RETRY_SECONDS)
    if isinstance(error, StorageError):
        code = "disk-full" if error.errno in _FULL else "storage"
        return _RefusedError(Refusal(503, code, "the disk refused; try again later"), retry_seconds=LONG_RETRY_SECONDS)
    return _RefusedError(Refusal(500, error.kind, str(error)))


def _refusal(refusal: Refusal, retry_seconds: int | None) -> Response:
    response = _json(refusal.status, {"error": refusal.code, "message": refusal.message})
    if retry_seconds is not None:
        response.headers["Retry-After"] = str(retry_seconds)
    if refusal.status in (408, 413):
        response.headers["Connection"] = "close"  # the rest of the body is not read
    if refusal.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _json(status: int, document: object) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")
