"""What a query asks of the columns of `events`, and which of them it reads, as far as its text says so plainly.

Taken from the WHERE of each SELECT that reads `events` and nothing else: conditions that are joined by AND and compare
a column with constants. They are used to leave out logs and blocks before anything is read; whatever is not understood
here asks for nothing, so that nothing is left out because of it. The engine filters as ever.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from custody.sql.protocol import AskedOfColumn

EVENTS = "events"
# Of these columns a catalog knows something; the kind says how their constants are read.
NUMBERS, TIMES, TEXTS = "number", "time", "text"
_COMPARISONS = {
    "COMPARE_EQUAL": ("values",),
    "COMPARE_GREATERTHAN": ("least",),
    "COMPARE_GREATERTHANOREQUALTO": ("least",),
    "COMPARE_LESSTHAN": ("greatest",),
    "COMPARE_LESSTHANOREQUALTO": ("greatest",),
}
_TURNED = {"least": "greatest", "greatest": "least", "values": "values"}
# A strict form: what the engine reads in another way must not be guessed here.
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)?Z?")
_INTEGER = re.compile(r"-?\d{1,18}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def alternatives(tree: Mapping[str, Any], columns: Mapping[str, str]) -> list[list[AskedOfColumn]]:
    """Return, for each place in a query that reads `events`, what an event has to meet to be of use there.

    `columns` are the columns that a catalog knows something of, with their kinds. An empty list means nothing can be
    said; so does an empty list within it.
    """
    objects = list(_objects(tree))
    places = sum(item.get("type") == "BASE_TABLE" and _name(item) == EVENTS for item in objects)
    asked = [_asked(item, columns) for item in objects if _reads_only_events(item)]
    shown = any(item.get("type") == "SHOW_REF" for item in objects)
    # A place that is not one of these SELECTs, such as a side of a join, may need every event.
    return asked if asked and len(asked) == places and not shown and all(asked) else []


# What names columns without their names: `*`, COLUMNS(…), and whatever is done to a table as a whole.
_WHOLE_TYPES = frozenset({"STAR", "SHOW_REF", "PIVOT", "POSITIONAL_REFERENCE"})


def columns_read(tree: Mapping[str, Any], columns: Collection[str]) -> list[str] | None:
    """Return which of the columns of `events` a query may read; None where that is not plain, for all of them.

    A column counts as read wherever its name stands in the query, as whatever.
    """
    said: set[str] = set()
    tables = {EVENTS}
    objects = list(_objects(tree))
    for item in objects:
        # As text: of what an object is called so may be an object itself, such as the type of a sample.
        if str(item.get("type")) in _WHOLE_TYPES or item.get("ref_type") == "NATURAL":
            return None
        if item.get("type") == "BASE_TABLE":
            # The columns get other names, by their order.
            if item.get("column_name_alias"):
                return None
            tables |= {_name(item), str(item.get("alias", "")).casefold()}
        said |= {text.casefold() for text in _texts(item)}
    # A table that is named like a column stands for its rows.
    references = (item["column_names"] for item in objects if item.get("type") == "COLUMN_REF")
    if any(str(names[-1]).casefold() in tables for names in references if names):
        return None
    return [name for name in columns if name.casefold() in said]


def _texts(item: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of an object, and those of its lists."""
    for value in item.values():
        yield from (text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str))


def _reads_only_events(item: Mapping[str, Any]) -> bool:
    table = item.get("from_table")
    return (
        item.get("type") == "SELECT_NODE"
        and isinstance(table, dict)
        and table.get("type") == "BASE_TABLE"
        and _name(table) == EVENTS
    )


def _asked(select: Mapping[str, Any], columns: Mapping[str, str]) -> list[AskedOfColumn]:
    """Return the conditions of one SELECT; none where names may mean something else than the table's columns."""
    table = select["from_table"]
    if table.get("column_name_alias") or table.get("sample") or table.get("at_clause") or select.get("sample"):
        return []
    aliases = {str(each.get("alias", "")).casefold() for each in select.get("select_list", [])}
    known = {name: kind for name, kind in columns.items() if name not in aliases}
    qualifiers = {str(table.get("alias") or EVENTS).casefold()}
    return [each for part in _conjuncts(select.get("where_clause")) for each in _conditions(part, known, qualifiers)]


def _conjuncts(clause: object) -> Iterator[Mapping[str, Any]]:
    waiting = [clause]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        if part.get("type") == "CONJUNCTION_AND":
            waiting += part.get("children", [])
        else:
            yield part


def _conditions(
    part: Mapping[str, Any], columns: Mapping[str, str], qualifiers: Collection[str]
) -> Iterator[AskedOfColumn]:
    kind = part.get("type")
    if kind in _COMPARISONS:
        [where] = _COMPARISONS[kind]
        for column, constant, role in (
            (part["left"], part["right"], where),
            (part["right"], part["left"], _TURNED[where]),
        ):
            name = _column(column, columns, qualifiers)
            value = None if name is None else _constant(constant, columns[name])
            if name is not None and value is not None:
                yield _condition(name, role, value)
    elif kind == "COMPARE_BETWEEN":
        name = _column(part["input"], columns, qualifiers)
        for role, constant in (("least", part["lower"]), ("greatest", part["upper"])) if name is not None else ():
            value = _constant(constant, columns[str(name)])
            if value is not None:
                yield _condition(str(name), role, value)
    elif kind == "COMPARE_IN":
        first, *others = part["children"]
        name = _column(first, columns, qualifiers)
        values = [_constant(each, columns[name]) for each in others] if name is not None else []
        if name is not None and values and None not in values:
            yield AskedOfColumn(column=name, values=tuple(each for each in values if each is not None))


def _condition(name: str, role: str, value: int | str) -> AskedOfColumn:
    # Bounds count as included, also where the query excludes them: one value more is only read for nothing.
    if role == "values":
        return AskedOfColumn(column=name, values=(value,))
    return AskedOfColumn(column=name, least=value) if role == "least" else AskedOfColumn(column=name, greatest=value)


def _column(item: Mapping[str, Any], columns: Mapping[str, str], qualifiers: Collection[str]) -> str | None:
    if item.get("class") != "COLUMN_REF":
        return None
    *path, name = (str(each).casefold() for each in item["column_names"])
    if path and (len(path) > 1 or path[0] not in qualifiers):
        return None
    return name if name in columns else None


def _constant(item: Mapping[str, Any], kind: str) -> int | str | None:
    """Return a constant as its column has it, None for what is not plainly one."""
    literal = item.get("literal")
    if item.get("class") != "CONSTANT" or not isinstance(literal, dict):
        return None
    text = str(literal.get("text"))
    if kind == NUMBERS:
        return int(text) if literal.get("kind") == "INTEGER" and _INTEGER.fullmatch(text) else None
    if literal.get("kind") != "STRING":
        return None
    return text if kind == TEXTS else _time_ms(text)


def _time_ms(text: str) -> int | None:
    """Return a time of a constant in ms, rounded down; the session's time zone is UTC."""
    if not _TIME.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=UTC)
    except ValueError:
        return None
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _name(table: Mapping[str, Any]) -> str:
    return str(table.get("table_name", "")).strip('"').casefold()


def _objects(tree: object) -> Iterator[dict[str, Any]]:
    waiting = [tree]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            yield item
            waiting += item.values()
        elif isinstance(item, list):
            waiting += item
