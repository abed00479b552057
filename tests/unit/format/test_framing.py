"""Framing: what was written comes back; a torn tail is silent, damage is loud, nothing wrong is ever returned."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import CorruptionError
from custody.format.framing import HEAD_BYTES, MARK, Frame, TornTail, frame, frames
from tests.support import flipped

FILE = Path("some/00000000000000000000.0.journal")
PREAMBLE = b"PREAMBLE"
PAYLOADS = (b"first", b"", bytes(range(40)))
RECORDS = [frame(kind, payload) for kind, payload in enumerate(PAYLOADS, 1)]
DATA = PREAMBLE + b"".join(RECORDS)
STARTS = [len(PREAMBLE) + sum(map(len, RECORDS[:number])) for number in range(len(RECORDS) + 1)]

RECORD = st.tuples(st.integers(0, 255), st.binary(max_size=200))


def read(data: bytes, start: int = len(PREAMBLE)) -> list[tuple[int, int, bytes] | TornTail]:
    found = frames(data, start, FILE)
    return [(item.offset, item.kind, bytes(item.payload)) if isinstance(item, Frame) else item for item in found]


def intact(count: int) -> list[tuple[int, int, bytes] | TornTail]:
    return [(STARTS[number], number + 1, PAYLOADS[number]) for number in range(count)]


@given(st.lists(RECORD), st.binary(max_size=9))
def test_records_read_back_as_they_were_written(records: list[tuple[int, bytes]], before: bytes) -> None:
    data = before + b"".join(frame(kind, payload) for kind, payload in records)
    found = read(data, len(before))
    assert [item[1:] for item in found if not isinstance(item, TornTail)] == records
    assert not any(isinstance(item, TornTail) for item in found)


@pytest.mark.parametrize("length", range(len(PREAMBLE), len(DATA) + 1))
def test_a_file_cut_anywhere_keeps_its_whole_records_and_reports_the_rest_as_torn(length: int) -> None:
    whole = max(number for number, start in enumerate(STARTS) if start <= length)
    torn = [] if STARTS[whole] == length else [TornTail(STARTS[whole], length - STARTS[whole])]
    assert read(DATA[:length]) == [*intact(whole), *torn]


@pytest.mark.parametrize("number", range(len(RECORDS)))
def test_every_flipped_bit_is_damage_unless_it_hits_the_last_record(number: int) -> None:
    last = len(RECORDS) - 1
    for bit in range(STARTS[number] * 8, STARTS[number + 1] * 8):
        data = flipped(DATA, bit)
        if number == last:
            assert read(data) == [*intact(last), TornTail(STARTS[last], len(RECORDS[last]))], bit
            continue
        found: list[tuple[int, int, bytes]] = []
        with pytest.raises(CorruptionError) as caught:
            for item in frames(data, len(PREAMBLE), FILE):
                assert isinstance(item, Frame)
                found.append((item.offset, item.kind, bytes(item.payload)))
        assert found == intact(number)
        assert f"{FILE} @{STARTS[number]}" in str(caught.value), bit


def test_a_damaged_length_does_not_pass_for_a_torn_tail() -> None:
    """A length that points behind the end of the file must not swallow the whole records after it."""
    data = flipped(DATA, STARTS[0] * 8 + 31)
    with pytest.raises(CorruptionError, match=f"@{STARTS[0]}"):
        read(data)


@pytest.mark.parametrize("missing", [1, HEAD_BYTES, HEAD_BYTES + 7])
def test_a_last_record_whose_first_bytes_never_reached_the_disk_is_torn(missing: int) -> None:
    start = STARTS[-2]
    data = DATA[:start] + bytes(missing) + DATA[start + missing :]
    assert read(data) == [*intact(2), TornTail(start, len(DATA) - start)]


@pytest.mark.parametrize("zeros", [1, HEAD_BYTES - 1, HEAD_BYTES, 4096])
def test_zeros_to_the_end_are_space_that_was_never_written(zeros: int) -> None:
    assert read(DATA + bytes(zeros)) == [*intact(3), TornTail(len(DATA), zeros)]


def test_a_whole_record_is_found_however_far_behind_the_damage_it_lies() -> None:
    large = frame(1, bytes(3 << 20))
    data = flipped(large, 8 * HEAD_BYTES + 5) + frame(2, b"behind")
    with pytest.raises(CorruptionError, match="@0"):
        read(data, 0)


@given(st.binary(max_size=300) | st.binary(max_size=40).map(lambda data: MARK + data))
def test_bytes_that_are_no_record_never_become_one(garbage: bytes) -> None:
    try:
        found = read(DATA + garbage)
    except CorruptionError:
        return
    assert found[:3] == intact(3)
    for item in found[3:]:
        if not isinstance(item, TornTail):
            offset, kind, payload = item
            assert (DATA + garbage)[offset:].startswith(frame(kind, payload))


def test_text_in_a_torn_record_is_never_taken_for_a_whole_one() -> None:
    """What may come from outside is UTF-8, which cannot contain the mark that begins a record."""
    with pytest.raises(UnicodeDecodeError):
        MARK.decode()
    with pytest.raises(UnicodeDecodeError):
        (b"\xc3" + MARK).decode()


def test_a_payload_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.format.framing.PAYLOAD_BYTES_MAX", 10)
    assert frame(1, b"x" * 10)
    with pytest.raises(ValueError, match="at most 10 bytes, got 11"):
        frame(1, b"x" * 11)
