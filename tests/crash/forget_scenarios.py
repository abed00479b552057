"""Scenario of tombstones and marks: what is forgotten, expired or taken back is recorded twice, or not at all."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from pathlib import Path

from custody.catalog import (
    Action,
    AddFile,
    AddMark,
    AddTombstone,
    Catalog,
    RemoveFile,
    RemoveMark,
    RemoveTombstone,
    SecondCopyStore,
    copied_ids,
    repair,
)
from custody.clock import ManualClock
from custody.vfs import FileSystem
from custody.vfs.memory import MemoryFileSystem
from tests.crash.enumeration import Scenario
from tests.crash.machine_with_bucket import new_disk, store_on

NOW_MS = 1_772_409_600_000
EXPIRED = "data/2026-03-01/events/00000000000000000000.parquet"


@dataclass
class LetGo:
    """What was acknowledged, by id, and what may be there besides because it was tried."""

    acknowledged: set[str] = field(default_factory=set)
    tried: set[str] = field(default_factory=set)


def open_catalog(fs: FileSystem) -> Catalog:
    """The catalog, opened by a process that just started."""
    catalog = Catalog(store_on(fs, Path("/store")), "main", "provenance", ManualClock(NOW_MS))
    catalog.copies = SecondCopyStore(catalog.objects)
    return catalog


class Forgetting(Scenario[LetGo]):
    """Two handles forget, let a file expire, and take back what a rule hid; one of them writes a checkpoint."""

    def start(self) -> MemoryFileSystem:
        fs = new_disk()
        open_catalog(fs).commit([Action(add_file=AddFile(path=EXPIRED, rows=1))])
        fs.operations.clear()
        return fs

    def new_record(self) -> LetGo:
        return LetGo()

    def copy(self, record: LetGo) -> LetGo:
        return LetGo(set(record.acknowledged), set(record.tried))

    def run(self, fs: FileSystem, record: LetGo) -> None:
        first, second = open_catalog(fs), open_catalog(fs)
        forget(first, record)
        by_rule = AddTombstone(id=uuid.uuid4().bytes, event_ids=[7], by_retention=True)
        commit(second, record, Action(add_tombstone=by_rule))
        mark = AddMark(id=uuid.uuid4().bytes, paths=[EXPIRED])
        commit(first, record, Action(remove_file=RemoveFile(path=EXPIRED)), Action(add_mark=mark))
        record.acknowledged.discard(by_rule.id.hex())
        commit(second, record, Action(remove_tombstone=RemoveTombstone(id=by_rule.id)))
        second.checkpoint()
        record.acknowledged.discard(mark.id.hex())
        commit(first, record, Action(remove_mark=RemoveMark(id=mark.id)))
        forget(second, record)

    def check(self, fs: FileSystem, record: LetGo) -> None:
        catalog = open_catalog(fs)
        state = catalog.load()
        known = copied_ids(state)
        assert record.acknowledged <= known, "something is given out again"
        assert known <= record.tried
        if known:
            copies = SecondCopyStore(catalog.objects).read()
            assert not copies.unreadable
            assert known <= set(copies.by_id), "something is kept once only"
            assert copies.since is not None

    def use(self, fs: FileSystem, record: LetGo) -> None:
        """Go on, lose the newest transaction, and mend: nothing that was let go comes back."""
        forget(open_catalog(fs), record)
        before = open_catalog(fs).load()
        damage_newest(fs)
        plan, after = repair(open_catalog(fs), ManualClock(NOW_MS + 1))
        assert not plan.more
        assert plan.lost == (before.revision,)
        assert copied_ids(after) >= copied_ids(before)
        assert set(after.files) <= set(before.files)
        record.tried |= copied_ids(after)


def forget(catalog: Catalog, record: LetGo) -> None:
    """Forget an event that nobody forgot before."""
    stone = AddTombstone(id=uuid.uuid4().bytes, event_ids=[len(record.tried)])
    commit(catalog, record, Action(add_tombstone=stone))


def commit(catalog: Catalog, record: LetGo, *actions: Action) -> None:
    """Commit, and write down what was let go."""
    for action in actions:
        for kind in ("add_tombstone", "add_mark"):
            if action.HasField(kind):
                record.tried.add(getattr(action, kind).id.hex())
    catalog.commit(actions)
    for action in actions:
        for kind in ("add_tombstone", "add_mark"):
            if action.HasField(kind):
                record.acknowledged.add(getattr(action, kind).id.hex())


def damage_newest(fs: FileSystem) -> None:
    """Change a byte of the newest transaction, and of the checkpoint beside it if there is one."""
    catalog = open_catalog(fs)
    for item in catalog.objects.at(catalog.load().revision):
        data = bytearray(catalog.objects.store.get(item.key))
        data[-40] ^= 1
        catalog.objects.store.put(item.key, bytes(data))
