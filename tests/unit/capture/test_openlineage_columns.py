"""OpenLineage's events in columns: the outcomes are those of reading one element after the other."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture import CaptureLimits, ColumnBatch, Context, Format, former_ordinal, former_ordinals, read_batches
from custody.capture.json_shapes import ROWS_MIN
from custody.model import to_events
from tests.unit.capture.sample_inputs import Json, dataset, lines, run_event
from tests.unit.capture.test_nifi_columns import EVENT_BYTES_MAX, compare

LIMITS = CaptureLimits(EVENT_BYTES_MAX, 1 << 30)
SEED, TREE = dataset("seed"), dataset("tree")


def _run(facets: object, kind: str = "COMPLETE", run_id: object = "0195aaaa-0000-7000-8000-000000000009") -> Json:
    return run_event(kind, run={"runId": run_id, "facets": facets})


def _job(**members: object) -> Json:
    return run_event(job={"namespace": "garden", "name": "n", **members})


def _output(facets: object, kind: str = "COMPLETE") -> Json:
    return run_event(kind, outputs=[{**TREE, "outputFacets": facets}, TREE])


def _size(size: object, kind: str = "COMPLETE") -> Json:
    return _output({"outputStatistics": {"size": size, "rowCount": 1}}, kind)


def _without(name: str) -> Json:
    return {key: value for key, value in run_event().items() if key != name}


def _nested(levels: int) -> Json:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return run_event(extra=value)


_PARENT: Json = {"job": {"namespace": "garden", "name": "trees"}, "run": {"runId": "p"}}
USUAL: dict[str, Json] = {
    **{kind: run_event(kind, inputs=[SEED], outputs=[TREE]) for kind in ("START", "RUNNING", "OTHER", "COMPLETE")},
    **{kind: run_event(kind, outputs=[TREE, TREE, SEED]) for kind in ("FAIL", "ABORT")},
    "a type in small letters": run_event("complete", inputs=[SEED, SEED]),
    "no type": _without("eventType"),
    "null for a type": run_event(eventType=None),
    "an empty type": run_event(""),
    "no producer": _without("producer"),
    "null for a producer": run_event(producer=None),
    "neither inputs nor outputs": {k: v for k, v in run_event().items() if k not in ("inputs", "outputs")},
    "null for inputs": run_event(inputs=None, outputs=[TREE]),
    "versions": run_event(inputs=[dataset("seed", "1"), dataset("seed", ""), dataset("seed", version=None)]),
    "null for a version": run_event(inputs=[{**SEED, "facets": {"version": None}}]),
    "null for facets": run_event(inputs=[{**SEED, "facets": None}], outputs=[{"namespace": "a", "name": "b"}]),
    "a renamed dataset": run_event(
        inputs=[dataset("a", lifecycleStateChange={"previousIdentifier": {"namespace": "n", "name": "b"}})]
    ),
    "sizes": _size(7),
    "no size": _size(None),
    "a size that does not count": _size(7, "FAIL"),
    "the largest size": _size(1 << 53),
    "no statistics": _output({}),
    "null for the facets of outputs": _output(None),
    "a run id in capitals": _run({}, run_id="0195AAAA-0000-7000-8000-000000000009"),
    "a run id of another form": _run({}, run_id="scheduled__2026/03/04"),
    "an empty run id": _run(None, run_id="r"),
    "a parent": _run({"parent": {**_PARENT, "root": {"run": {"runId": "x"}}}}),
    "an error": _run({"errorMessage": {"message": "it broke", "stackTrace": "at line 1"}}, "FAIL"),
    "an error without a message": _run({"errorMessage": {"message": ""}}, "FAIL"),
    "null for an error": _run({"errorMessage": None, "parent": None}),
    "a job of no type": _job(),
    "null for a job's facets": _job(facets=None),
    "a part of a job's type": _job(facets={"jobType": {"jobType": "TASK", "integration": ""}}),
    "null for a job's type": _job(facets={"jobType": None}),
    "a dataset beside a run": run_event(dataset=SEED),
    "numbers as they are written": run_event(extra=[1.10, 1e2, -0.0, 10**30]),
    "other letters": _job(name="größe \u0000 ✓ 𝄞 \\ \" '"),
    "signs of other systems": _job(name="${PATH}'; drop table -- <b> ../.."),
    "a time in another zone": run_event(eventTime="2026-03-04T07:06:07+02:00"),
    "a time without a zone": run_event(eventTime="2026-03-04T05:06:07.5"),
    "as deep as is taken": _nested(98),
}
ODD: dict[str, object] = {
    "a dataset alone": {"eventTime": "2026-03-04T05:06:07Z", "producer": "p", "dataset": SEED},
    "a job alone": {"eventTime": "2026-03-04T05:06:07Z", "producer": "p", "job": {"namespace": "a", "name": "b"}},
    "a type that nobody knows": run_event("LATER"),
    "a number for a type": run_event(eventType=5),
    "false for a type": run_event(eventType=False),
    "a time that is none": run_event(eventTime="yesterday"),
    "a day that is none": run_event(eventTime="2026-02-30T05:06:07Z"),
    "a number for a time": run_event(eventTime=5),
    "no time": _without("eventTime"),
    "a time before 1970": run_event(eventTime="1969-12-31T23:59:59Z"),
    "no job": _without("job"),
    "null for a run": run_event(run=None),
    "a text for a run": run_event(run="r"),
    "no run id": run_event(run={}),
    "a number for a run id": _run({}, run_id=5),
    "no namespace": run_event(job={"name": "n"}),
    "a number for a name": _job(name=7),
    "an empty name": _job(name=""),
    "a list for facets": _run([]),
    "a list for a job's facets": _job(facets=[1]),
    "a text for a job's type": _job(facets={"jobType": "TASK"}),
    "numbers for a job's type": _job(facets={"jobType": {"integration": 1, "jobType": "TASK"}}),
    "a number for a producer": run_event(producer=5),
    "a parent without a run": _run({"parent": {"job": {"namespace": "a", "name": "b"}}}),
    "a parent of numbers": _run({"parent": {"job": {"namespace": 1, "name": "b"}, "run": {"runId": "c"}}}),
    "a text for a parent": _run({"parent": "p"}),
    "a text for an error": _run({"errorMessage": "it broke"}, "FAIL"),
    "a number for a message": _run({"errorMessage": {"message": 5}}, "ABORT"),
    "false for inputs": run_event(inputs=False),
    "an object for inputs": run_event(inputs=SEED),
    "texts for inputs": run_event(inputs=["seed"]),
    "a dataset without a name": run_event(outputs=[{"namespace": "a"}]),
    "a number for a dataset's name": run_event(inputs=[{"namespace": "a", "name": 5}]),
    "a text for a dataset's facets": run_event(inputs=[{**SEED, "facets": "x"}]),
    "a number for a version": run_event(inputs=[{**SEED, "facets": {"version": {"datasetVersion": 5}}}]),
    "a text for a version": run_event(inputs=[{**SEED, "facets": {"version": "5"}}]),
    "a renamed dataset without a name": run_event(
        inputs=[dataset("a", lifecycleStateChange={"previousIdentifier": 1})]
    ),
    "a size below nothing": _size(-5),
    "a size with a point": _size(7.0),
    "a size that is a fraction": _size(7.5),
    "a fraction that does not count": _size(7.5, "FAIL"),
    "a size of 65 bits": _size(1 << 64),
    "a size of 63 bits": _size((1 << 63) - 1),
    "true for a size": _size(True),
    "a text for a size": _size("7"),
    "a text for statistics": _output({"outputStatistics": "7"}),
    "a text for the facets of outputs": _output("7"),
    "deeper than is taken": _nested(101),
    "nothing": {},
    "more than an event may be": run_event(extra="x" * EVENT_BYTES_MAX),
    "a number": 7,
    "a list": [run_event()],
}
ALL = {**USUAL, **ODD}


@pytest.mark.parametrize("name", ALL)
def test_an_odd_event_between_usual_ones_has_its_place(name: str) -> None:
    assert compare(lines([run_event(), ALL[name], run_event("START", 2), ALL[name]]), format=Format.OPENLINEAGE)
    compare(lines([ALL[name]]), "a-node", format=Format.OPENLINEAGE)


@pytest.mark.parametrize("name", USUAL)
def test_usual_ones_do_not_go_the_careful_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.capture.column_batch.validate_element", None)
    data = lines([run_event(), USUAL[name]])
    [batch] = read_batches(io.BytesIO(data), LIMITS, batch_events=9, format=Format.OPENLINEAGE, context=Context())
    assert isinstance(batch, ColumnBatch)
    assert batch.events.num_rows == 2


@pytest.mark.parametrize("indent", [None, 1])
def test_arrays_and_documents_are_read_in_columns_as_lines_are(indent: int | None) -> None:
    documents = [one for one in ALL.values() if isinstance(one, dict)]
    assert compare(json.dumps(documents, indent=indent).encode(), format=Format.OPENLINEAGE)
    text = "\n".join(json.dumps(one, indent=indent) for one in documents)
    assert compare(text.encode(), format=Format.OPENLINEAGE)


_MANY = 2 * ROWS_MIN
"""So many events of a shape that they are not read one by one."""


def _varied(document: object, number: int) -> object:
    """An event of the same shape with other texts and numbers."""
    if isinstance(document, dict):
        fixed = ("eventType", "eventTime")
        return {key: one if key in fixed else _varied(one, number) for key, one in document.items()}
    if isinstance(document, list):
        return [_varied(one, number) for one in document]
    if isinstance(document, str) and number % 3:
        return f"{document}-{number // 2}" if len(document) != 36 else f"{document[:-2]}{number:02d}"
    return document + number if type(document) is int and 0 < document < 1 << 40 else document


FORMS: tuple[Json, ...] = ({}, {"separators": (",", ":")}, {"sort_keys": True, "ensure_ascii": False})
BY_THEMSELVES = ("other letters", "the largest size", "as deep as is taken")
"""Usual events of no shape that many have: a NUL is an escape, neither 16 digits nor elements of lists are values."""


@pytest.mark.parametrize(("number", "name"), list(enumerate(ALL)))
def test_many_events_of_a_shape_are_what_each_is(number: int, name: str) -> None:
    form = FORMS[number % len(FORMS)]
    documents = [_varied(ALL[name], each) for each in range(_MANY)]
    usual = [run_event("START", each, inputs=[SEED]) for each in range(_MANY)]
    mixed = [one for pair in zip(documents, usual, strict=True) for one in pair]
    text = "\n".join(json.dumps(one, **form) for one in mixed)
    assert compare(text.encode(), batch_events=2 * _MANY, format=Format.OPENLINEAGE)


@pytest.mark.parametrize("name", sorted(set(USUAL) - set(BY_THEMSELVES)))
def test_many_usual_events_of_a_shape_are_not_read_one_by_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.capture.openlineage_columns.run_facts", None)
    monkeypatch.setattr("custody.capture.column_batch.validate_element", None)
    data = "\n".join(json.dumps(_varied(USUAL[name], number), ensure_ascii=False) for number in range(_MANY)).encode()
    [batch] = read_batches(io.BytesIO(data), LIMITS, batch_events=_MANY, format=Format.OPENLINEAGE, context=Context())
    assert isinstance(batch, ColumnBatch)
    assert batch.events.num_rows == _MANY


def test_errors_and_names_with_escapes_are_what_is_meant() -> None:
    said = [f'"{number}"\n\tat \\ line {number}' for number in range(_MANY)]
    documents = [{**_run({"errorMessage": {"message": one}}, "FAIL"), "inputs": [dataset('a"b')]} for one in said]
    [batch] = compare(lines(documents), batch_events=_MANY, format=Format.OPENLINEAGE)
    assert batch.events.column("details").to_pylist() == said


def test_events_among_many_that_are_not_usual_have_their_places() -> None:
    documents = [run_event("COMPLETE", number, outputs=[TREE]) for number in range(_MANY)]
    documents[0]["eventType"] = "LATER"
    documents[5]["eventTime"] = "yesterday"
    documents[7]["eventTime"] = "1969-01-01T00:00:00Z"
    [batch] = compare(lines(documents), batch_events=_MANY, format=Format.OPENLINEAGE)
    assert len(batch.rejected) + batch.events.num_rows == _MANY


def test_elements_of_many_parts_are_in_their_order() -> None:
    documents = [run_event("START", number, extra="x" * (2000 + number % 7)) for number in range(1200)]
    [batch] = compare(lines(documents), batch_events=1200, format=Format.OPENLINEAGE)
    assert batch.events.num_rows == 1200


def test_compact_events_and_others_are_kept_in_their_order() -> None:
    documents = [run_event("START", number, extra="x" * (2000 + number % 7)) for number in range(1200)]
    # Parts of compact events alone, of both, and of others alone.
    forms: list[Json] = [{"separators": (",", ":")}] * 700 + [{}] * 500
    text = "\n".join(json.dumps(one, **form) for one, form in zip(documents, forms, strict=True))
    [batch] = compare(text.encode(), batch_events=1200, format=Format.OPENLINEAGE)
    assert batch.events.num_rows == 1200


_RUN = b'"eventTime":"2026-03-04T05:06:07Z","job":{"namespace":"a","name":"b"}'


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b"[{]",
        b'{%s,"run":{"runId":"a"},"run":{"runId":"b"}}' % _RUN,
        b'{%s,"run":{"runId":"a","runId":5}}' % _RUN,
        b'{%s,"run":{"runId":"a"},"run":null}' % _RUN,
        b'{%s,"\\u0072un":{"runId":"a"} , "x" : [ 1.0,1e3 ] }' % _RUN,
        b'{%s,"run":{"runId":"\\ud800"}}' % _RUN,
        b'{%s,"run":{"runId":"a"},"x":"\xff"}' % _RUN,
        b'{%s,"run":{"runId":"a"},"x":01}' % _RUN,
        b'{%s,"run":{"runId":"a"}} x' % _RUN,
        b'{%s,"run":{"runId":"a"}}\n{%s,"run":{"runId":"a"' % (_RUN, _RUN),
        b'\xef\xbb\xbf{%s,"run":{"runId":"a"}}\n' % _RUN,
    ],
)
def test_any_text_is_read_as_ever(text: bytes) -> None:
    compare(text, format=Format.OPENLINEAGE)


@given(data=st.data())
def test_any_mixture_with_any_byte_changed_is_read_as_ever(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(set(ALL) - {"more than an event may be"})), max_size=8))
    text = bytearray(lines([ALL[name] for name in [*names, "COMPLETE"]]))
    for _ in range(data.draw(st.integers(0, 2))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    compare(bytes(text), None, data.draw(st.integers(1, 9)), Format.OPENLINEAGE)


@given(data=st.data())
def test_any_mixture_of_many_with_any_byte_changed_is_read_as_ever(data: st.DataObject) -> None:
    short = st.sampled_from(sorted(set(ALL) - {"more than an event may be"}))
    names = data.draw(st.lists(short, min_size=1, max_size=3))
    documents = [_varied(ALL[name], number) for number in range(ROWS_MIN) for name in names]
    form = data.draw(st.sampled_from(FORMS))
    text = bytearray("\n".join(json.dumps(one, **form) for one in documents).encode())
    for _ in range(data.draw(st.integers(0, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    compare(bytes(text), None, 3 * ROWS_MIN, Format.OPENLINEAGE)


@pytest.mark.parametrize("job", ['a"b', "a\\b", "a\nb", "größe", '","'])
def test_former_ordinals_are_those_of_each_whatever_the_names(job: str) -> None:
    documents = [run_event("START", number, job={"namespace": "n", "name": job}) for number in range(3)]
    [batch] = compare(lines(documents), format=Format.OPENLINEAGE)
    _, ordinals = former_ordinals(batch.events)
    assert ordinals.tolist() == [former_ordinal(event) for event in to_events(batch.events)]


@pytest.mark.parametrize("other", ["x", "", "0195aaaa-0000-7000-8000-000000000001/START", "0195aaaa-0000-7000-8"])
def test_former_ordinals_are_those_of_each_whatever_the_id_at_the_source(other: str) -> None:
    [batch] = compare(lines([run_event("START", number) for number in range(3)]), format=Format.OPENLINEAGE)
    position = batch.events.schema.get_field_index("source_event_id")
    ids = batch.events.column(position).to_pylist()
    events = batch.events.set_column(position, "source_event_id", pa.array([ids[0], other, ids[2]]))
    _, ordinals = former_ordinals(events)
    assert ordinals.tolist() == [former_ordinal(event) for event in to_events(events)]


def test_former_ordinals_of_columns_are_those_of_each_event() -> None:
    data = lines(ALL[name] for name in ALL if name != "more than an event may be")
    for batch in compare(data, batch_events=20, format=Format.OPENLINEAGE):
        each = [former_ordinal(event) for event in to_events(batch.events)]
        rows, ordinals = former_ordinals(batch.events)
        assert dict(zip(rows.tolist(), ordinals.tolist(), strict=True)) == {
            row: number for row, number in enumerate(each) if number is not None
        }
    [nothing] = compare(lines([ODD["a job alone"]]), format=Format.OPENLINEAGE)
    assert not former_ordinals(nothing.events).rows.size
