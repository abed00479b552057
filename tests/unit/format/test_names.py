"""Names: each one is parsed back, sorts as its number does, and no other name passes for one."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import ConfigurationError
from custody.format import names

IDS = st.integers(0, (1 << 63) - 1)


@given(IDS, st.integers(0, 999), st.booleans())
def test_journal_names_are_parsed_back(first: int, number: int, sealed: bool) -> None:
    name = names.JournalName(first, number, sealed)
    assert names.JournalName.parse(str(name)) == name


@given(IDS, IDS)
def test_names_sort_as_their_numbers_do(one: int, other: int) -> None:
    def text(number: int) -> tuple[str, str, str]:
        return (
            str(names.JournalName(number, 0, sealed=True)),
            names.revision_folder(number),
            names.event_log_path(number, "2026-03-02"),
        )

    assert (one < other) == (text(one) < text(other))


@given(st.integers(0, 9_999_999_999_999), IDS)
def test_shard_names_are_parsed_back(time_ms: int, first: int) -> None:
    assert names.parse_shard(names.shard_name(time_ms, first)) == (time_ms, first)
    suffix = names.attempt_suffix(UUID(int=first))
    assert names.parse_shard(names.shard_name(time_ms, first, suffix)) == (time_ms, first)
    log = names.event_log_path(first, "2026-03-02", suffix)
    assert names.parse_event_log(log) == names.parse_event_log(names.toc_path(log)) == first


@given(IDS, st.uuids(), st.booleans())
def test_catalog_names_are_parsed_back(revision: int, uuid: UUID, checkpoint: bool) -> None:
    assert names.parse_revision(names.revision_folder(revision)) == revision
    assert names.parse_transaction(names.transaction_file(uuid, checkpoint=checkpoint)) == (uuid, checkpoint)


@pytest.mark.parametrize(
    "name",
    ["", "LOCK", "1.0.journal", "00000000000000000001.journal", "00000000000000000001.0.journal.partial", "a.txn"],
)
def test_other_files_are_no_names_of_custody(name: str) -> None:
    assert names.JournalName.parse(name) is None
    assert names.parse_staged_unit(name) is None
    assert names.parse_shard(name) is None
    assert names.parse_revision(name) is None
    assert names.parse_transaction(name) is None


@pytest.mark.parametrize("name", ["main", "0", "a-b_c", "x" * 63])
def test_a_writer_name_is_lower_case_and_short(name: str) -> None:
    assert names.check_name("writer", name) == name
    assert names.is_name(name)


@pytest.mark.parametrize("name", ["", "..", "../x", "A", "-a", "_a", "a/b", "a b", "é", "x" * 64, "a\n"])
def test_a_name_that_could_leave_its_folder_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="writer"):
        names.check_name("writer", name)
    assert not names.is_name(name)
