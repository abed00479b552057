"""Limits of a repair, and the state after it; the table of damage is tested by its rows elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from custody.catalog import Catalog, prune
from custody.catalog.transaction_summary import REPAIR_FINISHED, StatedReason, summary_of
from custody.config import load_settings
from custody.errors import LockedError, NotFoundError, StorageError
from custody.index import build_shard
from custody.maintenance.findings import FINDING_KINDS, Finding, Level, damages
from custody.maintenance.maintenance_steps import MAINTENANCE_STEPS, MaintenanceUnit
from custody.maintenance.repair import repair_journals, repair_logs
from custody.maintenance.rewriting import open_event_log
from custody.maintenance.verification.check_ids import subtract_ranges
from custody.model import Event, to_batch, to_events
from custody.repository import EventSelection
from custody.rollover import STEPS
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from tests.unit.maintenance.damaged_samples import STORE, Sample, flip


def _step(sample: Sample, name: str) -> None:
    for unit in list(STEPS[name].waiting(sample.workspace())):
        STEPS[name].run(sample.workspace(), unit)


def test_a_log_that_the_pipeline_has_yet_to_publish_is_left_to_it(sample: Sample) -> None:
    before = sample.answered()
    _step(sample, "compress")
    [coming] = sample.glob(str(STORE / "data/*/events/*110.parquet"))
    flip(sample.transactions()[-1], 200)
    sample.repair()
    state = sample.workspace().catalog.load()
    assert str(coming.relative_to(sample.root / STORE)) not in state.files
    assert len(state.files) == 3, "the one whose journals are there is published again"
    assert not sample.damage()
    sample.finish()
    assert sample.answered() == before


def test_a_shard_that_answers_otherwise_than_its_logs_is_found_by_comparing(sample: Sample) -> None:
    workspace = sample.workspace()
    state = workspace.catalog.load()
    shard = state.shards[min(state.shards)]
    log = open_event_log(workspace, state.files[shard.log_paths[0]])
    events = [msgspec.structs.replace(item, event_type="DROP") for item in to_events(log.read())]
    shutil.rmtree(workspace.shard_path(shard))
    build_shard(PosixFileSystem(), workspace.shard_path(shard), _table(events), workspace.settings.index.attributes)
    assert not sample.damage()
    [finding] = sample.damage(Level.DEEP)
    assert (finding.kind, "event_type" in finding.message) == ("shard-different", True)
    sample.repair(level=Level.DEEP)
    assert not sample.damage(Level.DEEP)


def _table(events: list[Event]):  # type: ignore[no-untyped-def]  # noqa: ANN202 - pyarrow has no types
    import pyarrow as pa

    return pa.Table.from_batches([to_batch(events, events[0].event_id)])


def test_erased_events_are_no_missing_ids(sample: Sample) -> None:
    sample.finish()
    repository = sample.repository()
    repository.forget(EventSelection(event_ids=tuple(range(30, 60))), "asked for")
    repository.compact()
    assert not {item.kind for item in sample.verify().findings} & {"ids-missing", "ids-doubled"}


def test_of_two_repairs_at_once_the_second_is_refused(sample: Sample) -> None:
    folder = load_settings(sample.root).maintenance_folder
    folder.mkdir()
    with sample.fs.lock(folder / "LOCK"), pytest.raises(LockedError):
        sample.repair()


def test_a_known_loss_outlives_checkpoints_and_pruning(sample: Sample) -> None:
    sample.logs()[0].unlink()
    sample.repair(accept_loss=True)
    sample.finish()
    for _ in range(4):
        sample.repository().forget(EventSelection(event_ids=(1000,)), "nothing")
        sample.workspace().catalog.write_checkpoint()
    catalog = sample.workspace().catalog
    plan = prune(catalog, catalog.load().revision)
    assert plan.floor > 0
    findings = sample.verify().findings
    assert [(item.kind, item.first_event_id, item.last_event_id) for item in findings if item.severity == "loss"] == [
        ("known-loss", 0, 29)
    ]
    assert not damages(findings)


def test_journals_of_a_lost_log_that_come_back_are_rolled_over_again(sample: Sample, whole: Path) -> None:
    before = sample.answered()
    journal = sample.glob("disk*/main/journals/*90.0.sealed")[0]
    backup = journal.read_bytes()
    _step(sample, "sweep")
    sample.glob(str(STORE / "data/*/events/*90.parquet"))[0].unlink()
    sample.repair(accept_loss=True)
    assert len(sample.answered()) == len(before) - 20
    journal.write_bytes(backup)
    sample.finish()
    assert sample.answered() == before
    assert not sample.damage(Level.DEEP)


def test_what_is_gone_meanwhile_needs_no_repair(sample: Sample) -> None:
    workspace = sample.workspace()
    with pytest.raises(NotFoundError, match="Nothing is left to do"):
        repair_logs.rewrite(workspace, "data/2026-03-02/events/00000000000000000999.parquet", "damaged")
    with pytest.raises(NotFoundError, match="Nothing is left to do"):
        repair_logs.rebuild_index_shard(workspace, "nothing")
    with pytest.raises(NotFoundError, match="Nothing is left to do"):
        repair_journals.roll_over(workspace, 999)


def test_a_staged_unit_whose_journals_are_gone_is_not_removed(sample: Sample) -> None:
    unit = sample.root / STORE / "staging/00000000000000000110"
    flip(unit / "unit", 50)
    sample.glob("disk*/main/journals/*110.0.sealed")[0].unlink()
    [action] = [item for item in sample.repair().actions if item.what == "redo-unit"]
    assert "by hand" in str(action.error)
    assert (unit / "unit").is_file()


def test_ids_without_known_ones() -> None:
    assert subtract_ranges([(0, 9)], [(3, 4), (9, 20)]) == [(0, 2), (5, 8)]
    assert subtract_ranges([(0, 9), (20, 21)], [(0, 30)]) == []
    assert subtract_ranges([(5, 5)], [(4, 4), (6, 6)]) == [(5, 5)]


def test_a_kind_of_a_newer_custody_is_shown_all_the_same() -> None:
    finding = Finding(kind="of-tomorrow", path="p", message="m")
    assert finding.document()["severity"] == FINDING_KINDS["unreadable"].severity == "damage"


def _told(sample: Sample) -> list[tuple[int, StatedReason]]:
    catalog = sample.workspace().catalog
    reasons = [(one.revision, reason) for one in catalog.timeline() for reason in summary_of(one).reasons]
    return [(revision, reason) for revision, reason in reasons if reason.repair or reason.kind == REPAIR_FINISHED]


def test_what_changes_no_entry_is_told_in_one_transaction_before_it_is_mended(
    sample: Sample, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample.finish()
    state = sample.workspace().catalog.load()
    [toc, *_] = [sample.workspace().log_path(file.toc_path) for file in state.files.values()]
    flip(toc, 20)
    gone = state.shards[min(state.shards)]
    shutil.rmtree(sample.workspace().shard_path(gone))
    seen: list[int] = []
    right = repair_logs.rewrite_toc

    def noting(workspace: Workspace, path: str) -> str:
        seen.append(len(_told(sample)))
        return right(workspace, path)

    monkeypatch.setattr(repair_logs, "rewrite_toc", noting)
    report = sample.repair()
    assert seen == [2], "the catalog tells of both before the first is mended"
    assert (report.notices, sample.damage()) == ([], [])
    toc_told, shard_told, *finished = _told(sample)
    assert toc_told[0] == shard_told[0] == state.revision + 1
    assert (toc_told[1].kind, shard_told[1].kind, shard_told[1].name) == ("toc-rewritten", "shard-rebuilt", gone.name)
    assert toc_told[1].repair is not None
    assert "expected another SHA-256" in str(toc_told[1].reason)
    assert toc_told[1].repair.expected_sha256 != toc_told[1].repair.found_sha256
    assert [(revision, reason.kind) for revision, reason in finished] == [(state.revision + 2, REPAIR_FINISHED)] * 2
    # Nothing is left to do, and nothing is told.
    sample.repair()
    assert sample.workspace().catalog.load().revision == state.revision + 2


def test_a_rewritten_log_is_told_by_the_transaction_that_replaces_it(sample: Sample) -> None:
    sample.finish()
    state = sample.workspace().catalog.load()
    file = state.files[min(state.files)]
    block = open_event_log(sample.workspace(), file).toc.blocks[0]
    flip(sample.workspace().log_path(file.path), int(block["offset"]) + 10)
    sample.repair(accept_loss=True)
    [(revision, told)] = _told(sample)
    [transaction] = sample.workspace().catalog.timeline(revision, revision)
    kinds = {action.WhichOneof("kind") for action in transaction.actions}
    assert {"remove_file", "add_loss", "note"} <= kinds
    assert told.name == file.path
    assert told.events == int(block["rows"])
    assert told.repair is not None
    assert told.repair.expected_sha256 == file.sha256.hex()
    assert (told.repair.offsets, told.repair.lost[0].first_event_id) == ((int(block["offset"]),), file.first_event_id)


def test_a_repair_that_cannot_be_told_is_not_done(sample: Sample, monkeypatch: pytest.MonkeyPatch) -> None:
    sample.finish()
    state = sample.workspace().catalog.load()
    path = sample.workspace().shard_path(state.shards[min(state.shards)])
    shutil.rmtree(path)

    def refuse(*_: object, **__: object) -> None:
        raise StorageError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(Catalog, "commit", refuse)
        [action] = sample.repair().actions
        assert action.error == "not done, as the catalog could not be told of it: no space left"
        with pytest.raises(StorageError, match="no space left"):
            MAINTENANCE_STEPS["rebuild"].run(sample.workspace(), MaintenanceUnit("main", names=(path.name,)))
        with pytest.raises(StorageError, match="no space left"):
            list(sample.repository().rebuild_index())
        assert not path.exists()
    list(sample.repository().rebuild_index())
    assert [(told.kind, told.who) for _, told in _told(sample)] == [
        ("shard-rebuilt", "index rebuild"),
        (REPAIR_FINISHED, "index rebuild"),
    ], "the others are whole: to build them anew is no repair"
