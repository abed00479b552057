"""The quarantine: what is put in comes out byte for byte, once, and only under its own key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from custody.errors import BackpressureError, CorruptionError, FormatVersionError, NotFoundError
from custody.quarantine import BadPiece, Quarantine, QuarantineEntry, bad_piece
from custody.vfs import PosixFileSystem
from custody.vfs.memory import MemoryFileSystem
from tests.support import files_below

RAW = b'{"eventOrdinal": "\xff\0'


@pytest.fixture
def quarantine(tmp_path: Path) -> Quarantine:
    return Quarantine(PosixFileSystem(), tmp_path / "quarantine")


def add(quarantine: Quarantine, raw: bytes = RAW, **changes: Any) -> QuarantineEntry:
    return quarantine.add(_piece(raw, **{"received_ms": 5, **changes}))


def test_an_empty_quarantine_lists_nothing(quarantine: Quarantine) -> None:
    assert list(quarantine.entries()) == []


def test_a_piece_comes_out_as_it_went_in(quarantine: Quarantine) -> None:
    entry = add(quarantine)
    assert quarantine.raw(entry.key) == RAW
    assert quarantine.get(entry.key) == entry
    assert list(quarantine.entries()) == [entry]
    assert (entry.size_bytes, entry.index, entry.offset, entry.file) == (len(RAW), 3, 120, "/landing/a.json")
    assert not entry.is_stored
    assert add(quarantine, severity="warning", code="unknown-type").is_stored


def test_the_same_piece_twice_is_one_entry_that_stays_as_it_was(quarantine: Quarantine) -> None:
    first = add(quarantine)
    assert add(quarantine, received_ms=99, file="/elsewhere/a.json") == first
    assert list(quarantine.entries()) == [first]


def test_the_pieces_of_a_body_are_one_file_and_each_comes_out_as_it_went_in(
    quarantine: Quarantine, tmp_path: Path
) -> None:
    pieces = [_piece(b"%d" % number, index=number) for number in range(40)]
    [entries] = quarantine.add_bodies([pieces])
    assert isinstance(entries, list)
    assert [quarantine.raw(entry.key) for entry in entries] == [piece.raw for piece in pieces]
    assert [entry.index for entry in entries] == list(range(40))
    assert list(quarantine.entries()) == entries
    assert [entry.key for entry in entries] == list(quarantine.known_keys())
    assert len(files_below(tmp_path / "quarantine")) == 1
    assert quarantine.add_bodies([pieces, pieces]) == [entries, entries], "the same body again adds nothing"
    assert len(files_below(tmp_path / "quarantine")) == 1
    assert quarantine.add_bodies([]) == []


def test_a_piece_of_a_body_leaves_and_the_others_stay_under_their_keys(quarantine: Quarantine, tmp_path: Path) -> None:
    [entries] = quarantine.add_bodies([[_piece(b"%d" % number, index=number) for number in range(5)]])
    assert isinstance(entries, list)
    first, *others, last = entries
    quarantine.remove(first.key, last.key)
    assert list(quarantine.entries()) == others
    assert [quarantine.raw(entry.key) for entry in others] == [b"1", b"2", b"3"]
    with pytest.raises(NotFoundError, match=first.key):
        quarantine.remove(others[0].key, first.key)
    assert list(quarantine.entries()) == others, "nothing is removed where a key is unknown"
    quarantine.remove(*(entry.key for entry in others))
    assert files_below(tmp_path / "quarantine") == {}


def test_of_bodies_that_are_added_together_those_are_kept_that_find_room(tmp_path: Path) -> None:
    quarantine = Quarantine(PosixFileSystem(), tmp_path / "quarantine", bytes_max=40_000)
    small, large, other = quarantine.add_bodies([[_piece(b"small")], [_piece(bytes(30_000))], [_piece(b"other")]])
    assert isinstance(large, BackpressureError)
    assert not isinstance(small, BackpressureError)
    assert not isinstance(other, BackpressureError)
    assert {entry.key for entry in quarantine.entries()} == {small[0].key, other[0].key}


def test_many_bodies_take_as_few_syncs_as_one() -> None:
    fs = MemoryFileSystem()
    quarantine = Quarantine(fs, Path("/quarantine"))
    add(quarantine)
    before = len(fs.operations)
    quarantine.add_bodies([[_piece(b"%d" % number)] for number in range(100)])
    syncs = [operation for operation in fs.operations[before:] if "sync" in str(operation)]
    # Of the folder's own name, of all bytes, and of the names of the files.
    assert len(syncs) == 3, syncs


def _piece(raw: bytes, **changes: Any) -> BadPiece:
    values: dict[str, Any] = {
        "severity": "error",
        "code": "not-json",
        "message": "broken \x1b[31m",
        "file": "/landing/a.json",
        "index": 3,
        "offset": 120,
        "node": None,
        "received_ms": 7,
    }
    return bad_piece(raw, **{**values, **changes})


@pytest.mark.parametrize(
    "changes", [{"raw": b"other"}, {"index": 4}, {"offset": 121}, {"code": "bad-value"}, {"file": "b.json"}]
)
def test_another_piece_place_or_reason_is_another_entry(quarantine: Quarantine, changes: dict[str, Any]) -> None:
    assert add(quarantine).key != add(quarantine, **changes).key
    assert len(list(quarantine.entries())) == 2


def test_changed_bytes_are_damage(quarantine: Quarantine, tmp_path: Path) -> None:
    entry = add(quarantine)
    path = tmp_path / "quarantine" / f"{entry.key}.rejected"
    path.write_bytes(path.read_bytes()[:-1] + b" ")
    assert quarantine.get(entry.key) == entry
    with pytest.raises(CorruptionError, match=f"{entry.key}.rejected"):
        quarantine.raw(entry.key)


def test_a_file_that_was_cut_short_is_damage(quarantine: Quarantine, tmp_path: Path) -> None:
    entry = add(quarantine)
    path = tmp_path / "quarantine" / f"{entry.key}.rejected"
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(CorruptionError):
            quarantine.get(entry.key)


def test_a_file_of_a_later_version_is_refused(quarantine: Quarantine, tmp_path: Path) -> None:
    entry = add(quarantine)
    path = tmp_path / "quarantine" / f"{entry.key}.rejected"
    path.write_bytes(path.read_bytes().replace(b"input 1,", b"input 2,"))
    with pytest.raises(FormatVersionError, match="version 2"):
        quarantine.get(entry.key)


def test_a_broken_envelope_is_damage(quarantine: Quarantine, tmp_path: Path) -> None:
    entry = add(quarantine)
    path = tmp_path / "quarantine" / f"{entry.key}.rejected"
    path.write_bytes(path.read_bytes().replace(b"not-json", b"not-JSON"))
    with pytest.raises(CorruptionError, match=f"{entry.key}.rejected"):
        quarantine.get(entry.key)


def test_a_removed_entry_is_gone_with_its_piece(quarantine: Quarantine, tmp_path: Path) -> None:
    entry, other = add(quarantine), add(quarantine, b"other")
    quarantine.remove(entry.key)
    assert list(quarantine.entries()) == [other]
    assert set(files_below(tmp_path / "quarantine")) == {f"{other.key}.rejected"}
    with pytest.raises(NotFoundError, match=entry.key):
        quarantine.remove(entry.key)


@pytest.mark.parametrize(
    "key",
    [
        "../secret",
        "../quarantine/0000000000000000",
        "",
        "/etc/passwd",
        "0" * 16,
        "0" * 15,
        "0" * 16 + "-0",
        "0" * 16 + "-",
        "0" * 16 + "/../x",
        "A" * 16,
        "0\n" * 8,
    ],
)
def test_a_key_from_outside_never_becomes_a_path(quarantine: Quarantine, tmp_path: Path, key: str) -> None:
    add(quarantine)
    (tmp_path / "secret.rejected").write_bytes(b"secret")
    before = files_below(tmp_path)
    for action in (quarantine.get, quarantine.raw, quarantine.remove):
        with pytest.raises(NotFoundError):
            action(key)
    assert files_below(tmp_path) == before


def test_foreign_files_are_not_entries(quarantine: Quarantine, tmp_path: Path) -> None:
    entry = add(quarantine)
    for name in ("notes.json", "README", f"{entry.key}.rejected.0123.partial"):
        (tmp_path / "quarantine" / name).write_text("mine")
    assert list(quarantine.entries()) == [entry]
