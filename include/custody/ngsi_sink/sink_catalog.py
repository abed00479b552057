"""What the sink keeps: objects in its own folder, of which those count that its catalog lists.

One transaction a batch takes old objects off and lists new ones. What a crash leaves is removed by who opens it next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from custody.catalog import Action, AddFile, Catalog, Note, RemoveFile, SealedError, prune
from custody.clock import Clock
from custody.errors import CorruptionError, NotFoundError
from custody.format.names import SINK, SINK_DATABASE
from custody.lease import Lease
from custody.ngsi_sink import batch_file
from custody.ngsi_sink.batch_file import Batch
from custody.store import LocalStore
from custody.vfs import FileSystem

NAME, DATABASE = SINK, SINK_DATABASE
BATCHES, COLUMNS, LEFT, ASIDE, DEFERRED = "batches", "columns", "left", "aside", "deferred"
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
