"""The door for people: custody's pages, below `/ui`, which ask the API of the same server.

Documents, scripts and styles are the same for everybody and need no token; what they show comes from the API, which
asks for one. A browser gets a policy with each file: nothing is loaded from elsewhere, no script stands in a document.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from custody.serving.door import Measure, Services
from custody.serving.route_rights import OPEN, DoorMount, DoorRoute
from custody_pages import BUILT

_LOGGER = logging.getLogger(__name__)
PREFIX = "/ui"
FIRST = "search.html"
ICON = "assets/icon"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "connect-src 'self'",
        "worker-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)
_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}
_NOT_BUILT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>custody</title></head>
<body><h1>The pages are not built</h1>
<p>This installation of custody has no pages. A wheel has them; in a checkout, <code>make pages</code> builds them
as soon as PyPI and npm's registry can be reached. The server needs no restart.</p>
<p>All that the pages show is to be had from the API, and from the command <code>custody</code>.</p>
</body></html>
"""


class PagesDoor:
    """Gives out the built pages; they are looked for at each request, so that a new build needs no restart.

    Args:
        services: of the server.
        folder: where they are; those of this installation where none is given.
    """

    name = "pages"

    def __init__(self, services: Services, folder: Path = BUILT) -> None:
        self._folder = folder
        self._files = _Pages(folder)
        if not (folder / FIRST).is_file():
            _LOGGER.warning(
                "the pages are not built: this installation has none. A wheel has them where npm's registry could be "
                "reached when it was made; in a checkout, make pages builds them."
            )

    def routes(self) -> Sequence[DoorRoute | DoorMount]:
        """Return the files, and ways to the first page; they are the same for everybody."""
        return [
            DoorRoute("/", _Moved("ui/"), right=OPEN),
            # Browsers ask for it when they leave a document before its own icon was read.
            DoorRoute("/favicon.ico", self._icon, right=OPEN),
            DoorRoute(PREFIX, _Moved(f"ui/{FIRST}"), right=OPEN),
            DoorRoute(f"{PREFIX}/", _Moved(FIRST), right=OPEN),
            DoorMount(PREFIX, self._files, right=OPEN),
        ]

    async def _icon(self, _: Request) -> Response:
        """Lead to the icon of the build, whose name has a digest."""
        icon = next(self._folder.glob(f"{ICON}-*.svg"), None)
        if icon is None:
            return Response("no pages are built\n", 404, _HEADERS, media_type="text/plain")
        way = f"ui/{icon.relative_to(self._folder).as_posix()}"
        return Response(status_code=307, headers={**_HEADERS, "Location": way, "Cache-Control": "no-cache"})

    def ready(self) -> str | None:
        """Return None: where nothing is built, a page says so."""
        return None

    def metrics(self) -> Iterable[Measure]:
        """Return nothing: the application counts requests and answers."""
        return ()

    def close(self) -> None:
        """Do nothing: it holds nothing that waits."""


class _Pages:
    def __init__(self, folder: Path) -> None:
        self._first = folder / FIRST
        self._files = StaticFiles(directory=folder, check_dir=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_HEADERS)
                # Names of these files have a digest of what is in them.
                is_named = scope["path"].rpartition("/")[0].endswith("/assets") and message["status"] == 200
                headers["Cache-Control"] = "public, max-age=31536000, immutable" if is_named else "no-cache"
            await send(message)

        try:
            if not self._first.is_file():
                raise HTTPException(503)
            await self._files(scope, receive, send_with_policy)
        except HTTPException as error:
            await self._refusal(error)(scope, receive, send_with_policy)

    def _refusal(self, error: HTTPException) -> Response:
        if error.status_code == 503:
            return HTMLResponse(_NOT_BUILT, 503)
        return Response(f"{error.detail}\n", error.status_code, dict(error.headers or {}), media_type="text/plain")


class _Moved:
    """Sends a browser to a path that is relative to where it asked, whatever the doors are mounted at."""

    def __init__(self, to: str) -> None:
        self._to = to

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = Request(scope).url.query
        to = f"{self._to}?{query}" if query else self._to
        await Response(status_code=307, headers={"Location": to})(scope, receive, send)
