"""The engine's messages, which show the place of an error on lines of their own, as text on one line."""

from __future__ import annotations

import re

_ADVICE = re.compile(r"\n+(?:Possible solutions:|See also ).*", re.DOTALL)  # settings, which are locked
_PLACE = re.compile(r"\n+LINE (\d+): ?([^\n]*)\n( *)\^[^\n]*")
_SHOWN = 40


def on_one_line(text: str) -> str:
    """Return a message as one line that says in words what it draws."""
    found = _PLACE.search(text)
    place = ""
    if found:
        before = len(f"LINE {found[1]}: ")
        at = found[2][max(len(found[3]) - before, 0) :].strip()
        shown = at if len(at) <= _SHOWN else f"{at[:_SHOWN]}…"
        place = f" (line {found[1]}, at {shown})" if shown else f" (line {found[1]}, at its end)"
        text = text[: found.start()] + text[found.end() :]
    return " ".join(_ADVICE.sub("", text).split()) + place
