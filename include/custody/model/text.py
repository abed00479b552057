"""Text that can be kept: valid Unicode, which Arrow, Parquet, JSON and Protocol Buffers all ask for.

Python also has texts that are none: `os.listdir` gives names whose bytes are no UTF-8 with halves of surrogate pairs in
them. Such a text is refused before anything is stored; NUL and every other character is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from custody.errors import InvalidInputError
from custody.model.event import ContentClaim, Event

_ENCODER = msgspec.msgpack.Encoder()
_OF_BYTES = range(0xDC80, 0xDD00)  # Python's stand-ins for single bytes (PEP 383)


def text_problem(name: str, text: str) -> str | None:
    """Return what keeps a text, called `name`, from being stored; None for one that can be."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        half = ord(text[error.start])
        meant = f", for the byte 0x{half - 0xDC00:02X} of what is no UTF-8" if half in _OF_BYTES else ""
        return (
            f"{name}, character {error.start}: expected valid Unicode, got the lone surrogate U+{half:04X}{meant}; "
            "custody.format.names.name_as_text writes such names as text, and they can be read back"
        )
    return None


def require_text(**texts: str | None) -> None:
    """Refuse texts that are no valid Unicode.

    Raises:
        InvalidInputError: one is not; the message names it, and the place in it.
    """
    for name, text in texts.items():
        problem = None if text is None else text_problem(name, text)
        if problem is not None:
            raise InvalidInputError(f"{problem}. Nothing was stored.")


def text_problems(event: Event) -> Iterator[str]:
    """Yield what keeps the texts of an event from being stored; the usual event costs a microsecond."""
    try:
        _ENCODER.encode(event)
    except (UnicodeEncodeError, OverflowError, TypeError):  # what is no text is refused elsewhere
        for field in event.__struct_fields__:
            for name, text in _texts(field, getattr(event, field)):
                problem = text_problem(name, text)
                if problem is not None:
                    yield problem


def _texts(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of every text in the value of a field."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, tuple | list):
        for number, item in enumerate(value):
            yield from _texts(f"{name}[{number}]", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(f"{name}: a name", key)
            yield from _texts(f"{name}[{key!r}]", item)
    elif isinstance(value, ContentClaim):
        for field in value.__struct_fields__:
            yield from _texts(f"{name}.{field}", getattr(value, field))
