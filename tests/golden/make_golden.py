"""Makes the golden files: `python tests/golden/make_golden.py FOLDER` writes v1, copies, plans and broken below FOLDER.

`python tests/golden/newer.py FOLDER` writes `newer-custody`.

`v1` is a whole repository of format version 1, stopped between the steps: group 0 is live and swept, group 3 is live
but its journal and its staged unit still lie there, event 5 waits in an open journal. `copies` holds second copies,
`plans` a plan of a replay, `numbered` an event log that names its revision, `rows` one with copies of rows, `cut` a
shard that names the fields whose terms are beginnings, `filtered` one with a filter, `packed` one that is packed,
`contained` contents on two disks, `mended` a transaction that tells of repairs of files, `striped` a repository with
two stripes. `broken` holds one file, or one shard, a defect. The events and all other values come from `expected.json`,
which people write.

The files beside this script are never made anew: they show that today's code reads what version 1 wrote. A new version
of a format gets a folder of its own. Two things differ from one run to the next, because the formats make them at
random: the catalog's id and attempt ids, with them the digests of all transactions and the names of all but the first.
Arrow, Parquet and Whoosh put their own versions into their files.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from custody.catalog import Action, AddMark, AddTombstone, FileRepair, Note, SecondCopyStore, Transaction
from custody.catalog.codec import encode
from custody.catalog.keys import CatalogObjects
from custody.catalog.state import EMPTY
from custody.clock import ManualClock
from custody.config import ContentStore, load_settings
from custody.eventlog import LogOptions, log_metadata, write_log
from custody.export.cursors import Cursors, write_cursors
from custody.flow.content import ContentOptions, ContentWriter
from custody.format.framing import MARK, frame
from custody.format.names import RELEASED_SUFFIX, epoch_file
from custody.index import build_shard
from custody.journal.incarnations import decode_claim, encode_claim
from custody.journal.journal_file import KIND_HEADER, PREAMBLE, JournalHeader
from custody.journal.writer_state import WriterState, decode_state, encode_state
from custody.landing import LandingLedger, LedgerEntry
from custody.lease import Holder
from custody.maintenance.findings import Finding
from custody.maintenance.scrub import ScrubRound, ScrubState, encode_scrub
from custody.model import Event, to_batch
from custody.ngsi_sink.sink import Sink
from custody.quarantine import bad_piece
from custody.recovery import STEPS
from custody.replay import ReplayPlan, save_plan
from custody.repository import Repository
from custody.rollover import GroupWatch, WaitingGroups
from custody.site_to_site.transactions import EndedTransaction
from custody.store import LocalStore
from custody.swh.table_file import write_table_file
from custody.swh.tables import CONTENTS_IN_REVISIONS, TABLES
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from custody.workspace.handoff import MANIFEST, HandedJournal, HandoffFolder, HandoffManifest, encode_manifest
from tests.crash.sink_scenarios import items
from tests.golden.make_flowfiles import make_broken_flowfiles, make_flowfiles
from tests.support import event
from tests.unit.ngsi.notification_records import parameters

HERE = Path(__file__).resolve().parent
SETTINGS = "# The smallest block, so that three events fill two.\n[eventlog]\nblock_bytes_max = 4096\n"
TAKEN = LedgerEntry(
    file="/landing/07/part-1.json",
    bytes=4096,
    modified_ms=1_772_359_100_000,
    writer="main",
    read=4,
    stored=3,
    repeated=0,
    rejected=1,
    taken_ms=1_772_359_200_000,
    run_id="scheduled__2026-03-01T10:00:00+00:00",
)
STORE = Path("store/main/provenance")
CONTAINER = "6f1c2d3e000040008000000000000001"
INCARNATION = "0123456789abcdef0123456789abcdef"
CLAIM = Path("store/main/content/1/0000/1772409602500-0")
CONTENTS = (b'{"subscriptionId":"s","data":[]}', b"", bytes(range(256)))
SUNK = parameters(file_format="csv-column")
EXPORTED = Cursors(export="marquez", updated_ms=1_772_409_600_000, next_event_ids={"main": 5}, delivered=4, refused=1)
ENDED = Path("site-to-site/ended/1772409599000-0123456789abcdef0123456789abcdef.json")
JOURNALS = Path("containers/1/main/journals")
COPIES = Path("copies")
MENDED = Path("mended/00000000000000000007.txn")
MENDING = Note(
    kind=Note.MENDING,
    text="log restored: data/2026-03-01/events/00000000000000000000.parquet",
    repairs=[
        FileRepair(
            id=bytes(range(16)),
            kind=FileRepair.LOG_RESTORED,
            name="data/2026-03-01/events/00000000000000000000.parquet",
            reason="expected 9 bytes, got 8.",
            expected_sha256=bytes(32),
            found_sha256=bytes(range(32)),
            offsets=[8],
        ),
        FileRepair(
            id=bytes(range(16, 32)),
            kind=FileRepair.LOG_REWRITTEN,
            name="data/2026-03-01/events/00000000000000000003.parquet",
            reason="block 1 is damaged.",
            expected_sha256=bytes(32),
            offsets=[4096],
            firsts=[3, 7],
            counts=[2, 1],
            events=3,
        ),
    ],
    finished=[bytes(range(32, 48))],
    who="repair",
)
NUMBERED = Path("numbered/store/main/provenance/data/2026-03-01/events/00000000000000000000.parquet")
ROWS = Path("rows/00000000000000000000.parquet")
STRIPED = Path("striped")
HANDED = Path("handoff")
PLAN = Path("plans/march-2.plan")
CUT = Path("cut/1772359100000-0")
CONTAINED_AT = Path("contained")
CONTAINED = (b"a" * 5000, b"b" * 5000)
FILTERED = Path("filtered/1772359100000-0")
PACKED = Path("packed/1772359100000-0")
PACKED_EVENTS = 6000
CUT_EVENTS = [
    event(0, updated_attributes={"filename": "a" * 40, "note": "short"}),
    event(1, updated_attributes={"filename": "a" * 40 + "b", "note": "long " * 20}),
]
CUT_CHARACTERS = 32
STONE = AddTombstone(id=bytes(range(16)), event_ids=[3], before_event_id=6, reason="asked for", created_ms=5)
MARKED = AddMark(id=bytes(range(16, 32)), paths=["data/2026-03-01/events/00000000000000000000.parquet"], events=3)
SWH = Path("store/main/swh/builds/2026-03/swh_contents_in_revisions/tables/contents_in_revisions_without_frontiers")


def expected_events(document: dict[str, object]) -> list[Event]:
    """Return the events of `expected.json`; the long text is spelled there by its length."""
    events = msgspec.convert(document["events"], list[Event])
    long = msgspec.convert(document["long_details"], dict[str, int | str])
    text = str(long["character"]) * int(long["count"])
    return [msgspec.structs.replace(e, details=text) if e.event_id == long["event_id"] else e for e in events]


def make_numbered(path: Path) -> None:
    """Write an event log whose footer says at which revision it was to become live."""
    events = expected_events(msgspec.json.decode((HERE / "expected.json").read_bytes(), type=dict[str, object]))[:3]
    table = pa.Table.from_batches([to_batch(events, 0)])
    metadata = msgspec.structs.replace(log_metadata(table, "main", "provenance"), revision=7)
    write_log(PosixFileSystem(), path, table, metadata, LogOptions(4096))


def make_cut(path: Path) -> None:
    """Write a shard with terms that are only the beginnings of their values."""
    table = pa.Table.from_batches([to_batch(CUT_EVENTS, 0)])
    build_shard(PosixFileSystem(), path, table, ["note"], attribute_characters=CUT_CHARACTERS, layout="whoosh")


def make_filtered(path: Path) -> None:
    """Write a shard with a filter of its terms."""
    build_shard(PosixFileSystem(), path, pa.Table.from_batches([to_batch(CUT_EVENTS, 0)]), ["note"], layout="whoosh")


def packed_events() -> list[Event]:
    """Return events that fill a packed shard with everything that its format knows."""
    made = []
    for number in range(PACKED_EVENTS):
        uuid = f"0000000{number % 7}-0000-4000-8000-{number % 90:012x}"
        values: dict[str, Any] = {"flowfile_uuid": uuid, "event_time": 1_772_359_100_000 + 997 * number}
        values["event_type"] = ("SEND", "ROUTE", "DROP")[number % 3]  # bits
        values["component_id"] = (
            f"c-{number % 3000 // 2900}-{number * number % 17}"  # by Elias and Fano, and short ones
        )
        values["details"] = ("Auto-Terminated", "ended by hand, ended again", None)[number % 3]
        values["updated_attributes"] = {"filename": f"file-{number // 16}.txt"} | (
            {"note": "é" * 20} if number % 5 else {}
        )
        values["transit_uri"] = f"https://host/{'x' * (number % 41)}/{number}" if number % 25 == 0 else None
        values["source_ordinal"] = None if number % 11 == 0 else number * 5
        made.append(event(number, **values))
    return made


def make_packed(path: Path) -> None:
    """Write a packed shard, and what it was made of stays in this module."""
    build_shard(PosixFileSystem(), path, pa.Table.from_batches([to_batch(packed_events(), 0)]), ["note"])


def make_contained(root: Path) -> None:
    """Write two contents, of which one lies on a disk of its own."""
    (root / "disk").mkdir(parents=True)
    store = ContentStore(root / "store", {"b": root / "disk"})
    writer = ContentWriter(PosixFileSystem(), store, "main", ManualClock(), ContentOptions(("a", "b"), 4096))
    for content in CONTAINED:
        writer.put(content)
    writer.close()


def make_rows(path: Path, events: list[Event]) -> None:
    """Write an event log that has copies of rows."""
    table = pa.Table.from_batches([to_batch(events, 0)])
    metadata = log_metadata(table, "main", "provenance")
    write_log(PosixFileSystem(), path, table, metadata, LogOptions(row_copies=True))


def make_good(root: Path, document: dict[str, object]) -> None:
    """Write the repository of version 1."""
    root.mkdir(parents=True)
    (root / "custody.toml").write_text(SETTINGS)
    clock = ManualClock()
    state = root / "containers/1/main/STATE"
    state.parent.mkdir(parents=True)
    here = {CONTAINER: str(root / "containers/1")}
    known = WriterState(writer="main", container=CONTAINER, containers=here, reserved=0, incarnation=INCARNATION)
    state.write_bytes(encode_state(known))
    repository = Repository(load_settings(root), PosixFileSystem(), clock)
    events = expected_events(document)
    _group(repository, clock, [events[:2], events[2:3]], 1_772_359_201_000)
    _steps(repository, clock, "rollover", "compress", "index", "commit", "sweep")
    _group(repository, clock, [events[3:4], events[4:5]], 1_772_409_601_000)
    _steps(repository, clock, "rollover", "compress", "index", "commit")
    repository.workspace().catalog.checkpoint()
    _group(repository, clock, [events[5:]], 1_772_409_602_500)
    sealed = root / JOURNALS / "00000000000000000005.0.sealed"
    sealed.write_bytes(sealed.read_bytes()[: sealed.read_bytes().rindex(MARK)])  # without the end record
    sealed.rename(sealed.with_suffix(".journal"))  # as a killed writer leaves it
    _quarantine(repository, msgspec.convert(document["quarantine"], dict[str, object]))
    contents = ContentWriter(PosixFileSystem(), ContentStore(root / "store"), "main", clock)
    contents.put_many(CONTENTS)
    contents.close()
    holder = msgspec.convert(document["lease"], Holder)
    leases = root / STORE / "leases" / holder.lease
    leases.mkdir(parents=True)
    (leases / epoch_file(holder.epoch)).write_bytes(holder.encode())
    (leases / f"{epoch_file(holder.epoch)}{RELEASED_SUFFIX}").touch()
    (root / "containers/1/main/LOCK").unlink()
    finding = Finding(kind="toc-damaged", writer="main", path="/store/1.toc", message="changed", name="data/1.parquet")
    former = ScrubRound(started_ms=1, finished_ms=2, pieces=9, bytes=4096, findings=(finding,))
    scrub = ScrubState(
        current=ScrubRound(number=1, started_ms=3, pieces=1, bytes=400), after="/7/", last_run_ms=3, former=former
    )
    (root / "maintenance").mkdir()
    (root / "maintenance/scrub").write_bytes(encode_scrub(scrub))
    LandingLedger(PosixFileSystem(), root / "landed").add(Path("/landing/07/part-1.json"), TAKEN)
    write_cursors(PosixFileSystem(), root / "exports/marquez", EXPORTED)
    (root / ENDED).parent.mkdir(parents=True)
    (root / ENDED).write_bytes(EndedTransaction(packets=1, ended_ms=1_772_409_600_000).encode())
    watch = GroupWatch(PosixFileSystem(), repository.settings, clock, again_ms=60_000)
    watch.confirm(WaitingGroups(groups={"main": 3}, again=False))
    with Sink.open(PosixFileSystem(), root / "ngsi", root / "hdfs", ManualClock(1), SUNK) as sink:
        sink.write(items(SUNK, 0, 4), {"main": 4})  # the files of its destinations are no format of custody's
    shutil.rmtree(root / "hdfs")
    (root / "ngsi/LOCK").unlink()
    made = decode_state(state.read_bytes(), state)
    state.write_bytes(encode_state(msgspec.structs.replace(made, containers={CONTAINER: "/disk1"})))
    [claim] = (root / STORE / "incarnations").iterdir()
    said = decode_claim(claim.read_bytes(), str(claim))
    there = {"host": "worker-1", "containers": {CONTAINER: "/disk1"}}
    claim.write_bytes(encode_claim(msgspec.structs.replace(said, **there)))


def make_striped(root: Path, document: dict[str, object]) -> None:
    """Write a repository whose two event logs lie on two stripes, with neither shards nor journals."""
    root.mkdir(parents=True)
    (root / "custody.toml").write_text('[repository]\nstripes = ["a=disk-a", "b=disk-b"]\n')
    for name in ("disk-a", "disk-b"):
        (root / name).mkdir()
    clock = ManualClock()
    repository = Repository(load_settings(root), PosixFileSystem(), clock)
    events = expected_events(document)
    _group(repository, clock, [events[:4]], 1_772_359_201_000)
    _steps(repository, clock, "rollover", "compress", "index", "commit", "sweep")
    _group(repository, clock, [events[4:6]], 1_772_409_601_000)
    _steps(repository, clock, "rollover", "compress", "index", "commit")
    repository.workspace().catalog.checkpoint()
    for folder in ("containers", "store/main/provenance/incarnations"):
        shutil.rmtree(root / folder)
    [statistics] = root.glob("store/main/provenance/transactions/*/*.statistics.parquet")
    statistics.unlink()  # a copy of what the checkpoint says


def make_copies(folder: Path) -> None:
    """Write second copies of a tombstone and of a mark, as a store has them that holds nothing else."""
    store = LocalStore(PosixFileSystem(), folder)
    SecondCopyStore(CatalogObjects(store, "main", "provenance")).keep(
        EMPTY, [Action(add_tombstone=STONE), Action(add_mark=MARKED)]
    )


def make_mended(path: Path) -> None:
    """Write a transaction that tells of repairs of files, and that an earlier one is done."""
    transaction = Transaction(
        revision=7,
        uuid=bytes(16),
        previous_uuid=bytes(16),
        previous_digest=bytes(32),
        commit_time_ms=1_772_359_200_000,
        encoding=Transaction.DELTA,
        catalog_id=bytes(16),
        attempt_id=bytes(16),
        actions=[Action(note=MENDING)],
    )
    path.parent.mkdir(parents=True)
    path.write_bytes(encode(transaction))


def make_swh(folder: Path) -> None:
    """Write a file of a provenance table and its index: six contents in revisions, two rows a row group."""
    folder.mkdir(parents=True)
    rows = {"cnt": [3, 3, 5, 9, 9, 1000], "revrel": [70, 71, 70, 72, 73, 71], "revrel_author_date": [-5, 0, 1, 2, 3, 4]}
    paths = pa.array([b"a", b"a-b/c", b"\xe9t\xe9", b"", b"x/y", b"z"], pa.binary())
    source = folder / "source.parquet"
    pq.write_table(pa.table({**rows, "path": paths}), source)
    write_table_file(PosixFileSystem(), TABLES[CONTENTS_IN_REVISIONS], [source], folder / "00000.parquet", group_rows=2)
    source.unlink()


def _group(repository: Repository, clock: ManualClock, batches: list[list[Event]], now_ms: int) -> None:
    clock.advance(now_ms - clock.now_ms())
    with repository.writer() as writer:
        for batch in batches:
            writer.append(batch)


def _steps(repository: Repository, clock: ManualClock, *names: str) -> None:
    clock.advance(1000)
    for name in names:
        workspace: Workspace = repository.workspace()
        for unit in list(STEPS[name].waiting(workspace)):
            STEPS[name].run(workspace, unit)


def _quarantine(repository: Repository, case: dict[str, object]) -> None:
    entry = msgspec.convert(case["entry"], dict[str, object])
    repository.quarantine.add(
        bad_piece(
            str(case["raw"]).encode(),
            severity=str(entry["severity"]),
            code=str(entry["code"]),
            message=str(entry["message"]),
            file=str(entry["file"]),
            index=msgspec.convert(entry["index"], int),
            offset=msgspec.convert(entry["offset"], int),
            node=None,
            received_ms=msgspec.convert(entry["received_ms"], int),
            format=str(entry.get("format", "nifi")),
        )
    )


def _flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x01]) + data[position + 1 :]


_FRAMED: dict[str, Callable[[bytes], bytes]] = {
    "bad-preamble": lambda data: b"NOTOURS\x01" + data[8:],
    "future-version": lambda data: data[:7] + b"\x02" + data[8:],
    "truncated": lambda data: data[: len(data) * 2 // 3],
    "flipped": lambda data: _flip(data, len(data) // 2),
}


def make_plan(folder: Path, document: dict[str, object]) -> None:
    """Write a plan of a replay."""
    folder.mkdir(parents=True)
    plan = msgspec.convert(document["replay_plan"], ReplayPlan)
    save_plan(PosixFileSystem(), folder / PLAN.name, plan)


def make_handoff(good: Path, folder: Path) -> None:
    """Write a group that was handed over: the sealed journal of the repository, and its manifest."""
    data = (good / JOURNALS / "00000000000000000003.0.sealed").read_bytes()
    journal = HandedJournal(
        name="00000000000000000003.0.sealed", bytes=len(data), sha256=hashlib.sha256(data).hexdigest()
    )
    manifest = HandoffManifest(
        writer="main",
        database="provenance",
        incarnation=INCARNATION,
        epoch=1,
        first_event_id=3,
        next_event_id=5,
        events=2,
        journals=(journal,),
        host="worker-1",
        handed_over_ms=1_772_409_601_000,
    )
    handed_over = folder / str(HandoffFolder(3, INCARNATION))
    path = handed_over / journal.sha256 / journal.name
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    (handed_over / MANIFEST).write_bytes(encode_manifest(manifest))


def make_broken(good: Path, folder: Path) -> None:
    """Write one broken file a defect, each made from a good one."""
    folder.mkdir(parents=True)
    transactions = STORE / "transactions"
    small = {
        "toc": next(good.glob(str(STORE / "data/*/events/*.toc"))),
        "txn": next(good.glob(str(transactions / "*0" / "*.txn"))),
        "ckpt": next(good.glob(str(transactions / "*1" / "*.ckpt"))),
        "state": good / "containers/1/main/STATE",
        "scrub": good / "maintenance/scrub",
        "lease": good / STORE / "leases/rollover/0000000001",
        "claim": good / CLAIM,
        "unit": next(good.glob(str(STORE / "staging/*/unit"))),
        "ef": good / SWH / "00000.ef",
        "plan": good.parent / PLAN,
        "handoff": good.parent / HANDED / str(HandoffFolder(3, INCARNATION)) / MANIFEST,
        "container": good.parent / CONTAINED_AT / "disk/main/content/b/CONTAINER",
        "stripe": good.parent / STRIPED / "disk-a/main/provenance/STRIPE",
    }
    for suffix, path in small.items():
        for defect, damage in _FRAMED.items():
            (folder / f"{defect}.{suffix}").write_bytes(damage(path.read_bytes()))
    unknown = Transaction(uuid=bytes(16), catalog_id=bytes(16), reader_features=["time-travel"])
    (folder / "unknown-feature.txn").write_bytes(encode(unknown))
    _broken_journals((good / JOURNALS / "00000000000000000003.0.sealed").read_bytes(), folder)
    _broken_tables(good, folder)
    for path in sorted((good / "quarantine").iterdir()):
        (folder / "quarantine").mkdir(exist_ok=True)
        for defect in ("truncated", "flipped"):
            (folder / "quarantine" / f"{defect}{path.suffix}").write_bytes(_FRAMED[defect](path.read_bytes()))
    shard = sorted((good / "containers/1/main/index").iterdir())[0]
    broken = folder / "truncated-shard"
    shutil.copytree(shard, broken)
    [packed] = broken.glob("*.data")
    packed.write_bytes(packed.read_bytes()[:1000])
    for defect in ("flipped", "future-version"):
        shutil.copytree(shard, folder / f"{defect}-shard")
        manifest = folder / f"{defect}-shard" / "custody.shard"
        manifest.write_bytes(_FRAMED[defect](manifest.read_bytes()))
    # Of shards two versions are known: one with the layout that Whoosh opens, and the packed one.
    manifest.write_bytes(manifest.read_bytes()[:7] + b"\x03" + manifest.read_bytes()[8:])
    (folder / "shard-without-toc").mkdir()
    (folder / "shard-without-toc" / "_MAIN_1.toc").touch()


def _broken_journals(journal: bytes, folder: Path) -> None:
    first_batch = journal.index(b"6f1c2d3e-0000-4000-8000-00000000000b")
    (folder / "bad-preamble.journal").write_bytes(_FRAMED["bad-preamble"](journal[:256]))
    header = JournalHeader(writer="main", database="provenance", first_event_id=3, created_ms=0, format_version=2)
    future = _FRAMED["future-version"](PREAMBLE) + frame(KIND_HEADER, msgspec.json.encode(header))
    (folder / "future-version.journal").write_bytes(future)
    (folder / "flipped.journal").write_bytes(_flip(journal, first_batch))
    (folder / "torn.journal").write_bytes(journal[: journal.rindex(MARK) - 100])


def _broken_tables(good: Path, folder: Path) -> None:
    log = next(good.glob(str(STORE / "data/2026-03-02/events/*.parquet"))).read_bytes()
    (folder / "bad-preamble.parquet").write_bytes(log[-1024:-4] + b"NOPE")
    (folder / "truncated.parquet").write_bytes(log[: len(log) // 3])
    (folder / "flipped.parquet").write_bytes(_flip(log, log.index(b"6f1c2d3e")))
    staging = next(good.glob(str(STORE / "staging/*/*.arrow"))).read_bytes()
    (folder / "flipped.arrow").write_bytes(_flip(staging, len(staging) * 9 // 10))
    (folder / "truncated.arrow").write_bytes(staging[: len(staging) // 3])


def main(folder: Path) -> None:
    """Write both folders into a new or empty one."""
    document = msgspec.json.decode((HERE / "expected.json").read_bytes(), type=dict[str, object])
    make_good(folder / "v1", document)
    make_swh(folder / "v1" / SWH)
    make_copies(folder / COPIES)
    make_mended(folder / MENDED)
    make_plan(folder / PLAN.parent, document)
    make_numbered(folder / NUMBERED)
    make_cut(folder / CUT)
    make_filtered(folder / FILTERED)
    make_packed(folder / PACKED)
    make_contained(folder / CONTAINED_AT)
    make_rows(folder / ROWS, expected_events(document))
    make_striped(folder / STRIPED, document)
    make_handoff(folder / "v1", folder / HANDED)
    make_broken(folder / "v1", folder / "broken")
    make_flowfiles(folder / "v1/flowfiles")
    make_broken_flowfiles(folder / "v1/flowfiles", folder / "broken/flowfiles", _FRAMED)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tests/golden/make_golden.py FOLDER")
    main(Path(sys.argv[1]))
