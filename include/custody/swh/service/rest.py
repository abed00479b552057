"""Questions over HTTP: JSON in, JSON out (docs/swh.md, "Over HTTP").

Every error has one shape, `{"error": code, "message": text}`. Questions run in threads: they wait for the disk.
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
from custody.errors import CustodyError, InvalidInputError, NotFoundError, StorageError
from custody.serving import Tokens
from custody.serving.bodies import BodyRefusedError, bounded_body
from custody.swh.answers import occurrence, where_first
from custody.swh.service.questions import Questions
from custody.swh.swhid import Swhid

_BODY_SECONDS = 30.0
_BYTES_OF_A_QUESTION = 64
_BYTES_OF_A_BODY = 1024
"""What a body may hold besides its questions, in bytes."""
_RETRY_SECONDS = 1
_OCCURRENCES = 100
_LOGGER = logging.getLogger(__name__)
_ACCESS = logging.getLogger("custody.swh.access")

_Answer = Callable[[Request], Awaitable[object]]


class _AskedMany(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    swhids: list[str]


class _Routes:
    def __init__(self, questions: Questions, settings: Settings, tokens: Tokens | None) -> None:
        self._questions = questions
        self._options = settings.swh
        self._tokens = tokens
        self._busy = 0

    def guarded(self, answer: _Answer) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler: who is not known or comes when all are busy is refused, what fails has a status."""

        async def handle(request: Request) -> Response:
            begun = time.monotonic()
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
            spent = (time.monotonic() - begun) * 1000
            path = ascii(request.url.path)[1:121]
            _ACCESS.info("%s %s %s %d %.1f ms", host, request.method, path, response.status_code, spent)
            return response

        return handle

    def _refusal(self, request: Request) -> Response | None:
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
        return where_first(await asyncio.to_thread(self._questions.whereis, swhid))

    async def whereare(self, request: Request) -> object:
        limit = self._options.questions_max * _BYTES_OF_A_QUESTION + _BYTES_OF_A_BODY
        body = await bounded_body(request, limit, _BODY_SECONDS)
        try:
            asked = msgspec.json.decode(body, type=_AskedMany)
        except msgspec.DecodeError as error:
            raise InvalidInputError(f'expected {{"swhids": [...]}}: {error}.') from None
        swhids = [Swhid.parse(text) for text in asked.swhids]
        found = await asyncio.to_thread(self._questions.whereare, swhids)
        return {"answers": [where_first(place) for place in found]}

    async def occurrences(self, request: Request) -> object:
        return await self._all_of(Swhid.parse(request.path_params["swhid"]), request)

    async def event(self, request: Request) -> object:
        text = request.path_params["event_id"]
        if not (text.isascii() and text.isdigit() and len(text) < 20):
            raise InvalidInputError(f"event {ascii(text)[:40]}: expected a number.")
        writer = request.query_params.get("writer")
        swhid = await asyncio.to_thread(self._questions.content_of, int(text), writer)
        return {"event_id": int(text), **await self._all_of(swhid, request)}

    async def health(self, _: Request) -> object:
        return {"status": "ok", "revision": self._questions.revision}

    async def _all_of(self, swhid: Swhid, request: Request) -> dict[str, object]:
        text = request.query_params.get("limit", str(min(_OCCURRENCES, self._options.occurrences_max)))
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise InvalidInputError(f"limit {ascii(text)[:40]}: expected a number.")
        found = await asyncio.to_thread(self._questions.occurrences, swhid, int(text))
        return {
            "swhid": str(swhid),
            "occurrences": [occurrence(place) for place in found.found],
            "is_complete": found.is_complete,
        }


def create_app(questions: Questions, settings: Settings, tokens: Tokens | None = None) -> FastAPI:
    """Return the application.

    Args:
        questions: what answers.
        settings: those of the repository; the section `swh` counts.
        tokens: of which one has to come with a request; None asks for none. `/health` asks for none either.
    """
    app = FastAPI(title="custody: where was this content?", docs_url=None, redoc_url=None, openapi_url=None)
    app.router.redirect_slashes = False
    routes = _Routes(questions, settings, tokens)
    app.add_route("/whereis/{swhid}", routes.guarded(routes.whereis), methods=["GET"])
    app.add_route("/whereare", routes.guarded(routes.whereare), methods=["POST"])
    app.add_route("/occurrences/{swhid}", routes.guarded(routes.occurrences), methods=["GET"])
    app.add_route("/events/{event_id}/occurrences", routes.guarded(routes.event), methods=["GET"])
    app.add_route("/health", _Routes(questions, settings, None).guarded(routes.health), methods=["GET"])

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


def _failed(error: CustodyError) -> Response:
    if isinstance(error, InvalidInputError):
        return _error(400, error.kind, str(error))
    if isinstance(error, NotFoundError):
        return _error(404, error.kind, str(error))
    # Names of files are the operator's business, not the asker's.
    _LOGGER.error("a question failed: %s", error)
    status = 503 if isinstance(error, StorageError) else 500
    return _error(status, error.kind, "the database cannot be read; the service's log says which file")


def _error(status: int, code: str, message: str) -> Response:
    return _json(status, {"error": code, "message": message})


def _json(status: int, document: object) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")
