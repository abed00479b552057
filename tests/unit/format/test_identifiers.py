"""Uuids that are made from names are those of version 5, which other programs make as well."""

from __future__ import annotations

import uuid

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from custody.format.identifier_columns import ordinals_of_names, uuids_of_names
from custody.format.identifiers import NAMESPACE, digest_ordinal, uuid_of_name


@given(st.text(), st.lists(st.text() | st.none()))
def test_a_uuid_of_a_name_is_that_of_the_standard_library(kind: str, parts: list[str | None]) -> None:
    name = msgspec.json.encode([kind, *parts]).decode()
    assert uuid_of_name(kind, *parts) == str(uuid.uuid5(NAMESPACE, name))


_TIMES = st.none() | st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 1 << 42)


@given(st.lists(st.tuples(st.text(), st.lists(st.text() | st.none(), max_size=3), _TIMES), max_size=5))
def test_uuids_and_ordinals_of_many_names_are_those_of_each(
    named: list[tuple[str, list[str | None], int | None]],
) -> None:
    names = [msgspec.json.encode([kind, *parts]) for kind, parts, _ in named]
    assert uuids_of_names(names).to_pylist() == [uuid_of_name(kind, *parts) for kind, parts, _ in named]
    ordinals = ordinals_of_names(names, [time for _, _, time in named]).tolist()
    assert ordinals == [digest_ordinal([kind, *parts], time) for kind, parts, time in named]
