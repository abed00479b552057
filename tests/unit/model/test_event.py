"""Equality of events."""

from __future__ import annotations

import msgspec

from tests.support import event

LINKED = msgspec.structs.replace(event(1), parent_uuids=("a", "b"), child_uuids=("c", "d"))


def test_the_order_of_relatives_makes_no_other_event() -> None:
    turned = msgspec.structs.replace(LINKED, parent_uuids=("b", "a"), child_uuids=("d", "c"))
    assert turned == LINKED
    assert hash(turned) == hash(LINKED)


def test_every_other_difference_makes_another_event() -> None:
    for changed in (
        {"parent_uuids": ("a",)},
        {"parent_uuids": ("a", "a")},
        {"parent_uuids": ("c", "d"), "child_uuids": ("a", "b")},
        {"parent_uuids": ("b", "a"), "details": "x"},
        {"updated_attributes": {"k": "v"}},
    ):
        assert msgspec.structs.replace(LINKED, **changed) != LINKED, changed
    assert LINKED != "an event"
