"""The versions of the event schema that can be read, and the way from each of them to the present one.

An older version has fewer columns; what it lacks is absent, or has the value that an event has when nothing is said.
A new version adds its schema to SCHEMAS and keeps the older ones. A version that is not in it is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from custody.errors import FormatVersionError
from custody.model.columns import EVENT_SCHEMA, SCHEMA_VERSION
from custody.model.event import Event

SCHEMAS: dict[int, pa.Schema] = {SCHEMA_VERSION: EVENT_SCHEMA}
"""The columns of each version that was ever written, in their order; part of the format: add, never change."""

_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Event)}


def schema_of(version: int, where: object) -> pa.Schema:
    """Return the columns of a schema version; `where` is the file that names it.

    Raises:
        FormatVersionError: a version that this code does not know.
    """
    schema = SCHEMAS.get(version)
    if schema is None:
        known = " or ".join(map(str, sorted(SCHEMAS)))
        raise FormatVersionError(
            f"{where}: expected events of schema version {known}, got {version}. Use a newer custody."
        )
    return schema


def to_present(table: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the events of any known version with the columns of the present one, or with some of them."""
    fields = [field for field in EVENT_SCHEMA if columns is None or field.name in columns]
    held = table.schema.names
    if held == [field.name for field in fields] and all(map(_is_same, table.schema, fields)):
        return table if table.schema.metadata is None else table.replace_schema_metadata()
    arrays = [
        table.column(field.name).cast(field.type) if field.name in held else pa.repeat(lacking(field), table.num_rows)
        for field in fields
    ]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def _is_same(field: pa.Field, other: pa.Field) -> bool:
    same: bool = field.equals(other)
    return same


def lacking(field: pa.Field) -> pa.Scalar:
    """Return what an event says in a column that it has not: null where that is allowed, else what Event has."""
    if field.nullable:
        return pa.scalar(None, field.type)
    if pa.types.is_list(field.type) or pa.types.is_map(field.type):
        return pa.scalar([], field.type)
    default = _DEFAULTS[field.name]
    if default is msgspec.NODEFAULT:
        default = "" if pa.types.is_string(field.type) else 0
    return pa.scalar(default, field.type)
