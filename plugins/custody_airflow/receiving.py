"""The NGSI receiver in Airflow's API server, opened by the first request that a worker of it gets.

Each worker is a process and needs a writer slot (`repository.writer_slots`); one that finds none answers 503 until one
is free. Airflow's own users and tokens are not for context brokers, which cannot renew them: a token of
`receiver.token_file` is asked for instead, always.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path

from fastapi import FastAPI
from starlette.responses import JSONResponse
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from custody.errors import ConfigurationError, CustodyError, LockedError

AGAIN_SECONDS = 1.0
"""After this time a worker that could not open the receiver tries again, at the next request."""
_LOG = logging.getLogger(__name__)


class Receiving:
    """Opens the receiver of one repository at the first request, and passes requests on to it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
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
                _LOG.error("%s: notifications are refused: %s", self._folder, error)
            self._said = str(error)
            self._again = time.monotonic() + AGAIN_SECONDS
            return _refusing(error)
        self._again = float("inf")
        return app

    def _open(self) -> ASGIApp:
        # Not when the module is imported: what the API server starts with needs neither Arrow nor a repository.
        from custody.clock import SystemClock
        from custody.repository import Repository
        from custody.serving import Tokens
        from custody.serving.ngsi_intake import Intake
        from custody.serving.ngsi_receiver import Receiver, receiver_app

        at = Repository.open(self._folder)
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
            self._held = stack.pop_all()
        return app

    async def _close(self) -> None:
        if self._opening is not None:
            await asyncio.wait([self._opening])
        self._opening = None
        await asyncio.to_thread(self._held.close)


def mounted(folder: Path) -> FastAPI:
    """Return the application that Airflow's API server mounts; nothing is opened yet."""
    receiving = Receiving(folder)
    app = FastAPI(
        title="custody NGSI receiver", docs_url=None, redoc_url=None, openapi_url=None, lifespan=receiving.lifespan
    )
    app.router.routes.append(Mount("", receiving))
    return app


def _refusing(error: CustodyError) -> ASGIApp:
    """Return an application that answers 503; the message names no paths, for a broker reads it."""
    message = "the receiver could not be opened; the log of Airflow's API server says why"
    if isinstance(error, LockedError):
        message = "live processes hold all writer slots (repository.writer_slots)"
    document = {"error": error.kind, "message": message}
    return JSONResponse(document, 503, headers={"Retry-After": "5" if isinstance(error, LockedError) else "30"})
