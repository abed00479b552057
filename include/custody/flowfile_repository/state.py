"""The state of a FlowFile repository: what the log says, applied one transaction at a time.

Every process that uses a repository applies the same transactions and has the same state. Nothing here reads a clock,
rolls a die or looks at the disk, but for the FlowFiles of swap files, which never change.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, singledispatchmethod

import msgspec

from custody.errors import CorruptionError
from custody.flow.content import ResourceClaim
from custody.flow.flowfile import FlowFile, with_changes
from custody.flowfile_repository.queue import FlowFileQueue
from custody.flowfile_repository.records import (
    Change,
    Connect,
    Delivered,
    Disconnect,
    Enter,
    Gone,
    Leave,
    Move,
    Pin,
    Purged,
    Released,
    Replayed,
    Return,
    SnapshotSummary,
    SwapFile,
    SwapIn,
    SwapOut,
    Take,
    Transaction,
    Waiting,
    Yield,
)
from custody.model import ContentClaim

REPLAY_DAYS = 90
"""So long a replay plan can be run."""
_REPLAY_KEPT_MS = (REPLAY_DAYS + 1) * 24 * 3600 * 1000
"""So long its progress is kept: for a day more, as clocks differ."""

ReadBlock = Callable[[SwapFile, int], list[Waiting]]
"""Reads one block of a swap file."""


def claim_text(flowfile: FlowFile) -> str | None:
    """Return the resource claim of a FlowFile's content as one text, None without one of custody's own."""
    claim = flowfile.content_claim
    return None if claim is None else _resource_text(claim.container, claim.section, claim.identifier)


# Many contents share a file, and each is asked for several times: the names are checked once.
@lru_cache(maxsize=4096)
def _resource_text(container: str | None, section: str | None, identifier: str | None) -> str | None:
    resource = ResourceClaim.of(ContentClaim(container=container, section=section, identifier=identifier))
    return None if resource is None else resource.text


@dataclass(slots=True)
class TakenFlowFile:
    """A FlowFile that a session works on, as it was when it was taken."""

    item: Waiting
    session: str
    """`MEMBER/SESSION`."""

    @property
    def member(self) -> str:
        """The process of the session."""
        return self.session.partition("/")[0]


@dataclass
class FlowFileState:
    """All FlowFiles of a repository with their queues, and what has still to be done for them."""

    read_block: ReadBlock
    queues: dict[str, FlowFileQueue] = field(default_factory=dict)
    taken: dict[str, TakenFlowFile] = field(default_factory=dict)
    undelivered: dict[int, Transaction] = field(default_factory=dict)
    """Transactions whose events are not known to be in the journal, without their changes, by number."""
    claimants: Counter[str] = field(default_factory=Counter)
    """How many FlowFiles refer to each resource claim."""
    releasable: dict[str, None] = field(default_factory=dict)
    """Resource claims that no FlowFile refers to any more and that were not archived yet, in order."""
    archived: dict[str, int] = field(default_factory=dict)
    """Resource claims that were released, and since when."""
    pins: dict[str, list[str]] = field(default_factory=dict)
    """Resource claims that long sessions wrote to, by `MEMBER/SESSION`."""
    yielded: dict[str, int] = field(default_factory=dict)
    drained_swaps: dict[str, None] = field(default_factory=dict)
    """Swap files of which all came back; the log may need them until the next snapshot."""
    places: dict[str, str] = field(default_factory=dict)
    """The queue of each FlowFile that waits in memory, by uuid."""
    replays: dict[str, tuple[int, int]] = field(default_factory=dict)
    """How many events of each replay plan are done, and when the plan was made."""
    last_transaction: int = -1
    next_sequence: int = 0
    next_ordinal: int = 0

    @classmethod
    def restored(
        cls, read_block: ReadBlock, last: int, flowfiles: Iterable[Waiting], summary: SnapshotSummary
    ) -> FlowFileState:
        """Return the state of a snapshot whose last transaction was `last`."""
        state = cls(read_block)
        for connection in summary.connections:
            state.queues[connection.name] = FlowFileQueue(connection)
        for item in flowfiles:
            session = summary.taken.get(item.uuid)
            if session is None:
                state._put(item)
            else:
                state._hold(item, session)
            state._claim(item.flowfile)
        for swap in summary.swaps:
            state.queues[swap.queue].add_swap(swap)
            for block in swap.blocks[swap.next_block :]:
                state.claimants.update(block.claims)
        state.undelivered = {transaction.number: transaction for transaction in summary.undelivered}
        state.releasable = dict.fromkeys(summary.releasable)
        state.archived = dict(summary.archived)
        state.pins = dict(summary.pins)
        state.yielded = dict(summary.yielded)
        state.replays = dict(summary.replays)
        state.drained_swaps = dict.fromkeys(summary.drained_swaps)
        state.last_transaction = last
        state.next_sequence, state.next_ordinal = summary.next_sequence, summary.next_ordinal
        return state

    def summary(self) -> SnapshotSummary:
        """Return what a snapshot holds beside the FlowFiles of `flowfiles`."""
        return SnapshotSummary(
            flowfiles=len(self.taken) + sum(len(queue.waiting) for queue in self.queues.values()),
            next_sequence=self.next_sequence,
            next_ordinal=self.next_ordinal,
            connections=[queue.connection for queue in self.queues.values()],
            swaps=[swap for queue in self.queues.values() for swap in queue.swaps],
            taken={uuid: taken.session for uuid, taken in self.taken.items()},
            undelivered=list(self.undelivered.values()),
            releasable=list(self.releasable),
            archived=self.archived,
            pins=self.pins,
            yielded=self.yielded,
            replays=self.replays,
            drained_swaps=list(self.drained_swaps),
        )

    def flowfiles(self) -> Iterator[Waiting]:
        """Yield the FlowFiles in memory, those that are being worked on too."""
        for queue in self.queues.values():
            yield from queue.waiting.values()
        yield from (taken.item for taken in self.taken.values())

    @property
    def members(self) -> set[str]:
        """The members that have taken FlowFiles, pinned contents, or have to deliver events."""
        pinning = {session.partition("/")[0] for session in self.pins}
        return pinning | {t.member for t in self.taken.values()} | {t.member for t in self.undelivered.values()}

    def apply(self, transaction: Transaction) -> None:
        """Apply the next transaction.

        Raises:
            CorruptionError: it is not the next one, or changes what is not there: the log is not what was written.
        """
        if transaction.number != self.last_transaction + 1:
            raise CorruptionError(
                f"FlowFile log: expected transaction {self.last_transaction + 1}, got {transaction.number}. "
                "A file of the log is missing or of another repository."
            )
        try:
            for change in transaction.changes:
                _dispatch(type(change))(self, change, transaction)
        except KeyError as error:
            raise CorruptionError(
                f"FlowFile log: transaction {transaction.number} changes {error}, which is not there."
            ) from error
        if transaction.event_count:
            self.undelivered[transaction.number] = msgspec.structs.replace(transaction, changes=())
        self.next_ordinal = max(self.next_ordinal, transaction.first_ordinal + transaction.event_count)
        self.last_transaction = transaction.number

    @singledispatchmethod
    def _apply(self, change: Change, transaction: Transaction) -> None:
        raise CorruptionError(f"FlowFile log: transaction {transaction.number} has an unknown change {change!r}.")

    @_apply.register
    def _(self, change: Enter, _transaction: Transaction) -> None:
        # A FlowFile that was taken can be written with all its values too.
        self._let_go(change.waiting.uuid)
        self._put(change.waiting)
        self._claim(change.waiting.flowfile)

    @_apply.register
    def _(self, change: Move, _transaction: Transaction) -> None:
        before = self._let_go(change.uuid)
        if before is None:
            raise KeyError(change.uuid)
        flowfile = before.flowfile
        if change.attributes:
            merged = with_changes(flowfile.attributes, change.attributes.items())
            flowfile = msgspec.structs.replace(flowfile, attributes=merged)
        if change.has_new_content:
            flowfile = msgspec.structs.replace(flowfile, size=change.size, content_claim=change.content_claim)
        self._put(
            Waiting(flowfile, change.queue, change.sequence, change.queued_ms, change.key, change.penalised_until_ms)
        )
        self._claim(flowfile)

    @_apply.register
    def _(self, change: Leave, _transaction: Transaction) -> None:
        if self._let_go(change.uuid) is None:
            raise KeyError(change.uuid)

    @_apply.register
    def _(self, change: Take, _transaction: Transaction) -> None:
        for uuid in change.uuids:
            queue = self._queue_of(uuid)
            self._hold(queue.remove(uuid), change.session)

    @_apply.register
    def _(self, change: Return, _transaction: Transaction) -> None:
        for uuid in change.uuids:
            item = self._released(uuid).item
            self._put(msgspec.structs.replace(item, penalised_until_ms=change.penalised_until_ms))

    @_apply.register
    def _(self, change: Gone, _transaction: Transaction) -> None:
        for uuid in [uuid for uuid, taken in self.taken.items() if taken.member == change.member]:
            self._put(self._released(uuid).item)
        self.pins = {name: claims for name, claims in self.pins.items() if not name.startswith(f"{change.member}/")}

    @_apply.register
    def _(self, change: SwapOut, _transaction: Transaction) -> None:
        queue, blocks = self.queues[change.swap.queue], change.swap.blocks
        # The last ones of the queue, and not the file's: one whose disk is damaged must not shut the other queues.
        items = queue.last(sum(block.count for block in blocks))
        if [item.order for item in items[:1]] != [block.first for block in blocks[:1]]:
            raise KeyError(f"the first FlowFile of the swap file {change.swap.name}")
        for item in items:
            # Claims stay counted: the FlowFile is elsewhere, and not gone.
            self.places.pop(item.uuid)
            queue.remove(item.uuid)
        queue.add_swap(change.swap)

    @_apply.register
    def _(self, change: SwapIn, _transaction: Transaction) -> None:
        queue, swap = self._swap(change.name)
        for item in self.read_block(swap, swap.next_block):
            self._put(item)
        if queue.advance_swap(change.name).is_empty:
            self.drained_swaps[swap.name] = None

    @_apply.register
    def _(self, change: Connect, _transaction: Transaction) -> None:
        queue = self.queues.get(change.connection.name)
        if queue is None:
            self.queues[change.connection.name] = FlowFileQueue(change.connection)
        else:
            queue.connection = change.connection

    @_apply.register
    def _(self, change: Disconnect, _transaction: Transaction) -> None:
        del self.queues[change.queue]

    @_apply.register
    def _(self, change: Delivered, transaction: Transaction) -> None:
        for number in change.transactions:
            self.undelivered.pop(number, None)

    @_apply.register
    def _(self, change: Yield, transaction: Transaction) -> None:
        self.yielded[change.component] = change.until_ms
        # What is over says nothing any more, and components come and go.
        self.yielded = {name: until for name, until in self.yielded.items() if until > transaction.time_ms}

    @_apply.register
    def _(self, change: Released, transaction: Transaction) -> None:
        for claim in change.claims:
            # One that a FlowFile refers to again since it was listed is not archived.
            if claim in self.releasable:
                del self.releasable[claim]
                self.archived[claim] = transaction.time_ms

    @_apply.register
    def _(self, change: Pin, _transaction: Transaction) -> None:
        self.pins.pop(change.session, None)
        if change.claims:
            self.pins[change.session] = list(change.claims)

    @_apply.register
    def _(self, change: Purged, _transaction: Transaction) -> None:
        for claim in change.claims:
            self.archived.pop(claim, None)

    def _swap(self, name: str) -> tuple[FlowFileQueue, SwapFile]:
        for queue in self.queues.values():
            for swap in queue.swaps:
                if swap.name == name:
                    return queue, swap
        raise KeyError(name)

    @_apply.register
    def _(self, change: Replayed, transaction: Transaction) -> None:
        # The progress outlives the FlowFiles: that one has left the flow is no reason to send it again.
        self.replays[change.plan] = change.stop, change.plan_ms
        self.replays = {
            plan: progress
            for plan, progress in self.replays.items()
            if transaction.time_ms - progress[1] < _REPLAY_KEPT_MS
        }

    def replayed(self, plan: str) -> int:
        """Return how many events of a replay plan are done."""
        return self.replays.get(plan, (0, 0))[0]

    def _queue_of(self, uuid: str) -> FlowFileQueue:
        return self.queues[self.places.pop(uuid)]

    def _put(self, item: Waiting) -> None:
        self.queues[item.queue].put(item)
        self.places[item.uuid] = item.queue
        self.next_sequence = max(self.next_sequence, item.sequence + 1)

    def _hold(self, item: Waiting, session: str) -> None:
        queue = self.queues[item.queue]
        queue.taken_count += 1
        queue.taken_bytes += item.flowfile.size
        self.taken[item.uuid] = TakenFlowFile(item, session)

    def _released(self, uuid: str) -> TakenFlowFile:
        """Take a FlowFile out of those that are worked on."""
        taken = self.taken.pop(uuid)
        queue = self.queues[taken.item.queue]
        queue.taken_count -= 1
        queue.taken_bytes -= taken.item.flowfile.size
        return taken

    def _let_go(self, uuid: str) -> Waiting | None:
        """End what is known of a FlowFile that was taken: it changes, or leaves. None for a new one."""
        if uuid not in self.taken:
            return None
        item = self._released(uuid).item
        claim = claim_text(item.flowfile)
        if claim is not None:
            self.claimants[claim] -= 1
            if self.claimants[claim] <= 0:
                del self.claimants[claim]
                self.releasable[claim] = None
        return item

    def _claim(self, flowfile: FlowFile) -> None:
        claim = claim_text(flowfile)
        if claim is not None:
            self.claimants[claim] += 1
            # One that was to be released and is referred to again, by a replay or the next step, stays.
            self.releasable.pop(claim, None)
            self.archived.pop(claim, None)


# A singledispatchmethod is bound anew at each call, which costs as much as most changes.
_dispatch = FlowFileState.__dict__["_apply"].dispatcher.dispatch
