"""SQL over logs of older schema versions beside new ones: columns that a log lacks have the values of reading."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from custody.errors import FormatVersionError
from custody.model import EVENT_SCHEMA, Event, columns, to_events
from custody.repository import Repository
from tests.support import append, numbered, run_steps
from tests.unit.model.test_versions import EVENTS, OLD_SCHEMA, old, replace_log


@pytest.fixture
def mixed(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Events 0 to 5 in a log of version 0, 6 to 11 in a log of version 2, 12 to 17 in a journal."""
    monkeypatch.setitem(columns.SCHEMAS, 0, OLD_SCHEMA)
    append(repository, EVENTS)
    run_steps(repository.settings)
    replace_log(repository)
    append(repository, EVENTS)
    run_steps(repository.settings)
    append(repository, EVENTS)
    return Repository.open(repository.settings.root)


def expected() -> list[Event]:
    return old(EVENTS) + numbered(EVENTS, 6) + numbered(EVENTS, 12)


def ask(repository: Repository, text: str) -> pa.Table:
    with repository.sql(text) as result:
        return pa.Table.from_batches(result.batches(), result.schema)


def test_all_columns_agree_with_reading(mixed: Repository) -> None:
    table = ask(mixed, "select * exclude writer from events order by event_id")
    assert table.column_names == EVENT_SCHEMA.names
    assert to_events(table.cast(EVENT_SCHEMA)) == expected() == list(mixed.events())


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(
    ("where", "test"),
    [
        ("event_duration = -1", lambda e: e.event_duration == -1),
        ("event_duration > 0", lambda e: e.event_duration > 0),
        ("details is null", lambda e: e.details is None),
        ("details = 'x' and event_id < 8", lambda e: e.details == "x" and e.event_id < 8),
        ("len(child_uuids) = 0", lambda e: not e.child_uuids),
        ("list_contains(child_uuids, 'u')", lambda e: "u" in e.child_uuids),
        ("updated_attributes['a'] = 'b'", lambda e: e.updated_attributes.get("a") == "b"),
        ("cardinality(updated_attributes) = 0", lambda e: not e.updated_attributes),
        ("source_ordinal is not null", lambda e: e.source_ordinal is not None),
        ("extra is null and event_id in (2, 9, 15)", lambda e: e.event_id in (2, 9, 15)),
    ],
)
def test_a_filter_on_a_column_that_an_old_log_lacks_agrees_with_a_full_scan(
    mixed: Repository, where: str, test: Callable[[Event], bool]
) -> None:
    found = ask(mixed, f"select event_id from events where {where} order by 1")  # noqa: S608
    assert found.column(0).to_pylist() == [item.event_id for item in expected() if test(item)]


def test_counts_over_versions_are_right(mixed: Repository) -> None:
    asked = (
        "select count(*), count(details), sum(event_duration), count(source_ordinal), count(child_uuids) from events"
    )
    assert [column[0].as_py() for column in ask(mixed, asked).columns] == [18, 12, -18, 12, 18]


def test_damage_is_left_out_of_an_old_log_too(mixed: Repository) -> None:
    with mixed.sql("select event_id, event_duration from events order by 1", skip_damaged=True) as result:
        found = pa.Table.from_batches(result.batches(), result.schema)
    assert result.notices == ()
    assert found.column(1).to_pylist() == [-1] * 18


def test_a_version_that_nobody_knows_is_refused(mixed: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(columns.SCHEMAS, 0)
    with pytest.raises(FormatVersionError, match="expected events of schema version 1 or 2, got 0"):
        ask(Repository.open(mixed.settings.root), "select 1")
