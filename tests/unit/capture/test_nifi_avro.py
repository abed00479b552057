"""NiFi's events as Avro: the same events as its JSON, and damage costs the rest of the file from its block on."""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture import Accepted, CaptureLimits, Context, Format, InputPlace, Rejected, read_piece
from custody.capture.avro import BLOCK_BYTES_MAX, compile_schema, decompress, read_long, write_long
from custody.errors import InvalidInputError
from tests.unit.capture.sample_inputs import AVRO_SCHEMA, LIMITS, Json, array, avro_file, payloads, read

EVENTS = payloads(20)
REMOVED = {**EVENTS[0], "updatedAttributes": {"shade": None, "näme": "wärt"}, "eventOrdinal": 7}


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_a_number_comes_back(number: int) -> None:
    assert read_long(write_long(number) + b"x", 0) == (number, len(write_long(number)))


@pytest.mark.parametrize("codec", ["null", "deflate"])
@pytest.mark.parametrize("size", [1, 1000, 1 << 16])
def test_avro_and_json_hold_the_same_events(codec: str, size: int) -> None:
    found = read(avro_file([*EVENTS, REMOVED], codec=codec), chunk_bytes=size)
    plain = read(array([*EVENTS, REMOVED]))
    assert [outcome.place.index for outcome in found] == list(range(21))
    for one, other in zip(found, plain, strict=True):
        assert isinstance(one, Accepted)
        assert isinstance(other, Accepted)
        assert msgspec.structs.replace(one.event, source_format="nifi-s2s") == other.event
        assert one.event.source_format == "nifi-avro"


def test_every_codec_of_the_specification_is_read() -> None:
    data = b"block " * 1000
    snappy = pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4)
    packed = {
        "null": data,
        "deflate": zlib.compress(data, wbits=-15),
        "snappy": snappy,
        "zstandard": pa.Codec("zstd").compress(data, asbytes=True),
        "bzip2": bz2.compress(data),
        "xz": lzma.compress(data),
    }
    for codec, block in packed.items():
        assert decompress(codec, block) == data
    with pytest.raises(InvalidInputError, match=r"avro\.codec: expected one of null, deflate"):
        decompress("lzo", data)
    with pytest.raises(InvalidInputError, match="its checksum is another one"):
        decompress("snappy", snappy[:-1] + b"!")


@given(st.sampled_from(["deflate", "snappy", "zstandard", "bzip2", "xz", "null"]), st.binary(max_size=60))
def test_a_damaged_block_is_refused_or_read(codec: str, data: bytes) -> None:
    try:
        decompress(codec, data)
    except InvalidInputError as error:
        assert codec in str(error)


def test_the_piece_of_a_record_can_be_read_again() -> None:
    bad = {**EVENTS[3], "entitySize": None}
    found = read(avro_file([*EVENTS[:3], bad, EVENTS[4]], codec="deflate", block=2))
    assert [type(outcome) for outcome in found] == [Accepted, Accepted, Accepted, Rejected, Accepted]
    again = read_piece(found[3].raw, found[3].place, LIMITS, format=Format.NIFI_AVRO, context=Context())
    assert list(again) == [found[3]]
    [whole] = read(found[4].raw)
    assert isinstance(whole, Accepted)
    assert isinstance(found[4], Accepted)
    assert whole.event == found[4].event


def test_a_record_that_is_too_large_costs_itself_only() -> None:
    large = {**EVENTS[0], "details": "x" * 5000}
    found = read(avro_file([EVENTS[1], large, EVENTS[2]]), limits=CaptureLimits(4096))
    assert [type(outcome) for outcome in found] == [Accepted, Rejected, Accepted]
    assert isinstance(found[1], Rejected)
    assert found[1].problem.code == "event-too-large"


def test_a_block_that_breaks_off_ends_the_file_at_its_place() -> None:
    whole, first = avro_file(EVENTS, block=5), avro_file(EVENTS[:10], block=5)
    for damage in (whole[: len(first) + 40], first + b"\x0a\x08abcd" + b"t" * 16 + whole[len(first) :]):
        found = read(damage)
        assert [type(outcome) for outcome in found] == 10 * [Accepted] + [Rejected]
        assert found[-1].place == InputPlace(10, len(first))
        assert found[-1].raw == damage[len(first) :]


def test_a_file_that_is_not_avro_is_rejected_whole() -> None:
    for data in (b"", b"[]", b"Obj\x01", b"Obj\x02" + b"x" * 100, avro_file(EVENTS)[:500]):
        [found] = read(data, Format.NIFI_AVRO)
        assert isinstance(found, Rejected)
        assert (found.place, found.raw) == (InputPlace(None, 0), data)
        assert "expected an Avro file of provenance events" in found.problem.message


@pytest.mark.parametrize(
    "field",
    [
        {"type": "record", "name": "r", "fields": []},
        "provenance",
        {"type": "fixed", "name": "f", "size": 3},
        {"type": {"type": {"type": {"type": {"type": {"type": {"type": {"type": {"type": "long"}}}}}}}}},
        ["null", 5],
        {},
    ],
)
def test_a_schema_that_could_recurse_is_refused(field: object) -> None:
    with pytest.raises(InvalidInputError, match=r"avro\.schema: expected"):
        compile_schema(json.dumps({"type": "record", "name": "r", "fields": [{"name": "x", "type": field}]}).encode())


def test_items_that_take_no_bytes_are_refused() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "x", "type": {"type": "array", "items": "null"}}]}
    with pytest.raises(InvalidInputError, match="take no bytes"):
        compile_schema(json.dumps(schema).encode())


def test_the_schema_of_the_reporting_task_has_its_28_fields() -> None:
    assert len(AVRO_SCHEMA["fields"]) == 28


def test_a_block_that_claims_terabytes_is_refused_before_it_is_read() -> None:
    good = avro_file(EVENTS, block=5)
    [*accepted, last] = read(good + write_long(5) + write_long(1 << 42) + b"x" * 50)
    assert len(accepted) == len(EVENTS)
    assert isinstance(last, Rejected)
    assert last.place == InputPlace(len(EVENTS), len(good))
    assert f"expected a block of at most {BLOCK_BYTES_MAX} bytes, got {1 << 42}" in last.problem.message


def test_a_block_that_grows_too_large_is_refused() -> None:
    packed = zlib.compress(bytes(BLOCK_BYTES_MAX + 1), wbits=-15)
    with pytest.raises(InvalidInputError, match=f"at most {BLOCK_BYTES_MAX} bytes, got a larger one"):
        decompress("deflate", packed)


def test_logical_types_are_left_as_numbers_and_bytes_become_hex() -> None:
    types: list[Json] = [
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "bytes", "logicalType": "decimal", "precision": 4},
    ]
    fields = [{"name": f"x{number}", "type": kind} for number, kind in enumerate(types)]
    read_record = compile_schema(json.dumps({"type": "record", "name": "r", "fields": fields}).encode()).read_record
    record = read_record(io.BytesIO(write_long(5) + write_long(2) + b"\x01\xff"))
    assert record == {"x0": 5, "x1": "01ff"}
