"""Requests to an object store: of questions, of passes and of compactions, by how these read and write.

Services bill two classes. *Reads* are gets, ranges and looks at the size of an object; *writes* are puts, copies and
listings, one for each thousand names. Deletions are free and not counted. Requests for what is not there count, too:
that the next revision of a catalog is absent is how a reader knows that it has seen the newest.

The model follows the code: opening a catalog (`custody.catalog.chain`), one look at each writer a question
(`custody.workspace.question`), pages of a shard and blocks of a log (`custody.index.paged_file`,
`custody.store.ranged_file`), large objects in parts (`custody.store.remote`). What it says of one object is exact; what
a pass asks by itself was counted. Tests count the same on real repositories.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import msgspec

from custody.index.filter_bank import BYTES_MAX as FILTERS_BYTES_MAX
from custody.store import Traffic
from custody.store.conditional_put import MULTIPART_BYTES
from custody.store.traffic import LISTED_AT_ONCE

_READS = ("get", "range", "head")
_WRITES = ("put", "copy", "list")
_PART_BYTES = 16 << 20
"""Of a large object, one request (`custody.store.remote`)."""
_CHUNK_BYTES = 8 << 14
"""Pages of a shard that come together (`custody.index.paged_file`)."""
_TAIL_BYTES = 64 << 10
"""Of a shard, what the first request brings (`custody.index.stored_shard`)."""
MANIFEST_SHARE = 0.0028
"""Bytes of a shard's manifest, of those of the shard: checksums of pages, and zones; of shards of a million events."""
FILTER_SHARE = 0.024
"""Bytes of the filter, of those of the shard; of the same."""
_ABSENT_CHUNKS, _FOUND_CHUNKS = 2, 5
"""Chunks of a shard that a term which it has not takes, and one which it has, with the ids of its events."""
_LOG_REQUESTS = 3
"""Of a log that gives events: a look at its table of contents, the table, a block."""


class Requests(msgspec.Struct, frozen=True, kw_only=True):
    """How many requests of each class that is billed."""

    reads: float = 0.0
    writes: float = 0.0

    @property
    def count(self) -> float:
        """All of them."""
        return self.reads + self.writes

    def __add__(self, other: Requests) -> Requests:
        return Requests(reads=self.reads + other.reads, writes=self.writes + other.writes)

    def __mul__(self, times: float) -> Requests:
        return Requests(reads=self.reads * times, writes=self.writes * times)


def billed(traffic: Traffic) -> Requests:
    """Return counted requests by the class in which services bill them."""
    return Requests(
        reads=sum(traffic.requests.get(kind, 0) for kind in _READS),
        writes=sum(traffic.requests.get(kind, 0) for kind in _WRITES),
    )


class QuestionRequests(msgspec.Struct, frozen=True, kw_only=True):
    """What a question asks of an object store, by what is on the reader's machine."""

    name: str
    shards: float
    """Shards that it asks."""
    cold: Requests
    """A new process on an empty disk."""
    new_process: Requests
    """A new process on the disk of one that asked the same."""
    again: Requests
    """The same process, within a minute."""
    another: Requests
    """The same process, for another term, once it knows the filters that fit into its memory."""


@dataclass(frozen=True, slots=True)
class StoredRepository:
    """A repository in an object store as a reader meets it, all writers alike."""

    writers: int
    behind: float
    """Transactions of a writer behind its newest checkpoint, on average."""
    days: float
    """Days of events; those of a day are in a folder, which each writer has."""
    logs_a_day: float
    """Of one writer."""
    shard_bytes: float

    @property
    def tail_requests(self) -> int:
        """Requests until a shard's manifest is there."""
        return 1 if self.shard_bytes * MANIFEST_SHARE < _TAIL_BYTES else 2

    def chunks(self, most: int) -> int:
        """Return how many of so many chunks that a look takes are different ones."""
        return min(most, max(1, math.ceil(self.shard_bytes / _CHUNK_BYTES)))


def kept_filters(shards_bytes: float, writers: int) -> float:
    """Return the part of the filters of so many bytes of shards that fits into a reader's memory."""
    filters = shards_bytes * FILTER_SHARE
    return min(1.0, FILTERS_BYTES_MAX * writers / filters) if filters else 1.0


def point_read(stored: StoredRepository) -> QuestionRequests:
    """Return the requests of one event by its id, of a writer that is named."""
    again = Requests(reads=2)
    opened = Requests(reads=5 + stored.behind, writes=2)
    # Another event lies in another block of a log whose table of contents is there.
    return QuestionRequests(
        name="one event",
        shards=0,
        cold=opened + Requests(reads=_LOG_REQUESTS),
        new_process=opened,
        again=again,
        another=again + Requests(reads=1),
    )


def search(stored: StoredRepository, name: str, shards: float, days: float, kept_filters: float) -> QuestionRequests:
    """Return the requests of a search for a term that one shard has.

    `shards` of so many days are asked. `kept_filters` is the part of the filters that fits into the reader's memory.
    """
    again = Requests(reads=2 * stored.writers, writes=1 + stored.writers)
    listed = Requests(writes=stored.writers * days * max(1, math.ceil(2 * stored.logs_a_day / LISTED_AT_ONCE)))
    opened = Requests(reads=(6 + stored.behind) * stored.writers, writes=1 + 3 * stored.writers) + listed
    absent = stored.tail_requests + stored.chunks(_ABSENT_CHUNKS)
    found = stored.tail_requests + stored.chunks(_FOUND_CHUNKS)
    pages = max(shards - 1, 0) * absent + min(shards, 1) * found + _LOG_REQUESTS
    # The filter of a small shard came with its first chunk.
    unknown = shards * (1 - kept_filters) * (stored.chunks(2) > 1)
    return QuestionRequests(
        name=name,
        shards=shards,
        cold=opened + Requests(reads=pages),
        new_process=opened,
        again=again,
        another=again + Requests(reads=unknown + found - stored.tail_requests + _LOG_REQUESTS),
    )


def put_requests(size: float, multipart_bytes: int = MULTIPART_BYTES) -> Requests:
    """Return the requests that bring an object under a name that is free, with the look at it afterwards.

    A large one goes in parts, is completed, and is copied to its name.
    """
    if size <= multipart_bytes:
        return Requests(writes=1)
    return Requests(reads=2, writes=math.ceil(size / _PART_BYTES) + 3)


def pass_requests(units: float, checkpoints: float, behind: float) -> Requests:
    """Return the requests of one writer's pass that makes so many units and checkpoints, each object one put.

    Each step, and each unit of some, opens the catalog anew, so that transactions behind the checkpoint count.
    """
    if not units:
        return Requests(reads=8 * (5 + behind), writes=27)
    return Requests(reads=114 + 22 * behind + 47 * units + 28 * checkpoints, writes=94 + 21 * units + 20 * checkpoints)


def compaction_requests(rewrites: float) -> Requests:
    """Return the requests of one writer's compaction that writes so many logs."""
    return Requests(reads=47 + 27 * rewrites, writes=16 + 8 * rewrites)


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """What a service takes, in any currency."""

    gb_month: float = 0.0
    """For 10⁹ bytes, a month."""
    thousand_gets: float = 0.0
    """For 1,000 requests that read."""
    thousand_puts: float = 0.0
    """For 1,000 requests that write or list."""

    def of_storage(self, size_bytes: float) -> float:
        """Return the price of so many bytes for a month."""
        return size_bytes / 1e9 * self.gb_month

    def of_requests(self, requests: Requests) -> float:
        """Return the price of requests."""
        return (requests.reads * self.thousand_gets + requests.writes * self.thousand_puts) / 1000
