"""The query language, and the search over the shards that a catalog lists."""

from custody.query.conditions import field_help
from custody.query.facets import SEVERAL_VALUES, check_facets, facets_of, facets_of_table
from custody.query.parser import parse_query
from custody.query.scan import Scan
from custody.query.search import search_state
from custody.query.shard_set import ALL_TIMES, IdRange, SearchHits, SearchStats, ShardSet, TimeBounds, time_bounds
from custody.query.structured import structured_query
from custody.query.syntax_tree import QueryError
from custody.query.times import time_span

__all__ = [
    "ALL_TIMES",
    "SEVERAL_VALUES",
    "IdRange",
    "QueryError",
    "Scan",
    "SearchHits",
    "SearchStats",
    "ShardSet",
    "TimeBounds",
    "check_facets",
    "facets_of",
    "facets_of_table",
    "field_help",
    "parse_query",
    "search_state",
    "structured_query",
    "time_bounds",
    "time_span",
]
