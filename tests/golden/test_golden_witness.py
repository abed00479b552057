"""A witness of version 1 is read by every later release, and a damaged or newer one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.errors import CorruptionError, FormatVersionError
from custody.store.witness import Witness, decode_witness, encode_witness

GOLDEN = Path(__file__).parent / "witness" / "main.provenance"
SEEN = Witness(
    writer="main",
    database="provenance",
    accepted=1,
    catalog="0123456789abcdef0123456789abcdef",
    revision=3,
    digest="00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff",
    next_event_id=400,
    claim=1,
    containers={"6f1c2d3e000040008000000000000001": 400},
)


def test_a_witness_of_version_1_is_read_and_written_alike() -> None:
    data = GOLDEN.read_bytes()
    assert decode_witness(data, GOLDEN) == SEEN
    assert encode_witness(SEEN) == data


def test_a_cut_or_changed_witness_is_refused() -> None:
    data = GOLDEN.read_bytes()
    for broken in (b"", data[:-1], data[:40] + b"?" + data[41:]):
        with pytest.raises(CorruptionError):
            decode_witness(broken, GOLDEN)


def test_a_witness_of_a_later_version_is_refused_as_such() -> None:
    data = GOLDEN.read_bytes()
    with pytest.raises(FormatVersionError, match="version 1"):
        decode_witness(data[:7] + b"\x02" + data[8:], GOLDEN)
