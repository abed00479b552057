"""The application of the server: doors behind one entrance, which checks access, bounds, counts and logs each request.

Nothing of a body is read before the entrance has let its request in. What the application itself answers:

- `/healthz`: the process lives and its loop turns.
- `/readyz`: every door can take requests; otherwise 503 with the names of those that cannot. The log says why.
- `/metrics`: the numbers, as Prometheus reads them; they need the scope `read` where requests need anything.

Every error has one shape, `{"error": code, "message": text}`.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope

from custody.config.sections import ListenerSection
from custody.errors import (
    BackpressureError,
    ClosedError,
    CustodyError,
    InvalidInputError,
    LockedError,
    NotFoundError,
    StorageError,
)
from custody.model.visibility import Visibility
from custody.serving.access import ANYBODY, EVERYTHING, Grant, Scope, Tokens, brought_token, producer_named
from custody.serving.door import Door
from custody.serving.http_requests import NO_SNIFFING, BodyRefusedError, ambiguous, is_from_own_page, is_own_host
from custody.serving.lingering import Lingering
from custody.serving.rights import Rights
from custody.serving.route_rights import OPEN, DoorMount, DoorRoute, RouteRight, Shows
from custody.serving.server_metrics import CONTENT_TYPE, ServerMetrics

RETRY_SECONDS = 5
LONG_RETRY_SECONDS = 30
_ACCESS = logging.getLogger("custody.access")
_LOGGER = logging.getLogger(__name__)
# Told apart in the answer, for nothing but making room helps here.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
_GRANT = "custody.grant"
_PASSED_ON = "custody.passed_on"
# NiFi's client can bring a token in the path alone, and then the id of a port that stands for it.
_SECRETS_IN_PATH = re.compile(r"((?:^|/)t/|/input-ports/)[^/]+")
_REASON = "custody.reason"
_VISIBILITY = "custody.visibility"
_ANYBODY = Grant(ANYBODY, EVERYTHING)
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing; what they answer a browser shows to no page of another site."""
_FOREIGN_HOST = "expected a Host that names this server, such as localhost; the setting allowed_hosts takes other names"
_OWN = "server"
"""Of the application's own answers, where the name of a door stands in logs and metrics."""


class Problem(Response):
    """An answer that is an error; `code` names it for machines, in logs and in metrics."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        document = msgspec.json.encode({"error": code, "message": message})
        super().__init__(document, status, {**NO_SNIFFING, **(headers or {})}, media_type="application/json")
        self.code = code
        if status in (408, 413):
            self.headers["Connection"] = "close"  # the rest of the body is not read
        if status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Send it, and leave its code to the entrance."""
        scope[_REASON] = self.code
        await super().__call__(scope, receive, send)


def problem_of(error: CustodyError) -> Problem:
    """Return the answer for a failure; with 503 nothing is known to be stored, and the sender may send it again.

    Names of files are for the log, not for the client.
    """
    if isinstance(error, InvalidInputError):
        return Problem(400, error.kind, str(error))
    if isinstance(error, NotFoundError):
        return Problem(404, error.kind, str(error))
    _LOGGER.warning("not stored: %s", error)
    if isinstance(error, BackpressureError):
        return Problem(503, "backpressure", "too much waits to be stored; try again later", _retry(RETRY_SECONDS))
    if isinstance(error, LockedError):
        return Problem(503, error.kind, "another process stores events of the same source", _retry(RETRY_SECONDS))
    if isinstance(error, ClosedError):
        return Problem(503, "closed", "the server stops, or cannot write any more", _retry(LONG_RETRY_SECONDS))
    if isinstance(error, StorageError):
        code = "disk-full" if error.errno in _FULL else "storage"
        return Problem(503, code, "the disk refused; try again later", _retry(LONG_RETRY_SECONDS))
    return Problem(500, error.kind, "the server failed; its log says why")


def proven_grant(scope: AsgiScope) -> Grant | None:
    """Return what a request may do, None for one that proves nothing."""
    grant = scope.get(_GRANT)
    return grant if isinstance(grant, Grant) else None


def grant_of(request: Request) -> Grant:
    """Return what a request may do, which is nothing where it proves nothing."""
    return proven_grant(request.scope) or Grant(ANYBODY, frozenset())


def producer_of(request: Request) -> str | None:
    """Return the name of who delivers, that of a token or a certificate; None where nobody has to prove anything."""
    return producer_named(grant_of(request).name)


def visibility_of(scope: AsgiScope) -> Visibility | None:
    """Return what the sender of a request may see; None for every event."""
    visibility = scope.get(_VISIBILITY)
    return visibility if isinstance(visibility, Visibility) else None


def passed_on(request: Request, size: int) -> None:
    """Say that so many bytes of the body are held in memory no more: they were written to a disk."""
    release = request.scope.get(_PASSED_ON)
    if release is not None:
        release(size)


@dataclass(frozen=True, slots=True)
class Access:
    """Who may do what: by tokens, by certificates, or everybody where neither is asked for.

    Args:
        tokens: None where none are asked for.
        certificate_scopes: what a client whose certificate was checked may do without a token; None where certificates
            are not asked for.
        elsewhere: returns what a token allows that somebody else gave out, such as Airflow; None for one it does not
            know.
        session_cookie: name of the cookie that has such a token in a browser; it counts only where this server's own
            pages ask.
        rights: which events each of them may see; None where everybody may see all.
        allowed_hosts: names that `Host` may have besides those of this machine, in lower case; where nobody has to
            prove anything no others are answered, and elsewhere every one where none are named.
    """

    tokens: Tokens | None = None
    certificate_scopes: frozenset[Scope] | None = None
    elsewhere: Callable[[str], Awaitable[Grant | None]] | None = None
    session_cookie: str | None = None
    rights: Rights | None = None
    allowed_hosts: Collection[str] = ()

    @property
    def is_open(self) -> bool:
        """Whether everybody may do everything."""
        return self.tokens is None and self.certificate_scopes is None and self.elsewhere is None

    async def grant(self, scope: AsgiScope, headers: Mapping[str, str]) -> Grant | None:
        """Return what a request may do, None for one that proves nothing."""
        if self.is_open:
            return _ANYBODY
        by_token = None if self.tokens is None else self.tokens.grant(headers)
        if by_token is None and self.elsewhere is not None and (token := self._foreign_token(headers)):
            by_token = await self.elsewhere(token)
        subject = client_certificate(scope)
        if self.certificate_scopes is None or subject is None:
            return by_token
        if by_token is None:
            return Grant(subject, self.certificate_scopes)
        return Grant(by_token.name, by_token.scopes | self.certificate_scopes)

    def _foreign_token(self, headers: Mapping[str, str]) -> str | None:
        brought = brought_token(headers)
        # A browser adds the cookie to whatever any page of any site asks for.
        if brought or self.session_cookie is None or not is_from_own_page(headers):
            return brought
        cookie = cookie_parser(headers.get("cookie", "")).get(self.session_cookie)
        return cookie or None


def client_certificate(scope: AsgiScope) -> str | None:
    """Return the name in the certificate that a client showed and the server checked; None without one."""
    name = scope.get("extensions", {}).get("tls", {}).get("client_cert_name")
    return name if isinstance(name, str) else None


class Entrance:
    """Stands before all doors: what a request needs, how many there are, and what became of each.

    Args:
        options: the limits.
        access: who may do what.
        metrics: counts.
        waiting_bytes_max: of the bodies that are held at once.
    """

    def __init__(
        self, options: ListenerSection, access: Access, metrics: ServerMetrics, waiting_bytes_max: int = 256 << 20
    ) -> None:
        self._options = options
        self._access = access
        self._metrics = metrics
        self._waiting_bytes_max = waiting_bytes_max
        self._held_bytes = 0
        self._busy = 0

    def guarded(self, app: ASGIApp, door: str, right: RouteRight) -> ASGIApp:
        """Return an application that passes on only requests that have a right, with what they may do."""

        async def enter(scope: AsgiScope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            visit = _Visit(scope, receive, send, self._may_hold)
            # Counted from the first moment on: a request that still waits for its body holds memory, too.
            self._busy += 1
            self._metrics.entered(self._busy)
            try:
                await self._visited(app, visit, right)
            finally:
                self._busy -= 1
                self._held_bytes -= visit.held
                self._metrics.left(self._busy, self._held_bytes)
                self._note(visit, door)

        return enter

    async def _visited(self, app: ASGIApp, visit: _Visit, right: RouteRight) -> None:
        try:
            answer: ASGIApp = await self._refusal(visit.scope, right) or app
            await answer(visit.scope, visit.receive, visit.send)
        except BodyRefusedError as refused:
            headers = _retry(RETRY_SECONDS) if refused.status == 503 else {}
            await visit.answer(Problem(refused.status, refused.code, str(refused), headers))
        except ClientDisconnect:
            await visit.answer(Problem(400, "broken-off", "the body broke off"))
        except CustodyError as error:
            await visit.answer(problem_of(error))

    async def _refusal(self, scope: AsgiScope, right: RouteRight) -> Problem | None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        scope[_GRANT], scope[_VISIBILITY] = None, None
        wrong = ambiguous(scope["headers"])
        if wrong is not None:
            # Where its body ends has two meanings, too: what comes behind it is not read as a request.
            return Problem(400, "ambiguous", wrong, {"Connection": "close"})
        if not self._is_own_host(headers):
            return Problem(421, "host", _FOREIGN_HOST)
        grant = await self._access.grant(scope, headers)
        scope[_GRANT] = grant
        rights = self._access.rights
        scope[_VISIBILITY] = None if rights is None else rights.visibility(ANYBODY if grant is None else grant.name)
        # The token before all else: a stranger learns neither load nor limits.
        # Nobody has to prove anything here, or a browser proves it by itself: then its reader need not want it.
        is_led = grant is not None and not brought_token(headers) and not is_from_own_page(headers)
        if is_led and scope["method"] not in _SAFE:
            return Problem(403, "foreign-page", "expected a request of this server's own pages or of a program")
        refusal = right.refusal(grant, scope[_VISIBILITY])
        if refusal is not None:
            return Problem(refusal.status, refusal.code, refusal.message)
        if right.scope is not None and self._busy > self._options.requests_max:
            message = f"{self._options.requests_max} requests wait (requests_max)"
            return Problem(503, "busy", message, _retry(RETRY_SECONDS))
        return None

    def _is_own_host(self, headers: Mapping[str, str]) -> bool:
        """Whether `Host` names this server; where tokens are asked for and no names are set, any name does."""
        allowed = self._access.allowed_hosts
        return (not self._access.is_open and not allowed) or is_own_host(headers, allowed)

    def _may_hold(self, size: int) -> bool:
        """Count bytes that are held, or with a negative `size` not any more; return whether it is not too much."""
        self._held_bytes += size
        self._metrics.held(self._held_bytes)
        return self._held_bytes <= self._waiting_bytes_max

    def _note(self, visit: _Visit, door: str) -> None:
        seconds = time.monotonic() - visit.started
        scope = visit.scope
        reason = str(scope.get(_REASON, ""))
        self._metrics.answered(door, visit.status, reason, seconds)
        grant = scope.get(_GRANT)
        # Neither the query nor a header: both may hold secrets. Text from outside is quoted.
        fields = {
            "client": scope["client"][0] if scope.get("client") else "-",
            "method": scope["method"][:20],
            "path": ascii(_SECRETS_IN_PATH.sub(r"\1…", scope["path"]))[1:-1][:200],
            "status": visit.status,
            "reason": reason or "-",
            "door": door,
            "milliseconds": round(seconds * 1000, 1),
            "bytes": visit.received,
            "as": grant.name if isinstance(grant, Grant) else "-",
            "request": visit.id,
        }
        _ACCESS.info("%s", " ".join(str(value) for value in fields.values()), extra={"fields": fields})


class _Visit:
    """One request on its way: what came of its body, and how it was answered."""

    def __init__(self, scope: AsgiScope, receive: Receive, send: Send, may_hold: Callable[[int], bool]) -> None:
        self.scope = scope
        self.started = time.monotonic()
        self.status = 0
        self.received = 0
        self.held = 0
        """Of what was received, the bytes that are in memory."""
        self.id = uuid.uuid4().hex
        self._receive = receive
        self._send = send
        self._may_hold = may_hold
        scope[_PASSED_ON] = self.passed_on

    def passed_on(self, size: int) -> None:
        """Count bytes of the body as held no more."""
        size = min(size, self.held)
        self.held -= size
        self._may_hold(-size)

    async def receive(self) -> Message:
        """Pass on a piece of the body, as long as the server may hold as much."""
        message = await self._receive()
        if message["type"] == "http.request":
            size = len(message.get("body", b""))
            self.received += size
            self.held += size
            if not self._may_hold(size):
                raise BodyRefusedError(503, "busy", "too many bytes wait; try again later")
        return message

    async def send(self, message: Message) -> None:
        """Pass on a piece of the answer, and note its status."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), (b"x-request-id", self.id.encode())]
            # What was stored comes from outside, and so do parts of most answers: their type is the one that they say.
            if all(name.lower() != b"x-content-type-options" for name, _ in headers):
                headers.append((b"x-content-type-options", b"nosniff"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def answer(self, problem: Problem) -> None:
        """Answer with an error, unless the answer has begun."""
        if not self.status:
            await problem(self.scope, self._receive, self.send)


def application(
    options: ListenerSection,
    doors: Sequence[Door],
    access: Access = Access(),
    metrics: ServerMetrics | None = None,
    waiting_bytes_max: int = 256 << 20,
) -> FastAPI:
    """Return the application with some doors; it can be served, or mounted in another one.

    Args:
        options: the section with the limits.
        doors: closed by the caller.
        access: who may do what; everybody everything where it is not given.
        metrics: counts; new ones where none are given.
        waiting_bytes_max: most bytes of bodies that are held at once.
    """
    metrics = metrics or ServerMetrics()
    metrics.watch(doors)
    entrance = Entrance(options, access, metrics, waiting_bytes_max)
    app = FastAPI(title="custody", docs_url=None, redoc_url=None, openapi_url=None)
    # A redirect would come without the checks, and would not have the one shape of errors.
    app.router.redirect_slashes = False

    async def alive(_: Request) -> Response:
        return _json(200, {"status": "ok"})

    async def ready(_: Request) -> Response:
        states = await asyncio.gather(*(asyncio.to_thread(door.ready) for door in doors))
        reasons = {door.name: reason for door, reason in zip(doors, states, strict=True)}
        for name, reason in reasons.items():
            if reason is not None:
                _LOGGER.warning("door %s is not ready: %s", name, reason)
        document = {name: "ready" if reason is None else "not ready" for name, reason in reasons.items()}
        is_ready = not any(reasons.values())
        return _json(200 if is_ready else 503, {"status": "ok" if is_ready else "not ready", "doors": document})

    async def numbers(_: Request) -> Response:
        return Response(await metrics.text(), media_type=CONTENT_TYPE)

    for route in (
        DoorRoute("/healthz", alive, methods=["GET"], right=OPEN),
        DoorRoute("/readyz", ready, methods=["GET"], right=OPEN),
        DoorRoute("/metrics", numbers, methods=["GET"], right=RouteRight(Scope.READ, Shows.ALL)),
    ):
        app.router.routes.append(_guarded(route, _OWN, entrance))
    routes = [route for door in doors for route in _guarded_routes(door, entrance)]
    # A mount takes all below its path: what another door has there for itself is looked for first.
    app.router.routes.extend(sorted(routes, key=lambda route: isinstance(route, Mount)))
    _handle_errors(app)
    app.router.default = entrance.guarded(_no_route, _OWN, OPEN)
    app.add_middleware(Lingering, seconds=options.body_seconds)
    return app


def _guarded_routes(door: Door, entrance: Entrance) -> Iterable[BaseRoute]:
    for route in door.routes():
        # A door that was not checked for its types: what declares no right is not served.
        if not isinstance(route, DoorRoute | DoorMount):
            raise TypeError(f"door {door.name}: expected routes with a right, got {type(route).__name__}")
        yield _guarded(route, door.name, entrance)


def _guarded(route: DoorRoute | DoorMount, door: str, entrance: Entrance) -> BaseRoute:
    """Return a route behind the entrance, which its methods are behind as well: a refusal is a refusal for all."""
    methods = route.methods if isinstance(route, DoorRoute) else None
    route.app = entrance.guarded(_of_methods(route.app, methods), door, route.right)
    return route


def _of_methods(app: ASGIApp, methods: Collection[str] | None) -> ASGIApp:
    """Return an application that answers requests of some methods; None for all."""
    if not methods:
        return app
    allowed = ", ".join(sorted(methods))

    async def call(scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["method"] in methods:
            await app(scope, receive, send)
        else:
            await Problem(405, "method", f"expected {allowed}", {"Allow": allowed})(scope, receive, send)

    return call


def _handle_errors(app: FastAPI) -> None:
    async def refused(_: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            code = {404: "no-route", 405: "method"}.get(error.status_code, "error")
            return Problem(error.status_code, code, error.detail, error.headers)
        return Problem(500, "error", "the server failed; its log says why")

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(Exception, refused)


async def _no_route(scope: AsgiScope, receive: Receive, send: Send) -> None:
    await Problem(404, "no-route", "nothing is taken or answered here")(scope, receive, send)


def _retry(seconds: int) -> dict[str, str]:
    return {"Retry-After": str(seconds)}


def _json(status: int, document: object) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")
