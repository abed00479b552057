"""An event as the API gives it: its ordinal as a text; what is not there has its default.

Apart from the API's other documents, which need the web framework: exports are made by processes without it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from custody.model import Event, shortened

# Ordinals of a source may have 63 bits, of which JavaScript's numbers keep 53.
_AS_TEXT = "source_ordinal"
_ENCODER = msgspec.json.Encoder()

EventDocument = msgspec.defstruct(
    "EventDocument",
    [
        (field.name, str | None, None)
        if field.name == _AS_TEXT
        else (field.name, field.type)
        if field.required
        else (
            field.name,
            field.type,
            field.default if field.default is not msgspec.NODEFAULT else field.default_factory(),
        )
        for field in msgspec.structs.fields(Event)
    ],
    kw_only=True,
    omit_defaults=True,
    module=__name__,
)
"""An event as the API gives it: its ordinal as a text; what is not there has its default."""


def event_document(event: Event) -> dict[str, Any]:
    """Return an event as the API gives it."""
    document: dict[str, Any] = msgspec.to_builtins(event)
    if event.source_ordinal is not None:
        document[_AS_TEXT] = str(event.source_ordinal)
    return document


def event_json(event: Event, characters_max: int) -> msgspec.Raw:
    """Return an event as JSON; values of attributes are cut to `characters_max`."""
    data = _encoded(event)
    # A value that is too long makes the whole longer: most events need no look at their attributes.
    return msgspec.Raw(data if len(data) <= characters_max else _encoded(shortened(event, characters_max)))


def _encoded(event: Event) -> bytes:
    ordinal = event.source_ordinal
    # What a struct holds is not checked: it is encoded as it is.
    as_text = event if ordinal is None else msgspec.structs.replace(event, **{_AS_TEXT: str(ordinal)})
    return _ENCODER.encode(as_text)
