"""A file of events: each element has its place, a bad one costs itself only, and no bytes make the reader raise."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture import Accepted, InputPlace, Outcome, Rejected, read_file
from tests.unit.capture.json_documents import KINDS, document

EVENT_BYTES_MAX = 1 << 20
DOCUMENTS = [document(kind) for kind in KINDS]
# Non-ASCII keys and values, so that characters and bytes are not the same number.
RAW = [json.dumps(item, ensure_ascii=False).encode() for item in DOCUMENTS]


def read(data: bytes, limit: int = EVENT_BYTES_MAX) -> list[Outcome]:
    return list(read_file(data, event_bytes_max=limit))


def rejected(data: bytes) -> Rejected:
    [outcome] = read(data)
    assert isinstance(outcome, Rejected)
    return outcome


def test_every_type_is_accepted_without_a_warning() -> None:
    outcomes = read(json.dumps(DOCUMENTS).encode())
    assert [type(outcome) for outcome in outcomes] == [Accepted] * len(KINDS)
    assert [outcome.event.event_type for outcome in outcomes if isinstance(outcome, Accepted)] == KINDS
    assert not any(outcome.warnings for outcome in outcomes if isinstance(outcome, Accepted))


@given(st.lists(st.sampled_from(RAW), max_size=5), st.lists(st.text(" \t\r\n", max_size=3), min_size=12, max_size=12))
def test_places_are_right_whatever_space_lies_between(elements: list[bytes], spaces: list[str]) -> None:
    gap = iter(space.encode() for space in spaces)
    data, offsets = next(gap) + b"[", []
    for number, raw in enumerate(elements):
        data += (b"," if number else b"") + next(gap)
        offsets.append(len(data))
        data += raw + next(gap)
    data += b"]"
    outcomes = read(data)
    assert [outcome.place for outcome in outcomes] == [InputPlace(n, offset) for n, offset in enumerate(offsets)]
    assert [outcome.raw for outcome in outcomes] == elements


@pytest.mark.parametrize("space", [b"", b" \r\n\t "])
@pytest.mark.parametrize(
    "broken",
    [b'{"eventOrdinal": 1, "x', b"{]", b"nul", b'{"a": 1}}', b"\xff", b'"\xff', b"}", b"1" * 5000 + b"x"],
)
def test_broken_json_keeps_the_whole_elements_before_the_break(broken: bytes, space: bytes) -> None:
    whole = b"[" + b"".join(space + raw + space + b"," for raw in RAW[:3])
    *kept, last = read(whole + space + broken)
    assert [outcome.raw for outcome in kept][:3] == RAW[:3]
    assert all(isinstance(outcome, Accepted) for outcome in kept[:3])
    for outcome in [*kept, last]:
        assert (whole + space + broken)[outcome.place.offset :].startswith(outcome.raw)
    assert isinstance(last, Rejected)
    assert last.problem.code == "not-json"
    assert last.place.index == len(kept)
    assert last.place.offset + len(last.raw) == len(whole + space + broken)


def test_an_empty_array_holds_nothing() -> None:
    assert read(b" [ ] ") == []


@pytest.mark.parametrize(
    ("element", "code"),
    [
        (b"1", "not-an-object"),
        (b"null", "not-an-object"),
        (b'["x"]', "not-an-object"),
        (b"{}", "bad-value"),
        (json.dumps(document("SEND", entitySize=-1)).encode(), "number-range"),
        (json.dumps(document("SEND", timestampMillis=10**30)).encode(), "time-range"),
        (json.dumps(document("SEND", entityId="")).encode(), "empty-text"),
    ],
)
def test_a_bad_element_costs_itself_only(element: bytes, code: str) -> None:
    before, bad, after = read(b"[" + b",".join([RAW[0], element, RAW[1]]) + b"]")
    assert isinstance(before, Accepted)
    assert isinstance(after, Accepted)
    assert isinstance(bad, Rejected)
    assert (bad.problem.code, bad.place, bad.raw) == (code, InputPlace(1, 2 + len(RAW[0])), element)
    assert str(bad.place) == f"event 1 at byte {2 + len(RAW[0])}"


def test_an_unknown_type_is_kept_with_a_warning() -> None:
    [outcome] = read(json.dumps([document("SEND", eventType="TELEPORT")]).encode())
    assert isinstance(outcome, Accepted)
    assert outcome.event.event_type == "TELEPORT"
    assert [problem.code for problem in outcome.warnings] == ["unknown-type"]


def test_an_attribute_of_30_megabytes_is_rejected_with_the_name_of_the_limit() -> None:
    huge = json.dumps(document("SEND", updatedAttributes={"x": "y" * 30_000_000})).encode()
    outcomes = read(b"[" + RAW[0] + b"," + huge + b"]")
    assert isinstance(outcomes[0], Accepted)
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].problem.code == "event-too-large"
    assert "1048576 bytes (capture.event_bytes_max)" in outcomes[1].problem.message
    assert outcomes[1].raw == huge


def test_the_limit_belongs_to_what_is_allowed() -> None:
    data = b"[" + RAW[0] + b"]"
    assert isinstance(read(data, len(RAW[0]))[0], Accepted)
    assert isinstance(read(data, len(RAW[0]) - 1)[0], Rejected)


def test_the_same_element_twice_has_two_places() -> None:
    one, other = read(b"[" + RAW[0] + b"," + RAW[0] + b"]")
    assert (one.place.offset, other.place.offset) == (1, 2 + len(RAW[0]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*DOCUMENTS[3], "unheardOf"]), JSON, max_size=4))
def test_no_value_under_any_key_makes_the_reader_raise(changes: dict[str, object]) -> None:
    raw = json.dumps({**DOCUMENTS[3], **changes}).encode()
    [outcome] = read(b"[" + raw + b"]")
    assert outcome.raw == raw
