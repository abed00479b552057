"""The types of an event's values, exactly: what no column holds as it was given."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from custody.errors import InvalidInputError
from custody.model.event import ContentClaim, Event

_INT64 = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Claim(msgspec.Struct):
    container: str | None = None
    section: str | None = None
    identifier: str | None = None
    offset: _INT64 | None = None
    size: _INT64 | None = None


def _checked_type(kind: Any) -> Any:  # noqa: ANN401 - a type annotation, whatever it is
    named = {
        int: _INT64,
        int | None: _INT64 | None,
        ContentClaim | None: _Claim | None,
    }
    return named.get(kind, kind)


_CHECKED = msgspec.defstruct(
    "_Checked", [(field.name, _checked_type(field.type)) for field in msgspec.structs.fields(Event)]
)


def require_types(event: Event) -> None:
    """Refuse an event with a value of another type than its field has.

    Neither Arrow nor MessagePack refuses by itself all that cannot be read back as it was: Arrow takes 1.5 for 1 and
    None for a number, MessagePack takes bytes for a text.

    Raises:
        InvalidInputError: a value has another type, or a number has more than 64 bits; the message names the field.
    """
    try:
        msgspec.convert(event, _CHECKED, from_attributes=True)
    except (msgspec.ValidationError, TypeError, OverflowError) as error:
        raise InvalidInputError(f"{error}. Nothing was stored.") from error
