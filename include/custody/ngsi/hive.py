"""Hive tables over the files of destinations, as text: statements that make them or add columns, and their quoting.

The dialect `hive` is that of NGSIToHDFS: openx's SerDe for JSON, delimited fields for CSV. Settings choose other SerDes
of Hive instead: its own for JSON, OpenCSVSerde for CSV. `spark` makes tables of the same names and columns from which
Spark reads every value back: its own JSON reader, whose keys are case-sensitive, and OpenCSVSerde, which knows quotes.
Parquet needs no second form.

Names and texts from outside are quoted here and nowhere else. Quotes do not keep Hive and Spark from replacing `${…}`:
sessions that run these statements have to turn that off (`custody.spark.session`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi.rendering import FIXED, MD, MD_FILE

_METADATA = "array<struct<name:string,type:string,value:string>>"
_ROW = (
    *("recvTime", "fiwareServicePath", "entityId", "entityType"),
    *("attrName", "attrType", "attrValue"),
)
_OPENX = """'org.openx.data.jsonserde.JsonSerDe' with serdeproperties ("dots.in.keys" = "true")"""
_JSON = {
    "auto": _OPENX,
    "openx": _OPENX,
    "hcatalog": "'org.apache.hive.hcatalog.data.JsonSerDe'",
    "hive": "'org.apache.hadoop.hive.serde2.JsonSerDe'",
}
# Hive asks these for their columns and adds none, or breaks the table on the way.
_OWN_COLUMNS = tuple(_JSON[name] for name in ("hcatalog", "hive"))
_OPEN_CSV = "row format serde 'org.apache.hadoop.hive.serde2.OpenCSVSerde' with serdeproperties "
_NO_ESCAPE = "\\u0001"
"""OpenCSVSerde takes a backslash for an escape unless another character is one; this one is in no value of a broker."""
PARTITION = "dt"
# Names and order of `custody.ngsi.parquet.SCHEMA`. Add at the end only: tables that exist are compared from the first
# column on.
PARQUET_COLUMNS: tuple[tuple[str, str], ...] = (
    ("recvTimeTs", "bigint"),
    ("recvTime", "timestamp"),
    ("eventTime", "timestamp"),
    ("fiwareService", "string"),
    *((name, "string") for name in ("fiwareServicePath", "entityId", "entityType", "attrName", "attrType")),
    ("attrValue", "string"),
    ("attrValueKind", "string"),
    ("attrMd", _METADATA),
    ("subscriptionId", "string"),
    ("notificationId", "string"),
    ("sequence", "bigint"),
)
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# \0 with a digit behind it would be an octal number; \u0000 always has four digits.
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\u0000"})
_REFUSED_BY_HIVE = re.compile(r"[.:\x00-\x1f\x7f]")
"""In names of columns, even between backticks; `select *` passes over columns with a line end in their names."""
_PATTERN = re.compile(r"[*?\[\]{}\\]")


@dataclass(frozen=True, slots=True)
class HiveTable:
    """A table, and the statements that make it or add the columns of its destination."""

    database: str
    name: str
    columns: tuple[tuple[str, str], ...]
    row_format: str
    location: str
    create_database: str | None
    statements: tuple[str, ...]
    """In their order. All but those that add columns may be run again: Hive refuses a column that exists."""


def hive_table(
    destination: Destination,
    parameters: Parameters,
    *,
    attributes: tuple[str, ...] = (),
    had: tuple[str, ...] = (),
    location: str | None = None,
) -> HiveTable:
    """Return the table of a destination.

    `attributes` are the columns of attributes that its files have, in column modes; `had` are those of them that the
    table has already, nothing where there is no table yet. `location` is the folder, with its file system, where the
    one that the path means by itself is another.
    """
    is_spark = parameters.values.hive_dialect == "spark"
    columns = _columns(parameters, attributes)
    name = f"{word(destination.database)}.{word(destination.table)}"
    row_format = _row_format(parameters, is_spark=is_spark)
    create_database = None if destination.database == "default" else _create_database(destination.database)
    # Spark takes no `external` together with `using`; a location makes such a table an external one anyway.
    external = "" if row_format.startswith("using") else "external "
    partitioned = f" partitioned by ({identifier(PARTITION)} string)" if parameters.format == "parquet" else ""
    location = location or destination.location
    create = (
        f"create {external}table if not exists {name} ({_list(columns)}){partitioned} {row_format} "
        f"location {literal(location)}"
    )
    statements = [statement for statement in (create_database, create) if statement]
    definition = HiveTable(
        database=destination.database,
        name=destination.table,
        columns=columns,
        row_format=row_format,
        location=location,
        create_database=create_database,
        statements=tuple(statements),
    )
    more = more_columns(definition, len(_columns(parameters, had))) if had else None
    return replace(definition, statements=(*definition.statements, more)) if more else definition


def more_columns(definition: HiveTable, had: int) -> str | None:
    """Return the statement that adds the columns behind the first `had`, None where there are none."""
    added = definition.columns[had:]
    if not added:
        return None
    return f"alter table {full_name(definition)} add columns ({_list(added)})"


def new_columns(definition: HiveTable, had: int) -> tuple[str, ...]:
    """Return the statements that bring a table of `had` columns to those of its destination, none where it has them.

    The JSON SerDes that Hive brings keep their columns themselves, and no column can be added to them: such a table is
    made anew. It is an external one, so its files stay; where the server drops them with a table by default, that is
    taken back first.
    """
    added = more_columns(definition, had)
    if added is None or not definition.row_format.endswith(_OWN_COLUMNS):
        return () if added is None else (added,)
    name = full_name(definition)
    return (
        f"alter table {name} set tblproperties ('external.table.purge' = 'false')",
        f"drop table if exists {name}",
        definition.statements[-1],
    )


def unreadable_columns(definition: HiveTable, attributes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the attributes that a JSON SerDe of Hive does not find, because their columns have other names."""
    if "JsonSerDe" not in definition.row_format:
        return ()
    is_openx = not definition.row_format.endswith(_OWN_COLUMNS)
    taken = {name.lower() for name in FIXED}
    unreadable = []
    for name in attributes:
        # openx reads a key with points from the column that has `_` for them.
        column = name.replace(".", "_") if is_openx else name
        if _REFUSED_BY_HIVE.search(column) or column.lower() in taken:
            unreadable.append(name)
        taken.add(_REFUSED_BY_HIVE.sub("_", name).lower())
    return tuple(unreadable)


def full_name(definition: HiveTable) -> str:
    """Return database and table as a statement names them."""
    return f"{word(definition.database)}.{word(definition.name)}"


def identifier(name: str) -> str:
    """Return a name between backticks."""
    return f"`{name.replace('`', '``')}`"


def word(name: str) -> str:
    """Return a name of database or table: as it is where it begins with a letter, between backticks otherwise."""
    return name if _PLAIN.fullmatch(name) else identifier(name)


def literal(text: str) -> str:
    """Return a text between single quotes."""
    return f"'{text.translate(_ESCAPES)}'"


def not_a_place(location: str) -> str | None:
    """Return why no table can lie at a path, None where it can.

    Hadoop reads a path of a table as a pattern, in which braces also enclose variables of the environment: a table
    at `{a,b}` has the rows of two other ones.
    """
    if _PATTERN.search(location) is None:
        return None
    return f"{location[:200]!r}: expected a path without any of * ? [ ] {{ }} \\, which readers take for a pattern"


def _columns(parameters: Parameters, attributes: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    if parameters.format == "parquet":
        return PARQUET_COLUMNS
    if parameters.format.endswith("column"):
        columns = [*((name, "string") for name in FIXED), *_attribute_columns(parameters, attributes)]
        if parameters.values.hive_dialect == "hive":
            columns = [(_REFUSED_BY_HIVE.sub("_", name), type) for name, type in columns]
        return tuple(_without_twins(columns))
    # The rows have it in quotes, and Spark reads NULL where a bigint is in quotes.
    timestamp = "string" if parameters.values.hive_dialect == "spark" else "bigint"
    metadata = ("attrMd", _METADATA) if parameters.format == "json-row" else ("attrMdFile", "string")
    stored = (metadata,) if parameters.values.attr_metadata_store else ()
    return (("recvTimeTs", timestamp), *((name, "string") for name in _ROW), *stored)


def _attribute_columns(parameters: Parameters, attributes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    ending, type = (MD, _METADATA) if parameters.format == "json-column" else (MD_FILE, "string")
    for name in attributes:
        yield name, "string"
        if parameters.values.attr_metadata_store:
            yield f"{name}{ending}", type


def _without_twins(columns: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield columns under names that differ in more than case, which Hive does not see."""
    seen: set[str] = set()
    for name, type in columns:
        found, number = name, 2
        while found.lower() in seen:
            found, number = f"{name}_{number}", number + 1
        seen.add(found.lower())
        yield found, type


def _row_format(parameters: Parameters, *, is_spark: bool) -> str:
    if parameters.format == "parquet":
        return "stored as parquet"
    if parameters.format.startswith("json"):
        return "using json" if is_spark else f"row format serde {_JSON[parameters.values.hive_json_serde]}"
    separator = literal(parameters.values.csv_separator)
    if is_spark or parameters.values.hive_csv_serde == "opencsv":
        return (
            f"{_OPEN_CSV}('separatorChar' = {separator}, 'quoteChar' = '\"', 'escapeChar' = '{_NO_ESCAPE}') "
            "stored as textfile"
        )
    return f"row format delimited fields terminated by {separator}"


def _create_database(name: str) -> str:
    return f"create database if not exists {word(name)}"


def _list(columns: tuple[tuple[str, str], ...]) -> str:
    return ",".join(f"{identifier(name)} {type}" for name, type in columns)
