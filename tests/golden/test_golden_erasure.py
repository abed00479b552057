"""A request of erasure, and a certificate, as version 1 has them: they are read, and written as they are."""

from __future__ import annotations

import pytest

from custody.errors import CorruptionError, FormatVersionError
from custody.format.checked_json import with_checksum
from custody.retention import ErasedCopy, ErasedSelection, Erasure, ErasureStore, WriterErasure, encode_erasure
from custody.retention.erasure import certificate_digest
from custody.retention.erasures import decode_erasure
from custody.vfs import PosixFileSystem
from tests.golden.make_golden import HERE

GOLDEN = HERE / "erasures"
CERTIFICATE = Erasure(
    id="5b1d6f0c2e7a4c3f9d8e7f6a5b4c3d2e",
    state="done",
    reason="request 17",
    who="officer",
    requested_ms=1_772_409_600_000,
    conditions=("attribute customer",),
    writers={
        "main": WriterErasure(
            tombstone="000102030405060708090a0b0c0d0e0f",
            before_event_id=5000,
            is_hidden=True,
            events=14,
            unlisted_revision=3,
            unlisted_ms=1_772_409_601_000,
            floor=3,
        )
    },
    copies=(
        ErasedCopy(
            kind="event log",
            place="/data/store/main/provenance/data/2026-03-02/events/00000000000000000000.parquet",
            how="removed",
        ),
    ),
    out_of_reach=("export 'lake': what its receiver got",),
    finished_ms=1_772_410_201_000,
)
REQUEST = Erasure(
    id="6c2e7a1d3f8b5d4e0a9f8e7d6c5b4a3f",
    reason="request 18",
    requested_ms=1_772_409_600_000,
    conditions=("attribute customer", "FlowFile uuid", "time"),
    selection=ErasedSelection(
        flowfile_uuids=("7243d47c-eb64-45c4-8aa1-a59c5f6a35d9",), from_ms=1, to_ms=2, attributes={"customer": "4711"}
    ),
    is_limited=True,
    writers={"main": WriterErasure(tombstone="f0" * 16, before_event_id=17)},
    contents={"custody:main/1/0007/1772409600000-7": [(191, 3), (400, 12)]},
    digests=("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",),
    keys=("main/provenance/data/2026-03-02/events/00000000000000000000.parquet",),
    waiting=("writer 'main': 1 groups of journals are not live and swept yet: custody run all",),
    held={"case-17": 3},
    kept=("custody.toml: the settings: edit them",),
)


@pytest.mark.parametrize("erasure", [CERTIFICATE, REQUEST], ids=["certificate", "request"])
def test_an_erasure_is_read_and_written_as_it_was(erasure: Erasure) -> None:
    store = ErasureStore(PosixFileSystem(), GOLDEN)
    assert sorted(store.ids()) == sorted([CERTIFICATE.id, REQUEST.id])
    assert store.get(erasure.id) == erasure
    assert encode_erasure(erasure) == store.locate(erasure).read_bytes()


def test_the_digest_of_a_certificate_is_what_catalogs_have_noted() -> None:
    assert certificate_digest(CERTIFICATE) == "cd0e06bbbab17ba1b79ffac62f88829c518185108d3754ca23f4286573dd4356"


def test_another_version_and_changed_bytes_are_refused() -> None:
    path = GOLDEN / f"{CERTIFICATE.id}.json"
    data = path.read_bytes()
    body = data[: data.rindex(b",\n")].replace(b'"format_version": 1', b'"format_version": 2') + b"\n}"
    with pytest.raises(FormatVersionError, match="expected format_version 1, got 2"):
        decode_erasure(with_checksum(body), path)
    with pytest.raises(CorruptionError, match="expected an erasure"):
        decode_erasure(data.replace(b"request 17", b"request 71"), path)
