"""The language is strict: a text is read as what its printed form says, or it is refused with the place of the mistake.

And what is read is answered as a plain evaluation over the events answers it, by the index and by the scan.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import InvalidInputError
from custody.model import Event, EventType
from custody.query import QueryError, field_help, parse_query, parser, structured_query
from custody.query.conditions import CONDITIONS_MAX, PATTERNS_MAX
from custody.query.parser import DEPTH_MAX, parse_tree
from custody.query.syntax_tree import And, Everything, Exists, Node, Not, Or, Pattern, TextValue, ValueRange, printed
from custody.repository import Repository
from tests.support import append, event

KNOWN = tuple(field_help(["order.region", "a:b", "(z)", "AND"]))
NOW_MS = 1_772_409_600_000


def refusal(text: str) -> QueryError:
    with pytest.raises(QueryError) as caught:
        parse_query(text, ["order.region"], NOW_MS)
    return caught.value


@pytest.mark.parametrize(
    ("text", "column", "said", "correction"),
    [
        ("event_type:SEND AND", 20, "expected a condition, got the end", "AND stands between two conditions"),
        ("AND", 1, "expected a condition, got 'AND'", '"AND"'),
        ("a OR", 5, "expected a condition, got the end", '"OR"'),
        ("a OR OR b", 6, "expected a condition, got 'OR'", '"OR"'),
        ("a NOT", 6, "expected a condition, got the end", '"NOT"'),
        ("()", 2, "expected a condition, got ')'", None),
        ("event_type=SEND", 11, "joined by a colon", "Write event_type:SEND"),
        ("event_type = SEND", 12, "joined by a colon", "Write event_type:SEND"),
        ("event_type == SEND", 12, "joined by a colon", "Write event_type:SEND"),
        ("event_type!=SEND", 11, "joined by a colon", "Write NOT event_type:SEND"),
        ("type=SEND", 5, "joined by a colon", "Did you mean event_type:"),
        ("event_time>2026", 11, "joined by a colon", "Write event_time:[2026 TO]"),
        ("file_size <= 5", 11, "joined by a colon", "Write file_size:[TO 5]"),
        ("file_size:>5", 11, "begins with >", "Write file_size:[5 TO]"),
        ("event_type:=SEND", 12, "begins with =", "Write event_type:SEND"),
        ('details:"unclosed', 9, "this quote is not closed", 'Write "'),
        ("filename:'unclosed", 10, "this quote is not closed", "Write '"),
        ("event_type:(SEND", 12, "this bracket is not closed", "Write )"),
        ("(a (b)", 1, "this bracket is not closed", "Write )"),
        ("event_type:SEND)", 16, "this bracket was never opened", "quote"),
        ("filename:[a TO", 10, "this range is not closed", "Write ]"),
        ("filename:a]", 11, "] inside of a text", "Quote"),
        ("]", 1, "] without a [ before it", "Quote"),
        ("filename:[TO]", 10, "got neither", "Write filename:*"),
        ("filename:[a c]", 13, "expected TO, got 'c'", "[FIRST TO LAST]"),
        ("event_time:[3 days ago TO now]", 15, "expected TO, got 'days'", "quote an end that holds a space"),
        ("file_size:[1 to 2]", 14, "TO is written in capitals", "Write TO"),
        ("filename:[a* TO b]", 11, "has no * and no ?", '"a*"'),
        ("[1 TO 2]", 1, "a range belongs to a field", "Write FIELD:"),
        ("file_size:[10 TO 5]", 12, "from '10' down to '5' holds nothing", "smaller end first"),
        ("file_size:{5 TO 6}", 12, "nothing lies between '5' and '6'", "[ and ]"),
        ("filename:[Z TO a]", 11, "from 'Z' down to 'a' holds nothing", "smaller end first"),
        ("event_time:[2026-03-02 TO 2026-03-01]", 13, "holds nothing", "smaller end first"),
        ("event_time:[2026-03-02 TO someday]", 27, "time 'someday'", None),
        ("event_type: SEND", 12, "right behind event_type: and got a space", "Write event_type:SEND"),
        ("event_type:", 12, "right behind event_type: and got the end", "Write event_type:VALUE"),
        ("event_type:event_time:x", 12, "begins with the name of a field", "Quote"),
        ("details:(event_time:x)", 10, "inside of the brackets that belong to details", "quote"),
        ("details:(evnt_time:x)", 10, "a text with a colon", "Quote"),
        ("evnt_type:SEND", 1, "unknown field 'evnt_type'", "Did you mean event_type:SEND"),
        ("type:SEND", 1, "unknown field 'type'", "event_type:SEND"),
        ("Event_Type:SEND", 1, "unknown field 'Event_Type'", "Did you mean event_type:SEND"),
        ("10:30", 1, "unknown field '10'", "Quote a text that contains a colon"),
        ("*:*", 1, "unknown field '*'", "Known fields"),
        ("event_type:SNED", 12, "unknown event type 'SNED'", "Did you mean SEND"),
        ("NOT event_type:(SEND OR FRKO)", 25, "unknown event type 'FRKO'", "Did you mean FORK"),
        ("event_type:SNE*", 12, "no event type matches SNE*", "Known types"),
        ("event_type", 1, "is the name of a field", "Write event_type:VALUE"),
        ("a or b", 3, "operators are written in capitals", "Write OR"),
        ("a And b", 3, "operators are written in capitals", "Write AND"),
        ("details:(a and b)", 12, "operators are written in capitals", '"and"'),
        ("not a", 1, "operators are written in capitals", "Write NOT"),
        ("a ANDNOT b", 3, "no operator here", "Write AND NOT"),
        ("a && b", 3, "no operator here", "Write AND"),
        ("a || b", 3, "no operator here", "Write OR"),
        ("!a", 1, "begins with !", "Write NOT a"),
        ("-a", 1, "begins with -", "Write NOT a"),
        ("+a", 1, "begins with +", "Write a"),
        ("a^2", 1, "no boost", "Write a"),
        ("a~2", 1, "no fuzzy search", "Write a"),
        ("a b OR c", 3, "a space means AND here", "(a b) OR c"),
        ("c OR a b", 8, "a space means AND here", "(a b) OR c"),
        ("---", 1, "begins with -", "quote"),
        ("%%", 1, "neither letter nor digit", 'Quote it: "%%"'),
        ('"a"b', 4, "expected a space behind the closing quote", "doubled"),
        ('a"b"', 2, "inside of a text", "Quote"),
        ("filename:a[1]", 11, "[ inside of a text", "Quote"),
        ("filename:*202[0-4]*", 14, "[ inside of a text", "A wildcard has * for any characters and ? for one"),
        ("file_size:[1 TO 2]x", 19, "expected a space behind the range", None),
        ("file_size:big", 11, "expected a whole number, got 'big'", None),
        ("file_size:1_000", 11, "expected a whole number", None),
        ("file_size:1*", 11, "has no patterns", "Write a range"),
        ("event_time:2026-02-30", 12, "time '2026-02-30'", None),
        ("details:auto-t*", 9, "a pattern in details is of one word", None),
        ('details:"--"', 9, "expected words of letters and digits", None),
        ("a\ud800", 2, "no Unicode", None),
        ("(" * 2000, DEPTH_MAX + 1, "at most 64 brackets and NOTs in each other", None),
        ("NOT " * 1000 + "a", 4 * DEPTH_MAX + 1, "at most 64 brackets and NOTs in each other", None),
        ("(NOT " * 400 + "a", 5 * DEPTH_MAX // 2 + 1, "at most 64 brackets and NOTs", None),
        ("x" * 4097, 4097, "at most 4096 characters, got 4097", None),
        (" ".join(["*a*"] * 40), 113, f"at most {PATTERNS_MAX} patterns", "Name the field"),
        (" ".join(["a"] * 2000), 1111, f"at most {CONDITIONS_MAX} conditions", "in parts"),
    ],
)
def test_a_mistake_is_refused_with_its_column_what_was_expected_and_what_was_probably_meant(
    text: str, column: int, said: str, correction: str | None
) -> None:
    error = refusal(text)
    assert f"column {column}: " in str(error)
    assert (error.at, said in str(error)) == (column - 1, True), str(error)
    if correction is not None:
        assert correction in error.hint
        assert str(error).endswith(error.hint)
    line, caret = error.pointed()
    assert caret == " " * (len(caret) - 1) + "^"
    if error.at < len(text) and text[error.at].isprintable():
        assert line[len(caret) - 1] == text[error.at]


@pytest.mark.parametrize("text", ["NOT " * DEPTH_MAX + "a", "(" * DEPTH_MAX + "a" + ")" * DEPTH_MAX, "(a) " * 200])
def test_what_is_within_the_bounds_is_read(text: str) -> None:
    assert parse_query(text)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", "*"),
        ("a b", "a AND b"),
        ("a AND b OR c AND d", "a AND b OR c AND d"),
        ("(a b) OR c", "a AND b OR c"),
        ("a (b OR c)", "a AND (b OR c)"),
        ("NOT a b", "NOT a AND b"),
        ("NOT(a)", "NOT a"),
        ("event_type:(SEND OR DROP)", "event_type:SEND OR event_type:DROP"),
        ("details:(a NOT b)", "details:a AND NOT details:b"),
        ("file_size:(5 OR [10 TO 20])", "file_size:5 OR file_size:[10 TO 20]"),
        ("event_time:[-2h TO]", "event_time:[-2h TO]"),
        ("event_time:'last monday'", 'event_time:"last monday"'),
        ("filename:'it''s' OR filename:it's", "filename:\"it's\" OR filename:it's"),
        ('"say ""hi"""', '"say ""hi"""'),
        ("hdfs://namenode:8020/orders/*", "hdfs://namenode:8020/orders/*"),
        ("transit_uri:urn:a:b", "transit_uri:urn:a:b"),
        ("filename:AND", "filename:AND"),
        ("filename:[TO 'b c'}", 'filename:[TO "b c"}'),
        ("attribute.a:b:x attribute.(z):y attribute.AND:z", "attribute.a:b:x AND attribute.(z):y AND attribute.AND:z"),
    ],
)
def test_what_a_query_was_understood_as_is_printed(text: str, meant: str) -> None:
    assert printed(parse_tree(text, KNOWN)) == meant


# Texts that look like queries: pieces of the language in any order.
PIECES = st.sampled_from(
    [
        *KNOWN[:3],
        *("details", "file_size", "attribute.a:b", "attribute.(z)", ":", "(", ")", "[", "]", "{", "}", '"', "'"),
        *("AND", "OR", "NOT", "TO", "and", "*", "?", "-", "+", "^2", "~", "=", ">", "//", "\\", " ", "  ", "\t", "\0"),
        *("SEND", "send", "x", "a.b", "5", "-2h", "2026-03-01", "ÄÖ", "\ud83d", "\N{PILE OF POO}", "http://a:1/b"),
    ]
)
TEXTS = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=14).map("".join))


@given(TEXTS)
def test_every_text_is_read_as_its_printed_form_or_refused_with_a_place_in_it(text: str) -> None:
    try:
        tree = parse_tree(text, KNOWN)
        parse_query(text, ["order.region", "a:b", "(z)", "AND"], NOW_MS)
    except QueryError as error:
        assert 0 <= error.at <= len(text)
        assert error.text == text
        assert f"query, column {error.at + 1}: " in str(error)
    else:
        again = printed(tree)
        assert parse_tree(again, KNOWN) == tree
        assert printed(parse_tree(again, KNOWN)) == again


def outcome(text: str) -> str:
    """What becomes of a text, with all places."""
    try:
        return repr(parse_tree(text, KNOWN))
    except QueryError as error:
        return f"{error} @{error.at}"


CONDITIONS = st.sampled_from(
    [
        *("x", "a-b", "'it''s'", "*", "a*", "filename:y", 'details:"z w"', "file_size:5", "[1 TO 2]", "[a TO]"),
        *("file_size:[1 TO 2]", "file_size:{1 TO}", "filename:[TO 'b c'}", "file_size:[TO]", "file_size:[1 2]"),
        "file_size:[1 TO 2",
    ]
)
OPERATORS = st.sampled_from([" OR ", " OR ", " OR ", " AND ", " AND ", " ", " NOT ", " and ", "  OR\t"])
BRACKETS = st.sampled_from(
    [("", ""), ("", ""), ("filename:(", ")"), ("(", ")"), ("filename:(", ""), ("NOT ", ""), ("", ")")]
)
CHAINS = st.builds(
    lambda parts, brackets: brackets[0] + "".join(chain(*parts))[: -len(parts[-1][1])] + brackets[1],
    st.lists(st.tuples(CONDITIONS, OPERATORS), min_size=1, max_size=5),
    BRACKETS,
)


IDENTIFIERS = st.builds(
    lambda parts, brackets: brackets[0] + "".join(chain(*parts))[: -len(parts[-1][1])] + brackets[1],
    st.lists(
        st.tuples(
            st.sampled_from(["a-b", "0123-4", "AND-OR-x", "é-a", "a", "a-", "-a", "a-b-c", "OR", "a:b-c"]),
            st.sampled_from([" OR ", " OR ", " OR ", "\tOR  ", "\x1fOR ", " or ", " AND ", " ", "OR", ") OR ("]),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(
        [
            *(("filename:(", ")"), ("filename:(", ")"), (" filename:( ", " )\n"), ("filename:(", ""), ("(", ")")),
            *(("file_size:(", ")"), ("filename: (", ")"), ("event_type:(", ")"), ("attribute.(z):(", ") x")),
        ]
    ),
)


@given(st.one_of(CHAINS, IDENTIFIERS, TEXTS))
def test_chains_of_conditions_are_read_as_the_grammar_reads_them(text: str) -> None:
    read = outcome(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "_chain_of", lambda _: None)
        patch.setattr(parser, "_any_identifier", lambda *_: None)
        assert outcome(text) == read


NAMES = st.sampled_from(["filename", "details", "component_type", "attribute.a:b", "attribute.(z)"])
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
LEAVES = st.one_of(
    st.just(Everything()),
    NAMES.map(Exists),
    st.builds(TextValue, st.one_of(st.none(), NAMES), ANY_TEXT, st.just(value=True)),
    st.builds(Pattern, NAMES, st.from_regex(r"[a-z]{0,3}[*?][a-z.]{1,3}", fullmatch=True)),
    st.builds(ValueRange, NAMES, ANY_TEXT, st.one_of(st.none(), ANY_TEXT), st.booleans(), st.booleans()),
)


def joined(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    several = st.lists(parts, min_size=2, max_size=3).map(tuple)
    return st.one_of(parts.map(Not), several.map(And), several.map(Or))


@given(st.recursive(LEAVES, joined, max_leaves=8))
def test_every_tree_is_read_back_from_its_printed_form(tree: Node) -> None:
    assert parse_tree(printed(tree), KNOWN) == tree


# The truth: a second reading of the documentation, event by event.


def values(event: Event, name: str | None) -> Iterator[str]:
    claims = [claim for claim in (event.content_claim, event.previous_content_claim) if claim is not None]
    for field in [name] if name else [field for field in KNOWN if field not in ("details", *NUMBERS)]:
        if field == "flowfile_uuid":
            found: list[str | None] = [event.flowfile_uuid, *event.parent_uuids, *event.child_uuids]
        elif field.startswith("content_claim_"):
            found = [getattr(claim, field.removeprefix("content_claim_")) for claim in claims]
        elif field == "filename":
            found = [event.filename]
        elif field.startswith("attribute."):
            found = [event.attributes.get(field.removeprefix("attribute."))]
        else:
            found = [getattr(event, field)]
        yield from (value.lower() for value in found if value is not None)


def words(text: str | None) -> list[str]:
    return re.findall(r"[\w*]+(?:\.[\w*]+)*", (text or "").lower())


NUMBERS = ("file_size", "source_ordinal", "event_time", "lineage_start_date")


def span(text: str) -> tuple[int, int]:
    if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
        begin = datetime.fromisoformat(text).replace(tzinfo=UTC)
        day = [int(moment.timestamp() * 1000) for moment in (begin, begin + timedelta(days=1))]
        return day[0], day[1] - 1
    return int(text), int(text)


def holds(tree: Node, event: Event) -> bool:
    match tree:
        case Everything():
            return True
        case Not(part):
            return not holds(part, event)
        case And(parts=parts):
            return all(holds(part, event) for part in parts)
        case Or(parts=parts):
            return any(holds(part, event) for part in parts)
    return leaf_holds(tree, event)


def leaf_holds(tree: Exists | TextValue | Pattern | ValueRange, event: Event) -> bool:
    if tree.name in NUMBERS:
        return number_holds(tree, getattr(event, tree.name))
    texts = words(event.details) if tree.name == "details" else list(values(event, tree.name))
    match tree:
        case Exists():
            return bool(texts)
        case ValueRange(_, first, last, without_first, without_last):
            low, high = (None if end is None else end.lower().encode() for end in (first, last))
            return any(
                (low is None or low < text or (low == text and not without_first))
                and (high is None or text < high or (high == text and not without_last))
                for text in map(str.encode, texts)
            )
        case Pattern(name, text):
            also = words(event.details) if name is None else []
            return any(fnmatchcase(value, text.lower()) for value in [*texts, *also])
        case TextValue(name, text, is_quoted):
            return (name != "details" and text.lower() in texts) or (
                name in (None, "details") and wordy(words(event.details), words(text), is_quoted)
            )
    raise AssertionError(tree)


def wordy(found: list[str], wanted: list[str], is_phrase: bool) -> bool:
    if not is_phrase:
        return bool(wanted) and set(wanted) <= set(found)
    return bool(wanted) and any(found[n : n + len(wanted)] == wanted for n in range(len(found)))


def number_holds(tree: Exists | TextValue | Pattern | ValueRange, number: int | None) -> bool:
    if number is None:
        return False
    match tree:
        case TextValue(_, text):
            first, last = span(text)
            return first <= number <= last
        case ValueRange(_, low, high, without_first, without_last):
            return (low is None or number >= span(low)[0] + without_first) and (
                high is None or number <= span(high)[1] - without_last
            )
    return True


DAYS = st.sampled_from(["2026-03-01", "2026-03-02", "2026-03-03", "1772409605000"])
SIZES = st.integers(-1, 9000).map(str)
SOME = st.sampled_from(["orders", "put", "auto", "terminated", "PutHDFS", "EMEA", "archive", "hdfs", "generate"])
TEXT_FIELDS = st.sampled_from(["filename", "component_type", "component_name", "transit_uri", "attribute.order.region"])


def ranges(names: st.SearchStrategy[str], ends: st.SearchStrategy[str]) -> st.SearchStrategy[ValueRange]:
    def of(name: str, one: str | None, other: str, opened: bool, closed: bool) -> ValueRange:
        low, high = (one, other) if one is None else sorted((one, other), key=lambda end: end.lower().encode())
        if name in NUMBERS and one is not None:
            low, high = sorted((one, other), key=lambda end: span(end)[0])
        same = low is not None and (span(low)[0] + 2 >= span(high)[1] if name in NUMBERS else low == high)
        return ValueRange(name, low, high, opened and not same, closed and not same)

    return st.builds(of, names, st.one_of(st.none(), ends), ends, st.booleans(), st.booleans())


ASKED = st.one_of(
    st.just(Everything()),
    st.builds(Exists, st.one_of(TEXT_FIELDS, st.just("details"), st.sampled_from(NUMBERS))),
    st.builds(TextValue, st.just("event_type"), st.sampled_from([kind.lower() for kind in EventType])),
    st.builds(TextValue, st.one_of(TEXT_FIELDS, st.none(), st.just("details")), SOME, st.booleans()),
    st.builds(
        TextValue, st.just("details"), st.sampled_from(["auto terminated", "terminated auto"]), st.just(value=True)
    ),
    st.builds(TextValue, st.sampled_from(["event_time", "lineage_start_date"]), DAYS, st.booleans()),
    st.builds(TextValue, st.just("file_size"), SIZES, st.booleans()),
    st.builds(
        Pattern,
        st.one_of(TEXT_FIELDS, st.none(), st.just("details")),
        st.builds("{}{}{}".format, st.sampled_from(["", "*", "?"]), SOME, st.sampled_from(["*", "?*", "*s?*"])),
    ),
    ranges(st.sampled_from(["event_time", "lineage_start_date"]), DAYS),
    ranges(st.just("file_size"), SIZES),
    ranges(TEXT_FIELDS, SOME),
)


class Told(list[Event]):
    """Events whose text is short: a failing example prints its arguments."""

    def __repr__(self) -> str:
        return f"{len(self)} events"


@pytest.fixture(scope="module")
def events(live: Repository) -> Told:
    return Told(live.events(count=600))


@given(st.recursive(ASKED, joined, max_leaves=6))
def test_index_and_scan_answer_as_a_plain_evaluation_over_the_events_does(
    live: Repository, waiting: Repository, events: Told, tree: Node
) -> None:
    expected = [item.event_id for item in events if holds(tree, item)][::-1]
    for repository in (live, waiting):
        found = repository.search(printed(tree), limit=600)
        assert ([stored.event.event_id for stored in found.events], found.total) == (expected, len(expected)), printed(
            tree
        )


@pytest.mark.parametrize(
    ("structured", "said"),
    [
        ({"field": "event_type", "equals": "SNED"}, "unknown event type 'SNED'. Did you mean SEND"),
        ({"field": "event_type", "wildcard": "SNE*"}, "no event type matches"),
        ({"field": "filename", "wildcard": ""}, "expected a pattern"),
        ({"field": "event_type", "prefix": "SNE"}, "no event type matches"),
        ({"field": "evnt_type", "equals": "SEND"}, "unknown field 'evnt_type'. Did you mean event_type"),
        ({"field": "file_size", "from": 5, "to": 1}, "from 5 down to 1 holds nothing"),
        ({"field": "file_size", "from": None}, "expected a whole number, got None"),
        ({"field": "event_time", "from": None, "to": "now"}, "expected a time, got None"),
        ({"field": "file_size", "equals": "5"}, "expected a whole number, got '5'"),
        ({"field": "event_time", "equals": "someday"}, "time 'someday'"),
        ({"field": "filename", "from": "z", "to": "a"}, "holds nothing"),
        ({"field": "filename", "equals": "a\ud800"}, "expected Unicode"),
        ({"field": "filename", "equals": "a", "unknown": True}, "expected exists, from, to or one of"),
        ({"field": "details", "equals": "--"}, "expected words"),
        ({"field": "details", "phrase": "--"}, "expected words"),
        ({"field": "details", "phrase": 5}, "expected a text, got 5"),
        ({"field": "details", "wildcard": "a-b*"}, "of one word"),
        ({"field": "details", "phrase": "a " * 3000}, "at most 4096 characters"),
        ({"or": []}, "expected at least one condition in or"),
        ({"or": [{"field": "filename", "wildcard": "*a*"}] * (PATTERNS_MAX + 1)}, f"at most {PATTERNS_MAX} patterns"),
    ],
)
def test_the_structured_form_is_as_strict(structured: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(said)):
        structured_query(structured)


def test_the_structured_form_is_bounded_in_depth() -> None:
    nested: dict[str, object] = {}
    for _ in range(DEPTH_MAX):
        nested = {"not": nested}
    assert structured_query(nested)
    for _ in range(2000):
        nested = {"not": nested}
    with pytest.raises(InvalidInputError, match="64 in each other"):
        structured_query(nested)


def test_an_event_type_that_custody_does_not_know_is_found_when_it_is_meant(repository: Repository) -> None:
    append(repository, [event(0, event_type="INSPECTED"), event(1)])
    asked: list[str | dict[str, object]] = [
        'event_type:"inspected"',
        {"field": "event_type", "equals": "INSPECTED", "unknown": True},
        {"field": "event_type", "wildcard": "INSP*", "unknown": True},
        {"field": "event_type", "prefix": "INSP", "unknown": True},
    ]
    for question in asked:
        assert [item.event.event_id for item in repository.search(question).events] == [0], question
    with pytest.raises(InvalidInputError, match="looks for a type that custody does not know"):
        repository.search("event_type:inspected")
