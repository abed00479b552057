"""Uuids that are made from names are those of version 5, which other programs make as well."""

from __future__ import annotations

import uuid

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from custody.format.identifiers import NAMESPACE, uuid_of_name


@given(st.text(), st.lists(st.text() | st.none()))
def test_a_uuid_of_a_name_is_that_of_the_standard_library(kind: str, parts: list[str | None]) -> None:
    name = msgspec.json.encode([kind, *parts]).decode()
    assert uuid_of_name(kind, *parts) == str(uuid.uuid5(NAMESPACE, name))
