"""Ten thousand malformed transactions: each is read or refused, and none takes memory that its limits do not allow."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc

from custody.site_to_site.packets import PacketError, PacketLimits, PacketReader
from custody.site_to_site.protocol import Peer
from custody.site_to_site.raw_protocol import RawError, RawSession
from custody.site_to_site.transactions import EndedTransaction, Staging
from tests.nifi_client import attributes, compressed, packed

COUNT = 10_000
LIMITS = PacketLimits(bytes_max=1 << 16, head_bytes_max=1 << 12)
MEMORY_MAX = 8 << 20
SEED = 56


def mutated(data: bytes, dice: random.Random) -> bytes:
    """A copy with one to four of: a byte or a number changed, a part cut out, doubled, or put elsewhere."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(changed) + 1)
        end = min(len(changed), at + dice.choice([1, 2, 4, 8, 40, 1000]))
        match dice.randrange(5):
            case 0:
                changed[at:end] = dice.randbytes(end - at)
            case 1:
                del changed[at:end]
            case 2:
                changed[at:at] = changed[at:end]
            case 3:
                number = dice.choice([-1, 0, 1, 1 << 30, 0x7FFF_FFFF, -(1 << 31)])
                changed[at : at + 4] = struct.pack(">i", number)
            case _:
                changed = changed[at:] + changed[:at]
        if not changed:
            changed = bytearray(b"\0")
    return bytes(changed)


def bodies(dice: random.Random) -> list[tuple[bytes, bool]]:
    good = []
    for size in (0, 10, 3000):
        packets = [packed(attributes(), dice.randbytes(size)) for _ in range(2)]
        good += [(b"".join(packets), False), (b"".join(compressed(packet, 700) for packet in packets), True)]
    return good


def test_ten_thousand_malformed_transactions_are_read_or_refused_in_bounded_memory() -> None:
    dice = random.Random(SEED)
    good = bodies(dice)
    answers = {"read": 0, "refused": 0}
    tracemalloc.start()
    try:
        for _ in range(COUNT):
            body, is_compressed = dice.choice(good)
            reader = PacketReader(len, LIMITS, is_compressed=is_compressed)
            data = mutated(body, dice)
            try:
                for start in range(0, len(data), 999):
                    reader.feed(data[start : start + 999])
                reader.end()
                answers["read"] += 1
            except PacketError:
                answers["refused"] += 1
            assert reader.plain_bytes <= LIMITS.bytes_max
        assert tracemalloc.get_traced_memory()[1] < MEMORY_MAX
    finally:
        tracemalloc.stop()
    # Both kinds occur, else the mutations are too weak or too strong.
    assert answers["refused"] > COUNT // 2
    assert answers["read"] > COUNT // 100


class Port:
    """A port that takes everything and keeps nothing."""

    def admits(self, port_id: str) -> bool:
        return port_id == "the-port"

    def is_full(self) -> bool:
        return False

    def peer(self, asked: str) -> Peer:
        return Peer(asked, 1, is_secure=False)

    def begin(self, *, is_compressed: bool) -> tuple[str, Staging]:
        return "one", Unstaged(is_compressed)  # type: ignore[return-value]

    def commit(self, transaction: str) -> EndedTransaction:
        return EndedTransaction(packets=1, ended_ms=0)


class Unstaged:
    def __init__(self, is_compressed: bool) -> None:
        self.reader = PacketReader(len, LIMITS, is_compressed=is_compressed)

    def end(self) -> int:
        return self.reader.checksum

    def abort(self) -> None:
        pass


def text(value: str) -> bytes:
    return struct.pack(">H", len(value)) + value.encode()


def conversation(is_compressed: bool) -> bytes:
    packet = packed(attributes(), b"[]" * 100)
    data = compressed(packet) if is_compressed else packet
    properties = {"GZIP": str(is_compressed).lower(), "PORT_IDENTIFIER": "the-port"}
    return b"".join(
        [
            b"NiFi" + text("SocketFlowFileProtocol") + struct.pack(">i", 6) + text("id") + text("nifi://h:1"),
            struct.pack(">i", len(properties))
            + b"".join(text(name) + text(value) for name, value in properties.items()),
            text("REQUEST_PEER_LIST") + text("NEGOTIATE_FLOWFILE_CODEC") + text("StandardFlowFileCodec"),
            struct.pack(">i", 1) + text("SEND_FLOWFILES") + data + b"RC\x0a" + data + b"RC\x0bRC\x0c\x00\x00",
            text("SHUTDOWN"),
        ]
    )


def talk(data: bytes) -> bytes:
    stream, said = io.BytesIO(data), io.BytesIO()

    def exactly(length: int) -> bytes:
        piece = stream.read(length)
        if len(piece) < length:
            raise EOFError
        return piece

    RawSession(exactly, said.write, Port()).run()
    return said.getvalue()


def test_a_conversation_is_answered_to_its_end() -> None:
    for is_compressed in (False, True):
        assert talk(conversation(is_compressed)).endswith(b"RC\x0d")


def test_malformed_conversations_are_answered_or_ended() -> None:
    dice = random.Random(SEED)
    ended = 0
    for number in range(COUNT // 5):
        try:
            talk(mutated(conversation(number % 2 == 0), dice))
        except (RawError, PacketError, EOFError):
            ended += 1
    assert ended > COUNT // 20
