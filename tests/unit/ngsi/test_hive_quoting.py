"""Names from outside in statements: read back by Spark's rules, they are what they were; nothing ends its quotes."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.ngsi.hive import identifier, literal, not_a_place, word

HOSTILE = st.text(
    st.sampled_from("`'\"\\n0041u{}$;\n\r\t\0-/*%.ü🌳 ") | st.characters(exclude_categories=["Cs"]), max_size=12
)
ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-1][0-7]{2})|(.))", re.DOTALL)
NAMED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}


def unescaped(text: str) -> str:
    """What Spark makes of the inside of a text: hexadecimal, octal and single escapes."""

    def one(found: re.Match[str]) -> str:
        short, long, octal, character = found.groups()
        if short or long:
            return chr(int(short or long, 16))
        return chr(int(octal, 8)) if octal else NAMED.get(character, character)

    return ESCAPE.sub(one, text)


@given(HOSTILE)
def test_a_literal_is_read_back_as_it_was(text: str) -> None:
    quoted = literal(text)
    assert re.fullmatch(r"'(?:[^'\\]|\\.)*'", quoted, re.DOTALL)
    assert unescaped(quoted[1:-1]) == text
    assert not set(quoted) & set("\0\r\n\t")


@given(HOSTILE)
def test_an_identifier_is_read_back_as_it_was(name: str) -> None:
    quoted = identifier(name)
    assert re.fullmatch(r"`(?:[^`]|``)*`", quoted, re.DOTALL)
    assert quoted[1:-1].replace("``", "`") == name


@pytest.mark.parametrize("name", ["a`b", "a b", "1a", "_a", "", "größe", "a;b", "a\n", "a.b"])
def test_a_word_that_is_more_than_letters_and_digits_is_quoted(name: str) -> None:
    assert word(name) == identifier(name)
    assert word("parks_2") == "parks_2"


@pytest.mark.parametrize("name", ["${spark.master}", "{a,b}", "a*", "a?", "[ab]", "a\\b"])
def test_a_path_that_a_reader_takes_for_a_pattern_is_no_place(name: str) -> None:
    assert repr(f"/user/warden/{name}") in (not_a_place(f"/user/warden/{name}") or "")
    assert not_a_place("/user/warden/%41 it's `so` $HOME ü") is None
