"""What the sink has promised: the newest batch, the columns of destinations, and what is put aside or deferred.

All of it is read from the objects that the sink's catalog lists (`custody.ngsi_sink.sink_state`), and changes by a
commit only.

What the sink keeps: objects in its own folder, of which those count that its catalog lists.

One transaction a batch takes old objects off and lists new ones. What a crash leaves is removed by who opens it next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from custody.catalog import Action, AddFile, Catalog, Note, RemoveFile, SealedError, prune
from custody.clock import Clock, SystemClock
from custody.errors import CorruptionError, NotFoundError
from custody.format.names import SINK, SINK_DATABASE
from custody.lease import Lease
from custody.ngsi_sink import batch_file, resubmission
from custody.ngsi_sink.batch_file import ASIDE, BATCHES, COLUMNS, DEFERRED, LEFT, Aside, Batch, Staged
from custody.ngsi_sink.retry import Failed
from custody.quarantine import Quarantine
from custody.store import LocalStore
from custody.vfs import FileSystem

NAME, DATABASE = SINK, SINK_DATABASE
_KINDS = (BATCHES, COLUMNS, LEFT, ASIDE, DEFERRED)
_CHECKPOINT_EVERY = 100


class Kept:
    """The objects of the sink in a folder; with a `lease`, a holder that was superseded commits nothing."""

    def __init__(self, fs: FileSystem, folder: Path, clock: Clock, lease: Lease | None = None) -> None:
        self._fs = fs
        self._store = LocalStore(fs, folder)
        self._catalog = Catalog(self._store, NAME, DATABASE, clock)
        self._folder = folder
        self._home = self._catalog.objects.home
        self._catalog.epoch = None if lease is None else lease.epoch

    def open(self, *, fence: bool) -> None:
        """Make the newest state durable and remove what it does not list.

        With `fence`, an attempt before this one that still lives can commit nothing from here on.
        """
        if fence and self._catalog.epoch is not None:
            try:
                self._catalog.commit([Action(note=Note(kind=Note.FENCED, text=f"epoch {self._catalog.epoch}"))])
            except SealedError:
                return  # nobody commits here any more
        live = self._catalog.settle().files
        for kind in _KINDS:
            folder = self._folder / self._home / kind
            for name in self._fs.list(folder):
                if f"{kind}/{name}" not in live:
                    self._fs.remove(folder / name)

    @property
    def next_number(self) -> int:
        """The number of the next batch."""
        return self._catalog.load().next_event_id

    @property
    def epoch(self) -> int:
        """The greatest epoch that the catalog knows of."""
        return self._catalog.load().epoch

    def names(self, kind: str) -> Iterator[str]:
        """Yield the live objects of a kind, oldest first."""
        yield from sorted(path for path in self._catalog.load().files if path.startswith(f"{kind}/"))

    def is_live(self, name: str) -> bool:
        """Whether an object counts."""
        return name in self._catalog.load().files

    def newest(self) -> Batch | None:
        """Return the newest batch, None before the first one; raises as `read`."""
        for name in self.names(BATCHES):
            return batch_file.decode(self.read(name), self.place(name))
        return None

    def place(self, name: str) -> str:
        """Return where an object lies, for messages."""
        return self._store.locate(f"{self._home}{name}")

    def read(self, name: str) -> bytes:
        """Return a live object.

        Raises:
            CorruptionError: it is gone, or has other bytes than were committed.
        """
        try:
            data = self._store.get(f"{self._home}{name}")
        except NotFoundError as error:
            raise CorruptionError(
                f"{self.place(name)}: expected a live object, found none. Bring it back from a backup."
            ) from error
        if hashlib.sha256(data).digest() != self._catalog.load().files[name].sha256:
            raise CorruptionError(f"{self.place(name)}: expected other bytes (SHA-256). Bring it back from a backup.")
        return data

    def commit(self, number: int, added: Mapping[str, bytes], removed: Collection[str]) -> None:
        """List objects and take others off, as batch `number`; those that were taken off are deleted by `drop`.

        Durability: on return it counts, also after power loss. On StorageError it is unknown whether it does.

        Raises:
            FencedError: another attempt took over.
        """
        for name, data in added.items():
            # What is there under this name was never listed: the number is a new one.
            self._store.put(f"{self._home}{name}", data)
        self._catalog.commit(
            [
                *(Action(remove_file=RemoveFile(path=name)) for name in removed),
                *(Action(add_file=_described(name, data, number)) for name, data in added.items()),
            ],
            next_event_id=number + 1,
        )

    def drop(self, names: Collection[str]) -> None:
        """Delete objects that are not listed any more."""
        for name in names:
            self._store.delete(f"{self._home}{name}")

    def tidy(self) -> None:
        """Write a checkpoint when one is due, and forget the revisions before the last ones."""
        if self._catalog.checkpoint_due(_CHECKPOINT_EVERY):
            self._catalog.checkpoint()
            prune(self._catalog, self._catalog.load().revision)


def _described(name: str, data: bytes, number: int) -> AddFile:
    return AddFile(
        path=name,
        size_bytes=len(data),
        sha256=hashlib.sha256(data).digest(),
        first_event_id=number,
        last_event_id=number,
    )


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
