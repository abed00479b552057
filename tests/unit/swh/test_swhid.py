"""Identifiers: what is read is what is written, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import InvalidInputError
from custody.swh import ObjectType, Swhid

SWHIDS = st.builds(Swhid, st.sampled_from(ObjectType), st.binary(min_size=20, max_size=20))


@given(SWHIDS)
def test_an_identifier_is_read_as_it_was_written(swhid: Swhid) -> None:
    assert Swhid.parse(str(swhid)) == swhid
    assert len(str(swhid)) == 50


@pytest.mark.parametrize(
    "text",
    [
        "",
        "swh:1:cnt:" + "0" * 39,
        "swh:1:cnt:" + "0" * 41,
        "swh:1:cnt:" + "A" * 40,
        "swh:2:cnt:" + "0" * 40,
        "swh:1:xyz:" + "0" * 40,
        "swh:1:cnt:" + "0" * 40 + ";origin=https://example.org",
        "swh:1:cnt:" + "0" * 40 + "\n",
        "swh:1:cnt:" + "٠" * 40,
        "x" * 1_000_000,
    ],
)
def test_what_is_no_identifier_is_refused_in_a_short_message(text: str) -> None:
    with pytest.raises(InvalidInputError, match="expected swh:1:") as caught:
        Swhid.parse(text)
    assert len(str(caught.value)) < 400


def test_a_hash_has_twenty_bytes() -> None:
    with pytest.raises(InvalidInputError, match="expected a hash of 20 bytes, got 3"):
        Swhid(ObjectType.CONTENT, b"abc")
