"""The quarantine: what is put in comes out byte for byte, once, and only under its own key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from custody.errors import BackpressureError, CorruptionError, NotFoundError
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


def test_pieces_that_are_added_together_are_kept_as_one_by_one(quarantine: Quarantine, tmp_path: Path) -> None:
    pieces = [_piece(b"%d" % number) for number in range(40)]
    found = add(quarantine, pieces[3].raw)
    entries = quarantine.add_all([*pieces, pieces[5]])
    assert (entries[3], entries[40]) == (found, entries[5])
    alone = Quarantine(PosixFileSystem(), tmp_path / "alone")
    for piece in pieces:
        add(alone, piece.raw, received_ms=5 if piece is pieces[3] else 7)
    assert files_below(tmp_path / "quarantine") == files_below(tmp_path / "alone")
    assert quarantine.add_all(pieces) == entries[:40]
    assert quarantine.add_all([]) == []


def test_of_pieces_that_are_added_together_those_are_kept_that_find_room(tmp_path: Path) -> None:
    quarantine = Quarantine(PosixFileSystem(), tmp_path / "quarantine", bytes_max=3000)
    small, large, other = quarantine.add_all([_piece(b"small"), _piece(bytes(3000)), _piece(b"other")])
    assert isinstance(large, BackpressureError)
    assert set(quarantine.entries()) == {small, other}


def test_many_pieces_take_as_few_syncs_as_one() -> None:
    fs = MemoryFileSystem()
    quarantine = Quarantine(fs, Path("/quarantine"))
    add(quarantine)
    before = len(fs.operations)
    quarantine.add_all([_piece(b"%d" % number) for number in range(100)])
    syncs = [operation for operation in fs.operations[before:] if "sync" in str(operation)]
    # Of the folder's own name, of all bytes, of the names of the pieces and of those of the envelopes.
    assert len(syncs) == 4, syncs


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
    (tmp_path / "quarantine" / f"{entry.key}.raw").write_bytes(RAW + b" ")
    with pytest.raises(CorruptionError, match=f"{entry.key}.raw"):
        quarantine.raw(entry.key)


def test_a_broken_envelope_is_damage(quarantine: Quarantine, tmp_path: Path) -> None:
    entry = add(quarantine)
    (tmp_path / "quarantine" / f"{entry.key}.json").write_bytes(b"{")
    with pytest.raises(CorruptionError, match=f"{entry.key}.json"):
        quarantine.get(entry.key)


def test_a_removed_entry_is_gone_with_its_piece(quarantine: Quarantine, tmp_path: Path) -> None:
    entry, other = add(quarantine), add(quarantine, b"other")
    quarantine.remove(entry.key)
    assert list(quarantine.entries()) == [other]
    assert set(files_below(tmp_path / "quarantine")) == {f"{other.key}.json", f"{other.key}.raw"}
    with pytest.raises(NotFoundError, match=entry.key):
        quarantine.remove(entry.key)


@pytest.mark.parametrize(
    "key", ["../secret", "../quarantine/0000000000000000", "", "/etc/passwd", "0" * 16, "0" * 15, "A" * 16, "0\n" * 8]
)
def test_a_key_from_outside_never_becomes_a_path(quarantine: Quarantine, tmp_path: Path, key: str) -> None:
    add(quarantine)
    for suffix in ("json", "raw"):
        (tmp_path / f"secret.{suffix}").write_bytes(b"secret")
    before = files_below(tmp_path)
    for action in (quarantine.get, quarantine.raw, quarantine.remove):
        with pytest.raises(NotFoundError):
            action(key)
    assert files_below(tmp_path) == before


def test_a_piece_without_its_envelope_was_never_listed_and_can_be_added_again(
    quarantine: Quarantine, tmp_path: Path
) -> None:
    entry = add(quarantine)
    (tmp_path / "quarantine" / f"{entry.key}.json").unlink()
    assert list(quarantine.entries()) == []
    assert add(quarantine) == entry


def test_foreign_files_are_not_entries(quarantine: Quarantine, tmp_path: Path) -> None:
    entry = add(quarantine)
    for name in ("notes.json", "README", f"{entry.key}.json.0123.partial"):
        (tmp_path / "quarantine" / name).write_text("mine")
    assert list(quarantine.entries()) == [entry]
