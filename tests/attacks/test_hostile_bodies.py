"""Every kind of hostile body at every door: no door fails, and the work is bounded, counted in bytes and files."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterator

import pyarrow as pa
import pytest

from custody.capture import CaptureLimits, Format, Rejected, read_stream
from custody.capture.avro import write_long
from tests.attacks.counted_work import count_inflating
from tests.attacks.every_door import ARROW, Body, EveryDoor, every_door
from tests.unit.capture.sample_inputs import any_avro, avro_file, own_event, payloads
from tests.unit.serving.events_server import arrow

DEEP = 50_000
SYNC = b"s" * 16
HEADER = avro_file([])
"""Of a file with the codec null."""
DEFLATED = avro_file([], codec="deflate")


def block(count: int, content: bytes) -> bytes:
    return write_long(count) + write_long(len(content)) + content + SYNC


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, wbits=-15)
    return packer.compress(bytes(size)) + packer.flush()


def compressed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


NULLS = pa.ListArray.from_arrays(pa.array([0, 10**9], pa.int32()), pa.nulls(10**9))
REPEATED = pa.DictionaryArray.from_arrays(pa.array([0] * 60_000, pa.int32()), pa.array(["x" * 100_000]))
RUN = pa.RunEndEncodedArray.from_arrays(pa.array([2**31 - 1], pa.int32()), pa.array(["x"]))
JSON = "application/json"
AVRO = "avro/binary"
BODIES: dict[str, Body] = {
    "arrays in arrays": Body(b"[" * DEEP + b"]" * DEEP),
    "open arrays": Body(b"[" * DEEP),
    "objects in objects": Body(b'[{"a":' * DEEP),
    "a huge number": Body(b'[{"eventOrdinal":' + b"9" * 200_000 + b"}]"),
    "a huge exponent": Body(b'[{"eventOrdinal":1e' + b"9" * 200_000 + b"}]"),
    "one key many times": Body(b"[{" + b",".join([b'"eventId":"a"'] * 50_000) + b"}]"),
    "a text without an end": Body(b'[{"eventId":"' + b"\\" * 500_001),
    "many tiny good events": Body(
        b"".join(json.dumps(own_event(n)).encode() + b"\n" for n in range(3000)), Format.CUSTODY, "application/x-ndjson"
    ),
    "zeros": Body(bytes(500_000)),
    "a zip of a zip": Body(gzip.compress(gzip.compress(b"[" + b" " * (20 << 20) + b"]")), is_zipped=True),
    "empty blocks of Avro": Body(HEADER + block(0, b"") * 40_000, Format.NIFI_AVRO, AVRO),
    "a block of Avro with a lying count": Body(HEADER + block(1 << 40, b"x" * 100), Format.NIFI_AVRO, AVRO),
    "a block of Avro with a lying size": Body(
        HEADER + write_long(1) + write_long(1 << 50) + b"x", Format.NIFI_AVRO, AVRO
    ),
    "blocks of Avro that inflate": Body(DEFLATED + block(1, bomb(30 << 20)) * 40, Format.NIFI_AVRO, AVRO),
    "records of Avro that inflate": Body(
        any_avro([{"details": "x" * 1_000_000}] * 200, sync_interval=1), Format.NIFI_AVRO, AVRO
    ),
    "a map of Avro with a lying count": Body(
        avro_file(payloads(1)).replace(b"\x00" + SYNC, b"\xfe\xff\xff\xff\x0f" + SYNC), Format.NIFI_AVRO, AVRO
    ),
    "columns of nulls": Body(arrow(pa.table({"event_type": pa.nulls(10**9)})), Format.CUSTODY, ARROW),
    "lists of nulls": Body(arrow(pa.table({"parent_uuids": NULLS})), Format.CUSTODY, ARROW),
    "a dictionary of one long text": Body(arrow(pa.table({"details": REPEATED})), Format.CUSTODY, ARROW),
    "a run of two billion": Body(arrow(pa.table({"details": RUN})), Format.CUSTODY, ARROW),
    "columns that inflate": Body(compressed(pa.table({"details": ["0" * (200 << 20)]})), Format.CUSTODY, ARROW),
}
DOORS = ("events", "openlineage", "ngsi", "upload", "spool", "file", "landing", "site-to-site", "site-to-site-raw")


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryDoor]:
    with every_door(tmp_path_factory.mktemp("hostile") / "r", "[capture]\nfile_bytes_max = 67108864\n") as doors:
        yield doors


@pytest.mark.parametrize("door", DOORS)
def test_no_hostile_body_makes_a_door_fail_or_work_without_a_bound(
    at: EveryDoor, monkeypatch: pytest.MonkeyPatch, door: str
) -> None:
    for kind, body in BODIES.items():
        files = len(at.quarantine_files())
        with monkeypatch.context() as patch:
            counts = count_inflating(patch)
            allocated = pa.default_memory_pool().max_memory()
            status = at.doors[door](body)
        assert status < 500, kind
        assert len(at.quarantine_files()) <= files + 4, kind
        # No more than a body may have, by twice: a first time to learn what it is.
        assert counts.made <= 2 * (64 << 20) + (32 << 20), kind
        assert pa.default_memory_pool().max_memory() - allocated <= 512 << 20, kind
    assert at.events(Body(json.dumps(payloads(2)).encode())) == 200, "the door takes what is good as before"


def test_all_blocks_of_an_avro_file_unpack_to_no_more_than_a_text_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    data = any_avro([{"details": "x" * 1_000_000}] * 50, sync_interval=1)
    counts = count_inflating(monkeypatch)
    found = list(read_stream(io.BytesIO(data), CaptureLimits(2 << 20, 4 << 20), format=Format.NIFI_AVRO))
    assert isinstance(found[-1], Rejected)
    assert counts.made <= 11 << 20
