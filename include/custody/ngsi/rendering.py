"""Records become the lines of files, in the four modes of NGSIToHDFS; pure functions.

`json-row` and `csv-row` write a line an attribute, `json-column` and `csv-column` a line an entity. The CSV modes keep
metadata in files of their own, which exist even while they are empty, and name them in the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from custody.capture.exact import Exact, Kind, exact_text
from custody.capture.ngsi_attributes import Attribute
from custody.errors import InvalidInputError
from custody.ngsi import csv
from custody.ngsi.columns import MD, columns, extended
from custody.ngsi.naming import metadata_file
from custody.ngsi.parameters import Parameters
from custody.ngsi.records import Record, Unplaced

_SCHEME = "hdfs://"
_METADATA_SEPARATOR = ","
Known = Mapping[str, tuple[str, ...]]
"""The columns that each destination has so far, by its location."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """What some records add to files: lines by path, in order; an empty list makes an empty file."""

    files: dict[str, list[str]] = field(default_factory=dict)
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of the destinations in column modes, the new columns at the end."""
    unplaced: dict[int, Unplaced] = field(default_factory=dict)
    """Records whose metadata have no file, by their place among the records; nothing of them is in the lines."""

    sources: dict[str, list[int]] = field(default_factory=dict)
    """Which records each file has lines of, by their place among the records."""

    def add(self, path: str, lines: Iterable[str], number: int) -> None:
        """Add lines of a record to a file."""
        self.files.setdefault(path, []).extend(lines)
        have = self.sources.setdefault(path, [])
        if not have or have[-1] != number:
            have.append(number)


def file_text(lines: Iterable[str]) -> str:
    """Return what lines are in a file: each ends in a newline."""
    return "".join(f"{line}\n" for line in lines)


def render(found: Iterable[Record], parameters: Parameters, known: Known) -> Rendered:
    """Return the lines of some records in the mode that the parameters choose; `parquet` has no lines."""
    rendered = Rendered()
    is_column, is_csv = parameters.format.endswith("column"), parameters.format.startswith("csv")
    for number, record in enumerate(found):
        location, path = record.placed.destination.location, record.placed.destination.file
        have = rendered.columns.get(location, known.get(location, ()))
        if is_column:
            have = extended(have, (name for name, _ in columns(record.attributes)))
        if not is_csv:
            rows = _json_column(record, parameters) if is_column else _json_row(record, parameters)
            rendered.add(path, rows, number)
        else:
            try:
                metadata = _metadata_files(record, parameters)
            except InvalidInputError as error:
                rendered.unplaced[number] = Unplaced(record.entity, str(error))
                continue
            lines = (
                _csv_column(record, metadata, have, parameters) if is_column else _csv_row(record, metadata, parameters)
            )
            rendered.add(path, lines, number)
            for file, attribute in zip(metadata, record.attributes, strict=True):
                if file is not None:
                    rendered.add(file, _metadata_lines(record, attribute), number)
        if is_column:
            rendered.columns[location] = have
    return rendered


def _json_row(record: Record, parameters: Parameters) -> Iterator[str]:
    entity = record.entity
    for attribute in record.attributes:
        members = [
            ("recvTimeTs", exact_text(record.arrival.timestamp)),
            ("recvTime", exact_text(record.arrival.iso)),
            ("fiwareServicePath", exact_text(record.path)),
            ("entityId", exact_text(entity.id)),
            ("entityType", exact_text(entity.type)),
            ("attrName", exact_text(attribute.name)),
            ("attrType", exact_text(attribute.type)),
            ("attrValue", _json_value(attribute.value, parameters)),
        ]
        if parameters.values.attr_metadata_store:
            members.append(("attrMd", metadata_json(attribute)))
        yield _object(members)


def _json_column(record: Record, parameters: Parameters) -> Iterator[str]:
    members = [
        ("recvTime", exact_text(record.arrival.iso)),
        ("fiwareServicePath", exact_text(record.path)),
        ("entityId", exact_text(record.entity.id)),
        ("entityType", exact_text(record.entity.type)),
    ]
    for name, attribute in columns(record.attributes):
        members.append((name, _json_value(attribute.value, parameters)))
        if parameters.values.attr_metadata_store:
            members.append((f"{name}{MD}", metadata_json(attribute)))
    yield _object(members)


def _csv_row(record: Record, metadata: list[str | None], parameters: Parameters) -> Iterator[str]:
    entity, arrival = record.entity, record.arrival
    for attribute, file in zip(record.attributes, metadata, strict=True):
        fields = [arrival.timestamp, arrival.iso, record.path, entity.id, entity.type, attribute.name, attribute.type]
        yield csv.line(
            [*fields, _csv_value(attribute.value), *_reference(file, parameters)], parameters.values.csv_separator
        )


def _csv_column(
    record: Record, metadata: list[str | None], have: tuple[str, ...], parameters: Parameters
) -> Iterator[str]:
    fields: list[str | None] = [record.arrival.iso, record.path, record.entity.id, record.entity.type]
    named = {
        name: (attribute, file) for (name, attribute), file in zip(columns(record.attributes), metadata, strict=True)
    }
    for name in have:
        attribute, file = named.get(name, (None, None))
        fields += [None if attribute is None else _csv_value(attribute.value), *_reference(file, parameters)]
    yield csv.line(fields, parameters.values.csv_separator)


def _metadata_files(record: Record, parameters: Parameters) -> list[str | None]:
    if not parameters.values.attr_metadata_store:
        return [None] * len(record.attributes)
    return [metadata_file(record.placed, item.name, item.type, parameters) for item in record.attributes]


def _metadata_lines(record: Record, attribute: Attribute) -> Iterator[str]:
    for item in attribute.metadata:
        yield csv.line([record.arrival.timestamp, item.name, item.type, _csv_value(item.value)], _METADATA_SEPARATOR)


def _reference(file: str | None, parameters: Parameters) -> list[str | None]:
    if not parameters.values.attr_metadata_store:
        return []
    return [None if file is None else f"{_SCHEME}{file}"]


def _csv_value(value: Exact) -> str | None:
    return None if value.kind is Kind.NULL else value.plain


def _json_value(value: Exact, parameters: Parameters) -> Exact:
    if (
        value.is_composite
        or value.kind is Kind.NULL
        or (parameters.values.native_types and value.kind is not Kind.STRING)
    ):
        return value
    return exact_text(value.plain)


def metadata_json(attribute: Attribute) -> Exact:
    """Return an attribute's metadata as an array of objects whose values are texts, or null."""
    items = (
        _object(
            [
                ("name", exact_text(item.name)),
                ("type", exact_text(item.type)),
                ("value", item.value if item.value.kind is Kind.NULL else exact_text(item.value.plain)),
            ]
        )
        for item in attribute.metadata
    )
    return Exact(f"[{','.join(items)}]")


def _object(members: Iterable[tuple[str, Exact]]) -> str:
    return "{" + ",".join(f"{exact_text(name).json}:{value.json}" for name, value in members) + "}"
