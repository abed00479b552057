"""Packets of Site-to-Site: attributes and a content, one packet behind the other, plain or compressed.

A packet is a number of attributes, each a name and a value with their lengths, then the length of the content and the
content; numbers are big-endian. A compressed packet is a row of chunks, each a zlib stream of its own that may end in
the middle of a field. The checksum of a transaction is the CRC-32 of the plain bytes of all its packets.

Reading needs no network: a generator says how many bytes it needs next, so the same code reads the body of a request as
its pieces come, a socket that blocks, and a file. Every length is checked before anything of that length is held.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from zlib_ng import zlib_ng

from custody.errors import InvalidInputError

PIECE_BYTES = 1 << 16
"""Most bytes that a reader holds at once, besides a field or a chunk."""
_CHUNK_MARK = b"SYNC"
_CHUNK_BYTES_MAX = 1 << 20
_PACKED_OVERHEAD = 1 << 10
_ANOTHER_CHUNK, _LAST_CHUNK = b"\x01", b"\x00"
_INT32, _INT64 = struct.Struct(">i"), struct.Struct(">q")
_CHUNK = struct.Struct(">ii")

Result = TypeVar("Result")
Steps = Generator[int, bytes, Result]
"""Yields how many bytes it needs next, and is sent exactly these."""


class PacketError(InvalidInputError):
    """The bytes of a transaction are no packets, or more than a limit allows."""


class TransactionTooLargeError(PacketError):
    """The packets of a transaction are more, or larger, than a limit allows."""


@dataclass(frozen=True, slots=True)
class PacketLimits:
    """Bounds of the packets of one transaction."""

    bytes_max: int
    """Plain bytes of all packets."""
    attributes_max: int = 25_000
    """Of one packet; NiFi's own number."""
    head_bytes_max: int = 16 << 20
    """Names and values of one packet together."""
    packets_max: int = 10_000
    """Each costs some work, whatever it holds. NiFi's tasks send one."""


class PacketReader:
    """Reads the packets of one transaction.

    Args:
        take: is given the plain bytes in their order; from them, the packets can be read again.
        limits: what is more is refused.
        is_compressed: whether each packet comes in chunks.
    """

    def __init__(self, take: Callable[[bytes], object], limits: PacketLimits, *, is_compressed: bool) -> None:
        self.packets = 0
        """Packets that were read to their end."""
        self.plain_bytes = 0
        """Bytes that were read, after inflating."""
        self.checksum = 0
        """The CRC-32 of these bytes."""
        self._take = take
        self._limits = limits
        self._is_compressed = is_compressed
        self._inflated = bytearray()
        self._is_first_chunk = True
        self._buffer = bytearray()
        self._is_inside = False
        # Begun by the first bytes: who reads packet by packet begins steps of its own.
        self._steps: Steps[None] | None = None
        self._needed = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of a body, in pieces of any length.

        Raises:
            PacketError: they are no packets; nothing more can be fed.
        """
        if self._steps is None:
            self._steps = self._packets()
            self._needed = next(self._steps)
        buffer = self._buffer
        buffer += data
        place = 0
        while len(buffer) - place >= self._needed:
            piece = bytes(buffer[place : place + self._needed])
            place += self._needed
            self._is_inside = True  # unless these bytes end a packet, which `_packets` says
            self._needed = self._steps.send(piece)
        del buffer[:place]

    def end(self) -> None:
        """Say that the body has ended.

        Raises:
            PacketError: it ended within a packet.
        """
        if self._buffer or self._is_inside:
            raise self.wrong(f"{self._needed} more bytes", f"the end behind {len(self._buffer)} of them")

    def packet(self) -> Steps[Mapping[str, str]]:
        """Return the steps that read one packet to its end; they return its attributes."""
        attributes, length = yield from self.head()
        while length:
            piece = min(length, PIECE_BYTES)
            yield from self._plain(piece)
            length -= piece
        if self._is_compressed:
            yield from self._chunks_end()
        self.packets += 1
        return attributes

    def head(self) -> Steps[tuple[Mapping[str, str], int]]:
        """Return the steps that read attributes, and how long the content is that follows."""
        (count,) = _INT32.unpack((yield from self._plain(4)))
        if not 0 <= count <= self._limits.attributes_max:
            raise self.wrong(f"0 to {self._limits.attributes_max} attributes", str(count))
        room = self._limits.head_bytes_max
        texts = []
        for _ in range(2 * count):
            (length,) = _INT32.unpack((yield from self._plain(4)))
            if not 0 <= length <= room:
                raise self.wrong(f"a text of at most {room} more bytes", str(length))
            room -= length
            # Not refused where they are no UTF-8: NiFi's own reader replaces such bytes, too.
            texts.append((yield from self._plain(length)).decode("utf-8", "replace"))
        (length,) = _INT64.unpack((yield from self._plain(8)))
        if length < 0:
            raise self.wrong("the length of a content", str(length))
        self._require_room(length)
        return dict(zip(texts[::2], texts[1::2], strict=True)), length

    def wrong(self, expected: str, got: str) -> PacketError:
        """Return the error that says where it was read."""
        return PacketError(
            f"packet {self.packets}, plain byte {self.plain_bytes}: expected {expected}, got {got}. The sender's "
            "Site-to-Site client has to send it again; if it stays so, something between changes bytes."
        )

    def _packets(self) -> Steps[None]:
        while True:
            self._is_inside = False
            yield from self.packet()
            if self.packets > self._limits.packets_max:
                raise TransactionTooLargeError(
                    f"expected at most {self._limits.packets_max} packets in a transaction, got more. Send fewer."
                )

    def _plain(self, length: int) -> Steps[bytes]:
        """Return the next plain bytes, counted and handed on."""
        if not length:
            return b""
        self._require_room(length)
        if self._is_compressed:
            while len(self._inflated) < length:
                self._inflated += yield from self._chunk()
            data = bytes(self._inflated[:length])
            del self._inflated[:length]
        else:
            data = yield length
        self.plain_bytes += length
        self.checksum = zlib_ng.crc32(data, self.checksum)
        self._take(data)
        return data

    def _chunk(self) -> Steps[bytes]:
        """Return the plain bytes of the next chunk."""
        if not self._is_first_chunk:
            more = yield 1
            if more != _ANOTHER_CHUNK:
                raise self.wrong("another chunk", f"byte {more[0]}")
        self._is_first_chunk = False
        mark = yield len(_CHUNK_MARK)
        if mark != _CHUNK_MARK:
            raise self.wrong(f"a chunk's mark {_CHUNK_MARK!r}", repr(mark))
        plain, packed = _CHUNK.unpack((yield _CHUNK.size))
        if not (0 < plain <= _CHUNK_BYTES_MAX and 0 < packed <= _CHUNK_BYTES_MAX + _PACKED_OVERHEAD):
            raise self.wrong(f"a chunk of 1 to {_CHUNK_BYTES_MAX} bytes", f"{plain} in {packed}")
        inflate = zlib.decompressobj()
        try:
            # Bounded by what the chunk itself declares: no few bytes become gigabytes.
            data = inflate.decompress((yield packed), plain + 1)
        except zlib.error as error:
            raise self.wrong(f"a zlib stream of {plain} bytes", str(error)) from None
        if len(data) != plain or not inflate.eof or inflate.unused_data:
            raise self.wrong(f"a zlib stream of {plain} bytes", f"another one, of {len(data)} bytes or more")
        return data

    def _chunks_end(self) -> Steps[None]:
        if self._inflated:
            raise self.wrong("the end of the packet's chunks", f"{len(self._inflated)} more bytes")
        last = yield 1
        if last != _LAST_CHUNK:
            raise self.wrong("the end of the packet's chunks", f"byte {last[0]}")
        self._is_first_chunk = True

    def _require_room(self, length: int) -> None:
        most = self._limits.bytes_max
        if self.plain_bytes + length > most:
            raise TransactionTooLargeError(
                f"packet {self.packets}, plain byte {self.plain_bytes}: expected at most {most} bytes in a transaction "
                f"(capture.body_bytes_max), got {self.plain_bytes + length}. Lower the task's Batch Size, or raise the "
                "limit."
            )


def drive(steps: Steps[Result], read: Callable[[int], bytes]) -> Result:
    """Run steps to their end with bytes from `read`, which returns exactly as many as it is asked for, or raises."""
    try:
        needed = next(steps)
        while True:
            needed = steps.send(read(needed))
    except StopIteration as end:
        result: Result = end.value
        return result


def encode_packet(attributes: Mapping[str, str], content: bytes) -> bytes:
    """Return a plain packet."""
    parts = [_INT32.pack(len(attributes))]
    for text in (text for pair in attributes.items() for text in pair):
        data = text.encode()
        parts += [_INT32.pack(len(data)), data]
    return b"".join([*parts, _INT64.pack(len(content)), content])
