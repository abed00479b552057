"""Framing: what was written comes back; damage costs the damaged record alone, nothing wrong is ever returned."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import CorruptionError, FormatVersionError
from custody.format.framing import (
    HEAD_BYTES,
    MARK,
    PART_MARK,
    DocumentFormat,
    Frame,
    Gap,
    Tail,
    frame,
    frames,
    join_records,
    judge_tail,
)
from tests.support import flipped

PREAMBLE = b"PREAMBLE"
PAYLOADS = (b"first", b"", bytes(range(40)))
RECORDS = [frame(kind, payload) for kind, payload in enumerate(PAYLOADS, 1)]
DATA = PREAMBLE + b"".join(RECORDS)
STARTS = [len(PREAMBLE) + sum(map(len, RECORDS[:number])) for number in range(len(RECORDS) + 1)]

RECORD = st.tuples(st.integers(0, 255), st.binary(max_size=200))
Found = tuple[int, int, bytes] | Gap


def read(data: bytes, start: int = len(PREAMBLE)) -> list[Found]:
    pieces = frames(data, start)
    return [(item.offset, item.kind, bytes(item.payload)) if isinstance(item, Frame) else item for item in pieces]


def intact(*numbers: int) -> list[Found]:
    return [(STARTS[number], number + 1, PAYLOADS[number]) for number in numbers]


@given(st.lists(RECORD), st.binary(max_size=9))
def test_records_read_back_as_they_were_written(records: list[tuple[int, bytes]], before: bytes) -> None:
    data = before + b"".join(frame(kind, payload) for kind, payload in records)
    pieces = read(data, len(before))
    assert [item[1:] for item in pieces if not isinstance(item, Gap)] == records
    assert not any(isinstance(item, Gap) for item in pieces)


@given(st.lists(RECORD, min_size=1))
def test_joined_records_are_the_parts_of_one(records: list[tuple[int, bytes]]) -> None:
    [whole] = frames(join_records(9, [frame(kind, payload) for kind, payload in records]))
    assert isinstance(whole, Frame)
    assert (whole.kind, whole.is_part) == (9, False)
    parts = list(frames(whole.payload))
    assert [(part.kind, bytes(part.payload)) for part in parts if isinstance(part, Frame)] == records
    assert all(isinstance(part, Frame) and part.is_part for part in parts)


def test_the_parts_of_a_damaged_record_are_found() -> None:
    data = join_records(9, RECORDS)
    for bit in range(8 * HEAD_BYTES):
        head, *parts = frames(flipped(data, bit))
        assert head == Gap(0, HEAD_BYTES), bit
        assert [(bytes(part.payload), part.is_part) for part in parts if isinstance(part, Frame)] == [
            (payload, True) for payload in PAYLOADS
        ]


@pytest.mark.parametrize("length", range(len(PREAMBLE), len(DATA) + 1))
def test_a_file_cut_anywhere_keeps_its_whole_records_and_names_the_rest(length: int) -> None:
    whole = max(number for number, start in enumerate(STARTS) if start <= length)
    gap: list[Found] = [] if STARTS[whole] == length else [Gap(STARTS[whole], length - STARTS[whole])]
    assert read(DATA[:length]) == [*intact(*range(whole)), *gap]


@pytest.mark.parametrize("number", range(len(RECORDS)))
def test_every_flipped_bit_costs_the_record_that_has_it(number: int) -> None:
    expected = intact(0, 1, 2)
    expected[number] = Gap(STARTS[number], len(RECORDS[number]))
    for bit in range(STARTS[number] * 8, STARTS[number + 1] * 8):
        assert read(flipped(DATA, bit)) == expected, bit


@pytest.mark.parametrize("missing", [1, HEAD_BYTES, HEAD_BYTES + 7])
def test_a_last_record_whose_first_bytes_never_reached_the_disk_is_a_gap(missing: int) -> None:
    start = STARTS[-2]
    data = DATA[:start] + bytes(missing) + DATA[start + missing :]
    assert read(data) == [*intact(0, 1), Gap(start, len(DATA) - start)]


@pytest.mark.parametrize("zeros", [1, HEAD_BYTES - 1, HEAD_BYTES, 4096])
def test_zeros_to_the_end_are_a_gap(zeros: int) -> None:
    assert read(DATA + bytes(zeros)) == [*intact(0, 1, 2), Gap(len(DATA), zeros)]


def test_a_whole_record_is_found_however_far_behind_the_damage_it_lies() -> None:
    large = frame(1, bytes(3 << 20))
    data = flipped(large, 8 * HEAD_BYTES + 5) + frame(2, b"behind")
    assert read(data, 0) == [Gap(0, len(large)), (len(large), 2, b"behind")]


@given(st.binary(max_size=300) | st.binary(max_size=40).map(lambda data: MARK + data))
def test_bytes_that_are_no_record_never_become_one(garbage: bytes) -> None:
    data = DATA + garbage
    pieces = read(data)
    assert pieces[:3] == intact(0, 1, 2)
    for item in pieces[3:]:
        if not isinstance(item, Gap):
            offset, kind, payload = item
            assert data[offset:].startswith((frame(kind, payload), PART_MARK + frame(kind, payload)[4:]))


@given(st.binary(max_size=300), st.binary(max_size=30))
def test_gaps_and_records_cover_every_byte_once(data: bytes, more: bytes) -> None:
    expected = 0
    for item in frames(data + RECORDS[0] + more + RECORDS[2]):
        assert item.offset == expected
        expected = item.end if isinstance(item, Frame) else item.offset + item.length
    assert expected == len(data + RECORDS[0] + more + RECORDS[2])


@pytest.mark.parametrize("mark", [MARK, PART_MARK])
def test_text_in_a_damaged_record_is_never_taken_for_a_whole_one(mark: bytes) -> None:
    """What may come from outside is UTF-8, which cannot contain the mark that begins a record."""
    with pytest.raises(UnicodeDecodeError):
        mark.decode()
    with pytest.raises(UnicodeDecodeError):
        (b"\xc3" + mark).decode()


def test_a_payload_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.format.framing.PAYLOAD_BYTES_MAX", 10)
    assert frame(1, b"x" * 10)
    with pytest.raises(ValueError, match="at most 10 bytes, got 11"):
        frame(1, b"x" * 11)


LONG = frame(3, bytes(range(1, 251)) * 8)
"""A record over several sectors, none of which is empty."""


@pytest.mark.parametrize("behind", [b"", RECORDS[2][:9], bytes(30)])
def test_a_record_with_a_changed_bit_is_damage_whatever_was_begun_behind_it(behind: bytes) -> None:
    for bit in [*range(8 * HEAD_BYTES), *range(8 * HEAD_BYTES, 8 * len(LONG), 61)]:
        data = DATA + flipped(LONG, bit) + behind
        end = len(DATA) + len(LONG)
        assert judge_tail(data, len(DATA)) == Tail(end, len(data), is_certain=True), bit


def test_two_damaged_records_in_a_row_are_damage() -> None:
    data = DATA + flipped(LONG, 700) + flipped(RECORDS[2], 120)
    assert judge_tail(data, len(DATA)) == Tail(len(data), len(data), is_certain=True)


def test_a_write_that_was_broken_off_is_shorter_than_its_record() -> None:
    for length in range(1, len(LONG)):
        data = DATA + LONG[:length]
        assert judge_tail(data, len(DATA)) == Tail(len(DATA), len(data), is_certain=True), length


@pytest.mark.parametrize("sector", [512, 4096])
def test_a_write_that_lost_sectors_may_be_damage_and_is_never_called_so(sector: int) -> None:
    record = frame(3, bytes(range(1, 251)) * 60)
    before = bytes(range(1, 201))  # the record begins inside of a sector
    whole = before + record
    for lost in range(0, len(whole), sector):
        data = bytearray(whole)
        for at in range(max(lost, len(before)), min(lost + sector, len(whole))):
            data[at] = 0
        judgement = judge_tail(bytes(data), len(before))
        assert judgement == Tail(len(before), len(whole), is_certain=False), lost


@pytest.mark.parametrize("record", [frame(3), frame(3, b"x" * 600)], ids=["empty", "long"])
def test_a_write_that_lost_the_beginning_of_its_record_is_never_called_damage(record: bytes) -> None:
    for lost in range(1, HEAD_BYTES):
        before = bytes(range(1, 256)) * 3
        before = before[: 512 - lost]  # so much of the record lies in the sector of older bytes
        judgement = judge_tail(before + bytes(lost) + record[lost:], len(before))
        assert judgement == Tail(len(before), len(before) + len(record), is_certain=False), lost


@given(st.binary(min_size=HEAD_BYTES, max_size=600))
def test_bytes_that_are_no_beginning_of_a_record_are_never_called_certain(garbage: bytes) -> None:
    judgement = judge_tail(DATA + b"\1" + garbage, len(DATA))
    assert judgement == Tail(len(DATA), len(DATA) + 1 + len(garbage), is_certain=False)


def test_what_was_never_written_is_a_torn_write() -> None:
    assert judge_tail(DATA + bytes(5000), len(DATA)) == Tail(len(DATA), len(DATA) + 5000, is_certain=True)


class Note(msgspec.Struct):
    """What the files of the tests below hold."""

    text: str


NOTES = DocumentFormat(
    b"CUSTNOT\x01", 7, msgspec.json.Decoder(Note), name="note", content="a note", remedy="Write it again."
)


def test_a_document_comes_back_as_it_was_written() -> None:
    data = NOTES.encode(Note("é"))
    assert data == b"CUSTNOT\x01" + frame(7, '{"text":"é"}'.encode())
    assert NOTES.decode(data, "there") == Note("é")


def test_a_document_of_a_newer_version_is_refused() -> None:
    data = NOTES.encode(Note("x"))
    with pytest.raises(FormatVersionError, match=r"^there @7: expected note version 1, got 2\. Use a newer custody\.$"):
        NOTES.decode(data[:7] + b"\2" + data[8:], "there")


@pytest.mark.parametrize(
    "kind", ["other letters", "another kind", "a second record", "cut", "empty", "version and bit"]
)
def test_a_damaged_document_is_called_so_with_its_remedy(kind: str) -> None:
    data = NOTES.encode(Note("x"))
    damaged = {
        "other letters": b"CUSTNOX\x01" + data[8:],
        "another kind": data[:8] + frame(8, b'{"text":"x"}'),
        "a second record": data + frame(7, b'{"text":"y"}'),
        "cut": data[:-1],
        "empty": b"",
        "version and bit": data[:7] + b"\2" + flipped(data[8:], 150),
    }
    with pytest.raises(CorruptionError, match=r"^there @0: expected a note with its checksum, got other bytes\. Write"):
        NOTES.decode(damaged[kind], "there")
