"""Allowed names of a query: the tables of its input, and functions that only compute.

The engine itself has views, functions and settings that reveal its inside and this machine. A query is checked as
the engine's own parser reads it, before anything of it is bound. Table functions have to be on a list here; of the
scalar functions, which compute, a few are refused.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import duckdb

from custody.sql.protocol import ReadQuery
from custody.sql.restrictions import alternatives, columns_read

# A list of what is allowed, so that table functions of a newer engine are refused until somebody has looked at them.
_TABLE_FUNCTIONS = frozenset(
    (
        "generate_series", "generate_subscripts", "icu_calendar_names", "json_each", "json_tree", "pg_timezone_names",
        "range", "repeat", "repeat_row", "test_all_types", "unnest",
    )
)  # fmt: skip
_SHOWN = frozenset(("tables", "__show_tables_expanded"))
# What may stand behind FROM; another kind, of a newer engine, is refused.
_REFERENCES = frozenset(
    (
        "BASE_TABLE", "EMPTY", "EMPTY_FROM", "EXPRESSION_LIST", "JOIN", "PIVOT", "SHOW_REF", "SUBQUERY",
        "TABLE_FUNCTION",
    )
)  # fmt: skip
# Settings and variables, logs, other people's SQL, and states of aggregates, which are bytes that the engine trusts.
_REFUSED = frozenset(
    (
        "combine", "combine_aggr", "current_setting", "finalize", "getenv", "getvariable", "parse_duckdb_log_message",
        "set_config", "to_aggregate_state", "write_log", "currval", "nextval", "setval", "query", "query_table",
    )
)  # fmt: skip
_REFUSED_STARTS = ("__internal", "json_execute", "json_serialize_plan", "pg_get_", "duckdb_", "pragma_", "read_")


class QueryRefusedError(Exception):
    """A query that is not run; the text says why."""


def tables_read(connection: duckdb.DuckDBPyConnection, text: str, tables: Collection[str]) -> set[str]:
    """Return which of the tables a query reads; raises as `read_query`."""
    return set(read_query(connection, text, tables, {}).tables)


def read_query(
    connection: duckdb.DuckDBPyConnection,
    text: str,
    tables: Collection[str],
    columns: Mapping[str, str],
    event_columns: Collection[str] = (),
) -> ReadQuery:
    """Return which of the tables a query reads, what it asks of some columns of the events, and which it may read.

    Raises:
        QueryRefusedError: it is not one SELECT, or names what must not be reached.
        duckdb.Error: it cannot be read.
    """
    statements = connection.extract_statements(text)
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise QueryRefusedError("expected one SELECT (or DESCRIBE, SHOW, SUMMARIZE), got something else.")
    try:
        tree = json.loads(_value(connection, "select json_serialize_sql(?)", [text]))
        items = list(_objects(tree))
    except RecursionError:
        raise QueryRefusedError("expected a query that is not nested as deeply as this one.") from None
    if tree["error"]:
        raise QueryRefusedError(f"{tree['error_message'].rstrip('.!')}.")
    shown = _in_words(tables)
    table_names = {name.casefold() for name in tables}
    # The engine's own views count as taken: a WITH of such a name would let the view itself pass as well.
    own = _value(connection, "select list(lower(view_name)) from duckdb_views() where internal")
    with_names = _with_names(items, table_names.union(own))
    names = (_check(item, table_names | with_names, shown) for item in items)
    read = {name for name in names if name is not None and name not in with_names}
    return ReadQuery(sorted(read), alternatives(tree, columns), columns_read(tree, event_columns))


def _value(connection: duckdb.DuckDBPyConnection, text: str, values: list[str] | None = None) -> Any:  # noqa: ANN401
    return connection.execute(text, values or []).fetchall()[0][0]


def _objects(tree: object) -> Iterator[dict[str, Any]]:
    """Yield all objects of a document."""
    # A list instead of a recursion: a query is nested as deeply as its author likes.
    waiting = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item


def _with_names(items: list[dict[str, Any]], taken: set[str]) -> set[str]:
    """Return the names that WITH defines. Their scope is the engine's matter, so none may hide the name of a table."""
    names = {str(entry["key"]).casefold() for item in items if "cte_map" in item for entry in item["cte_map"]["map"]}
    names |= {str(item["cte_name"]).casefold() for item in items if item.get("cte_name")}
    if hidden := sorted(names & taken):
        raise QueryRefusedError(f"WITH {hidden[0]!r}: expected a name that no table has. Choose another one.")
    return names


def _check(item: dict[str, Any], tables: set[str], known: str) -> str | None:
    """Refuse what a query must not name; return the name of a table that it reads."""
    kind = item.get("type")
    if "sample" in item and "alias" in item and kind not in _REFERENCES:
        raise QueryRefusedError(f"{kind} is not allowed after FROM.")
    if kind == "BASE_TABLE" or (kind == "SHOW_REF" and item["show_type"] == "SHOW"):
        return _table(item, tables, known)
    if kind == "SHOW_REF" and item["show_type"] == "SHOW_SPECIAL" and item["table_name"].strip('"') not in _SHOWN:
        raise QueryRefusedError("of SHOW only SHOW TABLES and SHOW with the name of a table are allowed.")
    if kind == "TABLE_FUNCTION":
        _check_function(item["function"], is_table=True)
    elif item.get("class") == "FUNCTION":
        _check_function(item, is_table=False)
    return None


def _in_words(tables: Collection[str]) -> str:
    """Return the names of the tables; those that share the word before their first underscore as one pattern."""
    plain = sorted(name for name in tables if "_" not in name)
    several = sorted({f"{name.split('_', 1)[0]}_*" for name in tables if "_" in name})
    if not plain:
        return ", ".join(several) or "none"
    words = plain[0] if len(plain) == 1 else f"{', '.join(plain[:-1])} and {plain[-1]}"
    return words + (f", and {', '.join(several)} (docs/sql.md)" if several else "")


def _table(item: dict[str, Any], tables: set[str], known: str) -> str:
    path = [name for name in item["qualified_name"]["path"] if name]
    name = str(item["table_name"]).strip('"').casefold()
    if len(path) != 1 or item["schema_name"] or item["catalog_name"] or name not in tables:
        shown = ".".join(str(part).strip('"') for part in path)
        raise QueryRefusedError(f"there is no table {shown!r}. The tables are {known}.")
    return name


def _check_function(item: dict[str, Any], *, is_table: bool) -> None:
    name = str(item["function_name"]).casefold()
    allowed = name in _TABLE_FUNCTIONS if is_table else name not in _REFUSED and not name.startswith(_REFUSED_STARTS)
    if not allowed:
        raise QueryRefusedError(f"the function {name} is not allowed: it does not only compute.")
