"""JSON values kept as they were written, and a bound on their nesting.

A number keeps its digits, an object its order, a text its escapes. Decoding and encoding again would change them:
20-digit numbers, 1.0, 1e3 and 112.90 have no exact form in between.

JSON that is nested deeper than anybody means is refused, with its place, before it is decoded: a decoder needs a stack
as deep as its input.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec
import numpy as np

from custody.capture.values import wrong
from custody.errors import InvalidInputError

DEPTH_MAX = 100
"""How many objects and arrays may be nested."""
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
# Made once: a decoder of a type takes longer to make than most documents to decode.
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_OPTIONAL_TEXT: msgspec.json.Decoder[str | None] = msgspec.json.Decoder(str | None)
_OPEN, _CLOSE = np.frombuffer(b"[{", np.uint8), np.frombuffer(b"]}", np.uint8)


def check_depth(raw: bytes, most: int = DEPTH_MAX) -> None:
    """Check that objects and arrays are nested at most so deep.

    Raises:
        InvalidInputError: they are nested deeper; the message has the place of the first that is.
    """
    # Nearly every event has fewer brackets than that in all, and is not looked at further.
    if raw.count(b"[") + raw.count(b"{") <= most:
        return
    # Brackets inside of texts do not count: texts become blanks of the same length, so that places stay.
    data = np.frombuffer(_TEXT.sub(lambda match: b" " * len(match[0]), raw), np.uint8)
    steps = np.isin(data, _OPEN).astype(np.int32) - np.isin(data, _CLOSE)
    deeper = np.flatnonzero(np.cumsum(steps) > most)
    if deeper.size:
        raise InvalidInputError(f"@{deeper[0]}: expected at most {most} arrays and objects in each other, got more")


_BLANKS = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\r\n]+')
_HAS_BLANK = re.compile(r"[ \t\r\n]")


class JsonKind(StrEnum):
    """The type of a JSON value."""

    NULL = "null"
    BOOLEAN = "boolean"
    NUMBER = "number"
    STRING = "string"
    ARRAY = "array"
    OBJECT = "object"


_KINDS = {
    "n": JsonKind.NULL,
    "t": JsonKind.BOOLEAN,
    "f": JsonKind.BOOLEAN,
    '"': JsonKind.STRING,
    "[": JsonKind.ARRAY,
    "{": JsonKind.OBJECT,
}


class RawJson(msgspec.Struct, frozen=True, gc=False):
    """A JSON value as text, without the blanks between its parts; so it is one line."""

    json: str

    @property
    def kind(self) -> JsonKind:
        """The type of the value."""
        return _KINDS.get(self.json[0], JsonKind.NUMBER)

    @property
    def is_composite(self) -> bool:
        """Whether it is an array or an object."""
        return self.kind in (JsonKind.ARRAY, JsonKind.OBJECT)

    @property
    def plain(self) -> str:
        """The characters of a text; everything else as it was written."""
        return msgspec.json.decode(self.json, type=str) if self.json[0] == '"' else self.json


JSON_NULL = RawJson("null")


def to_raw_json(raw: msgspec.Raw) -> RawJson:
    """Return the value of a part of a document that was checked to be UTF-8."""
    text = bytes(raw).decode()
    if _HAS_BLANK.search(text):
        text = _BLANKS.sub(lambda match: match[1] or "", text)
    return RawJson(text)


def exact_text(characters: str) -> RawJson:
    """Return these characters as a JSON text."""
    return RawJson(msgspec.json.encode(characters).decode())


def object_members(key: str, raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the members of an object in their order; of members with one name the last counts.

    Raises:
        InvalidInputError: it is no object; the message names the key.
    """
    try:
        return _OBJECT.decode(raw)
    except msgspec.ValidationError:
        raise _wrong(key, "an object", raw) from None


def array_elements(key: str, expected: str, raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the elements of an array.

    Raises:
        InvalidInputError: it is no array; the message names the key and what was expected.
    """
    try:
        return _ARRAY.decode(raw)
    except msgspec.ValidationError:
        raise _wrong(key, expected, raw) from None


def optional_text(key: str, document: Mapping[str, msgspec.Raw]) -> str | None:
    """Return the text under a key; None where there is none or null.

    Raises:
        InvalidInputError: it is no text.
    """
    raw = document.get(key)
    if raw is None:
        return None
    try:
        return _OPTIONAL_TEXT.decode(raw)
    except msgspec.ValidationError:
        raise _wrong(key, "text", raw) from None


def _wrong(key: str, expected: str, raw: msgspec.Raw) -> InvalidInputError:
    return wrong(key, expected, msgspec.json.decode(raw))
