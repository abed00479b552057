"""Whole posting lists, dense and sparse, say which documents they have."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from custody.index.postings import DecodedPostings

DOCUMENTS = 5000


@given(
    held=st.sets(st.integers(0, DOCUMENTS), min_size=1, max_size=300),
    asked=st.sets(st.integers(0, 2 * DOCUMENTS), min_size=1, max_size=300),
    around=st.integers(0, DOCUMENTS),
    step=st.integers(1, 40),
)
def test_a_list_has_what_it_was_made_of(held: set[int], asked: set[int], around: int, step: int) -> None:
    """Far apart and close together, at the ends and behind them; every `step`-th document makes a list dense."""
    run = set(range(around, around + 400, step))
    for own in (held, held | run, run):
        whole = DecodedPostings(np.array(sorted(own), np.int32))
        for wanted in (asked, asked | run, run):
            documents = np.array(sorted(wanted), np.int64)
            assert documents[whole.among(documents)].tolist() == sorted(own & wanted)
        begin, end = whole.bounds(around, around + 100)
        assert whole.documents[begin:end].tolist() == sorted(own & set(range(around, around + 100)))
