"""Reading the body of a request: of bounded length, in bounded time.

Heads of requests that mean two things: a header twice of which one counts, a length beside chunks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

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


SINGLE = frozenset({"authorization", "content-length", "content-type", "host", "transfer-encoding", "x-auth-token"})
"""Headers of every service of custody that come once."""


def ambiguous(headers: Iterable[tuple[bytes, bytes]], single: frozenset[str] = SINGLE) -> str | None:
    """Return what is wrong with headers as they came, names in lower case; None where they say one thing.

    Two of one name are refused also where they are equal: a proxy before this may have looked at one of them.
    """
    seen: set[str] = set()
    for raw, _ in headers:
        name = raw.decode("latin-1")
        if name in single and name in seen:
            return f"{name}: expected it once, got it twice"
        seen.add(name)
    if {"content-length", "transfer-encoding"} <= seen:
        return "expected content-length or transfer-encoding, got both"
    return None
