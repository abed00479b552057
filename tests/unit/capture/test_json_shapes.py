"""Texts of a shape: what is made of many at once is what is made of each."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from custody.capture.canonical_json import canonical_json
from custody.capture.json_shapes import (
    TEXT_BYTES_MAX,
    TEXTS_BYTES_MAX,
    CutTexts,
    ShapedTexts,
    parts_to_cut,
    text_shape_of,
)
from custody.capture.text_columns import views_of_texts

_FORMS: tuple[dict[str, Any], ...] = (
    {"separators": (",", ":")},
    {},
    {"sort_keys": True},
    {"ensure_ascii": False},
    {"indent": 1},
)


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def _compact(text: bytes) -> bytes:
    return msgspec.json.format(text, indent=-1)


def _check(texts: Sequence[bytes]) -> list[int]:
    """Compare what is made of shapes with what is made of each text; return the numbers of texts that have one."""
    cut = CutTexts(texts)
    assert all(list(group.rows) == sorted(group.rows) for group in cut.groups)
    shapes, groups = [], []
    for group in cut.groups:
        shape = text_shape_of(group.skeleton)
        # It is JSON for one as for all.
        are_json = {_is_json(texts[row]) for row in group.rows}
        assert len(are_json) == 1
        if shape is not None:
            assert are_json == {_is_json(shape.marked)}
            if are_json == {True}:
                shapes.append(shape)
                groups.append(group.rows)
    if not groups:
        return []
    shaped = ShapedTexts(cut, groups)
    assert shaped.rows.tolist() == sorted(row for rows in groups for row in rows.tolist())
    found = {}
    forms: tuple[Callable[[bytes], bytes], ...] = (canonical_json, _compact)
    for number, form in enumerate(forms):
        for rows, filled in shaped.filled([shape.template(form(shape.marked)) for shape in shapes]):
            for row, text in zip(shaped.rows[rows].tolist(), views_of_texts(filled), strict=True):
                found[row, number] = bytes(text)
    expected = {(row, number): form(texts[row]) for row in shaped.rows.tolist() for number, form in enumerate(forms)}
    assert found == expected
    return [int(row) for row in shaped.rows]


_TEXT = st.text(max_size=4) | st.sampled_from(
    ['"', "\\", "\\\\", '\\"', "a:b", "{", ",", "\n", "\x7f", "\ue0c7", "717000000000001"]
)
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(
    documents=st.lists(_VALUE | st.dictionaries(_TEXT, _VALUE, max_size=4), max_size=6), form=st.sampled_from(_FORMS)
)
def test_what_shapes_make_of_documents_is_what_is_made_of_each(documents: list[object], form: dict[str, Any]) -> None:
    _check([json.dumps(one, **form).encode("utf-8", "surrogatepass") for one in documents for _ in range(2)])


_SIGNS = st.text(alphabet='ab"\\u/[]{},: 019-.e\n', max_size=24).map(str.encode)


@given(texts=st.lists(_SIGNS, max_size=8))
@example(texts=[b'{"a":,"b":1}', b'{"a":1,"b":}', b'{"a":1,"b":1}'])
@example(texts=[b'{"a":0 1}', b'{"a":1 1}', b'{"a": 1}', b'{"a":  1}', b'{"a":01}', b'{"a":1.5}', b'{"a":15e1}'])
@example(texts=[b'{"a":\\"b","c":"d"}', b'{"a":"b":"c"}', b'{"a" :"b"}', b'{"a":"\\"}', b'{"a":"\\\\"}', b'"a', b'a"'])
def test_what_shapes_make_of_any_text_is_what_is_made_of_each(texts: list[bytes]) -> None:
    _check(texts)


@given(data=st.data())
def test_a_document_with_any_byte_changed_is_what_it_is_alone(data: st.DataObject) -> None:
    text = b'{"a":"b","c":[{"d":12,"e": "f\\n"},"g"],"h":{"\xc3\xa9":null,"i":-1,"j":true}}'
    texts = [text]
    for _ in range(4):
        changed = bytearray(text)
        for _ in range(data.draw(st.integers(1, 2))):
            changed[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
        texts.append(bytes(changed))
    _check(texts)


def test_usual_texts_of_a_shape_are_found() -> None:
    texts = [b'{"a": "%d", "b": {"c": %d}, "d": ["x\\n", "\xc3\xa9"]}' % (one, one * one) for one in range(9)]
    assert _check(texts) == list(range(9))
    assert len(CutTexts(texts).groups) == 1


@pytest.mark.parametrize(
    "text",
    [
        *(
            b'{"a":"\x01"}',
            b'{"a":"\\u0041"}',
            b'{"a":"\\/"}',
            b'{"a":\n"b"}',
            b'{"a":"b',
            b'{"a":"%s"}' % (b"x" * TEXT_BYTES_MAX),
        ),
        *(b'{"a":"\\x"}', b""),
    ],
)
def test_texts_without_a_shape_leave_the_others_theirs(text: bytes) -> None:
    assert _check([b'{"a":"b"}', text, b'{"a":"c"}', text]) == [0, 2]


def test_texts_that_are_not_utf8_have_no_shapes() -> None:
    assert _check([b'{"a":"b"}', b'{"a":"\xff"}']) == []


def test_values_are_those_that_were_meant_and_lists_are_of_each_text() -> None:
    texts = [b'{"a":"x\\"y","b":["1","2"]}', b'{"a":"z","b":[]}', b'{"a":"\\\\n","b":["3","4"]}']
    cut = CutTexts(texts)
    places = {}
    for group in cut.groups:
        shape = text_shape_of(group.skeleton)
        assert shape is not None
        document = msgspec.json.decode(shape.marked)
        places[group.skeleton] = shape.place(document["a"]), [[shape.place(one), -1] for one in document["b"]]
    shaped = ShapedTexts(cut, [group.rows for group in cut.groups])
    of_groups = [places[group.skeleton] for group in cut.groups]
    names, nothing = shaped.values([(name, -1) for name, _ in of_groups])
    assert names.to_pylist() == ['x"y', "z", "\\n"]
    assert nothing.to_pylist() == [None] * 3
    counts, (elements, none) = shaped.lists([np.array(of_list, np.int64).reshape(-1, 2) for _, of_list in of_groups])
    assert counts.tolist() == [2, 0, 2]
    assert elements.to_pylist() == ["1", "2", "3", "4"]
    assert none.to_pylist() == [None] * 4


@pytest.mark.parametrize("form", _FORMS[:2])
def test_the_text_that_stands_for_others_has_their_form(form: dict[str, Any]) -> None:
    document = {"b": ["1", {"c": 2}], "a": "", "d": []}
    cut = CutTexts([json.dumps(document, **form).encode()] * 3)
    [group] = cut.groups
    shape = text_shape_of(group.skeleton)
    assert shape is not None
    assert shape.marked == json.dumps(msgspec.json.decode(shape.marked), ensure_ascii=False, **form).encode()


@given(sizes=st.lists(st.integers(0, TEXTS_BYTES_MAX + 2), max_size=5))
def test_parts_are_all_texts_and_no_larger_than_they_may_be(sizes: list[int]) -> None:
    texts = [bytes(size) for size in sizes]
    parts = list(parts_to_cut(texts))
    assert [place for begin, end in parts for place in range(begin, end)] == list(range(len(texts)))
    assert all(end == begin + 1 or sum(sizes[begin:end]) <= TEXTS_BYTES_MAX for begin, end in parts)
