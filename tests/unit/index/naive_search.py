"""What a search should find: every event looked at by itself, sharing nothing with the index."""

from __future__ import annotations

import re
from fnmatch import translate

from whoosh import query

from custody.index.terms import WORDS
from custody.model import Event

NUMBERS = ("event_time", "lineage_start_date", "file_size", "source_ordinal")
_CUT = 4096


def terms(event: Event, field: str) -> list[str]:
    """The terms of an event in a field; of details, the words in their order."""
    if field == "details":
        return [token.text for token in WORDS(event.details or "")]
    return [v.encode()[:_CUT].decode(errors="ignore").lower() for v in _values(event, field) if v is not None]


def _values(event: Event, field: str) -> list[str | None]:
    if field == "flowfile_uuid":
        return [event.flowfile_uuid, *event.parent_uuids, *event.child_uuids]
    if field.startswith("content_claim_"):
        part = field.removeprefix("content_claim_")
        return [getattr(claim, part) for claim in (event.content_claim, event.previous_content_claim) if claim]
    if field == "filename" or field.startswith("attribute."):
        name = field.removeprefix("attribute.")
        return [{**event.previous_attributes, **event.updated_attributes}.get(name)]
    return [getattr(event, field)]


def matches(event: Event, question: query.Query) -> bool:
    """Whether an event matches a query."""
    match question:
        case query.And():
            return all(matches(event, part) for part in question.children())
        case query.Or():
            return any(matches(event, part) for part in question.children())
        case query.Not():
            return not matches(event, question.query)
        case query.AndNot():
            return matches(event, question.a) and not matches(event, question.b)
        case query.AndMaybe():
            return matches(event, question.a)
        case query.Require():
            return matches(event, question.a) and matches(event, question.b)
        case query.NumericRange():
            return _in_range(event, question)
        case query.Every():
            return question.fieldname is None or _has(event, question.fieldname)
    return _has_term(terms(event, question.fieldname), question)


def _has(event: Event, field: str) -> bool:
    return getattr(event, field) is not None if field in NUMBERS else bool(terms(event, field))


def _in_range(event: Event, question: query.NumericRange) -> bool:
    number = getattr(event, question.fieldname)
    if number is None:
        return False
    low = question.start is None or number > question.start or (number == question.start and not question.startexcl)
    high = question.end is None or number < question.end or (number == question.end and not question.endexcl)
    return low and high


def _has_term(found: list[str], question: query.Query) -> bool:
    match question:
        case query.Phrase():
            wanted = list(question.words)
            return any(found[start : start + len(wanted)] == wanted for start in range(len(found)))
        case query.Prefix():
            return any(term.startswith(question.text) for term in found)
        case query.Wildcard():
            return any(re.match(translate(question.text), term) for term in found)
        case query.TermRange():
            return any(_between(term.encode(), question) for term in found)
        case query.Term():
            return question.text in found
    raise TypeError(f"the oracle knows no {type(question).__name__}")


def _between(term: bytes, question: query.TermRange) -> bool:
    start, end = (None if text is None else text.encode() for text in (question.start, question.end))
    low = start is None or term > start or (term == start and not question.startexcl)
    return low and (end is None or term < end or (term == end and not question.endexcl))
