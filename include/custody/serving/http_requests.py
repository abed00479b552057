"""Reading the body of a request: of bounded length, in bounded time.

Heads of requests that mean two things: a header twice of which one counts, a length beside chunks.

Who may post: a token out of a file that its owner alone can read. Compared in constant time.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from fastapi import Request

from custody.errors import ConfigurationError


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


CHARACTERS_MIN = 16
_BEARER = "bearer "


class Tokens:
    """The tokens of which one has to come with a request; kept as digests."""

    def __init__(self, tokens: list[str]) -> None:
        self._digests = [_digest(token) for token in tokens]

    @classmethod
    def read(cls, path: Path) -> Tokens:
        """Read a file with one token a line; empty lines and those that begin with # are none.

        Raises:
            ConfigurationError: it cannot be read, others can read it, it has no token, or one that is too short.
        """
        try:
            if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
                raise ConfigurationError(f"{path}: expected a file that its owner alone can read. chmod 600 it.")
            lines = [line.strip() for line in path.read_text(encoding="ascii").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: expected a file with a token a line: {error}") from None
        tokens = [line for line in lines if line and not line.startswith("#")]
        if not tokens or any(len(token) < CHARACTERS_MIN for token in tokens):
            raise ConfigurationError(f"{path}: expected a token of {CHARACTERS_MIN} or more characters a line.")
        return cls(tokens)

    def admit(self, headers: Mapping[str, str]) -> bool:
        """Whether the headers, names in lower case, bring one of the tokens."""
        authorization = headers.get("authorization", "")
        given = headers.get("x-auth-token", "")
        if authorization.lower().startswith(_BEARER):
            given = authorization[len(_BEARER) :].strip()
        found = _digest(given)
        is_known = False
        for digest in self._digests:  # all of them, so that the time says nothing
            is_known |= hmac.compare_digest(digest, found)
        return is_known


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
