"""A packed shard is decoded as docs/formats/packed-shard.md says, in plain Python, without the reader of shards."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.golden.make_golden import HERE, PACKED, PACKED_EVENTS, make_packed, packed_events

ABSENT = (1 << 63) - 1


class Shard:
    """The parts of a packed shard, by the page."""

    def __init__(self, folder: Path) -> None:
        manifest = (folder / "custody.shard").read_bytes()
        assert manifest[:8] == b"CUSTSHD\x02"
        self.about: dict[str, Any] = json.JSONDecoder().raw_decode(manifest[manifest.index(b"{") :].decode("latin-1"))[
            0
        ]
        self.packed: dict[str, Any] = self.about["packed"]
        self.documents: int = self.about["documents"]
        self.data = (folder / "packed.data").read_bytes()

    def bits(self, bit: int, width: int) -> int:
        """The number of some bits that begins at a bit of the file."""
        end = (bit + width + 7) // 8
        return (int.from_bytes(self.data[bit // 8 : end], "little") >> bit % 8) & ((1 << width) - 1)

    def column(self, name: str) -> list[int]:
        place, count = self.packed["columns"][name], -(-self.documents // 1024)
        tables = struct.unpack_from(f"<{count}q{count}q{count}Q{count}B", self.data, place)
        parts = [tables[at * count : (at + 1) * count] for at in range(4)]
        found = []
        for number, (base, slope, begin, flags) in enumerate(zip(*parts, strict=True)):
            width = flags & 0x7F
            for step in range(min(1024, self.documents - 1024 * number)):
                above = self.bits((place + 25 * count + begin) * 8 + step * width, width)
                is_none = flags & 0x80 and above == (1 << width) - 1
                found.append(ABSENT if is_none else signed(base + slope * step + above))
        return found

    def terms(self, name: str) -> list[str]:
        field = self.packed["fields"][name]
        count = field["terms"]
        place = field["place"] + rounded(2 * count) + 8 * -(-count // 32)
        if field["kind"] == "uuids":
            firsts, place = place, place + 16 * -(-count // 128)
            uuids = [self.data[place + 16 * at : place + 16 * at + 16] for at in range(count)]
            assert b"".join(uuids[::128]) == self.data[firsts:place]
            return [str(UUID(bytes=uuid)) for uuid in uuids]
        blocks, stored, size, _ = struct.unpack_from("<4I", self.data, place)
        entries = [struct.unpack_from("<Q4I", self.data, place + 16 + 24 * at) for at in range(blocks)]
        place += 16 + 24 * blocks
        separators = snappy(self.data[place : place + stored], size).split(b"\xff")
        place += stored
        found: list[bytes] = []
        for separator, (begin, own_stored, own_size, first, _) in zip(separators, entries, strict=True):
            assert first == len(found)
            block = snappy(self.data[place + begin : place + begin + own_stored], own_size)
            own = block.split(b"\xff")[1:]
            assert own[0].startswith(separator) and (not found or found[-1] < separator)
            found += own
        assert found == sorted(found) and len(found) == count
        return [term.decode() for term in found]

    def lists(self, name: str) -> Iterator[list[int]]:
        field = self.packed["fields"][name]
        count = field["terms"]
        heads = struct.unpack_from(f"<{count}H", self.data, field["place"])
        groups = struct.unpack_from(f"<{-(-count // 32)}Q", self.data, field["place"] + rounded(2 * count))
        own_bits = max(1, (self.documents - 1).bit_length())
        bit = 0
        for number, head in enumerate(heads):
            if number % 32 == 0:
                bit = (field["lists"] + groups[number // 32]) * 8
            size, width = head & 0xFF, head >> 8
            if size:
                gaps = [self.bits(bit + own_bits + at * width, width) + 1 for at in range(size - 1)]
                yield list(accumulate([self.bits(bit, own_bits), *gaps]))
                bit += own_bits + (size - 1) * width
            else:
                yield self.longer(self.bits(bit, 64), self.bits(bit + 64, 32), form=width)
                bit += 96

    def longer(self, place: int, count: int, form: int) -> list[int]:
        assert place % 8 == 0
        first, last = struct.unpack_from("<2I", self.data, place)
        place += 8
        if form == 1:
            begin = first // 8 * 8
            found = [begin + at for at in range(last + 1 - begin) if self.bits(place * 8 + at, 1)]
        else:
            assert form == 0
            found = []
            blocks = -(-count // 1024)
            data, base, begin = place + 8 * blocks, first, 0
            for block in range(blocks):
                own_last, end = struct.unpack_from("<2I", self.data, place + 8 * block)
                size, span = min(1024, count - 1024 * block), own_last - base
                low_bits = max(0, ((span + 1) // size).bit_length() - 1)
                row = size + (span >> low_bits)
                ones = [at for at in range(row) if self.bits((data + begin) * 8 + at, 1)]
                lower = (data + begin + -(-row // 8)) * 8
                found += [
                    base + ((one - at) << low_bits | self.bits(lower + at * low_bits, low_bits))
                    for at, one in enumerate(ones)
                ]
                assert found[-1] == own_last
                base, begin = own_last + 1, end
        assert (len(found), found[0], found[-1]) == (count, first, last)
        return found

    def places(self, name: str) -> Iterator[list[int]]:
        """The places of each posting, in the order of terms and documents."""
        place = self.packed["fields"][name]["places"]
        [groups] = struct.unpack_from("<Q", self.data, place)
        data = place + 8 + 48 * groups
        for group in range(groups):
            _, begin, stored, postings, places, widths = struct.unpack_from("<6Q", self.data, place + 8 + 48 * group)
            codes = {1: "B", 2: "H", 4: "I"}
            count_code, distance_code = codes[widths & 0xFF], codes[widths >> 8]
            size = postings * (widths & 0xFF) + places * (widths >> 8)
            raw = snappy(self.data[data + begin : data + begin + stored], size)
            numbers = struct.unpack(f"<{postings}{count_code}{places}{distance_code}", raw)
            counts, distances = numbers[:postings], numbers[postings:]
            at = 0
            for count in counts:
                yield list(accumulate(distances[at : at + count]))
                at += count


def rounded(size: int) -> int:
    return -(-size // 8) * 8


def signed(number: int) -> int:
    number %= 1 << 64
    return number - (1 << 64) if number >> 63 else number


def snappy(stored: bytes, size: int) -> bytes:
    """Take a block of Snappy apart, by its own description."""
    if len(stored) == size:
        return stored
    length = shift = at = 0
    while True:
        length |= (stored[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if stored[at - 1] < 0x80:
            break
    assert length == size
    out = bytearray()
    while at < len(stored):
        tag, kind = stored[at] >> 2, stored[at] & 3
        at += 1
        if kind == 0:
            extra = max(0, tag - 59)
            count = (int.from_bytes(stored[at : at + extra], "little") if extra else tag) + 1
            out += stored[at + extra : at + extra + count]
            at += extra + count
            continue
        if kind == 1:
            count, offset, at = (tag & 7) + 4, tag >> 3 << 8 | stored[at], at + 1
        else:
            width = 2 if kind == 2 else 4
            count, offset, at = tag + 1, int.from_bytes(stored[at : at + width], "little"), at + width
        for _ in range(count):
            out.append(out[-offset])
    assert len(out) == size
    return bytes(out)


@pytest.fixture(scope="module", params=["checked in", "made now"])
def shard(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Shard:
    if request.param == "checked in":
        return Shard(HERE / PACKED)
    folder = tmp_path_factory.mktemp("packed")
    make_packed(folder / PACKED)
    return Shard(folder / PACKED)


def expected_terms(name: str) -> dict[str, list[int]]:
    """The documents of each term, of a field with one value an event; the newest event is document 0."""
    found = defaultdict(list)
    for document, event in enumerate(reversed(packed_events())):
        value = event.updated_attributes.get(name.removeprefix("attribute."), None) if "." in name else None
        value = value if "." in name else event.updated_attributes.get(name) or getattr(event, name, None)
        if value is not None:
            found[str(value).lower()].append(document)
    return found


def test_its_terms_and_lists_are_those_of_the_events(shard: Shard) -> None:
    kinds = set()
    fields = shard.packed["fields"]
    for name in ("flowfile_uuid", "component_id", "event_type", "filename", "transit_uri", "attribute.note"):
        kinds.add(fields[name]["kind"])
        found = dict(zip(shard.terms(name), shard.lists(name), strict=True))
        assert found == expected_terms(name)
    assert kinds == {"uuids", "texts"}


def test_its_numbers_are_those_of_the_events(shard: Shard) -> None:
    events = packed_events()[::-1]
    assert shard.documents == PACKED_EVENTS == len(events)
    assert shard.column("event_id") == list(range(PACKED_EVENTS - 1, -1, -1))
    for name in ("event_time", "lineage_start_date", "file_size", "source_ordinal"):
        values = [getattr(event, name) for event in events]
        assert shard.column(name) == [ABSENT if value is None else value for value in values]


def test_its_places_of_words_are_those_of_the_texts(shard: Shard) -> None:
    found: dict[tuple[str, int], list[int]] = {}
    places = shard.places("details")
    for term, documents in zip(shard.terms("details"), shard.lists("details"), strict=True):
        found |= {(term, document): next(places) for document in documents}
    assert next(places, None) is None
    expected: dict[tuple[str, int], list[int]] = defaultdict(list)
    for document, event in enumerate(reversed(packed_events())):
        for place, word in enumerate(re.findall(r"\w+", (event.details or "").lower())):
            expected[word, document].append(place)
    assert found == expected


def test_its_filter_denies_no_term(shard: Shard) -> None:
    salts = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
    begin, size = shard.packed["filter_place"], shard.packed["filter_bytes"]
    blocks = size // 32

    def may_have(key: bytes) -> bool:
        upper = zlib.crc32(key)
        mixed = upper * 0x9E3779B1 & 0xFFFFFFFF
        lower = mixed ^ mixed >> 16
        words = struct.unpack_from("<8I", shard.data, begin + 32 * (upper * blocks >> 32))
        return all(word >> ((lower * salt & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(words, salts, strict=True))

    denied = 0
    for name, field in shard.packed["fields"].items():
        prefix = struct.pack(">H", field["number"])
        for term in shard.terms(name):
            assert may_have(prefix + term.encode())
            denied += not may_have(prefix + term.encode() + b"?")
    assert denied > 0.9 * shard.about["terms"]
    assert shard.data[begin + size :] == bytes(8)
