"""Every row of docs/damage.md: the damage is done to a real repository, found as the row says, repaired, and gone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pytest

from custody.landing import LandingLedger, LedgerEntry
from custody.lease import Attempt
from custody.maintenance.findings import FINDING_KINDS, Level
from custody.maintenance.repair import ACTION_ORDER
from custody.repository import EventSelection
from custody.rollover import keeping_filters
from custody.rollover.keeping_filters import keep_filters
from custody.workspace import rollover_lease
from tests.docs.pages import read, table
from tests.support import event
from tests.unit.maintenance.damaged_samples import STORE, Damage, Sample, cut, flip, swap

LEVELS = list(Level)


@dataclass(frozen=True)
class Case:
    """What is done, what is found at which level first, and how many events are lost in the end."""

    inflict: Damage
    kind: str
    level: Level = Level.DEFAULT
    lost: int = 0
    accept_loss: bool = False
    forgotten: int = 0
    """How many events are not given out any more because they were forgotten."""
    mended: bool = True
    """Whether a repair, and the next pass of the pipeline, leave nothing to find."""


def _block(sample: Sample, number: int = 0) -> tuple[Path, int]:
    """A log and the place of a byte in the middle of one of its blocks."""
    log = sample.logs()[1]
    file = sample.workspace().catalog.load().files[str(log.relative_to(sample.root / STORE))]
    from custody.maintenance.rewriting import open_event_log

    block = open_event_log(sample.workspace(), file).toc.blocks[number]
    return log, int(block["offset"]) + int(block["length"]) // 2


def _flip_block(sample: Sample) -> None:
    flip(*_block(sample))


def _flip_every_block(sample: Sample) -> None:
    log = sample.logs()[1]
    size = log.stat().st_size
    cut(log, 4)
    log.write_bytes(log.read_bytes() + bytes(size - 4))


def _flip_all(sample: Sample) -> None:
    _flip_every_block(sample)
    sample.logs()[1].with_suffix(".toc").write_bytes(b"")


def _filters(sample: Sample) -> Path:
    with patch.object(keeping_filters, "SHARDS_MIN", 1):
        assert keep_filters(sample.workspace())
    return _first(sample, "disk*/main/filters/*")


def _flip_filters(sample: Sample) -> None:
    flip(_filters(sample), 5)


def _cut_filters(sample: Sample) -> None:
    cut(_filters(sample), 30)


def _flip_footer(sample: Sample) -> None:
    log = sample.logs()[0]
    flip(log, log.stat().st_size - 100)


def _swap_logs(sample: Sample) -> None:
    swap(*sample.logs()[:2])


def _swap_tocs(sample: Sample) -> None:
    swap(*(log.with_suffix(".toc") for log in sample.logs()[:2]))


def _to_trash(sample: Sample) -> None:
    log = sample.logs()[0]
    target = sample.root / STORE / "trash/1772409600000" / log.relative_to(sample.root / STORE)
    target.parent.mkdir(parents=True)
    log.rename(target)


def _remove_staged_live(sample: Sample) -> None:
    _first(sample, str(STORE / "data/*/events/*90.parquet")).unlink()


def _remove_with_journals(sample: Sample) -> None:
    _remove_staged_live(sample)
    shutil.rmtree(sample.root / STORE / "staging/00000000000000000090")


def _first(sample: Sample, pattern: str) -> Path:
    return sample.glob(pattern)[0]


def _shard_file(suffix: str) -> Callable[[Sample], Path]:
    return lambda sample: _first(sample, f"disk*/main/index/*/*{suffix}")


def _swap_shards(sample: Sample) -> None:
    swap(*sample.glob("disk*/main/index/*")[:2])


def _journal(sample: Sample) -> Path:
    return _first(sample, "disk*/main/journals/*115.0.sealed")


def _flip_record(sample: Sample) -> None:
    flip(_journal(sample), -400)


def _swap_journals(sample: Sample) -> None:
    swap(_journal(sample), _first(sample, "disk*/main/journals/*110.0.sealed"))
    shutil.rmtree(sample.root / STORE / "staging/00000000000000000110")


def _staged(sample: Sample) -> Path:
    return sample.root / STORE / "staging/00000000000000000110"


def _double(sample: Sample) -> None:
    journal = _first(sample, "disk*/main/journals/*110.0.sealed")
    shutil.copy(journal, journal.with_name("00000000000000000110.1.sealed"))


def _foreign_transaction(sample: Sample) -> None:
    real = sample.transactions()[1]
    shutil.copy(real, real.with_name("00000000-0000-4000-8000-000000000000.txn"))


def _lose_tail(sample: Sample, *, trace: bool) -> None:
    """Take the newest transactions away, when the journals and the staged unit of the last one are swept."""
    from custody.rollover import STEPS

    for unit in list(STEPS["sweep"].waiting(sample.workspace())):
        STEPS["sweep"].run(sample.workspace(), unit)
    folder = sample.transactions()[-1].parent
    assert folder.name.endswith("3")
    if trace:
        sample.workspace().catalog.write_checkpoint()
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


def _stray_log(sample: Sample) -> None:
    log = sample.logs()[0]
    shutil.copy(log, log.with_name("00000000000000000003.parquet"))


def _forget_and_lose(sample: Sample) -> None:
    _copy_of_forgotten(sample)
    shutil.rmtree(sample.transactions()[-1].parent)


def _copy_of_forgotten(sample: Sample) -> Path:
    sample.repository().forget(EventSelection(event_ids=(31,)), "asked for")
    return _first(sample, str(STORE / "forgotten/*.kept"))


def _entry_of_ledger(sample: Sample) -> Path:
    taken = LedgerEntry(
        file="a.json", bytes=1, modified_ms=1, writer="main", read=1, stored=1, repeated=0, rejected=0, taken_ms=2
    )
    LandingLedger(sample.fs, sample.root / "landed").add(Path("/landing/a.json"), taken)
    return _first(sample, "landed/*/*.json")


def _lease(sample: Sample) -> Path:
    with rollover_lease(sample.workspace(), Attempt.new("test")):
        pass
    return _first(sample, str(STORE / "leases/rollover/??????????"))


CASES: dict[str, Case] = {
    "a byte of a block of a log changed": Case(_flip_block, "log-damaged", lost=21, accept_loss=True),
    "a log was cut short": Case(
        lambda s: cut(s.logs()[1], 4_000), "log-damaged", Level.QUICK, lost=9, accept_loss=True
    ),
    "a log lost its end": Case(lambda s: cut(s.logs()[1], 26_000), "log-changed", Level.QUICK),
    "a log holds other bytes": Case(_flip_every_block, "log-damaged", lost=30, accept_loss=True),
    "a log and its table of contents hold other bytes": Case(_flip_all, "log-damaged", lost=30, accept_loss=True),
    "a byte of a log outside its blocks changed": Case(_flip_footer, "log-changed"),
    "two logs changed places": Case(_swap_logs, "log-foreign", Level.QUICK),
    "a log is gone, its staged unit is there": Case(_remove_staged_live, "log-missing", Level.QUICK),
    "a log is gone, its journals are there": Case(_remove_with_journals, "log-missing", Level.QUICK),
    "a log is in the trash": Case(_to_trash, "log-missing", Level.QUICK),
    "a log is gone": Case(lambda s: s.logs()[0].unlink(), "log-missing", Level.QUICK, lost=30, accept_loss=True),
    "a byte of a table of contents changed": Case(lambda s: flip(s.logs()[0].with_suffix(".toc"), 99), "toc-damaged"),
    "a table of contents is gone": Case(lambda s: s.logs()[0].with_suffix(".toc").unlink(), "toc-damaged", Level.QUICK),
    "two tables of contents changed places": Case(_swap_tocs, "toc-damaged"),
    "a byte of a shard changed": Case(lambda s: flip(_shard_file(".data")(s), 50), "shard-damaged"),
    "a byte of a shard's description changed": Case(
        lambda s: flip(_shard_file("custody.shard")(s), 50), "shard-damaged", Level.QUICK
    ),
    "a file of a shard is gone": Case(lambda s: _shard_file(".data")(s).unlink(), "shard-damaged", Level.QUICK),
    "a shard is gone": Case(lambda s: shutil.rmtree(_first(s, "disk*/main/index/*")), "shard-missing", Level.QUICK),
    "a byte of the filters of many shards changed": Case(_flip_filters, "filters-damaged"),
    "a file of the filters of many shards was cut short": Case(_cut_filters, "filters-damaged", Level.QUICK),
    "two shards changed places": Case(_swap_shards, "shard-damaged", Level.QUICK),
    "a byte of a sealed journal changed": Case(_flip_record, "journal-damaged", lost=5),
    "a sealed journal was cut short": Case(lambda s: cut(_journal(s), 1000), "journal-damaged", Level.QUICK, lost=5),
    "two journals changed places": Case(_swap_journals, "journal-foreign"),
    "a sealed journal is gone": Case(
        lambda s: _journal(s).unlink(), "ids-missing", Level.QUICK, lost=5, accept_loss=True
    ),
    "a journal was copied": Case(_double, "ids-doubled", mended=False),
    "the last write of a dead writer's journal is torn": Case(
        lambda s: cut(_first(s, "disk*/main/journals/*.journal"), 4370), "journal-torn", Level.QUICK, lost=5
    ),
    "a byte of the last record of a dead writer's journal changed": Case(
        lambda s: flip(_first(s, "disk*/main/journals/*.journal"), -60), "journal-damaged", Level.QUICK, lost=5
    ),
    "a byte of a writer's state changed": Case(
        lambda s: flip(s.root / "disk1/main/STATE", 40), "state-damaged", Level.QUICK
    ),
    "a byte of a [witness](formats/witness.md) changed": Case(
        lambda s: flip(_first(s, "disk1/main/WITNESS.*"), 40), "witness-damaged", Level.QUICK
    ),
    "a byte of staged events changed": Case(
        lambda s: flip(_first(s, str(STORE / "staging/*110/*.arrow")), 6000), "unit-damaged"
    ),
    "a byte of a staged unit's manifest changed": Case(
        lambda s: flip(_staged(s) / "unit", 50), "unit-damaged", Level.QUICK
    ),
    "a byte of an old transaction changed": Case(
        lambda s: flip(s.transactions()[1], 200), "catalog-history", Level.QUICK
    ),
    "a byte of the newest transaction changed": Case(
        lambda s: flip(s.transactions()[-1], 200), "catalog-damaged", Level.QUICK
    ),
    "an old transaction is gone": Case(lambda s: s.transactions()[0].unlink(), "catalog-history", Level.QUICK),
    "the newest transaction is gone, a trace remains": Case(
        lambda s: _lose_tail(s, trace=True), "catalog-damaged", Level.QUICK
    ),
    "the newest transaction is gone without a trace": Case(
        lambda s: _lose_tail(s, trace=False), "catalog-tail", Level.QUICK
    ),
    "a byte of a checkpoint changed": Case(
        lambda s: flip(_first(s, str(STORE / "transactions/*/*.ckpt")), 99), "catalog-damaged", Level.QUICK
    ),
    "a byte of the hint changed": Case(
        lambda s: flip(s.root / STORE / "transactions/newest-checkpoint", 30), "catalog-notice", Level.QUICK
    ),
    "the newest transaction, which forgot events, is gone without a trace": Case(
        _forget_and_lose, "forgotten-lost", Level.QUICK, forgotten=1
    ),
    "a byte of the second copy of what was forgotten changed": Case(
        lambda s: flip(_copy_of_forgotten(s), 40), "forgotten-damaged", Level.QUICK, forgotten=1
    ),
    "the second copy of what was forgotten is gone": Case(
        lambda s: _copy_of_forgotten(s).unlink(), "forgotten-missing", Level.QUICK, forgotten=1
    ),
    "a foreign object lies in the catalog": Case(_foreign_transaction, "catalog-object", Level.QUICK),
    "a byte of an envelope in the quarantine changed": Case(
        lambda s: flip(_first(s, "quarantine/*.rejected"), 120), "quarantine-damaged", Level.QUICK
    ),
    "a byte of a piece in the quarantine changed": Case(
        lambda s: flip(_first(s, "quarantine/*.rejected"), -3), "quarantine-damaged"
    ),
    "a byte of a content changed": Case(lambda s: flip(s.claim(), 500), "content-damaged", mended=False),
    "a byte behind a content changed": Case(lambda s: flip(s.claim(), -60), "content-damaged"),
    "a byte of the head of a file of contents changed": Case(
        lambda s: flip(s.claim(), 40), "content-damaged", Level.QUICK
    ),
    "a file of contents was cut short": Case(lambda s: cut(s.claim(), 900), "content-damaged", mended=False),
    "a file of contents is gone": Case(lambda s: s.claim().unlink(), "content-missing", mended=False),
    "a byte of an entry of the ledger changed": Case(
        lambda s: flip(_entry_of_ledger(s), 30), "record-damaged", Level.QUICK
    ),
    "a byte of a lease changed": Case(lambda s: flip(_lease(s), 30), "lease-damaged", Level.QUICK, mended=False),
    "a log that nothing lists": Case(_stray_log, "unlisted-log", Level.QUICK, mended=False),
    "a foreign file": Case(
        lambda s: (s.root / "disk1/notes.txt").write_text("?"), "foreign", Level.QUICK, mended=False
    ),
}


def _kinds(sample: Sample, level: Level) -> set[str]:
    return {finding.kind for finding in sample.verify(level).findings}


@pytest.mark.parametrize("level", LEVELS)
def test_a_whole_repository_has_nothing_to_find(sample: Sample, level: Level) -> None:
    assert _kinds(sample, level) == set()


@pytest.mark.in_parts(3)
@pytest.mark.parametrize("name", CASES)
def test_the_row(name: str, sample: Sample) -> None:
    case = CASES[name]
    before = sample.answered()
    case.inflict(sample)
    for level in LEVELS:
        assert (case.kind in _kinds(sample, level)) == (LEVELS.index(level) >= LEVELS.index(case.level)), level
    if case.accept_loss:
        repaired = sample.repair()
        assert case.kind in _kinds(sample, Level.DEFAULT), "without being asked nothing is given up"
        assert any(action.accept_loss and action.outcome is None for action in repaired.actions)
    sample.repair(accept_loss=case.accept_loss)
    again = sample.repair(accept_loss=case.accept_loss)
    assert not [action for action in again.actions if action.outcome], "a second repair has nothing to do"
    if case.mended:
        assert sample.damage(Level.DEEP) == []
    sample.finish()
    if case.mended:
        assert not _kinds(sample, Level.DEEP) - {
            "known-loss",
            "trash",
            "set-aside",
            "foreign",
            "unlisted-log",
            "catalog-notice",
            *(["ids-missing"] if case.lost else []),  # which ids were told is not known
        }
    after = sample.answered()
    assert after.items() <= before.items()
    assert len(before) - len(after) == case.lost + case.forgotten
    assert len(before) - len(after) == _noted(sample) or not case.accept_loss
    assert sample.repository().append([event(500)]).event_ids.start > max(after)


def _noted(sample: Sample) -> int:
    return sum(loss.events for loss in sample.workspace().catalog.load().losses.values())


def test_the_table_of_the_documentation_has_these_rows() -> None:
    rows = table(read("damage.md"), "what happened | kind | found by")
    assert [(row[0], row[1], row[2]) for row in rows] == [
        (name, case.kind, case.level.value) for name, case in CASES.items()
    ]
    for row, case in zip(rows, CASES.values(), strict=True):
        assert ("--accept-loss" in row[4]) == case.accept_loss, row
        assert not (row[3] == "nothing" and case.lost), row
        named = row[4].partition(":")[0].partition(",")[0]
        assert named in ACTION_ORDER or named.startswith("none"), row


def test_every_kind_is_in_the_documentation() -> None:
    text = read("damage.md")
    assert not [kind for kind in FINDING_KINDS if f"`{kind}`" not in text]
