"""The provenance of software over HTTP: JSON in, JSON out (docs/swh.md, "Over HTTP").

Every error has one shape, `{"error": code, "message": text}`. The database is asked in threads, for it waits for the
disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from custody.config import Settings
from custody.errors import ConfigurationError, CustodyError, InvalidInputError, NotFoundError, StorageError
from custody.format.names import check_name
from custody.model import INT64_MAX
from custody.serving.access import Tokens
from custody.serving.application import visibility_of
from custody.serving.http_requests import NO_SNIFFING, BodyRefusedError, ambiguous, bounded_body
from custody.serving.published_database import PublishedDatabase
from custody.swh.database import occurrence_json, whereabouts_json
from custody.swh.swhid import Swhid

# An identifier has 50 characters; quotes, a comma and blanks come with it.
_BYTES_OF_A_QUESTION = 64
_BYTES_OF_A_BODY = 1024
"""What a body may hold besides its identifiers, in bytes."""
_RETRY_SECONDS = 1
_OCCURRENCES = 100
# As many as 2**63 - 1 has: a longer text is refused before `int` sees it.
_DIGITS_MAX = 19
_LOGGER = logging.getLogger(__name__)
_ACCESS = logging.getLogger("custody.swh.access")

_Answer = Callable[[Request], Awaitable[object]]


class _SwhidList(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    swhids: list[str]


_SWHIDS = msgspec.json.Decoder(_SwhidList)


class _Routes:
    def __init__(self, database: PublishedDatabase, settings: Settings, tokens: Tokens | None) -> None:
        self._database = database
        self._options = settings.swh
        self._tokens = tokens
        self._busy = 0

    def guarded(self, answer: _Answer) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler that refuses strangers and requests beyond the limit, and gives every error a status."""

        async def handle(request: Request) -> Response:
            started = time.monotonic()
            # Before the check: a request counts itself, and it counts as long as it waits for its body or the disk.
            self._busy += 1
            try:
                response = self._refusal(request) or _json(200, await answer(request))
            except BodyRefusedError as error:
                response = _error(error.status, error.code, str(error))
                response.headers["Connection"] = "close"  # the rest of the body is not read
            except CustodyError as error:
                response = _failed(error)
            finally:
                self._busy -= 1
            host = request.client.host if request.client else "-"
            spent = (time.monotonic() - started) * 1000
            path = ascii(request.url.path)[1:121]
            _ACCESS.info("%s %s %s %d %.1f ms", host, request.method, path, response.status_code, spent)
            return response

        return handle

    def _refusal(self, request: Request) -> Response | None:
        if (wrong := ambiguous(request.headers.raw)) is not None:
            response = _error(400, "ambiguous", wrong)
            response.headers["Connection"] = "close"  # where its body ends has two meanings
            return response
        if self._tokens is not None:
            headers = {name.lower(): value for name, value in request.headers.items()}
            if not self._tokens.admit(headers):
                response = _error(401, "token", "expected a token: Authorization: Bearer …, or X-Auth-Token")
                response.headers["WWW-Authenticate"] = "Bearer"
                return response
        if self._busy > self._options.requests_max:
            response = _error(503, "busy", f"{self._options.requests_max} requests wait (swh.requests_max)")
            response.headers["Retry-After"] = str(_RETRY_SECONDS)
            return response
        return None

    async def whereis(self, request: Request) -> object:
        swhid = Swhid.parse(request.path_params["swhid"])
        return whereabouts_json(await asyncio.to_thread(self._database.whereis, swhid))

    async def whereare(self, request: Request) -> object:
        limit = self._options.questions_max * _BYTES_OF_A_QUESTION + _BYTES_OF_A_BODY
        body = await bounded_body(request, limit, self._options.body_seconds)
        try:
            query = _SWHIDS.decode(body)
        except msgspec.DecodeError as error:
            raise InvalidInputError(f'expected {{"swhids": [...]}}: {error}.') from None
        swhids = [Swhid.parse(text) for text in query.swhids]
        places = await asyncio.to_thread(self._database.whereis_many, swhids)
        return {"answers": [whereabouts_json(place) for place in places]}

    async def occurrences(self, request: Request) -> object:
        return await self._all_of(Swhid.parse(request.path_params["swhid"]), request)

    async def event(self, request: Request) -> object:
        event_id = _number("event", request.path_params["event_id"], INT64_MAX)
        seen = visibility_of(request.scope)
        swhid = await asyncio.to_thread(self._database.content_of, event_id, _writer(request), seen)
        return {"event_id": event_id, **await self._all_of(swhid, request)}

    async def health(self, _: Request) -> object:
        return {"status": "ok", "revision": self._database.revision}

    async def _all_of(self, swhid: Swhid, request: Request) -> dict[str, object]:
        most = self._options.occurrences_max
        text = _parameter(request, "limit")
        limit = min(_OCCURRENCES, most) if text is None else _number("limit", text, most)
        answer = await asyncio.to_thread(self._database.occurrences, swhid, limit)
        return {
            "swhid": str(swhid),
            "occurrences": [occurrence_json(place) for place in answer.oldest],
            "is_complete": answer.is_complete,
        }


def swh_app(database: PublishedDatabase, settings: Settings, tokens: Tokens | None = None) -> FastAPI:
    """Return the application.

    Args:
        database: gives the answers.
        settings: of the repository; the section `swh` applies.
        tokens: a request has to bring one of them; None asks for none. `/health` never asks for one.
    """
    app = FastAPI(title="custody: where was this content?", docs_url=None, redoc_url=None, openapi_url=None)
    # A redirect would come without the checks, and would not have the one shape of errors.
    app.router.redirect_slashes = False
    routes = _Routes(database, settings, tokens)
    app.add_route("/whereis/{swhid}", routes.guarded(routes.whereis), methods=["GET"])
    app.add_route("/whereare", routes.guarded(routes.whereare), methods=["POST"])
    app.add_route("/occurrences/{swhid}", routes.guarded(routes.occurrences), methods=["GET"])
    app.add_route("/events/{event_id}/occurrences", routes.guarded(routes.event), methods=["GET"])
    # With a count of its own and without a token: it answers while all other requests are busy.
    app.add_route("/health", _Routes(database, settings, None).guarded(routes.health), methods=["GET"])

    async def refused(_: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException):
            response = _error(
                error.status_code, {404: "no-route", 405: "method"}.get(error.status_code, "error"), error.detail
            )
            response.headers.update(error.headers or {})
            return response
        return _error(500, "error", "the service failed; its log says why")

    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(Exception, refused)
    return app


def _parameter(request: Request, name: str) -> str | None:
    """Return a parameter of the query, None where it is not there; two of one name are refused."""
    values = request.query_params.getlist(name)
    if len(values) > 1:
        raise InvalidInputError(f"{name}: expected it once, got it {len(values)} times.")
    return values[0] if values else None


def _number(name: str, text: str, most: int) -> int:
    """Return the number, from 0 to `most`, that a text from outside spells."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX and int(text) <= most):
        raise InvalidInputError(f"{name} {ascii(text)[:40]}: expected a number from 0 to {most}.")
    return int(text)


def _writer(request: Request) -> str | None:
    """Return the name of a writer that a request has, None for none: it becomes the name of a folder."""
    text = _parameter(request, "writer")
    if text is None:
        return None
    try:
        return check_name("writer", text)
    except ConfigurationError:
        # A new message: the text of that error repeats all that came.
        expected = "expected 1 to 63 characters of a-z, 0-9, '_' or '-', the first a letter or digit"
        raise InvalidInputError(f"writer {ascii(text)[:80]}: {expected}.") from None


def _failed(error: CustodyError) -> Response:
    if isinstance(error, InvalidInputError):
        return _error(400, error.kind, str(error))
    if isinstance(error, NotFoundError):
        return _error(404, error.kind, str(error))
    # Names of files are for the operator's log, not for the client.
    _LOGGER.error("a question failed: %s", error)
    status = 503 if isinstance(error, StorageError) else 500
    return _error(status, error.kind, "the database cannot be read; the service's log says which file")


def _error(status: int, code: str, message: str) -> Response:
    return _json(status, {"error": code, "message": message})


def _json(status: int, document: object) -> Response:
    return Response(msgspec.json.encode(document), status, NO_SNIFFING, media_type="application/json")
