"""Repairs of live files are told before they are done: once each, in one transaction, and refused where that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.catalog import Action, Catalog, FileRepair, Seal
from custody.catalog.file_repairs import file_repair, finish_repairs, open_repairs, repair_note, tell_repairs
from custody.catalog.transaction_summary import LostRange, StatedRepair, summary_of
from custody.clock import ManualClock
from custody.errors import InvalidInputError, StorageError
from custody.store import LocalStore
from custody.vfs import PosixFileSystem

LOG = "data/2026-03-01/events/00000000000000000000.parquet"
SHARD = "1772359100000-0"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(LocalStore(PosixFileSystem(), tmp_path), "main", "provenance", ManualClock(1))


def restored(reason: str = "expected 9 bytes, got 8.") -> FileRepair:
    return file_repair(
        FileRepair.LOG_RESTORED, LOG, reason, expected_sha256=b"e" * 32, found_sha256=b"f" * 32, offsets=[8]
    )


def rebuilt() -> FileRepair:
    return file_repair(FileRepair.SHARD_REBUILT, SHARD, "there is no shard")


def test_repairs_are_told_in_one_transaction_and_once_while_they_stand_open(catalog: Catalog) -> None:
    assert tell_repairs(catalog, [restored(), rebuilt()], "repair")
    assert catalog.load().revision == 0
    # As an attempt that goes on after a crash, with ids of its own.
    assert tell_repairs(catalog, [restored(), rebuilt()], "repair")
    assert catalog.load().revision == 0
    assert [each.name for each in open_repairs(catalog)] == [LOG, SHARD]


def test_another_finding_about_the_same_file_is_told(catalog: Catalog) -> None:
    tell_repairs(catalog, [restored()], "repair")
    tell_repairs(catalog, [restored("there is no file")], "repair")
    assert len(open_repairs(catalog)) == 2
    # Both are of one file, and are done at once.
    assert finish_repairs(catalog, [(FileRepair.LOG_RESTORED, LOG)], "repair") is None
    assert open_repairs(catalog) == []


def test_the_same_damage_after_a_finished_repair_is_told_again(catalog: Catalog) -> None:
    for _ in range(2):
        tell_repairs(catalog, [rebuilt()], "step index")
        finish_repairs(catalog, [(FileRepair.SHARD_REBUILT, SHARD)], "step index")
    kinds = [reason.kind for one in catalog.timeline() for reason in summary_of(one).reasons]
    assert kinds == ["shard-rebuilt", "repair-finished"] * 2


def test_a_transaction_says_what_was_found_and_by_whom(catalog: Catalog) -> None:
    lost = file_repair(FileRepair.LOG_REWRITTEN, LOG, "block 1 is damaged", lost=[(7, 9), (3, 4)], events=5)
    catalog.commit([repair_note([restored(), lost], "repair")])
    [transaction] = catalog.timeline()
    first, second = summary_of(transaction).reasons
    assert (first.kind, first.name, first.who, first.events) == ("log-restored", LOG, "repair", None)
    assert first.repair is not None
    assert (first.repair.expected_sha256, first.repair.found_sha256) == ("65" * 32, "66" * 32)
    assert first.repair.offsets == (8,)
    assert (second.kind, second.events) == ("log-rewritten", 5)
    ranges = (LostRange(first_event_id=3, last_event_id=4), LostRange(first_event_id=7, last_event_id=9))
    assert second.repair == StatedRepair(id=lost.id.hex(), lost=ranges)
    # Done by its own transaction.
    assert [each.kind for each in open_repairs(catalog)] == [FileRepair.LOG_RESTORED]


def test_a_note_changes_no_state(catalog: Catalog) -> None:
    tell_repairs(catalog, [restored()], "repair")
    before = catalog.load()
    finish_repairs(catalog, [(FileRepair.LOG_RESTORED, LOG)], "repair")
    after = catalog.load()
    assert (after.reader_features, after.writer_features) == (frozenset(), frozenset())
    assert list(after.files) == list(before.files) == []


def test_a_catalog_that_cannot_be_written_refuses_the_repair_and_forgives_what_is_done(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell_repairs(catalog, [restored()], "repair")

    def refuse(*_: object, **__: object) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(catalog, "commit", refuse)
    with pytest.raises(StorageError, match="no space left"):
        tell_repairs(catalog, [rebuilt()], "repair")
    problem = finish_repairs(catalog, [(FileRepair.LOG_RESTORED, LOG)], "repair")
    assert problem == "that it is done could not be noted: no space left"
    assert [each.name for each in open_repairs(catalog)] == [LOG]


def test_the_catalog_of_a_retired_writer_is_told_nothing(catalog: Catalog) -> None:
    catalog.commit([Action(seal=Seal(reason="gone"))])
    assert not tell_repairs(catalog, [restored()], "repair")
    assert catalog.load().revision == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [("id", b"short"), ("name", "../elsewhere"), ("found_sha256", b"short"), ("counts", [1]), ("events", 1 << 63)],
)
def test_a_repair_that_makes_no_sense_is_refused(catalog: Catalog, field: str, value: object) -> None:
    repair = restored()
    if isinstance(value, list):
        getattr(repair, field).extend(value)
    else:
        setattr(repair, field, value)
    with pytest.raises(InvalidInputError):
        catalog.commit([repair_note([repair], "repair")])
