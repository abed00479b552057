"""What a query says of time: events outside of these bounds cannot match, so shards outside need not be opened."""

from __future__ import annotations

from functools import reduce

from whoosh import query

TIME = "event_time"
ALWAYS = (-(1 << 63), (1 << 63) - 1)
NEVER = (ALWAYS[1], ALWAYS[0])

Bounds = tuple[int, int]


def time_bounds(question: query.Query) -> Bounds:
    """Return the least and the greatest event time that can match, ms since the epoch, both included."""
    match question:
        case query.NumericRange() if question.fieldname == TIME:
            first = ALWAYS[0] if question.start is None else int(question.start) + bool(question.startexcl)
            last = ALWAYS[1] if question.end is None else int(question.end) - bool(question.endexcl)
            return first, last
        case query.And() | query.Require():
            return reduce(_both, map(time_bounds, question.children()), ALWAYS)
        case query.Or():
            return reduce(_either, map(time_bounds, question.children()), NEVER)
        case query.AndNot() | query.AndMaybe():
            return time_bounds(question.a)
    return ALWAYS


def _both(one: Bounds, other: Bounds) -> Bounds:
    return max(one[0], other[0]), min(one[1], other[1])


def _either(one: Bounds, other: Bounds) -> Bounds:
    return min(one[0], other[0]), max(one[1], other[1])


def fields_of(question: query.Query) -> set[str]:
    """Return the names of the fields that a query asks."""
    return {name for leaf in question.leaves() if (name := getattr(leaf, "fieldname", None)) is not None}
