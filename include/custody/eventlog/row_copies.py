"""Row copies: the events of a log once more, row by row in small compressed frames, for reads of single events.

A block of columns is decoded whole for any event of it: some fifty columns of two thousand rows. A frame has a few
events, whole, and is decoded in microseconds. A log has copies if the setting `eventlog.row_copies` was on when it was
written. They stand behind the Bloom filters and end where the table of contents inside the log begins; Parquet's
metadata says how they are divided, and other readers of Parquet pass over them.

Layout (docs/formats/event-log.md): the frames, a dictionary that they share, and a directory of 16 bytes a frame,
little-endian. A frame is compressed by zstd with that dictionary; it holds a MessagePack array of events, each a map
by names of fields. The directory has a CRC-32 of each frame; dictionary and directory are covered by a SHA-256 in the
metadata, which the table of contents covers.

Copies are never the only way to an event: what is damaged in them is read from its block.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import zstandard
from zlib_ng import zlib_ng

from custody.format.number_sets import distinct
from custody.model import Event, to_events

COPIES_KEY = b"custody.rows"
"""In Parquet's metadata of a log that has copies; part of the format."""
DIRECTORY_ENTRY = np.dtype([("first_event_id", "<u8"), ("length", "<u4"), ("crc32", "<u4")])
"""Of a frame; part of the format: add, never change."""
FRAME_ROWS = 4
"""Events of a frame, which its readers need not know: fewer take more bytes, more take longer to decode.

Of the sample's events, 1,241 bytes each as MessagePack: 8 take 116 bytes an event and 9.6 µs to read one, 4 take 135
and 6.5, 2 take 160 and 5.
"""
_VERSION = 1
_LEVEL = 3
# Of the events of the first block: more of it makes frames hardly smaller, and is a cost of small logs.
_DICTIONARY_BYTES_MAX = 64 << 10
_DICTIONARY_SHARE = 16

EventIds = npt.NDArray[np.int64]


class CopiesMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What Parquet's metadata says of the copies: sizes in bytes, and the SHA-256 of dictionary and directory."""

    version: int
    frames: int
    frames_bytes: int
    dictionary_bytes: int
    sha256: str


_METADATA = msgspec.json.Decoder(CopiesMetadata)


@dataclass(frozen=True, slots=True)
class CopiedEvents:
    """Events that were read from copies, in the order of their ids, and the ids that have to be read from blocks."""

    events: list[Event] = field(default_factory=list)
    nbytes: int = 0
    """What they take before compression."""
    missing: EventIds = field(default_factory=lambda: np.empty(0, np.int64))


class CopiesWriter:
    """Collects the copies of a log while its blocks are written; holds them compressed, about a ninth of the events."""

    def __init__(self) -> None:
        self._encoder = msgspec.msgpack.Encoder()
        self._compressor: zstandard.ZstdCompressor | None = None
        self._dictionary = b""
        self._frames: list[bytes] = []
        self._entries: list[tuple[int, int, int]] = []

    def add(self, block: pa.Table) -> None:
        """Add the events of a block, at least one."""
        events = to_events(block)
        rows = [self._encoder.encode(event) for event in events]
        compressor = self._compressor or self._begin(rows)
        for start in range(0, len(rows), FRAME_ROWS):
            raw = [msgspec.Raw(row) for row in rows[start : start + FRAME_ROWS]]
            frame = compressor.compress(self._encoder.encode(raw))
            self._frames.append(frame)
            self._entries.append((events[start].event_id, len(frame), zlib_ng.crc32(frame)))

    def finish(self) -> tuple[list[bytes], bytes]:
        """Return the bytes of the copies in pieces, and their metadata as JSON."""
        stored = zstandard.ZstdCompressor(level=_LEVEL).compress(self._dictionary)
        directory = np.array(self._entries, DIRECTORY_ENTRY).tobytes()
        metadata = CopiesMetadata(
            version=_VERSION,
            frames=len(self._frames),
            frames_bytes=sum(map(len, self._frames)),
            dictionary_bytes=len(stored),
            sha256=hashlib.sha256(stored + directory).hexdigest(),
        )
        return [*self._frames, stored, directory], msgspec.json.encode(metadata)

    def _begin(self, rows: Sequence[bytes]) -> zstandard.ZstdCompressor:
        """Take the dictionary from the first block, evenly: the same events always give the same bytes."""
        size = sum(map(len, rows))
        most = min(_DICTIONARY_BYTES_MAX, size // _DICTIONARY_SHARE)
        step = max(size // max(most, 1), 1)
        self._dictionary = b"".join(rows[::step])[:most]
        shared = _dictionary(self._dictionary)
        if shared is not None:
            shared.precompute_compress(level=_LEVEL)
        # Without checksum and id: the directory has them, and there is one dictionary.
        self._compressor = zstandard.ZstdCompressor(
            level=_LEVEL, dict_data=shared, write_checksum=False, write_dict_id=False
        )
        return self._compressor


class RowCopies:
    """The copies of one log; for any number of threads."""

    def __init__(self, frames: memoryview, directory: npt.NDArray[np.void], dictionary: bytes) -> None:
        self._frames = frames
        self._firsts = directory["first_event_id"].astype(np.int64)
        self._crcs = directory["crc32"]
        self._ends = np.cumsum(directory["length"], dtype=np.int64)
        self._dictionary = _dictionary(dictionary)

    @classmethod
    def within(cls, log: memoryview, end: int, stored: bytes | None) -> RowCopies | None:
        """Return the copies that end at a place of a log; None if it has none, or none that can be used.

        Args:
            log: all bytes of it.
            end: where the copies end.
            stored: what Parquet's metadata says of them.
        """
        if stored is None:
            return None
        try:
            metadata = _METADATA.decode(stored)
        except msgspec.DecodeError:
            return None
        directory = end - metadata.frames * DIRECTORY_ENTRY.itemsize
        dictionary = directory - metadata.dictionary_bytes
        start = dictionary - metadata.frames_bytes
        # Copies of a later version, or damaged ones: the blocks have the same events.
        if metadata.version != _VERSION or metadata.frames < 1 or start < 0:
            return None
        if hashlib.sha256(log[dictionary:end]).hexdigest() != metadata.sha256:
            return None
        shared = zstandard.ZstdDecompressor().decompress(bytes(log[dictionary:directory]))
        return cls(log[start:dictionary], np.frombuffer(log[directory:end], DIRECTORY_ENTRY), shared)

    def read(self, event_ids: EventIds) -> CopiedEvents:
        """Return the events with some ids; ids that the log does not have are neither read nor missing."""
        event_ids = distinct(event_ids)
        numbers = np.searchsorted(self._firsts, event_ids, side="right") - 1
        event_ids, numbers = event_ids[numbers >= 0], numbers[numbers >= 0]
        events: list[Event] = []
        missing: list[int] = []
        nbytes = 0
        # One a call: it belongs to one thread.
        decompressor = zstandard.ZstdDecompressor(dict_data=self._dictionary)
        for frame, first, wanted in self._asked(numbers, event_ids):
            try:
                # Damaged, or, with the right checksum, of a kind that this library cannot read: the block has it.
                content = b"" if frame is None else decompressor.decompress(frame)
                rows = _ROWS.decode(content)
                chosen = _chosen(rows, first, wanted)
            except (zstandard.ZstdError, msgspec.DecodeError):
                missing += wanted
                continue
            events += chosen
            nbytes += len(content) * len(chosen) // len(rows)
        return CopiedEvents(events, nbytes, np.array(missing, np.int64))

    def _asked(self, numbers: EventIds, event_ids: EventIds) -> Iterator[tuple[memoryview | None, int, list[int]]]:
        """Yield each frame that has some of the ids, None for a damaged one, with its first id and these ids.

        `numbers` has the frame of each id; both go up.
        """
        begin = np.flatnonzero(np.diff(numbers, prepend=-1))
        asked, ids = numbers[begin], event_ids.tolist()
        # As lists: a number of an array costs more than what is done with it.
        bounds = [*begin.tolist(), len(ids)]
        starts = np.where(asked > 0, self._ends[asked - 1], 0).tolist()
        ends, crcs, firsts = self._ends[asked].tolist(), self._crcs[asked].tolist(), self._firsts[asked].tolist()
        for place, (start, end, crc, first) in enumerate(zip(starts, ends, crcs, firsts, strict=True)):
            frame = self._frames[start:end]
            yield frame if zlib_ng.crc32(frame) == crc else None, first, ids[bounds[place] : bounds[place + 1]]


_ROWS = msgspec.msgpack.Decoder(list[msgspec.Raw])
_EVENT = msgspec.msgpack.Decoder(Event)


def _chosen(rows: list[msgspec.Raw], first: int, wanted: list[int]) -> list[Event]:
    """Return the events of a frame with some ids, those that it has.

    Raises:
        msgspec.DecodeError: one cannot be read.
    """
    # Without gaps, as nearly always, the id says which row it is.
    if wanted[-1] - first < len(rows):
        likely = [_EVENT.decode(rows[event_id - first]) for event_id in wanted]
        if [event.event_id for event in likely] == wanted:
            return likely
    ids = set(wanted)
    return [event for event in map(_EVENT.decode, rows) if event.event_id in ids]


def _dictionary(content: bytes) -> zstandard.ZstdCompressionDict | None:
    if not content:
        return None  # of a log with so little that none pays
    return zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
