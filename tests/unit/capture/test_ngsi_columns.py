"""Notifications in columns: the outcomes are those of reading one element after the other."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture import CaptureLimits, ColumnBatch, Context, Format, read_batches
from tests.unit.capture.sample_inputs import ARRIVED_MS, Json, entity, envelope, lines, notification
from tests.unit.capture.test_ngsi_events import LD, V1
from tests.unit.capture.test_nifi_columns import EVENT_BYTES_MAX, compare

LIMITS = CaptureLimits(EVENT_BYTES_MAX, 1 << 30)


def _with(**members: object) -> Json:
    return {**notification(), **members}


def _attribute(value: object) -> Json:
    return notification({"id": "Bench1", "type": "Bench", "seats": value})


def _nested(levels: int) -> Json:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return _attribute({"value": value})


_HEADERS: Json = {"Fiware-Service": "parks", "Fiware-ServicePath": "/north", "Fiware-Correlator": "c-1"}
USUAL: dict[str, Json] = {
    "a notification": notification(),
    "several entities": notification(entity(1), entity(2), entity(3)),
    "an envelope": envelope(notification(), Fiware_Service="parks", Fiware_ServicePath="/north", Fiware_Correlator="c"),
    "a path for each": envelope(notification(entity(1), entity(2)), Fiware_ServicePath="/a, /b"),
    "a path for none": envelope(notification(entity(1), entity(2)), fiware_servicepath=","),
    "a tenant": envelope(notification(), NGSILD_Tenant="t", Fiware_Service=""),
    "empty headers": envelope(notification(), Fiware_Service="", Fiware_ServicePath="", Fiware_Correlator=""),
    "headers that differ by case": {"headers": {"fiware-service": "a", "FIWARE-SERVICE": "b"}, "body": notification()},
    "milliseconds": {**envelope(notification()), "receivedAt": ARRIVED_MS},
    "no time": {"headers": _HEADERS, "body": notification()},
    "null for time and URL": {**envelope(notification()), "receivedAt": None, "url": None},
    "an empty URL": {**envelope(notification()), "url": ""},
    "another member of an envelope": {**envelope(notification()), "hop": [1]},
    "no subscription": {"data": [entity()]},
    "an empty subscription": _with(subscriptionId=""),
    "a subscription that is a URI": _with(subscriptionId="urn:ngsi-ld:Subscription:9"),
    "no type": notification({"id": "Bench1"}),
    "an empty type": notification({"id": "Bench1", "type": ""}),
    "a context": notification({"id": "Bench1", "type": "B", "@context": "http://example.org/c"}),
    "a context that is an attribute": notification({"id": "Bench1", "type": "B", "@context": {"value": 1}}),
    "metadata": _attribute({"type": "Number", "value": 4, "metadata": {"unit": {"type": "Text", "value": "si"}}}),
    "nulls": _attribute({"type": None, "value": None, "metadata": None}),
    "other letters": notification({"id": "Bänk \u0000 ✓", "type": "\\\"'", "größe": {"value": "𝄞"}}),
    "no entities": notification() | {"data": []},
    "as deep as is taken": _nested(94),
}
ODD: dict[str, object] = {
    "NGSI-LD": LD,
    "NGSIv1": V1,
    "NGSI-LD in an envelope": envelope(LD, Fiware_ServicePath="/x"),
    "a notification by its type": _with(type="Notification"),
    "a time of its own": _with(notifiedAt="2026-03-04T05:06:07Z"),
    "an id of its own": _with(id="urn:1"),
    "an entity alone": entity(),
    "values alone": notification({"id": "Bench1", "type": "Bench", "seats": 4}),
    "a text for an attribute": _attribute("oak"),
    "an attribute without a value": _attribute({"type": "Number"}),
    "metadata of values alone": _attribute({"value": 4, "metadata": {"unitCode": "C62", "n": 5, "l": [1], "z": None}}),
    "a number for the type of a metadatum": _attribute({"value": 4, "metadata": {"m": {"type": 5, "value": 1}}}),
    "a text for metadata": _attribute({"value": 4, "metadata": "x"}),
    "an attribute of another key": _attribute({"value": 4, "observedAt": "now"}),
    "a number for a type": _attribute({"value": 4, "type": 5}),
    "a list for metadata": _attribute({"value": 4, "metadata": []}),
    "an entity without an id": notification(entity(1), {"type": "Bench"}, entity(3)),
    "an entity with an empty id": notification({"id": ""}, entity(2)),
    "a number for an id": notification(entity(1), {"id": 5}),
    "an attribute for an id": notification({"id": {"value": 1}}),
    "a number for an entity": _with(data=[7]),
    "lists for entities": _with(data=[[23, 70]]),
    "an object for entities": _with(data={"id": "x"}),
    "a feature": _with(data={"type": "Feature", "id": "x", "properties": {"type": "B", "a": {"value": 1}}}),
    "a long subscription": _with(subscriptionId="s" * 513),
    "a number for a subscription": _with(subscriptionId=5),
    "paths that do not match": envelope(notification(), Fiware_ServicePath="/a,/b"),
    "a number for a header": {"headers": {"a": 5}, "body": notification()},
    "a list for headers": {"headers": [], "body": notification()},
    "a list for a body": {"headers": {}, "body": [5]},
    "a body alone": {"body": notification()},
    "a time that is none": {**envelope(notification()), "receivedAt": "noon"},
    "a time before 1970": {**envelope(notification(entity(1), entity(2))), "receivedAt": -1},
    "a time behind the year 9999": {**envelope(notification()), "receivedAt": 253_402_300_800_000},
    "a time of 63 bits": {**envelope(notification()), "receivedAt": (1 << 63) - 1},
    "a time of 65 bits": {**envelope(notification()), "receivedAt": 1 << 64},
    "a fraction for a time": {**envelope(notification()), "receivedAt": 1.5},
    "a number for a URL": {**envelope(notification()), "url": 5},
    "deeper than is taken": _nested(99),
    "nothing": {},
    "more than an event may be": _attribute({"value": "x" * EVENT_BYTES_MAX}),
    "a number": 7,
}
ALL = {**USUAL, **ODD}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("node", [None, "a-node"])
def test_an_odd_notification_between_usual_ones_has_its_place(name: str, node: str | None) -> None:
    several = notification(entity(4), entity(5))
    assert compare(lines([notification(), ALL[name], several, ALL[name]]), node, format=Format.NGSI)
    compare(lines([ALL[name]]), node, format=Format.NGSI)


@pytest.mark.parametrize("name", USUAL)
def test_usual_ones_do_not_go_the_careful_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.capture.column_batch.validate_element", None)
    data = lines([notification(), USUAL[name]])
    if name == "no entities":  # it has no event, which only the careful way can tell from one that was refused
        data = lines([notification()])
    [batch] = read_batches(io.BytesIO(data), LIMITS, batch_events=9, format=Format.NGSI, context=Context())
    assert isinstance(batch, ColumnBatch)
    assert batch.events.num_rows >= 1


@pytest.mark.parametrize("indent", [None, 1])
def test_arrays_and_documents_are_read_in_columns_as_lines_are(indent: int | None) -> None:
    documents = list(ALL.values())
    assert compare(json.dumps(documents, indent=indent).encode(), format=Format.NGSI)
    assert compare("\n".join(json.dumps(one, indent=indent) for one in documents[:-1]).encode(), format=Format.NGSI)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b"7",
        b"[{]",
        b'{"data":[{"id":"a"}],"data":[{"id":"b"}]}',
        b'{"data":[{"id":"a","id":"b","type":"c","type":null}]}',
        b'{"headers":{},"headers":{"fiware-service":"s"},"body":{"data":[]},"body":{"data":[{"id":"a"}]}}',
        b'{"headers":{},"body": {"data":[{"id":"a"}] } ,"receivedAt":12}',
        b'{"data":[{"id":"\\ud800"}]}',
        b'{"data":[{"id":"a","x":{"value":"\xff"}}]}',
        b'{"data":[{"id":"a","x":{"value":01}}]}',
        b'{"data":[{"id":"a"}]} x',
        b'{"data":[{"id":"a"}]}\n{"data":[{"id":"b"',
        b'\xef\xbb\xbf{"data":[{"id":"a"}]}\n',
    ],
)
def test_any_text_is_read_as_ever(text: bytes) -> None:
    compare(text, format=Format.NGSI)


@given(data=st.data())
def test_any_mixture_with_any_byte_changed_is_read_as_ever(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(set(ALL) - {"more than an event may be"})), max_size=8))
    text = bytearray(lines([ALL[name] for name in [*names, "a notification"]]))
    for _ in range(data.draw(st.integers(0, 2))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    compare(bytes(text), None, data.draw(st.integers(1, 9)), Format.NGSI)
