"""The structure of JSON text does not depend on how the text is cut."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from custody.capture.json_splitter import CLOSE, COMMA, OPEN, JsonStructure

TEXTS = st.text(alphabet='ab"\\[]{},: ', max_size=60).map(str.encode)


def in_chunks(data: bytes, size: int, level: int = 1) -> list[tuple[int, int]]:
    structure = JsonStructure()
    return [
        (start + position, kind)
        for start in range(0, len(data), size)
        for position, kind in structure.scan(data[start : start + size], level)
    ]


def byte_by_byte(data: bytes, level: int = 1) -> list[tuple[int, int]]:
    """The same found in the plainest way."""
    found, depth, inside, escapes = [], 0, False, 0
    for position, byte in enumerate(data):
        is_escaped = escapes % 2 == 1
        escapes = escapes + 1 if byte == ord("\\") else 0
        if byte == ord('"') and not is_escaped:
            inside = not inside
        elif not inside and byte in b"[{":
            depth += 1
            found += [(position, OPEN)] * (depth == level)
        elif not inside and byte in b"]}":
            depth -= 1
            found += [(position, CLOSE)] * (depth < level)
        elif not inside and byte == ord(","):
            found += [(position, COMMA)] * (depth == level)
    return found


@given(TEXTS, st.integers(1, 70), st.integers(0, 3))
def test_brackets_and_commas_outside_of_strings_are_found_however_the_text_is_cut(
    data: bytes, size: int, level: int
) -> None:
    assert in_chunks(data, size, level) == byte_by_byte(data, level)


def test_a_quote_behind_two_backslashes_ends_its_string() -> None:
    assert in_chunks(rb'["a\\",1]', 5) == [(0, OPEN), (6, COMMA), (8, CLOSE)]


def test_backslashes_are_counted_across_chunks() -> None:
    for count in range(7):
        data = b'["' + b"\\" * count + b'",1,"",2]'
        for size in range(1, 10):
            assert in_chunks(data, size) == byte_by_byte(data, 1)
