"""Random events that share terms, and random queries of every kind that ask for them."""

from __future__ import annotations

from hypothesis import strategies as st
from whoosh import query

from custody.model import ContentClaim
from tests.support import event

ATTRIBUTES = ("tenant", "x")
FIELDS = (
    "event_type",
    "flowfile_uuid",
    "component_id",
    "transit_uri",
    "filename",
    "relationship",
    "content_claim_identifier",
    "content_claim_container",
    "attribute.tenant",
    "attribute.x",
)
NUMBERS = ("event_time", "lineage_start_date", "file_size", "source_ordinal")
_TEXTS = st.sampled_from(
    [
        "a",
        "A",
        "ab",
        "abc",
        "b",
        "B.c",
        "ba%",
        "b_a",
        "c\\d",
        "é",
        "É",
        "İx",
        "ΟΔΟΣ",
        "日本",
        "🜁",
        "",
        "\0",
        "a\nb",
        "[a]",
    ]
)
_SENTENCES = st.lists(
    st.sampled_from(["auto", "Auto", "ended", "by", "É", "a.b", "a..b", "*x*", "-", "x" * 300]), max_size=8
).map(" ".join)
_NUMBERS = st.integers(-300, 300) | st.sampled_from([-(1 << 62), 1 << 40, (1 << 62)])
_VALUES = _NUMBERS | st.sampled_from([-(1 << 63), (1 << 63) - 2, (1 << 63) - 1])
_CLAIMS = st.builds(ContentClaim, container=_TEXTS, section=_TEXTS, identifier=_TEXTS)
_CHANGES = st.dictionaries(st.sampled_from(["filename", *ATTRIBUTES, "other"]), _TEXTS, max_size=3)
_REMOVALS = st.dictionaries(st.sampled_from(["filename", *ATTRIBUTES]), _TEXTS | st.none(), max_size=3)

EVENTS = st.lists(
    st.builds(
        event,
        event_type=_TEXTS,
        event_time=_VALUES,
        component_id=_TEXTS,
        flowfile_uuid=_TEXTS,
        file_size=_VALUES,
        lineage_start_date=st.none() | _VALUES,
        source_ordinal=st.none() | _VALUES,
        transit_uri=st.none() | _TEXTS,
        relationship=st.none() | _TEXTS,
        details=st.none() | _SENTENCES,
        parent_uuids=st.lists(_TEXTS, max_size=3).map(tuple),
        child_uuids=st.lists(_TEXTS, max_size=3).map(tuple),
        previous_attributes=_CHANGES,
        updated_attributes=_REMOVALS,
        content_claim=st.none() | _CLAIMS,
        previous_content_claim=st.none() | _CLAIMS,
    ),
    min_size=1,
    max_size=40,
)

_NAMES = st.sampled_from(FIELDS)
_ASKED = _TEXTS.map(str.lower)
_WORDS = st.sampled_from(["auto", "ended", "by", "é", "a.b", "a", "*x*", "x" * 300, "none"])
_PATTERNS = st.text(alphabet="ab*?[]!c%_\\é", max_size=6)


def _term_range(name: str, ends: list[str | None], first: bool, last: bool) -> query.Query:
    return query.TermRange(name, ends[0], ends[1], first, last)


def _number_range(name: str, ends: tuple[int | None, int | None], first: bool, last: bool) -> query.Query:
    return query.NumericRange(name, ends[0], ends[1], first, last)


_LEAVES = (
    st.builds(query.Term, _NAMES, _ASKED)
    | st.builds(query.Term, st.just("details"), _WORDS)
    | st.builds(query.Prefix, _NAMES, _ASKED)
    # Whoosh takes an empty pattern for none, although a value may be empty.
    | st.builds(query.Wildcard, _NAMES, _PATTERNS.filter(bool))
    | st.builds(query.Phrase, st.just("details"), st.lists(_WORDS, min_size=1, max_size=3))
    | st.builds(_term_range, _NAMES, st.tuples(_ASKED, _ASKED).map(sorted), st.booleans(), st.booleans())
    | st.builds(
        _number_range,
        st.sampled_from(NUMBERS),
        st.tuples(st.none() | _NUMBERS, st.none() | _NUMBERS),
        st.booleans(),
        st.booleans(),
    )
    | st.builds(query.Every, st.none() | st.sampled_from([*FIELDS, "details", *NUMBERS]))
)


def _compound(inner: st.SearchStrategy[query.Query]) -> st.SearchStrategy[query.Query]:
    several = st.lists(inner, min_size=1, max_size=4)
    return (
        several.map(query.And)
        | several.map(query.Or)
        | inner.map(query.Not)
        | st.builds(query.AndNot, inner, inner)
        | st.builds(query.Require, inner, inner)
    )


QUERIES = st.recursive(_LEAVES, _compound, max_leaves=8)
