"""Writer slots: the first free one is taken, a taken one is skipped, ids are kept apart, all readers know them."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Timer

import pytest

from custody.clock import SystemClock
from custody.errors import ConfigurationError, CorruptionError, InvalidInputError, LockedError, NotFoundError
from custody.ingest import slots
from custody.repository import Acknowledged, Repository
from custody.vfs import PosixFileSystem
from tests.support import event, numbered, run_steps


def slotted(repository: Repository, count: int, more: str = "") -> Repository:
    root = repository.settings.root
    (root / "custody.toml").write_text(f"[repository]\nwriter_slots = {count}\n{more}")
    return Repository.open(root)


def test_the_first_free_slot_is_taken_and_taken_again_when_it_is_let_go(repository: Repository) -> None:
    opened = slotted(repository, 3)
    with opened.writer() as one, opened.writer() as two:
        assert (one.name, two.name) == ("main", "main-2")
        with opened.writer() as three:
            assert three.name == "main-3"
    with opened.writer() as again:
        assert again.name == "main"


def test_one_slot_is_the_plain_name_and_its_error_names_the_holder(repository: Repository) -> None:
    with repository.writer() as writer:
        assert writer.name == "main"
        with pytest.raises(LockedError, match=f"held by the live process {os.getpid()}"), repository.writer():
            pytest.fail("two live writers of one name")


def test_when_all_are_taken_the_error_names_the_setting(repository: Repository) -> None:
    opened = slotted(repository, 2)
    with opened.writer(), opened.writer():
        with pytest.raises(LockedError, match=r"all 2 writer slots, 'main' to 'main-2'.*repository\.writer_slots") as e:
            opened.append([event()])
        assert e.value.exit_code == 14
        status = opened.status()
        assert (status.slots, status.slots_taken) == (2, 2)
        assert [item.is_held for item in status.writers] == [True, True]
    assert opened.status().slots_taken == 0


@pytest.mark.parametrize("count", [1, 2])
def test_a_waiting_process_gets_the_slot_that_is_released(repository: Repository, count: int) -> None:
    opened = slotted(repository, count, "writer_wait_seconds = 30\n")
    held = [slots.take_slot(PosixFileSystem(), opened.settings, SystemClock()) for _ in range(count)]
    with pytest.raises(LockedError, match=r"raise repository\.writer_slots"):
        opened.append([event()], wait_seconds=0.01)
    soon = Timer(1.2, held[-1].close)
    soon.start()
    assert opened.append([event()]).writer == held[-1].name
    soon.join()
    for writer in held[:-1]:
        writer.close()


def test_a_lost_race_is_tried_again_with_another_slot(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """The look says that both are free, as it does when another process takes the first one right after it."""
    opened = slotted(repository, 2)
    with opened.writer():
        looks = iter([[], ["main"]])
        monkeypatch.setattr(slots, "taken_slots", lambda fs, settings: next(looks))
        with opened.writer() as second:
            assert second.name == "main-2"


def test_every_slot_counts_its_own_ids_and_one_append_is_one_call(repository: Repository) -> None:
    opened = slotted(repository, 2)
    with opened.writer() as writer:
        writer.append([event(0)])
        assert opened.append([event(1), event(2)]) == Acknowledged("main-2", range(2))
    assert opened.append([event(3)]) == Acknowledged("main", range(1, 2))
    assert opened.append([]) == Acknowledged("main", range(2, 2))
    assert opened.search("").total == 4


def test_an_event_that_breaks_a_rule_is_refused_before_anything_is_stored(repository: Repository) -> None:
    with pytest.raises(InvalidInputError, match=r"event 1 of the batch \(CREATE\): file_size.*Nothing was stored"):
        repository.append([event(0), event(1, file_size=-1)])
    assert list(repository.events()) == []


@pytest.mark.parametrize("live", [False, True])
def test_an_id_needs_its_writer_where_several_have_it(repository: Repository, live: bool) -> None:
    opened = slotted(repository, 2)
    with opened.writer() as writer:
        writer.append([event(0), event(1), event(2)])
        opened.append([event(10)])
    if live:
        run_steps(opened.settings)
    for reading in (opened, slotted(repository, 1)):  # also after the slots were made fewer
        assert reading.get(2) == numbered([event(2)], 2)[0]
        assert reading.get(0, "main-2") == numbered([event(10)])[0]
        with pytest.raises(
            ConfigurationError, match=r"event 0: each of the writers 'main', 'main-2' has one.*--writer"
        ):
            reading.get(0)
        with pytest.raises(NotFoundError, match=r"none of the writers 'main', 'main-2' has no event 3\."):
            reading.get(3)
        for question in (reading.events, lambda reading=reading: reading.get_many([0]), reading.timeline):
            with pytest.raises(ConfigurationError, match=r"the writers 'main', 'main-2' have events.*--writer"):
                question()
        assert [item.event_id for item in reading.events(writer="main")] == [0, 1, 2]
        assert len(list(reading.timeline("main-2"))) == live


def test_a_slot_that_was_only_tried_makes_no_id_ambiguous(repository: Repository) -> None:
    opened = slotted(repository, 2)
    with opened.writer() as writer:
        writer.append([event(0)])
        with opened.writer():
            pass
    assert (repository.settings.root / "containers/1/main-2").is_dir()
    assert opened.get(0) == numbered([event(0)])[0]
    assert list(opened.events()) == numbered([event(0)])


def test_a_damaged_slot_is_named_and_not_passed_over(repository: Repository) -> None:
    opened = slotted(repository, 2)
    opened.append([event(0)])
    state = Path(opened.settings.containers[0], "main/STATE")
    data = bytearray(state.read_bytes())
    data[30] ^= 1
    state.write_bytes(bytes(data))
    with pytest.raises(CorruptionError, match=str(state)):
        opened.append([event(1)])
