"""The columns of the column modes: which attributes a destination has had so far, and what each is called.

Columns are only ever added, at the end, in the order in which attributes first appeared: a line of CSV has its
fields in this order, and a Hive table made earlier stays true.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from custody.capture.ngsi_attributes import Attribute

FIXED = ("recvTime", "fiwareServicePath", "entityId", "entityType")
MD, MD_FILE = "_md", "_md_file"
_OWN = "_attr"
_TAKEN = frozenset(name.lower() for name in ("recvTimeTs", *FIXED, "dt"))
_ENDINGS = (MD, MD_FILE, _OWN)


def column_name(attribute: str) -> str:
    """Return the column of an attribute: its name, with `_attr` where it could be taken for another column.

    Two attributes never share a column, whatever other attributes there are.
    """
    name = attribute.lower()
    return f"{attribute}{_OWN}" if name in _TAKEN or name.endswith(_ENDINGS) else attribute


def columns(attributes: Iterable[Attribute]) -> Iterator[tuple[str, Attribute]]:
    """Yield the column of each attribute; instances of one name are told apart by their datasetId or their number."""
    seen: set[str] = set()
    for attribute in attributes:
        name = column_name(attribute.name)
        if name in seen:
            dataset = next((item.value.plain for item in attribute.metadata if item.name == "datasetId"), "")
            name = _free(f"{name}_{dataset}" if dataset else name, seen)
        seen.add(name)
        yield name, attribute


def extended(known: tuple[str, ...], names: Iterable[str]) -> tuple[str, ...]:
    """Return the known columns and behind them those of the names that are new."""
    return tuple(dict.fromkeys([*known, *names]))


def _free(name: str, seen: set[str]) -> str:
    number, found = 2, name
    while found in seen:
        found, number = f"{name}_{number}", number + 1
    return found
