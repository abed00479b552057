"""Avro object container files, read block by block: frames, codecs and bounds; `fastavro` decodes single records.

Specification: Avro 1.12, "Object Container Files" and "Binary Encoding". Codecs: null, deflate, snappy, zstandard,
bzip2, xz. Only the writer's schema is used; logical types are left as the numbers that they are, bytes become hex.

The files come from outside, so three things are not left to the library, which reads a header's sizes and a block's
content without a bound and follows a schema that names itself until the process dies: blocks are framed and
decompressed here, at most BLOCK_BYTES_MAX each, and a schema may hold only a record of primitives, unions, arrays
and maps, at most `_DEPTH_MAX` levels of them (docs/design/040-avro-by-hand-or-by-library.md).
"""

from __future__ import annotations

import bz2
import io
import lzma
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from zlib_ng import zlib_ng

from custody.capture.encodings import InputText
from custody.capture.validate import PIECE_BYTES_MAX
from custody.errors import InvalidInputError

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
BLOCK_BYTES_MAX = 64 << 20
_HEADER_BYTES_MAX = 64 << 10
"""Each bad record is kept with it."""
_BLOCK_HEAD_BYTES = 20  # two numbers of at most ten bytes
_DEPTH_MAX = 8
# The shift of the tenth byte: 64 bits need no eleventh.
_VARINT_BITS_MAX = 63
_PRIMITIVES = frozenset(["null", "boolean", "int", "long", "float", "double", "bytes", "string"])
_HEX = "custody-hex"
"""A logical type of our own: bytes are read as hex, so that a record is JSON all through."""
DAMAGE = (InvalidInputError, EOFError, IndexError, ValueError, TypeError, struct.error)
"""What a decoder raises for bytes that are no Avro; UnicodeDecodeError is a ValueError."""

ReadRecord = Callable[[io.BytesIO], dict[str, object]]
"""Returns the next record of a block's content; raises what DAMAGE names for what is none."""


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """What is known of the records of a file."""

    fields: Sequence[dict[str, Any]]
    """The name and the type of each, and nothing else that the schema says."""
    read_record: ReadRecord


@dataclass(frozen=True, slots=True)
class AvroRecord:
    """One record of a block."""

    value: dict[str, object]
    index: int
    """Number of the record in the file, from 0."""
    offset: int
    """Of its block in the file."""
    content: bytes
    """The bytes of the record itself."""
    file_of: Callable[[bytes], bytes]

    @property
    def size(self) -> int:
        """Bytes of the record itself."""
        return len(self.content)

    @property
    def raw(self) -> bytes:
        """A container file of its own that holds this record alone, uncompressed; few are ever asked for it."""
        return self.file_of(self.content)


@dataclass(frozen=True, slots=True)
class AvroBlock:
    """A block of a file; what its records are nobody has looked at."""

    content: bytes
    """Decompressed."""
    count: int
    """Of records, as the block claims: between 0 and the bytes of the content."""
    offset: int
    """In the file."""
    frame: bytes
    """The bytes of the file that it is."""


class AvroContainer:
    """One container file: `open` reads its header, `records` its blocks, of which one at a time is in memory."""

    def __init__(self, text: InputText) -> None:
        self.offset = 0
        """Where the next block begins, or the one that is damaged."""
        self.index = 0
        """Number of the next record."""
        self._text = text
        self._unpacked = self._counted_to = 0
        """Bytes that the blocks held, up to a place in the file."""
        self._ahead = b""
        self._start = 0

    def open(self) -> None:
        """Read the header.

        Raises:
            InvalidInputError: it is not that of a container file; `rest` then returns the file from its first byte.
        """
        try:
            metadata, self._sync, size = _read_header(self._peek(_HEADER_BYTES_MAX))
        except DAMAGE as error:
            raise InvalidInputError(str(error)) from error
        schema = metadata.get("avro.schema", b"")
        self.schema = compile_schema(schema)
        self._codec = metadata.get("avro.codec", b"null").decode("utf-8", "replace")
        self._single_header = _uncompressed_header(schema, self._sync)
        self._skip(size)

    def records(self) -> Iterator[AvroRecord]:
        """Yield the records in their order.

        Raises:
            InvalidInputError: a block is damaged, after the records before the damage; it is at `offset`, and `rest`
                returns it with all that follows.
        """
        for block in self.blocks():
            try:
                yield from self._records(block)
            except DAMAGE as error:
                self.put_back([block])
                raise InvalidInputError(str(error)) from error

    def blocks(self) -> Iterator[AvroBlock]:
        """Yield the blocks in their order; who takes them has to count their records in `index`.

        Raises:
            InvalidInputError: a block has no frame or cannot be decompressed; it is at `offset`, and `rest` returns it
                with all that follows.
        """
        while head := self._peek(_BLOCK_HEAD_BYTES):
            try:
                count, position = read_long(head, 0)
                size, position = read_long(head, position)
                # The size is a claim of the file: it is checked before as many bytes are asked for.
                if not 0 <= size <= BLOCK_BYTES_MAX:
                    raise InvalidInputError(f"expected a block of at most {BLOCK_BYTES_MAX} bytes, got {size}")
                frame = self._peek(position + size + SYNC_BYTES)
                if frame[position + size :] != self._sync:
                    raise InvalidInputError("expected the file's sync marker behind the block, got other bytes")
                content = decompress(self._codec, frame[position : position + size])
                # A few bytes of each block may hold millions: all blocks together hold no more than a text may.
                if self.offset >= self._counted_to:
                    self._counted_to = self.offset + len(frame)
                    self._unpacked += len(content)
                if self._unpacked > self._text.bytes_max:
                    self._text.cut_short()
                    raise InvalidInputError("more than a text may hold")
                # The count is a claim of the file. An event takes a byte at least, so this bounds what is done for it.
                if not 0 <= count <= len(content):
                    raise InvalidInputError(f"expected a block of {count} events, got {len(content)} bytes")
            except DAMAGE as error:
                raise InvalidInputError(str(error)) from error
            block = AvroBlock(content, count, self.offset, frame)
            self._skip(len(frame))
            yield block

    def put_back(self, blocks: Sequence[AvroBlock]) -> None:
        """Have the last blocks that were read, which lie one behind the other, be read again."""
        frames = [block.frame for block in blocks]
        self._ahead, self._start = b"".join([*frames, self._ahead[self._start :]]), 0
        self.offset -= sum(map(len, frames))

    def record(self, content: bytes, index: int, offset: int) -> AvroRecord:
        """Return the record of these bytes, which is whole, by its number in the file and the place of its block."""
        return AvroRecord(self.schema.read_record(io.BytesIO(content)), index, offset, content, self._file_of)

    def rest(self) -> bytes:
        """Read the file to its end; return what was not passed over, its first PIECE_BYTES_MAX if it is large."""
        rest = self._peek(PIECE_BYTES_MAX)
        while self._text.chunk():
            pass
        return rest

    def head(self) -> bytes:
        """Return the next few bytes, to be shown."""
        return self._peek(_BLOCK_HEAD_BYTES)

    def _records(self, block: AvroBlock) -> Iterator[AvroRecord]:
        """Yield the records of a block, which must hold them all and nothing else."""
        content = block.content
        stream, end = io.BytesIO(content), 0
        for _ in range(block.count):
            start = end
            value = self.schema.read_record(stream)
            end = stream.tell()
            index, self.index = self.index, self.index + 1
            yield AvroRecord(value, index, block.offset, content[start:end], self._file_of)
        if end != len(content):
            raise InvalidInputError(f"expected a block of {block.count} events, got {len(content) - end} bytes more")

    def _file_of(self, record: bytes) -> bytes:
        return b"".join((self._single_header, write_long(1), write_long(len(record)), record, self._sync))

    def _peek(self, size: int) -> bytes:
        """Return the next bytes, fewer only where the text ends, and leave them to be read."""
        if len(self._ahead) - self._start < size:
            parts = [self._ahead[self._start :]]
            missing = size - len(parts[0])
            while missing > 0 and (chunk := self._text.chunk()):
                parts.append(chunk)
                missing -= len(chunk)
            self._ahead, self._start = b"".join(parts), 0
        return self._ahead[self._start : self._start + size]

    def _skip(self, size: int) -> None:
        """Pass over bytes that `_peek` returned."""
        self._start += size
        self.offset += size


def compile_schema(text: bytes) -> RecordSchema:
    """Return the fields of a record schema and the decoder of its records.

    Raises:
        InvalidInputError: it is no schema, not that of a record, or one that is not decoded safely.
    """
    # Imported here because most commands read no Avro.
    import fastavro
    from fastavro.read import LOGICAL_READERS
    from fastavro.schema import SchemaParseException

    # The library's table is shared by the whole process; the name is custody's own and disturbs nobody.
    LOGICAL_READERS[f"bytes-{_HEX}"] = lambda data, *_: data.hex()
    try:
        schema = msgspec.json.decode(text)
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise InvalidInputError("avro.schema: expected that of a record")
        fields = [{"name": str(field["name"]), "type": _checked(field["type"], 0)} for field in schema["fields"]]
        parsed = fastavro.parse_schema({"type": "record", "name": "event", "fields": fields})
    except (
        *(msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError),
        SchemaParseException,
    ) as error:
        raise InvalidInputError(f"avro.schema: expected an Avro schema, got one that breaks at {error}") from error

    def read_record(stream: io.BytesIO) -> dict[str, object]:
        record: dict[str, object] = fastavro.schemaless_reader(stream, parsed, None)  # type: ignore[assignment]
        return record

    return RecordSchema(fields, read_record)


def _checked(schema: Any, depth: int) -> Any:  # noqa: ANN401 - a schema is any JSON
    """Return what of a schema is decoded; a type with a name could name itself, and the decoder would never return."""
    if depth > _DEPTH_MAX:
        raise InvalidInputError(f"avro.schema: expected at most {_DEPTH_MAX} levels")
    if isinstance(schema, list):
        return [_checked(branch, depth + 1) for branch in schema]
    if isinstance(schema, str):
        if schema not in _PRIMITIVES:
            raise InvalidInputError(f"avro.schema: expected a primitive type, got {schema[:40]!r}")
        return {"type": "bytes", "logicalType": _HEX} if schema == "bytes" else schema
    kind = schema["type"]
    if kind == "array":
        items = _checked(schema["items"], depth + 1)
        # A few bytes could claim billions of them.
        if items == "null":
            raise InvalidInputError("avro.schema: expected items of an array, got some that take no bytes")
        return {"type": "array", "items": items}
    if kind == "map":
        return {"type": "map", "values": _checked(schema["values"], depth + 1)}
    return _checked(kind, depth + 1)


def _read_header(data: bytes) -> tuple[dict[str, bytes], bytes, int]:
    """Return the metadata of a container file, its sync marker, and the size of its header."""
    if not data.startswith(MAGIC):
        raise InvalidInputError("the first bytes are others")
    metadata: dict[str, bytes] = {}
    position = len(MAGIC)
    count, position = read_long(data, position)
    while count:
        # A negative count is followed by the size of its entries, which is not needed here.
        if count < 0:
            _, position = read_long(data, position)
        # Bounded by the bytes that are there: the count is only a claim.
        for _ in range(min(abs(count), len(data))):
            name, position = _read_bytes(data, position)
            metadata[name.decode()], position = _read_bytes(data, position)
        count, position = read_long(data, position)
    sync = data[position : position + SYNC_BYTES]
    if len(sync) < SYNC_BYTES:
        raise InvalidInputError("it ends in its header")
    return metadata, sync, position + SYNC_BYTES


def header_size(data: bytes) -> int:
    """Return the size of the header of a file.

    Raises:
        InvalidInputError: it is no container file.
    """
    try:
        return _read_header(data)[2]
    except DAMAGE as error:
        raise InvalidInputError(f"expected an Avro file ({error})") from error


def _uncompressed_header(schema: bytes, sync: bytes) -> bytes:
    """Return the header of an uncompressed file with the same schema."""
    name = b"avro.schema"
    return b"".join((MAGIC, write_long(1), write_long(len(name)), name, write_long(len(schema)), schema, b"\0", sync))


def read_long(data: bytes, position: int) -> tuple[int, int]:
    """Read a zig-zag number of variable length; return it and the position behind it."""
    number = shift = 0
    while True:
        if shift > _VARINT_BITS_MAX:
            raise InvalidInputError("expected a number of at most 10 bytes, got a longer one")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position


def write_long(number: int) -> bytes:
    """Return the zig-zag encoding of a 64-bit number."""
    zigzag = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*encoded, zigzag])


def _read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    length, position = read_long(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise IndexError(f"expected {length} more bytes, got {len(data) - position}")
    return data[position:end], end


def decompress(codec: str, data: bytes) -> bytes:
    """Return the content of a block, at most BLOCK_BYTES_MAX: a megabyte of deflate may hold a gigabyte.

    Raises:
        InvalidInputError: the codec is unknown, the data are damaged or too large.
    """
    try:
        content = _CODECS[codec](data)
    except KeyError:
        raise InvalidInputError(f"avro.codec: expected one of {', '.join(_CODECS)}, got {codec[:40]!r}") from None
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, IndexError, pa.ArrowException) as error:
        raise InvalidInputError(f"expected a block of {codec} data, it is damaged ({error})") from error
    if len(content) > BLOCK_BYTES_MAX:
        raise InvalidInputError(f"expected a block of at most {BLOCK_BYTES_MAX} bytes, got a larger one")
    return content


def _snappy(data: bytes) -> bytes:
    size, shift = 0, 0
    # Snappy begins with its size, which is checked before memory is taken. Avro puts a CRC-32 behind the data.
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > BLOCK_BYTES_MAX:
        raise ValueError(f"{size} bytes are too many")
    content: bytes = pa.Codec("snappy").decompress(data[:-4], size, asbytes=True)
    if zlib_ng.crc32(content) != int.from_bytes(data[-4:]):
        raise ValueError("its checksum is another one")
    return content


def _zstandard(data: bytes) -> bytes:
    with pa.input_stream(pa.BufferReader(data), compression="zstd") as stream:
        content: bytes = stream.read(BLOCK_BYTES_MAX + 1)
        return content


# Each stops a byte behind the limit: that byte shows that there is more, which is never unpacked.
_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.decompressobj(-15).decompress(data, BLOCK_BYTES_MAX + 1),
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": lambda data: bz2.BZ2Decompressor().decompress(data, BLOCK_BYTES_MAX + 1),
    "xz": lambda data: lzma.LZMADecompressor().decompress(data, BLOCK_BYTES_MAX + 1),
}
