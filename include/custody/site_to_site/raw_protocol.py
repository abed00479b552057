"""The RAW transport of Site-to-Site: a conversation over one socket, from the greeting to any number of transactions.

Texts have their length in two bytes before them; a code of a transaction is `RC`, the code, and perhaps a text. There
are no ids: a connection that is lost ends its transaction, and the sender sends all of it again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from custody.errors import CustodyError, InvalidInputError
from custody.site_to_site.packets import PacketError, drive
from custody.site_to_site.protocol import Peer, ResponseCode
from custody.site_to_site.transactions import EndedTransaction, Staging

_MAGIC = b"NiFi"
_PROTOCOL, _CODEC = "SocketFlowFileProtocol", "StandardFlowFileCodec"
_VERSION_MIN, _VERSION_MAX = 5, 6
"""Of the protocol: from 5 on handshakes are the same, and checksums are always sent."""
_CODEC_VERSION = 1
_RESOURCE_OK, _OTHER_VERSION, _ABORT = 20, 21, 255
_PROPERTIES_MAX = 100
_TRIES_MAX = 8
"""How often a client may name another version."""
_MARK = b"RC"


class RawError(InvalidInputError):
    """What came over a socket is not the RAW protocol."""


class RawPort(Protocol):
    """The input port behind the conversation."""

    def admits(self, port_id: str) -> bool:
        """Whether this is the id of the port, for those who may send to it."""
        ...

    def peer(self, asked: str) -> Peer:
        """Return where the RAW transport is served, for a client that asked at this host."""
        ...

    def is_full(self) -> bool:
        """Whether no transaction can be begun now."""
        ...

    def begin(self, *, is_compressed: bool) -> tuple[str, Staging]:
        """Begin a transaction; raises BackpressureError when none can be begun now."""
        ...

    def commit(self, transaction: str) -> EndedTransaction:
        """Store the packets of a transaction durably; raises CustodyError when that failed."""
        ...


class RawSession:
    """One connection, from its first byte on.

    Args:
        read: returns exactly as many bytes as it is asked for; raises EOFError at the end.
        write: sends bytes.
        port: stores what comes.
    """

    def __init__(self, read: Callable[[int], bytes], write: Callable[[bytes], object], port: RawPort) -> None:
        self._read = read
        self._write = write
        self._port = port
        self._asked = ""
        self._is_compressed = False
        self._has_port = False

    def run(self, on_request: Callable[[], None] = lambda: None) -> None:
        """Answer until the client ends the conversation; `on_request` is called when it waits for the next request.

        Raises:
            RawError, PacketError: what comes is not the protocol.
            EOFError: the connection was closed in the middle.
        """
        magic = self._read(len(_MAGIC))
        if magic != _MAGIC:
            raise RawError(f"expected the greeting {_MAGIC!r} of NiFi's RAW transport, got {magic!r}")
        self._negotiate(_PROTOCOL, _VERSION_MIN, _VERSION_MAX)
        if not self._handshake():
            return
        while True:
            on_request()
            try:
                request = self._text()
            except EOFError:
                return  # a client that was idle closes without a word
            if request == "SHUTDOWN":
                return
            if not self._answer(request):
                return

    def _answer(self, request: str) -> bool:
        """Answer a request; return whether the conversation goes on."""
        if request == "REQUEST_PEER_LIST":
            host, port, is_secure = self._port.peer(self._asked)
            self._write(struct.pack(">i", 1) + _as_text(host) + struct.pack(">i?i", port, is_secure, 0))
            return True
        if request == "NEGOTIATE_FLOWFILE_CODEC":
            self._negotiate(_CODEC, _CODEC_VERSION, _CODEC_VERSION)
            return True
        if request == "SEND_FLOWFILES" and self._has_port:
            return self._receive()
        self._say(ResponseCode.ABORT, f"expected SEND_FLOWFILES to an input port, got {request[:40]!r}")
        return False

    def _handshake(self) -> bool:
        self._text()  # the id that the client gave the conversation
        self._asked = _host_of(self._text())
        count = self._int()
        if not 0 <= count <= _PROPERTIES_MAX:
            raise RawError(f"expected at most {_PROPERTIES_MAX} properties, got {count}")
        properties = {self._text(): self._text() for _ in range(count)}
        self._is_compressed = properties.get("GZIP", "").lower() == "true"
        port_id = properties.get("PORT_IDENTIFIER")
        # Whoever asks for peers names no port.
        if port_id is not None and not self._port.admits(port_id):
            self._say(ResponseCode.UNKNOWN_PORT)
            return False
        if port_id is not None and self._port.is_full():
            self._say(ResponseCode.PORTS_DESTINATION_FULL)
            return False
        self._has_port = port_id is not None
        self._say(ResponseCode.PROPERTIES_OK)
        return True

    def _receive(self) -> bool:
        """Take one transaction; return whether the conversation goes on."""
        try:
            transaction, staging = self._port.begin(is_compressed=self._is_compressed)
        except CustodyError as error:
            # The protocol has no answer here but to end; the handshake of the next connection can refuse.
            raise RawError(f"a transaction was refused: {error}") from error
        try:
            code = self._packets(staging)
            if code is not ResponseCode.FINISH_TRANSACTION:
                staging.abort()
                return code is ResponseCode.CANCEL_TRANSACTION
            checksum = staging.end()
        except (PacketError, EOFError, OSError, RawError):
            staging.abort()
            raise
        self._say(ResponseCode.CONFIRM_TRANSACTION, str(checksum))
        try:
            return self._confirmed(transaction, staging)
        except EOFError:
            staging.abort()
            raise

    def _packets(self, staging: Staging) -> ResponseCode:
        """Read packets until the sender says how they end."""
        while True:
            drive(staging.reader.packet(), self._read)
            code = self._code()
            if code is not ResponseCode.CONTINUE_TRANSACTION:
                return code

    def _confirmed(self, transaction: str, staging: Staging) -> bool:
        code = self._code()
        if code is not ResponseCode.CONFIRM_TRANSACTION:
            staging.abort()
            return False
        try:
            self._port.commit(transaction)
        except CustodyError as error:
            self._say(ResponseCode.ABORT, f"the packets could not be stored, send them again: {error}")
            return False
        self._say(ResponseCode.TRANSACTION_FINISHED)
        return True

    def _negotiate(self, resource: str, least: int, most: int) -> None:
        """Agree upon a version of a resource: the client names others until one is known."""
        for _ in range(_TRIES_MAX):
            name, version = self._text(), self._int()
            if name != resource:
                self._write(bytes([_ABORT]) + _as_text(f"expected {resource}, got another resource"))
                raise RawError(f"expected the resource {resource}, got {name[:80]!r}")
            if least <= version <= most:
                self._write(bytes([_RESOURCE_OK]))
                return
            if version < least:
                text = f"expected version {least} or later of {resource}, got {version}"
                self._write(bytes([_ABORT]) + _as_text(text))
                raise RawError(text)
            self._write(bytes([_OTHER_VERSION]) + struct.pack(">i", most))
        raise RawError(f"expected a version of {resource} up to {most}, got others {_TRIES_MAX} times")

    def _say(self, code: ResponseCode, message: str = "") -> None:
        text = _as_text(message) if code.has_message else b""
        self._write(_MARK + bytes([code]) + text)

    def _code(self) -> ResponseCode:
        mark = self._read(3)
        try:
            code = ResponseCode(mark[2])
        except ValueError:
            code = None
        if mark[:2] != _MARK or code is None:
            raise RawError(f"expected {_MARK!r} and a code, got {mark!r}")
        if code.has_message:
            self._text()
        return code

    def _text(self) -> str:
        (length,) = struct.unpack(">H", self._read(2))
        return self._read(length).decode("utf-8", "replace") if length else ""

    def _int(self) -> int:
        (value,) = struct.unpack(">i", self._read(4))
        return int(value)


def _as_text(text: str) -> bytes:
    data = text.encode()[:65_535]
    return struct.pack(">H", len(data)) + data


def _host_of(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""
