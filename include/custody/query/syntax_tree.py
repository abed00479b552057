"""The syntax tree of a query, its canonical text, and the error that points into a query's text.

`printed` gives a tree in one fixed form, which reads back as the same tree where it is not longer than a query may be:
it shows without doubt how a query was understood.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
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
        # Cut around the place: a query may have thousands of characters, and the caret has to stay on the screen.
        start = max(0, self.at - _CONTEXT)
        shown = self.text[start : self.at + _CONTEXT]
        # Control characters would move the caret away from its place, or act on the terminal.
        plain = "".join(character if character.isprintable() else " " for character in shown)
        before, after = ("…" if start else ""), ("…" if len(self.text) > self.at + _CONTEXT else "")
        return [before + plain + after, " " * (len(before) + self.at - start) + "^"]


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names most like a name, or with it as one of their parts; the likeliest first."""
    names = list(known)
    small = {item.casefold(): item for item in names}
    similar = [small[item] for item in get_close_matches(name.casefold(), small, _NAMES_MAX, _ALIKE)]
    parts = [item for item in names if name and name.casefold() in item.casefold().replace(".", "_").split("_")]
    return list(dict.fromkeys([*similar, *parts]))[:_NAMES_MAX]


def did_you_mean(name: str, known: Iterable[str], template: str = "{}") -> str | None:
    """Return the question whether one of the nearest names was meant; None when none is near."""
    names = nearest(name, known)
    return f"Did you mean {' or '.join(template.format(item) for item in names)}?" if names else None


TO = "TO"
_ENDS = frozenset("()[]{}\"'")


@dataclass(frozen=True, slots=True)
class Everything:
    """Every event: `*`, or an empty text."""

    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Exists:
    """Events that have a field: `filename:*`."""

    name: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TextValue:
    """A value of a field, of any text field where `name` is None; `is_quoted` says that it is taken as it is."""

    name: str | None
    text: str
    is_quoted: bool = False
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Pattern:
    """A value with `*` and `?`."""

    name: str | None
    text: str
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ValueRange:
    """Values between two ends, of which at least one is there; an end may be left out of it."""

    name: str
    first: str | None
    last: str | None
    without_first: bool = False
    without_last: bool = False
    at: int = field(default=0, compare=False)
    last_at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    """Events that do not match."""

    part: Node


@dataclass(frozen=True, slots=True)
class And:
    """Events that match all parts; there are two or more."""

    parts: tuple[Node, ...]
    implied_at: int | None = field(default=None, compare=False)
    """Where a space stands for AND, outside of inner brackets."""


@dataclass(frozen=True, slots=True)
class Or:
    """Events that match one of the parts; there are two or more."""

    parts: tuple[Node, ...]


Leaf = Everything | Exists | TextValue | Pattern | ValueRange
Node = Leaf | Not | And | Or


def begin(node: Node) -> int:
    """Return the place of the first condition of a tree."""
    match node:
        case Not(part):
            return begin(part)
        case And(parts=parts) | Or(parts=parts):
            return begin(parts[0])
    return node.at


def printed(node: Node) -> str:
    """Return the text of a tree in its fixed form; it is parsed into an equal tree."""
    match node:
        case Not(part):
            return f"NOT {_bracketed(part)}"
        case And(parts=parts):
            return " AND ".join(map(_bracketed, parts))
        case Or(parts):
            # AND binds tighter than OR: brackets around it would only use up depth.
            return " OR ".join(_bracketed(part) if isinstance(part, Or) else printed(part) for part in parts)
    return _leaf(node)


def _bracketed(node: Node) -> str:
    return f"({printed(node)})" if isinstance(node, And | Or) else printed(node)


def _leaf(node: Leaf) -> str:
    match node:
        case Everything():
            return "*"
        case Exists(name):
            return f"{name}:*"
        case ValueRange():
            opened, closed = "[{"[node.without_first], "]}"[node.without_last]
            ends = [_end(node.first), TO, _end(node.last)]
            return f"{node.name}:{opened}{' '.join(end for end in ends if end)}{closed}"
    prefix = "" if node.name is None else f"{node.name}:"
    return prefix + (quoted(node.text) if isinstance(node, TextValue) and node.is_quoted else node.text)


def _end(text: str | None) -> str:
    if text is None:
        return ""
    # Anything that the tokenizer would read otherwise is quoted, so that the printed form reads back as the same tree.
    is_plain = text and text.upper() != TO and not any(c.isspace() or c in _ENDS or c in "*?" for c in text)
    return text if is_plain else quoted(text)


def quoted(text: str) -> str:
    """Return a text between quotes; a quote in it is doubled."""
    return '"' + text.replace('"', '""') + '"'
