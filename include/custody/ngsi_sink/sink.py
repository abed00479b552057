"""The sink: records become files, each line exactly once, whatever crashes in between.

Protocol of a batch:

1. render it, and see how long each of its files is;
2. put it into the sink's own folder as one object: `ngsi/sink/ngsi/batches/<number>.batch`;
3. commit a transaction of the catalog that adds this object, removes the one before, and with it moves the cursors on,
   one for each writer of events. This is the commit point: from here on the batch counts, before it nothing does;
4. append each part to its file, cut to its length before the batch; several files at once, each is in a batch once;
5. tell of each part by SEND events (`custody.ngsi_sink.send_events`).

A crash before 3 leaves an object that nothing lists; one after it a committed batch, which whoever opens the sink next
brings to its end. So the files never hold a line that was not committed, every committed one stands there once, and is
told of once. The catalog lists one batch at a time, the newest; all before it are done.

What cannot be written after all retries costs itself only. Records whose file does not answer before the commit are
put aside, as events; a part that cannot be appended after it is deferred, as bytes, for its place in the file is taken.
Both are objects of the sink, shown in the quarantine, until somebody submits them again; a deferred part also goes
first whenever its file gets more.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Self

import msgspec

from custody.clock import Clock
from custody.errors import StorageError
from custody.lease import Lease
from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi.rendering import Known
from custody.ngsi_sink import batch_file
from custody.ngsi_sink.batch_file import Aside, Part, Staged
from custody.ngsi_sink.batch_plan import Taken, Written, draft, objects_of, untaken
from custody.ngsi_sink.local import LocalFiles
from custody.ngsi_sink.retry import Attempts, Failed
from custody.ngsi_sink.send_events import Journal, tell
from custody.ngsi_sink.sink_state import Books
from custody.ngsi_sink.target import DestinationError, FilesTarget, Target
from custody.quarantine import Quarantine
from custody.vfs import FileSystem

_LOCK = "LOCK"


class Sink:
    """Takes batches of events; one process at a time, which `open` sees to."""

    def __init__(
        self,
        fs: FileSystem,
        folder: Path,
        target: Target,
        clock: Clock,
        parameters: Parameters,
        journal: Journal | None,
        quarantine: Quarantine,
        lease: Lease | None,
        sleep: Callable[[float], None],
        note: Callable[[Iterable[Destination]], None],
    ) -> None:
        self._target = target
        self._clock = clock
        self._parameters = parameters
        self._journal = journal
        self._note = note
        self._books = Books(fs, folder, clock, quarantine, lease)
        self._attempts = Attempts(parameters, sleep, self._books.check)
        self._lengths: dict[str, int] = {}

    @classmethod
    @contextmanager
    def open(
        cls,
        fs: FileSystem,
        folder: Path,
        root: Path | Target,
        clock: Clock,
        parameters: Parameters,
        *,
        journal: Journal | None = None,
        quarantine: Quarantine | None = None,
        lease: Lease | None = None,
        sleep: Callable[[float], None] = time.sleep,
        note: Callable[[Iterable[Destination]], None] = lambda _: None,
    ) -> Iterator[Self]:
        """Open the sink and bring to its end what a crash left.

        Args:
            fs: holds the sink's folder.
            folder: the sink's own; `<repository>/ngsi`.
            root: the folder below which `/user/…` lies, or a target that somebody has opened.
            clock: for commit times.
            parameters: how names and lines are made, and how often a file that refuses is tried again.
            journal: where it is told what was written; None tells nobody.
            quarantine: shows what could not be written; by default one in the sink's own folder.
            lease: under which this is done; each effect is refused once another attempt took over.
            sleep: waits so many seconds before a retry.
            note: remembers destinations durably before a batch has rows of theirs, for their tables.

        Raises:
            LockedError: another process has it open.
            SupersededError: another attempt took over.
            CorruptionError: an object of the sink is not what was committed.
        """
        fs.make_directory(folder)
        with fs.lock(folder / _LOCK):
            target = FilesTarget(LocalFiles(fs, root)) if isinstance(root, Path) else root
            kept_quarantine = quarantine or Quarantine(fs, folder / "quarantine")
            sink = cls(fs, folder, target, clock, parameters, journal, kept_quarantine, lease, sleep, note)
            with sink._attempts:
                sink._recover()
                yield sink

    @property
    def cursors(self) -> Mapping[str, int]:
        """By writer: all entities of events before this one are in the files, or put aside."""
        return MappingProxyType(self._books.newest.cursors)

    @property
    def columns(self) -> Known:
        """The columns of destinations in column modes, by location."""
        return MappingProxyType(self._books.columns)

    def write(self, items: Sequence[Taken], cursors: Mapping[str, int], *, settles: Collection[str] = ()) -> Written:
        """Write the records of events, each writer's in the order of their ids, and move its cursor on.

        `items` hold everything that events from a writer's cursor up to the new one received; events before it are
        passed over, for they are in the files. `settles` names objects of what was put aside: all events of theirs
        are among the items and taken again, wherever the cursors are.

        Durability: on return every line survives power loss, exactly once, or is put aside. On raise it is unknown
        whether the batch was committed; a sink that is opened anew tells, and ends it.

        Raises:
            InvalidInputError: an event lies behind its writer's new cursor, or they are not in their order.
            StorageError: the disk of the sink itself refused.
            SupersededError: another attempt took over.
        """
        fresh = untaken(items, self._books.newest.cursors, cursors, filter(None, map(self._books.aside, settles)))
        moved = {name: upto for name, upto in cursors.items() if upto > self._books.newest.cursors.get(name, 0)}
        if not (fresh or moved or settles):
            return Written(number=self._books.newest.number)
        self._lengths = {}
        made = draft(fresh, self._parameters, self._books.columns, self._reach, part=self._part_name(fresh, settles))
        batch = self._staged(
            made.sources,
            [
                batch_file.part(path, self._lengths[path], data, made.made.sources[path], place)
                for place, (path, data) in enumerate(made.made.files.items())
            ],
            {**self._books.newest.cursors, **moved},
        )
        data = [memoryview(content) for content in made.made.files.values()]
        self._note(made.destinations.values())
        objects, columns = objects_of(made, batch.number), {**self._books.columns, **made.made.columns}
        self._books.commit(batch, data, objects, settles=settles, columns=columns)
        deferred = self._finish(batch, data, is_new=True)
        self._books.tidy()
        return Written.of(batch, made, deferred)

    def rest(self, cursors: Mapping[str, int]) -> None:
        """Move the cursors on, and let nothing be left to end for who opens the sink next; for the end of a run."""
        self.write([], cursors)
        if self._books.newest.parts:
            self._books.commit(self._staged((), (), self._books.newest.cursors), ())

    def aside(self, name: str) -> Aside | None:
        """Return the events that an object says are put aside, None where it does not count any more."""
        return self._books.aside(name)

    def resume(self, name: str) -> str | None:
        """Try a deferred part again, once; return why it cannot be written, None when it is, or was before.

        Where its file is gone, the part begins a new one: it has no place any more, and a user asked for it.
        """
        paths = [path for path, held in self._books.deferred.items() if held == name]
        try:
            gone = [path for path in paths if self._target.length(path) == 0 and self._had_rows(path)]
            for path in paths:
                if path not in gone:
                    self._apply_deferred(path)
        except (StorageError, DestinationError) as error:
            return str(error)
        self._settle_deferred(paths, anew=gone)
        failed = [path for path in gone if path in self._books.deferred]
        return None if not failed else f"{failed[0]}: it could not be begun anew; see the quarantine"

    def _part_name(self, fresh: Sequence[Taken], settles: Collection[str]) -> str:
        """Return how new files of this batch are called: by its first event, whatever else was written before."""
        if not fresh:
            return ""
        first = f"{fresh[0].writer}-{fresh[0].event.event_id:020d}"
        return f"{first}-{self._books.next_number}" if settles else first

    def _staged(
        self, sources: Sequence[batch_file.Source], parts: Sequence[Part], cursors: Mapping[str, int]
    ) -> Staged:
        return Staged(
            id=str(uuid.uuid4()),
            number=self._books.next_number,
            time_ms=self._clock.now_ms(),
            told_from=0 if self._journal is None else self._journal.next_event_id,
            cursors=dict(cursors),
            sources=tuple(sources),
            parts=tuple(parts),
        )

    def _finish(self, batch: Staged, data: Sequence[memoryview], *, is_new: bool) -> dict[int, Failed]:
        """Bring a committed batch into the files, show what is put aside, and tell of the rest; return what failed."""
        failing = self._attempts.all(
            range(len(batch.parts)), lambda place: self._target.apply(batch.parts[place], data[place])
        )
        self._books.show(batch.number)
        if failing:
            batch, data = self._books.defer(batch, data, failing)
        if self._journal is not None:
            self._books.check()
            tell(batch, self._journal, self._target.uri, is_new=is_new)
        return failing

    def _reach(self, paths: Iterable[str]) -> Mapping[str, Failed]:
        """See how long files are, after what they lack was written; return those that do not answer."""
        resumed: list[str] = []
        wanted = [path for path in paths if path not in self._lengths]

        def reach(path: str) -> None:
            if path in self._books.deferred and path not in resumed:
                self._apply_deferred(path)
                resumed.append(path)
            self._lengths[path] = self._target.length(path)

        # What is deferred is read from the sink's own objects, and told of in the order of its files.
        failing = self._attempts.all(wanted, reach, in_order=any(path in self._books.deferred for path in wanted))
        self._settle_deferred(resumed)
        return failing

    def _apply_deferred(self, path: str) -> None:
        self._books.check()
        for part, content in self._books.batch(self._books.deferred[path]):
            self._target.apply(part, content)

    def _had_rows(self, path: str) -> bool:
        """Whether the deferred part of a file has a place behind other rows."""
        return any(part.offset > 0 for part, _ in self._books.batch(self._books.deferred[path]))

    def _settle_deferred(self, paths: Sequence[str], anew: Collection[str] = ()) -> None:
        """Make deferred parts, which are in their files by now, the newest batch, so that they are told of.

        Those whose files begin `anew` get there after the commit, at the beginning.
        """
        for path in paths:
            name = self._books.deferred[path]
            key, held = self._books.key(name), self._books.batch(name)
            # It keeps its id: a run that broke off may have told of it, and a target that refused again deferred it.
            batch = msgspec.structs.replace(
                held.staged, number=self._books.next_number, cursors=dict(self._books.newest.cursors), problem=None
            )
            if path in anew:
                parts = tuple(msgspec.structs.replace(part, offset=0) for part in batch.parts)
                batch = msgspec.structs.replace(batch, parts=parts)
            self._books.commit(batch, held.contents, settles=[name])
            del self._books.deferred[path]
            self._finish(batch, held.contents, is_new=False)
            self._books.forget(key)

    def _recover(self) -> None:
        """Bring the newest batch to its end, and remove what nothing lists."""
        held = self._books.open()
        if held is not None:
            self._finish(held.staged, held.contents, is_new=False)
