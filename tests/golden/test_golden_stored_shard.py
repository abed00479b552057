"""A shard in an object store as version 1 has it: read by ranges, made again byte for byte, damaged in every way."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from custody.errors import CorruptionError, FormatVersionError
from custody.index import OpenShard, open_stored, pack
from custody.index.stored_shard import ALIGNED_BYTES, MAGIC
from custody.query import parse_query
from custody.store import LocalStore
from custody.store.ranged_file import RangedFile
from custody.vfs import PosixFileSystem
from tests.golden.make_golden import CUT, HERE, PACKED

FS = PosixFileSystem()
NAME = "1772359100000-00000000000000000000.shard"
GOLDEN = HERE / "stored-shard" / NAME
PACKED_QUESTIONS = ("event_type:route", "component_id:c-1*", "filename:file-3*", 'details:"by hand"')
QUESTIONS = ("event_type:*", f"filename:{'a' * 20}*", "event_time:[2026-03-01 TO 2026-03-09]")


class Source:
    """The golden object in a folder, and a local file beside it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def locate(self) -> Path:
        return self._folder / NAME

    def size_here(self) -> int | None:
        path = self._folder / "here"
        return path.stat().st_size if path.exists() else None

    def open(self, size: int) -> RangedFile:
        return RangedFile(FS, self._folder / "here", LocalStore(FS, self._folder), NAME, size)

    def tail(self, length: int) -> bytes:
        return LocalStore(FS, self._folder).get_range(NAME, -length, length)

    def forget(self) -> None:
        (self._folder / "here").unlink(missing_ok=True)


def answers(folder: Path, questions: Sequence[str] = QUESTIONS) -> list[list[int]]:
    shard = OpenShard(FS, folder / "no-folder", open_stored(Source(folder)))
    shard.verify()
    return [shard.search(parse_query(text)).tolist() for text in questions]


def expected() -> list[list[int]]:
    shard = OpenShard(FS, HERE / CUT)
    return [shard.search(parse_query(text)).tolist() for text in QUESTIONS]


def test_the_golden_shard_answers_as_its_folder_and_is_made_again_byte_for_byte(tmp_path: Path) -> None:
    shutil.copy(GOLDEN, tmp_path / NAME)
    assert any(expected())
    assert answers(tmp_path) == expected()
    # By the local file alone: every page was fetched.
    (tmp_path / NAME).unlink()
    assert answers(tmp_path) == expected()
    assert pack(FS, HERE / CUT) == GOLDEN.read_bytes()


def test_the_numbers_of_the_format() -> None:
    data = GOLDEN.read_bytes()
    assert (MAGIC, ALIGNED_BYTES) == (b"CUSTSHO\x01", 8)
    assert data[-8:] == MAGIC
    length = int.from_bytes(data[-48:-40], "little")
    assert data[-48 - length :].startswith(b"CUSTSHD\x01")


def test_a_later_version_is_refused(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(GOLDEN.read_bytes()[:-1] + b"\x02")
    with pytest.raises(FormatVersionError, match="expected a stored shard of version 1, got 2"):
        answers(tmp_path)


def test_no_cut_and_no_flip_gives_another_answer(tmp_path: Path) -> None:
    data, wanted = GOLDEN.read_bytes(), expected()
    damaged = [data[:length] for length in range(0, len(data), 97)]
    # Of bytes that a file is padded with nobody takes notice.
    damaged += [data[:place] + bytes([data[place] ^ 0x20]) + data[place + 1 :] for place in range(5, len(data), 61)]
    refused = 0
    for number, content in enumerate(damaged):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / NAME).write_bytes(content)
        try:
            assert answers(folder) == wanted
        except (CorruptionError, FormatVersionError) as error:
            assert NAME in str(error) or "no-folder" in str(error)
            refused += 1
    assert refused > 0.95 * len(damaged)


def test_a_packed_shard_is_read_by_ranges_and_no_flip_gives_another_answer(tmp_path: Path) -> None:
    folder = OpenShard(FS, HERE / PACKED)
    wanted = [folder.search(parse_query(text)).tolist() for text in PACKED_QUESTIONS]
    assert all(wanted)
    data = pack(FS, HERE / PACKED)
    (tmp_path / NAME).write_bytes(data)
    assert answers(tmp_path, PACKED_QUESTIONS) == wanted
    refused = 0
    places = range(5, len(data), 499)
    for place in places:
        damaged = tmp_path / str(place)
        damaged.mkdir()
        (damaged / NAME).write_bytes(data[:place] + bytes([data[place] ^ 0x20]) + data[place + 1 :])
        try:
            assert answers(damaged, PACKED_QUESTIONS) == wanted
        except (CorruptionError, FormatVersionError):
            refused += 1
    assert refused > 0.95 * len(places)
