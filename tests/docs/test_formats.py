"""The format pages say what the code writes: layouts, numbers, names, and the bytes of the examples."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from custody.airflow_runs.reconciliation import RunCursor
from custody.backup.manifest import (
    TABLE_SCHEMA,
    Area,
    BackupManifest,
    WriterEnd,
)
from custody.backup.manifest import decode_manifest as decode_backup
from custody.backup.manifest import encode_manifest as encode_backup
from custody.capture import CaptureLimits, Context, Format, read_piece
from custody.capture.validate import InputPlace, Rejected
from custody.catalog import Action, RemoveShard, Transaction, codec
from custody.catalog.state import FEATURES_READ
from custody.catalog.stripes import PREAMBLE as STRIPE_PREAMBLE
from custody.catalog.stripes import StripeMark
from custody.catalog.transaction_pb2 import DESCRIPTOR
from custody.eventlog import (
    LogMetadata,
    LogOptions,
    StagedBatch,
    StagedLog,
    StagingWriter,
    TableOfContents,
    log_writer,
    row_bytes,
    toc,
    write_log,
)
from custody.export.cursors import CURSORS_FILE, Cursors, read_cursors
from custody.flow.content import claim_file as content
from custody.flow.content.containers import CONTAINER_FORMAT, ContainerMark
from custody.flow.content.containers import PREAMBLE as CONTAINER_PREAMBLE
from custody.flow.content.handed_claims import PREAMBLE as HANDED_PREAMBLE
from custody.flow.content.handed_claims import HandedClaim, HandedPiece
from custody.flowfile_repository import records as flowfile_records
from custody.format import framing, names
from custody.format.checked_json import with_checksum
from custody.index import NUMBER_FIELDS, TIME_FIELDS, build_shard, describe_shard
from custody.index.builder import ATTEMPT_PREFIX
from custody.index.fields import Layout
from custody.index.manifest import PackedFile
from custody.journal import JournalFile, incarnations, writer_state
from custody.journal import journal_file as journal
from custody.journal.encoding import (
    JOURNAL_SCHEMA,
    KIND_BATCH,
    KIND_ROWS,
    ROWS_MAX,
    EventRecord,
    PreparedEvents,
    decode,
)
from custody.lease import Holder, Process
from custody.lease.lease import PREAMBLE as LEASE_PREAMBLE
from custody.maintenance import scrub
from custody.model import SCHEMA_VERSION, UNASSIGNED, Event, to_batch, to_events
from custody.ngsi_sink import batch_file
from custody.quarantine import Quarantine, QuarantineEntry, bad_piece
from custody.quarantine.store import EnvelopePiece, QuarantineEnvelope
from custody.replay import Refusal, replay_plan
from custody.retention import ErasedCopy, ErasedSelection, Erasure, WriterErasure
from custody.retention.erasures import decode_erasure, encode_erasure
from custody.serving.jobs import KeptJob, decode_job
from custody.site_to_site.transactions import EndedTransaction, read_ended
from custody.store import witness
from custody.store.placed_writers import PlacedWriter
from custody.swh.index_file import PREAMBLE as SWH_INDEX_PREAMBLE
from custody.swh.index_file import KeyIndex, read_index
from custody.swh.pages import COLUMN
from custody.vfs import TEMPORARY_SUFFIX, PosixFileSystem
from custody.workspace import UnitManifest
from custody.workspace.handoff import PREAMBLE as HANDOFF_PREAMBLE
from custody.workspace.handoff import HandedJournal, HandoffManifest, decode_manifest, encode_manifest
from custody.workspace.stored_units import PREAMBLE as ENTRY_PREAMBLE
from custody.workspace.stored_units import LogEntry, decode_entry, encode_entry
from custody.workspace.unit_manifest import PREAMBLE as UNIT_PREAMBLE
from tests.docs.pages import DOCS, examples, hex_bytes, read, section, table

FS = PosixFileSystem()
PREAMBLES = {
    "journal": journal.PREAMBLE,
    "toc": toc.PREAMBLE,
    "catalog": codec.PREAMBLE,
    "writer-state": writer_state.PREAMBLE,
    "incarnation": incarnations.PREAMBLE,
    "handoff": HANDOFF_PREAMBLE,
    "handed-contents": HANDED_PREAMBLE,
    "staging": UNIT_PREAMBLE,
    "stored-unit": ENTRY_PREAMBLE,
    "stripe": STRIPE_PREAMBLE,
    "content-container": CONTAINER_PREAMBLE,
    "lease": LEASE_PREAMBLE,
    "scrub": scrub.PREAMBLE,
    "replay-plan": replay_plan.PREAMBLE,
    "content": content.PREAMBLE,
    "ngsi-batch": batch_file.PREAMBLE,
    "swh-index": SWH_INDEX_PREAMBLE,
    "flowfile-repository": flowfile_records.LOG_PREAMBLE,
}


def _example(page: str, name: str) -> bytes:
    return hex_bytes(examples(read(f"formats/{page}.md"))[name])


def test_every_format_page_is_listed_and_every_listed_page_exists() -> None:
    listed = re.findall(r"\]\(([a-z-]+\.md)\)", read("formats/README.md"))
    assert sorted(set(listed)) == sorted(path.name for path in (DOCS / "formats").glob("*.md") if path.name[0] != "R")


@pytest.mark.parametrize("suffix", ["journal", "sealed", "arrow", "parquet", "toc", "txn", "ckpt"])
def test_every_kind_of_file_is_in_the_list_and_in_the_tree(suffix: str) -> None:
    assert f"*.{suffix}`" in read("formats/README.md")
    assert re.search(rf">\.{suffix} ", read("formats/layout.md"))
    assert suffix in Path(names.__file__).read_text()


def test_the_names_in_the_tree_have_as_many_digits_as_the_code_gives_them() -> None:
    rows = {row[0]: row[2] for row in table(read("formats/layout.md"), "name | part")}
    assert rows["<first event id>"] == f"{names.ID_DIGITS} digits"
    assert rows["<first event time>"] == f"{names.TIME_DIGITS} digits"
    assert rows["<revision>"] == f"{len(names.revision_folder(0))} digits"
    assert names.ContainerPaths(Path("c"), "w").lock == Path("c/w/LOCK")
    assert f"`*{TEMPORARY_SUFFIX}`" in read("formats/layout.md")
    assert f"`index/{ATTEMPT_PREFIX}" in read("formats/layout.md")


@pytest.mark.parametrize("page", list(PREAMBLES))
def test_the_layout_begins_with_the_preamble_and_the_version(page: str) -> None:
    letters, version = table(read(f"formats/{page}.md").partition("A record:")[0], "offset | size | type | content")[:2]
    assert letters == ["0", "7", "ASCII", PREAMBLES[page][:7].decode()]
    assert version == ["7", "1", "u8", f"version, {PREAMBLES[page][7]}"]


def test_the_layout_of_a_record_has_the_size_of_its_head() -> None:
    rows = table(read("formats/journal.md").partition("A record:")[2], "offset | size")
    assert sum(int(row[1]) for row in rows[:-1]) == framing.HEAD_BYTES
    assert rows[0][3] == f"mark, {framing.MARK.hex(' ')}"
    assert str(framing.PAYLOAD_BYTES_MAX) in rows[1][3]


def test_the_kinds_of_records_have_their_numbers() -> None:
    kinds = {
        "header": journal.KIND_HEADER,
        "schema": journal.KIND_SCHEMA,
        "batch": KIND_BATCH,
        "rows": KIND_ROWS,
        "group": journal.KIND_GROUP,
        "end": journal.KIND_END,
    }
    assert {row[1]: int(row[0]) for row in table(read("formats/journal.md"), "kind | name")} == kinds


@pytest.mark.parametrize(
    ("page", "heading", "struct"),
    [
        ("journal", "## Layout", journal.JournalHeader),
        ("writer-state", "## Layout", writer_state.WriterState),
        ("incarnation", "## Layout", incarnations.Claim),
        ("handoff", "## Layout", HandoffManifest),
        ("handoff", "## Journal", HandedJournal),
        ("handed-contents", "## Layout", HandedClaim),
        ("handed-contents", "## Piece", HandedPiece),
        ("stored-unit", "## Layout", LogEntry),
        ("placed-writer", "## Layout", PlacedWriter),
        ("erasure", "## Layout", Erasure),
        ("erasure", "## Selection", ErasedSelection),
        ("erasure", "## Writer", WriterErasure),
        ("erasure", "## Copy", ErasedCopy),
        ("stripe", "## Layout", StripeMark),
        ("content-container", "## Layout", ContainerMark),
        ("scrub", "## Layout", scrub.ScrubState),
        ("scrub", "## Round", scrub.ScrubRound),
        ("event-log", "## Metadata", LogMetadata),
        ("staging", "### Manifest", UnitManifest),
        ("replay-plan", "## Layout", replay_plan.ReplayPlan),
        ("export-cursors", "## Layout", Cursors),
        ("backup", "## Layout", BackupManifest),
        ("backup", "## Area", Area),
        ("backup", "## End", WriterEnd),
        ("job", "## Layout", KeptJob),
        ("site-to-site", "## Layout of an end", EndedTransaction),
        ("run-cursor", "## Layout", RunCursor),
        ("lease", "## Layout", Holder),
        ("lease", "## Process", Process),
        ("staging", "### Log", StagedLog),
        ("staging", "### Batch", StagedBatch),
        ("quarantine", "## Layout", QuarantineEnvelope),
        ("quarantine", "## Piece", EnvelopePiece),
        ("content", "## Layout", content.ClaimHeader),
        ("ngsi-batch", "## Layout", batch_file.BatchManifest),
        ("ngsi-batch", "## Part", batch_file.FileAppend),
        ("ngsi-batch", "## What is in no file", batch_file.Skipped),
        ("ngsi-batch", "## What is put aside", batch_file.Quarantined),
        ("ngsi-batch", "## Notification", batch_file.Notified),
    ],
)
def test_every_key_of_a_json_document_is_in_its_table(page: str, heading: str, struct: type[msgspec.Struct]) -> None:
    rows = table(section(read(f"formats/{page}.md"), heading), "key | type")
    assert [row[0] for row in rows] == [field.name for field in msgspec.structs.fields(struct)]


@pytest.mark.parametrize(("heading", "struct"), [("## Event", replay_plan.PlannedReplay), ("## Refusal", Refusal)])
def test_the_values_of_a_replay_plan_are_in_their_order(heading: str, struct: type[msgspec.Struct]) -> None:
    rows = table(section(read("formats/replay-plan.md"), heading), "value | type")
    assert [row[0] for row in rows] == [field.name for field in msgspec.structs.fields(struct)]


def test_every_key_of_the_end_record_is_in_its_table() -> None:
    rows = table(read("formats/journal.md"), "counted | type")
    assert [row[0] for row in rows] == [field.name for field in msgspec.structs.fields(journal.JournalEnd)]


def test_the_example_of_a_writer_s_state_is_what_the_code_writes() -> None:
    here = "6f1c2d3e000040008000000000000001"
    state = writer_state.WriterState(writer="main", container=here, containers={here: "/disk1"}, reserved=1_048_577)
    assert writer_state.encode_state(state) == _example("writer-state", "file")
    assert writer_state.decode_state(_example("writer-state", "file"), Path("STATE")) == state
    assert str(writer_state.RESERVED_IDS) in read("formats/writer-state.md")


def test_the_example_of_a_stripe_s_mark_is_one() -> None:
    shown = examples(read("formats/stripe.md"))["document"].strip().encode()
    mark = msgspec.json.decode(shown, type=StripeMark)
    assert mark.encode() == _example("stripe", "head") + shown
    assert StripeMark.decode(mark.encode(), "STRIPE") == mark


def test_the_example_of_a_content_container_s_mark_is_one() -> None:
    shown = examples(read("formats/content-container.md"))["document"].strip().encode()
    mark = msgspec.json.decode(shown, type=ContainerMark)
    assert CONTAINER_FORMAT.encode(mark) == _example("content-container", "head") + shown


def test_the_features_of_a_catalog_are_on_its_page() -> None:
    assert {
        row[0] for row in table(read("formats/catalog.md"), "reader feature | since when a catalog has it")
    } == FEATURES_READ


def test_the_example_of_a_claim_is_one() -> None:
    shown = examples(read("formats/incarnation.md"))["document"].strip().encode()
    claim = msgspec.json.decode(shown, type=incarnations.Claim)
    assert msgspec.json.encode(claim) == shown
    assert incarnations.decode_claim(incarnations.encode_claim(claim), "claim") == claim


def test_the_example_of_a_hand_over_is_one() -> None:
    shown = examples(read("formats/handoff.md"))["document"].strip().encode()
    manifest = msgspec.json.decode(shown, type=HandoffManifest)
    assert msgspec.json.encode(manifest) == shown
    assert decode_manifest(encode_manifest(manifest), "manifest") == manifest


def test_the_example_of_handed_contents_is_one() -> None:
    shown = examples(read("formats/handed-contents.md"))["document"].strip().encode()
    assert msgspec.json.encode(msgspec.json.decode(shown, type=HandedClaim)) == shown
    assert shown in next((Path(__file__).parents[1] / "golden/handed-contents").rglob("manifest")).read_bytes()


def test_the_example_of_a_scrub_is_what_the_code_writes() -> None:
    current = scrub.ScrubRound(started_ms=1_772_409_600_000, pieces=1, bytes=400)
    state = scrub.ScrubState(current=current, after="/7/", last_run_ms=1_772_409_600_000)
    assert scrub.encode_scrub(state) == _example("scrub", "file")
    assert scrub.decode_scrub(_example("scrub", "file"), "scrub") == state


def test_the_fields_of_a_block_lie_where_the_table_says() -> None:
    rows = table(read("formats/toc.md"), "offset | size | type | field")
    fields: dict[str, Any] = dict(toc.BLOCK.fields or {})
    assert [(row[3], int(row[0]), int(row[1]), row[2][0]) for row in rows] == [
        (name, fields[name][1], fields[name][0].itemsize, fields[name][0].kind) for name in toc.BLOCK.names or ()
    ]


@pytest.mark.parametrize("message", list(DESCRIPTOR.message_types_by_name))
def test_every_field_of_a_message_is_in_its_table_with_its_number(message: str) -> None:
    rows = table(section(read("formats/catalog.md"), f"### {message}"), "field | number | type")
    fields = DESCRIPTOR.message_types_by_name[message].fields
    kinds = {1: "double", 3: "int64", 4: "uint64", 8: "bool", 9: "string", 12: "bytes", 18: "sint64"}
    expected = []
    for field in fields:
        named = field.message_type or field.enum_type
        kind = named.name if named else kinds[field.type]
        expected.append([field.name, str(field.number), kind + (", repeated" if field.is_repeated else "")])
    assert [row[:3] for row in rows] == expected


def test_the_example_of_a_journal_is_what_the_writer_writes(tmp_path: Path) -> None:
    head = _example("journal", "head")
    header = journal.JournalHeader(
        writer="main", database="provenance", first_event_id=42, created_ms=1_772_359_200_000
    )
    with FS.create(tmp_path / "made") as file:
        journal.write_header(file, header)
    assert (tmp_path / "made").read_bytes().startswith(head)
    assert JournalFile.read(FS, tmp_path / "made").header == header


def test_the_example_of_rows_is_what_the_writer_writes_and_reads() -> None:
    page = read("formats/journal.md")
    shown = _example("journal", "rows")
    common: dict[str, Any] = {"component_id": "c1", "component_type": "PutFile", "flowfile_uuid": "f1", "file_size": 5}
    events = [
        Event(
            event_id=42,
            event_type="SEND",
            event_time=1_772_359_200_000,
            updated_attributes={"filename": "a", "gone": None},
            **common,
        ),
        Event(event_id=43, event_type="FORK", event_time=1_772_359_200_001, child_uuids=("f2",), **common),
    ]
    [item] = framing.frames(shown)
    assert isinstance(item, framing.Frame)
    assert to_events(decode([EventRecord.of(item, Path("example"), 0, JOURNAL_SCHEMA)])) == events
    assert PreparedEvents([msgspec.structs.replace(item, event_id=UNASSIGNED) for item in events]).records(42) == [
        (shown,)
    ]
    assert f"at most {ROWS_MAX} events" in page


def test_the_example_of_a_content_is_what_the_code_writes_and_finds(tmp_path: Path) -> None:
    page = read("formats/content.md")
    header = msgspec.json.decode(examples(page)["document"], type=content.ClaimHeader)
    head = content.head(header)
    assert head.partition(b"{")[2] == examples(page)["document"].strip().encode()[1:]
    assert f"at offset {len(head)}, " in page
    digest = content.Digest()
    digest.update(b"abc")
    shown = _example("content", "content")
    assert b"abc" + digest.record(len(head)).encode(header.key) == shown
    [found] = content.scan(memoryview(head + shown), header.key, len(head))
    assert isinstance(found, content.ContentRecord)
    assert b"".join(found.whole(memoryview(head + shown), tmp_path)) == b"abc"
    assert f"chunk size, {content.CHUNK_BYTES}" in page
    assert f"kind {content.KIND_CONTENT} or {content.KIND_ERASED}" in page


def test_the_example_of_a_table_of_contents_is_what_the_code_writes() -> None:
    [description] = toc.pack([b"\x19\x1c"])
    blocks = np.zeros(1, toc.BLOCK)
    blocks[0] = (4, 1500, 42, 3, 1_772_359_200_000, 1_772_359_200_005, 0xCAFE, len(description))
    shown = TableOfContents(blocks, b"\x15\x04", b"\x00", description, 1707, 600, b"\x11" * 32)
    assert shown.encode() == _example("toc", "file")
    assert TableOfContents.decode(_example("toc", "file"), Path("example")).footer([0])[-8:-4] == b"\x08\0\0\0"


def test_the_example_of_an_index_of_keys_is_what_the_code_writes_and_reads(tmp_path: Path) -> None:
    columns = np.array([(0, 0, 0, 0, 0), (6, 30, 4, 0xCAFE, 0)], COLUMN)
    places = np.array([[2, 34, 40 | 0xAAAA << 32, 74, 50 | 0xBBBB << 32], [2, 124, 41, 165, 51]], np.uint64)
    keys, firsts = np.array([5, 9, 1000, 1001], np.uint64), np.array([5, 1000], np.uint64)
    shown = KeyIndex.of(keys, columns, firsts, places, b"\x11" * 32)
    assert shown.encode() == _example("swh-index", "file")
    (tmp_path / "0.ef").write_bytes(_example("swh-index", "file"))
    index = read_index(FS, tmp_path / "0.ef")
    index.check()
    assert (index.keys.numbers() + np.uint64(index.first)).tolist() == [5, 9, 1000, 1001]
    assert index.pages.of_keys(np.array([1001], np.uint64)) == [1]
    assert [index.pages.places(page) for page in (0, 1)] == places.tolist()


def test_the_example_of_a_transaction_is_what_the_code_writes() -> None:
    transaction = Transaction(
        revision=1,
        uuid=b"\x11" * 16,
        previous_uuid=b"\x22" * 16,
        previous_digest=b"\x33" * 32,
        commit_time_ms=1_772_359_202_000,
        encoding=Transaction.DELTA,
        catalog_id=b"\x44" * 16,
        attempt_id=b"\x55" * 16,
        next_event_id=45,
        actions=[Action(remove_shard=RemoveShard(name=names.shard_name(1_772_359_200_000, 42)))],
    )
    assert codec.encode(transaction) == _example("catalog", "file")
    assert codec.decode(_example("catalog", "file"), Path("example")) == transaction


def test_staging_files_and_event_logs_begin_and_end_as_their_pages_show(tmp_path: Path) -> None:
    metadata = msgspec.json.decode(examples(read("formats/event-log.md"))["metadata"], type=LogMetadata)
    assert metadata.schema_version == SCHEMA_VERSION
    event = Event(event_type="X", event_time=0, component_id="c", component_type="t", flowfile_uuid="f", file_size=1)
    table_ = pa.Table.from_batches([to_batch([event], 1)])
    with StagingWriter(FS, tmp_path / "1.arrow") as writer:
        writer.write(table_, row_bytes(table_))
        writer.finish()
    write_log(FS, tmp_path / "1.parquet", table_, metadata, LogOptions())
    for page, file in (("staging", "1.arrow"), ("event-log", "1.parquet")):
        data = (tmp_path / file).read_bytes()
        assert data.startswith(_example(page, "head"))
        assert data.endswith(_example(page, "tail"))
    assert examples(read("formats/event-log.md"))["metadata"].strip().encode() in (tmp_path / "1.parquet").read_bytes()


def test_the_example_of_a_manifest_is_what_the_code_writes() -> None:
    shown = examples(read("formats/staging.md"))["manifest"].strip().encode()
    manifest = msgspec.json.decode(shown, type=UnitManifest)
    assert msgspec.json.encode(manifest) == shown
    assert manifest.encode() == _example("staging", "manifest-head") + shown
    assert UnitManifest.decode(manifest.encode(), Path("unit")) == manifest


def test_the_encodings_of_the_columns_are_those_of_the_page() -> None:
    rows = table(section(read("formats/event-log.md"), "## Encodings"), "encoding | columns")
    shown = {row[0]: set(row[1].split(", ")) for row in rows}
    written: dict[str, set[str]] = {"dictionary": set(log_writer.DICTIONARY)}
    for column, name in log_writer.ENCODINGS.items():
        written.setdefault(name, set()).add(column)
    assert shown == written


def test_a_shard_holds_the_files_of_its_page_and_begins_as_it_shows(tmp_path: Path) -> None:
    event = Event(event_type="SEND", event_time=0, component_id="c", component_type="t", flowfile_uuid="u", file_size=0)
    headings: dict[Layout, str] = {"packed": "file | content", "whoosh": "file of Whoosh's layout | content"}
    for layout, heading in headings.items():
        folder = tmp_path / layout
        build_shard(FS, folder, pa.Table.from_batches([to_batch([event], 0)]), (), layout=layout)
        listed = [row[0] for row in table(read("formats/index-shard.md"), heading)]
        numbers = "|".join((*TIME_FIELDS, *NUMBER_FIELDS))
        made = {
            re.sub(rf"MAIN_\d{{20}}\.({numbers})", "SEGMENT.FIELD", p.name).replace("MAIN_" + 20 * "0", "SEGMENT")
            for p in folder.iterdir()
        }
        assert made == set(listed)
    assert (tmp_path / "packed" / "custody.shard").read_bytes().startswith(_example("index-shard", "manifest"))
    assert (tmp_path / "whoosh" / "_MAIN_1.toc").read_bytes().startswith(_example("index-shard", "head"))


def test_the_manifest_of_a_packed_shard_has_the_keys_of_its_pages(tmp_path: Path) -> None:
    event = Event(event_type="SEND", event_time=0, component_id="c", component_type="t", flowfile_uuid="u", file_size=0)
    build_shard(FS, tmp_path / "shard", pa.Table.from_batches([to_batch([event], 0)]), ())
    about = describe_shard(FS, tmp_path / "shard")
    page, packed = read("formats/index-shard.md"), read("formats/packed-shard.md")
    shown = {key for row in table(page, "key | content") for key in row[0].split(", ")}
    assert set(msgspec.to_builtins(about)) == shown - {"order_type"}
    of_file, of_field = (table(packed, f"key of {what} | content") for what in ("packed", "a field"))
    assert isinstance(about.packed, PackedFile)
    assert set(msgspec.to_builtins(about.packed)) == {key for row in of_file for key in row[0].split(", ")}
    assert set(msgspec.to_builtins(about.packed.fields["event_type"])) == {row[0] for row in of_field}


def test_the_pickles_of_a_whoosh_segment_begin_as_the_page_says(tmp_path: Path) -> None:
    event = Event(event_type="SEND", event_time=0, component_id="c", component_type="t", flowfile_uuid="u", file_size=0)
    page = read("formats/whoosh-segment.md")
    block = re.search(r"first pickle begins with `([^`]+)`.*second pickle begins with `([^`]+)`", page, re.DOTALL)
    inline = re.search(r"lists of up to 16 documents itself: `([^`]+)`", page)
    assert block and inline
    for documents, suffix in ((17, "pst"), (16, "trm")):
        folder = tmp_path / suffix
        build_shard(FS, folder, pa.Table.from_batches([to_batch([event] * documents, 0)]), (), layout="whoosh")
        data = next(folder.glob(f"*.{suffix}")).read_bytes()
        if suffix == "pst":
            assert (data[:4], data[8:11], data[38:41]) == (b"W3Bl", bytes.fromhex(block[1]), bytes.fromhex(block[2]))
            assert (data[12], data[17]) == (17, 16), "number of postings and last document"
        else:
            assert data.count(bytes.fromhex(inline[1]) + b"J" + bytes(4)) > 0


def test_the_example_of_a_quarantine_entry_is_what_the_code_writes(tmp_path: Path) -> None:
    shown = examples(read("formats/quarantine.md"))
    raw = _example("quarantine", "piece")
    [outcome] = read_piece(raw, InputPlace(3, 2048), CaptureLimits(4096), format=Format.NIFI, context=Context())
    assert isinstance(outcome, Rejected)
    document = json.loads(shown["envelope"])
    [of_piece] = document.pop("pieces")
    entry = msgspec.convert({**document, **of_piece}, QuarantineEntry)
    assert (outcome.problem.severity, outcome.problem.code) == (entry.severity, entry.code)
    assert outcome.problem.message == entry.message
    Quarantine(FS, tmp_path).add(
        bad_piece(
            raw,
            severity=entry.severity,
            code=entry.code,
            message=entry.message,
            file=entry.file,
            index=entry.index,
            offset=entry.offset,
            node=entry.node,
            received_ms=entry.received_ms,
            format=entry.format,
        )
    )
    envelope = shown["envelope"].rstrip("\n").encode()
    first = shown["first-line"].encode()
    assert (tmp_path / f"{entry.key}.rejected").read_bytes() == first + envelope + b"\n" + raw
    identity = json.dumps(json.loads(shown["identity"]), separators=(",", ":"))
    assert identity == shown["identity"].strip()
    assert hashlib.sha256(identity.encode()).hexdigest()[:16] == entry.key


def test_the_example_of_a_lease_is_what_the_code_writes() -> None:
    shown = examples(read("formats/lease.md"))["document"].strip().encode()
    holder = msgspec.json.decode(shown, type=Holder)
    assert holder.encode() == LEASE_PREAMBLE + framing.frame(1, shown)
    assert Holder.decode(holder.encode(), Path("0000000001")) == holder
    assert names.epoch_file(holder.epoch) == "0000000001"


def test_the_example_of_a_replay_plan_is_what_the_code_writes() -> None:
    shown = examples(read("formats/replay-plan.md"))["document"].strip().encode()
    plan = msgspec.json.decode(shown, type=replay_plan.ReplayPlan)
    written = replay_plan.FORMAT.encode(plan)
    assert written == replay_plan.PREAMBLE + framing.frame(replay_plan.KIND_PLAN, shown)
    assert replay_plan.FORMAT.decode(written, "a.plan") == plan


def test_the_example_of_cursors_is_what_the_code_writes(tmp_path: Path) -> None:
    shown = examples(read("formats/export-cursors.md"))["document"].strip().encode()
    (tmp_path / CURSORS_FILE).write_bytes(shown)
    cursors = read_cursors(FS, tmp_path, "marquez")
    assert cursors is not None
    assert cursors.encode() == shown


def test_the_example_of_a_job_is_what_the_code_writes(tmp_path: Path) -> None:
    shown = examples(read("formats/job.md"))["document"].strip().encode()
    job = decode_job(shown, tmp_path / "a.json")
    assert with_checksum(msgspec.json.encode(job)) == shown


def test_the_example_of_an_ended_transaction_is_what_the_code_writes(tmp_path: Path) -> None:
    shown = examples(read("formats/site-to-site.md"))["document"].strip().encode()
    (tmp_path / "ended.json").write_bytes(shown)
    ended = read_ended(FS, tmp_path / "ended.json")
    assert ended is not None
    assert ended.encode() == shown


def test_the_example_of_a_batch_of_the_sink_is_what_the_code_writes() -> None:
    data = b"oak\n"
    batch = batch_file.BatchManifest(
        id="6f1c2d3e-0000-4000-8000-000000000001",
        number=7,
        time_ms=1,
        told_from=0,
        cursors={"main": 8},
        sources=(batch_file.Source("main", 7, "a-b"),),
        parts=(batch_file.FileAppend.of("/user/u/a.txt", 4, data, (0,)),),
    )
    assert batch_file.encode(batch, [data]) == _example("ngsi-batch", "file")
    [(part, content)] = batch_file.decode(_example("ngsi-batch", "file"), "a.batch")
    assert (part, bytes(content)) == (batch.parts[0], data)


def test_the_example_of_an_entry_of_a_stored_unit_is_one() -> None:
    shown = examples(read("formats/stored-unit.md"))["document"].strip().encode()
    entry = msgspec.json.decode(shown, type=LogEntry)
    assert msgspec.json.encode(entry) == shown
    assert decode_entry(encode_entry(entry), "here") == entry


def test_the_example_of_an_erasure_is_what_the_code_writes(tmp_path: Path) -> None:
    shown = examples(read("formats/erasure.md"))["document"].strip().encode()
    assert encode_erasure(decode_erasure(shown, tmp_path / "a.json")) == shown


def test_the_example_of_a_placed_writer_is_one() -> None:
    shown = examples(read("formats/placed-writer.md"))["document"].rstrip("\n").encode()
    record = msgspec.json.decode(shown, type=PlacedWriter)
    assert with_checksum(msgspec.json.encode(record)) == shown


def test_the_example_of_a_backup_is_what_the_code_writes() -> None:
    page = read("formats/backup.md")
    shown = examples(page)["document"].strip().encode()
    assert encode_backup(decode_backup(shown, "page")) == shown
    assert [row[0] for row in table(page, "column | type")] == TABLE_SCHEMA.names


def test_the_example_of_a_witness_is_one_and_its_table_has_every_key() -> None:
    page = read("formats/witness.md")
    shown = examples(page)["document"].strip().encode()
    seen = msgspec.json.decode(shown, type=witness.Witness)
    assert witness.decode_witness(witness.encode_witness(seen), "WITNESS") == seen
    assert msgspec.json.encode(seen) == shown
    rows = table(page, "key | type")
    assert [row[0].strip("`") for row in rows] == [field.name for field in msgspec.structs.fields(witness.Witness)]
