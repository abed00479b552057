"""A journal file: what was acknowledged is read back; every cut and every flipped bit has a computed outcome."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from custody.clock import ManualClock
from custody.errors import FormatVersionError
from custody.format.framing import HEAD_BYTES, Frame, frame, frames, join_records
from custody.journal import JournalFile, JournalWriter
from custody.journal.encoding import PreparedEvents
from custody.journal.journal_file import KIND_GROUP, PREAMBLE, JournalEnd, JournalHeader, end_record, write_header
from custody.model import Event, to_events
from custody.vfs import PosixFileSystem
from custody.vfs.memory import MemoryFileSystem
from tests.support import event, flipped, numbered

HEADER = JournalHeader(writer="main", database="provenance", first_event_id=0, created_ms=5)
OPEN = Path("00000000000000000000.0.journal")
SEALED = Path("00000000000000000000.0.sealed")
Bytes = tuple[int, int]


@dataclass(frozen=True)
class Piece:
    """Some bytes of a journal and the events that are lost with them."""

    start: int
    length: int
    events: tuple[Event, ...] = ()

    @property
    def end(self) -> int:
        return self.start + self.length


class Laid:
    """A journal of three records, put together by hand: where each piece of it lies.

    The first record holds rows, the second is made of `parts` that were synced together, the third holds rows again.
    """

    def __init__(self, parts: int) -> None:
        first = [event(0), event(1)]
        second = [[event(2 + number, details="\N{SNOWMAN}\0")] for number in range(parts)]
        third = [event(2 + parts + number) for number in range(3)]
        fs = MemoryFileSystem()
        with fs.create(Path("/head")) as file:
            write_header(file, HEADER)
        self.data = fs.read(Path("/head"))
        self.events = numbered([*first, *(item for part in second for item in part), *third])
        self.pieces = [Piece(0, len(PREAMBLE))]
        for item in frames(self.data, len(PREAMBLE)):
            assert isinstance(item, Frame)
            self.pieces.append(Piece(item.offset, item.end - item.offset))
        self._add(first, 0)
        framed = [b"".join(PreparedEvents(part).records(2 + number)[0]) for number, part in enumerate(second)]
        if parts == 1:
            self._add(second[0], 2)
        else:
            self.pieces.append(Piece(len(self.data), HEAD_BYTES))
            self.data += join_records(KIND_GROUP, framed)
            for number, record in enumerate(framed):
                self.pieces.append(Piece(self.pieces[-1].end, len(record), tuple(self.events[2 + number : 3 + number])))
        self._add(third, 2 + parts)
        self.last = self.pieces[-1]
        self.open = self.data
        end = end_record(JournalEnd(events=len(self.events), first_event_id=0, last_event_id=self.events[-1].event_id))
        self.pieces.append(Piece(len(self.data), len(end)))
        self.data += end

    def _add(self, events: list[Event], first: int) -> None:
        [pieces] = PreparedEvents(events).records(first)
        record = b"".join(pieces)
        self.pieces.append(Piece(len(self.data), len(record), tuple(self.events[first : first + len(events)])))
        self.data += record

    def without(self, *lost: Piece) -> list[Event]:
        gone = {item.event_id for piece in lost for item in piece.events}
        return [item for item in self.events if item.event_id not in gone]

    def piece_of(self, byte: int) -> Piece:
        return next(piece for piece in self.pieces if piece.start <= byte < piece.end)

    def damage_of(self, piece: Piece) -> list[Bytes]:
        """What is named when a piece is damaged: of a record with parts its head as well, which says how long it is."""
        head = next((one for one in self.pieces[:-1] if one.length == HEAD_BYTES and not one.events), None)
        inside = head is not None and head.end <= piece.start < self.last.start
        assert not inside or head is not None
        if inside and head is not None and piece.start == head.end:
            return [(head.start, head.length + piece.length)]
        return [*([(head.start, head.length)] if inside and head else []), (piece.start, piece.length)]


LAID = {"alone": Laid(parts=1), "together": Laid(parts=3)}


@pytest.fixture(params=LAID)
def laid(request: pytest.FixtureRequest) -> Laid:
    return LAID[request.param]


def events_in(journal: JournalFile) -> list[Event]:
    return to_events(journal.table())


def damage_in(journal: JournalFile) -> list[Bytes]:
    for damage in journal.damage:
        assert str(damage).startswith(f"{journal.path} @{damage.offset}: expected ")
        assert len(damage.evidence()) == damage.length
    return [(damage.offset, damage.length) for damage in journal.damage]


def test_an_intact_journal_is_read_whole(laid: Laid) -> None:
    for path, data in ((OPEN, laid.open), (SEALED, laid.data)):
        journal = JournalFile(path, data)
        assert journal.header == HEADER
        assert (journal.damage, journal.torn, journal.intact_bytes) == ((), None, len(data))
        assert not journal.is_empty
        assert events_in(journal) == laid.events
    assert journal.end == JournalEnd(events=len(laid.events), first_event_id=0, last_event_id=len(laid.events) - 1)


@pytest.mark.in_parts(2)
def test_every_flipped_bit_of_a_sealed_journal_costs_the_record_that_has_it(laid: Laid) -> None:
    end = laid.pieces[-1]
    for bit in range(8 * len(laid.data)):
        piece = laid.piece_of(bit // 8)
        journal = JournalFile(SEALED, flipped(laid.data, bit))
        missing_end = [(len(laid.data), 0)] if piece == end else []
        assert damage_in(journal) == [*laid.damage_of(piece), *missing_end], bit
        assert [record.first_event_id for record in journal.records] == _firsts(laid, piece), bit
        assert journal.torn is None
        if bit % 997 == 0:
            assert events_in(journal) == laid.without(piece), bit


@pytest.mark.in_parts(2)
def test_every_flipped_bit_of_an_open_journal_costs_the_record_that_has_it(laid: Laid) -> None:
    """Of the last record too: a write that was broken off is shorter than its record."""
    for bit in range(8 * len(laid.open)):
        piece = laid.piece_of(bit // 8)
        journal = JournalFile(OPEN, flipped(laid.open, bit))
        assert [record.first_event_id for record in journal.records] == _firsts(laid, piece), bit
        assert damage_in(journal) == laid.damage_of(piece), bit
        assert journal.torn is None
        if bit % 997 == 0:
            assert events_in(journal) == laid.without(piece), bit


def _firsts(laid: Laid, lost: Piece) -> list[int]:
    return [piece.events[0].event_id for piece in laid.pieces if piece.events and piece != lost]


def test_every_cut_of_a_sealed_journal_names_what_is_missing(laid: Laid) -> None:
    for length in range(len(laid.data)):
        journal = JournalFile(SEALED, laid.data[:length])
        whole = [piece for piece in laid.pieces if piece.end <= length]
        intact = whole[-1].end if whole else 0
        head = next((piece for piece in whole if piece.length == HEAD_BYTES and not piece.events), None)
        gaps = [(intact, length - intact)] if length > intact else []
        if head is not None and length < laid.last.start and whole[-1].start < laid.last.start:
            # The head of a record with parts promises more than there is.
            rest = gaps if whole[-1] != head else [(head.start, length - head.start)]
            gaps = rest if whole[-1] == head else [(head.start, head.length), *gaps]
        assert damage_in(journal) == [*gaps, (length, 0)], length
        assert [record.first_event_id for record in journal.records] == [
            piece.events[0].event_id for piece in whole if piece.events
        ], length


def test_every_cut_of_an_open_journal_is_a_torn_tail_once_its_head_is_whole(laid: Laid) -> None:
    """A file gets its name when its head is synced: a head that is not whole is damage, never a crash."""
    alone = laid.pieces[:-1]
    head_end = laid.pieces[2].end
    for length in range(len(laid.open)):
        journal = JournalFile(OPEN, laid.open[:length])
        if length < head_end:
            assert journal.damage, length
            assert journal.torn is None
            continue
        intact = _last_synced(laid, alone, length)
        assert damage_in(journal) == [], length
        torn = (journal.torn.offset, journal.torn.lost_bytes) if journal.torn else (length, 0)
        assert torn == (intact, length - intact), length
        assert journal.intact_bytes == intact
        assert [record.first_event_id for record in journal.records] == [
            piece.events[0].event_id for piece in alone if piece.events and piece.end <= intact
        ]


def _last_synced(laid: Laid, pieces: list[Piece], length: int) -> int:
    """Where the last record that was written by itself ends: parts are synced together."""
    head = next((piece for piece in pieces if piece.length == HEAD_BYTES and not piece.events), None)
    ends = [piece.end for piece in pieces if head is None or not head.start <= piece.start < laid.last.start]
    if head is not None:
        ends.append(laid.last.start)
    return max(end for end in ends if end <= length)


def test_a_file_that_is_no_journal_is_damage_from_end_to_end() -> None:
    for data in (b"<html>", b"PAR1" * 100, bytes(4096)):
        journal = JournalFile(OPEN, data)
        assert sum(length for _, length in damage_in(journal)) == len(data)
        assert events_in(journal) == []


def test_an_unknown_version_is_refused(laid: Laid) -> None:
    with pytest.raises(FormatVersionError, match="@7: expected journal version 1, got 2"):
        JournalFile(OPEN, PREAMBLE[:7] + b"\x02 and whatever that version has")
    newer = frame(1, msgspec.json.encode(msgspec.structs.replace(HEADER, format_version=2)))
    with pytest.raises(FormatVersionError, match="@8: expected journal version 1, got 2"):
        JournalFile(OPEN, PREAMBLE[:7] + b"\x02" + newer)


def test_an_unknown_kind_of_record_is_refused(laid: Laid) -> None:
    with pytest.raises(FormatVersionError, match=f"@{len(laid.open)}: expected a record of kind 1 to 6, got kind 9"):
        JournalFile(OPEN, laid.open + frame(9, b"of the future"))


def test_events_of_an_unknown_schema_version_are_refused() -> None:
    header = frame(1, msgspec.json.encode(msgspec.structs.replace(HEADER, schema_version=3, reader_version=3)))
    with pytest.raises(FormatVersionError, match="@8: expected events of schema version 1 or 2, got 3"):
        JournalFile(OPEN, PREAMBLE + header)


def test_the_format_s_numbers_stand(tmp_path: Path) -> None:
    """These bytes lie on people's disks: add, never change."""
    with JournalWriter(PosixFileSystem(), [tmp_path], "main", "provenance", ManualClock(5)) as writer:
        writer.append([event()])
    [path] = (tmp_path / "main" / "journals").iterdir()
    data = path.read_bytes()
    assert path.name == "00000000000000000000.0.sealed"
    assert data[:8] == b"CUSTJRN\x01"
    kinds = []
    at = 8
    while at < len(data):
        assert data[at : at + 4] == b"\xc5\x7e\xa1\x1d"
        kinds.append(data[at + 12])
        at += 13 + int.from_bytes(data[at + 4 : at + 8], "little")
    assert kinds == [1, 2, 4, 6]
    assert data[21:].startswith(b'{"writer":"main","database":"provenance","first_event_id":0')
