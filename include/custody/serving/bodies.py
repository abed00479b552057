"""Reading the body of a request: of bounded length, in bounded time."""

from __future__ import annotations

import asyncio

from fastapi import Request


class BodyRefusedError(Exception):
    """A body that is not read to its end: `status` is the answer's, `code` its name for machines."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


async def bounded_body(request: Request, bytes_max: int, seconds: float) -> bytes:
    """Return the body of a request.

    Raises:
        BodyRefusedError: it is longer, or takes longer.
        ClientDisconnect: the client went away.
    """
    too_large = BodyRefusedError(413, "too-large", f"expected a body of at most {bytes_max} bytes")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared[:20]) > bytes_max:
        raise too_large
    held = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                held += chunk
                if len(held) > bytes_max:
                    raise too_large
    except TimeoutError:
        raise BodyRefusedError(408, "slow", f"the body took more than {seconds:g} s") from None
    return bytes(held)
