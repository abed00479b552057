"""The room of a quarantine: never more than it has, what others add and remove is seen, and looking is rare."""

from __future__ import annotations

from pathlib import Path

from custody.errors import BackpressureError
from custody.quarantine.store import Quota
from custody.vfs.memory import MemoryFileSystem

FOLDER = Path("/quarantine")
FILE = 16 << 10
"""What a small file takes."""


class Counted(MemoryFileSystem):
    """Says how often a folder was listed."""

    looks = 0

    def list(self, folder: Path) -> list[str]:
        self.looks += 1
        return super().list(folder)


def put(fs: MemoryFileSystem, name: str, size: int) -> None:
    fs.make_directory(FOLDER)
    with fs.create(FOLDER / name) as file:
        file.write(bytes(size))


def refusal(room: Quota, size: int) -> BackpressureError | None:
    [found] = room.take(size)
    return found


def test_what_is_there_counts_and_the_bound_is_kept() -> None:
    fs = Counted()
    put(fs, "a", 6 * FILE)
    room = Quota(fs, FOLDER, 10 * FILE, now=lambda: 0.0)
    assert refusal(room, 4 * FILE) is None
    put(fs, "b", 4 * FILE)
    assert f"expected room for {FILE} bytes, got {10 * FILE} of {10 * FILE} in use" in str(refusal(room, 1))


def test_small_files_count_by_the_inodes_that_they_take() -> None:
    fs = Counted()
    for number in range(10):
        put(fs, str(number), 1)
    assert refusal(Quota(fs, FOLDER, 10 * FILE, now=lambda: 0.0), 1) is not None
    assert refusal(Quota(fs, FOLDER, 11 * FILE, now=lambda: 0.0), 1) is None


def test_a_file_counts_by_whole_blocks() -> None:
    fs = Counted()
    room = Quota(fs, FOLDER, 5 << 12, now=lambda: 0.0)
    assert refusal(room, (5 << 12) + 1) is not None
    assert refusal(room, (4 << 12) + 1) is None
    put(fs, "a", (4 << 12) + 1)
    assert f"got {5 << 12} of {5 << 12} in use" in str(refusal(room, 1))


def test_what_is_taken_at_once_counts_together_and_what_fits_is_given() -> None:
    fs = Counted()
    put(fs, "a", 6 * FILE)
    room = Quota(fs, FOLDER, 10 * FILE, now=lambda: 0.0)
    assert [found is None for found in room.take(3 * FILE, 2 * FILE, FILE, 1)] == [True, False, True, False]
    assert fs.looks == 1


def test_room_that_somebody_makes_is_found_after_a_second() -> None:
    fs, clock = Counted(), [0.0]
    put(fs, "a", FILE)
    room = Quota(fs, FOLDER, FILE, now=lambda: clock[0])
    for _ in range(100):
        assert refusal(room, 1) is not None
    assert fs.looks == 1
    fs.remove(FOLDER / "a")
    clock[0] = 1.0
    assert refusal(room, 1) is None
    assert fs.looks == 2


def test_what_others_add_is_seen_before_a_sixty_fourth_more_is_given_away() -> None:
    fs = Counted()
    room = Quota(fs, FOLDER, 6400 * FILE, now=lambda: 0.0)
    assert refusal(room, 1) is None
    put(fs, "of another", 6400 * FILE)
    given = 0
    while given < 6400 and refusal(room, 1) is None:
        given += 1
    assert given <= 101


def test_looking_is_rare_while_there_is_room() -> None:
    fs = Counted()
    room = Quota(fs, FOLDER, 640 * FILE, now=lambda: 0.0)
    for number in range(640):
        assert refusal(room, 100) is None
        put(fs, str(number), 100)
    assert fs.looks <= 65
