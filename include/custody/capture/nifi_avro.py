"""Events as Avro: an object container file of NiFi's `provenance` records, or of records with custody's own fields.

Of NiFi's the fields are those of the JSON payload without its `timestamp`. A place's offset is that of the block; the
raw piece of a record is a container file of its own that holds this record alone, so that it can be read again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.capture.avro import AvroBlock, AvroContainer, AvroRecord
from custody.capture.avro_columns import (
    ColumnDecoder,
    FieldForm,
    RecordColumns,
    ShortContentError,
    UnusualRecordsError,
    field_forms,
)
from custody.capture.column_batch import ColumnBatch, column_batch
from custody.capture.custody_json import CONTENT_KEY, event_of_record, is_record
from custody.capture.encodings import InputText
from custody.capture.nifi_columns import columns_of, event_table
from custody.capture.nifi_json import PAYLOAD_KEYS, REQUIRED_KEYS, Payload, event_from_record
from custody.capture.validate import (
    Context,
    InputPlace,
    Outcome,
    Rejected,
    excerpt,
    rejected,
    validate_event,
)
from custody.errors import InvalidInputError
from custody.model import EVENT_SCHEMA

SOURCE_FORMAT = "nifi-avro"
_USUAL_KEYS = ("eventOrdinal", *REQUIRED_KEYS)
"""Those of a payload that have a value."""
_RECORDS_MIN = 64
"""Fewer are read one by one as quickly."""
_SPARE_BYTES = 1 << 14
"""Looked at beyond what a batch takes by the average."""

Piece = AvroRecord | Rejected


def _kind(name: str) -> str:
    """Return how a field of an event is written, as `FieldForm` says."""
    if name == "timestamp":
        return "text"  # no field of an event
    kind = EVENT_SCHEMA.field(name).type
    if pa.types.is_map(kind):
        return "attributes"
    if pa.types.is_list(kind):
        return "texts"
    return "text" if pa.types.is_string(kind) else "long"


_KINDS = {key: _kind(name) for key, name in PAYLOAD_KEYS.items()}
"""How the values of each key are written where they are those of a payload."""


@dataclass(frozen=True, slots=True)
class _Bounds:
    """Of a batch."""

    events: int
    nbytes: int
    """Of the records of a batch, the last of which may exceed it."""


def read_avro(text: InputText, *, event_bytes_max: int, node: str | None = None) -> Iterator[Outcome]:
    """Yield what an Avro file holds; from a damaged block on, the rest of the file is one rejected piece."""
    container = _opened(text)
    pieces = (container,) if isinstance(container, Rejected) else _pieces(container, text)
    for piece in pieces:
        yield _outcome(piece, event_bytes_max, node)


def read_avro_columns(
    text: InputText, *, size: int, bytes_max: int, event_bytes_max: int, node: str | None = None
) -> Iterator[ColumnBatch]:
    """Yield the outcomes of `read_avro` in batches of at most `size`; where records are large, batches are shorter."""
    container = _opened(text)
    if isinstance(container, Rejected):
        yield _columns([container], event_bytes_max, node)
        return
    done = 0
    for part in _parts(container, text, _Bounds(size, bytes_max)):
        done += len(part.records.ends)
        yield part.batch(container, event_bytes_max, node)
    # All that is left, from what was not read in columns on.
    batch: list[Piece] = []
    nbytes = 0
    for piece in _pieces(container, text):
        if isinstance(piece, AvroRecord) and piece.index < done:
            continue  # of a block that was read in part
        batch.append(piece)
        nbytes += len(piece.raw) if isinstance(piece, Rejected) else piece.size
        if len(batch) >= size or nbytes >= bytes_max:
            yield _columns(batch, event_bytes_max, node)
            batch, nbytes = [], 0
    if batch:
        yield _columns(batch, event_bytes_max, node)


def _opened(text: InputText) -> AvroContainer | Rejected:
    """Return a file whose header was read; all of it as rejected if it is none."""
    container = AvroContainer(text)
    try:
        container.open()
    except InvalidInputError as error:
        got = f"expected an Avro file of provenance events, got {excerpt(container.head())} ({error})"
        code, message = text.cut or ("not-avro", got)
        return rejected(InputPlace(None, 0), code, message, container.rest())
    return container


def _pieces(container: AvroContainer, text: InputText) -> Iterator[Piece]:
    """Yield the records of a file, and what of it is none."""
    try:
        yield from container.records()
    except InvalidInputError as error:
        place, rest = InputPlace(container.index, container.offset), container.rest()
        damage = f"expected whole blocks up to the end, the file breaks off here ({error})"
        code, message = text.cut or ("not-avro", damage)
        yield rejected(place, code, message, rest)
        return
    if text.cut:
        # The text ended early, between two blocks: all events so far are whole, and the end is reported.
        code, message = text.cut
        yield rejected(InputPlace(container.index, container.offset), code, message, b"")


def _parts(container: AvroContainer, text: InputText, bounds: _Bounds) -> Iterator[_Part]:
    """Yield the records of a file, from the first on, as far as they are decoded in columns.

    Each part is what one batch holds. The container is left before the block of the first record that is in none.
    """
    forms = _usual_forms(container)
    if forms is None:
        return
    waiting = _Waiting(ColumnDecoder(forms, container.schema.read_record), bounds)
    try:
        for block in container.blocks():
            container.index += block.count
            waiting.append(block)
            while waiting.fill_a_batch():
                yield waiting.take()
        # Behind a text that was cut its end is rejected, in the batch of the records before it.
        if not text.cut and waiting.records:
            yield waiting.take()
    except (InvalidInputError, UnusualRecordsError):
        # Whatever it is, the careful way finds out, and what of it is good.
        pass
    container.index -= sum(block.count for block in waiting.blocks)
    container.put_back(waiting.blocks)


def _usual_forms(container: AvroContainer) -> Sequence[FieldForm] | None:
    """Return the forms of the fields if records of them may be payloads as nearly all are."""
    forms = field_forms(container.schema.fields)
    if forms is None or not {form.name for form in forms}.issuperset(_USUAL_KEYS):
        return None
    return forms if all(_KINDS.get(form.name) == form.kind for form in forms) else None


class _Waiting:
    """Blocks whose records are in no batch yet."""

    def __init__(self, decoder: ColumnDecoder, bounds: _Bounds) -> None:
        self.blocks: list[AvroBlock] = []
        self.records = 0
        self._decoder = decoder
        self._bounds = bounds
        self._nbytes = 0
        self._begin = 0
        """Where the first record lies in the first block, of which so many are in batches already."""
        self._taken = 0
        self._index = 0

    def append(self, block: AvroBlock) -> None:
        """Let a block wait behind the others.

        Raises:
            UnusualRecordsError: so many wait that most of them hold no record.
        """
        self.blocks.append(block)
        if len(self.blocks) > 2 * self._bounds.events:
            raise UnusualRecordsError("blocks without records")
        self.records += block.count
        self._nbytes += len(block.content)

    def fill_a_batch(self) -> bool:
        """Whether there are as many records as a batch takes."""
        return self.records >= self._bounds.events or self._nbytes >= self._bounds.nbytes

    def take(self) -> _Part:
        """Return the first records, as many as a batch takes.

        Raises:
            UnusualRecordsError: they are not decoded in columns, or one of their blocks is damaged.
        """
        wanted = min(self.records, self._bounds.events)
        if wanted < _RECORDS_MIN:
            raise UnusualRecordsError("few records")
        counts = np.cumsum([block.count for block in self.blocks]) - self._taken
        ends = np.cumsum([len(block.content) for block in self.blocks]) - self._begin
        records = self._decoded(wanted, ends)
        found = len(records.ends)
        whole = int(np.searchsorted(counts, found, side="right"))
        places = np.append(0, records.ends)
        # Each block ends with the last of its records, and the next one begins there.
        if (places[counts[:whole]] != ends[:whole]).any() or places[-1] > ends[min(whole, len(ends) - 1)]:
            raise UnusualRecordsError("a block with other records than it claims")
        part = _Part(records, self._index, counts, [block.offset for block in self.blocks])
        self._index += found
        self.records -= found
        self._nbytes -= int(places[-1])
        self._taken = found - int(counts[whole - 1]) if whole else self._taken + found
        self._begin = int(places[-1] - ends[whole - 1]) if whole else self._begin + int(places[-1])
        del self.blocks[:whole]
        return part

    def _decoded(self, wanted: int, ends: npt.NDArray[np.int64]) -> RecordColumns:
        """Return the first records; of blocks that hold far more than a batch only what it needs is looked at."""
        size = self._nbytes
        if self.records > 2 * wanted or size > 2 * self._bounds.nbytes:
            size = min(size * wanted // self.records * 5 // 4, self._bounds.nbytes) + _SPARE_BYTES
        while True:
            size = min(size, self._nbytes)
            begins = [0, *(end for end in ends.tolist() if end < size)]
            try:
                return self._decoder.decode(self._content(size), wanted, self._bounds.nbytes, begins)
            except ShortContentError as error:
                if size == self._nbytes:
                    raise UnusualRecordsError("a damaged block") from error
            size *= 2

    def _content(self, size: int) -> list[memoryview]:
        """Return the first bytes that wait."""
        parts: list[memoryview] = []
        begin = self._begin
        for block in self.blocks:
            parts.append(memoryview(block.content)[begin : begin + size])
            size -= len(parts[-1])
            begin = 0
        return parts


@dataclass(frozen=True, slots=True)
class _Part:
    """Records that are a batch."""

    records: RecordColumns
    index: int
    """In the file, of the first."""
    counts: npt.NDArray[np.int64]
    """How many of the records there are up to the end of each block."""
    offsets: Sequence[int]
    """Of the blocks in the file."""

    def batch(self, container: AvroContainer, event_bytes_max: int, node: str | None) -> ColumnBatch:
        """Return the outcomes of the records."""
        records = self.records
        sizes = np.diff(records.ends, prepend=0)
        columns = {PAYLOAD_KEYS[name]: column for name, column in records.columns.items()}
        is_payload = sizes[records.usual] <= event_bytes_max
        for key in _USUAL_KEYS:
            if records.columns[key].null_count:
                is_payload &= records.columns[key].is_valid().to_numpy(zero_copy_only=False)
        if not is_payload.all():
            kept = pa.array(is_payload)
            columns = {name: column.filter(kept) for name, column in columns.items()}
        numbers = records.usual[is_payload]

        def carefully(number: int) -> Sequence[Outcome]:
            block = int(np.searchsorted(self.counts, number, side="right"))
            record = container.record(records.record(number), self.index + number, self.offsets[block])
            return (_outcome(record, event_bytes_max, node),)

        return column_batch(
            lambda: event_table(columns, len(numbers), node, SOURCE_FORMAT),
            numbers,
            len(records.ends),
            carefully,
            # The payload has no relationship: a ROUTE without one is no mistake of the event's.
            relationship_exported=False,
        )


def _columns(pieces: list[Piece], event_bytes_max: int, node: str | None) -> ColumnBatch:
    payloads: list[Payload] = []
    numbers: list[int] = []
    for number, piece in enumerate(pieces):
        if isinstance(piece, Rejected) or piece.size > event_bytes_max:
            continue
        try:
            payloads.append(msgspec.convert(piece.value, Payload))
        except msgspec.ValidationError:
            continue
        numbers.append(number)

    def carefully(number: int) -> Outcome:
        return _outcome(pieces[number], event_bytes_max, node)

    return columns_of(payloads, numbers, len(pieces), carefully, node, SOURCE_FORMAT)


def _outcome(piece: Piece, event_bytes_max: int, node: str | None) -> Outcome:
    if isinstance(piece, Rejected):
        return piece
    place = InputPlace(piece.index, piece.offset)
    if piece.size > event_bytes_max:
        message = f"expected at most {event_bytes_max} bytes (capture.event_bytes_max), got {piece.size}"
        return rejected(place, "event-too-large", message, piece.raw)
    if is_record(piece.value):
        return _own_outcome(piece, place, node)
    try:
        event = event_from_record(piece.value, node, SOURCE_FORMAT)
    except InvalidInputError as error:
        return rejected(place, "bad-value", str(error), piece.raw)
    return validate_event(event, place, piece.raw, relationship_exported=False)


def _own_outcome(record: AvroRecord, place: InputPlace, node: str | None) -> Outcome:
    """Return the outcome of a record with custody's own fields."""
    try:
        event, sha256 = event_of_record(record.value, Context(node))
        if sha256 is not None:
            raise InvalidInputError(f"{CONTENT_KEY}: expected it in JSON or in Arrow columns, got it in Avro")
    except InvalidInputError as error:
        return rejected(place, "bad-value", str(error), record.raw)
    return validate_event(event, place, record.raw)
