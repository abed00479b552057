"""Heads of requests that mean two things: a header twice of which one counts, a length beside chunks."""

from __future__ import annotations

from collections.abc import Iterable

SINGLE = frozenset({"authorization", "content-length", "content-type", "host", "transfer-encoding", "x-auth-token"})
"""Headers of every service of custody that come once."""


def ambiguous(headers: Iterable[tuple[bytes, bytes]], single: frozenset[str] = SINGLE) -> str | None:
    """Return what is wrong with headers as they came, names in lower case; None where they say one thing.

    Two of one name are refused also where they are equal: a proxy before this may have looked at one of them.
    """
    seen: set[str] = set()
    for raw, _ in headers:
        name = raw.decode("latin-1")
        if name in single and name in seen:
            return f"{name}: expected it once, got it twice"
        seen.add(name)
    if {"content-length", "transfer-encoding"} <= seen:
        return "expected content-length or transfer-encoding, got both"
    return None
