"""The receiver of NGSI notifications: an HTTP application that answers 200 once a notification is on disk.

Each notification becomes RECEIVE events, one for each entity, whose content is the body as it came. A notification that
cannot be read is answered with a status that says why, and kept in the quarantine.

The application is served on its own (`custody.serving.serve`), or mounted in another one, which then closes the intake.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
import uuid
from collections import Counter
from collections.abc import Sequence

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from custody.capture import Format, Rejected
from custody.clock import Clock
from custody.config import Settings
from custody.config.ngsi import CORRELATOR_CHARACTERS_MAX, HEALTH_TARGET
from custody.errors import BackpressureError, ClosedError, CustodyError, StorageError
from custody.model import Event
from custody.ngsi.http_notification import Accepts, Arrival, Read, Refusal, judge_head, read_arrival
from custody.quarantine import Quarantine, bad_piece
from custody.serving.access import Tokens
from custody.serving.application import producer_of
from custody.serving.http_requests import NO_SNIFFING, SINGLE, BodyRefusedError, ambiguous, bounded_body
from custody.serving.lingering import Lingering
from custody.serving.ngsi_intake import Intake

RETRY_SECONDS = 5
LONG_RETRY_SECONDS = 30
_ACCESS = logging.getLogger("custody.ngsi.access")
_SINGLE = SINGLE | {
    *("fiware-service", "fiware-servicepath", "fiware-correlator"),
    *("ngsild-tenant", "ngsiv2-attrsformat", "ngsild-attribute-format"),
}
_AT_ONCE_BYTES = 2048
"""A longer body is parsed in a thread. To change threads costs about as much as a body of this length."""
_HOST_CHARACTERS_MAX = 300
"""Of a name and a port; the URL stands in each event of a notification."""
# Told apart in the answer, for nothing but making room helps here.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class _RefusedError(Exception):
    """A request whose answer is not 200."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Receiver:
    """The endpoint of one application; it checks method and target itself.

    Args:
        settings: of the repository; the sections `receiver` and `ngsi` apply.
        intake: stores accepted notifications.
        quarantine: keeps those that were refused.
        clock: gives the time of arrival.
        tokens: a request has to bring one of them; None asks for none.
    """

    def __init__(
        self, settings: Settings, intake: Intake, quarantine: Quarantine, clock: Clock, tokens: Tokens | None = None
    ) -> None:
        self._options = settings.receiver
        self._accepts = Accepts.of(settings.ngsi)
        self._intake = intake
        self._quarantine = quarantine
        self._clock = clock
        self._tokens = tokens
        self._busy = 0
        self._keeping = asyncio.Semaphore(1)
        self._reading = asyncio.Semaphore(1)
        self.body_seconds = self._options.body_seconds
        """How long a body may take."""
        self.answers: Counter[str] = Counter()
        """How often each answer was given; `stored` counts notifications."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as an application of ASGI."""
        await (await self.notify(Request(scope, receive)))(scope, receive, send)

    async def notify(self, request: Request) -> Response:
        """Take one notification."""
        started = time.monotonic()
        header = request.headers.get("fiware-correlator") or ""
        correlator = header if 0 < len(header) <= CORRELATOR_CHARACTERS_MAX else str(uuid.uuid4())
        # Counted from the first moment on: a request that still waits for its body holds memory, too.
        self._busy += 1
        try:
            code, response = "stored", _json(200, await self._answer(request, correlator))
        except _RefusedError as refused:
            code, response = refused.refusal.code, _refusal(refused.refusal)
        finally:
            self._busy -= 1
        self.answers[code] += 1
        response.headers["Fiware-Correlator"] = correlator
        host = request.client.host if request.client else "-"
        milliseconds = (time.monotonic() - started) * 1000
        # Neither the query nor a header: both may hold secrets. Text from outside is quoted.
        fields = (request.method[:20], ascii(_target(request))[1:-1][:100], response.status_code, code, milliseconds)
        _ACCESS.info("%s %s %s %d %s %.1f ms %s", host, *fields, ascii(correlator)[:100])
        return response

    async def health(self, _: Request) -> Response:
        """Report whether notifications are stored, and how many were."""
        problem = self._intake.problem
        document = {
            "status": "ok" if problem is None else "failing",
            "writer": self._intake.writer,
            "waiting": self._intake.waiting,
            "notifications": self._intake.stored,
            "batches": self._intake.batches,
            "answers": dict(sorted(self.answers.items())),
        }
        return _json(200 if problem is None else 503, document)

    async def _answer(self, request: Request, correlator: str) -> dict[str, object]:
        headers = {name.lower(): value for name, value in request.headers.items()}
        # All that the head decides comes before the body: a refused sender's body takes no memory.
        self._admit(request, headers)
        body = await self._body(request)
        host = request.client.host if request.client else None
        # It becomes part of every event, and query and login may hold secrets.
        url = str(request.url.replace(query="", fragment="", username=None, password=None))
        headers["fiware-correlator"] = correlator
        read = await self._read(Arrival(body, headers, url, host, self._clock.now_ms()))
        # Kept before the others are stored: if that fails nothing is stored yet, and the broker may send all of it
        # again.
        for item in read.rejected:
            await self._keep(item, url)
        if read.refusal is not None:
            raise _RefusedError(read.refusal)
        try:
            ids = await self._intake.store(body, _delivered(read.events, producer_of(request)))
        except CustodyError as error:
            raise _not_stored(error) from error
        return {
            "writer": self._intake.writer,
            "first_event_id": ids.start,
            "stored": len(ids),
            "rejected": len(read.rejected),
        }

    async def _read(self, arrival: Arrival) -> Read:
        """Parse a notification; large ones in a thread and one after the other, so that the loop goes on answering."""
        if len(arrival.body) <= _AT_ONCE_BYTES:
            return read_arrival(arrival, self._accepts)
        # The number of those that wait here is bounded, like all that wait, by `requests_max`.
        async with self._reading:
            return await asyncio.to_thread(read_arrival, arrival, self._accepts)

    def _admit(self, request: Request, headers: dict[str, str]) -> None:
        options = self._options
        # First of all checks: a stranger learns neither load nor limits.
        if self._tokens is not None and not self._tokens.admit(headers):
            raise _RefusedError(Refusal(401, "token", "expected a token: Authorization: Bearer …, or X-Auth-Token"))
        if self._busy > options.requests_max:
            busy = f"{options.requests_max} requests wait (receiver.requests_max)"
            raise _RefusedError(Refusal(503, "busy", busy, _retry(RETRY_SECONDS)))
        wrong = ambiguous(request.headers.raw, _SINGLE)
        if wrong is not None:
            raise _RefusedError(Refusal(400, "ambiguous", wrong))
        if len(headers.get("host", "")) > _HOST_CHARACTERS_MAX:
            raise _RefusedError(Refusal(400, "host", f"host: expected at most {_HOST_CHARACTERS_MAX} characters"))
        refusal = judge_head(request.method, _target(request), headers, self._accepts)
        if refusal is not None:
            raise _RefusedError(refusal)

    async def _body(self, request: Request) -> bytes:
        """Return the body, of bounded length and in bounded time."""
        try:
            return await bounded_body(request, self._accepts.bytes_max, self._options.body_seconds)
        except BodyRefusedError as refused:
            setting = {"too-large": "ngsi.notification_bytes_max", "slow": "receiver.body_seconds"}[refused.code]
            raise _RefusedError(Refusal(refused.status, refused.code, f"{refused} ({setting})")) from None
        except ClientDisconnect:
            raise _RefusedError(Refusal(400, "broken-off", "the body broke off")) from None

    async def _keep(self, item: Rejected, url: str) -> None:
        """Put something unreadable into the quarantine; one at a time, so that bad input cannot take all threads."""
        async with self._keeping:
            try:
                await asyncio.to_thread(self._put_aside, item, url)
            except CustodyError as error:
                raise _not_stored(error) from error

    def _put_aside(self, item: Rejected, url: str) -> None:
        piece = bad_piece(
            item.raw,
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
        self._quarantine.add(piece)


def _delivered(events: Sequence[Event], producer: str | None) -> Sequence[Event]:
    return events if producer is None else [msgspec.structs.replace(each, delivered_by=producer) for each in events]


def receiver_app(receiver: Receiver) -> FastAPI:
    """Return the application: `/health` reports the state, the receiver checks all other requests."""
    app = FastAPI(title="custody NGSI receiver", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_route(HEALTH_TARGET, receiver.health, methods=["GET"])
    # A route to an object takes every method: the receiver judges it, with the same answer as in the cases.
    app.router.routes.append(Route("/{target:path}", receiver))

    async def refused(_: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        codes = {405: "method"}
        receiver.answers[codes.get(status, "error")] += 1
        message = error.detail if isinstance(error, HTTPException) else "the receiver failed; its log says why"
        headers = (error.headers or {}) if isinstance(error, HTTPException) else {}
        return _refusal(Refusal(status, codes.get(status, "error"), message, headers))

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(Exception, refused)
    app.add_middleware(Lingering, seconds=receiver.body_seconds)
    return app


def _target(request: Request) -> str:
    """Return the path of a request, below the one that the application is mounted at."""
    if "target" in request.path_params:
        return f"/{request.path_params['target']}"
    # Among other doors it has one route, whose path was compared already.
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", ""))


def _not_stored(error: CustodyError) -> _RefusedError:
    """Return the answer where nothing was stored, or it is unknown whether it was: the broker may send it again."""
    if isinstance(error, BackpressureError):
        return _RefusedError(Refusal(503, "backpressure", str(error), _retry(RETRY_SECONDS)))
    if isinstance(error, ClosedError):
        return _RefusedError(Refusal(503, "closed", str(error), _retry(LONG_RETRY_SECONDS)))
    if isinstance(error, StorageError):
        code = "disk-full" if error.errno in _FULL else "storage"
        return _RefusedError(Refusal(503, code, "the disk refused; try again later", _retry(LONG_RETRY_SECONDS)))
    return _RefusedError(Refusal(500, error.kind, str(error)))


def _retry(seconds: int) -> dict[str, str]:
    return {"Retry-After": str(seconds)}


def _refusal(refusal: Refusal) -> Response:
    response = _json(refusal.status, {"error": refusal.code, "message": refusal.message})
    response.headers.update(refusal.headers)
    if refusal.status in (408, 413) or refusal.code == "ambiguous":
        response.headers["Connection"] = "close"  # the rest of the body is not read
    if refusal.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def _json(status: int, document: object) -> Response:
    return Response(msgspec.json.encode(document), status, NO_SNIFFING, media_type="application/json")
