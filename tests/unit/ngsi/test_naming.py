"""Names: what the encodings do, and that nothing from outside names another folder than its own."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import InvalidInputError
from custody.ngsi.naming import Destination, Placed, encode, encode_path, encode_table, metadata_file, place
from custody.ngsi.rules import Names
from tests.unit.ngsi.notification_records import NOW_MS, parameters

HOSTILE = st.text(st.sampled_from("./:=x002fXé🌳 \0_-%#?'\"\\ab"), max_size=12) | st.text(max_size=12)


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        ("aZ09", "aZ09", "aZ09"),
        ("a.b-c_d", "a.b-c_d", "a.b-c_d"),
        ("a/b", "a_b", "ax002fb"),
        ("a=b", "a_b", "axffffb"),
        ("a:b", "a_b", "ax003ab"),
        ("xffff", "xffff", "xxffff"),
        ("fox0042", "fox0042", "foxx0042"),
        ("x12", "x12", "x12"),
        ("=x0041", "_x0041", "xffffxx0041"),
        ("XFFFF", "XFFFF", "XFFFF"),
        ("xx0041", "xx0041", "xxx0041"),
        ("größe 🌳", "gr__e__", "größe 🌳"),
        (".", "_", "x002e"),
        ("..", "__", "x002ex002e"),
        ("...", "...", "..."),
        ("a\0b", "a_b", "ax0000b"),
        ("", "", ""),
    ],
)
def test_what_the_encodings_do(text: str, old: str, new: str) -> None:
    assert (encode(text, is_new=False), encode(text, is_new=True)) == (old, new)


def test_a_path_keeps_its_levels() -> None:
    assert encode_path("/a b/../c=d", is_new=False) == "/a_b/__/c_d"
    assert encode_path("/a b/../c=d", is_new=True) == "/a b/x002ex002e/cxffffd"


def test_a_table_has_letters_digits_and_underscores() -> None:
    assert encode_table("War-den_Bench/1é") == "war_den_bench_1_"


def placed(names: Names, **config: object) -> Placed:
    return place(names, NOW_MS, parameters(**config))


@given(HOSTILE, HOSTILE, HOSTILE, st.lists(HOSTILE, max_size=3), st.booleans(), st.booleans())
def test_nothing_from_outside_leaves_its_folder(
    service: str, id: str, type: str, levels: list[str], is_new: bool, is_lower: bool
) -> None:
    names = Names(service or "s", "/" + "/".join(level.replace("/", "") or "p" for level in levels), id or "i", type)
    try:
        found = placed(names, enable_encoding=is_new, enable_lowercase=is_lower).destination
    except InvalidInputError as error:
        assert "at most 255 characters" in str(error) or "at most 255 bytes" in str(error)
        return
    assert found.location.startswith("/user/warden/")
    parts = found.file.split("/")[1:]
    assert len(parts) == 2 + 1 + len(levels) + 2
    assert all(part not in ("", ".", "..") and ":" not in part and "\0" not in part for part in parts)
    assert re.fullmatch(r"[a-z0-9_]{1,256}", found.table)


def test_a_long_table_name_is_cut_and_stays_unique() -> None:
    def name(last: str) -> Destination:
        return placed(Names("s" * 50, "/a/b", "i" * 70 + last, ""), hdfs_username="u" * 200).destination

    one, other = name("1"), name("2")
    assert len(one.table) == len(other.table) == 256
    assert one.table != other.table
    assert re.fullmatch(r"u{200}_s{38}_[0-9a-f]{16}", one.table)


@pytest.mark.parametrize("config", [{}, {"enable_encoding": True}])
def test_a_metadata_file_with_a_name_too_long_for_hdfs_is_refused(config: dict[str, object]) -> None:
    found = placed(Names("s", "/", "i" * 100, ""), **config)
    used = parameters(**config)
    separator = "xffff" if config else "_"
    fits = "a" * (255 - 4 - 100 - len(separator))
    assert metadata_file(found, fits, "", used).endswith(f"/{'i' * 100}{separator}{fits}.txt")
    with pytest.raises(InvalidInputError, match="expected a name of at most 255 bytes, got 256"):
        metadata_file(found, fits + "a", "", used)


def test_characters_count_in_a_path_and_bytes_in_a_name() -> None:
    new = {"enable_encoding": True}
    deep = "/" + "/".join("é" * 40 for _ in range(4))
    wide = placed(Names("s", deep, "ü" * 40, ""), **new).destination.file.removeprefix("/user/warden/")
    assert len(wide) <= 255 < len(wide.encode())
    # The name of a file has .txt behind that of its folder: 83 characters of 3 bytes are 253 bytes.
    assert placed(Names("s", "/", "€" * 83, ""), **new).destination.name == "€" * 83
    with pytest.raises(InvalidInputError, match=r"file .*: expected names of at most 255 bytes, got 256"):
        placed(Names("s", "/", "€" * 84, ""), **new)
    assert placed(Names("s", "/", "a" * 124, ""), **new).destination.name == "a" * 124
    with pytest.raises(InvalidInputError, match=r"file .*: expected at most 255 characters, got 256"):
        placed(Names("ss", "/", "a" * 124, ""), **new)


@pytest.mark.parametrize("path", ["", "a", "//", "/a//b", "/a/", "a/../b"])
def test_a_path_that_is_none_has_no_destination(path: str) -> None:
    with pytest.raises(InvalidInputError, match=r"service path .*: expected / or levels"):
        placed(Names("s", path, "i", "T"))
