"""`custody sql`: the same rows as a table, as JSON lines and as CSV; what is left out is said, and said aside."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from custody.cli.main import cli
from custody.errors import ConfigurationError, CorruptionError, InvalidInputError
from custody.eventlog import EventLog
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.support import append, event, flipped, run_steps, sample

EVENTS = sample(60)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sql") / "repository"
    Repository.create(folder)
    (folder / "custody.toml").write_text("[eventlog]\nblock_bytes_max = 8192\n")
    repository = Repository.open(folder)
    append(repository, EVENTS[:50])
    run_steps(repository.settings)
    append(repository, [*EVENTS[50:], event(1, details='\x1b[31mred\x07, quoted " and\nbroken')])
    return folder


def run(root: Path, *arguments: str) -> Result:
    result = CliRunner().invoke(cli, ["-r", str(root), "sql", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def test_rows_are_json_lines_with_their_nested_values(root: Path) -> None:
    result = run(root, "--json", "select event_id, event_time, updated_attributes, parent_uuids from events order by 1")
    assert result.exit_code == 0
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["event_id"] for row in rows] == list(range(61))
    assert [row["updated_attributes"] for row in rows[:60]] == [item.updated_attributes for item in EVENTS]
    assert [row["parent_uuids"] for row in rows[:60]] == [list(item.parent_uuids) for item in EVENTS]
    assert rows[0]["event_time"].startswith("2026-03-02T")
    assert rows[0]["event_time"].endswith("Z")


def test_rows_are_csv_that_is_read_back(root: Path) -> None:
    result = run(root, "--csv", "select event_id, details, component_name from events order by 1")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert [row["details"] for row in rows[:60]] == [item.details or "" for item in EVENTS]
    assert rows[60]["details"] == '\x1b[31mred\x07, quoted " and\nbroken'


def test_rows_are_a_table_without_control_characters(root: Path) -> None:
    result = run(root, "select event_id, details from events where event_id = 60")
    assert "event_id" in result.stdout
    assert "\N{REPLACEMENT CHARACTER}[31mred" in result.stdout
    assert "\x1b" not in result.stdout
    assert "\x07" not in result.stdout


def test_a_limit_cuts_and_says_so_aside(root: Path) -> None:
    result = run(root, "--csv", "-n", "3", "select event_id from events order by 1")
    assert result.stdout == "event_id\n0\n1\n2\n"
    assert "more rows than 3" in result.stderr
    exact = run(root, "--csv", "-n", "61", "select event_id from events")
    assert len(exact.stdout.splitlines()) == 62
    assert exact.stderr == ""
    every = run(root, "--csv", "-n", "0", "select event_id from events")
    assert len(every.stdout.splitlines()) == 62


def test_numbers_times_and_other_values_are_printed_in_json(root: Path) -> None:
    text = "select 1.5::decimal(9, 2) d, 'x'::blob b, date '2026-03-01' t, null n, [1, 2] l, {'a': 1} s, 1e300 f"
    [row] = [json.loads(line) for line in run(root, "--json", text).stdout.splitlines()]
    assert row == {"d": "1.50", "b": "eA==", "t": "2026-03-01", "n": None, "l": [1, 2], "s": {"a": 1}, "f": 1e300}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["selec"], InvalidInputError.exit_code, "syntax error"),
        (["drop table events"], InvalidInputError.exit_code, "expected one SELECT"),
        (["--json", "--csv", "select 1"], ConfigurationError.exit_code, "exclude each other"),
        (["--timeout", "0", "select 1"], 2, "timeout"),
        (["--timeout", "0.2", "select count(*) from range(1000000000) a, range(1000000000) b"], 13, "stopped after"),
    ],
)
def test_an_error_ends_with_its_code(root: Path, arguments: list[str], code: int, said: str) -> None:
    result = run(root, *arguments)
    assert result.exit_code == code
    assert said in result.stderr
    assert result.stdout == ""


def test_damage_is_an_error_unless_it_is_left_out_and_events_say_it_too(tmp_path: Path) -> None:
    Repository.create(tmp_path / "r")
    repository = Repository.open(tmp_path / "r")
    append(repository, EVENTS)
    run_steps(repository.settings)
    [path] = repository.settings.store.rglob("*.parquet")
    block = EventLog(PosixFileSystem(), path).toc.blocks[0]
    path.write_bytes(flipped(path.read_bytes(), 8 * int(block["offset"] + block["length"] - 50)))
    broken = run(tmp_path / "r", "--csv", "select * from events")
    assert broken.exit_code == CorruptionError.exit_code
    assert f"{path} block 0" in broken.stderr
    left = run(tmp_path / "r", "--csv", "--skip-damaged", "select event_id from events")
    assert (left.exit_code, left.stdout) == (0, "event_id\n")
    assert "events 0 to 59 are lost" in left.stderr
    listed = CliRunner().invoke(cli, ["-r", str(tmp_path / "r"), "events", "--json"])
    assert (listed.exit_code, listed.stdout) == (0, "")
    assert "events 0 to 59 are lost" in listed.stderr


def test_every_kind_of_value_is_printed(root: Path) -> None:
    for options in (["--json"], ["--csv"], []):
        result = run(root, *options, "select * from test_all_types()")
        assert (result.exit_code, result.stderr) == (0, "")
    lines = [json.loads(line) for line in run(root, "--json", "select * from test_all_types()").stdout.splitlines()]
    assert len(lines) == 3
    assert lines[0]["date"] == "-5877641-06-25"
    assert lines[1]["timestamp_array"] == ["1970-01-01T00:00:00", "infinity", "-infinity", None, "2022-05-12T16:23:45"]
    assert lines[1]["timestamp_tz"].endswith("Z")
    assert lines[1]["map"] == {"key1": "🦆🦆🦆🦆🦆🦆", "key2": "goose"}


def test_an_error_is_one_line_that_names_no_inside(root: Path) -> None:
    for text in ("select no_such from events", "select *\nfrom events\nwhere", "from stored", "from evens"):
        result = run(root, text)
        assert result.exit_code == InvalidInputError.exit_code
        assert result.stderr.count("\n") == 1
        assert "\N{REPLACEMENT CHARACTER}" not in result.stderr
        assert "__duckdb" not in result.stderr
        assert "scan" not in result.stderr
    known = "The tables are events, logs and transactions, and software_* (docs/sql.md)."
    assert known in run(root, "from evens").stderr


def test_nothing_is_said_aside_of_events_that_wait(tmp_path: Path) -> None:
    root = tmp_path / "r"
    append(Repository.create(root), EVENTS)  # more than fit into rows: a batch of columns
    source = "from custody.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", source, "-r", str(root), "sql", "--csv", "select count(details) >= 0 n from events"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "n\nTrue\n", "")


def test_a_transaction_that_is_known_to_be_lost_is_left_out_and_named(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "r")
    for start in (0, 20, 40):
        append(repository, EVENTS[start : start + 20])
        run_steps(repository.settings)
    catalog = Repository.open(tmp_path / "r").workspace().catalog
    catalog.load()
    catalog.write_checkpoint()
    path = sorted((tmp_path / "r").rglob("*.txn"))[1]
    path.write_bytes(flipped(path.read_bytes(), 8 * 100))
    asked = ("--csv", "select revision from transactions")
    assert run(tmp_path / "r", *asked).exit_code == CorruptionError.exit_code
    CliRunner().invoke(cli, ["-r", str(tmp_path / "r"), "repair", "--yes"])
    result = run(tmp_path / "r", *asked)
    assert (result.exit_code, result.stdout) == (0, "revision\n0\n2\n3\n")
    assert f"{path} " in result.stderr
    assert "revision 1 is lost" in result.stderr
