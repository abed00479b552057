"""The query language: a strict grammar on custody's fields, with whole identifiers, ISO times and strict field names.

`event_type:SEND AND filename:orders*`, `event_time:[2026-01-01 TO 2026-01-31]`, `file_size:[1000 TO]`,
`NOT component_type:PutHDFS`, `details:"auto terminated"`. Text without a field is looked for in all text fields.
Case never matters; both ends of a range belong to it; an end that is a day means the whole day.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from whoosh import query

from custody.index import STANDARD_FIELDS
from custody.query.conditions import Conditions, Refused
from custody.query.grammar import parse_tree
from custody.query.problems import QueryError
from custody.query.tree import And, Everything, Exists, Leaf, Node, Not, Or, Pattern, Range, Text


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
    except Refused as refused:
        at = node.last_at if isinstance(node, Range) and refused.is_last else node.at
        raise QueryError(text, at, refused.what, refused.correction) from refused


def _condition(leaf: Leaf, conditions: Conditions) -> query.Query:
    match leaf:
        case Everything():
            return query.Every()
        case Exists(name):
            return conditions.exists(name)
        case Pattern(any_name, value):
            return conditions.pattern(any_name, value)
        case Text(any_name, value, is_quoted):
            return conditions.equals(any_name, value, is_exact=is_quoted)
    return conditions.between(
        leaf.name, leaf.first, leaf.last, without_first=leaf.without_first, without_last=leaf.without_last
    )
