"""Delegation tokens of Hadoop, from the file that `HADOOP_TOKEN_FILE_LOCATION` names, as WebHDFS takes them.

Whoever runs jobs for others (YARN, Oozie, `hdfs fetchdt`) leaves such a file: a token acts as its owner until it
expires, and nobody logs in. Two layouts exist, both read here: Hadoop's Writables and protocol buffers. A token is a
secret; no message shows its bytes, and logs of the HTTP client are kept from it.
"""

from __future__ import annotations

import logging
import os
import re
import socket
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from custody.config import NgsiSection
from custody.errors import ConfigurationError

VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
_MAGIC = b"HDTS"
_WRITABLE, _PROTOBUF = 0, 1
_KINDS = ("WEBHDFS delegation", "SWEBHDFS delegation", "HDFS_DELEGATION_TOKEN", "HTTPFS_DELEGATION_TOKEN")
"""Kinds that a NameNode or HttpFS takes; others in the file are of other services."""
_PARAMETER = re.compile(r"(delegation=)[^&\s\"']+", re.IGNORECASE)
# Far above any file of tokens: a wrong path must not fill memory.
_FILE_BYTES_MAX = 16 << 20
# Hadoop's variable-length numbers: one byte from here on is the number itself.
_VINT_SMALLEST, _VINT_LONG = -112, -120


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """One token of a file."""

    identifier: bytes = field(repr=False)
    password: bytes = field(repr=False)
    kind: str
    service: str
    """Where it is taken, host:port or a logical name."""

    @property
    def url_text(self) -> str:
        """The token as the parameter `delegation` has it."""
        parts = [self.identifier, self.password, self.kind.encode(), self.service.encode()]
        data = b"".join(_vint(len(part)) + part for part in parts)
        return urlsafe_b64encode(data).rstrip(b"=").decode()


def token_file(values: NgsiSection) -> Path | None:
    """Return the file of tokens: of the settings, else of the environment; None where neither names one.

    One of the environment counts only if it has a token for HDFS: YARN gives each of its programs a file, also where
    nobody logs in.
    """
    if values.delegation_token_file is not None:
        return values.delegation_token_file
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    try:
        is_usable = any(token.kind in _KINDS for token in _tokens(Path(named).read_bytes()))
    except (OSError, ValueError, LookupError):
        is_usable = True  # who opens it says what is wrong with it
    return Path(named) if is_usable else None


def doas_and_token(path: Path) -> ConfigurationError:
    """Return the error of settings that want both a token and another user than its owner."""
    return ConfigurationError(
        f"ngsi.hdfs_doas: a delegation token acts as its owner, and there is one in {path}. "
        f"Leave hdfs_doas out, or unset {VARIABLE}."
    )


def token_refused(reason: str, file: str = "the file of the settings") -> ConfigurationError:
    """Return the error of a token that HDFS does not take: no retry changes that."""
    return ConfigurationError(
        f"delegation token of {file}: expected HDFS to take it, got {reason[:300]!r}. "
        "Have it renewed or fetched anew; the next run reads the file again."
    )


class TokenFile:
    """A file of tokens, read anew when it was replaced: what renews tokens writes it again."""

    def __init__(self, path: Path, hosts: Sequence[str]) -> None:
        """Read the file.

        Args:
            path: the file.
            hosts: the NameNodes, host:port, to choose among several tokens.

        Raises:
            ConfigurationError: it cannot be read, or has no token for them.
        """
        self._path = path
        self._hosts = tuple(hosts)
        self._stamp: tuple[int, int, int] | None = None
        self._text = ""
        hide_tokens_in_logs()
        self.reload()

    @property
    def url_text(self) -> str:
        """The token as the parameter `delegation` has it."""
        return self._text

    def reload(self) -> bool:
        """Read the file if it is another one than before; return whether it was. Raises as the constructor."""
        try:
            status = self._path.stat()
            stamp = status.st_mtime_ns, status.st_size, status.st_ino
            if stamp == self._stamp:
                return False
            data = self._path.read_bytes() if status.st_size <= _FILE_BYTES_MAX else b""
            tokens = list(_tokens(data))
        except OSError as error:
            raise self._wrong(str(error.strerror)) from None
        except (ValueError, LookupError):
            # The parser's own words could hold bytes of the file.
            raise self._wrong("other bytes") from None
        self._text = self._chosen(tokens).url_text
        self._stamp = stamp
        return True

    def added_to(self, target: str) -> str:
        """Return a path of WebHDFS with the token in its query, in the place of any user."""
        path, _, query = target.partition("?")
        others = [(name, value) for name, value in parse_qsl(query) if name not in ("user.name", "doas")]
        return f"{path}?{urlencode([*others, ('delegation', self._text)])}"

    def refused(self, reason: str) -> ConfigurationError:
        """Return the error of a token that HDFS does not take."""
        return token_refused(reason, str(self._path))

    def _chosen(self, tokens: Sequence[DelegationToken]) -> DelegationToken:
        usable = [token for token in tokens if token.kind in _KINDS]
        if not usable:
            kinds = ", ".join(sorted({token.kind for token in tokens})) or "none"
            raise self._wrong(f"tokens of other kinds ({kinds})")
        names = {name for host in self._hosts for name in _names(host)}
        # A token of RPC names that port; the NameNode takes it at its other one as well.
        fitting = [token for token in usable if token.service in names] or [
            token for token in usable if token.service.rpartition(":")[0] in {name.rpartition(":")[0] for name in names}
        ]
        if len(fitting or usable) == 1 or fitting:
            return (fitting or usable)[0]
        services = ", ".join(sorted(f"{token.kind} of {token.service or 'no service'}" for token in usable))
        raise self._wrong(f"several, none for {', '.join(self._hosts)}: {services}")

    def _wrong(self, found: str) -> ConfigurationError:
        return ConfigurationError(
            f"{self._path}: expected a file of Hadoop's delegation tokens with one for HDFS, got {found}. "
            f"Correct ngsi.delegation_token_file, or {VARIABLE}; hdfs fetchdt writes such a file."
        )


def hide_tokens_in_logs() -> None:
    """Keep tokens out of the log lines of the HTTP client, which has whole URLs at its most talkative level."""
    logger = logging.getLogger("urllib3.connectionpool")
    if _hide not in logger.filters:
        logger.addFilter(_hide)


def without_tokens(text: str) -> str:
    """Return a text in which the tokens of URLs are replaced."""
    return _PARAMETER.sub(r"\1…", text)


def _hide(record: logging.LogRecord) -> bool:
    record.msg, record.args = without_tokens(record.getMessage()), None
    return True


def _names(host: str) -> Iterator[str]:
    """Yield the names that a token may have for a NameNode: as the settings call it, and by its addresses."""
    yield host
    name, _, port = host.rpartition(":")
    try:
        for found in socket.getaddrinfo(name.strip("[]"), None, proto=socket.IPPROTO_TCP):
            yield f"{found[4][0]}:{port}"
    except OSError:
        return


def _tokens(data: bytes) -> Iterator[DelegationToken]:
    """Yield the tokens of a file; raises ValueError or LookupError where it is none."""
    if data[:4] != _MAGIC or data[4] not in (_WRITABLE, _PROTOBUF):
        raise ValueError("no file of tokens")
    yield from _of_writables(_Reader(data, 5)) if data[4] == _WRITABLE else _of_messages(_Reader(data, 5))


class _Reader:
    """Takes numbers and pieces off some bytes."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self._data = data
        self._at = at

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._data)

    def piece(self, length: int) -> bytes:
        if not 0 <= length <= len(self._data) - self._at:
            raise ValueError("cut off")
        self._at += length
        return self._data[self._at - length : self._at]

    def vint(self) -> int:
        """Return one of Hadoop's numbers."""
        first = int.from_bytes(self.piece(1), "big", signed=True)
        if first >= _VINT_SMALLEST:
            return first
        size = (_VINT_LONG - first) if first < _VINT_LONG else (_VINT_SMALLEST - first)
        number = int.from_bytes(self.piece(size), "big")
        return ~number if first < _VINT_LONG else number

    def varint(self) -> int:
        """Return one of protocol buffers' numbers."""
        number = shift = 0
        while True:
            byte = self.piece(1)[0]
            number |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return number
            shift += 7

    def message(self) -> dict[int, list[bytes]]:
        """Return the pieces of a message by their fields; Hadoop's have no others."""
        fields: dict[int, list[bytes]] = {}
        while not self.is_at_end:
            key = self.varint()
            if key & 7 != 2:
                raise ValueError("no message of tokens")
            fields.setdefault(key >> 3, []).append(self.piece(self.varint()))
        return fields


def _of_writables(reader: _Reader) -> Iterator[DelegationToken]:
    for _ in range(reader.vint()):
        reader.piece(reader.vint())  # the alias
        identifier, password, kind, service = (reader.piece(reader.vint()) for _ in range(4))
        yield DelegationToken(identifier, password, kind.decode(), service.decode())
    # Read although nobody wants them: a file that ends before its end was not written as a whole.
    for _ in range(2 * reader.vint()):
        reader.piece(reader.vint())


def _of_messages(reader: _Reader) -> Iterator[DelegationToken]:
    credentials = _Reader(reader.piece(reader.varint())).message()
    for entry in credentials.get(1, []):
        for token in _Reader(entry).message().get(2, []):
            fields = _Reader(token).message()
            identifier, password, kind, service = (fields[number][0] for number in (1, 2, 3, 4))
            yield DelegationToken(identifier, password, kind.decode(), service.decode())


def _vint(number: int) -> bytes:
    """Return a length as Hadoop writes it."""
    if number <= 0x7F:
        return bytes([number])
    data = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return (_VINT_SMALLEST - len(data)).to_bytes(1, "big", signed=True) + data
