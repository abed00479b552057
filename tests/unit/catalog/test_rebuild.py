"""A catalog from footers alone: by range reads, with history where files tell it, saying what is lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from custody.catalog import Action, Catalog, Note, last_commit_ms, rebuild, salvage, scan_logs, verify
from custody.cli.main import cli
from custody.clock import ManualClock
from custody.eventlog import LogOptions, log_metadata, write_log
from custody.model import to_batch
from custody.repository import EventSelection, Repository
from custody.store import LocalStore
from custody.vfs import PosixFileSystem
from tests.behaviour.places import WrappedStore
from tests.support import append, event, run_steps
from tests.unit.catalog.catalogs import build, transactions

CLOCK = ManualClock(1_772_409_600_000)


def write(root: Path, first: int, count: int, revision: object = msgspec.UNSET, nodes: int = 1) -> str:
    """An event log whose footer says, or does not say, at which revision it was to become live."""
    path = f"data/2026-03-01/events/{first:020d}.parquet"
    events = [event(first + number, source_node=f"node-{number % nodes}") for number in range(count)]
    table = pa.Table.from_batches([to_batch(events, first)])
    said = log_metadata(table, "main", "provenance")
    said = msgspec.structs.replace(said, partition="2026-03-01", revision=revision)
    write_log(PosixFileSystem(), root / "main/provenance" / path, table, said, LogOptions(block_bytes_max=8192))
    return path


def opened(root: Path) -> Catalog:
    return Catalog(LocalStore(PosixFileSystem(), root), "main", "provenance", CLOCK)


def test_history_comes_back_where_files_tell_it(tmp_path: Path) -> None:
    paths = [write(tmp_path, 10 * n, 5, revision) for n, revision in enumerate((2, 3, 6))]
    catalog = opened(tmp_path)
    rebuilt = rebuild(catalog, CLOCK, scan_logs(catalog.objects))
    again = opened(tmp_path)
    assert rebuilt.revision == again.load().revision == 6
    assert [len(again.at(number).files) for number in range(7)] == [0, 0, 1, 2, 2, 2, 3]
    assert sorted(again.at(6).files) == paths
    note = next(again.timeline()).actions[0].note
    assert list(note.lost_revisions) == [4, 5]
    assert any("2 revisions between 2 and 6" in text for text in rebuilt.lost)
    assert again.load().next_event_id == 25


def test_logs_that_the_old_catalog_lists_are_not_read_whole(tmp_path: Path) -> None:
    class NoWholeFiles(WrappedStore):
        def get(self, key: str) -> bytes:
            assert not key.endswith(".parquet"), key
            return super().get(key)

    write(tmp_path, 0, 50)
    catalog = opened(tmp_path)
    rebuild(catalog, CLOCK, scan_logs(catalog.objects))
    before = opened(tmp_path).load().files
    store = NoWholeFiles(LocalStore(PosixFileSystem(), tmp_path))
    objects = Catalog(store, "main", "provenance", CLOCK).objects
    scanned = scan_logs(objects, salvage(objects))
    [file] = scanned.files
    assert file.sha256
    assert file.sha256 == before[file.path].sha256
    assert [(source.node, source.first_ordinal, source.last_ordinal) for source in file.sources] == [("node-0", 0, 49)]


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 4
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("place", ["block", "bloom filter", "footer", "magic"])
@pytest.mark.parametrize("catalog_is_lost", [False, True])
def test_a_damaged_log_stays_damaged_in_a_catalog_made_anew(
    tmp_path: Path, place: str, *, catalog_is_lost: bool
) -> None:
    path = write(tmp_path, 0, 50)
    log = tmp_path / "main/provenance" / path
    catalog = opened(tmp_path)
    rebuild(catalog, CLOCK, scan_logs(catalog.objects))
    footer = pq.read_metadata(log)
    columns = [footer.row_group(0).column(number) for number in range(footer.num_columns)]
    bloom = next(column for column in columns if column.path_in_schema == "flowfile_uuid")
    offsets = {
        "block": 342,
        # A byte of it with bits that are set.
        "bloom filter": bloom.bloom_filter_offset
        + next(n for n in range(40, bloom.bloom_filter_length) if log.read_bytes()[bloom.bloom_filter_offset + n] & 4),
        "footer": log.stat().st_size - 100,
        "magic": 1,
    }
    flip(log, offsets[place])
    if catalog_is_lost:
        shutil.rmtree(tmp_path / "main/provenance/transactions")
    again = opened(tmp_path)
    salvaged = salvage(again.objects)
    scanned = scan_logs(again.objects, salvaged)
    rebuild(again, CLOCK, scanned, (), salvaged)
    [defect, *_] = verify(opened(tmp_path)).defects
    assert str(log) in str(defect)
    if catalog_is_lost:
        assert str(log) in scanned.damage[0]
        assert scanned.files[0].sha256 == b""


def test_a_log_that_nobody_can_read_is_left_out_and_said_and_its_ids_are_not_given_again(tmp_path: Path) -> None:
    write(tmp_path, 0, 5)
    said = {"schema_version": 42, "reader_version": 42}
    path = f"data/2026-03-01/events/{10:020d}.parquet"
    table = pa.Table.from_batches([to_batch([event(10)], 10)])
    metadata = msgspec.structs.replace(log_metadata(table, "main", "provenance"), **said)
    write_log(PosixFileSystem(), tmp_path / "main/provenance" / path, table, metadata, LogOptions())
    catalog = opened(tmp_path)
    scanned = scan_logs(catalog.objects)
    assert [file.first_event_id for file in scanned.files] == [0]
    [text] = scanned.damage
    assert path in text
    assert "got 42. Use a newer custody" in text
    assert rebuild(catalog, CLOCK, scanned).lost[0] == text
    assert opened(tmp_path).load().next_event_id == 11


def test_a_log_that_is_gone_is_listed_so_that_a_copy_can_be_put_back(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 50)
    catalog = opened(tmp_path)
    rebuild(catalog, CLOCK, scan_logs(catalog.objects))
    copy = (tmp_path / "main/provenance" / path).rename(tmp_path / "copy")
    again = opened(tmp_path)
    salvaged = salvage(again.objects)
    scanned = scan_logs(again.objects, salvaged)
    rebuild(again, CLOCK, scanned, (), salvaged)
    assert "is gone" in scanned.damage[0]
    assert "gone" in str(verify(opened(tmp_path)).defects[0]) or verify(opened(tmp_path)).defects
    copy.rename(tmp_path / "main/provenance" / path)
    assert verify(opened(tmp_path)).defects == []


def test_ids_that_the_old_catalog_knows_to_be_in_use_are_not_given_again(tmp_path: Path) -> None:
    write(tmp_path, 0, 5)
    catalog = opened(tmp_path)
    rebuild(catalog, CLOCK, scan_logs(catalog.objects))
    opened(tmp_path).commit([Action(note=Note(kind=Note.REPAIRED, text="ids"))], next_event_id=77)
    again = opened(tmp_path)
    salvaged = salvage(again.objects)
    rebuild(again, CLOCK, scan_logs(again.objects, salvaged), (), salvaged)
    assert opened(tmp_path).load().next_event_id == 77


def test_events_are_read_where_a_block_holds_several_nodes(tmp_path: Path) -> None:
    write(tmp_path, 0, 9, nodes=3)
    [file] = scan_logs(opened(tmp_path).objects).files
    ranges = [(source.node, source.first_ordinal, source.last_ordinal) for source in file.sources]
    assert ranges == [("node-0", 0, 6), ("node-1", 1, 7), ("node-2", 2, 8)]


def test_what_cannot_be_read_or_is_held_twice_is_left_out_and_said(tmp_path: Path) -> None:
    whole = write(tmp_path, 0, 20)
    part = write(tmp_path, 5, 5)
    bad = tmp_path / "main/provenance" / write(tmp_path, 50, 5)
    bad.write_bytes(b"broken")
    (bad.parent / "notes.parquet").write_bytes(b"mine")
    scanned = scan_logs(opened(tmp_path).objects)
    assert [file.path for file in scanned.files] == [whole]
    assert len(scanned.skipped) == 2
    assert any(str(bad) in text for text in scanned.skipped)
    assert any(text.startswith(part) for text in scanned.skipped)
    catalog = opened(tmp_path)
    rebuild(catalog, CLOCK, scanned)
    assert verify(opened(tmp_path)).defects == []


@pytest.mark.parametrize("at", ["data/2026-03-01", "data/2026-03-01/events"])
def test_a_folder_that_is_a_link_is_said_and_not_passed_over(tmp_path: Path, at: str) -> None:
    write(tmp_path / "store", 0, 5)
    folder = tmp_path / "store/main/provenance" / at
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    scanned = scan_logs(opened(tmp_path / "store").objects)
    assert scanned.files == []
    [said] = scanned.skipped
    assert f"{folder}: expected a folder, got a link" in said


def test_when_the_last_commit_was_is_told_of_a_damaged_catalog(tmp_path: Path) -> None:
    catalog = build(tmp_path, 4)
    times = [transaction.commit_time_ms for transaction in catalog.timeline()]
    assert last_commit_ms(catalog.objects) == times[3]
    paths = transactions(tmp_path)
    paths[3].write_bytes(b"damaged")
    paths[1].unlink()
    assert last_commit_ms(catalog.objects) == times[2]
    for path in paths:
        path.unlink(missing_ok=True)
    assert last_commit_ms(catalog.objects) is None


def test_an_old_catalog_is_moved_aside_and_not_deleted(tmp_path: Path) -> None:
    write(tmp_path, 0, 5)
    first = opened(tmp_path)
    rebuild(first, CLOCK, scan_logs(first.objects))
    old = opened(tmp_path).load()
    again = opened(tmp_path)
    rebuilt = rebuild(again, CLOCK, scan_logs(again.objects))
    assert opened(tmp_path).load().catalog_id != old.catalog_id
    aside = [key for key in LocalStore(PosixFileSystem(), tmp_path).keys(rebuilt.set_aside) if key.endswith(".txn")]
    assert len(aside) == 1
    # Nothing of the old catalog is left where a reader looks.
    assert verify(opened(tmp_path)).defects == []


def test_what_was_forgotten_held_or_expired_is_taken_over_from_what_can_be_read(repository: Repository) -> None:
    text = '[retention]\nage_max = "1 day"\ngrace = "30 days"\n[eventlog]\nlog_bytes_target = 4096\n'
    (repository.settings.root / "custody.toml").write_text(text)
    opened = Repository.open(repository.settings.root)
    for number, time_ms in enumerate((1000, 1 << 45, 1 << 45)):
        append(opened, [event(number, event_time=time_ms)])
        run_steps(opened.settings)
    opened.forget(EventSelection(event_ids=[1]), "asked for", "main")
    opened.hold("case", EventSelection(flowfile_uuids=[event(2).flowfile_uuid]), "asked for", "legal")
    opened.hold("released", EventSelection(flowfile_uuids=["x"]), "asked for", "legal")
    opened.release("released", "over", "legal")
    opened.apply_retention()  # marked, its file is still there
    before = opened.workspace().catalog.load()
    assert len(before.marks) == len(before.tombstones) == 1
    folder = opened.workspace().paths.transactions
    next(path for path in folder.rglob("*.txn") if path.parent.name.endswith("1")).write_bytes(b"broken")

    for _ in range(2):  # the second time from what the first moved aside, as after a crash behind that
        done = CliRunner().invoke(cli, ["-r", str(opened.settings.root), "catalog", "rebuild", "--yes", "--json"])
        assert done.exit_code == 0, done.output
        document = json.loads(done.stdout)
        assert document["kept"] == {"tombstones": 1, "holds": 1, "marks": 1, "losses": 0}
        assert any("1 objects that cannot be read" in said for said in document["lost"])
        again = Repository.open(opened.settings.root)
        after = again.workspace().catalog.load()
        assert (after.tombstones, after.holds, after.marks) == (before.tombstones, before.holds, before.marks)
        assert [stored.event_id for stored in again.events()] == [2], "neither the forgotten one nor the expired one"
        shutil.rmtree(folder)


def test_that_nothing_knows_what_was_forgotten_is_said_before_and_after(repository: Repository) -> None:
    append(repository, [event(0)])
    run_steps(repository.settings)
    repository.forget(EventSelection(event_ids=[0]), "asked for", "main")
    shutil.rmtree(repository.workspace().paths.transactions)
    for option in ("--dry-run", "--yes"):
        done = CliRunner().invoke(cli, ["-r", str(repository.settings.root), "catalog", "rebuild", option, "--json"])
        assert any("nothing else knows of them" in said for said in json.loads(done.stdout)["lost"])


def test_a_checkpoint_makes_up_for_what_cannot_be_read_before_it(repository: Repository) -> None:
    append(repository, [event(0)])
    run_steps(repository.settings)
    repository.hold("case", EventSelection(flowfile_uuids=["x"]), "asked for", "legal")
    catalog = repository.workspace().catalog
    catalog.write_checkpoint()
    for path in repository.workspace().paths.transactions.rglob("*.txn"):
        path.write_bytes(b"broken")
    salvaged = salvage(catalog.objects)
    assert (salvaged.counts()["holds"], salvaged.lost) == (1, None)


def test_numbers_of_revisions_come_back_with_their_order(repository: Repository) -> None:
    """Two rollovers, a hold between them, one after: the files stand at their own revisions again."""
    append(repository, [event(number) for number in range(4)])
    run_steps(repository.settings)
    for name in ("a", "b", "c"):
        repository.hold(name, EventSelection(event_ids=(0,)), "asked for", "legal")
    append(repository, [event(number) for number in range(4, 8)])
    run_steps(repository.settings)
    before = {number: sorted(repository.workspace().catalog.at(number).files) for number in range(5)}
    assert [len(before[number]) for number in range(5)] == [1, 1, 1, 1, 2]
    done = CliRunner().invoke(cli, ["-r", str(repository.settings.root), "catalog", "rebuild", "--yes", "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout.splitlines()[-1])["revision"] == 4
    again = Repository.open(repository.settings.root)
    assert {number: sorted(again.workspace().catalog.at(number).files) for number in range(5)} == before
    assert again.search("", as_of=3).total == 4
    assert verify(again.workspace().catalog).defects == []
    assert {hold.name for hold in again.holds()} == {"a", "b", "c"}
    notes = [action.note.text for each in again.timeline() for action in each.actions if action.HasField("note")]
    assert "revision 2: what it changed is not known any more" in notes


def test_a_compacted_log_stands_at_the_revision_of_its_compaction(repository: Repository) -> None:
    for number in range(3):
        append(repository, [event(number)])
        run_steps(repository.settings)
    [report] = repository.compact()
    assert report.revision == 3
    scanned = scan_logs(repository.workspace().catalog.objects)
    assert [scanned.numbers[file.path] for file in scanned.files] == [3]
    rebuilt = rebuild(repository.workspace().catalog, CLOCK, scanned)
    assert rebuilt.revision == 3
    assert any("committed while a file was written" in text for text in rebuilt.lost)


def test_files_that_do_not_say_their_number_are_listed_as_before(tmp_path: Path) -> None:
    paths = [write(tmp_path, 10 * number, 5) for number in range(3)]
    catalog = opened(tmp_path)
    scanned = scan_logs(catalog.objects)
    assert scanned.numbers == {}
    rebuilt = rebuild(catalog, CLOCK, scanned)
    assert rebuilt.revision == 2
    assert sorted(opened(tmp_path).load().files) == paths
    assert any("the numbers of revisions" in text for text in rebuilt.lost)


@pytest.mark.parametrize("number", [-1, 1 << 63, "seven"])
def test_a_number_that_no_revision_can_have_is_said(tmp_path: Path, number: object) -> None:
    write(tmp_path, 0, 5, number)
    scanned = scan_logs(opened(tmp_path).objects)
    assert scanned.files == []
    assert "metadata in the footer" in scanned.skipped[0]


def test_numbers_beyond_all_measure_are_not_filled_in(tmp_path: Path) -> None:
    write(tmp_path, 0, 5, 1 << 40)
    catalog = opened(tmp_path)
    rebuilt = rebuild(catalog, CLOCK, scan_logs(catalog.objects))
    assert rebuilt.revision == 0
    assert any("would have to be filled in" in text for text in rebuilt.lost)
