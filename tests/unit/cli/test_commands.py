"""The commands: help that shows an example, JSON that a program can read, exit codes that say what went wrong."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from custody.capture import event_to_json
from custody.cli.main import cli
from custody.errors import (
    ConfigurationError,
    CorruptionError,
    InvalidInputError,
    LockedError,
    NotFoundError,
)
from custody.repository import Repository
from tests.docs.update import commands
from tests.support import append, event, flipped, run_steps, sample, write_samples
from tests.unit.capture.json_documents import document


def run(root: Path | None, *arguments: object) -> Result:
    before = [] if root is None else ["--repository", str(root)]
    result = CliRunner().invoke(cli, [*before, *map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def lines(result: Result) -> list[dict[str, object]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.fixture
def root(live: Repository) -> Path:
    """A repository that commands only read."""
    return live.settings.root


@pytest.fixture
def new(repository: Repository) -> Path:
    return repository.settings.root


COMMANDS = {tuple(name.split()[1:]): command for name, command in commands() if name != "custody"}


@pytest.mark.parametrize("path", [(), *COMMANDS], ids=" ".join)
def test_help_says_what_the_command_does_and_shows_an_example(path: tuple[str, ...]) -> None:
    result = run(None, *path, "--help")
    assert result.exit_code == 0
    if not isinstance(COMMANDS.get(path), click.Group):
        assert "Example:\n" in result.stdout
        example = result.stdout.split("Example:\n")[1].splitlines()[0]
        assert example.strip().startswith("custody ")
        assert not path or " ".join(path) in example


def test_the_version_is_told() -> None:
    assert "version" in run(None, "--version").stdout


def test_init_makes_a_repository_once(tmp_path: Path) -> None:
    assert run(None, "init", tmp_path / "demo").exit_code == 0
    assert list(Repository.open(tmp_path / "demo").events()) == []
    again = run(None, "init", tmp_path / "demo")
    assert again.exit_code == ConfigurationError.exit_code
    assert "already" in again.stderr
    assert again.stdout == ""
    assert run(tmp_path / "other", "init").exit_code == 0
    assert (tmp_path / "other" / "custody.toml").is_file()


def test_sample_writes_files_that_ingest_takes_whole(new: Path, tmp_path: Path) -> None:
    assert run(None, "sample", tmp_path / "landing", "--events", 150, "--nodes", 3).exit_code == 0
    reports = json.loads(run(new, "ingest", tmp_path / "landing", "--json").stdout)
    assert sum(report["stored"] for report in reports) == 150
    assert {report["rejected"] for report in reports} == {0}
    table = run(new, "ingest", tmp_path / "landing")
    assert table.exit_code == 0
    assert "repeated" in table.stdout


def test_ingest_of_a_bad_file_keeps_the_good_ones_and_ends_with_1(new: Path, tmp_path: Path) -> None:
    good = write_samples(tmp_path, 10, nodes=1)
    bad = tmp_path / "bad.json"
    bad.write_bytes(b"<html>")
    result = run(new, "ingest", bad, *good, "--json")
    assert result.exit_code == 1
    assert [report["stored"] for report in json.loads(result.stdout)] == [0, 10]
    assert "bad.json" in result.stderr
    assert run(new, "ingest", tmp_path / "absent.json").exit_code == 2


def test_ingest_of_a_folder_says_what_it_passes_over(new: Path, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    (landing / "deep" / "deeper").mkdir(parents=True)
    write_samples(landing, 10, nodes=1)
    write_samples(landing / "deep" / "deeper", 20, nodes=1, seed=8)
    for name in "abcdef":
        (landing / f"{name}.csv").write_text("x")
    result = run(new, "ingest", landing, "--json")
    assert [report["stored"] for report in json.loads(result.stdout)] == [10]
    files, folders = result.stderr.splitlines()
    assert "passed over 6 files (a.csv, b.csv, c.csv, d.csv, e.csv, …) that do not end in .json, " in files
    assert "passed over 1 folder (deep); --recursive reads them too" in folders
    deep = run(new, "ingest", landing, "--recursive", "--json")
    assert [report["stored"] for report in json.loads(deep.stdout)] == [20, 0]
    assert "passed over 1 folder" not in deep.stderr


def test_ingest_of_nothing_is_an_error(new: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    result = run(new, "ingest", tmp_path / "empty")
    assert (result.exit_code, result.stdout) == (NotFoundError.exit_code, "")
    assert "empty: expected files that end in .json, .ndjson, .jsonl, .gz, .avro, found none." in result.stderr
    (tmp_path / "empty" / "a.txt").write_text("x")
    result = run(new, "ingest", tmp_path / "empty")
    assert result.exit_code == NotFoundError.exit_code
    assert "passed over 1 file (a.txt)" in result.stderr


def test_only_some_of_very_many_problems_are_shown(new: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("[" + ",".join("1" for _ in range(50)) + "]")
    result = run(new, "ingest", tmp_path / "bad.json")
    assert "and 30 more" in result.stderr


def test_status_is_the_repository_s(root: Path, live: Repository) -> None:
    [row] = lines(run(root, "status", "--json"))
    assert row["quarantined"] == 0
    [writer] = json.loads(run(root, "status", "--json").stdout)["writers"]
    assert writer["events_live"] == 600
    assert "600" in run(root, "status").stdout


def test_a_new_repository_misses_nothing(new: Path, repository: Repository) -> None:
    assert {disk["state"] for disk in json.loads(run(new, "status", "--json").stdout)["disks"]} == {"new"}
    assert "empty, made on first use" in run(new, "status").stdout
    append(repository, [event()])
    states = [disk["state"] for disk in json.loads(run(new, "status", "--json").stdout)["disks"]]
    assert states == ["ok", "ok"]  # the store has the claim of the writer's name
    run_steps(repository.settings)
    repository.settings.store.rename(repository.settings.store.with_name("away"))
    states = [disk["state"] for disk in json.loads(run(new, "status", "--json").stdout)["disks"]]
    assert states == ["ok", "missing"]


def test_search_prints_what_the_repository_finds(root: Path, live: Repository) -> None:
    wanted = live.search("event_type:SEND", limit=5, offset=2)
    [row] = lines(run(root, "search", "event_type:SEND", "-n", 5, "--offset", 2, "--json"))
    assert row["total"] == wanted.total
    assert isinstance(row["events"], list)
    assert [item["event"]["event_id"] for item in row["events"]] == [s.event.event_id for s in wanted.events]
    table = run(root, "search", "event_type:SEND", "-n", 5).stdout
    assert f"{wanted.total} events" in table
    assert table.count("SEND") == 5


def test_search_finds_what_was_live_earlier(root: Path, live: Repository) -> None:
    first = next(live.timeline())
    document = json.loads(run(root, "search", "--as-of", 0, "-n", 10_000, "--json").stdout)
    assert document["total"] == sum(action.add_file.rows for action in first.actions)
    assert document["total"] == len(document["events"])
    again = run(root, "search", "--as-of", "tomorrow", "--writer", "main", "-n", 10_000, "--json")
    assert lines(again)[0]["total"] == live.search("", as_of=live.workspace().catalog.load().revision).total
    [none] = lines(run(root, "search", "--as-of", "1999-12-31", "--json"))
    assert (none["total"], none["events"]) == (0, [])
    facets = run(root, "search", "--as-of", 0, "--facet", "event_type", "--json")
    assert sum(json.loads(facets.stdout)["event_type"].values()) == document["total"]


def test_search_facets_and_lineage_tell_programs_what_cannot_be_read(new: Path, repository: Repository) -> None:
    for first in (0, 10):
        append(repository, [event(first + number) for number in range(10)])
        run_steps(repository.settings)
    newest = max(new.rglob("*.parquet"), key=lambda path: path.name)
    newest.write_bytes(flipped(newest.read_bytes(), 8 * 100))
    document = json.loads(run(new, "search", "-n", 4, "--json").stdout)
    assert ([item["event"]["event_id"] for item in document["events"]], document["total"]) == ([9, 8, 7, 6], 20)
    assert document["lost"] == 10
    assert [newest.name in notice for notice in document["notices"]] == [True]
    rest = json.loads(run(new, "search", "-n", 10, "--cursor", document["cursor"], "--json").stdout)
    assert [item["event"]["event_id"] for item in rest["events"]] == [5, 4, 3, 2, 1, 0]
    assert (rest["lost"], rest["notices"], rest["cursor"]) == (0, [], None)
    talk = run(new, "search", "-n", 4).stderr
    assert newest.name in talk
    assert "10 of the 20 events cannot be read" in talk
    assert f"--cursor {document['cursor']}" in talk
    facets = json.loads(run(new, "search", "--facet", "event_type", "--json").stdout)
    assert facets["event_type"] == {"create": 10}
    assert [newest.name in notice for notice in facets["notices"]] == [True]
    newest.unlink()
    assert newest.name in run(new, "search", "--facet", "event_type").stderr
    lineage = json.loads(run(new, "lineage", event(3).flowfile_uuid, "--json").stdout)
    assert (lineage["events"], [newest.name in notice for notice in lineage["notices"]]) == (1, [True])


def test_explain_tells_shards_and_blocks(root: Path, live: Repository) -> None:
    document = json.loads(run(root, "search", "event_type:SEND", "-n", 1, "--explain", "--json").stdout)["explain"][
        "main"
    ]
    expected = {"shards", "pruned", "searched", "counted", "scanned", "old", "blocks", "seconds"}
    assert set(document) == expected | {
        "pruned_by_statistics",
        "pruned_by_filters",
        "scanned_blocks",
        "scanned_blocks_pruned",
    }
    assert document["blocks"] == 1
    assert "blocks" in run(root, "search", "--explain").stdout


def test_search_finds_what_was_acknowledged_a_moment_ago(new: Path, repository: Repository) -> None:
    append(repository, [event()])
    result = run(new, "search", "--json")
    assert json.loads(result.stdout)["total"] == 1
    assert result.stderr == ""


def test_an_event_is_printed_in_full(root: Path, live: Repository) -> None:
    wanted = next(item for item in live.events(count=600) if item.event_type == "JOIN")
    [row] = lines(run(root, "event", wanted.event_id, "--json"))
    assert row["parent_uuids"] == list(wanted.parent_uuids)
    [nifi] = lines(run(root, "event", wanted.event_id, "--nifi"))
    assert nifi == event_to_json(wanted)
    table = run(root, "event", wanted.event_id).stdout
    assert all(uuid in table for uuid in wanted.parent_uuids)
    assert "\N{REPLACEMENT CHARACTER}" not in table
    assert all(name in table for name in wanted.attributes)


def test_events_are_one_line_each(root: Path, live: Repository) -> None:
    wanted = list(live.events(100, 30))
    rows = lines(run(root, "events", "--from", 100, "--count", 30, "--json"))
    assert [item["event_id"] for item in rows] == [item.event_id for item in wanted]
    assert lines(run(root, "events", "--from", 100, "-n", 30, "--nifi")) == [event_to_json(item) for item in wanted]
    assert wanted[0].flowfile_uuid in run(root, "events", "--from", 100, "-n", 1).stdout


def test_lineage_is_asked_by_uuid_or_by_event(root: Path, live: Repository) -> None:
    join = next(item for item in live.events(count=600) if item.event_type == "JOIN")
    wanted = live.lineage([join.flowfile_uuid])
    for what in (join.flowfile_uuid, join.event_id):
        [row] = lines(run(root, "lineage", what, "--json"))
        assert isinstance(row["nodes"], list)
        assert {node["uuid"] for node in row["nodes"]} == set(wanted.nodes)
        assert (row["events"], row["is_complete"]) == (wanted.events, True)
    tree = run(root, "lineage", join.event_id, "--all").stdout
    assert all(uuid in tree for uuid in wanted.nodes)
    assert "← asked for" in tree
    assert " of main" not in tree  # one writer's ids need no name


def test_a_long_lineage_is_cut_to_a_screen_that_shows_what_was_asked_for(root: Path, live: Repository) -> None:
    first = {item.flowfile_uuid: item for item in reversed(list(live.events(count=600)))}
    lineages = {flowfile: live.lineage([flowfile]) for flowfile in first}
    longest = max(first.values(), key=lambda item: len(lineages[item.flowfile_uuid].nodes))
    graph = lineages[longest.flowfile_uuid]
    whole = run(root, "lineage", longest.event_id, "--all").stdout.splitlines()
    assert len(whole) > 60
    for asked in graph.nodes:
        result = run(root, "lineage", asked)
        assert len(result.stdout.splitlines()) == 42
        assert "← asked for" in result.stdout
        last = result.stdout.splitlines()[-1]
        assert f"… {len(whole) - 41} more lines; --all prints them" in last
    assert f"{graph.events} events of {len(graph.nodes)} FlowFiles, " in whole[0]
    few = min(first.values(), key=lambda item: lineages[item.flowfile_uuid].events)
    assert "more lines" not in run(root, "lineage", few.event_id).stdout


def test_a_cut_lineage_says_so(root: Path, live: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTODY__QUERY__LINEAGE_EVENTS_MAX", "3")
    join = next(item for item in live.events(count=600) if item.event_type == "JOIN")
    result = run(root, "lineage", join.flowfile_uuid, "--json")
    assert json.loads(result.stdout)["is_complete"] is False
    assert "cut after 3 events" in result.stderr


def test_the_catalog_s_log_is_its_timeline(root: Path, live: Repository) -> None:
    [rows] = [json.loads(run(root, "catalog", "log", "--json").stdout)]
    [row] = rows
    assert (row["revision"], row["files_added"], row["shards_added"], row["events_added"]) == (0, 1, 1, 600)
    assert row["uuid"] in run(root, "catalog", "log").stdout


def test_the_quarantine_is_listed_shown_and_tried_again(new: Path, tmp_path: Path) -> None:
    raw = json.dumps(document("SEND", entitySize=-1), ensure_ascii=False).encode()
    (tmp_path / "a.json").write_bytes(b"[" + raw + b"]")
    assert run(new, "ingest", tmp_path / "a.json").exit_code == 1
    [entry] = json.loads(run(new, "quarantine", "list", "--json").stdout)
    assert entry["key"] in run(new, "quarantine", "list").stdout
    assert run(new, "quarantine", "show", entry["key"]).stdout_bytes == raw
    again = run(new, "quarantine", "resubmit", "--all", "--json")
    assert again.exit_code == 1
    assert json.loads(again.stdout)[0]["rejected"] == 1
    assert run(new, "quarantine", "resubmit", entry["key"]).exit_code == 1
    assert run(new, "quarantine", "resubmit").exit_code == 2
    assert run(new, "quarantine", "resubmit", "--all", entry["key"]).exit_code == 2


def test_the_quarantine_is_emptied_by_reason_and_by_file_after_a_look(new: Path, tmp_path: Path) -> None:
    bad = json.dumps([document("SEND", entitySize=-1), 1, 2]).encode()
    (tmp_path / "a.json").write_bytes(bad)
    (tmp_path / "b.json").write_bytes(bad.replace(b"2]", b"3]"))
    assert run(new, "ingest", tmp_path / "a.json", tmp_path / "b.json").exit_code == 1

    def left() -> list[tuple[str, str]]:
        entries = json.loads(run(new, "quarantine", "list", "--json").stdout)
        return sorted((Path(entry["file"]).name, entry["code"]) for entry in entries)

    before = left()
    assert len(before) >= 5
    shown = run(new, "quarantine", "remove", "--all", "--code", "not-an-object", "--dry-run")
    assert "would go" in shown.stdout
    assert left() == before
    assert (
        run(new, "quarantine", "remove", "--all", "--code", "not-an-object", "--file", "a.json", "--yes").exit_code == 0
    )
    assert left() == [entry for entry in before if entry != ("a.json", "not-an-object")]
    assert run(new, "quarantine", "remove", "--all", "--yes").exit_code == 0
    assert left() == []
    for wrong in (("remove",), ("remove", "--all", "0" * 16), ("remove", "--code", "x", "0" * 16)):
        assert run(new, "quarantine", *wrong).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("event", 10**6), NotFoundError),
        (("event", 10**30), NotFoundError),
        (("lineage", "nobody"), NotFoundError),
        (("lineage", "²"), NotFoundError),
        (("quarantine", "show", "../secret"), NotFoundError),
        (("search", "nosuch:field"), InvalidInputError),
        (("search", "event_time:someday"), InvalidInputError),
        (("search", "--as-of", "someday"), InvalidInputError),
        (("search", "--as-of", "99999999999999999"), InvalidInputError),
        (("search", "--as-of", "999"), NotFoundError),
        (("event", 1, "--writer", "../x"), ConfigurationError),
    ],
)
def test_an_error_ends_with_the_code_of_its_class_and_one_line(
    root: Path, arguments: tuple[object, ...], error: type[NotFoundError]
) -> None:
    result = run(root, *arguments)
    assert result.exit_code == error.exit_code
    assert result.stdout == ""
    assert result.stderr.startswith("custody: ")
    assert result.stderr.count("\n") == 1


def test_a_missing_repository_ends_with_its_code_for_every_command(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[]")
    for arguments in (
        ("status",),
        ("search", "x"),
        ("event", 1),
        ("events",),
        ("lineage", "x"),
        ("catalog", "log"),
        ("quarantine", "list"),
        ("quarantine", "show", "x"),
        ("quarantine", "resubmit", "x"),
        ("ingest", tmp_path / "x.json"),
        ("run", "all"),
    ):
        result = run(tmp_path / "absent", *arguments)
        assert result.exit_code == NotFoundError.exit_code, arguments
        assert "custody init" in result.stderr


def test_bad_settings_damage_and_a_lock_have_codes_of_their_own(new: Path, repository: Repository) -> None:
    append(repository, sample(5))
    with repository.writer():
        assert run(new, "quarantine", "resubmit", "0" * 16).exit_code == LockedError.exit_code
    run_steps(repository.settings)
    transaction = next(new.rglob("*.txn"))
    transaction.write_bytes(b"")
    assert run(new, "status").exit_code == CorruptionError.exit_code
    (new / "custody.toml").write_text("[nosuch]\n")
    assert run(new, "status").exit_code == ConfigurationError.exit_code


@pytest.mark.parametrize("arguments", [("search", "-n", "0"), ("event", "x"), ("events", "-n", "0"), ("nosuch",)])
def test_wrong_usage_ends_with_2(root: Path, arguments: tuple[str, ...]) -> None:
    assert run(root, *arguments).exit_code == 2


def test_the_repository_may_come_from_the_environment(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUSTODY_REPOSITORY", str(root))
    assert json.loads(run(None, "status", "--json").stdout)["root"] == str(root)


def family(new: Path, repository: Repository) -> None:
    fork = {"event_type": "FORK", "flowfile_uuid": "p", "parent_uuids": ("p",), "child_uuids": ("c",)}
    append(repository, [event(0, flowfile_uuid="p"), event(1, **fork), event(2, event_type="SEND", flowfile_uuid="c")])


def test_lineage_expands_one_event_to_one_side(new: Path, repository: Repository) -> None:
    family(new, repository)
    [row] = lines(run(new, "lineage", 1, "--children", "--json"))
    assert sorted(item["event_id"] for node in row["nodes"] for item in node["events"]) == [1, 2]  # type: ignore[attr-defined]
    [row] = lines(run(new, "lineage", 1, "--parents", "--json"))
    assert sorted(item["event_id"] for node in row["nodes"] for item in node["events"]) == [0, 1]  # type: ignore[attr-defined]
    refused = run(new, "lineage", 2, "--parents")
    assert refused.exit_code == InvalidInputError.exit_code
    assert "got SEND, so its parents cannot be expanded" in refused.stderr
    assert run(new, "lineage", "p", "--parents").exit_code == 2


def test_a_lineage_names_what_its_bounds_cut(new: Path, repository: Repository) -> None:
    family(new, repository)
    near = run(new, "lineage", "p", "--depth", 0)
    assert "FlowFile c has more behind the bound of depth" in near.stderr
    assert "… more behind the bound of depth" in near.stdout
    [row] = lines(run(new, "lineage", "p", "--until", event(1).event_time, "--json"))
    assert (row["events"], row["cut"], row["is_complete"]) == (2, {"c": "time"}, False)
    assert run(new, "lineage", "p", "--since", "2026-03-02", "--until", "2026-03-01").exit_code != 0
    assert json.loads(run(new, "lineage", "p", "--events", 1, "--json").stdout)["events"] == 1


@pytest.mark.parametrize("form", ["json", "dot", "svg", "graphml", "openlineage"])
def test_a_lineage_is_exported(new: Path, repository: Repository, form: str) -> None:
    family(new, repository)
    result = run(new, "lineage", "p", "--export", form)
    assert result.exit_code == 0
    assert "custody:main/events/1" in result.stdout


def test_long_attributes_are_cut_in_answers_and_never_in_the_record(new: Path, repository: Repository) -> None:
    text = "x" * 70_000
    append(repository, [event(0, flowfile_uuid="p", updated_attributes={"filename": text})])
    for arguments in (("search",), ("event", 0), ("events",), ("lineage", "p")):
        answer = run(new, *arguments, "--json").stdout
        assert '"cut_attributes":{"filename":70000}' in answer
        assert "x" * 65_535 + "…" in answer
        assert "x" * 65_536 not in answer
        assert text in run(new, *arguments, "--json", "--whole").stdout
    assert text not in run(new, "lineage", "p", "--export", "json").stdout
    assert text in run(new, "event", 0, "--nifi").stdout
    assert repository.get(0).filename == text


def test_a_mistyped_command_gets_the_suggestion_of_a_close_one() -> None:
    result = CliRunner().invoke(cli, ["serch", "x"])
    assert result.exit_code == 2
    assert "No such command 'serch'. Did you mean 'search'?" in result.output
    assert "Did you mean" not in CliRunner().invoke(cli, ["zzzzzz"]).output
