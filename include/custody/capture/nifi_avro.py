"""Events as Avro: an object container file of NiFi's `provenance` records, or of records with custody's own fields.

Of NiFi's the fields are those of the JSON payload without its `timestamp`. A place's offset is that of the block; the
raw piece of a record is a container file of its own that holds this record alone, so that it can be read again.
"""

from __future__ import annotations

from collections.abc import Iterator

from custody.capture.avro import AvroContainer, AvroRecord
from custody.capture.custody_json import CONTENT_KEY, event_of_record, is_record
from custody.capture.encodings import InputText
from custody.capture.nifi_json import event_from_record
from custody.capture.validate import Context, InputPlace, Outcome, excerpt, rejected, validate_event
from custody.errors import InvalidInputError

SOURCE_FORMAT = "nifi-avro"


def read_avro(text: InputText, *, event_bytes_max: int, node: str | None = None) -> Iterator[Outcome]:
    """Yield what an Avro file holds; from a damaged block on, the rest of the file is one rejected piece."""
    container = AvroContainer(text)
    try:
        container.open()
    except InvalidInputError as error:
        got = f"expected an Avro file of provenance events, got {excerpt(container.head())} ({error})"
        code, message = text.cut or ("not-avro", got)
        yield rejected(InputPlace(None, 0), code, message, container.rest())
        return
    index = 0
    try:
        for record in container.records():
            yield _outcome(record, InputPlace(index, record.offset), event_bytes_max, node)
            index += 1
    except InvalidInputError as error:
        place, rest = InputPlace(index, container.offset), container.rest()
        damage = f"expected whole blocks up to the end, the file breaks off here ({error})"
        code, message = text.cut or ("not-avro", damage)
        yield rejected(place, code, message, rest)
        return
    if text.cut:
        # The text ended early, between two blocks: all events so far are whole, and the end is reported.
        code, message = text.cut
        yield rejected(InputPlace(index, container.offset), code, message, b"")


def _outcome(record: AvroRecord, place: InputPlace, event_bytes_max: int, node: str | None) -> Outcome:
    if record.size > event_bytes_max:
        message = f"expected at most {event_bytes_max} bytes (capture.event_bytes_max), got {record.size}"
        return rejected(place, "event-too-large", message, record.raw)
    if is_record(record.value):
        return _own_outcome(record, place, node)
    try:
        event = event_from_record(record.value, node, SOURCE_FORMAT)
    except InvalidInputError as error:
        return rejected(place, "bad-value", str(error), record.raw)
    return validate_event(event, place, record.raw, relationship_exported=False)


def _own_outcome(record: AvroRecord, place: InputPlace, node: str | None) -> Outcome:
    """Return the outcome of a record with custody's own fields."""
    try:
        event, sha256 = event_of_record(record.value, Context(node))
        if sha256 is not None:
            raise InvalidInputError(f"{CONTENT_KEY}: expected it in JSON or in Arrow columns, got it in Avro")
    except InvalidInputError as error:
        return rejected(place, "bad-value", str(error), record.raw)
    return validate_event(event, place, record.raw)
