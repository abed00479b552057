"""Output of the places of software, for the commands that look for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from custody.cli.output import print_json, print_table, time_text
from custody.swh import Occurrence, Swhid, Whereabouts
from custody.swh.database import occurrence_json, whereabouts_json


def print_first(places: Sequence[Whereabouts], as_json: bool) -> None:
    """Print where things were first, a line a thing."""
    if as_json:
        for place in places:
            print_json(whereabouts_json(place))
        return
    rows = [
        (
            place.swhid,
            place.anchor or ("nowhere" if place.is_known else "unknown"),
            _date(place.author_date),
            place.origin,
        )
        for place in places
    ]
    print_table("", ("what", "first in", "date", "origin"), rows)


def print_occurrences(by_content: Mapping[Swhid, Sequence[Occurrence]], as_json: bool) -> None:
    """Print all revisions and releases that hold contents, a table a content."""
    for swhid, occurrences in by_content.items():
        documents = [occurrence_json(place) for place in occurrences]
        if as_json:
            for place in documents:
                print_json({"swhid": str(swhid), **place})
            continue
        rows = [
            (one["anchor"], _date(place.author_date), one["path"], one["origin"])
            for one, place in zip(documents, occurrences, strict=True)
        ]
        print_table(str(swhid), ("in", "date", "path", "origin"), rows)


def _date(seconds: int | None) -> str:
    return "" if seconds is None else time_text(seconds * 1000)
