"""Access to a server: scopes, tokens that have them, and the file that keeps the tokens as digests.

A line of the file is `sha256:DIGEST SCOPES NAME CREATED`, with the scopes joined by commas. Only who was given a token
knows it. The digest is that of the id of its input port, a UUID that follows from the token: NiFi's Site-to-Site names
it in each request, as it cannot bring a token. Neither leads back: nobody delivers by what the file says, and a port
that somebody saw is no token. A line may also be a token itself, as files of the receiver have it, perhaps with
scopes behind it; such a file must be readable by its owner alone.

A server looks at the file once a second at most and reads it again when it has changed. While the new file is unfit,
the tokens of the last good one count, and the log says why.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import stat
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from custody.errors import ConfigurationError, NotFoundError
from custody.serving.reloaded_file import ReloadedFile
from custody.vfs import FileSystem

CHARACTERS_MIN = 16
_BEARER = "bearer "
_HASHED = re.compile(r"sha256:([0-9a-f]{64})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_PORT = b"custody input port\0"
_PREFIX = "custody_"
_SECRET_BYTES = 32


class Scope(StrEnum):
    """What a token allows."""

    READ = "read"
    """To search and to see events."""
    CONTENT = "content"
    """To read the contents that events speak of."""
    APPEND = "append"
    """To deliver events and contents."""
    REPLAY = "replay"
    """To send FlowFiles again."""
    MANAGE = "manage"
    """To forget, to hold, and to change what is kept."""


EVERYTHING = frozenset(Scope)
ANYBODY = "-"
"""The name of whoever has to prove nothing."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What one request may do, and under which name; the name is that of a token or of a certificate."""

    name: str
    scopes: frozenset[Scope]


@dataclass(frozen=True, slots=True)
class TokenLine:
    """One token of a file."""

    digest: str
    """As `digest_of` returns it, in hexadecimal digits."""
    scopes: frozenset[Scope]
    name: str
    created: str
    """When it was made, as ISO 8601; empty for a token that a person wrote into the file."""

    @property
    def text(self) -> str:
        """The line as it stands in a file."""
        scopes = ",".join(scope for scope in Scope if scope in self.scopes)
        return f"sha256:{self.digest} {scopes} {self.name} {self.created or '-'}"


class Tokens:
    """Tokens of which a request has to bring one, kept as digests; they can be those of a file, read when it changes.

    Args:
        tokens: each allows everything; empty where they are those of a file.
    """

    def __init__(self, tokens: Sequence[str] = ()) -> None:
        self._tokens = [
            TokenLine(digest_of(token), EVERYTHING, f"token-{number}", "") for number, token in enumerate(tokens, 1)
        ]
        self._file: ReloadedFile[list[TokenLine]] | None = None
        self._needed = Scope.APPEND

    @classmethod
    def read(
        cls,
        path: Path,
        default: frozenset[Scope] = EVERYTHING,
        needed: Scope = Scope.APPEND,
        now: Callable[[], float] = time.monotonic,
    ) -> Tokens:
        """Return the tokens of a file, which are read again when it changes.

        Args:
            path: of the file.
            default: the scopes of a token whose line names none.
            needed: the scope that `admit` looks for.
            now: tells seconds.

        Raises:
            ConfigurationError: the file cannot be read, has no token, or a line that is none.
        """
        tokens = cls()
        tokens._needed = needed

        def read(at: Path) -> list[TokenLine]:
            # A file without a token is one that all tokens were taken out of.
            return read_token_file(at, default)

        tokens._file = ReloadedFile(path, read, "tokens", lambda at: _at_least_one(at, read(at)), now)
        return tokens

    def grant(self, headers: Mapping[str, str]) -> Grant | None:
        """Return what the token allows that the headers bring, names in lower case; None without a known one."""
        return self.grant_of_port(port_of(brought_token(headers)))

    def grant_of_port(self, port_id: str) -> Grant | None:
        """Return what the token allows whose input port has this id; None for a port of no known one."""
        digest = _digest_of_port(port_id)
        grant = None
        # Every one, in constant time: the time must not tell which one came close.
        for line in self._lines():
            if hmac.compare_digest(line.digest, digest):
                grant = Grant(line.name, line.scopes)
        return grant

    def admits_port(self, port_id: str) -> bool:
        """Whether it is the id of the input port of a token with the scope that is needed."""
        grant = self.grant_of_port(port_id)
        return grant is not None and self._needed in grant.scopes

    def admit(self, headers: Mapping[str, str]) -> bool:
        """Whether the headers bring a token with the scope that is needed."""
        grant = self.grant(headers)
        return grant is not None and self._needed in grant.scopes

    def _lines(self) -> list[TokenLine]:
        return self._tokens if self._file is None else self._file.content()


def producer_named(name: str) -> str | None:
    """Return the producer that the name of a grant stands for: events and keys are its own.

    It is the name of a token and not its digest, so a token that is renewed goes on with its numbers. None is whoever
    has to prove nothing, like programs of this machine.
    """
    return None if name == ANYBODY else name


def brought_token(headers: Mapping[str, str]) -> str:
    """Return the token that headers, names in lower case, bring; empty for none."""
    authorization = headers.get("authorization", "")
    if authorization.lower().startswith(_BEARER):
        return authorization[len(_BEARER) :].strip()
    return headers.get("x-auth-token", "")


def port_of(token: str) -> str:
    """Return the id of the input port for who has a token."""
    digest = hashlib.sha256(_PORT + token.encode("utf-8", "surrogateescape")).digest()
    return str(uuid.UUID(bytes=digest[:16], version=5))


def digest_of(token: str) -> str:
    """Return the digest of a token, as files of tokens have it. Part of their format: never change it."""
    return _digest_of_port(port_of(token))


def _digest_of_port(port_id: str) -> str:
    return hashlib.sha256(port_id.encode("utf-8", "surrogatepass")).hexdigest()


def read_token_file(path: Path, default: frozenset[Scope] = frozenset({Scope.APPEND})) -> list[TokenLine]:
    """Return the tokens of a file; empty lines and those that begin with # are none.

    Raises:
        ConfigurationError: it cannot be read, others can change it or read tokens in it, or a line is no token.
    """
    try:
        mode = path.stat().st_mode
        lines = [line.strip() for line in path.read_text(encoding="ascii").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: expected a file with a token a line: {error}") from None
    tokens = [
        _token_line(path, number, line, default)
        for number, line in enumerate(lines, 1)
        if line and not line.startswith("#")
    ]
    has_secrets = any(not line.startswith("sha256:") for line in lines if line and not line.startswith("#"))
    forbidden = stat.S_IRWXG | stat.S_IRWXO if has_secrets else stat.S_IWGRP | stat.S_IWOTH
    if mode & forbidden:
        raise ConfigurationError(f"{path}: expected a file that its owner alone can read and change. chmod 600 it.")
    return tokens


def add_token(fs: FileSystem, path: Path, name: str, scopes: frozenset[Scope], created: str) -> str:
    """Add a token to a file, which is made if there is none; return the token, which is kept nowhere.

    Durability: on return the file survives power loss.

    Raises:
        ConfigurationError: the name is taken or none, or the file is unfit.
        LockedError: another process changes the file.
    """
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"name {name[:80]!r}: expected 1 to 63 letters, digits, '.', '_' or '-'.")
    with fs.lock(path.with_name(f"{path.name}.lock")):
        text = _digests_alone(fs, path) if fs.exists(path) else ""
        if any(line.name == name for line in (read_token_file(path) if text else [])):
            raise ConfigurationError(
                f"{path}: a token with the name {name!r} is there. Revoke it, or take another name."
            )
        token = _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
        line = TokenLine(digest_of(token), scopes, name, created).text
        before = text if not text or text.endswith("\n") else f"{text}\n"
        fs.write_durably(path, f"{before}{line}\n".encode("ascii"))
    return token


def remove_token(fs: FileSystem, path: Path, name: str) -> TokenLine:
    """Take a token out of a file and return its line; comments and other lines stay as they are.

    Durability: on return the file survives power loss.

    Raises:
        NotFoundError: the file has no token of this name.
        ConfigurationError: the file is unfit.
        LockedError: another process changes the file.
    """
    with fs.lock(path.with_name(f"{path.name}.lock")):
        chosen = next((line for line in read_token_file(path) if line.name == name), None)
        if chosen is None:
            raise NotFoundError(f"{path}: no token has the name {name!r}.")
        rest = [line for line in _digests_alone(fs, path).splitlines() if _digest_in(line.strip()) != chosen.digest]
        fs.write_durably(path, "".join(f"{line}\n" for line in rest).encode("ascii"))
    return chosen


def _token_line(path: Path, number: int, line: str, default: frozenset[Scope]) -> TokenLine:
    parts: Sequence[str] = line.split()
    digest = _digest_in(line)
    # What is wrong may be a secret: no message repeats it.
    expected = (
        f"{path}, line {number}: expected sha256:DIGEST SCOPES NAME, or a token of {CHARACTERS_MIN} or more characters"
    )
    if not digest or len(parts) > 4:
        raise ConfigurationError(f"{expected}.")
    try:
        scopes = frozenset(Scope(word) for word in parts[1].split(",")) if len(parts) > 1 else default
    except ValueError:
        raise ConfigurationError(f"{expected}, with scopes out of {', '.join(Scope)}.") from None
    name = parts[2] if len(parts) > 2 else f"line-{number}"
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{expected}, with a name of letters, digits, '.', '_' or '-'.")
    created = parts[3] if len(parts) > 3 and parts[3] != "-" else ""
    return TokenLine(digest, scopes, name, created)


def _digests_alone(fs: FileSystem, path: Path) -> str:
    """Return the text of a file that may be written anew: a new file has the mode of all files of a repository.

    Raises:
        ConfigurationError: it has tokens that a person wrote into it, which others could read then.
    """
    text = fs.read(path).decode("ascii", "replace")
    lines = (line.strip() for line in text.splitlines())
    if any(line and not line.startswith(("#", "sha256:")) for line in lines):
        raise ConfigurationError(
            f"{path}: expected digests, got tokens as they are, which this command would leave readable by others. "
            "Change the file by hand, or name another one."
        )
    return text


def _digest_in(line: str) -> str:
    """Return the digest of a line's token; empty where the line has none."""
    word = line.split()[0] if line and not line.startswith("#") else ""
    hashed = _HASHED.fullmatch(word)
    if hashed is not None:
        return hashed[1]
    return digest_of(word) if len(word) >= CHARACTERS_MIN and not word.startswith("sha256:") else ""


def _at_least_one(path: Path, tokens: list[TokenLine]) -> list[TokenLine]:
    if not tokens:
        raise ConfigurationError(f"{path}: expected a token. Make one: custody tokens create NAME --scope append")
    return tokens
