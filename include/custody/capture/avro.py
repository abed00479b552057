"""Avro object container files: the schema of a file compiled to a decoder, and the records of its blocks.

Specification: Avro 1.12, "Object Container Files" and "Binary Encoding". Codecs: null, deflate, snappy, zstandard,
bzip2, xz. Only the writer's schema is used; logical types are left as the numbers that they are. A record's fields
are primitives, and unions, arrays and maps of them: what a schema may not do is name types, so it cannot recurse.
"""

from __future__ import annotations

import bz2
import lzma
import struct
import zlib
from collections.abc import Callable
from typing import Any

import msgspec
import pyarrow as pa

from custody.errors import InvalidInputError

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
BLOCK_BYTES_MAX = 64 << 20
_DEPTH_MAX = 8
_VARINT_BITS_MAX = 63

Decode = Callable[[bytes, int], tuple[Any, int]]
"""Reads one value at a position; returns it and the position behind it. Raises what BROKEN names."""
BROKEN = (InvalidInputError, IndexError, struct.error, UnicodeDecodeError)


def read_long(data: bytes, position: int) -> tuple[int, int]:
    """Read a zig-zag number of variable length."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift > _VARINT_BITS_MAX:
            raise InvalidInputError("expected a number of at most 10 bytes, got a longer one")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        shift += 7
    return (number >> 1) ^ -(number & 1), position


def write_long(number: int) -> bytes:
    """Return the zig-zag encoding of a 64-bit number."""
    zigzag = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*encoded, zigzag])


def read_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    """Read bytes with their length before them."""
    length, position = read_long(data, position)
    end = position + length
    if length < 0 or end > len(data):
        raise IndexError(f"expected {length} more bytes, got {len(data) - position}")
    return data[position:end], end


def compile_schema(text: bytes) -> Decode:
    """Return the decoder of a record schema.

    Raises:
        InvalidInputError: it is no schema, or not that of a record.
    """
    try:
        schema = msgspec.json.decode(text)
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise InvalidInputError("avro.schema: expected that of a record")
        return _record([(str(field["name"]), _decoder(field["type"], 0)) for field in schema["fields"]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError) as error:
        raise InvalidInputError(f"avro.schema: expected an Avro schema, got one that breaks at {error}") from error


def decompress(codec: str, data: bytes) -> bytes:
    """Return the content of a block, at most BLOCK_BYTES_MAX.

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
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > BLOCK_BYTES_MAX:
        raise ValueError(f"{size} bytes are too many")
    content: bytes = pa.Codec("snappy").decompress(data[:-4], size, asbytes=True)
    if zlib.crc32(content) != int.from_bytes(data[-4:]):
        raise ValueError("its checksum is another one")
    return content


def _zstandard(data: bytes) -> bytes:
    with pa.input_stream(pa.BufferReader(data), compression="zstd") as stream:
        content: bytes = stream.read(BLOCK_BYTES_MAX + 1)
        return content


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.decompressobj(-15).decompress(data, BLOCK_BYTES_MAX + 1),
    "snappy": _snappy,
    "zstandard": _zstandard,
    "bzip2": lambda data: bz2.BZ2Decompressor().decompress(data, BLOCK_BYTES_MAX + 1),
    "xz": lambda data: lzma.LZMADecompressor().decompress(data, BLOCK_BYTES_MAX + 1),
}


def _decoder(schema: Any, depth: int) -> Decode:  # noqa: ANN401 - a schema is any JSON
    if depth > _DEPTH_MAX:
        raise InvalidInputError(f"avro.schema: expected at most {_DEPTH_MAX} levels")
    if isinstance(schema, list):
        return _union([_decoder(branch, depth + 1) for branch in schema])
    if isinstance(schema, str):
        if schema not in _PRIMITIVE:
            raise InvalidInputError(f"avro.schema: expected a primitive type, got {schema[:40]!r}")
        return _PRIMITIVE[schema]
    kind = schema["type"]
    if kind == "array":
        return _array(_decoder(schema["items"], depth + 1))
    if kind == "map":
        return _map(_decoder(schema["values"], depth + 1))
    return _decoder(kind, depth + 1)


def _record(fields: list[tuple[str, Decode]]) -> Decode:
    def decode(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        record = {}
        for name, read in fields:
            record[name], position = read(data, position)
        return record, position

    return decode


def _union(branches: list[Decode]) -> Decode:
    only = branches[1] if len(branches) == 2 and branches[0] is _null else None

    def decode(data: bytes, position: int) -> tuple[Any, int]:
        if only is not None and data[position] in (0, 2):  # nearly all are: null or something
            return only(data, position + 1) if data[position] else (None, position + 1)
        number, position = read_long(data, position)
        if number < 0:
            raise IndexError(f"expected a branch of a union, got {number}")
        return branches[number](data, position)

    return decode


def _count(data: bytes, position: int) -> tuple[int, int]:
    """Read the number of items that follow, which cannot be more than there are bytes."""
    count, position = read_long(data, position)
    if count < 0:
        count = -count
        _, position = read_long(data, position)
    if count > len(data) - position:
        raise IndexError(f"expected {count} items, got {len(data) - position} bytes")
    return count, position


def _array(read: Decode) -> Decode:
    def decode(data: bytes, position: int) -> tuple[list[Any], int]:
        items = []
        count, position = _count(data, position)
        while count:
            for _ in range(count):
                item, end = read(data, position)
                if end == position:
                    raise InvalidInputError("expected items of an array, got some that take no bytes")
                items.append(item)
                position = end
            count, position = _count(data, position)
        return items, position

    return decode


def _map(read: Decode) -> Decode:
    def decode(data: bytes, position: int) -> tuple[dict[str, Any], int]:
        items = {}
        count, position = _count(data, position)
        while count:
            for _ in range(count):
                name, position = _string(data, position)
                items[name], position = read(data, position)
            count, position = _count(data, position)
        return items, position

    return decode


def _string(data: bytes, position: int) -> tuple[str, int]:
    first = data[position]
    end = position + 1 + (first >> 1)
    if not first & 0x81 and end <= len(data):  # nearly all are: short, and their length one byte
        return data[position + 1 : end].decode(), end
    found, position = read_bytes(data, position)
    return found.decode(), position


def _hex(data: bytes, position: int) -> tuple[str, int]:
    found, position = read_bytes(data, position)
    return found.hex(), position


def _boolean(data: bytes, position: int) -> tuple[bool, int]:
    return data[position] != 0, position + 1


def _null(_: bytes, position: int) -> tuple[None, int]:
    return None, position


_PRIMITIVE: dict[str, Decode] = {
    "null": _null,
    "boolean": _boolean,
    "int": read_long,
    "long": read_long,
    "float": lambda data, position: (*struct.unpack_from("<f", data, position), position + 4),
    "double": lambda data, position: (*struct.unpack_from("<d", data, position), position + 8),
    "bytes": _hex,
    "string": _string,
}
