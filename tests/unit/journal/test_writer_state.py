"""The containers of a writer: a missing disk is told from a new one, and ids are reserved before they are used."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.clock import ManualClock
from custody.config import SETTINGS_FILE
from custody.errors import CorruptionError, FormatVersionError, StorageError
from custody.journal import JournalWriter, writer_states
from custody.journal.writer_state import RESERVED_IDS, decode_state
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody.vfs.faults import Fault, FaultyFileSystem
from tests.support import append, event

FS = PosixFileSystem()


def open_writer(roots: Sequence[Path]) -> JournalWriter:
    return JournalWriter(FS, roots, "main", "provenance", ManualClock())


@pytest.fixture
def disks(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("disk1", "disk2", "disk3")]


def write_one(roots: Sequence[Path]) -> int:
    with open_writer(roots) as writer:
        return writer.append([event()]).start


def test_every_container_knows_all_of_them(disks: list[Path]) -> None:
    write_one(disks)
    states = writer_states(FS, disks, "main")
    assert len({state.container for state in states.values()}) == 3
    for state in states.values():
        assert sorted(state.containers.values()) == [str(root) for root in disks]
        assert (state.reserved, state.floor) == (1 + RESERVED_IDS, 0)


def test_a_disk_that_is_not_mounted_stops_the_start_and_nothing_is_written_to_its_place(disks: list[Path]) -> None:
    write_one(disks)
    for gone in disks:
        away = gone.with_name("unmounted")
        gone.rename(away)
        gone.mkdir()
        with pytest.raises(StorageError, match=f"last seen at {gone}, is missing. Mount it"):
            open_writer(disks)
        assert list(gone.iterdir()) == []
        gone.rmdir()
        away.rename(gone)
    assert write_one(disks) == 1


def test_a_disk_that_moved_is_known_by_what_lies_on_it(disks: list[Path]) -> None:
    write_one(disks)
    moved = disks[1].with_name("elsewhere")
    disks[1].rename(moved)
    assert write_one([disks[0], moved, disks[2]]) == 1
    assert str(moved) in writer_states(FS, disks[:1], "main")[disks[0]].containers.values()


def test_a_new_disk_is_taken_in(disks: list[Path]) -> None:
    write_one(disks[:2])
    assert write_one(disks) == 1
    assert len(writer_states(FS, disks, "main")[disks[2]].containers) == 3


def test_a_copy_of_a_container_is_refused(disks: list[Path]) -> None:
    write_one(disks[:1])
    shutil.copytree(disks[0], disks[1])
    with pytest.raises(StorageError, match=f"{disks[0]} and {disks[1]} are the same container"):
        open_writer(disks[:2])


def test_a_damaged_state_is_healed_by_another_container(disks: list[Path]) -> None:
    write_one(disks)
    before = writer_states(FS, disks, "main")
    path = disks[1] / "main" / "STATE"
    path.write_bytes(path.read_bytes()[:-1])
    assert write_one(disks) == 1
    after = writer_states(FS, disks, "main")
    assert {root: state.container for root, state in before.items()} == {
        root: state.container for root, state in after.items()
    }


def test_a_damaged_state_that_nobody_else_knows_is_named(disks: list[Path]) -> None:
    write_one(disks[:1])
    path = disks[0] / "main" / "STATE"
    good = path.read_bytes()
    for bit in range(8 * len(good)):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatVersionError if bit // 8 == 7 else CorruptionError, match=str(path)):
            decode_state(bytes(data), path)
    path.write_bytes(good[:50])
    with pytest.raises(CorruptionError, match="Move the file away"):
        open_writer(disks[:1])
    path.unlink()
    assert write_one(disks[:1]) == 1


def test_ids_are_reserved_durably_before_they_are_used(disks: list[Path]) -> None:
    with open_writer(disks[:2]) as writer:
        for first in (0, RESERVED_IDS - 1, 2 * RESERVED_IDS, 2 * RESERVED_IDS + 5):
            writer.begin(first)
            ids = writer.append([event(), event(1)])
            for state in writer_states(FS, disks[:2], "main").values():
                assert ids.stop <= state.reserved <= ids.stop + RESERVED_IDS


def test_a_container_that_cannot_reserve_is_taken_out_and_the_next_append_goes_on(disks: list[Path]) -> None:
    fs = FaultyFileSystem(FS)
    with JournalWriter(fs, disks[:2], "main", "provenance", ManualClock()) as writer:
        fs.faults.append(Fault(kinds=frozenset({"create"}), path="disk2/main/STATE.*", count=None))
        with pytest.raises(StorageError):
            writer.append([event()])
        assert list(writer.failed_containers) == [disks[1]]
        assert writer.append([event()]) == range(1)


def test_a_lost_container_is_dropped_and_its_ids_are_not_given_out_again(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    (root / SETTINGS_FILE).write_text('[repository]\ncontainers = ["disk1", "disk2"]\n')
    append(Repository.open(root), [event()])
    shutil.rmtree(root / "disk2")
    with pytest.raises(StorageError, match=r"custody containers drop [0-9a-f]{32}"):
        append(Repository.open(root), [event(1)])
    listed = CliRunner().invoke(cli, ["-r", str(root), "containers", "list", "--json"])
    [lost] = [item for item in _json(listed.output) if item["is_missing"]]
    assert CliRunner().invoke(cli, ["-r", str(root), "containers", "list"]).output.count("missing") == 1
    here = next(item for item in _json(listed.output) if not item["is_missing"])
    refused = CliRunner().invoke(cli, ["-r", str(root), "containers", "drop", "--yes", here["container"]])
    assert refused.exit_code == CorruptionError.exit_code
    assert CliRunner().invoke(cli, ["-r", str(root), "containers", "drop", "--yes", "f" * 32]).exit_code == 12
    done = CliRunner().invoke(cli, ["-r", str(root), "containers", "drop", "--yes", lost["container"]])
    assert done.exit_code == 0, done.output
    assert append(Repository.open(root), [event(1)]).start >= RESERVED_IDS


def _json(text: str) -> list[dict[str, str]]:

    return list(json.loads(text))
