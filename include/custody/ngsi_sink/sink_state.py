"""What the sink has promised: the newest batch, the columns of destinations, and what is put aside or deferred.

All of it is read from the objects that the sink's catalog lists (`custody.ngsi_sink.sink_catalog`), and changes by a
commit only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import msgspec

from custody.clock import Clock, SystemClock
from custody.lease import Lease
from custody.ngsi_sink import batch_file, resubmission
from custody.ngsi_sink.batch_file import Aside, Batch, Staged
from custody.ngsi_sink.retry import Failed
from custody.ngsi_sink.sink_catalog import ASIDE, BATCHES, COLUMNS, DEFERRED, Kept
from custody.quarantine import Quarantine
from custody.vfs import FileSystem


def pending(fs: FileSystem, folder: Path) -> dict[str, int]:
    """Return by path how long a file may be by the newest batch and by what is deferred, which may not be in it yet.

    Reads what the sink of a folder keeps and changes nothing; raises as `Kept.read`.
    """
    kept = Kept(fs, folder, SystemClock())
    found: dict[str, int] = {}
    for kind in (BATCHES, DEFERRED):
        for name in kept.names(kind):
            for part in batch_file.decode(kept.read(name), kept.place(name)).staged.parts:
                found[part.path] = max(found.get(part.path, 0), part.offset + part.length)
    return found


class Books:
    """The state of one sink, in its folder; every commit is refused once another attempt took the `lease` over."""

    def __init__(self, fs: FileSystem, folder: Path, clock: Clock, quarantine: Quarantine, lease: Lease | None) -> None:
        self._fs = fs
        self._folder = folder
        self._clock = clock
        self._quarantine = quarantine
        self._lease = lease
        self._kept = Kept(fs, folder, clock, lease)
        self.newest = Staged(id="", number=-1, time_ms=0, told_from=0, cursors={})
        self.columns: dict[str, tuple[str, ...]] = {}
        """Of destinations in column modes, by location."""
        self.deferred: dict[str, str] = {}
        """The object of the part that each file lacks."""

    @property
    def next_number(self) -> int:
        """The number of the next batch."""
        return self._kept.next_number

    def open(self) -> Batch | None:
        """Read everything, remove what nothing lists, and return the newest batch, which may not be at its end."""
        self._kept.open(fence=self._lease is not None and not self._lease.clean)
        for name in self._kept.names(COLUMNS):
            self.columns = msgspec.json.decode(self._kept.read(name), type=dict[str, tuple[str, ...]])
        for name in self._kept.names(DEFERRED):
            self.deferred.update((part.path, name) for part, _ in self.batch(name))
        held = self._kept.newest()
        if held is not None:
            self.newest = held.staged
        return held

    def check(self) -> None:
        """Raise SupersededError once another attempt took over."""
        if self._lease is not None:
            self._lease.check()

    def batch(self, name: str) -> Batch:
        """Return the batch that a live object holds: of a deferred one, a part alone."""
        return batch_file.decode(self._kept.read(name), self._kept.place(name))

    def aside(self, name: str) -> Aside | None:
        """Return the events that an object says are put aside, None where it does not count any more."""
        if not name.startswith(f"{ASIDE}/") or not self._kept.is_live(name):
            return None
        return msgspec.json.decode(self._kept.read(name), type=Aside)

    def commit(
        self,
        batch: Staged,
        data: Sequence[memoryview],
        objects: Mapping[str, bytes] | None = None,
        *,
        settles: Collection[str] = (),
        columns: dict[str, tuple[str, ...]] | None = None,
    ) -> None:
        """Make a batch count, in the place of the one before; other objects come with it, those that it settles go.

        Durability: on return it counts, also after power loss. On StorageError it is unknown whether it does.

        Raises:
            SupersededError: another attempt took over.
        """
        self.check()
        columns = self.columns if columns is None else columns
        name = f"{batch.number:020d}"
        added = {f"{BATCHES}/{name}.batch": batch_file.encode(batch, data), **(objects or {})}
        removed = [*self._kept.names(BATCHES), *settles]
        if columns != self.columns:
            added[f"{COLUMNS}/{name}.json"] = msgspec.json.encode(columns)
            removed += self._kept.names(COLUMNS)
        keys = [
            resubmission.key_of_object(held, self._kept.read(held)) for held in settles if held.startswith(f"{ASIDE}/")
        ]
        self._kept.commit(batch.number, added, removed)
        self.columns, self.newest = columns, batch
        self._kept.drop(removed)
        for key in keys:
            resubmission.settle(self._fs, self._folder, self._quarantine, key)

    def defer(
        self, batch: Staged, data: Sequence[memoryview], failing: Mapping[int, Failed]
    ) -> tuple[Staged, Sequence[memoryview]]:
        """Take parts out of the newest batch: they keep their bytes and their place in the file, for a later try.

        Return the batch that is left. Durability: as of `commit`.
        """
        number = self.next_number
        objects, deferred = {}, {}
        for place, failed in failing.items():
            name = f"{DEFERRED}/{number:020d}-{place:05d}.batch"
            objects[name] = batch_file.encode(batch_file.only(batch, place, failed.reason), [data[place]])
            deferred[batch.parts[place].path] = name
        kept = [place for place in range(len(batch.parts)) if place not in failing]
        batch = msgspec.structs.replace(batch, number=number, parts=tuple(batch.parts[place] for place in kept))
        data = [data[place] for place in kept]
        self.commit(batch, data, objects)
        self.deferred |= deferred
        self.show(number)
        return batch, data

    def key(self, name: str) -> str:
        """Return the key of the quarantine's entry that shows a live object."""
        return resubmission.key_of_object(name, self._kept.read(name))

    def forget(self, key: str) -> None:
        """Take an entry out of the quarantine, with the mark that asked for it."""
        resubmission.settle(self._fs, self._folder, self._quarantine, key)

    def show(self, number: int) -> None:
        """Show in the quarantine what was put aside or deferred with a batch."""
        for kind in (ASIDE, DEFERRED):
            for name in self._kept.names(kind):
                if name.startswith(f"{kind}/{number:020d}-"):
                    resubmission.show(self._quarantine, name, self._kept.read(name), self._clock.now_ms())

    def tidy(self) -> None:
        """Write a checkpoint of the catalog when one is due."""
        self._kept.tidy()
