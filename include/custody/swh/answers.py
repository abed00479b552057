"""Answers as JSON: one shape for the command line and the services, documented in docs/swh.md."""

from __future__ import annotations

from custody.format.names import name_as_text
from custody.swh.database import Occurrence, Whereabouts


def where_first(place: Whereabouts) -> dict[str, object]:
    """Return where something was first; `author_date` in seconds since the epoch."""
    return {
        "swhid": str(place.swhid),
        "is_known": place.is_known,
        "anchor": None if place.anchor is None else str(place.anchor),
        "author_date": place.author_date,
        "origin": place.origin,
    }


def occurrence(place: Occurrence) -> dict[str, object]:
    """Return one revision or release that holds a content. Names in git are bytes: what is no UTF-8 is spelled."""
    return {
        "anchor": str(place.anchor),
        "author_date": place.author_date,
        "path": name_as_text(place.path.decode("utf-8", "surrogateescape")),
        "origin": place.origin,
    }
