"""Events as answers show them: attributes beyond the longest that an answer may have are cut, and marked as cut."""

from __future__ import annotations

import msgspec

from custody.model.event import Event

_MARK = "…"


class CutEvent(Event, frozen=True, kw_only=True, omit_defaults=True):
    """An event with values of attributes that were cut; the record has them whole."""

    cut_attributes: dict[str, int] = msgspec.field(default_factory=dict)
    """Characters of the longest whole value of each attribute that was cut."""


def shortened(event: Event, characters_max: int) -> Event:
    """Return an event with values of attributes of at most so many characters, 1 or more; a cut one ends in a mark."""
    cut: dict[str, int] = {}
    for values in (event.previous_attributes, event.updated_attributes):
        for name, value in values.items():
            if value is not None and len(value) > characters_max:
                cut[name] = max(cut.get(name, 0), len(value))
    if not cut:
        return event
    # Field by field: `asdict` keeps the claims as they are.
    fields = msgspec.structs.asdict(event)
    for kind in ("previous_attributes", "updated_attributes"):
        fields[kind] = {name: _cut(value, characters_max) for name, value in fields[kind].items()}
    return CutEvent(**fields, cut_attributes=cut)


def _cut(value: str | None, characters_max: int) -> str | None:
    return value if value is None or len(value) <= characters_max else value[: characters_max - 1] + _MARK
