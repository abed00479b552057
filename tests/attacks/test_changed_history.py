"""Who can write to the store changes what was attested, and excuses it by something newer than the attestation."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from custody.catalog import Action, RemoveFile, RemoveTombstone, Transaction
from custody.catalog.checkpoints import checkpoint_digest
from custody.catalog.transaction_pb2 import Prune
from custody.config import SETTINGS_FILE
from custody.repository import EventSelection, Repository
from tests.attacks.attacker import Attacker, attested, build, document, findings, run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Thirty events in three logs, one of them forgotten."""
    build(tmp_path / "repository").forget(EventSelection(event_ids=(4,)), "asked for")
    return tmp_path / "repository"


def against(root: Path, head: tuple[Path, str], *options: str) -> tuple[int, list[str]]:
    """The exit code of `verify --against`, and what it calls proven."""
    code, [report] = document(root, "verify", "--against", head[0], "--key", head[1], *options)
    return code, report["proven"]


def drop_second_log(attacker: Attacker) -> None:
    """Rewrite the revision that made the second log live, excuse that, and let a new checkpoint tell the rest."""
    state = attacker.catalog.load()
    path = sorted(state.files)[1]
    [revision] = [
        each.revision
        for each in attacker.catalog.timeline()
        if any(action.add_file.path == path for action in each.actions)
    ]
    shards = [name for name, shard in state.shards.items() if path in shard.log_paths]

    def without(transaction: Transaction) -> None:
        kept = [each for each in transaction.actions if not (each.HasField("add_file") or each.HasField("add_shard"))]
        del transaction.actions[:]
        transaction.actions.extend(kept)

    attacker.forge(revision, without)
    attacker.remove_log(path)
    attacker.remove_shards(shards)


@pytest.mark.parametrize("options", [(), ("--deep",), ("--chain-only",)], ids=["default", "deep", "chain-only"])
def test_attested_events_that_a_newer_note_calls_lost_are_missed(
    root: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    head = attested(root, tmp_path)
    assert against(root, head, *options) == (0, against(root, head, *options)[1])
    drop_second_log(Attacker(root))
    assert Repository.open(root).search("").total == 19, "the attack works: ten events are gone"
    assert against(root, head, *options) == (20, [])


def test_a_forgotten_event_that_is_returned_again_is_missed(root: Path, tmp_path: Path) -> None:
    attacker = Attacker(root)
    newest = attacker.catalog.load().revision
    attacker.excuse()  # any later transaction: the digest of the newest one is compared by itself
    head = attested(root, tmp_path)

    def without(transaction: Transaction) -> None:
        del transaction.actions[:]

    attacker.forge(newest, without)
    shutil.rmtree(attacker.home / "forgotten")
    assert Repository.open(root).search("").total == 30, "the attack works: the event is given out again"
    assert against(root, head) == (20, [])


def test_all_that_was_written_anew_behind_a_change_is_missed(root: Path, tmp_path: Path) -> None:
    head = attested(root, tmp_path)
    attacker = Attacker(root)

    def another_time(transaction: Transaction) -> None:
        transaction.waiting_since_ms = 1

    attacker.rewrite(1, another_time)
    attacker.forget_checkpoints()
    attacker.link_again(1)
    attacker.forget_witnesses()
    assert findings(root) == set(), "without the attestation nobody can tell"
    assert against(root, head) == (20, [])


def test_a_forged_checkpoint_behind_a_newer_pruning_is_missed(root: Path, tmp_path: Path) -> None:
    """All transactions that are left are the attested ones; the state with which they begin is not."""
    head = attested(root, tmp_path)
    attacker = Attacker(root)
    catalog = attacker.catalog
    path = sorted(catalog.load().files)[0]
    floor = catalog.load().revision - 1
    attacker.forget_checkpoints()
    catalog.write_checkpoint(floor)

    def without(checkpoint: Transaction) -> None:
        place = list(checkpoint.live_paths).index(path)
        del checkpoint.live_paths[place], checkpoint.live_files[place]

    attacker.rewrite(floor, without, "ckpt")
    forged = checkpoint_digest(catalog.objects, catalog.at(floor))
    attacker.commit(Action(prune=Prune(floor=floor, checkpoint_digest=forged)))
    for folder in sorted((attacker.home / "transactions").glob("0*")):
        if int(folder.name) < floor:
            shutil.rmtree(folder)
    for table in (attacker.home / "transactions").glob("*/*.statistics.parquet"):
        table.unlink()
    attacker.catalog.write_checkpoint()
    assert len(Attacker(root).catalog.load().files) == 2, "the attack works: a log is gone"
    assert against(root, head, "--chain-only") == (20, [])


def test_an_attested_revision_that_was_pruned_is_no_success(root: Path, tmp_path: Path) -> None:
    """Pruning is no damage, but whoever asks for a proof is told by the exit code that there is none."""
    head = attested(root, tmp_path)
    attacker = Attacker(root)
    for _ in range(4):
        attacker.excuse()
        attacker.catalog.write_checkpoint()
    assert run(root, "catalog", "prune", "--before", "5", "--yes").exit_code == 0
    assert against(root, head) == (12, [])
    assert against(root, head, "--chain-only") == (12, [])


def test_kept_attestations_are_compared_with_the_whole_chain(root: Path, tmp_path: Path) -> None:
    """By the command, by the API's own call, and by every verification, without being named."""
    head, _ = attested(root, tmp_path)
    (tmp_path / "kept").mkdir()
    shutil.copy(head, tmp_path / "kept" / "head.json")
    (root / SETTINGS_FILE).write_text(f"[catalog]\nattestations = {json.dumps(str(tmp_path / 'kept'))}\n")
    assert findings(root) == set()
    assert document(root, "catalog", "attestations")[1][0]["state"] == "proven"
    drop_second_log(Attacker(root))
    assert document(root, "catalog", "attestations")[1][0]["state"] == "contradicted"
    assert Repository.open(root).attestations()[0].state == "contradicted"
    assert findings(root) == {"catalog-attested"}


def test_a_loss_that_was_noted_before_the_attestation_is_no_contradiction(root: Path, tmp_path: Path) -> None:
    """Somebody repaired, and the auditor signed what was left: what is before that is not proven, and said so."""
    attacker = Attacker(root)
    attacker.catalog.write_checkpoint()
    attacker.objects()[0].write_bytes(b"damaged")
    attacker.excuse(0)
    head = attested(root, tmp_path)
    code, [report] = document(root, "verify", "--against", head[0], "--key", head[1])
    assert (code, len(report["proven"])) == (0, 1)
    assert "before revision 1: 0 is lost" in report["not_proven"][0]


def test_events_that_a_newer_transaction_takes_away_are_told_beside_the_proof(root: Path, tmp_path: Path) -> None:
    """Nothing that was attested is changed by it, so it is no contradiction; without a reason it is damage."""
    head = attested(root, tmp_path)
    attacker = Attacker(root)
    attacker.commit(Action(remove_file=RemoveFile(path=sorted(attacker.catalog.load().files)[0])))
    code, [report] = document(root, "verify", "--against", head[0], "--key", head[1], "--chain-only")
    assert (code, len(report["proven"])) == (0, 1)
    assert "that 9 events had to go since: no reason is given, by revisions 4" in report["not_proven"]
    assert "events-removed" in findings(root)


def test_a_tombstone_that_a_newer_transaction_takes_back_is_told_beside_the_proof(root: Path, tmp_path: Path) -> None:
    head = attested(root, tmp_path)
    attacker = Attacker(root)
    [stone] = attacker.catalog.load().tombstones.values()
    attacker.commit(Action(remove_tombstone=RemoveTombstone(id=stone.id)))
    assert Repository.open(root).search("").total == 30, "the attack works: the event is given out again"
    code, [report] = document(root, "verify", "--against", head[0], "--key", head[1])
    assert (code, len(report["proven"])) == (0, 1)
    assert "the events of 1 tombstones were erased before revisions 4" in report["not_proven"][0]


def test_a_checkpoint_that_says_another_state_than_the_transactions_is_named(root: Path) -> None:
    attacker = Attacker(root)
    attacker.forget_checkpoints()
    newest = attacker.catalog.load().revision
    attacker.catalog.write_checkpoint()

    def without(checkpoint: Transaction) -> None:
        del checkpoint.live_paths[0], checkpoint.live_files[0]

    attacker.rewrite(newest, without, "ckpt")
    assert len(attacker.catalog.load().files) == 2, "the attack works: a log is gone"
    assert "catalog-object" in findings(root)
