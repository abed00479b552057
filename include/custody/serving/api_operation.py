"""An operation of the API: its right, its checks, its parameters, and the thread that it answers in.

FastAPI describes the parameters of an operation and says how each is read. Its own way through them looks at each
parameter of the description a few times in each request, which takes a fifth of a search of a millisecond. Here those
alone are read that came.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import Any, get_args, get_origin

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from custody.errors import InvalidInputError
from custody.serving.application import proven_grant, visibility_of
from custody.serving.route_rights import UNDECLARED, RouteRight

Check = Callable[[Request], Awaitable[None]]
"""Raises where a request is not to be answered."""


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """One operation of the API, as it is added to an application."""

    path: str
    answer: Callable[..., Any]
    document: type | None
    """What it answers with; None for bytes and streams."""
    right: RouteRight
    method: str = "GET"
    body: type | None = None
    status: int = 200
    is_question: bool = False
    """Whether it changes nothing, whatever its method."""

    @property
    def changes(self) -> bool:
        """Whether something is begun or ended by it."""
        return self.method not in ("GET", "HEAD") and not self.is_question


class Operation(APIRoute):
    """An operation whose dependencies are checks, and whose answer is a response.

    A parameter that is not known, or that comes twice, is refused: a mistyped filter must not widen an answer.

    Args:
        path: below that of the API.
        endpoint: answers.
        right: what a request needs; an operation without one refuses everybody.
        options: FastAPI's own.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[..., Any],
        *,
        right: RouteRight | None = None,
        **options: Any,  # noqa: ANN401 - FastAPI's own
    ) -> None:
        self.right = right
        super().__init__(path, endpoint, **options)
        answered = self.get_route_handler()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            response = await answered(Request(scope, receive, send))
            await response(scope, receive, send)

        # FastAPI's own would open places for what dependencies leave to be closed: checks leave nothing.
        self.app = app

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        needed = self.dependant  # codespell:ignore
        checks: Sequence[Check] = [each.call for each in needed.dependencies if each.call is not None]
        path = {each.alias: each for each in needed.path_params}
        query = {each.alias: each for each in needed.query_params}
        lists = {name for name, each in query.items() if _is_list(each.field_info.annotation)}
        required = {name for name, each in query.items() if each.field_info.is_required()}
        defaults = {each.name: each.get_default() for name, each in query.items() if name not in required}
        takes_request, answer = needed.request_param_name, self.endpoint
        is_coroutine = iscoroutinefunction(answer)

        def arguments(request: Request) -> dict[str, Any]:
            came = request.query_params
            _refuse_unknown(came.multi_items(), query, lists)
            values, errors = dict(defaults), list[Any]()
            texts = [(path[name], "path", text) for name, text in request.path_params.items()]
            texts += [(query[name], "query", came.getlist(name) if name in lists else came[name]) for name in came]
            for field, place, text in texts:
                value, wrong = field.validate(text, values, loc=(place, field.alias))
                if wrong:
                    errors.extend(wrong)
                else:
                    values[field.name] = value
            errors += [
                {"type": "missing", "loc": ("query", name), "msg": "Field required", "input": None}
                for name in query
                if name in required and name not in came
            ]
            if errors:
                raise RequestValidationError(errors)
            if takes_request is not None:
                values[takes_request] = request
            return values

        async def answered(request: Request) -> Response:
            _check_right(self.right, request)
            for check in checks:
                await check(request)
            values = arguments(request)
            response: Response = await answer(**values) if is_coroutine else await run_in_threadpool(answer, **values)
            return _unless_known(request, response)

        return answered


def _check_right(right: RouteRight | None, request: Request) -> None:
    refusal = UNDECLARED if right is None else right.refusal(proven_grant(request.scope), visibility_of(request.scope))
    if refusal is not None:
        headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else None
        raise HTTPException(refusal.status, refusal.message, headers)


def _unless_known(request: Request, response: Response) -> Response:
    """Return a document with its tag, or nothing but the tag to who has the same one already.

    The tag is a weak one: what stands in front may compress the document, and keeps it. It is made of the document,
    so that what was forgotten is never taken for what is still the same.
    """
    is_document = response.headers.get("content-type") == "application/json" and type(response) is Response
    if request.method != "GET" or response.status_code != HTTPStatus.OK or not is_document:
        return response
    tag = f'W/"{hashlib.blake2b(response.body, digest_size=16).hexdigest()}"'
    response.headers["ETag"] = tag
    known = [each.strip() for each in request.headers.get("if-none-match", "").split(",")]
    if tag not in known and "*" not in known:
        return response
    kept = {name: response.headers[name] for name in ("ETag", "Cache-Control", "Vary") if name in response.headers}
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=kept)


def _refuse_unknown(came: Sequence[tuple[str, str]], known: Mapping[str, object], lists: set[str]) -> None:
    seen = set[str]()
    for name, _ in came:
        if name not in known:
            unknown = min(each for each, _ in came if each not in known)
            expected = ", ".join(sorted(known)) or "none"
            raise InvalidInputError(f"parameter {unknown[:80]!r}: expected one of {expected}.")
        if name in seen and name not in lists:
            times = sum(each == name for each, _ in came)
            raise InvalidInputError(f"parameter {name!r}: expected it once, got it {times} times.")
        seen.add(name)


def _is_list(annotation: object) -> bool:
    return get_origin(annotation) is list or any(get_origin(each) is list for each in get_args(annotation))
