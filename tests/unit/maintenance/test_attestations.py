"""What kept attestations prove: of the catalog as it is, of one that lost its end, and of files that are none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from custody.catalog.attest import attest, new_key
from custody.cli.main import cli
from custody.clock import ManualClock
from custody.config import SETTINGS_FILE
from custody.errors import NotFoundError
from custody.repository import Repository
from tests.support import append, run_steps, sample


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Two revisions, each attested into the folder of the settings."""
    root = tmp_path / "repository"
    made = Repository.create(root)
    (root / SETTINGS_FILE).write_text('[catalog]\nattestations = "attested"\n')
    (root / "attested").mkdir()
    key = new_key()
    for number in range(2):
        append(made, sample(10, seed=number))
        run_steps(made.settings)
        signed = attest(made.workspace().catalog, key, ManualClock(1_772_000_000_000 + number))
        (root / "attested" / f"{number}.json").write_bytes(msgspec.json.encode(signed))
    return Repository.open(root)


def states(repository: Repository) -> dict[str, str]:
    return {one.file: one.state for one in Repository.open(repository.settings.root).attestations()}


def test_each_proves_its_revision_the_newest_first(repository: Repository) -> None:
    kept = repository.attestations()
    assert [(one.file, one.state, one.writer) for one in kept] == [
        ("1.json", "proven", "main"),
        ("0.json", "proven", "main"),
    ]
    assert kept[0].revision is not None
    assert kept[1].revision is not None
    assert kept[0].revision > kept[1].revision
    assert "is the attested one" in kept[0].said[0]


def test_a_catalog_that_lost_its_newest_transactions_is_contradicted(repository: Repository) -> None:
    catalog = repository.workspace().catalog
    folder = Path(str(catalog.objects))
    newest = repository.attestations()[0].revision
    assert newest is not None
    first = repository.attestations()[1].revision
    assert first is not None
    for revision in range(first + 1, newest + 1):
        shutil.rmtree(folder / f"{revision:020d}")
    assert states(repository) == {"1.json": "contradicted", "0.json": "proven"}


def test_files_that_prove_nothing_are_named(repository: Repository) -> None:
    folder = repository.settings.root / "attested"
    whole = json.loads((folder / "1.json").read_text())
    (folder / "changed.json").write_text(json.dumps(whole | {"revision": 0}))
    (folder / "none.json").write_text("{}")
    (folder / "cut.json").write_bytes((folder / "1.json").read_bytes()[:50])
    (folder / "notes.txt").write_text("no attestation, and not looked at")
    found = {one.file: one for one in repository.attestations()}
    assert {name: one.state for name, one in found.items()} == {
        "1.json": "proven",
        "0.json": "proven",
        **dict.fromkeys(("changed.json", "none.json", "cut.json"), "unreadable"),
    }
    assert "its signature is wrong" in found["changed.json"].said[0]


def test_one_of_another_repository_is_told_apart(repository: Repository, tmp_path: Path) -> None:
    other = Repository.create(tmp_path / "other")
    (tmp_path / "other" / SETTINGS_FILE).write_text(
        f'[repository]\nwriter = "edge"\n[catalog]\nattestations = "{repository.settings.root / "attested"}"\n'
    )
    append(Repository.open(other.settings.root), sample(3))
    assert set(states(other).values()) == {"elsewhere"}
    same_name = Repository.create(tmp_path / "same")
    append(same_name, sample(3))
    run_steps(same_name.settings)
    (tmp_path / "same" / SETTINGS_FILE).write_text(
        f'[catalog]\nattestations = "{repository.settings.root / "attested"}"\n'
    )
    assert set(states(same_name).values()) == {"contradicted"}


def test_the_command_prints_them_and_a_folder_that_is_away_is_an_error(repository: Repository) -> None:
    root = repository.settings.root
    done = CliRunner().invoke(cli, ["-r", str(root), "catalog", "attestations", "--json"])
    assert done.exit_code == 0, done.output
    assert [one["state"] for one in json.loads(done.stdout)] == ["proven", "proven"]
    assert "proven" in CliRunner().invoke(cli, ["-r", str(root), "catalog", "attestations"]).stdout
    (root / "attested").rename(root / "away")
    with pytest.raises(NotFoundError, match="Mount it"):
        repository.attestations()
    (root / SETTINGS_FILE).write_text("")
    assert "no attestations" in CliRunner().invoke(cli, ["-r", str(root), "catalog", "attestations"]).stdout
