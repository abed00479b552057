"""A file shows by its content what it is."""

from __future__ import annotations

import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture import Format, detect, detect_file
from custody.capture.formats import DETECT_BYTES
from tests.unit.capture.sample_inputs import (
    array,
    avro_file,
    dto,
    entity,
    envelope,
    lines,
    notification,
    one_of_each,
    payloads,
    run_event,
)
from tests.unit.capture.test_ngsi_events import LD, V1

NAMES = {"runId": "1", "run": "2", "subscriptionId": "3", "data": "4", "provenanceEvents": "5", "job": "6"}
CASES = [
    (Format.NIFI, array(payloads(2))),
    (Format.NIFI, lines(payloads(2))),
    (Format.NIFI, array([{**payloads(1)[0], "updatedAttributes": NAMES}])),
    (Format.NIFI, array([{"updatedAttributes": NAMES, "eventOrdinal": 1}])),
    (Format.NIFI, array([5, "x", [], payloads(1)[0]])),
    (Format.NIFI_REST, array([dto()])),
    (Format.NIFI_REST, json.dumps({"provenanceEvent": dto()}).encode()),
    (Format.NIFI_REST, json.dumps({"provenance": {"results": {"provenanceEvents": [dto()]}}}, indent=1).encode()),
    (Format.NIFI_AVRO, avro_file(payloads(2))),
    (Format.OPENLINEAGE, lines([run_event()])),
    (Format.OPENLINEAGE, json.dumps(run_event(), indent=1).encode()),
    (Format.NGSI, lines([notification()])),
    (Format.NGSI, lines([envelope(notification(), Fiware_Service="parks")])),
    (Format.NGSI, json.dumps(V1, indent=1).encode()),
    (Format.NGSI, array([LD])),
    (Format.NGSI, array([entity()])),
]


@pytest.mark.parametrize(("format", "data"), CASES)
def test_the_keys_of_the_first_object_say_the_format(format: Format, data: bytes) -> None:
    for form in (data, b"\n " + data if format is not Format.NIFI_AVRO else data, gzip.compress(data)):
        assert detect(form) is format
    stream = io.BytesIO(data)
    assert detect_file(stream) is format
    assert stream.tell() == 0


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"<html>", b"\x1f\x8b", b"\x1f\x8bjunk", b"null", b"\0\0"])
def test_a_file_that_shows_nothing_is_taken_for_nifi(data: bytes) -> None:
    assert detect(data) is Format.NIFI


@given(st.binary(max_size=100))
def test_any_bytes_show_some_format(data: bytes) -> None:
    assert detect(data) in Format


def test_a_beginning_is_enough() -> None:
    for format, data in one_of_each().items():
        assert detect(data[:400]) is format


def test_a_long_text_is_looked_through_at_once() -> None:
    assert detect(b'{"a' + b"\\" * (DETECT_BYTES * 4)) is Format.NIFI
    assert detect(b'"' * DETECT_BYTES) is Format.NIFI
