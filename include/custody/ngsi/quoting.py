"""Names and texts from outside as they stand in a statement of Hive's language: quoted here and nowhere else.

Whoever runs such a statement also sees that `${…}` stays what it is, for quotes do not keep Hive and Spark from
replacing it (`custody.spark.session`).
"""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# \0 with a digit behind it would be an octal number; \u0000 always has four digits.
_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\u0000"})
_PATTERN = re.compile(r"[*?\[\]{}\\]")


def identifier(name: str) -> str:
    """Return a name between backticks."""
    return f"`{name.replace('`', '``')}`"


def word(name: str) -> str:
    """Return a name of database or table: as it is where it begins with a letter, between backticks otherwise."""
    return name if _PLAIN.fullmatch(name) else identifier(name)


def literal(text: str) -> str:
    """Return a text between single quotes."""
    return f"'{text.translate(_ESCAPES)}'"


def not_a_place(location: str) -> str | None:
    """Return why no table can lie at a path, None where it can.

    Hadoop reads a path of a table as a pattern, in which braces also stand around variables of the environment: a table
    at `{a,b}` has the rows of two other ones.
    """
    found = _PATTERN.search(location)
    if found is None:
        return None
    return f"{location[:200]!r}: expected a path without any of * ? [ ] {{ }} \\, which readers take for a pattern"
