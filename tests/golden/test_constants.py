"""The numbers on disk, spelled out: a change here changes the format."""

import struct
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest

from custody.catalog import (
    EXPIRED,
    Action,
    AddHold,
    AddMark,
    Attribute,
    Condition,
    RemoveFile,
    RespectHolds,
    Transaction,
    codec,
    keys,
    state,
)
from custody.catalog.transaction_pb2 import DESCRIPTOR
from custody.eventlog import log_writer, toc
from custody.format import framing, names
from custody.journal import journal_file as journal
from custody.journal import writer_state
from custody.journal.encoding import KIND_BATCH, KIND_ROWS, PreparedEvents
from custody.model import EVENT_SCHEMA, SCHEMA_VERSION, Event, EventType
from custody.model.columns import SCHEMAS

FIELD_NUMBERS = {
    "Transaction": {
        "revision": 1,
        "uuid": 2,
        "previous_uuid": 3,
        "previous_digest": 4,
        "commit_time_ms": 5,
        "encoding": 6,
        "catalog_id": 7,
        "attempt_id": 8,
        "reader_features": 9,
        "writer_features": 10,
        "actions": 11,
        "next_event_id": 12,
        "naming": 13,
        "epoch": 14,
        "live_paths": 15,
        "live_files": 16,
        "waiting_since_ms": 17,
        "behind_first": 18,
        "behind_last": 19,
        "behind_clock_ms": 20,
    },
    "Action": {
        "add_file": 1,
        "remove_file": 2,
        "add_shard": 3,
        "remove_shard": 4,
        "add_tombstone": 5,
        "remove_tombstone": 6,
        "upgrade": 7,
        "prune": 8,
        "seal": 9,
        "absorb": 10,
        "note": 11,
        "add_hold": 12,
        "remove_hold": 13,
        "add_mark": 14,
        "remove_mark": 15,
        "respect_holds": 16,
        "add_loss": 20,
        "remove_loss": 21,
    },
    "AddFile": {
        "path": 1,
        "size_bytes": 2,
        "rows": 3,
        "sha256": 4,
        "table": 5,
        "partition": 6,
        "schema_version": 7,
        "first_event_id": 8,
        "last_event_id": 9,
        "first_event_time_ms": 10,
        "last_event_time_ms": 11,
        "toc_path": 12,
        "toc_sha256": 13,
        "sources": 14,
        "groups": 15,
        "footer": 16,
        "footer_bytes": 17,
        "statistics": 18,
        "schema_fingerprint": 19,
        "incarnation": 25,
    },
    "FileStatistics": {"columns": 1},
    "ColumnStatistics": {"column": 1, "minimum": 2, "maximum": 3, "nulls": 4, "blooms": 5},
    "Value": {"integer": 1, "number": 2, "text": 3, "binary": 4, "flag": 5},
    "SourceRange": {"node": 1, "first_ordinal": 2, "last_ordinal": 3},
    "RemoveFile": {"path": 1, "reason": 2},
    "AddShard": {
        "name": 1,
        "container": 2,
        "documents": 3,
        "size_bytes": 4,
        "first_event_id": 5,
        "last_event_id": 6,
        "first_event_time_ms": 7,
        "last_event_time_ms": 8,
        "log_paths": 9,
    },
    "RemoveShard": {"name": 1, "reason": 2},
    "AddTombstone": {
        "id": 1,
        "event_ids": 2,
        "flowfile_uuids": 3,
        "from_time_ms": 4,
        "to_time_ms": 5,
        "attributes": 6,
        "before_event_id": 7,
        "reason": 8,
        "created_ms": 9,
        "erased": 10,
        "erased_groups": 11,
        "event_types": 12,
        "unless": 13,
        "by_retention": 14,
        "who": 15,
    },
    "Condition": {
        "event_ids": 2,
        "flowfile_uuids": 3,
        "from_time_ms": 4,
        "to_time_ms": 5,
        "attributes": 6,
        "before_event_id": 7,
        "event_types": 12,
    },
    "AddHold": {"name": 1, "condition": 2, "reason": 3, "who": 4, "created_ms": 5},
    "RemoveHold": {"name": 1, "reason": 2, "who": 3, "created_ms": 4},
    "AddMark": {"id": 1, "paths": 2, "shards": 3, "groups": 4, "events": 5, "size_bytes": 6, "created_ms": 7},
    "MarkedShard": {"name": 1, "container": 2},
    "RemoveMark": {"id": 1},
    "RespectHolds": {"names": 1},
    "Attribute": {"name": 1, "value": 2},
    "RemoveLoss": {"id": 1},
    "SourceKeys": {"node": 1, "firsts": 2, "counts": 3, "first_times_ms": 4, "last_times_ms": 5},
    "AddLoss": {"id": 1, "firsts": 2, "counts": 3, "events": 4, "path": 5, "reason": 6, "created_ms": 7},
    "RemoveTombstone": {"id": 1},
    "Upgrade": {"reader_features": 1, "writer_features": 2},
    "Prune": {"floor": 1, "checkpoint_digest": 2},
    "Seal": {"reason": 1},
    "Absorb": {"writer": 1, "database": 2, "catalog_id": 3, "revision": 4, "digest": 5, "first_event_id": 6},
    "Note": {"kind": 1, "text": 2, "lost_revisions": 3, "repairs": 4, "finished": 5, "who": 6},
    "FileRepair": {
        "id": 1,
        "kind": 2,
        "name": 3,
        "reason": 4,
        "expected_sha256": 5,
        "found_sha256": 6,
        "offsets": 7,
        "firsts": 8,
        "counts": 9,
        "events": 10,
    },
}


def test_the_preambles_are_eight_bytes_that_end_in_the_version() -> None:
    assert journal.PREAMBLE == b"CUSTJRN\x01"
    assert toc.PREAMBLE == b"CUSTTOC\x01"
    assert codec.PREAMBLE == b"CUSTCAT\x01"
    assert writer_state.PREAMBLE == b"CUSTWST\x01"


def test_a_frame_has_thirteen_bytes_before_its_payload() -> None:
    assert framing.HEAD_BYTES == 13
    assert framing.PAYLOAD_BYTES_MAX == 1_073_741_824
    assert framing.frame(3, b"abc")[:8] == b"\xc5\x7e\xa1\x1d" + struct.pack("<I", 3)
    assert framing.frame(3, b"abc")[12:] == b"\x03abc"
    assert framing.join_records(5, [framing.frame(3, b"abc")])[13:17] == b"\xc5\x7e\xa1\x1e"


def test_the_kinds_of_journal_records_keep_their_numbers() -> None:
    kinds = (journal.KIND_HEADER, journal.KIND_SCHEMA, KIND_BATCH, KIND_ROWS, journal.KIND_GROUP, journal.KIND_END)
    assert kinds == (1, 2, 3, 4, 5, 6)


def test_a_row_is_spelled_as_version_1_spells_it() -> None:
    event = Event(
        event_type="SEND",
        event_time=1,
        component_id="c",
        component_type="t",
        flowfile_uuid="f",
        file_size=2,
        updated_attributes={"a": "b", "gone": None},
    )
    [[record]] = PreparedEvents([event]).records(42)
    assert record[framing.HEAD_BYTES :] == (
        b"\x2a\0\0\0\0\0\0\0\x01\0\0\0"
        b"\x91\xde\0\x07\xaaevent_type\xa4SEND\xaaevent_time\x01\xaccomponent_id\xa1c\xaecomponent_type\xa1t"
        b"\xadflowfile_uuid\xa1f\xa9file_size\x02\xb2updated_attributes\x82\xa1a\xa1b\xa4gone\xc0"
    )


def test_a_table_of_contents_has_sixty_eight_bytes_and_fifty_six_a_block() -> None:
    assert toc.BLOCK.itemsize == 56
    assert [(name, toc.BLOCK.fields[name][1]) for name in toc.BLOCK.names or () if toc.BLOCK.fields] == [
        ("offset", 0),
        ("length", 8),
        ("first_event_id", 16),
        ("rows", 24),
        ("first_event_time", 32),
        ("last_event_time", 40),
        ("crc32", 48),
        ("description_bytes", 52),
    ]
    contents = toc.TableOfContents(np.zeros(2, toc.BLOCK), b"abc", b"de", b"", 0, 0, bytes(32))
    assert len(contents.encode()) == 68 + 2 * 56 + 3 + 2 + 32


def test_the_guard_of_a_footer_has_forty_bytes() -> None:
    assert toc.MARK == b"CUSTFTR\x01"
    assert toc.GUARD_BYTES == 40


def test_a_catalog_object_has_sixteen_bytes_before_its_message_and_thirty_two_after() -> None:
    assert len(codec.encode(Transaction())) == 48
    assert len(codec.encode(Transaction(revision=1))) == 50
    assert {"stripes"} == state.FEATURES_READ


def test_the_field_numbers_of_the_catalog_stay() -> None:
    messages = DESCRIPTOR.message_types_by_name
    assert {
        name: {field.name: field.number for field in message.fields} for name, message in messages.items()
    } == FIELD_NUMBERS


def test_holds_and_marks_are_spelled_as_version_1_spells_them() -> None:
    condition = Condition(event_ids=[5], attributes=[Attribute(name="a", value="b")], event_types=["DROP"])
    hold = AddHold(name="h", condition=condition, reason="r", who="w", created_ms=7)
    mark = AddMark(id=b"i", paths=["p"], groups=[3], events=2, size_bytes=9, created_ms=7)
    for action, expected in (
        (
            Action(add_hold=hold),
            b"\x62\x1e\x0a\x01h\x12\x11\x12\x01\x05\x32\x06\x0a\x01a\x12\x01b\x62\x04DROP\x1a\x01r\x22\x01w\x28\x07",
        ),
        (Action(remove_file=RemoveFile(path="p", reason=EXPIRED)), b"\x12\x05\x0a\x01p\x10\x01"),
        (
            Action(add_mark=mark),
            b"\x72\x0f\x0a\x01i\x12\x01p\x22\x01\x03\x28\x02\x30\x09\x38\x07",
        ),
        (Action(respect_holds=RespectHolds(names=["h"])), b"\x82\x01\x03\x0a\x01h"),
    ):
        assert action.SerializeToString(deterministic=True) == expected
        assert Action.FromString(expected) == action


def test_the_encodings_of_the_catalog_stay() -> None:
    assert dict(Transaction.Encoding.items()) == {"ENCODING_UNSPECIFIED": 0, "DELTA": 1, "FULL": 2}


def test_the_name_of_revision_0_derives_from_a_fixed_namespace() -> None:
    assert UUID("7f3c1a52-6f0e-4b57-9a0a-6f0d5c1f2b11") == keys._FIRST_NAMESPACE


def test_the_event_schema_is_version_2_with_these_columns() -> None:
    assert SCHEMA_VERSION == 2
    assert log_writer.METADATA_KEY == b"custody"
    assert len(EVENT_SCHEMA) == 38
    assert SCHEMAS[1].names == EVENT_SCHEMA.names[:-1]
    assert [field.name for field in EVENT_SCHEMA if not field.nullable] == [
        "event_id",
        "event_type",
        "event_time",
        "component_id",
        "component_type",
        "flowfile_uuid",
        "file_size",
        "event_duration",
        "parent_uuids",
        "child_uuids",
        "previous_attributes",
        "updated_attributes",
    ]


def test_there_are_eighteen_event_types() -> None:
    assert len(EventType) == 18


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (str(names.JournalName(42, 0, sealed=False)), "00000000000000000042.0.journal"),
        (str(names.JournalName(42, 1, sealed=True)), "00000000000000000042.1.sealed"),
        (
            str(names.DatabasePaths(Path("store"), "w", "db").staged_unit(42)),
            "store/w/db/staging/00000000000000000042",
        ),
        (names.UNIT_MANIFEST, "unit"),
        (names.staged_log(42), "00000000000000000042.arrow"),
        (names.event_log_path(42, "2026-03-01"), "data/2026-03-01/events/00000000000000000042.parquet"),
        (
            names.event_log_path(42, "2026-03-01", names.attempt_suffix(UUID("580ce91b-4db0-5a42-a213-b982a43b38c0"))),
            "data/2026-03-01/events/00000000000000000042.a213b982a43b38c0.parquet",
        ),
        (names.toc_path("data/x.parquet"), "data/x.toc"),
        (names.shard_name(1_772_359_200_000, 42), "1772359200000-00000000000000000042"),
        (names.revision_folder(42), "00000000000000000042"),
        (names.transaction_file(UUID(int=1)), "00000000-0000-0000-0000-000000000001.txn"),
        (names.transaction_file(UUID(int=1), checkpoint=True), "00000000-0000-0000-0000-000000000001.ckpt"),
    ],
)
def test_a_file_has_the_name_that_version_1_gives_it(made: str, text: str) -> None:
    assert made == text
