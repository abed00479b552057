"""The durable state of the sink: the objects in its folder that its catalog lists.

`SinkCatalog` keeps the objects: one transaction a batch takes old objects off the list and puts new ones on it, and an
object that is not listed does not count. `SinkState` reads them as what they mean: the newest batch, the columns of
destinations, and what is quarantined or deferred. All of that changes by a commit only.
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
from custody.ngsi_sink.batch_file import (
    BATCHES,
    COLUMNS,
    DEFERRED,
    QUARANTINED,
    SKIPPED,
    BatchManifest,
    FileBatch,
    Quarantined,
)
from custody.ngsi_sink.target import Failure
from custody.quarantine import Quarantine
from custody.store import LocalStore
from custody.store.witness import WITNESSES, Witnesses
from custody.vfs import FileSystem

NAME, DATABASE = SINK, SINK_DATABASE
_KINDS = (BATCHES, COLUMNS, SKIPPED, QUARANTINED, DEFERRED)
_CHECKPOINT_EVERY = 100
"""Revisions. Each batch is one, and all of them are read when the sink is opened."""


class SinkCatalog:
    """The objects of the sink in a folder; with a `lease`, a holder that was superseded commits nothing."""

    def __init__(self, fs: FileSystem, folder: Path, clock: Clock, lease: Lease | None = None) -> None:
        self._fs = fs
        self._store = LocalStore(fs, folder)
        self._catalog = Catalog(self._store, NAME, DATABASE, clock)
        # Brought back alone to an earlier moment, the sink would write lines once more.
        self._catalog.witnesses = Witnesses(fs, folder.parent / WITNESSES, (), NAME, DATABASE)
        self._folder = folder
        self._home = self._catalog.objects.home
        self._catalog.epoch = None if lease is None else lease.epoch

    def open(self, *, fence: bool) -> None:
        """Make the newest state durable and remove objects that it does not list.

        With `fence`, an attempt before this one that still lives can commit nothing from here on.
        """
        if fence and self._catalog.epoch is not None:
            try:
                # It changes nothing but the epoch: from here on the catalog refuses a commit of an older one.
                self._catalog.commit([Action(note=Note(kind=Note.FENCED, text=f"epoch {self._catalog.epoch}"))])
            except SealedError:
                return  # nobody commits here any more
        # Settled first: only then is it certain which transaction is the newest, and so which objects nobody needs.
        state = self._catalog.settle()
        self._catalog.require_newest(state)
        live = state.files
        for kind in _KINDS:
            folder = self._folder / self._home / kind
            for name in self._fs.list(folder):
                if f"{kind}/{name}" not in live:
                    # Not synced: an object that comes back after a power loss is still not listed, and goes next time.
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
        # A name begins with a number of fixed width, so the order of names is that of the batches.
        yield from sorted(path for path in self._catalog.load().files if path.startswith(f"{kind}/"))

    def is_live(self, name: str) -> bool:
        """Whether an object counts."""
        return name in self._catalog.load().files

    def newest(self) -> FileBatch | None:
        """Return the newest batch, None before the first one; raises as `read`."""
        # Invariant: at most one batch is listed, for each commit takes off the one before.
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
        # Objects before the transaction: a crash in between leaves objects that nothing lists, never a list of missing
        # ones.
        for name, data in added.items():
            # An object of this name that a crash left was never listed, for the number is new: it may be overwritten.
            self._store.put(f"{self._home}{name}", data)
        self._catalog.commit(
            [
                *(Action(remove_file=RemoveFile(path=name)) for name in removed),
                *(Action(add_file=_added(name, data, number)) for name, data in added.items()),
            ],
            next_event_id=number + 1,
        )

    def drop(self, names: Collection[str]) -> None:
        """Delete objects that are not listed any more."""
        for name in names:
            self._store.delete(f"{self._home}{name}")

    def tidy(self) -> None:
        """Write a checkpoint when one is due, and forget the revisions before it."""
        if self._catalog.checkpoint_due(_CHECKPOINT_EVERY):
            self._catalog.checkpoint()
            prune(self._catalog, self._catalog.load().revision)


class SinkState:
    """The state of one sink, in its folder; every commit is refused once another attempt took the `lease` over."""

    def __init__(self, fs: FileSystem, folder: Path, clock: Clock, quarantine: Quarantine, lease: Lease | None) -> None:
        self._fs = fs
        self._folder = folder
        self._clock = clock
        self._quarantine = quarantine
        self._lease = lease
        self._catalog = SinkCatalog(fs, folder, clock, lease)
        self.newest = BatchManifest(id="", number=-1, time_ms=0, told_from=0, cursors={})
        self.columns: dict[str, tuple[str, ...]] = {}
        """Of destinations in column modes, by location."""
        self.deferred: dict[str, str] = {}
        """By path of a file, the object of the bytes that it lacks."""

    @property
    def next_number(self) -> int:
        """The number of the next batch."""
        return self._catalog.next_number

    def open(self) -> FileBatch | None:
        """Read everything, remove what nothing lists, and return the newest batch, which may not be finished."""
        # After a holder that ended well nobody is left who could commit: the transaction is saved.
        self._catalog.open(fence=self._lease is not None and not self._lease.clean)
        for name in self._catalog.names(COLUMNS):
            self.columns = msgspec.json.decode(self._catalog.read(name), type=dict[str, tuple[str, ...]])
        for name in self._catalog.names(DEFERRED):
            self.deferred.update((part.path, name) for part, _ in self.batch(name))
        batch = self._catalog.newest()
        if batch is not None:
            self.newest = batch.manifest
        return batch

    def check(self) -> None:
        """Raise SupersededError once another attempt took over."""
        if self._lease is not None:
            self._lease.check()

    def batch(self, name: str) -> FileBatch:
        """Return the batch that a live object holds; that of deferred bytes has a single append."""
        return batch_file.decode(self._catalog.read(name), self._catalog.place(name))

    def quarantined(self, name: str) -> Quarantined | None:
        """Return the events that an object holds in quarantine, None where it does not count any more."""
        if not name.startswith(f"{QUARANTINED}/") or not self._catalog.is_live(name):
            return None
        return batch_file.QUARANTINED_DECODER.decode(self._catalog.read(name))

    def commit(
        self,
        batch: BatchManifest,
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
        removed = [*self._catalog.names(BATCHES), *settles]
        if columns != self.columns:
            added[f"{COLUMNS}/{name}.json"] = msgspec.json.encode(columns)
            removed += self._catalog.names(COLUMNS)
        # Computed before the objects are dropped: a key is a digest of what the object holds.
        keys = [self.key(name) for name in settles if name.startswith(f"{QUARANTINED}/")]
        self._catalog.commit(batch.number, added, removed)
        # Only now: when the commit raises it is unknown which state counts, and the sink has to be opened anew.
        self.columns, self.newest = columns, batch
        # Never before the commit. After a crash here the next opening removes what nothing lists.
        self._catalog.drop(removed)
        for key in keys:
            self.forget(key)

    def defer(
        self, batch: BatchManifest, data: Sequence[memoryview], failures: Mapping[int, Failure]
    ) -> tuple[BatchManifest, Sequence[memoryview]]:
        """Take appends out of the newest batch: they keep their bytes and their place in the file, for a later try.

        Return the batch without them. Durability: as of `commit`.
        """
        number = self.next_number
        # One commit shortens the batch and lists what it lacks: no crash leaves bytes in both or in neither.
        objects, deferred = {}, {}
        for place, failure in failures.items():
            name = f"{DEFERRED}/{number:020d}-{place:05d}.batch"
            objects[name] = batch_file.encode(batch.deferring(place, failure.reason), [data[place]])
            deferred[batch.parts[place].path] = name
        places = [place for place in range(len(batch.parts)) if place not in failures]
        # The id and each append's place stay, so the SEND events keep their names.
        batch = msgspec.structs.replace(batch, number=number, parts=tuple(batch.parts[place] for place in places))
        data = [data[place] for place in places]
        self.commit(batch, data, objects)
        self.deferred |= deferred
        self.show(number)
        return batch, data

    def key(self, name: str) -> str:
        """Return the key of the quarantine's entry that shows a live object."""
        return resubmission.key_of_object(name, self._catalog.read(name))

    def forget(self, key: str) -> None:
        """Take an entry out of the quarantine, with the mark that submitted it again."""
        resubmission.settle(self._fs, self._folder, self._quarantine, key)

    def show(self, number: int) -> None:
        """Show in the quarantine what was quarantined or deferred with a batch."""
        for kind in (QUARANTINED, DEFERRED):
            for name in self._catalog.names(kind):
                if name.startswith(f"{kind}/{number:020d}-"):
                    resubmission.show_entry(self._quarantine, name, self._catalog.read(name), self._clock.now_ms())

    def tidy(self) -> None:
        """Write a checkpoint of the catalog when one is due."""
        self._catalog.tidy()


def committed_lengths(fs: FileSystem, folder: Path) -> dict[str, int]:
    """Return by path how long a file becomes by the newest batch and by deferred bytes; they may not be in it yet.

    Reads the folder of a sink and changes nothing; raises as `SinkCatalog.read`.
    """
    catalog = SinkCatalog(fs, folder, SystemClock())
    lengths: dict[str, int] = {}
    for kind in (BATCHES, DEFERRED):
        for name in catalog.names(kind):
            for part in batch_file.decode(catalog.read(name), catalog.place(name)).manifest.parts:
                lengths[part.path] = max(lengths.get(part.path, 0), part.offset + part.length)
    return lengths


def _added(name: str, data: bytes, number: int) -> AddFile:
    return AddFile(
        path=name,
        size_bytes=len(data),
        sha256=hashlib.sha256(data).digest(),
        first_event_id=number,
        last_event_id=number,
    )
