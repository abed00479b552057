"""The processes of a flow are killed and stopped: each FlowFile ends once, contents can be read, events agree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from custody.maintenance.findings import damages
from custody.maintenance.verification import verify_repository
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.behaviour.flow_processes import drain, judge, run_flow

SETTINGS = """
[repository]
writer_slots = 6
[flowfiles]
checkpoint_seconds = 1.5
"""


@pytest.mark.in_parts(4)
@pytest.mark.parametrize("kills", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_each_flowfile_of_a_killed_flow_ends_once(tmp_path: Path, kills: int) -> None:
    root, ledger = tmp_path / "repository", tmp_path / "ledger"
    Repository.create(root)
    (root / "custody.toml").write_text(SETTINGS)
    ledger.mkdir()
    struck = run_flow(root, ledger, kills, seed=1)
    drain(root, ledger)
    made = judge(root, ledger)
    assert made > kills
    repository = Repository.open(root)
    checked = verify_repository(repository.workspaces(), repository.settings, PosixFileSystem())
    assert not damages(checked.findings)
    print(json.dumps({"flowfiles": made, **struck}))  # noqa: T201 - the figures of the run
