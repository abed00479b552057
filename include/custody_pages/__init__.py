"""custody's pages: a program for browsers, written in TypeScript, which asks the API and nothing else.

`python -m custody_pages.build` makes `built/` of the sources beside this file; nothing of that folder is committed.
"""

from __future__ import annotations

from pathlib import Path

SOURCES = Path(__file__).parent
BUILT = SOURCES / "built"
"""Where the documents, scripts and styles are that a server gives out; there once they have been built."""
STAMP = "made-from"
"""In `BUILT`: the digest of the sources that it was made of."""
