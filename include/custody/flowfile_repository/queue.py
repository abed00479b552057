"""A queue: the FlowFiles that wait between two steps, the first ones in memory and the rest in swap files.

What is in memory is a heap by priority, and beside it those that are penalised, by the end of their penalty. Swap files
are sorted runs: the first of the queue is the least of the heap and of the runs' next blocks, so FlowFiles come in the
order of their priorities wherever they lie.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from custody.flowfile_repository.records import Connection, Order, SwapFile, Waiting


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
    taken_count: int = 0
    taken_bytes: int = 0
    waiting_bytes: int = 0
    _heap: list[tuple[Order, str]] = field(default_factory=list)
    _penalised: list[tuple[int, str]] = field(default_factory=list)

    @property
    def size(self) -> QueueSize:
        """How much waits here; what was taken counts until its session ends."""
        swapped = sum(swap.count for swap in self.swaps)
        swapped_bytes = sum(swap.content_bytes for swap in self.swaps)
        return QueueSize(
            count=len(self.waiting) + swapped + self.taken_count,
            content_bytes=self.waiting_bytes + swapped_bytes + self.taken_bytes,
            in_memory=len(self.waiting),
            swapped=swapped,
            swap_files=len(self.swaps),
            taken=self.taken_count,
            penalised=len(self._penalised),
        )

    @property
    def is_full(self) -> bool:
        """Whether it takes no more in: what waits reaches one of the bounds."""
        size, connection = self.size, self.connection
        return (0 < connection.count_max <= size.count) or (0 < connection.bytes_max <= size.content_bytes)

    def put(self, item: Waiting) -> None:
        """Add a FlowFile."""
        self.waiting[item.uuid] = item
        self.waiting_bytes += item.flowfile.size
        if item.penalised_until_ms:
            heapq.heappush(self._penalised, (item.penalised_until_ms, item.uuid))
        else:
            heapq.heappush(self._heap, (item.order, item.uuid))

    def remove(self, uuid: str) -> Waiting:
        """Take a FlowFile out of memory; its entries in the heaps stay until they come up."""
        item = self.waiting.pop(uuid)
        self.waiting_bytes -= item.flowfile.size
        # Entries that lead nowhere are passed over when they come up; rebuilt when they are most of the heap.
        if len(self._heap) > 64 and len(self._heap) > 4 * len(self.waiting):
            self._heap = [(w.order, w.uuid) for w in self.waiting.values() if not self._is_penalised(w)]
            heapq.heapify(self._heap)
        return item

    def first(self, now_ms: int) -> Waiting | None:
        """Return the first FlowFile in memory that may be taken now; it stays where it is."""
        self._end_penalties(now_ms)
        while self._heap:
            order, uuid = self._heap[0]
            item = self.waiting.get(uuid)
            # Of one that went back with a penalty the entry from before is still there.
            if item is not None and item.order == order and item.penalised_until_ms <= now_ms:
                return item
            heapq.heappop(self._heap)
        return None

    def next_swap(self, now_ms: int) -> SwapFile | None:
        """Return the swap file whose next block comes before everything in memory, None when none does."""
        if not self.swaps:
            return None
        swap = min(self.swaps, key=lambda one: one.first)
        first = self.first(now_ms)
        return swap if first is None or swap.first < first.order else None

    def last(self, count: int) -> list[Waiting]:
        """Return the FlowFiles in memory with the lowest priorities, least first."""
        return sorted(self.waiting.values(), key=lambda item: item.order)[-count:]

    def next_penalty_end_ms(self) -> int | None:
        """Return when the next penalty ends, None when none is penalised."""
        return self._penalised[0][0] if self._penalised else None

    def _is_penalised(self, item: Waiting) -> bool:
        return (item.penalised_until_ms, item.uuid) in self._penalised if item.penalised_until_ms else False

    def _end_penalties(self, now_ms: int) -> None:
        while self._penalised and self._penalised[0][0] <= now_ms:
            until, uuid = heapq.heappop(self._penalised)
            item = self.waiting.get(uuid)
            if item is not None and item.penalised_until_ms == until:
                heapq.heappush(self._heap, (item.order, uuid))
