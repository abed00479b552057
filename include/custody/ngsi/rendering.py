r"""Records as bytes of files, in the four text modes of NGSIToHDFS or as Parquet; pure functions.

`json-row` and `csv-row` write a line for each attribute, `json-column` and `csv-column` a line for each entity. The CSV
modes keep metadata in files of their own, which exist even while they are empty, and name them in the line.

Columns (column modes): which attributes a destination has had so far, and the name of each one's column. Columns are
only ever added, at the end, in the order in which attributes first appeared: a line of CSV has its fields in this
order, and a Hive table made earlier stays true.

Fields of CSV: plain where nothing needs care, and every value can be read back. A line is one line. A line end in a
value is written `\n`, a carriage return `\r`. A value that has either, or that already has `\n`, `\r` or `\\` in it,
has each backslash doubled; every other value keeps its backslashes. A field with a separator or a quote is put in
quotes, quotes in it doubled. No value is `NULL`; the text NULL is `"NULL"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from custody.capture.ngsi_notification import Attribute
from custody.capture.raw_json import JsonKind, RawJson, exact_text
from custody.errors import InvalidInputError
from custody.ngsi import parquet
from custody.ngsi.naming import metadata_file
from custody.ngsi.parameters import Parameters
from custody.ngsi.records import Record, Unplaced

FIXED = ("recvTime", "fiwareServicePath", "entityId", "entityType")
MD, MD_FILE = "_md", "_md_file"
_OWN = "_attr"
# In lower case, for Hive does not tell names of columns apart by case.
_TAKEN = frozenset(name.lower() for name in ("recvTimeTs", *FIXED, "dt"))
_ENDINGS = (MD, MD_FILE, _OWN)
NULL = "NULL"
_NEEDS_ESCAPES = re.compile(r"[\n\r]|\\[nr\\]")
_LOOKS_ESCAPED = re.compile(r"\\[nr\\]")
_MEANS = {"\\n": "\n", "\\r": "\r", "\\\\": "\\"}
_QUOTE = '"'
_SCHEME = "hdfs://"
_METADATA_SEPARATOR = ","
ColumnsByLocation = Mapping[str, tuple[str, ...]]
"""The columns that each destination has so far, by its location."""


@dataclass(frozen=True, slots=True)
class FileAdditions:
    """Bytes that some records add, by path of the file, in the order in which files were met first."""

    files: Mapping[str, bytes]
    columns: ColumnsByLocation
    """All columns of the destinations in column modes that these records are for."""
    unplaced: Mapping[int, Unplaced]
    """Records that could not be written, by their position among the records."""
    sources: Mapping[str, Sequence[int]]
    """The records that each file has rows of, as positions among the records."""


def file_additions(
    records: Sequence[Record], parameters: Parameters, known: ColumnsByLocation, *, part: str
) -> FileAdditions:
    """Return what records add to files; `part` names files of Parquet, of which each batch makes new ones."""
    if parameters.format != "parquet":
        rendered = render(records, parameters, known)
        files = {path: file_text(lines).encode() for path, lines in rendered.files.items()}
        return FileAdditions(files, rendered.columns, rendered.unplaced, rendered.sources)
    # A Parquet file cannot be appended to: each batch makes new ones.
    numbers_of: dict[str, list[int]] = {}
    for number, record in enumerate(records):
        path = f"{record.placed.destination.location}/dt={parquet.day(record)}/{part}.parquet"
        numbers_of.setdefault(path, []).append(number)
    files = {
        path: parquet.file_bytes(parquet.arrow_table((records[number] for number in numbers), parameters))
        for path, numbers in numbers_of.items()
    }
    return FileAdditions(files, {}, {}, numbers_of)


@dataclass(frozen=True, slots=True)
class Rendered:
    """Lines that some records add to files, by path, in order; an empty list makes an empty file."""

    files: dict[str, list[str]] = field(default_factory=dict)
    columns: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Of the destinations in column modes, the new columns at the end."""
    unplaced: dict[int, Unplaced] = field(default_factory=dict)
    """Records whose metadata have no file, by their position among the records; no line has anything of them."""
    sources: dict[str, list[int]] = field(default_factory=dict)
    """The records that each file has lines of, as positions among the records."""

    def add(self, path: str, lines: Iterable[str], number: int) -> None:
        """Add lines of a record to a file."""
        self.files.setdefault(path, []).extend(lines)
        numbers = self.sources.setdefault(path, [])
        # Records come in order, so a look at the last number is enough.
        if not numbers or numbers[-1] != number:
            numbers.append(number)


def render(records: Iterable[Record], parameters: Parameters, known: ColumnsByLocation) -> Rendered:
    """Return the lines of some records in the mode that the parameters choose; `parquet` has no lines."""
    rendered = Rendered()
    is_column, is_csv = parameters.format.endswith("column"), parameters.format.startswith("csv")
    for number, record in enumerate(records):
        location, path = record.placed.destination.location, record.placed.destination.file
        # Records of one call extend each other's columns, so those found so far go before the known ones.
        have = rendered.columns.get(location, known.get(location, ()))
        if is_column:
            have = extended(have, (name for name, _ in columns(record.attributes)))
        if not is_csv:
            rows = _json_column(record, parameters) if is_column else _json_row(record, parameters)
            rendered.add(path, rows, number)
        else:
            # Before any line is added: a record whose metadata have no file must leave none.
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
            # Only here: a record that was left out above must not add a column.
            rendered.columns[location] = have
    return rendered


def file_text(lines: Iterable[str]) -> str:
    """Return lines as the text of a file: each ends in a newline."""
    return "".join(f"{line}\n" for line in lines)


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
    number, free = 2, name
    while free in seen:
        free, number = f"{name}_{number}", number + 1
    return free


def line(fields: Iterable[str | None], separator: str) -> str:
    """Return a line without its end; None is no value."""
    return separator.join(_field(item, separator) for item in fields)


def _field(item: str | None, separator: str) -> str:
    if item is None:
        return NULL
    # Only where it must be: plain lines stay as NGSIToHDFS writes them.
    if _NEEDS_ESCAPES.search(item):
        item = item.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    if separator in item or _QUOTE in item or item == NULL:
        return _QUOTE + item.replace(_QUOTE, _QUOTE * 2) + _QUOTE
    return item


def read_line(text: str, separator: str) -> list[str | None]:
    """Return the values of a line.

    Raises:
        InvalidInputError: a quote is not closed, or is where none may be.
    """
    return [None if field == NULL and not is_quoted else value(field) for field, is_quoted in _fields(text, separator)]


def value(field: str) -> str:
    """Return the value of a field whose quotes are gone, as any reader of CSV gives it."""
    return _LOOKS_ESCAPED.sub(lambda escape: _MEANS[escape[0]], field)


def _fields(text: str, separator: str) -> Iterator[tuple[str, bool]]:
    plain = re.compile(rf"[^{re.escape(separator)}\"]*")
    quoted = re.compile(r'"((?:[^"]|"")*)"')
    at = 0
    while True:
        pattern = quoted if text.startswith(_QUOTE, at) else plain
        match = pattern.match(text, at)
        if match is None or (match.end() < len(text) and text[match.end()] != separator):
            raise InvalidInputError(f"CSV line @{at}: expected a field and {separator!r}, got {text[at : at + 40]!r}")
        yield (match[1].replace(_QUOTE * 2, _QUOTE), True) if pattern is quoted else (match[0], False)
        at = match.end() + 1
        if at > len(text):
            return


def _json_row(record: Record, parameters: Parameters) -> Iterator[str]:
    # As `_object` writes them: the names are always these, and what all lines of a record begin with is made once.
    common = (
        f'{{"recvTimeTs":{_json(record.arrival.timestamp)},"recvTime":{_json(record.arrival.iso)},'
        f'"fiwareServicePath":{_json(record.path)},'
        f'"entityId":{_json(record.entity.id)},"entityType":{_json(record.entity.type)}'
    )
    has_metadata = parameters.values.attr_metadata_store
    for attribute in record.attributes:
        metadata = f',"attrMd":{metadata_json(attribute).json}' if has_metadata else ""
        yield (
            f'{common},"attrName":{_json(attribute.name)},"attrType":{_json(attribute.type)},'
            f'"attrValue":{_json_value(attribute.value, parameters).json}{metadata}}}'
        )


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
        yield line(
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
    yield line(fields, parameters.values.csv_separator)


def _metadata_files(record: Record, parameters: Parameters) -> list[str | None]:
    if not parameters.values.attr_metadata_store:
        return [None] * len(record.attributes)
    return [metadata_file(record.placed, item.name, item.type, parameters) for item in record.attributes]


def _metadata_lines(record: Record, attribute: Attribute) -> Iterator[str]:
    for item in attribute.metadata:
        yield line([record.arrival.timestamp, item.name, item.type, _csv_value(item.value)], _METADATA_SEPARATOR)


def _reference(file: str | None, parameters: Parameters) -> list[str | None]:
    if not parameters.values.attr_metadata_store:
        return []
    return [None if file is None else f"{_SCHEME}{file}"]


def _csv_value(value: RawJson) -> str | None:
    return None if value.kind is JsonKind.NULL else value.plain


def _json_value(value: RawJson, parameters: Parameters) -> RawJson:
    if (
        value.is_composite
        or value.kind is JsonKind.NULL
        or (parameters.values.native_types and value.kind is not JsonKind.STRING)
    ):
        return value
    return exact_text(value.plain)


def metadata_json(attribute: Attribute) -> RawJson:
    """Return an attribute's metadata as an array of objects whose values are texts, or null."""
    items = (
        _object(
            [
                ("name", exact_text(item.name)),
                ("type", exact_text(item.type)),
                ("value", item.value if item.value.kind is JsonKind.NULL else exact_text(item.value.plain)),
            ]
        )
        for item in attribute.metadata
    )
    return RawJson(f"[{','.join(items)}]")


def _json(characters: str) -> str:
    return exact_text(characters).json


def _object(members: Iterable[tuple[str, RawJson]]) -> str:
    return "{" + ",".join(f"{exact_text(name).json}:{value.json}" for name, value in members) + "}"
