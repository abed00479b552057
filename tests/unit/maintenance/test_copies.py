"""Nothing is given up of which a copy can be had: plans ask for it, folders are taken, and losses are taken back."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from custody.catalog import Action, Note, prune
from custody.catalog.transaction_summary import summary_of
from custody.clock import ManualClock
from custody.config import load_settings
from custody.errors import NotFoundError
from custody.maintenance.findings import Level
from custody.maintenance.repair import RepairReport, plan_repairs, repair_repository
from custody.maintenance.rewriting import open_event_log
from custody.model import UNASSIGNED
from custody.repository import EventSelection
from tests.support import event
from tests.unit.maintenance.damaged_samples import NOW_MS, STORE, Sample, cut, flip

CLOCK = ManualClock(NOW_MS + 2000)


def _repair(sample: Sample, copies: Path | None = None, *, accept_loss: bool = False) -> RepairReport:
    settings = load_settings(sample.root)
    return repair_repository(settings, sample.fs, CLOCK, Level.DEFAULT, accept_loss=accept_loss, copies=copies)


def _backup(sample: Sample) -> Path:
    sample.finish()
    return Path(shutil.copytree(sample.root, sample.root.with_name("backup")))


def _damage_log(sample: Sample) -> Path:
    log = sample.logs()[1]
    file = sample.workspace().catalog.load().files[str(log.relative_to(sample.root / STORE))]
    flip(log, int(open_event_log(sample.workspace(), file).toc.blocks[0]["offset"]) + 10)
    return log


def _give_up(sample: Sample) -> tuple[Path, dict[int, str]]:
    """Damage a log and note its loss; return the log's place and what is left to answer."""
    log = _damage_log(sample)
    _repair(sample, accept_loss=True)
    assert sample.damage() == []
    return log, sample.answered()


def test_a_plan_asks_for_a_copy_and_nothing_is_given_up_without_being_asked(sample: Sample) -> None:
    backup, before = _backup(sample), sample.answered()
    log = _damage_log(sample)
    [action] = _repair(sample).actions
    assert (action.what, action.accept_loss, action.outcome) == ("rewrite-log", True, None)
    good = backup / log.relative_to(sample.root)
    for text in (str(log), f"{good.stat().st_size} bytes", "SHA-256", "--from", "--accept-loss gives up"):
        assert text in action.wanted
    shutil.copy(good, log)
    assert sample.damage() == []
    assert sample.answered() == before


def test_a_log_is_restored_from_a_folder_under_whatever_name(sample: Sample) -> None:
    backup, before = _backup(sample), sample.answered()
    log = _damage_log(sample)
    folder = sample.root.with_name("rescued")
    (folder / "deep").mkdir(parents=True)
    (folder / "deep/notes.txt").write_text("?")
    shutil.copy(backup / log.relative_to(sample.root), folder / "deep/lost+found.17")
    [action] = [item for item in _repair(sample, folder).actions if item.what == "restore-log"]
    assert action.outcome == f"copied from {folder / 'deep/lost+found.17'}"
    assert sample.damage(Level.DEEP) == []
    assert sample.answered() == before


def test_a_log_that_is_gone_is_restored_from_a_folder(sample: Sample) -> None:
    backup, before = _backup(sample), sample.answered()
    shutil.rmtree(sample.logs()[0].parent)
    _repair(sample, backup)
    assert sample.damage(Level.DEEP) == []
    assert sample.answered() == before


def test_a_damaged_copy_is_not_taken(sample: Sample) -> None:
    backup = _backup(sample)
    log = _damage_log(sample)
    flip(backup / log.relative_to(sample.root), 2000)
    [action] = _repair(sample, backup).actions
    assert (action.what, action.outcome) == ("rewrite-log", None)


def _first(sample: Sample, pattern: str) -> Path:
    return sample.glob(pattern)[0]


@pytest.mark.parametrize(
    "inflict",
    [
        lambda s: flip(s.claim(), 500),
        lambda s: cut(s.claim(), 900),
        lambda s: s.claim().unlink(),
        lambda s: flip(s.transactions()[1], 200),
        lambda s: s.transactions()[0].unlink(),
        lambda s: flip(s.transactions()[-1], 200),
    ],
    ids=["content", "content cut", "content gone", "old transaction", "old transaction gone", "newest transaction"],
)
def test_what_a_copy_vouches_for_is_the_very_file(sample: Sample, inflict: Callable[[Sample], None]) -> None:
    backup, before = _backup(sample), sample.answered()
    inflict(sample)
    assert sample.damage()
    report = _repair(sample, backup)
    assert [action.what for action in report.actions if action.outcome] == ["restore-copy"]
    assert sample.damage(Level.DEEP) == []
    assert sample.answered() == before
    kept = {path.relative_to(backup) for path in (backup / STORE).rglob("*") if path.is_file()}
    for path in kept:
        assert (sample.root / path).read_bytes() == (backup / path).read_bytes(), path


def test_contents_that_were_appended_since_the_copy_was_made_stay(sample: Sample) -> None:
    backup, old = sample.root.with_name("backup"), sample.claim()
    with sample.repository().writer() as writer:
        writer.append_with_content([event(900)], b"copied" * 50)
        [claim] = [path for path in sample.glob("store/main/content/*/*/*") if path != old]
        backup.mkdir()
        copy = Path(shutil.copy(claim, backup))
        writer.append_with_content([event(901)], b"appended later" * 50)
    before = claim.read_bytes()
    assert before.startswith(copy.read_bytes())
    assert len(before) > len(copy.read_bytes()) + 700
    flip(claim, len(copy.read_bytes()) - 100)
    assert sample.damage()
    report = _repair(sample, backup)
    assert [action.what for action in report.actions if action.outcome] == ["restore-copy"]
    assert claim.read_bytes() == before
    assert sample.damage(Level.DEEP) == []


def test_a_journal_is_restored_before_its_group_is_rolled_over_without_it(sample: Sample) -> None:
    backup = Path(shutil.copytree(sample.root, sample.root.with_name("backup")))
    before = sample.answered()
    flip(_first(sample, "disk*/main/journals/*115.0.sealed"), -400)
    report = _repair(sample, backup)
    assert [action.what for action in report.actions if action.outcome] == ["restore-copy"]
    assert sample.damage() == []
    assert sample.answered() == before


def test_a_journal_that_is_gone_is_restored_and_its_events_are_waiting_again(sample: Sample) -> None:
    backup = Path(shutil.copytree(sample.root, sample.root.with_name("backup")))
    before = sample.answered()
    _first(sample, "disk*/main/journals/*115.0.sealed").unlink()
    assert len(sample.answered()) == len(before) - 5
    report = _repair(sample, backup)
    assert [action.what for action in report.actions if action.outcome] == ["restore-copy"]
    assert sample.answered() == before
    sample.finish()
    assert sample.answered() == before
    assert sample.damage(Level.DEEP) == []


def test_a_transaction_of_another_history_is_not_taken(sample: Sample) -> None:
    backup = _backup(sample)
    stolen = backup / sample.transactions()[1].relative_to(sample.root)
    other = stolen.parents[1] / sample.transactions()[2].parent.name
    shutil.copy(next(other.glob("*.txn")), stolen)
    flip(sample.transactions()[1], 200)
    report = _repair(sample, backup)
    assert "restore-copy" not in {action.what for action in report.actions}


def test_a_loss_that_was_noted_is_taken_back_by_a_copy_in_its_place(sample: Sample) -> None:
    backup, before = _backup(sample), sample.answered()
    log, left = _give_up(sample)
    assert left.items() < before.items()
    shutil.copy(backup / log.relative_to(sample.root), log)
    [found] = [item for item in sample.verify().findings if item.kind == "loss-recoverable"]
    assert (found.severity, found.path) == ("notice", str(log))
    assert f"{len(before) - len(left)} events" in found.message
    _repair(sample)
    assert sample.answered() == before
    assert sample.damage(Level.DEEP) == []
    state = sample.workspace().catalog.load()
    assert not state.losses
    assert sample.repository().search("").total == len(before)
    kinds = [reason.kind for each in sample.workspace().catalog.timeline() for reason in summary_of(each).reasons]
    assert kinds.count("lost") == kinds.count("found-again") == 1
    assert [action for action in _repair(sample).actions if action.outcome] == []


def test_a_loss_of_a_whole_log_is_taken_back_from_a_folder_after_a_compaction(sample: Sample) -> None:
    backup, before = _backup(sample), sample.answered()
    sample.logs()[1].write_bytes(b"?" * 5000)
    sample.logs()[1].with_suffix(".toc").write_bytes(b"")
    _repair(sample, accept_loss=True)
    assert len(sample.answered()) < len(before)
    sample.repository().compact()
    _repair(sample, backup)
    assert sample.answered() == before
    assert sample.damage(Level.DEEP) == []


def test_what_was_forgotten_since_the_loss_does_not_come_back(sample: Sample) -> None:
    backup, before = _backup(sample), sample.answered()
    log, left = _give_up(sample)
    lost = sorted(before.keys() - left.keys())
    sample.repository().forget(EventSelection(flowfile_uuids=[before[lost[0]]]), "asked for", "main")
    sample.repository().compact()
    assert not sample.workspace().catalog.load().tombstones, "no event that it means was left"
    shutil.copy(backup / log.relative_to(sample.root), log)
    _repair(sample)
    after = sample.answered()
    assert after == {number: uuid for number, uuid in before.items() if uuid != before[lost[0]]}
    assert sum(loss.events for loss in sample.workspace().catalog.load().losses.values()) == len(before) - len(after)
    assert not [item for item in sample.verify().findings if item.kind == "loss-recoverable"]


def test_a_loss_whose_history_is_pruned_is_taken_back_only_on_request(sample: Sample) -> None:
    backup, before = _backup(sample), sample.answered()
    log, _ = _give_up(sample)
    catalog = sample.workspace().catalog
    for _ in range(3):
        catalog.commit([Action(note=Note(kind=Note.REPAIRED, text="later"))])
        catalog.write_checkpoint()
    prune(catalog, catalog.load().revision)
    shutil.copy(backup / log.relative_to(sample.root), log)
    [action] = [item for item in _repair(sample).actions if item.what == "take-back-loss"]
    assert (action.outcome, action.accept_loss) == (None, True)
    _repair(sample, accept_loss=True)
    assert sample.answered() == before


def test_events_that_were_delivered_again_meanwhile_are_there_once(sample: Sample) -> None:
    backup, before = _backup(sample), sample.answered()
    events = list(sample.repository().events(0, 10_000))
    log, left = _give_up(sample)
    lost = [event for event in events if event.event_id not in left]
    sample.repository().append([msgspec.structs.replace(event, event_id=UNASSIGNED) for event in lost[:2]])
    sample.finish()
    shutil.copy(backup / log.relative_to(sample.root), log)
    _repair(sample)
    assert sorted(sample.answered().values()) == sorted(before.values())


def test_a_folder_that_is_not_there_is_refused(sample: Sample) -> None:
    with pytest.raises(NotFoundError, match="expected a folder with copies"):
        plan_repairs(load_settings(sample.root), sample.fs, CLOCK, copies=sample.root / "nothing")
