"""Rights of routes: what each route of each door needs, declared on the route and checked before it is called.

A route without a declared right answers nobody: a door cannot be opened with one, and an operation of the API with none
is refused, whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from custody.model.visibility import Visibility
from custody.serving.access import Grant, Scope


class Shows(StrEnum):
    """What an answer of a route shows of events."""

    NOTHING = "nothing"
    """No event, and no number of them."""
    VISIBLE = "visible"
    """Only what the sender of the request may see."""
    ALL = "all"
    """Numbers or names of all events: refused to those from whom rules hide some."""
    INPUT = "input"
    """Input as it came, and all events: refused to those, too, for whom rules mask attributes."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered: status, code for machines, sentence."""

    status: int
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class RouteRight:
    """What a request to a route needs."""

    scope: Scope | None
    """None for a route that is open to everybody, or whose application checks each of its own routes."""
    shows: Shows

    def refusal(self, grant: Grant | None, visibility: Visibility | None) -> Refusal | None:
        """Return why a request is refused, None for one that is let in.

        Args:
            grant: what it may do; None for one that proves nothing.
            visibility: what its sender may see; None for every event.
        """
        if self.scope is None:
            return None
        if grant is None:
            return Refusal(401, "token", "expected a token: Authorization: Bearer …, or X-Auth-Token")
        if self.scope not in grant.scopes:
            return Refusal(403, "scope", f"expected a token with the scope {self.scope}")
        if visibility is None:
            return None
        if self.shows is Shows.INPUT and visibility.masks:
            return Refusal(403, "rights", "this tells of input as it came, and values of attributes are masked for you")
        if self.shows in (Shows.ALL, Shows.INPUT) and visibility.hides_events:
            return Refusal(403, "rights", "this tells of all events, and you may see some of them only")
        return None


OPEN = RouteRight(None, Shows.NOTHING)
"""Of routes for everybody: the health of the server, files of pages."""
UNDECLARED = Refusal(403, "undeclared", "this route declares no right, and so nobody may use it")


class DoorRoute(Route):
    """A route of a door, with its right."""

    def __init__(
        self, path: str, endpoint: Callable[..., Any], *, right: RouteRight, methods: Collection[str] | None = None
    ) -> None:
        super().__init__(path, endpoint, methods=methods)
        self.right = right

    async def handle(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Pass every request on: one with another method, too, is refused behind the entrance."""
        await self.app(scope, receive, send)


class DoorMount(Mount):
    """An application of a door, with the right to all that is below its path.

    With `checks_itself` each route of the application has a right of its own, which the application checks.
    """

    def __init__(self, path: str, app: ASGIApp, *, right: RouteRight, checks_itself: bool = False) -> None:
        super().__init__(path, app)
        self.right = right
        self.checks_itself = checks_itself
