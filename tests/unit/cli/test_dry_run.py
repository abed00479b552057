"""`--dry-run` of the commands of the daily work: they say what they would do, and no file of the repository changes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from custody.capture import event_to_json
from custody.cli.main import cli
from custody.errors import CorruptionError
from custody.recovery import STEPS
from custody.repository import Repository
from tests.support import event, flipped, run_steps, sample, write_samples

COUNTS = ("read", "repeated", "retold", "rejected", "warned")


def tree(root: Path) -> dict[str, tuple[bytes, int, int]]:
    """Every file and folder with its bytes, its mode and the time when it was last changed."""
    return {
        str(path.relative_to(root)): (
            path.read_bytes() if path.is_file() else b"",
            path.stat().st_mode,
            path.stat().st_mtime_ns,
        )
        for path in (root, *sorted(root.rglob("*")))
    }


def run(root: Path, *arguments: object) -> Result:
    result = CliRunner().invoke(cli, ["-r", str(root), *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(params=["new", "waiting", "half_live", "live"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A repository at each stage of its events; the test changes none of its files."""
    copy = tmp_path / "repository"
    if request.param == "new":
        Repository.create(copy)
    else:
        shutil.copytree(request.getfixturevalue(request.param).settings.root, copy)
    before = tree(copy)
    yield copy
    assert tree(copy) == before


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Files that are good, bad in part, the first one again, no events, and gzip that is none."""
    folder = tmp_path / "landing"
    folder.mkdir()
    first, second = write_samples(folder, 300, nodes=2, seed=11)
    partly = folder / "partly.json"
    good = json.dumps(event_to_json(sample(1, seed=12)[0]))
    partly.write_text(f'[{good}, {{"eventId": 1}}, 7]')
    again, html, damaged = folder / "z-again.json", folder / "z-html.json", folder / "z-damaged.gz"
    again.write_bytes(first.read_bytes())
    html.write_bytes(b"<html>")
    damaged.write_bytes(b"\x1f\x8b\x08\0damaged")
    return [first, second, partly, again, html, damaged]


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("options", [(), ("--json",)], ids=" ".join)
@pytest.mark.parametrize("step", ["all", *STEPS, "compact", "rebuild", "scrub", "ngsi_to_hdfs"])
def test_run_shows_what_waits_and_changes_nothing(root: Path, step: str, options: tuple[str, ...]) -> None:
    result = run(root, "run", step, "--dry-run", *options)
    assert result.exit_code == 0, result.output
    if not options:
        assert "nothing is changed with --dry-run" in result.stdout
        return
    plans = [json.loads(line) for line in result.stdout.splitlines()]
    assert [plan["step"] for plan in plans] == (list(STEPS) if step == "all" else [step])
    settings = Repository.open(root).settings
    for plan in plans:
        if plan["step"] in STEPS:
            assert plan["units"] == [str(unit) for unit in STEPS[plan["step"]].units(settings)]


def test_run_names_the_units_that_wait(waiting: Repository) -> None:
    [plan] = [json.loads(run(waiting.settings.root, "run", "rollover", "--dry-run", "--json").stdout)]
    assert plan == {"step": "rollover", "units": ["main/0"]}
    assert "main/0" in run(waiting.settings.root, "run", "all", "--dry-run").stdout


@pytest.mark.parametrize("options", [(), ("--all",), ("--bytes", "1")], ids=" ".join)
def test_scrub_shows_the_pieces_that_it_then_reads(root: Path, options: tuple[str, ...], tmp_path: Path) -> None:
    due = json.loads(run(root, "scrub", "--dry-run", "--json", *options).stdout)
    assert due["bytes"] == sum(piece["bytes"] for piece in due["pieces"])
    shown = run(root, "scrub", "--dry-run", *options).stdout
    assert f"{len(due['pieces'])} pieces" in shown
    assert all(piece["kind"] in shown for piece in due["pieces"])
    shutil.copytree(root, tmp_path / "copy")
    [current, *former] = json.loads(run(tmp_path / "copy", "scrub", "--json", *options).stdout)["rounds"]
    read = former[0] if due["is_last"] else current
    assert (read["number"], read["pieces"], read["bytes"]) == (due["round"], len(due["pieces"]), due["bytes"])


@pytest.mark.parametrize("format", ["auto", "nifi"])
def test_ingest_says_of_each_file_what_it_then_does(root: Path, files: list[Path], format: str, tmp_path: Path) -> None:
    result = run(root, "ingest", "--dry-run", "--json", "--format", format, *files)
    assert result.exit_code == 1
    previews: list[dict[str, Any]] = json.loads(result.stdout)
    assert "[quarantine" not in result.stderr
    assert "landing" in result.stderr
    shutil.copytree(root, tmp_path / "copy")
    reports = json.loads(run(tmp_path / "copy", "ingest", "--json", "--format", format, *files).stdout)
    for path, preview, report in zip(files, previews, reports, strict=True):
        assert preview["bytes"] == path.stat().st_size
        assert preview["to_store"] == report["stored"]
        assert {name: preview[name] for name in COUNTS} == {name: report[name] for name in COUNTS}
        assert preview["problems"] == [text.partition(" [quarantine ")[0] for text in report["problems"]]
    # Again, where all of it is stored: nothing is left to store, and the files say so.
    copied = run(tmp_path / "copy", "ingest", "--dry-run", *files)
    assert copied.stdout.count("stored already") >= 3
    again = json.loads(run(tmp_path / "copy", "ingest", "--dry-run", "--json", *files).stdout)
    assert {preview["to_store"] for preview in again} == {0}


def test_ingest_that_would_go_well_ends_with_0(root: Path, files: list[Path]) -> None:
    shown = run(root, "ingest", "--dry-run", *files[:2])
    assert shown.exit_code == 0
    assert "nothing is changed with --dry-run" in shown.stdout


def test_ingest_names_files_that_would_be_refused_as_a_whole(repository: Repository, files: list[Path]) -> None:
    root = repository.settings.root
    (root / "custody.toml").write_text("[capture]\nfile_bytes_max = 5000\nevent_bytes_max = 5000\n")
    before = tree(root)
    result = run(root, "ingest", "--dry-run", "--json", files[0], files[4])
    assert result.exit_code == 1
    large, html = json.loads(result.stdout)
    assert "expected at most 5000 bytes (capture.file_bytes_max)" in large["refusal"]
    assert html["refusal"] is None
    assert html["rejected"] == 1
    assert "would be refused" in run(root, "ingest", "--dry-run", files[0]).stdout
    assert tree(root) == before


def test_ingest_tells_contradictions_and_what_was_forgotten(repository: Repository, tmp_path: Path) -> None:
    root, path = repository.settings.root, tmp_path / "events.json"
    one, two = (event(number, source_node="n1", source_ordinal=number) for number in (1, 2))
    path.write_text(json.dumps([event_to_json(one), event_to_json(two)]))
    assert run(root, "ingest", path).exit_code == 0
    run_steps(repository.settings)
    assert run(root, "forget", "--event-id", "0", "--writer", "main", "--reason", "asked", "--yes").exit_code == 0
    other = event(2, source_node="n1", source_ordinal=2, event_type="DROP")
    path.write_text(json.dumps([event_to_json(one), event_to_json(other)]))
    before = tree(root)
    [preview] = json.loads(run(root, "ingest", "--dry-run", "--json", path).stdout)
    assert (preview["to_store"], preview["repeated"], preview["rejected"]) == (0, 1, 1)
    assert "different content" in preview["problems"][0]
    assert tree(root) == before


def test_ingest_tells_what_a_node_numbers_from_the_start_again_as_new(repository: Repository, tmp_path: Path) -> None:
    paths = []
    for life in range(3):
        events = [
            event(10 * life + number, source_node="n1", source_ordinal=number, flowfile_uuid=f"{life}-{number}")
            for number in range(10)
        ]
        paths.append(tmp_path / f"{life}.json")
        paths[-1].write_text(json.dumps(list(map(event_to_json, events))))
    root = repository.settings.root
    assert run(root, "ingest", paths[0]).exit_code == 0
    previews = json.loads(run(root, "ingest", "--dry-run", "--json", *paths, *paths).stdout)
    assert [preview["to_store"] for preview in previews] == [0, 10, 10, 0, 0, 0]
    assert [preview["repeated"] for preview in previews] == [10, 0, 0, 10, 10, 10]


def test_a_dry_run_beside_a_live_writer_sees_its_events_and_takes_no_lock(
    repository: Repository, files: list[Path]
) -> None:
    with repository.ingest() as work:
        work.file(files[0])
        before = tree(repository.settings.root)
        previews = json.loads(run(repository.settings.root, "ingest", "--dry-run", "--json", *files[:2]).stdout)
        assert [preview["to_store"] for preview in previews] == [0, previews[1]["read"]]
        for arguments in (("run", "all", "--dry-run"), ("scrub", "--dry-run")):
            assert run(repository.settings.root, *arguments).exit_code == 0
        assert tree(repository.settings.root) == before


def test_a_dry_run_of_a_damaged_repository_fails_as_the_command_does(live: Repository, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    shutil.copytree(live.settings.root, root)
    for path in sorted(root.rglob("*.txn")):
        path.write_bytes(flipped(path.read_bytes(), 100))
    before = tree(root)
    assert run(root, "run", "all", "--dry-run").exit_code == CorruptionError.exit_code
    assert tree(root) == before
