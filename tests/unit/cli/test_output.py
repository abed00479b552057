"""Output: whatever the data hold, no control character reaches the terminal and no text is taken for markup."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.cli.output import clean, size_text, time_text
from custody.repository import Repository
from tests.support import append, event, run_steps

EVIL = "\x1b[31mred\x1b]0;title\x07 \x00\x08\r\x7f\x9b31m \u202eright [bold]markup[/bold] [/nothing] \n"
NEW = event(
    0,
    event_type=f"CREATE{EVIL}",
    component_id=EVIL,
    component_type=EVIL,
    component_name=EVIL,
    flowfile_uuid=f"f{EVIL}",
    details=EVIL,
    transit_uri=EVIL,
    parent_uuids=(EVIL, "parent"),
    child_uuids=(f"f{EVIL}",),
    updated_attributes={"filename": EVIL, EVIL: EVIL},
    extra=json.dumps({EVIL: EVIL}),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    created = Repository.create(tmp_path_factory.mktemp("evil") / "repository [red]")
    append(created, [NEW])
    run_steps(created.settings)
    (created.settings.root / "evil.json").write_bytes(json.dumps([{EVIL: 1}, EVIL]).encode())
    return created.settings.root


@pytest.mark.parametrize(
    "arguments",
    [
        ("event", "0"),
        ("event", "0", "--json"),
        ("event", "0", "--nifi"),
        ("events",),
        ("events", "--json"),
        ("search",),
        ("search", "--json"),
        ("search", f"nosuch:{EVIL}"),
        ("search", f"event_time:{EVIL}"),
        ("lineage", "0"),
        ("lineage", "0", "--json"),
        ("lineage", f"nobody{EVIL}"),
        ("catalog", "log"),
        ("status",),
        ("ingest", "evil.json"),
        ("ingest", "evil.json", "--json"),
        ("quarantine", "list"),
        ("quarantine", "list", "--json"),
        ("quarantine", "show", EVIL),
        ("event", "0", "--writer", EVIL),
    ],
    ids=lambda arguments: " ".join(arguments).partition("\x1b")[0],
)
def test_no_control_character_of_the_data_is_printed(root: Path, arguments: tuple[str, ...]) -> None:
    real = [str(root / part) if part.endswith(".json") else part for part in arguments]
    result = CliRunner().invoke(cli, ["-r", str(root), *real])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    printed = result.stdout + result.stderr
    assert printed.strip()
    assert {unicodedata.name(c, hex(ord(c))) for c in printed if unicodedata.category(c) == "Cc" and c != "\n"} == set()
    if "--json" in arguments and "ingest" not in arguments:
        assert json.loads(result.stdout)


def test_json_gives_the_data_back_as_they_are(root: Path) -> None:
    document = json.loads(CliRunner().invoke(cli, ["-r", str(root), "event", "0", "--json"]).stdout)
    assert document["details"] == EVIL
    assert document["updated_attributes"][EVIL] == EVIL


def test_text_is_no_markup(root: Path) -> None:
    table = CliRunner().invoke(cli, ["-r", str(root), "event", "0"]).stdout
    assert "[bold]markup[/bold] [/nothing]" in table
    assert "repository [red]" in CliRunner().invoke(cli, ["-r", str(root), "status"]).stdout


def test_printable_text_is_left_alone() -> None:
    text = "naïve \N{SNOWMAN} \N{PILE OF POO} 日本 [x]"
    assert clean(text).plain == text
    assert clean(None).plain == ""
    assert clean(5).plain == "5"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (1 << 40, "1.0 TiB"),
        (1 << 50, "1024.0 TiB"),
    ],
)
def test_sizes_are_readable(size: int, text: str) -> None:
    assert size_text(size) == text


def test_times_are_iso_with_milliseconds() -> None:
    assert time_text(1_772_409_600_007) == "2026-03-02T00:00:00.007Z"
    assert time_text(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
    assert time_text(None) == ""
