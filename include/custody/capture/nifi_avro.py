"""Files of NiFi's Site-to-Site provenance reporting task as Avro: an object container file of `provenance` records.

The fields are those of the JSON payload without its `timestamp`. A place's offset is that of the block; the raw
piece of a record is a container file of its own with this one record, so that it can be read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from custody.capture.avro import (
    BLOCK_BYTES_MAX,
    BROKEN,
    MAGIC,
    SYNC_BYTES,
    Decode,
    compile_schema,
    decompress,
    read_bytes,
    read_long,
    write_long,
)
from custody.capture.encodings import Text
from custody.capture.json_splitter import PIECE_BYTES_MAX
from custody.capture.nifi_json import event_from_record
from custody.capture.validate import Outcome, Place, Rejected, checked, rejected, shown
from custody.errors import InvalidInputError

SOURCE_FORMAT = "nifi-avro"
_HEADER_BYTES_MAX = 1 << 20
_BLOCK_HEAD_BYTES = 20  # two numbers of at most ten bytes


class _Header(NamedTuple):
    metadata: dict[str, bytes]
    sync: bytes
    size: int


def read_avro(text: Text, *, event_bytes_max: int, node: str | None = None) -> Iterator[Outcome]:
    """Yield what an Avro file holds; where a block breaks off, the rest of the file is one rejected piece."""
    reader = _Reader(text)
    try:
        header = _header(reader.head(_HEADER_BYTES_MAX))
        decode = compile_schema(header.metadata.get("avro.schema", b""))
        codec = header.metadata.get("avro.codec", b"null").decode("utf-8", "replace")
    except BROKEN as error:
        got = f"expected an Avro file of provenance events, got {shown(reader.head(_BLOCK_HEAD_BYTES))} ({error})"
        code, message = text.cut or ("not-avro", got)
        yield rejected(Place(None, 0), code, message, reader.rest())
        return
    prefix = _one_record_prefix(header)
    reader.skip(header.size)
    index = 0
    while head := reader.head(_BLOCK_HEAD_BYTES):
        offset = reader.offset
        try:
            count, position = read_long(head, 0)
            size, position = read_long(head, position)
            if not 0 <= size <= BLOCK_BYTES_MAX:
                raise InvalidInputError(f"expected a block of at most {BLOCK_BYTES_MAX} bytes, got {size}")
            block = reader.head(position + size + SYNC_BYTES)
            if block[position + size :] != header.sync:
                raise InvalidInputError("expected the file's sync marker behind the block, got other bytes")
            content = decompress(codec, block[position : position + size])
            for start, end, record in _records(content, count, decode):
                raw = b"".join((prefix, write_long(1), write_long(end - start), content[start:end], header.sync))
                yield _outcome(record, Place(index, offset), raw, end - start, event_bytes_max, node)
                index += 1
        except BROKEN as error:
            yield _broken(text, Place(index, offset), error, reader)
            return
        reader.skip(len(block))
    if text.cut:
        code, message = text.cut
        yield rejected(Place(index, reader.offset), code, message, b"")


class _Reader:
    """Looks ahead in a text and keeps the offset."""

    def __init__(self, text: Text) -> None:
        self._text = text
        self._ahead = b""
        self._start = 0
        self.offset = 0

    def head(self, size: int) -> bytes:
        """Return the next bytes, fewer only where the text ends, and leave them to be read."""
        if len(self._ahead) - self._start < size:
            parts = [self._ahead[self._start :]]
            missing = size - len(parts[0])
            while missing > 0 and (chunk := self._text.chunk()):
                parts.append(chunk)
                missing -= len(chunk)
            self._ahead, self._start = b"".join(parts), 0
        return self._ahead[self._start : self._start + size]

    def skip(self, size: int) -> None:
        """Go past bytes that `head` returned."""
        self._start += size
        self.offset += size

    def rest(self) -> bytes:
        """Return what is left, its beginning if it is large."""
        kept = self.head(PIECE_BYTES_MAX)
        while self._text.chunk():
            pass
        return kept


def _header(data: bytes) -> _Header:
    if not data.startswith(MAGIC):
        raise InvalidInputError("the first bytes are others")
    metadata: dict[str, bytes] = {}
    position = len(MAGIC)
    count, position = read_long(data, position)
    while count:
        if count < 0:
            _, position = read_long(data, position)
        for _ in range(min(abs(count), len(data))):
            name, position = read_bytes(data, position)
            metadata[name.decode()], position = read_bytes(data, position)
        count, position = read_long(data, position)
    sync = data[position : position + SYNC_BYTES]
    if len(sync) < SYNC_BYTES:
        raise InvalidInputError("it ends in its header")
    return _Header(metadata, sync, position + SYNC_BYTES)


def _one_record_prefix(header: _Header) -> bytes:
    """Return the header of an uncompressed file with the same schema."""
    schema = header.metadata["avro.schema"]
    name = b"avro.schema"
    return b"".join(
        (MAGIC, write_long(1), write_long(len(name)), name, write_long(len(schema)), schema, b"\0", header.sync)
    )


def _records(content: bytes, count: int, decode: Decode) -> Iterator[tuple[int, int, dict[str, object]]]:
    """Yield start, end and value of each record of a block, which must hold them all and nothing else."""
    if not 0 <= count <= len(content):
        raise InvalidInputError(f"expected a block of {count} events, got {len(content)} bytes")
    position = 0
    for _ in range(count):
        start = position
        record, position = decode(content, start)
        yield start, position, record
    if position != len(content):
        raise InvalidInputError(f"expected a block of {count} events, got {len(content) - position} bytes more")


def _outcome(
    record: dict[str, object], place: Place, raw: bytes, size: int, event_bytes_max: int, node: str | None
) -> Outcome:
    if size > event_bytes_max:
        message = f"expected at most {event_bytes_max} bytes (capture.event_bytes_max), got {size}"
        return rejected(place, "event-too-large", message, raw)
    try:
        event = event_from_record(record, node, SOURCE_FORMAT)
    except InvalidInputError as error:
        return rejected(place, "bad-value", str(error), raw)
    return checked(event, place, raw, relationship_exported=False)


def _broken(text: Text, place: Place, error: BaseException, reader: _Reader) -> Rejected:
    rest = reader.rest()
    code, message = text.cut or ("not-avro", f"expected whole blocks up to the end, the file breaks off here ({error})")
    return rejected(place, code, message, rest)
