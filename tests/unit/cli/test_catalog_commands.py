"""The commands of the catalog, verify and attest: JSON, exit codes, and nothing changed without --yes."""

from __future__ import annotations

import json
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from custody.cli.main import cli
from custody.lease import Attempt
from custody.repository import Repository
from custody.workspace import rollover_lease
from tests.support import files_below, flipped

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "v1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with two revisions, a checkpoint and a group that waits."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "repository"))


def run(root: Path, *arguments: object) -> Result:
    result = CliRunner().invoke(cli, ["--repository", str(root), *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def document(root: Path, *arguments: object, code: int = 0) -> Any:
    result = run(root, *arguments, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def transactions(root: Path, suffix: str = "txn") -> list[Path]:
    return sorted((root / "store/main/provenance/transactions").glob(f"*/*.{suffix}"))


def test_looking_prints_the_same_for_people_and_machines(root: Path) -> None:
    before = files_below(root)
    assert [row["revision"] for row in document(root, "catalog", "log")] == [0, 1]
    assert [row["revision"] for row in document(root, "catalog", "log", "--from", "1")] == [1]
    shown = document(root, "catalog", "show")
    assert (shown["revision"], len(shown["files"]), len(shown["shards"])) == (1, 2, 2)
    assert document(root, "catalog", "at", "newest") == shown
    earlier = document(root, "catalog", "at", "0", "--check")
    assert [file["path"] for file in earlier["files"]] == [shown["files"][0]["path"]]
    assert document(root, "catalog", "at", "2026-03-01T23:00:00") == earlier
    changed = document(root, "catalog", "diff", "0")
    assert ([file["path"] for file in changed["added"]], changed["removed"]) == ([shown["files"][1]["path"]], [])
    for command in (("show",), ("log",), ("at", "0"), ("diff", "0")):
        result = run(root, "catalog", *command)
        assert result.exit_code == 0
        assert ".parquet" in result.output or command == ("log",)
    assert files_below(root) == before


def test_a_dump_shows_damaged_objects_too(root: Path) -> None:
    transactions(root)[0].write_bytes(b"broken")
    entries = [json.loads(line) for line in run(root, "catalog", "dump").stdout.splitlines()]
    assert [entry["revision"] for entry in entries] == [0, 1, 1]
    assert "expected a catalog object" in entries[0]["error"]
    assert entries[1]["message"]["encoding"] == "FULL"
    [one] = [json.loads(line) for line in run(root, "catalog", "dump", "0").stdout.splitlines()]
    assert one == entries[0]


def test_a_revision_that_is_none_is_refused(root: Path) -> None:
    assert run(root, "catalog", "at", "yesterday").exit_code == 11
    assert run(root, "catalog", "at", "7").exit_code == 12
    assert run(root, "catalog", "at", "1990-01-01").exit_code == 12
    assert run(root, "catalog", "gc", "--dry-run", "--older-than", "soon").exit_code == 2


@pytest.mark.parametrize(
    "command", [("prune", "--before", "1"), ("gc",), ("repair",), ("rebuild",)], ids=lambda c: c[0]
)
def test_what_changes_history_asks_first(root: Path, command: tuple[str, ...]) -> None:
    before = files_below(root)
    # Nobody is asked where there is nothing to do.
    assert run(root, "catalog", *command).exit_code == (2 if command == ("rebuild",) else 0)
    assert run(root, "catalog", *command, "--yes", "--dry-run").exit_code == 2
    assert document(root, "catalog", *command, "--dry-run") is not None
    assert run(root, "catalog", *command, "--dry-run").exit_code == 0
    assert files_below(root) == before


def test_checkpoints_prune_and_garbage_from_the_command_line(root: Path) -> None:
    assert document(root, "catalog", "checkpoint", "--if-due") == {"written": False}
    assert document(root, "catalog", "checkpoint")["written"] is True
    plan = document(root, "catalog", "prune", "--before", "1", "--yes")
    assert (plan["earliest_revision"], plan["objects"]) == (0, [])
    assert "kept" in plan["reason"]
    events = root / "store/main/provenance/data/2026-03-01/events"
    stray, ahead = (events / f"{first:020d}.parquet" for first in (1, 99))
    for path in (stray, ahead):
        path.write_bytes(b"leftover")
    report = document(root, "catalog", "gc", "--older-than", "0ms", "--yes")
    assert report["moved"] == [f"data/2026-03-01/events/{stray.name}"]
    assert report["ahead"] == [f"data/2026-03-01/events/{ahead.name}"]
    assert (stray.exists(), ahead.exists()) == (False, True)
    report = document(root, "catalog", "gc", "--keep-trash", "0ms", "--yes")
    assert (report["moved"], len(report["deleted"])) == ([], 1)
    assert document(root, "verify")[0]["defects"] == []


def test_verify_names_file_and_place_of_a_damaged_block(root: Path) -> None:
    log = root / "store/main/provenance/data/2026-03-02/events/00000000000000000003.parquet"
    good = log.read_bytes()
    log.write_bytes(flipped(good, 8 * good.index(b"6f1c2d3e")))
    [report] = document(root, "verify", code=20)
    assert [(Path(defect["file"]), defect["offset"]) for defect in report["defects"]] == [(log, 4)]
    assert report["defects"][0]["message"].startswith(f"{log} @4: block 0 is damaged")
    assert (report["defects"][0]["first_event_id"], report["defects"][0]["events"]) == (3, 2)
    assert "log-damaged" in run(root, "verify").stdout
    assert document(root, "catalog", "verify")[0]["defects"] == []  # the chain itself is whole
    log.unlink()
    [report] = document(root, "verify", code=20)
    assert "there is no such object" in report["defects"][0]["message"]


def test_a_changed_table_of_contents_and_a_changed_footer_are_found(root: Path) -> None:
    toc = root / "store/main/provenance/data/2026-03-02/events/00000000000000000003.toc"
    toc.write_bytes(flipped(toc.read_bytes(), 100))
    log = root / "store/main/provenance/data/2026-03-01/events/00000000000000000000.parquet"
    log.write_bytes(log.read_bytes()[:-1])
    [report] = document(root, "verify", code=20)
    assert {Path(defect["file"]) for defect in report["defects"]} == {toc, log}


def test_an_attestation_shows_later_that_nothing_was_taken_away(root: Path, tmp_path: Path) -> None:
    key, head = tmp_path / "auditor.pem", tmp_path / "head.json"
    result = run(root, "attest", "--new-key", key)
    public = json.loads(result.stdout)["public_key"]
    assert public in result.stderr
    head.write_text(result.stdout)
    assert document(root, "verify", "--against", head, "--key", public)[0]["attested_revision"] == 1
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert run(root, "attest", "--new-key", key).exit_code == 11  # a key is never overwritten
    assert run(root, "attest").exit_code == 2
    assert run(root, "attest", "--new-key", tmp_path / "a", "--key", key).exit_code == 2
    assert run(root, "attest", "--key", key, "--out", head).exit_code == 0
    [report] = document(root, "verify", "--against", head, "--key", public)
    assert (report["attested_revision"], report["defects"], len(report["proven"])) == (1, [], 1)
    assert run(root, "verify", "--against", head, "--key", "00" * 32).exit_code == 20
    for path in transactions(root)[1].parent.iterdir():
        path.unlink()
    (root / "store/main/provenance/transactions/newest-checkpoint").unlink()
    assert document(root, "catalog", "verify")[0]["defects"] == []
    [report] = document(root, "verify", "--against", head, code=20)
    assert "revision 1 was attested, the newest is 0" in report["defects"][0]["message"]
    assert report["proven"] == []


def test_where_nothing_can_be_attested_no_key_is_made(tmp_path: Path) -> None:
    assert run(tmp_path, "init", tmp_path / "new").exit_code == 0
    assert run(tmp_path / "new", "attest", "--new-key", tmp_path / "key.pem").exit_code == 15
    assert not (tmp_path / "key.pem").exists()


def test_a_repository_goes_on_after_its_catalog_was_lost_and_rebuilt(root: Path) -> None:
    before = json.loads(run(root, "search", "*", "--json").stdout.splitlines()[0])
    shutil.rmtree(root / "store/main/provenance/transactions")
    refused = run(root, "catalog", "rebuild", "--yes")
    assert (refused.exit_code, "--accept-loss" in refused.output) == (15, True), (
        "no copy of what was forgotten is there"
    )
    report = document(root, "catalog", "rebuild", "--yes", "--accept-loss")
    assert (report["files"], report["events"], report["skipped"], report["set_aside"]) == (2, 5, [], "")
    assert any("removals" in text for text in report["lost"])
    assert json.loads(run(root, "search", "*", "--json").stdout.splitlines()[0]) == before
    assert document(root, "verify")[0]["defects"] == []


def test_a_damaged_catalog_is_repaired_from_what_can_be_read(root: Path) -> None:
    # Its journals and its staged unit are swept; else the pipeline would publish the log again.
    (root / "containers/1/main/journals/00000000000000000003.0.sealed").unlink()
    shutil.rmtree(root / "store/main/provenance/staging/00000000000000000003")
    for path in transactions(root, "ckpt"):
        path.unlink()
    transactions(root)[1].write_bytes(b"broken")
    assert run(root, "catalog", "show").exit_code == 20
    plan = document(root, "catalog", "repair", "--dry-run", code=20)
    assert (plan["lost_revisions"], len(plan["files_from_footers"]), plan["done"]) == ([1], 1, False)
    assert run(root, "catalog", "repair", "--yes").exit_code == 15, "no copy of what was forgotten is there"
    assert "the revisions 1 forgot" in plan["may_give_out_more"][0]
    assert document(root, "catalog", "repair", "--yes", "--accept-loss", code=20)["done"] is True
    shown = document(root, "catalog", "show")
    assert (len(shown["files"]), len(shown["shards"])) == (2, 2)
    assert document(root, "verify")[0]["defects"] == []


@pytest.mark.parametrize(
    "command", [("rebuild", "--yes", "--accept-loss"), ("wipe", "--yes", "--confirm", "main/provenance")]
)
def test_nobody_takes_a_catalog_away_from_a_writer_or_a_step_at_work(root: Path, command: tuple[str, ...]) -> None:
    shutil.rmtree(root / "containers/1/main/journals")  # an open journal would be sealed by the writer
    repository = Repository.open(root)
    with repository.writer():
        before = files_below(root / "store")  # with the witness that a writer leaves at its start
        refused = run(root, "catalog", *command)
    assert (refused.exit_code, "held" in refused.output) == (14, True), refused.output
    with rollover_lease(repository.workspace(), Attempt.new("test")):
        assert run(root, "catalog", *command).exit_code == 14
    after = {name: data for name, data in files_below(root / "store").items() if "/leases/" not in name}
    assert after == {name: data for name, data in before.items() if "/leases/" not in name}
    assert run(root, "catalog", *command).exit_code == 0


def test_a_wipe_says_what_goes_and_needs_the_name_of_the_catalog(root: Path) -> None:
    before = files_below(root / "store/main/provenance/transactions")
    said = document(root, "catalog", "wipe", "--dry-run")
    assert (said["catalog"], said["files"], said["events"], said["done"]) == ("main/provenance", 2, 5, False)
    assert run(root, "catalog", "wipe", "--yes").exit_code == 2
    assert run(root, "catalog", "wipe", "--confirm", "main/provenance").exit_code == 2
    assert run(root, "catalog", "wipe", "--yes", "--confirm", "main/other").exit_code == 13
    assert files_below(root / "store/main/provenance/transactions") == before
    assert document(root, "catalog", "wipe", "--yes", "--confirm", "main/provenance")["done"] is True
    assert not list((root / "store/main/provenance/transactions").rglob("*.txn"))
    assert len(list((root / "store/main/provenance/data").rglob("*.parquet"))) == 2, "the logs stay"


def test_a_dump_tells_the_length_of_footers_unless_it_is_asked_for_them(root: Path) -> None:
    short, whole = run(root, "catalog", "dump").stdout, run(root, "catalog", "dump", "--footers").stdout
    assert len(short) < len(whole) / 2
    objects = [json.loads(line) for line in short.splitlines()]
    actions = [action for item in objects for action in item["message"].get("actions", [])]
    files = [action["add_file"] for action in actions if "add_file" in action]
    files += [file for item in objects for file in item["message"].get("live_files", [])]
    assert [file["footer"].endswith(" bytes") for file in files if "footer" in file] == [True, True]


def test_a_checkpoint_of_an_earlier_revision_is_written_and_named(root: Path) -> None:
    written = document(root, "catalog", "checkpoint", "--revision", "0")
    assert written["written"]
    assert Path(written["path"]).is_file()
    assert "/00000000000000000000/" in written["path"]
    assert run(root, "catalog", "checkpoint", "--revision", "9").exit_code == 12
    assert run(root, "catalog", "checkpoint", "--revision", "0", "--if-due").exit_code == 2
    assert run(root, "catalog", "verify").exit_code == 0
