"""custody's doors in Airflow's API server, opened by the first request that a worker of it gets.

Each worker is a process and needs a writer slot (`repository.writer_slots`); one that finds none answers 503 until one
is free. Airflow authenticates nobody before it calls a plugin. So the doors ask for a token of `serve.token_file` or
for one of Airflow's own, whose user may see or make events of assets. The NGSI receiver alone asks for a token of
`receiver.token_file`, always: a context broker cannot renew the tokens of Airflow.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI
from starlette.responses import JSONResponse
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from custody.errors import ConfigurationError, CustodyError, LockedError

if TYPE_CHECKING:
    from airflow.api_fastapi.auth.managers.base_auth_manager import ResourceMethod

    from custody.serving.access import Grant

AGAIN_SECONDS = 1.0
"""After this time a worker that could not open the receiver tries again, at the next request."""
_SESSION_COOKIE = "_token"
"""The cookie of Airflow's page; the token in it is one of Airflow's."""
_REPLAY_DAG = "provenance_replay"
"""Whose runs do what a replay from the pages does."""
_LOG = logging.getLogger(__name__)


Opener = Callable[[Path], tuple[ASGIApp, ExitStack]]
"""Opens an application on the repository in a folder; returns it, and what it holds."""


class Receiving:
    """Opens an application on one repository at the first request, and passes requests on to it."""

    def __init__(self, folder: Path, opener: Opener) -> None:
        self._folder = folder
        self._opener = opener
        self._held = ExitStack()
        self._opening: asyncio.Task[ASGIApp] | None = None
        self._again = 0.0
        self._said = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._opening is None or (self._opening.done() and time.monotonic() >= self._again):
            self._opening = asyncio.create_task(self._opened())
        # One request opens for all others; where its client goes away, the opening goes on.
        app = await asyncio.shield(self._opening)
        await app(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """At the end, store what waits and free the writer slot."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close)
            yield

    async def _opened(self) -> ASGIApp:
        """Return the receiver, or an application that answers why there is none yet."""
        try:
            app = await asyncio.to_thread(self._open)
        except CustodyError as error:
            if str(error) != self._said:
                _LOG.error("%s: requests are refused: %s", self._folder, error)
            self._said = str(error)
            self._again = time.monotonic() + AGAIN_SECONDS
            return _refusing(error)
        self._again = float("inf")
        return app

    def _open(self) -> ASGIApp:
        app, self._held = self._opener(self._folder)
        return app

    async def _close(self) -> None:
        if self._opening is not None:
            await asyncio.wait([self._opening])
        self._opening = None
        await asyncio.to_thread(self._held.close)


def mounted(folder: Path) -> FastAPI:
    """Return the NGSI receiver that Airflow's API server mounts; nothing is opened yet."""
    return _mounted("custody NGSI receiver", Receiving(folder, _open_receiver))


def mounted_doors(folder: Path) -> FastAPI:
    """Return the doors of `serve.doors` that Airflow's API server mounts; nothing is opened yet."""
    return _mounted("custody", Receiving(folder, _open_doors))


def _mounted(title: str, receiving: Receiving) -> FastAPI:
    app = FastAPI(title=title, docs_url=None, redoc_url=None, openapi_url=None, lifespan=receiving.lifespan)
    app.router.routes.append(Mount("", receiving))
    return app


# Imported when they are called: what the API server starts with needs neither Arrow nor a repository.
def _open_receiver(folder: Path) -> tuple[ASGIApp, ExitStack]:
    from custody.clock import SystemClock
    from custody.repository import Repository
    from custody.serving import Tokens
    from custody.serving.ngsi_intake import Intake
    from custody.serving.ngsi_receiver import Receiver, receiver_app

    at = Repository.open(folder)
    settings = at.settings
    if settings.receiver.token_file is None:
        raise ConfigurationError(
            "receiver.token_file: expected a file with tokens, got none. "
            "Airflow's API server lets everybody reach a plugin."
        )
    tokens = Tokens.read(settings.root / settings.receiver.token_file)
    with ExitStack() as stack:
        writer = stack.enter_context(at.writer())
        intake = stack.enter_context(Intake(writer, settings.receiver.requests_max))
        app = receiver_app(Receiver(settings, intake, at.quarantine, SystemClock(), tokens))
        return app, stack.pop_all()


def _open_doors(folder: Path) -> tuple[ASGIApp, ExitStack]:
    from custody.clock import SystemClock
    from custody.repository import Repository
    from custody.serving import Tokens
    from custody.serving.application import Access, application
    from custody.serving.door import Services
    from custody.serving.doors import open_doors
    from custody.serving.repository_measures import RepositoryMeasures
    from custody.serving.server_metrics import ServerMetrics
    from custody.serving.serving_access import hosts_of, rights_of
    from custody.vfs import PosixFileSystem

    at = Repository.open(folder)
    options = at.settings.serve
    tokens = None if options.token_file is None else Tokens.read(at.settings.root / options.token_file)
    metrics = ServerMetrics(RepositoryMeasures(at, PosixFileSystem(), SystemClock()))
    services = Services(at, at.settings, SystemClock())
    with ExitStack() as stack:
        stack.callback(services.close)
        # The pages are links of Airflow's own page, whatever else is open.
        names = options.doors if "pages" in options.doors else (*options.doors, "pages")
        doors = stack.enter_context(open_doors(names, services))
        rights, hosts = rights_of(at.settings), hosts_of(at.settings)
        access = Access(tokens, None, airflow_grant, _SESSION_COOKIE, rights, hosts)
        return application(options, doors, access, metrics, options.waiting_bytes_max), stack.pop_all()


async def airflow_grant(token: str) -> Grant | None:
    """Return what a user of Airflow may do by a token of Airflow's; None for a token that Airflow does not know.

    Who may see assets may read; who may make events of assets may deliver events, and read contents; who may delete
    them may manage. Who may start the DAG of replays may replay.
    """
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails

    from custody.serving.access import Grant, Scope

    manager = get_auth_manager()
    try:
        user = await manager.get_user_from_token(token)
    except Exception as error:  # noqa: BLE001 - each manager has its own errors; the message may repeat the token
        _LOG.debug("a token that is not Airflow's: %s", type(error).__name__)
        return None
    methods: tuple[tuple[Scope, ResourceMethod], ...] = (
        (Scope.READ, "GET"),
        (Scope.APPEND, "POST"),
        (Scope.CONTENT, "POST"),
        (Scope.MANAGE, "DELETE"),
    )
    scopes = {scope for scope, method in methods if manager.is_authorized_asset(method=method, user=user)}
    if manager.is_authorized_dag(
        method="POST", access_entity=DagAccessEntity.RUN, details=DagDetails(id=_REPLAY_DAG), user=user
    ):
        scopes.add(Scope.REPLAY)
    return Grant(ascii(user.get_name())[1:-1].replace(" ", "_")[:100], frozenset(scopes))


def _refusing(error: CustodyError) -> ASGIApp:
    """Return an application that answers 503; the message names no paths, for a broker reads it."""
    message = "the receiver could not be opened; the log of Airflow's API server says why"
    if isinstance(error, LockedError):
        message = "live processes hold all writer slots (repository.writer_slots)"
    document = {"error": error.kind, "message": message}
    return JSONResponse(document, 503, headers={"Retry-After": "5" if isinstance(error, LockedError) else "30"})
