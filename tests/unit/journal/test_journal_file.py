"""A journal file: what was acknowledged is read back, a torn tail is told from damage, other versions are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.clock import ManualClock
from custody.errors import CorruptionError, FormatVersionError
from custody.format.framing import frame
from custody.journal import JournalFile, JournalWriter, groups, read_group, read_sealed
from custody.journal.file import PREAMBLE
from custody.model import Event, to_events
from custody.vfs import PosixFileSystem
from tests.support import event, flipped, numbered

BATCHES = [[event(0), event(1)], [event(2, details="\N{SNOWMAN}\0")], [event(3), event(4), event(5)]]
EVENTS = numbered([item for batch in BATCHES for item in batch])


def journal_of(folder: Path, batches: list[list[Event]]) -> tuple[Path, list[int]]:
    """A sealed journal and where each of its batches ends."""
    ends = []
    with JournalWriter(PosixFileSystem(), [folder], "main", "provenance", ManualClock(5)) as writer:
        for batch in batches:
            writer.append(batch)
            ends.append(next((folder / "main" / "journals").iterdir()).stat().st_size)
    return next((folder / "main" / "journals").iterdir()), ends


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    return journal_of(tmp_path_factory.mktemp("container"), BATCHES)


def read(path: Path, data: bytes) -> JournalFile:
    return JournalFile(path, data)


def events_in(journal: JournalFile) -> list[Event]:
    return to_events(journal.table())


def test_the_header_says_who_wrote_which_ids(written: tuple[Path, list[int]]) -> None:
    journal = JournalFile.read(PosixFileSystem(), written[0])
    assert journal.header is not None
    assert (journal.header.writer, journal.header.database) == ("main", "provenance")
    assert (journal.header.first_event_id, journal.header.created_ms) == (0, 5)
    assert journal.torn is None
    assert not journal.is_empty
    assert events_in(journal) == EVENTS


def test_a_journal_cut_anywhere_keeps_its_whole_batches(written: tuple[Path, list[int]]) -> None:
    path, ends = written
    data = path.read_bytes()
    lengths = {*range(0, len(data), 61), *(end + near for end in ends for near in (-1, 0, 1)), *range(20)}
    for length in sorted(length for length in lengths if length <= len(data)):
        journal = read(path, data[:length])
        batches = sum(end <= length for end in ends)
        assert events_in(journal) == EVENTS[: sum(map(len, BATCHES[:batches]))], length
        assert journal.is_empty == (batches == 0)
        if batches:
            torn = length - ends[batches - 1]
            assert journal.intact_bytes == ends[batches - 1]
            assert (journal.torn.lost_bytes if journal.torn else 0) == torn


def test_a_flipped_bit_never_gives_other_events(written: tuple[Path, list[int]]) -> None:
    path, ends = written
    data = path.read_bytes()
    for bit in [*range(0, 8 * len(data), 509), *range(8 * len(PREAMBLE))]:
        byte = bit // 8
        if byte >= ends[-2]:  # the last record: its append may not have ended
            journal = read(path, flipped(data, bit))
            assert journal.torn is not None
            assert journal.torn.offset == ends[-2]
            assert events_in(journal) == EVENTS[:3]
            continue
        expected = FormatVersionError if byte == len(PREAMBLE) - 1 else CorruptionError
        with pytest.raises(expected, match=str(path)) as caught:
            read(path, flipped(data, bit))
        assert " @" in str(caught.value)


def test_damage_is_placed_at_the_record_that_has_it(written: tuple[Path, list[int]]) -> None:
    path, ends = written
    with pytest.raises(CorruptionError, match=f"@{ends[0]}:"):
        read(path, flipped(path.read_bytes(), 8 * (ends[0] + 100)))


def test_a_sealed_journal_with_a_torn_tail_is_damaged(written: tuple[Path, list[int]], tmp_path: Path) -> None:
    path, ends = written
    torn = tmp_path / path.name
    torn.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptionError, match=f"{torn} @{ends[1]}:"):
        read_sealed(PosixFileSystem(), torn)
    torn.write_bytes(b"")
    with pytest.raises(CorruptionError, match="@0:"):
        read_sealed(PosixFileSystem(), torn)


def test_an_unknown_version_is_refused(written: tuple[Path, list[int]]) -> None:
    path, _ = written
    with pytest.raises(FormatVersionError, match="@7: expected journal version 1, got 2"):
        read(path, PREAMBLE[:7] + b"\x02" + path.read_bytes()[8:])


def test_an_unknown_kind_of_record_is_refused(written: tuple[Path, list[int]]) -> None:
    path, ends = written
    with pytest.raises(FormatVersionError, match=f"@{ends[-1]}: expected a record of kind 1 to 5, got kind 9"):
        read(path, path.read_bytes() + frame(9, b"of the future"))


def test_a_file_that_is_no_journal_is_refused(tmp_path: Path) -> None:
    for data in (b"<html>", b"PAR1" * 100):
        with pytest.raises(CorruptionError, match="preamble"):
            read(tmp_path / "x", data)


@pytest.mark.parametrize("length", [0, 3, 8, 4096])
def test_space_that_was_never_written_is_an_empty_journal(length: int, tmp_path: Path) -> None:
    journal = read(tmp_path / "x", bytes(length))
    assert journal.is_empty
    assert journal.intact_bytes == 0
    assert events_in(journal) == []


def test_the_format_s_numbers_stand(written: tuple[Path, list[int]]) -> None:
    """These bytes lie on people's disks: add, never change."""
    data = written[0].read_bytes()
    assert data[:8] == b"CUSTJRN\x01"
    mark, length, kind = data[8:12], int.from_bytes(data[12:16], "little"), data[20]
    assert (mark, kind) == (b"\xc5\x7e\xa1\x1d", 1)
    assert data[21 : 21 + length].startswith(b'{"writer":"main","database":"provenance","first_event_id":0')
    assert data[21 + length : 25 + length] == mark
    assert data[21 + length + 12] == 2
    assert written[0].name == "00000000000000000000.0.sealed"


def test_events_of_an_unknown_schema_version_are_refused(written: tuple[Path, list[int]]) -> None:
    path, _ = written
    header = b'{"writer":"main","database":"provenance","first_event_id":0,"schema_version":2,"created_ms":5}'
    with pytest.raises(FormatVersionError, match="@8: expected events of schema version 1, got 2"):
        read(path, PREAMBLE + frame(1, header))


def test_a_group_is_read_in_the_order_of_its_ids(tmp_path: Path) -> None:
    journal_of(tmp_path, BATCHES)
    [group] = groups(PosixFileSystem(), [tmp_path], "main")
    assert group.is_sealed
    assert to_events(read_group(PosixFileSystem(), group)) == EVENTS
