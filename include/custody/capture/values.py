"""Values of JSON objects, read with their key in the message where they are not what was expected."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from custody.errors import InvalidInputError

Document = Mapping[str, object]


def text(key: str, value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise wrong(key, "text", value)
    return value


def integer(key: str, value: object) -> int:
    """Return a whole number; JSON may write it with a point."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(key, "a whole number", value)
    return value


def texts(key: str, value: object) -> tuple[str, ...]:
    """Return an array of texts."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise wrong(key, "an array of texts", value)
    return tuple(value)


def mapping(key: str, value: object) -> Document:
    """Return an object."""
    if not isinstance(value, dict):
        raise wrong(key, "an object", value)
    return value


def mappings(key: str, value: object) -> list[Document]:
    """Return an array of objects."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise wrong(key, "an array of objects", value)
    return value


def attributes(key: str, value: object) -> dict[str, str | None]:
    """Return an object of texts and nulls."""
    if not isinstance(value, dict) or not all(item is None or isinstance(item, str) for item in value.values()):
        raise wrong(key, "an object whose values are texts or null", value)
    return value


def require(document: Document, *keys: str) -> None:
    """Raise InvalidInputError for the first of the keys that has no value."""
    for key in keys:
        if document.get(key) is None:
            raise InvalidInputError(f"{key}: expected a value, got {'null' if key in document else 'no key'}")


def wrong(key: str, expected: str, value: object) -> InvalidInputError:
    """Return the error for a value of the wrong kind."""
    shown = msgspec.json.encode(value)[:80].decode("utf-8", "replace")
    return InvalidInputError(f"{key}: expected {expected}, got {shown}")
