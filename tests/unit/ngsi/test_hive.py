"""Hive: nothing from outside leaves its quotes, and a table made earlier only gets what it lacks."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.ngsi.hive import hive_table
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
