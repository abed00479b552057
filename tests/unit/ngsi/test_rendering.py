"""What the modes write can be read back: values, metadata, and that a line is one line."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import BufferReader

from custody.ngsi import parquet, rendering
from custody.ngsi.hive import PARQUET_COLUMNS
from custody.ngsi.rendering import file_text, render
from tests.unit.ngsi.notification_records import attribute, body, parameters, recorded

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.text(min_size=1, max_size=8).filter(lambda name: name not in ("id", "type", "@context", "alterationType"))
ATTRIBUTES = st.dictionaries(NAMES, VALUES, min_size=1, max_size=4)


def said(value: Any) -> str | None:
    """A value as text: what a text says, everything else as JSON writes it."""
    return value if isinstance(value, str) else None if value is None else compact(value)


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def notified(values: dict[str, Any]) -> bytes:
    return body({name: attribute(value, note=value) for name, value in values.items()})


@given(ATTRIBUTES)
def test_json_row(values: dict[str, Any]) -> None:
    used = parameters()
    [(_, lines)] = render(recorded(notified(values), used), used, {}).files.items()
    text = file_text(lines)
    assert text.count("\n") == len(values)
    for line, (name, value) in zip(text.split("\n"), values.items(), strict=False):
        row = json.loads(line)
        assert row["attrName"] == name
        assert row["attrValue"] == (value if isinstance(value, list | dict) else said(value))
        assert row["attrMd"] == [{"name": "note", "type": "Text", "value": said(value)}]


@given(ATTRIBUTES)
def test_json_row_with_native_types(values: dict[str, Any]) -> None:
    used = parameters(native_types=True)
    [(_, lines)] = render(recorded(notified(values), used), used, {}).files.items()
    assert [json.loads(line)["attrValue"] for line in lines] == list(values.values())


@given(ATTRIBUTES)
def test_json_column(values: dict[str, Any]) -> None:
    used = parameters(file_format="json-column")
    [(_, [line])] = render(recorded(notified(values), used), used, {}).files.items()
    members = json.loads(line, object_pairs_hook=list)
    assert len(members) == len({name for name, _ in members}) == 4 + 2 * len(values)
    row = json.loads(line)
    assert [row["entityId"], row["entityType"]] == ["Bench1", "Bench"]


@given(st.dictionaries(st.text(st.sampled_from("aö,"), min_size=1, max_size=3), VALUES, min_size=1, max_size=4))
def test_csv_rows_and_their_metadata(values: dict[str, Any]) -> None:
    used = parameters(file_format="csv-row", enable_encoding=True)
    files = render(recorded(notified(values), used), used, {}).files
    (_, lines), *metadata = files.items()
    rows = [rendering.read_line(line, ",") for line in lines]
    assert [(row[5], row[7]) for row in rows] == [(name, said(value)) for name, value in values.items()]
    paths = dict(metadata)
    for row, value in zip(rows, values.values(), strict=True):
        [line] = paths[str(row[8]).removeprefix("hdfs://")]
        assert rendering.read_line(line, ",") == [rows[0][0], "note", "Text", said(value)]


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), SCALARS, min_size=1), min_size=1, max_size=5))
def test_csv_columns_keep_their_places_over_events(events: list[dict[str, Any]]) -> None:
    used = parameters(file_format="csv-column", attr_metadata_store=False)
    known: dict[str, tuple[str, ...]] = {}
    rows = []
    for values in events:
        made = render(recorded(notified(values), used), used, known)
        known |= made.columns
        [(_, [line])] = made.files.items()
        rows.append(rendering.read_line(line, ",")[4:])
    [columns] = known.values()
    assert sorted(columns) == sorted({name for values in events for name in values})
    for row, values in zip(rows, events, strict=True):
        assert dict(zip(columns, row, strict=False)) == {name: said(values.get(name)) for name in columns[: len(row)]}


@given(ATTRIBUTES)
def test_parquet(values: dict[str, Any]) -> None:
    used = parameters(file_format="parquet")
    records = recorded(notified(values), used)
    data = parquet.file_bytes(parquet.arrow_table(records, used))
    assert data == parquet.file_bytes(parquet.arrow_table(records, used))
    found = pq.read_table(BufferReader(data))
    assert found.schema.equals(parquet.SCHEMA)
    rows = found.to_pylist()
    assert [(row["attrName"], row["attrValue"]) for row in rows] == [
        (name, said(value)) for name, value in values.items()
    ]
    for row, value in zip(rows, values.values(), strict=True):
        back = row["attrValue"] if row["attrValueKind"] in ("string", "null") else json.loads(row["attrValue"])
        assert back == value
        assert row["attrMd"] == [{"name": "note", "type": "Text", "value": said(value)}]


def test_an_empty_table_has_the_schema_too() -> None:
    made = parquet.arrow_table([], parameters(file_format="parquet"))
    assert (made.num_rows, made.schema) == (0, parquet.SCHEMA)


def test_the_hive_table_has_the_columns_of_the_parquet_files() -> None:
    kinds = {"int64": "bigint", "string": "string", "timestamp[ms, tz=UTC]": "timestamp"}
    assert [name for name, _ in PARQUET_COLUMNS] == parquet.SCHEMA.names
    for (name, kind), field in zip(PARQUET_COLUMNS, parquet.SCHEMA, strict=True):
        assert kinds.get(str(field.type), "array<struct<name:string,type:string,value:string>>") == kind, name


def test_a_number_has_all_its_digits_in_every_mode() -> None:
    digits = "12345678901234567890123.1000"
    data = msgspec.json.encode(
        {"data": [{"id": "b", "type": "T", "n": {"type": "Number", "value": msgspec.Raw(digits.encode())}}]}
    )
    for mode in ("json-row", "json-column", "csv-row", "csv-column"):
        used = parameters(file_format=mode)
        [line] = next(iter(render(recorded(data, used), used, {}).files.values()))
        assert digits in line
    used = parameters(file_format="parquet")
    assert parquet.arrow_table(recorded(data, used), used)["attrValue"].to_pylist() == [digits]
