"""The readable versions of the event schema, and the conversion of each of them to the present one.

An older version has fewer columns; a missing value is absent, or the default of its field. A new version adds its
schema to SCHEMAS and keeps the older ones. A version newer than all of those is read if it says that readers of a known
version can (`reader_version`), else refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa

from custody.errors import CorruptionError, FormatVersionError
from custody.model.columns import EVENT_SCHEMA, SCHEMA_VERSION
from custody.model.event import Event

SCHEMAS: dict[int, pa.Schema] = {SCHEMA_VERSION: EVENT_SCHEMA}
"""The columns of each version that was ever written, in their order; part of the format: add, never change."""

_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(Event)}


def schema_of(version: int, where: object, reader_version: int = SCHEMA_VERSION) -> pa.Schema:
    """Return the columns that are known of a schema version; `where` is the file that names it.

    Of a newer version whose `reader_version` is known, these are the columns of the present one: what it added is
    passed over by reading, and `require_keeping` refuses to write it anew.

    Raises:
        FormatVersionError: a version that this code cannot read.
    """
    # A newer version that only added columns; `reader_version` is its writer's promise of that.
    if is_newer(version) and reader_version <= SCHEMA_VERSION:
        return EVENT_SCHEMA
    schema = SCHEMAS.get(version)
    if schema is None:
        known = " or ".join(map(str, sorted(SCHEMAS)))
        raise FormatVersionError(
            f"{where}: expected events of schema version {known}, got {version}. Use a newer custody."
        )
    return schema


def is_newer(version: int) -> bool:
    """Whether a schema version came after those that this code knows."""
    return version > max(SCHEMAS)


def check_columns(schema: pa.Schema, version: int, where: object) -> None:
    """Refuse columns that a file of this version does not have; a newer one has the present ones and others.

    Raises:
        CorruptionError: they are not those of the version.
    """
    if not is_newer(version):
        if not schema.equals(SCHEMAS[version]):
            raise CorruptionError(f"{where}: expected the columns of schema version {version}, got others.")
        return
    for field in EVENT_SCHEMA:
        place = schema.get_field_index(field.name)
        if place < 0 or not _is_same(schema.field(place), field):
            raise CorruptionError(
                f"{where}: expected the column {field.name} ({field.type}), as schema version {version} says that "
                f"readers of version {SCHEMA_VERSION} can read it, got {schema.field(place) if place >= 0 else 'none'}."
            )


def unknown_columns(schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that a newer custody added."""
    return tuple(name for name in schema.names if name not in EVENT_SCHEMA.names)


def newer_notice(version: int, columns: Sequence[str]) -> str:
    """Return what is said of events that a newer custody stored."""
    return (
        f"some events were stored by a newer custody, with schema version {version}: "
        f"their columns {', '.join(columns)} are not shown. Use that one."
    )


def require_keeping(version: int, where: object) -> None:
    """Refuse to write events anew that have columns which this code does not know.

    Raises:
        FormatVersionError: they have; the message says what to do.
    """
    if is_newer(version):
        raise FormatVersionError(
            f"{where}: expected events of schema version {SCHEMA_VERSION} to write anew, got {version}: columns that "
            "this custody does not know would be lost. Nothing was changed. Run it with the newer custody."
        )


def to_present(table: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the events of any known version with the columns of the present one, or with some of them."""
    fields = [field for field in EVENT_SCHEMA if columns is None or field.name in columns]
    held = table.schema.names
    # The usual case: nothing is copied.
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
