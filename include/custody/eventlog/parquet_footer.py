"""A parser that cuts a Parquet footer apart, so that one block can be decoded without the footer of all blocks.

A footer is a Thrift struct in the compact protocol: schema, list of row groups, key-value metadata. What is needed to
decode one block is the same struct with a list of one. The parser only finds where values lie, by skipping over them;
what they mean is left to pyarrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

MAGIC = b"PAR1"
TAIL_BYTES = 8
"""A Parquet file ends with the length of its footer (u32) and its magic number."""

Buffer = bytes | memoryview

_STOP = 0
_BYTE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 3, 7, 8, 9, 10, 11, 12
_BOOLEANS = (1, 2)
_LONG_LIST = 15
_NUM_ROWS, _ROW_GROUPS = 3, 4  # ids of fields of Parquet's FileMetaData


@dataclass(frozen=True, slots=True)
class FooterParts:
    """A footer without its row groups, and the row groups; joined again by `footer_of`.

    `before` ends where the number of rows is spelled, `after` begins behind the list of row groups.
    """

    before: bytes
    after: bytes
    row_groups: tuple[bytes, ...]


def footer_of(before: bytes, after: bytes, row_groups: Sequence[bytes], rows: int) -> bytes:
    """Return a Parquet file without data, whose footer describes some blocks, of `rows` events, of another file."""
    count = len(row_groups)
    groups = _field(_LIST) + (bytes([count << 4 | _STRUCT]) if count < _LONG_LIST else b"\xfc" + varint(count))
    # Shifted by one: Thrift spells signed numbers with the sign in the lowest bit.
    footer = b"".join((before, varint(rows << 1), groups, *row_groups, after))
    return b"".join((MAGIC, footer, len(footer).to_bytes(4, "little"), MAGIC))


def cut_footer(data: bytes) -> FooterParts:
    """Return the parts of a footer's Thrift bytes.

    Raises:
        ValueError: the bytes are not a Parquet footer.
    """
    try:
        return _cut(data)
    except IndexError:
        raise ValueError("expected a Parquet footer, got bytes that break off") from None


def key_values(after: bytes) -> dict[bytes, bytes]:
    """Return the key-value metadata of a footer, whose part behind its row groups this is.

    Raises:
        ValueError: the bytes are not that part.
    """
    try:
        return _key_values(after)
    except IndexError:
        raise ValueError("expected key-value metadata in a Parquet footer, got bytes that break off") from None


def _key_values(after: bytes) -> dict[bytes, bytes]:
    # The field behind the row groups; a footer without metadata goes on with a later one, or ends.
    if after[:1] != _field(_LIST):
        return {}
    count, element, position = _list_head(after, 1)
    if element != _STRUCT:
        raise ValueError("expected key-value metadata in a Parquet footer, got elements that are no structs")
    found = {}
    for _ in range(count):
        texts: list[bytes] = []
        while after[position] != _STOP:
            if after[position] != _field(_BINARY)[0] or len(texts) == len(("key", "value")):
                raise ValueError("expected a key and a value in a Parquet footer, got other fields")
            length, start = read_varint(after, position + 1)
            position = start + length
            texts.append(after[start:position])
        position += 1
        if not texts or position > len(after):
            raise ValueError("expected a key and a value in a Parquet footer, got bytes that break off")
        found[texts[0]] = texts[1] if len(texts) > 1 else b""
    return found


def _cut(data: bytes) -> FooterParts:
    field = position = rows_start = rows_end = 0
    while True:
        kind, delta = data[position] & 15, data[position] >> 4
        # With a delta of 0 the id of the field would be spelled out; fields as close as these never need that.
        if kind == _STOP or delta == 0:
            raise ValueError("expected a Parquet footer, got a struct without row groups")
        field += delta
        if field >= _ROW_GROUPS:
            break
        start = position + 1
        position = _skip(data, start, kind)
        if field == _NUM_ROWS:
            rows_start, rows_end = start, position
    # `footer_of` spells the row groups as the field that follows the number of rows.
    if data[position : position + 1] != _field(_LIST) or position != rows_end:
        raise ValueError("expected a Parquet footer, got no list of row groups behind the number of rows")
    count, element, position = _list_head(data, position + 1)
    if element != _STRUCT:
        raise ValueError("expected a Parquet footer, got row groups that are no structs")
    groups = []
    for _ in range(count):
        end = skip_struct(data, position)
        groups.append(data[position:end])
        position = end
    return FooterParts(data[:rows_start], data[position:], tuple(groups))


def _field(kind: int) -> bytes:
    """Return the head of the field that follows the one before it."""
    return bytes([1 << 4 | kind])


def varint(value: int) -> bytes:
    """Return a number as Thrift spells it, seven bits a byte."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """Return the number that begins at a position, and the position behind it."""
    value = shift = 0
    while data[position] > 127:
        value |= (data[position] & 127) << shift
        shift += 7
        position += 1
    return value | data[position] << shift, position + 1


def _list_head(data: Buffer, position: int) -> tuple[int, int, int]:
    """Return (elements, their kind, first byte of the first one)."""
    head = data[position]
    if head >> 4 == _LONG_LIST:
        count, position = read_varint(data, position + 1)
        return count, head & 15, position
    return head >> 4, head & 15, position + 1


def skip_struct(data: Buffer, position: int) -> int:
    """Return the position behind a struct."""
    while True:
        head = data[position]
        position += 1
        if head == _STOP:
            return position
        if head < 16:  # the id of the field is spelled out
            while data[position] > 127:
                position += 1
            position += 1
        kind = head & 15
        # The usual kinds are handled here, not by `_skip`: a footer has thousands of values.
        if kind > _BINARY:
            position = _skip(data, position, kind)
        elif kind == _BINARY and data[position] < 128:  # a short text, the usual case
            position += 1 + data[position]
        elif kind > _BYTE and kind < _DOUBLE:  # a number
            while data[position] > 127:
                position += 1
            position += 1
        elif kind not in _BOOLEANS:
            position = _skip(data, position, kind)


def _skip(data: Buffer, position: int, kind: int) -> int:
    """Return the position behind a value; a boolean field has none."""
    if kind == _STRUCT:
        return skip_struct(data, position)
    if kind in (_LIST, _SET):
        return _skip_list(data, position)
    if kind == _BINARY:
        length, position = read_varint(data, position)
        return position + length
    if kind in _BOOLEANS:
        return position
    if kind in (_BYTE, _DOUBLE):
        return position + (1 if kind == _BYTE else 8)
    if kind == _MAP or kind > _STRUCT:
        raise ValueError(f"expected a Parquet footer, got a value of kind {kind}")
    return read_varint(data, position)[1]


def _skip_list(data: Buffer, position: int) -> int:
    """Return the position behind a list."""
    count, element, position = _list_head(data, position)
    if _BYTE < element < _DOUBLE:  # numbers, of which each column chunk has several lists
        for _ in range(count):
            while data[position] > 127:
                position += 1
            position += 1
        return position
    for _ in range(count):
        position = position + 1 if element in _BOOLEANS else _skip(data, position, element)
    return position
