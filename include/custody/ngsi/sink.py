"""The sink: records become files below a folder, each exactly once, whatever crashes in between.

Protocol of a batch:

1. render it, and see how long each of its files is;
2. put it into the sink's own folder as one object: `<writer>/ngsi/batches/<first event id>.batch`;
3. commit a transaction of the catalog that adds this object, removes the one before, and moves `next_event_id` on.
   This is the commit point: from here on the batch counts, before it nothing does;
4. append each part to its file, cut to its length before the batch.

A crash before 3 leaves an object that nothing lists; one after it a committed batch, which whoever opens the sink next
brings to its end. So the files never hold a line that was not committed, and every committed one stands there once.
The catalog lists one batch at a time, the newest; all before it are in the files. What the columns of destinations are
is an object of its own, written when it changes; entities without a destination are kept as objects for good.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Self

import msgspec

from custody.catalog import Action, AddFile, Catalog, CatalogState, RemoveFile
from custody.clock import Clock
from custody.errors import CorruptionError, InvalidInputError, NotFoundError
from custody.model import Event
from custody.ngsi import staged
from custody.ngsi.contents import Contents, contents
from custody.ngsi.local import LocalFiles
from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi.records import Record, Unplaced
from custody.ngsi.rendering import Known
from custody.ngsi.target import FilesTarget, Target
from custody.store import LocalStore
from custody.vfs import FileSystem

DATABASE = "ngsi"
_BATCHES, _COLUMNS, _LEFT = "batches", "columns", "left"
_LOCK = "LOCK"
_CHECKPOINT_EVERY = 100
Item = tuple[Event, Record | Unplaced]


@dataclass(frozen=True, slots=True)
class Written:
    """What a batch added."""

    first_event_id: int
    next_event_id: int
    records: int
    left: int
    """Entities without a destination."""
    files: int
    bytes: int
    destinations: tuple[Destination, ...]
    """Those that got data, for their Hive tables."""


class Sink:
    """Takes batches of one writer's events; one process at a time, which `open` sees to."""

    def __init__(self, fs: FileSystem, folder: Path, target: Target, catalog: Catalog, parameters: Parameters) -> None:
        self._fs = fs
        self._folder = folder
        self._store = LocalStore(fs, folder)
        self._target = target
        self._catalog = catalog
        self._parameters = parameters
        self._home = catalog.objects.home
        self._columns: dict[str, tuple[str, ...]] = {}

    @classmethod
    @contextmanager
    def open(
        cls, fs: FileSystem, folder: Path, root: Path | Target, writer: str, clock: Clock, parameters: Parameters
    ) -> Iterator[Self]:
        """Open the sink of a writer's events and bring to its end what a crash left.

        Args:
            fs: holds both folders.
            folder: the sink's own; `<repository>/ngsi`.
            root: the folder below which `/user/…` lies, or a target that somebody has opened.
            writer: whose events are taken.
            clock: for commit times.
            parameters: how names and lines are made.

        Raises:
            LockedError: another process has it open.
            CorruptionError: a file of a destination, or an object of the sink, is not what was committed.
        """
        fs.make_directory(folder / writer)
        with fs.lock(folder / writer / _LOCK):
            catalog = Catalog(LocalStore(fs, folder), writer, DATABASE, clock)
            target = FilesTarget(LocalFiles(fs, root)) if isinstance(root, Path) else root
            sink = cls(fs, folder, target, catalog, parameters)
            sink._recover()
            yield sink

    @property
    def next_event_id(self) -> int:
        """All entities of events before this one are in the files."""
        return self._catalog.load().next_event_id

    @property
    def columns(self) -> Known:
        """The columns of destinations in column modes, by location."""
        return MappingProxyType(self._columns)

    def write(self, items: Sequence[Item], next_event_id: int) -> Written:
        """Write the records of events, in the order of their ids, and move on to `next_event_id`.

        `items` hold everything that events from the sink's own `next_event_id` up to the new one received. Events
        before are passed over: they are in the files.

        Durability: on return every line survives power loss, exactly once. On raise it is unknown whether the batch was
        committed; a sink that is opened anew tells, and ends it.

        Raises:
            InvalidInputError: an event lies behind `next_event_id`, or they are not in their order.
            StorageError: a disk refused.
        """
        state = self._catalog.load()
        first = state.next_event_id
        fresh = [(event, item) for event, item in items if event.event_id >= first]
        ids = [event.event_id for event, _ in fresh]
        if ids != sorted(ids) or (ids and ids[-1] >= next_event_id):
            raise InvalidInputError(
                f"events of the batch: expected ids from {first} up to {next_event_id}, in order, got {ids[:5]}…"
            )
        if next_event_id <= first:
            return Written(first, first, 0, 0, 0, 0, ())
        placed = [(event, item) for event, item in fresh if isinstance(item, Record)]
        left = [staged.Left(event.event_id, item.reason) for event, item in fresh if isinstance(item, Unplaced)]
        taken = [item for _, item in placed]
        made = contents(taken, self._parameters, self._columns, part=f"{first:020d}")
        left += [staged.Left(placed[number][0].event_id, item.reason) for number, item in made.unplaced.items()]
        batch = staged.Staged(
            first_event_id=first,
            next_event_id=next_event_id,
            parts=tuple(staged.part(path, self._target.length(path), data) for path, data in made.files.items()),
        )
        self._commit(state, batch, made, sorted(left, key=lambda item: item.event_id))
        if self._catalog.checkpoint_due(_CHECKPOINT_EVERY):
            self._catalog.checkpoint()
        destinations = {item.placed.destination.location: item.placed.destination for item in taken}
        return Written(
            first_event_id=first,
            next_event_id=next_event_id,
            records=len(taken) - len(made.unplaced),
            left=len(left),
            files=len(made.files),
            bytes=sum(map(len, made.files.values())),
            destinations=tuple(destinations.values()),
        )

    def _commit(self, state: CatalogState, batch: staged.Staged, made: Contents, left: Sequence[staged.Left]) -> None:
        """Make a batch count, then bring it into the files."""
        name = f"{batch.first_event_id:020d}"
        data = staged.encode(batch, made.files)
        added = {f"{_BATCHES}/{name}.batch": data}
        removed = [path for path in state.files if path.startswith(f"{_BATCHES}/")]
        columns = {**self._columns, **made.columns}
        if columns != self._columns:
            added[f"{_COLUMNS}/{name}.json"] = msgspec.json.encode(columns)
            removed += [path for path in state.files if path.startswith(f"{_COLUMNS}/")]
        if left:
            added[f"{_LEFT}/{name}.json"] = msgspec.json.encode(left)
        for path, content in added.items():
            # What is there under this name was never listed: events up to this one are committed under another.
            self._store.put(f"{self._home}{path}", content)
        self._catalog.commit(
            [
                *(Action(remove_file=RemoveFile(path=path)) for path in removed),
                *(Action(add_file=_described(path, content, batch)) for path, content in added.items()),
            ],
            next_event_id=batch.next_event_id,
        )
        self._columns = columns
        self._apply(f"{_BATCHES}/{name}.batch", data)
        for path in removed:
            self._store.delete(f"{self._home}{path}")

    def _recover(self) -> None:
        """Bring the newest batch to its end, and remove what nothing lists."""
        live = self._catalog.settle().files
        for kind in (_BATCHES, _COLUMNS, _LEFT):
            folder = self._folder / self._home / kind
            for name in self._fs.list(folder):
                if f"{kind}/{name}" not in live:
                    self._fs.remove(folder / name)
        for path, file in live.items():
            if path.startswith(f"{_COLUMNS}/"):
                self._columns = msgspec.json.decode(self._checked(path, file), type=dict[str, tuple[str, ...]])
            elif path.startswith(f"{_BATCHES}/"):
                self._apply(path, self._checked(path, file))

    def _checked(self, path: str, file: AddFile) -> bytes:
        place = self._store.locate(f"{self._home}{path}")
        try:
            data = self._store.get(f"{self._home}{path}")
        except NotFoundError as error:
            raise CorruptionError(
                f"{place}: expected a live object, found none. Bring it back from a backup."
            ) from error
        if hashlib.sha256(data).digest() != file.sha256:
            raise CorruptionError(f"{place}: expected other bytes (SHA-256). Bring it back from a backup.")
        return data

    def _apply(self, path: str, data: bytes) -> None:
        for part, content in staged.decode(data, self._store.locate(f"{self._home}{path}")):
            self._target.apply(part, content)


def _described(path: str, content: bytes, batch: staged.Staged) -> AddFile:
    return AddFile(
        path=path,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).digest(),
        first_event_id=batch.first_event_id,
        last_event_id=batch.next_event_id - 1,
    )
