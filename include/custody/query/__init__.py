"""The query language, and the search over the shards that a catalog lists."""

from typing import TYPE_CHECKING

from custody.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from custody.query.conditions import field_help
    from custody.query.facets import SEVERAL_VALUES, check_facets, facet_fields, facets_of, facets_of_table
    from custody.query.joined_shards import JoinedChoice, JoinedShards, ShardChoice
    from custody.query.may_match import blocks_that_may_match
    from custody.query.parser import parse_query
    from custody.query.scan import Scan
    from custody.query.shard_search import search_state
    from custody.query.shard_set import (
        ALL_TIMES,
        IdRange,
        LiveShards,
        SearchHits,
        SearchStats,
        ShardSet,
        TimeBounds,
        time_bounds,
    )
    from custody.query.structured import structured_query
    from custody.query.syntax_tree import QueryError
    from custody.query.times import time_span

__all__ = [
    "ALL_TIMES",
    "SEVERAL_VALUES",
    "IdRange",
    "JoinedChoice",
    "JoinedShards",
    "LiveShards",
    "QueryError",
    "Scan",
    "SearchHits",
    "SearchStats",
    "ShardChoice",
    "ShardSet",
    "TimeBounds",
    "blocks_that_may_match",
    "check_facets",
    "facet_fields",
    "facets_of",
    "facets_of_table",
    "field_help",
    "parse_query",
    "search_state",
    "structured_query",
    "time_bounds",
    "time_span",
]

# Imported when they are used, so that a command loads what it needs and no more.
_MODULES = {
    "custody.query.conditions": ("field_help",),
    "custody.query.facets": (
        "SEVERAL_VALUES",
        "check_facets",
        "facet_fields",
        "facets_of",
        "facets_of_table",
    ),
    "custody.query.joined_shards": (
        "JoinedChoice",
        "JoinedShards",
        "ShardChoice",
    ),
    "custody.query.may_match": ("blocks_that_may_match",),
    "custody.query.parser": ("parse_query",),
    "custody.query.scan": ("Scan",),
    "custody.query.shard_search": ("search_state",),
    "custody.query.shard_set": (
        "ALL_TIMES",
        "IdRange",
        "LiveShards",
        "SearchHits",
        "SearchStats",
        "ShardSet",
        "TimeBounds",
        "time_bounds",
    ),
    "custody.query.structured": ("structured_query",),
    "custody.query.syntax_tree": ("QueryError",),
    "custody.query.times": ("time_span",),
}

if not TYPE_CHECKING:  # a checker would take every name for one that is here
    __getattr__ = lazy_exports(__name__, _MODULES)
