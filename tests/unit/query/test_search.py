"""Search: for every query the index answers as a plain filter over the events would."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from custody.errors import InvalidInputError
from custody.model import Event
from custody.query import field_help, parse_query
from custody.repository import Repository

Filter = Callable[[Event], bool]


def words(text: str | None) -> list[str]:
    return re.findall(r"\w+", (text or "").lower())


def phrase(text: str) -> Filter:
    wanted = words(text)

    def matches(event: Event) -> bool:
        found = words(event.details)
        return any(found[n : n + len(wanted)] == wanted for n in range(len(found)))

    return matches


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def uuids(event: Event) -> set[str]:
    return {event.flowfile_uuid, *event.parent_uuids, *event.child_uuids}


def name(event: Event) -> str:
    return (event.filename or "").lower()


def uri(event: Event) -> str:
    return (event.transit_uri or "").lower()


def equals(field: str, value: str) -> Filter:
    return lambda event: (getattr(event, field) or "").lower() == value.lower()


QUERIES: dict[str, Filter] = {
    "": lambda e: True,
    "*": lambda e: True,
    "event_type:SEND": lambda e: e.event_type == "SEND",
    "event_type:send": lambda e: e.event_type == "SEND",
    "event_type:Attributes_Modified": lambda e: e.event_type == "ATTRIBUTES_MODIFIED",
    'event_type:"NOSUCH"': lambda e: False,
    "EVENT_TYPE_IS_TEXT": lambda e: False,
    "event_type:(SEND OR DROP)": lambda e: e.event_type in ("SEND", "DROP"),
    "event_type:SEND OR event_type:FORK": lambda e: e.event_type in ("SEND", "FORK"),
    "event_type:SEND AND file_size:[1 TO]": lambda e: e.event_type == "SEND" and e.file_size >= 1,
    "NOT event_type:DROP": lambda e: e.event_type != "DROP",
    "event_type:SEND AND NOT transit_uri:sftp*": lambda e: e.event_type == "SEND" and not uri(e).startswith("sftp"),
    "(event_type:SEND OR event_type:DROP) AND NOT (file_size:[TO 500])": lambda e: (
        e.event_type in ("SEND", "DROP") and e.file_size > 500
    ),
    "filename:orders*": lambda e: name(e).startswith("orders"),
    "filename:ORDERS*": lambda e: name(e).startswith("orders"),
    "filename:ORD?RS*": lambda e: re.fullmatch("ord.rs.*", name(e)) is not None,
    "filename:*ORDER*": lambda e: "order" in name(e),
    "filename:*.json": lambda e: name(e).endswith(".json"),
    "filename:?rders*": lambda e: re.fullmatch(".rders.*", name(e)) is not None,
    "filename:*order*.csv*": lambda e: re.search(r"order.*\.csv", name(e)) is not None,
    "component_type:PutSFTP": lambda e: e.component_type == "PutSFTP",
    "component_type:put*": lambda e: e.component_type.startswith("Put"),
    "details:auto": lambda e: "auto" in words(e.details),
    "details:AUTO*": lambda e: any(word.startswith("auto") for word in words(e.details)),
    'details:"auto terminated"': phrase("auto terminated"),
    'details:"terminated auto"': phrase("terminated auto"),
    "details:(auto relationship)": lambda e: {"auto", "relationship"} <= set(words(e.details)),
    "file_size:0": lambda e: e.file_size == 0,
    "file_size:[1000 TO 2000]": lambda e: 1000 <= e.file_size <= 2000,
    "file_size:{1000 TO 2000}": lambda e: 1000 < e.file_size < 2000,
    "file_size:[TO 1000]": lambda e: e.file_size <= 1000,
    "file_size:[5000 TO]": lambda e: e.file_size >= 5000,
    "file_size:*": lambda e: True,
    "lineage_start_date:*": lambda e: e.lineage_start_date is not None,
    "event_time:2026-03": lambda e: ms("2026-03-01") <= e.event_time < ms("2026-04-01"),
    "event_time:2026": lambda e: ms("2026-01-01") <= e.event_time < ms("2027-01-01"),
    "event_time:[2026-03 TO 2026-12]": lambda e: ms("2026-03-01") <= e.event_time < ms("2027-01-01"),
    "event_time:2026-W10": lambda e: ms("2026-03-02") <= e.event_time < ms("2026-03-09"),
    "file_size:[4611686018427387904 TO]": lambda e: False,
    "event_time:2026-03-02": lambda e: ms("2026-03-02") <= e.event_time < ms("2026-03-03"),
    "event_time:[2026-03-02 TO 2026-03-02]": lambda e: ms("2026-03-02") <= e.event_time < ms("2026-03-03"),
    "event_time:[TO 2026-03-01]": lambda e: e.event_time < ms("2026-03-02"),
    "event_time:[2026-03-03 TO]": lambda e: e.event_time >= ms("2026-03-03"),
    "event_time:[2026-03-02T00:00:05 TO 2026-03-02T00:00:10]": lambda e: (
        ms("2026-03-02T00:00:05") <= e.event_time <= ms("2026-03-02T00:00:10")
    ),
    "event_time:['2026-03-02 00:00:05' TO '2026-03-02 00:00:10']": lambda e: (
        ms("2026-03-02T00:00:05") <= e.event_time <= ms("2026-03-02T00:00:10")
    ),
    "event_time:[2026-03-02T01:00:05+01:00 TO 2026-03-02T00:00:10Z]": lambda e: (
        ms("2026-03-02T00:00:05") <= e.event_time <= ms("2026-03-02T00:00:10")
    ),
    "event_time:[1772409605000 TO 1772409610000]": lambda e: 1772409605000 <= e.event_time <= 1772409610000,
    "lineage_start_date:[2026-03-02T00:00:03 TO]": lambda e: (e.lineage_start_date or 0) >= ms("2026-03-02T00:00:03"),
    "attribute.order.region:EMEA": lambda e: e.attributes.get("order.region") == "emea",
    "attribute.mime.type:application/a*": lambda e: e.attributes.get("mime.type", "").startswith("application/a"),
    "attribute.mqtt.broker:tcp://mqtt.example.com:1883": lambda e: "mqtt.broker" in e.attributes,
    "NOT attribute.order.region:*": lambda e: "order.region" not in e.attributes,
    "transit_uri:https*": lambda e: uri(e).startswith("https"),
    "event_type:SEND AND transit_uri:*": lambda e: e.event_type == "SEND" and e.transit_uri is not None,
}


@pytest.fixture(scope="module")
def events(live: Repository) -> list[Event]:
    return list(live.events(count=10_000))


def check(live: Repository, events: list[Event], text: str, expected: Filter) -> int:
    wanted = [event for event in reversed(events) if expected(event)]
    found = live.search(text, limit=10_000)
    assert [stored.event for stored in found.events] == wanted
    assert found.total == len(wanted)
    assert found.notices == ()
    return len(wanted)


@pytest.mark.parametrize("text", QUERIES)
@pytest.mark.parametrize("where", ["live", "waiting", "half_live"])
def test_search_is_a_filter_over_the_events(
    where: str, events: list[Event], text: str, request: pytest.FixtureRequest
) -> None:
    check(request.getfixturevalue(where), events, text, QUERIES[text])


def test_most_of_these_queries_tell_events_apart(events: list[Event]) -> None:
    counts = [sum(map(matches, events)) for matches in QUERIES.values()]
    assert len(events) == 600
    assert sum(0 < count < 600 for count in counts) >= 32, dict(zip(QUERIES, counts, strict=True))


FIELDS = [
    "event_type",
    "component_id",
    "component_type",
    "component_name",
    "process_group_id",
    "transit_uri",
    "alternate_identifier_uri",
    "source_system_flowfile_identifier",
    "source_node",
]


@pytest.mark.parametrize("field", FIELDS)
def test_every_value_of_an_identifier_is_found_when_quoted(live: Repository, events: list[Event], field: str) -> None:
    values = {value for event in events if (value := getattr(event, field)) is not None}
    assert values
    for value in sorted(values)[:6]:
        assert check(live, events, f'{field}:"{value}"', equals(field, value)), value


def test_a_uri_with_colons_needs_no_quotes(live: Repository, events: list[Event]) -> None:
    values = sorted({event.transit_uri for event in events if event.transit_uri and " " not in event.transit_uri})
    plain = [value for value in values if not re.search(r"[?*()\[\]{}^~'\"]", value)]
    assert sum(value.count(":") > 1 for value in plain[:8]) > 2
    for value in plain[:8]:
        assert check(live, events, f"transit_uri:{value}", equals("transit_uri", value))
        assert check(live, events, value if "://" in value else f'"{value}"', equals("transit_uri", value))


def test_a_flowfile_is_found_in_the_events_that_made_it_or_came_of_it(live: Repository, events: list[Event]) -> None:
    family = next(event for event in events if event.event_type == "FORK")
    own, child = family.flowfile_uuid, family.child_uuids[0]
    assert check(live, events, f"flowfile_uuid:{own}", lambda e: own in uuids(e))
    assert check(live, events, f"flowfile_uuid:{child.upper()}", lambda e: child in uuids(e))


def test_text_without_a_field_is_looked_for_in_all_text_fields(live: Repository, events: list[Event]) -> None:
    sender = next(event.component_name for event in events if event.component_name and " " not in event.component_name)
    texts = ("event_type", "component_type", "component_name", "filename")
    assert check(live, events, sender, lambda e: sender.lower() in [(getattr(e, part) or "").lower() for part in texts])


@pytest.mark.parametrize("text", ["foo:bar", "event_type:SEND AND (size:1)", "attribute.secret:x", "xevent_type:SEND"])
def test_an_unknown_field_is_an_error_that_lists_the_known_ones(live: Repository, text: str) -> None:
    with pytest.raises(InvalidInputError, match="unknown field") as caught:
        live.search(text)
    assert all(known in str(caught.value) for known in field_help(("order.region",)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("event_time:someday", "time 'someday'"),
        ("event_time:[2026-13-01 TO]", "2026-13-01"),
        ("event_type:SEND OR event_time:someday", "time 'someday'"),
        ("event_type:SEND AND NOT event_time:someday", "time 'someday'"),
        ("event_type:SEND AND NOT file_size:big", "whole number, got 'big'"),
        ("file_size:[a TO b]", "whole number, got 'a'"),
        ("file_size:1.5", "whole number"),
        ("event_time:²²²²²²²²²²", "²"),
        ("(", "column 1: this bracket is not closed"),
        ("x" * 4097, "at most 4096 characters, got 4097"),
    ],
)
def test_a_query_that_cannot_be_read_is_an_error_and_never_a_smaller_answer(
    live: Repository, text: str, said: str
) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(said)):
        live.search(text)


@pytest.mark.parametrize("number", ["99999999999999999999999", "-99999999999999999999999", "9223372036854775807"])
@pytest.mark.parametrize("text", ["file_size:{}", "file_size:[{} TO]", "event_time:[TO {}]", "file_size:{{{} TO}}"])
def test_a_number_that_the_index_cannot_compare_is_an_error(live: Repository, text: str, number: str) -> None:
    with pytest.raises(InvalidInputError, match=f"2.62, got {number}"):
        live.search(text.format(number))


@pytest.mark.parametrize("text", ["file_size:{4611686018427387904 TO}", "file_size:{TO -4611686018427387904}"])
def test_the_greatest_numbers_are_answered(live: Repository, text: str) -> None:
    assert live.search(text).total == 0


def test_the_longest_query_is_still_parsed() -> None:
    text = " OR ".join(["event_type:SEND"] * 215)
    assert 4000 < len(text) <= 4096
    assert parse_query(text)
