"""Recovery of journals: the torn tail of a dead writer is cut, acknowledged events stay, damage costs its record."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from custody.clock import ManualClock
from custody.errors import CorruptionError, NotFoundError
from custody.format.framing import MARK, Frame, frames
from custody.journal import JournalOptions, JournalWriter, SealedJournal, SyncPolicy, groups, seal_abandoned
from custody.journal.sealing import finish
from custody.journal.writer_state import RESERVED_IDS
from custody.quarantine import keep_cut
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.support import append, event, python, run_steps, unnumbered

DIE = """
import os, sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from custody.quarantine import keep_cut
from custody.repository import Repository
from tests.support import event
with Repository.open(Path(sys.argv[1])).writer() as writer:
    for number in range(int(sys.argv[2])):
        writer.append([event(number)])
    os._exit(9)
"""
ROOT = Path(__file__).parents[3]


def frames_of(path: Path, data: bytes | None = None) -> list[Frame]:
    items = list(frames(path.read_bytes() if data is None else data, 8))
    return [item for item in items if isinstance(item, Frame)]


def seal(repository: Repository) -> list[SealedJournal]:
    """Seal as recovery does: what is cut goes to the quarantine."""
    settings = repository.settings
    return seal_abandoned(
        PosixFileSystem(), settings.containers, "main", partial(keep_cut, PosixFileSystem(), settings.quarantine, 5)
    )


def kept(repository: Repository) -> list[bytes]:
    return [repository.quarantine.raw(entry.key) for entry in repository.quarantine.entries()]


def unsealed(repository: Repository, events: int = 3) -> Path:
    """The journal of a writer that died: all appended, no end record, the name of an open one."""
    with repository.writer() as writer:
        for number in range(events):
            writer.append([event(number)])
    sealed = next(repository.settings.root.glob("containers/1/main/journals/*.sealed"))
    data = sealed.read_bytes()
    sealed.write_bytes(data[: data.rindex(MARK)])
    # Nor did it note what it sealed.
    for witness in repository.settings.root.rglob("WITNESS*"):
        witness.unlink()
    shutil.rmtree(repository.settings.witnesses)
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
    [done] = seal(repository)
    assert done.lost_bytes == len(torn)
    assert not done.removed
    assert done.path.read_bytes().startswith(whole)
    assert len(frames_of(done.path)) == len(frames_of(done.path, whole)) + 1, "the end record"
    assert unnumbered(repository.events()) == [event(n) for n in range(3)]
    assert append(repository, [event(3)]) == range(3, 4)
    assert kept(repository) == [torn], "what was cut is in the quarantine"


@pytest.mark.parametrize("place", [0, 4, 8, 12, 60, -1])
def test_a_changed_byte_of_the_last_record_is_damage_and_no_torn_write(repository: Repository, place: int) -> None:
    path = unsealed(repository)
    data = bytearray(path.read_bytes())
    start = frames_of(path)[-1].offset
    data[place if place < 0 else start + place] ^= 4
    path.write_bytes(data)
    events = repository.events()
    assert unnumbered(events) == [event(0), event(1)]
    assert [f"{path} @{start}: expected whole records" in text for text in events.notices] == [True]
    assert repository.search("").notices
    first = append(repository, [event(3)])
    assert first.start >= RESERVED_IDS, "its id was told"
    run_steps(repository.settings)
    assert kept(repository) == [bytes(data[start:])]
    assert unnumbered(repository.events()) == [event(0), event(1), event(3)]


@pytest.mark.parametrize(
    ("tail", "certain"), [(b"\xc5\x7e\xa1\x1d\xff\xff\0\0....\4....", True), (b"\xff" * 600, False)]
)
def test_the_end_of_a_dead_writer_s_journal_that_is_no_record_is_told(
    repository: Repository, tail: bytes, certain: bool
) -> None:
    """Also to who is strict: what is certain is that nobody was told, or that nobody can tell."""
    path = unsealed(repository)
    path.write_bytes(path.read_bytes() + tail)
    for found in (repository.events(), repository.events(strict=True)):
        assert len(list(found)) == 3
        assert [("acknowledged and damaged" not in text) for text in found.notices] == [certain]
    with pytest.raises(NotFoundError, match="its writer is dead"):
        repository.get(3)
    with PosixFileSystem().lock(path.parents[1] / "LOCK"):
        assert not Repository(repository.settings).search("").notices, "a live writer writes in this moment"
    assert (append(repository, [event(3)]).start == 3) is certain, "ids that may have been told are not told again"
    assert kept(repository) == [tail]


def test_an_append_that_was_cut_off_gives_its_ids_to_the_next(repository: Repository) -> None:
    """Nobody was told of them, so that using them is not using them again."""
    path = unsealed(repository)
    path.write_bytes(path.read_bytes()[:-1])
    assert append(Repository(repository.settings), [event(7)]) == range(2, 3)
    assert unnumbered(repository.events()) == [event(0), event(1), event(7)]


def test_damage_in_the_middle_costs_its_record_and_stays_in_the_file(repository: Repository) -> None:
    path = unsealed(repository)
    data = bytearray(path.read_bytes())
    starts = [item.offset for item in frames(bytes(data), 8) if isinstance(item, Frame)][2:]
    data[starts[1] + 50] ^= 1
    path.write_bytes(data)
    [done] = seal(repository)
    assert [(damage.offset, damage.length) for damage in done.damage] == [(starts[1], starts[2] - starts[1])]
    assert done.may_have_lost
    assert done.path.read_bytes().startswith(data)
    assert unnumbered(repository.events()) == [event(0), event(2)]


def test_ids_that_a_damaged_journal_may_have_held_are_not_given_out_again(repository: Repository) -> None:
    """Not by the next start, and not by the one after it, when the damaged journal may be gone."""
    path = unsealed(repository)
    data = bytearray(path.read_bytes())
    data[[item.offset for item in frames(bytes(data), 8) if isinstance(item, Frame)][3] + 50] ^= 1
    path.write_bytes(data)
    with repository.writer():
        pass
    path.with_suffix(".sealed").unlink()
    first = append(repository, [event(3)])
    assert first.start >= RESERVED_IDS
    assert append(repository, [event(4)]) == range(first.stop, first.stop + 1)


def test_a_sealed_journal_that_lost_its_end_does_not_free_its_ids(repository: Repository) -> None:
    append(repository, [event(number) for number in range(3)])
    [path] = repository.settings.root.glob("containers/1/main/journals/*.sealed")
    path.write_bytes(path.read_bytes()[:-200])
    assert append(repository, [event(3)]).start >= RESERVED_IDS


def test_ids_told_without_a_sync_are_not_given_out_again(tmp_path: Path) -> None:
    """A power loss may have cost any of them."""
    options = JournalOptions(sync=SyncPolicy.NEVER)
    fs = PosixFileSystem()
    with JournalWriter(fs, [tmp_path], "main", "provenance", ManualClock(), options) as writer:
        writer.append([event()])
    [sealed] = (tmp_path / "main" / "journals").iterdir()
    sealed.rename(sealed.with_suffix(".journal"))
    with JournalWriter(fs, [tmp_path], "main", "provenance", ManualClock(), options) as writer:
        assert writer.append([event(1)]).start >= RESERVED_IDS


def test_a_sealed_journal_is_never_replaced(repository: Repository) -> None:
    path = unsealed(repository)
    copy = path.with_suffix(".sealed")
    copy.write_bytes(b"somebody's")
    with pytest.raises(CorruptionError, match=f"{path.name}: expected to be sealed as {copy.name}, which exists"):
        seal(repository)
    assert copy.read_bytes() == b"somebody's"


@pytest.mark.parametrize("beyond", [0, 20])
def test_a_journal_without_an_event_is_removed(repository: Repository, beyond: int) -> None:
    path = unsealed(repository, events=1)
    [_, _, record] = frames_of(path)
    path.write_bytes(path.read_bytes()[: record.offset + beyond])
    [done] = seal(repository)
    assert done.removed
    assert groups(PosixFileSystem(), repository.settings.containers, "main") == []
    assert append(Repository(repository.settings), [event()]) == range(1)


@pytest.mark.parametrize("length", [0, 5, 8, 60])
def test_a_journal_without_a_whole_head_is_kept_as_damaged(repository: Repository, length: int) -> None:
    """It got its name when its head was synced, so a crash leaves no such thing."""
    path = unsealed(repository, events=1)
    path.write_bytes(path.read_bytes()[:length])
    [done] = seal(repository)
    assert not done.removed
    assert done.damage
    assert done.may_have_lost
    assert done.path.exists()


def test_sealing_again_changes_nothing(repository: Repository) -> None:
    unsealed(repository)
    assert len(seal(repository)) == 1
    assert seal(repository) == []


def test_only_an_open_journal_can_be_sealed(tmp_path: Path) -> None:
    for name in ("00000000000000000000.0.sealed", "notes.txt"):
        (tmp_path / name).touch()
        with pytest.raises(ValueError, match="not an open journal"):
            finish(PosixFileSystem(), tmp_path / name, PosixFileSystem().append(tmp_path / name), None)


def test_foreign_files_among_the_journals_are_left_alone(repository: Repository) -> None:
    append(repository, [event()])
    foreign = repository.settings.root / "containers/1/main/journals/notes.txt"
    foreign.write_text("mine")
    assert append(repository, [event(1)]) == range(1, 2)
    assert foreign.read_text() == "mine"
