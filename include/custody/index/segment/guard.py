"""Which Whoosh the bulk writer was made for. Another one may read other bytes, so it gets the stock writer."""

from __future__ import annotations

import whoosh
from whoosh import index
from whoosh.codec import whoosh3

RELEASE = (2, 7, 5)
_TABLE_OF_CONTENTS = -111
_TERM_INFO = "!BfIBBfII"


def difference() -> str | None:
    """Return how the installed Whoosh differs from the one that segments are written for; None when it does not."""
    found = {
        "release": (tuple(whoosh.__version__), RELEASE),
        "table of contents": (index._CURRENT_TOC_VERSION, _TABLE_OF_CONTENTS),
        "mark of postings": (whoosh3.WHOOSH3_HEADER_MAGIC, b"W3Bl"),
        "term information": (whoosh3.W3TermInfo._struct.format, _TERM_INFO),
    }
    differences = [
        f"{what} {got!r} instead of {expected!r}" for what, (got, expected) in found.items() if got != expected
    ]
    return f"Whoosh has {', '.join(differences)}" if differences else None
