"""Long attributes in answers: cut and marked, while the record stays whole."""

from __future__ import annotations

import msgspec

from custody.model import ContentClaim, CutEvent, shortened
from tests.support import event


def test_an_event_with_short_attributes_is_itself() -> None:
    whole = event(updated_attributes={"a": "x" * 64, "gone": None})
    assert shortened(whole, 64) is whole


def test_a_long_value_is_cut_marked_and_counted() -> None:
    claim = ContentClaim(container="c", size=1)
    whole = event(
        previous_attributes={"a": "y" * 70},
        updated_attributes={"a": "x" * 65, "b": "z", "c": None},
        content_claim=claim,
    )
    cut = shortened(whole, 64)
    assert isinstance(cut, CutEvent)
    assert cut.updated_attributes == {"a": "x" * 63 + "…", "b": "z", "c": None}
    assert cut.previous_attributes == {"a": "y" * 63 + "…"}
    assert (cut.cut_attributes, cut.content_claim) == ({"a": 70}, claim)
    assert len(whole.updated_attributes["a"] or "") == 65
    assert msgspec.json.decode(msgspec.json.encode(cut))["cut_attributes"] == {"a": 70}
