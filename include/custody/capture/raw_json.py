"""How deep JSON from outside may be nested: what nobody means is refused with its place before it is decoded.

JSON values as they were written: a number keeps its digits, an object its order, a text its escapes.

Decoding and encoding again would change them: 20-digit numbers, 1.0, 1e3 and 112.90 have no exact form in between.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec
import numpy as np

from custody.capture.values import wrong
from custody.errors import InvalidInputError

DEPTH_MAX = 100
"""Objects and arrays in each other; a decoder that follows them needs a stack as deep."""
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_OPEN, _CLOSE = np.frombuffer(b"[{", np.uint8), np.frombuffer(b"]}", np.uint8)


def check_depth(raw: bytes, most: int = DEPTH_MAX) -> None:
    """See that objects and arrays lie at most so many deep in each other.

    Raises:
        InvalidInputError: they lie deeper; the message has the place of the first that does.
    """
    if raw.count(b"[") + raw.count(b"{") <= most:
        return
    # Brackets in texts are none; what stands for them is as long, so that places stay.
    data = np.frombuffer(_TEXT.sub(lambda found: b" " * len(found[0]), raw), np.uint8)
    steps = np.isin(data, _OPEN).astype(np.int32) - np.isin(data, _CLOSE)
    deeper = np.flatnonzero(np.cumsum(steps) > most)
    if deeper.size:
        raise InvalidInputError(f"@{deeper[0]}: expected at most {most} arrays and objects in each other, got more")


_BLANKS = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|[ \t\r\n]+')
_HAS_BLANK = re.compile(r"[ \t\r\n]")


class Kind(StrEnum):
    """What a JSON value is."""

    NULL = "null"
    BOOLEAN = "boolean"
    NUMBER = "number"
    STRING = "string"
    ARRAY = "array"
    OBJECT = "object"


_KINDS = {"n": Kind.NULL, "t": Kind.BOOLEAN, "f": Kind.BOOLEAN, '"': Kind.STRING, "[": Kind.ARRAY, "{": Kind.OBJECT}


@dataclass(frozen=True, slots=True)
class Exact:
    """A JSON value; `json` is its text without the blanks between its parts, so it is one line."""

    json: str

    @property
    def kind(self) -> Kind:
        """What it is."""
        return _KINDS.get(self.json[0], Kind.NUMBER)

    @property
    def is_composite(self) -> bool:
        """Whether it is an array or an object."""
        return self.kind in (Kind.ARRAY, Kind.OBJECT)

    @property
    def plain(self) -> str:
        """The characters of a text; everything else as it was written."""
        return msgspec.json.decode(self.json, type=str) if self.json[0] == '"' else self.json


NULL = Exact("null")


def exact(raw: msgspec.Raw) -> Exact:
    """Return the value of a part of a document that was checked to be UTF-8."""
    text = bytes(raw).decode()
    if _HAS_BLANK.search(text):
        text = _BLANKS.sub(lambda found: found[1] or "", text)
    return Exact(text)


def exact_text(characters: str) -> Exact:
    """Return the value that these characters are as a JSON text."""
    return Exact(msgspec.json.encode(characters).decode())


def members(key: str, raw: msgspec.Raw) -> dict[str, msgspec.Raw]:
    """Return the members of an object in their order; of members with one name the last counts.

    Raises:
        InvalidInputError: it is no object; the message names the key.
    """
    try:
        return msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except msgspec.ValidationError:
        raise _wrong(key, "an object", raw) from None


def elements(key: str, expected: str, raw: msgspec.Raw) -> list[msgspec.Raw]:
    """Return the elements of an array.

    Raises:
        InvalidInputError: it is no array; the message names the key and what was expected.
    """
    try:
        return msgspec.json.decode(raw, type=list[msgspec.Raw])
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
        return msgspec.json.decode(raw, type=str | None)
    except msgspec.ValidationError:
        raise _wrong(key, "text", raw) from None


def _wrong(key: str, expected: str, raw: msgspec.Raw) -> InvalidInputError:
    return wrong(key, expected, msgspec.json.decode(raw))
