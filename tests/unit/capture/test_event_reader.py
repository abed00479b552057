"""A file is read as a stream: where it is cut into chunks, whether it is gzip and how large it is changes nothing."""

from __future__ import annotations

import gzip
import io
import json
import tracemalloc
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from custody.capture import Accepted, CaptureLimits, Format, InputPlace, Outcome, Rejected, read_stream
from custody.capture import json_splitter as pieces_module
from custody.capture.nifi_json import read_element
from custody.capture.validate import Context, validate_element
from tests.unit.capture.sample_inputs import LIMITS, array, avro_file, dto, lines, payloads, read

EVENTS = payloads(12)
SPACE = st.text(" \t\r\n", max_size=4).map(str.encode)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def arrays(draw: st.DrawFn) -> bytes:
    """A JSON array of good events, changed ones and other values, in any layout."""
    elements = draw(
        st.lists(
            st.sampled_from(EVENTS)
            | st.builds(
                lambda event, key, value: {**event, key: value},
                st.sampled_from(EVENTS),
                st.sampled_from(["entityId", "entitySize", "details", "new"]),
                VALUES,
            )
            | VALUES,
            max_size=5,
        )
    )
    texts = [json.dumps(element, ensure_ascii=draw(st.booleans())).encode() for element in elements]
    spaced = [draw(SPACE) + text + draw(SPACE) for text in texts]
    return draw(SPACE) + b"[" + b",".join(spaced) + b"]" + draw(SPACE)


def whole_file(data: bytes) -> Iterator[Outcome]:
    """What an array that is JSON holds, read as a whole."""
    end = 0
    for index, element in enumerate(msgspec.json.decode(data, type=list[msgspec.Raw])):
        raw = bytes(element)
        offset = data.index(raw, end)
        end = offset + len(raw)
        yield from validate_element(
            raw, InputPlace(index, offset), read_element, Context(None), relationship_exported=False
        )


@given(arrays(), st.integers(1, 300))
def test_an_array_read_in_chunks_gives_what_the_whole_file_gives(data: bytes, size: int) -> None:
    assert read(data, Format.NIFI, chunk_bytes=size) == list(whole_file(data))


@given(arrays(), st.integers(1, 300), st.integers(0, 2000))
def test_the_elements_before_a_break_are_kept_and_the_rest_is_one_piece(data: bytes, size: int, cut: int) -> None:
    data = data[: min(cut, len(data) - 1)]
    whole = read(data, Format.NIFI)
    assert read(data, Format.NIFI, chunk_bytes=size) == whole
    bare = data.rstrip(b" \t\r\n")
    if whole and bare and not bare.endswith(b"]"):
        last = whole[-1]
        assert isinstance(last, Rejected)
        assert last.raw in (bare[last.place.offset :], data[last.place.offset :])


@pytest.mark.parametrize(
    "layout", [array, lines, lambda events: b"\n".join(json.dumps(e, indent=1).encode() for e in events)]
)
@given(size=st.integers(1, 5000))
def test_array_lines_and_objects_hold_the_same_events_at_exact_places(layout: object, size: int) -> None:
    data = layout(EVENTS)  # type: ignore[operator]
    found = read(data, Format.NIFI, chunk_bytes=size)
    assert [outcome.event for outcome in found if isinstance(outcome, Accepted)] == [
        outcome.event for outcome in read(array(EVENTS)) if isinstance(outcome, Accepted)
    ]
    for number, outcome in enumerate(found):
        assert outcome.place.index == number
        assert data[outcome.place.offset :].startswith(outcome.raw)
        assert json.loads(outcome.raw) == EVENTS[number]


@settings(max_examples=15)
@given(st.integers(1, 700), st.integers(0, 9))
def test_gzip_changes_no_place_and_no_piece(size: int, level: int) -> None:
    for data in (array(EVENTS), lines(EVENTS), array(EVENTS)[:-300], avro_file(EVENTS)):
        packed = gzip.compress(data[:100], level) + gzip.compress(data[100:], level)
        assert read(packed, chunk_bytes=size) == read(data)


def test_a_bad_line_costs_itself_only() -> None:
    good = lines(EVENTS[:2])
    found = read(good + b'{"eventOrdinal": 5, "detai\n\n' + good)
    assert [type(outcome) for outcome in found] == [Accepted, Accepted, Rejected, Accepted, Accepted]
    assert found[2].place == InputPlace(2, len(good))
    assert found[3].place == InputPlace(3, len(good) + len(b'{"eventOrdinal": 5, "detai\n\n'))


def test_a_first_line_that_is_bad_does_not_hide_the_others() -> None:
    assert [type(outcome) for outcome in read(b'{"eventOrdinal"\n' + lines(EVENTS))] == [Rejected] + 12 * [Accepted]


def test_an_element_that_is_not_json_costs_itself_only() -> None:
    data = b"[" + json.dumps(EVENTS[0]).encode() + b', {"a": +1}, ' + json.dumps(EVENTS[1]).encode() + b"]"
    found = read(data, Format.NIFI)
    assert [type(outcome) for outcome in found] == [Accepted, Rejected, Accepted]
    assert found[1].raw == b'{"a": +1}'


def test_arrays_that_were_put_together_are_read_one_after_the_other() -> None:
    found = read(array(EVENTS[:5]) + b"\n" + array(EVENTS[5:]))
    assert [outcome.place.index for outcome in found] == list(range(12))
    assert all(isinstance(outcome, Accepted) for outcome in found)


def test_a_byte_order_mark_is_passed_over() -> None:
    [first, *_] = read(b"\xef\xbb\xbf" + array(EVENTS))
    assert isinstance(first, Accepted)
    assert first.place == InputPlace(0, 4)


@pytest.mark.parametrize(
    ("junk", "index"), [(b"] trailing", 1), (b"]]", 1), (b"},", 0), (b",,{}]", 1), (b",]", 1), (b"", 0), (b"] {}", 1)]
)
def test_what_cannot_follow_an_event_ends_the_file_and_is_kept(junk: bytes, index: int) -> None:
    data = b"[" + json.dumps(EVENTS[0]).encode() + junk
    last = read(data, Format.NIFI)[-1]
    assert isinstance(last, Rejected)
    assert (last.problem.code, last.place.index) == ("not-json", index)
    assert data.endswith(last.raw)


def test_many_empty_arrays_take_no_time() -> None:
    assert read(b"[]" * 200_000, Format.NIFI) == []
    assert read(b'{"provenanceEvents":[]}' * 5_000, Format.NIFI_REST) == []


def test_a_larger_event_is_kept_whole_and_the_next_one_is_read() -> None:
    large = {**EVENTS[0], "details": "x" * 3_000_000}
    data = array([EVENTS[1], large, EVENTS[2]])
    found = read(data)
    assert [type(outcome) for outcome in found] == [Accepted, Rejected, Accepted]
    assert json.loads(found[1].raw) == large
    assert isinstance(found[1], Rejected)
    assert "expected at most 1048576 bytes (capture.event_bytes_max), got 300" in found[1].problem.message


def test_a_larger_event_is_held_once() -> None:
    size = 24 << 20
    stream = _Endless(b'[{"details": "', b"x" * 65536, size)
    tracemalloc.start()
    try:
        [outcome] = read_stream(stream, LIMITS, format=Format.NIFI)  # type: ignore[arg-type]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(outcome.raw) > size
    assert peak < size * 1.5


def test_of_a_piece_beyond_all_measure_the_beginning_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces_module, "PIECE_BYTES_MAX", 5000)
    found = read(array([{"details": "x" * 9000}, EVENTS[0]]), limits=CaptureLimits(6000), chunk_bytes=512)
    assert [len(outcome.raw) for outcome in found[:1]] == [5000]
    assert isinstance(found[0], Rejected)
    assert "the first 5000 of them are kept" in found[0].problem.message
    assert isinstance(found[1], Accepted)


@pytest.mark.parametrize("data", [array(EVENTS), lines(EVENTS), avro_file(EVENTS)])
@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_a_gzip_file_that_was_cut_off_keeps_its_whole_events(data: bytes, keep: float) -> None:
    packed = gzip.compress(data, 0)
    found = read(packed[: int(len(packed) * keep)])
    assert isinstance(found[-1], Rejected)
    assert found[-1].problem.code == "bad-gzip"
    assert found[:-1] == read(data)[: len(found) - 1]


@pytest.mark.parametrize("size", [1, 50, 1 << 16])
def test_zeros_behind_a_gzip_file_are_padding_and_other_bytes_are_damage(size: int) -> None:
    packed = gzip.compress(array(EVENTS))
    assert read(packed + b"\0" * 200, chunk_bytes=size) == read(array(EVENTS))
    assert read(packed + b"\0" * 200 + gzip.compress(b"\n"), chunk_bytes=size) == read(array(EVENTS))
    last = read(packed + b"\0" * 200 + b"more", chunk_bytes=size)[-1]
    assert isinstance(last, Rejected)
    assert "bytes that are not gzip follow it" in last.problem.message


def test_a_gzip_bomb_ends_with_a_clear_error_in_bounded_memory() -> None:
    bomb = gzip.compress(b'[{"details": "' + b"x" * 200_000_000)
    tracemalloc.start()
    try:
        [found] = read(bomb, Format.NIFI, limits=CaptureLimits(1 << 20, 30_000_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(found, Rejected)
    assert found.problem.code == "file-too-large"
    assert "expected at most 30000000 bytes of text (capture.file_bytes_max)" in found.problem.message
    assert peak < 50_000_000


def test_events_before_the_limit_of_a_file_are_kept() -> None:
    data = array(EVENTS)
    found = read(gzip.compress(data), limits=CaptureLimits(1 << 20, len(data) - 10))
    assert [type(outcome) for outcome in found] == 11 * [Accepted] + [Rejected]


def test_lists_in_wrappers_are_read_in_chunks_of_any_size() -> None:
    wrapped = {"provenance": {"id": "q", "results": {"provenanceEvents": [dto(1), dto(2)], "total": "2"}}}
    data = json.dumps(wrapped, indent=1).encode() + json.dumps({"provenanceEvents": [dto(3)]}).encode()
    for size in (1, 7, 1000, 1 << 16):
        found = read(data, Format.NIFI_REST, chunk_bytes=size)
        assert [outcome.event.source_ordinal for outcome in found if isinstance(outcome, Accepted)] == [1, 2, 3]
        for outcome in found:
            assert data[outcome.place.offset :].startswith(outcome.raw)


class _Endless(io.RawIOBase):
    """A stream of a beginning and then the same bytes until its size is reached."""

    def __init__(self, head: bytes, block: bytes, size: int) -> None:
        self._head, self._block, self._left = head, block, size

    def read(self, size: int = -1) -> bytes:
        if self._head:
            head, self._head = self._head[:size], self._head[size:]
            return head
        self._left -= len(self._block)
        return self._block[:size] if self._left >= 0 else b""
