"""The FlowFile repository: which FlowFile waits in which queue, kept by a log that all processes of a machine share.

Whoever works takes FlowFiles out of a queue, and commits: one record of the log says which FlowFiles went where, and
holds the provenance events that tell of it. That record is the commit. The events are brought into the provenance
journal right after it, and again by whoever opens the repository when the process died in between; each once, by its
key. What a dead process had taken goes back to its queue.

Any number of threads and processes use one repository. Each process reads what the others appended before it decides
anything; one lock, held for moments, keeps them apart (docs/design/042-flowfile-repository.md).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from custody.clock import Clock
from custody.errors import BackpressureError, ConflictError, CustodyError, InvalidInputError, NotFoundError
from custody.flow.flowfile import FlowFile
from custody.flowfile_repository.content_archive import ContentArchive
from custody.flowfile_repository.log import FlowFileLog, LogFolder, lock_folder
from custody.flowfile_repository.outbox import Delivery, Outbox, Provenance, deliver_missing, with_keys
from custody.flowfile_repository.priorities import Prioritizer, key_of, prioritizer
from custody.flowfile_repository.queue import FlowFileQueue, QueueSize
from custody.flowfile_repository.records import (
    Change,
    Connect,
    Connection,
    Delivered,
    Disconnect,
    Enter,
    Gone,
    Key,
    Leave,
    Move,
    Pin,
    Purged,
    Released,
    Replayed,
    Return,
    SwapFile,
    SwapIn,
    SwapOut,
    Take,
    Transaction,
    Waiting,
    Yield,
    encode_events,
    encode_transaction,
)
from custody.flowfile_repository.state import FlowFileState, claim_text
from custody.flowfile_repository.swap import clear_swaps, read_swap_block, write_swap
from custody.format.names import check_name
from custody.journal import KeepCut, discard_cut
from custody.model import Event
from custody.vfs import FileSystem
from custody.vfs.group_commit import GroupCommitQueue

_LOGGER = logging.getLogger(__name__)
_LOCK_SECONDS = 60.0
_EXPIRED_MAX = 1000
"""So many expired FlowFiles are ended at once, before others are looked at."""
Result = TypeVar("Result")
PIN_SECONDS = 300.0
"""A session that has contents for so long tells the others where they lie; well below the age at which they may go."""
SWAP_FILE_FLOWFILES = 10_000
"""So many FlowFiles go to one swap file."""


@dataclass(frozen=True, slots=True)
class FlowFileOptions:
    """Options of a FlowFile repository."""

    swap_threshold: int = 20_000
    """So many FlowFiles of a queue stay in memory; those beyond go to swap files."""
    checkpoint_seconds: float = 120.0
    """How often a snapshot is written."""
    is_synced: bool = True
    """False only where FlowFiles may be lost by a power failure."""

    @property
    def swap_batch(self) -> int:
        """How many FlowFiles go to one swap file."""
        return min(SWAP_FILE_FLOWFILES, self.swap_threshold)


@dataclass(frozen=True, slots=True)
class Placed:
    """A FlowFile as it is at a commit, and the queue that it enters."""

    flowfile: FlowFile
    queue: str
    penalised_until_ms: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """The result of a session: FlowFiles that enter queues, that leave, that go back, and the events of all that."""

    session: str
    placed: Sequence[Placed] = ()
    leaves: Sequence[str] = ()
    """Uuids of FlowFiles that leave the flow."""
    returns: Sequence[str] = ()
    """Uuids of FlowFiles that go back to their places, unchanged."""
    events: Sequence[Event] = ()
    penalties: Mapping[str, int] = field(default_factory=dict)
    """Until when FlowFiles of `returns` are penalised, by uuid."""
    replayed: Replayed | None = None
    """Of a replay plan, how far it is with this work."""


@dataclass(frozen=True, slots=True)
class Taking:
    """FlowFiles that were taken from a queue."""

    items: tuple[Waiting, ...] = ()
    expired: tuple[Waiting, ...] = ()
    """Taken too, and too old: the session ends them."""


@dataclass(slots=True)
class _Batch:
    """What several threads want done, decided one after the other by the newest state and written in one piece."""

    state: FlowFileState
    now_ms: int
    member: str
    repository: str
    durable: int = -1
    """The last transaction that is known to be synced."""
    frames: list[bytes] = field(default_factory=list)
    """The transactions that were made, as the log takes them."""
    is_synced: bool = False
    is_broken: bool = False
    """Whether a transaction was applied in part: the state is of no use any more."""

    def apply(self, changes: Sequence[Change], events: Sequence[Event] = (), *, is_synced: bool = False) -> Transaction:
        """Make a transaction and apply it at once: whoever comes next decides by what this one did.

        Args:
            changes: what it changes.
            events: with their keys, from `state.next_ordinal` on.
            is_synced: whether it has to be durable.
        """
        transaction = Transaction(
            number=self.state.last_transaction + 1,
            member=self.member,
            time_ms=self.now_ms,
            changes=tuple(changes),
            first_ordinal=self.state.next_ordinal,
            event_count=len(events),
            events=encode_events(events) if events else b"",
            durable=self.durable,
        )
        # Encoded before it is applied: what cannot be stored is refused alone, and changes nothing.
        try:
            data = encode_transaction(transaction)
        except (ValueError, OverflowError) as error:
            raise InvalidInputError(f"the changes cannot be stored: {error}. Nothing was changed.") from error
        self.is_broken = True
        self.state.apply(transaction)
        self.is_broken = False
        self.frames.append(data)
        self.is_synced = self.is_synced or is_synced
        return transaction


@dataclass(slots=True)
class _Request:
    """One thing that a thread wants done."""

    decide: Callable[[_Batch, _Request], object]
    """Applies what it changes to the batch; it raises before it has applied anything that must not stay."""
    is_commit: bool = False
    """Whether it waits for the events of earlier commits; what only takes, or goes back, does not."""
    error: Exception | None = None
    taking: Taking = field(default_factory=Taking)
    delivery: Delivery | None = None
    """The events that it committed."""


class FlowFileRepository:
    """A repository in a folder; threads share it, and so do processes.

    Args:
        fs: where the folder lies.
        home: the folder; made when it is absent.
        clock: tells the time.
        provenance: where events go to; None for queues whose history nobody needs.
        options: see `FlowFileOptions`.
        archive: the contents on the store; None where FlowFiles have none.
        keep_cut: keeps a copy of a torn tail of the log before it is cut.
        wait_seconds: how long to wait for the lock, which others hold for moments.
    """

    def __init__(
        self,
        fs: FileSystem,
        home: Path,
        clock: Clock,
        provenance: Provenance | None = None,
        options: FlowFileOptions | None = None,
        *,
        archive: ContentArchive | None = None,
        keep_cut: KeepCut = discard_cut,
        wait_seconds: float = _LOCK_SECONDS,
    ) -> None:
        self._fs = fs
        self._folder = LogFolder(home)
        self._clock = clock
        self._provenance = provenance
        self._options = options or FlowFileOptions()
        self._archive = archive
        self._wait_seconds = wait_seconds
        self._log = FlowFileLog(fs, self._folder, keep_cut)
        self._state: FlowFileState | None = None
        """None before the start and after a failure: it is read anew before anything else."""
        self._must_renew_log = False
        self._durable = -1
        self._prioritizers: dict[str, Prioritizer] = {}
        self._outbox = Outbox(provenance, f"the FlowFile repository {home}")
        self._written: dict[str, tuple[float, dict[str, None]]] = {}
        """Since when the sessions of this process have contents that they did not commit yet, and where those lie."""
        self._checkpointed = time.monotonic()
        self._is_closed = False
        self._membership = ExitStack()
        self.member = uuid.uuid4().hex
        """This process, for the others."""
        self._requests: GroupCommitQueue[_Request] = GroupCommitQueue(
            f"FlowFile repository {home}",
            self._commit,
            is_worth_waiting=lambda requests: any(request.is_commit for request in requests),
        )
        self._start()

    def connect(self, connection: Connection) -> None:
        """Make a queue, or give it other bounds; FlowFiles that wait keep the priorities that they have.

        Raises:
            ConfigurationError: the name is no plain name, or a prioritizer does not exist.
        """
        check_name("queue", connection.name)
        for name in connection.prioritizers:
            prioritizer(name)
        self._run(lambda batch, _: batch.apply([Connect(connection)], is_synced=True))

    def disconnect(self, queue: str) -> None:
        """Remove a queue that is empty.

        Raises:
            NotFoundError: there is no such queue.
            InvalidInputError: FlowFiles wait in it, or are being worked on.
        """

        def decide(batch: _Batch, request: _Request) -> None:
            count = _queue(batch.state, queue).size.count
            if count:
                raise InvalidInputError(
                    f"queue {queue!r}: expected an empty one, got {count} FlowFiles. Let them be consumed or drop them."
                )
            batch.apply([Disconnect(queue)], is_synced=True)

        self._run(decide)

    def connections(self) -> list[Connection]:
        """Return the queues."""
        return self._read(lambda state: [queue.connection for queue in state.queues.values()])

    def size(self, queue: str) -> QueueSize:
        """Return how much waits in a queue.

        Raises:
            NotFoundError: there is no such queue.
        """
        return self._read(lambda state: _queue(state, queue).size)

    def require_queue(self, queue: str) -> None:
        """Raise NotFoundError unless there is a queue of this name."""
        # Without the lock where it is known already: every transfer asks, and a commit looks again.
        state = self._state
        if state is None or queue not in state.queues:
            self.size(queue)

    def waiting(self, queue: str) -> list[Waiting]:
        """Return the FlowFiles of a queue that are in memory, first ones first; those in swap files come behind."""
        return self._read(lambda state: sorted(_queue(state, queue).waiting.values(), key=lambda item: item.order))

    @property
    def id(self) -> str:
        """The repository's id, given when its log was made."""
        return self._log.repository

    def replayed(self, plan: str) -> int:
        """Return how many events of a replay plan are done."""
        return self._read(lambda state: state.replayed(plan))

    def claims(self) -> dict[str, int]:
        """Return how many FlowFiles refer to each resource claim."""
        return self._read(lambda state: dict(state.claimants))

    def archived(self) -> dict[str, int]:
        """Return the resource claims in the archive, and since when each is there, in ms since the epoch."""
        return self._read(lambda state: dict(state.archived))

    def take(
        self,
        queue: str,
        session: str,
        *,
        count: int = 1,
        accepts: Callable[[FlowFile], bool] | None = None,
        component: str | None = None,
        with_penalised: bool = False,
    ) -> Taking:
        """Take the first FlowFiles of a queue for a session; nobody else gets them until it ends.

        Durability: none is needed: what a dead process had taken goes back.

        Args:
            queue: its name.
            session: the session's name, unique in this process.
            count: at most so many.
            accepts: chooses among the FlowFiles in memory; others are passed over and keep their places.
            component: who takes; while it yields it gets nothing.
            with_penalised: whether those that are penalised are taken too, after all others.

        Raises:
            NotFoundError: there is no such queue.
        """
        holder = f"{self.member}/{session}"

        def decide(batch: _Batch, request: _Request) -> None:
            chosen_from = _queue(batch.state, queue)
            if component is None or batch.state.yielded.get(component, 0) <= batch.now_ms:
                bounds = _TakeBounds(count, self._options.swap_threshold, with_penalised)
                request.taking = _take(batch, chosen_from, holder, bounds, accepts)

        return self._run(decide).taking

    def commit(self, work: Work) -> range:
        """Make a session's work true: FlowFiles and events together, or nothing of it; return the ids of the events.

        Durability: on return FlowFiles and events survive power loss. The range is empty when the events could not be
        brought into the journal at once; they wait in the log, and the next commit is refused until they are there.

        Raises:
            BackpressureError: a queue is full, or events of an earlier commit cannot be delivered; nothing was done.
            NotFoundError: a queue does not exist, or the session has not taken a FlowFile; nothing was done.
            InvalidInputError: a priority cannot be computed; nothing was done.
            ConflictError: another process went on with the replay plan meanwhile; nothing was done.
            StorageError: the disk refused; it is unknown whether the work is done.
        """
        holder = f"{self.member}/{work.session}"
        request = self._run(lambda batch, request: self._decide_commit(batch, request, holder, work), is_commit=True)
        if request.delivery is None:
            return range(0)
        # Not by whoever wrote the log: others write to it while the journal is synced.
        self._outbox.deliver()
        return request.delivery.event_ids

    def wrote(self, session: str, claim: str) -> None:
        """Note that a session wrote a content to a resource claim, which is not deleted before the session ends."""
        self._written.setdefault(session, (time.monotonic(), {}))[1][claim] = None

    def give_back(self, session: str, uuids: Sequence[str], *, penalised_until_ms: int = 0) -> None:
        """Return FlowFiles of a session to their places; those that it has not taken any more are passed over."""
        holder = f"{self.member}/{session}"

        def decide(batch: _Batch, request: _Request) -> None:
            taken = batch.state.taken
            mine = [uuid for uuid in uuids if uuid in taken and taken[uuid].session == holder]
            changes = self._unpin(batch.state, holder)
            # One that was taken while it was penalised waits on.
            waits = {uuid: max(taken[uuid].item.penalised_until_ms, penalised_until_ms) for uuid in mine}
            changes += _returned(mine, {uuid: until for uuid, until in waits.items() if until > batch.now_ms})
            if changes:
                batch.apply(changes)

        self._run(decide)

    def yield_component(self, component: str, milliseconds: int) -> None:
        """Let a component take nothing for a while."""
        self._run(lambda batch, _: batch.apply([Yield(component, batch.now_ms + milliseconds)]))

    def checkpoint(self) -> None:
        """Write a snapshot, release what no FlowFile refers to, and take back what dead processes had taken.

        Durability: on return the snapshot survives power loss.
        """
        due = self._requests.run_exclusively(self._checkpoint)
        if due and self._archive is not None:
            # Neither threads nor other processes wait meanwhile: which contents are held is read from events.
            held = self._archive.held(due)
            self._requests.run_exclusively(partial(self._purge, self._archive, due, held))

    def tick(self) -> None:
        """Do what is due: a snapshot, and what dead processes left. To be called every few seconds."""
        if time.monotonic() - self._checkpointed >= self._options.checkpoint_seconds:
            self.checkpoint()
        else:
            self._requests.run_exclusively(self._take_over)

    def close(self) -> None:
        """Give back what this process had taken, and end."""
        if self._is_closed:
            return
        self._requests.close("the FlowFile repository is closed. Open it again.")
        self._is_closed = True
        try:
            self._outbox.close()
            with suppress(CustodyError):  # what it left is taken over by others, as from a process that died
                self._outbox.deliver_again()
                with self._batch() as batch:
                    batch.apply([Gone(self.member), Delivered(self._outbox.delivered)])
        finally:
            self._log.close()
            self._membership.close()
            if self._outbox.refused:
                _LOGGER.warning(
                    "%s: events of %d commits wait to be delivered", self._folder.home, self._outbox.refused
                )
            else:
                self._fs.remove(self._member_lock(self.member))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _start(self) -> None:
        fs, folder = self._fs, self._folder
        fs.make_directory(folder.home)
        try:
            with self._lock():
                if not self._log.exists:
                    self._log.create(uuid.uuid4().hex, self._clock.now_ms())
                for path in (folder.swaps, folder.members):
                    fs.make_directory(path)
                # Before anything is taken: others tell by this lock whether the process lives.
                self._membership.enter_context(fs.lock(self._member_lock(self.member)))
                state = self._newest()
                needed = {swap.name for queue in state.queues.values() for swap in queue.swaps}
                # All swap files are written under the lock: one that the log does not know belongs to nobody.
                clear_swaps(fs, folder.swaps, needed | set(state.drained_swaps))
                self._clear_members(state)
            self._take_over()
        except BaseException:
            self._log.close()
            self._membership.close()
            raise

    def _run(self, decide: Callable[[_Batch, _Request], object], *, is_commit: bool = False) -> _Request:
        request = _Request(decide, is_commit)
        self._requests.put(request)
        if request.error is not None:
            raise request.error
        return request

    def _read(self, look: Callable[[FlowFileState], Result]) -> Result:
        """Return what is seen of the newest state; copied, as it changes afterwards."""

        def work() -> Result:
            with self._locked() as state:
                return look(state)

        return self._requests.run_exclusively(work)

    def _commit(self, requests: list[_Request]) -> None:
        """Decide and write what several threads want; the queue keeps all other threads off the state meanwhile."""
        try:
            self._outbox.deliver_again()
        except CustodyError as error:
            for request in requests:
                if request.is_commit:
                    request.error = BackpressureError(
                        f"events of an earlier commit could not be delivered: {error} Nothing was done."
                    )
            requests = [request for request in requests if request.error is None]
        with self._batch() as batch:
            for request in requests:
                try:
                    request.decide(batch, request)
                except Exception as error:
                    if batch.is_broken:
                        raise
                    request.error = error
            # A batch without a transaction writes nothing: then the log learns of the delivery with the next one.
            learned = self._outbox.delivered if batch.frames else ()
            if batch.frames:
                self._swap_out(batch)
                if learned:
                    batch.apply([Delivered(learned)])
        self._outbox.learned(learned)
        # Delivered without the lock: others go on with FlowFiles whose events are safe in the log.
        self._outbox.add([request.delivery for request in requests if request.delivery is not None])

    @contextmanager
    def _batch(self) -> Iterator[_Batch]:
        """Hold the lock and the newest state; write what the block applied, in one piece."""
        with self._locked() as state:
            batch = _Batch(state, self._clock.now_ms(), self.member, self._log.repository, self._durable)
            try:
                yield batch
                self._append(batch)
            except BaseException:
                # It is ahead of the log.
                self._state = None
                raise

    def _append(self, batch: _Batch) -> None:
        if not batch.frames:
            return
        is_synced = batch.is_synced and self._options.is_synced
        try:
            self._log.append(batch.frames, is_synced=is_synced)
        except OSError:
            self._must_renew_log = True
            # While the lock is held: afterwards another process may already act on what it finds there.
            self._log.undo()
            # Also what was appended before without a sync may be lost: nobody must append behind it.
            self._state = None
            with suppress(CustodyError):
                self._newest()
            raise
        if is_synced:
            self._durable = batch.state.last_transaction

    def _lock(self) -> AbstractContextManager[None]:
        return lock_folder(self._fs, self._folder, self._wait_seconds)

    @contextmanager
    def _locked(self) -> Iterator[FlowFileState]:
        """Hold the lock, and the state with all that was written until now."""
        with self._lock():
            yield self._newest()

    def _newest(self) -> FlowFileState:
        state, self._state = self._state, None
        if state is not None:
            try:
                followed = self._log.follow(state)
            except NotFoundError:
                # Others wrote snapshots meanwhile: what this process had read is part of them.
                state = None
        if state is None:
            state = self._log.recover(self._read_block)
            followed = True
        if followed and self._options.is_synced:
            # Somebody may have died between the write and the sync of what is acted upon from here on.
            try:
                self._log.sync()
            except OSError:
                self._must_renew_log = True
                raise
            self._durable = state.last_transaction
        if self._must_renew_log:
            # After a failed sync nobody knows what of the old log is on the disk, only what was read into the state.
            self._log.write_snapshot(state, self._clock.now_ms())
            self._must_renew_log = False
        self._state = state
        return state

    def _read_block(self, swap: SwapFile, number: int) -> list[Waiting]:
        return read_swap_block(self._fs, self._folder.swaps, swap, number)

    def _member_lock(self, member: str) -> Path:
        return self._folder.members / f"{member}.lock"

    def _decide_commit(self, batch: _Batch, request: _Request, holder: str, work: Work) -> None:
        state = batch.state
        _check_replay(state, work.replayed)
        taken = _taken_by(state, holder, work)
        if self._archive is not None:
            self._require_contents(state, work.placed, self._archive)
        full = {
            queue
            for queue in {placed.queue for placed in work.placed if _origin(taken, placed) != placed.queue}
            if _queue(state, queue).is_full
        }
        if full:
            raise BackpressureError(_full(state, sorted(full)))
        prioritizers = {
            name: self._prioritizers_of(_queue(state, name).connection)
            for name in {placed.queue for placed in work.placed}
        }
        changes: list[Change] = []
        for sequence, placed in enumerate(work.placed, state.next_sequence):
            key = key_of(placed.flowfile, prioritizers[placed.queue], placed.queue)
            changes.append(_placed(placed, taken.get(placed.flowfile.uuid), sequence, batch.now_ms, key))
        changes += [Leave(uuid_) for uuid_ in work.leaves]
        changes += _returned(work.returns, work.penalties)
        changes += self._unpin(state, holder)
        if work.replayed is not None:
            changes.append(work.replayed)
        if changes or work.events:
            keyed = with_keys(work.events, batch.repository, state.next_ordinal)
            transaction = batch.apply(changes, keyed, is_synced=True)
            request.delivery = Delivery(transaction.number, keyed) if keyed else None

    def _unpin(self, state: FlowFileState, holder: str) -> list[Change]:
        self._written.pop(holder.partition("/")[2], None)
        return [Pin(holder, ())] if holder in state.pins else []

    def _pin(self, batch: _Batch) -> None:
        """Tell other processes of the contents of sessions that take long: without that, they may go by their age."""
        since = time.monotonic() - PIN_SECONDS
        for session, (begun, claims) in list(self._written.items()):
            holder = f"{self.member}/{session}"
            if begun < since and len(batch.state.pins.get(holder, ())) != len(claims):
                batch.apply([Pin(holder, tuple(claims))])

    def _require_contents(self, state: FlowFileState, placed: Sequence[Placed], archive: ContentArchive) -> None:
        """Refuse a content that nobody refers to so far and that is gone: a replay may come too late.

        Raises:
            NotFoundError: it is gone.
            ContentContainerMissingError: its disk is away.
        """
        claims = {claim for item in placed if (claim := claim_text(item.flowfile)) is not None}
        for claim in claims - state.claimants.keys():
            if not archive.exists(claim):
                raise NotFoundError(
                    f"{claim}: the content is gone: it expired, or the archive had no room for it. Nothing was done."
                )

    def _prioritizers_of(self, connection: Connection) -> list[tuple[str, Prioritizer]]:
        for name in connection.prioritizers:
            if name not in self._prioritizers:
                self._prioritizers[name] = prioritizer(name)
        return [(name, self._prioritizers[name]) for name in connection.prioritizers]

    def _swap_out(self, batch: _Batch) -> None:
        """Write the last FlowFiles of queues that hold too many in memory to swap files."""
        options = self._options
        for queue in batch.state.queues.values():
            while len(queue.waiting) >= options.swap_threshold + options.swap_batch:
                items = queue.last(options.swap_batch)
                try:
                    swap = write_swap(
                        self._fs,
                        self._folder.swaps,
                        self._log.repository,
                        queue.connection.name,
                        items,
                        batch.now_ms,
                    )
                except OSError as error:
                    # They stay in memory, where they are safe: the next commit tries again.
                    _LOGGER.warning("queue %r: FlowFiles could not be swapped out: %s", queue.connection.name, error)
                    break
                batch.apply([SwapOut(swap)])

    def _take_over(self) -> None:
        self._outbox.deliver_again()
        with self._batch() as batch:
            self._pin(batch)
            self._reap(batch)

    def _reap(self, batch: _Batch) -> None:
        """Take back what dead processes had taken, and deliver their events."""
        dead = [
            member
            for member in sorted(batch.state.members - {self.member})
            if not self._fs.is_locked(self._member_lock(member))
        ]
        for member in dead:
            mine = [one for one in batch.state.undelivered.values() if one.member == member]
            if mine and self._provenance is None:
                continue
            if self._provenance is not None:
                deliver_missing(self._provenance, [event for one in mine for event in one.decoded_events()])
            batch.apply([Gone(member), Delivered(tuple(one.number for one in mine))])
            self._fs.remove(self._member_lock(member))

    def _clear_members(self, state: FlowFileState) -> None:
        """Remove the locks of dead processes that left nothing behind."""
        # Under the lock, which a starting process holds until it holds its own: none is taken for dead before that.
        for name in self._fs.list(self._folder.members):
            path = self._folder.members / name
            if name.removesuffix(".lock") not in state.members and not self._fs.is_locked(path):
                self._fs.remove(path)

    def _checkpoint(self) -> dict[str, int]:
        """Write a snapshot; return which contents of the archive may go, and since when each is there."""
        self._take_over()
        with self._batch() as batch:
            learned = self._outbox.delivered
            if learned:
                batch.apply([Delivered(learned)])
        self._outbox.learned(learned)
        with self._locked() as state:
            drained = list(state.drained_swaps)
            state.drained_swaps.clear()
            try:
                self._log.write_snapshot(state, self._clock.now_ms())
            except BaseException:
                self._state, self._must_renew_log = None, True
                raise
            for name in drained:
                self._fs.remove(self._folder.swaps / name)
        self._checkpointed = time.monotonic()
        with self._batch() as batch:
            # Only now: as long as an older snapshot could come back, it may refer to them.
            if batch.state.releasable:
                batch.apply([Released(tuple(batch.state.releasable))])
            if self._archive is None:
                return {}
            free = _free(batch.state)
            return {claim: free[claim] for claim in self._archive.due(free, batch.now_ms)}

    def _purge(self, archive: ContentArchive, due: Mapping[str, int], held: Collection[str]) -> None:
        with self._batch() as batch:
            free = _free(batch.state)
            # Looked at again, and under the lock: a FlowFile may refer to one of them since, and none does from here to
            # its deletion.
            going = [claim for claim, since in due.items() if free.get(claim) == since and claim not in held]
            if going:
                archive.delete(going)
                batch.apply([Purged(tuple(going))])


def _free(state: FlowFileState) -> dict[str, int]:
    """Return the contents of the archive that no session has just written to, and since when each is there."""
    pinned = {claim for claims in state.pins.values() for claim in claims}
    return {claim: since for claim, since in state.archived.items() if claim not in pinned}


def _taken_by(state: FlowFileState, holder: str, work: Work) -> dict[str, Waiting]:
    """Return the FlowFiles of a work that its session has taken; others of it have to be new."""
    taken: dict[str, Waiting] = {}
    uuids = [*(placed.flowfile.uuid for placed in work.placed), *work.leaves, *work.returns]
    for uuid_ in uuids:
        held = state.taken.get(uuid_)
        if held is not None and held.session == holder:
            taken[uuid_] = held.item
        elif held is not None or uuid_ in state.places or uuid_ in work.leaves or uuid_ in work.returns:
            raise NotFoundError(
                f"FlowFile {uuid_}: this session has not taken it, or not any more. Roll the session back."
            )
    if len(set(uuids)) < len(uuids):
        raise InvalidInputError("expected each FlowFile of a commit to go one way, got one that goes several.")
    return taken


def _returned(uuids: Iterable[str], penalties: Mapping[str, int]) -> list[Return]:
    """Return the changes by which FlowFiles go back, each with its penalty."""
    by_penalty: dict[int, list[str]] = {}
    for uuid_ in uuids:
        by_penalty.setdefault(penalties.get(uuid_, 0), []).append(uuid_)
    return [Return(tuple(some), until) for until, some in by_penalty.items()]


def _placed(placed: Placed, before: Waiting | None, sequence: int, now_ms: int, key: Key) -> Change:
    """Return the change by which a FlowFile enters a queue: what changed of it, or all of a new one."""
    flowfile = placed.flowfile
    if before is None:
        return Enter(Waiting(flowfile, placed.queue, sequence, now_ms, key, placed.penalised_until_ms))
    former = before.flowfile
    attributes: dict[str, str | None] = {}
    # Most often nothing changed: one comparison then, and not one for each attribute.
    if former.attributes != flowfile.attributes:
        old, new = former.attributes, flowfile.attributes
        attributes = {name: value for name, value in new.items() if old.get(name) != value}
        attributes |= {name: None for name in old if name not in new}
    has_new_content = flowfile.size != former.size or flowfile.content_claim != former.content_claim
    return Move(
        uuid=flowfile.uuid,
        queue=placed.queue,
        sequence=sequence,
        queued_ms=now_ms,
        key=key,
        penalised_until_ms=placed.penalised_until_ms,
        attributes=attributes,
        has_new_content=has_new_content,
        size=flowfile.size if has_new_content else 0,
        content_claim=flowfile.content_claim if has_new_content else None,
    )


@dataclass(frozen=True, slots=True)
class _TakeBounds:
    """What a taking may take."""

    count: int
    penalised_max: int
    """So many penalised FlowFiles in memory keep more of a queue from coming back from its swap files."""
    with_penalised: bool


def _take(
    batch: _Batch, queue: FlowFileQueue, holder: str, bounds: _TakeBounds, accepts: Callable[[FlowFile], bool] | None
) -> Taking:
    """Take the first FlowFiles of a queue; blocks of swap files come back as far as they are needed."""
    chosen: list[Waiting] = []
    expired: list[Waiting] = []
    passed: list[Waiting] = []
    try:
        while len(chosen) < bounds.count and len(expired) < _EXPIRED_MAX:
            item = _first(batch, queue, bounds)
            if item is None:
                break
            # Out of the queue while the next ones are looked at; all go back below, as taking is a change of its own.
            queue.remove(item.uuid)
            if _is_expired(queue.connection, item, batch.now_ms):
                expired.append(item)
            elif accepts is None:
                chosen.append(item)
            else:
                passed.append(item)
                if accepts(item.flowfile):
                    chosen.append(passed.pop())
    finally:
        for item in (*chosen, *expired, *passed):
            queue.put(item)
    if chosen or expired:
        batch.apply([Take(tuple(item.uuid for item in (*chosen, *expired)), holder)])
    return Taking(tuple(chosen), tuple(expired))


def _first(batch: _Batch, queue: FlowFileQueue, bounds: _TakeBounds) -> Waiting | None:
    while (swap := queue.next_swap(batch.now_ms, bounds.penalised_max)) is not None:
        batch.apply([SwapIn(swap.name)])
    first = queue.first(batch.now_ms)
    return queue.first_penalised() if first is None and bounds.with_penalised else first


def _is_expired(connection: Connection, item: Waiting, now_ms: int) -> bool:
    return 0 < connection.expiration_ms < now_ms - item.flowfile.entry_date


def _queue(state: FlowFileState, name: str) -> FlowFileQueue:
    queue = state.queues.get(name)
    if queue is None:
        raise NotFoundError(
            f"there is no queue {name!r}. Connect it first; there are: {', '.join(state.queues) or 'none'}."
        )
    return queue


def _origin(taken: Mapping[str, Waiting], placed: Placed) -> str | None:
    before = taken.get(placed.flowfile.uuid)
    return None if before is None else before.queue


def _full(state: FlowFileState, names: Sequence[str]) -> str:
    sizes = [
        f"{name!r} ({size.count:,} FlowFiles, {size.content_bytes:,} bytes)"
        for name in names
        for size in [state.queues[name].size]
    ]
    return f"full: the queue {', '.join(sizes)}. Nothing was committed: let its consumer work, or raise its bounds."


def _check_replay(state: FlowFileState, replayed: Replayed | None) -> None:
    """Refuse to do again what another process did of a replay plan since this one looked."""
    if replayed is not None and state.replayed(replayed.plan) != replayed.first:
        raise ConflictError(
            f"replay plan {replayed.plan}: expected {replayed.first} events to be done, "
            f"got {state.replayed(replayed.plan)}: another process runs it. Nothing was done here."
        )
