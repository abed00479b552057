"""A catalog's state as text: dumped, edited by hand, loaded as one transaction, or refused with line and reason."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner, Result

from custody.catalog import rebuild, scan_logs, verify
from custody.catalog.dump_and_load import dump_state, load, plan_load
from custody.cli.main import cli
from custody.clock import ManualClock
from custody.errors import ConflictError, CorruptionError, InvalidInputError
from custody.format.names import attempt_suffix
from custody.repository import EventSelection, Repository
from tests.support import append, event, run_steps

Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three logs, a hold on ids of the first one, two tombstones."""
    root = tmp_path_factory.mktemp("dump") / "repository"
    opened = Repository.create(root)
    for log in range(3):
        append(opened, [event(10 * log + number) for number in range(4)])
        run_steps(opened.settings)
    opened.hold("case", EventSelection(event_ids=(0,)), "court order", "legal")
    opened.forget(EventSelection(event_ids=(9,)), "asked for")
    opened.forget(EventSelection(event_ids=(10,)), "asked for, too")
    return root


@pytest.fixture
def root(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "repository")


def dumped(root: Path) -> Lines:
    result = run(root, "dump", "--state")
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def run(root: Path, *arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["-r", str(root), "catalog", *arguments], input=text)


def planned(root: Path, lines: Lines) -> Any:
    return plan_load(Repository.open(root).workspace().catalog, [json.dumps(line) for line in lines], "edited")


def ids(root: Path) -> list[int]:
    return [item.event_id for item in Repository.open(root).events()]


def only(lines: Lines, kind: str) -> list[int]:
    return [number for number, line in enumerate(lines) if kind in line]


@pytest.mark.parametrize("footers", [(), ("--footers",)])
def test_a_dump_that_nobody_edited_changes_nothing(root: Path, footers: tuple[str, ...]) -> None:
    text = run(root, "dump", "--state", *footers).stdout
    before = Repository.open(root).workspace().catalog.load()
    shown = json.loads(run(root, "load", "-", "--yes", "--json", text=text).stdout)
    assert shown == {"changes": [], "revision": None}
    assert Repository.open(root).workspace().catalog.load() == before
    assert len(only([json.loads(line) for line in text.splitlines()], "add_file")) == 3


def test_an_edited_dump_becomes_one_transaction(root: Path) -> None:
    lines = dumped(root)
    last_file = only(lines, "add_file")[-1]
    shard = next(
        n
        for n in only(lines, "add_shard")
        if lines[n]["add_shard"]["log_paths"] == [lines[last_file]["add_file"]["path"]]
    )
    tombstone = next(n for n in only(lines, "add_tombstone") if lines[n]["add_tombstone"]["reason"] == "asked for, too")
    edited = [line for number, line in enumerate(lines) if number not in (last_file, shard, tombstone)]
    edited.append({"add_hold": {"name": "by-hand", "condition": {"event_ids": ["5"]}, "reason": "edited", "who": "me"}})
    before = Repository.open(root).workspace().catalog.load()
    file = root / "edited.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in edited))
    tried = run(root, "load", str(file), "--dry-run", "--json")
    assert tried.exit_code == 0, (tried.output, tried.exception)
    shown = json.loads(tried.stdout)
    assert [(each["change"], each["kind"]) for each in shown["changes"]] == [
        ("removed", "add_file"),
        ("removed", "add_shard"),
        ("removed", "add_tombstone"),
        ("added", "add_hold"),
    ]
    assert shown["changes"][0]["effect"] == "4 events are in no answer any more"
    assert "given out again" in shown["changes"][2]["effect"]
    assert shown["changes"][3]["line"] == len(edited)
    assert Repository.open(root).workspace().catalog.load().revision == before.revision, "a dry run writes nothing"
    done = run(root, "load", str(file), "--yes", "--reason", "case 17")
    assert done.exit_code == 0, done.output
    after = Repository.open(root).workspace().catalog
    assert after.load().revision == before.revision + 1
    assert sorted(after.load().holds) == ["by-hand", "case"]
    assert ids(root) == [0, 1, 2, 3, 4, 5, 6, 7]
    *_, last = after.timeline()
    assert last.actions[0].note.text == "catalog load: case 17"
    assert verify(after, files=False).defects == []
    # The dump of the new state is the edited one, with the new revision.
    assert sorted(map(json.dumps, dumped(root)[1:])) == sorted(map(json.dumps, edited[1:]))


def test_a_log_comes_back_with_what_the_catalog_knew_of_it(root: Path) -> None:
    lines = dumped(root)
    number = only(lines, "add_file")[-1]
    without = [line for line in lines if line is not lines[number] and "add_shard" not in line]
    catalog = Repository.open(root).workspace().catalog
    entry = catalog.load().files[lines[number]["add_file"]["path"]]
    load(catalog, plan_load(catalog, [json.dumps(line) for line in without]))
    assert ids(root) == [0, 1, 2, 3, 4, 5, 6, 7]
    again = dumped(root)
    load(catalog, plan_load(catalog, [json.dumps(line) for line in [*again, lines[number]]]))
    # Footer, statistics and fingerprint were not in the dump: they are those of the file.
    assert catalog.load().files[entry.path] == entry
    assert 11 in ids(root)


def _changed(lines: Lines, kind: str, **values: Any) -> Lines:
    number = only(lines, kind)[0]
    return [{kind: {**line[kind], **values}} if at == number else line for at, line in enumerate(lines)]


def _without(lines: Lines, kind: str) -> Lines:
    number = only(lines, kind)[0]
    return lines[:number] + lines[number + 1 :]


@pytest.mark.parametrize(
    ("edit", "problem"),
    [
        (lambda lines: [*lines, {"add_fiel": {}}], r"line \d+: expected one of add_file"),
        (lambda lines: [*lines, {"add_hold": {}, "add_loss": {}}], r"line \d+: expected one of"),
        (lambda lines: [*lines, {"add_hold": {"label": "x"}}], r'line \d+: .*no field named "label"'),
        (lambda lines: [*lines, {"add_hold": {"name": "everything", "reason": "x", "who": "y"}}], r"line \d+: .*hold"),
        (lambda lines: [*lines, lines[-1]], r"line \d+: \w+ '.*' is in line \d+ too"),
        (lambda lines: _changed(lines, "add_file", path="../../etc/passwd"), r"line 2: key '\.\./\.\./etc/passwd'"),
        (lambda lines: _changed(lines, "add_file", rows="many"), r"line 2: "),
        (
            lambda lines: _changed(lines, "add_tombstone", reason="another"),
            r"is changed: what it says is kept by its id",
        ),
        (lambda lines: _without(lines, "add_file"), r"is gone: the hold 'case' may cover its events"),
        (lambda lines: lines[1:], r"line 1: expected .*catalog"),
        (lambda lines: [], r"expected the first line of a dump"),
        (
            lambda lines: [{"catalog": {**lines[0]["catalog"], "next_event_id": 1}}, *lines[1:]],
            r"next_event_id: expected",
        ),
        (lambda lines: _changed(lines, "add_shard", first_event_id="9223372036854775808"), r"line \d+: "),
    ],
)
def test_a_line_that_makes_no_sense_is_refused_with_its_number(
    root: Path, edit: Callable[[Lines], Lines], problem: str
) -> None:
    before = Repository.open(root).workspace().catalog.load()
    with pytest.raises(InvalidInputError, match=problem):
        planned(root, edit(dumped(root)))
    assert Repository.open(root).workspace().catalog.load() == before


@pytest.mark.parametrize(
    ("name", "value"), [("size_bytes", "7"), ("sha256", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
)
def test_an_entry_that_does_not_fit_its_file_is_refused(root: Path, name: str, value: str) -> None:
    with pytest.raises(CorruptionError, match=rf"line 2: .*{name}: the file has"):
        planned(root, _changed(dumped(root), "add_file", **{name: value}))


def test_a_second_log_of_the_same_events_is_refused(root: Path) -> None:
    lines = dumped(root)
    number = only(lines, "add_file")[-1]
    path = lines[number]["add_file"]["path"]
    home = Repository.open(root).workspace().paths.home
    other = path.replace(".parquet", f"{attempt_suffix(UUID(int=7))}.parquet")
    shutil.copy(home / path, home / other)
    with pytest.raises(InvalidInputError, match=rf"line {len(lines) + 1}: .*holds event ids that"):
        planned(root, [*lines, {"add_file": {**lines[number]["add_file"], "path": other}}])


def test_text_that_is_no_json_and_bytes_that_are_no_text_are_refused(root: Path) -> None:
    catalog = Repository.open(root).workspace().catalog
    first = json.dumps(dumped(root)[0])
    with pytest.raises(InvalidInputError, match="edited line 3: "):
        plan_load(catalog, [first, "", "{"], "edited")
    (root / "bytes").write_bytes(b"\xff\xfe")
    refused = run(root, "load", str(root / "bytes"), "--dry-run")
    assert refused.exit_code == InvalidInputError.exit_code


def test_a_dump_of_another_revision_or_catalog_is_refused(root: Path, tmp_path: Path) -> None:
    lines = dumped(root)
    plan = planned(root, _without(lines, "add_hold"))
    catalog = Repository.open(root).workspace().catalog
    Repository.open(root).hold("later", EventSelection(event_ids=(7,)), "court order", "legal")
    for try_it in (lambda: planned(root, lines), lambda: load(catalog, plan)):
        with pytest.raises(ConflictError, match="somebody committed since"):
            try_it()
    assert set(Repository.open(root).workspace().catalog.load().holds) == {"case", "later"}
    # The same files, another catalog.
    clock = ManualClock(1_772_409_600_000)
    rebuild(catalog, clock, scan_logs(catalog.objects))
    with pytest.raises(ConflictError, match="expected a dump of main/provenance"):
        planned(root, lines)


def test_ids_can_be_passed_over_by_hand(root: Path) -> None:
    lines = dumped(root)
    lines[0]["catalog"]["next_event_id"] = 1000
    catalog = Repository.open(root).workspace().catalog
    plan = plan_load(catalog, [json.dumps(line) for line in lines])
    assert [each.name for each in plan.changes] == ["next_event_id"]
    assert load(catalog, plan).next_event_id == 1000


def test_the_state_of_an_earlier_revision_is_dumped_too(root: Path) -> None:
    catalog = Repository.open(root).workspace().catalog
    lines = list(dump_state(catalog, catalog.at(0)))
    assert [next(iter(line)) for line in lines] == ["catalog", "add_file", "add_shard"]
    shown = run(root, "dump", "0", "--state").stdout.splitlines()
    assert [json.loads(line) for line in shown] == lines
