"""Witnesses: merged part by part, written wherever a disk is there, and never in the place of one that is away."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import msgspec
import pytest

from custody.errors import StorageError
from custody.store.witness import Witness, Witnesses, decode_witness
from custody.vfs import PosixFileSystem
from tests.support import FailingFileSystem

FIRST = Witness(writer="main", database="provenance", catalog="a" * 32, revision=1, digest="b" * 64, next_event_id=10)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for disk in ("disk1", "disk2"):
        (tmp_path / disk / "main").mkdir(parents=True)
    return tmp_path


def witnesses(root: Path, fs: PosixFileSystem | FailingFileSystem | None = None) -> Witnesses:
    containers = [root / "disk1", root / "disk2", root / "away"]
    return Witnesses(fs or PosixFileSystem(), root / "witness", containers, "main", "provenance", root / "store")


def test_the_newest_of_each_part_counts_in_whatever_order_they_are_merged() -> None:
    change = msgspec.structs.replace
    seen = [
        FIRST,
        change(FIRST, revision=3, digest="c" * 64),
        change(FIRST, revision=-1, catalog="", digest="", next_event_id=40, claim=2),
        change(FIRST, containers={"x": 5, "y": 1}),
        change(FIRST, containers={"x": 2, "z": 7}),
    ]
    merged = change(seen[1], next_event_id=40, claim=2, containers={"x": 5, "y": 1, "z": 7})
    for order in permutations(seen):
        result = order[0]
        for other in order[1:]:
            result = result.merge(other)
        assert result == merged


def test_an_accepted_state_replaces_later_ones_but_gives_out_no_id_again() -> None:
    accepted = msgspec.structs.replace(FIRST, accepted=1, revision=0, next_event_id=4)
    assert accepted.merge(FIRST) == FIRST.merge(accepted) == msgspec.structs.replace(accepted, next_event_id=10)


def test_it_is_written_on_every_disk_that_is_there_and_at_no_place_of_one_that_is_away(root: Path) -> None:
    witnesses(root).note(FIRST)
    written = sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    assert written == [
        "disk1/main/WITNESS.provenance",
        "disk2/main/WITNESS.provenance",
        "witness/LOCK",
        "witness/main.provenance",
    ]
    assert not (root / "away").exists()
    assert not (root / "store").exists()


def test_a_slower_process_takes_no_newer_state_back(root: Path) -> None:
    newer = msgspec.structs.replace(FIRST, revision=7, digest="d" * 64)
    slow, quick = witnesses(root), witnesses(root)
    quick.note(newer)
    slow.note(FIRST)
    for path in (root / "disk1/main/WITNESS.provenance", root / "witness/main.provenance"):
        assert decode_witness(path.read_bytes(), path) == newer


def test_what_a_process_has_seen_stays_seen_when_the_disks_go_away(root: Path) -> None:
    mine = witnesses(root)
    mine.note(FIRST)
    root.rename(root.with_name("elsewhere"))
    assert mine.each() == [("this process", FIRST)]
    mine.try_to_note(msgspec.structs.replace(FIRST, revision=2))
    assert not root.exists()


def test_one_disk_is_enough_and_none_is_an_error(root: Path) -> None:
    count = FailingFileSystem()
    witnesses(root, count).note(FIRST)
    newer = msgspec.structs.replace(FIRST, revision=2)
    refused = []
    for fail_at in range(1, len(count.operations) + 1):
        try:
            witnesses(root, FailingFileSystem(fail_at)).note(msgspec.structs.replace(newer, revision=2 + fail_at))
        except StorageError:
            refused.append(fail_at)
    # Only where the folder itself could not be made ready nothing is written.
    assert len(refused) < len(count.operations) / 2
    for path in (root / "witness", root / "disk1", root / "disk2"):
        path.rename(path.with_name(path.name + "-away"))
    (root / "witness").write_text("no folder")
    with pytest.raises(StorageError):
        witnesses(root).note(msgspec.structs.replace(FIRST, revision=99))
