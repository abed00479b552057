"""Records of the FlowFile repository: changes, transactions, and the layout of its three kinds of files.

Layout (docs/formats/flowfile-repository.md): each file begins with 8 bytes preamble and a header frame (JSON). A log
holds one frame a transaction, a snapshot frames of waiting FlowFiles with a summary at its end, a swap file blocks of
FlowFiles by priority with their index at its end. Payloads are MessagePack, structs as arrays. Numbers and the order of
fields are part of the format: add at the end, never change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from custody.errors import CorruptionError
from custody.flow.flowfile import FlowFile
from custody.format import framing
from custody.format.framing import Frame, frame, whole_record
from custody.model import ContentClaim, Event

LOG_PREAMBLE = b"CUSTFFL\x01"
SNAPSHOT_PREAMBLE = b"CUSTFFS\x01"
SWAP_PREAMBLE = b"CUSTSWP\x01"

KIND_HEADER = 1
KIND_TRANSACTION = 2
KIND_END_OF_LOG = 3
KIND_FLOWFILES = 4
KIND_SUMMARY = 5

Document = TypeVar("Document")

KeyPart = tuple[int, int | float | str | None]
"""One part of a priority: a rank by the type of the value, so that any two can be compared, and the value."""
Key = tuple[KeyPart, ...]
Order = tuple[Key, int]
"""The place in a queue: the priority, least first, and the order of arrival among equals."""


# `gc=False` here and below: these values cannot be part of a cycle, and the collector would visit thousands of them
# again and again while a log is read.
class Waiting(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A FlowFile and its place in a queue."""

    flowfile: FlowFile
    queue: str
    sequence: int
    """The order of arrival, counted over all queues."""
    queued_ms: int
    key: Key = ()
    penalised_until_ms: int = 0

    @property
    def uuid(self) -> str:
        """The FlowFile's uuid."""
        return self.flowfile.uuid

    @property
    def order(self) -> Order:
        """Its place in the queue."""
        return self.key, self.sequence


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """A queue between two steps, and the bounds of what may wait in it."""

    name: str
    prioritizers: tuple[str, ...] = ()
    """`oldest`, `newest`, `attribute:NAME` or `MODULE:FUNCTION`, the most important first; first in, first out last."""
    count_max: int = 10_000
    """From so many FlowFiles on no more are taken in; 0 for no bound."""
    bytes_max: int = 1 << 30
    """From so many bytes of content on no more are taken in; 0 for no bound."""
    expiration_ms: int = 0
    """How long after its entry into the flow a FlowFile expires here; 0 for never."""
    consumer: str | None = None
    """The DAG that consumes the queue, where Airflow runs the flow."""


class SwapBlock(msgspec.Struct, frozen=True, array_like=True):
    """One block of a swap file: its place, and the least place in the queue of what it holds."""

    offset: int
    first: Order
    count: int
    bytes: int
    """Length of the contents of its FlowFiles."""
    claims: dict[str, int] = {}
    """How many of its FlowFiles refer to each resource claim."""
    oldest_ms: int | None = None
    """Since when the one waits that entered the queue first; None where the writer did not know of this field."""


class SwapFile(msgspec.Struct, frozen=True, array_like=True):
    """FlowFiles of one queue on disk, least first, of which the blocks from `next_block` on are still out."""

    name: str
    queue: str
    blocks: tuple[SwapBlock, ...]
    next_block: int = 0

    @property
    def first(self) -> Order:
        """The least place in the queue of what is still out."""
        return self.blocks[self.next_block].first

    @property
    def is_empty(self) -> bool:
        """Whether all blocks came back."""
        return self.next_block >= len(self.blocks)

    @property
    def count(self) -> int:
        """How many FlowFiles are still out."""
        return sum(block.count for block in self.blocks[self.next_block :])

    @property
    def content_bytes(self) -> int:
        """Length of the contents of those that are still out."""
        return sum(block.bytes for block in self.blocks[self.next_block :])


class Enter(msgspec.Struct, frozen=True, array_like=True, tag=1, gc=False):
    """A FlowFile enters a queue with all its values: it is new, or nearly all of it changed."""

    waiting: Waiting


class Move(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """A FlowFile that was taken enters a queue, with what changed of it."""

    uuid: str
    queue: str
    sequence: int
    queued_ms: int
    key: Key = ()
    penalised_until_ms: int = 0
    attributes: dict[str, str | None] = {}
    """Attributes that were set; None for one that was removed."""
    has_new_content: bool = False
    size: int = 0
    content_claim: ContentClaim | None = None


class Leave(msgspec.Struct, frozen=True, array_like=True, tag=3, gc=False):
    """A FlowFile leaves the flow."""

    uuid: str


class Take(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """A session takes FlowFiles out of their queues to work on them."""

    uuids: tuple[str, ...]
    session: str
    """`MEMBER/SESSION`: the process, and the session in it."""


class Return(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """FlowFiles that were taken go back to their places, unchanged."""

    uuids: tuple[str, ...]
    penalised_until_ms: int = 0


class SwapOut(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """FlowFiles of a queue are in a swap file from now on, and not in memory."""

    swap: SwapFile


class SwapIn(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """The next block of a swap file is in memory from now on."""

    name: str


class Connect(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """A queue is made, or gets other bounds."""

    connection: Connection


class Disconnect(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """A queue that is empty is removed."""

    queue: str


class Delivered(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """The events of transactions are in the provenance journal."""

    transactions: tuple[int, ...]


class Gone(msgspec.Struct, frozen=True, array_like=True, tag=11):
    """A member's process has ended: what it had taken goes back."""

    member: str


class Yield(msgspec.Struct, frozen=True, array_like=True, tag=12):
    """A component takes nothing until a time."""

    component: str
    until_ms: int


class Released(msgspec.Struct, frozen=True, array_like=True, tag=13):
    """Resource claims that no FlowFile refers to are in the archive from now on."""

    claims: tuple[str, ...]


class Purged(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """Resource claims of the archive were deleted."""

    claims: tuple[str, ...]


class Pin(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """A session that takes long wrote contents to resource claims: they stay until it ends."""

    session: str
    claims: tuple[str, ...]
    """None at its end."""


class Replayed(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """The events of a replay plan, from one place to another, were replayed or passed over."""

    plan: str
    """The plan's id."""
    first: int
    """The place of the first one; all before it were done earlier."""
    stop: int
    """The place behind the last one."""
    plan_ms: int
    """When the plan was made: long after that it cannot be run, and its progress is not kept any more."""


Change = (
    Enter
    | Move
    | Leave
    | Take
    | Return
    | SwapOut
    | SwapIn
    | Connect
    | Disconnect
    | Delivered
    | Gone
    | Yield
    | Released
    | Purged
    | Pin
    | Replayed
)


class Transaction(msgspec.Struct, frozen=True, array_like=True):
    """Changes that are made together, and the provenance events that tell of them."""

    number: int
    member: str
    """The process that made it."""
    time_ms: int
    changes: tuple[Change, ...] = ()
    first_ordinal: int = 0
    """The number of the first event, counted over all transactions."""
    event_count: int = 0
    events: bytes = b""
    """The events as MessagePack; decoded only when they have to be delivered."""
    durable: int = -1
    """The last transaction that was synced before this one was written: no crash can have broken it off."""

    def decoded_events(self) -> list[Event]:
        """Return the provenance events."""
        return _EVENTS.decode(self.events) if self.events else []


class FileHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The header of each file of the repository."""

    repository: str
    """The repository's id: a file that was copied from another one is told by it."""
    number: int = 0
    """Of a log its first transaction, of a snapshot the last one that it holds."""
    created_ms: int = 0


class SnapshotSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a snapshot: everything that is not a waiting FlowFile, and how many of those there are."""

    flowfiles: int
    next_sequence: int
    next_ordinal: int
    connections: list[Connection]
    swaps: list[SwapFile]
    taken: dict[str, str]
    """Which session has taken a FlowFile, by uuid."""
    undelivered: list[Transaction]
    """Transactions whose events are not known to be in the journal; without their changes."""
    releasable: list[str]
    """Resource claims that no FlowFile refers to and that are not archived yet."""
    yielded: dict[str, int] = {}
    archived: dict[str, int] = {}
    """Resource claims in the archive, and since when."""
    pins: dict[str, list[str]] = {}
    """Resource claims that long sessions wrote to, by session."""
    drained_swaps: list[str] = []
    """Swap files of which all came back, to be removed."""
    replays: dict[str, tuple[int, int]] = {}
    """How many events of each replay plan are done, and when the plan was made, by the plan's id."""


class SwapSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a swap file: its index."""

    swap: SwapFile


_HEADER = msgspec.json.Decoder(FileHeader)
_EVENTS = msgspec.msgpack.Decoder(list[Event])
_SUMMARY = msgspec.msgpack.Decoder(SnapshotSummary)
_transaction_decoder = msgspec.msgpack.Decoder(Transaction)
_waiting_decoder = msgspec.msgpack.Decoder(list[Waiting])
_encode = msgspec.msgpack.Encoder().encode


def encode_transaction(transaction: Transaction) -> bytes:
    """Return the frame of a transaction in the log."""
    return frame(KIND_TRANSACTION, _encode(transaction))


def encode_events(events: Iterable[Event]) -> bytes:
    """Return events as a transaction carries them."""
    return _encode(list(events))


def encode_flowfiles(flowfiles: list[Waiting]) -> bytes:
    """Return the frame of FlowFiles in a snapshot or a swap file."""
    return frame(KIND_FLOWFILES, _encode(flowfiles))


def encode_summary(summary: SnapshotSummary | SwapSummary) -> bytes:
    """Return the last frame of a snapshot or a swap file."""
    return frame(KIND_SUMMARY, _encode(summary))


def head(preamble: bytes, header: FileHeader) -> bytes:
    """Return all that precedes a file's records."""
    return preamble + frame(KIND_HEADER, msgspec.json.encode(header))


def read_head(data: memoryview, path: Path, preamble: bytes, name: str) -> tuple[FileHeader, int]:
    """Return a file's header and where its first record begins; raises as `framing.read_head`."""
    return framing.read_head(data, path, preamble, KIND_HEADER, _HEADER, name=name)


def whole_frames(data: memoryview, start: int) -> Iterator[Frame]:
    """Yield records from `start` on as long as they follow one another without a gap."""
    at = start
    while (record := whole_record(data, at)) is not None:
        yield record
        at = record.end


def decode_summary(payload: memoryview, path: Path, offset: int) -> SnapshotSummary:
    """Return the end of a snapshot.

    Raises:
        CorruptionError: the frame is whole and holds something else.
    """
    return _decoded(_SUMMARY, payload, "the end of a snapshot", path, offset)


def decode_flowfiles(payload: memoryview, path: Path, offset: int) -> list[Waiting]:
    """Return the FlowFiles of a frame; raises as `decode_summary`."""
    return _decoded(_waiting_decoder, payload, "FlowFiles", path, offset)


def decode_transaction(payload: memoryview, path: Path, offset: int) -> Transaction:
    """Return the transaction of a frame; raises as `decode_summary`."""
    return _decoded(_transaction_decoder, payload, "a transaction", path, offset)


def _decoded(
    decoder: msgspec.msgpack.Decoder[Document], payload: memoryview, name: str, path: Path, offset: int
) -> Document:
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptionError(f"{path} @{offset}: expected {name}: {error}. Restore the file from a backup.") from error
