"""What is left of a refused body is read and thrown away before its connection is closed.

A connection that is closed while its client still sends is reset, and the client's system throws the answer away with
it: the client reports a broken pipe in place of the 413. So the answer is sent at once, and the connection ends when
the body does, or after the time that any body has.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SLOW = 408
"""Its client had its time."""


class Lingering:
    """An application whose answers with `Connection: close` reach clients that still send.

    Args:
        app: answers.
        seconds: how long the rest of a body is read.
    """

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self._app = app
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_read = closes = False

        async def noting() -> Message:
            nonlocal is_read
            message = await receive()
            is_read = message["type"] != "http.request" or not message.get("more_body", False)
            return message

        async def lingering(message: Message) -> None:
            nonlocal closes
            if message["type"] == "http.response.start":
                headers = Headers(raw=message.get("headers", []))
                closes = headers.get("connection", "").lower() == "close" and message["status"] != _SLOW
            elif closes and not is_read and not message.get("more_body", False):
                # All of the answer goes out now; what ends it comes when the body has.
                await send({**message, "more_body": True})
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds):
                        while not is_read:
                            await noting()
                message = {"type": "http.response.body", "body": b"", "more_body": False}
            await send(message)

        await self._app(scope, noting, lingering)
