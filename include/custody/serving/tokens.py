"""Who may post: a token out of a file that its owner alone can read. Compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import stat
from collections.abc import Mapping
from pathlib import Path

from custody.errors import ConfigurationError

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
