"""Lists of texts that are joined become the buffers that Arrow makes of them, and odd ones are left alone."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from custody.model import joined_texts as module
from custody.model.joined_texts import TextBuffers, joined_texts


class _Name(str):
    """A text all the same."""

    __slots__ = ()


class _EqualToAll:
    """What says that it equals every text, and is none."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


class _False(str):
    """A text that is taken for nothing where it is asked whether it is there."""

    __slots__ = ()

    def __bool__(self) -> bool:
        return False


ODD_TEXTS = [
    None,
    "",
    "a\0b",
    "\0",
    "\ud800",
    b"bytes",
    b"",
    0,
    1,
    _Name("a"),
    _False("b"),
    "\U0001f702",
    "a" * 300,
    "\xe4",
]
_SAME_LENGTH = st.integers(1, 4).flatmap(
    lambda length: st.lists(st.text(st.sampled_from("ab\0\xe4"), min_size=length, max_size=length), max_size=8)
)
_ONE_TEXT = st.builds(lambda text, count: [text] * count, st.sampled_from(ODD_TEXTS), st.integers(0, 8))
_LISTS = st.lists(st.text(max_size=6) | st.sampled_from(ODD_TEXTS), max_size=8)
_WITH_NONE = st.lists(st.text(min_size=1, max_size=3) | st.none(), max_size=12)


def array_of(made: TextBuffers, rows: int) -> pa.Array:
    buffers = [pa.py_buffer(made.validity) if len(made.validity) else None, *map(pa.py_buffer, made[2:])]
    return pa.Array.from_buffers(pa.string(), rows, buffers, made.null_count)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    columns=st.lists(_LISTS | _SAME_LENGTH | _ONE_TEXT | _WITH_NONE, max_size=6),
    group=st.sampled_from([0, 5, 1 << 16]),
    alone=st.sampled_from([0, 5, 1 << 16]),
)
@example(columns=[["ab", "c\0", "de"]], group=0, alone=0)
@example(columns=[["ab", "c", "\0de"]], group=0, alone=0)
@example(columns=[["ab", "c", "def"]], group=0, alone=0)
@example(columns=[["ab", "\xe4\0"]], group=0, alone=0)
@example(columns=[["abc\0defg", "hijk"], ["abc", "defg", "hijk"]], group=0, alone=0)
def test_columns_that_are_joined_are_the_ones_that_arrow_makes(
    columns: list[list[Any]], group: int, alone: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_GROUP_CHARACTERS", group)
        patch.setattr(module, "_ALONE_CHARACTERS", alone)
        made = joined_texts(columns)
    assert len(made) == len(columns)
    for buffers, values in zip(made, columns, strict=True):
        if buffers is not None:
            array = array_of(buffers, len(values))
            array.validate(full=True)
            expected = pa.array(values, pa.string())
            assert array.equals(expected)
            assert buffers.null_count == expected.null_count
            # No byte of another column goes to the disk with it.
            assert memoryview(buffers.data).nbytes == sum(len(text.encode()) for text in values if text is not None)
            assert memoryview(buffers.offsets).nbytes == 4 * (len(values) + 1)


def test_columns_of_texts_are_joined_and_others_left_alone() -> None:
    columns: list[list[Any]] = [["a", "", "\xe4"], ["b", None], [], [""], ["c", b"d"], ["e"], ["", None], [0, "a"]]
    lists = [
        None if made is None else array_of(made, len(values)).to_pylist()
        for made, values in zip(joined_texts(columns), columns, strict=True)
    ]
    assert lists == [["a", "", "\xe4"], ["b", None], None, [""], None, ["e"], None, None]
    # A text with NUL, or half a character, is left with those that were joined with it.
    for odd in ("a\0b", "\ud800"):
        assert joined_texts([["a", "bc"], [odd, "de"]]) == [None, None]


@pytest.mark.parametrize("odd", [_EqualToAll(), b"ab", 1, None, ["ab"]], ids=["equal", "bytes", "one", "none", "list"])
def test_what_is_no_text_is_found_among_many_of_one_text(odd: Any) -> None:
    text = "ab"
    texts: list[Any] = [text] * 20
    assert joined_texts([texts])[0] is not None
    texts[7] = odd
    [made] = joined_texts([texts])
    if odd is None:
        assert made is not None
        assert array_of(made, 20).to_pylist() == texts
    else:
        assert made is None


@pytest.mark.parametrize("count", [1, 2, 3, 1000])
@pytest.mark.parametrize("length", [1, 36, 129])
def test_texts_of_one_length_are_cut_where_each_ends(monkeypatch: pytest.MonkeyPatch, count: int, length: int) -> None:
    monkeypatch.setattr(module, "_ALONE_CHARACTERS", 0)
    texts = [f"{number:0{length}d}"[-length:] for number in range(count)]
    [made] = joined_texts([texts])
    assert made is not None
    assert array_of(made, count).equals(pa.array(texts, pa.string()))
    if count > 2:
        # As many characters, and NUL wherever a text would end.
        texts[1:3] = [texts[1][:-1], "\0" + texts[2]]
        assert joined_texts([texts]) == [None]
