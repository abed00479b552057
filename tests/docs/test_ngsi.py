"""The page on NGSI says what the code does: every line, table and parameter of it is run or compared."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from custody.config import NgsiSection
from custody.ngsi import parquet
from custody.ngsi.hive import hive_table
from custody.ngsi.http_notification import Accepts, Refusal, judge_request
from custody.ngsi.naming import CONCATENATOR, encode, encode_path
from custody.ngsi.parameters import SEED_NAMES
from custody.ngsi.rendering import render
from custody.ngsi.rules import GroupingRules, NameMappings, Names
from custody_conformance.case import read_cases
from custody_conformance.checking import KNOWN, check_cases
from tests.docs.pages import examples, read, section, table
from tests.unit.ngsi.notification_records import HEADERS, parameters, recorded

PAGE = read("ngsi.md")
EXAMPLES = examples(PAGE)
MODES = ("json-row", "json-column", "csv-row", "csv-column")


@pytest.mark.parametrize("mode", MODES)
def test_the_lines_of_each_mode_are_those_of_the_page(mode: str) -> None:
    used = parameters(file_format=mode)
    files = list(render(recorded(EXAMPLES["notification"].encode(), used), used, {}).files.values())
    assert files[0] == EXAMPLES[mode].splitlines()
    if mode.startswith("csv"):
        assert files[1:] == [EXAMPLES["metadata"].splitlines(), []]


def test_every_mode_has_a_heading() -> None:
    for mode in (*MODES, "parquet"):
        assert section(PAGE, f"### {mode}").strip()


def test_the_case_of_the_page_comes_out() -> None:
    [case] = read_cases(EXAMPLES["case"].encode(), "ngsi.md")
    [verdict] = check_cases([case])
    assert verdict.differences == ()
    [other] = check_cases([case], "other-sink")
    assert other.differences == ("status: expected 500, got 200",)


def test_every_expectation_is_explained() -> None:
    rows = table(PAGE, "expectation | holds when")
    assert {name for row in rows for name in row[0].split(", ")} == KNOWN


def test_the_rules_of_the_page_do_what_it_says() -> None:
    names = Names("parks", "/north", "Bench1", "Bench")
    grouped = GroupingRules.read(json.loads(EXAMPLES["grouping-rules"])).apply(names)
    assert grouped == Names("parks", "/benches", "Bench1", "Bench", destination="low")
    by_path = GroupingRules.read(json.loads(EXAMPLES["by-service-path"]))
    for entity in ("Bench1", "Tree9"):
        assert by_path.apply(Names("parks", "/north", entity, "T")) == Names("parks", "/north", entity, "T", "north")
    assert by_path.apply(Names("parks", "/south", "Bench1", "Bench")) is None
    mapped = NameMappings.read(json.loads(EXAMPLES["name-mappings"])).apply(names)
    assert mapped.names == Names("town-rks", "/new/north", "seat-1", "Seat")
    assert mapped.attribute("seats", "Number") == ("places", "Count")


def test_the_table_of_encodings() -> None:
    written: dict[str, list[str]] = {
        "letters and digits of ASCII": ["aZ09"],
        ". -": ["a.b", "a-b"],
        "_": ["_"],
        "/": ["/"],
        "=": ["="],
        ":": [":"],
        "x and four hexadecimal digits": ["x00fF"],
        "everything else": [" ", "é", "%", "🌳"],
    }
    rows = table(PAGE, "written | old, in a service or destination")
    assert [row[0] for row in rows[:-1]] == list(written)
    for row in rows[:-1]:
        for text in written[row[0]]:
            found = [
                *(encode(text, is_new=False), encode_path(text, is_new=False)),
                *(encode(text, is_new=True), encode_path(text, is_new=True)),
            ]
            said = [text if cell == "same" else "x" + text if cell == "xx and the digits" else cell for cell in row[1:]]
            assert found == said, text
    assert [rows[-1][1], rows[-1][3]] == [encode(CONCATENATOR, is_new=is_new) for is_new in (False, True)]


@pytest.mark.parametrize(
    ("status", "asked"),
    [
        (400, ("POST", "/notify", HEADERS, b"")),
        (404, ("POST", "/other", HEADERS, b"{}")),
        (405, ("GET", "/notify", HEADERS, b"")),
        (413, ("POST", "/notify", HEADERS, b"{}" + b" " * (16 << 20))),
        (415, ("POST", "/notify", {"Content-Type": "text/plain"}, b"{}")),
    ],
)
def test_the_refusals_of_the_page(status: int, asked: tuple[Any, ...]) -> None:
    assert str(status) in [row[0] for row in table(PAGE, "status | when")]
    method, target, headers, body = asked
    judgement = judge_request(method, target, headers, body, Accepts.of(parameters().values))
    assert isinstance(judgement, Refusal)
    assert judgement.status == status


def test_the_columns_of_parquet() -> None:
    assert [row[:3] for row in table(PAGE, "column | type | null")] == [
        [field.name, str(field.type), "yes" if field.nullable else "no"] for field in parquet.SCHEMA
    ]


def test_the_forms_of_the_tables() -> None:
    for row in table(PAGE, "mode | hive | spark"):
        for mode in row[0].split(", "):
            for dialect, said in zip(("hive", "spark"), row[1:], strict=True):
                used = parameters(file_format=mode, hive_dialect=dialect)
                [record] = recorded(EXAMPLES["notification"].encode(), used)
                assert hive_table(record.placed.destination, used).row_format == said


def test_every_parameter_of_the_sink_is_in_the_table_or_named_below_it() -> None:
    rows = table(PAGE, "NGSIToHDFS | setting | default")
    below = section(PAGE, "## Parameters").partition("Parameters that NGSIToHDFS does not have:")[2]
    own = {name for name in NgsiSection.model_fields if f"`{name}`" in below}
    for name, key, default in rows:
        assert SEED_NAMES.get(name, name) == key
        value = NgsiSection.model_fields[key].default
        assert default == ("unset" if value is None else str(value).lower() if isinstance(value, bool) else str(value))
    assert {row[1] for row in rows} | own == set(NgsiSection.model_fields)
    assert not {row[1] for row in rows} & own


def test_the_backends_example_is_a_configuration() -> None:
    section = NgsiSection.model_validate(tomllib.loads(EXAMPLES["backends"])["ngsi"])
    assert (section.backend, section.backend_impl, section.hdfs_port) == ("rest", "rest", 9870)
    assert section.hive_location == "hdfs://cluster"


def test_the_hive_example_names_who_makes_the_tables() -> None:
    section = NgsiSection.model_validate(tomllib.loads(EXAMPLES["hive"])["ngsi"])
    assert (section.hive_tables, section.hive_dialect_used, section.backend) == ("server", "hive", "rest")
    assert section.hive_warnings() == ()
