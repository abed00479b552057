"""A queue: the FlowFiles that wait between two steps, the first ones in memory and the rest in swap files.

What is in memory is a heap by priority, and beside it those that are penalised, by the end of their penalty. Swap files
are sorted runs: the first of the queue is the least of the heap and of the runs' next blocks, so FlowFiles come in the
order of their priorities wherever they lie.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec

from custody.flowfile_repository.records import Connection, Order, SwapFile, Waiting

_order = attrgetter("order")


@dataclass(frozen=True, slots=True)
class QueueSize:
    """How much waits in a queue; bytes of content."""

    count: int
    content_bytes: int
    in_memory: int
    swapped: int
    swap_files: int
    taken: int
    penalised: int


@dataclass
class FlowFileQueue:
    """One queue. It changes only by what the log tells, the same way in every process."""

    connection: Connection
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """In memory, by uuid; in no order."""
    swaps: list[SwapFile] = field(default_factory=list)
    """Changed by `add_swap` and `advance_swap` alone, which count what is in them."""
    taken_count: int = 0
    taken_bytes: int = 0
    waiting_bytes: int = 0
    _heap: list[tuple[Order, str]] = field(default_factory=list)
    _penalties: list[tuple[int, str]] = field(default_factory=list)
    _penalised: dict[str, int] = field(default_factory=dict)
    """The end of the penalty of those that must not be taken yet, by uuid."""
    _swapped_count: int = 0
    _swapped_bytes: int = 0
    _first_swap: SwapFile | None = None

    @property
    def size(self) -> QueueSize:
        """How much waits here; what was taken counts until its session ends."""
        return QueueSize(
            count=self._count,
            content_bytes=self._content_bytes,
            in_memory=len(self.waiting),
            swapped=self._swapped_count,
            swap_files=len(self.swaps),
            taken=self.taken_count,
            penalised=len(self._penalised),
        )

    @property
    def is_full(self) -> bool:
        """Whether it takes no more in: what waits reaches one of the bounds."""
        connection = self.connection
        return (0 < connection.count_max <= self._count) or (0 < connection.bytes_max <= self._content_bytes)

    @property
    def _count(self) -> int:
        return len(self.waiting) + self._swapped_count + self.taken_count

    @property
    def _content_bytes(self) -> int:
        return self.waiting_bytes + self._swapped_bytes + self.taken_bytes

    def put(self, item: Waiting) -> None:
        """Add a FlowFile."""
        self.waiting[item.uuid] = item
        self.waiting_bytes += item.flowfile.size
        if item.penalised_until_ms:
            heapq.heappush(self._penalties, (item.penalised_until_ms, item.uuid))
            self._penalised[item.uuid] = item.penalised_until_ms
        else:
            heapq.heappush(self._heap, (item.order, item.uuid))

    def remove(self, uuid: str) -> Waiting:
        """Take a FlowFile out of memory; its entries in the heaps stay until they come up."""
        item = self.waiting.pop(uuid)
        self.waiting_bytes -= item.flowfile.size
        self._penalised.pop(uuid, None)
        # Entries that lead nowhere are passed over when they come up; rebuilt when they are most of the heap.
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self.waiting):
            self._heap = [(w.order, w.uuid) for w in self.waiting.values() if w.uuid not in self._penalised]
            heapq.heapify(self._heap)
        return item

    def first(self, now_ms: int) -> Waiting | None:
        """Return the first FlowFile in memory that may be taken now; it stays where it is."""
        self._end_penalties(now_ms)
        while self._heap:
            order, uuid = self._heap[0]
            item = self.waiting.get(uuid)
            # One that came back with a penalty has an entry of before: it is not its turn.
            if item is not None and uuid not in self._penalised and item.order == order:
                return item
            heapq.heappop(self._heap)
        return None

    def first_penalised(self) -> Waiting | None:
        """Return the FlowFile in memory whose penalty ends first; it stays where it is."""
        while self._penalties:
            until, uuid = self._penalties[0]
            if self._penalised.get(uuid) == until:
                return self.waiting[uuid]
            heapq.heappop(self._penalties)
        return None

    def next_swap(self, now_ms: int, penalised_max: int) -> SwapFile | None:
        """Return the swap file whose next block comes before everything in memory, None when none does.

        None does while `penalised_max` FlowFiles in memory are penalised: swap files may hold more of them, and would
        all be read in search of one that may be taken.
        """
        swap = self._first_swap
        if swap is None or len(self._penalised) >= penalised_max:
            return None
        first = self.first(now_ms)
        return swap if first is None or swap.first < first.order else None

    def add_swap(self, swap: SwapFile) -> None:
        """Add a swap file, of which blocks are still out."""
        self.swaps.append(swap)
        self._swapped_count += swap.count
        self._swapped_bytes += swap.content_bytes
        self._first_swap = min(self.swaps, key=lambda one: one.first)

    def advance_swap(self, name: str) -> SwapFile:
        """Count the next block of a swap file as back, and return what is left; an empty one goes.

        Raises:
            StopIteration: there is no such swap file.
        """
        place = next(i for i, swap in enumerate(self.swaps) if swap.name == name)
        swap = self.swaps[place]
        block = swap.blocks[swap.next_block]
        self._swapped_count -= block.count
        self._swapped_bytes -= block.bytes
        self.swaps[place] = rest = msgspec.structs.replace(swap, next_block=swap.next_block + 1)
        if rest.is_empty:
            del self.swaps[place]
        self._first_swap = min(self.swaps, key=lambda one: one.first, default=None)
        return rest

    def last(self, count: int) -> list[Waiting]:
        """Return the FlowFiles in memory with the lowest priorities, least first."""
        return sorted(self.waiting.values(), key=_order)[-count:]

    def next_penalty_end_ms(self) -> int | None:
        """Return when the next penalty ends, None when none is penalised."""
        return min(self._penalised.values(), default=None)

    def _end_penalties(self, now_ms: int) -> None:
        while self._penalties and self._penalties[0][0] <= now_ms:
            until, uuid = heapq.heappop(self._penalties)
            # Others are of a FlowFile that left meanwhile, or came back with another penalty.
            if self._penalised.get(uuid) == until:
                del self._penalised[uuid]
                heapq.heappush(self._heap, (self.waiting[uuid].order, uuid))
