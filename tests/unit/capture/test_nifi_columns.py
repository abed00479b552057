"""NiFi's reports in columns: the outcomes are those of reading one element after the other."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture import (
    Accepted,
    CaptureLimits,
    ColumnBatch,
    Context,
    Format,
    Outcome,
    Rejected,
    nifi_avro,
    nifi_columns,
    read_batches,
)
from custody.capture import event_reader as reader
from custody.capture.avro import AvroContainer, AvroRecord, write_long
from custody.capture.encodings import InputText
from custody.capture.nifi_json import uri_node
from custody.model import Event, to_events
from tests.unit.capture.json_documents import document
from tests.unit.capture.sample_inputs import ARRIVED_MS, any_avro, avro_file, payloads, read, written_avro

EVENT_BYTES_MAX = 20_000
LIMITS = CaptureLimits(EVENT_BYTES_MAX, 1 << 30)

Change = dict[str, Any]
ODD: dict[str, Change] = {
    "an unknown key": {"newKey": [1, {"a": None}]},
    "a number for a text": {"componentName": 7},
    "a text for a number": {"entitySize": "7"},
    "a fraction": {"durationMillis": 1.5},
    "a list for attributes": {"updatedAttributes": [["a", "b"]]},
    "a number among attributes": {"previousAttributes": {"a": 1}},
    "a null among parents": {"parentIds": ["p", None]},
    "no event type": {"eventType": None},
    "an empty id": {"entityId": ""},
    "an empty component": {"componentId": ""},
    "a negative size": {"entitySize": -1},
    "a negative previous size": {"previousEntitySize": -5},
    "a negative ordinal": {"eventOrdinal": -3},
    "no ordinal": {"eventOrdinal": None},
    "neither ordinal nor id": {"eventOrdinal": None, "eventId": None},
    "a number of 65 bits": {"eventOrdinal": 1 << 64},
    "a number of 63 bits": {"eventOrdinal": (1 << 63) - 1},
    "a duration below -1": {"durationMillis": -2},
    "no duration": {"durationMillis": None},
    "a time before 1970": {"timestampMillis": -1, "timestamp": None},
    "a time behind the year 9999": {"timestampMillis": 253_402_300_800_000, "timestamp": None},
    "a time that no computer has": {"timestampMillis": 1 << 62, "timestamp": None},
    "the last time": {"timestampMillis": 253_402_300_799_999, "timestamp": "9999-12-31T23:59:59.999Z"},
    "a lineage before 1970": {"lineageStart": -1},
    "no lineage start": {"lineageStart": None},
    "a timestamp of another time": {"timestamp": "2001-01-01T00:00:00.000Z"},
    "a timestamp of another form": {"timestamp": "yesterday"},
    "a timestamp with a zone": {"timestamp": "2026-01-31T09:30:00+0000"},
    "a timestamp of as many bytes": {"timestamp": "2026-01-31\u00a009:30:00.00Z"},
    "no timestamp": {"timestamp": None},
    "a kind that nobody knows": {"eventType": "MELTED"},
    "a RECEIVE from nowhere": {"eventType": "RECEIVE", "transitUri": None},
    "a SEND to an empty place": {"eventType": "SEND", "transitUri": ""},
    "a FORK without children": {"eventType": "FORK", "childIds": None, "parentIds": None},
    "a JOIN without parents": {"eventType": "JOIN", "childIds": [], "parentIds": []},
    "an ADDINFO of nothing": {"eventType": "ADDINFO", "alternateIdentifier": None},
    "no content URI": {"contentURI": None},
    "a URI of another node": {"contentURI": "https://other:8443/nifi-api/x/content/input?clusterNodeId=n-2"},
    "a URI without a path": {"contentURI": "http://other:8080"},
    "a URI with two queries": {"contentURI": "http://other:8080/a?b?clusterNodeId=n-2"},
    "a URI with a line end": {"contentURI": "http://other:8080/a\nb"},
    "a URI with a line end behind it": {"contentURI": "http://other:8080/a?clusterNodeId=n-2\n"},
    "a host of no name": {"contentURI": None, "previousContentURI": None, "actorHostname": ""},
    "no URI at all": {"contentURI": None, "previousContentURI": None},
    "neither URI nor host": {"contentURI": None, "previousContentURI": None, "actorHostname": None},
    "a URI of another form": {"contentURI": "http://[::1]:8443/a?b=c&clusterNodeId=n%201#x"},
    "a URI that is none": {"contentURI": "http://[", "previousContentURI": ""},
    "half a character": {"componentName": "\ud800"},
    "half a character among attributes": {"updatedAttributes": {"\udfff": "x"}},
    "a NUL": {"details": "a\0b"},
    "signs of other systems": {"details": "${PATH} '; drop table -- <b> ../.."},
    "no attributes": {"updatedAttributes": None, "previousAttributes": None},
    "a removed attribute": {"updatedAttributes": {"gone": None, "": ""}},
    "more than an event may be": {"details": "x" * EVENT_BYTES_MAX},
}


def both(
    data: bytes, node: str | None = None, batch_events: int = 7, format: Format = Format.NIFI
) -> tuple[list[Outcome], list[ColumnBatch]]:
    """What is read one after the other, and what in columns."""
    batches = list(
        read_batches(
            io.BytesIO(data), LIMITS, batch_events=batch_events, format=format, context=Context(node, ARRIVED_MS)
        )
    )
    columns = [batch for batch in batches if isinstance(batch, ColumnBatch)]
    others = [outcome for batch in batches if not isinstance(batch, ColumnBatch) for outcome in batch]
    assert not (columns and others), "a text is read one way"
    return read(data, format, limits=LIMITS, node=node) if columns else others, columns


def compare(
    data: bytes, node: str | None = None, batch_events: int = 7, format: Format = Format.NIFI
) -> list[ColumnBatch]:
    outcomes, batches = both(data, node, batch_events, format)
    if not batches:
        assert outcomes == read(data, format, limits=LIMITS, node=node)
        return []
    accepted = [item for item in outcomes if isinstance(item, Accepted)]
    events: list[Event] = [event for batch in batches for event in to_events(batch.events)]
    assert events == [item.event for item in accepted]
    rows = [(batch, row) for batch in batches for row in range(batch.events.num_rows)]
    assert [item for batch in batches for item in batch.accepted(range(batch.events.num_rows))] == accepted
    assert [batch.accepted([row])[0] for batch, row in rows] == accepted
    assert [batch.warned.get(row) for batch, row in rows] == [item if item.warnings else None for item in accepted]
    rejected = [item for batch in batches for item in batch.rejected]
    assert rejected == [item for item in outcomes if isinstance(item, Rejected)]
    return batches


def encoded(documents: list[Any]) -> bytes:
    return json.dumps(documents).encode()


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("node", [None, "a-node"])
def test_an_odd_event_between_usual_ones_has_its_place(name: str, node: str | None) -> None:
    odd = {**document("CONTENT_MODIFIED"), **ODD[name]}
    documents = [document("CREATE"), odd, document("DROP"), {k: v for k, v in odd.items() if v is not None}]
    # Text that is no Unicode makes the whole text one that no parser takes.
    assert bool(compare(encoded(documents), node)) == (not name.startswith("half a character"))
    compare(encoded([odd]), node)


def test_the_samples_are_read_in_columns_and_none_goes_the_careful_way(monkeypatch: pytest.MonkeyPatch) -> None:
    data = encoded(payloads(300))
    assert sum(batch.events.num_rows for batch in compare(data, batch_events=100)) == 300
    # From here on it would fail.
    monkeypatch.setattr("custody.capture.nifi_columns.validate_element", None)
    batches = list(read_batches(io.BytesIO(data), LIMITS, batch_events=100, format=Format.NIFI))
    assert [batch.events.num_rows for batch in batches if isinstance(batch, ColumnBatch)] == [100, 100, 100]


@pytest.mark.parametrize("element", [7, None, "text", [], [[]], {}, True, {"eventOrdinal": {"a": {"b": [1]}}}])
def test_what_is_no_event_is_rejected_where_it_is(element: object) -> None:
    assert compare(encoded([element, document("SEND"), element]))


@pytest.mark.parametrize(
    "text",
    [
        b"[]",
        b" [ ] ",
        b"[] []",
        b"[1, 2",
        b"[{}] x",
        b"[{]",
        b'[{"a": 01}]',
        b'[{"a": "\xff"}]',
        b"\xef\xbb\xbf[{}]",
        b"[" * 2000 + b"]" * 2000,
        b"",
        b"{}",
        b"[{},]",
        b"[,]",
        b'[{"a":1,"a":2}]',
    ],
)
def test_any_text_is_read_as_ever(text: bytes) -> None:
    compare(text)


def test_an_array_of_more_than_a_batch_s_bytes_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "BATCH_BYTES_MAX", 4000)
    data = encoded([document("ROUTE") for _ in range(30)])
    assert not compare(data), "it is longer than a batch may be"
    assert len(compare(encoded([document("ROUTE")]))) == 1


@given(data=st.data())
def test_any_mixture_with_any_byte_changed_is_read_as_ever(data: st.DataObject) -> None:
    kinds = st.sampled_from(sorted(ODD))
    changes = data.draw(st.lists(st.one_of(st.none(), kinds), max_size=12))
    documents = [{**document("FETCH"), **(ODD[change] if change else {})} for change in changes]
    text = bytearray(encoded(documents))
    for _ in range(data.draw(st.integers(0, 2))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    compare(bytes(text))


_URI = st.from_regex(r"(https?|ftp)://[a-c.:]{1,3}(/[ab/\n]{0,3})?([?#](clusterNodeId=)?[a-c]?){0,2}", fullmatch=True)


@given(uris=st.lists(st.one_of(st.none(), st.just(""), _URI, st.text(max_size=3)), max_size=30))
def test_the_nodes_of_many_uris_are_those_of_each(uris: list[str | None]) -> None:
    assert nifi_columns._uri_nodes(pa.array(uris, pa.string())).to_pylist() == [uri_node(uri) for uri in uris]


# Avro has no halves of characters, no numbers of 65 bits and no lists within lists.
AVRO_ODD = [name for name in ODD if not name.startswith(("half a character", "a number of 65", "an unknown", "a list"))]


@pytest.mark.parametrize("name", AVRO_ODD)
@pytest.mark.parametrize("node", [None, "a-node"])
def test_an_odd_record_of_avro_between_usual_ones_has_its_place(name: str, node: str | None) -> None:
    odd = {**document("CONTENT_MODIFIED"), **ODD[name]}
    documents = [document("CREATE"), odd, document("DROP"), odd]
    for one in documents:
        if "timestamp" not in ODD[name]:
            one.pop("timestamp", None)
    [batch] = compare(any_avro(documents), node, format=Format.NIFI_AVRO)
    assert batch.events.num_rows + len(batch.rejected) == 4
    assert len(compare(any_avro([odd] * 15), node, format=Format.NIFI_AVRO)) == 3


def test_samples_of_avro_are_read_in_columns_and_none_goes_the_careful_way(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [{key: value for key, value in one.items() if key != "timestamp"} for one in payloads(300)]
    data = any_avro(documents)
    assert sum(batch.events.num_rows for batch in compare(data, None, 100, Format.NIFI_AVRO)) == 300
    monkeypatch.setattr("custody.capture.nifi_avro.validate_event", None)
    batches = list(read_batches(io.BytesIO(data), LIMITS, batch_events=100, format=Format.NIFI_AVRO))
    assert [batch.events.num_rows for batch in batches if isinstance(batch, ColumnBatch)] == [100, 100, 100]


def test_records_of_avro_with_custodys_own_fields_stand_between_those_of_nifi() -> None:
    nifi = {key: value for key, value in document("SEND").items() if key != "timestamp"}
    own = {
        "event_type": "CREATE",
        "event_time": 1_790_000_000_000,
        "component_id": "c",
        "component_type": "t",
        "flowfile_uuid": "5f0c8a10-0000-4000-8000-00000000002a",
        "file_size": 7,
        "source_node": "n",
        "source_ordinal": 4,
    }
    absent = dict.fromkeys([*nifi, *own])
    documents = [{**absent, **one} for one in (nifi, own, nifi)]
    assert compare(any_avro(documents), format=Format.NIFI_AVRO)


@pytest.mark.parametrize("batch_events", [1, 4, 100])
def test_an_avro_file_that_breaks_off_gives_what_it_holds_and_its_rest(batch_events: int) -> None:
    documents = [{**document("FETCH"), "eventOrdinal": number} for number in range(12)]
    data = any_avro(documents, sync_interval=1)
    for end in [*range(0, len(data), 97), len(data) - 1]:
        compare(data[:end], None, batch_events, Format.NIFI_AVRO)


@given(data=st.data())
def test_any_mixture_of_avro_with_any_byte_changed_is_read_as_ever(data: st.DataObject) -> None:
    changes = data.draw(st.lists(st.one_of(st.none(), st.sampled_from(AVRO_ODD)), min_size=1, max_size=12))
    documents = [{**document("FETCH"), "timestamp": None, **(ODD[change] if change else {})} for change in changes]
    text = bytearray(any_avro(documents))
    for _ in range(data.draw(st.integers(0, 2))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    compare(bytes(text), format=Format.NIFI_AVRO)


# Of what a writer with the types of the payload can say.
WRITTEN_ODD = [
    name
    for name in AVRO_ODD
    if name not in ("a number for a text", "a text for a number", "a fraction", "a number among attributes")
    and name != "a null among parents"
]


@pytest.fixture
def _read_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nifi_avro, "_RECORDS_MIN", 1)


def batch_sizes(data: bytes, batch_events: int) -> list[tuple[int, int]]:
    """How many events and rejected pieces each batch has."""
    batches = read_batches(io.BytesIO(data), LIMITS, batch_events=batch_events, format=Format.NIFI_AVRO)
    return [(batch.events.num_rows, len(batch.rejected)) for batch in batches if isinstance(batch, ColumnBatch)]


def compare_written(data: bytes, node: str | None = None, batch_events: int = 7) -> None:
    """Records that are decoded at once are those that are decoded one by one, in the same batches."""
    compare(data, node, batch_events, Format.NIFI_AVRO)
    sizes = batch_sizes(data, batch_events)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nifi_avro, "_usual_forms", lambda _: None)
        assert batch_sizes(data, batch_events) == sizes


def test_records_of_a_usual_writer_are_decoded_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = payloads(350)
    for data in (written_avro(documents, codec="deflate"), avro_file(documents, codec="deflate", block=30)):
        compare_written(data, None, 100)
        with monkeypatch.context() as patch:
            # From here on a record that is decoded by itself, or is checked by itself, would fail.
            patch.setattr(AvroContainer, "_records", None)
            patch.setattr(nifi_avro, "validate_event", None)
            patch.setattr(nifi_avro, "_RECORDS_MIN", 50)
            assert batch_sizes(data, 100) == [(100, 0), (100, 0), (100, 0), (50, 0)]


@pytest.mark.usefixtures("_read_few_at_once")
@pytest.mark.parametrize("name", WRITTEN_ODD)
def test_an_odd_record_between_those_decoded_at_once_has_its_place(name: str) -> None:
    odd = {**document("CONTENT_MODIFIED"), **ODD[name]}
    documents = [document("CREATE"), odd, document("DROP"), odd, *[document("SEND")] * 10]
    for data in (written_avro(documents), written_avro([odd] * 9), written_avro(documents, sync_interval=1)):
        compare_written(data, "a-node")


@pytest.mark.usefixtures("_read_few_at_once")
@given(data=st.data())
def test_any_mixture_decoded_at_once_with_any_byte_changed_is_read_as_ever(data: st.DataObject) -> None:
    changes = data.draw(st.lists(st.one_of(st.none(), st.sampled_from(WRITTEN_ODD)), min_size=1, max_size=40))
    documents = [{**document("FETCH"), **(ODD[change] if change else {})} for change in changes]
    text = bytearray(written_avro(documents, sync_interval=data.draw(st.sampled_from([1, 3000, 16_000]))))
    for _ in range(data.draw(st.integers(0, 2))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    compare_written(bytes(text), None, data.draw(st.sampled_from([1, 7, 100])))


@pytest.mark.usefixtures("_read_few_at_once")
@pytest.mark.parametrize("batch_events", [4, 100])
def test_a_file_of_a_usual_writer_that_breaks_off_gives_what_it_holds_and_its_rest(batch_events: int) -> None:
    documents = [{**document("FETCH"), "eventOrdinal": number} for number in range(12)]
    data = written_avro(documents, sync_interval=1500)
    for end in [*range(0, len(data), 397), len(data) - 1]:
        compare_written(data[:end], None, batch_events)


def framed(file: bytes, contents: list[tuple[int, bytes]]) -> bytes:
    """A file with the header of another one, and blocks of these counts and contents."""
    sync = file[-16:]
    header = file[: file.index(sync) + 16]
    return header + b"".join(write_long(count) + write_long(len(one)) + one + sync for count, one in contents)


@pytest.mark.usefixtures("_read_few_at_once")
@pytest.mark.parametrize("batch_events", [3, 8, 100])
def test_blocks_that_hold_other_records_than_they_claim_are_read_as_ever(batch_events: int) -> None:
    whole = written_avro([{**document("FETCH"), "eventOrdinal": number} for number in range(24)], sync_interval=10**6)
    records = [piece.content for piece in _avro_records(whole)]
    eight, rest = b"".join(records[:8]), b"".join(records[8:])
    assert framed(whole, [(24, eight + rest)]) == whole
    for contents in [
        [(8, eight), (16, rest)],
        [(7, eight), (17, rest)],
        [(9, eight), (15, rest)],
        [(8, eight[:-1]), (16, eight[-1:] + rest)],
        [(8, eight + b"\0"), (16, rest)],
        [(8, eight), (0, b""), (16, rest), (0, b"")],
        [(8, eight), (0, b"\0"), (16, rest)],
        [(8, eight), (16, rest), (0, b"x")],
        [(8, eight), (17, rest)],
        [(8, eight), (15, rest)],
        [(8, eight), (len(rest), rest)],
        [(1, record) for record in records],
        [(0, b"")] * 300 + [(24, eight + rest)],
        [(0, b"")] * 300,
    ]:
        compare_written(framed(whole, contents), None, batch_events)


@pytest.mark.usefixtures("_read_few_at_once")
def test_of_a_large_block_each_batch_has_its_records(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first ones are much larger than the average says.
    documents = [
        {**document("FETCH"), "eventOrdinal": number, "details": "x" * (8000 if number < 9 or number % 40 == 0 else 0)}
        for number in range(90)
    ]
    for bytes_max in (1 << 24, 30_000):
        monkeypatch.setattr(reader, "BATCH_BYTES_MAX", bytes_max)
        compare_written(written_avro(documents, sync_interval=10**7), None, 16)
        compare_written(written_avro(documents[::-1], sync_interval=60_000), None, 16)


@pytest.mark.usefixtures("_read_few_at_once")
def test_names_that_a_map_has_twice_and_texts_that_are_none_are_read_as_ever() -> None:
    good = written_avro([document("FETCH")] * 30)
    for record in _avro_records(good)[:1]:
        path = record.content.index(b"\x08path")
        twice = record.content[:path] + b"\x10filename" + record.content[path + 5 :]
        no_text = record.content.replace(b"path", b"p\xed\xa0\x80")
        assert len(no_text) == len(record.content)
        for odd in (twice, no_text, record.content.replace(b"path", b"p\xffth")):
            compare_written(framed(good, [(3, record.content + odd + record.content)] + [(1, record.content)] * 30))


def _avro_records(file: bytes) -> list[AvroRecord]:
    container = nifi_avro._opened(InputText(io.BytesIO(file), bytes_max=1 << 30))
    assert isinstance(container, AvroContainer)
    return list(container.records())
