"""Events as Avro: an object container file of NiFi's `provenance` records, or of records with custody's own fields.

Of NiFi's the fields are those of the JSON payload without its `timestamp`. A place's offset is that of the block; the
raw piece of a record is a container file of its own that holds this record alone, so that it can be read again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from custody.capture.avro import AvroContainer, AvroRecord
from custody.capture.column_batch import ColumnBatch
from custody.capture.custody_json import CONTENT_KEY, event_of_record, is_record
from custody.capture.encodings import InputText
from custody.capture.nifi_columns import columns_of
from custody.capture.nifi_json import Payload, event_from_record
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

SOURCE_FORMAT = "nifi-avro"

Piece = AvroRecord | Rejected


def read_avro(text: InputText, *, event_bytes_max: int, node: str | None = None) -> Iterator[Outcome]:
    """Yield what an Avro file holds; from a damaged block on, the rest of the file is one rejected piece."""
    for piece in _pieces(text):
        yield _outcome(piece, event_bytes_max, node)


def read_avro_columns(
    text: InputText, *, size: int, bytes_max: int, event_bytes_max: int, node: str | None = None
) -> Iterator[ColumnBatch]:
    """Yield the outcomes of `read_avro` in batches of at most `size`; where records are large, batches are shorter."""
    batch: list[Piece] = []
    nbytes = 0
    for piece in _pieces(text):
        batch.append(piece)
        nbytes += len(piece.raw) if isinstance(piece, Rejected) else piece.size
        if len(batch) >= size or nbytes >= bytes_max:
            yield _columns(batch, event_bytes_max, node)
            batch, nbytes = [], 0
    if batch:
        yield _columns(batch, event_bytes_max, node)


def _pieces(text: InputText) -> Iterator[Piece]:
    """Yield the records of a file, and what of it is none."""
    container = AvroContainer(text)
    try:
        container.open()
    except InvalidInputError as error:
        got = f"expected an Avro file of provenance events, got {excerpt(container.head())} ({error})"
        code, message = text.cut or ("not-avro", got)
        yield rejected(InputPlace(None, 0), code, message, container.rest())
        return
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
