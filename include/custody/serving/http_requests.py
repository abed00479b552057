"""Checks that every server makes before it answers: a token, a head with one meaning, a body of bounded size and time.

The rules are the same for all services of custody, so that a proxy in front of them needs one configuration.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from fastapi import Request

from custody.errors import ConfigurationError

CHARACTERS_MIN = 16
SINGLE = frozenset({"authorization", "content-length", "content-type", "host", "transfer-encoding", "x-auth-token"})
"""Headers that may come only once, in every service of custody."""
_BEARER = "bearer "


class Tokens:
    """The tokens of which a request has to bring one; they are kept as digests."""

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

    @property
    def digests(self) -> Collection[bytes]:
        """The SHA-256 of each token."""
        return self._digests

    def admit(self, headers: Mapping[str, str]) -> bool:
        """Whether the headers, names in lower case, bring one of the tokens."""
        authorization = headers.get("authorization", "")
        token = headers.get("x-auth-token", "")
        if authorization.lower().startswith(_BEARER):
            token = authorization[len(_BEARER) :].strip()
        digest = _digest(token)
        is_known = False
        for known in self._digests:  # every one, in constant time: the time must not tell which one came close
            is_known |= hmac.compare_digest(known, digest)
        return is_known


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


def _digest(token: str) -> bytes:
    # Digests are of one length, so that comparing them does not tell how long a token is.
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
