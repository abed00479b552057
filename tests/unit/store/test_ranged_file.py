"""A file of an object store that is read by ranges: what is fetched, what is believed, and what it counts."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from custody.errors import NotFoundError, StorageError
from custody.store import counted
from custody.store.ranged_file import GAP_BYTES, RangedFile, Span, joined
from custody.store.remote import RemoteStore
from custody.vfs import PosixFileSystem, room_of
from custody.vfs.memory import CrashMode, MemoryFileSystem

KEY = "main/provenance/data/log.parquet"
PIECE = 30_000
DATA = bytes(range(256)) * 2_340
PIECES: list[Span] = [(start, min(start + PIECE, len(DATA))) for start in range(0, len(DATA), PIECE)]


def stored(data: bytes = DATA) -> RemoteStore:
    store = RemoteStore(MemoryStore(), "memory://ranges")
    store.put(KEY, data)
    return store


def fits(file: RangedFile) -> Callable[[Span], bool]:
    return lambda span: zlib.crc32(file.view[slice(*span)]) == zlib.crc32(DATA[slice(*span)])


def read(file: RangedFile, *spans: Span) -> list[bytes]:
    """What a reader does: look, fetch what is not whole, look again."""
    is_whole = fits(file)
    file.fetch([span for span in spans if not is_whole(span)], is_whole)
    return [bytes(file.view[slice(*span)]) for span in spans]


def test_a_piece_is_one_request_and_what_is_here_is_none(tmp_path: Path) -> None:
    store, path = stored(), tmp_path / "log"
    with counted() as first:
        assert read(RangedFile(PosixFileSystem(), path, store, KEY, len(DATA)), PIECES[7]) == [DATA[slice(*PIECES[7])]]
    assert first.traffic.requests == {"range": 1}
    assert first.traffic.bytes_read == PIECE
    assert room_of(path) < 2 * PIECE, "holes take no room"
    # Another process, later.
    with counted() as second:
        again = RangedFile(PosixFileSystem(), path, store, KEY, len(DATA))
        assert read(again, PIECES[7], PIECES[8]) == [DATA[slice(*span)] for span in PIECES[7:9]]
    assert second.traffic.requests == {"range": 1}
    assert second.traffic.bytes_read == PIECE


def test_pieces_far_apart_are_requests_of_their_own_and_near_ones_are_one(tmp_path: Path) -> None:
    file = RangedFile(PosixFileSystem(), tmp_path / "log", stored(), KEY, len(DATA))
    with counted() as counter:
        read(file, PIECES[0], PIECES[1], PIECES[9], PIECES[15])
    assert counter.traffic.requests == {"range": 3}
    assert joined([(0, 10), (5, 20), (20 + GAP_BYTES, 30 + GAP_BYTES), (40 + 3 * GAP_BYTES, 50 + 3 * GAP_BYTES)]) == [
        (0, 30 + GAP_BYTES),
        (40 + 3 * GAP_BYTES, 50 + 3 * GAP_BYTES),
    ]


def test_what_is_here_and_wrong_is_fetched_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = RangedFile(PosixFileSystem(), path, stored(), KEY, len(DATA))
    read(file, *PIECES)
    assert path.read_bytes() == DATA
    with path.open("r+b") as damaged:
        damaged.seek(PIECES[3][0] + 11)
        damaged.write(b"other")
    with counted() as counter:
        assert read(file, *PIECES) == [DATA[slice(*span)] for span in PIECES]
    assert counter.traffic.requests == {"range": 1}
    # One that was cut, or is of an earlier file of this name, gives way.
    path.write_bytes(DATA[:10])
    assert read(RangedFile(PosixFileSystem(), path, stored(), KEY, len(DATA)), PIECES[0]) == [DATA[slice(*PIECES[0])]]


def test_damage_in_the_store_is_fetched_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = stored(DATA[:50] + b"x" + DATA[51:])
    file = RangedFile(PosixFileSystem(), tmp_path / "log", store, KEY, len(DATA))
    with counted() as counter:
        for _ in range(5):
            assert read(file, PIECES[0]) != [DATA[slice(*PIECES[0])]]
    assert counter.traffic.requests == {"range": 1}
    store.put(KEY, DATA)
    monkeypatch.setattr("custody.store.ranged_file._AGAIN_SECONDS", 0.0)
    assert read(file, PIECES[0]) == [DATA[slice(*PIECES[0])]]


def test_a_file_that_is_removed_for_room_stays_usable(tmp_path: Path) -> None:
    path = tmp_path / "log"
    file = RangedFile(PosixFileSystem(), path, stored(), KEY, len(DATA))
    read(file, PIECES[0])
    path.unlink()
    other = RangedFile(PosixFileSystem(), path, stored(), KEY, len(DATA))
    assert read(file, PIECES[0], PIECES[5]) == [DATA[slice(*PIECES[0])], DATA[slice(*PIECES[5])]]
    assert read(other, PIECES[5]) == [DATA[slice(*PIECES[5])]]


def test_threads_that_read_at_once_all_get_what_is_there(tmp_path: Path) -> None:
    store = stored()
    files = [RangedFile(PosixFileSystem(), tmp_path / "log", store, KEY, len(DATA)) for _ in range(2)]
    wrong: list[Span] = []

    def work(number: int) -> None:
        file, spans = files[number % 2], PIECES[number % 3 :]
        wrong.extend(span for span in spans if read(file, span) != [DATA[slice(*span)]])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_object_that_is_gone_and_a_full_disk_are_errors(tmp_path: Path) -> None:
    store = stored()
    file = RangedFile(PosixFileSystem(), tmp_path / "log", store, KEY, len(DATA))
    store.delete(KEY)
    with pytest.raises(NotFoundError, match="there is no such object"):
        read(file, PIECES[0])
    with pytest.raises(StorageError, match="cannot open"):
        RangedFile(PosixFileSystem(), tmp_path / "absent" / "log", store, KEY, len(DATA))


@pytest.mark.parametrize("mode", list(CrashMode))
def test_after_a_crash_nothing_is_believed_that_was_not_written(mode: CrashMode) -> None:
    store, path = stored(), Path("/ranges/log")
    for crash_at in range(1, 8):
        disk = MemoryFileSystem()
        disk.make_directory(path.parent)
        disk.crash_at = len(disk.operations) + crash_at
        try:
            file = RangedFile(disk, path, store, KEY, len(DATA))
            for span in PIECES[:4:2]:
                read(file, span)
        # A dead process is no error: nothing catches it.
        except BaseException as error:  # noqa: BLE001
            assert type(error).__name__ == "InjectedCrash"
        for seed in range(2):
            after = disk.crashed(mode, seed)
            again = RangedFile(after, path, store, KEY, len(DATA))
            assert read(again, *PIECES[:4]) == [DATA[slice(*span)] for span in PIECES[:4]]
