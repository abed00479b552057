"""The documentation says what the program does: every name and number in it is compared with the code."""

import json
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

from custody.capture import nifi_json, values
from custody.config import default_settings_file
from custody.errors import InvalidInputError
from custody.index.terms import TERM_BYTES_MAX
from custody.model import EVENT_SCHEMA
from custody.query import parse_query
from custody.query.parser import QUERY_CHARACTERS_MAX
from custody.recovery import STEPS
from tests.docs import update
from tests.docs.pages import DOCS, ROOT, links, pages, read, section, table

# Codes are spelled out where a problem is made, and nowhere else with a dash: formats have dashes too.
CODES = re.compile(r'"((?:bad|not|no|one|own|event|file|number|time|empty|unknown)-[a-z-]+|contradiction)"')
MACHINE_PATH = re.compile(r"(?<![\w.:/<>-])/(?:home|root|Users|tmp|mnt|private)/|[A-Z]:\\\\")
PAGES = list(pages())
SETTINGS_BLOCKS = [
    (page, block) for page in PAGES for block in re.findall(r"```toml\n(\[.*?)```", page.read_text("utf-8"), re.DOTALL)
]


def _names(rows: Iterable[list[str]]) -> list[str]:
    return [row[0] for row in rows]


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: str(path.relative_to(DOCS)))
def test_generated_blocks_are_up_to_date(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert update.updated(text) == text, "run: python tests/docs/update.py"


def test_the_description_of_the_api_is_that_of_the_code_and_its_page_names_every_operation() -> None:
    assert update.OPENAPI.read_text(encoding="utf-8") == update.openapi_text()
    page = (DOCS / "api.md").read_text(encoding="utf-8")
    paths = json.loads(update.openapi_text())["paths"]
    assert [path for path in paths if f"`{path}`" not in page] == []


def test_every_command_has_its_help_in_the_documentation() -> None:
    text = read("cli.md")
    documented = re.findall(r"<!-- generated: help (.+?) -->", text)
    assert sorted(documented) == sorted(name for name, _ in update.commands()), "run: python tests/docs/update.py"
    assert re.findall(r"^### (custody.*)$", text, re.MULTILINE) == documented


@pytest.mark.parametrize("name", [name for name, _ in update.commands()])
def test_every_option_and_argument_is_documented_with_a_meaning(name: str) -> None:
    command = dict(update.commands())[name]
    shown = section(read("cli.md"), f"### {name}")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            if parameter.hidden:
                continue
            assert parameter.help, f"{name} {parameter.name} has no help text"
            assert all(option in shown for option in parameter.opts)
        else:
            assert parameter.human_readable_name.strip("[].") in shown


def test_every_command_shows_an_example_that_names_it() -> None:
    for name, command in update.commands():
        if not isinstance(command, click.Group):
            example = (command.help or "").partition("Example:")[2]
            assert re.search(name.replace("custody ", r"custody (-r \w+ )?"), example), f"{name} has no example"


def test_every_error_class_is_in_the_table_with_its_exit_code() -> None:
    rows = table(read("cli.md"), "class | kind | exit code")
    assert [row[:3] for row in rows] == [
        [item.__name__, item.kind, str(item.exit_code)] for item in update.error_classes()
    ]


def test_exit_codes_and_kinds_are_used_once() -> None:
    classes = update.error_classes()
    assert len({item.exit_code for item in classes}) == len({item.kind for item in classes}) == len(classes)


def test_what_to_do_next_is_said_for_every_exit_code_but_the_base_one() -> None:
    codes = [code for row in table(read("cli.md"), "exit code | next step") for code in row[0].split(", ")]
    assert sorted(codes) == [str(item.exit_code) for item in update.error_classes() if item.kind != "error"]


def test_the_steps_are_listed_in_their_order() -> None:
    assert _names(table(read("cli.md"), "step | unit")) == list(STEPS)


def test_every_setting_is_explained_under_a_heading_of_its_own() -> None:
    text = read("config.md")
    names = [name for name, _ in update.settings_fields()]
    assert re.findall(r"^### (.+)$", text, re.MULTILINE) == names
    assert all(section(text, f"### {name}").strip() for name in names)


def test_every_setting_is_in_the_table_with_its_default() -> None:
    rows = {row[0]: row for row in table(read("config.md"), "setting | type | default")}
    for name, field in update.settings_fields():
        default = "unset" if field.default is None else field.default
        if isinstance(default, int):
            assert rows[name][2] == str(default).lower()
        assert rows[name][4] == f"CUSTODY__{name.upper().replace('.', '__')}"
    assert len(rows) == len(list(update.settings_fields()))


def test_every_key_of_nifis_json_is_in_the_table_with_its_field() -> None:
    types: dict[object, str] = {
        values.text: "text",
        values.integer: "integer",
        values.texts: "texts",
        values.attributes: "attributes",
    }
    assert table(read("sources.md"), "key | field | type | required") == [
        [key, field, types[reader], "yes" if key in nifi_json.REQUIRED_KEYS else "no"]
        for key, (field, reader) in nifi_json._KEYS.items()
    ]


def test_every_reason_to_reject_or_to_warn_is_in_the_table() -> None:
    rooms = [ROOT / "include/custody" / room for room in ("capture", "model", "ingest", "repository")]
    codes = {code for room in rooms for path in room.glob("*.py") for code in CODES.findall(path.read_text())}
    rows = table(read("sources.md"), "code | severity")
    assert {row[0] for row in rows} == codes
    assert {row[1] for row in rows} == {"error", "warning"}


def test_every_field_of_an_event_is_a_documented_column() -> None:
    rows = table(read("formats/event-log.md"), "# | column | type | null")
    assert [row[:4] for row in rows] == [
        [str(number), field.name, str(field.type), "yes" if field.nullable else "no"]
        for number, field in enumerate(EVENT_SCHEMA, 1)
    ]
    assert all(row[4] for row in rows)


@pytest.mark.parametrize(
    "query",
    [
        *read("query.md").split("```")[1].splitlines()[1:],
        *re.findall(r"`([^`]+)`", " ".join(_names(table(section(read("query.md"), "## Times"), "write | means")))),
        *re.findall(r"^\| (`.+?`) \|", section(read("query.md"), "## Operators"), re.MULTILINE),
    ],
)
def test_the_queries_of_the_documentation_can_be_read(query: str) -> None:
    for text in re.findall(r"`([^`]+)`", query) or [query]:
        parse_query(text)


def test_the_limits_of_a_query_are_the_codes() -> None:
    limits = section(read("query.md"), "## Limits")
    assert f"at most {QUERY_CHARACTERS_MAX} characters" in limits
    assert f"first {TERM_BYTES_MAX} bytes" in limits
    for outside in (2**62 + 1, -(2**62) - 1):
        with pytest.raises(InvalidInputError):
            parse_query(f"file_size:{outside}")


def test_the_words_are_in_alphabetical_order_and_each_stands_once() -> None:
    words = [word.lower() for word in _names(table(read("glossary.md"), "word | meaning"))]
    assert words == sorted(set(words))


def test_the_words_of_the_pipeline_are_in_the_glossary() -> None:
    words = _names(table(read("glossary.md"), "word | meaning"))
    for word in ("event", "journal", "group", "staged unit", "event log", "index shard", "transaction", "checkpoint"):
        assert word in words
    steps = next(row[1] for row in table(read("glossary.md"), "word | meaning") if row[0] == "step")
    assert re.findall(r"[a-z]+(?=,| or|\.)", steps.partition("of ")[2])[: len(STEPS)] == list(STEPS)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    for link in links(path.read_text(encoding="utf-8")):
        target, _, anchor = link.partition("#")
        linked = path.parent / target
        assert linked.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in [_anchor(heading) for heading in headings], link


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize(
    "block",
    [block for _, block in SETTINGS_BLOCKS],
    ids=[f"{page.stem}-{n}" for n, (page, _) in enumerate(SETTINGS_BLOCKS)],
)
def test_a_block_of_settings_can_be_pasted_below_the_file_of_a_new_repository(block: str) -> None:
    tomllib.loads(default_settings_file() + block)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_page_names_a_path_of_somebodys_machine(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not MACHINE_PATH.search(text)
    assert str(ROOT) not in text


def test_contributing_names_every_room_from_the_top_to_the_ground_with_a_module_to_start_at() -> None:
    rows = table((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), "room | concept")
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    floors = {room: floor for floor, rooms in enumerate(layers) for room in rooms.split(" | ")}
    library = ROOT / "include" / "custody"
    rooms = {path.stem for path in library.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert {row[0] for row in rows} == rooms - {"__init__"}
    assert [floors[row[0]] for row in rows] == sorted(floors.values())
    assert [row[2] for row in rows if not (library / row[2]).is_file()] == []


GLOB = re.compile(r"read_parquet\(|read\.parquet\(|events/\*\.parquet|/data/\*/|scan_parquet\(")


def test_no_page_reads_event_logs_by_a_glob() -> None:
    # The folders have replaced logs and forgotten events besides what is live: only the catalog tells them apart.
    assert [str(path) for path in PAGES if GLOB.search(path.read_text("utf-8"))] == []
    assert 'spark.read.format("custody")' in (ROOT / "README.md").read_text("utf-8")


def test_contributing_names_every_benchmark() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8") + (ROOT / "Makefile").read_text(encoding="utf-8")
    names = {path.parent.name for path in (ROOT / "benchmarks").glob("*/__main__.py")}
    assert {name for name in names if f"benchmarks.{name}" not in text} == set()
