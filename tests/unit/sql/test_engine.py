"""The engine's messages on one line."""

from __future__ import annotations

import pytest

from custody.sql.engine import on_one_line


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Something.", "Something."),
        ("Parser Error: no\n\nLINE 1: selec 1\n        ^", "Parser Error: no (line 1, at selec 1)"),
        ("Parser Error: no\n\nLINE 12: from x where\n                     ^", "Parser Error: no (line 12, at its end)"),
        ("Error: a\nDid you mean b?\n\nLINE 2: from a\n             ^", "Error: a Did you mean b? (line 2, at a)"),
        ("Error: a\n\nLINE 2: select " + "a" * 60 + "\n               ^", f"Error: a (line 2, at {'a' * 40}…)"),
        ("Out of Memory: x\n\nPossible solutions:\n* SET threads=X\n\nSee also http://x", "Out of Memory: x"),
    ],
)
def test_a_message_is_one_line_that_says_the_place(text: str, line: str) -> None:
    assert on_one_line(text) == line
