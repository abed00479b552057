"""Leases in an object store: one epoch has one holder, whatever the store answers, and machines need no common disk."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import msgspec
import pytest
from obstore.store import MemoryStore

from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import ConfigurationError, LockedError, StorageError, SupersededError
from custody.lease import Attempt, FencedFileSystem, Lease, LeasePlace, lease_status, read_holder, take
from custody.lease import lease as holders
from custody.recovery import find_leftovers
from custody.repository import Repository
from custody.store import ObjectData, ObjectStore, StoredFiles, counted
from custody.store.remote import RemoteStore, open_remote
from custody.vfs import PosixFileSystem
from custody.workspace import ROLLOVER_LEASE, lease_of_unit, lease_place, rollover_lease, take_step_lease
from tests.behaviour.places import UnluckyStore
from tests.support import append, numbered, run_steps, sample

CLOCK = ManualClock(1_772_409_600_000)
FIRST, SECOND = Attempt("dag/run/task", 1), Attempt("dag/run/task", 2)
OTHER = Attempt("custody/elsewhere", 1)
EVENTS = sample(20)


def place_in(store: ObjectStore) -> LeasePlace:
    files = StoredFiles(store)
    return LeasePlace(files, files.path(prefix()))


def taken(place: LeasePlace, attempt: Attempt, **options: object) -> Lease:
    chosen = {"wait_seconds": 0, "dead_seconds": 10, **options}
    return take(place.files, place.folder, "main", attempt, CLOCK, **chosen)  # type: ignore[arg-type]


@pytest.fixture
def store() -> RemoteStore:
    return RemoteStore(MemoryStore(), "memory://leases")


def test_it_passes_from_attempt_to_attempt_as_on_a_disk(store: RemoteStore) -> None:
    place = place_in(store)
    first = taken(place, FIRST)
    assert (first.epoch, first.clean, first.name) == (1, True, "rollover")
    with pytest.raises(LockedError, match=r"memory://leases/main/.*/0000000001: .* dag/run/task/1"):
        taken(place, OTHER)
    second = taken(place, SECOND)
    with pytest.raises(SupersededError, match=r"memory://leases/.*expected epoch 1 .* got epoch 2: dag/run/task/2"):
        first.check()
    second.release()
    assert (taken(place, OTHER).epoch, sorted(store.keys("main/"))[-1]) == (3, f"{prefix()}/0000000003")
    # Of the epochs the last two stay.
    assert not [key for key in store.keys("main/") if "0000000001" in key]


def prefix() -> str:
    return "main/provenance/leases/rollover"


@pytest.mark.parametrize("ending", ["lost", "refused", "conflict"])
def test_a_put_whose_answer_was_lost_is_told_from_one_that_did_not_arrive(store: RemoteStore, ending: str) -> None:
    lease = taken(place_in(UnluckyStore(store, ending)), FIRST)
    assert (lease.epoch, lease.is_current()) == (1, True)
    status = lease_status(*place_in(store))
    assert status is not None
    holder = read_holder(place_in(store).files, status.path)
    assert holder is not None
    assert holder.attempt == str(FIRST)


def test_of_many_at_once_each_epoch_has_one_holder(store: RemoteStore) -> None:
    def attempt(number: int) -> int:
        return taken(place_in(store), Attempt(f"task-{number}", 1), take_over=True).epoch

    with ThreadPoolExecutor(8) as threads:
        epochs = list(threads.map(attempt, range(24)))
    assert len(set(epochs)) == 24


def test_a_machine_of_the_same_name_counts_as_dead_by_its_heartbeat_alone(store: RemoteStore) -> None:
    place = place_in(store)
    here = holders.this_process()
    elsewhere = msgspec.structs.replace(here, boot="another kernel", pid=1)
    with patch.object(holders, "this_process", lambda: elsewhere):
        lease = taken(place, OTHER)
    # On a disk of this machine the holder would count as gone since the machine was started again.
    with pytest.raises(LockedError):
        taken(place, FIRST)
    lease.beat(CLOCK.now_ms() + 60_000)
    later = ManualClock(CLOCK.now_ms() + 65_000)
    with pytest.raises(LockedError):
        take(*place, "main", FIRST, later, wait_seconds=0, dead_seconds=10)
    later = ManualClock(CLOCK.now_ms() + 75_000)
    assert take(*place, "main", FIRST, later, wait_seconds=0, dead_seconds=10).epoch == 2


def test_effects_look_at_the_store_once_in_a_moment_and_a_check_looks_each_time(
    store: RemoteStore, tmp_path: Path
) -> None:
    lease = taken(place_in(store), FIRST)
    fenced = FencedFileSystem(PosixFileSystem(), lease)
    for number in range(50):
        (tmp_path / str(number)).touch()
    with counted() as counter:
        for number in range(50):
            fenced.remove(tmp_path / str(number))
    assert counter.traffic.count == 1
    taken(place_in(store), SECOND)
    with pytest.raises(SupersededError):
        lease.check()
    (tmp_path / "file").touch()
    with patch.object(holders, "_LOOK_SECONDS", 0.0), pytest.raises(SupersededError):
        fenced.remove(tmp_path / "file")
    assert (tmp_path / "file").exists()


@dataclass(frozen=True)
class Machines:
    """Two machines with one writer's name and one store, and nothing else in common."""

    one: Repository
    other: Repository
    store: RemoteStore


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    url = f"memory://{uuid4().hex}"
    one, other = (
        Repository(Settings.model_validate({"root": tmp_path / name, "repository": {"store": url}})) for name in "ab"
    )
    return Machines(one, other, open_remote(url, can_put_if_absent=True))


def test_two_machines_that_run_the_same_step_exclude_each_other(machines: Machines) -> None:
    append(machines.one, EVENTS)
    with rollover_lease(machines.one.workspace(), FIRST):
        with pytest.raises(LockedError, match="dag/run/task/1"):
            take_step_lease(quick(machines.other), "main", OTHER, ROLLOVER_LEASE)
        unit = lease_of_unit(machines.other.settings, "main", ROLLOVER_LEASE, 1)
        assert unit.is_current(), "an executor elsewhere works under the driver's epoch"
    with pytest.raises(SupersededError), rollover_lease(machines.one.workspace(), OTHER) as workspace:
        taken_over = take_step_lease(machines.other.settings, "main", SECOND, ROLLOVER_LEASE, take_over=True)
        assert taken_over.epoch == 3
        workspace.check()
    assert not list((machines.one.settings.store / "main").rglob("leases")), "nothing of it lies on the disk"


def quick(repository: Repository) -> Settings:
    return Settings.model_validate(
        {
            "root": repository.settings.root,
            "repository": {"store": repository.settings.repository.store},
            "lease": {"wait_seconds": 0},
        }
    )


def test_who_died_elsewhere_is_seen_and_closed_by_a_recovery_here(machines: Machines) -> None:
    append(machines.one, EVENTS)
    with patch.object(holders, "this_process", lambda: msgspec.structs.replace(HERE, host="elsewhere")):
        take_step_lease(machines.one.settings, "main", FIRST, ROLLOVER_LEASE)
    place = lease_place(machines.one.settings, "main")
    [epoch] = machines.store.keys("main/provenance/leases/")
    # Long silent.
    holder = read_holder(place.files, place.folder / "0000000001")
    assert holder is not None
    machines.store.put(epoch, msgspec.structs.replace(holder, taken_ms=1_000).encode())
    assert [item.action for item in find_leftovers(machines.one.workspace())].count("close") == 1
    run_steps(machines.one.settings)
    assert list(machines.one.events(count=100)) == numbered(EVENTS)
    assert not [item for item in find_leftovers(machines.one.workspace()) if item.action == "close"]


HERE = holders.this_process()


def test_without_conditional_puts_nobody_gets_a_lease(machines: Machines) -> None:
    settings = Settings.model_validate(
        {
            "root": machines.one.settings.root,
            "repository": {"store": f"memory://{uuid4().hex}"},
            "catalog": {"put_if_absent": False},
        }
    )
    with pytest.raises(ConfigurationError, match="writes over a name that is taken"):
        take_step_lease(settings, "main", FIRST, ROLLOVER_LEASE)


def test_a_store_that_refuses_is_an_error_that_names_the_object(store: RemoteStore) -> None:
    class Refusing(UnluckyStore):
        def put_if_absent(self, key: str, data: ObjectData) -> bool:
            raise StorageError(f"cannot write {self.locate(key)}: the service is down.")

        def get(self, key: str) -> bytes:
            raise StorageError(f"cannot read {self.locate(key)}: the service is down.")

    with pytest.raises(StorageError, match="memory://leases/main/provenance/leases/rollover/0000000001"):
        taken(place_in(Refusing(store)), FIRST)
