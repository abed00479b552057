"""Checks that every server makes before it answers: a head with one meaning, a body of bounded size and time.

The rules are the same for all services of custody, so that a proxy in front of them needs one configuration.
"""

from __future__ import annotations

import asyncio
import io
import ipaddress
from collections.abc import Collection, Iterable, Mapping, Sequence
from urllib.parse import urlsplit

from fastapi import Request

from custody.capture import Rejected
from custody.capture.encodings import GZIP, InputText
from custody.errors import InvalidInputError

SINGLE = frozenset({"authorization", "content-length", "content-type", "host", "transfer-encoding", "x-auth-token"})
"""Headers that may come only once, in every service of custody."""
NO_SNIFFING = {"X-Content-Type-Options": "nosniff"}
"""Parts of most answers come from outside: a browser takes them for the type that is said, and for no other."""


def ambiguous(headers: Iterable[tuple[bytes, bytes]], single: frozenset[str] = SINGLE) -> str | None:
    """Return why headers, names in lower case, could be read in two ways; None where they have one meaning.

    Two of one name are refused even where they are equal: a proxy before this server may have looked at one of them.
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


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_own_host(headers: Mapping[str, str], allowed: Collection[str]) -> bool:
    """Whether `Host`, of headers with names in lower case, names this machine, or is one of the names that are allowed.

    The name of any site may lead to this machine (DNS rebinding). A browser then takes this server for that site's own,
    which its pages may read and write, and only `Host` tells. A request without one is none of a browser's.
    """
    host = headers.get("host")
    if host is None:
        return True
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return is_loopback(name) or name in allowed


def is_from_own_page(headers: Mapping[str, str]) -> bool:
    """Whether a browser asks for a page of this server itself, or a person who typed the address in."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    # Without TLS browsers do not say where a request is from; of one that may change something they say the origin.
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")


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
    # Refused before any of it is read. Cut to 20 digits, for `int` raises where there are thousands.
    if declared.isdigit() and int(declared[:20]) > bytes_max:
        raise too_large
    # Counted as it comes: a body in chunks declares no length, and a declared one may be wrong.
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bytes_max:
                    raise too_large
    except TimeoutError:
        raise BodyRefusedError(408, "slow", f"the body took more than {seconds:g} s") from None
    return bytes(body)


def unzipped(raw: bytes, bytes_max: int, setting: str = "capture.body_bytes_max") -> bytes:
    """Return the text of a gzip body, which may have several members.

    Raises:
        InvalidInputError: it is no gzip, or cut off.
        BodyRefusedError: the text is longer than the limit; no more than that is unzipped.
    """
    if not raw.startswith(GZIP):
        raise InvalidInputError("expected gzip, got other bytes")
    text = InputText(io.BytesIO(raw), bytes_max=bytes_max)
    chunks = list(iter(text.chunk, b""))
    if text.cut is None:
        return b"".join(chunks)
    code, message = text.cut
    if code == "file-too-large":
        raise BodyRefusedError(413, "too-large", f"expected a body of at most {bytes_max} bytes unzipped ({setting})")
    raise InvalidInputError(message)


def refuse_one_too_large(pieces: Sequence[object]) -> None:
    """Refuse a body that is one event and too large for one; among others it goes to the quarantine.

    Raises:
        BodyRefusedError: it is.
    """
    if len(pieces) == 1 and isinstance(pieces[0], Rejected) and pieces[0].problem.code == "event-too-large":
        raise BodyRefusedError(413, "too-large", pieces[0].problem.message)
