"""A look at a FlowFile repository from outside: which FlowFiles wait where, without a lock, a writer slot or a change.

Others may work meanwhile. A look shows one state that there was: that of the last snapshot and of the transactions
behind it, as far as they were written.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path

import msgspec

from custody.errors import CustodyError, NotFoundError
from custody.flow.flowfile import FlowFile
from custody.flowfile_repository.log import FlowFileLog, LogFolder
from custody.flowfile_repository.queue import FlowFileQueue
from custody.flowfile_repository.records import Connection, SwapFile, Waiting
from custody.flowfile_repository.state import FlowFileState
from custody.flowfile_repository.swap import read_swap_block
from custody.vfs import FileSystem

_TRIES = 5


class QueueStatus(msgspec.Struct, frozen=True, kw_only=True):
    """One queue with its bounds; sizes in bytes of content, times in ms since the epoch."""

    connection: Connection
    count: int
    """All FlowFiles of the queue, those that are being worked on and those in swap files too."""
    content_bytes: int
    taken: int
    penalised: int
    swapped: int
    swap_files: int
    oldest_ms: int | None
    """Since when the FlowFile waits that came first, in memory or in a swap file; None where none waits."""
    is_full: bool


class QueuedFlowFile(msgspec.Struct, frozen=True, kw_only=True):
    """One FlowFile of a queue; times in ms since the epoch."""

    flowfile: FlowFile
    queued_ms: int
    state: str
    """`waiting`, `penalised`, or `taken` by a session that is not over."""
    penalised_until_ms: int = 0
    is_swapped: bool = False


class FlowFileLook:
    """One state of a FlowFile repository, as it was read.

    Args:
        fs: where the folder lies.
        home: the folder of the FlowFile repository.
        now_ms: the time by which penalties are over or not.

    Raises:
        CorruptionError: log or snapshot is damaged; the message names file and offset.
    """

    def __init__(self, fs: FileSystem, home: Path, now_ms: int) -> None:
        self._now_ms = now_ms
        folder = LogFolder(home)
        self._read_block = partial(read_swap_block, fs, folder.swaps)
        self._state = _read_state(fs, folder, FlowFileState(self._read_block))

    def queues(self) -> list[QueueStatus]:
        """Return the queues, by name."""
        return [self._status(queue) for _, queue in sorted(self._state.queues.items())]

    def check(self) -> None:
        """Read all that waits, in swap files too.

        Raises:
            CorruptionError: a block of a swap file is damaged; the message names file and offset.
        """
        for queue in self._state.queues.values():
            for swap in queue.swaps:
                for number in range(swap.next_block, len(swap.blocks)):
                    self._read_block(swap, number)

    def flowfiles(self, queue: str, count: int) -> list[QueuedFlowFile]:
        """Return the first FlowFiles of a queue in its order, at most `count`; those that are being worked on last.

        Raises:
            NotFoundError: there is no such queue.
        """
        chosen = self._state.queues.get(queue)
        if chosen is None:
            names = ", ".join(sorted(self._state.queues)) or "none"
            raise NotFoundError(f"there is no queue {queue!r}. There are: {names}.")
        waiting = list(islice(self._waiting(chosen), count))
        taken = (one.item for one in self._state.taken.values() if one.item.queue == queue)
        return [
            *waiting,
            *(
                QueuedFlowFile(flowfile=item.flowfile, queued_ms=item.queued_ms, state="taken")
                for item in islice(taken, count - len(waiting))
            ),
        ]

    def _status(self, queue: FlowFileQueue) -> QueueStatus:
        size = queue.size
        in_memory = (item.queued_ms for item in queue.waiting.values())
        return QueueStatus(
            connection=queue.connection,
            count=size.count,
            content_bytes=size.content_bytes,
            taken=size.taken,
            # Counted anew: the queue keeps a penalty that is over until somebody takes from it.
            penalised=sum(item.penalised_until_ms > self._now_ms for item in queue.waiting.values()),
            swapped=size.swapped,
            swap_files=size.swap_files,
            oldest_ms=min(chain(in_memory, self._swapped_since(queue)), default=None),
            is_full=queue.is_full,
        )

    def _swapped_since(self, queue: FlowFileQueue) -> Iterator[int]:
        """Yield since when the oldest FlowFile of each block waits that is still out."""
        for swap in queue.swaps:
            for number in range(swap.next_block, len(swap.blocks)):
                oldest = swap.blocks[number].oldest_ms
                # Not each release noted it: the block itself knows.
                if oldest is None:
                    oldest = min(item.queued_ms for item in self._read_block(swap, number))
                yield oldest

    def _waiting(self, queue: FlowFileQueue) -> Iterator[QueuedFlowFile]:
        """Yield what waits, in order; of swap files only the blocks whose turn has come are read."""
        in_memory = sorted(queue.waiting.values(), key=lambda item: item.order)
        runs = [((item, False) for item in in_memory), *(self._swapped(swap) for swap in queue.swaps)]
        for item, is_swapped in heapq.merge(*runs, key=lambda pair: pair[0].order):
            is_penalised = item.penalised_until_ms > self._now_ms
            yield QueuedFlowFile(
                flowfile=item.flowfile,
                queued_ms=item.queued_ms,
                state="penalised" if is_penalised else "waiting",
                penalised_until_ms=item.penalised_until_ms if is_penalised else 0,
                is_swapped=is_swapped,
            )

    def _swapped(self, swap: SwapFile) -> Iterator[tuple[Waiting, bool]]:
        for number in range(swap.next_block, len(swap.blocks)):
            for item in self._read_block(swap, number):
                yield item, True


def _read_state(fs: FileSystem, folder: LogFolder, empty: FlowFileState) -> FlowFileState:
    log = FlowFileLog(fs, folder, is_read_only=True)
    for number in range(_TRIES):
        before = _names(fs, folder)
        if not log.exists:
            return empty
        try:
            return log.recover(empty.read_block)
        except (CustodyError, OSError):
            # Each snapshot begins a new log, and the first one gets its name: without either, nothing was taken away
            # while it was read.
            if _names(fs, folder) == before or number == _TRIES - 1:
                raise
    raise AssertionError("the last try returns or raises")


def _names(fs: FileSystem, folder: LogFolder) -> tuple[list[str], list[str]]:
    return fs.list(folder.logs), fs.list(folder.home)
