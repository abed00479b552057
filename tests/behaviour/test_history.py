"""Limits on the history of a catalog: what they let go, and what holds and attestations keep."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from custody.catalog import PrunedError
from custody.catalog.attest import attest, new_key
from custody.cli.main import cli
from custody.config import Settings
from custody.errors import InvalidInputError, NotFoundError
from custody.maintenance import compact
from custody.repository import EventSelection, Repository
from custody.retention import RETENTION_STEPS
from custody.retention.history import plan_history
from tests.behaviour.retained import DAY_MS, START_MS, ids, on_day, repository_at, store


def limited(root: Path, days: float, **catalog: Any) -> Repository:
    """The repository in a folder, so many days after event 0, with limits on its history."""
    before = repository_at(root, days)
    values = {"root": root, "retention": {"grace": "0 seconds"}, "catalog": {"checkpoint_every": 1, **catalog}}
    return Repository(Settings.model_validate(values), before._fs, before._clock)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten logs, one each day, with a checkpoint after each of them."""
    folder = tmp_path_factory.mktemp("history") / "repository"
    for day in range(10):
        opened = limited(folder, day)
        store(opened, [on_day(day * 2 + number, day) for number in range(2)])
        opened.workspace().catalog.write_checkpoint()
    return folder


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    """A copy for one test."""
    return shutil.copytree(original, tmp_path / "repository")


def test_without_a_limit_nothing_is_forgotten(root: Path) -> None:
    opened = limited(root, 4000)
    opened.apply_retention()
    assert opened.workspace().catalog.at(0).revision == 0
    assert RETENTION_STEPS["retention_history"].units(opened.settings) == []


def test_each_limit_moves_the_earliest_revision_and_the_rest_stays_readable(root: Path) -> None:
    newest = limited(root, 10).workspace().catalog.load().revision
    committed = {each.revision: each.commit_time_ms for each in limited(root, 10).timeline()}
    for limit in ({"history_revisions_max": 6}, {"history_age_max": "4 days"}):
        plan = plan_history(limited(root, 10, **limit).workspace())
        assert 0 < plan.floor < newest
        assert plan.bytes_after < plan.bytes_before
        assert (plan.why, plan.limited_by) == (next(iter(limit)).split("_")[1], ())
    # Any moment of the last four days can be asked for.
    assert committed[plan.floor] <= START_MS + 6 * DAY_MS < committed[plan.floor + 2]
    opened = limited(root, 10, history_age_max="4 days")
    seen = {revision: sorted(opened.workspace().catalog.at(revision).files) for revision in range(plan.floor, newest)}
    done = opened.apply_retention()
    [report] = done.steps["retention_history"]
    assert f"{plan.floor} now (age)" in (report.note or "")
    after = Repository(opened.settings, opened._fs, opened._clock)
    with pytest.raises(PrunedError):
        after.workspace().catalog.at(plan.floor - 1)
    assert {revision: sorted(after.workspace().catalog.at(revision).files) for revision in seen} == seen
    assert ids(after) == list(range(20))
    kept = {int(path.name) for path in (root / "store/main/provenance/transactions").iterdir() if path.is_dir()}
    assert min(kept) == plan.floor, "what lies below is deleted"
    assert after.plan_retention().is_empty


def test_a_limit_on_bytes_keeps_the_newest_revisions_that_fit(root: Path) -> None:
    whole = plan_history(limited(root, 10).workspace()).bytes_before
    limit = max(whole // 2, 1 << 16)
    plan = plan_history(limited(root, 10, history_bytes_max=limit).workspace())
    assert plan.why == "bytes"
    assert plan.bytes_after <= limit < whole


def test_an_attestation_in_the_folder_keeps_its_revision_provable(root: Path) -> None:
    opened = limited(root, 10, history_revisions_max=2, attestations="audit")
    with pytest.raises(NotFoundError, match=r"audit: expected a folder"):
        opened.apply_retention()
    audit = root / "audit"
    audit.mkdir()
    catalog = opened.workspace().catalog
    newest = catalog.load().revision
    signed = attest(catalog, new_key(), opened._clock)
    # As if it had been signed when revision 4 was the newest: its signature is checked, so it is made with a key.
    earlier = limited(root, 10).workspace().catalog
    state = earlier.at(4)
    earlier.settle = lambda: state  # type: ignore[method-assign]
    for name, each in (("late.json", signed), ("early.json", attest(earlier, new_key(), opened._clock))):
        (audit / name).write_bytes(msgspec.json.encode(each))
    plan = plan_history(opened.workspace())
    assert plan.floor <= 4 < newest - 2
    assert "attestation in" in plan.limited_by[0]
    assert "revision 4" in plan.limited_by[0]
    opened.apply_retention()
    assert opened.workspace().catalog.at(4).digest == state.digest
    (audit / "early.json").rename(root / "moved.json")
    assert plan_history(opened.workspace()).floor > 4
    (audit / "broken.json").write_text("{")
    with pytest.raises(InvalidInputError, match=r"broken\.json"):
        opened.apply_retention()


def test_a_hold_keeps_the_last_revision_that_lists_events_erased_before_it(root: Path) -> None:
    opened = limited(root, 11, history_revisions_max=1)
    opened.forget(EventSelection(event_ids=(4,)), "asked for")
    assert sum(report.erased for report in compact(opened.workspace())) == 1
    catalog = opened.workspace().catalog
    erased_at = catalog.load().revision
    while 4 not in _stored(opened, erased_at):
        erased_at -= 1
    opened.hold("case", EventSelection(event_ids=(4,)), "court order", "legal")
    for _ in range(3):
        store(opened, [on_day(100, 11)])
        opened.workspace().catalog.write_checkpoint()
    plan = plan_history(opened.workspace())
    assert plan.floor <= erased_at
    assert any("hold 'case' covers events" in reason for reason in plan.limited_by)
    opened.apply_retention()
    assert 4 in _stored(opened, erased_at)
    opened.release("case", "case closed", "legal")
    assert plan_history(opened.workspace()).floor > erased_at


def _stored(opened: Repository, revision: int) -> set[int]:
    """The ids in the files of a revision, forgotten ones included."""
    import pyarrow.parquet as pq

    home = opened.workspace().paths.home
    files = opened.workspace().catalog.at(revision).files
    return {value for path in files for value in pq.read_table(home / path, columns=["event_id"])[0].to_pylist()}


def test_the_command_shows_what_the_limits_do_and_does_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = CliRunner()
    refused = runner.invoke(cli, ["-r", str(root), "catalog", "prune", "--dry-run"])
    assert refused.exit_code == 2
    assert "history_age_max" in refused.output
    monkeypatch.setenv("CUSTODY__CATALOG__HISTORY_REVISIONS_MAX", "4")
    shown = json.loads(runner.invoke(cli, ["-r", str(root), "catalog", "prune", "--dry-run", "--json"]).stdout)
    assert shown["earliest_revision"] > 0
    assert shown["objects"]
    assert not shown["done"]
    planned = runner.invoke(cli, ["-r", str(root), "retention", "plan"])
    assert "earliest revision" in planned.stdout
    assert "revisions" in planned.stdout
    assert limited(root, 10).workspace().catalog.at(0).revision == 0, "nothing was changed so far"
    done = json.loads(runner.invoke(cli, ["-r", str(root), "catalog", "prune", "--yes", "--json"]).stdout)
    assert done == shown | {"done": True}
    with pytest.raises(PrunedError):
        limited(root, 10).workspace().catalog.at(0)
