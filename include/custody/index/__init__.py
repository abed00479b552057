"""Room `index`: Whoosh shards over event logs; never the truth, rebuilt from the logs at any time."""

from custody.index.builder import BuiltShard, build_shard
from custody.index.fields import (
    ATTRIBUTE_PREFIX,
    IDENTIFIER_FIELDS,
    NUMBER_FIELDS,
    POINTER_COLUMN,
    TEXT_FIELD,
    TIME_FIELDS,
    identifier_fields,
    parse_time,
    term,
    whoosh_schema,
    words,
)
from custody.index.searcher import search_shard

__all__ = [
    "ATTRIBUTE_PREFIX",
    "IDENTIFIER_FIELDS",
    "NUMBER_FIELDS",
    "POINTER_COLUMN",
    "TEXT_FIELD",
    "TIME_FIELDS",
    "BuiltShard",
    "build_shard",
    "identifier_fields",
    "parse_time",
    "search_shard",
    "term",
    "whoosh_schema",
    "words",
]
