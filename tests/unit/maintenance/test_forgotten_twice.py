"""Forgotten and expired events stay gone, whatever is damaged and however it is mended: each is recorded twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.catalog import SecondCopyStore, collect_garbage, prune
from custody.cli.main import cli
from custody.clock import ManualClock
from custody.errors import ConflictError, EarlierStateError
from custody.maintenance.findings import damages
from custody.repository import EventSelection
from tests.unit.maintenance.damaged_samples import NOW_MS, STORE, Sample, flip
from tests.unit.maintenance.sample_with_every_file import expire

FORGOTTEN = range(30, 40)
COPIES = STORE / "forgotten"


@pytest.fixture(scope="module")
def live(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with all events live."""
    root = tmp_path_factory.mktemp("live") / "repository"
    shutil.copytree(whole, root)
    Sample(root).finish()
    return root


@pytest.fixture
def finished(live: Path, tmp_path: Path) -> Sample:
    shutil.copytree(live, tmp_path / "copy")
    return Sample(tmp_path / "copy")


@pytest.fixture
def forgot(finished: Sample) -> Sample:
    """Some of whose events are forgotten in the newest transaction."""
    finished.repository().forget(EventSelection(event_ids=FORGOTTEN), "asked for")
    return finished


def newest(sample: Sample) -> Path:
    return sample.transactions()[-1]


def test_a_repair_does_not_bring_back_what_the_damaged_transaction_forgot(forgot: Sample) -> None:
    before = forgot.answered()
    assert not set(before) & set(FORGOTTEN)
    flip(newest(forgot), 100)
    done = forgot.repair()
    assert [action.what for action in done.actions] == ["mend-catalog"]
    assert forgot.answered() == before
    assert not forgot.damage()
    state = forgot.workspace().catalog.load()
    assert [stone.reason for stone in state.tombstones.values()] == ["asked for"]


def test_a_forget_whose_transaction_is_gone_without_a_trace_is_found_and_told_again(forgot: Sample) -> None:
    before = forgot.answered()
    shutil.rmtree(newest(forgot).parent)
    assert [item.kind for item in forgot.damage()] == ["state-earlier", "forgotten-lost"]
    forgot.repair()
    assert not forgot.damage()
    assert forgot.answered() == before


def test_a_forget_whose_revision_was_used_again_is_found(forgot: Sample) -> None:
    before = forgot.answered()
    shutil.rmtree(newest(forgot).parent)
    with pytest.raises(EarlierStateError):
        forgot.repository().hold("case", EventSelection(event_ids=(1,)), "kept", "legal")
    for witness in [*forgot.root.rglob("WITNESS*"), *forgot.glob("witness/main.*")]:
        witness.unlink()
    sample = forgot.repository()
    sample.hold("case", EventSelection(event_ids=(1,)), "kept", "legal")
    assert [item.kind for item in forgot.damage()] == ["forgotten-lost"]
    forgot.repair()
    assert forgot.answered() == before


@pytest.mark.parametrize("how", ["flip", "remove", "swap"])
def test_a_damaged_copy_is_found_and_written_anew(forgot: Sample, how: str) -> None:
    forgot.repository().forget(EventSelection(event_ids=(41,)), "asked for, too")
    first, second = forgot.glob(str(COPIES / "*.kept"))
    good = first.read_bytes()
    if how == "flip":
        flip(first, 40)
    elif how == "remove":
        first.unlink()
    else:
        first.write_bytes(second.read_bytes())
    [finding] = forgot.damage()
    assert finding.kind == ("forgotten-missing" if how == "remove" else "forgotten-damaged")
    before = forgot.answered()
    forgot.repair()
    assert not forgot.damage()
    assert forgot.answered() == before
    aside = [path.read_bytes() for path in forgot.root.glob(str(STORE / "transactions-damaged-*/forgotten/*"))]
    assert len(aside) == (how != "remove")
    assert first.read_bytes() == good or forgot.workspace().catalog.load().revision > 0


def test_without_copies_a_repair_that_may_give_out_more_is_refused_until_it_is_accepted(forgot: Sample) -> None:
    shutil.rmtree(forgot.root / COPIES)
    flip(newest(forgot), 100)
    [action] = forgot.repair().actions
    assert (action.what, action.accept_loss, action.outcome) == ("mend-catalog", True, None)
    assert "cannot be known" in action.reason
    refused = CliRunner().invoke(cli, ["-r", str(forgot.root), "catalog", "repair", "--yes"])
    assert refused.exit_code != 0
    assert isinstance(refused.exception, ConflictError) or "--accept-loss" in refused.output + str(refused.exception)
    forgot.repair(accept_loss=True)
    assert not forgot.damage()
    assert set(forgot.answered()) >= set(FORGOTTEN), "that is what was accepted"


def test_copies_that_are_gone_as_a_whole_are_named_and_written_again_by_the_next_checkpoint(forgot: Sample) -> None:
    before = forgot.answered()
    shutil.rmtree(forgot.root / COPIES)
    assert {item.kind for item in damages(forgot.verify().findings)} == {"forgotten-missing"}
    forgot.workspace().catalog.write_checkpoint()
    assert len(forgot.glob(str(COPIES / "*.kept"))) == 1
    forgot.repository().forget(EventSelection(event_ids=(50,)), "asked for")
    flip(newest(forgot), 100)
    forgot.repair()
    assert forgot.answered() == {key: value for key, value in before.items() if key != 50}


def test_what_expired_in_a_lost_transaction_is_not_listed_again(finished: Sample) -> None:
    sample = finished
    path = expire(sample, 0)
    before = sample.answered()
    flip(newest(sample), 100)
    sample.repair()
    assert sample.answered() == before
    assert path not in sample.workspace().catalog.load().files


def test_what_expired_and_may_be_held_is_named_and_needs_accepting(finished: Sample) -> None:
    sample = finished
    sample.repository().hold("case", EventSelection(event_ids=(1,)), "kept", "legal")
    expire(sample, 0)
    before = sample.answered()
    flip(newest(sample), 100)
    [action] = sample.repair().actions
    assert (action.accept_loss, action.outcome) == (True, None)
    assert "the events 0 to " in action.reason
    assert "hold case" in action.reason
    sample.repair(accept_loss=True)
    assert set(sample.answered()) > set(before)


@pytest.mark.parametrize("damage", ["transactions are gone", "every object is damaged"])
def test_a_catalog_that_is_made_anew_hides_what_was_forgotten(forgot: Sample, damage: str) -> None:
    before = forgot.answered()
    if damage == "transactions are gone":
        shutil.rmtree(forgot.root / STORE / "transactions")
    else:
        for path in forgot.glob(str(STORE / "transactions/*/*")):
            flip(path, 60)
    done = CliRunner().invoke(cli, ["-r", str(forgot.root), "catalog", "rebuild", "--yes"])
    assert done.exit_code == 0, done.output + str(done.exception)
    forgot.finish()
    assert forgot.answered() == before


def test_a_rebuild_that_cannot_know_is_refused_until_it_is_accepted(forgot: Sample) -> None:
    shutil.rmtree(forgot.root / STORE / "transactions")
    shutil.rmtree(forgot.root / COPIES)
    command = ["-r", str(forgot.root), "catalog", "rebuild", "--yes"]
    refused = CliRunner().invoke(cli, command)
    assert "--accept-loss" in refused.output + str(refused.exception)
    assert not list(forgot.root.glob(str(STORE / "transactions*"))), "nothing was changed"
    assert CliRunner().invoke(cli, [*command, "--accept-loss"]).exit_code == 0


def test_erased_events_stay_hidden_when_an_old_log_is_listed_again(forgot: Sample) -> None:
    """The log that the compaction replaced still lies there, and covers the new one."""
    forgot.repository().forget(EventSelection(event_ids=(0,)), "the first one of a log")
    before = forgot.answered()
    forgot.repository().compact()
    assert forgot.answered() == before
    shutil.rmtree(forgot.root / STORE / "transactions")
    assert CliRunner().invoke(cli, ["-r", str(forgot.root), "catalog", "rebuild", "--yes"]).exit_code == 0
    forgot.finish()
    assert forgot.answered() == before


def test_copies_go_with_what_they_are_copies_of(forgot: Sample) -> None:
    before = forgot.answered()
    repository = forgot.repository()
    repository.compact()
    repository.forget(EventSelection(event_ids=(70,)), "asked for")
    repository.compact()
    catalog = forgot.workspace().catalog
    state = catalog.load()
    copies = SecondCopyStore(catalog.objects).read()
    assert set(state.tombstones) < set(copies.by_id), "what a user asked for stays"
    assert len(copies.by_id) == len(state.tombstones) + 2
    assert not forgot.damage()
    for number in range(4):
        repository.forget(EventSelection(event_ids=(1000 + number,)), "nothing")
        forgot.workspace().catalog.write_checkpoint()
    catalog = forgot.workspace().catalog
    assert prune(catalog, catalog.load().revision).floor > state.revision
    assert not forgot.damage()
    collect_garbage(catalog, ManualClock(NOW_MS + 3_600_000), older_than_ms=0)
    assert set(SecondCopyStore(catalog.objects).read().by_id) == set(catalog.load().tombstones)
    assert not forgot.damage()
    assert set(forgot.answered()) == set(before) - {70}


@pytest.mark.parametrize("change", [lambda path: flip(path, 30), Path.unlink])
def test_the_file_that_says_since_when_copies_are_kept_is_mended(
    forgot: Sample, change: Callable[[Path], None]
) -> None:
    change(forgot.root / COPIES / "since")
    forgot.repair()
    forgot.workspace().catalog.write_checkpoint()
    assert not forgot.damage()
    assert SecondCopyStore(forgot.workspace().catalog.objects).read().since is not None
