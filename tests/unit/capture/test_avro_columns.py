"""Records of Avro that are decoded at once: they are those that the library decodes one by one."""

from __future__ import annotations

import io
import json

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture import avro_columns
from custody.capture.avro import compile_schema, write_long
from custody.capture.avro_columns import ColumnDecoder, RecordColumns, ShortContentError, UnusualRecordsError
from tests.unit.capture.sample_inputs import Json

MANY = 1 << 40
_STRINGS = st.one_of(st.text(max_size=5), st.integers(0, 9000).map("x".__mul__))
_TEXTS_NULL = {"type": "map", "values": ["null", "string"]}
_NULL_TEXTS = {"type": "map", "values": ["string", "null"]}
_MAPS = st.dictionaries(st.text(max_size=3), st.one_of(st.none(), _STRINGS), max_size=6)
_KINDS: list[tuple[object, st.SearchStrategy[object]]] = [
    ("int", st.integers(-(1 << 31), (1 << 31) - 1)),
    ("long", st.one_of(st.integers(-70, 70), st.integers(-(1 << 63), (1 << 63) - 1))),
    ("long", st.integers(-(1 << 55), (1 << 55) - 1)),
    ("string", _STRINGS),
    ({"type": "array", "items": "string"}, st.lists(_STRINGS, max_size=6)),
    (_TEXTS_NULL, _MAPS),
    (_NULL_TEXTS, _MAPS),
    ({"type": "map", "values": "string"}, st.dictionaries(st.text(max_size=3), _STRINGS, max_size=6)),
]


def schema_of(*kinds: object) -> Json:
    return {"type": "record", "name": "r", "fields": [{"name": f"f{n}", "type": kind} for n, kind in enumerate(kinds)]}


def decoder(schema: Json) -> ColumnDecoder:
    compiled = compile_schema(json.dumps(schema).encode())
    forms = avro_columns.field_forms(compiled.fields)
    assert forms is not None
    return ColumnDecoder(forms, compiled.read_record)


def encoded(schema: Json, records: list[Json]) -> list[bytes]:
    parsed = fastavro.parse_schema(schema)
    contents = []
    for record in records:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, record)
        contents.append(out.getvalue())
    return contents


def rows(found: RecordColumns) -> list[Json]:
    columns = {
        name: column.to_pylist(**({"maps_as_pydicts": "strict"} if pa.types.is_map(column.type) else {}))
        for name, column in found.columns.items()
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@st.composite
def tables(draw: st.DrawFn) -> tuple[Json, list[Json]]:
    fields: list[object] = ["string"]
    values: list[st.SearchStrategy[object]] = [st.just("a text as long as all others")]
    for kind, of_kind in draw(st.lists(st.sampled_from(_KINDS), min_size=1, max_size=6)):
        null = draw(st.sampled_from([None, 0, 1]))
        fields.append(kind if null is None else ["null", kind] if null == 0 else [kind, "null"])
        values.append(of_kind if null is None else st.one_of(st.none(), of_kind))
    record = st.tuples(*values).map(lambda row: {f"f{number}": value for number, value in enumerate(row)})
    return schema_of(*fields), draw(st.lists(record, min_size=1, max_size=30))


@given(table=tables(), cut=st.integers(0, 200))
def test_records_of_any_usual_schema_are_those_of_the_library(table: tuple[Json, list[Json]], cut: int) -> None:
    schema, records = table
    contents = encoded(schema, records)
    content = b"".join(contents)
    try:
        found = decoder(schema).decode([content[:cut], content[cut:]], len(records), MANY, [0])
    except UnusualRecordsError:
        # Numbers of more than eight bytes in many of the records.
        return
    assert [found.record(number) for number in range(len(records))] == contents
    expected = [
        {
            # Of arrays and maps none is as good as an empty one.
            name: value if value is not None or not isinstance(kind, dict) else {"array": [], "map": {}}[kind["type"]]
            for (name, value), kind in zip(record.items(), map(_without_null, schema["fields"]), strict=True)
        }
        for record in records
    ]
    assert rows(found) == [expected[number] for number in found.usual.tolist()]


def _without_null(field: Json) -> object:
    kind = field["type"]
    return next(one for one in kind if one != "null") if isinstance(kind, list) else kind


@given(table=tables(), data=st.data())
def test_of_damaged_records_nothing_is_made_up(table: tuple[Json, list[Json]], data: st.DataObject) -> None:
    schema, records = table
    content = bytearray(b"".join(encoded(schema, records)))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    compiled = compile_schema(json.dumps(schema).encode())
    try:
        found = decoder(schema).decode([bytes(content)], len(records), MANY, [0])
    except (UnusualRecordsError, ShortContentError):
        return
    stream = io.BytesIO(content)
    for number, end in enumerate(found.ends.tolist()):
        value = compiled.read_record(stream)
        assert stream.tell() == end
        if number in found.usual:
            row = rows(found)[found.usual.tolist().index(number)]
            assert row == {
                name: row[name] if one is None and row[name] in ([], {}) else one for name, one in value.items()
            }


UUID = "5f0c0000-0000-4000-8000-000000000000"


def some(records: list[Json], *kinds: object) -> RecordColumns:
    schema = schema_of(*kinds)
    return decoder(schema).decode([b"".join(encoded(schema, records))], len(records), MANY, [0])


def test_a_record_of_a_rare_form_stands_by_itself_between_the_others() -> None:
    usual: Json = {"f0": UUID, "f1": 7, "f2": {"a": "b"}}
    for odd in ({**usual, "f1": 1 << 60}, {**usual, "f2": {str(n): "x" for n in range(200)}}):
        found = some([*[usual] * 9, odd, *[usual] * 10], "string", "long", {"type": "map", "values": "string"})
        assert found.usual.tolist() == [*range(9), *range(10, 20)]
        assert rows(found) == [usual] * 19


def test_a_map_in_pieces_and_one_with_a_name_twice_stand_by_themselves() -> None:
    schema = schema_of("string", _TEXTS_NULL)
    usual, other = encoded(schema, [{"f0": UUID, "f1": {"a": "b"}}, {"f0": UUID, "f1": {"a": "b", "c": None}}])
    name = usual[:37]
    entry = b"\x02a\x02\x02b"
    in_pieces = name + write_long(-1) + write_long(len(entry)) + entry + b"\0"
    twice = name + write_long(2) + entry + entry + b"\0"
    two_blocks = name + write_long(1) + entry + write_long(1) + b"\x02c\0" + b"\0"
    for odd in (in_pieces, twice, two_blocks):
        found = decoder(schema).decode([usual * 9, odd, other * 10], 20, MANY, [0])
        assert found.usual.tolist() == [*range(9), *range(10, 20)]
        assert found.record(9) == odd


def test_records_that_begin_in_a_few_ways_are_learned_and_those_of_many_refused() -> None:
    found = some([{"f0": "x" * (number % 5), "f1": number} for number in range(500)], "string", "long")
    assert len(found.usual) == 500
    texts = ["x" * (number % 50) for number in range(500)]
    found = some([{"f0": UUID, "f1": text, "f2": 7} for text in texts], "string", "string", "long")
    assert len(found.usual) == 500, "the first text is as long in all of them"
    with pytest.raises(UnusualRecordsError):
        some([{"f0": text, "f1": 7} for text in texts], "string", "long")
    with pytest.raises(UnusualRecordsError):
        some([{"f0": number} for number in range(500)], "long")


def test_records_whose_texts_are_like_their_beginnings_are_refused_before_all_places_are_tried() -> None:
    beginning = write_long(len(UUID)).decode()
    found = some([{"f0": UUID, "f1": 7, "f2": beginning * 5}] * 100, "string", "long", "string")
    assert len(found.usual) == 100
    with pytest.raises(UnusualRecordsError, match="begin like anything"):
        some([{"f0": UUID, "f1": 7, "f2": beginning * 50}] * 100, "string", "long", "string")


def test_as_many_records_are_returned_as_were_asked_for_and_as_have_the_bytes() -> None:
    schema = schema_of("string", "long")
    content = b"".join(encoded(schema, [{"f0": UUID, "f1": 5}] * 10))
    size = len(content) // 10
    assert len(decoder(schema).decode([content], 7, MANY, [0]).ends) == 7
    assert len(decoder(schema).decode([content], 7, 3 * size, [0]).ends) == 3
    assert len(decoder(schema).decode([content], 7, 3 * size + 1, [0]).ends) == 4
    with pytest.raises(ShortContentError):
        decoder(schema).decode([content], 11, MANY, [0])
    with pytest.raises(ShortContentError):
        decoder(schema).decode([content[:-1]], 10, MANY, [0])


def test_a_text_that_is_no_utf_8_is_refused() -> None:
    schema = schema_of("string", "string")
    usual, odd = encoded(schema, [{"f0": UUID, "f1": "abc"}, {"f0": UUID, "f1": "a\u00e9"}])
    assert rows(decoder(schema).decode([usual * 9, odd], 10, MANY, [0]))[9]["f1"] == "a\u00e9"
    for text in (b"\xed\xa0\x80", b"\xff\xfe\x00", b"\xc0\x80a", b"\xf4\x90\x80"):
        with pytest.raises(UnusualRecordsError):
            decoder(schema).decode([usual * 9, odd[:-3] + text], 10, MANY, [0])


@pytest.mark.parametrize(
    "kind",
    ["bytes", "double", "boolean", ["null", "long", "string"], ["string", "long"], ["null", "null"], ["null"]],
)
def test_other_types_are_left_to_the_library(kind: object) -> None:
    fields: list[Json] = [{"name": "f0", "type": "string"}, {"name": "f1", "type": kind}]
    assert avro_columns.field_forms(fields) is None
    twice: list[Json] = [{"name": "f0", "type": "string"}, {"name": "f0", "type": "string"}]
    assert avro_columns.field_forms(twice) is None
