"""Whatever bytes arrive, no reader raises, and what it accepts can be stored."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture import Accepted, Context, Format, Outcome, Rejected, read_piece
from custody.model import to_batch
from tests.unit.capture.sample_inputs import LIMITS, one_of_each, read

FORMATS = st.sampled_from([None, *Format])
GOOD = one_of_each()
JSONISH = st.lists(
    st.sampled_from(
        [
            "{",
            "}",
            "[",
            "]",
            ",",
            ":",
            '"',
            "\\",
            "\n",
            " ",
            "1",
            "-9e999",
            "null",
            '"id"',
            '"run"',
            '"data":[',
            '"provenanceEvents":[',
            '{"eventOrdinal":',
            '"\\ud800"',
            '{"body":',
            '"headers":{}',
            '"eventTime":"x"',
        ]
    ),
    max_size=30,
).map(lambda parts: "".join(parts).encode())


def check(outcomes: list[Outcome], data: bytes) -> None:
    accepted = [outcome for outcome in outcomes if isinstance(outcome, Accepted)]
    to_batch([outcome.event for outcome in accepted], 0)
    for outcome in outcomes:
        assert 0 <= outcome.place.offset <= len(data)
        if isinstance(outcome, Rejected):
            assert outcome.problem.message


@given(st.binary(max_size=200) | JSONISH, FORMATS, st.integers(1, 64))
def test_any_bytes_are_read_or_rejected(data: bytes, format: Format | None, size: int) -> None:
    check(read(data, format, chunk_bytes=size), data)


@given(st.binary(max_size=200), FORMATS)
def test_any_bytes_behind_the_mark_of_a_format_are_read_or_rejected(data: bytes, format: Format | None) -> None:
    for mark in (b"Obj\x01", b"\x1f\x8b\x08\0", b"\x1f\x8b", GOOD[Format.NIFI_AVRO][:1800], gzip.compress(b"[{")):
        check(read(mark + data, format), b"x" * 100_000)


@pytest.mark.parametrize("format", list(Format))
@given(st.data())
def test_a_good_file_with_bytes_changed_is_read_or_rejected(format: Format, data: st.DataObject) -> None:
    changed = bytearray(GOOD[format])
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(changed) - 1))
        changed[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    check(read(bytes(changed), data.draw(st.sampled_from([None, format]))), bytes(changed))


@pytest.mark.parametrize("format", list(Format))
@given(st.data())
def test_a_rejected_piece_is_rejected_again_for_the_same_reason(format: Format, data: st.DataObject) -> None:
    good = GOOD[format]
    at = data.draw(st.integers(0, len(good) - 1))
    changed = good[:at] + data.draw(st.binary(min_size=1, max_size=2)) + good[at + 1 :]
    for outcome in read(changed, format):
        if isinstance(outcome, Rejected) and outcome.problem.code in ("bad-value", "number-range", "empty-text"):
            context = Context(None, 0)
            again = list(read_piece(outcome.raw, outcome.place, LIMITS, format=format, context=context))
            assert outcome in again


def test_deeply_nested_json_is_rejected() -> None:
    for format in Format:
        for data in (b"[" * 100_000, b'{"run":' * 100_000, b'[{"a":' + b"[" * 9000 + b"]" * 9000 + b"}]"):
            assert all(isinstance(outcome, Rejected) for outcome in read(data, format))
