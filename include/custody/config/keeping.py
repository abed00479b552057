"""Rules that say how long some events are kept: `event_type:DROP keep 7 days`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from custody.config.durations import span_ms

_RULE = re.compile(r"(?P<terms>.+?)\s+keep\s+(?P<span>.+)")
_TYPE = re.compile(r"event_type:([A-Z_]+)")
_ATTRIBUTE = re.compile(r"attribute:([^=]+)=(.*)")


@dataclass(frozen=True, slots=True)
class KeepRule:
    """Events that fulfil all that is set are kept for `keep_ms`."""

    keep_ms: int
    event_type: str | None = None
    attributes: tuple[tuple[str, str], ...] = ()


def keep_rule(text: str) -> KeepRule:
    """Return the rule that a text spells: terms `event_type:TYPE` or `attribute:NAME=VALUE` joined by `and`.

    Raises:
        ValueError: it is none.
    """
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise _refusal(text)
    event_type = None
    attributes: list[tuple[str, str]] = []
    for term in re.split(r"\s+and\s+", found["terms"]):
        kind, attribute = _TYPE.fullmatch(term), _ATTRIBUTE.fullmatch(term)
        if kind is not None and event_type is None:
            event_type = kind[1]
        elif attribute is not None:
            attributes.append((attribute[1], attribute[2]))
        else:
            raise _refusal(text)
    return KeepRule(span_ms(found["span"]), event_type, tuple(attributes))


def _refusal(text: str) -> ValueError:
    return ValueError(
        "expected 'event_type:DROP keep 7 days' or 'attribute:NAME=VALUE keep 5 years', with 'and' between several "
        f"terms, got {text!r}"
    )
