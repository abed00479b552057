"""Room `index`: Whoosh shards over event logs; never the truth, rebuilt from the logs at any time."""

from custody.index.arrays import flags, integers, number, text, to_arrow
from custody.index.builder import BuiltShard, build_shard
from custody.index.fields import (
    ATTRIBUTE_PREFIX,
    IDENTIFIER_FIELDS,
    NUMBER_FIELDS,
    POINTER_COLUMN,
    STANDARD_FIELDS,
    TEXT_FIELD,
    TIME_FIELDS,
    IndexedFields,
    identifier_fields,
    parse_time,
    searched_fields,
    whoosh_schema,
    words,
)
from custody.index.shard import DAY, DAY_MS, OpenShard, ShardCache, day_name, describe_shard, search_shard
from custody.index.terms import TermValues, term
from custody.index.wildcards import matching

__all__ = [
    "ATTRIBUTE_PREFIX",
    "DAY",
    "DAY_MS",
    "IDENTIFIER_FIELDS",
    "NUMBER_FIELDS",
    "POINTER_COLUMN",
    "STANDARD_FIELDS",
    "TEXT_FIELD",
    "TIME_FIELDS",
    "BuiltShard",
    "IndexedFields",
    "OpenShard",
    "ShardCache",
    "TermValues",
    "build_shard",
    "day_name",
    "describe_shard",
    "flags",
    "identifier_fields",
    "integers",
    "matching",
    "number",
    "parse_time",
    "search_shard",
    "searched_fields",
    "term",
    "text",
    "to_arrow",
    "whoosh_schema",
    "words",
]
