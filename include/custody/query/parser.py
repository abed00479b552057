"""The parser of the query language: a text becomes tokens, a syntax tree, and a Whoosh query.

`event_type:SEND AND filename:orders*`, `event_time:[2026-01-01 TO 2026-01-31]`, `file_size:[1000 TO]`,
`NOT component_type:PutHDFS`, `details:"auto terminated"`. Text without a field is looked for in all text fields.
Case never matters; both ends of a range belong to it; an end that is a day means the whole day.

The grammar is strict: what it does not describe is refused. AND binds tighter than OR, NOT tighter than both. A space
stands for AND, except beside an OR, where the meaning would be a guess.

The place of a character decides what it means: a field is one of the known names with its colon, a text ends at a
space or a bracket, a doubled quote means a quote. Each token knows the field that it belongs to, so that a mistake is
reported where it was made, with a likely correction.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedToken, v_args
from lark.lexer import Lexer, LexerState
from whoosh import query

from custody.index import NUMBER_FIELDS, STANDARD_FIELDS, TIME_FIELDS
from custody.query.conditions import ConditionError, Conditions
from custody.query.syntax_tree import (
    TO,
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
    did_you_mean,
    quoted,
)

QUERY_CHARACTERS_MAX = 4096
# Bounds the recursion over the tree, in every reader of it.
DEPTH_MAX = 64
"""Brackets and NOTs in each other."""

_WORDS = {"AND", "OR", "NOT"}
# Operators of other query languages, which would else be looked for as words.
_FOREIGN = {"ANDNOT": "AND NOT", "ANDMAYBE": None, "REQUIRE": "AND"}
_BRACKETS = frozenset('()[]{}"')
_QUOTES = frozenset("\"'")
# What is a space to `re` is one to `str.isspace`.
_SPACE = re.compile(r"\s*")
_RUN = re.compile(r"""[^\s()\[\]{}"]*""")
# As uuids are: no operator, sign, colon or pattern, whatever is checked of a text that stands behind a field.
_IDENTIFIER = re.compile(r"[0-9A-Za-z]+(?:-[0-9A-Za-z]+)+")
_ANY_IDENTIFIER = re.compile(rf"\(\s*{_IDENTIFIER.pattern}(?:\s+OR\s+{_IDENTIFIER.pattern})*\s*\)\s*")
_HALF = re.compile("[\ud800-\udfff]")
_OPENERS = frozenset("[{")
_CLOSERS = {"]": "[", "}": "{"}
_COMPARED = re.compile(r"([^\W\d][\w.\-]*)\s*(==|!=|>=|<=|=~|=|>|<)\s*([^\s()\[\]{}\"']*)")
_SIGN = re.compile(r"(==|!=|>=|<=|=|>|<|!|\+|-)(.*)", re.DOTALL)
_RANKING = re.compile(r"(.+)([\^~])\d*(\.\d*)?", re.DOTALL)
# Not before `//`: a URL is a text and not a field with a value.
_COLON = re.compile(r"([^:]*):(?!//)")
_MEANS = {
    ">": "{name}:[{value} TO]",
    ">=": "{name}:[{value} TO]",
    "<": "{name}:[TO {value}]",
    "<=": "{name}:[TO {value}]",
    "!=": "NOT {name}:{value}",
}


@lru_cache(maxsize=64)
def _field_pattern(known: tuple[str, ...]) -> re.Pattern[str]:
    """Return what finds the name of a field with its colon; a repository has the same fields in all questions."""
    # Longest first: the name of one field may be the beginning of another's, and a name may hold any sign.
    names = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    return re.compile(rf"({names}):")


class QueryToken(Token):
    """A token and the field that it belongs to, None where no field was named."""

    scope: str | None = None


class Tokenizer:
    """The tokens of one query. `known` are the names of the fields; an attribute's name may hold any sign."""

    def __init__(self, text: str, known: Collection[str]) -> None:
        self._text = text
        self._known = known
        self._field = _field_pattern(tuple(known))
        self._at = 0
        # Of each open bracket: its place, the field of what is in it, and the NOTs before it.
        self._open: list[tuple[int, str | None, int]] = []
        self._nots = 0
        self._depth = 0

    def __iter__(self) -> Iterator[QueryToken]:
        """Yield the tokens.

        Raises:
            QueryError: something in the text can be no token.
        """
        self._check_text()
        while self._skip_space():
            yield from self._next()
        if self._open:
            raise self._error("this bracket is not closed.", "Write ) where it ends.", self._open[-1][0])

    def _check_text(self) -> None:
        if len(self._text) > QUERY_CHARACTERS_MAX:
            what = f"expected at most {QUERY_CHARACTERS_MAX} characters, got {len(self._text)}."
            raise self._error(what, "Ask in parts, or with --structured.", QUERY_CHARACTERS_MAX)
        if half := _HALF.search(self._text):
            raise self._error("half of a character that is no Unicode text.", None, half.start())

    def _next(self) -> Iterator[QueryToken]:
        character = self._text[self._at]
        scope = self._scope
        if character == "(":
            yield self._opened(scope)
        elif character == ")":
            yield self._closed()
        elif match := self._field.match(self._text, self._at):
            yield from self._fielded(match[1])
        else:
            yield from self._value(scope)

    @property
    def _scope(self) -> str | None:
        return self._open[-1][1] if self._open else None

    def _fielded(self, name: str) -> Iterator[QueryToken]:
        # The bracket belongs to one field, so a second field in it would silently win or lose.
        if self._scope is not None:
            what = f"a field inside of the brackets that belong to {self._scope}."
            raise self._error(what, f"Close them first, or quote the text: {quoted(name + ':…')}.")
        yield self._piece("FIELD", name + ":", name)
        following = self._text[self._at : self._at + 1]
        if not following or following.isspace() or following == ")":
            rest = self._text[self._at :].split(maxsplit=1)
            correction = f"Write {name}:{rest[0]}" if rest and following.isspace() else f"Write {name}:VALUE"
            what = f"expected a value right behind {name}: and got {_shown(following)}."
            raise self._error(what, correction + f", or {name}:* for events that have the field.")
        if following == "(":
            yield self._opened(name)
        elif again := self._field.match(self._text, self._at):
            what = f"the value of {name} begins with the name of a field."
            raise self._error(what, f"Quote it: {name}:{quoted(again[0] + '…')}.")
        else:
            yield from self._value(name)

    def _value(self, scope: str | None) -> Iterator[QueryToken]:
        character = self._text[self._at]
        if character in _QUOTES:
            yield self._quoted("QUOTED", scope)
            self._nots_end()
        elif character in _OPENERS:
            yield from self._range(scope)
            self._nots_end()
        elif character in _CLOSERS:
            what = f"{character} without a {_CLOSERS[character]} before it."
            raise self._error(what, f"Quote a text that holds a bracket: {quoted('a[1].csv')}.")
        else:
            yield self._bare(scope)

    def _bare(self, scope: str | None) -> QueryToken:
        start, text = self._at, self._run()
        is_first = start == 0 or self._text[start - 1] != ":"  # not right behind its field
        following = self._text[start + len(text) : start + len(text) + 1]
        if is_first and text in _WORDS:
            return self._operator(text)
        if following and following in _BRACKETS and following != ")":
            at = start + len(text)
            # Quoted, the signs of a wildcard would stand for themselves.
            advice = (
                "A wildcard has * for any characters and ? for one, and no others."
                if "*" in text or "?" in text
                else f"Quote a text that holds one: {quoted(text + following + '…')}."
            )
            raise self._error(f"{following} inside of a text.", advice, at)
        if scope is None or not _IDENTIFIER.fullmatch(text):
            self._check_bare(text, scope, is_first=is_first)
        self._nots_end()
        return self._piece("TEXT", text, scope)

    def _run(self) -> str:
        """Return the text from here to the next space or bracket."""
        run = _RUN.match(self._text, self._at)
        return run[0] if run else ""

    def _operator(self, word: str) -> QueryToken:
        if word == "NOT":
            self._nots += 1
            self._deeper()
        return self._piece(word, word, None)

    def _check_bare(self, text: str, scope: str | None, *, is_first: bool) -> None:
        if is_first:
            self._check_word(text)
        if scope is None:
            self._check_unfielded(text)
        elif is_first and scope not in TIME_FIELDS and _COLON.match(text):
            what = f"a text with a colon inside of the brackets that belong to {scope}."
            raise self._error(what, f"Quote it: {quoted(text)}.")
        is_number = scope in NUMBER_FIELDS or scope in TIME_FIELDS
        sign = _SIGN.fullmatch(text)
        if sign and not (is_number and sign[1] in "+-"):
            raise self._error(f"a text that begins with {sign[1]}.", _meant(scope, sign[1], sign[2], text))
        if not is_number and (ranking := _RANKING.fullmatch(text)):
            what = f"there is no {'boost' if ranking[2] == '^' else 'fuzzy search'}, for results are not ranked."
            raise self._error(what, f"Write {ranking[1]}, or quote the text: {quoted(text)}.")
        if not any(character.isalnum() or character in "*?_" for character in text):
            raise self._error(f"{_shown(text)} holds neither letter nor digit.", f"Quote it: {quoted(text)}.")

    def _check_word(self, text: str) -> None:
        if text.upper() in _WORDS:
            what = f"operators are written in capitals, got {text}."
            raise self._error(what, f"Write {text.upper()}, or quote the word: {quoted(text)}.")
        if text in _FOREIGN:
            instead = f"Write {_FOREIGN[text]}, or quote" if _FOREIGN[text] else "Quote"
            raise self._error(f"{text} is no operator here.", f"{instead} the word: {quoted(text)}.")
        if text == "&&" or text == "||":
            raise self._error(f"{text} is no operator here.", f"Write {'AND' if text == '&&' else 'OR'}.")

    def _check_unfielded(self, text: str) -> None:
        compared = _COMPARED.match(self._text, self._at)
        if compared and (compared.end(1) < self._at + len(text) or compared[1] in self._known):
            name, sign, value = compared.groups()
            guess = name if name in self._known else None
            correction = _meant(guess or name, sign, value, text) if guess else _unknown(name, self._known, text)
            raise self._error("a field and its value are joined by a colon.", correction, compared.start(2))
        if text in self._known:
            what = f"{text} is the name of a field."
            raise self._error(what, f"Write {text}:VALUE, or quote the word: {quoted(text)}.")
        if colon := _COLON.match(text):
            what, correction = unknown_field(colon[1], self._known, text[colon.end() :])
            raise self._error(what, correction)

    def _quoted(self, kind: str, scope: str | None) -> QueryToken:
        start, quote = self._at, self._text[self._at]
        parts: list[str] = []
        begin = start + 1
        while True:
            end = self._text.find(quote, begin)
            if end < 0:
                raise self._error("this quote is not closed.", f"Write {quote} where the text ends.", start)
            parts.append(self._text[begin:end])
            # A quote behind a quote stands for itself; the text goes on behind it.
            if self._text[end + 1 : end + 2] != quote:
                break
            begin = end + 2
        following = self._text[end + 1 : end + 2]
        if following and not following.isspace() and following not in ")]}":
            what = f"expected a space behind the closing quote, got {_shown(following)}."
            raise self._error(
                what, f"A quote inside of a text is doubled: {quote}a {quote * 2}b{quote * 2} c{quote}.", end + 1
            )
        piece = self._piece(kind, quote.join(parts), scope)
        self._at = end + 1
        return piece

    def _range(self, scope: str | None) -> Iterator[QueryToken]:
        opened = self._at
        if scope is None:
            raise self._error(
                "a range belongs to a field.", "Write FIELD:[FIRST TO LAST], or quote a text that holds a bracket."
            )
        yield self._piece("OPEN", self._text[opened], scope)
        while self._skip_space():
            character = self._text[self._at]
            if character in _CLOSERS:
                yield self._piece("CLOSE", character, scope)
                self._check_behind_range()
                return
            yield self._end(scope)
        raise self._error("this range is not closed.", "Write ] where it ends, or } to leave its last end out.", opened)

    def _end(self, scope: str) -> QueryToken:
        character = self._text[self._at]
        if character in _QUOTES:
            return self._quoted("END", scope)
        text = self._run()
        if not text:
            raise self._error(
                f"{character} inside of a range.", f"Quote an end that holds a bracket: {quoted('a(1)')}."
            )
        if text.upper() == TO:
            if text != TO:
                raise self._error(
                    f"TO is written in capitals, got {text}.", f"Write TO, or quote the word: {quoted(text)}."
                )
            return self._piece(TO, text, scope)
        if "*" in text or "?" in text:
            raise self._error("an end of a range has no * and no ?.", f"Quote it to mean the sign: {quoted(text)}.")
        return self._piece("END", text, scope)

    def _check_behind_range(self) -> None:
        following = self._text[self._at : self._at + 1]
        if following and not following.isspace() and following != ")":
            raise self._error(f"expected a space behind the range, got {_shown(following)}.", None)

    def _opened(self, scope: str | None) -> QueryToken:
        # NOTs before a bracket count until it closes, those before a condition until its end.
        self._open.append((self._at, scope, self._nots))
        self._nots = 0
        self._deeper()
        return self._piece("LPAR", "(", scope)

    def _closed(self) -> QueryToken:
        if not self._open:
            raise self._error("this bracket was never opened.", "Remove it, or quote a text that holds it.")
        _, scope, before = self._open.pop()
        self._depth -= 1 + self._nots + before
        self._nots = 0
        return self._piece("RPAR", ")", scope)

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise self._error(f"expected at most {DEPTH_MAX} brackets and NOTs in each other, got more.", None)

    def _nots_end(self) -> None:
        self._depth -= self._nots
        self._nots = 0

    def _skip_space(self) -> bool:
        """Go to the next character that is no space; return whether there is one."""
        space = _SPACE.match(self._text, self._at)
        self._at = space.end() if space else self._at
        return self._at < len(self._text)

    def _piece(self, kind: str, text: str, scope: str | None) -> QueryToken:
        """Return a token that begins here, and go behind it."""
        piece = QueryToken(kind, text, start_pos=self._at)
        piece.scope = scope
        self._at += len(text)
        return piece

    def _error(self, what: str, correction: str | None, at: int | None = None) -> QueryError:
        return QueryError(self._text, self._at if at is None else at, what, correction)


def _meant(name: str | None, sign: str, value: str, text: str) -> str:
    """Return the likely correction of a sign of comparison or negation before a value."""
    if sign in "+-!":
        instead = f"Write NOT {value}" if sign in "-!" else f"Write {value}"
    elif name is None:
        instead = f"Write FIELD:{value or 'VALUE'}"
    else:
        instead = "Write " + _MEANS.get(sign, "{name}:{value}").format(name=name, value=value or "VALUE")
    return f"{instead}, or quote the text: {quoted(text)}."


def unknown_field(name: str, known: Collection[str], value: str | None = None) -> tuple[str, str]:
    """Return the message about an unknown field, and a correction."""
    near = did_you_mean(name, known, "{}" if value is None else "{}:" + value.replace("{", "{{").replace("}", "}}"))
    correction = (
        f"{near + ' ' if near else ''}Known fields: {', '.join(known)}. Quote a text that contains a colon; "
        "the settings index.fields and index.attributes say what is indexed."
    )
    return f"unknown field {name!r}.", correction


def _unknown(name: str, known: Collection[str], text: str) -> str:
    near = did_you_mean(name, known, "{}:")
    return f"{near + ' ' if near else 'Write FIELD:VALUE. '}Quote a text that holds such a sign: {quoted(text)}."


def _shown(text: str) -> str:
    return "the end" if not text else "a space" if text.isspace() else repr(text)


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
        return _leaf_of(token)

    def text_in_quotes(self, token: QueryToken) -> Leaf:
        return _leaf_of(token)

    def range(self, opened: QueryToken, *rest: QueryToken) -> Leaf:
        return _range_of(opened, *rest)


def _leaf_of(token: QueryToken) -> Leaf:
    """Return what a text asks, with quotes or without."""
    text, at = str(token), token.start_pos or 0
    if token.type == "QUOTED":
        return TextValue(token.scope, text, is_quoted=True, at=at)
    if not set(text) - {"*"}:
        return Everything(at) if token.scope is None else Exists(token.scope, at)
    return (Pattern if "*" in text or "?" in text else TextValue)(token.scope, text, at=at)


def _range_of(opened: QueryToken, *rest: QueryToken) -> Leaf:
    """Return what a range asks; it has TO, and a value before it or behind it."""
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


_TEXTS = frozenset(("TEXT", "QUOTED"))
_RANGES = (["OPEN", "END", "TO", "END", "CLOSE"], ["OPEN", "END", "TO", "CLOSE"], ["OPEN", "TO", "END", "CLOSE"])


def _chain_of(tokens: Sequence[QueryToken]) -> Node | None:
    """Return the tree of conditions with the same operator between each two, in the brackets of one field or without
    any; None for another text, or none at all.

    Nearly all questions are such. The grammar takes ten steps for each condition, and to make it takes longer than the
    first search of a process.
    """
    if [token.type for token in tokens[:2]] == ["FIELD", "LPAR"] and tokens[-1].type == "RPAR":
        tokens = tokens[2:-1]
    kinds = [token.type for token in tokens]
    leaves, operators, at = [], set(), 0
    while True:
        # A text knows its field, and behind the name of one follows what belongs to it.
        at += kinds[at : at + 1] == ["FIELD"]
        if kinds[at : at + 1] == ["OPEN"]:
            end = kinds.index("CLOSE", at) + 1 if "CLOSE" in kinds[at:] else at
            if kinds[at:end] not in _RANGES:
                return None
            leaves.append(_range_of(*tokens[at:end]))
            at = end
        elif at < len(kinds) and kinds[at] in _TEXTS:
            leaves.append(_leaf_of(tokens[at]))
            at += 1
        else:
            return None
        if at == len(kinds):
            break
        operators.add(kinds[at])
        at += 1
    if len(operators) > 1 or not operators <= {"AND", "OR"}:
        return None
    if len(leaves) == 1:
        return leaves[0]
    return Or(tuple(leaves)) if "OR" in operators else And(tuple(leaves), None)


def _any_identifier(text: str, known: Collection[str]) -> Node | None:
    """Return the tree of `FIELD:(ID OR ID …)`, as some FlowFiles are asked for; None for another text.

    Cut into tokens, a hundred uuids take 1.5 ms, and the search in a shard one.
    """
    field = _field_pattern(tuple(known)).match(text, len(text) - len(text.lstrip()))
    if field is None or len(text) > QUERY_CHARACTERS_MAX or not _ANY_IDENTIFIER.fullmatch(text, field.end()):
        return None
    found = _IDENTIFIER.finditer(text, field.end())
    leaves = tuple(TextValue(field[1], one[0], at=one.start()) for one in found)
    return Or(leaves) if len(leaves) > 1 else leaves[0]


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
    identifiers = _any_identifier(text, known)
    if identifiers is not None:
        return identifiers
    tokens: Any = Tokenizer(text, known)
    try:
        cut = list(tokens)
    except QueryError:
        # Something before it may be wrong, too: whoever reads the tokens one by one finds what comes first.
        tokens = Tokenizer(text, known)
    else:
        chain = _chain_of(cut)
        if chain is not None:
            return chain
        tokens = cut
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
