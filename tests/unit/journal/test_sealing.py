"""Recovery of journals: the torn tail of a dead writer is cut, acknowledged events stay, damage is left alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.errors import CorruptionError
from custody.journal import groups, seal_abandoned
from custody.journal.sealing import seal
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.support import append, event, python, unnumbered

DIE = """
import os, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from custody.repository import Repository
from tests.support import event
with Repository.open(Path(sys.argv[1])).writer() as writer:
    for number in range(int(sys.argv[2])):
        writer.append([event(number)])
    os._exit(9)
"""
ROOT = Path(__file__).parents[3]


def unsealed(repository: Repository, events: int = 3) -> Path:
    """The journal of a writer that died: all appended, the name of an open one."""
    with repository.writer() as writer:
        for number in range(events):
            writer.append([event(number)])
    sealed = next(repository.settings.root.glob("containers/1/main/journals/*.sealed"))
    return sealed.rename(sealed.with_suffix(".journal"))


def test_a_dead_writer_s_events_are_there_and_its_journal_is_sealed_by_the_next(repository: Repository) -> None:
    with python(DIE, repository.settings.root, 3, ROOT) as other:
        assert other.wait(60) == 9
    [path] = repository.settings.root.glob("containers/1/main/journals/*.journal")
    assert unnumbered(repository.events()) == [event(n) for n in range(3)]
    assert append(repository, [event(3)]) == range(3, 4)
    assert not path.exists()
    assert path.with_suffix(".sealed").exists()
    assert unnumbered(repository.events()) == [event(n) for n in range(4)]


@pytest.mark.parametrize("torn", [b"\x10", b"\x10\0\0\0 torn", bytes(100), b"\xff" * 5000])
def test_a_torn_tail_is_cut_and_the_acknowledged_events_are_kept(repository: Repository, torn: bytes) -> None:
    path = unsealed(repository)
    whole = path.read_bytes()
    path.write_bytes(whole + torn)
    [done] = seal_abandoned(PosixFileSystem(), repository.settings.containers, "main")
    assert done.lost_bytes == len(torn)
    assert not done.removed
    assert done.path.read_bytes() == whole
    assert unnumbered(repository.events()) == [event(n) for n in range(3)]
    assert append(repository, [event(3)]) == range(3, 4)


def test_an_append_that_was_cut_off_gives_its_ids_to_the_next(repository: Repository) -> None:
    """Nobody was told of them, so that using them is not using them again."""
    path = unsealed(repository)
    path.write_bytes(path.read_bytes()[:-1])
    assert append(repository, [event(7)]) == range(2, 3)
    assert unnumbered(repository.events()) == [event(0), event(1), event(7)]


def test_damage_in_the_middle_is_reported_and_the_file_is_left_as_it_is(repository: Repository) -> None:
    path = unsealed(repository)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    for attempt in (lambda: append(repository, [event()]), lambda: list(repository.events(strict=True))):
        with pytest.raises(CorruptionError, match=path.name):
            attempt()
    assert path.read_bytes() == data


@pytest.mark.parametrize("length", [0, 5, 8, 60])
def test_a_journal_without_an_event_is_removed(repository: Repository, length: int) -> None:
    path = unsealed(repository, events=1)
    path.write_bytes(path.read_bytes()[:length])
    [done] = seal_abandoned(PosixFileSystem(), repository.settings.containers, "main")
    assert done.removed
    assert groups(PosixFileSystem(), repository.settings.containers, "main") == []
    assert append(repository, [event()]) == range(1)


def test_sealing_again_changes_nothing(repository: Repository) -> None:
    unsealed(repository)
    assert len(seal_abandoned(PosixFileSystem(), repository.settings.containers, "main")) == 1
    assert seal_abandoned(PosixFileSystem(), repository.settings.containers, "main") == []


def test_only_an_open_journal_can_be_sealed(tmp_path: Path) -> None:
    for name in ("00000000000000000000.0.sealed", "notes.txt"):
        with pytest.raises(ValueError, match="not an open journal"):
            seal(PosixFileSystem(), tmp_path / name)


def test_foreign_files_among_the_journals_are_left_alone(repository: Repository) -> None:
    append(repository, [event()])
    foreign = repository.settings.root / "containers/1/main/journals/notes.txt"
    foreign.write_text("mine")
    assert append(repository, [event(1)]) == range(1, 2)
    assert foreign.read_text() == "mine"
