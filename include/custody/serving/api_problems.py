"""Errors of the API as problem details (RFC 9457): one shape, whatever failed, and the kinds of the library."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from custody.catalog import PrunedError
from custody.errors import CustodyError, LockedError, NotFoundError, StorageError
from custody.made_types import made_at_import
from custody.serving.application import LONG_RETRY_SECONDS, RETRY_SECONDS, Problem
from custody.serving.http_requests import BodyRefusedError

MEDIA_TYPE = "application/problem+json"
_CHARACTERS_MAX = 2000
_LOGGER = logging.getLogger(__name__)
# Of kinds: what a client did, or what the repository is in. Everything else is the server's fault.
_STATUS = {
    "invalid-input": 400,
    "configuration": 400,
    "not-found": 404,
    "conflict": 409,
    "superseded": 409,
    "locked": 503,
    "backpressure": 503,
    "closed": 503,
    "storage": 503,
    "stripe-missing": 503,
    "content-container-missing": 503,
}
# What an error of these kinds says is about the question, not about the server: it names no file of it.
_TOLD = frozenset({"invalid-input", "configuration", "not-found", "conflict", "superseded"})
_TITLES = {
    400: "The request cannot be read",
    401: "A token is needed",
    403: "The token does not allow this",
    404: "There is no such thing",
    405: "The method is not known here",
    409: "It has changed meanwhile",
    410: "It was here, and is not any more",
    413: "The body is too large",
    416: "The range lies outside of the content",
    415: "The body has another type",
    422: "The request has wrong fields",
    429: "Too much is asked for at once",
    503: "It cannot be answered now",
}


class WrongField(msgspec.Struct, frozen=True):
    """One field of a request that cannot be taken."""

    field: str
    detail: str


class ProblemDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What every error is answered with."""

    type: str
    """The kind as a relative reference: `/problems/KIND`."""
    title: str
    status: int
    detail: str
    kind: str
    """For machines; the kinds of the library, and those of HTTP."""
    errors: tuple[WrongField, ...] = ()


made_at_import(ProblemDocument)


class ProblemDetails(Problem):
    """An answer that is an error, as problem details."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        headers: dict[str, str] | None = None,
        errors: Sequence[WrongField] = (),
    ) -> None:
        super().__init__(status, kind, detail, headers)
        self.document = ProblemDocument(
            type=f"/problems/{kind}",
            title=_TITLES.get(status, "The server failed"),
            status=status,
            detail=detail[:_CHARACTERS_MAX],
            kind=kind,
            errors=tuple(errors),
        )
        self.body = msgspec.json.encode(self.document)
        self.headers["Content-Length"] = str(len(self.body))
        self.headers["Content-Type"] = MEDIA_TYPE


class GoneError(NotFoundError):
    """What was asked for was here, and was let go or erased."""


def problem_details(error: CustodyError, root: str) -> ProblemDetails:
    """Return the answer for an error of the library; where the folder `root` lies is for the log alone."""
    told = str(error).replace(f"{root}/", "")
    if isinstance(error, GoneError | PrunedError):
        return ProblemDetails(410, "gone", told)
    status = _STATUS.get(error.kind, 500)
    if error.kind in _TOLD:
        return ProblemDetails(status, error.kind, told)
    _LOGGER.warning("not answered: %s", error)
    if status == 503:
        seconds = LONG_RETRY_SECONDS if isinstance(error, StorageError) else RETRY_SECONDS
        headers = {"Retry-After": str(seconds)}
        return ProblemDetails(503, error.kind, "it cannot be read now; the server's log says why", headers=headers)
    return ProblemDetails(500, error.kind, "it cannot be read; the server's log says why")


def problem_document(error: CustodyError, root: str) -> ProblemDocument:
    """Return what is told of an error that work met which no request waits for; as `problem_details`."""
    if isinstance(error, LockedError):
        _LOGGER.warning("not done: %s", error)
        detail = "another process has what this needs: all writer slots, or the same source. Try again in a moment"
        return ProblemDetails(503, error.kind, detail).document
    return problem_details(error, root).document


def handle_problems(app: FastAPI, root: str) -> None:
    """Let an application answer every error with problem details, none of which names the folder `root`."""

    async def failed(_: Request, error: Exception) -> Response:
        if isinstance(error, CustodyError):
            return problem_details(error, root)
        if isinstance(error, BodyRefusedError):
            return ProblemDetails(error.status, error.code, str(error))
        if isinstance(error, RequestValidationError):
            errors = [WrongField(_name(one["loc"]), str(one["msg"])) for one in error.errors()]
            return ProblemDetails(400, "invalid-input", "some parameters cannot be taken", errors=errors)
        if isinstance(error, HTTPException):
            kind = {401: "token", 403: "scope", 404: "no-route", 405: "method", 416: "range", 429: "too-many"}.get(
                error.status_code, "error"
            )
            return ProblemDetails(error.status_code, kind, str(error.detail), headers=dict(error.headers or {}))
        return ProblemDetails(500, "error", "the server failed; its log says why")

    for kind in (CustodyError, BodyRefusedError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, failed)


def _name(place: Sequence[object]) -> str:
    return ".".join(str(part) for part in place[1:]) or str(place[0])
