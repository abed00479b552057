"""Cells of CSV: a table program shows them as they are, and computes nothing."""

from __future__ import annotations

# A table program would take such a cell for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def plain_cell(text: str) -> str:
    """Return a text that no table program takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
