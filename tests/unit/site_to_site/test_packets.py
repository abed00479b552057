"""Packets: read as NiFi's codec writes them, however their bytes are cut; no length is believed unchecked."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.site_to_site.packets import PacketError, PacketLimits, PacketReader, drive, encode_packet
from tests.nifi_client import compressed, packed

LIMITS = PacketLimits(bytes_max=1 << 20, head_bytes_max=1 << 16)
NAMES = st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=4)
PACKETS = st.lists(st.tuples(NAMES, st.binary(max_size=300)), min_size=1, max_size=4)


def read(body: bytes, *, is_compressed: bool, pieces: int = 1 << 20) -> tuple[PacketReader, bytes]:
    plain = io.BytesIO()
    reader = PacketReader(plain.write, LIMITS, is_compressed=is_compressed)
    for start in range(0, len(body), pieces):
        reader.feed(body[start : start + pieces])
    reader.end()
    return reader, plain.getvalue()


@given(PACKETS, st.integers(1, 50), st.integers(1, 40), st.booleans())
def test_packets_are_read_however_they_are_cut(
    packets: list[tuple[dict[str, str], bytes]], pieces: int, chunk: int, is_compressed: bool
) -> None:
    plain = [packed(names, content) for names, content in packets]
    body = b"".join(compressed(packet, chunk) if is_compressed else packet for packet in plain)
    reader, taken = read(body, is_compressed=is_compressed, pieces=pieces)
    assert taken == b"".join(plain)
    assert (reader.packets, reader.plain_bytes, reader.checksum) == (len(packets), len(taken), zlib.crc32(taken))


@given(NAMES, st.binary(max_size=300), st.booleans())
def test_one_packet_is_read_from_a_stream_and_not_a_byte_more(
    names: dict[str, str], content: bytes, is_compressed: bool
) -> None:
    packet = packed(names, content)
    stream = io.BytesIO((compressed(packet, 50) if is_compressed else packet) + b"RC\x0b")
    reader = PacketReader(lambda _: None, LIMITS, is_compressed=is_compressed)
    assert drive(reader.packet(), stream.read) == names
    assert stream.read() == b"RC\x0b"


@given(NAMES, st.binary(max_size=300))
def test_packets_are_written_as_nifi_writes_them(names: dict[str, str], content: bytes) -> None:
    assert encode_packet(names, content) == packed(names, content)


PACKET = packed({"a": "b"}, b"content")
BAD_PLAIN = {
    "negative count": struct.pack(">i", -1),
    "too many attributes": struct.pack(">i", 25_001),
    "negative text": struct.pack(">ii", 1, -5),
    "text without end": struct.pack(">ii", 1, 1 << 30),
    "texts too long together": struct.pack(">ii", 1, 65_000) + bytes(65_000) + struct.pack(">i", 1000),
    "negative content": struct.pack(">iq", 0, -1),
    "content without end": struct.pack(">iq", 0, 1 << 60),
    "cut in the head": PACKET[:5],
    "cut in the content": PACKET[:-1],
    "cut in a second packet": PACKET + PACKET[:1],
}
GOOD = compressed(PACKET)
BAD_COMPRESSED = {
    "another mark": b"SYNK" + GOOD[4:],
    "no length": b"SYNC" + struct.pack(">ii", 0, 10) + bytes(10),
    "a bomb": b"SYNC" + struct.pack(">ii", 30, 1040) + zlib.compress(bytes(1 << 20), 9),
    "declared too large": b"SYNC" + struct.pack(">ii", 1 << 30, 10) + bytes(10),
    "packed too large": b"SYNC" + struct.pack(">ii", 10, 1 << 30),
    "no zlib": b"SYNC" + struct.pack(">ii", 4, 4) + b"abcd",
    "fewer bytes than declared": b"SYNC" + struct.pack(">ii", 9, 12) + zlib.compress(b"abcd"),
    "more bytes than the packet": compressed(PACKET + b"x"),
    "no end": GOOD[:-1],
    "an end in the middle": compressed(PACKET[:-3]),
    "another flag": GOOD[:-1] + b"\x02",
}


@pytest.mark.parametrize("name", BAD_PLAIN)
def test_what_is_no_packet_is_refused(name: str) -> None:
    with pytest.raises(PacketError, match=r"packet \d, plain byte \d+: expected"):
        read(BAD_PLAIN[name], is_compressed=False)


@pytest.mark.parametrize("name", BAD_COMPRESSED)
def test_what_is_no_compressed_packet_is_refused(name: str) -> None:
    with pytest.raises(PacketError, match=r"packet \d, plain byte \d+: expected"):
        read(BAD_COMPRESSED[name], is_compressed=True)


def test_a_transaction_has_a_limit_in_bytes_over_all_packets() -> None:
    packet = packed({}, bytes(LIMITS.bytes_max // 2))
    with pytest.raises(PacketError, match="body_bytes_max"):
        read(packet * 2, is_compressed=False)


def test_attributes_that_are_no_utf_8_are_replaced_as_nifi_does() -> None:
    packet = struct.pack(">ii", 1, 1) + b"\xff" + struct.pack(">i", 0) + struct.pack(">q", 0)
    reader = PacketReader(lambda _: None, LIMITS, is_compressed=False)
    assert drive(reader.packet(), io.BytesIO(packet).read) == {"\ufffd": ""}
