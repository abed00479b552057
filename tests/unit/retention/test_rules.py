"""Rules and ages: what the columns say is what a reader of the rules would say of each event."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.catalog import Condition, matching_rows
from custody.catalog.tombstones import check_tombstone
from custody.config import KeepRule
from custody.config.parsing import duration_ms
from custody.config.sections import keep_rule
from custody.model import Event, to_batch
from custody.retention.rules import AgePolicy, cutoff_ms, same_meaning
from tests.support import event

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
SPANS = st.sampled_from([1, 5, 7, 30, 365]).map(lambda days: days * DAY_MS)
RULES = st.builds(
    KeepRule,
    keep_ms=SPANS,
    event_type=st.sampled_from([None, "DROP", "SEND"]),
    attributes=st.sampled_from([(), (("x", "y"),), (("x", "y"), ("z", "1"))]),
).filter(lambda rule: rule.event_type is not None or rule.attributes)
EVENTS = st.builds(
    lambda number, age, kind, attributes: event(
        number, event_time=NOW_MS - age, event_type=kind, updated_attributes=attributes
    ),
    number=st.integers(0, 1000),
    age=st.integers(0, 400 * DAY_MS),
    kind=st.sampled_from(["DROP", "SEND", "CREATE"]),
    attributes=st.sampled_from([{}, {"x": "y"}, {"x": "y", "z": "1"}, {"z": "1"}]),
)


def table_of(events: list[Event]) -> pa.Table:
    return pa.Table.from_batches([to_batch(events, 0)])


def too_old(stored: Event, age_max: int | None, rules: list[KeepRule]) -> bool:
    """What the documentation says, of one event."""
    own = [
        rule.keep_ms
        for rule in rules
        if rule.event_type in (None, stored.event_type)
        and all(stored.updated_attributes.get(name) == value for name, value in rule.attributes)
    ]
    keep = max(own) if own else age_max
    return keep is not None and stored.event_time < cutoff_ms(NOW_MS, keep)


@given(st.lists(EVENTS, min_size=1, max_size=30), st.none() | SPANS, st.lists(RULES, max_size=3))
def test_the_columns_answer_as_the_rules_say(events: list[Event], age_max: int | None, rules: list[KeepRule]) -> None:
    keeping = AgePolicy(NOW_MS, age_max, rules)
    expected = [too_old(stored, age_max, rules) for stored in events]
    assert matching_rows(keeping.expired, table_of(events)).to_pylist() == expected
    for stored, is_old in zip(events, expected, strict=True):
        if keeping.surely_ms is not None and stored.event_time < keeping.surely_ms:
            assert is_old
        if keeping.possibly_ms is None or stored.event_time >= keeping.possibly_ms:
            assert not is_old


@given(st.lists(EVENTS, min_size=1, max_size=30), st.none() | SPANS, st.lists(RULES, max_size=3))
def test_nothing_is_hidden_that_is_not_too_old_or_that_is_held(
    events: list[Event], age_max: int | None, rules: list[KeepRule]
) -> None:
    held = Condition(event_types=["SEND"], to_time_ms=NOW_MS - 9 * DAY_MS)
    table = table_of(events)
    hidden = matching_rows(AgePolicy(NOW_MS, age_max, rules).hiding([held]), table)
    old = matching_rows(AgePolicy(NOW_MS, age_max, rules).expired, table)
    assert not pc.any(pc.and_not(hidden, old)).as_py()
    assert not pc.any(pc.and_(hidden, matching_rows([held], table))).as_py()
    for stone in AgePolicy(NOW_MS, age_max, rules).hiding([held]):
        check_tombstone(stone)


@given(st.integers(0, 2 * NOW_MS), st.integers(1, 2000 * DAY_MS), st.integers(0, 10 * DAY_MS))
def test_a_cutoff_never_goes_back_and_keeps_at_least_what_was_promised(now: int, keep: int, later: int) -> None:
    cutoff = cutoff_ms(now, keep)
    assert cutoff <= now - keep
    assert now - keep - cutoff <= max(min(keep // 32, DAY_MS), 1)
    assert cutoff <= cutoff_ms(now + later, keep)


def test_rules_hide_the_same_for_a_while() -> None:
    rules = [keep_rule("event_type:DROP keep 7 days"), keep_rule("attribute:x=y keep 5 years")]
    first = AgePolicy(NOW_MS, 30 * DAY_MS, rules).hiding([])
    soon = AgePolicy(NOW_MS + 60_000, 30 * DAY_MS, rules).hiding([])
    assert [same_meaning(one, other) for one, other in zip(first, soon, strict=True)] == [True] * 3
    late = AgePolicy(NOW_MS + DAY_MS, 30 * DAY_MS, rules).hiding([])
    assert not any(same_meaning(one, other) for one, other in zip(first, late, strict=True))
    assert AgePolicy(NOW_MS, 30 * DAY_MS, []).hiding([]) == [], "an age alone takes whole logs"
    assert len(AgePolicy(NOW_MS, 30 * DAY_MS, rules[:1]).hiding([])) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("7 days", 7 * DAY_MS), ("1 day", DAY_MS), ("90 minutes", 5_400_000), ("5 years", 5 * 365 * DAY_MS)],
)
def test_spans_are_read(text: str, expected: int) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize("text", ["", "7", "days", "-1 days", "1.5 days", "7 fortnights", "7 days and more"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a span of time"):
        duration_ms(text)


def test_rules_are_read() -> None:
    assert keep_rule("event_type:DROP keep 7 days") == KeepRule(7 * DAY_MS, "DROP")
    both = keep_rule("event_type:SEND and attribute:customer=acme inc keep 2 weeks")
    assert both == KeepRule(14 * DAY_MS, "SEND", (("customer", "acme inc"),))
    for text in (
        "DROP: 7 days",
        "event_type:DROP",
        "attribute:=y keep 1 days",
        "event_type:A and event_type:B keep 1 days",
    ):
        with pytest.raises(ValueError, match="expected"):
            keep_rule(text)
