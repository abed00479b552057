"""Who can write to the store removes a whole writer, or begins it anew: the attestation of another one misses it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from custody.config import load_settings
from custody.repository import Repository
from tests.attacks.attacker import Attacker, attested, build, document, findings, run
from tests.support import append, event, run_steps


def named(root: Path, writer: str) -> Repository:
    settings = load_settings(root)
    section = settings.repository.model_copy(update={"writer": writer})
    return Repository(settings.model_copy(update={"repository": section}))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Ten events of writer `main` and ten of writer `edge`."""
    build(tmp_path / "repository", passes=1)
    edge = named(tmp_path / "repository", "edge")
    append(edge, [event(100 + number) for number in range(10)])
    run_steps(edge.settings)
    return tmp_path / "repository"


def remove(root: Path, writer: str, *, with_witnesses: bool = True) -> None:
    if with_witnesses:
        Attacker(root, writer).forget_witnesses()
    for folder in [*root.glob(f"containers/*/{writer}"), root / "store" / writer]:
        shutil.rmtree(folder)


def test_a_writer_that_is_gone_is_missed_by_who_has_seen_it(root: Path) -> None:
    """The repository's folder has, which the attacker has to reach too."""
    remove(root, "edge", with_witnesses=False)
    assert findings(root) == {"state-earlier"}
    assert any("edge" in notice for notice in Repository(load_settings(root)).search("").notices)


def test_a_writer_that_is_gone_is_missed_by_the_attestation_of_another_one(root: Path, tmp_path: Path) -> None:
    head, key = attested(root, tmp_path, writer="main")
    assert document(root, "verify", "--against", head, "--key", key)[0] == 0
    remove(root, "edge")
    assert Repository(load_settings(root)).search("").total == 10, "the attack works: no answer has them"
    code, [report] = document(root, "verify", "--against", head, "--key", key)
    assert (code, report["proven"]) == (20, [])
    assert "writer 'edge' is not the one that was there" in report["defects"][0]["message"]


def test_a_writer_that_was_begun_anew_under_its_name_is_missed_too(root: Path, tmp_path: Path) -> None:
    head, key = attested(root, tmp_path, writer="main")
    remove(root, "edge")
    edge = named(root, "edge")
    append(edge, [event(200)])
    run_steps(edge.settings)
    assert document(root, "verify", "--against", head, "--key", key)[0] == 20


def test_the_attestation_of_a_writer_that_is_gone_is_no_success(root: Path, tmp_path: Path) -> None:
    head, key = attested(root, tmp_path, writer="edge")
    remove(root, "edge")
    result = run(root, "verify", "--against", head, "--key", key)
    assert result.exit_code == 12, result.output
