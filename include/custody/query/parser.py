"""The parser of the query language: a text becomes a syntax tree, and the tree a Whoosh query.

`event_type:SEND AND filename:orders*`, `event_time:[2026-01-01 TO 2026-01-31]`, `file_size:[1000 TO]`,
`NOT component_type:PutHDFS`, `details:"auto terminated"`. Text without a field is looked for in all text fields.
Case never matters; both ends of a range belong to it; an end that is a day means the whole day.

The grammar is strict: what it does not describe is refused. AND binds tighter than OR, NOT tighter than both. A space
stands for AND, except beside an OR, where the meaning would be a guess.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedToken, v_args
from lark.lexer import Lexer, LexerState
from whoosh import query

from custody.index import STANDARD_FIELDS
from custody.query.conditions import ConditionError, Conditions
from custody.query.syntax_tree import (
    And,
    Everything,
    Exists,
    Leaf,
    Node,
    Not,
    Or,
    Pattern,
    QueryError,
    TextValue,
    ValueRange,
    begin,
)
from custody.query.tokenizer import QueryToken, Tokenizer

_GRAMMAR = """
?query: either
either: all (OR all)*
all: negation (AND negation | negation)*
?negation: NOT negation -> negated
         | condition
?condition: FIELD? value
          | FIELD? LPAR either RPAR -> bracketed
?value: TEXT -> text
      | QUOTED -> text_in_quotes
      | OPEN END? TO END? CLOSE -> range
%declare OR AND NOT FIELD LPAR RPAR TEXT QUOTED OPEN END TO CLOSE
"""
_CONDITION = "a condition"
_EXPECTED = {
    "TEXT": _CONDITION,
    "QUOTED": _CONDITION,
    "FIELD": _CONDITION,
    "LPAR": _CONDITION,
    "NOT": _CONDITION,
    "OPEN": _CONDITION,
    "AND": "AND",
    "OR": "OR",
    "RPAR": ")",
    "$END": "the end",
    "TO": "TO",
    "END": "a value",
    "CLOSE": "] or }",
}
_CORRECTIONS = {
    "AND": 'AND stands between two conditions; quote the word to look for it: "AND".',
    "OR": 'OR stands between two conditions; quote the word to look for it: "OR".',
    "NOT": 'NOT stands before a condition; quote the word to look for it: "NOT".',
    "END": "Write [FIRST TO LAST], [FIRST TO] or [TO LAST]; quote an end that holds a space.",
    "CLOSE": "Write [FIRST TO LAST], [FIRST TO] or [TO LAST].",
    "TO": "Write [FIRST TO LAST], [FIRST TO] or [TO LAST].",
}


# Tokens depend on the fields that are indexed, so lark's own lexer, made once for the grammar, cannot cut them.
class _TokenLexer(Lexer):
    """A lexer for lark that passes on the tokens of custody's own tokenizer."""

    __future_interface__ = 2

    def __init__(self, _: object) -> None:
        """Ignore lark's settings."""

    def lex(self, lexer_state: LexerState, parser_state: object) -> Iterator[Token]:
        tokens: Any = lexer_state.text
        return iter(tokens)


@v_args(inline=True)
class _TreeBuilder(Transformer[Token, Node]):
    """Builds the syntax tree from the bottom up while the text is parsed."""

    def either(self, *children: Node | Token) -> Node:
        parts = _nodes(children)
        if len(parts) == 1:
            return parts[0]
        for part in parts:
            if isinstance(part, And) and part.implied_at is not None:
                raise _Ambiguous(part.implied_at)
        return Or(parts)

    def all(self, *children: Node | Token) -> Node:
        parts = _nodes(children)
        if len(parts) == 1:
            return parts[0]
        # Only a space between two conditions, with no AND token, is ambiguous beside an OR.
        implied = None
        for before, child in pairwise(children):
            if implied is None and not isinstance(before, Token) and not isinstance(child, Token):
                implied = begin(child)
        return And(parts, implied)

    def negated(self, _: Token, part: Node) -> Node:
        return Not(part)

    def condition(self, _: Token, value: Node) -> Node:
        return value

    def bracketed(self, *children: Node | Token) -> Node:
        [node] = _nodes(children)
        # Brackets settle what belongs together, so the space in them is no longer ambiguous.
        return replace(node, implied_at=None) if isinstance(node, And) else node

    def text(self, token: QueryToken) -> Leaf:
        text, at = str(token), token.start_pos or 0
        if not set(text) - {"*"}:
            return Everything(at) if token.scope is None else Exists(token.scope, at)
        return (Pattern if "*" in text or "?" in text else TextValue)(token.scope, text, at=at)

    def text_in_quotes(self, token: QueryToken) -> Leaf:
        return TextValue(token.scope, str(token), is_quoted=True, at=token.start_pos or 0)

    def range(self, opened: QueryToken, *rest: QueryToken) -> Leaf:
        *ends, closed = rest
        middle = next(number for number, token in enumerate(ends) if token.type == "TO")
        first, last = ends[:middle], ends[middle + 1 :]
        at = opened.start_pos or 0
        if not first and not last:
            raise _WithoutEnds(at, opened.scope or "")
        return ValueRange(
            opened.scope or "",
            str(first[0]) if first else None,
            str(last[0]) if last else None,
            opened == "{",
            closed == "}",
            at=(first[0] if first else opened).start_pos or 0,
            last_at=(last[0] if last else opened).start_pos or 0,
        )


class _Ambiguous(Exception):
    """A space stands for AND beside an OR."""


class _WithoutEnds(Exception):
    """A range has neither a first nor a last value."""


def _nodes(children: Iterable[Node | Token]) -> tuple[Node, ...]:
    return tuple(child for child in children if not isinstance(child, Token))


@lru_cache(maxsize=1)
def _parser() -> Lark:
    # LALR: no recursion on the input, and in each state it knows what may follow, which the messages name.
    return Lark(_GRAMMAR, start="query", parser="lalr", lexer=_TokenLexer, transformer=_TreeBuilder())


def parse_tree(text: str, known: Collection[str]) -> Node:
    """Return the tree of a text; an empty one means everything. `known` are the names of the fields.

    Raises:
        QueryError: it is no query; the error says where, what was expected and what was probably meant.
    """
    if not text.strip():
        return Everything()
    tokens: Any = Tokenizer(text, known)
    try:
        tree: Any = _parser().parse(tokens)
    except UnexpectedToken as error:
        # Without lark's own error, which speaks of tokens and states that no user knows.
        raise _unexpected(text, error) from None
    except _Ambiguous as error:
        what = "a space means AND here, and an OR stands beside it."
        correction = "Say with brackets what belongs together: (a b) OR c, or a AND (b OR c)."
        raise QueryError(text, error.args[0], what, correction) from None
    except _WithoutEnds as error:
        at, name = error.args
        what = "expected a first or a last value of the range, got neither."
        raise QueryError(text, at, what, f"Write {name}:* for events that have the field.") from None
    node: Node = tree
    return node


def _unexpected(text: str, error: UnexpectedToken) -> QueryError:
    token = error.token
    is_end = token.type == "$END"
    at = len(text.rstrip()) if is_end else token.start_pos or 0
    expected = list(dict.fromkeys(meaning for name, meaning in _EXPECTED.items() if name in error.accepts))
    got = "the end" if is_end else repr(str(token))
    what = f"expected {' or '.join(expected)}, got {got}."
    before = text[:at].split()
    correction = _CORRECTIONS.get(token.type)
    if is_end and before and before[-1] in ("AND", "OR", "NOT"):
        correction = _CORRECTIONS[before[-1]]
    return QueryError(text, at, what, correction)


def parse_query(
    text: str, attributes: Iterable[str] = (), now_ms: int = 0, standard: Sequence[str] = STANDARD_FIELDS
) -> query.Query:
    """Return the query of a text; an empty text matches every event.

    `attributes` and `standard` are what is indexed. `now_ms` is what times such as `-2h` count from.

    Raises:
        InvalidInputError: a text that the language does not describe, an unknown field, a value that its field
            cannot have, or too much of anything; it is a QueryError, which knows the place in the text.
    """
    conditions = Conditions(attributes, now_ms, standard)
    return _query(parse_tree(text, conditions.known), text, conditions)


def _query(node: Node, text: str, conditions: Conditions) -> query.Query:
    match node:
        case Not(part):
            return query.Not(_query(part, text, conditions))
        case And(parts=parts):
            return query.And([_query(part, text, conditions) for part in parts])
        case Or(parts=parts):
            return query.Or([_query(part, text, conditions) for part in parts])
    try:
        return _condition(node, conditions)
    except ConditionError as refused:
        at = node.last_at if isinstance(node, ValueRange) and refused.is_last else node.at
        raise QueryError(text, at, refused.what, refused.correction) from refused


def _condition(leaf: Leaf, conditions: Conditions) -> query.Query:
    match leaf:
        case Everything():
            return query.Every()
        case Exists(name):
            return conditions.exists(name)
        case Pattern(any_name, value):
            return conditions.pattern(any_name, value)
        case TextValue(any_name, value, is_quoted):
            return conditions.equals(any_name, value, is_exact=is_quoted)
    return conditions.between(
        leaf.name, leaf.first, leaf.last, without_first=leaf.without_first, without_last=leaf.without_last
    )
