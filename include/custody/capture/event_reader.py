"""The reader of input files: a stream of any format becomes outcomes, accepted events and rejected pieces.

Memory is bounded by the limits, not by the size of the file. Whatever the bytes are, nothing is raised: each piece that
cannot be read is rejected with its place, and the rest of the file is read.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO, TypeVar

from custody.capture import custody_json, ngsi_notification, nifi_json, nifi_rest, openlineage
from custody.capture.column_batch import ColumnBatch
from custody.capture.custody_columns import read_custody_columns
from custody.capture.encodings import CHUNK_BYTES, InputText
from custody.capture.formats import DETECT_BYTES, Format, detect
from custody.capture.json_splitter import JsonElement, JsonSplitter
from custody.capture.ngsi_columns import read_ngsi_columns
from custody.capture.nifi_avro import read_avro, read_avro_columns
from custody.capture.nifi_columns import ElementList, array_elements, read_columns
from custody.capture.openlineage_columns import read_openlineage_columns
from custody.capture.validate import (
    Accepted,
    Context,
    ElementReader,
    InputPlace,
    Outcome,
    Rejected,
    rejected,
    validate_element,
)
from custody.model import EventProblem, Severity

_Piece = TypeVar("_Piece", bound=Outcome | JsonElement)

BATCH_BYTES_MAX = 16 << 20
"""Of the pieces of a batch together, whose number only bounds batches of small ones."""

_READERS: dict[Format, ElementReader] = {
    Format.NIFI: nifi_json.read_element,
    Format.NIFI_REST: nifi_rest.read_element,
    Format.OPENLINEAGE: openlineage.read_element,
    Format.NGSI: ngsi_notification.read_element,
    Format.CUSTODY: custody_json.read_element,
}
_COLUMN_PIECES: dict[Format, Callable[[Sequence[JsonElement | Rejected], Context], ColumnBatch]] = {
    Format.NGSI: read_ngsi_columns,
    Format.OPENLINEAGE: read_openlineage_columns,
    Format.CUSTODY: read_custody_columns,
}
"""Formats whose elements become columns, and their readers."""


@dataclass(frozen=True, slots=True)
class CaptureLimits:
    """Bounds of an input file."""

    event_bytes_max: int
    """Of one element, as JSON or Avro."""
    file_bytes_max: int = 1 << 62
    """Of a whole file, after decompression."""
    pieces_max: int = 1 << 62
    """Elements of a body that is in memory as a whole; its reader counts them."""


def read_stream(
    stream: BinaryIO,
    limits: CaptureLimits,
    *,
    format: Format | None = None,
    context: Context = Context(),  # noqa: B008 - frozen
    chunk_bytes: int = CHUNK_BYTES,
) -> Iterator[Outcome]:
    """Yield the outcomes of a stream, in its order; without a `format`, the content shows which one it is.

    Places are those of the decompressed text. Nothing is raised: what cannot be read is rejected, and so is the end of
    a text that is damaged or larger than the limit.
    """
    text = InputText(stream, bytes_max=limits.file_bytes_max, chunk_bytes=chunk_bytes)
    yield from _read_text(text, limits, format or detect(text.peek(DETECT_BYTES)), context)


def read_batches(
    stream: BinaryIO,
    limits: CaptureLimits,
    *,
    batch_events: int,
    format: Format | None = None,
    context: Context = Context(),  # noqa: B008 - frozen
    columns_from: int = 0,
) -> Iterator[Sequence[Outcome] | ColumnBatch]:
    """Yield the outcomes of `read_stream` in batches, as columns but those of NiFi's single events and of its REST API.

    A batch is of at most so many pieces of the input, each of which may be several events of one notification. Of
    an array of NiFi's with fewer events than `columns_from` they are none.
    """
    text = InputText(stream, bytes_max=limits.file_bytes_max)
    format = format or detect(text.peek(DETECT_BYTES))
    if format is Format.NIFI_AVRO:
        yield from read_avro_columns(
            text,
            size=batch_events,
            bytes_max=BATCH_BYTES_MAX,
            event_bytes_max=limits.event_bytes_max,
            node=context.node,
        )
        return
    if read_pieces := _COLUMN_PIECES.get(format):
        pieces = JsonSplitter(text, limits.event_bytes_max).split()
        yield from (read_pieces(part, context) for part in _batched(pieces, batch_events))
        return
    elements = _short_array(text, columns_from) if format is Format.NIFI else None
    if elements is None:
        yield from batched_outcomes(_read_text(text, limits, format, context), batch_events)
        return
    for part in elements.batches(batch_events, BATCH_BYTES_MAX):
        yield read_columns(part, context, limits.event_bytes_max)


def _short_array(text: InputText, least: int) -> ElementList | None:
    """Read a text that is one array of at least so many elements and no longer than a batch may be.

    None, and left to be read, otherwise.
    """
    if not text.peek(1).startswith(b"["):
        return None
    chunks: list[bytes] = []
    size = 0
    while size <= BATCH_BYTES_MAX and (chunk := text.chunk()):
        chunks.append(chunk)
        size += len(chunk)
    elements = array_elements(b"".join(chunks)) if size <= BATCH_BYTES_MAX and not text.cut else None
    if elements is None or len(elements) < least:
        for chunk in reversed(chunks):
            text.put_back(chunk)
        return None
    return elements


def batched_outcomes(outcomes: Iterable[Outcome], size: int) -> Iterator[list[Outcome]]:
    """Yield the outcomes in lists; where the pieces are large, the lists are shorter."""
    return _batched(outcomes, size)


def _batched(pieces: Iterable[_Piece], size: int) -> Iterator[list[_Piece]]:
    batch: list[_Piece] = []
    batch_bytes = 0
    # Pieces stay in memory until their batch is stored, so large ones end it early.
    for piece in pieces:
        batch.append(piece)
        batch_bytes += len(piece.raw)
        if len(batch) >= size or batch_bytes >= BATCH_BYTES_MAX:
            yield batch
            batch, batch_bytes = [], 0
    if batch:
        yield batch


def _read_text(text: InputText, limits: CaptureLimits, format: Format, context: Context) -> Iterator[Outcome]:
    if format is Format.NIFI_AVRO:
        yield from read_avro(text, event_bytes_max=limits.event_bytes_max, node=context.node)
        return
    head = text.peek(DETECT_BYTES)
    splitter = JsonSplitter(text, limits.event_bytes_max)
    elements = splitter.split()
    if format is Format.NIFI_REST and _is_list_within(head):
        elements = splitter.split_within(nifi_rest.LIST_KEY)
    outcomes = outcomes_of_elements(elements, format, context)
    yield from _warn_of_one_object(outcomes) if format is Format.NIFI and _is_object(head) else outcomes


def outcomes_of_elements(
    elements: Iterable[JsonElement | Rejected], format: Format, context: Context
) -> Iterator[Outcome]:
    """Yield the outcomes of elements of a text, those that the splitter rejected among them."""
    for element in elements:
        if isinstance(element, Rejected):
            yield element
        else:
            yield from _validated(element.raw, element.place, format, context)


def _warn_of_one_object(outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    """Warn of a text that is one object: NiFi sends arrays, so this is probably a part of a file."""
    # Two are read ahead: only the second one shows that the text is more than one object.
    first, second = next(outcomes, None), next(outcomes, None)
    if isinstance(first, Accepted) and second is None:
        message = "expected a JSON array of events or an event a line, got one JSON object; it is kept as one event"
        warning = EventProblem(Severity.WARNING, "one-object", message)
        first = replace(first, warnings=(*first.warnings, warning))
    yield from (outcome for outcome in (first, second) if outcome is not None)
    yield from outcomes


def detect_file(stream: BinaryIO) -> Format:
    """Return the format of a seekable file, and leave it at its beginning."""
    head = b""
    while len(head) < DETECT_BYTES and (more := stream.read(DETECT_BYTES - len(head))):
        head += more
    stream.seek(0)
    return detect(head)


def read_piece(
    raw: bytes, place: InputPlace, limits: CaptureLimits, *, format: Format, context: Context
) -> Iterator[Outcome]:
    """Yield the outcomes of a piece that was rejected before, or stored with a warning."""
    # A whole file, or the rest of one: it is cut into elements again.
    if place.index is None:
        yield from read_stream(io.BytesIO(raw), limits, format=format, context=context)
    elif format is Format.NIFI_AVRO:
        for outcome in read_stream(io.BytesIO(raw), limits, format=format, context=context):
            # The piece is a file of one record: the place in it means nothing, that in the first file counts.
            yield type(outcome)(place, outcome.problem, outcome.raw) if isinstance(outcome, Rejected) else outcome
    elif len(raw) > limits.event_bytes_max:
        message = f"expected at most {limits.event_bytes_max} bytes (capture.event_bytes_max), got {len(raw)}"
        yield rejected(place, "event-too-large", message, raw)
    else:
        yield from _validated(raw, place, format, context)


def read_file(data: bytes, *, event_bytes_max: int, node: str | None = None) -> Iterator[Outcome]:
    """Yield the outcomes of a file of NiFi's Site-to-Site JSON."""
    return read_stream(io.BytesIO(data), CaptureLimits(event_bytes_max), format=Format.NIFI, context=Context(node))


def _validated(raw: bytes, place: InputPlace, format: Format, context: Context) -> Iterator[Outcome]:
    # The Site-to-Site payload has no relationship: a ROUTE without one is no mistake of the event's.
    exported = format is not Format.NIFI
    return validate_element(raw, place, _READERS[format], context, relationship_exported=exported)


def _is_list_within(head: bytes) -> bool:
    return _is_object(head) and nifi_rest.LIST_KEY.search(head) is not None


def _is_object(head: bytes) -> bool:
    return head.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{")
