"""What is wrong with a query: where in its text, what was expected there, and what was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from custody.errors import InvalidInputError

_NAMES_MAX = 3
_ALIKE = 0.6
_CONTEXT = 60  # characters of the query that are shown on each side of the place


class QueryError(InvalidInputError):
    """A text is no query. `at` is the place in `text`, counted from 0; the message counts columns from 1."""

    def __init__(self, text: str, at: int, what: str, correction: str | None = None) -> None:
        self.text, self.at = text, at
        if correction:
            self.hint = correction
        super().__init__(f"query, column {at + 1}: {what}{' ' + correction if correction else ''}")

    def pointed(self) -> list[str]:
        """Return two lines: the text around the place, each character one column wide, and a caret below the place."""
        start = max(0, self.at - _CONTEXT)
        shown = self.text[start : self.at + _CONTEXT]
        plain = "".join(character if character.isprintable() else " " for character in shown)
        before, after = ("…" if start else ""), ("…" if len(self.text) > self.at + _CONTEXT else "")
        return [before + plain + after, " " * (len(before) + self.at - start) + "^"]


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that are most like a name, or hold it as one of their parts; the likeliest first."""
    names = list(known)
    small = {item.casefold(): item for item in names}
    found = [small[item] for item in get_close_matches(name.casefold(), small, _NAMES_MAX, _ALIKE)]
    parts = [item for item in names if name and name.casefold() in item.casefold().replace(".", "_").split("_")]
    return list(dict.fromkeys([*found, *parts]))[:_NAMES_MAX]


def did_you_mean(name: str, known: Iterable[str], template: str = "{}") -> str | None:
    """Return the question whether one of the nearest names was meant; None when none is near."""
    found = nearest(name, known)
    return f"Did you mean {' or '.join(template.format(item) for item in found)}?" if found else None
