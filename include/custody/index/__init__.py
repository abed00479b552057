"""Index shards over event logs, in Whoosh's format; never the truth, they can be rebuilt from the logs at any time."""

from typing import TYPE_CHECKING

from custody.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from custody.index.arrays import flags, integers, number_scalar, text_array, text_scalar, to_arrow
    from custody.index.builder import BuiltShard, build_shard
    from custody.index.by_question import ByQuestion
    from custody.index.days import UTC_DAYS, Days, day_name
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
        is_numeric,
        searched_fields,
        whole_fields,
        whoosh_schema,
    )
    from custody.index.filter_bank import JoinedFilters, ShardFacts
    from custody.index.filter_file import (
        FilterFile,
        ShardFilter,
        filter_files,
        list_filter_files,
        shard_filter,
        write_filter_file,
    )
    from custody.index.manifest import Description, TermFacts
    from custody.index.plan import Plan
    from custody.index.query_evaluator import QueryEvaluator, leaves
    from custody.index.shard import DAY, OpenShard, ShardCache, describe_shard
    from custody.index.shard_comparison import shard_differences
    from custody.index.stored_shard import ShardSource, StoredShard, open_stored, pack
    from custody.index.terms import WHOLE, TermSet, TermValues, match_wildcard, term, words

__all__ = [
    "ATTRIBUTE_PREFIX",
    "DAY",
    "IDENTIFIER_FIELDS",
    "NUMBER_FIELDS",
    "POINTER_COLUMN",
    "STANDARD_FIELDS",
    "TEXT_FIELD",
    "TIME_FIELDS",
    "UTC_DAYS",
    "WHOLE",
    "BuiltShard",
    "ByQuestion",
    "Days",
    "Description",
    "FilterFile",
    "IndexedFields",
    "JoinedFilters",
    "OpenShard",
    "Plan",
    "QueryEvaluator",
    "ShardCache",
    "ShardFacts",
    "ShardFilter",
    "ShardSource",
    "StoredShard",
    "TermFacts",
    "TermSet",
    "TermValues",
    "build_shard",
    "day_name",
    "describe_shard",
    "filter_files",
    "flags",
    "identifier_fields",
    "integers",
    "is_numeric",
    "leaves",
    "list_filter_files",
    "match_wildcard",
    "number_scalar",
    "open_stored",
    "pack",
    "searched_fields",
    "shard_differences",
    "shard_filter",
    "term",
    "text_array",
    "text_scalar",
    "to_arrow",
    "whole_fields",
    "whoosh_schema",
    "words",
    "write_filter_file",
]

# Imported when they are used, so that a command loads what it needs and no more.
_MODULES = {
    "custody.index.arrays": (
        "flags",
        "integers",
        "number_scalar",
        "text_array",
        "text_scalar",
        "to_arrow",
    ),
    "custody.index.builder": (
        "BuiltShard",
        "build_shard",
    ),
    "custody.index.by_question": ("ByQuestion",),
    "custody.index.fields": (
        "ATTRIBUTE_PREFIX",
        "IDENTIFIER_FIELDS",
        "NUMBER_FIELDS",
        "POINTER_COLUMN",
        "STANDARD_FIELDS",
        "TEXT_FIELD",
        "TIME_FIELDS",
        "IndexedFields",
        "identifier_fields",
        "is_numeric",
        "searched_fields",
        "whole_fields",
        "whoosh_schema",
    ),
    "custody.index.days": ("UTC_DAYS", "Days", "day_name"),
    "custody.index.filter_bank": ("JoinedFilters", "ShardFacts"),
    "custody.index.filter_file": (
        "FilterFile",
        "ShardFilter",
        "filter_files",
        "list_filter_files",
        "shard_filter",
        "write_filter_file",
    ),
    "custody.index.manifest": ("Description", "TermFacts"),
    "custody.index.plan": ("Plan",),
    "custody.index.query_evaluator": ("QueryEvaluator", "leaves"),
    "custody.index.shard": (
        "DAY",
        "OpenShard",
        "ShardCache",
        "describe_shard",
    ),
    "custody.index.shard_comparison": ("shard_differences",),
    "custody.index.stored_shard": ("ShardSource", "StoredShard", "open_stored", "pack"),
    "custody.index.terms": (
        "WHOLE",
        "TermSet",
        "TermValues",
        "match_wildcard",
        "term",
        "words",
    ),
}

if not TYPE_CHECKING:  # a checker would take every name for one that is here
    __getattr__ = lazy_exports(__name__, _MODULES)
