"""Who can write to the store removes or forges the second copies of what was forgotten, and the table of statistics."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow.compute as pc
import pytest

from custody.catalog.statistics import read_statistics, write_statistics
from custody.repository import EventSelection
from tests.attacks.attacker import Attacker, build, document, findings


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Ten events, one of them forgotten, and a checkpoint."""
    repository = build(tmp_path / "repository", passes=1)
    repository.forget(EventSelection(event_ids=(4,)), "asked for")
    repository.workspace().catalog.write_checkpoint()
    return tmp_path / "repository"


def test_copies_that_are_gone_with_what_says_that_there_are_some_are_missed(root: Path) -> None:
    """Without them a catalog that is lost as well would give the forgotten event out again."""
    assert findings(root) == set()
    shutil.rmtree(Attacker(root).home / "forgotten")
    assert findings(root) == {"forgotten-missing"}


def test_a_copy_that_nobody_told_is_named(root: Path) -> None:
    """A repair would take it over, and hide what it means."""
    folder = Attacker(root).home / "forgotten"
    [copy] = folder.glob("*.kept")
    shutil.copy(copy, folder / f"{'0' * 32}.kept")
    assert findings(root) != set()


def test_a_table_of_statistics_that_says_something_else_is_named(root: Path) -> None:
    """Other engines choose files by it; custody's own answers do not depend on it."""
    catalog = Attacker(root).catalog
    state = catalog.load()
    table = read_statistics(catalog.objects, state)
    assert table is not None
    place = table.column_names.index("rows")
    write_statistics(catalog.objects, state, table.set_column(place, "rows", pc.subtract(table.column("rows"), 1)))
    _, [report, *_] = document(root, "verify")
    assert any("says of files what the checkpoint does not say" in text for text in report["notices"])
