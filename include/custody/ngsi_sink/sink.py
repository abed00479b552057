"""The sink: records become files, each line exactly once, whatever crashes in between.

Protocol of a batch:

1. render it, and see how long each of its files is;
2. put it into the sink's own folder as one object: `ngsi/sink/ngsi/batches/<number>.batch`;
3. commit a transaction of the catalog that adds this object, removes the one before, and with it moves the cursors on,
   one for each writer of events. This is the commit point: from here on the batch counts, before it nothing does;
4. append to each file, after it was cut to its length before the batch; several files at once, each is in a batch once;
5. append SEND events for each file (`custody.ngsi_sink.batch_file`).

A crash before step 3 leaves an object that nothing lists; a crash after it leaves a committed batch, which the next
process to open the sink finishes. So files never hold a line that was not committed, and every committed line is in its
file once, with one SEND event. The catalog lists one batch at a time, the newest; all before it are finished.

What cannot be written after all retries affects its own file only. Records whose file does not answer before the commit
are quarantined, as events; an append that fails after it is deferred, as bytes, for its place in the file is taken.
Both are objects of the sink, shown in the quarantine, until somebody submits them again; deferred bytes also go first
whenever their file gets more.
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
from custody.ngsi.rendering import ColumnsByLocation
from custody.ngsi_sink.batch_file import BatchManifest, FileAppend, Quarantined, SendJournal, Source, append_missing
from custody.ngsi_sink.batch_plan import (
    BatchPlan,
    BatchResult,
    Reach,
    SourceRecord,
    new_events,
    part_name,
    plan_batch,
)
from custody.ngsi_sink.chunk import PlannedChunk
from custody.ngsi_sink.local import LocalFiles
from custody.ngsi_sink.sink_state import SinkState
from custody.ngsi_sink.target import DestinationError, Failure, FilesTarget, RetryPool, Target
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
        journal: SendJournal | None,
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
        self._state = SinkState(fs, folder, clock, quarantine, lease)
        self._retries = RetryPool(parameters, sleep, self._state.check)
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
        journal: SendJournal | None = None,
        quarantine: Quarantine | None = None,
        lease: Lease | None = None,
        sleep: Callable[[float], None] = time.sleep,
        note: Callable[[Iterable[Destination]], None] = lambda _: None,
    ) -> Iterator[Self]:
        """Open the sink and finish the batch that a crash left.

        Args:
            fs: holds the sink's folder.
            folder: the sink's own; `<repository>/ngsi`.
            root: the folder below which `/user/…` lies, or a target that is open.
            clock: for commit times.
            parameters: how names and lines are made, and how often a file that refuses is tried again.
            journal: takes the SEND events; None for none.
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
        # Beside the lease: another attempt may take over between a check of the lease and an append. On one machine
        # this lock keeps it out until the older one is gone.
        with fs.lock(folder / _LOCK):
            target = FilesTarget(LocalFiles(fs, root)) if isinstance(root, Path) else root
            shown_in = quarantine or Quarantine(fs, folder / "quarantine")
            sink = cls(fs, folder, target, clock, parameters, journal, shown_in, lease, sleep, note)
            with sink._retries:
                # Before anything else: lengths of files mean something only once the newest batch is in them.
                sink._recover()
                yield sink

    @property
    def cursors(self) -> Mapping[str, int]:
        """By writer: all entities of events before this one are in the files, or quarantined."""
        return MappingProxyType(self._state.newest.cursors)

    @property
    def columns(self) -> ColumnsByLocation:
        """The columns of destinations in column modes, by location."""
        return MappingProxyType(self._state.columns)

    def check(self) -> None:
        """Raise SupersededError once another attempt took over."""
        self._state.check()

    def write(
        self, items: Sequence[SourceRecord], cursors: Mapping[str, int], *, settles: Collection[str] = ()
    ) -> BatchResult:
        """Write the records of events, each writer's in the order of their ids, and move its cursor on.

        `items` hold everything that events from a writer's cursor up to the new one received; events before it are
        passed over, for they are in the files. `settles` names quarantined objects: all their events are among the
        items and are taken again, wherever the cursors are.

        Durability: on return every line survives power loss, exactly once, or is quarantined. On raise it is unknown
        whether the batch was committed; a sink that is opened anew finds out, and finishes it.

        Raises:
            InvalidInputError: an event lies behind its writer's new cursor, or they are not in their order.
            StorageError: the disk of the sink itself refused.
            SupersededError: another attempt took over.
        """
        fresh = self._fresh(items, cursors, settles)
        if not (fresh or self._moved(cursors) or settles):
            return BatchResult(number=self._state.newest.number)
        self._lengths = {}
        return self._write(self._plan(fresh, settles, self._reach), cursors, settles)

    def write_planned(
        self, planned: PlannedChunk, records: Callable[[], Sequence[SourceRecord]], cursors: Mapping[str, int]
    ) -> BatchResult:
        """Write a chunk as `write` does with its `records`, which are read only where its plan does not hold any more.

        Durability and errors as of `write`.
        """
        if not planned.holds(self._state.newest.cursors, self._state.columns):
            return self.write(records(), cursors)
        self._lengths = {}
        unreachable = self._reach(planned.plan.additions.files)
        if not unreachable:
            return self._write(planned.plan, cursors, ())

        def reach(paths: Iterable[str]) -> Mapping[str, Failure]:
            # All retries of these are over; the others are known.
            return {path: unreachable[path] for path in paths if path in unreachable} or self._reach(paths)

        return self._write(self._plan(self._fresh(records(), cursors, ()), (), reach), cursors, ())

    def save_cursors(self, cursors: Mapping[str, int]) -> None:
        """Move the cursors on and commit a batch without bytes, so that opening the sink next has nothing to finish."""
        self.write([], cursors)
        # That batch is finished by now, so its object may go.
        if self._state.newest.parts:
            self._state.commit(self._manifest((), (), self._state.newest.cursors), ())

    def quarantined(self, name: str) -> Quarantined | None:
        """Return the events that an object holds in quarantine, None where it does not count any more."""
        return self._state.quarantined(name)

    def retry_deferred(self, name: str) -> str | None:
        """Try deferred bytes again, once; return why they cannot be written, None when they are, or were before.

        Where their file is gone, they begin a new one: their place does not exist any more, and a user asked for it.
        """
        paths = [path for path, deferred in self._state.deferred.items() if deferred == name]
        try:
            # Bytes at offset 0 are not among them: to apply them makes the file anyway.
            gone = [path for path in paths if self._target.length(path) == 0 and self._had_rows(path)]
            for path in paths:
                if path not in gone:
                    self._apply_deferred(path)
        except (StorageError, DestinationError) as error:
            return str(error)
        self._settle_deferred(paths, anew=gone)
        failed = [path for path in gone if path in self._state.deferred]
        return None if not failed else f"{failed[0]}: it could not be begun anew; see the quarantine"

    def _recover(self) -> None:
        """Finish the newest batch, and remove what nothing lists."""
        batch = self._state.open()
        if batch is not None:
            self._finish(batch.manifest, batch.contents, is_new=False)

    def _fresh(
        self, items: Sequence[SourceRecord], cursors: Mapping[str, int], settles: Collection[str]
    ) -> list[SourceRecord]:
        resubmitted = filter(None, map(self._state.quarantined, settles))
        return new_events(items, self._state.newest.cursors, cursors, resubmitted)

    def _moved(self, cursors: Mapping[str, int]) -> dict[str, int]:
        newest = self._state.newest.cursors
        return {name: upto for name, upto in cursors.items() if upto > newest.get(name, 0)}

    def _plan(self, fresh: Sequence[SourceRecord], settles: Collection[str], reach: Reach) -> BatchPlan:
        part = part_name(fresh)
        # Events that are submitted again may have been the first of another batch: the number tells the two apart.
        if part and settles:
            part = f"{part}-{self._state.next_number}"
        return plan_batch(fresh, self._parameters, self._state.columns, reach, part=part)

    def _write(self, plan: BatchPlan, cursors: Mapping[str, int], settles: Collection[str]) -> BatchResult:
        """Commit a batch whose files have known lengths, and append it; raises as `write`."""
        state, additions = self._state, plan.additions
        # Made after the plan: to reach a file may commit the deferred bytes that it lacked, under a number of their
        # own.
        batch = self._manifest(
            plan.sources,
            [
                FileAppend.of(path, self._lengths[path], data, additions.sources[path], place)
                for place, (path, data) in enumerate(additions.files.items())
            ],
            {**state.newest.cursors, **self._moved(cursors)},
        )
        data = [memoryview(content) for content in additions.files.values()]
        # Before the commit: after a crash behind it, the next run still finds the note and makes the table.
        self._note(plan.destinations.values())
        columns = {**state.columns, **additions.columns}
        state.commit(batch, data, plan.objects(batch.number), settles=settles, columns=columns)
        deferred = self._finish(batch, data, is_new=True)
        state.tidy()
        return BatchResult.of(batch, plan, deferred)

    def _manifest(
        self, sources: Sequence[Source], parts: Sequence[FileAppend], cursors: Mapping[str, int]
    ) -> BatchManifest:
        return BatchManifest(
            id=str(uuid.uuid4()),
            number=self._state.next_number,
            time_ms=self._clock.now_ms(),
            told_from=0 if self._journal is None else self._journal.next_event_id,
            cursors=dict(cursors),
            sources=tuple(sources),
            parts=tuple(parts),
        )

    def _finish(self, batch: BatchManifest, data: Sequence[memoryview], *, is_new: bool) -> dict[int, Failure]:
        """Do what follows the commit of a batch: append, show what is quarantined, store SEND events.

        Return the appends that failed, by their positions; they are deferred and get no events.
        """
        done = self._target.apply_together(batch.parts, data, self._state.check)
        failures = self._retries.all(
            (place for place in range(len(batch.parts)) if place not in done),
            lambda place: self._target.apply(batch.parts[place], data[place]),
        )
        # An entry is for people, so it may come after the commit: the recovery of this batch shows what a crash
        # prevented.
        self._state.show(batch.number)
        # Before the SEND events: an append that is deferred must not have one yet.
        if failures:
            batch, data = self._state.defer(batch, data, failures)
        if self._journal is not None:
            # The journal is no part of the catalog and knows no epoch: the lease alone keeps a superseded attempt out.
            self._state.check()
            append_missing(batch, self._journal, self._target.uri, is_new=is_new)
        return failures

    def _reach(self, paths: Iterable[str]) -> Mapping[str, Failure]:
        """See how long files are, after deferred bytes of theirs were written; return those that do not answer."""
        resumed: list[str] = []
        unseen = [path for path in paths if path not in self._lengths]

        def reach(path: str) -> None:
            # Invariant: a file gets nothing before the bytes that it lacks, whose place comes first.
            if path in self._state.deferred and path not in resumed:
                self._apply_deferred(path)
                resumed.append(path)
            self._lengths[path] = self._target.length(path)

        # Deferred bytes are read from the sink's own objects, and get their events in the order of their files.
        in_order = any(path in self._state.deferred for path in unseen)
        if not in_order:
            # Most files of a large batch are new, and their absence is one call of the system.
            self._state.check()
            self._lengths.update(dict.fromkeys(self._target.absent(unseen), 0))
            unseen = [path for path in unseen if path not in self._lengths]
        failures = self._retries.all(unseen, reach, in_order=in_order)
        # Also where other files failed: these bytes are in their files now and need their events.
        self._settle_deferred(resumed)
        return failures

    def _apply_deferred(self, path: str) -> None:
        self._state.check()
        for part, content in self._state.batch(self._state.deferred[path]):
            self._target.apply(part, content)

    def _had_rows(self, path: str) -> bool:
        """Whether the deferred bytes of a file belong behind other rows."""
        return any(part.offset > 0 for part, _ in self._state.batch(self._state.deferred[path]))

    def _settle_deferred(self, paths: Sequence[str], anew: Collection[str] = ()) -> None:
        """Make deferred bytes, which are in their files by now, the newest batch, so that they get their SEND events.

        Those whose files begin `anew` get there after the commit, at the beginning.
        """
        for path in paths:
            name = self._state.deferred[path]
            key, deferred = self._state.key(name), self._state.batch(name)
            # It keeps its id: a run that broke off may have stored its events, and a target that refused again deferred
            # it anew.
            batch = msgspec.structs.replace(
                deferred.manifest,
                number=self._state.next_number,
                cursors=dict(self._state.newest.cursors),
                problem=None,
            )
            if path in anew:
                # Committed with the new place before anything is written there, so that a crash ends as with any batch.
                parts = tuple(msgspec.structs.replace(part, offset=0) for part in batch.parts)
                batch = msgspec.structs.replace(batch, parts=parts)
            self._state.commit(batch, deferred.contents, settles=[name])
            # Before `_finish`, which adds it again where the target refuses once more.
            del self._state.deferred[path]
            self._finish(batch, deferred.contents, is_new=False)
            # Last: an entry that a crash leaves names an object that is gone, and disappears when it is submitted
            # again.
            self._state.forget(key)
