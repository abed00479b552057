"""Today's code reads what version 1 of each format wrote: the checked-in files, and files that are made now."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from whoosh import query

from custody.catalog import Catalog, SecondCopyStore, Transaction, rebuild, scan_logs
from custody.catalog.codec import decode, digest
from custody.catalog.keys import CatalogObjects
from custody.catalog.second_copies import copied_entry
from custody.catalog.state import EMPTY
from custody.catalog.stripes import StripeMark
from custody.catalog.transaction_summary import summary_of
from custody.catalog.wellformed import check_delta
from custody.clock import ManualClock
from custody.config import ContentStore
from custody.eventlog import EventLog, TableOfContents, read_staged
from custody.eventlog.toc import PREAMBLE as TOC_PREAMBLE
from custody.export.cursors import Cursors, read_cursors
from custody.flow.content import ClaimFile, ContentContainers, ResourceClaim, claims_on_disk, find_content
from custody.format.names import parse_shard
from custody.index import OpenShard, describe_shard
from custody.journal import JournalFile
from custody.journal.incarnations import decode_claim
from custody.landing import LandingLedger
from custody.lease import Holder, lease_status
from custody.model import EVENT_SCHEMA, SCHEMA_VERSION, Event, to_batch, to_events
from custody.ngsi_sink.sink import Sink
from custody.query import Scan, parse_query
from custody.replay import read_plan
from custody.repository import Repository
from custody.rollover import read_mark
from custody.site_to_site.transactions import EndedTransaction, read_ended
from custody.store import LocalStore
from custody.swh.table_file import IndexedTable
from custody.swh.tables import CONTENTS_IN_REVISIONS, TABLES
from custody.vfs import PosixFileSystem
from custody.workspace import UnitManifest, staged_path
from custody.workspace.handoff import Handoff
from tests.golden.make_golden import (
    CLAIM,
    CONTAINED,
    CONTAINED_AT,
    CONTAINER,
    CONTENTS,
    COPIES,
    CUT,
    CUT_CHARACTERS,
    ENDED,
    FILTERED,
    HANDED,
    HERE,
    INCARNATION,
    JOURNALS,
    MARKED,
    MENDED,
    MENDING,
    NUMBERED,
    PACKED,
    PACKED_EVENTS,
    PLAN,
    ROWS,
    STONE,
    STORE,
    STRIPED,
    SUNK,
    SWH,
    TAKEN,
    expected_events,
    main,
    make_cut,
    make_filtered,
    make_numbered,
    make_packed,
    make_rows,
    packed_events,
)

EXPECTED: dict[str, Any] = msgspec.json.decode((HERE / "expected.json").read_bytes())
EVENTS = expected_events(EXPECTED)
FS = PosixFileSystem()
NOT_OF_THE_FILE = ("writer", "database", "groups", "transaction", "reader_version")
TOTAL_BYTES_MAX = 450_000
PACKED_QUESTIONS = (
    "event_type:SEND",
    "event_type:SEND AND attribute.note:é*",
    "NOT event_type:SEND AND NOT event_type:DROP",
    "flowfile_uuid:00000003-0000-4000-8000-000000000003",
    "flowfile_uuid:00000003*",
    "component_id:c-1-0",
    "component_id:c-1-0 AND event_type:ROUTE",
    "component_id:c-*-16",
    "filename:file-1.txt OR filename:file-37?.txt",
    "transit_uri:*/5975",
    'details:"by hand"',
    'details:"ended again" AND component_id:c-0-1',
    "source_ordinal:[5000 TO 5100]",
    "event_time:[2026-03-01T10:00:00Z TO 2026-03-01T10:30:00Z]",
)


@pytest.fixture(scope="module", params=["checked in", "made now"])
def golden(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    if request.param == "made now":
        main(folder)
    else:
        shutil.copytree(HERE / "v1", folder / "v1")
        shutil.copytree(HERE / COPIES, folder / COPIES)
        shutil.copytree(HERE / HANDED, folder / HANDED)
        shutil.copytree(HERE / MENDED.parent, folder / MENDED.parent)
    return folder / "v1"


def _transactions(golden: Path) -> list[Path]:
    return sorted((golden / STORE / "transactions").glob("*/*.txn"))


@pytest.mark.parametrize("name", EXPECTED["journals"])
def test_a_journal_gives_its_events(golden: Path, name: str) -> None:
    case = EXPECTED["journals"][name]
    journal = JournalFile.read(FS, golden / JOURNALS / name)
    assert to_events(journal.table()) == [EVENTS[number] for number in case["event_ids"]]
    assert (journal.torn, journal.damage) == (None, ())
    assert (journal.end is not None) == name.endswith(".sealed")
    assert journal.intact_bytes == (golden / JOURNALS / name).stat().st_size


def _of_version_1(stated: dict[str, Any]) -> dict[str, Any]:
    """What a file states, as if it were of the schema of the files that are checked in."""
    assert stated["schema_version"] in (1, SCHEMA_VERSION)
    return {**stated, "schema_version": 1}


def test_a_journal_header_says_who_wrote_what(golden: Path) -> None:
    journal = JournalFile.read(FS, golden / JOURNALS / "00000000000000000003.0.sealed")
    header = msgspec.to_builtins(journal.header)
    assert header.pop("incarnation") in ("", INCARNATION)  # the one that is checked in is older than incarnations
    assert _of_version_1(header) == EXPECTED["header"]


def test_a_claim_says_to_which_containers_a_name_belongs(golden: Path) -> None:
    path = golden / STORE / "incarnations/0000000001"
    claim = decode_claim(path.read_bytes(), str(path))
    assert (claim.writer, claim.number, claim.first_event_id, claim.host) == ("main", 1, 0, "worker-1")
    assert (claim.incarnation, claim.containers) == (INCARNATION, {CONTAINER: "/disk1"})
    assert Repository.open(golden).workspace().foreign_groups() == []


def test_logs_on_stripes_are_found_by_the_marks_of_these(golden: Path, tmp_path: Path) -> None:
    for number, made in enumerate((HERE, golden.parent)):
        if not (made / STRIPED).exists():
            continue  # a copy of what is checked in
        root = tmp_path / str(number)
        shutil.copytree(made / STRIPED, root)
        repository = Repository.open(root)
        assert list(repository.events(count=100)) == EVENTS[:6]
        assert sorted(repository.workspace().catalog.load().files) == [
            "stripe-a/data/2026-03-02/events/00000000000000000004.parquet",
            "stripe-b/data/2026-03-01/events/00000000000000000000.parquet",
        ]
        path = root / "disk-a/main/provenance/STRIPE"
        mark = StripeMark.decode(path.read_bytes(), path)
        assert (mark.writer, mark.database, mark.stripe) == ("main", "provenance", "a")
        assert path.read_bytes() == (root / STORE / "stripes/a").read_bytes()
        (root / "disk-a").rename(root / "disk-c")
        (root / "disk-b").rename(root / "disk-a")
        assert [name for name, _ in repository.workspace().catalog.objects.files.missing()] == ["a", "b"]


def test_a_group_that_was_handed_over_is_read_from_its_objects(golden: Path, tmp_path: Path) -> None:
    home = tmp_path / "main/provenance/handoff"
    shutil.copytree(golden.parent / HANDED, home)
    handoff = Handoff(
        PosixFileSystem(), LocalStore(PosixFileSystem(), tmp_path), "main/provenance/", tmp_path / "copies"
    )
    [(folder, manifest)] = handoff.manifests()
    assert (folder.first_event_id, folder.incarnation) == (3, INCARNATION)
    assert (manifest.first_event_id, manifest.next_event_id, manifest.events) == (3, 5, 2)
    [path] = handoff.paths(folder, manifest)
    journal = JournalFile.read(PosixFileSystem(), path)
    assert (journal.damage, journal.counted().events) == ((), 2)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == manifest.journals[0].sha256


def test_a_lease_says_who_took_it(golden: Path) -> None:
    path = golden / STORE / "leases/rollover/0000000001"
    assert msgspec.to_builtins(Holder.decode(path.read_bytes(), path)) == EXPECTED["lease"]
    status = lease_status(FS, path.parent)
    assert status is not None
    assert (status.epoch, status.released, status.is_open) == (1, True, False)


def test_cursors_of_an_export_say_how_far_it_is() -> None:
    cursors = read_cursors(FS, HERE / "v1/exports/marquez", "marquez")
    assert cursors == Cursors(
        export="marquez", updated_ms=1_772_409_600_000, next_event_ids={"main": 5}, delivered=4, refused=1
    )


def test_an_ended_transaction_of_site_to_site_says_how_it_ended() -> None:
    ended = read_ended(FS, HERE / "v1" / ENDED)
    assert ended == EndedTransaction(packets=1, ended_ms=1_772_409_600_000)


def test_a_plan_of_a_replay_says_what_is_sent_again() -> None:
    plan = read_plan(FS, HERE / PLAN)
    # The release that wrote it knew of no rules: its plans are of whoever sees everything.
    assert json.loads(msgspec.json.encode(plan)) == {**EXPECTED["replay_plan"], "visibility": None}
    assert (plan.bytes, plan.queues, plan.refused_by_code) == (
        2048,
        {"orders": 2},
        {"no-source-queue": 1, "queue-removed": 1},
    )
    # By these uuids a run that goes on knows its FlowFiles: how they are made never changes.
    assert [plan.flowfile_uuid(item) for item in plan.events] == [
        "e99077b2-bdb0-5478-85f7-e340541f3bd5",
        "7317e049-b68f-5f6f-b168-c13a944eef49",
    ]


def test_a_resource_claim_gives_its_contents(golden: Path) -> None:
    file = ClaimFile.read(FS, golden / CLAIM)
    assert list(file.damage()) == []
    assert file.gaps == ()
    resource = ResourceClaim("main", "1", "0000", CLAIM.name)
    claims = [resource.claim(record.offset, record.length) for record in file.contents]
    assert [find_content(FS, ContentStore(golden / "store"), claim).read() for claim in claims] == list(CONTENTS)


def test_a_staging_file_gives_the_events_of_its_group(golden: Path) -> None:
    folder = golden / STORE / "staging/00000000000000000003"
    manifest = UnitManifest.decode((folder / "unit").read_bytes(), folder / "unit")
    [log] = manifest.logs
    assert manifest.groups == (3,)
    [table] = read_staged(FS, staged_path(folder, log), log, schema_version=manifest.schema_version)
    assert table.schema == EVENT_SCHEMA
    assert to_events(table) == EVENTS[3:5]
    stated = msgspec.json.decode(msgspec.json.encode(manifest.metadata(log)))
    assert stated.pop("revision", None) in (None, 1)
    assert _of_version_1(stated) == EXPECTED["logs"][1]["metadata"]


@pytest.mark.parametrize("case", EXPECTED["logs"], ids=lambda case: case["path"])
def test_an_event_log_gives_its_events_and_says_what_it_is(golden: Path, case: dict[str, Any]) -> None:
    log = EventLog(FS, golden / STORE / case["path"])
    table = log.read()
    assert table.schema.remove_metadata() == EVENT_SCHEMA
    first, last = case["metadata"]["first_event_id"], case["metadata"]["last_event_id"]
    assert to_events(table) == EVENTS[first : last + 1]
    stated = msgspec.json.decode(msgspec.json.encode(log.metadata))
    # The checked-in files are of a release that did not say it.
    is_old = log.path.read_bytes() == (HERE / "v1" / STORE / case["path"]).read_bytes()
    assert stated.pop("revision", None) == (None if is_old else EXPECTED["logs"].index(case))
    assert _of_version_1(stated) == case["metadata"]
    assert to_events(log.get_many([last])) == [EVENTS[last]]


def test_a_log_that_names_its_revision_is_rebuilt_at_it(golden: Path, tmp_path: Path) -> None:
    for made in (HERE, golden.parent):
        if made != HERE and not (made / NUMBERED).exists():
            make_numbered(made / NUMBERED)
        log = EventLog(FS, made / NUMBERED)
        assert log.metadata.revision == 7
        assert to_events(log.read()) == EVENTS[:3]
        root = tmp_path / made.name
        shutil.copytree(made / "numbered/store", root)
        catalog = Catalog(LocalStore(FS, root), "main", "provenance", ManualClock(1_772_409_600_000))
        scanned = scan_logs(catalog.objects)
        assert scanned.numbers == {file.path: 7 for file in scanned.files} != {}
        assert rebuild(catalog, ManualClock(1_772_409_600_000), scanned).revision == 7


def test_a_log_with_copies_of_rows_gives_each_event_by_its_block_and_by_its_copy(golden: Path) -> None:
    for made in (HERE, golden.parent):
        if made != HERE and not (made / ROWS).exists():
            make_rows(made / ROWS, EVENTS)
        log = EventLog(FS, made / ROWS)
        assert to_events(log.read()) == EVENTS
        copied = log.copied(np.arange(len(EVENTS)))
        assert copied.events == EVENTS
        assert not len(copied.missing)


@pytest.mark.parametrize("case", EXPECTED["logs"], ids=lambda case: case["toc_path"])
def test_a_table_of_contents_says_where_each_block_lies(golden: Path, case: dict[str, Any]) -> None:
    path = golden / STORE / case["toc_path"]
    toc = TableOfContents.decode(path.read_bytes(), path)
    size = (golden / STORE / case["path"]).stat().st_size
    end = 4  # the first block follows the magic number PAR1
    for block, expected in zip(toc.blocks, case["blocks"], strict=True):
        assert {name: int(block[name]) for name in expected} == expected
        assert block["offset"] == end
        end += int(block["length"])
    assert end < size
    assert toc.encode() == path.read_bytes()
    assert path.read_bytes().startswith(TOC_PREAMBLE)


def test_a_table_of_contents_equals_what_the_footer_gives_without_it(golden: Path, tmp_path: Path) -> None:
    for case in EXPECTED["logs"]:
        lonely = tmp_path / Path(case["path"]).name
        shutil.copy(golden / STORE / case["path"], lonely)
        with_toc = EventLog(FS, golden / STORE / case["path"]).toc
        assert EventLog(FS, lonely).toc.encode() == with_toc.encode()


def test_the_first_transaction_has_its_fixed_name(golden: Path) -> None:
    assert _transactions(golden)[0].stem == EXPECTED["first_transaction"]


def test_each_transaction_carries_its_predecessors_digest(golden: Path) -> None:
    state = EMPTY
    for revision, path in enumerate(_transactions(golden)):
        transaction = decode(path.read_bytes(), path)
        assert transaction.revision == revision
        assert transaction.encoding == Transaction.DELTA
        assert transaction.commit_time_ms == EXPECTED["commit_times_ms"][revision]
        assert transaction.previous_digest == state.digest
        assert transaction.previous_uuid == (b"" if revision == 0 else state.uuid.bytes)
        state = state.advanced(transaction, digest(path.read_bytes()))
    assert state.revision == 1


def test_a_transaction_adds_the_log_and_the_shard_of_its_group(golden: Path) -> None:
    for number, path in enumerate(_transactions(golden)):
        add_file, add_shard = decode(path.read_bytes(), path).actions
        file, case, shard = add_file.add_file, EXPECTED["logs"][number], EXPECTED["shards"][number]
        metadata = case["metadata"]
        assert _of_version_1({name: getattr(file, name) for name in metadata if name not in NOT_OF_THE_FILE}) == {
            name: value for name, value in metadata.items() if name not in NOT_OF_THE_FILE
        }
        assert file.groups == metadata["groups"]
        assert (file.path, file.toc_path, file.rows) == (case["path"], case["toc_path"], case["rows"])
        assert [[s.node, s.first_ordinal, s.last_ordinal] for s in file.sources] == case["sources"]
        data, toc = (golden / STORE / file.path).read_bytes(), (golden / STORE / file.toc_path).read_bytes()
        assert (file.size_bytes, file.sha256) == (len(data), hashlib.sha256(data).digest())
        assert file.toc_sha256 == hashlib.sha256(toc).digest()
        live_shard = add_shard.add_shard
        assert {name: getattr(live_shard, name) for name in shard} == shard
        assert list(live_shard.log_paths) == [case["path"]]
        folder = golden / "containers/1/main/index" / live_shard.name
        assert live_shard.size_bytes == sum(file_of_shard.stat().st_size for file_of_shard in folder.iterdir())


def test_a_checkpoint_spells_out_the_state_that_its_transactions_give(golden: Path) -> None:
    state = EMPTY
    for path in _transactions(golden):
        state = state.advanced(decode(path.read_bytes(), path), digest(path.read_bytes()))
    checkpoint = next((golden / STORE / "transactions").glob("*/*.ckpt"))
    message = decode(checkpoint.read_bytes(), checkpoint)
    assert message.encoding == Transaction.FULL
    given_state = EMPTY.advanced(message, message.previous_digest)
    assert not any(file.footer for file in given_state.files.values())
    for where, file in state.files.items():
        assert given_state.files[where].footer_bytes == file.footer_bytes > 0
        file.ClearField("footer")
    assert given_state == state
    assert state.next_event_id == EXPECTED["next_event_id"]


def test_the_catalog_is_read_without_its_checkpoint_too(golden: Path) -> None:
    repository = Repository.open(golden)
    assert [transaction.revision for transaction in repository.timeline()] == [0, 1]
    assert list(repository.workspace().catalog.load().files) == [case["path"] for case in EXPECTED["logs"]]


@pytest.mark.parametrize("number", [0, 1])
def test_a_shard_finds_the_events_of_its_log(golden: Path, number: int) -> None:
    shard = EXPECTED["shards"][number]
    folder = golden / "containers/1/main/index" / shard["name"]
    metadata = EXPECTED["logs"][number]["metadata"]
    assert parse_shard(folder.name) == (metadata["first_event_time_ms"], metadata["first_event_id"])
    first, last = metadata["first_event_id"], metadata["last_event_id"]
    assert OpenShard(FS, folder).search(parse_query("")).tolist() == list(range(last, first - 1, -1))


def test_a_shard_names_the_fields_whose_terms_are_beginnings(tmp_path: Path) -> None:
    make_cut(tmp_path / CUT)
    for folder in (HERE / CUT, tmp_path / CUT):
        assert describe_shard(FS, folder).cut == {"filename": CUT_CHARACTERS, "attribute.note": CUT_CHARACTERS}
        shard = OpenShard(FS, folder)
        assert shard.search(parse_query(f"filename:{'a' * (CUT_CHARACTERS - 1)}*")).tolist() == [1, 0]
        assert shard.search(parse_query("attribute.note:short", ["note"])).tolist() == [0]


def test_a_shard_has_the_filter_of_its_terms(tmp_path: Path) -> None:
    make_filtered(tmp_path / FILTERED)
    [golden] = (HERE / FILTERED).glob("*.flt")
    assert golden.read_bytes() == (tmp_path / FILTERED / golden.name).read_bytes()
    question = query.Or([query.Term("filename", f"absent-{number}") for number in range(20)])
    assert OpenShard(FS, HERE / FILTERED).search(question).tolist() == []
    question = query.Or([question, query.Term("filename", "a" * 40 + "b"), query.Term("attribute.note", "short")])
    assert OpenShard(FS, HERE / FILTERED).search(question).tolist() == [1, 0]


def test_a_packed_shard_finds_what_looking_at_each_event_finds(tmp_path: Path) -> None:
    make_packed(tmp_path / PACKED)
    table = pa.Table.from_batches([to_batch(packed_events(), 0)])
    scan = Scan(table, ["note"])
    for folder in (HERE / PACKED, tmp_path / PACKED):
        shard = OpenShard(FS, folder)
        shard.verify()
        assert (shard.description.layout, shard.documents) == ("packed", PACKED_EVENTS)
        for text in PACKED_QUESTIONS:
            question = parse_query(text, ["note"])
            expected = np.flatnonzero(scan.match(question))[::-1].tolist()
            assert expected, text
            assert shard.search(question).tolist() == expected, text
            assert shard.count(question) == len(expected)
        assert shard.facet(parse_query(""), "event_type") == dict.fromkeys(
            ("drop", "route", "send"), PACKED_EVENTS // 3
        )


def test_contents_on_two_disks_are_found_by_their_marks(tmp_path: Path) -> None:
    shutil.copytree(HERE / CONTAINED_AT, tmp_path / "copied")
    root = tmp_path / "copied"
    store = ContentStore(root / "store", {"b": root / "disk"})
    claims = sorted(claims_on_disk(FS, store, "main"), key=lambda claim: claim.container)
    places = {claim.container: ClaimFile.read(FS, claim.path(store)).contents[0] for claim in claims}
    found = [find_content(FS, store, claim.claim(places[claim.container].offset, 5000)).read() for claim in claims]
    assert found == list(CONTAINED)
    containers = ContentContainers(FS, store, "main")
    assert containers.names() == containers.present() == ["a", "b"]
    assert not list(containers.damage())
    (root / "disk").rename(root / "taken out")
    assert [name for name, _ in containers.missing()] == ["b"]


@pytest.mark.parametrize("text", EXPECTED["searches"])
def test_a_search_of_the_whole_repository_finds_what_it_must(golden: Path, text: str) -> None:
    result = Repository.open(golden).search(text)
    assert sorted((stored.event.event_id for stored in result.events), reverse=True) == EXPECTED["searches"][text]
    assert result.total == len(EXPECTED["searches"][text])


def test_the_whole_repository_gives_every_event_once(golden: Path) -> None:
    events: list[Event] = list(Repository.open(golden).events())
    assert events == EVENTS


def test_the_repository_waits_for_its_sweep_and_its_recovery(golden: Path) -> None:
    status = Repository.open(golden).status()
    assert msgspec.to_builtins(status.pending) == {
        "sealed_groups": 1,
        "abandoned_journals": 1,
        "live_journals": 0,
        "staged_units": 1,
        "groups_not_handed_over": 0,
    }
    assert status.quarantined == 1


def test_a_quarantine_entry_says_why_and_keeps_the_piece(golden: Path) -> None:
    case = EXPECTED["quarantine"]
    quarantine = Repository.open(golden).quarantine
    assert [msgspec.to_builtins(entry) for entry in quarantine.entries()] == [case["entry"]]
    assert quarantine.raw(case["entry"]["key"]) == case["raw"].encode()


def test_a_provenance_table_gives_its_rows_by_key(golden: Path) -> None:
    table = IndexedTable(FS, TABLES[CONTENTS_IN_REVISIONS], {golden / SWH / "00000.parquet": None})
    rows = table.rows(np.array([1000, 4, 3], np.uint64))
    assert rows.column("revrel").to_pylist() == [70, 71, 71]
    assert rows.column("path").to_pylist() == [b"a", b"a-b/c", b"z"]
    assert [date.timestamp() for date in rows.column("revrel_author_date").to_pylist()] == [-5, 0, 4]
    assert table.rows(np.array([9], np.uint64), ["revrel"]).column("revrel").to_pylist() == [72, 73]


def test_the_golden_files_stay_small() -> None:
    files = [*HERE.glob("v1/**/*"), *HERE.glob("broken/**/*"), *HERE.glob("newer-custody/**/*"), *HERE.glob("*.json")]
    assert sum(path.stat().st_size for path in files if path.is_file()) < TOTAL_BYTES_MAX


def test_a_ledger_entry_says_what_became_of_a_file(golden: Path) -> None:
    assert LandingLedger(FS, golden / "landed").find(Path(TAKEN.file)) == TAKEN


def test_second_copies_say_what_was_forgotten_and_what_expired(golden: Path) -> None:
    copies = SecondCopyStore(CatalogObjects(LocalStore(FS, golden.parent / COPIES), "main", "provenance")).read()
    assert (copies.since, copies.unreadable) == (0, {})
    assert [(copy.revision, copied_entry(copy.action)) for _, copy in sorted(copies.by_id.items())] == [
        (0, STONE),
        (0, MARKED),
    ]


def test_a_transaction_says_which_files_were_mended_and_why(golden: Path) -> None:
    path = golden.parent / MENDED
    transaction = check_delta(decode(path.read_bytes(), path), path)
    [action] = transaction.actions
    assert action.note == MENDING
    restored, rewritten, finished = summary_of(transaction).reasons
    assert (restored.kind, rewritten.kind, finished.kind) == ("log-restored", "log-rewritten", "repair-finished")
    assert (rewritten.events, restored.who, finished.name) == (3, "repair", bytes(range(32, 48)).hex())
    # A way to mend that only a newer custody has is read, and shown without its word.
    action.note.repairs[0].kind = 99  # type: ignore[assignment]
    assert summary_of(check_delta(transaction, path)).reasons[0].kind == "mended"


def test_the_mark_of_a_watcher_says_which_groups_it_has_told(golden: Path) -> None:
    assert read_mark(FS, golden / "watch/groups.json").groups == {"main": 3}


def test_a_batch_of_the_sink_is_brought_to_its_end(golden: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(golden / "ngsi", tmp_path / "ngsi")
    root = tmp_path / "hdfs"
    with Sink.open(FS, folder, root, ManualClock(1), SUNK) as sink:
        assert sink.cursors == {"main": 4}
        assert {place: list(names) for place, names in sink.columns.items()} == EXPECTED["ngsi"]["columns"]
    text_by_file = {str(path.relative_to(root)): path.read_text() for path in root.rglob("*.txt")}
    assert text_by_file == EXPECTED["ngsi"]["files"]
    left = msgspec.json.decode((folder / "sink/ngsi/left/00000000000000000000.json").read_bytes())
    assert [item["event_id"] for item in left] == EXPECTED["ngsi"]["left"]
