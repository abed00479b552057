"""Custody's own events in columns: the outcomes are those of reading one element after the other."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture import (
    Accepted,
    CaptureLimits,
    ColumnBatch,
    Context,
    Format,
    Rejected,
    SplitText,
    read_batches,
    read_together,
    split_text,
)
from custody.capture.custody_json import batch_ordinals
from custody.model import to_events
from tests.unit.capture.sample_inputs import lines, own_event, run_event
from tests.unit.capture.test_nifi_columns import EVENT_BYTES_MAX, compare

LIMITS = CaptureLimits(EVENT_BYTES_MAX, 1 << 30)
_CLAIM = {"container": "disk", "section": "1", "identifier": "a", "offset": 0, "size": 7}

USUAL: dict[str, dict[str, Any]] = {
    "a number of its own": {"source_ordinal": 7, "source_node": "shop"},
    "no number": {},
    "no number, and a source": {"source_node": "shop"},
    "an empty source": {"source_node": "", "source_ordinal": 4},
    "an empty format": {"source_format": ""},
    "another format": {"source_format": "nifi-s2s", "source_ordinal": 1},
    "an id of another repository": {"event_id": 12},
    "relatives": {"event_type": "FORK", "parent_uuids": ["a"], "child_uuids": ["b", "c"]},
    "a removed attribute": {"updated_attributes": {"gone": None, "": ""}, "previous_attributes": {"gone": "x"}},
    "a claim": {"content_claim": _CLAIM, "previous_content_claim": {"container": None}},
    "other letters": {"details": "Bänk \u0000 ✓ 𝄞 \\\"'", "component_name": "größe"},
    "times": {"flowfile_entry_date": 5, "lineage_start_date": 6, "event_duration": 0, "previous_file_size": 0},
    "the last time": {"event_time": 253_402_300_799_999},
    "a number of 63 bits": {"source_ordinal": (1 << 63) - 1},
    "an extra": {"extra": '{"a":1}'},
}
ODD: dict[str, dict[str, Any]] = {
    "a content": {"content_sha256": "0" * 64},
    "a content that is no digest": {"content_sha256": "x"},
    "a claim on a content of custody": {"content_claim": {**_CLAIM, "container": "custody:main/1"}},
    "a former claim on a content of custody": {"previous_content_claim": {"container": "custody:main/1"}},
    "an unknown key": {"colour": "red"},
    "a number for a text": {"component_name": 7},
    "a text for a number": {"file_size": "7"},
    "a fraction": {"event_duration": 1.5},
    "a list for attributes": {"updated_attributes": [["a", "b"]]},
    "a number among attributes": {"previous_attributes": {"a": 1}},
    "a null among parents": {"parent_uuids": ["p", None]},
    "attributes within attributes": {"updated_attributes": {"a": {"b": [[[]]]}}},
    "an empty uuid": {"flowfile_uuid": ""},
    "a negative size": {"file_size": -1},
    "a negative ordinal": {"source_ordinal": -3},
    "a number of 65 bits": {"source_ordinal": 1 << 64},
    "a time of 65 bits": {"event_time": 1 << 64},
    "a time before 1970": {"event_time": -1},
    "a time behind the year 9999": {"event_time": 253_402_300_800_000},
    "a kind that nobody knows": {"event_type": "MELTED"},
    "a SEND to an empty place": {"transit_uri": ""},
    "a FORK without children": {"event_type": "FORK"},
    "half a character": {"component_name": "\ud800"},
    "a null for a claim's number": {"content_claim": {**_CLAIM, "offset": -4}},
    "more than an event may be": {"details": "x" * EVENT_BYTES_MAX},
}
ALL = {**USUAL, **ODD}


def event(name: str, number: int = 1) -> dict[str, object]:
    return own_event(number, **ALL[name])


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("node", [None, "a-node"])
def test_an_odd_event_between_usual_ones_has_its_place(name: str, node: str | None) -> None:
    assert compare(lines([own_event(2), event(name), own_event(3), event(name)]), node, format=Format.CUSTODY)
    compare(lines([event(name)]), node, format=Format.CUSTODY)


@pytest.mark.parametrize("name", USUAL)
def test_usual_ones_do_not_go_the_careful_way(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.capture.column_batch.validate_element", None)
    [batch] = read_batches(io.BytesIO(lines([event(name)])), LIMITS, batch_events=9, format=Format.CUSTODY)
    assert isinstance(batch, ColumnBatch)
    assert batch.events.num_rows == 1


@pytest.mark.parametrize("indent", [None, 1])
def test_arrays_and_documents_are_read_in_columns_as_lines_are(indent: int | None) -> None:
    documents = [event(name) for name in ALL]
    assert compare(json.dumps(documents, indent=indent).encode(), format=Format.CUSTODY)
    assert compare("\n".join(json.dumps(one, indent=indent) for one in documents).encode(), format=Format.CUSTODY)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b"7",
        b"[{]",
        b'{"event_type":"SEND","event_type":"DROP"}',
        b'{"event_type":"SEND"},{"event_type":"DROP"}',
        b'{"event_type":"SEND"} x',
        b'{"a":1\n"b":2}',
        b'{"content\\u005fsha256":null}',
    ],
)
def test_any_text_is_read_as_ever(text: bytes) -> None:
    compare(text, format=Format.CUSTODY)
    compare(lines([own_event(1)]) + text + lines([own_event(2)]), format=Format.CUSTODY)


@given(data=st.data())
def test_any_mixture_with_any_byte_changed_is_read_as_ever(data: st.DataObject) -> None:
    names = data.draw(st.lists(st.sampled_from(sorted(set(ALL) - {"more than an event may be"})), max_size=8))
    text = bytearray(lines([event(name, number) for number, name in enumerate([*names, "no number"])]))
    for _ in range(data.draw(st.integers(0, 2))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    compare(bytes(text), None, data.draw(st.integers(1, 9)), Format.CUSTODY)


@given(data=st.data())
def test_texts_that_are_read_together_are_what_each_is_by_itself(data: st.DataObject) -> None:
    is_own = data.draw(st.booleans())
    is_numbered = not is_own or data.draw(st.booleans())
    texts = []
    for place in range(data.draw(st.integers(1, 4))):
        names = data.draw(st.lists(st.sampled_from([*sorted(ALL), "nothing"]), max_size=5))
        if is_own:
            documents: list[object] = [7 if name == "nothing" else event(name, place) for name in names]
        else:
            documents = [7 if name == "nothing" else run_event("START", place) for name in names]
        format = Format.CUSTODY if is_own else Format.OPENLINEAGE
        text = split_text(lines(documents), LIMITS, format, Context("a", is_numbered=is_numbered))
        ordinals = None if is_numbered else batch_ordinals(f"key {place}", len(text.pieces), None)
        texts.append(SplitText(format, text.pieces, text.context, ordinals))
    batch = read_together(texts)
    outcomes = [outcome for text in texts for outcome in text.outcomes()]
    accepted = [(number, item) for number, item in enumerate(outcomes) if isinstance(item, Accepted)]
    assert to_events(batch.events) == [item.event for _, item in accepted]
    assert batch.numbers.tolist() == [number for number, _ in accepted]
    assert batch.accepted(range(len(accepted))) == [item for _, item in accepted]
    assert batch.warned == {row: item for row, (_, item) in enumerate(accepted) if item.warnings}
    rejected = [(number, item) for number, item in enumerate(outcomes) if isinstance(item, Rejected)]
    assert list(zip(batch.of_rejected, batch.rejected, strict=True)) == rejected
