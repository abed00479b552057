"""Few compressed bytes that cost much: members without text, members of a byte each, and text without an end."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from custody.capture import CaptureLimits, Format, Rejected, read_stream
from custody.errors import InvalidInputError
from custody.serving.http_requests import unzipped
from tests.attacks.counted_work import count_inflating
from tests.attacks.every_door import Body, EveryDoor, every_door
from tests.unit.capture.sample_inputs import lines, payloads

EMPTY = gzip.compress(b"", mtime=0)
BOMB = gzip.compress(b"[" + b" " * (32 << 20), mtime=0)
BODIES = {
    "members without text": EMPTY * 40_000,
    "members of a byte": gzip.compress(b" ", mtime=0) * 40_000,
    "members between zeros": (EMPTY + b"\0") * 40_000,
    "text without an end": BOMB,
    "members behind text": gzip.compress(lines(payloads(3)), mtime=0) + EMPTY * 40_000,
    "a member in a member": gzip.compress(EMPTY * 40_000, mtime=0),
}
DOORS = ("events", "openlineage", "site-to-site", "site-to-site-raw", "spool", "file", "landing", "ngsi")


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EveryDoor]:
    with every_door(tmp_path_factory.mktemp("doors") / "r") as doors:
        yield doors


@pytest.mark.parametrize("is_named", [True, False])
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("door", DOORS)
def test_what_is_inflated_is_bounded_by_the_body_and_the_text(
    at: EveryDoor, monkeypatch: pytest.MonkeyPatch, door: str, kind: str, *, is_named: bool
) -> None:
    if is_named and door not in ("events", "openlineage"):
        pytest.skip("no header names the coding there")
    data = BODIES[kind]
    counts = count_inflating(monkeypatch)
    at.doors[door](Body(data, Format.NIFI, is_zipped=is_named))
    text = 33 << 20 if kind == "text without an end" else 1 << 20
    # Each byte is looked at a few times: a first time to learn the format, and by pieces that grow.
    assert counts.fed <= 4 * len(data) + 2 * text
    assert counts.made <= 2 * text
    assert counts.members <= 2_500


def test_members_without_text_do_not_make_the_work_grow_faster_than_the_body(monkeypatch: pytest.MonkeyPatch) -> None:
    fed = []
    for number in (200, 400, 800):
        counts = count_inflating(monkeypatch)
        unzipped(EMPTY * number + gzip.compress(b"[]"), 1 << 20, "a setting")
        fed.append(counts.fed)
        monkeypatch.undo()
    assert fed[2] < 5 * fed[0]


def test_a_file_of_a_thousand_small_members_is_read(tmp_path: Path) -> None:
    events = payloads(20)
    data = b"".join(gzip.compress(line + b"\n", mtime=0) for line in lines(events).splitlines()) + EMPTY * 3
    found = list(read_stream(io.BytesIO(data), CaptureLimits(1 << 20)))
    assert len(found) == 20
    assert not any(isinstance(outcome, Rejected) for outcome in found)


@pytest.mark.parametrize(
    ("body", "expected"),
    [(EMPTY * 5000, "64 bytes each"), (gzip.compress(b"x" * 99)[:-3], "middle"), (b"text", "expected gzip")],
)
def test_a_body_that_is_refused_says_why(body: bytes, expected: str) -> None:
    with pytest.raises(InvalidInputError, match=expected):
        unzipped(body, 1 << 20, "a setting")


@pytest.mark.parametrize("size", [1, 63, 64, 65, 4096])
def test_members_of_any_size_give_back_their_text(size: int) -> None:
    text = bytes(range(256)) * 300
    parts = [text[start : start + size * 64] for start in range(0, len(text), size * 64)]
    packed = b"\0".join(gzip.compress(part, zlib.Z_BEST_SPEED, mtime=0) for part in parts)
    assert unzipped(packed, len(text), "a setting") == text
