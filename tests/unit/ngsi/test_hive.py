"""Hive: nothing from outside leaves its quotes, and a table made earlier only gets what it lacks."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.ngsi.hive import hive_table, new_columns, unreadable_columns
from custody.ngsi.naming import Destination, place
from custody.ngsi.rules import Names
from tests.unit.ngsi.notification_records import NOW_MS, parameters

COLUMNS = st.lists(st.text(min_size=1, max_size=6), max_size=4, unique=True).map(tuple)
QUOTED = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'", re.DOTALL)


def destination(_id: str = "Bench1", /, **config: object) -> Destination:
    return place(Names("parks", "/north", _id, "Bench"), NOW_MS, parameters(**config)).destination


@given(COLUMNS, st.text(st.sampled_from("'\"`\\;ab\n-"), max_size=6), st.sampled_from(["hive", "spark"]))
def test_what_was_notified_stays_within_quotes(attributes: tuple[str, ...], id: str, dialect: str) -> None:
    config: dict[str, object] = {"file_format": "json-column", "enable_encoding": True, "hive_dialect": dialect}
    made = hive_table(destination(id or "i", **config), parameters(**config), attributes=attributes)
    plain = hive_table(destination("i", **config), parameters(**config), attributes=("x",) * len(attributes))
    for statement in made.statements:
        rest = QUOTED.sub("?", statement)
        assert not set(rest) & set("'`\\;\n")
    names = [name for name, _ in made.columns]
    assert len({name.lower() for name in names}) == len(names) == 4 + 2 * len(attributes)
    assert len(plain.columns) == len(names)


@given(COLUMNS, COLUMNS)
def test_a_table_gets_what_it_lacks_at_its_end(had: tuple[str, ...], later: tuple[str, ...]) -> None:
    used = parameters(file_format="csv-column")
    have = tuple(dict.fromkeys([*had, *later]))
    before = hive_table(destination(), used, attributes=had)
    after = hive_table(destination(), used, attributes=have, had=had)
    assert after.columns[: len(before.columns)] == before.columns
    added = [statement for statement in after.statements if statement.startswith("alter")]
    if had and len(have) > len(had):
        names = re.findall(r"`((?:[^`]|``)*)` string", added[0])
        assert [name.replace("``", "`") for name in names] == [name for name, _ in after.columns[len(before.columns) :]]
    else:
        assert added == []


def test_a_table_of_parquet_has_a_partition_a_day() -> None:
    made = hive_table(destination(file_format="parquet"), parameters(file_format="parquet"))
    assert made.statements[-1].endswith(
        " partitioned by (`dt` string) stored as parquet location '/user/warden/parks/north/Bench1_Bench'"
    )


@pytest.mark.parametrize("user", ["1st", "_x"])
def test_a_name_that_does_not_begin_with_a_letter_is_quoted(user: str) -> None:
    config: dict[str, object] = {"hdfs_username": user, "hive_db_type": "namespace-db"}
    made = hive_table(destination(**config), parameters(**config))
    assert made.statements[0] == f"create database if not exists `{user}`"
    assert made.statements[1].startswith(f"create external table if not exists `{user}`.`{user}_parks")


@pytest.mark.parametrize(
    ("serde", "class_name"),
    [
        ("auto", "org.openx.data.jsonserde.JsonSerDe"),
        ("openx", "org.openx.data.jsonserde.JsonSerDe"),
        ("hcatalog", "org.apache.hive.hcatalog.data.JsonSerDe"),
        ("hive", "org.apache.hadoop.hive.serde2.JsonSerDe"),
    ],
)
def test_a_serde_of_json_is_the_one_that_is_chosen(serde: str, class_name: str) -> None:
    config: dict[str, object] = {"hive_json_serde": serde}
    made = hive_table(destination(**config), parameters(**config))
    assert f" row format serde '{class_name}'" in made.statements[-1]
    in_spark = {**config, "hive_dialect": "spark"}
    assert " using json " in hive_table(destination(**in_spark), parameters(**in_spark)).statements[-1]


def test_csv_with_quotes_is_a_choice_in_the_dialect_hive() -> None:
    config: dict[str, object] = {"file_format": "csv-row", "hive_csv_serde": "opencsv", "csv_separator": ";"}
    made = hive_table(destination(**config), parameters(**config))
    assert made.row_format == (
        "row format serde 'org.apache.hadoop.hive.serde2.OpenCSVSerde' with serdeproperties "
        "('separatorChar' = ';', 'quoteChar' = '\"', 'escapeChar' = '\\u0001') stored as textfile"
    )
    assert made.statements[-1].startswith("create external table if not exists default.")


@given(COLUMNS)
def test_hive_gets_no_column_with_a_name_that_it_refuses(attributes: tuple[str, ...]) -> None:
    names = ("a.b", "a:b", "a_b", "line\nfeed", *attributes)
    used = parameters(file_format="json-column")
    columns = [name for name, _ in hive_table(destination(), used, attributes=tuple(dict.fromkeys(names))).columns]
    assert not any(re.search(r"[.:\x00-\x1f\x7f]", name) for name in columns)
    assert len({name.lower() for name in columns}) == len(columns)
    in_spark = parameters(file_format="json-column", hive_dialect="spark")
    assert "a.b" in [name for name, _ in hive_table(destination(), in_spark, attributes=("a.b",)).columns]


@pytest.mark.parametrize(
    ("serde", "unreadable"),
    [("openx", ("a:b", "c_d", "Wood", "ENTITYID")), ("hive", ("a:b", "c.d", "c_d", "Wood", "ENTITYID"))],
)
def test_attributes_that_a_reader_of_json_does_not_find_are_named(serde: str, unreadable: tuple[str, ...]) -> None:
    attributes = ("wood", "a:b", "c.d", "c_d", "Wood", "ENTITYID")
    used = parameters(file_format="json-column", hive_json_serde=serde)
    made = hive_table(destination(), used, attributes=attributes)
    assert unreadable_columns(made, attributes) == unreadable
    in_csv = parameters(file_format="csv-column")
    assert unreadable_columns(hive_table(destination(), in_csv, attributes=attributes), attributes) == ()


@pytest.mark.parametrize("serde", ["hcatalog", "hive"])
def test_a_table_whose_serde_keeps_the_columns_is_made_anew_and_keeps_its_files(serde: str) -> None:
    used = parameters(file_format="json-column", hive_json_serde=serde)
    made = hive_table(destination(file_format="json-column"), used, attributes=("wood", "seats"))
    name = "default.warden_parks_north_bench1_bench_column"
    keep, drop, create = new_columns(made, 6)
    assert keep == f"alter table {name} set tblproperties ('external.table.purge' = 'false')"
    assert drop == f"drop table if exists {name}"
    assert create.startswith(f"create external table if not exists {name} (")
    assert "`seats` string" in create
    assert new_columns(made, len(made.columns)) == ()


def test_a_column_is_added_to_every_other_table() -> None:
    configs: tuple[dict[str, object], ...]
    configs = ({"file_format": "json-column", "hive_json_serde": "openx"}, {"file_format": "csv-column"})
    for config in configs:
        made = hive_table(destination(**config), parameters(**config), attributes=("wood", "seats"))
        [statement] = new_columns(made, 6)
        assert statement.startswith("alter table default.warden_parks_north_bench1_bench_column add columns (`seats`")
