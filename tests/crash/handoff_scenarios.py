"""Scenarios of the hand-over: groups go to the store, and then all containers of the producer are lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from custody.clock import ManualClock
from custody.repository import Repository
from custody.vfs import FileSystem
from tests.crash.enumeration import Scenario
from tests.crash.machine_with_bucket import settings_on
from tests.crash.memory_repository import (
    NOW_MS,
    SETTINGS,
    Promises,
    check_catalog,
    check_events,
    check_final_names,
    repository,
    require_done,
    run_pass,
)

HANDED = SETTINGS.model_copy(update={"journal": SETTINGS.journal.model_copy(update={"handoff": "store"})})
AWAY = SETTINGS.root / "away"


@dataclass
class HandOverPromises(Promises):
    """What was promised, and which events were handed over as well."""

    safe: set[int] = field(default_factory=set)

    def copy(self) -> HandOverPromises:
        return HandOverPromises(self.tried, dict(self.acknowledged), set(self.safe))

    def of_the_store(self) -> Promises:
        """What has to be there without any container."""
        return Promises(self.tried, {number: self.acknowledged[number] for number in self.safe})


def at(fs: FileSystem) -> Repository:
    return Repository(settings_on(fs, HANDED), fs, ManualClock(NOW_MS))


def hand_over(fs: FileSystem, record: HandOverPromises) -> None:
    """Hand over what is sealed; what was acknowledged so far is then safe, as no group is open."""
    at(fs).hand_over()
    waiting = at(fs).not_handed_over()
    require_done(waiting, is_done=not any(item.groups for item in waiting.values()))
    record.safe.update(record.acknowledged)


@contextmanager
def without_containers(fs: FileSystem) -> Iterator[None]:
    """Take all disks of the producer out; nothing may be written where they were."""
    fs.make_directory(AWAY)
    moved = [root for root in HANDED.containers if fs.exists(root)]
    for root in moved:
        fs.rename(root, AWAY / root.name)
    try:
        yield
    finally:
        for root in moved:
            fs.remove_tree(root)
            fs.rename(AWAY / root.name, root)
        fs.remove_tree(AWAY)


class HandingOver(Scenario[HandOverPromises]):
    """Two groups are handed over while nobody writes, and rolled over; `use` adds a third one."""

    def new_record(self) -> HandOverPromises:
        return HandOverPromises()

    def copy(self, record: HandOverPromises) -> HandOverPromises:
        return record.copy()

    def run(self, fs: FileSystem, record: HandOverPromises) -> None:
        with repository(fs, HANDED).writer() as writer:
            record.append(writer, 2)
            writer.seal()
            record.append(writer, 3)
        hand_over(fs, record)
        run_pass(fs, settings=HANDED)

    def check(self, fs: FileSystem, record: HandOverPromises) -> None:
        check_final_names(fs)
        check_catalog(fs, HANDED)
        check_events(fs, record, HANDED)
        with without_containers(fs):
            check_events(fs, record.of_the_store(), HANDED)

    def use(self, fs: FileSystem, record: HandOverPromises) -> None:
        with repository(fs, HANDED).writer() as writer:
            record.append(writer, 2)
        hand_over(fs, record)
        for root in HANDED.containers:
            fs.remove_tree(root)
        run_pass(fs, "rollover", "compress", settings=HANDED)
        check_events(fs, record, HANDED)
        run_pass(fs, settings=HANDED)
        check_events(fs, record, HANDED)
        objects = at(fs).workspace().catalog.objects
        assert not at(fs).workspace().groups(), "journals are left"
        assert not list(objects.store.keys(f"{objects.home}handoff/")), "objects are left"
